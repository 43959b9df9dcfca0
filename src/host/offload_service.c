// SPDX-License-Identifier: Apache-2.0
// The service of offloads: who is offered what, who joined, and how they go.
#include "host/offload_service.h"

#include "base/bits.h"
#include "base/serial.h"
#include "chain/offload_message.h"
#include "host/attach.h"
#include "host/load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    CLIENTS = 1024,
    DEPTH = 64,
    NONCES = 4096,  // of the last that joined
    SLOT_BITS = 16, // of a ticket: where its client is found; the rest is drawn
    QPN_FIRST = 2,  // 0 and 1 are the subnet's and the services'
};

static_assert(1u << (VB_OFFLOAD_DEPTHS - 1) >= DEPTH, "every depth has its image");

struct vb_offload_service {
    struct vb_nic *nic;
    struct vb_offload_service_opts opts;
    uint32_t clients_max;
    struct vb_offered *offered[VB_OFFLOAD_OFFERS];
    uint32_t offers;
    struct vb_offload_client **client; // clients_max, NULL: free
    struct vb_offload_record *record;  // as many, in memory of a hull; NULL: none is kept
    bool recovered;
    uint32_t next; // where a free place is looked for
    uint64_t nonce[NONCES];
    struct vb_offload_stat stat;
};

// ---- life

int vb_offload_open(struct vb_nic *nic, const struct vb_offload_service_opts *opts,
                    struct vb_offload_service **out)
{
    uint32_t max = opts->clients_max ? opts->clients_max : CLIENTS;

    if (vb_host_is_foreign(nic))
        return -EPERM;
    if (max > 1u << SLOT_BITS || opts->units > nic->lanes)
        return -EINVAL;
    struct vb_offload_service *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->nic = nic;
    s->opts = *opts;
    s->clients_max = max;
    s->client = calloc(max, sizeof(void *));
    int err = !s->client  ? -ENOMEM
              : opts->tag ? vb_offload_records_open(nic, opts->tag, max, &s->record)
                          : 0;
    if (err) {
        free(s->client);
        free(s);
        return err;
    }
    *out = s;
    return 0;
}

// The tag of what is made for the client at a place.
static uint32_t tag_of(const struct vb_offload_service *s, uint32_t slot)
{
    return s->opts.tag + 1 + slot;
}

static void mark(struct vb_offload_service *s, uint32_t slot, enum vb_offload_record_state state)
{
    if (s->record)
        vb_offload_record_mark(&s->record[slot], state);
}

// At each moment the next process knows what it has to look after.
static void destroy_client(struct vb_offload_service *s, uint32_t slot)
{
    mark(s, slot, VB_OFFLOAD_PARTS);
    vb_offload_client_destroy(s->client[slot]);
    s->client[slot] = NULL;
    mark(s, slot, VB_OFFLOAD_FREE);
}

static void forget_offer(struct vb_offered *o)
{
    for (uint32_t i = 0; i < VB_OFFLOAD_DEPTHS; i++)
        vb_image_destroy(o->image[i]);
    free(o);
}

static void forget(struct vb_offload_service *s)
{
    for (uint32_t i = 0; i < s->offers; i++)
        forget_offer(s->offered[i]);
    free(s->client);
    free(s);
}

void vb_offload_close(struct vb_offload_service *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->clients_max; i++)
        if (s->client[i])
            destroy_client(s, i);
    forget(s);
}

void vb_offload_leave(struct vb_offload_service *s)
{
    if (!s->record) {
        vb_offload_close(s);
        return;
    }
    for (uint32_t i = 0; i < s->clients_max; i++)
        if (s->client[i])
            vb_offload_client_forget(s->client[i]);
    forget(s);
}

// ---- what is offered

static int say(char *error, int err, const char *what, const char *name)
{
    snprintf(error, VB_OFFLOAD_TEXT, "%s: %s", name, what);
    return err;
}

static const struct vb_offload_memory *find_memory(const struct vb_offload_offer *offer,
                                                   const char *region)
{
    for (uint32_t i = 0; i < offer->memories; i++)
        if (strcmp(offer->memory[i].region, region) == 0)
            return &offer->memory[i];
    return NULL;
}

