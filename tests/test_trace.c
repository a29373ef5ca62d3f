/* SPDX-License-Identifier: Apache-2.0
 *
 * The trace of real calls agrees with the plan: every step's slices are there and cover its chunk, bytes are the
 * plan's, what one rank sent is what the other received; the file holds whole records, whoever writes it when.
 */
#include "test.h"

#include "base/dtype.h"
#include "rondo_trace.h"
#include "trial.h"

#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CALLS = 2, RANKS = 8, LONG = 1000 };

static char directory[64], file[96];

enum { FLAT, RING, TCP, EXCHANGE, PATHS };
static const struct way paths[PATHS] = {
    [FLAT] = {"flat", "shm", "flat"},
    [RING] = {"ring", "shm", "ring"},
    [TCP] = {"tcp", "tcp", NULL},
    [EXCHANGE] = {"exchange", "shm", "exchange"},
};

typedef struct scene {
    const struct way *way;
    int n, channels;
    const char *slice; /* RONDO_SLICE; NULL: the default */
    trial calls[CALLS];
} scene;

/* ---- Reading ---- */

typedef struct trace {
    rondo_trace_record *records;
    size_t count;
    bool *met; /* SEND: a RECEIVE has it */
} trace;

static trace read_trace(void)
{
    struct stat info;
    trace t;
    FILE *in = fopen(file, "rb");
    assert_non_null(in);
    assert_int_equal(fstat(fileno(in), &info), 0);
    assert_true(info.st_size > 0);
    assert_int_equal((size_t)info.st_size % sizeof(rondo_trace_record), 0);
    t.count = (size_t)info.st_size / sizeof(rondo_trace_record);
    t.records = malloc((size_t)info.st_size);
    t.met = calloc(t.count, sizeof *t.met);
    assert_true(t.records && t.met);
    assert_int_equal(fread(t.records, sizeof(rondo_trace_record), t.count, in), t.count);
    fclose(in);
    for (size_t i = 0; i < t.count; i++) {
        assert_int_equal(t.records[i].version, RONDO_TRACE_VERSION);
        assert_in_range(t.records[i].kind, RONDO_TRACE_CALL, RONDO_TRACE_END);
    }
    return t;
}

static void free_trace(trace *t)
{
    free(t->records);
    free(t->met);
}

/* The records of one call of one rank. */
static size_t records_of(const trace *t, int rank, uint64_t call, const rondo_trace_record **list)
{
    size_t n = 0;
    for (size_t i = 0; i < t->count; i++)
        if (t->records[i].rank == rank && t->records[i].call == call) list[n++] = &t->records[i];
    return n;
}

/* ---- One call of one rank ---- */

static bool is_rooted(const trial *call)
{
    return call->collective == RONDO_COLL_BROADCAST || call->collective == RONDO_COLL_REDUCE;
}

static void check_frame(const scene *s, const trial *call, const rondo_trace_record **r, size_t n)
{
    bool gathers = call->collective == RONDO_COLL_REDUCE_SCATTER || call->collective == RONDO_COLL_ALL_GATHER;
    const rondo_trace_call *made = &r[0]->of.made;
    assert_true(n >= 2);
    assert_int_equal(r[0]->kind, RONDO_TRACE_CALL);
    assert_int_equal(r[n - 1]->kind, RONDO_TRACE_END);
    assert_int_equal(r[n - 1]->of.made.result, RONDO_SUCCESS);
    for (size_t i = 1; i + 1 < n; i++) assert_in_range(r[i]->kind, RONDO_TRACE_SEND, RONDO_TRACE_RECEIVE);
    for (size_t i = 1; i < n; i++) assert_true(r[i]->time_ns >= r[i - 1]->time_ns);
    assert_int_equal(made->count, call->count * (gathers ? (size_t)s->n : 1));
    assert_int_equal(made->collective, call->collective);
    assert_int_equal(made->dtype, call->dtype);
    assert_int_equal(made->size, s->n);
    assert_int_equal(made->root, is_rooted(call) ? call->root : 0);
    assert_int_equal(made->channels, s->channels);
    int algo = s->way == &paths[FLAT]       ? RONDO_ALGO_FLAT
               : s->way == &paths[EXCHANGE] ? RONDO_ALGO_EXCHANGE
                                            : RONDO_ALGO_RING;
    if (algo == RONDO_ALGO_EXCHANGE && call->count > LONG) algo = RONDO_ALGO_FLAT; /* it is for short messages */
    assert_int_equal(made->algo, call->collective == RONDO_COLL_ALL_REDUCE ? algo : RONDO_ALGO_RING);
}

static rondo_range chunk_of(const rondo_plan *plan, int32_t chunk)
{
    return chunk == RONDO_WHOLE ? (rondo_range){0, plan->count} : rondo_chunk(plan, chunk);
}

