/* SPDX-License-Identifier: Apache-2.0 */
#include "sock_kit.h"

#include "asserts.h"

#include "base/hash.h"

#include <dirent.h>
#include <poll.h>
#include <unistd.h>

rd_address parsed(const char *text)
{
    rd_address a;
    assert_ok(rd_address_parse(&a, text));
    return a;
}

const char *unique_name(void)
{
    static char name[48];
    unsigned char random[8];
    char digits[17];
    rd_random(random, sizeof random);
    rd_hex(digits, random, sizeof random);
    snprintf(name, sizeof name, "rondo-test-%s", digits);
    return name;
}

void tcp_pair(int *client, int *server)
{
    int listener, port;
    assert_ok(rd_sock_listen_tcp(&listener, 0, &port));
    rd_address to = parsed("127.0.0.1:1");
    rd_address_set_port(&to, port);
    assert_ok(rd_sock_connect(client, &to, SOON));
    assert_ok(rd_sock_wait(listener, POLLIN, SOON));
    assert_ok(rd_sock_accept(listener, server));
    close(listener);
}

void unix_pair(int *client, int *server)
{
    char text[RD_ADDRESS_TEXT];
    const char *name = unique_name();
    int listener;
    assert_ok(rd_sock_listen_unix(&listener, name));
    snprintf(text, sizeof text, "unix:%s", name);
    rd_address to = parsed(text);
    assert_ok(rd_sock_connect(client, &to, SOON));
    assert_ok(rd_sock_accept(listener, server));
    close(listener);
}

int open_files(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir)) count++;
    closedir(dir);
    return count;
}
