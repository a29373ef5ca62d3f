/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/sock.h"
#include "base/status.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>

#define UNIX_PREFIX  "unix:"
#define LONGEST_UNIX (RD_ADDRESS_TEXT - sizeof UNIX_PREFIX)

/* ---- Text ---- */

static bool parse_port(const char *text, int *port)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || value > 65535) return false;
    *port = (int)value;
    return true;
}

static bool parse_unix(rd_address *a, const char *name)
{
    struct sockaddr_un *un = (struct sockaddr_un *)&a->at;
    size_t length = strlen(name);
    if (length == 0 || length > LONGEST_UNIX) return false;
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path + 1, name, length); /* the byte 0 before it is what makes it abstract */
    a->bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    return true;
}

static bool parse_ip(rd_address *a, const char *ip, int port)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&a->at;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a->at;
    char plain[RD_ADDRESS_TEXT];
    if (inet_pton(AF_INET, ip, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        a->bytes = sizeof *v4;
        return true;
    }
    snprintf(plain, sizeof plain, "%s", ip);
    char *scope = strchr(plain, '%');
    if (scope) *scope++ = 0;
    if (inet_pton(AF_INET6, plain, &v6->sin6_addr) != 1) return false;
    if (scope && !(v6->sin6_scope_id = if_nametoindex(scope))) return false;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)port);
    a->bytes = sizeof *v6;
    return true;
}

rondo_result rd_address_parse(rd_address *address, const char *text)
{
    rd_address a;
    char ip[RD_ADDRESS_TEXT];
    const char *colon = strrchr(text, ':');
    int port;
    memset(&a, 0, sizeof a);
    if (strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0) {
        if (!parse_unix(&a, text + strlen(UNIX_PREFIX))) goto bad;
    } else {
        if (!colon || colon == text || (size_t)(colon - text) >= sizeof ip || !parse_port(colon + 1, &port)) goto bad;
        bool v6 = text[0] == '[' && colon[-1] == ']';
        snprintf(ip, sizeof ip, "%.*s", (int)(colon - text) - 2 * v6, text + v6);
        if (v6 != (strchr(ip, ':') != NULL) || !parse_ip(&a, ip, port)) goto bad;
    }
    *address = a;
    return RONDO_SUCCESS;
bad:
    return rd_fail(RONDO_INVALID_ARGUMENT,
                   "\"%.100s\" is no address; valid: 10.0.0.1:4711, [fd00::1]:4711, unix:name (1 to %zu characters)",
                   text, LONGEST_UNIX);
}

static void print_unix(const rd_address *a, char text[RD_ADDRESS_TEXT])
{
    const struct sockaddr_un *un = (const struct sockaddr_un *)&a->at;
    const size_t head = offsetof(struct sockaddr_un, sun_path) + 1;
    size_t length = a->bytes > head ? a->bytes - head : 0, used = strlen(UNIX_PREFIX);
    memcpy(text, UNIX_PREFIX, used);
    if (length == 0) { /* a client's end has none */
        snprintf(text + used, RD_ADDRESS_TEXT - used, "(no name)");
        return;
    }
    /* A peer may have chosen it: nothing but plain characters goes into our messages. */
    for (size_t i = 0; i < length && i < LONGEST_UNIX; i++) {
        unsigned char c = (unsigned char)un->sun_path[1 + i];
        text[used++] = isgraph(c) && c < 128 ? (char)c : '?';
    }
    text[used] = 0;
}

void rd_address_print(const rd_address *address, char text[RD_ADDRESS_TEXT])
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->at;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address->at;
    char ip[INET6_ADDRSTRLEN] = "", scope[IF_NAMESIZE] = "";
    switch (address->at.ss_family) {
    case AF_UNIX: print_unix(address, text); return;
    case AF_INET:
        inet_ntop(AF_INET, &v4->sin_addr, ip, sizeof ip);
        snprintf(text, RD_ADDRESS_TEXT, "%s:%d", ip, ntohs(v4->sin_port));
        return;
    case AF_INET6:
        inet_ntop(AF_INET6, &v6->sin6_addr, ip, sizeof ip);
        if (v6->sin6_scope_id) (void)!if_indextoname(v6->sin6_scope_id, scope);
        snprintf(text, RD_ADDRESS_TEXT, "[%.39s%s%.15s]:%d", ip, *scope ? "%" : "", scope, ntohs(v6->sin6_port));
        return;
    default: snprintf(text, RD_ADDRESS_TEXT, "(no address)");
    }
}

void rd_address_set_port(rd_address *address, int port)
{
    if (address->at.ss_family == AF_INET) ((struct sockaddr_in *)&address->at)->sin_port = htons((uint16_t)port);
    if (address->at.ss_family == AF_INET6) ((struct sockaddr_in6 *)&address->at)->sin6_port = htons((uint16_t)port);
}

int rd_address_port(const rd_address *address)
{
    if (address->at.ss_family == AF_INET) return ntohs(((const struct sockaddr_in *)&address->at)->sin_port);
    if (address->at.ss_family == AF_INET6) return ntohs(((const struct sockaddr_in6 *)&address->at)->sin6_port);
    return 0;
}

bool rd_address_is_loopback(const rd_address *address)
{
    if (address->at.ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)&address->at)->sin_addr.s_addr) >> 24 == 127;
    if (address->at.ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)&address->at)->sin6_addr);
    return true;
}

/* ---- Names ---- */

static void keep(const struct sockaddr *at, socklen_t bytes, int port, rd_address *a)
{
    memset(a, 0, sizeof *a);
    memcpy(&a->at, at, bytes);
    a->bytes = bytes;
    rd_address_set_port(a, port);
}

rondo_result rd_address_resolve(const char *host, int port, int64_t deadline, rd_address *list, int room, int *count)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int error, n = 0;
    while ((error = getaddrinfo(host, NULL, &hints, &found))) {
        bool may_come = error == EAI_AGAIN || error == EAI_NONAME;
        if (!may_come || rd_now() >= deadline)
            return rd_fail(may_come ? RONDO_INVALID_ARGUMENT : RONDO_SYSTEM_ERROR,
                           "host name \"%.200s\" has no address: %s", host,
                           error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    }
    for (struct addrinfo *a = found; a && n < room; a = a->ai_next)
        if (a->ai_family == AF_INET || a->ai_family == AF_INET6) keep(a->ai_addr, a->ai_addrlen, port, &list[n++]);
    freeaddrinfo(found);
    *count = n;
    return RONDO_SUCCESS;
}
