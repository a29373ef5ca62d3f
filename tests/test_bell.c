/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bell.c - no wake-up is lost: two ranks hand a number to and fro and sleep while they wait for it, as threads and
 * as processes, in the futex and in epoll, with a descriptor or without.
 */
#include "base/bell.h"
#include "base/clock.h"
#include "base/shared.h"
#include "test.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TURNS = 20000 };
#define LONG_NS 20000000000

/* One of two players. Each owns a word that the other stores to. */
struct player {
    rondo_bell bell;
    rd_ringer other;
    _Atomic uint32_t *mine, *theirs;
    int me;
    bool lost, watches; /* watches: a descriptor takes part, so it sleeps in epoll */
    int pipe_fd;
};

static void *play(void *argument)
{
    struct player *p = argument;
    uint32_t turn = (uint32_t)p->me, random = turn;
    for (int i = 0; i < TURNS && !p->lost; i++, turn += 2) {
        if (turn) {
            /* The hard moment is when one arms while the other rings, which takes two that are awake: so spin for long
             * or hardly, at random. */
            random = random * 1103515245 + 12345;
            uint32_t spins = 1U << (random >> 16) % 15;
            while (spins-- && atomic_load_explicit(p->mine, memory_order_relaxed) != turn) continue;
            while (atomic_load_explicit(p->mine, memory_order_acquire) != turn) {
                rd_bell_arm(&p->bell);
                if (p->watches && i % 5 == 0) rd_bell_watch(&p->bell, p->pipe_fd, EPOLLIN);
                if (atomic_load_explicit(p->mine, memory_order_acquire) == turn) {
                    rd_bell_disarm(&p->bell);
                    break;
                }
                int64_t from = rd_now();
                rd_bell_sleep(&p->bell, LONG_NS);
                if (rd_now() - from >= LONG_NS) {
                    p->lost = true;
                    break;
                }
            }
        }
        atomic_store_explicit(p->theirs, turn + 1, memory_order_release);
        rd_ringer_ring(&p->other);
    }
    return NULL;
}

static void play_threads(bool first_watches, bool second_watches)
{
    static _Atomic uint32_t words[2];
    struct player players[2] = {{.me = 0, .watches = first_watches}, {.me = 1, .watches = second_watches}};
    int pipes[2];
    pthread_t thread;
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    for (int i = 0; i < 2; i++) {
        words[i] = 0;
        players[i].mine = &words[i];
        players[i].theirs = &words[!i];
        players[i].pipe_fd = pipes[0];
        assert_int_equal(rd_bell_open(&players[i].bell), RONDO_SUCCESS);
    }
    for (int i = 0; i < 2; i++) assert_int_equal(rd_ringer_local(&players[i].other, &players[!i].bell), RONDO_SUCCESS);
    assert_int_equal(pthread_create(&thread, NULL, play, &players[1]), 0);
    play(&players[0]);
    pthread_join(thread, NULL);
    for (int i = 0; i < 2; i++) {
        assert_false(players[i].lost);
        rd_ringer_close(&players[i].other);
        rd_bell_close(&players[i].bell);
        close(pipes[i]);
    }
}

static void test_threads_futex(void **state) { (void)state, play_threads(false, false); }
static void test_threads_epoll(void **state) { (void)state, play_threads(true, true); }
static void test_threads_mixed(void **state) { (void)state, play_threads(true, false); }

static void test_processes(void **state)
{
    (void)state;
    void *page;
    int page_fd, status, pipes[2];
    assert_int_equal(rd_shared_create("test words", 4096, &page, &page_fd), RONDO_SUCCESS);
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    rondo_bell bells[2];
    for (int i = 0; i < 2; i++) assert_int_equal(rd_bell_open(&bells[i]), RONDO_SUCCESS);
    /* The child's mappings are gone with the fork, its descriptors are not: it maps both bells anew. */
    pid_t child = fork();
    assert_true(child >= 0);
    int me = !child;
    struct player p = {.me = me, .watches = me, .pipe_fd = pipes[0], .bell = bells[me]};
    void *words = page;
    rd_ringer own = {0};
    bool made = rd_ringer_open(&p.other, fcntl(bells[!me].page_fd, F_DUPFD_CLOEXEC, 0),
                               fcntl(bells[!me].event_fd, F_DUPFD_CLOEXEC, 0)) == RONDO_SUCCESS;
    if (me) {
        made = made && rd_shared_map(page_fd, 4096, &words) == RONDO_SUCCESS &&
               rd_ringer_local(&own, &bells[me]) == RONDO_SUCCESS;
        p.bell.word = own.word;
    }
    if (made) {
        p.mine = (_Atomic uint32_t *)words + me * 16;
        p.theirs = (_Atomic uint32_t *)words + !me * 16;
        play(&p);
    }
    if (!child) _exit(!made || p.lost);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(made);
    assert_false(p.lost);
    rd_ringer_close(&p.other);
    for (int i = 0; i < 2; i++) {
        rd_bell_close(i == me ? &p.bell : &bells[i]);
        close(pipes[i]);
    }
    rd_shared_unmap(page, 4096);
    close(page_fd);
}

