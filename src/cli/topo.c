/* SPDX-License-Identifier: Apache-2.0
 *
 * topo.c - `rondo topo`: this machine, and the ring that ranks bound to its cores would form.
 */
#include "topo/ring.h"

#include "base/status.h"
#include "cli/cli.h"
#include "cli/option.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHO "rondo topo"

static const char help[] =
    "usage: rondo topo [-n N] [options]\n"
    "\n"
    "Shows this machine, and the ring that N ranks on it would form: rank r bound to the r-th core that this process\n"
    "may use, and again from the first when there are more ranks than cores. The ring visits ranks that share a cache\n"
    "one after the other; ranks that are not bound are visited in order.\n"
    "\n"
    "  -n, --ranks N           ranks, 1 to 1024 (one per core)\n"
    "      --synthetic WORDS   another machine, in hwloc's words, for example \"pack:2 numa:1 l3:2 core:4 pu:2\"\n"
    "      --json              for programs: {machine: {..., pus: [...]}, ring: {order, hops: [...]}}\n"
    "  -h, --help              this text\n"
    "\n"
    "The nanoseconds are what a cache line takes one way, by the closest thing that both ranks share: figures of\n"
    "machines like this one, not measured here. CPU is the number that taskset and the kernel use.\n";

static const struct option names[] = {
    {"ranks", required_argument, NULL, 'n'},
    {"synthetic", required_argument, NULL, 's'},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

typedef struct view {
    const rd_machine *machine;
    const char *synthetic; /* NULL: the machine here */
    char name[128];        /* of the processor; "" unknown */
    char summary[160];
    rd_pu *pus;
    int pu_count, cores;   /* cores: that may be used */
    int ranks;
    int *bound;            /* index into pus, by rank */
    int32_t *order;
} view;

/* ---- Finding out ---- */

static void read_name(char *text, size_t bytes)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    *text = '\0';
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, "model name", 10) != 0) continue;
        snprintf(text, bytes, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (file) fclose(file);
}

static rondo_result read_pus(view *v)
{
    v->pu_count = rd_machine_pus(v->machine);
    v->pus = calloc((size_t)v->pu_count, sizeof *v->pus);
    if (!v->pus) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for %d processing units", v->pu_count);
    for (int i = 0; i < v->pu_count; i++) RD_TRY(rd_machine_pu(v->machine, i, &v->pus[i]));
    return RONDO_SUCCESS;
}

/* The processing units in the order in which ranks get them: one of each core, then another one of each. Units of a
 * core follow one another; on a machine whose cores are not known each is its own. Returns how many there are. */
static int deal(view *v, int *turn)
{
    int count = 0;
    v->cores = 0;
    for (int round = 0, before = -1; count > before; round++) {
        before = count;
        for (int i = 0, nth = 0, core = -1; i < v->pu_count; i++) {
            int here = v->pus[i].place.core;
            if (here < 0 || here != core) nth = 0;
            core = here;
            if (!v->pus[i].allowed) continue;
            if (nth++ == round) turn[count++] = i;
        }
        if (round == 0) v->cores = count;
    }
    return count;
}

static rondo_result find_ring(view *v)
{
    size_t n;
    rondo_result result = RONDO_SUCCESS;
    uint32_t *cost = NULL;
    int *turn = calloc((size_t)v->pu_count, sizeof *turn), count = turn ? deal(v, turn) : 0;
    if (!v->ranks) v->ranks = v->cores;
    n = (size_t)v->ranks;
    if (count) {
        v->bound = calloc(n, sizeof *v->bound);
        v->order = calloc(n, sizeof *v->order);
        cost = calloc(n * n, sizeof *cost);
    }
    if (!v->bound || !v->order || !cost) {
        result = rd_fail(RONDO_SYSTEM_ERROR, "no memory for a ring of %d ranks", v->ranks);
        goto out;
    }
    for (size_t r = 0; r < n; r++) v->bound[r] = turn[r % (size_t)count];
    for (size_t a = 0; a < n; a++)
        for (size_t b = 0; b < n; b++)
            cost[a * n + b] = a == b ? 0 : rd_link_cost(rd_place_link(&v->pus[v->bound[a]].place, &v->pus[v->bound[b]].place), 1);
    result = rd_ring_order(cost, v->ranks, v->order);
out:
    free(cost);
    free(turn);
    return result;
}

static const rd_place *place_at(const view *v, int position)
{
    return &v->pus[v->bound[v->order[position % v->ranks]]].place;
}

/* ---- For people ---- */