// Whether the service can load it for a client: one queue to connect, all memory at hand.
static int check_image(const struct vb_offload_offer *offer, const struct vb_image *image,
                       char *error)
{
    uint32_t peers = 0, answers = 0;

    for (uint32_t i = 0; i < image->queues; i++)
        peers += image->queue[i].kind == VB_QUEUE_PEER;
    for (uint32_t i = 0; i < image->regions; i++) {
        const struct vb_image_region *r = &image->region[i];
        const struct vb_offload_memory *m = find_memory(offer, r->name);
        answers += r->kind == VB_REGION_PEER;
        if (r->kind == VB_REGION_SHARED && (!m || m->len < r->bytes))
            return say(error, -EINVAL, "memory of a shared region is missing or too short",
                       r->name);
        if (r->kind == VB_REGION_SHARED && r->writable && !m->writable)
            return say(error, -EINVAL, "the program writes to it, and it is not writable", r->name);
    }
    if (peers != 1 || answers > 1)
        return say(error, -EINVAL,
                   "the program must have one queue for its client, and at most one region",
                   offer->name);
    return 0;
}

// The image for a depth, which is made when it is first asked for.
static const struct vb_image *image_of(struct vb_offered *o, uint32_t depth, char *error)
{
    struct vb_image **image = &o->image[__builtin_ctz(depth)];

    if (*image)
        return *image;
    *image = o->offer.make(o->offer.ctx, depth, error);
    if (*image && check_image(&o->offer, *image, error) != 0) {
        vb_image_destroy(*image);
        *image = NULL;
    }
    return *image;
}

static struct vb_offered *copy_offer(const struct vb_offload_offer *offer)
{
    struct vb_offered *o = calloc(1, sizeof *o);

    if (!o)
        return NULL;
    o->offer = *offer;
    snprintf(o->name, sizeof o->name, "%s", offer->name);
    o->offer.name = o->name;
    o->offer.memory = o->memory;
    if (!o->offer.depth_max)
        o->offer.depth_max = DEPTH;
    for (uint32_t i = 0; i < offer->memories; i++) {
        o->memory[i] = offer->memory[i];
        snprintf(o->region[i], VB_OFFLOAD_NAME, "%s", offer->memory[i].region);
        o->memory[i].region = o->region[i];
    }
    return o;
}

static struct vb_offered *find_offer(struct vb_offload_service *s, const char *name)
{
    for (uint32_t i = 0; i < s->offers; i++)
        if (strcmp(s->offered[i]->name, name) == 0)
            return s->offered[i];
    return NULL;
}

// The deepest program is made at once: what cannot work is said to the owner, not to a client.
int vb_offload_add(struct vb_offload_service *s, const struct vb_offload_offer *offer, char *error)
{
    size_t len = strlen(offer->name);

    if (len == 0 || len >= VB_OFFLOAD_NAME || find_offer(s, offer->name))
        return say(error, -EINVAL, "the name is empty, too long or taken", offer->name);
    if (offer->memories > VB_OFFLOAD_REGIONS || s->offers == VB_OFFLOAD_OFFERS)
        return say(error, -EINVAL, "too much memory, or too many offloads", offer->name);
    if (offer->depth_max &&
        (!vb_is_pow2(offer->depth_max) || offer->depth_max >= 1u << VB_OFFLOAD_DEPTHS))
        return say(error, -EINVAL, "depth_max must be a power of two up to 32,768", offer->name);
    struct vb_offered *o = copy_offer(offer);
    if (!o)
        return say(error, -ENOMEM, "no memory", offer->name);
    if (!image_of(o, o->offer.depth_max, error)) {
        forget_offer(o);
        return -EINVAL;
    }
    s->offered[s->offers++] = o;
    return 0;
}

// ---- joining

static bool is_ip4(const uint8_t gid[16])
{
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(gid, prefix, sizeof prefix) == 0;
}

static bool is_all(const uint8_t *bytes, size_t len, uint8_t value)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

