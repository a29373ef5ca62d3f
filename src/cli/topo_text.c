/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/topo.h"

#include "cli/bind.h"

#include <inttypes.h>
#include <string.h>

/* ---- Parts of lines ---- */

static const char *size_text(uint64_t bytes, char *text, size_t room)
{
    if (!bytes)
        *text = '\0';
    else if (bytes >= 1u << 30)
        snprintf(text, room, " (%.4g GiB)", (double)bytes / (1 << 30));
    else if (bytes >= 1u << 20)
        snprintf(text, room, " (%.4g MiB)", (double)bytes / (1 << 20));
    else
        snprintf(text, room, " (%.4g KiB)", (double)bytes / (1 << 10));
    return text;
}

/* "3 (32 MiB)", or "-" where it is not known. */
static const char *part_text(const rd_topo_view *v, rd_storage what, int index, char *text, size_t room)
{
    char size[32];
    if (index < 0)
        snprintf(text, room, "-");
    else
        snprintf(text, room, "%d%s", index, size_text(rd_machine_bytes(v->machine, what, index), size, sizeof size));
    return text;
}

static const char *index_text(int index, char text[16])
{
    snprintf(text, 16, index < 0 ? "-" : "%d", index);
    return text;
}

/* ---- The machine ---- */

static bool beside(const rd_place *a, const rd_place *b)
{
    return a->package == b->package && a->numa == b->numa && a->l3 == b->l3;
}

/* One line for all that lies behind one L3 cache (or shares a NUMA node or package, where there is none). */
static int print_group(const rd_topo_view *v, int first)
{
    const rd_place *at = &v->pus[first].place;
    char package[16], numa[48], l3[48], cores[256] = "", cpus[256] = "", allowed[32] = "";
    int end = first, usable = 0, last_core = -2, last_cpu = -2;
    for (; end < v->pu_count && beside(at, &v->pus[end].place); end++) {
        if (v->pus[end].place.core >= 0) rd_cpulist_add(cores, sizeof cores - 16, v->pus[end].place.core, &last_core);
        usable += v->pus[end].allowed;
    }
    /* The system's numbers come in another order: SMT siblings are often far apart. */
    for (int cpu = 0, found = 0; found < end - first && cpu < 1 << 16; cpu++)
        for (int i = first; i < end; i++)
            if (v->pus[i].os_index == cpu) {
                rd_cpulist_add(cpus, sizeof cpus - 16, cpu, &last_cpu);
                found++;
            }
    if (usable < end - first) snprintf(allowed, sizeof allowed, "  (%d allowed)", usable);
    printf("  %-8s %-16s %-16s %-10s %s%s\n", index_text(at->package, package),
           part_text(v, RD_STORAGE_NUMA, at->numa, numa, sizeof numa),
           part_text(v, RD_STORAGE_L3, at->l3, l3, sizeof l3), *cores ? cores : "-", cpus, allowed);
    return end;
}

static void print_devices(const rd_topo_view *v)
{
    char bus[16], package[16], numa[16];
    for (int i = 0; i < rd_machine_gpus(v->machine); i++) {
        const rd_peripheral *gpu = rd_machine_gpu(v->machine, i);
        if (i == 0) printf("\n  %-5s %-14s %-14s %-8s %-6s %s\n", "GPU", "name", "bus", "package", "NUMA", "model");
        rd_bus_id_print(gpu->bus, bus);
        printf("  %-5d %-14s %-14s %-8s %-6s %s\n", i, gpu->name, bus, index_text(gpu->place.package, package),
               index_text(gpu->place.numa, numa), gpu->model);
    }
    for (int i = 0; i < rd_machine_nics(v->machine); i++) {
        const rd_peripheral *nic = rd_machine_nic(v->machine, i);
        char speed[32];
        if (i == 0)
            printf("\n  %-20s %-14s %-8s %-6s %-12s %s\n", "network card", "bus", "package", "NUMA", "Gb/s", "state");
        snprintf(speed, sizeof speed, "%s%.4g", nic->guessed ? "about " : "", nic->mbit / 1000.0);
        rd_bus_id_print(nic->bus, bus);
        printf("  %s%s%-*s %-14s %-8s %-6s %-12s %s\n", nic->name, *nic->verbs ? " " : "",
               20 - (int)strlen(nic->name) - (*nic->verbs ? 1 : 0), nic->verbs, bus,
               index_text(nic->place.package, package), index_text(nic->place.numa, numa), speed,
               nic->up ? "up" : "down");
    }
}

/* Links that GPUs have between them: how many pairs of each kind, since all of them would be a page. */
static void print_fabric(const rd_topo_view *v)
{
    int gpus = rd_machine_gpus(v->machine), pairs[RD_LINK_KINDS] = {0};
    uint32_t least[RD_LINK_KINDS], most[RD_LINK_KINDS] = {0};
    char slow[24], fast[24];
    memset(least, 0xff, sizeof least);
    for (int a = 0; a < gpus; a++) {
        for (int b = a + 1; b < gpus; b++) {
            rd_link link = rd_gpu_link(v->machine, a, b);
            pairs[link.kind]++;
            if (link.mbs < least[link.kind]) least[link.kind] = link.mbs;
            if (link.mbs > most[link.kind]) most[link.kind] = link.mbs;
        }
    }
    if (gpus > 1) printf("\n");
    for (uint32_t k = 0; k < RD_LINK_KINDS; k++) {
        if (!pairs[k]) continue;
        printf("  %d pair%s of GPUs by %s, %s%s%s\n", pairs[k], pairs[k] == 1 ? "" : "s", rd_link_name(k),
               rd_topo_rate(least[k], slow), least[k] < most[k] ? " to " : "",
               least[k] < most[k] ? rd_topo_rate(most[k], fast) : "");
    }
}

