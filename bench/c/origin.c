/*
 * origin: a trivial HTTP origin for proxy measurements.
 *
 *   origin PORT
 *
 * Every request is answered with 200 and 1,024 bytes on a kept-alive connection,
 * once its body, if Content-Length announces one, has been read and dropped. No
 * pipelining; a chunked body, or a head that does not fit, ends the connection.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	BODY_BYTES = 1024,
	HEAD_BYTES = 8192,
	DESCRIPTORS = 65536,
};

/* What a connection has of a request that has not come whole. */
struct conn {
	char *head; /* NULL, or HEAD_BYTES for the part of a head */
	int head_size;
	long body_left;
};

static struct conn conns[DESCRIPTORS]; /* by descriptor */

static char answer[2048];
static int answer_size;

static void make_answer(void)
{
	answer_size = sprintf(answer,
			      "HTTP/1.1 200 OK\r\n"
			      "Content-Type: application/octet-stream\r\n"
			      "Content-Length: %d\r\n"
			      "\r\n",
			      BODY_BYTES);
	memset(answer + answer_size, 'x', BODY_BYTES);
	answer_size += BODY_BYTES;
}

static int open_listener(int port)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int one = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(fd, (void *)&addr, sizeof addr) || listen(fd, 4096)) {
		perror("bind");
		exit(1);
	}
	return fd;
}

static void accept_all(int listener, int epoll)
{
	int one = 1;
	int fd;

	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
		struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};

		if (fd >= DESCRIPTORS) {
			close(fd);
			continue;
		}
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
	}
}

static void hang_up(int fd)
{
	free(conns[fd].head);
	memset(&conns[fd], 0, sizeof conns[fd]);
	close(fd);
}

static void reply(int fd)
{
	if (write(fd, answer, answer_size) != answer_size)
		hang_up(fd);
}

/*
 * content_length of a head that ends in an empty line and a NUL; -1 for a head
 * this origin cannot serve.
 */
static long content_length(const char *head)
{
	const char *line = head;

	while ((line = strstr(line, "\r\n")) && line[2] != '\r') {
		line += 2;
		if (!strncasecmp(line, "Content-Length:", 15))
			return atol(line + 15);
		if (!strncasecmp(line, "Transfer-Encoding:", 18))
			return -1;
	}
	return 0;
}

/*
 * read_head looks for the end of a head in the n bytes at b, behind which there
 * is room for a NUL, and answers what is complete.
 */
static void read_head(int fd, char *b, int n)
{
	struct conn *c = &conns[fd];
	char *end = memmem(b, n, "\r\n\r\n", 4);
	char kept;
	long length;

	if (!end) {
		if (n >= HEAD_BYTES) {
			hang_up(fd);
			return;
		}
		if (!c->head)
			c->head = malloc(HEAD_BYTES + 1);
		memmove(c->head, b, n);
		c->head_size = n;
		return;
	}
	end += 4;
	c->head_size = 0;
	n -= end - b;
	/* The body behind the head must not be taken for lines. */
	kept = *end;
	*end = 0;
	length = content_length(b);
	*end = kept;
	if (length < n) {
		hang_up(fd);
		return;
	}
	c->body_left = length - n;
	if (c->body_left == 0)
		reply(fd);
}

static void serve(int fd)
{
	static char b[65536 + 1];
	struct conn *c = &conns[fd];
	char *at = b;
	int room = sizeof b - 1;
	int n;

	if (c->head_size > 0) {
		at = c->head + c->head_size;
		room = HEAD_BYTES - c->head_size;
	}
	n = read(fd, at, room);
	if (n <= 0) {
		hang_up(fd);
		return;
	}
	if (c->body_left == 0) {
		read_head(fd, c->head_size > 0 ? c->head : b, c->head_size + n);
		return;
	}
	c->body_left -= n;
	if (c->body_left < 0)
		hang_up(fd);
	else if (c->body_left == 0)
		reply(fd);
}

int main(int argc, char **argv)
{
	struct epoll_event event[256];
	struct epoll_event e = {.events = EPOLLIN};
	int listener;
	int epoll;

	if (argc < 2) {
		fprintf(stderr, "usage: origin PORT\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	make_answer();
	listener = open_listener(atoi(argv[1]));
	epoll = epoll_create1(0);
	e.data.fd = listener;
	epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e);

	for (;;) {
		int n = epoll_wait(epoll, event, 256, -1);
		int i;

		for (i = 0; i < n; i++) {
			if (event[i].data.fd == listener)
				accept_all(listener, epoll);
			else
				serve(event[i].data.fd);
		}
	}
}
