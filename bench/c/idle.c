/*
 * idle: what an idle upgraded socket costs the server in memory.
 *
 *   idle PORT SERVER_PID N [burst] [HOLD_SECONDS]
 *
 * Opens N upgraded sockets (N/2 pairs) and prints the growth of the server's
 * resident memory per socket. With burst, every socket then sends one message
 * of 1 KiB and the growth is taken again after it went through. The sockets are
 * spread over source addresses 127.0.0.2, .3, ... so that ports do not run out.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	PER_ADDRESS = 2000,
	MESSAGE_BYTES = 1024,
	FIRST_ID = 5000000, /* away from the load generator's */
};

/* kilobytes reads one line of /proc/PID/status, or of /proc/meminfo for pid 0. */
static long kilobytes(int pid, const char *key)
{
	char path[64];
	char line[256];
	long value = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/status", pid);
	if (pid == 0)
		strcpy(path, "/proc/meminfo");
	f = fopen(path, "r");
	if (!f) {
		perror(path);
		exit(1);
	}
	while (fgets(line, sizeof line, f))
		if (!strncmp(line, key, strlen(key)))
			value = atol(line + strlen(key) + 1);
	fclose(f);
	return value;
}

static int dial(int port, int i)
{
	struct sockaddr_in from = {.sin_family = AF_INET};
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
	char b[4096];
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	int got = 0;
	int n;

	from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + i / PER_ADDRESS);
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	bind(fd, (void *)&from, sizeof from);
	if (connect(fd, (void *)&to, sizeof to)) {
		perror("connect");
		exit(1);
	}
	n = snprintf(b, sizeof b,
		     "GET /ws?id=%d&serverId=idle-%d&role=%s HTTP/1.1\r\n"
		     "Host: localhost\r\n"
		     "Upgrade: websocket\r\n"
		     "Connection: Upgrade\r\n"
		     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
		     "Sec-WebSocket-Version: 13\r\n"
		     "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36\r\n"
		     "Origin: http://localhost\r\n"
		     "\r\n",
		     FIRST_ID + i / 2, i / 2, i % 2 ? "client" : "server");
	if (write(fd, b, n) != n) {
		perror("write");
		exit(1);
	}
	while (got < 4 || memcmp(b + got - 4, "\r\n\r\n", 4)) {
		if (got == sizeof b || read(fd, b + got, 1) <= 0) {
			fprintf(stderr, "no answer to upgrade %d: %.*s\n", i, got, b);
			exit(1);
		}
		got++;
	}
	if (memcmp(b, "HTTP/1.1 101", 12)) {
		fprintf(stderr, "upgrade %d refused: %.*s\n", i, got, b);
		exit(1);
	}
	return fd;
}

/* burst sends one message on every socket and takes the peers' in. */
static void burst(const int *fd, int n)
{
	static unsigned char frame[8 + MESSAGE_BYTES];
	char b[4096];
	int i;

	frame[0] = 0x82;
	frame[1] = 0x80 | 126;
	frame[2] = MESSAGE_BYTES >> 8;
	frame[3] = MESSAGE_BYTES & 255;
	for (i = 0; i < n; i++) {
		if (write(fd[i], frame, sizeof frame) != sizeof frame) {
			perror("write");
			exit(1);
		}
	}
	usleep(1500000);
	for (i = 0; i < n; i++) {
		int got = 0;

		while (got < 4 + MESSAGE_BYTES) {
			int k = recv(fd[i], b, sizeof b, MSG_DONTWAIT);

			if (k <= 0)
				break;
			got += k;
		}
		if (got != 4 + MESSAGE_BYTES) {
			fprintf(stderr, "socket %d got %d bytes\n", i, got);
			break;
		}
	}
	sleep(1);
}

int main(int argc, char **argv)
{
	long rss0, rss1, rss2, slab0, avail0;
	int port, pid, n, i;
	int *fd;

	if (argc < 4) {
		fprintf(stderr, "usage: idle PORT SERVER_PID N [burst] [HOLD_SECONDS]\n");
		return 2;
	}
	port = atoi(argv[1]);
	pid = atoi(argv[2]);
	n = atoi(argv[3]);
	fd = malloc(n * sizeof *fd);

	rss0 = kilobytes(pid, "VmRSS:");
	slab0 = kilobytes(0, "Slab:");
	avail0 = kilobytes(0, "MemAvailable:");
	for (i = 0; i < n; i++)
		fd[i] = dial(port, i);
	sleep(1);
	rss1 = kilobytes(pid, "VmRSS:");
	if (argc > 4)
		burst(fd, n);
	rss2 = kilobytes(pid, "VmRSS:");

	printf("n=%d rss0=%ldKB rss1=%ldKB per_conn=%.2fKB after1KmsgEach=%.2fKB "
	       "slab_delta_per_conn(2socks)=%.2fKB memavail_delta_per_conn=%.2fKB\n",
	       n, rss0, rss1, (rss1 - rss0) / (double)n, (rss2 - rss0) / (double)n,
	       (kilobytes(0, "Slab:") - slab0) / (double)n,
	       (avail0 - kilobytes(0, "MemAvailable:")) / (double)n);
	fflush(stdout);
	sleep(argc > 5 ? atoi(argv[5]) : 0);
	return 0;
}
