/* SPDX-License-Identifier: Apache-2.0
 *
 * topo_picture.h - where everything of the picture lies, in pixels.
 */
#ifndef RD_CLI_TOPO_PICTURE_H
#define RD_CLI_TOPO_PICTURE_H

#include "cli/topo.h"

typedef struct rd_box {
    int x, y, w, h;
} rd_box;

/* A package of a host, or what lies in none. */
typedef struct rd_group {
    int host, package; /* package: -1 none */
    rd_box box;
} rd_group;

typedef struct rd_idle_gpu {
    int gpu;
    rd_box box;
} rd_idle_gpu;

typedef struct rd_picture {
    const rd_topo_view *view;
    int w, h;
    rd_box *hosts;
    rd_group *groups;
    int group_count;
    rd_box *ranks;     /* by rank */
    rd_box *nics;      /* [host * (nics of the machine + 1) + nic]; the last is the network, where no card is known */
    int *below;        /* of each host: the upper edge of the gap below its row */
    rd_idle_gpu *idle; /* GPUs on which no rank sits, of any host */
    int idle_count;
} rd_picture;

/* Lays out one ring's picture, with its left upper corner at 0, 0. */
rondo_result rd_picture_lay_out(rd_picture *picture, const rd_topo_view *view);
void rd_picture_free(rd_picture *picture);

/* The card by which a ring leaves or enters a rank's host; -1: no card is known. */
rd_box rd_picture_card(const rd_picture *picture, int rank, int nic);

/* The gaps between hosts, below and to the left of each. */
enum { RD_PICTURE_GAP = 56 };

#endif