static const char *size_text(uint64_t bytes, char *text, size_t room)
{
    if (!bytes) *text = '\0';
    else if (bytes >= 1u << 30) snprintf(text, room, " (%.4g GiB)", (double)bytes / (1 << 30));
    else if (bytes >= 1u << 20) snprintf(text, room, " (%.4g MiB)", (double)bytes / (1 << 20));
    else snprintf(text, room, " (%.4g KiB)", (double)bytes / (1 << 10));
    return text;
}

/* "3 (32 MiB)", or "-" where it is not known. */
static const char *part_text(const view *v, rd_storage what, int index, char *text, size_t room)
{
    char size[32];
    if (index < 0) snprintf(text, room, "-");
    else snprintf(text, room, "%d%s", index, size_text(rd_machine_bytes(v->machine, what, index), size, sizeof size));
    return text;
}

static const char *index_text(int index, char text[16])
{
    snprintf(text, 16, index < 0 ? "-" : "%d", index);
    return text;
}

/* Adds a number to a list of ranges: "0-3,8". */
static void add_number(char *text, size_t room, int number, int *last)
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

static bool beside(const rd_place *a, const rd_place *b)
{
    return a->package == b->package && a->numa == b->numa && a->l3 == b->l3;
}

/* One line for all that lies behind one L3 cache (or shares a NUMA node or package, where there is none). */
static int print_group(const view *v, int first)
{
    const rd_place *at = &v->pus[first].place;
    char package[16], numa[48], l3[48], cores[256] = "", cpus[256] = "", allowed[32] = "";
    int end = first, usable = 0, last_core = -2, last_cpu = -2;
    for (; end < v->pu_count && beside(at, &v->pus[end].place); end++) {
        if (v->pus[end].place.core >= 0) add_number(cores, sizeof cores - 16, v->pus[end].place.core, &last_core);
        usable += v->pus[end].allowed;
    }
    /* The system's numbers come in another order: SMT siblings are often far apart. */
    for (int cpu = 0, found = 0; found < end - first && cpu < 1 << 16; cpu++)
        for (int i = first; i < end; i++)
            if (v->pus[i].os_index == cpu) {
                add_number(cpus, sizeof cpus - 16, cpu, &last_cpu);
                found++;
            }
    if (usable < end - first) snprintf(allowed, sizeof allowed, "  (%d allowed)", usable);
    printf("  %-8s %-16s %-16s %-10s %s%s\n", index_text(at->package, package),
           part_text(v, RD_STORAGE_NUMA, at->numa, numa, sizeof numa),
           part_text(v, RD_STORAGE_L3, at->l3, l3, sizeof l3), *cores ? cores : "-", cpus, allowed);
    return end;
}

static void print_text(const view *v)
{
    char core[16], l3[16], numa[16], package[16];
    uint64_t round = 0;
    printf("%s%s%s\n\n", v->name, *v->name ? "\n" : "", v->summary);
    printf("  %-8s %-16s %-16s %-10s %s\n", "package", "NUMA node", "L3 cache", "cores", "CPUs");
    for (int i = 0; i < v->pu_count;) i = print_group(v, i);
    printf("\nThe ring of %d rank%s, %s\n\n", v->ranks, v->ranks == 1 ? "" : "s",
           v->ranks > v->cores ? "several of which share a core:" : "each bound to a core:");
    printf("  %-6s %-6s %-6s %-5s %-6s %-9s %s\n", "rank", "CPU", "core", "L3", "NUMA", "package", "to the next");
    for (int i = 0; i < v->ranks; i++) {
        const rd_place *at = place_at(v, i), *next = place_at(v, i + 1);
        printf("  %-6d %-6d %-6s %-5s %-6s %-9s ", v->order[i], v->pus[v->bound[v->order[i]]].os_index,
               index_text(at->core, core), index_text(at->l3, l3), index_text(at->numa, numa),
               index_text(at->package, package));
        if (v->ranks == 1) printf("-\n");
        else printf("%" PRIu32 " ns, same %s\n", rd_place_link(at, next).ns, rd_link_name(rd_place_link(at, next).kind));
        if (v->ranks > 1) round += rd_place_link(at, next).ns;
    }
    if (v->ranks > 1) printf("\n  %" PRIu64 " ns once round\n", round);
}

/* ---- For programs ---- */

static void add_int(json_object *to, const char *name, int64_t value)
{
    json_object_object_add(to, name, value < 0 ? NULL : json_object_new_int64(value));
}

