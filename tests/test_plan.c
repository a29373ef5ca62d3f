/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan.c - the schedule, simulated on integers: what each rank sends is what its peer expects, every term of a sum
 * is added once and in ring order, everything ends where it belongs, and the bytes are those of the formulas.
 */
#include "rondo_plan.h"
#include "test.h"

#include <stdbool.h>

/* Every world size up to this one is simulated whole; sanitizers, which gcc and clang announce differently, take up to
 * thirty times as long. */
#if !defined(MOST_RANKS) && (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__))
#define MOST_RANKS 96
#endif
#if !defined(MOST_RANKS) && defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MOST_RANKS 96
#endif
#endif
#ifndef MOST_RANKS
#define MOST_RANKS 512
#endif

/* A sum, by what is in it: `terms` terms in ring order, the first of them from ring position `first`. */
typedef struct value {
    int16_t first, terms;
    bool complete;
} value;

typedef struct message {
    value sum;
    int16_t chunk, step;
    bool wide, own;
} message;

/* One rank: its plan, the step it is in, and how far it is with it. */
typedef struct rank_state {
    rondo_plan plan;
    rondo_step now;
    int32_t step, came; /* came: the chunk that the step before received */
    bool sent, opened, met; /* met: took its predecessor's opening */
    uint64_t narrow, wide; /* elements sent in each width */
} rank_state;

/* The largest world is 512 x 512 links of 2 messages; smaller ones have room for more. */
static struct {
    int32_t n, depth, under_way; /* messages sent and not received */
    rank_state ranks[MOST_RANKS];
    value held[MOST_RANKS * MOST_RANKS];            /* [rank * n + chunk] */
    uint8_t joined[MOST_RANKS * MOST_RANKS];        /* how often the rank's own term went into the chunk */
    message links[2 * MOST_RANKS * MOST_RANKS];     /* [(from * n + to) * depth + k % depth] */
    uint16_t put[MOST_RANKS * MOST_RANKS], taken[MOST_RANKS * MOST_RANKS];
} w;

static uint64_t seed = 88172645463325252u;
static uint32_t random_below(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 32) % n;
}

static void shuffle(int32_t *order, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t j = (int32_t)random_below((uint32_t)i + 1);
        order[i] = order[j];
        order[j] = i;
    }
}

#define require(r, condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            fail_msg("%s: collective %d, algorithm %d, N %d, rank %d at position %d, root %d, step %d", #condition,    \
                     (r)->plan.collective, (r)->plan.algo, (r)->plan.size, (r)->plan.rank, (r)->plan.position,         \
                     (r)->plan.root, (r)->step);                                                                       \
    } while (0)

static bool sums(const rondo_plan *p)
{
    return p->collective != RONDO_COLL_ALL_GATHER && p->collective != RONDO_COLL_BROADCAST;
}

static bool rooted(const rondo_plan *p)
{
    return p->collective == RONDO_COLL_BROADCAST || p->collective == RONDO_COLL_REDUCE;
}

static value *held(const rank_state *r, int32_t chunk) { return &w.held[r->plan.rank * w.n + chunk]; }

/* The rank's own input of a chunk. */
static value own_term(const rank_state *r, int32_t chunk)
{
    if (sums(&r->plan)) w.joined[r->plan.rank * w.n + chunk]++;
    return (value){.first = (int16_t)r->plan.position, .terms = 1, .complete = !sums(&r->plan)};
}

static value added(const rank_state *r, value sum, value term)
{
    require(r, !sum.complete && !term.complete && term.terms == 1);
    require(r, term.first == (sum.first + sum.terms) % w.n);
    sum.terms++;
    return sum;
}

/* ---- The simulated executor ---------------------------------------------------------------------------------- */

static void enter_step(rank_state *r)
{
    r->sent = false;
    if (r->step < r->plan.steps) r->now = rondo_plan_step(&r->plan, r->step);
}

static void put_on_link(const rank_state *r, int32_t to, message m)
{
    int32_t link = r->plan.rank * w.n + to;
    require(r, w.put[link] - w.taken[link] < w.depth);
    w.links[(int64_t)link * w.depth + w.put[link]++ % w.depth] = m;
    w.under_way++;
}

