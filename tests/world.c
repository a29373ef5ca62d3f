/* SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "base/status.h"
#include "world.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

uint64_t mix(uint64_t seed, uint64_t index)
{
    uint64_t z = (seed + 1) * 0x9e3779b97f4a7c15u + index * 0xd1342543de82ef95u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

const rondo_transport *world_loop(int from) { (void)from; return &rd_transport_loop; }
const rondo_transport *world_shm(int from) { (void)from; return &rd_transport_shm; }
const rondo_transport *world_tcp(int from) { (void)from; return &rd_transport_tcp; }
const rondo_transport *world_mixed(int from) { return from % 3 ? &rd_transport_loop : &rd_transport_tcp; }

static void connect_pair(world *w, int from, int to, const rondo_transport *transport, rd_wire *out, rd_wire *in)
{
    size_t slot_bytes = w->options.slice_bytes;
    rondo_link_spec a = {.me = from, .peer = to, .slots = 4, .slot_bytes = slot_bytes, .bell = &w->bell[from]};
    rondo_link_spec b = {.me = to, .peer = from, .slots = 4, .slot_bytes = slot_bytes, .bell = &w->bell[to]};
    rondo_link *sender, *receiver;
    a.device = w->options.device ? w->options.device(from) : 0;
    b.device = w->options.device ? w->options.device(to) : 0;
    rondo_offer offer = {0}, answer = {0};
    if (transport->sockets) {
        a.socket_count = b.socket_count = w->options.sockets ? w->options.sockets : 1;
        for (int i = 0; i < a.socket_count; i++) {
            int pair[2];
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
            a.sockets[i] = pair[0];
            b.sockets[i] = pair[1];
        }
        if (w->options.socket_bytes && (!w->options.one_way || a.me == 0)) {
            assert_int_equal(rd_fault_shorten(&a, w->options.socket_bytes), RONDO_SUCCESS);
            assert_int_equal(rd_fault_shorten(&b, w->options.socket_bytes), RONDO_SUCCESS);
        }
    }
    assert_int_equal(transport->offer(&a, &sender, &offer), RONDO_SUCCESS);
    assert_int_equal(transport->accept(&b, &offer, &receiver, &answer), RONDO_SUCCESS);
    assert_int_equal(transport->complete(sender, &answer), RONDO_SUCCESS);
    if (w->options.wrap) {
        sender = w->options.wrap(sender);
        receiver = w->options.wrap(receiver);
    }
    bool slots = sender->caps & RONDO_LINK_SLOTS;
    if (!slots && w->options.engine && w->options.engine(from)) sender = rd_stage_wrap(sender, RD_SENDER);
    if (!slots && w->options.engine && w->options.engine(to)) receiver = rd_stage_wrap(receiver, RD_RECEIVER);
    out->link = sender;
    in->link = receiver;
}

static const int32_t *order_of(const world *w, int channel)
{
    return w->options.orders[channel] ? w->options.orders[channel] : w->options.order;
}

static int rank_at(const world *w, int channel, int position)
{
    const int32_t *order = order_of(w, channel);
    int at = position % w->options.n;
    return order ? order[at] : at;
}

/* Channel `channel` goes from r to there. */
static int next_of(const world *w, int channel, int r, int steps)
{
    int at = 0;
    while (rank_at(w, channel, at) != r) at++;
    return rank_at(w, channel, at + steps);
}

/* Rank r's successor in a stage of hierarchical calls. */
static int hier_next(const world *w, int stage, int r)
{
    int local = w->options.local, at = 0;
    while (rank_at(w, 0, at) != r) at++;
    if (stage == RD_RAIL) return rank_at(w, 0, at + local);
    return rank_at(w, 0, at / local * local + (at + 1) % local);
}

static void open_hier(world *w)
{
    const world_options *o = &w->options;
    for (int stage = 0; stage < RD_OPEN; stage++) {
        const rondo_transport *(*transport)(int) = stage == RD_RAIL ? o->rail : o->transport;
        bool staged = false;
        for (int r = 0; r < o->n; r++) staged |= transport(r)->sockets;
        for (int r = 0; r < o->n; r++) {
            int next = hier_next(w, stage, r);
            rd_wiring *wiring = &w->hier[r].wiring[stage];
            w->hier[r].local = o->local;
            *wiring = (rd_wiring){.channels = o->channels, .slice_bytes = o->slice_bytes, .staged = staged};
            for (int c = 0; c < o->channels; c++) {
                rd_wire *out = &w->hier_out[r][stage][c], *in = &w->hier_in[next][stage][c];
                if (next != r) connect_pair(w, r, next, transport(r), out, in);
                wiring->ring_out[c] = out;
                wiring->ring_in[c] = &w->hier_in[r][stage][c];
                if (staged) wiring->scratch[c] = malloc(o->slice_bytes);
            }
        }
    }
}

