// SPDX-License-Identifier: Apache-2.0
// The sim port: a virtual network of hosts, links with faults, and a queue of arrivals.
#include "port/simnet.h"

#include "base/prng.h"
#include "wire/roce.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

// BTH byte 4 (FECN, BECN, reserved) is outside the ICRC: a change there is no corruption.
enum {
    UNCOVERED_BYTE = 4,
    HEAP_FIRST = 256,
    FRAME_MIN = VB_BTH_BYTES + VB_ICRC_BYTES,
    // Of Linux' socket buffers: the descriptor, and beside the bytes the room before them, the
    // other headers and the descriptor's second half, in a power of two.
    SKB_BYTES = 256,
    SKB_BESIDES = 64 + 42 + 320,
    HOP_LIMIT = 64, // unless the path says otherwise
};

struct packet {
    struct packet *next; // in an inbox or the free list
    struct vb_ip src;
    struct vb_path_attr attr;
    uint32_t from; // host, or VB_SIMNET_HOSTS for an injected frame
    uint32_t to;
    uint16_t src_port;
    uint16_t burst_index;
    bool corrupted;
    bool ecn, ce;
    bool funneled; // it is behind the funnel
    bool buffered; // waits in the receiver's socket buffer
    uint32_t len;
    uint8_t bytes[VB_FRAME_MAX];
};

// Arrivals at one instant keep the order in which they were sent.
struct arrival {
    uint64_t at_ns;
    uint64_t order;
    struct packet *packet;
};

struct link {
    struct vb_simnet_link shape;
    uint64_t cut_until_ns;
    uint64_t busy_until_ns; // when the last accepted frame has left the sender
    uint64_t last_at_ns;    // arrival of the last frame that kept its order
    struct vb_path check;   // ICRC flow of the last source port seen
    bool check_valid;
};

struct host {
    struct vb_port port; // first: ports are downcast to hosts
    struct vb_simnet *net;
    struct vb_simnet_host opts;
    uint32_t index;
    struct vb_simnet_funnel funnel;
    uint64_t funnel_busy_ns; // until the last accepted frame has left it
    struct packet *inbox, **inbox_end;
    uint32_t inbox_count;
    struct packet *lent; // handed out by the last receive
    uint64_t rx_busy_until_ns;
    uint64_t rx_charged; // bytes of the buffer in use
};

struct vb_simnet {
    struct vb_prng prng;
    uint64_t now_ns;
    uint64_t order;
    struct arrival *heap;
    size_t heap_count, heap_room;
    struct packet *free_packets;
    struct host *hosts[VB_SIMNET_HOSTS];
    uint32_t host_count;
    struct link links[VB_SIMNET_HOSTS][VB_SIMNET_HOSTS];
    struct vb_simnet_stats stats;
    vb_simnet_watcher *watcher;
    void *watcher_ctx;
};