static json_object *json_pu(const view *v, int i)
{
    json_object *pu = json_object_new_object();
    const rd_place *p = &v->pus[i].place;
    add_int(pu, "cpu", v->pus[i].os_index);
    add_int(pu, "core", p->core);
    add_int(pu, "l2", p->l2);
    add_int(pu, "l3", p->l3);
    add_int(pu, "numa", p->numa);
    add_int(pu, "package", p->package);
    add_int(pu, "l2_bytes", (int64_t)rd_machine_bytes(v->machine, RD_STORAGE_L2, p->l2));
    add_int(pu, "l3_bytes", (int64_t)rd_machine_bytes(v->machine, RD_STORAGE_L3, p->l3));
    add_int(pu, "numa_bytes", (int64_t)rd_machine_bytes(v->machine, RD_STORAGE_NUMA, p->numa));
    json_object_object_add(pu, "allowed", json_object_new_boolean(v->pus[i].allowed));
    return pu;
}

static json_object *json_ring(const view *v)
{
    json_object *ring = json_object_new_object(), *order = json_object_new_array(), *hops = json_object_new_array();
    json_object *cpus = json_object_new_array();
    uint64_t round = 0;
    for (int r = 0; r < v->ranks; r++) json_object_array_add(cpus, json_object_new_int(v->pus[v->bound[r]].os_index));
    for (int i = 0; i < v->ranks; i++) {
        json_object_array_add(order, json_object_new_int(v->order[i]));
        if (v->ranks == 1) break;
        const rd_place *at = place_at(v, i), *next = place_at(v, i + 1);
        json_object *hop = json_object_new_object();
        add_int(hop, "from", v->order[i]);
        add_int(hop, "to", v->order[(i + 1) % v->ranks]);
        add_int(hop, "ns", rd_place_link(at, next).ns);
        json_object_object_add(hop, "shared", json_object_new_string(rd_link_name(rd_place_link(at, next).kind)));
        json_object_array_add(hops, hop);
        round += rd_place_link(at, next).ns;
    }
    add_int(ring, "ranks", v->ranks);
    json_object_object_add(ring, "cpus", cpus);
    json_object_object_add(ring, "order", order);
    json_object_object_add(ring, "hops", hops);
    add_int(ring, "round_ns", (int64_t)round);
    return ring;
}

static void print_json(const view *v)
{
    json_object *all = json_object_new_object(), *machine = json_object_new_object(), *pus = json_object_new_array();
    for (int i = 0; i < v->pu_count; i++) json_object_array_add(pus, json_pu(v, i));
    json_object_object_add(machine, "name", *v->name ? json_object_new_string(v->name) : NULL);
    json_object_object_add(machine, "summary", json_object_new_string(v->summary));
    json_object_object_add(machine, "synthetic", v->synthetic ? json_object_new_string(v->synthetic) : NULL);
    json_object_object_add(machine, "pus", pus);
    json_object_object_add(all, "machine", machine);
    json_object_object_add(all, "ring", json_ring(v));
    puts(json_object_to_json_string_ext(all, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED));
    json_object_put(all);
}

/* ---- The command ---- */

static int show(view *v, bool json)
{
    rd_machine *described = NULL;
    int status = 1;
    if (v->synthetic) {
        if (rd_machine_synthetic(&described, v->synthetic) != RONDO_SUCCESS) goto failed;
        v->machine = described;
    } else {
        if (!(v->machine = rd_machine_here())) goto failed;
        read_name(v->name, sizeof v->name);
    }
    rd_machine_describe(v->machine, v->summary, sizeof v->summary);
    if (read_pus(v) != RONDO_SUCCESS || find_ring(v) != RONDO_SUCCESS) goto failed;
    if (json) print_json(v);
    else print_text(v);
    status = 0;
    goto out;
failed:
    fprintf(stderr, WHO ": %s\n", rd_last_error());
out:
    free(v->order);
    free(v->bound);
    free(v->pus);
    rd_machine_free(described);
    return status;
}

int rd_cli_topo(int argc, char **argv)
{
    static const char short_names[] = "+:n:h";
    view v = {0};
    bool json = false;
    int status = 0;
    optind = 1;
    opterr = 0;
    for (int id; !status && (id = getopt_long(argc, argv, short_names, names, NULL)) >= 0;) {
        switch (id) {
        case 'n': status = rd_option_number(WHO, "-n", optarg, 1, 1024, &v.ranks); break;
        case 's': v.synthetic = optarg; break;
        case 'j': json = true; break;
        case 'h': fputs(help, stdout); return 0;
        default: return rd_option_wrong(WHO, id, argv, short_names, names);
        }
    }
    if (!status) status = rd_option_no_words(WHO, argc, argv);
    return status ? status : show(&v, json);
}
