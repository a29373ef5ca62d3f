/* SPDX-License-Identifier: Apache-2.0
 *
 * one_piece.h - for tests that are linked with sendmsg and recvmsg of their own (ld --wrap): send and recv, too, which
 * move one piece, seen there like a list of one. Included behind the two.
 */
#ifndef RONDO_TEST_ONE_PIECE_H
#define RONDO_TEST_ONE_PIECE_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

ssize_t __wrap_send(int fd, const void *from, size_t bytes, int flags)
{
    struct iovec one = {(void *)(uintptr_t)from, bytes};
    return __wrap_sendmsg(fd, &(struct msghdr){.msg_iov = &one, .msg_iovlen = 1}, flags);
}

ssize_t __wrap_recv(int fd, void *to, size_t bytes, int flags)
{
    struct iovec one = {to, bytes};
    return __wrap_recvmsg(fd, &(struct msghdr){.msg_iov = &one, .msg_iovlen = 1}, flags);
}

#endif