static const message *take_off_link(const rank_state *r, int32_t from)
{
    int32_t link = from * w.n + r->plan.rank;
    if (w.put[link] == w.taken[link]) return NULL;
    w.under_way--;
    return &w.links[(int64_t)link * w.depth + w.taken[link]++ % w.depth];
}

static const message opening = {.chunk = -1, .step = RONDO_OPENING};

/* Opens, where the plan does, before it does anything else. */
static void open_once(rank_state *r)
{
    if (!rondo_plan_opens(&r->plan) || r->opened) return;
    rondo_step t = rondo_plan_opening(&r->plan);
    require(r, t.send_to == rondo_ring_rank(&r->plan, r->plan.position + 1));
    require(r, t.send_chunk == RONDO_EMPTY && rondo_chunk(&r->plan, t.send_chunk).count == 0);
    put_on_link(r, t.send_to, opening);
    r->opened = true;
}

/* Is the predecessor's opening due? */
static bool must_meet(const rank_state *r)
{
    if (!rondo_plan_opens(&r->plan) || r->met) return false;
    return r->step == r->plan.steps || r->now.recv_from == rondo_plan_opening(&r->plan).recv_from;
}

static bool meet(rank_state *r)
{
    const message *m = take_off_link(r, rondo_plan_opening(&r->plan).recv_from);
    if (!m) return false;
    require(r, m->step == RONDO_OPENING && m->chunk == -1);
    return r->met = true;
}

static bool is_through(const rank_state *r) { return r->step == r->plan.steps && !must_meet(r); }

static void send_once(rank_state *r)
{
    const rondo_step *t = &r->now;
    open_once(r);
    if (r->step >= r->plan.steps || r->sent) return;
    r->sent = true;
    require(r, (t->send_to < 0) == (t->send_chunk < 0));
    if (t->send_to < 0) return;
    require(r, t->send_to < w.n && t->send_to != r->plan.rank && t->send_chunk < r->plan.chunks);
    if (!t->send_own && r->plan.algo == RONDO_ALGO_RING) require(r, t->send_chunk == r->came);

    value sum = t->send_own ? own_term(r, t->send_chunk) : *held(r, t->send_chunk);
    require(r, sum.terms > 0);
    require(r, t->send_wide == (r->plan.wide && sum.terms > 1 && !sum.complete));
    put_on_link(r, t->send_to, (message){.sum = sum, .chunk = (int16_t)t->send_chunk, .step = (int16_t)r->step,
                                         .wide = t->send_wide, .own = t->send_own});
    *(t->send_wide ? &r->wide : &r->narrow) += rondo_chunk(&r->plan, t->send_chunk).count;
}

static void apply(rank_state *r, const message *m)
{
    value *here = held(r, m->chunk);
    bool flat = r->plan.algo == RONDO_ALGO_FLAT, finish = r->now.action == RONDO_FINISH;
    if (r->now.action == RONDO_REPLACE) {
        require(r, m->sum.complete);
        *here = m->sum;
        return;
    }
    if (!flat) *here = added(r, m->sum, own_term(r, m->chunk));
    else *here = here->terms == 0 ? m->sum : added(r, *here, m->sum);
    if (flat && finish) *here = added(r, *here, own_term(r, m->chunk));
    require(r, finish == (here->terms == w.n));
    here->complete = finish;
}

/* Receives what this step expects and goes on to the next, or an opening that is due; false when it has not come yet. */
static bool receive(rank_state *r)
{
    const rondo_step *t = &r->now;
    if (must_meet(r)) return meet(r);
    if (r->step >= r->plan.steps || !r->sent) return false;
    require(r, (t->recv_from < 0) == (t->recv_chunk < 0));
    if (t->recv_from >= 0) {
        require(r, t->recv_from < w.n && t->recv_from != r->plan.rank);
        const message *m = take_off_link(r, t->recv_from);
        if (!m) return false;
        require(r, m->chunk == t->recv_chunk && m->wide == t->recv_wide && m->own == t->recv_own);
        if (!rooted(&r->plan)) require(r, m->step == r->step);
        apply(r, m);
    }
    r->came = t->recv_chunk;
    r->step++;
    enter_step(r);
    return true;
}