void world_open(world *w, const world_options *options)
{
    memset(w, 0, sizeof *w);
    w->options = *options;
    int n = options->n;
    for (int r = 0; r < n; r++) {
        assert_int_equal(rd_bell_open(&w->bell[r]), RONDO_SUCCESS);
        w->out[r] = calloc((size_t)n * RD_MAX_CHANNELS, sizeof(rd_wire));
        w->in[r] = calloc((size_t)n * RD_MAX_CHANNELS, sizeof(rd_wire));
    }
    for (int r = 0; options->flat && r < n; r++)
        for (int p = 0; p < n; p++)
            if (p != r) connect_pair(w, r, p, options->transport(r), &w->out[r][p], &w->in[p][r]);
    for (int r = 0; options->peers && r < n; r++)
        for (int p = 0; p < n; p++)
            if (p != r) connect_pair(w, r, p, options->transport(r), &w->peer_out[r][p], &w->peer_in[p][r]);
    for (int c = options->flat ? 1 : 0; c < options->channels; c++)
        for (int from = 0; n > 1 && from < n; from++) {
            int to = next_of(w, c, from, 1);
            connect_pair(w, from, to, options->transport(from), &w->out[from][c * n + to], &w->in[to][c * n + from]);
        }
    bool staged = false;
    for (int r = 0; r < n; r++) staged |= n > 1 && options->transport(r)->sockets;
    for (int r = 0; r < n; r++) {
        rd_wiring *wiring = &w->wiring[r];
        *wiring = (rd_wiring){.channels = options->channels, .slice_bytes = options->slice_bytes, .staged = staged,
                              .flat_bytes = options->slice_bytes};
        if (options->flat) {
            wiring->flat_out = w->out[r];
            wiring->flat_in = w->in[r];
        }
        for (int c = 0; c < options->channels; c++) {
            wiring->ring_out[c] = &w->out[r][c * n + next_of(w, c, r, 1)];
            wiring->ring_in[c] = &w->in[r][c * n + next_of(w, c, r, n - 1)];
            if (staged) wiring->scratch[c] = malloc(options->slice_bytes);
        }
    }
    uint32_t kernels = ~0u;
    for (int r = 0; n > 1 && r < n; r++) {
        rd_kernel_wire(&w->wiring[r], options->engine ? options->engine(r) : NULL, n);
        kernels &= w->wiring[r].kernels;
    }
    for (int r = 0; r < n; r++) w->wiring[r].kernels = kernels;
    if (options->local) open_hier(w);
}

static void close_hier(world *w, int r);
static void close_wire(rd_wire *wire)
{
    if (wire->link) wire->link->ops->close(wire->link);
    wire->link = NULL;
}

void world_close(world *w)
{
    for (int r = 0; r < w->options.n; r++) {
        for (int i = 0; i < w->options.n * RD_MAX_CHANNELS; i++) {
            close_wire(&w->out[r][i]);
            close_wire(&w->in[r][i]);
        }
        for (int p = 0; p < w->options.n; p++) {
            close_wire(&w->peer_out[r][p]);
            close_wire(&w->peer_in[r][p]);
        }
        close_hier(w, r);
        free(w->out[r]);
        free(w->in[r]);
        for (int c = 0; c < RD_MAX_CHANNELS; c++) free(w->wiring[r].scratch[c]);
    }
    for (int r = 0; r < w->options.n; r++) rd_bell_close(&w->bell[r]);
}

static void close_hier(world *w, int r)
{
    for (int stage = 0; stage < RD_OPEN; stage++)
        for (int c = 0; c < RD_MAX_CHANNELS; c++) {
            close_wire(&w->hier_out[r][stage][c]);
            close_wire(&w->hier_in[r][stage][c]);
            free(w->hier[r].wiring[stage].scratch[c]);
        }
    free(w->hier[r].shelf);
}

/* Differs when calls differ, as core's does. */
static uint64_t signature_of(const world_call *c, uint64_t seed)
{
    uint64_t words[] = {c->count, c->collective, c->algo, (uint64_t)c->root, c->dtype, c->op};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) seed = mix(seed, words[i]);
    return seed;
}

/* The channels' own plans, where their rings have orders of their own. */
static void start_courses(world *w, int r, const world_call *call)
{
    rd_op *op = &w->op[r];
    op->courses = NULL;
    for (int c = 0; c < w->options.channels; c++) {
        rd_course *course = &w->courses[r][c];
        if (call->algo != RONDO_ALGO_RING) return;
        if (w->options.orders[c]) op->courses = w->courses[r];
        assert_int_equal(rondo_plan_init(&course->plan, call->collective, call->algo, w->options.n, r, call->root,
                                         call->count, order_of(w, c), NULL, op->plan.wide),
                         0);
        for (int32_t s = 0; s < course->plan.steps; s++) w->course_steps[r][c][s] = rondo_plan_step(&course->plan, s);
        course->steps = w->course_steps[r][c];
    }
}

