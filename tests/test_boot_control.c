/* SPDX-License-Identifier: Apache-2.0
 *
 * Members and their control plane: connections between ranks, deaths, goodbyes, aborts.
 */
#include "base/clock.h"
#include "base/sock.h"
#include "base/status.h"
#include "boot/member.h"
#include "boot_ranks.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
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
            result = rd_member_connect(r->member, peer, 5, index, over_unix ? RD_OVER_UNIX : 0, deadline, &fd);
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
    if (threads)
        run_threads(run, talk);
    else
        run_processes(run, talk);
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

/* Many ranks meet: table, contacts, control connections. */
static void meet(rank *r)
{
    rank_start(r);
    r->run->step++;
    wait_for_int(&r->run->step, r->run->world, LIMIT_S);
}

static void test_many_start(void **state)
{
    (void)state;
    struct run *run = run_new(MANY, LIMIT_S);
    int64_t begin = rd_now();
    run_processes(run, meet);
    for (int i = 0; i < MANY; i++) check_result(run, i, RONDO_SUCCESS);
    print_message("%d ranks met within %.0f ms\n", MANY, (double)(rd_now() - begin) * 1e-6);
    run_free(run);
}

/* Rank 0 cannot answer for longer than a peer that is gone is looked for; it is there all the same. */
static void doze(rank *r)
{
    int64_t deadline = rd_deadline(r->run->timeout_s);
    int fd = -1;
    rondo_result result = rank_start(r);
    r->run->step++;
    wait_for_int(&r->run->step, 2, LIMIT_S);
    if (r->me == 0) {
        r->run->step++;
        raise(SIGSTOP);
        if (result == RONDO_SUCCESS) result = rd_member_accept(r->member, 1, 5, 0, deadline, &fd);
    } else {
        wait_for_int(&r->run->step, 3, LIMIT_S);
        sleep_s(0.2);
        if (result == RONDO_SUCCESS) result = rd_member_connect(r->member, 0, 5, 0, RD_OVER_UNIX, deadline, &fd);
    }
    close(fd);
    rank_note(r, result);
    r->run->step++;
    wait_for_int(&r->run->step, 5, LIMIT_S);
}

static void test_slow_to_answer(void **state)
{
    (void)state;
    struct run *run = run_new(2, LIMIT_S);
    for (int i = 0; i < 2; i++) run_fork(run, i, doze);
    assert_true(wait_for_int(&run->step, 3, LIMIT_S));
    sleep_s(2);
    kill(run->rank[0].pid, SIGCONT);
    for (int i = 0; i < 2; i++) assert_int_equal(run_wait(run, i), 0);
    for (int i = 0; i < 2; i++) check_result(run, i, RONDO_SUCCESS);
    run_free(run);
}

/* An address of this host where what asks for a connection is dropped, as by a network that loses it: a queue of
 * connections that nobody takes, and that is full. */
static rondo_result silent_address(rd_address *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    char text[64];
    int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(door, (struct sockaddr *)&at, length) || listen(door, 0) ||
        getsockname(door, (struct sockaddr *)&at, &length))
        return rd_fail_errno("no door");
    for (int i = 0; i < 4; i++) {
        int caller = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (connect(caller, (struct sockaddr *)&at, length) && errno != EINPROGRESS) return rd_fail_errno("no caller");
    }
    snprintf(text, sizeof text, "127.0.0.1:%d", ntohs(at.sin_port));
    return rd_address_parse(address, text);
}

/* A packet that is lost is sent again after a second, which is as long as one try takes. */
static void dial_silent(rank *r)
{
    int fd = -1;
    rondo_result result = rank_start(r);
    r->run->step++;
    wait_for_int(&r->run->step, 2, LIMIT_S);
    if (r->me == 0 && result == RONDO_SUCCESS) {
        r->member->contacts[1].interfaces = 1;
        result = silent_address(&r->member->contacts[1].interface[0].at);
        int64_t begin = rd_now();
        if (result == RONDO_SUCCESS) result = rd_member_connect(r->member, 1, 5, 0, 0, rd_deadline(LIMIT_S), &fd);
        RESULT(r).seconds = (double)(rd_now() - begin) * 1e-9;
    }
    rank_note(r, result);
    r->run->step++;
    wait_for_int(&r->run->step, 4, LIMIT_S);
}