static int by_first(const void *a, const void *b)
{
    const rondo_range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* The slices of a step cover its chunk, once, and every channel has some. Returns their bytes. */
static uint64_t check_step(const scene *s, const rondo_plan *plan, int32_t step, int kind, size_t element,
                           const rondo_trace_record **r, size_t n)
{
    rondo_step planned = rondo_plan_step(plan, step);
    bool sends = kind == RONDO_TRACE_SEND;
    int32_t chunk = sends ? planned.send_chunk : planned.recv_chunk;
    rondo_range *parts = calloc(n + 1, sizeof *parts), whole = {0, 0};
    size_t used = 0, channels = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const rondo_trace_slice *slice = &r[i]->of.slice;
        if (r[i]->kind != kind || slice->step != step) continue;
        bool wide = sends ? planned.send_wide : planned.recv_wide;
        assert_int_equal(slice->peer, sends ? planned.send_to : planned.recv_from);
        assert_int_equal(slice->chunk, chunk);
        assert_int_equal(slice->wide, wide);
        if (sends) assert_int_equal(slice->own, planned.send_own);
        else assert_int_equal(slice->action, planned.action);
        assert_int_equal(slice->bytes, slice->count * (wide ? sizeof(float) : element));
        if (slice->slice == 0) channels++;
        if (slice->count) parts[used++] = (rondo_range){slice->first, slice->count};
        bytes += slice->bytes;
    }
    if (chunk >= 0) whole = chunk_of(plan, chunk);
    assert_int_equal(channels, chunk < 0 ? 0 : plan->algo == RONDO_ALGO_RING ? s->channels : 1);
    qsort(parts, used, sizeof *parts, by_first);
    uint64_t at = whole.first;
    for (size_t i = 0; i < used; at += parts[i++].count) assert_int_equal(parts[i].first, at);
    assert_int_equal(at, whole.first + whole.count);
    free(parts);
    return bytes;
}

/* One slice each way, of nothing, where the plan opens. */
static void check_opening(const rondo_plan *plan, const rondo_trace_record **r, size_t n)
{
    rondo_step planned = rondo_plan_opening(plan);
    int sent = 0, got = 0;
    for (size_t i = 1; i + 1 < n; i++) {
        const rondo_trace_slice *slice = &r[i]->of.slice;
        if (slice->step != RONDO_OPENING) continue;
        bool sends = r[i]->kind == RONDO_TRACE_SEND;
        sent += sends;
        got += !sends;
        assert_int_equal(slice->peer, sends ? planned.send_to : planned.recv_from);
        assert_int_equal(slice->chunk, RONDO_EMPTY);
        assert_true(slice->count == 0 && slice->bytes == 0 && slice->channel == 0);
    }
    assert_int_equal(sent, rondo_plan_opens(plan));
    assert_int_equal(got, rondo_plan_opens(plan));
}

static void check_rank(const scene *s, const trial *call, const int32_t *order, int rank, const rondo_trace_record **r,
                       size_t n)
{
    const rondo_trace_call *made = &r[0]->of.made;
    bool reduces = call->collective != RONDO_COLL_ALL_GATHER && call->collective != RONDO_COLL_BROADCAST;
    size_t element = rd_dtype_bytes(call->dtype);
    uint64_t sent = 0, planned = 0;
    rondo_plan plan = {0};
    check_frame(s, call, r, n);
    assert_int_equal(rondo_plan_init(&plan, made->collective, made->algo, s->n, rank, made->root, made->count, order,
                                     NULL, reduces && rd_dtype_narrow(call->dtype)),
                     0);
    assert_int_equal(plan.position, made->position);
    for (size_t i = 1; i + 1 < n; i++)
        if (r[i]->of.slice.step != RONDO_OPENING) assert_in_range(r[i]->of.slice.step, 0, plan.steps - 1);
    check_opening(&plan, r, n);
    for (int32_t step = 0; step < plan.steps; step++) {
        rondo_step p = rondo_plan_step(&plan, step);
        if (p.send_to >= 0) planned += chunk_of(&plan, p.send_chunk).count * (p.send_wide ? sizeof(float) : element);
        sent += check_step(s, &plan, step, RONDO_TRACE_SEND, element, r, n);
        check_step(s, &plan, step, RONDO_TRACE_RECEIVE, element, r, n);
    }
    assert_int_equal(sent, planned);
    uint64_t message = made->count * element, size = (uint64_t)s->n;
    if (made->algo == RONDO_ALGO_EXCHANGE) assert_int_equal(sent, (size - 1) * message);
    else if (call->collective == RONDO_COLL_ALL_REDUCE && made->count % size == 0 &&
             !(plan.wide && made->algo == RONDO_ALGO_RING))
        assert_int_equal(sent * size, 2 * (size - 1) * message);
}

