/*
 * floor: the cheapest WebSocket relay that still works, as a yardstick.
 *
 *   floor PORT ws|wsv|raw [READ_BUFFER_BYTES] [CONGESTION]
 *
 * One thread, one epoll, edge triggered. It does only what any relay must do:
 * read, parse frame headers, unmask, write. It has no limits, checks almost
 * nothing, forwards a message before all of it has arrived, and keeps whatever
 * the other side will not take in a buffer without a bound. That is what makes
 * it a floor: a product pays for everything it adds to this.
 *
 *   ws   unmask and close up the gaps in one pass, one contiguous write
 *   wsv  unmask in place, one writev with a piece per frame
 *   raw  forward bytes as they are (no WebSocket after the handshake)
 *
 * Two sockets that ask for the same ?id=N are a pair. CONGESTION names a
 * congestion control for the listener, which accepted sockets inherit.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <immintrin.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MODE_WS, MODE_WSV, MODE_RAW };
enum { STATE_HTTP = 0, STATE_OPEN = 1, STATE_DEAD = 9 };

enum {
	MAX_IDS = 1 << 20,
	MAX_PIECES = 1024,     /* iovecs of one writev */
	HEADROOM = 64,         /* in front of the read buffer, for a split header */
	KEEP_QUEUE = 1 << 20,  /* a drained queue larger than this is freed */
};

typedef struct conn {
	int fd;
	uint8_t state;
	uint8_t readable;
	uint8_t writable;
	uint8_t held;          /* bytes of an incomplete header in hdr */
	uint8_t hdr[16];
	uint64_t left;         /* payload bytes still to come of the current frame */
	uint32_t mask;         /* rotated to the next payload byte */
	struct conn *peer;
	char *out;             /* what the kernel did not take: out[sent..queued) */
	size_t queued;
	size_t sent;
	size_t cap;
	int id;
} conn;

static conn *waiting[MAX_IDS];
static int mode;
static size_t read_size = 256 << 10;
static uint8_t *read_buffer;

static const char accepted[] =
	"HTTP/1.1 101 Switching Protocols\r\n"
	"Upgrade: websocket\r\n"
	"Connection: Upgrade\r\n"
	"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
	"\r\n";

/* drop closes c and, with it, its peer. The struct is leaked on purpose: an
 * event of the same epoll_wait may still point at it. */
static void drop(conn *c)
{
	conn *p = c->peer;

	if (waiting[c->id % MAX_IDS] == c)
		waiting[c->id % MAX_IDS] = NULL;
	close(c->fd);
	c->fd = -1;
	free(c->out);
	c->out = NULL;
	c->state = STATE_DEAD;
	if (p) {
		p->peer = NULL;
		c->peer = NULL;
		drop(p);
	}
}

/* xor_copy unmasks n bytes from src to dst, which may overlap when dst <= src. */
static inline void xor_copy(uint8_t *dst, const uint8_t *src, size_t n, uint32_t mask)
{
	size_t i = 0;
	uint64_t wide = ((uint64_t)mask << 32) | mask;
	uint8_t *byte = (uint8_t *)&mask;

#ifdef __AVX512F__
	if (n >= 64) {
		__m512i m = _mm512_set1_epi32(mask);

		for (; i + 64 <= n; i += 64)
			_mm512_storeu_si512(dst + i, _mm512_xor_si512(m, _mm512_loadu_si512(src + i)));
	}
#endif
	for (; i + 8 <= n; i += 8) {
		uint64_t word;

		memcpy(&word, src + i, 8);
		word ^= wide;
		memcpy(dst + i, &word, 8);
	}
	for (; i < n; i++)
		dst[i] = src[i] ^ byte[i & 3];
}

static void enqueue(conn *c, const uint8_t *b, size_t n)
{
	if (c->queued + n > c->cap) {
		c->cap = (c->queued + n) * 2;
		c->out = realloc(c->out, c->cap);
	}
	memcpy(c->out + c->queued, b, n);
	c->queued += n;
}

