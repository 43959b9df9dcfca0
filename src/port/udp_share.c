// SPDX-License-Identifier: Apache-2.0
// Sharing an address: who comes, goes and dies there, and the order of sockets that follows.
#include "port/udp_share.h"

#include "base/bytes.h"
#include "port/clock.h"
#include "port/udp.h"
#include "port/udp_state.h"
#include "port/udp_steer.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TICK_NS    200000000ull // between two signs of life
#define SILENT_NS  500000000ull // after which a NIC counts as stopped
#define MEND_NS    20000000ull  // between two repairs for doubt alone
#define LOCK_TRIES 3000         // of a millisecond; a crowd may be coming, one at a time

enum {
    PROBE_SECRET_AT = 12,
    PROBE_TIME_AT = 20,
    PROBE_BYTES = 32,
    PROBE_QPN = 0xfffffe, // in the range that is nobody's
    PROBE_TRIES = 100,    // to take the lock
    PROBE_MORE = 8,       // places behind those we know of
};

struct udp_order {
    struct registry_member member[REGISTRY_SLOTS]; // those alive first
    uint32_t live, count;
    uint32_t gone[REGISTRY_INDEX_MAX]; // sockets that are closed
    struct sock_filter code[UDP_STEER_CODE];
};

static struct registry_slot *own_slot(struct udp_share *s)
{
    return &s->registry.file->slot[s->registry.slot];
}

// What a slot says of this address.
static struct registry_site *site_of(struct udp_share *s, const struct registry_member *m)
{
    return &s->registry.file->slot[m->slot].site[m->site];
}

static struct registry_site *own_site(struct udp_share *s)
{
    return &own_slot(s)->site[s->registry.site];
}

// ---- who is there

static void list_members(struct udp_share *s)
{
    struct udp_order *o = s->order;
    o->count = 0;
    for (uint32_t i = 0; i < REGISTRY_SLOTS; i++)
        if (vb_registry_read_at(&s->registry, i, &s->ip, s->scope, &o->member[o->count]))
            o->count++;
    o->live = o->count;
}

static int by_slot(const void *a, const void *b)
{
    const struct registry_member *x = a, *y = b;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

// Since its last sign of life. That may be younger than our look at the clock.
static uint64_t silent_ns(const struct registry_member *m, uint64_t now_ns)
{
    return m->beat_ns - now_ns < SILENT_NS ? 0 : now_ns - m->beat_ns;
}

// Puts those who died behind those who live, in the order of their slots.
static void part_members(struct udp_share *s)
{
    struct udp_order *o = s->order;
    list_members(s);
    o->live = 0;
    for (uint32_t i = 0; i < o->count; i++) {
        if (!vb_registry_is_alive(&s->registry, o->member[i].slot))
            continue;
        struct registry_member m = o->member[o->live];
        o->member[o->live++] = o->member[i];
        o->member[i] = m;
    }
    qsort(o->member, o->live, sizeof o->member[0], by_slot);
}

static uint32_t count_sockets(const struct registry_member *m, uint32_t count)
{
    uint32_t sockets = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t unit = 0; unit < m[i].units; unit++)
            sockets += m[i].index[unit] != REGISTRY_INDEX_NONE;
    return sockets;
}

static void note_company(struct udp_share *s, bool company, uint64_t now_ns)
{
    if (company && !atomic_load(&s->company))
        atomic_store(&s->tick_ns, now_ns + TICK_NS);
    atomic_store(&s->company, company);
}

// ---- the order of sockets

static void collect_gone(struct udp_order *o, uint32_t first, uint32_t end, uint32_t *gone)
{
    for (uint32_t i = first; i < end; i++)
        for (uint32_t unit = 0; unit < o->member[i].units; unit++)
            if (o->member[i].index[unit] != REGISTRY_INDEX_NONE)
                o->gone[(*gone)++] = o->member[i].index[unit];
}

static void store_order(struct udp_share *s)
{
    const struct udp_order *o = s->order;
    for (uint32_t i = 0; i < o->live; i++)
        for (uint32_t unit = 0; unit < o->member[i].units; unit++)
            atomic_store(&site_of(s, &o->member[i])->index[unit], o->member[i].index[unit]);
}

