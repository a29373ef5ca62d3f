/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor.h"

#include "base/status.h"
#include "topo/topo.h"

#include <errno.h>
#include <hwloc.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <linux/membarrier.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

static void size_text(uint64_t bytes, char *text, size_t room)
{
    if (bytes >= 1u << 30) snprintf(text, room, "%.4g GiB", (double)bytes / (1 << 30));
    else if (bytes >= 1u << 20) snprintf(text, room, "%.4g MiB", (double)bytes / (1 << 20));
    else snprintf(text, room, "%.4g KiB", (double)bytes / (1 << 10));
}

static void limit_text(rlim_t limit, char *text, size_t room)
{
    if (limit == RLIM_INFINITY) snprintf(text, room, "unlimited");
    else size_text(limit, text, room);
}

/* ---- Control groups ---- */

/* Opens a file of this process's control group or of one around it, `up` levels above; NULL past the outermost. */
static FILE *open_group_file(const char *file, int up)
{
    char line[1024], path[1280];
    FILE *found = NULL, *groups = fopen("/proc/self/cgroup", "re");
    while (groups && fgets(line, sizeof line, groups)) {
        if (strncmp(line, "0::", 3) != 0) continue;
        line[strcspn(line, "\n")] = '\0';
        char *group = line + 3, *slash = group + strlen(group);
        while (up-- > 0 && slash && slash > group) {
            slash = strrchr(group, '/');
            if (slash) *slash = '\0';
        }
        if (up >= 0) break;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", strcmp(group, "/") == 0 ? "" : group, file);
        found = fopen(path, "re");
        break;
    }
    if (groups) fclose(groups);
    return found;
}

enum { LEVELS = 16 };

/* The tightest memory limit around us, and what is used of it; 0: there is none. */
static uint64_t group_memory(uint64_t *used)
{
    uint64_t least = 0;
    *used = 0;
    for (int up = 0; up < LEVELS; up++) {
        uint64_t limit = 0, now = 0;
        FILE *max = open_group_file("memory.max", up), *current = open_group_file("memory.current", up);
        bool limited = max && fscanf(max, "%" SCNu64, &limit) == 1;
        if (limited && current && fscanf(current, "%" SCNu64, &now) == 1 && (!least || limit < least)) {
            least = limit;
            *used = now;
        }
        if (max) fclose(max);
        if (current) fclose(current);
    }
    return least;
}

/* The smallest share of CPU time around us, in CPUs; 0: all. */
static double group_cpus(void)
{
    double least = 0;
    for (int up = 0; up < LEVELS; up++) {
        double quota, period;
        FILE *max = open_group_file("cpu.max", up);
        if (max && fscanf(max, "%lf %lf", &quota, &period) == 2 && period > 0 && (least == 0 || quota / period < least))
            least = quota / period;
        if (max) fclose(max);
    }
    return least;
}

/* ---- Limits ---- */

static const char limits[] = "limits";

static void check_cpus(rd_findings *f)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int allowed = rd_allowed_pus();
    double quota = group_cpus();
    if (quota > 0 && quota < allowed)
        rd_find(f, limits, "CPUs", RD_LEVEL_WARNING, "give the container as many CPUs as it runs ranks",
                "%d of %ld may be used, but only for the time of %.3g: ranks that wait use it up", allowed, online,
                quota);
    else rd_find(f, limits, "CPUs", RD_LEVEL_OK, NULL, "%d of %ld may be used", allowed, online);
}

static void check_memory(rd_findings *f)
{
    enum { ENOUGH = 256 << 20 };
    uint64_t total = 0, available = 0, used, limit = group_memory(&used);
    char line[128], text[4][32];
    FILE *info = fopen("/proc/meminfo", "re");
    while (info && fgets(line, sizeof line, info)) {
        sscanf(line, "MemTotal: %" SCNu64, &total);
        sscanf(line, "MemAvailable: %" SCNu64, &available);
    }
    if (info) fclose(info);
    total <<= 10;
    available <<= 10;
    size_text(available, text[0], sizeof text[0]);
    size_text(total, text[1], sizeof text[1]);
    rd_find(f, limits, "memory", available >= ENOUGH ? RD_LEVEL_OK : RD_LEVEL_WARNING, "end what else uses memory",
            "%s of %s are free; a rank's links take a few MiB", text[0], text[1]);
    if (!limit) {
        bool known = access("/sys/fs/cgroup/cgroup.controllers", R_OK) == 0;
        rd_find(f, limits, "cgroup memory", known ? RD_LEVEL_OK : RD_LEVEL_INFO, NULL, "%s",
                known ? "no limit" : "not known: there are no control groups of version 2");
        return;
    }
    size_text(used, text[2], sizeof text[2]);
    size_text(limit, text[3], sizeof text[3]);
    rd_find(f, limits, "cgroup memory", limit > used + ENOUGH ? RD_LEVEL_OK : RD_LEVEL_WARNING,
            "raise the container's memory limit", "%s of %s are used; shared memory counts there, too", text[2],
            text[3]);
}