// Whether packets can go there: of the NIC's family, one host's.
static bool is_host(const struct vb_nic *nic, const uint8_t gid[16])
{
    uint8_t own[16];

    vb_nic_gid(nic, own);
    if (is_ip4(gid) != is_ip4(own))
        return false;
    if (!is_ip4(gid))
        return gid[0] != 0xff && !is_all(gid, 16, 0);
    return gid[12] != 0 && gid[12] < 224; // neither "this network", nor a group, nor all
}

static bool is_mtu(uint32_t mtu)
{
    return mtu == 0 || (vb_is_pow2(mtu) && mtu >= 256 && mtu <= 4096);
}

static bool came_before(const struct vb_offload_service *s, const struct vb_offload_join *join)
{
    uint64_t known = s->stat.joined < NONCES ? s->stat.joined : NONCES;

    for (uint64_t i = 0; i < known; i++)
        if (s->nonce[i] == join->nonce)
            return true;
    for (uint32_t i = 0; i < s->clients_max; i++) {
        const struct vb_offload_client *c = s->client[i];
        if (c && c->join.qpn == join->qpn && memcmp(c->join.gid, join->gid, 16) == 0)
            return true;
    }
    return false;
}

// 0, or why this message joins nobody.
static int judge(struct vb_offload_service *s, const struct vb_offload_join *join,
                 struct vb_offload_setup *setup, char *error)
{
    struct vb_offered *o = find_offer(s, join->offload);

    if (!o) {
        snprintf(error, VB_OFFLOAD_TEXT, "there is no offload of this name");
        return VB_OFFLOAD_UNKNOWN;
    }
    if (!vb_is_pow2(join->depth) || join->depth > o->offer.depth_max) {
        snprintf(error, VB_OFFLOAD_TEXT, "depth %u: make it a power of two up to %u", join->depth,
                 o->offer.depth_max);
        return VB_OFFLOAD_DEPTH;
    }
    if (!is_host(s->nic, join->gid) || !is_mtu(join->mtu) || join->qpn < QPN_FIRST ||
        join->qpn >= VB_QPN_MULTICAST || join->psn > VB_PSN_MASK) {
        snprintf(
            error, VB_OFFLOAD_TEXT,
            "no such queue pair can be: look at the address's family, the queue pair's number, "
            "the packet's number and the MTU");
        return VB_OFFLOAD_PEER;
    }
    if (came_before(s, join)) {
        snprintf(error, VB_OFFLOAD_TEXT,
                 "this message came before, or its queue pair is served already");
        return VB_OFFLOAD_REPLAYED;
    }
    setup->offered = o;
    setup->image = image_of(o, join->depth, error);
    if (!setup->image)
        return VB_OFFLOAD_DEPTH;
    uint64_t bytes = vb_offload_peer_bytes(setup->image);
    if (join->bytes < bytes || join->addr + join->bytes < join->addr) {
        snprintf(error, VB_OFFLOAD_TEXT, "answers need %llu bytes of memory, there are %llu",
                 (unsigned long long)bytes, (unsigned long long)join->bytes);
        return VB_OFFLOAD_ROOM;
    }
    return 0;
}

// A free place, or clients_max.
static uint32_t find_place(struct vb_offload_service *s)
{
    for (uint32_t i = 0; i < s->clients_max; i++) {
        uint32_t at = (s->next + i) % s->clients_max;
        if (!s->client[at] &&
            (!s->record || vb_offload_record_state(&s->record[at]) == VB_OFFLOAD_FREE)) {
            s->next = (at + 1) % s->clients_max;
            return at;
        }
    }
    return s->clients_max;
}

static int draw(struct vb_offload_setup *setup, uint32_t slot)
{
    uint64_t random[2];

    if (getrandom(random, sizeof random, 0) != sizeof random)
        return -EAGAIN;
    setup->ticket = 1ull << 63 | random[0] << SLOT_BITS | slot; // never 0
    setup->psn = (uint32_t)random[1] & VB_PSN_MASK;
    return 0;
}

