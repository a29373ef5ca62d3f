/* SPDX-License-Identifier: Apache-2.0
 *
 * bind.c - on which processing units ranks may run.
 *
 *   core               a core each, in hwloc's order, and again from the first when there are more ranks than cores
 *   l3 numa package    ranks spread over all of a kind in order, so that neighbours in number share one or lie side by
 * side gpu                the cores that are near the rank's GPU, of the same number as the rank on the node 0-3/4-7 by
 * the system's numbers: one list for each rank Of all these only what this process may use itself.
 */
#include "cli/bind.h"

#include "base/gpu.h"
#include "base/status.h"
#include "cli/cli.h"
#include "topo/devices.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = 4, MOST_CPUS = 1 << 16 };

static const struct {
    const char *word, *several;
} kinds[KINDS] = {{"core", "cores"}, {"l3", "L3 caches"}, {"numa", "NUMA nodes"}, {"package", "packages"}};

static int32_t part_of(const rd_place *place, int kind)
{
    const int32_t parts[KINDS] = {place->core, place->l3, place->numa, place->package};
    return parts[kind];
}

/* ---- Lists of numbers ---- */

void rd_cpulist_add(char *text, size_t room, int number, int *last)
{
    size_t used = strlen(text);
    if (used && number == *last) return;
    char *dash = strrchr(text, '-'), *comma = strrchr(text, ',');
    if (used && number == *last + 1) {
        if (dash && (!comma || dash > comma)) used = (size_t)(dash - text);
        snprintf(text + used, room - used, "-%d", number);
    } else {
        snprintf(text + used, room - used, "%s%d", used ? "," : "", number);
    }
    *last = number;
}

static bool read_number(const char **at, int *number)
{
    char *end;
    if (!isdigit((unsigned char)**at)) return false;
    long value = strtol(*at, &end, 10);
    *at = end;
    *number = (int)value;
    return value < MOST_CPUS;
}

/* ---- Processing units ---- */

typedef struct units {
    rd_pu *of; /* in hwloc's order */
    int count;
} units;

/* false + rd_last_error */
static bool read_units(const rd_machine *machine, units *u)
{
    u->count = rd_machine_pus(machine);
    u->of = calloc((size_t)u->count, sizeof *u->of);
    if (!u->of) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for %d processing units", u->count), false;
    for (int i = 0; i < u->count; i++)
        if (rd_machine_pu(machine, i, &u->of[i]) != RONDO_SUCCESS) return false;
    return true;
}

static int highest_cpu(const units *u)
{
    int highest = 0;
    for (int i = 0; i < u->count; i++)
        if (u->of[i].os_index > highest) highest = u->of[i].os_index;
    return highest;
}

/* ---- Sets ---- */

static bool make_room(rd_bindings *b, const units *u, int ranks)
{
    int cpus = highest_cpu(u) + 1;
    *b = (rd_bindings){
        .ranks = ranks, .bytes = CPU_ALLOC_SIZE((size_t)cpus), .sets = calloc((size_t)ranks, sizeof *b->sets)};
    for (int r = 0; r < ranks && b->sets; r++) {
        b->sets[r] = CPU_ALLOC((size_t)cpus);
        if (!b->sets[r]) return false;
        CPU_ZERO_S(b->bytes, b->sets[r]);
    }
    return b->sets;
}

void rd_bindings_free(rd_bindings *bindings)
{
    for (int r = 0; r < bindings->ranks && bindings->sets; r++)
        if (bindings->sets[r]) CPU_FREE(bindings->sets[r]);
    free(bindings->sets);
    *bindings = (rd_bindings){0};
}

int rd_cpus_allowed(void)
{
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
}

bool rd_bind_here(const rd_bindings *bindings, int rank)
{
    return sched_setaffinity(0, bindings->bytes, bindings->sets[rank]) == 0;
}

static void add_unit(rd_bindings *b, int rank, const rd_pu *unit)
{
    CPU_SET_S((size_t)unit->os_index, b->bytes, b->sets[rank]);
}

/* ---- By kind ---- */

/* Parts of this kind that have units which may be used, in order; parts has room for all units. */
static int list_parts(const units *u, int kind, int32_t *parts)
{
    int count = 0;
    for (int i = 0; i < u->count; i++) {
        int32_t part = part_of(&u->of[i].place, kind);
        if (u->of[i].allowed && part >= 0 && (count == 0 || parts[count - 1] != part)) parts[count++] = part;
    }
    return count;
}

static int by_kind(rd_bindings *b, const units *u, int kind)
{
    int32_t *parts = calloc((size_t)u->count, sizeof *parts);
    if (!parts) {
        fprintf(stderr, "rondo run: no memory for the parts of this machine\n");
        return 1;
    }
    int count = list_parts(u, kind, parts);
    for (int r = 0; r < b->ranks && count; r++) {
        int32_t mine = parts[kind == 0 ? r % count : (int)((int64_t)r * count / b->ranks)];
        for (int i = 0; i < u->count; i++)
            if (u->of[i].allowed && part_of(&u->of[i].place, kind) == mine) add_unit(b, r, &u->of[i]);
    }
    free(parts);
    if (count) return 0;
    fprintf(stderr, "rondo run: --bind %s: hwloc knows no %s of this machine; try --bind core or a list of CPUs\n",
            kinds[kind].word, kinds[kind].several);
    return RD_EXIT_USAGE;
}

/* ---- By GPU ---- */

static bool is_near(const rd_place *unit, const rd_place *gpu)
{
    if (gpu->numa >= 0) return unit->numa == gpu->numa;
    return gpu->package < 0 || unit->package == gpu->package;
}

