/* SPDX-License-Identifier: Apache-2.0
 *
 * topo_svg.c - the machine and its rings as a picture: one panel for each ring, the hop that takes longest in red.
 */
#include "cli/topo_picture.h"

#include "base/status.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { MARGIN = 30, HEAD = 62, PANEL_HEAD = 42, LEGEND = 40, LEAST_W = 560 };

typedef struct point {
    double x, y;
} point;

typedef struct drawing {
    FILE *file;
    const rd_picture *picture;
    const rd_topo_view *view;
    int channel, x, y; /* of the panel */
} drawing;

static const char style[] =
    "<style>\n"
    "text { font-family: sans-serif; font-size: 12px; fill: #1b1f24; }\n"
    ".title { font-size: 16px; font-weight: bold; }\n"
    ".strong { font-weight: bold; }\n"
    ".small { font-size: 11px; fill: #57606a; }\n"
    ".middle { text-anchor: middle; }\n"
    ".host { fill: #ffffff; stroke: #8c959f; stroke-width: 1.5; }\n"
    ".package { fill: #f6f8fa; stroke: #afb8c1; }\n"
    ".gpu { fill: #d8f3dc; stroke: #2d6a4f; }\n"
    ".cpu { fill: #dbeafe; stroke: #1d4ed8; }\n"
    ".idle { fill: #eaeef2; stroke: #afb8c1; }\n"
    ".nic { fill: #fff3c4; stroke: #9a6700; }\n"
    ".down { fill: #eaeef2; stroke: #afb8c1; stroke-dasharray: 3 3; }\n"
    ".hop { fill: none; stroke: #0550ae; stroke-width: 2; stroke-linejoin: round; }\n"
    ".slow { fill: none; stroke: #cf222e; stroke-width: 3; stroke-linejoin: round; }\n"
    "</style>\n"
    "<defs>\n"
    "<marker id=\"head\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"9\" markerHeight=\"9\" "
    "markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0 L10 5 L0 10 z\" fill=\"#0550ae\"/></marker>\n"
    "<marker id=\"redhead\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"12\" markerHeight=\"12\" "
    "markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0 L10 5 L0 10 z\" fill=\"#cf222e\"/></marker>\n"
    "</defs>\n";

/* ---- Text and boxes ---- */

static void put_escaped(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '&')
            fputs("&amp;", file);
        else if (*text == '<')
            fputs("&lt;", file);
        else if (*text == '>')
            fputs("&gt;", file);
        else if ((unsigned char)*text >= ' ')
            fputc(*text, file);
    }
}

static void put_text(const drawing *d, int x, int y, const char *class, const char *text)
{
    fprintf(d->file, "<text x=\"%d\" y=\"%d\" class=\"%s\">", d->x + x, d->y + y, class);
    put_escaped(d->file, text);
    fputs("</text>\n", d->file);
}

static void put_box(const drawing *d, rd_box box, const char *class, int round)
{
    fprintf(d->file, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"%d\" class=\"%s\"/>\n", d->x + box.x,
            d->y + box.y, box.w, box.h, round, class);
}

static void put_device(const drawing *d, rd_box box, const char *class, const char *first, const char *second)
{
    put_box(d, box, class, 5);
    put_text(d, box.x + box.w / 2, box.y + (*second ? 15 : 22), "middle", first);
    if (*second) put_text(d, box.x + box.w / 2, box.y + 29, "small middle", second);
}

/* ---- The machine ---- */

static void draw_frames(const drawing *d)
{
    const rd_picture *p = d->picture;
    char text[64];
    for (int h = 0; h < d->view->hosts && d->view->hosts > 1; h++) {
        put_box(d, p->hosts[h], "host", 8);
        snprintf(text, sizeof text, "host %d", h);
        put_text(d, p->hosts[h].x + 18, p->hosts[h].y + 24, "title", text);
    }
    for (int g = 0; g < p->group_count; g++) {
        const rd_group *group = &p->groups[g];
        bool only = p->group_count == d->view->hosts;
        put_box(d, group->box, "package", 6);
        if (group->package >= 0)
            snprintf(text, sizeof text, "package %d", group->package);
        else
            snprintf(text, sizeof text, "%s", only ? "machine" : "in no package");
        put_text(d, group->box.x + 12, group->box.y + 20, "small", text);
    }
}