/* send_pieces writes the pieces to c and queues what the kernel refuses. */
static int send_pieces(conn *c, struct iovec *piece, int pieces)
{
	size_t total = 0;
	size_t done = 0;
	int i;

	for (i = 0; i < pieces; i++)
		total += piece[i].iov_len;
	if (!total)
		return 0;

	if (c->writable && c->queued == c->sent) {
		ssize_t k;

		if (pieces == 1)
			k = write(c->fd, piece[0].iov_base, total);
		else
			k = writev(c->fd, piece, pieces);
		if (k < 0) {
			if (errno != EAGAIN)
				return -1;
			k = 0;
		}
		done = k;
		if (done < total)
			c->writable = 0;
	}
	if (done == total)
		return 0;

	for (i = 0; i < pieces; i++) {
		if (done >= piece[i].iov_len) {
			done -= piece[i].iov_len;
			continue;
		}
		enqueue(c, (uint8_t *)piece[i].iov_base + done, piece[i].iov_len - done);
		done = 0;
	}
	return 0;
}

/* hold keeps the n bytes of a header that is not complete yet. */
static void hold(conn *c, const uint8_t *b, size_t n)
{
	memcpy(c->hdr, b, n);
	c->held = n;
}

/*
 * feed forwards the n bytes at b to c's peer and returns -1 on a fault.
 *
 * The output is a run [start, end) inside the input buffer. In ws mode each
 * frame is moved up against the one before it (a server's header is four bytes
 * shorter than the client's), so that the run never breaks; in wsv mode a run
 * ends where the next frame begins and becomes a piece of its own.
 */
static int feed(conn *c, uint8_t *b, size_t n)
{
	struct iovec piece[MAX_PIECES];
	int pieces = 0;
	uint8_t *limit = b + n;
	uint8_t *start = NULL;
	uint8_t *end = NULL;

	if (mode == MODE_RAW) {
		piece[0].iov_base = b;
		piece[0].iov_len = n;
		return send_pieces(c->peer, piece, 1);
	}

	while (b < limit) {
		size_t avail = limit - b;
		size_t header = 2;
		uint64_t length;
		uint8_t plain[10];

		if (c->left) {
			size_t k = avail;

			if (k > c->left)
				k = c->left;
			if (!end)
				start = end = b;
			if (mode == MODE_WSV && end != b) {
				piece[pieces].iov_base = start;
				piece[pieces++].iov_len = end - start;
				start = end = b;
				if (pieces >= MAX_PIECES - 24) {
					send_pieces(c->peer, piece, pieces);
					pieces = 0;
				}
			}
			xor_copy(end, b, k, c->mask);
			end += k;
			b += k;
			c->left -= k;
			if (k & 3) {
				int r = (k & 3) * 8;

				c->mask = (c->mask >> r) | (c->mask << (32 - r));
			}
			continue;
		}

		if (avail < 6) {
			hold(c, b, avail);
			break;
		}
		length = b[1] & 127;
		if (length == 126) {
			header = 4;
			if (avail < 8) {
				hold(c, b, avail);
				break;
			}
			length = (b[2] << 8) | b[3];
		} else if (length == 127) {
			header = 10;
			if (avail < 14) {
				hold(c, b, avail);
				break;
			}
			memcpy(&length, b + 2, 8);
			length = __builtin_bswap64(length);
		}
		if (!(b[1] & 0x80))
			return -1; /* a client must mask */
		if ((b[0] & 15) == 8)
			return -1; /* close */

		memcpy(&c->mask, b + header, 4);
		memcpy(plain, b, 10);
		plain[1] &= 0x7f;
		if (!end)
			start = end = b + 4;
		if (mode == MODE_WSV && end != b + 4) {
			piece[pieces].iov_base = start;
			piece[pieces++].iov_len = end - start;
			start = end = b + 4;
			if (pieces >= MAX_PIECES - 24) {
				send_pieces(c->peer, piece, pieces);
				pieces = 0;
			}
		}
		memcpy(end, plain, header);
		end += header;
		b += header + 4;
		c->left = length;
	}

	if (end > start) {
		piece[pieces].iov_base = start;
		piece[pieces++].iov_len = end - start;
	}
	return send_pieces(c->peer, piece, pieces);
}

static void pull(conn *c);

/* handshake answers the upgrade in b and finds the peer. It returns -1 when
 * the request is not one of the generator's. */
