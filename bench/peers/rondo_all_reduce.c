/* SPDX-License-Identifier: Apache-2.0
 *
 * rondo_all_reduce, to be timed by serve.c, and the limits beside it:
 *   call, out, ...   private memory
 *   shared           memory from rondo_mem_alloc()
 *   TYPE/OP          other element types and operators, in private memory
 *   bound            the zero-copy bound (shared memory)
 *   sockets:S:P      plain sockets, S of them, at most P bytes a system call
 *   ping             all bytes to the next rank and back again over one socket, on two ranks: two hops
 *   pass             the sum of two halves into one of them, alone, as ranks that receive a half have to make it
 */
#include "serve.h"

#include "base/dtype.h"
#include "bench/one.h"
#include "cli/limits.h"
#include "reduce/reduce.h"
#include "rondo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rondo_comm *comm;
static rd_commons commons;
static rd_streams streams;

/* What calls do now; parsing a kind takes as long as a short call. */
static struct {
    bool (*call)(const float *from, float *to, size_t count);
    rondo_dtype type;
    rondo_op op;
    int sockets;
    size_t piece;
} now;

static bool failed(void)
{
    fprintf(stderr, "%s\n", rondo_last_error(comm));
    return false;
}

/* ---- Limits ---- */

static bool bound(const float *from, float *to, size_t count)
{
    unsigned char **of = (unsigned char **)commons.of;
    (void)from, (void)to;
    rd_meet(peers_meeting());
    rd_bound_work(RD_BOUND_ALL_REDUCE, of, of, rondo_comm_rank(comm), rondo_comm_size(comm), 0, count * sizeof *to);
    rd_meet(peers_meeting());
    return true;
}

/* What is received lies behind what is sent. */
static bool move(int sockets, size_t piece, float *data, size_t sends, size_t receives)
{
    return rd_streams_exchange(&streams, sockets, piece, data, sends, (char *)data + PEERS_MOST_BYTES, receives) ==
               RONDO_SUCCESS ||
           failed();
}

static bool exchange(const float *from, float *to, size_t count)
{
    size_t ranks = (size_t)rondo_comm_size(comm), crossing = 2 * count * sizeof *to / ranks * (ranks - 1);
    (void)from;
    return move(now.sockets, now.piece, to, crossing, crossing);
}

static bool ping(const float *from, float *to, size_t count)
{
    size_t bytes = count * sizeof *to;
    bool serves = rondo_comm_rank(comm) == 0;
    (void)from;
    return move(1, SIZE_MAX, to, serves ? bytes : 0, serves ? 0 : bytes) &&
           move(1, SIZE_MAX, to, serves ? 0 : bytes, serves ? bytes : 0);
}

static bool pass_alone(const float *from, float *to, size_t count)
{
    rd_reduction reduction;
    rd_pass pass;
    if (rd_reduction_init(&reduction, RONDO_FLOAT32, RONDO_SUM, 2, 0) != RONDO_SUCCESS) return failed();
    rd_pass_begin(&pass, count / 2, 2);
    pass.finish = true;
    pass.source[0] = (const char *)from + PEERS_MOST_BYTES;
    pass.source[1] = from;
    pass.output[pass.outputs++] = to;
    rd_reduce(&reduction, &pass);
    return true;
}

static bool choose_limit(const char *kind, peers_block *block)
{
    static float *two_areas;
    static bool open;
    now.sockets = 0;
    if (strcmp(kind, "bound") == 0) {
        if (!commons.of && rd_commons_open(&commons, PEERS_MOST_BYTES, comm) != RONDO_SUCCESS) return failed();
        block->from = block->to = commons.of[rondo_comm_rank(comm)];
        now.call = bound;
    } else if (strcmp(kind, "pass") == 0) {
        now.call = pass_alone;
    } else if (strcmp(kind, "ping") == 0) {
        now.sockets = 1;
        now.call = ping;
    } else if (sscanf(kind, "sockets:%d:%zu", &now.sockets, &now.piece) == 2) {
        if (now.sockets < 1 || now.sockets > RD_STREAMS || !now.piece) return false;
        now.call = exchange;
    } else {
        return false;
    }
    block->result = NULL;
    if (now.call == bound) return true;
    streams.crowded = peers_meeting()->crowded;
    if (now.sockets && !open && rd_streams_open(&streams, comm, false) != RONDO_SUCCESS) return failed();
    open |= now.sockets > 0;
    if (!two_areas) two_areas = peers_private_buffer(2ul * PEERS_MOST_BYTES);
    block->from = block->to = two_areas;
    return true;
}