// Finds out who died, and what that made of the others' places.
static void bury_dead(struct udp_share *s, uint64_t now_ns)
{
    struct udp_order *o = s->order;
    uint32_t gone = 0;
    part_members(s);
    if (o->live == o->count)
        return;
    uint32_t sockets = count_sockets(o->member, o->count);
    collect_gone(o, o->live, o->count, &gone);
    vb_udp_steer_close(o->member, o->live, o->gone, gone, sockets);
    store_order(s);
    for (uint32_t i = o->live; i < o->count; i++)
        vb_registry_bury(&s->registry, o->member[i].slot, o->member[i].site, now_ns);
    o->count = o->live;
}

// One of those who live gets what is nobody's: the one who does already, if it shows signs of life.
static uint32_t choose_rest(struct udp_share *s, uint64_t now_ns)
{
    const struct udp_order *o = s->order;
    uint32_t own = own_site(s)->index[0];
    for (uint32_t i = 0; i < o->live; i++) {
        const struct registry_member *m = &o->member[i];
        bool lives = m->slot == s->registry.slot || silent_ns(m, now_ns) < SILENT_NS;
        if (m->takes_rest && lives && m->index[0] != REGISTRY_INDEX_NONE)
            return m->index[0];
    }
    for (uint32_t i = 0; i < o->live; i++)
        atomic_store(&site_of(s, &o->member[i])->takes_rest, 0);
    atomic_store(&own_site(s)->takes_rest, 1);
    return own;
}

static int attach_code(struct udp_share *s, uint32_t len)
{
    struct udp_order *o = s->order;
    struct sock_fprog program = {(unsigned short)len, o->code};
    if (len == 0)
        return -ENOSPC;
    return setsockopt(s->unit[0]->fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program,
                      sizeof program) < 0
               ? -errno
               : 0;
}

// With as much as the system has room for: what is not steered is sent on.
static int attach(struct udp_share *s, uint64_t now_ns)
{
    struct udp_order *o = s->order;
    struct udp_steer_service service[UDP_STEER_SERVICES];
    uint32_t rest = choose_rest(s, now_ns);
    uint32_t services = vb_udp_manage_services(s, o->member, o->live, service);
    uint32_t len = vb_udp_steer_build_managed(o->code, o->member, o->live, rest, service, services);
    if (attach_code(s, len) == 0)
        return 0;
    return attach_code(s, vb_udp_steer_build(o->code, o->member, o->live, rest));
}

