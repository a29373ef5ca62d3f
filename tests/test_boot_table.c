/* SPDX-License-Identifier: Apache-2.0
 *
 * The rendezvous table: put, get, fence, exchange; ranks as threads and as processes, few and many; late roots, missing,
 * dying and doubled ranks.
 */
#include "base/clock.h"
#include "base/status.h"
#include "boot_ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void check_all(struct run *run)
{
    for (int i = 0; i < run->world; i++)
        if (run->rank[i].result != RONDO_SUCCESS) fail_msg("rank %d: %s", i, run->rank[i].text);
}

/* ---- What it is for ---- */

static void use_table(rank *r)
{
    int world = r->run->world;
    char key[32], text[32], got[32];
    int64_t begin = rd_now();
    rondo_result result = rank_join(r);
    snprintf(key, sizeof key, "name/%d", r->me);
    snprintf(text, sizeof text, "value of %d", r->me);
    if (result == RONDO_SUCCESS) result = rd_table_put(r->table, key, text, sizeof text);
    if (result == RONDO_SUCCESS) result = rd_table_fence(r->table, rd_deadline(r->run->timeout_s));
    for (int i = 0; i < world && result == RONDO_SUCCESS; i += world > 8 ? 7 : 1) {
        snprintf(key, sizeof key, "name/%d", i);
        snprintf(text, sizeof text, "value of %d", i);
        result = rd_table_get(r->table, key, got, sizeof got);
        if (result == RONDO_SUCCESS && strcmp(text, got)) result = rd_fail(RONDO_INTERNAL_ERROR, "%s is %s", key, got);
    }
    enum { EACH = 1024 };
    unsigned char mine[EACH], *all = malloc((size_t)world * EACH);
    for (int i = 0; i < EACH; i++) mine[i] = (unsigned char)(r->me * 7 + i * 3);
    for (int round = 0; round < 3 && result == RONDO_SUCCESS; round++) {
        mine[0] = (unsigned char)(r->me + round);
        result = rd_table_exchange(r->table, "all", mine, EACH, all, rd_deadline(r->run->timeout_s));
        for (int k = 0; k < world * EACH && result == RONDO_SUCCESS; k++) {
            int from = k / EACH, i = k % EACH;
            if (all[k] != (unsigned char)(i ? from * 7 + i * 3 : from + round))
                result = rd_fail(RONDO_INTERNAL_ERROR, "byte %d of rank %d is %d", i, from, all[k]);
        }
    }
    free(all);
    rank_note(r, result);
    r->run->rank[r->me].seconds = (double)(rd_now() - begin) * 1e-9;
}

static void in_world(int world, bool threads)
{
    struct run *run = run_new(world, LIMIT_S);
    int64_t begin = rd_now();
    if (threads) run_threads(run, use_table);
    else run_processes(run, use_table);
    check_all(run);
    print_message("%d ranks as %s: %.1f ms\n", world, threads ? "threads" : "processes", (double)(rd_now() - begin) * 1e-6);
    if (!UNDER_TSAN) assert_true(rd_now() - begin < 5000000000);
    run_free(run);
}

static void test_processes(void **state)
{
    (void)state;
    in_world(1, false);
    in_world(2, false);
    in_world(8, false);
    in_world(64, false);
}

static void test_threads(void **state)
{
    (void)state;
    in_world(2, true);
    in_world(8, true);
    in_world(64, true);
}

int main(void)
{
    /* Processes first: they are forked while this one has no threads. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