static void test_timeout(void **state)
{
    (void)state;
    rondo_bell bell;
    assert_int_equal(rd_bell_open(&bell), RONDO_SUCCESS);
    int pipes[2];
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    for (int epoll = 0; epoll < 2; epoll++) {
        if (epoll) assert_int_equal(rd_bell_watch(&bell, pipes[0], EPOLLIN), RONDO_SUCCESS);
        int64_t from = rd_now();
        rd_bell_arm(&bell);
        rd_bell_sleep(&bell, 20000000);
        int64_t slept = rd_now() - from;
        assert_in_range(slept, 15000000, LONG_NS);
        assert_int_equal(*bell.word, 0);
        rd_bell_arm(&bell);
        rd_bell_sleep(&bell, -5); /* past already */
        rd_bell_arm(&bell);
        rd_bell_ring(&bell);
        from = rd_now();
        rd_bell_sleep(&bell, LONG_NS); /* rung between arm and sleep */
        assert_true(rd_now() - from < LONG_NS);
    }
    rd_bell_close(&bell);
    rd_bell_close(&bell);
    rd_bell_close(NULL);
    close(pipes[0]);
    close(pipes[1]);
}

/* A readable descriptor wakes one sleep, and no other before it is watched again; forgotten, none. */
static void test_watch_once(void **state)
{
    (void)state;
    rondo_bell bell;
    int pipes[2];
    assert_int_equal(rd_bell_open(&bell), RONDO_SUCCESS);
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    assert_int_equal(write(pipes[1], "x", 1), 1);
    for (int round = 0; round < 3; round++) {
        rd_bell_arm(&bell);
        assert_int_equal(rd_bell_watch(&bell, pipes[0], EPOLLIN), RONDO_SUCCESS);
        int64_t from = rd_now();
        rd_bell_sleep(&bell, LONG_NS);
        assert_true(rd_now() - from < LONG_NS);
        rd_bell_arm(&bell);
        from = rd_now();
        rd_bell_sleep(&bell, 20000000);
        assert_true(rd_now() - from >= 15000000);
    }
    assert_int_equal(rd_bell_watch(&bell, pipes[0], EPOLLIN), RONDO_SUCCESS);
    rd_bell_forget(&bell, pipes[0]);
    rd_bell_arm(&bell);
    int64_t from = rd_now();
    rd_bell_sleep(&bell, 20000000);
    assert_true(rd_now() - from >= 15000000);
    assert_int_not_equal(rd_bell_watch(&bell, -1, EPOLLIN), RONDO_SUCCESS);
    rd_bell_close(&bell);
    close(pipes[0]);
    close(pipes[1]);
}

/* The bell's owner may close it first; whoever rings then rings nobody. */
static void test_ringer_outlives_bell(void **state)
{
    (void)state;
    rondo_bell bell;
    rd_ringer ringer, nobody = RD_RINGER_NOBODY;
    assert_int_equal(rd_bell_open(&bell), RONDO_SUCCESS);
    assert_int_equal(rd_ringer_local(&ringer, &bell), RONDO_SUCCESS);
    rd_bell_arm(&bell);
    rd_bell_close(&bell);
    rd_ringer_ring(&ringer);
    rd_ringer_close(&ringer);
    rd_ringer_close(&ringer);
    rd_ringer_ring(&nobody);
    rd_ringer_close(&nobody);
}

static int open_fds(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void test_ringer_open_takes_over(void **state)
{
    (void)state;
    rd_ringer ringer;
    int before = open_fds(), pipes[2];
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    assert_int_not_equal(rd_ringer_open(&ringer, pipes[0], pipes[1]), RONDO_SUCCESS); /* not a bell's page */
    assert_int_equal(open_fds(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_futex),        cmocka_unit_test(test_threads_epoll),
        cmocka_unit_test(test_threads_mixed),        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_timeout),              cmocka_unit_test(test_watch_once),
        cmocka_unit_test(test_ringer_outlives_bell), cmocka_unit_test(test_ringer_open_takes_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
