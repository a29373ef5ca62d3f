/* SPDX-License-Identifier: Apache-2.0
 *
 * topo_picture.c - hosts side by side, packages side by side in them. In a package the ranks go down one column and up
 * the next: the ring, which mostly follows their numbers, then has short ways, and comes out where the next package
 * begins. The network cards lie below, where the ways between hosts are.
 */
#include "cli/topo_picture.h"

#include "base/status.h"

#include <stdlib.h>

enum { BOX_W = 80, BOX_H = 36, GAP_X = 34, GAP_Y = 22, PAD = 18, TITLE = 22, NIC_W = 104, NIC_H = 36, NIC_GAP = 10 };
enum { MOST_ROWS = 8, HOSTS_ACROSS = 4, ARC = 40, CARDS = 8 };

static int package_of(const rd_topo_view *v, int rank)
{
    return v->places[rank].package;
}

/* ---- One package ---- */

/* Column by column, down and up. */
static rd_box cell(int x, int y, int rows, int i)
{
    int column = i / rows, row = column % 2 ? rows - 1 - i % rows : i % rows;
    return (rd_box){x + column * (BOX_W + GAP_X), y + row * (BOX_H + GAP_Y), BOX_W, BOX_H};
}

/* An even number of columns, so that the last one ends at the top. */
static int rows_for(int count)
{
    int pairs = (count + 2 * MOST_ROWS - 1) / (2 * MOST_ROWS), columns = 2 * (pairs ? pairs : 1);
    int rows = (count + columns - 1) / columns;
    return rows ? rows : 1;
}

static bool has_rank(const rd_topo_view *v, int host, int gpu)
{
    for (int r = 0; r < v->ranks; r++)
        if (v->seats[r].host == host && v->seats[r].gpu == gpu) return true;
    return false;
}

/* Ranks and GPUs without one, in the package's box from (x, y) on. Returns how many there are. */
static int place_ranks(rd_picture *p, const rd_group *group, int x, int y, int rows)
{
    const rd_topo_view *v = p->view;
    int count = 0;
    for (int r = 0; r < v->ranks; r++) {
        if (v->seats[r].host != group->host || package_of(v, r) != group->package) continue;
        if (rows) p->ranks[r] = cell(x, y, rows, count);
        count++;
    }
    for (int g = 0; g < rd_machine_gpus(v->machine); g++) {
        if (rd_machine_gpu(v->machine, g)->place.package != group->package || has_rank(v, group->host, g)) continue;
        if (rows) p->idle[p->idle_count++] = (rd_idle_gpu){g, cell(x, y, rows, count)};
        count++;
    }
    return count;
}

static int place_nics(rd_picture *p, const rd_group *group, int x, int y, int across)
{
    const rd_topo_view *v = p->view;
    int all = rd_machine_nics(v->machine), count = 0;
    for (int n = 0; n < all; n++) {
        if (rd_machine_nic(v->machine, n)->place.package != group->package) continue;
        if (across)
            p->nics[group->host * (all + 1) + n] =
                (rd_box){x + count % across * (NIC_W + NIC_GAP), y + count / across * (NIC_H + NIC_GAP), NIC_W, NIC_H};
        count++;
    }
    return count;
}

/* With its left upper corner at (x, y). */
static void lay_group(rd_picture *p, rd_group *group, int x, int y)
{
    int count = place_ranks(p, group, 0, 0, 0), rows = rows_for(count), columns = (count + rows - 1) / rows;
    int nics = place_nics(p, group, 0, 0, 0);
    int across = nics < 1 ? 1 : nics < CARDS ? nics : CARDS; /* in one row, so that no way to one runs behind another */
    int w = columns * (BOX_W + GAP_X) - GAP_X, top = y + TITLE + ARC, below = top;
    if (nics && w < across * (NIC_W + NIC_GAP) - NIC_GAP) w = across * (NIC_W + NIC_GAP) - NIC_GAP;
    if (w < BOX_W) w = BOX_W;
    place_ranks(p, group, x + PAD, top, rows);
    if (count) below += rows * (BOX_H + GAP_Y);
    place_nics(p, group, x + PAD, below + GAP_Y / 2, across);
    if (nics) below += (nics + across - 1) / across * (NIC_H + NIC_GAP) + GAP_Y / 2;
    group->box = (rd_box){x, y, w + 2 * PAD, below - y + PAD};
}

/* ---- Hosts ---- */

