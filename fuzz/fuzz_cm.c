// SPDX-License-Identifier: Apache-2.0
// Messages of the communication manager: any bytes through the decoder, and two live managers that
// the input connects, interrupts and lies to. Input: commands of a byte with their choices.
#include "base/bytes.h"
#include "cm/cm.h"
#include "cm/cma.h"
#include "cm/route.h"
#include "sim/cm_sane.h"

#include <stdlib.h>

enum {
    FLIGHT = 32,
    KNOWN = 8, // ids that programs remember
    SERVICE = 0x01060007,
};

struct input {
    const uint8_t *at, *end;
};

struct rig {
    struct input in;
    struct vb_cm *cm[2];
    struct vb_ip ip[2];
    uint64_t now_ns;
    uint8_t flight[2][FLIGHT][VB_MAD_BYTES]; // by sender
    uint32_t flights[2];
    uint8_t old[VB_MAD_BYTES]; // delivered once
    uint32_t known[2][KNOWN], next[2];
};

static void require(bool holds)
{
    if (!holds)
        abort();
}

static uint8_t take(struct input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

// ---- whose it is

// What a message says whole it says by its beginning, too; and what is none is nobody's.
static void check_route(const uint8_t *mad, size_t len)
{
    const struct vb_cm_route route = vb_cm_route(mad, len);
    struct vb_cm_message m;
    enum vb_cma_space space;
    enum vb_cm_space number = VB_CM_SPACES;

    require(route.kind != VB_CM_ROUTE_ID || route.manager < 1u << VB_CM_PREFIX_BITS);
    require(route.kind != VB_CM_ROUTE_PORT || route.space < VB_CM_SPACES);
    require(len >= VB_CM_ROUTE_BYTES || route.kind == VB_CM_ROUTE_NONE);
    if (vb_cm_decode(mad, len, &m) != VB_CM_DECODE_OK)
        return;
    bool asks = m.kind == VB_CM_REQ || m.kind == VB_CM_SIDR_REQ;
    uint64_t service = m.kind == VB_CM_REQ ? m.req.service_id : m.sidr_req.service_id;
    uint32_t id = m.kind == VB_CM_SIDR_REP ? m.local_id : m.remote_id;
    if (asks && vb_cma_space_of(service, &space) && vb_cm_space_of(space, &number))
        require(route.kind == VB_CM_ROUTE_PORT && route.space == number &&
                route.port == vb_cma_port(service));
    else if (asks)
        require(route.kind == VB_CM_ROUTE_ANY);
    else if (m.kind == VB_CM_REJ && id == 0)
        require(route.kind == VB_CM_ROUTE_ALL);
    else
        require(route.kind == VB_CM_ROUTE_ID && route.manager == vb_cm_route_manager(id));
}

// ---- the decoder

static void check_message(const uint8_t *mad, size_t len)
{
    struct vb_cm_message m, n;
    uint8_t again[VB_MAD_BYTES];
    struct vb_cma_header h;

    if (vb_cm_decode(mad, len, &m) != VB_CM_DECODE_OK)
        return;
    vb_cm_encode(&m, again);
    require(vb_cm_decode(again, sizeof again, &n) == VB_CM_DECODE_OK);
    require(memcmp(&m, &n, sizeof m) == 0);
    if (vb_cma_decode(m.private_data, &h)) {
        vb_cma_encode(&h, again);
        struct vb_cma_header g;
        require(vb_cma_decode(again, &g) && memcmp(&g, &h, sizeof g) == 0);
    }
}

// ---- two managers

static void collect(struct rig *r)
{
    struct vb_cm_message m;
    uint8_t mad[VB_MAD_BYTES];
    struct vb_ip to;

    for (int i = 0; i < 2; i++) {
        while (vb_cm_take_message(r->cm[i], &to, mad)) {
            require(vb_cm_decode(mad, sizeof mad, &m) == VB_CM_DECODE_OK);
            if (r->flights[i] < FLIGHT)
                memcpy(r->flight[i][r->flights[i]++], mad, VB_MAD_BYTES);
        }
        require(vb_cmsane(r->cm[i]));
    }
}

static void input_to(struct rig *r, int who, const uint8_t *mad)
{
    memcpy(r->old, mad, VB_MAD_BYTES);
    check_route(mad, VB_MAD_BYTES);
    vb_cm_input(r->cm[who], r->now_ns, &r->ip[!who], r->old, VB_MAD_BYTES);
}

// Delivers the oldest message of a sender, or one behind it; `bends` bytes are other ones.
static void deliver(struct rig *r, int from, uint32_t which, uint32_t bends, bool keep)
{
    uint8_t mad[VB_MAD_BYTES];

    if (r->flights[from] == 0)
        return;
    which %= r->flights[from];
    memcpy(mad, r->flight[from][which], VB_MAD_BYTES);
    if (!keep)
        memmove(r->flight[from][which], r->flight[from][which + 1],
                (--r->flights[from] - which) * sizeof mad);
    for (uint32_t i = 0; i < bends; i++) {
        uint8_t at = take(&r->in);
        mad[at] = take(&r->in);
    }
    input_to(r, !from, mad);
}

static uint32_t id_of(struct rig *r, int who)
{
    return r->known[who][take(&r->in) % KNOWN];
}

static void know(struct rig *r, int who, uint32_t id)
{
    r->known[who][r->next[who]++ % KNOWN] = id;
}

static void take_events(struct rig *r, int who, uint8_t count)
{
    struct vb_cm_event e;

    while (count-- > 0 && vb_cm_take_event(r->cm[who], &e)) {
        require(e.private_len <= VB_CM_PRIVATE_MAX && (unsigned)e.kind < VB_CM_EVENTS);
        if (e.kind == VB_CM_EVENT_REQUEST || e.kind == VB_CM_EVENT_SIDR_REQUEST)
            know(r, who, e.id);
        if (e.kind == VB_CM_EVENT_GONE) {
            enum vb_cm_state state = vb_cm_state(r->cm[who], e.id);
            require(state == VB_CM_FREE);
        }
    }
}

static void ask(struct rig *r, int who, bool lookup)
{
    uint8_t data[92] = {take(&r->in)};
    const struct vb_cm_private with = {data, take(&r->in) % 100u};
    struct vb_cm_request request = {.peer = r->ip[take(&r->in) & 1],
                                    .service_id = SERVICE + (take(&r->in) & 1u),
                                    .qpn = take(&r->in),
                                    .mtu = take(&r->in) % 7,
                                    .transport = take(&r->in) % 5,
                                    .private_data = with};
    const struct vb_cm_lookup where = {.peer = request.peer,
                                       .local = r->ip[take(&r->in) & 1],
                                       .service_id = request.service_id,
                                       .private_data = with};
    uint32_t id = 0;
    int err = lookup ? with.len > 92 ? -1 : vb_cm_sidr_ask(r->cm[who], r->now_ns, &where, &id)
                     : vb_cm_connect(r->cm[who], r->now_ns, &request, &id);
    if (!err)
        know(r, who, id);
}

static void call(struct rig *r, int who)
{
    static const uint8_t words[VB_CM_PRIVATE_MAX] = {1, 2, 3};
    struct vb_cm *cm = r->cm[who];
    uint32_t id = id_of(r, who);
    uint8_t what = take(&r->in), size = take(&r->in);
    const struct vb_cm_private with = {words, size % (VB_CM_PRIVATE_MAX + 1u)};
    const struct vb_cm_answer answer = {.qpn = size, .private_data = with};
    const struct vb_cm_refusal refusal = {
        .reason = size, .info_len = size % 80, .private_data = with};
    const struct vb_cm_found found = {.qpn = size, .private_data = with};

    switch (what % 8) {
    case 0: vb_cm_accept(cm, r->now_ns, id, &answer); break;
    case 1: vb_cm_reject(cm, r->now_ns, id, &refusal); break;
    case 2: vb_cm_confirm(cm, r->now_ns, id, &with); break;
    case 3: vb_cm_delay(cm, r->now_ns, id, size); break;
    case 4: vb_cm_heard(cm, r->now_ns, id); break;
    case 5: vb_cm_disconnect(cm, r->now_ns, id, &with); break;
    case 6: vb_cm_abandon(cm, r->now_ns, id); break;
    default: vb_cm_sidr_reply(cm, r->now_ns, id, &found); break;
    }
}

// A message that nobody sent: a right header, ids that may be right, and bytes of the input.
static void forge(struct rig *r, int to)
{
    uint8_t mad[VB_MAD_BYTES] = {1, 7, 2, 3};
    uint8_t count = take(&r->in);

    mad[17] = take(&r->in);
    vb_put_be32(mad + 24, id_of(r, !to));
    vb_put_be32(mad + 28, id_of(r, to));
    for (uint32_t i = 0; i < count; i++)
        mad[24 + i % VB_MAD_DATA_BYTES] ^= take(&r->in);
    input_to(r, to, mad);
}

static void step(struct rig *r)
{
    uint8_t command = take(&r->in);
    int who = command >> 7;

    switch (command & 15) {
    case 0: ask(r, who, false); break;
    case 1: ask(r, who, true); break;
    case 2: deliver(r, who, 0, 0, false); break;
    case 3: deliver(r, who, take(&r->in), 0, false); break;
    case 4: deliver(r, who, take(&r->in), 0, true); break;
    case 5: deliver(r, who, 0, 1u + take(&r->in) % 4, false); break;
    case 6: r->flights[who] = 0; break;
    case 7: take_events(r, who, take(&r->in)); break;
    case 8: call(r, who); break;
    case 9: r->now_ns += 1ull << (take(&r->in) % 36); break;
    case 10: forge(r, who); break;
    case 11: input_to(r, who, r->old); break;
    case 12: vb_cm_listen(r->cm[who], SERVICE, take(&r->in) & 1 ? ~1ull : 0, 3, r); break;
    case 13: vb_cm_unlisten(r->cm[who], r->now_ns, SERVICE, 0); break;
    default: take_events(r, who, 1); break;
    }
    vb_cm_poll(r->cm[0], r->now_ns);
    vb_cm_poll(r->cm[1], r->now_ns);
    collect(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rig *r = calloc(1, sizeof *r);

    if (!r)
        return 0;
    check_message(data, size);
    check_route(data, size);
    r->in = (struct input){data, data + size};
    for (int i = 0; i < 2; i++) {
        r->ip[i] = (struct vb_ip){{[10] = 0xff, 0xff, 10, 0, 0, (uint8_t)i}};
        const struct vb_cm_opts opts = {
            .seed = {5, (uint64_t)i}, .local = r->ip[i], .connections = 6, .outbox = 8};
        r->cm[i] = vb_cm_create(&opts);
        require(r->cm[i] && vb_cm_listen(r->cm[i], SERVICE, 0, 3, r) == 0);
    }
    while (r->in.at < r->in.end)
        step(r);
    vb_cm_destroy(r->cm[0]);
    vb_cm_destroy(r->cm[1]);
    free(r);
    return 0;
}
