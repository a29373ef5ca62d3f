/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/topo.h"

#include "base/gpu.h"
#include "base/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

static rondo_result find_machine(rd_topo_view *v)
{
    const rd_topo_options *o = v->options;
    rondo_result result = RONDO_SUCCESS;
    if (o->xml)
        result = rd_machine_xml(&v->loaded, o->xml);
    else if (o->synthetic)
        result = rd_machine_synthetic(&v->loaded, o->synthetic);
    if (result != RONDO_SUCCESS) return result;
    v->machine = v->loaded;
    if (!v->machine) {
        rd_gpu_driver(); /* devices are as the driver reports them, once it is loaded */
        if (!(v->machine = rd_machine_with_devices())) return RONDO_SYSTEM_ERROR;
        read_name(v->name, sizeof v->name);
    }
    rd_machine_describe(v->machine, v->summary, sizeof v->summary);
    v->pu_count = rd_machine_pus(v->machine);
    v->pus = calloc((size_t)v->pu_count, sizeof *v->pus);
    if (!v->pus) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for %d processing units", v->pu_count);
    for (int i = 0; i < v->pu_count; i++) RD_TRY(rd_machine_pu(v->machine, i, &v->pus[i]));
    return RONDO_SUCCESS;
}

static rondo_result describe_ranks(rd_topo_view *v)
{
    bool gpus = false;
    v->places = calloc((size_t)v->ranks, sizeof *v->places);
    if (!v->places) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for %d ranks", v->ranks);
    for (int r = 0; r < v->ranks; r++) {
        const rd_seat *seat = &v->seats[r];
        v->places[r] = seat->gpu >= 0 ? rd_machine_gpu(v->machine, seat->gpu)->place : v->pus[seat->pu].place;
        v->places[r].host = seat->host;
        gpus = gpus || seat->gpu >= 0;
    }
    if (!gpus && v->hosts == 1) return RONDO_SUCCESS;
    v->around = calloc((size_t)v->ranks, sizeof *v->around);
    if (!v->around) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for %d ranks", v->ranks);
    for (int r = 0; r < v->ranks; r++) rd_around_of(v->machine, &v->places[r], v->seats[r].gpu, &v->around[r]);
    return RONDO_SUCCESS;
}

rondo_result rd_topo_open(rd_topo_view *view, const rd_topo_options *options)
{
    view->options = options;
    RD_TRY(find_machine(view));
    RD_TRY(rd_topo_seat(view));
    RD_TRY(describe_ranks(view));
    if (options->measure) RD_TRY(rd_topo_measure(view));
    rd_told told = {.ranks = view->ranks, .places = view->places, .around = view->around, .links = view->links};
    return rd_rings_make(&view->rings, &told, options->channels);
}

void rd_topo_close(rd_topo_view *view)
{
    rd_rings_free(&view->rings);
    free(view->links);
    free(view->around);
    free(view->places);
    free(view->seats);
    free(view->pus);
    rd_machine_free(view->loaded);
}

const rd_hop *rd_topo_hops(const rd_topo_view *view, int channel)
{
    return &view->rings.hops[(size_t)channel * (size_t)view->ranks];
}

uint64_t rd_topo_cost(const rd_topo_view *view, int channel)
{
    uint64_t sum = 0;
    for (int i = 0; i < view->ranks && view->ranks > 1; i++)
        sum += rd_link_cost(rd_topo_hops(view, channel)[i].link, 1);
    return sum;
}

const rd_nic *rd_topo_nic(const rd_topo_view *view, int rank, int nic)
{
    return view->around && nic >= 0 ? &view->around[rank].nic[nic] : NULL;
}

const char *rd_topo_rate(uint32_t mbs, char text[24])
{
    if (mbs >= 1000)
        snprintf(text, 24, "%.4g GB/s", mbs / 1000.0);
    else
        snprintf(text, 24, "%" PRIu32 " MB/s", mbs);
    return text;
}
