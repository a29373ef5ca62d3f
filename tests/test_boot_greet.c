/* SPDX-License-Identifier: Apache-2.0
 *
 * Greetings: connections that the peer's service thread takes, whatever the peer is doing.
 */
#include "base/clock.h"
#include "base/sock.h"
#include "base/status.h"
#include "boot/member.h"
#include "boot_ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

/* Visit and greet. */
static rondo_result greet(rd_member *member, int peer, int index, bool over_unix, int64_t deadline, const rd_greeting *greeting,
                          int *fd)
{
    int connected;
    rondo_result result = rd_member_visit(member, peer, index, over_unix ? RD_OVER_UNIX : 0, deadline, &connected);
    if (result != RONDO_SUCCESS) return result;
    result = rd_greeting_send(connected, greeting, deadline);
    if (result == RONDO_SUCCESS) *fd = connected;
    else close(connected);
    return result;
}

static void check_all(const struct run *run)
{
    for (int i = 0; i < run->world; i++)
        if (run->rank[i].result != RONDO_SUCCESS)
            fail_msg("rank %d: %s (%s)", i, rondo_result_string(run->rank[i].result), run->rank[i].text);
}

/* ---- Everybody greets everybody ---- */

static unsigned char data_byte(int from, int to, int index, unsigned i)
{
    return (unsigned char)(from * 41 + to * 17 + index * 5 + (int)i * 3);
}

/* The index is the number of data bytes, too, or 256 of them. */
static rd_greeting greeting_of(int from, int to, int index, bool over_unix)
{
    rd_greeting greeting = {.bytes = index == 1 ? 256 : (uint32_t)index};
    for (unsigned i = 0; i < greeting.bytes; i++) greeting.data[i] = data_byte(from, to, index, i);
    for (; over_unix && greeting.fd_count < index + 1; greeting.fd_count++) {
        int word = from * 1000 + to * 10 + greeting.fd_count, fd = memfd_create("test", MFD_CLOEXEC);
        if (fd < 0 || write(fd, &word, sizeof word) != sizeof word) abort();
        greeting.fds[greeting.fd_count] = fd;
    }
    return greeting;
}

static rondo_result check_greeting(rank *r, int peer, int index, int fd, const rd_greeting *greeting)
{
    rondo_result result = RONDO_SUCCESS;
    if (greeting->bytes != (index == 1 ? 256 : (uint32_t)index))
        result = rd_fail(RONDO_INTERNAL_ERROR, "%u bytes", greeting->bytes);
    for (unsigned i = 0; i < greeting->bytes; i++)
        if (greeting->data[i] != data_byte(peer, r->me, index, i)) result = rd_fail(RONDO_INTERNAL_ERROR, "byte %u", i);
    if (greeting->fd_count != (r->run->argument == 0 ? index + 1 : 0))
        result = rd_fail(RONDO_INTERNAL_ERROR, "%d fds", greeting->fd_count);
    for (int i = 0, word = -1; i < greeting->fd_count; i++) {
        if (pread(greeting->fds[i], &word, sizeof word, 0) != sizeof word || word != peer * 1000 + r->me * 10 + i)
            result = rd_fail(RONDO_INTERNAL_ERROR, "descriptor %d holds %d", i, word);
        close(greeting->fds[i]);
    }
    if (!(fcntl(fd, F_GETFL) & O_NONBLOCK)) result = rd_fail(RONDO_INTERNAL_ERROR, "it blocks");
    return result;
}

static void greet_all(rank *r)
{
    int world = r->run->world, fds[MOST_GREETINGS], made = 0;
    bool over_unix = r->run->argument == 0;
    int64_t deadline = rd_deadline(r->run->timeout_s);
    rondo_result result = rank_start(r);
    for (int peer = 0; peer < world; peer++)
        for (int index = 0; index < 3 && result == RONDO_SUCCESS && peer != r->me; index++) {
            rd_greeting greeting = greeting_of(r->me, peer, index, over_unix);
            int word = r->me * 100 + peer * 10 + index;
            result = greet(r->member, peer, index, over_unix, deadline, &greeting, &fds[made]);
            for (int i = 0; i < greeting.fd_count; i++) close(greeting.fds[i]);
            if (result == RONDO_SUCCESS) result = rd_sock_send(fds[made++], &word, sizeof word, deadline);
        }
    if (result == RONDO_SUCCESS && !rank_wait_greetings(r, 3 * (world - 1), 10))
        result = rd_fail(RONDO_TIMEOUT, "%d greetings", r->greetings);
    for (int i = 0; i < r->greetings && result == RONDO_SUCCESS; i++) {
        int peer = r->greeted[i].peer, index = r->greeted[i].index, fd = r->greeted[i].fd, word = -1;
        result = check_greeting(r, peer, index, fd, &r->greeted[i].greeting);
        if (result == RONDO_SUCCESS) result = rd_sock_recv(fd, &word, sizeof word, deadline);
        if (result == RONDO_SUCCESS && word != peer * 100 + r->me * 10 + index)
            result = rd_fail(RONDO_INTERNAL_ERROR, "word %d", word);
        close(fd);
    }
    rank_note(r, result);
    r->run->step++;
    wait_for_int(&r->run->step, world, LIMIT_S);
    while (made) close(fds[--made]);
}

static void check_greet_all(int world, bool tcp, bool threads)
{
    struct run *run = run_new(world, LIMIT_S);
    run->argument = tcp;
    if (threads)
        run_threads(run, greet_all);
    else
        run_processes(run, greet_all);
    check_all(run);
    run_free(run);
}