/* Measured (`rondo bench --startup`): 19 for 2 ranks of a host, 87 for 16 that all have links to one another, 35 for 32
 * whose ring is all there is. */
static void check_files(rd_findings *f, long flat_ranks)
{
    enum { LEAST = 32, OWN = 12, EACH = 6, RING = 40 };
    struct rlimit files = {0};
    rlim_t most = OWN + EACH * (rlim_t)flat_ranks;
    rlim_t good = 2 * (most > RING ? most : RING); /* the program opens some, too */
    getrlimit(RLIMIT_NOFILE, &files);
    rd_find(f, limits, "open files",
            files.rlim_cur < LEAST  ? RD_LEVEL_MISSING
            : files.rlim_cur < good ? RD_LEVEL_WARNING
                                    : RD_LEVEL_OK,
            "ulimit -n 4096",
            "%" PRIu64 " (at most %" PRIu64 "); a rank opens up to %d and %d for each rank of its host, since "
            "flat opens links to all of them: %" PRIu64
            " with RONDO_FLAT_RANKS=%ld; where more ranks share the host %d",
            (uint64_t)files.rlim_cur, (uint64_t)files.rlim_max, OWN, EACH, (uint64_t)most, flat_ranks, RING);
}

static void check_memory_limits(rd_findings *f)
{
    struct rlimit locked = {0}, space = {0};
    struct statvfs shm;
    char text[32];
    getrlimit(RLIMIT_MEMLOCK, &locked);
    getrlimit(RLIMIT_AS, &space);
    limit_text(locked.rlim_cur, text, sizeof text);
    rd_find(f, limits, "memlock", RD_LEVEL_INFO, NULL, "%s; for links over RDMA alone, of which each end locks 1.3 MiB", text);
    limit_text(space.rlim_cur, text, sizeof text);
    if (space.rlim_cur != RLIM_INFINITY)
        rd_find(f, limits, "address space", RD_LEVEL_WARNING, "ulimit -v unlimited",
                "%s; links map memory of every neighbour", text);
    if (statvfs("/dev/shm", &shm)) snprintf(text, sizeof text, "absent");
    else size_text((uint64_t)shm.f_blocks * shm.f_frsize, text, sizeof text);
    rd_find(f, limits, "/dev/shm", RD_LEVEL_INFO, NULL, "%s; not needed: shared memory is passed by descriptor", text);
}

void rd_doctor_limits(rd_findings *f, const rd_settings *settings)
{
    check_cpus(f);
    check_memory(f);
    check_files(f, settings ? settings->flat_ranks : 0);
    check_memory_limits(f);
}

/* ---- Kernel ---- */

static void check_pidfd(rd_findings *f, const char *section)
{
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (fd >= 0) close(fd);
    if (fd >= 0) rd_find(f, section, "pidfd", RD_LEVEL_OK, NULL, "the death of a rank is seen at once");
    else
        rd_find(f, section, "pidfd", RD_LEVEL_MISSING,
                "allow pidfd_open in the container's profile, or use Linux 5.3 or newer",
                "pidfd_open: %s; `rondo run` needs it", strerror(errno));
}

void rd_doctor_kernel(rd_findings *f)
{
    static const char section[] = "kernel";
    struct utsname name;
    int major = 0, minor = 0;
    uname(&name);
    sscanf(name.release, "%d.%d", &major, &minor);
    rd_find(f, section, "version", major > 5 || (major == 5 && minor >= 3) ? RD_LEVEL_OK : RD_LEVEL_MISSING,
            "use Linux 5.3 or newer", "%s %s, %s", name.sysname, name.release, name.machine);
    check_pidfd(f, section);
    long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    rd_find(f, section, "membarrier", RD_LEVEL_INFO, NULL, "%s; not needed",
            commands >= 0 && commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED ? "there" : "not there");
}

/* ---- Libraries ---- */

void rd_doctor_libraries(rd_findings *f)
{
    static const char section[] = "libraries";
    int version = 0;
    unsigned hwloc = hwloc_get_api_version();
    rondo_version(&version);
    rd_find(f, section, "rondo", version == RONDO_VERSION ? RD_LEVEL_OK : RD_LEVEL_WARNING, "make clean all",
            "%d.%d.%d%s", version / 10000, version / 100 % 100, version % 100,
            version == RONDO_VERSION ? "" : "; the tool is another one");
    rd_find(f, section, "hwloc", hwloc >> 16 == HWLOC_API_VERSION >> 16 ? RD_LEVEL_OK : RD_LEVEL_MISSING,
            "apt-get install libhwloc15", "interface %u.%u", hwloc >> 16, hwloc >> 8 & 0xff);
    rd_find(f, section, "libsodium", sodium_init() >= 0 ? RD_LEVEL_OK : RD_LEVEL_MISSING, "apt-get install libsodium23",
            "%s", sodium_version_string());
    rd_find(f, section, "json-c", RD_LEVEL_OK, NULL, "%s; for the tool's --json only", json_c_version());
}