static void draw_ranks(const drawing *d)
{
    const rd_topo_view *v = d->view;
    const rd_picture *p = d->picture;
    char first[32], second[32];
    for (int r = 0; r < v->ranks; r++) {
        const rd_seat *seat = &v->seats[r];
        snprintf(first, sizeof first, "rank %d", r);
        if (seat->gpu >= 0)
            snprintf(second, sizeof second, "GPU %d", seat->gpu);
        else
            snprintf(second, sizeof second, "CPU %d", v->pus[seat->pu].os_index);
        put_device(d, p->ranks[r], seat->gpu >= 0 ? "gpu" : "cpu", first, second);
    }
    for (int i = 0; i < p->idle_count; i++) {
        snprintf(first, sizeof first, "GPU %d", p->idle[i].gpu);
        put_device(d, p->idle[i].box, "idle", first, "no rank");
    }
}

static void draw_nics(const drawing *d)
{
    int all = rd_machine_nics(d->view->machine);
    char second[32];
    for (int i = 0; i < (all + 1) * d->view->hosts; i++) {
        if (!d->picture->nics[i].w) continue;
        if (i % (all + 1) == all) {
            put_device(d, d->picture->nics[i], "nic", "network", "card not known");
            continue;
        }
        const rd_peripheral *nic = rd_machine_nic(d->view->machine, i % (all + 1));
        snprintf(second, sizeof second, "%s%.4g Gb/s%s", nic->guessed ? "~" : "", nic->mbit / 1000.0,
                 nic->up ? "" : ", down");
        put_device(d, d->picture->nics[i], nic->up ? "nic" : "nic down", nic->name, second);
    }
}

/* ---- The ring ---- */

static point middle(rd_box box)
{
    return (point){box.x + box.w / 2.0, box.y + box.h / 2.0};
}

/* Where the line from the middle of a box towards `to` leaves it. */
static point edge(rd_box box, point to)
{
    point from = middle(box);
    double dx = to.x - from.x, dy = to.y - from.y;
    double across = dx ? box.w / 2.0 / fabs(dx) : 1e9, along = dy ? box.h / 2.0 / fabs(dy) : 1e9;
    double part = across < along ? across : along;
    return (point){from.x + dx * part, from.y + dy * part};
}

static void begin_way(const drawing *d, bool slow)
{
    fprintf(d->file, "<path class=\"%s\" marker-end=\"url(#%s)\" d=\"", slow ? "slow" : "hop",
            slow ? "redhead" : "head");
}

static void draw_line(const drawing *d, const point *points, int count, bool slow)
{
    begin_way(d, slow);
    for (int i = 0; i < count; i++)
        fprintf(d->file, "%s%.1f %.1f", i ? " L" : "M", d->x + points[i].x, d->y + points[i].y);
    fputs("\"/>\n", d->file);
}

/* Within a host. To the box beside or below straight; past boxes of the same column on their right; else bowed, upwards
 * over boxes of the same row, so that it lies in the gap between rows. */