static int create_client(struct vb_offload_service *s, const struct vb_offload_setup *setup,
                         uint32_t slot, struct vb_offload_place *place, char *error)
{
    uint32_t before = s->record ? s->nic->attach->tag : 0;

    if (s->record) {
        mark(s, slot, VB_OFFLOAD_PARTS);
        vb_service_tag(s->nic, tag_of(s, slot));
    }
    int err = vb_offload_client_create(setup, &s->client[slot], place, error);
    if (s->record)
        vb_service_tag(s->nic, before);
    if (s->record && !err)
        vb_offload_record_fill(&s->record[slot], s->client[slot]);
    else
        mark(s, slot, VB_OFFLOAD_FREE);
    return err;
}

static void count_client(struct vb_offload_service *s, uint32_t slot)
{
    s->nonce[s->stat.joined++ % NONCES] = s->client[slot]->join.nonce;
    s->stat.clients++;
    s->stat.bytes += vb_loaded_bytes(s->client[slot]->loaded);
}

static int join(struct vb_offload_service *s, const struct vb_offload_join *join,
                struct vb_offload_place *place, char *error)
{
    struct vb_offload_setup setup = {.nic = s->nic, .opts = &s->opts, .join = join};
    int why = judge(s, join, &setup, error);
    uint32_t slot = why ? 0 : find_place(s);

    if (why)
        return why;
    if (slot == s->clients_max) {
        snprintf(error, VB_OFFLOAD_TEXT, "the server has %u clients and takes no more", slot);
        return VB_OFFLOAD_FULL;
    }
    setup.unit = 1 + slot % (s->opts.units ? s->opts.units : 1);
    if (draw(&setup, slot) != 0) {
        snprintf(error, VB_OFFLOAD_TEXT, "the server has no random numbers");
        return VB_OFFLOAD_FAILED;
    }
    if (create_client(s, &setup, slot, place, error) != 0)
        return VB_OFFLOAD_FAILED;
    count_client(s, slot);
    return 0;
}

// ---- coming back

// Of a client that the last process left: whether it is one of ours still.
static bool find_again(struct vb_offload_service *s, uint32_t slot)
{
    struct vb_offload_join join;
    struct vb_offload_setup setup = {.nic = s->nic, .opts = &s->opts, .join = &join};
    char error[VB_OFFLOAD_TEXT];

    if (!vb_offload_record_read(&s->record[slot], &setup.ticket, &join) ||
        (setup.ticket & ((1u << SLOT_BITS) - 1)) != slot)
        return false;
    struct vb_offered *o = find_offer(s, join.offload);
    if (!o || !vb_is_pow2(join.depth) || join.depth > o->offer.depth_max)
        return false;
    setup.offered = o;
    setup.image = image_of(o, join.depth, error);
    return setup.image && vb_offload_client_find(&setup, tag_of(s, slot), &s->client[slot]) == 0;
}

uint32_t vb_offload_recover(struct vb_offload_service *s)
{
    uint32_t found = 0;

    if (!s->record || s->recovered || vb_host_is_foreign(s->nic))
        return 0;
    s->recovered = true;
    for (uint32_t i = 0; i < s->clients_max; i++) {
        if (vb_offload_record_state(&s->record[i]) == VB_OFFLOAD_FREE)
            continue;
        if (find_again(s, i)) {
            count_client(s, i);
            found++;
        } else if (vb_service_clear(s->nic, tag_of(s, i)) == 0) {
            mark(s, i, VB_OFFLOAD_FREE);
        }
    }
    return found;
}

// ---- leaving

static struct vb_offload_client **find_client(struct vb_offload_service *s, uint64_t ticket)
{
    uint32_t slot = ticket & ((1u << SLOT_BITS) - 1);
    bool found = slot < s->clients_max && s->client[slot] && s->client[slot]->ticket == ticket;
    return found ? &s->client[slot] : NULL;
}

static void end(struct vb_offload_service *s, struct vb_offload_client **client)
{
    s->stat.clients--;
    s->stat.bytes -= vb_loaded_bytes((*client)->loaded);
    destroy_client(s, (uint32_t)(client - s->client));
}