// Asks every socket for its place, by a datagram that the system gives to the one there.
static void probe_all(const struct udp_share *s, uint32_t sockets, uint64_t now_ns)
{
    uint8_t probe[PROBE_BYTES] = {UDP_PROBE_OPCODE};
    int fd = socket(s->at.any.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    vb_put_be24(probe + 5, PROBE_QPN);
    vb_put_be64(probe + PROBE_SECRET_AT, s->registry.file->secret);
    vb_put_be64(probe + PROBE_TIME_AT, now_ns);
    for (uint32_t i = 0; i < sockets; i++) {
        vb_put_be32(probe + UDP_PROBE_INDEX_AT, i);
        (void)sendto(fd, probe, sizeof probe, 0, &s->at.any, vb_udp_address_bytes(&s->at));
    }
    close(fd);
}

// Anew from what the registry says, and everybody is asked whether that is so.
static void mend(struct udp_share *s, uint64_t now_ns)
{
    if (!vb_registry_lock(&s->registry, now_ns))
        return;
    bury_dead(s, now_ns);
    (void)attach(s, now_ns);
    probe_all(s, count_sockets(s->order->member, s->order->live), now_ns);
    vb_registry_unlock(&s->registry);
    s->mended_ns = now_ns;
}

void vb_udp_share_renew(struct udp_share *s)
{
    uint64_t now_ns = vb_clock_ns();
    pthread_mutex_lock(&s->lock);
    list_members(s);
    bool steered = !s->left && (s->units > 1 || s->order->count > 1);
    bool locked = steered && vb_registry_lock(&s->registry, now_ns);
    if (locked) {
        list_members(s);
        (void)attach(s, now_ns);
        vb_registry_unlock(&s->registry);
    }
    pthread_mutex_unlock(&s->lock);
    if (steered && !locked)
        atomic_store(&s->doubted, true); // whoever runs the port next does it
}

// The same for changes elsewhere, by one of us.
static void keep_up(struct udp_share *s, uint64_t now_ns)
{
    const struct udp_order *o = s->order;
    uint32_t changes = atomic_load(&s->registry.file->changes);
    bool ours = false;
    for (uint32_t i = 0; i < o->count; i++)
        ours |= o->member[i].slot == s->registry.slot && o->member[i].takes_rest;
    if (changes == s->changes || !ours || (s->units == 1 && o->count == 1) ||
        !vb_registry_lock(&s->registry, now_ns))
        return;
    s->changes = changes;
    (void)attach(s, now_ns);
    vb_registry_unlock(&s->registry);
}

// ---- looking after each other

// Looks at those behind us, up to the first that shows signs of life: so each death is found by
// somebody, and each of us makes a system call or two.
static bool finds_death(struct udp_share *s, uint64_t now_ns)
{
    const struct udp_order *o = s->order;
    uint32_t own = 0;
    while (own < o->count && o->member[own].slot != s->registry.slot)
        own++;
    for (uint32_t i = 1; i < o->count; i++) {
        const struct registry_member *m = &o->member[(own + i) % o->count];
        if (!vb_registry_is_alive(&s->registry, m->slot))
            return true;
        if (silent_ns(m, now_ns) < SILENT_NS)
            return false;
    }
    return false;
}

static bool has_rest_taker(const struct udp_share *s, uint64_t now_ns)
{
    const struct udp_order *o = s->order;
    for (uint32_t i = 0; i < o->count; i++)
        if (o->member[i].takes_rest &&
            (o->member[i].slot == s->registry.slot || silent_ns(&o->member[i], now_ns) < SILENT_NS))
            return true;
    return false;
}

void vb_udp_share_tend(struct udp_share *s, uint64_t now_ns)
{
    if (s->left || pthread_mutex_trylock(&s->lock) != 0)
        return;
    bool due = now_ns >= atomic_load(&s->tick_ns);
    bool doubt = atomic_load(&s->doubted) && now_ns - s->mended_ns >= MEND_NS;
    if (due) {
        atomic_store(&s->tick_ns, now_ns + TICK_NS);
        atomic_store(&own_slot(s)->beat_ns, now_ns);
        list_members(s);
        doubt |= finds_death(s, now_ns) || !has_rest_taker(s, now_ns);
    }
    if (doubt) {
        atomic_store(&s->doubted, false);
        mend(s, now_ns);
    }
    if (due && !doubt)
        keep_up(s, now_ns);
    if (due || doubt)
        note_company(s, s->order->count > 1, now_ns);
    pthread_mutex_unlock(&s->lock);
}

// Our place is another than we thought: who was thought to be there gets ours.
static void move_to(struct udp_share *s, uint32_t unit, uint32_t index)
{
    const struct udp_order *o = s->order;
    uint32_t before = atomic_exchange(&own_site(s)->index[unit], index);
    list_members(s);
    for (uint32_t i = 0; i < o->count; i++)
        for (uint32_t j = 0; j < o->member[i].units; j++)
            if (o->member[i].index[j] == index &&
                (o->member[i].slot != s->registry.slot || j != unit))
                atomic_store(&site_of(s, &o->member[i])->index[j], before);
}

// A signal handler that runs a unit may have interrupted a thread that runs another, and holds the
// lock: waiting has an end, and places are asked for again.
static bool lock_briefly(struct udp_share *s)
{
    for (uint32_t tries = 0; tries < PROBE_TRIES; tries++) {
        if (pthread_mutex_trylock(&s->lock) == 0)
            return true;
        sched_yield();
    }
    atomic_store(&s->doubted, true);
    return false;
}

// Of the probes of one time the first is right: it names the socket that it came to, while later
// ones may name sockets that are no more, which the system gives to anybody.
void vb_udp_share_probe(struct udp *u, const uint8_t *frame, uint32_t len)
{
    struct udp_share *s = u->share;
    if (len != PROBE_BYTES || frame[0] != UDP_PROBE_OPCODE ||
        vb_get_be64(frame + PROBE_SECRET_AT) != s->registry.file->secret)
        return;
    uint32_t index = vb_get_be32(frame + UDP_PROBE_INDEX_AT);
    uint64_t at_ns = vb_get_be64(frame + PROBE_TIME_AT), now_ns = vb_clock_ns();
    struct registry_site *own = own_site(s);
    if (!lock_briefly(s))
        return;
    if (!s->left && index < REGISTRY_INDEX_MAX && atomic_load(&own->index_ns[u->unit]) < at_ns) {
        atomic_store(&own->index_ns[u->unit], at_ns);
        if (atomic_load(&own->index[u->unit]) != index) {
            move_to(s, u->unit, index);
            list_members(s);
            (void)attach(s, now_ns);
        } else {
            list_members(s);
        }
        note_company(s, s->order->count > 1, now_ns);
    }
    pthread_mutex_unlock(&s->lock);
}

// ---- coming

static void lock_order(struct udp_share *s)
{
    for (int tries = 0; tries < LOCK_TRIES; tries++) {
        s->order_locked = vb_registry_lock(&s->registry, vb_clock_ns());
        if (s->order_locked)
            return;
        (void)poll(NULL, 0, 1);
    }
}

static void unlock_order(struct udp_share *s)
{
    if (s->order_locked)
        vb_registry_unlock(&s->registry);
    s->order_locked = false;
}

// What was left by NICs at addresses where nobody lives any more, and nobody else would clear.
static bool is_deserted(const struct registry *r, const struct vb_ip *ip, uint32_t scope)
{
    for (uint32_t i = 0; i < REGISTRY_SLOTS; i++)
        if (vb_registry_is_at(r, i, ip, scope) && vb_registry_is_alive(r, i))
            return false;
    return true;
}

static void clear_deserted(struct udp_share *s, uint64_t now_ns)
{
    struct registry *r = &s->registry;
    struct vb_ip ip;
    uint32_t scope;
    for (uint32_t i = 0; i < REGISTRY_SLOTS; i++) {
        if (atomic_load(&r->file->slot[i].id) == 0 || vb_registry_is_alive(r, i))
            continue;
        for (uint32_t site = 0; site < REGISTRY_SITES && atomic_load(&r->file->slot[i].id); site++)
            if (!vb_registry_address(r, i, site, &ip, &scope) || is_deserted(r, &ip, scope))
                vb_registry_bury(r, i, site, now_ns);
    }
}

static int claim(struct udp_share *s, const struct vb_udp_opts *opts)
{
    const uint32_t range = 1u << REGISTRY_RANGE_BITS;
    uint32_t span = (opts->qp_numbers + range - 1) / range;
    uint64_t now_ns = vb_clock_ns();
    clear_deserted(s, now_ns);
    bury_dead(s, now_ns);
    if (opts->beside != NULL)
        return vb_registry_join(&s->registry, &((const struct udp *)opts->beside)->share->registry,
                                &s->ip, s->scope);
    return vb_registry_claim(&s->registry, span ? span : 1, s->units, &s->ip, s->scope, now_ns);
}

int vb_udp_share_create(const struct vb_udp_opts *opts, const union udp_address *at, uint32_t units,
                        struct udp_share **share)
{
    struct udp_share *s = calloc(1, sizeof *s);
    if (s == NULL)
        return -ENOMEM;
    s->at = *at;
    s->ip = vb_udp_address_ip(at);
    s->scope = at->any.sa_family == AF_INET6 ? at->v6.sin6_scope_id : 0;
    s->units = s->open = units;
    s->order = calloc(1, sizeof *s->order);
    int error = s->order ? vb_registry_open(&s->registry, NULL) : -ENOMEM;
    if (error < 0) {
        free(s->order);
        free(s);
        return error;
    }
    pthread_mutex_init(&s->lock, NULL);
    lock_order(s);
    error = claim(s, opts);
    if (error < 0)
        vb_udp_share_destroy(s);
    else
        *share = s;
    return error;
}

static void free_share(struct udp_share *s)
{
    pthread_mutex_destroy(&s->lock);
    free(s->order);
    free(s);
}

void vb_udp_share_destroy(struct udp_share *s)
{
    unlock_order(s);
    vb_registry_close(&s->registry);
    free_share(s);
}

bool vb_udp_share_has_company(struct udp_share *s)
{
    part_members(s);
    return s->order->live > 1;
}

static uint32_t cookie_of(int fd)
{
    uint64_t cookie = 0;
    socklen_t len = sizeof cookie;
    return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) == 0 ? (uint32_t)cookie : 0;
}

