/* SPDX-License-Identifier: Apache-2.0
 *
 * Dumps: a process that is asked gives a descriptor, whatever it is doing.
 */
#include "base/bell.h"
#include "base/clock.h"
#include "base/sock.h"
#include "base/status.h"
#include "boot/service.h"
#include "boot_ranks.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Its text has a number that differs each time. */
static int dump_text(void)
{
    static int times;
    int fd = memfd_create("dump", MFD_CLOEXEC);
    if (fd >= 0 && dprintf(fd, "dump %d of %d", ++times, (int)getpid()) < 0) abort();
    return fd;
}

static int dump_nothing(void)
{
    return -1;
}

/* What that process says; "" when it closes without a descriptor, "-" when nobody is there. */
static void ask(const char *suffix, int pid, char text[128])
{
    char address[RD_ADDRESS_TEXT], c;
    rd_address to;
    int fd, got = -1;
    strcpy(text, "-");
    snprintf(address, sizeof address, "unix:rondo-dump-%d%s", pid, suffix);
    if (rd_address_parse(&to, address) != RONDO_SUCCESS || rd_sock_connect(&fd, &to, rd_deadline(2)) != RONDO_SUCCESS)
        return;
    text[0] = 0;
    if (rd_sock_recv_fds(fd, &c, 1, &got, 1, rd_deadline(2)) == RONDO_SUCCESS) {
        ssize_t bytes = pread(got, text, 127, 0);
        text[bytes > 0 ? bytes : 0] = 0;
        close(got);
        if (c != 'd' || rd_sock_recv(fd, &c, 1, rd_deadline(2)) != RONDO_REMOTE_ERROR) strcpy(text, "no end");
    }
    close(fd);
}

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, rd_last_error());                       \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static int ask_around(void)
{
    rd_settings settings;
    char text[128], wanted[128];
    int first, status;
    alarm(30);
    EXPECT(rd_settings_load(&settings, NULL) == RONDO_SUCCESS);
    snprintf(text, sizeof text, "rondo-dump-%d", (int)getpid());
    EXPECT(rd_sock_listen_unix(&first, text) == RONDO_SUCCESS); /* the name is taken */
    EXPECT(rd_service_start(&settings) == RONDO_SUCCESS);
    ask("-1", getpid(), text);
    EXPECT(text[0] == 0);
    rd_service_set_dump(dump_nothing);
    ask("-1", getpid(), text);
    EXPECT(text[0] == 0);
    rd_service_set_dump(dump_text);
    for (int i = 1; i <= 50; i++) {
        ask("-1", getpid(), text);
        snprintf(wanted, sizeof wanted, "dump %d of %d", i, (int)getpid());
        EXPECT(strcmp(text, wanted) == 0);
    }
    /* A child neither keeps the name nor answers for its parent; with a service of its own it answers for itself. */
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        ask("-1", parent, text);
        EXPECT(strncmp(text, "dump 51 of ", 11) == 0);
#ifdef RD_THREAD_SANITIZER
        _exit(0); /* which allows no new thread here */
#endif
        EXPECT(rd_service_start(&settings) == RONDO_SUCCESS);
        ask("", getpid(), text);
        snprintf(wanted, sizeof wanted, "dump 51 of %d", (int)getpid());
        EXPECT(strcmp(text, wanted) == 0);
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    close(first);
    return 0;
}

static void test_dump(void **state)
{
    int status;
    (void)state;
    pid_t pid = fork();
    if (pid == 0) exit(ask_around());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* The parent ends while a child of its lives on: nobody listens there any more. */
static void test_child_closes(void **state)
{
    char text[128], c;
    int hold[2], there[2];
    (void)state;
    assert_int_equal(pipe(hold) | pipe(there), 0);
    pid_t pid = fork();
    if (pid == 0) {
        rd_settings settings;
        alarm(30);
        close(hold[1]);
        if (rd_settings_load(&settings, NULL) != RONDO_SUCCESS || rd_service_start(&settings) != RONDO_SUCCESS)
            _exit(1);
        rd_service_set_dump(dump_text);
        if (fork() == 0) {
            (void)!write(there[1], "", 1); /* it has closed what is its parent's */
            (void)!read(hold[0], &c, 1);   /* until the test is over */
            _exit(0);
        }
        (void)!read(there[0], &c, 1);
        ask("", getpid(), text);
        _exit(strncmp(text, "dump 1 of ", 10) != 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    ask("", pid, text);
    assert_string_equal(text, "-");
    close(hold[1]), close(hold[0]);
    close(there[1]), close(there[0]);
}

/* Other users are refused. */
static void test_other_user(void **state)
{
    char text[128];
    int status;
    (void)state;
    if (geteuid() != 0) skip();
    pid_t pid = fork();
    if (pid == 0) {
        rd_settings settings;
        alarm(30);
        if (rd_settings_load(&settings, NULL) != RONDO_SUCCESS || rd_service_start(&settings) != RONDO_SUCCESS)
            _exit(1);
        rd_service_set_dump(dump_text);
        pid_t child = fork();
        if (child == 0) {
            if (setuid(65534)) _exit(2);
            ask("", getppid(), text);
            _exit(text[0] != 0);
        }
        waitpid(child, &status, 0);
        _exit(WEXITSTATUS(status) + (rd_service_strangers() != 1));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dump),
        cmocka_unit_test(test_child_closes),
        cmocka_unit_test(test_other_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