static void start(rondo_collective collective, rondo_algo algo, int32_t n, int32_t root, const int32_t *order, int wide)
{
    size_t cells = (size_t)n * (size_t)n;
    w.n = n;
    w.under_way = 0;
    w.depth = (int32_t)(sizeof(w.links) / sizeof(w.links[0]) / cells);
    if (w.depth > 2 * n) w.depth = 2 * n;
    memset(w.held, 0, cells * sizeof(w.held[0]));
    memset(w.joined, 0, cells);
    memset(w.put, 0, cells * sizeof(w.put[0]));
    memset(w.taken, 0, cells * sizeof(w.taken[0]));
    for (int32_t i = 0; i < n; i++) {
        rank_state *r = &w.ranks[i];
        uint64_t count = 3 * (uint64_t)n;
        *r = (rank_state){.came = -1};
        assert_int_equal(rondo_plan_init(&r->plan, collective, algo, n, i, root, count, order, NULL, wide), 0);
        if (collective == RONDO_COLL_ALL_GATHER) *held(r, i) = own_term(r, i);
        if (collective == RONDO_COLL_BROADCAST && i == root) *held(r, 0) = own_term(r, 0);
        enter_step(r);
    }
}

/* In lockstep: all send, then all receive. Otherwise the ranks move in random order, as ranks do. */
static void run(bool lockstep)
{
    int32_t unfinished = w.n, idle = 0;
    for (int32_t i = 0; i < w.n; i++) unfinished -= is_through(&w.ranks[i]);
    while (unfinished > 0) {
        for (int32_t i = 0; lockstep && i < w.n; i++) send_once(&w.ranks[i]);
        bool moved = false;
        for (int32_t i = 0; i < w.n; i++) {
            rank_state *r = &w.ranks[lockstep ? i : (int32_t)random_below((uint32_t)w.n)];
            if (!lockstep) send_once(r);
            if (!receive(r)) continue;
            moved = true;
            unfinished -= is_through(r);
        }
        idle = moved ? 0 : idle + 1;
        if (idle > (lockstep ? 0 : 1000)) fail_msg("N %d: %d ranks wait for what never comes", w.n, unfinished);
    }
    assert_int_equal(w.under_way, 0);
}

/* ---- What must hold at the end ------------------------------------------------------------------------------- */

static void check_result(const rank_state *r, int32_t chunk, int32_t owner_position)
{
    const value *v = held(r, chunk);
    require(r, v->complete);
    require(r, v->terms == (sums(&r->plan) ? w.n : 1));
    require(r, v->first == (sums(&r->plan) ? (owner_position + 1) % w.n : owner_position));
}

static void check_results(const rank_state *r)
{
    const rondo_plan *p = &r->plan;
    if (p->collective == RONDO_COLL_BROADCAST || (p->collective == RONDO_COLL_REDUCE && p->rank == p->root))
        check_result(r, 0, p->root_position);
    if (p->collective == RONDO_COLL_REDUCE_SCATTER) check_result(r, p->rank, p->position);
    if (p->collective == RONDO_COLL_ALL_REDUCE || p->collective == RONDO_COLL_ALL_GATHER)
        for (int32_t c = 0; c < p->size; c++) check_result(r, c, w.ranks[c].plan.position);
    require(r, r->opened == rooted(p) && r->met == rooted(p));
    for (int32_t c = 0; c < p->chunks; c++) require(r, w.joined[p->rank * w.n + c] == sums(p));
}

/* The formulas of the header, for a message of `count` elements that N divides. */
static void check_payload(const rank_state *r)
{
    const rondo_plan *p = &r->plan;
    uint64_t n = (uint64_t)p->size, chunk = p->count / n;
    uint64_t bytes1 = r->narrow + 4 * r->wide, bytes2 = 2 * r->narrow + 4 * r->wide, elements = r->narrow + r->wide;
    bool widened = p->wide && p->algo == RONDO_ALGO_RING && n > 1;
    switch (p->collective) {
    case RONDO_COLL_ALL_REDUCE:
        require(r, elements == 2 * (n - 1) * chunk);
        require(r, bytes2 == (widened ? 3 * n - 4 : 2 * (n - 1)) * chunk * 2);
        require(r, bytes1 == (widened ? 5 * n - 8 : 2 * (n - 1)) * chunk);
        require(r, p->steps == 2 * (p->size - 1));
        break;
    case RONDO_COLL_BROADCAST:
    case RONDO_COLL_REDUCE: {
        int32_t last = p->collective == RONDO_COLL_REDUCE ? p->root_position : (p->root_position + w.n - 1) % w.n;
        require(r, elements == (p->position == last ? 0 : p->count));
        require(r, p->steps <= 2 && (p->steps > 0 || n == 1));
        break;
    }
    default:
        require(r, elements == (n - 1) * chunk);
        require(r, p->steps == p->size - 1);
    }
}

