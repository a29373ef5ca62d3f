/* SPDX-License-Identifier: Apache-2.0
 *
 * topo.h - `rondo topo`: a machine, ranks on it, and the rings that they form.
 *
 *   topo.c          options
 *   topo_view.c     finding out: the machine, where ranks sit, the rings
 *   topo_ranks.c    reading --ranks
 *   topo_measure.c  --measure: latency and bandwidth between processing units
 *   topo_text.c     for people
 *   topo_json.c     for programs
 *   topo_svg.c      as a picture
 */
#ifndef RD_CLI_TOPO_H
#define RD_CLI_TOPO_H

#include "topo/devices.h"
#include "topo/ring.h"

#include <stdbool.h>
#include <stdio.h>

enum { RD_TOPO_RANKS = 1024 };

/* Where a rank sits. */
typedef struct rd_seat {
    int host;
    int pu;  /* index into pus; -1: it has a GPU */
    int gpu; /* index of the machine's GPUs; -1: it works on host memory */
} rd_seat;

typedef struct rd_topo_options {
    const char *synthetic, *xml; /* NULL */
    const char *ranks;           /* as it was said; NULL */
    int hosts, channels;         /* channels: 0 as many as are good */
    bool json, measure;
    const char *svg; /* file; NULL */
} rd_topo_options;

typedef struct rd_topo_view {
    const rd_topo_options *options;
    const rd_machine *machine;
    rd_machine *loaded; /* it is ours to free; NULL */
    char name[128];     /* of the processor; "" unknown */
    char summary[160];
    rd_pu *pus;
    int pu_count, cores; /* cores: that may be used */
    int ranks, hosts;
    rd_seat *seats; /* by rank */
    rd_place *places;
    rd_around *around; /* NULL: one host and no GPU */
    rd_link *links;    /* measured; NULL */
    rd_rings rings;
} rd_topo_view;

/* ---- topo_view.c ---- */

rondo_result rd_topo_open(rd_topo_view *view, const rd_topo_options *options);
void rd_topo_close(rd_topo_view *view);
/* Hops of a ring, and what they cost together. */
const rd_hop *rd_topo_hops(const rd_topo_view *view, int channel);
uint64_t rd_topo_cost(const rd_topo_view *view, int channel);
/* The card of a hop's end; NULL within a host. */
const rd_nic *rd_topo_nic(const rd_topo_view *view, int rank, int nic);

/* ---- topo_ranks.c ---- */

/* Fills seats and ranks by options->ranks; where that says nothing, one rank on each GPU, or without any on each core.
 */
rondo_result rd_topo_seat(rd_topo_view *view);

/* ---- topo_measure.c ---- */

/* Fills links. */
rondo_result rd_topo_measure(rd_topo_view *view);

/* ---- Output ---- */

void rd_topo_print_text(const rd_topo_view *view);
void rd_topo_print_json(const rd_topo_view *view);
rondo_result rd_topo_write_svg(const rd_topo_view *view, const char *path);

/* "7.5 GB/s" */
const char *rd_topo_rate(uint32_t mbs, char text[24]);

#endif