static bool before(const struct arrival *a, const struct arrival *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static bool heap_push(struct vb_simnet *net, struct arrival a)
{
    if (net->heap_count == net->heap_room) {
        size_t room = net->heap_room ? net->heap_room * 2 : HEAP_FIRST;
        struct arrival *heap = realloc(net->heap, room * sizeof *heap);
        if (!heap)
            return false;
        net->heap = heap;
        net->heap_room = room;
    }
    size_t i = net->heap_count++;
    for (; i > 0 && before(&a, &net->heap[(i - 1) / 2]); i = (i - 1) / 2)
        net->heap[i] = net->heap[(i - 1) / 2];
    net->heap[i] = a;
    return true;
}

static struct packet *heap_pop(struct vb_simnet *net)
{
    struct packet *first = net->heap[0].packet;
    struct arrival last = net->heap[--net->heap_count];
    size_t i = 0;

    for (size_t child; (child = 2 * i + 1) < net->heap_count; i = child) {
        if (child + 1 < net->heap_count && before(&net->heap[child + 1], &net->heap[child]))
            child++;
        if (!before(&net->heap[child], &last))
            break;
        net->heap[i] = net->heap[child];
    }
    net->heap[i] = last;
    return first;
}

// All but the frame's bytes is zero.
static struct packet *packet_get(struct vb_simnet *net)
{
    struct packet *p = net->free_packets;
    if (p)
        net->free_packets = p->next;
    else
        p = malloc(sizeof *p);
    if (p)
        memset(p, 0, offsetof(struct packet, bytes));
    return p;
}

static void packet_put(struct vb_simnet *net, struct packet *p)
{
    p->next = net->free_packets;
    net->free_packets = p;
}

static void tell(const struct vb_simnet *net, const struct packet *p, enum vb_simnet_fate fate)
{
    if (net->watcher)
        net->watcher(net->watcher_ctx, fate, &p->src, &net->hosts[p->to]->opts.ip, p->bytes,
                     p->len);
}

// A packet that was spoiled has been told of already.
static void drop(struct vb_simnet *net, struct packet *p)
{
    if (!p->corrupted)
        tell(net, p, VB_SIMNET_DROPPED);
    packet_put(net, p);
}

void vb_simnet_watch(struct vb_simnet *net, vb_simnet_watcher *watcher, void *ctx)
{
    net->watcher = watcher;
    net->watcher_ctx = ctx;
}

static void free_list(struct packet *p)
{
    for (struct packet *next; p; p = next) {
        next = p->next;
        free(p);
    }
}

struct vb_simnet *vb_simnet_create(uint64_t seed)
{
    struct vb_simnet *net = calloc(1, sizeof *net);
    if (net)
        net->prng.state = seed;
    return net;
}

void vb_simnet_destroy(struct vb_simnet *net)
{
    if (!net)
        return;
    for (size_t i = 0; i < net->heap_count; i++)
        free(net->heap[i].packet);
    for (uint32_t i = 0; i < net->host_count; i++) {
        free_list(net->hosts[i]->inbox);
        free_list(net->hosts[i]->lent);
        free(net->hosts[i]);
    }
    free_list(net->free_packets);
    free(net->heap);
    free(net);
}

// ---- sending

// Time the frame has left the sender, UINT64_MAX: no room in the queue.
static uint64_t serialize(struct vb_simnet *net, struct link *link, uint32_t len)
{
    uint32_t rate = link->shape.bytes_per_us;
    if (rate == 0)
        return net->now_ns;
    uint64_t start = link->busy_until_ns > net->now_ns ? link->busy_until_ns : net->now_ns;
    uint64_t waiting_bytes = (start - net->now_ns) * rate / 1000;
    if (waiting_bytes + len > link->shape.queue_bytes && waiting_bytes > 0)
        return UINT64_MAX;
    link->busy_until_ns = start + (uint64_t)len * 1000 / rate;
    return link->busy_until_ns;
}

// Flips a few bytes in a row, or cuts the frame's end off.
static void corrupt(struct vb_simnet *net, struct packet *p)
{
    net->stats.corrupted++;
    if (vb_prng_below(&net->prng, 16) == 0) {
        tell(net, p, VB_SIMNET_DROPPED);
        p->len = (uint32_t)vb_prng_range(&net->prng, 1, p->len - 1);
        p->corrupted = true;
        return;
    }
    uint32_t at = (uint32_t)vb_prng_below(&net->prng, p->len);
    uint32_t n = (uint32_t)vb_prng_range(&net->prng, 1, 4);
    p->corrupted = at != UNCOVERED_BYTE || n > 1;
    if (p->corrupted)
        tell(net, p, VB_SIMNET_DROPPED);
    for (; n > 0 && at < p->len; n--, at++)
        p->bytes[at] ^= (uint8_t)vb_prng_range(&net->prng, 1, 255);
}

// Draws the delay and queues the arrival. Takes the packet.
static void launch(struct vb_simnet *net, struct link *link, struct packet *p, uint64_t left_ns)
{
    const struct vb_simnet_link *shape = &link->shape;
    uint64_t at = left_ns + shape->delay_ns;

    if (shape->jitter_ns)
        at += vb_prng_below(&net->prng, shape->jitter_ns + 1);
    if (shape->reorder_ns && vb_prng_chance(&net->prng, shape->reorder_ppm)) {
        at += vb_prng_range(&net->prng, 1, shape->reorder_ns);
        net->stats.reordered++;
    } else {
        if (at < link->last_at_ns)
            at = link->last_at_ns;
        link->last_at_ns = at;
    }
    if (vb_prng_chance(&net->prng, shape->corrupt_ppm))
        corrupt(net, p);
    if (!heap_push(net, (struct arrival){at, net->order++, p}))
        drop(net, p);
}

static struct packet *packet_copy(struct vb_simnet *net, const struct packet *p)
{
    struct packet *copy = packet_get(net);
    if (copy)
        memcpy(copy, p, offsetof(struct packet, bytes) + p->len);
    return copy;
}

// Takes the packet, which is sealed.
static void transmit(struct vb_simnet *net, struct packet *p)
{
    struct link *link = &net->links[p->from][p->to];

    net->stats.sent++;
    if (net->now_ns < link->cut_until_ns) {
        net->stats.cut++;
        drop(net, p);
        return;
    }
    uint64_t left_ns = serialize(net, link, p->len);
    if (left_ns == UINT64_MAX || vb_prng_chance(&net->prng, link->shape.loss_ppm)) {
        *(left_ns == UINT64_MAX ? &net->stats.tail_dropped : &net->stats.lost) += 1;
        drop(net, p);
        return;
    }
    if (p->ecn && link->shape.mark_ppm && vb_prng_chance(&net->prng, link->shape.mark_ppm)) {
        p->ce = true;
        net->stats.marked++;
    }
    if (vb_prng_chance(&net->prng, link->shape.duplicate_ppm)) {
        struct packet *copy = packet_copy(net, p);
        if (copy) {
            net->stats.duplicated++;
            tell(net, p, VB_SIMNET_DOUBLED);
            launch(net, link, copy, left_ns);
        }
    }
    launch(net, link, p, left_ns);
}

static struct host *find_host(struct vb_simnet *net, const struct vb_ip *ip)
{
    for (uint32_t i = 0; i < net->host_count; i++)
        if (vb_ip_equal(&net->hosts[i]->opts.ip, ip))
            return net->hosts[i];
    return NULL;
}

static void send_one(struct host *from, const struct vb_txq *txq, const struct vb_tx_frame *frame,
                     uint16_t burst_index)
{
    struct vb_simnet *net = from->net;
    struct host *to = find_host(net, &frame->path->remote);
    struct packet *p = to ? packet_get(net) : NULL;

    if (!p) {
        net->stats.unroutable++;
        from->port.stats.tx_errors++;
        return;
    }
    assert(frame->len >= FRAME_MIN && frame->len <= VB_FRAME_MAX);
    p->src = from->opts.ip;
    p->from = from->index;
    p->to = to->index;
    p->src_port = frame->path->src_port;
    p->burst_index = burst_index;
    p->attr = frame->path->attr;
    p->ecn = from->opts.ecn;
    p->len = frame->len;
    vb_tx_copy(txq, frame, p->bytes);
    uint16_t id = from->opts.random_ids ? (uint16_t)vb_prng_next(&net->prng) : burst_index;
    vb_icrc_seal(&frame->path->icrc, id, p->bytes, p->len);
    transmit(net, p);
}

// Runs of equal frames on one path are one burst, as the udp port sends them.
static void host_send(struct vb_port *port, struct vb_txq *txq)
{
    struct host *h = (struct host *)port;
    uint32_t stop = txq->count;
    uint16_t index = 0;

    if (txq->taken < stop && vb_prng_chance(&h->net->prng, h->opts.stall_ppm))
        stop = txq->taken + (uint32_t)vb_prng_below(&h->net->prng, stop - txq->taken);
    for (; txq->taken < stop; txq->taken++) {
        const struct vb_tx_frame *f = &txq->frame[txq->taken];
        send_one(h, txq, f, index);
        bool same = txq->taken + 1 < stop && f[1].path == f->path && f[1].len == f->len;
        index = same ? (uint16_t)((index + 1) % 64) : 0;
    }
}

// ---- receiving

static struct vb_icrc_flow *check_flow(struct vb_simnet *net, const struct packet *p,
                                       struct vb_path *scratch)
{
    const struct vb_ip *dst = &net->hosts[p->to]->opts.ip;

    if (p->from == VB_SIMNET_HOSTS) {
        vb_path_init(scratch, &p->src, dst, p->src_port);
        return &scratch->icrc;
    }
    struct link *link = &net->links[p->from][p->to];
    if (!link->check_valid || link->check.src_port != p->src_port) {
        vb_path_init(&link->check, &p->src, dst, p->src_port);
        link->check_valid = true;
    }
    return &link->check.icrc;
}

static bool accept_packet(struct vb_simnet *net, struct packet *p)
{
    struct host *to = net->hosts[p->to];
    bool merged = vb_prng_chance(&net->prng, to->opts.merge_ppm);
    struct vb_path scratch;
    uint16_t id;
    enum vb_icrc_verdict verdict = vb_icrc_check(
        check_flow(net, p, &scratch), merged ? p->burst_index : 0, p->bytes, p->len, &id);

    if (verdict == VB_ICRC_BAD) {
        to->port.stats.rx_bad_icrc++;
        return false;
    }
    if (p->corrupted) {
        // One in 65,536 gets here; the UDP checksum, which is not simulated, is the other guard.
        net->stats.false_passes++;
        return false;
    }
    if (verdict == VB_ICRC_SOLVED)
        to->port.stats.rx_solved_icrc++;
    return true;
}

uint32_t vb_simnet_charge(uint32_t len)
{
    uint32_t bytes = 512;
    while (bytes < len + SKB_BESIDES)
        bytes *= 2;
    return SKB_BYTES + bytes;
}

// A buffer that is not over its limit takes one more, whatever its size, as the system's do.
static void buffer(struct vb_simnet *net, struct host *to, struct packet *p)
{
    uint64_t start = to->rx_busy_until_ns > net->now_ns ? to->rx_busy_until_ns : net->now_ns;
    uint64_t left_ns = start + (uint64_t)p->len * 1000 / to->opts.rx_bytes_per_us;

    p->buffered = true;
    if (to->rx_charged > to->opts.rx_buffer_bytes) {
        net->stats.overflowed++;
        drop(net, p);
    } else if (!heap_push(net, (struct arrival){left_ns, net->order++, p})) {
        drop(net, p);
    } else {
        to->rx_busy_until_ns = left_ns;
        to->rx_charged += vb_simnet_charge(p->len);
    }
}

static void deliver(struct vb_simnet *net, struct packet *p)
{
    struct host *to = net->hosts[p->to];

    if (to->opts.rx_bytes_per_us && !p->buffered) {
        buffer(net, to, p);
        return;
    }
    if (p->buffered)
        to->rx_charged -= vb_simnet_charge(p->len);
    if (!accept_packet(net, p)) {
        drop(net, p);
        return;
    }
    net->stats.delivered++;
    p->next = NULL;
    *to->inbox_end = p;
    to->inbox_end = &p->next;
    to->inbox_count++;
}

// Whether a frame that finds so many bytes waiting is marked.
static bool marks(struct vb_simnet *net, const struct vb_simnet_funnel *f, uint64_t waiting_bytes)
{
    if (waiting_bytes < f->mark_min_bytes || f->mark_max_bytes == 0)
        return false;
    if (waiting_bytes >= f->mark_max_bytes)
        return true;
    uint64_t part = (waiting_bytes - f->mark_min_bytes) * f->mark_max_ppm /
                    (f->mark_max_bytes - f->mark_min_bytes);
    return vb_prng_chance(&net->prng, (uint32_t)part);
}

// A frame reaches the switch: it waits there, or is dropped. False: there is no funnel for it.
static bool funnel(struct vb_simnet *net, struct packet *p, uint64_t at_ns)
{
    struct host *to = net->hosts[p->to];
    const struct vb_simnet_funnel *f = &to->funnel;

    if (f->bytes_per_us == 0 || p->funneled)
        return false;
    uint64_t start = to->funnel_busy_ns > at_ns ? to->funnel_busy_ns : at_ns;
    uint64_t waiting_bytes = (start - at_ns) * f->bytes_per_us / 1000;
    bool full = waiting_bytes + p->len > f->queue_bytes && waiting_bytes > 0;
    if (!full) {
        to->funnel_busy_ns = start + (uint64_t)p->len * 1000 / f->bytes_per_us;
        p->funneled = true;
        if (p->ecn && marks(net, f, waiting_bytes)) {
            p->ce = true;
            net->stats.marked++;
        }
        if (waiting_bytes > net->stats.funnel_bytes_max)
            net->stats.funnel_bytes_max = waiting_bytes;
    }
    net->stats.tail_dropped += full;
    if (full || !heap_push(net, (struct arrival){to->funnel_busy_ns, net->order++, p}))
        drop(net, p);
    return true;
}

static void return_lent(struct host *h)
{
    for (struct packet *p = h->lent, *next; p; p = next) {
        next = p->next;
        packet_put(h->net, p);
    }
    h->lent = NULL;
}

// Of a packet that came by a network of switches: nobody has taken anything off the hop limit.
static uint8_t hop_limit_of(const struct packet *p)
{
    return p->attr.hop_limit ? p->attr.hop_limit : HOP_LIMIT;
}

static uint8_t class_of(const struct packet *p)
{
    uint8_t ecn = p->ce ? 3 : 2;

    return p->ecn ? (uint8_t)((p->attr.traffic_class & ~3) | ecn) : p->attr.traffic_class;
}

static uint32_t host_receive(struct vb_port *port, struct vb_rx_frame *frames)
{
    struct host *h = (struct host *)port;
    uint32_t count = 0;

    return_lent(h);
    if (!h->inbox)
        return 0;
    uint32_t batch = (uint32_t)vb_prng_range(&h->net->prng, 1, h->opts.batch_max);
    struct packet **end = &h->inbox;
    for (; count < batch && *end; count++, end = &(*end)->next)
        frames[count] = (struct vb_rx_frame){.data = (*end)->bytes,
                                             .head = (*end)->bytes,
                                             .len = (*end)->len,
                                             .src = (*end)->src,
                                             .flow_label = (*end)->attr.flow_label,
                                             .traffic_class = class_of(*end),
                                             .hop_limit = hop_limit_of(*end),
                                             .ce = (*end)->ce};
    h->lent = h->inbox;
    h->inbox = *end;
    *end = NULL;
    h->inbox_count -= count;
    if (!h->inbox)
        h->inbox_end = &h->inbox;
    return count;
}

// The host stays on the network, silent, until the network is destroyed.
static void host_close(struct vb_port *port)
{
    return_lent((struct host *)port);
}

static const struct vb_port_ops host_ops = {
    .send = host_send, .receive = host_receive, .close = host_close};

int vb_simnet_attach(struct vb_simnet *net, const struct vb_simnet_host *opts,
                     struct vb_port **port)
{
    if (opts->batch_max < 1 || opts->batch_max > VB_PORT_RX_BATCH)
        return -EINVAL;
    if (net->host_count == VB_SIMNET_HOSTS)
        return -ENOSPC;
    if (find_host(net, &opts->ip))
        return -EEXIST;
    struct host *h = calloc(1, sizeof *h);
    if (!h)
        return -ENOMEM;
    h->port = (struct vb_port){.ops = &host_ops, .local = opts->ip, .src_port = opts->src_port};
    h->net = net;
    h->opts = *opts;
    h->inbox_end = &h->inbox;
    h->index = net->host_count;
    net->hosts[net->host_count++] = h;
    *port = &h->port;
    return 0;
}

void vb_simnet_shape(struct vb_simnet *net, uint32_t from, uint32_t to,
                     const struct vb_simnet_link *link)
{
    net->links[from][to].shape = *link;
}

void vb_simnet_funnel(struct vb_simnet *net, uint32_t to, const struct vb_simnet_funnel *f)
{
    net->hosts[to]->funnel = *f;
}

void vb_simnet_cut(struct vb_simnet *net, uint32_t from, uint32_t to, uint64_t until_ns)
{
    net->links[from][to].cut_until_ns = until_ns;
}

static void heal_link(struct link *link)
{
    struct vb_simnet_link *s = &link->shape;
    s->loss_ppm = s->duplicate_ppm = s->reorder_ppm = s->corrupt_ppm = 0;
    s->queue_bytes = UINT32_MAX;
    s->bytes_per_us = 0; // or a long answer takes longer than a short timeout
    link->cut_until_ns = 0;
}

void vb_simnet_heal(struct vb_simnet *net)
{
    for (uint32_t a = 0; a < net->host_count; a++) {
        net->hosts[a]->opts.stall_ppm = 0;
        for (uint32_t b = 0; b < net->host_count; b++)
            heal_link(&net->links[a][b]);
    }
}

int vb_simnet_inject(struct vb_simnet *net, const struct vb_ip *src, const struct vb_ip *dst,
                     uint16_t src_port, const uint8_t *frame, uint32_t len)
{
    struct host *to = find_host(net, dst);
    struct vb_path path;

    if (!to)
        return -ENOENT;
    if (len < FRAME_MIN || len > VB_FRAME_MAX)
        return -EINVAL;
    struct packet *p = packet_get(net);
    if (!p)
        return -ENOMEM;
    p->src = *src;
    p->from = VB_SIMNET_HOSTS;
    p->to = to->index;
    p->src_port = src_port;
    p->len = len;
    memcpy(p->bytes, frame, len);
    vb_path_init(&path, src, dst, src_port);
    vb_icrc_seal(&path.icrc, 0, p->bytes, len);
    net->stats.injected++;
    deliver(net, p);
    return 0;
}

void vb_simnet_advance(struct vb_simnet *net, uint64_t now_ns)
{
    assert(now_ns >= net->now_ns);
    net->now_ns = now_ns;
    while (net->heap_count > 0 && net->heap[0].at_ns <= now_ns) {
        uint64_t at_ns = net->heap[0].at_ns;
        struct packet *p = heap_pop(net);
        if (!funnel(net, p, at_ns))
            deliver(net, p);
    }
}

uint64_t vb_simnet_next(const struct vb_simnet *net)
{
    return net->heap_count ? net->heap[0].at_ns : UINT64_MAX;
}

uint32_t vb_simnet_waiting(const struct vb_simnet *net, uint32_t host)
{
    return net->hosts[host]->inbox_count;
}

uint64_t vb_simnet_in_flight(const struct vb_simnet *net)
{
    return net->heap_count;
}

const struct vb_simnet_stats *vb_simnet_stats(const struct vb_simnet *net)
{
    return &net->stats;
}
