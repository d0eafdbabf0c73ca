/*
 * origin: a trivial HTTP origin for proxy measurements.
 *
 *   origin PORT
 *
 * Every read that ends a request head is answered with 200 and 1,024 bytes on a
 * kept-alive connection. It looks at nothing else: no pipelining, no bodies.
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

enum { BODY_BYTES = 1024 };

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

		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
	}
}

static void serve(int fd)
{
	static char b[65536];
	int n = read(fd, b, sizeof b - 1);

	if (n <= 0) {
		close(fd);
		return;
	}
	if (n >= 4 && !memcmp(b + n - 4, "\r\n\r\n", 4)) {
		if (write(fd, answer, answer_size) != answer_size)
			close(fd);
	}
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
