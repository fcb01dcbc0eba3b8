// resolve NAME: prints its addresses, as the C library that it is linked with finds them.
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>

int main(int argc, char **argv) {
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *all;
	char text[INET6_ADDRSTRLEN];
	int rc = argc == 2 ? getaddrinfo(argv[1], "443", &hints, &all) : EAI_NONAME;
	if (rc) {
		fprintf(stderr, "%s\n", gai_strerror(rc));
		return 1;
	}
	for (; all; all = all->ai_next) {
		const void *a = all->ai_family == AF_INET ? (void *)&((struct sockaddr_in *)all->ai_addr)->sin_addr : (void *)&((struct sockaddr_in6 *)all->ai_addr)->sin6_addr;
		puts(inet_ntop(all->ai_family, a, text, sizeof text));
	}
	return 0;
}
