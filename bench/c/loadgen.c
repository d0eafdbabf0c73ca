/*
 * loadgen: a closed-loop WebSocket load generator on one thread.
 *
 *   loadgen -p PORT -P SERVER_PID [-n PAIRS] [-s PAYLOAD] [-w WINDOW] [-d SECONDS]
 *           [-m thr|bidi|ping|verify] [-warm SECONDS] [-raw] [-cc CONGESTION]
 *           [-block] [-rt]
 *
 * It connects PAIRS pairs as /ws?serverId=bench-N&role=server|client and keeps
 * WINDOW messages of PAYLOAD bytes in flight per pair, so it can only go as
 * fast as the server does.
 *
 *   thr     server -> client; prints messages a second and the *server's* CPU
 *           seconds per million messages. That last figure is the one to
 *           compare: it hardly depends on the generator.
 *   bidi    the same in both directions
 *   verify  bidi, and every byte that arrives is compared
 *   ping    one pair, one message back and forth; prints round-trip quantiles
 *
 * From 8 KiB on, messages are sent from a memfd with sendfile and received with
 * MSG_TRUNC, so that the generator does not copy and stays ahead of the server.
 *
 * -cc sets the congestion control of every socket: a kernel whose default is
 * BBR paces loopback traffic, which distorts large messages. -block makes ping
 * wait in the kernel instead of spinning, and -rt gives it real-time priority
 * where that is allowed: both for measuring latency beside another generator on
 * the same core.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	SENDFILE_FROM = 8192,    /* payload bytes */
	RECEIVE_BYTES = 1 << 20, /* of one recv */
	MAX_RTTS = 4000000,
};

typedef struct conn {
	int fd;
	int writable;
	struct conn *peer;
	uint64_t sent;     /* bytes written */
	uint64_t received; /* bytes read */
	uint64_t target;   /* write up to here: what was delivered, plus the window */
	uint64_t verified; /* position within the message being compared */
} conn;

static int port = 9000;
static int pairs = 50;
static int window = 32;
static int raw;
static int server_pid;
static int both_ways;
static int verify;
static int blocking;
static int realtime;
static size_t payload = 64;
static double duration = 2;
static double warm_up = 0.4;
static const char *run_mode = "thr";
static const char *congestion;

static size_t in_frame;  /* bytes of a frame as we send it (masked) */
static size_t out_frame; /* bytes of a frame as the relay delivers it */
static size_t ring_size; /* whole frames, repeated */
static char *ring;
static int ring_fd = -1;
static int use_sendfile;