static void simulate(rondo_collective collective, rondo_algo algo, int32_t n, int32_t root, const int32_t *order,
                     int wide, bool lockstep)
{
    start(collective, algo, n, root, order, wide);
    run(lockstep);
    for (int32_t i = 0; i < n; i++) {
        check_payload(&w.ranks[i]);
        if (n > 1) check_results(&w.ranks[i]);
    }
}

/* ---- Tests --------------------------------------------------------------------------------------------------- */

#define PLANS 6
static const struct {
    rondo_collective collective;
    rondo_algo algo;
} plans[PLANS] = {
    {RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING},     {RONDO_COLL_ALL_REDUCE, RONDO_ALGO_FLAT},
    {RONDO_COLL_REDUCE_SCATTER, RONDO_ALGO_RING}, {RONDO_COLL_REDUCE_SCATTER, RONDO_ALGO_FLAT},
    {RONDO_COLL_ALL_GATHER, RONDO_ALGO_RING},     {RONDO_COLL_ALL_GATHER, RONDO_ALGO_FLAT},
};

/* The first `some` of these plans at one world size, in the given order of ranks. */
static void simulate_all(size_t some, int32_t n, const int32_t *order, int wide, bool lockstep)
{
    for (size_t i = 0; i < some; i++) simulate(plans[i].collective, plans[i].algo, n, 0, order, wide, lockstep);
}

static void test_every_world_size(void **state)
{
    (void)state;
    int32_t order[MOST_RANKS];
    for (int32_t n = 1; n <= MOST_RANKS; n++) {
        bool all = n <= 64 || n % 64 == 0; /* else the ring alone: flat is for the few ranks of one host */
        shuffle(order, n);
        if (all) simulate_all(PLANS, n, NULL, 0, true);
        simulate_all(all ? PLANS : 1, n, order, 1, true);
    }
}

static void test_chains_from_every_root(void **state)
{
    (void)state;
    int32_t order[MOST_RANKS];
    for (int32_t n = 1; n <= MOST_RANKS; n++) {
        shuffle(order, n);
        for (int32_t root = 0; root < n; root += n <= 48 ? 1 : n / 3)
            for (int k = 0; k < 2; k++) {
                simulate(RONDO_COLL_BROADCAST, RONDO_ALGO_RING, n, root, k ? order : NULL, k, true);
                simulate(RONDO_COLL_REDUCE, RONDO_ALGO_RING, n, root, k ? order : NULL, k, true);
            }
    }
}

static void test_ranks_that_run_ahead(void **state)
{
    (void)state;
    int32_t order[16];
    for (int32_t n = 2; n <= 16; n++)
        for (int round = 0; round < 8; round++) {
            int32_t root = (int32_t)random_below((uint32_t)n);
            shuffle(order, n);
            simulate_all(PLANS, n, order, round & 1, false);
            simulate(RONDO_COLL_BROADCAST, RONDO_ALGO_RING, n, root, order, round & 1, false);
            simulate(RONDO_COLL_REDUCE, RONDO_ALGO_RING, n, root, order, round & 1, false);
        }
}

/* Worlds too large to simulate whole: all steps of some ranks, and the whole way of some chunks. */
static rank_state large[10000];

