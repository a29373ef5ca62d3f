/* SPDX-License-Identifier: Apache-2.0
 *
 * Members and their control plane: connections between ranks, deaths, goodbyes, aborts.
 */
#include "base/clock.h"
#include "base/sock.h"
#include "base/status.h"
#include "boot_ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define RESULT(r) ((r)->run->rank[(r)->me])

static void check_result(const struct run *run, int me, rondo_result result)
{
    if (run->rank[me].result != result)
        fail_msg("rank %d: %s (%s)", me, rondo_result_string(run->rank[me].result), run->rank[me].text);
}

/* ---- Connections ---- */

/* Every rank connects to every other, twice, and they tell each other who they are. */
static void talk(rank *r)
{
    int world = r->run->world;
    bool over_unix = r->run->argument == 0;
    int64_t deadline = rd_deadline(r->run->timeout_s);
    rondo_result result = rank_start(r);
    for (int peer = 0; peer < world && result == RONDO_SUCCESS; peer++) {
        for (int index = 0; index < 2 && peer != r->me && result == RONDO_SUCCESS; index++) {
            int fd, word = r->me * 1000 + index;
            result = rd_member_connect(r->member, peer, 5, index, over_unix, deadline, &fd);
            if (result != RONDO_SUCCESS) break;
            result = rd_sock_send(fd, &word, sizeof word, deadline);
            close(fd);
        }
    }
    for (int peer = world - 1; peer >= 0 && result == RONDO_SUCCESS; peer--) {
        for (int index = 1; index >= 0 && peer != r->me && result == RONDO_SUCCESS; index--) {
            int fd, word = -1;
            result = rd_member_accept(r->member, peer, 5, index, deadline, &fd);
            if (result != RONDO_SUCCESS) break;
            result = rd_sock_recv(fd, &word, sizeof word, deadline);
            close(fd);
            if (result == RONDO_SUCCESS && word != peer * 1000 + index)
                result = rd_fail(RONDO_INTERNAL_ERROR, "rank %d gets %d from %d", r->me, word, peer);
        }
    }
    rank_note(r, result);
    r->run->step++;
    wait_for_int(&r->run->step, world, LIMIT_S); /* nobody leaves before all have met */
}

static void check_talk(int world, bool threads, bool tcp)
{
    struct run *run = run_new(world, LIMIT_S);
    run->argument = tcp;
    if (threads) run_threads(run, talk);
    else run_processes(run, talk);
    for (int i = 0; i < world; i++) check_result(run, i, RONDO_SUCCESS);
    run_free(run);
}

static void test_connections(void **state)
{
    (void)state;
    check_talk(4, false, false);
    check_talk(4, false, true);
    check_talk(9, false, false);
}

static void test_connections_of_threads(void **state)
{
    (void)state;
    check_talk(1, true, false);
    check_talk(2, true, false);
    check_talk(3, true, true);
    check_talk(8, true, false);
}

/* ---- Deaths ---- */

static void mourn(rank *r)
{
    if (rank_start(r) == RONDO_SUCCESS) {
        r->run->step++;
        if (rank_wait_stop(r, 10)) rank_note(r, rd_fail(r->stopped, "%s", r->stop_text));
    }
}

static void check_death(int world, int victim, bool tcp)
{
    char words[64];
    struct run *run = run_new(world, LIMIT_S);
    run->argument = tcp;
    for (int i = 0; i < world; i++) run_fork(run, i, mourn);
    assert_true(wait_for_int(&run->step, world, LIMIT_S));
    double killed = (double)rd_now() * 1e-9;
    kill(run->rank[victim].pid, SIGKILL);
    for (int i = 0; i < world; i++) {
        int status = run_wait(run, i);
        if (i == victim) continue;
        assert_int_equal(status, 0);
        check_result(run, i, RONDO_REMOTE_ERROR);
        snprintf(words, sizeof words, "rank %d (pid %d on ", victim, run->rank[victim].pid);
        assert_non_null(strstr(run->rank[i].text, words));
        assert_non_null(strstr(run->rank[i].text, "was killed or crashed"));
        if (run->rank[i].at - killed > 2) fail_msg("rank %d learnt it after %.3f s", i, run->rank[i].at - killed);
    }
    run_free(run);
}

static void test_death(void **state)
{
    (void)state;
    check_death(2, 1, false);
    check_death(4, 2, false);
    check_death(4, 0, true);
    check_death(13, 5, false); /* ranks 3 and 11, say, learn it only from others */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_connections),
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_connections_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