/* ---- Both ends ---- */

/* On a chain the next rank receives in its first step what this one may send in its second. */
static bool fits(const rondo_trace_record *sent, const rondo_trace_record *got, bool rooted)
{
    const rondo_trace_slice *a = &sent->of.slice, *b = &got->of.slice;
    return sent->rank == b->peer && got->rank == a->peer && (rooted || a->step == b->step) && a->chunk == b->chunk &&
           a->slice == b->slice && a->first == b->first && a->count == b->count && a->bytes == b->bytes &&
           a->channel == b->channel && a->wide == b->wide;
}

static void check_pairs(trace *t, uint64_t call, bool rooted)
{
    for (size_t i = 0; i < t->count; i++) {
        const rondo_trace_record *got = &t->records[i];
        size_t j = 0;
        if (got->call != call || got->kind != RONDO_TRACE_RECEIVE) continue;
        for (; j < t->count; j++)
            if (!t->met[j] && t->records[j].call == call && t->records[j].kind == RONDO_TRACE_SEND &&
                fits(&t->records[j], got, rooted))
                break;
        if (j == t->count) fail_msg("nobody sent what rank %d received in step %d", got->rank, got->of.slice.step);
        t->met[j] = true;
    }
    for (size_t i = 0; i < t->count; i++)
        if (t->records[i].call == call && t->records[i].kind == RONDO_TRACE_SEND && !t->met[i])
            fail_msg("nobody received what rank %d sent in step %d", t->records[i].rank, t->records[i].of.slice.step);
}

static void check_trace(const scene *s)
{
    trace t = read_trace();
    const rondo_trace_record **list = calloc(t.count + 1, sizeof *list);
    size_t all = 0;
    for (uint64_t c = 1; c <= CALLS; c++) {
        const trial *call = &s->calls[c - 1];
        int32_t order[RANKS] = {0};
        for (int r = 0; r < s->n; r++) {
            assert_true(records_of(&t, r, c, list) >= 2);
            assert_in_range(list[0]->of.made.position, 0, s->n - 1);
            order[list[0]->of.made.position] = r;
        }
        for (int r = 0; r < s->n; r++) {
            size_t n = records_of(&t, r, c, list);
            check_rank(s, call, order, r, list, n);
            all += n;
        }
        check_pairs(&t, c, is_rooted(call));
    }
    assert_int_equal(all, t.count); /* and nothing else */
    free(list);
    free_trace(&t);
}

/* ---- Scenes ---- */

static void play(rondo_comm *comm, int rank, int n, void *context)
{
    const scene *s = context;
    (void)rank;
    (void)n;
    for (int c = 0; c < CALLS; c++) trial_run(&s->calls[c], comm);
    rondo_comm_destroy(comm);
}

static void run_scene(const scene *s)
{
    char channels[8];
    snprintf(channels, sizeof channels, "%d", s->channels);
    unlink(file);
    way_take(s->way);
    test_env("RONDO_TRACE", file);
    test_env("RONDO_CHANNELS", channels);
    test_env("RONDO_SLICE", s->slice);
    ranks_run(s->n, NULL, NULL, play, (void *)(uintptr_t)s);
    check_trace(s);
}

static const rondo_dtype types[] = {RONDO_INT32, RONDO_BFLOAT16, RONDO_FLOAT8E4M3, RONDO_FLOAT64, RONDO_INT8};

/* Every collective over every way: an uneven count, and one with several slices a chunk. */
static void every_collective(void **state)
{
    (void)state;
    int scenes = 0;
    for (int w = 0; w < PATHS; w++)
        for (int c = 0; c < TRIAL_COLLECTIVES; c++, scenes++) {
            rondo_dtype type = types[scenes % 5];
            trial t = {
                .collective = c, .dtype = type, .op = RONDO_SUM, .root = 1, .count = 31, .seed = (uint64_t)scenes};
            scene s = {.way = &paths[w], .n = 3 + scenes % 2, .channels = 1, .slice = "4096", .calls = {t, t}};
            s.calls[1].count = 24001;
            s.calls[1].in_place = true;
            run_scene(&s);
        }
}

static void channels(void **state)
{
    (void)state;
    for (int w = RING; w <= TCP; w++) {
        trial t = {
            .collective = RONDO_COLL_ALL_REDUCE, .dtype = RONDO_INT32, .op = RONDO_SUM, .count = 9000, .seed = 5};
        scene s = {.way = &paths[w], .n = 3, .channels = 3, .slice = "4096", .calls = {t, t}};
        s.calls[0].count = 5; /* some have nothing to carry, and carry it */
        run_scene(&s);
    }
}