static void follow_rank(int32_t n, int32_t rank)
{
    static bool came[2][10000];
    rank_state *r = &large[rank];
    memset(came, 0, sizeof(came));
    for (r->step = 0; r->step < r->plan.steps; r->step++) {
        rondo_step t = rondo_plan_step(&r->plan, r->step);
        rondo_step to = rondo_plan_step(&large[t.send_to].plan, r->step);
        bool gather = r->step >= n - 1;
        require(r, to.recv_from == rank && to.recv_chunk == t.send_chunk && to.recv_wide == t.send_wide);
        require(r, to.recv_own == t.send_own && t.send_wide == (r->step > 0 && !gather));
        if (r->step > 0) require(r, t.send_chunk == r->came && !t.send_own);
        else require(r, t.send_own && (came[0][t.send_chunk] = true));
        if (r->step == n - 1) require(r, t.send_chunk == rank && (came[1][rank] = true));
        require(r, !came[gather][t.recv_chunk]);
        came[gather][t.recv_chunk] = true;
        r->came = t.recv_chunk;
    }
    for (int32_t c = 0; c < n; c++) require(r, came[0][c] && came[1][c]);
}

static void follow_chunk(int32_t n, int32_t chunk)
{
    rank_state *at = &large[rondo_ring_rank(&large[chunk].plan, large[chunk].plan.position + 1)];
    for (int32_t s = 0; s < 2 * (n - 1); s++) {
        rondo_step out = rondo_plan_step(&at->plan, s);
        int32_t next = (at->plan.position + 1) % n;
        at->step = s;
        require(at, out.send_chunk == chunk && out.send_own == (s == 0));
        at = &large[out.send_to];
        at->step = s;
        rondo_step in = rondo_plan_step(&at->plan, s);
        require(at, at->plan.position == next && in.recv_chunk == chunk);
        require(at, in.action == (s >= n - 1 ? RONDO_REPLACE : s == n - 2 ? RONDO_FINISH : RONDO_REDUCE));
        require(at, (in.action == RONDO_FINISH) == (s == n - 2 && at->plan.rank == chunk));
    }
}

static void test_large_worlds(void **state)
{
    static const int32_t sizes[] = {513, 1000, 1023, 1024, 1025, 4095, 9973, 10000};
    static int32_t order[10000];
    (void)state;
    for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
        int32_t n = sizes[i / 2];
        shuffle(order, n);
        for (int32_t r = 0; r < n; r++) {
            large[r] = (rank_state){.came = -1};
            assert_int_equal(rondo_plan_init(&large[r].plan, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, n, r, 0,
                                             (uint64_t)n, i % 2 ? order : NULL, NULL, 1), 0);
            assert_int_equal(large[r].plan.steps, 2 * (n - 1));
        }
        for (int k = 0; k < 40; k++) {
            follow_rank(n, k == 0 ? 0 : k == 1 ? n - 1 : (int32_t)random_below((uint32_t)n));
            follow_chunk(n, k == 0 ? 0 : k == 1 ? n - 1 : (int32_t)random_below((uint32_t)n));
        }
    }
}

/* The table in the header, number by number. */
static void test_the_worked_example(void **state)
{
    static const int sent[6][4] = {{4, 10, 200, 3000},        {3003, 44, 110, 2200},     {2202, 3033, 444, 1110},
                                   {1111, 2222, 3333, 4444},  {4444, 1111, 2222, 3333},  {3333, 4444, 1111, 2222}};
    int input[4][4], sum[4][4] = {{0}};
    (void)state;
    for (int r = 0, digit = 1; r < 4; r++, digit *= 10)
        for (int c = 0; c < 4; c++) input[r][c] = digit * (c + 1);
    for (int s = 0; s < 6; s++) {
        int out[4];
        rondo_step t[4];
        for (int r = 0; r < 4; r++) {
            rondo_plan p;
            assert_int_equal(rondo_plan_init(&p, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, 4, r, 0, 4, NULL, NULL, 0), 0);
            t[r] = rondo_plan_step(&p, s);
            out[r] = (t[r].send_own ? input : sum)[r][t[r].send_chunk];
            assert_int_equal(out[r], sent[s][r]);
        }
        for (int r = 0; r < 4; r++) {
            int32_t c = t[r].recv_chunk;
            sum[r][c] = out[t[r].recv_from] + (t[r].action == RONDO_REPLACE ? 0 : input[r][c]);
        }
    }
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) assert_int_equal(sum[r][c], 1111 * (c + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_worked_example),     cmocka_unit_test(test_every_world_size),
        cmocka_unit_test(test_chains_from_every_root), cmocka_unit_test(test_ranks_that_run_ahead),
        cmocka_unit_test(test_large_worlds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