/* Packages that the machine has, then what lies in none, if anything does. */
static rondo_result list_groups(rd_picture *p)
{
    const rd_topo_view *v = p->view;
    int packages = 0;
    for (int i = 0; i < v->pu_count; i++)
        if (v->pus[i].place.package >= packages) packages = v->pus[i].place.package + 1;
    p->groups = calloc((size_t)v->hosts * (size_t)(packages + 1), sizeof *p->groups);
    if (!p->groups) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for a picture of %d hosts", v->hosts);
    for (int h = 0; h < v->hosts; h++) {
        for (int package = 0; package <= packages; package++) {
            rd_group group = {.host = h, .package = package < packages ? package : -1};
            bool empty = !place_ranks(p, &group, 0, 0, 0) && !place_nics(p, &group, 0, 0, 0);
            if (!empty || (package < packages && packages <= 8)) p->groups[p->group_count++] = group;
        }
    }
    return RONDO_SUCCESS;
}

/* Some hop crosses the network, nobody knows by which card. */
static bool is_network_seen(const rd_picture *p)
{
    const rd_topo_view *v = p->view;
    for (int i = 0; i < v->rings.channels * v->ranks; i++) {
        const rd_hop *hop = &v->rings.hops[i];
        if (hop->nic < 0 && v->seats[hop->from].host != v->seats[hop->to].host) return true;
    }
    return false;
}

rd_box rd_picture_card(const rd_picture *picture, int rank, int nic)
{
    int all = rd_machine_nics(picture->view->machine);
    return picture->nics[picture->view->seats[rank].host * (all + 1) + (nic < 0 ? all : nic)];
}

/* Its packages side by side; the box of the host around them. */
static void lay_host(rd_picture *p, int host, int x, int y)
{
    int title = p->view->hosts > 1 ? TITLE : 0, at = x + PAD, bottom = y;
    for (int g = 0; g < p->group_count; g++) {
        rd_group *group = &p->groups[g];
        if (group->host != host) continue;
        lay_group(p, group, at, y + title + PAD);
        at += group->box.w + PAD;
        if (group->box.y + group->box.h > bottom) bottom = group->box.y + group->box.h;
    }
    if (p->view->hosts > 1 && is_network_seen(p)) {
        int all = rd_machine_nics(p->view->machine);
        p->nics[host * (all + 1) + all] = (rd_box){(x + at - NIC_W) / 2, bottom + PAD, NIC_W, NIC_H};
        p->hosts[host] = (rd_box){x, y, at - x, bottom - y + 2 * PAD + NIC_H};
    } else {
        p->hosts[host] = (rd_box){x, y, at - x, bottom - y + PAD};
    }
    for (int g = 0; g < p->group_count; g++)
        if (p->groups[g].host == host) p->groups[g].box.h = bottom - p->groups[g].box.y;
}

/* A row of hosts below what there is, and a gap for the ways between them. */
static void lay_row(rd_picture *p, int first)
{
    int x = 0, y = p->h, hosts = p->view->hosts, end = first + HOSTS_ACROSS < hosts ? first + HOSTS_ACROSS : hosts;
    for (int h = first; h < end; h++) {
        lay_host(p, h, x, y);
        x += p->hosts[h].w + RD_PICTURE_GAP;
        if (y + p->hosts[h].h > p->h) p->h = y + p->hosts[h].h;
    }
    for (int h = first; h < end; h++) p->below[h] = p->h;
    if (x - RD_PICTURE_GAP > p->w) p->w = x - RD_PICTURE_GAP;
    if (hosts > 1) p->h += RD_PICTURE_GAP;
}

rondo_result rd_picture_lay_out(rd_picture *picture, const rd_topo_view *view)
{
    size_t hosts = (size_t)view->hosts, gpus = (size_t)rd_machine_gpus(view->machine) + 1;
    *picture = (rd_picture){.view = view};
    picture->hosts = calloc(hosts, sizeof *picture->hosts);
    picture->ranks = calloc((size_t)view->ranks, sizeof *picture->ranks);
    picture->nics = calloc(hosts * ((size_t)rd_machine_nics(view->machine) + 1), sizeof *picture->nics);
    picture->idle = calloc(hosts * gpus, sizeof *picture->idle);
    picture->below = calloc(hosts, sizeof *picture->below);
    if (!picture->hosts || !picture->below || !picture->ranks || !picture->nics || !picture->idle)
        return rd_fail(RONDO_SYSTEM_ERROR, "no memory for a picture of %d ranks", view->ranks);
    RD_TRY(list_groups(picture));
    for (int h = 0; h < view->hosts; h += HOSTS_ACROSS) lay_row(picture, h);
    return RONDO_SUCCESS;
}

void rd_picture_free(rd_picture *picture)
{
    free(picture->below);
    free(picture->idle);
    free(picture->nics);
    free(picture->ranks);
    free(picture->groups);
    free(picture->hosts);
}