static void test_greetings(void **state)
{
    (void)state;
    check_greet_all(4, false, false);
    check_greet_all(4, true, false);
}

static void test_greetings_of_threads(void **state)
{
    (void)state;
    check_greet_all(3, false, true);
}

/* ---- A greeting that comes before the contacts ---- */

static void greet_early(rank *r)
{
    unsigned char mine[RD_CONTACT_BYTES], all[2 * RD_CONTACT_BYTES];
    int64_t deadline = rd_deadline(r->run->timeout_s);
    int fd = -1;
    rondo_result result = rank_join(r);
    rd_contact_pack(&r->contacts[r->me], mine);
    if (result == RONDO_SUCCESS) result = rd_table_exchange(r->table, "contact", mine, sizeof mine, all, deadline);
    for (int i = 0; i < 2 && result == RONDO_SUCCESS; i++)
        result = rd_contact_unpack(&r->contacts[i], all + i * RD_CONTACT_BYTES);
    if (r->me == 1) {
        wait_for_int(&r->run->step, 1, LIMIT_S);
        sleep_s(0.2);
        if (result == RONDO_SUCCESS && r->greetings) result = rd_fail(RONDO_INTERNAL_ERROR, "it came too early");
    }
    if (result == RONDO_SUCCESS) result = rd_member_set_contacts(r->member, r->contacts);
    if (r->me == 0) {
        rd_greeting greeting = greeting_of(0, 1, 2, true);
        if (result == RONDO_SUCCESS) result = greet(r->member, 1, 2, true, deadline, &greeting, &fd);
        for (int i = 0; i < greeting.fd_count; i++) close(greeting.fds[i]);
        r->run->step++;
    } else if (result == RONDO_SUCCESS) {
        if (r->greetings != 1) result = rd_fail(RONDO_INTERNAL_ERROR, "%d greetings", r->greetings);
        fd = r->greeted[0].fd;
        if (result == RONDO_SUCCESS) result = check_greeting(r, 0, 2, fd, &r->greeted[0].greeting);
    }
    rank_note(r, result);
    r->run->step++;
    wait_for_int(&r->run->step, 3, LIMIT_S);
    close(fd);
}

static void test_before_contacts(void **state)
{
    (void)state;
    struct run *run = run_new(2, LIMIT_S);
    run_processes(run, greet_early);
    check_all(run);
    run_free(run);
}

/* ---- What is not allowed ---- */

static bool is_closed_within(int fd, double seconds)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char c;
    return poll(&p, 1, (int)(seconds * 1000)) == 1 && recv(fd, &c, 1, MSG_DONTWAIT) <= 0;
}

static void misbehave(rank *r)
{
    static const unsigned char too_long[8] = {1, 1, 0, 0, 0, 0, 0, 0}, no_fd[8] = {0, 0, 0, 0, 1, 0, 0, 0};
    int64_t deadline = rd_deadline(r->run->timeout_s);
    int silent = -1, fd = -1;
    rd_greeting greeting = {.bytes = 257};
    rondo_result result = rank_start(r);
    r->run->step++;
    wait_for_int(&r->run->step, 2, LIMIT_S);
    if (r->me == 0 && result == RONDO_SUCCESS) {
        result = RONDO_INTERNAL_ERROR;
        if (greet(r->member, 1, 0, true, deadline, &greeting, &fd) != RONDO_INVALID_ARGUMENT) goto done;
        greeting = (rd_greeting){.fd_count = 5};
        if (greet(r->member, 1, 0, false, deadline, &greeting, &fd) != RONDO_INVALID_ARGUMENT) goto done;
        if (greet(r->member, 2, 0, true, deadline, &greeting, &fd) != RONDO_INVALID_ARGUMENT) goto done;
        if (rd_member_dial(r->member, 1, RD_PURPOSE_GREETING, 0, RD_OVER_UNIX, deadline, &silent) != RONDO_SUCCESS)
            goto done;
        for (int i = 0; i < 2; i++) {
            if (rd_member_dial(r->member, 1, RD_PURPOSE_GREETING, 0, RD_OVER_UNIX, deadline, &fd) != RONDO_SUCCESS)
                goto done;
            if (rd_sock_send(fd, i ? too_long : no_fd, 8, deadline) != RONDO_SUCCESS) goto done;
            if (!is_closed_within(fd, 2)) goto done;
        }
        if (is_closed_within(silent, 1) || !is_closed_within(silent, 7)) goto done;
        /* One that says nothing until the end: the member closes without waiting for it. */
        if (rd_member_dial(r->member, 1, RD_PURPOSE_GREETING, 0, RD_OVER_UNIX, deadline, &silent) != RONDO_SUCCESS)
            goto done;
        result = RONDO_SUCCESS;
    }
done:
    r->run->step++;
    wait_for_int(&r->run->step, 4, LIMIT_S);
    if (result == RONDO_SUCCESS && r->greetings) result = rd_fail(RONDO_INTERNAL_ERROR, "%d greetings", r->greetings);
    rank_note(r, result);
}

static void test_misbehaviour(void **state)
{
    (void)state;
    struct run *run = run_new(2, LIMIT_S);
    run_processes(run, misbehave);
    check_all(run);
    run_free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greetings), cmocka_unit_test(test_before_contacts), cmocka_unit_test(test_misbehaviour),
        cmocka_unit_test(test_greetings_of_threads), /* last: it leaves threads in this process */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