// New sockets are behind all others.
static void take_places(struct udp_share *s)
{
    for (uint32_t unit = 0; unit < s->units; unit++)
        atomic_store(&own_site(s)->cookie[unit], cookie_of(s->unit[unit]->fd));
    part_members(s);
    uint32_t sockets = count_sockets(s->order->member, s->order->live);
    for (uint32_t unit = 0; unit < s->units; unit++)
        atomic_store(&own_site(s)->index[unit], sockets + unit);
    for (uint32_t i = 0; i < s->order->live; i++)
        atomic_store(&site_of(s, &s->order->member[i])->takes_rest, 0);
    atomic_store(&own_site(s)->takes_rest, 1); // who has just come is not stopped
    list_members(s);
}

int vb_udp_share_enter(struct udp_share *s)
{
    uint64_t now_ns = vb_clock_ns();
    int error = 0;
    take_places(s);
    if (s->order->live > 1 || s->units > 1) {
        error = attach(s, now_ns);
        probe_all(s, count_sockets(s->order->member, s->order->live), now_ns);
    }
    note_company(s, s->order->live > 1, now_ns);
    unlock_order(s);
    return error;
}

// ---- going

static int from_high(const void *a, const void *b)
{
    const struct udp *x = *(struct udp *const *)a, *y = *(struct udp *const *)b;
    uint32_t i = atomic_load(&own_site(x->share)->index[x->unit]);
    uint32_t j = atomic_load(&own_site(y->share)->index[y->unit]);
    return i < j ? 1 : i > j ? -1 : 0;
}

