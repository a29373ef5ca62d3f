/* SPDX-License-Identifier: Apache-2.0
 *
 * What must be known of the machine before anything is measured, and what must be told with the figures.
 */
#include "base/env.h"
#include "cli/bench.h"
#include "topo/topo.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* ---- Processors ---- */

/* Whether this is the first allowed one of its core, so that siblings are taken last. */
static bool is_first_of_core(int cpu, const cpu_set_t *allowed)
{
    char path[96], list[256] = "";
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "re");
    if (!file) return true;
    char *at = fgets(list, sizeof list, file);
    fclose(file);
    while (at && *at >= '0' && *at <= '9') { /* "0,64" or "0-1" */
        long from = strtol(at, &at, 10), to = *at == '-' ? strtol(at + 1, &at, 10) : from;
        for (long sibling = from; sibling <= to && sibling < cpu; sibling++)
            if (CPU_ISSET((int)sibling, allowed)) return false;
        if (*at == ',') at++;
    }
    return true;
}

/* The processor for a local rank: cores in order, then their siblings. -1: there is none. */
static int choose_cpu(const cpu_set_t *allowed, int local_rank)
{
    for (int pass = 0, found = 0; pass < 2; pass++)
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, allowed) && is_first_of_core(cpu, allowed) == (pass == 0) && found++ == local_rank)
                return cpu;
    return -1;
}

static int number_of(const char *first, const char *second)
{
    const char *text = rd_env(first) ? rd_env(first) : rd_env(second);
    return text ? atoi(text) : -1;
}

bool rd_bench_is_first(void)
{
    return number_of("RANK", "OMPI_COMM_WORLD_RANK") <= 0;
}

/* Where ranks take turns on processors, only if as many can on each: the scheduler shares an uneven rest out in time. */
void rd_bench_pin_to(int rank, int ranks)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return;
    int cpus = CPU_COUNT(&allowed);
    if (ranks > cpus && ranks % cpus) return;
    int cpu = choose_cpu(&allowed, rank % cpus);
    if (cpu < 0) return;
    CPU_ZERO(&allowed);
    CPU_SET(cpu, &allowed);
    sched_setaffinity(0, sizeof allowed, &allowed);
}

void rd_bench_pin(void)
{
    int rank = number_of("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK");
    int ranks = number_of("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE");
    if (rank < 0 && !rd_env("MASTER_ADDR")) { /* by hand, so on one host */
        rank = number_of("RANK", "RANK");
        ranks = number_of("WORLD_SIZE", "WORLD_SIZE");
    }
    if (rank >= 0 && ranks > 0) rd_bench_pin_to(rank, ranks);
}

int rd_bench_cpu(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) || CPU_COUNT(&allowed) != 1) return -1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed)) return cpu;
    return -1;
}

static bool find_place(const rd_machine *machine, int cpu, rd_place *place)
{
    rd_pu unit;
    for (int i = 0; i < rd_machine_pus(machine); i++) {
        if (rd_machine_pu(machine, i, &unit) != RONDO_SUCCESS || unit.os_index != cpu) continue;
        *place = unit.place;
        place->host = 0;
        return true;
    }
    return false;
}

/* The same pairs as rd_find_placement's. */
const char *rd_bench_topo_place(const int32_t *cpus, int count)
{
    static const char *const names[] = {"core", "L3", "host"};
    const rd_machine *machine = rd_machine_here();
    int far = -1;
    for (int r = 0; machine && r < count; r++) {
        rd_place here, next;
        if (!find_place(machine, cpus[r], &here) || !find_place(machine, cpus[(r + 1) % count], &next)) return NULL;
        const char *shared = rd_link_name(rd_place_link(&here, &next).kind);
        int at = strcmp(shared, "core") == 0 ? 0 : strstr(shared, "cache") ? 1 : 2;
        if (at > far) far = at;
    }
    return count > 1 && far >= 0 ? names[far] : NULL;
}

/* ---- In words ---- */

/* The first line of a file that begins with `key`, what follows it and ": "; "" when there is none. */
static void look_up(const char *path, const char *key, char *text, size_t bytes)
{
    char line[512];
    FILE *file = fopen(path, "re");
    text[0] = '\0';
    while (file && !text[0] && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) != 0) continue;
        const char *after = strchr(line, ':');
        after = after && *key ? after + 1 : line;
        snprintf(text, bytes, "%s", after + strspn(after, " \t"));
        text[strcspn(text, "\n")] = '\0';
    }
    if (file) fclose(file);
}

void rd_bench_machine(char *text, size_t bytes)
{
    char model[256];
    struct utsname system;
    look_up("/proc/cpuinfo", "model name", model, sizeof model);
    if (uname(&system)) system = (struct utsname){.sysname = "unknown system"};
    snprintf(text, bytes, "%s, %ld processors, %s %s", model[0] ? model : system.machine, sysconf(_SC_NPROCESSORS_ONLN),
             system.sysname, system.release);
}

void rd_bench_pages(char *text, size_t bytes)
{
    char mode[128];
    look_up("/sys/kernel/mm/transparent_hugepage/enabled", "", mode, sizeof mode);
    long page = sysconf(_SC_PAGESIZE);
    snprintf(text, bytes, "%ld KiB pages%s", page / 1024,
             strstr(mode, "[always]") ? " or huge ones, as the system likes" : "");
}

size_t rd_bench_free_bytes(void)
{
    char kilobytes[64];
    look_up("/proc/meminfo", "MemAvailable", kilobytes, sizeof kilobytes);
    return strtoull(kilobytes, NULL, 10) * 1024;
}
