// SPDX-License-Identifier: Apache-2.0
// A picture of a run: time from left to right, a lane for each queue and one for the clients.
#include "base/least.h"
#include "cost/model.h"
#include "cost/page.h"

enum {
    LEFT = 110,
    WIDTH = 1200, // of the lanes
    TOP = 58,
    ROW = 16,
    ROWS = 4, // of a lane: neighbours do not lie on each other
    LANE = ROWS * ROW + 18,
    SHOWN = 400, // entries
    TICKS = 10,
};

static const struct {
    const char *name, *colour;
} parts[] = {
    {"fetch", "#9a9a9a"}, {"wait", "#dddddd"},    {"issue", "#3b6ea5"},
    {"PCIe", "#d98c2b"},  {"network", "#5a9a5a"},
};

enum {
    PARTS = sizeof parts / sizeof *parts
};

struct view {
    struct vb_page page;
    double scale; // picture per picosecond
    uint64_t end_ps;
    uint32_t lanes; // so far
};

static double x_of(const struct view *v, uint64_t ps)
{
    return LEFT + (double)ps * v->scale;
}

static void put_text(struct view *v, double x, double y, const char *anchor, const char *text)
{
    vb_page_put(&v->page, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
                anchor, text);
}

static void put_entry(struct view *v, const struct vb_cost_entry *t, double y)
{
    const uint64_t length[PARTS] = {t->fetch_ps, t->wait_ps, t->issue_ps, t->pcie_ps,
                                    t->network_ps};
    uint64_t at = t->at_ps;

    vb_page_put(&v->page, "<g><title>%s: %.3f to %.3f us</title>\n", t->name,
                (double)t->at_ps / 1e6, (double)t->done_ps / 1e6);
    for (int i = 0; i < PARTS; i++) {
        if (length[i])
            vb_page_put(&v->page,
                        "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>\n",
                        x_of(v, at), y, (double)length[i] * v->scale, ROW - 4, parts[i].colour);
        at += length[i];
    }
    if (t->critical)
        vb_page_put(&v->page,
                    "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"none\" "
                    "stroke=\"#b02020\"/>\n",
                    x_of(v, t->at_ps), y, (double)(t->done_ps - t->at_ps) * v->scale, ROW - 4);
    vb_page_put(&v->page, "</g>\n");
}

// Lane 0 is the clients', the others are the queues'.
static void put_lane(struct view *v, const struct vb_cost *c, uint32_t lane, uint32_t shown)
{
    double y = TOP + (double)v->lanes++ * LANE;
    uint32_t n = 0;

    put_text(v, LEFT - 10, y + ROWS * ROW / 2.0, "end",
             lane == 0 ? "clients" : c->queue[lane - 1].name);
    vb_page_put(&v->page,
                "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#888888\"/>\n", LEFT,
                LEFT + WIDTH, y + ROWS * ROW + 4, y + ROWS * ROW + 4);
    for (uint32_t i = 0; i < shown; i++) {
        const struct vb_charge *e = &c->charge[i];
        if ((e->times.message ? 0 : e->queue + 1) == lane)
            put_entry(v, &e->times, y + (double)(n++ % ROWS) * ROW);
    }
}

static void put_axis(struct view *v)
{
    double bottom = TOP + (double)v->lanes * LANE + 12;

    for (int i = 0; i <= TICKS; i++) {
        double us = (double)v->end_ps / 1e6 * i / TICKS;
        vb_page_put(&v->page, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.2f</text>\n",
                    LEFT + (double)WIDTH * i / TICKS, bottom, us);
    }
    put_text(v, LEFT - 10, bottom, "end", "us");
    for (int i = 0; i < PARTS; i++) {
        vb_page_put(&v->page, "<rect x=\"%d\" y=\"32\" width=\"12\" height=\"12\" fill=\"%s\"/>\n",
                    LEFT + i * 90, parts[i].colour);
        put_text(v, LEFT + i * 90 + 16, 42, "start", parts[i].name);
    }
}

char *vb_cost_svg(const struct vb_cost *c)
{
    uint32_t lanes = c->queues + (c->messages > 0), shown = (uint32_t)vb_least(c->charges, SHOWN);
    struct view v = {0};

    for (uint32_t i = 0; i < shown; i++)
        v.end_ps = vb_most(v.end_ps, c->charge[i].times.done_ps);
    v.scale = v.end_ps ? (double)WIDTH / (double)v.end_ps : 0;
    int height = TOP + (int)lanes * LANE + 30;
    vb_page_put(&v.page,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                "font-family=\"sans-serif\" font-size=\"12\">\n"
                "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                LEFT + WIDTH + 40, height);
    vb_page_put(&v.page, "<text x=\"%d\" y=\"18\">%s on %s%s</text>\n", LEFT, c->name,
                c->preset.name, shown < c->charges ? " (the first 400 entries)" : "");
    for (uint32_t i = c->messages == 0; i <= c->queues; i++)
        put_lane(&v, c, i, shown);
    put_axis(&v);
    vb_page_put(&v.page, "</svg>\n");
    return vb_page_take(&v.page);
}
