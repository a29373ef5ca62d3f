/* SPDX-License-Identifier: Apache-2.0 */
#include "base/shared.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U /* Linux 6.3 */
#endif

static int create_memfd(const char *label)
{
    int fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd;
}

/* fallocate goes on for as long as the kernel finds a page, and then the kernel kills processes. So what cannot be had
 * is refused before: more than there is here, more than the kernel's accounting allows by the ftruncate. */
static int allocate(int fd, size_t bytes)
{
    uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES), page = (uint64_t)sysconf(_SC_PAGESIZE);
    int failed;
    if (bytes / page >= pages) {
        errno = ENOMEM;
        return -1;
    }
    struct rlimit limit; /* beyond it the kernel would send a signal that ends the process */
    if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur) {
        errno = EFBIG;
        return -1;
    }
    if (ftruncate(fd, (off_t)bytes)) return -1;
    do failed = fallocate(fd, 0, 0, (off_t)bytes);
    while (failed && errno == EINTR);
    return failed;
}

#define PLACED_LEAST 16384 /* bytes of memory that is gone through at all; doorbells are less */

/* An address for a mapping, reserved; NULL when there is none to choose, and the kernel should.
 *
 * Ranks' memory is gone through side by side, at the same offset in each. Zen finds the way in its first cache by a
 * hash of address bits 12 to 27, and where that is the same for two addresses of one set they are in each other's way:
 * a sum of two ranks' buffers takes up to 6 times as long ("Take A Way", Lipp and others, 2020, has the hash: bits 12 ^
 * 27, 13 ^ 26, 14 ^ 25 and 15 ^ 20 to 19 ^ 24). So all mappings begin alike in the lower 21 bits, and each of 128 in
 * turn differs from the others in the upper 7: then no two addresses at one offset have the same hash. */
static void *place_for(size_t bytes)
{
    enum { STEP = 1 << 21, SPAN = 1 << 28 };
    static atomic_uint turn;
    size_t room = bytes + SPAN;
    unsigned char *from = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (from == MAP_FAILED) return NULL;
    uintptr_t place_in_span = (uintptr_t)atomic_fetch_add(&turn, 1) * STEP;
    size_t before = (place_in_span - (uintptr_t)from) & (SPAN - 1);
    if (before > 0) munmap(from, before);
    munmap(from + before + bytes, room - before - bytes);
    return from + before;
}

/* NULL with errno on failure. A forked child has no use for the pages, and must not keep them alive. */
static void *map_shared(int fd, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    bytes = (bytes + page - 1) & ~(page - 1);
    void *place = bytes < PLACED_LEAST ? NULL : place_for(bytes);
    void *at = mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (place ? MAP_FIXED : 0), fd, 0);
    /* What was reserved may be another thread's by now, so it is left alone. */
    if (at == MAP_FAILED && place) at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return NULL;
    madvise(at, bytes, MADV_DONTFORK);
    return at;
}

rondo_result rd_shared_create(const char *label, size_t bytes, void **address, int *fd)
{
    int created = create_memfd(label);
    if (created < 0) return rd_fail_errno("cannot create shared memory for %s", label);
    rondo_result result;
    if (allocate(created, bytes)) {
        result = rd_fail_errno("cannot allocate %zu bytes of shared memory for %s; free some memory or raise this "
                               "process's memory limit", bytes, label);
        goto close_fd;
    }
    if (fcntl(created, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
        result = rd_fail_errno("cannot seal the shared memory for %s", label);
        goto close_fd;
    }
    void *at = map_shared(created, bytes);
    if (!at) {
        result = rd_fail_errno("cannot map %zu bytes of shared memory for %s", bytes, label);
        goto close_fd;
    }
    *address = at;
    *fd = created;
    return RONDO_SUCCESS;

close_fd:
    close(created);
    return result;
}

rondo_result rd_shared_map(int fd, size_t bytes, void **address)
{
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0) return rd_fail_errno("descriptor %d is not shared memory that can be sealed", fd);
    if (!(seals & F_SEAL_SHRINK))
        return rd_fail(RONDO_SYSTEM_ERROR, "the shared memory of descriptor %d may still shrink (seals %#x)", fd,
                       (unsigned)seals);
    if (fstat(fd, &info)) return rd_fail_errno("cannot read the size of shared memory");
    if (info.st_size < 0 || (uint64_t)info.st_size < bytes)
        return rd_fail(RONDO_SYSTEM_ERROR, "the shared memory of descriptor %d has %lld bytes where %zu are needed", fd,
                       (long long)info.st_size, bytes);
    void *at = map_shared(fd, bytes);
    if (!at) return rd_fail_errno("cannot map %zu bytes of a peer's shared memory", bytes);
    *address = at;
    return RONDO_SUCCESS;
}

void rd_shared_unmap(void *address, size_t bytes)
{
    if (address) munmap(address, bytes);
}
