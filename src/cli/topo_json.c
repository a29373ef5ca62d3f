/* SPDX-License-Identifier: Apache-2.0
 *
 * topo_json.c - `rondo topo --json`; docs/tools.md says what each field is. What is not known is null.
 */
#include "cli/topo.h"

#include <json-c/json.h>

static void add_int(json_object *to, const char *name, int64_t value)
{
    json_object_object_add(to, name, value < 0 ? NULL : json_object_new_int64(value));
}

static void add_text(json_object *to, const char *name, const char *value)
{
    json_object_object_add(to, name, value && *value ? json_object_new_string(value) : NULL);
}

static void add_bool(json_object *to, const char *name, bool value)
{
    json_object_object_add(to, name, json_object_new_boolean(value));
}

/* ---- The machine ---- */

static json_object *json_pu(const rd_topo_view *v, int i)
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
    add_bool(pu, "allowed", v->pus[i].allowed);
    return pu;
}

static json_object *json_device(const rd_peripheral *device)
{
    json_object *o = json_object_new_object();
    char bus[16];
    rd_bus_id_print(device->bus, bus);
    add_text(o, "name", device->name);
    add_text(o, "bus", device->bus >= RD_NO_BUS ? NULL : bus);
    add_text(o, "model", device->model);
    add_int(o, "package", device->place.package);
    add_int(o, "numa", device->place.numa);
    return o;
}

static json_object *json_link(rd_link link)
{
    json_object *o = json_object_new_object();
    add_text(o, "kind", rd_link_name(link.kind));
    add_int(o, "ns", link.ns);
    add_int(o, "mbs", link.mbs);
    return o;
}

/* links[a][b]: from GPU a to GPU b; null on the diagonal. */
static json_object *json_gpu_links(const rd_machine *machine)
{
    json_object *rows = json_object_new_array();
    for (int a = 0; a < rd_machine_gpus(machine); a++) {
        json_object *row = json_object_new_array();
        for (int b = 0; b < rd_machine_gpus(machine); b++)
            json_object_array_add(row, a == b ? NULL : json_link(rd_gpu_link(machine, a, b)));
        json_object_array_add(rows, row);
    }
    return rows;
}

static json_object *json_machine(const rd_topo_view *v)
{
    json_object *machine = json_object_new_object(), *pus = json_object_new_array(), *gpus = json_object_new_array();
    json_object *nics = json_object_new_array();
    for (int i = 0; i < v->pu_count; i++) json_object_array_add(pus, json_pu(v, i));
    for (int i = 0; i < rd_machine_gpus(v->machine); i++)
        json_object_array_add(gpus, json_device(rd_machine_gpu(v->machine, i)));
    for (int i = 0; i < rd_machine_nics(v->machine); i++) {
        const rd_peripheral *nic = rd_machine_nic(v->machine, i);
        json_object *o = json_device(nic);
        add_text(o, "verbs", nic->verbs);
        add_int(o, "mbit", nic->mbit);
        add_bool(o, "mbit_guessed", nic->guessed);
        add_bool(o, "up", nic->up);
        json_object_array_add(nics, o);
    }
    add_text(machine, "name", v->name);
    add_text(machine, "summary", v->summary);
    add_text(machine, "synthetic", v->options->synthetic);
    add_text(machine, "xml", v->options->xml);
    json_object_object_add(machine, "pus", pus);
    json_object_object_add(machine, "gpus", gpus);
    json_object_object_add(machine, "gpu_links", json_gpu_links(v->machine));
    json_object_object_add(machine, "nics", nics);
    return machine;
}

/* ---- Ranks and rings ---- */

static json_object *json_ranks(const rd_topo_view *v)
{
    json_object *ranks = json_object_new_array();
    for (int r = 0; r < v->ranks; r++) {
        json_object *o = json_object_new_object();
        add_int(o, "rank", r);
        add_int(o, "host", v->seats[r].host);
        add_int(o, "cpu", v->seats[r].pu < 0 ? -1 : v->pus[v->seats[r].pu].os_index);
        add_int(o, "gpu", v->seats[r].gpu);
        json_object_array_add(ranks, o);
    }
    return ranks;
}

static json_object *json_hop(const rd_topo_view *v, const rd_hop *hop)
{
    json_object *o = json_object_new_object();
    const rd_nic *nic = rd_topo_nic(v, hop->from, hop->nic), *there = rd_topo_nic(v, hop->to, hop->nic_there);
    add_int(o, "from", hop->from);
    add_int(o, "to", hop->to);
    add_int(o, "ns", hop->link.ns);
    add_int(o, "mbs", hop->link.mbs);
    add_int(o, "cost_ns", rd_link_cost(hop->link, 1));
    add_text(o, "shared", rd_link_name(hop->link.kind));
    add_text(o, "nic", nic ? nic->name : NULL);
    add_text(o, "nic_there", there ? there->name : NULL);
    return o;
}

static json_object *json_ring(const rd_topo_view *v, int channel)
{
    json_object *ring = json_object_new_object(), *order = json_object_new_array(), *hops = json_object_new_array();
    const rd_hop *slowest = rd_rings_slowest(&v->rings, channel);
    int64_t round = 0;
    for (int i = 0; i < v->ranks; i++) {
        const rd_hop *hop = &rd_topo_hops(v, channel)[i];
        json_object_array_add(order, json_object_new_int(hop->from));
        if (v->ranks == 1) break;
        json_object_array_add(hops, json_hop(v, hop));
        round += hop->link.ns;
    }
    add_int(ring, "channel", channel);
    json_object_object_add(ring, "order", order);
    json_object_object_add(ring, "hops", hops);
    add_int(ring, "round_ns", round);
    add_int(ring, "cost_ns", (int64_t)rd_topo_cost(v, channel));
    add_int(ring, "slowest", slowest ? slowest - rd_topo_hops(v, channel) : -1);
    return ring;
}

void rd_topo_print_json(const rd_topo_view *v)
{
    json_object *all = json_object_new_object(), *rings = json_object_new_array();
    for (int c = 0; c < v->rings.channels; c++) json_object_array_add(rings, json_ring(v, c));
    json_object_object_add(all, "machine", json_machine(v));
    add_int(all, "hosts", v->hosts);
    json_object_object_add(all, "ranks", json_ranks(v));
    add_bool(all, "measured", v->links != NULL);
    json_object_object_add(all, "rings", rings);
    puts(json_object_to_json_string_ext(all, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED));
    json_object_put(all);
}