static void test_silence(void **state)
{
    (void)state;
    struct run *run = run_new(2, LIMIT_S);
    for (int i = 0; i < 2; i++) run_fork(run, i, dial_silent);
    for (int i = 0; i < 2; i++) assert_int_equal(run_wait(run, i), 0);
    check_result(run, 0, RONDO_REMOTE_ERROR);
    assert_non_null(strstr(run->rank[0].text, "no answer"));
    if (run->rank[0].seconds < 2.5) fail_msg("given up after %.1f s", run->rank[0].seconds);
    run_free(run);
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

/* ---- Goodbyes ---- */

/* Ranks other than 0 leave after `me` calls; rank 0 sees all of them go, and nothing stops it. */
static void part(rank *r)
{
    int world = r->run->world;
    char text[256] = "";
    if (rank_start(r) != RONDO_SUCCESS) return;
    r->run->step++;
    wait_for_int(&r->run->step, world, LIMIT_S);
    rd_member_completed(r->member, (uint64_t)r->me);
    /* One after the other, so that there is always somebody who can pass it on to those who are no neighbours. */
    if (world > 5) sleep_s(0.03 * r->me);
    if (r->me > 0 && r->run->argument == 2) exit(0); /* without a word of the caller */
    if (r->me > 0) return;
    rondo_result result = RONDO_SUCCESS;
    if (!rank_wait_wakes(r, world - 1, 10)) result = rd_fail(RONDO_TIMEOUT, "only %d goodbyes arrived", r->wakes);
    sleep_s(0.2); /* their ends of the connections are closed by now */
    if (r->stops) result = rd_fail(RONDO_INTERNAL_ERROR, "stopped: %s", r->stop_text);
    if (result == RONDO_SUCCESS && rd_member_left(r->member, 0, text, sizeof text))
        result = rd_fail(RONDO_INTERNAL_ERROR, "too early for call 0: %s", text);
    if (result == RONDO_SUCCESS && !rd_member_left(r->member, 2, text, sizeof text))
        result = rd_fail(RONDO_INTERNAL_ERROR, "nobody left");
    rank_note(r, result);
    if (result == RONDO_SUCCESS) snprintf(RESULT(r).text, TEXT, "%s", text);
}

static void check_goodbyes(int world, bool exits)
{
    char words[128];
    struct run *run = run_new(world, LIMIT_S);
    run->argument = exits ? 2 : 0;
    for (int i = 0; i < world; i++) run_fork(run, i, part);
    for (int i = 0; i < world; i++) assert_int_equal(run_wait(run, i), 0);
    check_result(run, 0, RONDO_SUCCESS);
    snprintf(words, sizeof words, "rank 1 (pid %d on ", run->rank[1].pid);
    assert_memory_equal(run->rank[0].text, words, strlen(words));
    assert_non_null(strstr(run->rank[0].text, exits ? ") left: its process exited after 1 call"
                                                    : ") left: it destroyed its communicator after 1 call"));
    run_free(run);
}

static void test_goodbyes(void **state)
{
    (void)state;
    check_goodbyes(2, false);
    check_goodbyes(2, true);
    check_goodbyes(5, false);
    check_goodbyes(5, true);
    check_goodbyes(11, true);
}

/* ---- Aborts ---- */

static void abort_one(rank *r)
{
    rondo_result result = rank_start(r);
    int fd;
    r->run->step++;
    wait_for_int(&r->run->step, r->run->world, LIMIT_S);
    if (result == RONDO_SUCCESS && r->me == 1) {
        rd_member_announce(r->member, RONDO_ABORTED, "rondo_comm_abort() was called");
        rd_member_announce(r->member, RONDO_ABORTED, "a second time");
        result = rd_member_accept(r->member, 0, 9, 0, rd_deadline(5), &fd);
        rank_note(r, result);
    } else if (result == RONDO_SUCCESS) {
        /* This rank waits for a connection that never comes. */
        result = rd_member_accept(r->member, (r->me + 2) % r->run->world, 9, 0, rd_deadline(10), &fd);
        rank_note(r, result);
        if (!rank_wait_stop(r, 5)) rank_note(r, rd_fail(RONDO_TIMEOUT, "stop was not called"));
        if (strcmp(r->stop_text, RESULT(r).text))
            rank_note(r, rd_fail(RONDO_INTERNAL_ERROR, "stop said %s", r->stop_text));
    }
    r->run->step++;
    wait_for_int(&r->run->step, 2 * r->run->world, LIMIT_S);
    if (r->stops > (r->me != 1)) rank_note(r, rd_fail(RONDO_INTERNAL_ERROR, "stop was called %d times", r->stops));
}

static void test_abort(void **state)
{
    (void)state;
    struct run *run = run_new(7, LIMIT_S);
    run_processes(run, abort_one);
    for (int i = 0; i < 7; i++) {
        check_result(run, i, RONDO_ABORTED);
        if (i == 1) continue;
        assert_memory_equal(run->rank[i].text, "rank 1 (pid ", 12);
        assert_non_null(strstr(run->rank[i].text, ") reports: rondo_comm_abort() was called"));
    }
    run_free(run);
}

/* ---- Connections that cannot be ---- */

static void lonely(rank *r)
{
    int fd;
    rondo_result result = rank_start(r);
    r->run->step++;
    wait_for_int(&r->run->step, r->run->world, LIMIT_S);
    if (result != RONDO_SUCCESS) return;
    if (r->me == 1) { /* leaves while rank 0 waits for it */
        sleep_s(0.2);
        return;
    }
    int64_t begin = rd_now();
    if (r->run->argument == 0) result = rd_member_accept(r->member, 1, 3, 0, rd_deadline(10), &fd);
    if (r->run->argument == 1) { /* it has no address that works */
        sleep_s(0.4);
        result = rd_member_connect(r->member, 1, 3, 0, RD_OVER_UNIX, rd_deadline(10), &fd);
    }
    if (r->run->argument == 2) result = rd_member_accept(r->member, 1, 3, 0, rd_deadline(0.1), &fd);
    if (r->run->argument == 3) result = rd_member_connect(r->member, 2, 3, 0, RD_OVER_UNIX, rd_deadline(0.1), &fd);
    rank_note(r, result);
    RESULT(r).seconds = (double)(rd_now() - begin) * 1e-9;
}

static void check_lonely(int argument, rondo_result result, const char *words)
{
    struct run *run = run_new(2, LIMIT_S);
    run->argument = argument;
    run_processes(run, lonely);
    check_result(run, 0, result);
    if (!strstr(run->rank[0].text, words)) fail_msg("%s", run->rank[0].text);
    assert_true(run->rank[0].seconds < 2);
    run_free(run);
}

static void test_no_connection(void **state)
{
    (void)state;
    check_lonely(0, RONDO_REMOTE_ERROR, "left: it destroyed its communicator after 0 calls");
    check_lonely(1, RONDO_REMOTE_ERROR, "left: it destroyed its communicator after 0 calls");
    check_lonely(2, RONDO_TIMEOUT, "did not connect to rank 0 in time (purpose 3, index 0)");
    check_lonely(3, RONDO_INVALID_ARGUMENT, "peer is 2; the ranks are 0 to 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_connections),
        cmocka_unit_test(test_many_start),
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_goodbyes),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_no_connection),
        cmocka_unit_test(test_slow_to_answer),
        cmocka_unit_test(test_silence),
        cmocka_unit_test(test_connections_of_threads), /* last: it leaves threads in this process */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