/* ---- The rings ---- */

static void print_hop(const rd_topo_view *v, const rd_hop *hop, const rd_hop *slowest)
{
    const rd_nic *nic = rd_topo_nic(v, hop->from, hop->nic), *there = rd_topo_nic(v, hop->to, hop->nic_there);
    char rate[24], cards[48] = "";
    const char *name = rd_link_name(hop->link.kind);
    if (nic && there) snprintf(cards, sizeof cards, ", %s to %s", nic->name, there->name);
    printf("%" PRIu32 " ns, %s, %s%s%s%s\n", hop->link.ns, rd_topo_rate(hop->link.mbs, rate),
           hop->link.kind <= RD_LINK_HOST ? "same " : "", name, cards,
           slowest && rd_link_cost(hop->link, 1) == rd_link_cost(slowest->link, 1) ? "  <- slowest" : "");
}

static bool all_alike(const rd_topo_view *v, int channel)
{
    const rd_hop *hops = rd_topo_hops(v, channel);
    for (int i = 1; i < v->ranks; i++)
        if (rd_link_cost(hops[i].link, 1) != rd_link_cost(hops[0].link, 1)) return false;
    return true;
}

static void print_ring(const rd_topo_view *v, int channel)
{
    char core[16], l3[16], numa[16], package[16], on[24], host[16] = "";
    const rd_hop *slowest = all_alike(v, channel) ? NULL : rd_rings_slowest(&v->rings, channel);
    uint64_t round = 0;
    printf("  %-6s %s%-8s %-6s %-5s %-6s %-9s %s\n", "rank", v->hosts > 1 ? "host   " : "", "on", "core", "L3", "NUMA",
           "package", "to the next");
    for (int i = 0; i < v->ranks; i++) {
        const rd_hop *hop = &rd_topo_hops(v, channel)[i];
        const rd_place *at = &v->places[hop->from];
        const rd_seat *seat = &v->seats[hop->from];
        if (seat->gpu >= 0)
            snprintf(on, sizeof on, "GPU %d", seat->gpu);
        else
            snprintf(on, sizeof on, "CPU %d", v->pus[seat->pu].os_index);
        if (v->hosts > 1) snprintf(host, sizeof host, "%-7d", at->host);
        printf("  %-6d %s%-8s %-6s %-5s %-6s %-9s ", hop->from, host, on, index_text(at->core, core),
               index_text(at->l3, l3), index_text(at->numa, numa), index_text(at->package, package));
        if (v->ranks == 1)
            printf("-\n");
        else
            print_hop(v, hop, slowest);
        round += hop->link.ns;
    }
    if (v->ranks > 1)
        printf("\n  %" PRIu64 " ns once round; 64 KiB take %.1f us\n", round, (double)rd_topo_cost(v, channel) / 1000);
}

/* How ranks on processors are bound: whether two have a core, or where cores are not known a unit, in common. */
static const char *binding(const rd_topo_view *v)
{
    bool cores = true;
    for (int a = 0; a < v->ranks; a++) {
        const rd_place *x = &v->places[a];
        cores = cores && x->core >= 0;
        for (int b = 0; b < a; b++) {
            const rd_place *y = &v->places[b];
            if (x->host != y->host) continue;
            if (x->first_pu == y->first_pu || (x->core >= 0 && x->core == y->core))
                return "several of which share a core";
        }
    }
    return cores ? "each bound to a core" : "each bound to a CPU";
}

void rd_topo_print_text(const rd_topo_view *v)
{
    int on_gpus = 0, channels = v->rings.channels;
    for (int r = 0; r < v->ranks; r++) on_gpus += v->seats[r].gpu >= 0;
    printf("%s%s%s\n\n", v->name, *v->name ? "\n" : "", v->summary);
    printf("  %-8s %-16s %-16s %-10s %s\n", "package", "NUMA node", "L3 cache", "cores", "CPUs");
    for (int i = 0; i < v->pu_count;) i = print_group(v, i);
    print_devices(v);
    print_fabric(v);
    printf("\nThe ring of %d rank%s", v->ranks, v->ranks == 1 ? "" : "s");
    if (v->hosts > 1) printf(" on %d hosts like this one", v->hosts);
    if (on_gpus == v->ranks)
        printf(", each on a GPU");
    else if (!on_gpus)
        printf(", %s", binding(v));
    printf("%s:\n", v->links ? ", as measured" : "");
    for (int c = 0; c < channels; c++) {
        printf("\n");
        if (channels > 1) printf("  channel %d\n\n", c);
        print_ring(v, c);
    }
    if (!v->loaded && v->hosts == 1 && !on_gpus && !v->options->ranks)
        printf("  rondo run --bind core binds ranks so\n");
}
