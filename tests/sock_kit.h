/* SPDX-License-Identifier: Apache-2.0
 *
 * sock_kit.h - addresses, and connected pairs of sockets. What fails fails the test.
 */
#ifndef RONDO_TEST_SOCK_KIT_H
#define RONDO_TEST_SOCK_KIT_H

#include "base/clock.h"
#include "base/sock.h"

#define SOON rd_deadline(10)

rd_address parsed(const char *text);
/* A name nobody else uses. */
const char *unique_name(void);

/* Both ends of a connection. */
void tcp_pair(int *client, int *server);
void unix_pair(int *client, int *server);

/* Descriptors of this process. */
int open_files(void);

#endif