static char receive_buffer[RECEIVE_BYTES];
static uint64_t delivered;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* server_cpu is the user and system time of the server in seconds. */
static double server_cpu(void)
{
	char path[64];
	char b[2048];
	unsigned long user, system;
	size_t n;
	FILE *f;

	if (!server_pid)
		return 0;
	snprintf(path, sizeof path, "/proc/%d/stat", server_pid);
	f = fopen(path, "r");
	if (!f)
		return 0;
	n = fread(b, 1, sizeof b - 1, f);
	b[n] = 0;
	fclose(f);
	sscanf(strrchr(b, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
	return (user + system) / (double)sysconf(_SC_CLK_TCK);
}

static double own_cpu(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return r.ru_utime.tv_sec + r.ru_stime.tv_sec + 1e-6 * (r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

static size_t put_header(uint8_t *b, size_t size, int masked)
{
	int m = masked ? 0x80 : 0;
	int i;

	b[0] = 0x82;
	if (size < 126) {
		b[1] = size | m;
		return 2;
	}
	if (size < 65536) {
		b[1] = 126 | m;
		b[2] = size >> 8;
		b[3] = size;
		return 4;
	}
	b[1] = 127 | m;
	for (i = 0; i < 8; i++)
		b[2 + i] = size >> (56 - 8 * i);
	return 10;
}

static uint8_t pattern(size_t i)
{
	return i * 131 + 7 + (i >> 8);
}

/* fill_ring prepares the frames to send, each with a mask of its own. */
static void fill_ring(void)
{
	uint8_t header[16];
	size_t header_size = put_header(header, payload, 1);
	size_t frames, f, i;

	in_frame = header_size + 4 + payload;
	out_frame = raw ? in_frame : header_size + payload;
	use_sendfile = payload >= SENDFILE_FROM;

	frames = (use_sendfile ? 4 << 20 : 256 << 10) / in_frame;
	if (frames < 1)
		frames = 1;
	if (frames < 4 && use_sendfile)
		frames = 4;
	ring_size = frames * in_frame;
	ring = malloc(ring_size);

	for (f = 0; f < frames; f++) {
		uint8_t *b = (uint8_t *)ring + f * in_frame;
		uint8_t *mask = b + header_size;
		uint32_t m = 0x12345678u * (f * 2 + 1) + 0x9e37;

		memcpy(b, header, header_size);
		memcpy(mask, &m, 4);
		for (i = 0; i < payload; i++)
			mask[4 + i] = pattern(i) ^ mask[i & 3];
	}
	if (!use_sendfile)
		return;

	ring_fd = memfd_create("frames", 0);
	if (ftruncate(ring_fd, ring_size)) {
		perror("ftruncate");
		exit(1);
	}
	for (i = 0; i < ring_size;) {
		ssize_t k = pwrite(ring_fd, ring + i, ring_size - i, i);

		if (k <= 0) {
			perror("pwrite");
			exit(1);
		}
		i += k;
	}
}

static int dial(int id, const char *role)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
	char request[512];
	char answer[4096];
	int one = 1;
	int got = 0;
	int n;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (congestion && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, strlen(congestion))) {
		perror("TCP_CONGESTION");
		exit(1);
	}
	if (connect(fd, (void *)&to, sizeof to)) {
		perror("connect");
		exit(1);
	}
	n = snprintf(request, sizeof request,
		     "GET /ws?id=%d&serverId=bench-%d&role=%s HTTP/1.1\r\n"
		     "Host: localhost\r\n"
		     "Upgrade: websocket\r\n"
		     "Connection: Upgrade\r\n"
		     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
		     "Sec-WebSocket-Version: 13\r\n"
		     "\r\n",
		     id, id, role);
	if (write(fd, request, n) != n) {
		perror("write");
		exit(1);
	}
	while (got < (int)sizeof answer) {
		if (read(fd, answer + got, 1) <= 0) {
			fprintf(stderr, "no answer to the upgrade: %.*s\n", got, answer);
			exit(1);
		}
		got++;
		if (got >= 4 && !memcmp(answer + got - 4, "\r\n\r\n", 4))
			break;
	}
	if (memcmp(answer, "HTTP/1.1 101", 12)) {
		fprintf(stderr, "upgrade refused: %.*s\n", got, answer);
		exit(1);
	}
	return fd;
}

/* push writes c up to its target, or until the kernel has enough. */
static void push(conn *c)
{
	while (c->writable && c->sent < c->target) {
		uint64_t offset = c->sent % ring_size;
		size_t n = c->target - c->sent;
		ssize_t k;

		if (n > ring_size - offset)
			n = ring_size - offset;
		if (use_sendfile) {
			off_t o = offset;

			k = sendfile(c->fd, ring_fd, &o, n);
		} else {
			k = write(c->fd, ring + offset, n);
		}
		if (k < 0 && errno == EAGAIN) {
			c->writable = 0;
			return;
		}
		if (k < 0) {
			perror("write");
			exit(1);
		}
		c->sent += k;
		if ((size_t)k < n && !use_sendfile) {
			c->writable = 0;
			return;
		}
	}
}

/* credit lets the source of what c received go on. */
static void credit(conn *c)
{
	uint64_t target = (c->received / out_frame + window) * in_frame;

	if (target > c->peer->target) {
		c->peer->target = target;
		push(c->peer);
	}
}

static void compare(conn *c, const uint8_t *b, size_t n)
{
	static uint8_t *want;
	size_t i;

	if (!want) {
		size_t header_size;

		want = malloc(out_frame + 16);
		header_size = put_header(want, payload, 0);
		for (i = 0; i < payload; i++)
			want[header_size + i] = pattern(i);
	}
	for (i = 0; i < n; i++) {
		if (b[i] != want[c->verified]) {
			fprintf(stderr, "VERIFY FAIL at %zu got %02x want %02x\n",
				(size_t)c->verified, b[i], want[c->verified]);
			exit(3);
		}
		if (++c->verified == out_frame)
			c->verified = 0;
	}
}

static void receive(conn *c)
{
	for (;;) {
		uint64_t before = c->received / out_frame;
		ssize_t k;

		if (use_sendfile && !verify)
			k = recv(c->fd, NULL, RECEIVE_BYTES, MSG_TRUNC);
		else
			k = recv(c->fd, receive_buffer, RECEIVE_BYTES, 0);
		if (k < 0 && errno == EAGAIN)
			return;
		if (k < 0) {
			perror("read");
			exit(1);
		}
		if (k == 0) {
			fprintf(stderr, "the relay closed a socket\n");
			exit(1);
		}
		if (verify)
			compare(c, (uint8_t *)receive_buffer, k);
		c->received += k;
		delivered += c->received / out_frame - before;
		if (k != RECEIVE_BYTES)
			return;
	}
}

static void set_nonblocking(conn *c)
{
	fcntl(c->fd, F_SETFL, O_NONBLOCK);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;

	return (x > y) - (x < y);
}

/* send_one and receive_one move one frame; they spin on EAGAIN unless -block. */
static void send_one(conn *c)
{
	size_t done = 0;

	while (done < in_frame) {
		ssize_t k = write(c->fd, ring + done, in_frame - done);

		if (k < 0 && errno == EAGAIN)
			continue;
		if (k < 0) {
			perror("write");
			exit(1);
		}
		done += k;
	}
}

static void receive_one(conn *c)
{
	size_t got = 0;

	while (got < out_frame) {
		ssize_t k = read(c->fd, receive_buffer, sizeof receive_buffer);

		if (k < 0 && errno == EAGAIN)
			continue;
		if (k <= 0) {
			fprintf(stderr, "the relay closed a socket\n");
			exit(1);
		}
		got += k;
	}
}

static int run_ping(conn *a, conn *b)
{
	double *rtt = malloc(MAX_RTTS * sizeof *rtt);
	size_t n = 0;
	double warm_until = now() + warm_up;
	double end = warm_until + duration;
	double began = now();
	double cpu = server_cpu();
	int started = 0;

	if (!blocking) {
		set_nonblocking(a);
		set_nonblocking(b);
	}
	if (realtime) {
		struct sched_param p = {.sched_priority = 1};

		if (sched_setscheduler(0, SCHED_FIFO, &p))
			perror("no real-time priority, going on without");
	}
	while (n < MAX_RTTS) {
		double t = now();

		if (t > end)
			break;
		if (!started && t > warm_until) {
			started = 1;
			n = 0;
			cpu = server_cpu();
			began = t;
		}
		send_one(a);
		receive_one(b);
		send_one(b);
		receive_one(a);
		rtt[n++] = now() - t;
	}
	began = now() - began;
	cpu = server_cpu() - cpu;
	if (!n) {
		fprintf(stderr, "no round trip within the time\n");
		return 4;
	}
	qsort(rtt, n, sizeof *rtt, ascending);
	printf("ping S=%zu rtts=%zu p50us=%.2f p99us=%.2f p999us=%.2f srvcpu_s_per_M=%.3f srvutil=%.0f\n",
	       payload, n, rtt[n / 2] * 1e6, rtt[(size_t)(n * .99)] * 1e6, rtt[(size_t)(n * .999)] * 1e6,
	       cpu / (2.0 * n) * 1e6, cpu / began * 100);
	return 0;
}

static int run_load(conn *conns)
{
	struct epoll_event event[256];
	double began = now();
	double warm_until = began + warm_up;
	double end = warm_until + duration;
	double started_at = 0, cpu = 0, own = 0, elapsed, messages;
	uint64_t first = 0;
	int started = 0;
	int epoll = epoll_create1(0);
	int i;

	for (i = 0; i < 2 * pairs; i++) {
		struct epoll_event e = {
			.events = EPOLLIN | EPOLLOUT | EPOLLET,
			.data.ptr = &conns[i],
		};

		set_nonblocking(&conns[i]);
		epoll_ctl(epoll, EPOLL_CTL_ADD, conns[i].fd, &e);
	}
	for (i = 0; i < 2 * pairs; i++) {
		if (i % 2 && !both_ways)
			continue;
		conns[i].target = (uint64_t)window * in_frame;
		push(&conns[i]);
	}

	for (;;) {
		int n = epoll_wait(epoll, event, 256, 1000);
		double t = now();

		if (!started && t >= warm_until) {
			started = 1;
			started_at = t;
			cpu = server_cpu();
			own = own_cpu();
			first = delivered;
		}
		if (t >= end)
			break;
		if (n == 0 && delivered == first && t > began + 5) {
			fprintf(stderr, "STALL\n");
			return 4;
		}
		for (i = 0; i < n; i++) {
			conn *c = event[i].data.ptr;

			if (event[i].events & EPOLLIN) {
				receive(c);
				if (both_ways || (c - conns) % 2)
					credit(c);
			}
			if (event[i].events & EPOLLOUT) {
				c->writable = 1;
				push(c);
			}
		}
	}
	elapsed = now() - started_at;
	cpu = server_cpu() - cpu;
	own = own_cpu() - own;
	messages = delivered - first;
	printf("%s S=%zu n=%d W=%d msgs_s=%.0f MB_s=%.0f srvcpu_s_per_M=%.3f srvutil=%.0f lgutil=%.0f\n",
	       run_mode, payload, pairs, window, messages / elapsed, messages * payload / elapsed / 1e6,
	       cpu / messages * 1e6, cpu / elapsed * 100, own / elapsed * 100);
	return 0;
}

static void parse_flags(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++) {
		const char *flag = argv[i];

		if (!strcmp(flag, "-raw")) {
			raw = 1;
			continue;
		}
		if (!strcmp(flag, "-block")) {
			blocking = 1;
			continue;
		}
		if (!strcmp(flag, "-rt")) {
			realtime = 1;
			continue;
		}
		if (++i == argc) {
			fprintf(stderr, "loadgen: unknown flag, or no value: %s\n", flag);
			exit(2);
		}
		if (!strcmp(flag, "-p"))
			port = atoi(argv[i]);
		else if (!strcmp(flag, "-n"))
			pairs = atoi(argv[i]);
		else if (!strcmp(flag, "-s"))
			payload = atol(argv[i]);
		else if (!strcmp(flag, "-w"))
			window = atoi(argv[i]);
		else if (!strcmp(flag, "-d"))
			duration = atof(argv[i]);
		else if (!strcmp(flag, "-m"))
			run_mode = argv[i];
		else if (!strcmp(flag, "-P"))
			server_pid = atoi(argv[i]);
		else if (!strcmp(flag, "-warm"))
			warm_up = atof(argv[i]);
		else if (!strcmp(flag, "-cc"))
			congestion = *argv[i] ? argv[i] : NULL;
		else {
			fprintf(stderr, "loadgen: unknown flag %s\n", flag);
			exit(2);
		}
	}
	verify = !strcmp(run_mode, "verify");
	both_ways = verify || !strcmp(run_mode, "bidi");
}

int main(int argc, char **argv)
{
	/* Ids of two generators that run at once must not meet. */
	int first_id = getpid() % 1000 * 1000;
	conn *conns;
	int i;

	signal(SIGPIPE, SIG_IGN);
	parse_flags(argc, argv);
	fill_ring();

	conns = calloc(pairs * 2, sizeof *conns);
	for (i = 0; i < 2 * pairs; i++) {
		conns[i].fd = dial(first_id + i / 2, i % 2 ? "client" : "server");
		conns[i].peer = &conns[i ^ 1];
		conns[i].writable = 1;
	}
	usleep(100000); /* a pair may need a moment to meet on one loop */

	if (!strcmp(run_mode, "ping"))
		return run_ping(&conns[0], &conns[1]);
	return run_load(conns);
}
