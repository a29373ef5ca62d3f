/* SPDX-License-Identifier: Apache-2.0
 *
 * test_shared.c - shared memory: zeroed, allocated, sealed, seen by who maps it, gone in forked children.
 */
#include "base/shared.h"
#include "base/status.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_two_mappings(void **state)
{
    (void)state;
    const size_t sizes[] = {1, 4096, 4097, 1 << 20};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        size_t bytes = sizes[s];
        void *one, *two;
        int fd;
        struct stat info;
        assert_int_equal(rd_shared_create("test", bytes, &one, &fd), RONDO_SUCCESS);
        assert_int_equal(fstat(fd, &info), 0);
        assert_int_equal(info.st_size, bytes);
        assert_true(info.st_blocks * 512 >= (long)bytes); /* allocated, not promised */
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        assert_int_equal(rd_shared_map(fd, bytes, &two), RONDO_SUCCESS);
        assert_ptr_not_equal(one, two);
        unsigned char *a = one, *b = two;
        for (size_t i = 0; i < bytes; i++) assert_int_equal(b[i], 0);
        a[bytes - 1] = 77;
        assert_int_equal(b[bytes - 1], 77);
        close(fd);
        rd_shared_unmap(one, bytes);
        assert_int_equal(b[bytes - 1], 77);
        rd_shared_unmap(two, bytes);
    }
    rd_shared_unmap(NULL, 1);
}

static void test_sealed(void **state)
{
    (void)state;
    void *at;
    int fd;
    assert_int_equal(rd_shared_create("test", 8192, &at, &fd), RONDO_SUCCESS);
    assert_int_equal(ftruncate(fd, 4096), -1);
    assert_int_equal(ftruncate(fd, 16384), -1);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    rd_shared_unmap(at, 8192);
    close(fd);
}

static void test_refused(void **state)
{
    (void)state;
    void *at = &at;
    int fd = -7, pipes[2];
    assert_int_equal(rd_shared_create("test", 8192, &at, &fd), RONDO_SUCCESS);
    void *other = NULL;
    assert_int_equal(rd_shared_map(fd, 8193, &other), RONDO_SYSTEM_ERROR); /* larger than it is */
    assert_non_null(strstr(rd_last_error(), "8192"));
    assert_int_equal(rd_shared_map(-1, 4096, &other), RONDO_SYSTEM_ERROR);
    rd_shared_unmap(at, 8192);
    close(fd);
    int loose = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING); /* may still shrink under its reader */
    assert_int_equal(ftruncate(loose, 8192), 0);
    assert_int_equal(rd_shared_map(loose, 8192, &other), RONDO_SYSTEM_ERROR);
    close(loose);
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(rd_shared_map(pipes[0], 4096, &other), RONDO_SYSTEM_ERROR);
    close(pipes[0]);
    close(pipes[1]);
    assert_null(other);
}

/* A size that the kernel would refuse too, in case the check before it should ever be lost: half a petabyte would not
 * be refused, but allocated page by page until the machine is full. */
static void test_too_much(void **state)
{
    (void)state;
    void *at = NULL;
    int fd = -7, status;
    assert_int_equal(rd_shared_create("test", SIZE_MAX - 4096, &at, &fd), RONDO_SYSTEM_ERROR);
    assert_non_null(strstr(rd_last_error(), "18446744073709547519 bytes"));
    assert_int_equal(rd_shared_create("test", 0, &at, &fd), RONDO_SYSTEM_ERROR);
    assert_int_equal(fd, -7);
    assert_null(at);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) { /* a limit that is reached halfway */
        struct rlimit limit = {65536, 65536};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        _exit(rd_shared_create("test", 1 << 20, &at, &fd) == RONDO_SYSTEM_ERROR && fd == -7 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_not_inherited(void **state)
{
    (void)state;
    void *at;
    int fd, status;
    assert_int_equal(rd_shared_create("test", 4096, &at, &fd), RONDO_SUCCESS);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) { /* mincore fails with ENOMEM where nothing is mapped */
        unsigned char resident;
        _exit(mincore(at, 4096, &resident) == -1 && errno == ENOMEM ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    rd_shared_unmap(at, 4096);
    close(fd);
}

/* As base/shared.c says that Zen takes it of an address. */
static unsigned way_hash(uintptr_t at)
{
    static const int pairs[][2] = {{12, 27}, {13, 26}, {14, 25}, {15, 20}, {16, 21}, {17, 22}, {18, 23}, {19, 24}};
    unsigned hash = 0;
    for (int i = 0; i < 8; i++) hash |= ((at >> pairs[i][0] ^ at >> pairs[i][1]) & 1) << i;
    return hash;
}

/* What ranks go through side by side never meets in the first cache. */
static void test_apart_in_cache(void **state)
{
    (void)state;
    enum { MAPPINGS = 24, BYTES = 1 << 20, MORE = 28 << 10 }; /* of odd sizes, so that neighbours alone would meet */
    unsigned char *at[MAPPINGS];
    for (int i = 0; i < MAPPINGS; i++) {
        void *address;
        int fd;
        assert_int_equal(rd_shared_create("test", BYTES + (size_t)i * MORE, &address, &fd), RONDO_SUCCESS);
        close(fd);
        at[i] = address;
    }
    for (int i = 0; i < MAPPINGS; i++)
        for (int k = 0; k < i; k++)
            for (size_t offset = 0; offset < BYTES; offset += 4096)
                if (way_hash((uintptr_t)at[i] + offset) == way_hash((uintptr_t)at[k] + offset))
                    fail_msg("mappings %d at %p and %d at %p: the same at offset %zu", i, (void *)at[i], k,
                             (void *)at[k], offset);
    for (int i = 0; i < MAPPINGS; i++) rd_shared_unmap(at[i], BYTES + (size_t)i * MORE);
}

/* Where there is no room to choose from, the kernel chooses. */
static void test_little_room(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        char line[128];
        unsigned long pages = 0;
        void *at;
        int fd;
        FILE *statm = fopen("/proc/self/statm", "re");
        if (!statm || !fgets(line, sizeof line, statm) || sscanf(line, "%lu", &pages) != 1) _exit(2);
        fclose(statm);
        rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (16 << 20);
        if (setrlimit(RLIMIT_AS, &(struct rlimit){most, most})) _exit(3);
        if (rd_shared_create("test", 1 << 20, &at, &fd) != RONDO_SUCCESS) _exit(4);
        memset(at, 1, 1 << 20);
        rd_shared_unmap(at, 1 << 20);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_mappings),  cmocka_unit_test(test_sealed),
        cmocka_unit_test(test_refused),       cmocka_unit_test(test_too_much),
        cmocka_unit_test(test_not_inherited), cmocka_unit_test(test_apart_in_cache),
        cmocka_unit_test(test_little_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