static int handshake(conn *c, uint8_t *b, size_t n)
{
	char *query;
	int slot;

	if (n >= read_size)
		n = read_size - 1;
	b[n] = 0;
	query = strstr((char *)b, "?id=");
	if (!query || !strstr((char *)b, "\r\n\r\n"))
		return -1;
	c->id = atoi(query + 4);
	slot = c->id % MAX_IDS;
	if (write(c->fd, accepted, sizeof accepted - 1) < 0)
		return -1;
	c->state = STATE_OPEN;
	if (!waiting[slot]) {
		waiting[slot] = c;
		return 0;
	}
	c->peer = waiting[slot];
	c->peer->peer = c;
	waiting[slot] = NULL;
	pull(c->peer);
	return 0;
}

/* pull reads c until the kernel has no more, or the peer does not take it. */
static void pull(conn *c)
{
	for (;;) {
		uint8_t *b = read_buffer + HEADROOM;
		ssize_t k;

		if (c->state == STATE_DEAD || !c->readable)
			return;
		if (c->state == STATE_OPEN && (!c->peer || c->peer->queued > c->peer->sent))
			return;

		k = read(c->fd, b, read_size);
		if (k < 0 && errno == EAGAIN) {
			c->readable = 0;
			return;
		}
		if (k <= 0) {
			drop(c);
			return;
		}
		if ((size_t)k < read_size)
			c->readable = 0;

		if (c->state == STATE_HTTP) {
			if (handshake(c, b, k) < 0) {
				drop(c);
				return;
			}
			continue;
		}
		if (c->held) {
			b -= c->held;
			memcpy(b, c->hdr, c->held);
			k += c->held;
			c->held = 0;
		}
		if (feed(c, b, k) < 0) {
			drop(c);
			return;
		}
	}
}

/* flush goes on with what was queued, then lets the peer be read again. */
static void flush(conn *c)
{
	ssize_t k;

	c->writable = 1;
	if (c->queued == c->sent)
		return;
	k = write(c->fd, c->out + c->sent, c->queued - c->sent);
	if (k < 0 && errno == EAGAIN) {
		c->writable = 0;
		return;
	}
	if (k < 0) {
		drop(c);
		return;
	}
	c->sent += k;
	if (c->sent < c->queued) {
		c->writable = 0;
		return;
	}
	c->queued = c->sent = 0;
	if (c->cap > KEEP_QUEUE) {
		free(c->out);
		c->out = NULL;
		c->cap = 0;
	}
	if (c->peer)
		pull(c->peer);
}

static void accept_all(int listener, int epoll)
{
	int one = 1;
	int fd;

	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
		conn *c = calloc(1, sizeof *c);
		struct epoll_event e = {
			.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
			.data.ptr = c,
		};

		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		c->fd = fd;
		c->writable = 1;
		epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
	}
}

static int open_listener(int port, const char *congestion)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int one = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (congestion && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, strlen(congestion))) {
		perror("TCP_CONGESTION");
		exit(1);
	}
	if (bind(fd, (void *)&addr, sizeof addr) || listen(fd, 4096)) {
		perror("bind");
		exit(1);
	}
	return fd;
}

int main(int argc, char **argv)
{
	struct epoll_event event[256];
	struct epoll_event e = {.events = EPOLLIN};
	int listener;
	int epoll;

	if (argc < 2) {
		fprintf(stderr, "usage: floor PORT ws|wsv|raw [READ_BUFFER_BYTES] [CONGESTION]\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	if (argc > 2 && !strcmp(argv[2], "raw"))
		mode = MODE_RAW;
	if (argc > 2 && !strcmp(argv[2], "wsv"))
		mode = MODE_WSV;
	if (argc > 3 && atol(argv[3]) > 0)
		read_size = atol(argv[3]);
	read_buffer = aligned_alloc(64, read_size + 2 * HEADROOM);

	listener = open_listener(atoi(argv[1]), argc > 4 && *argv[4] ? argv[4] : NULL);
	epoll = epoll_create1(0);
	epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e);

	for (;;) {
		int n = epoll_wait(epoll, event, 256, -1);
		int i;

		for (i = 0; i < n; i++) {
			conn *c = event[i].data.ptr;

			if (!c) {
				accept_all(listener, epoll);
				continue;
			}
			if (c->state == STATE_DEAD)
				continue;
			if (event[i].events & EPOLLOUT)
				flush(c);
			if (c->state == STATE_DEAD)
				continue;
			if (event[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)) {
				c->readable = 1;
				pull(c);
			}
		}
	}
}
