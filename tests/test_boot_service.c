/* SPDX-License-Identifier: Apache-2.0
 *
 * The service thread: strangers at the door, ports, forks, and that nothing piles up.
 */
#include "base/clock.h"
#include "base/sock.h"
#include "base/status.h"
#include "boot/internal.h"
#include "boot_ranks.h"

#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Helpers ---- */

/* Runs fn in a process of its own; its exit status. */
static int in_child(int (*fn)(void *), void *argument)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        alarm((unsigned)(2 * LIMIT_S));
        exit(fn(argument));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, rd_last_error());                       \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static int count_entries(const char *path)
{
    int count = 0;
    DIR *directory = opendir(path);
    while (directory && readdir(directory)) count++;
    if (directory) closedir(directory);
    return count;
}

static int count_mappings(void)
{
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    for (int c; maps && (c = getc(maps)) != EOF;) count += c == '\n';
    if (maps) fclose(maps);
    return count;
}

static const char *address_of(const rd_job *job, bool over_unix)
{
    for (int i = 0; i < job->roots; i++)
        if ((strncmp(job->root[i], "unix:", 5) == 0) == over_unix) return job->root[i];
    return NULL;
}

/* ---- Strangers (case 27) ---- */

static int visit(const char *address, const void *data, size_t bytes, bool stay)
{
    rd_address to;
    int fd;
    if (rd_address_parse(&to, address) != RONDO_SUCCESS || rd_sock_connect(&fd, &to, rd_deadline(5)) != RONDO_SUCCESS)
        return -1;
    if (bytes && rd_sock_send(fd, data, bytes, rd_deadline(5)) != RONDO_SUCCESS) return -1;
    if (stay) return fd;
    close(fd);
    return 0;
}

typedef struct start {
    rd_job job;
    rd_settings settings;
    rondo_result result;
} start;

static void *join(void *argument)
{
    start *s = argument;
    rd_table *table;
    s->result = rd_table_open(&table, &s->job, &s->settings, rd_deadline(LIMIT_S), NULL);
    if (s->result != RONDO_SUCCESS) return NULL;
    s->result = rd_table_fence(table, rd_deadline(LIMIT_S));
    rd_table_close(table);
    return NULL;
}

/* Rank 0 is there; 200 strangers come, of four kinds; then rank 1 comes. */
static int strangers(void *argument)
{
    (void)argument;
    static const char get[] =
        "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a-browser/1.0 (something)\r\nAccept: */*\r\n\r\n";
    unsigned char noise[8] = {0x16, 3, 1, 2, 0, 1, 0xfc, 7};
    start ranks[2];
    pthread_t threads[2];
    rondo_unique_id id;
    int silent[50];
    EXPECT(rd_settings_load(&ranks[0].settings, NULL) == RONDO_SUCCESS);
    ranks[1].settings = ranks[0].settings;
    EXPECT(rd_job_new_id(&id, &ranks[0].settings) == RONDO_SUCCESS);
    for (int i = 0; i < 2; i++) EXPECT(rd_job_from_id(&ranks[i].job, &id, i, 2, &ranks[i].settings) == RONDO_SUCCESS);
    EXPECT(pthread_create(&threads[0], NULL, join, &ranks[0]) == 0);
    for (int i = 0; i < 50; i++) {
        const char *address = address_of(&ranks[0].job, i % 2);
        EXPECT(visit(address, NULL, 0, false) == 0);
        EXPECT(visit(address, noise, sizeof noise, false) == 0);
        EXPECT(visit(address, get, sizeof get - 1, false) == 0);
        EXPECT((silent[i] = visit(address, NULL, 0, true)) > 0);
    }
    int64_t begin = rd_now();
    EXPECT(pthread_create(&threads[1], NULL, join, &ranks[1]) == 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) EXPECT(ranks[i].result == RONDO_SUCCESS);
    EXPECT(rd_now() - begin < 2000000000);
    for (int64_t deadline = rd_deadline(10); rd_service_strangers() < 200 && rd_now() < deadline;) sleep_s(0.05);
    EXPECT(rd_service_strangers() == 200); /* the silent ones have been dropped too, though they never left */
    for (int i = 0; i < 50; i++) close(silent[i]);
    return 0;
}