/* ---- Types and operators ---- */

static bool find_pair(const char *kind)
{
    for (now.type = 0; now.type < RONDO_DTYPES; now.type++) {
        size_t length = strlen(rd_dtype_name(now.type));
        if (strncmp(kind, rd_dtype_name(now.type), length) != 0 || kind[length] != '/') continue;
        for (now.op = 0; now.op < RONDO_OPS; now.op++)
            if (strcmp(kind + length + 1, rd_op_name(now.op)) == 0) return true;
    }
    return false;
}

static bool reduce_pairs(const float *from, float *to, size_t count)
{
    size_t elements = count * sizeof *to / rd_dtype_bytes(now.type);
    return rondo_all_reduce(from, to, elements, now.type, now.op, comm, NULL) == RONDO_SUCCESS || failed();
}

/* 1 and the two numbers after it; the result is what this process makes of all ranks' values. */
static bool choose_pair(const char *kind, peers_block *block)
{
    static unsigned char terms[RD_MAX_SOURCES][PEERS_PERIOD * 8], result[PEERS_PERIOD * 8];
    static float *data;
    rd_reduction reduction;
    rd_pass pass;
    int size = rondo_comm_size(comm);
    if (!find_pair(kind)) return false;
    if (rd_reduction_init(&reduction, now.type, now.op, size, 0) != RONDO_SUCCESS) return failed();
    rd_pass_begin(&pass, PEERS_PERIOD, size);
    pass.finish = true;
    pass.output[pass.outputs++] = result;
    for (int r = 0; r < size; r++) {
        pass.source[r] = terms[r];
        for (size_t i = 0; i < PEERS_PERIOD; i++) {
            uint64_t value = bits_of_one(now.type) + (i + (size_t)r) % 3;
            memcpy(terms[r] + i * reduction.bytes, &value, reduction.bytes);
        }
    }
    rd_reduce(&reduction, &pass);
    if (!data) data = peers_private_buffer(PEERS_MOST_BYTES);
    *block = (peers_block){data, data, terms[rondo_comm_rank(comm)], result, reduction.bytes};
    now.call = reduce_pairs;
    return true;
}

/* ---- The usual ---- */

static bool sum_floats(const float *from, float *to, size_t count)
{
    return rondo_all_reduce(from, to, count, RONDO_FLOAT32, RONDO_SUM, comm, NULL) == RONDO_SUCCESS || failed();
}

static void choose(const char *kind, peers_block *block)
{
    static void *shared;
    if (choose_limit(kind, block) || choose_pair(kind, block)) return;
    now.call = sum_floats;
    if (strcmp(kind, "shared") != 0) return;
    if (!shared && rondo_mem_alloc(&shared, PEERS_MOST_BYTES, comm) != RONDO_SUCCESS) failed();
    block->from = block->to = shared;
}

static bool call(const float *from, float *to, size_t count)
{
    return now.call(from, to, count);
}

int main(int argc, char **argv)
{
    peers_bind(argc, argv);
    if (rondo_init_env(&comm, NULL) != RONDO_SUCCESS) {
        fprintf(stderr, "%s\n", rondo_last_error(NULL));
        return 1;
    }
    int status = peers_serve(argc, argv, rondo_comm_rank(comm), rondo_comm_size(comm),
                             &(contestant){.choose = choose, .call = call});
    rondo_comm_destroy(comm);
    return status;
}