void world_start_rank(world *w, int r, const world_call *call, uint64_t seed)
{
    rd_op *op = &w->op[r];
    rd_reduction *reduction = &w->reduction[r];
    int n = w->options.n;
    rondo_collective c = call->collective;
    bool reduces = c == RONDO_COLL_ALL_REDUCE || c == RONDO_COLL_REDUCE_SCATTER || c == RONDO_COLL_REDUCE;
    bool keeps = (c != RONDO_COLL_REDUCE && c != RONDO_COLL_GATHER) || r == call->root;
    assert_int_equal(rd_reduction_init(reduction, call->dtype, call->op, n, call->cpu), RONDO_SUCCESS);
    bool wide = reduces && reduction->wide_bytes > reduction->bytes;
    op->hier = &w->hier[r];
    if (call->algo == RONDO_ALGO_HIER) {
        assert_int_equal(rd_hier_prepare(op->hier, reduction, call->count, call->cpu), RONDO_SUCCESS);
        assert_int_equal(rondo_plan_init_hier(&op->plan, n, r, w->options.local, call->count, w->options.order, wide), 0);
    } else {
        assert_int_equal(rondo_plan_init(&op->plan, call->collective, call->algo, n, r, call->root, call->count,
                                         w->options.order, NULL, wide), 0);
    }
    for (int32_t s = 0; s < op->plan.steps; s++) w->steps[r][s] = rondo_plan_step(&op->plan, s);
    op->steps = w->steps[r];
    start_courses(w, r, call);
    op->reduction = reduction;
    op->wiring = &w->wiring[r];
    op->engine = w->options.engine ? w->options.engine(r) : NULL;
    op->buffers = (rd_buffers){call->send[r], keeps ? call->recv[r] : NULL,
                               c != RONDO_COLL_ALL_GATHER && c != RONDO_COLL_GATHER,
                               c != RONDO_COLL_REDUCE_SCATTER && c != RONDO_COLL_REDUCE && c != RONDO_COLL_SCATTER};
    op->signature = signature_of(call, seed);
    if (call->algo == RONDO_ALGO_PEERS) {
        op->transfers = w->transfers[r];
        op->transfer_count = rd_peers_transfers(op, w->peer_out[r], w->peer_in[r], op->transfers);
    }
    rd_op_start(op);
}

void world_start(world *w, const world_call *call, uint64_t seed)
{
    for (int r = 0; r < w->options.n; r++) world_start_rank(w, r, call, seed);
}

void world_drive(world *w, uint64_t seed, rd_progress end[])
{
    int n = w->options.n, left = n;
    for (int r = 0; r < n; r++) end[r] = RD_IDLE;
    for (int idle = 0; left && idle < 1000 * n;) {
        int r = (int)(mix(seed, w->advances++) % (uint64_t)n);
        if (end[r] != RD_IDLE) continue;
        rd_progress p = rd_op_advance(&w->op[r]);
        if (p == RD_IDLE) p = rd_op_look(&w->op[r]);
        idle = p == RD_IDLE ? idle + 1 : 0;
        if (p != RD_DONE && p != RD_FAILED) continue;
        end[r] = p;
        left--;
    }
}

void world_run(world *w, const world_call *call, uint64_t seed)
{
    world_start(w, call, seed);
    world_finish(w, seed);
}

void world_finish(world *w, uint64_t seed)
{
    int n = w->options.n, left = n;
    bool done[WORLD_MAX] = {false};
    uint64_t idle = 0;
    while (left) {
        int r = (int)(mix(seed, w->advances++) % (uint64_t)n);
        if (done[r]) continue;
        rd_progress p = rd_op_advance(&w->op[r]);
        if (p == RD_FAILED)
            fail_msg("rank %d: link answered %d (%s): %s", r, w->op[r].failure, w->op[r].failed ? "a link" : "counters",
                     rd_last_error());
        if (p == RD_DONE) done[r] = true, left--;
        idle = p == RD_IDLE ? idle + 1 : 0;
        if (p == RD_IDLE && w->op[r].kernel_ticket) usleep(20);
        if (idle > 2000000) fail_msg("no rank can go on: a deadlock");
    }
}

uint64_t world_ring_bytes(const world *w, int r, int channel)
{
    uint64_t sum = 0;
    for (int c = 0; c < w->options.channels; c++)
        if (channel < 0 || c == channel) sum += w->wiring[r].ring_out[c]->link->bytes_sent;
    return sum;
}

uint64_t world_all_bytes(const world *w, int r)
{
    uint64_t sum = 0;
    for (int i = 0; i < w->options.n * RD_MAX_CHANNELS; i++)
        if (w->out[r][i].link) sum += w->out[r][i].link->bytes_sent;
    return sum;
}