/* Few descriptors and many silent strangers: the oldest go, and the job starts. */
static int crowd(void *argument)
{
    struct rlimit few = {128, 128};
    start only;
    rondo_unique_id id;
    int pipe_ends[2];
    (void)argument;
    EXPECT(setrlimit(RLIMIT_NOFILE, &few) == 0);
    EXPECT(rd_settings_load(&only.settings, NULL) == RONDO_SUCCESS);
    EXPECT(rd_job_new_id(&id, &only.settings) == RONDO_SUCCESS);
    EXPECT(rd_job_from_id(&only.job, &id, 0, 1, &only.settings) == RONDO_SUCCESS);
    EXPECT(pipe(pipe_ends) == 0);
    pid_t pid = fork(); /* they come from another process, which has descriptors of its own */
    if (pid == 0) {
        for (int i = 0; i < 100; i++)
            if (visit(address_of(&only.job, true), NULL, 0, true) < 0) _exit(1);
        if (write(pipe_ends[1], "x", 1) != 1) _exit(1);
        pause();
    }
    char c;
    close(pipe_ends[1]);
    EXPECT(read(pipe_ends[0], &c, 1) == 1);
    join(&only);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    EXPECT(only.result == RONDO_SUCCESS);
    EXPECT(rd_service_strangers() >= 60);
    return 0;
}

static void test_strangers(void **state)
{
    (void)state;
    assert_int_equal(in_child(strangers, NULL), 0);
    assert_int_equal(in_child(crowd, NULL), 0);
}

/* ---- Ports (case 26) ---- */

static int free_port(void)
{
    int fd, port = 0;
    assert_int_equal(rd_sock_listen_tcp(&fd, 0, &port), RONDO_SUCCESS);
    close(fd);
    return port;
}

/* Rank 0 and rank 1 over TCP at that port, in one process. */
static int start_at(void *argument)
{
    start ranks[2];
    pthread_t threads[2];
    rondo_unique_id id;
    char end[16];
    EXPECT(rd_settings_load(&ranks[0].settings, NULL) == RONDO_SUCCESS);
    ranks[0].settings.port = *(int *)argument;
    ranks[1].settings = ranks[0].settings;
    EXPECT(rd_job_new_id(&id, &ranks[0].settings) == RONDO_SUCCESS);
    for (int i = 0; i < 2; i++) {
        EXPECT(rd_job_from_id(&ranks[i].job, &id, i, 2, &ranks[i].settings) == RONDO_SUCCESS);
        const char *address = address_of(&ranks[i].job, false);
        snprintf(end, sizeof end, ":%d", *(int *)argument);
        EXPECT(address && strcmp(address + strlen(address) - strlen(end), end) == 0);
        memmove(ranks[i].job.root[0], address, sizeof ranks[i].job.root[0]);
        ranks[i].job.roots = 1;
    }
    for (int i = 0; i < 2; i++) EXPECT(pthread_create(&threads[i], NULL, join, &ranks[i]) == 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) EXPECT(ranks[i].result == RONDO_SUCCESS);
    return 0;
}

static void test_port_again_and_again(void **state)
{
    (void)state;
    int port = free_port();
    for (int i = 0; i < (UNDER_TSAN ? 3 : 50); i++) assert_int_equal(in_child(start_at, &port), 0);
}

static int start_at_taken(void *argument)
{
    rondo_unique_id id;
    rd_settings settings;
    char words[32];
    EXPECT(rd_settings_load(&settings, NULL) == RONDO_SUCCESS);
    settings.port = *(int *)argument;
    int64_t begin = rd_now();
    EXPECT(rd_job_new_id(&id, &settings) == RONDO_SYSTEM_ERROR);
    EXPECT(rd_now() - begin < 1000000000);
    snprintf(words, sizeof words, "TCP port %d is taken", *(int *)argument);
    EXPECT(strstr(rd_last_error(), words));
    settings.port = 0; /* the process is as well as before */
    EXPECT(rd_job_new_id(&id, &settings) == RONDO_SUCCESS);
    settings.port = *(int *)argument;
    EXPECT(rd_job_new_id(&id, &settings) == RONDO_SYSTEM_ERROR);
    EXPECT(strstr(rd_last_error(), words));
    return 0;
}