static void close_sockets(struct udp_share *s)
{
    struct udp *order[REGISTRY_UNITS];
    memcpy(order, s->unit, sizeof order);
    qsort(order, s->units, sizeof order[0], from_high);
    for (uint32_t i = 0; i < s->units; i++) {
        close(order[i]->fd);
        order[i]->fd = -1;
    }
}

// What is steered wrongly between the new order and the end of our sockets is still passed on.
static void pass_on(struct udp_share *s)
{
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    for (uint32_t i = 0; i < s->units && frames != NULL; i++)
        (void)vb_udp_receive(&s->unit[i]->port, frames);
    free(frames);
}

// The order without us.
static uint32_t reorder(struct udp_share *s, uint64_t now_ns)
{
    struct udp_order *o = s->order;
    uint32_t gone = 0, own = 0;
    bury_dead(s, now_ns);
    while (own < o->live && o->member[own].slot != s->registry.slot)
        own++;
    if (own == o->live)
        return 0;
    uint32_t sockets = count_sockets(o->member, o->live);
    collect_gone(o, own, own + 1, &gone);
    o->live--;
    memmove(&o->member[own], &o->member[own + 1], (o->live - own) * sizeof o->member[0]);
    vb_udp_steer_close(o->member, o->live, o->gone, gone, sockets);
    store_order(s);
    return o->live;
}

// Another one takes what is nobody's; a silent one, if there is no other.
static void pass_rest(struct udp_share *s, uint64_t now_ns)
{
    const struct udp_order *o = s->order;
    uint32_t heir = 0;
    for (uint32_t i = 0; i < o->live; i++)
        if (silent_ns(&o->member[i], now_ns) < silent_ns(&o->member[heir], now_ns))
            heir = i;
    if (atomic_exchange(&own_site(s)->takes_rest, 0) != 0)
        s->order->member[heir].takes_rest = true;
    if (o->member[heir].takes_rest)
        atomic_store(&site_of(s, &o->member[heir])->takes_rest, 1);
}

// A child that was forked at a bad moment keeps our sockets, which then stay in their places: some
// more are asked. (Not after a death: the lock of who is killed goes a moment before its sockets,
// and the last one would be told of the place that it is about to leave.)
static void leave(struct udp_share *s)
{
    uint32_t sockets = 0;
    lock_order(s);
    uint64_t now_ns = vb_clock_ns(); // the lock may have taken long
    if (reorder(s, now_ns) > 0) {
        pass_rest(s, now_ns);
        (void)attach(s, now_ns);
        sockets = count_sockets(s->order->member, s->order->live);
        s->left = true; // from here on probes do not concern us
        pass_on(s);
    }
    s->left = true;
    close_sockets(s);
    vb_registry_release(&s->registry, now_ns);
    if (sockets > 0)
        probe_all(s, sockets + PROBE_MORE, vb_clock_ns());
    unlock_order(s);
}

void vb_udp_share_close(struct udp_share *s, struct udp *u)
{
    if (!s->left)
        leave(s);
    u->share = NULL;
    if (--s->open > 0)
        return;
    vb_registry_close(&s->registry);
    free_share(s);
}

void vb_udp_share_abandon(struct udp_share *s, struct udp *u)
{
    u->share = NULL;
    if (--s->open > 0)
        return;
    vb_registry_abandon(&s->registry);
    free_share(s);
}