static void draw_way(const drawing *d, rd_box from, rd_box to, bool slow)
{
    point a = middle(from), b = middle(to);
    double dx = b.x - a.x, dy = b.y - a.y, far = hypot(dx, dy), bow = far * 0.22 < 72 ? far * 0.22 : 72;
    if (far < 1) return;
    if ((fabs(dx) < 1 && fabs(dy) < 1.8 * from.h) || (fabs(dy) < 1 && fabs(dx) < 1.8 * from.w)) {
        draw_line(d, (point[]){edge(from, b), edge(to, a)}, 2, slow);
        return;
    }
    if (fabs(dx) < 1) {
        double right = from.x + from.w, lane = right + 12;
        draw_line(d, (point[]){{right, a.y + 6}, {lane, a.y + 6}, {lane, b.y - 6}, {right, b.y - 6}}, 4, slow);
        return;
    }
    point bend = {(a.x + b.x) / 2, (a.y + b.y) / 2 - bow};
    if (fabs(dy) >= from.h) bend = (point){(a.x + b.x) / 2 + dy / far * bow, (a.y + b.y) / 2 - dx / far * bow};
    a = edge(from, bend);
    b = edge(to, bend);
    begin_way(d, slow);
    fprintf(d->file, "M%.1f %.1f Q%.1f %.1f %.1f %.1f\"/>\n", d->x + a.x, d->y + a.y, d->x + bend.x, d->y + bend.y,
            d->x + b.x, d->y + b.y);
}

/* Between a rank and a card of its host: beside the rank's column, on the right to the card, on the left from it, and
 * then along the upper edge of the cards. */
static void draw_to_card(const drawing *d, rd_box rank, rd_box card, bool leaves, bool slow)
{
    double side = leaves ? rank.x + rank.w : rank.x, lane = side + (leaves ? 9 : -9), y = rank.y + rank.h / 2.0;
    double over = card.y - (leaves ? 6 : 10), x = card.x + card.w * (leaves ? 0.7 : 0.3);
    point way[] = {{side, y + 7}, {lane, y + 7}, {lane, over}, {x, over}, {x, card.y}};
    point back[] = {way[4], way[3], way[2], way[1], way[0]};
    draw_line(d, leaves ? way : back, 5, slow);
}

/* From a card to one of another host, below the hosts; to one in another row down or up to the left of that host. Each
 * of the three kinds has a lane of its own. */
static void draw_to_host(const drawing *d, int from, rd_box out, int to, rd_box in, bool slow)
{
    const rd_picture *p = d->picture;
    double x = out.x + out.w * 0.6, there = in.x + in.w * 0.4, y = p->below[from], y_there = p->below[to];
    if (y == y_there) {
        double lane = y + (to == from + 1 ? 12 : 24);
        point way[] = {{x, out.y + out.h}, {x, lane}, {there, lane}, {there, in.y + in.h}};
        draw_line(d, way, 4, slow);
        return;
    }
    double lane = y + (y < y_there ? 36 : 48), lane_there = y_there + (y < y_there ? 36 : 48);
    double left = p->hosts[to].x - (y < y_there ? 8 : 18);
    point way[] = {{x, out.y + out.h}, {x, lane},           {left, lane},
                   {left, lane_there}, {there, lane_there}, {there, in.y + in.h}};
    draw_line(d, way, 6, slow);
}

static bool alike(rd_link a, rd_link b)
{
    return rd_link_cost(a, 1) == rd_link_cost(b, 1);
}

/* Every hop that takes as long as the slowest, unless all do. */
static bool is_slow(const drawing *d, const rd_hop *hop)
{
    const rd_hop *hops = rd_topo_hops(d->view, d->channel), *slowest = rd_rings_slowest(&d->view->rings, d->channel);
    bool all = true;
    for (int i = 1; i < d->view->ranks; i++) all = all && alike(hops[i].link, hops[0].link);
    return slowest && !all && alike(hop->link, slowest->link);
}

/* From rank to rank, between hosts by the two cards; slow ones last, so that they lie on top. */
static void draw_ring(const drawing *d)
{
    const rd_picture *p = d->picture;
    for (int slow = 0; slow <= 1; slow++) {
        for (int i = 0; i < d->view->ranks && d->view->ranks > 1; i++) {
            const rd_hop *hop = &rd_topo_hops(d->view, d->channel)[i];
            if (is_slow(d, hop) != slow) continue;
            int host = d->view->seats[hop->from].host, next = d->view->seats[hop->to].host;
            if (host == next) {
                draw_way(d, p->ranks[hop->from], p->ranks[hop->to], slow);
                continue;
            }
            rd_box out = rd_picture_card(p, hop->from, hop->nic), in = rd_picture_card(p, hop->to, hop->nic_there);
            draw_to_card(d, p->ranks[hop->from], out, true, slow);
            draw_to_host(d, host, out, next, in, slow);
            draw_to_card(d, p->ranks[hop->to], in, false, slow);
        }
    }
}