static void test_port_taken(void **state)
{
    (void)state;
    int fd, port;
    assert_int_equal(rd_sock_listen_tcp(&fd, 0, &port), RONDO_SUCCESS);
    assert_int_equal(in_child(start_at_taken, &port), 0);
    close(fd);
}

/* An environment's root takes the first free port of its range; the others look through it. */
static int start_in_range(void *argument)
{
    start ranks[2];
    pthread_t threads[2];
    EXPECT(rd_settings_load(&ranks[0].settings, NULL) == RONDO_SUCCESS);
    ranks[1].settings = ranks[0].settings;
    for (int i = 0; i < 2; i++) {
        rd_job *job = &ranks[i].job;
        *job = (rd_job){.id = {7, 7, 7}, .key = {5, 4, 3}, .has_key = true, .rank = i, .world = 2, .is_root = i == 0};
        snprintf(job->root[0], sizeof job->root[0], "127.0.0.1:0");
        job->roots = 1;
        job->root_port = *(int *)argument;
        job->root_ports = 4;
        EXPECT(pthread_create(&threads[i], NULL, join, &ranks[i]) == 0);
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) EXPECT(ranks[i].result == RONDO_SUCCESS);
    return 0;
}

static void test_port_range(void **state)
{
    (void)state;
    int fd, port;
    assert_int_equal(rd_sock_listen_tcp(&fd, 0, &port),
                     RONDO_SUCCESS); /* the first is taken, by one that never answers */
    assert_int_equal(in_child(start_in_range, &port), 0);
    close(fd);
}

static void start_only(rank *r)
{
    rank_start(r);
}

/* ---- Nothing piles up (case 30) ---- */

static int many_starts(void *argument)
{
    int fds = 0, mappings = 0, threads = 0, rounds = UNDER_TSAN ? 40 : 400;
    (void)argument;
    struct rlimit few = {256, 256};
    EXPECT(setrlimit(RLIMIT_NOFILE, &few) == 0);
    for (int round = 0; round < rounds; round++) {
        struct run *run = run_new(1, LIMIT_S);
        rank *r = rank_new(run, 0);
        EXPECT(rank_start(r) == RONDO_SUCCESS);
        rank_free(r);
        run_free(run);
        if (round == rounds / 4) {
            sleep_s(0.1);
            fds = count_entries("/proc/self/fd");
            mappings = count_mappings();
            threads = count_entries("/proc/self/task");
        }
    }
    sleep_s(0.1);
    EXPECT(count_entries("/proc/self/fd") <= fds);
    /* The allocator may have mapped a little more; a leak would be a mapping for each of hundreds of rounds. Sanitizers keep
     * what was freed for a while. */
    if (!SANITIZED) EXPECT(count_mappings() <= mappings + 8);
    EXPECT(count_entries("/proc/self/task") <= threads);
    return 0;
}

/* Two ranks as threads, so that control connections come and go too. */
static int many_pairs(void *argument)
{
    int fds = 0, threads = 0, rounds = UNDER_TSAN ? 20 : 200;
    (void)argument;
    for (int round = 0; round < rounds; round++) {
        struct run *run = run_new(2, LIMIT_S);
        run_threads(run, start_only);
        for (int i = 0; i < 2; i++) EXPECT(run->rank[i].result == RONDO_SUCCESS);
        run_free(run);
        if (round == rounds / 4) {
            sleep_s(0.2);
            fds = count_entries("/proc/self/fd");
            threads = count_entries("/proc/self/task");
        }
    }
    sleep_s(0.2);
    EXPECT(count_entries("/proc/self/fd") <= fds);
    EXPECT(count_entries("/proc/self/task") <= threads);
    return 0;
}

static void test_flat(void **state)
{
    (void)state;
    assert_int_equal(in_child(many_starts, NULL), 0);
    assert_int_equal(in_child(many_pairs, NULL), 0);
}

/* ---- Fork ---- */

/* The parent's threads are not in its child, and what only they knew of (the text of an error of the service thread's) is
 * lost there. The leak sanitizer asks this function whether to look at all. */
static bool is_forked;
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return is_forked; }