static int by_gpu(rd_bindings *b, const rd_machine *machine, const units *u)
{
    int gpus = rd_machine_gpus(machine);
    if (b->ranks > gpus) {
        fprintf(stderr, "rondo run: --bind gpu: %d ranks and %d GPUs; start at most as many, or --bind otherwise\n",
                b->ranks, gpus);
        return RD_EXIT_USAGE;
    }
    for (int r = 0; r < b->ranks; r++) {
        const rd_place *gpu = &rd_machine_gpu(machine, r)->place;
        for (int pass = 0; pass < 2 && CPU_COUNT_S(b->bytes, b->sets[r]) == 0; pass++) /* none near may be used: all */
            for (int i = 0; i < u->count; i++)
                if (u->of[i].allowed && (pass || is_near(&u->of[i].place, gpu))) add_unit(b, r, &u->of[i]);
    }
    return 0;
}

/* ---- By list ---- */

static int add_cpu(rd_bindings *b, const units *u, int rank, int cpu)
{
    for (int i = 0; i < u->count; i++) {
        if (u->of[i].os_index != cpu) continue;
        if (u->of[i].allowed) {
            add_unit(b, rank, &u->of[i]);
            return 0;
        }
        fprintf(stderr,
                "rondo run: --bind: CPU %d is there, but this process may not run on it (taskset, a cgroup's "
                "cpuset)\n",
                cpu);
        return RD_EXIT_USAGE;
    }
    fprintf(stderr, "rondo run: --bind: CPU %d is not there: this machine's are numbered from 0 to %d\n", cpu,
            highest_cpu(u));
    return RD_EXIT_USAGE;
}

static int unreadable(const char *how)
{
    fprintf(stderr,
            "rondo run: --bind '%s': must be core, l3, numa, package, gpu, none, or one list of CPUs for each rank, "
            "as in 0-3/4-7\n",
            how);
    return RD_EXIT_USAGE;
}

static int by_list(rd_bindings *b, const units *u, const char *how)
{
    int lists = 1;
    const char *at = how;
    for (const char *c = how; *c; c++) lists += *c == '/';
    if (how[strspn(how, "0123456789-,/")]) return unreadable(how);
    if (lists != b->ranks) {
        fprintf(stderr,
                "rondo run: --bind %s: %d list%s of CPUs for %d rank%s; give each rank one, with / between them\n", how,
                lists, lists == 1 ? "" : "s", b->ranks, b->ranks == 1 ? "" : "s");
        return RD_EXIT_USAGE;
    }
    for (int r = 0; r < b->ranks; r++) {
        for (bool more = true; more;) {
            int from, to;
            if (!read_number(&at, &from)) return unreadable(how);
            to = from;
            if (*at == '-' && (at++, !read_number(&at, &to) || to < from)) return unreadable(how);
            for (int cpu = from, status; cpu <= to; cpu++)
                if ((status = add_cpu(b, u, r, cpu))) return status;
            more = *at == ',';
            at += more;
        }
        if (*at != (r + 1 < b->ranks ? '/' : '\0')) return unreadable(how);
        at++;
    }
    return 0;
}

/* ---- All of it ---- */

static void explain_all(const rd_bindings *b, const char *how)
{
    for (int r = 0; r < b->ranks; r++) {
        char text[256] = "";
        int last = -2;
        for (int cpu = 0; cpu < (int)(8 * b->bytes) && strlen(text) < sizeof text - 16; cpu++)
            if (CPU_ISSET_S((size_t)cpu, b->bytes, b->sets[r])) rd_cpulist_add(text, sizeof text, cpu, &last);
        fprintf(stderr, "rondo run: local rank %d on CPUs %s (--bind %s)\n", r, text, how);
    }
}

static int plan(rd_bindings *bindings, const rd_machine *machine, const units *u, const char *how, int ranks)
{
    if (!make_room(bindings, u, ranks)) {
        fprintf(stderr, "rondo run: no memory for the bindings of %d ranks\n", ranks);
        return 1;
    }
    for (int k = 0; k < KINDS; k++)
        if (strcmp(how, kinds[k].word) == 0) return by_kind(bindings, u, k);
    return strcmp(how, "gpu") == 0 ? by_gpu(bindings, machine, u) : by_list(bindings, u, how);
}

int rd_bind_plan(rd_bindings *bindings, const char *how, int ranks, bool explain)
{
    bool gpu = strcmp(how, "gpu") == 0;
    units u = {0};
    int status = 1;
    *bindings = (rd_bindings){0};
    if (gpu) rd_gpu_driver(); /* devices are as the driver reports them, once it is loaded */
    const rd_machine *machine = gpu ? rd_machine_with_devices() : rd_machine_here();
    if (machine && read_units(machine, &u))
        status = plan(bindings, machine, &u, how, ranks);
    else
        fprintf(stderr, "rondo run: --bind: %s\n", rd_last_error());
    if (status == 0 && explain) explain_all(bindings, how);
    free(u.of);
    return status;
}

const char *rd_bind_suggest(int ranks, bool *each_its_own)
{
    static const int order[] = {2, 1, 0}; /* the largest first: a rank may have threads */
    const rd_machine *machine = rd_machine_here();
    const char *word = NULL;
    units u = {0};
    int32_t *parts = machine && read_units(machine, &u) ? calloc((size_t)u.count, sizeof *parts) : NULL;
    for (int i = 0; i < 3 && parts && !word; i++)
        if (list_parts(&u, order[i], parts) >= ranks) word = kinds[order[i]].word;
    int cores = parts ? list_parts(&u, 0, parts) : 0;
    *each_its_own = word;
    if (!word && cores > 1 && ranks % cores == 0) word = kinds[0].word;
    free(parts);
    free(u.of);
    return word;
}