int vb_offload_end(struct vb_offload_service *s, uint64_t ticket)
{
    struct vb_offload_client **client = find_client(s, ticket);

    if (!client)
        return -ENOENT;
    end(s, client);
    s->stat.ended++;
    return 0;
}

static bool has_queue(const struct vb_offload_client *c, uint32_t qpn)
{
    for (uint32_t i = 0; i < c->loaded->queues; i++)
        if (vb_qp_num(c->loaded->qp[i]) == qpn)
            return true;
    return false;
}

bool vb_offload_event(struct vb_offload_service *s, const struct vb_nic_event *event)
{
    if (event->kind != VB_NIC_EVENT_QP_FATAL && event->kind != VB_NIC_EVENT_QP_REQUEST &&
        event->kind != VB_NIC_EVENT_QP_ACCESS)
        return false;
    for (uint32_t i = 0; i < s->clients_max; i++) {
        if (s->client[i] && has_queue(s->client[i], event->number)) {
            end(s, &s->client[i]);
            s->stat.failed++;
            return true;
        }
    }
    return false;
}

// Needs the locks.
static bool is_idle(const struct vb_offload_service *s, struct vb_offload_client *c,
                    uint64_t now_ns)
{
    uint64_t requests = vb_loaded_requests(c->loaded);

    if (!c->seen || requests != c->requests) {
        c->seen = true;
        c->requests = requests;
        c->seen_ns = now_ns;
    }
    return s->opts.idle_ns && now_ns - c->seen_ns >= s->opts.idle_ns;
}

uint32_t vb_offload_sweep(struct vb_offload_service *s, uint64_t now_ns)
{
    uint32_t ended = 0;

    for (uint32_t i = 0; i < s->clients_max; i++) {
        struct vb_offload_client *c = s->client[i];
        if (!c)
            continue;
        vb_host_lock(s->nic);
        bool failed = vb_loaded_has_failed(c->loaded);
        bool idle = is_idle(s, c, now_ns);
        vb_host_unlock(s->nic);
        if (!failed && !idle)
            continue;
        end(s, &s->client[i]);
        s->stat.failed += failed;
        s->stat.idle += !failed;
        ended++;
    }
    return ended;
}

// ---- messages

static uint32_t refuse(struct vb_offload_service *s, uint8_t *answer, int why, const char *text)
{
    s->stat.refused++;
    return vb_offload_write_refused(answer, (enum vb_offload_refusal)why, text);
}

uint32_t vb_offload_answer(struct vb_offload_service *s, const void *message, size_t len,
                           uint8_t answer[VB_OFFLOAD_MESSAGE], uint64_t *ticket)
{
    struct vb_offload_request request;
    struct vb_offload_place place;
    char error[VB_OFFLOAD_TEXT] = "";
    int why = vb_offload_read_request(message, len, &request);

    (void)vb_offload_recover(s);
    *ticket = 0;
    if (why)
        return refuse(s, answer, why,
                      why == VB_OFFLOAD_VERSION ? "the message has another version"
                                                : "this is no message to the service of offloads");
    if (request.kind == VB_OFFLOAD_JOIN) {
        why = join(s, &request.join, &place, error);
        if (why)
            return refuse(s, answer, why, error);
        *ticket = place.ticket;
        return vb_offload_write_place(answer, &place);
    }
    struct vb_offload_client **client = find_client(s, request.ticket);
    if (!client)
        return refuse(s, answer, VB_OFFLOAD_UNKNOWN, "there is no client with this ticket");
    *ticket = request.ticket;
    end(s, client);
    s->stat.left++;
    return vb_offload_write_left(answer);
}

// ---- looking

void vb_offload_query(const struct vb_offload_service *s, struct vb_offload_stat *stat)
{
    *stat = s->stat;
}

struct vb_loaded *vb_offload_loaded(struct vb_offload_service *s, uint64_t ticket)
{
    struct vb_offload_client **client = find_client(s, ticket);
    return client ? (*client)->loaded : NULL;
}

const struct vb_image *vb_offload_image(struct vb_offload_service *s, uint64_t ticket)
{
    struct vb_offload_client **client = find_client(s, ticket);
    return client ? (*client)->image : NULL;
}