/* Two lines above a ring. */
static void draw_head(const drawing *d)
{
    const rd_hop *slowest = rd_rings_slowest(&d->view->rings, d->channel);
    drawing head = *d;
    char text[160], rate[24];
    head.y -= PANEL_HEAD;
    snprintf(text, sizeof text, "channel %d: 64 KiB take %.1f us once round", d->channel,
             (double)rd_topo_cost(d->view, d->channel) / 1000);
    put_text(&head, 0, 14, "strong", text);
    if (!slowest) return;
    if (is_slow(d, slowest))
        snprintf(text, sizeof text, "in red the slowest hop: rank %d to rank %d, %s, %s", slowest->from, slowest->to,
                 rd_link_name(slowest->link.kind), rd_topo_rate(slowest->link.mbs, rate));
    else
        snprintf(text, sizeof text, "all hops alike: %s, %s", rd_link_name(slowest->link.kind),
                 rd_topo_rate(slowest->link.mbs, rate));
    put_text(&head, 0, 30, "small", text);
}

static void draw_panel(const drawing *d)
{
    draw_head(d);
    draw_frames(d);
    draw_ring(d); /* under the boxes: a way that passes one hides behind it, and no label is crossed */
    draw_ranks(d);
    draw_nics(d);
}

/* ---- The file ---- */

static void draw_legend(const drawing *d)
{
    static const char *const entries[][2] = {
        {"cpu", "rank on a core"}, {"gpu", "rank on a GPU"}, {"idle", "GPU without a rank"}, {"nic", "network card"}};
    for (int i = 0; i < 4; i++) {
        put_box(d, (rd_box){i * 140, 0, 16, 14}, entries[i][0], 3);
        put_text(d, i * 140 + 22, 12, "small", entries[i][1]);
    }
}

static void draw(FILE *file, const rd_picture *picture)
{
    const rd_topo_view *v = picture->view;
    int channels = v->rings.channels, panel = PANEL_HEAD + picture->h + MARGIN,
        w = picture->w < LEAST_W ? LEAST_W : picture->w;
    int h = HEAD + channels * panel + LEGEND;
    drawing d = {.file = file, .picture = picture, .view = v, .x = MARGIN};
    char text[320];
    fprintf(file, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n",
            w + 2 * MARGIN, h, w + 2 * MARGIN, h);
    fputs(style, file);
    fprintf(file, "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n");
    snprintf(text, sizeof text, "%d rank%s on %d host%s", v->ranks, v->ranks == 1 ? "" : "s", v->hosts,
             v->hosts == 1 ? "" : "s");
    put_text(&d, 0, 30, "title", text);
    snprintf(text, sizeof text, "%s%s%s", v->name, *v->name ? ", " : "", v->summary);
    put_text(&d, 0, 50, "small", text);
    for (d.channel = 0; d.channel < channels; d.channel++) {
        d.y = HEAD + d.channel * panel + PANEL_HEAD;
        draw_panel(&d);
    }
    d.y = HEAD + channels * panel;
    draw_legend(&d);
    fputs("</svg>\n", file);
}

rondo_result rd_topo_write_svg(const rd_topo_view *view, const char *path)
{
    rd_picture picture;
    rondo_result result = rd_picture_lay_out(&picture, view);
    FILE *file = NULL;
    if (result == RONDO_SUCCESS && !(file = fopen(path, "we"))) result = rd_fail_errno("--svg: cannot write %s", path);
    if (file) {
        draw(file, &picture);
        bool failed = ferror(file);
        if (fclose(file) || failed) result = rd_fail_errno("--svg: cannot write all of %s", path);
    }
    rd_picture_free(&picture);
    return result;
}