static void fork_and_go_on(rank *r)
{
    pid_t children[4];
    char text[256];
    int fd, status;
    rondo_result result = rank_start(r);
    for (int i = 0; i < 4 && result == RONDO_SUCCESS; i++) {
        children[i] = fork();
        if (children[i]) continue;
        is_forked = true;
        /* In the child the communicator is the parent's, and closing it says nothing to anybody. */
        int wrong = rd_member_connect(r->member, 0, 1, 0, RD_OVER_UNIX, rd_deadline(1), &fd) != RONDO_INVALID_USAGE ||
                    !strstr(rd_last_error(), "forked") || rd_service_strangers() != 0;
        rd_member_announce(r->member, RONDO_ABORTED, "by a child");
        if (i < 2) rank_free(r);
        exit(wrong);
    }
    for (int i = 0; i < 4 && result == RONDO_SUCCESS; i++)
        if (waitpid(children[i], &status, 0) != children[i] || status)
            result = rd_fail(RONDO_INTERNAL_ERROR, "child %d: status %x", i, status);
    sleep_s(0.1);
    if (result == RONDO_SUCCESS && (r->stops || rd_member_left(r->member, 100, text, sizeof text)))
        result = rd_fail(RONDO_INTERNAL_ERROR, "disturbed: %s%s", r->stop_text, text);
    rank_note(r, result);
    r->run->step++;
    wait_for_int(&r->run->step, r->run->world, LIMIT_S);
}

static void test_fork_disturbs_nobody(void **state)
{
    (void)state;
    struct run *run = run_new(3, LIMIT_S);
    run_processes(run, fork_and_go_on);
    for (int i = 0; i < 3; i++)
        if (run->rank[i].result != RONDO_SUCCESS) fail_msg("rank %d: %s", i, run->rank[i].text);
    run_free(run);
}

/* A rank is killed while a child of its lives on: the others learn it all the same, over TCP too. */
static void leave_a_child(rank *r)
{
    rondo_result result = rank_start(r);
    if (result == RONDO_SUCCESS && r->me == 1) {
        pid_t child = fork();
        if (child == 0) {
            sleep_s(3);
            _exit(0);
        }
        r->run->rank[r->me].note = child;
        r->run->step++;
        pause();
    }
    r->run->step++;
    if (!rank_wait_stop(r, 10))
        rank_note(r, rd_fail(RONDO_TIMEOUT, "stop was not called"));
    else
        rank_note(r, rd_fail(r->stopped, "%s", r->stop_text));
}

static void test_death_with_children(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++) {
        struct run *run = run_new(2, LIMIT_S);
        run->argument = tcp;
        for (int i = 0; i < 2; i++) run_fork(run, i, leave_a_child);
        assert_true(wait_for_int(&run->step, 2, LIMIT_S));
        double killed = (double)rd_now() * 1e-9;
        kill(run->rank[1].pid, SIGKILL);
        for (int i = 0; i < 2; i++) run_wait(run, i);
        assert_int_equal(run->rank[0].result, RONDO_REMOTE_ERROR);
        assert_true(run->rank[0].at - killed < 2);
        if (run->rank[1].note > 0) kill((pid_t)run->rank[1].note, SIGKILL);
        run_free(run);
    }
}

/* A process makes an id and forks; the children are the ranks, with services of their own. */
static int fork_ranks(void *argument)
{
    (void)argument;
    rd_settings settings;
    struct run *run = run_new(3, LIMIT_S);
    EXPECT(rd_settings_load(&settings, NULL) == RONDO_SUCCESS);
    run_make_id(run, &settings);
    for (int i = 0; i < 3; i++) run_fork(run, i, start_only);
    for (int i = 0; i < 3; i++) EXPECT(run_wait(run, i) == 0);
    for (int i = 0; i < 3; i++)
        if (run->rank[i].result != RONDO_SUCCESS) {
            fprintf(stderr, "rank %d: %s\n", i, run->rank[i].text);
            return 1;
        }
    run_free(run);
    return 0;
}

static void test_forked_ranks(void **state)
{
    (void)state;
    if (SANITIZED) skip(); /* tsan allows no new threads after such a fork; asan's allocator may be forked locked */
    assert_int_equal(in_child(fork_ranks, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_port_again_and_again),
        cmocka_unit_test(test_port_taken),
        cmocka_unit_test(test_port_range),
        cmocka_unit_test(test_flat),
        cmocka_unit_test(test_fork_disturbs_nobody),
        cmocka_unit_test(test_death_with_children),
        cmocka_unit_test(test_forked_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
