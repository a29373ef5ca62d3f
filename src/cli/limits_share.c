/* SPDX-License-Identifier: Apache-2.0
 *
 * Each rank makes a piece of shared memory and says where it is: its process and descriptor. The others open that
 * through /proc, and a random token in it tells whether they are on that process's host at all.
 */
#include "base/shared.h"
#include "base/status.h"
#include "cli/limits.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

typedef struct notice {
    int32_t pid, fd;
    uint64_t token;
} notice;

/* The token lies behind the memory that was asked for. */
static size_t with_token(size_t bytes)
{
    return bytes + sizeof(uint64_t);
}

static void *map_peer(const notice *peer, size_t bytes)
{
    char path[64];
    void *at = NULL;
    uint64_t token = 0;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)peer->pid, (int)peer->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return NULL;
    rondo_result result = rd_shared_map(fd, with_token(bytes), &at);
    close(fd);
    if (result != RONDO_SUCCESS) return NULL;
    memcpy(&token, (unsigned char *)at + bytes, sizeof token);
    if (token == peer->token) return at;
    rd_shared_unmap(at, with_token(bytes));
    return NULL;
}

/* Maps what the others announced. */
static bool map_all(rd_commons *commons, const notice *all, int rank)
{
    for (int r = 0; r < commons->size; r++)
        if (r != rank && (all[r].fd < 0 || !(commons->of[r] = map_peer(&all[r], commons->bytes)))) return false;
    return all[rank].fd >= 0;
}

/* Makes this rank's own; fd -1 in the notice when that is not possible. */
static void make_mine(rd_commons *commons, int rank, notice *mine)
{
    *mine = (notice){.pid = getpid(), .fd = -1};
    if (getrandom(&mine->token, sizeof mine->token, 0) != (ssize_t)sizeof mine->token) return;
    int fd;
    if (rd_shared_create("rondo bench", with_token(commons->bytes), &commons->of[rank], &fd) != RONDO_SUCCESS) return;
    memcpy((unsigned char *)commons->of[rank] + commons->bytes, &mine->token, sizeof mine->token);
    mine->fd = fd;
}

rondo_result rd_commons_open(rd_commons *commons, size_t bytes, rondo_comm *comm)
{
    int rank = rondo_comm_rank(comm), size = rondo_comm_size(comm);
    rd_commons made = {calloc((size_t)size, sizeof *made.of), bytes, size};
    notice *all = calloc((size_t)size, sizeof *all);
    int32_t good = 0;
    rondo_result result = RONDO_SUCCESS;
    if (!made.of || !all) {
        result = rd_fail_errno("no memory for a list of %d ranks", size);
        goto free_lists;
    }
    make_mine(&made, rank, &all[rank]);
    result = rondo_all_gather(&all[rank], all, sizeof *all, RONDO_UINT8, comm, NULL);
    if (result == RONDO_SUCCESS) {
        good = map_all(&made, all, rank);
        result = rondo_all_reduce(&good, &good, 1, RONDO_INT32, RONDO_MIN, comm, NULL); /* all have mapped, or not */
    }
    if (all[rank].fd >= 0) close(all[rank].fd);
    if (result == RONDO_SUCCESS && !good)
        result = rd_fail(RONDO_INVALID_USAGE,
                         "the ranks cannot share %zu bytes of memory each: they are on several "
                         "hosts, or there is not enough",
                         bytes);
    if (result != RONDO_SUCCESS) {
        rd_commons_close(&made);
        goto free_lists;
    }
    *commons = made;
    free(all);
    return RONDO_SUCCESS;
free_lists:
    free(made.of);
    free(all);
    return result;
}

void rd_commons_close(rd_commons *commons)
{
    for (int r = 0; commons->of && r < commons->size; r++) rd_shared_unmap(commons->of[r], with_token(commons->bytes));
    free(commons->of);
    commons->of = NULL;
}