/* Messages of nothing and of less than the ranks still take every step. */
static void small_messages(void **state)
{
    (void)state;
    for (int w = 0; w < PATHS; w++) {
        trial t = {.collective = RONDO_COLL_ALL_REDUCE, .dtype = RONDO_FLOAT16, .op = RONDO_SUM, .count = 0, .seed = 6};
        scene s = {.way = &paths[w], .n = 5, .channels = 1, .calls = {t, t}};
        s.calls[1].count = 3;
        run_scene(&s);
    }
}

/* More records than are written at a time, by several ranks at once. */
static void many_records(void **state)
{
    (void)state;
    trial t = {
        .collective = RONDO_COLL_ALL_REDUCE, .dtype = RONDO_INT8, .op = RONDO_SUM, .count = 4 * 4096 * 200, .seed = 7};
    scene s = {.way = &paths[RING], .n = 4, .channels = 1, .slice = "4096", .calls = {t, t}};
    s.calls[1].count = 1000;
    run_scene(&s);
}

/* ---- Threads, off, and errors ---- */

static void *one_rank(void *comm)
{
    int32_t x = 1;
    rondo_result *result = calloc(1, sizeof *result);
    *result = rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, comm, NULL);
    return result;
}

/* Communicators of one process have numbers of their own. */
static void communicators_of_a_process(void **state)
{
    (void)state;
    enum { N = 2 };
    rondo_comm *comms[N];
    pthread_t threads[N];
    bool seen[N] = {false};
    unlink(file);
    way_take(&(struct way){"loop", NULL, "ring"});
    test_env("RONDO_TRACE", file);
    test_env("RONDO_CHANNELS", NULL);
    test_env("RONDO_SLICE", NULL);
    assert_int_equal(rondo_init_all(comms, N, NULL), RONDO_SUCCESS);
    for (int r = 0; r < N; r++) assert_int_equal(pthread_create(&threads[r], NULL, one_rank, comms[r]), 0);
    for (int r = 0; r < N; r++) {
        void *result;
        assert_int_equal(pthread_join(threads[r], &result), 0);
        assert_int_equal(*(rondo_result *)result, RONDO_SUCCESS);
        free(result);
    }
    for (int r = 0; r < N; r++) rondo_comm_destroy(comms[r]);
    trace t = read_trace();
    assert_int_equal(t.count, N * (2 + 2 * 2));
    for (size_t i = 0; i < t.count; i++) {
        assert_in_range(t.records[i].comm, 0, N - 1);
        if (t.records[i].rank == 0) seen[t.records[i].comm] = true;
    }
    assert_true(seen[0] != seen[1]);
    free_trace(&t);
}

static void off_leaves_no_file(void **state)
{
    (void)state;
    trial t = {.collective = RONDO_COLL_ALL_REDUCE, .dtype = RONDO_INT32, .op = RONDO_SUM, .count = 100, .seed = 8};
    scene s = {.way = &paths[RING], .n = 2, .channels = 1, .calls = {t, t}};
    unlink(file);
    way_take(s.way);
    test_env("RONDO_TRACE", NULL);
    ranks_run(s.n, NULL, NULL, play, &s);
    assert_int_equal(access(file, F_OK), -1);
    assert_int_equal(errno, ENOENT);
}

static void unwritable_is_an_error(void **state)
{
    (void)state;
    rondo_unique_id id;
    rondo_comm *comm = NULL;
    char place[128];
    snprintf(place, sizeof place, "%s/nowhere/trace", directory);
    const char *const places[] = {place, directory};
    way_take(&(struct way){"any", NULL, NULL});
    for (int i = 0; i < 2; i++) {
        test_env("RONDO_TRACE", places[i]);
        assert_int_equal(rondo_get_unique_id(&id), RONDO_SUCCESS);
        assert_int_equal(rondo_init_rank(&comm, 1, id, 0, NULL), RONDO_SYSTEM_ERROR);
        assert_null(comm);
        assert_non_null(strstr(rondo_last_error(NULL), "RONDO_TRACE"));
        assert_non_null(strstr(rondo_last_error(NULL), places[i]));
        assert_non_null(strstr(rondo_last_error(NULL), strerror(i ? EISDIR : ENOENT)));
    }
    test_env("RONDO_TRACE", NULL);
}

static int make_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/rondo-trace-XXXXXX");
    if (!mkdtemp(directory)) return -1;
    snprintf(file, sizeof file, "%s/trace", directory);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    unlink(file);
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective),
        cmocka_unit_test(channels),
        cmocka_unit_test(small_messages),
        cmocka_unit_test(many_records),
        cmocka_unit_test(off_leaves_no_file),
        /* These make threads, and what forks must have none. */
        cmocka_unit_test(communicators_of_a_process),
        cmocka_unit_test(unwritable_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
