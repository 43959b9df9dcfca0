// SPDX-License-Identifier: Apache-2.0
// A hostile application at a hull: requests that are right but for what the input bends, and
// anything in the shared memory, at any time. The hull must not be hurt, nothing of the application
// may be left when it goes, and another one is served all the while.
#include "hull/hull.h"

#include "base/bytes.h"
#include "verbena/wqe.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    MEMORIES = 4,
    UNITS = 2,
    MEMORY_BYTES = 1 << 16,
    STEPS_MAX = 256,
};

struct app {
    struct vb_hull *hull;
    int socket;
    struct vb_hull_page *page;
    uint8_t *memory[MEMORIES];
    uint32_t memories;
    uint32_t pd, key, cqn, srqn, qpn, channel, program, xrcd; // made last
    bool manages;    // its queue pair is a connection manager's,
    uint32_t blocks; // of which so many were posted
};

struct input {
    const uint8_t *at, *end;
};

static void require(bool holds)
{
    if (!holds)
        abort();
}

static uint32_t take(struct input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

static uint32_t take2(struct input *in)
{
    return take(in) << 8 | take(in);
}

// ---- the hull

static struct {
    char dir[32];
    struct vb_hull *hull;
} target;

// Locks and the registry stay by design.
static void clean_up(void)
{
    struct dirent *entry;

    vb_hull_close(target.hull);
    DIR *list = opendir(target.dir);
    while (list && (entry = readdir(list)))
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(list), entry->d_name, 0);
    if (list)
        closedir(list);
    rmdir(target.dir);
}

static struct vb_hull *open_hull(void)
{
    static const char text[] = "[nic fuzz]\naddress = 127.0.0.1\nport = shm\npus = 2\n"
                               "[tenant *]\nentries = 4096\nbytes = 1M\nqueue_pairs = 8\n"
                               "copy = yes\nfaults = yes\n";
    struct vb_hull_config *config = malloc(sizeof *config);
    char error[VB_ERROR_TEXT];

    snprintf(target.dir, sizeof target.dir, "/tmp/verbena-fuzz-XXXXXX");
    require(config && mkdtemp(target.dir) && setenv("VERBENA_RUNTIME_DIR", target.dir, 1) == 0);
    require(vb_hull_config_parse(text, sizeof text - 1, config, error) == 0);
    config->nic[0].no_thread = true;
    if (vb_hull_open(config, 0, &target.hull, error) != 0) {
        fprintf(stderr, "fuzz_hull: %s\n", error);
        abort();
    }
    free(config);
    atexit(clean_up);
    return target.hull;
}

// ---- talking

static const uint64_t proof = 0x68756c6c70726f6f;
static uint8_t copied[4096]; // memory of ours that is not shared

static void keep(struct app *a, const struct vb_hull_request *r, const struct vb_hull_reply *reply,
                 const int fds[VB_HULL_FDS])
{
    switch (r->op) {
    case VB_HULL_PD_CREATE: a->pd = reply->number; break;
    case VB_HULL_KEY_CREATE: a->key = reply->number; break;
    case VB_HULL_CQ_CREATE: a->cqn = reply->number; break;
    case VB_HULL_SRQ_CREATE: a->srqn = reply->number; break;
    case VB_HULL_QP_CREATE: a->qpn = reply->number; break;
    case VB_HULL_CHANNEL_CREATE: a->channel = reply->number; break;
    case VB_HULL_PROGRAM_CREATE: a->program = reply->number; break;
    case VB_HULL_XRCD_CREATE: a->xrcd = reply->number; break;
    case VB_HULL_MEMORY_CREATE:
        if (a->memories < MEMORIES && reply->memory.bytes >= MEMORY_BYTES) {
            void *map = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
            require(map != MAP_FAILED);
            a->memory[a->memories++] = map;
        }
        break;
    default: break;
    }
}

// What the hull answers is well formed, whatever it was asked.
static void hear(struct app *a, const struct vb_hull_request *r)
{
    struct vb_hull_reply reply;
    int fds[VB_HULL_FDS];
    int bytes = vb_contract_receive(a->socket, &reply, sizeof reply, MSG_DONTWAIT, fds);

    if (bytes == -EAGAIN || bytes == 0)
        return;
    require(bytes == sizeof reply && reply.op == r->op && reply.error <= 0);
    if (reply.error)
        require(memchr(reply.text, '\0', sizeof reply.text) && reply.text[0]);
    else
        keep(a, r, &reply, fds);
    if (!reply.error && r->op == VB_HULL_SERVICE && a->page) {
        munmap(a->page, vb_hull_page_bytes(UNITS)); // another one comes with the reply
        a->page = NULL;
    }
    if (!reply.error && (r->op == VB_HULL_HELLO || r->op == VB_HULL_SERVICE) && !a->page) {
        a->page =
            mmap(NULL, vb_hull_page_bytes(UNITS), PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
        require(a->page != MAP_FAILED);
    }
    for (uint32_t i = 0; i < VB_HULL_FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static void ask(struct app *a, const struct vb_hull_request *r, uint32_t bytes)
{
    if (vb_contract_send(a->socket, r, bytes, MSG_DONTWAIT, NULL, 0) != 0)
        return;
    vb_hull_turn(a->hull);
    hear(a, r);
}

static struct vb_hull_place place(uint32_t offset)
{
    return (struct vb_hull_place){.memory = 1, .offset = offset};
}

// The same of what changes queues, finds memory and serves managers.
static void propose_more(const struct app *a, struct vb_hull_request *r)
{
    switch (r->op) {
    case VB_HULL_KEY_FIND:
        r->find = (struct vb_hull_find){.len = 4096, .pd = a->pd, .key = a->key};
        break;
    case VB_HULL_CQ_RESIZE:
        r->number = a->cqn;
        r->resize = (struct vb_hull_resize){.ring = place(40960), .entries = 32};
        break;
    case VB_HULL_QP_JOIN:
    case VB_HULL_QP_LEAVE:
        r->group = (struct vb_hull_group){{[10] = 0xff, 0xff, 224, 65, 0, 1}};
        break;
    case VB_HULL_QP_SPREAD:
        r->spread = (struct vb_hull_spread){.members = place(28672), .count = 2, .fields = 3};
        break;
    case VB_HULL_COPY_BEGIN:
        r->proof = (struct vb_hull_proof){.at = (uintptr_t)&proof, .word = proof};
        break;
    case VB_HULL_PORT_TAKE:
    case VB_HULL_PORT_GIVE: r->number = 7471; break;
    case VB_HULL_XRCD_DESTROY: r->number = a->xrcd; break;
    case VB_HULL_TRACE: r->value = 4096; break;
    case VB_HULL_ADDRESS: r->number = 0; break;
    case VB_HULL_TRACE_READ:
        r->text = (struct vb_hull_text){.at = place(0), .bytes = MEMORY_BYTES};
        break;
    case VB_HULL_FAULTS: r->text = (struct vb_hull_text){.at = place(57344), .bytes = 64}; break;
    default: break;
    }
}

// Of memory, channels and services.
static void propose_service(const struct app *a, struct vb_hull_request *r)
{
    switch (r->op) {
    case VB_HULL_MEMORY_DROP:
    case VB_HULL_MEMORY_AT:
    case VB_HULL_MEMORY_OPEN: r->number = 1; break;
    case VB_HULL_CHANNEL_DESTROY:
    case VB_HULL_CHANNEL_OPEN: r->number = a->channel; break;
    case VB_HULL_SERVICE: r->memory.name[0] = 's'; break;
    case VB_HULL_SERVICE_RELEASE:
    case VB_HULL_SERVICE_NEXT: r->number = 0; break;
    case VB_HULL_SRQ_PROGRESS: r->number = a->srqn; break;
    default: break;
    }
}

// Of programs and queues by hand.
static void propose_program(const struct app *a, struct vb_hull_request *r)
{
    if (r->op == VB_HULL_CQ_SHARE) {
        r->number = a->cqn;
        r->share.bell = place(28672);
    } else if (r->op == VB_HULL_PROGRAM_CREATE) {
        r->program = (struct vb_hull_program){.pd = a->pd, .limit = 64, .audit_cqn = a->cqn};
    } else if (r->op == VB_HULL_PROGRAM_STOP || r->op == VB_HULL_PROGRAM_QUERY ||
               r->op == VB_HULL_PROGRAM_DESTROY) {
        r->number = a->program;
    }
}

// A request that can succeed.
static struct vb_hull_request propose(const struct app *a, uint32_t op)
{
    struct vb_hull_request r = {.op = op, .serial = 1};

    switch (op) {
    case VB_HULL_HELLO:
        r.hello = (struct vb_hull_hello){.magic = VB_HULL_MAGIC,
                                         .version = VB_HULL_VERSION,
                                         .page_bytes = sizeof(struct vb_hull_page),
                                         .request_bytes = sizeof r,
                                         .reply_bytes = sizeof(struct vb_hull_reply)};
        break;
    case VB_HULL_MEMORY_CREATE: r.memory.bytes = MEMORY_BYTES; break;
    case VB_HULL_KEY_CREATE:
    case VB_HULL_KEY_CHANGE:
        r.number = a->key;
        r.key = (struct vb_hull_key){
            .at = place(32768), .len = 4096, .pd = a->pd, .access = VB_ACCESS_ALL};
        break;
    case VB_HULL_CQ_CREATE:
        r.cq = (struct vb_hull_cq){
            .ring = place(0), .record = place(4096), .entries = 16, .channel = a->channel};
        break;
    case VB_HULL_SRQ_CREATE:
        r.srq = (struct vb_hull_srq){.ring = place(8192),
                                     .record = place(12288),
                                     .pd = a->pd,
                                     .entries = 16,
                                     .stride_bytes = 32};
        break;
    case VB_HULL_QP_CREATE:
        r.value = a->program;
        r.qp = (struct vb_hull_qp){.send = place(16384),
                                   .recv = place(20480),
                                   .record = place(24576),
                                   .pd = a->pd,
                                   .send_cqn = a->cqn,
                                   .recv_cqn = a->cqn,
                                   .send_blocks = 16,
                                   .recv_entries = 16,
                                   .recv_stride_bytes = 16,
                                   .chain = a->program ? VB_QP_CROSS_CHANNEL : 0};
        if (a->manages)
            r.qp.type = VB_QPT_UD, r.qp.chain = VB_HULL_QP_MANAGES;
        break;
    case VB_HULL_QP_MODIFY:
        r.number = a->qpn;
        r.mods = (struct vb_qpc_mods){.dest_qpn = a->qpn,
                                      .qkey = 0x80010000,
                                      .access = VB_ACCESS_REMOTE,
                                      .mtu_bytes = 1024,
                                      .max_rd_atomic = 4,
                                      .max_dest_rd_atomic = 4,
                                      .timeout = 8,
                                      .retry_cnt = 1};
        memcpy(r.mods.remote.b, a->hull->lane->port->local.b, sizeof r.mods.remote.b);
        break;
    case VB_HULL_PD_DESTROY: r.number = a->pd; break;
    case VB_HULL_KEY_DESTROY:
    case VB_HULL_WINDOW_DESTROY: r.number = a->key; break;
    default:
        r.number = op >= VB_HULL_QP_CREATE ? a->qpn : op >= VB_HULL_SRQ_CREATE ? a->srqn : a->cqn;
        propose_more(a, &r);
        break;
    }
    propose_program(a, &r);
    propose_service(a, &r);
    return r;
}

static void choose_service(const struct app *a, struct vb_hull_qp *qp, uint32_t which)
{
    qp->type = which % (VB_QPT_COUNT + 1);
    if (qp->type == VB_QPT_XRC_TGT)
        qp->srqn = a->xrcd;
    if (qp->type >= VB_QPT_XRC_INI)
        qp->recv_entries = 0;
    if (qp->type == VB_QPT_UD && which & 0x40)
        qp->chain = VB_HULL_QP_MANAGES;
}

static void request(struct app *a, struct input *in)
{
    uint32_t op = take(in) % (VB_HULL_OPS + 2), bends = take(in) % 4, bytes;
    struct vb_hull_request r = propose(a, op);

    if (op == VB_HULL_QP_MODIFY)
        r.mods.state = (enum vb_qp_state)(take(in) % (VB_QPS_COUNT + 1));
    if (op == VB_HULL_QP_CREATE)
        choose_service(a, &r.qp, take(in));
    if (op == VB_HULL_QP_CREATE && take(in) % 2)
        r.qp.send.offset = 45056, r.qp.recv.offset = 49152, r.qp.record.offset = 53248;
    if (op == VB_HULL_KEY_CREATE && take(in) % 4 == 0)
        r.key.kind = VB_MKEY_COPIED;
    if (op == VB_HULL_SRQ_CREATE && take(in) % 2) {
        r.srq.xrcd = a->xrcd;
        r.srq.cqn = a->cqn;
    }
    for (; bends; bends--) {
        uint32_t at = take(in) % sizeof r;
        ((uint8_t *)&r)[at] ^= (uint8_t)take(in);
    }
    if ((r.op == VB_HULL_KEY_CREATE || r.op == VB_HULL_KEY_CHANGE) &&
        r.key.kind == VB_MKEY_COPIED) { // all other memory here is the hull's, too
        r.key.at = (struct vb_hull_place){.offset = (uintptr_t)copied};
        r.key.len = sizeof copied;
    }
    if (r.op == VB_HULL_MEMORY_CREATE)
        memset(r.memory.name, 0, sizeof r.memory.name); // a name would stay, as it should
    if (r.op == VB_HULL_SERVICE) {                      // one name is enough to be found again
        memset(r.memory.name, 0, sizeof r.memory.name);
        r.memory.name[0] = 's';
    }
    if (r.op == VB_HULL_SERVICE_NEXT)
        r.value = take(in) % (VB_HULL_LISTS + 1);
    bytes = take(in);
    ask(a, &r, bytes == 0xff ? take(in) % (uint32_t)sizeof r : (uint32_t)sizeof r);
}

// ---- shared memory

static void scribble(struct app *a, struct input *in)
{
    uint32_t which = take(in) % (MEMORIES + 1), at = take2(in), len = take(in);
    uint8_t *bytes = which == MEMORIES ? (uint8_t *)a->page : a->memory[which];
    uint32_t size = which == MEMORIES ? (uint32_t)vb_hull_page_bytes(UNITS) : MEMORY_BYTES;

    for (uint32_t i = 0; bytes && i < len; i++)
        __atomic_store_n(&bytes[(at + i) % size], (uint8_t)take(in), __ATOMIC_RELAXED);
}

// Of a page that was scribbled on: the driver takes what it finds there for an index.
static void ring_bell(struct vb_doorbells *bells, uint32_t number)
{
    if (atomic_load(&bells->latest) > VB_DOORBELL_QPS)
        atomic_store(&bells->latest, 0);
    vb_doorbell_ring(bells, number);
}

// That of the queue pair's unit, mostly.
static struct vb_hull_page *page_for(const struct app *a, struct input *in)
{
    return vb_hull_page_of(a->page, (a->qpn + (take(in) % 8 == 7)) % UNITS);
}

// An entry of the send queue, and the bell.
static void post(struct app *a, struct input *in)
{
    if (!a->memory[0] || !a->page)
        return;
    uint8_t *ring = a->memory[0] + 16384, *entry = ring + take(in) % 16 * VB_WQEBB_BYTES;
    uint32_t count = take(in);

    vb_put_be32(entry, count << 8 | (take(in) % 2 ? VB_WQE_WRITE : take(in)));
    vb_put_be32(entry + 4, a->qpn << 8 | (3 + take(in) % 2));
    vb_put_be32(entry + 8, VB_WQE_CE_ALWAYS);
    vb_put_be64(entry + 16, take2(in));
    vb_put_be32(entry + 24, a->key);
    vb_put_be32(entry + 32, take2(in));
    vb_put_be32(entry + 36, a->key);
    vb_put_be64(entry + 40, take2(in));
    vb_put_be32(a->memory[0] + 24576 + 4 * (take(in) % 2), count + 1);
    struct vb_hull_page *page = page_for(a, in);
    ring_bell(&page->qps, a->qpn);
    ring_bell(&page->arms, a->cqn);
}

// What a manager says, to the managers of this very NIC: right but for what the input makes of it.
static void speak(struct app *a, struct input *in)
{
    if (!a->memory[0] || !a->page || !a->manages)
        return;
    uint8_t *mad = a->memory[0] + 32768, *entry = a->memory[0] + 16384 + a->blocks % 16 * 64;
    const uint8_t head[] = {1, 7, 2, 3};

    memset(mad, 0, 256);
    memcpy(mad, head, sizeof head);
    vb_put_be16(mad + 16, (uint16_t)(16 + take(in) % 12));
    for (uint32_t i = 24; i < 60; i++)
        mad[i] = (uint8_t)take(in);
    if (take(in) % 2)
        vb_put_be24(mad + 24 + 32, a->qpn); // where a REQ has its queue pair
    memset(entry, 0, 128);
    vb_put_be32(entry, a->blocks << 8 | VB_WQE_SEND);
    vb_put_be32(entry + 4, a->qpn << 8 | 5);
    vb_put_be32(entry + 16, 0x80010000);
    vb_put_be32(entry + 24, take(in) % 8 ? VB_QPN_GSI : take2(in));
    memcpy(entry + 48, a->hull->lane->port->local.b, 16);
    vb_put_be32(entry + 64, take(in) % 8 ? 256 : take2(in) % 1024);
    vb_put_be32(entry + 68, a->key);
    a->blocks += 2;
    vb_put_be32(a->memory[0] + 24576 + 4, a->blocks);
    ring_bell(&page_for(a, in)->qps, a->qpn);
    vb_hull_turn(a->hull);
    vb_hull_turn(a->hull);
}

// ---- a life

static void attach(struct app *a, struct vb_hull *hull)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    *a = (struct app){.hull = hull};
    a->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    memcpy(at.sun_path, hull->path, sizeof at.sun_path);
    require(connect(a->socket, (const struct sockaddr *)&at, sizeof at) == 0);
    vb_hull_turn(hull);
}

static void leave(struct app *a)
{
    close(a->socket);
    for (uint32_t i = 0; i < a->memories; i++)
        munmap(a->memory[i], MEMORY_BYTES);
    if (a->page)
        munmap(a->page, vb_hull_page_bytes(UNITS));
    vb_hull_turn(a->hull);
    vb_hull_turn(a->hull);
}

static void say(struct app *a, uint32_t op)
{
    struct vb_hull_request r = propose(a, op);
    ask(a, &r, sizeof r);
}

static void connect_qp(struct app *a)
{
    for (uint32_t state = VB_QPS_INIT; state <= VB_QPS_RTS; state++) {
        struct vb_hull_request r = propose(a, VB_HULL_QP_MODIFY);
        r.mods.state = (enum vb_qp_state)state;
        ask(a, &r, sizeof r);
    }
}

// Receives for what is said to it.
static void listen_to_all(struct app *a)
{
    for (uint32_t i = 0; i < 16 && a->memory[0]; i++) {
        vb_put_be32(a->memory[0] + 20480 + 16 * i, 512);
        vb_put_be32(a->memory[0] + 20480 + 16 * i + 4, a->key);
        vb_put_be64(a->memory[0] + 20480 + 16 * i + 8, 1024);
    }
    if (a->memory[0])
        vb_put_be32(a->memory[0] + 24576, 16);
}

// Its queue pair is a program's or not, and queues are by hand or not.
static void furnish(struct app *a, bool program, bool by_hand)
{
    static const uint8_t ops[] = {VB_HULL_MEMORY_CREATE, VB_HULL_PD_CREATE, VB_HULL_KEY_CREATE,
                                  VB_HULL_CHANNEL_CREATE, VB_HULL_CQ_CREATE};

    for (uint32_t i = 0; i < sizeof ops; i++)
        say(a, ops[i]);
    if (program)
        say(a, VB_HULL_PROGRAM_CREATE);
    say(a, VB_HULL_QP_CREATE);
    connect_qp(a);
    if (by_hand) {
        say(a, VB_HULL_QP_SHARE);
        say(a, VB_HULL_CQ_SHARE);
        say(a, VB_HULL_CLOCK);
    }
    if (a->manages)
        listen_to_all(a);
}

static void play(struct app *a, struct input *in)
{
    for (uint32_t steps = 0; in->at < in->end && steps < STEPS_MAX; steps++) {
        switch (take(in) % 6) {
        case 0: request(a, in); break;
        case 1: scribble(a, in); break;
        case 2: post(a, in); break;
        case 3: vb_hull_turn(a->hull); break;
        case 4: speak(a, in); break;
        default: return; // the process dies
        }
    }
}

// The next one takes over what the last one left, if that was a service, and does no better;
// the last one releases it.
static void inherit(struct vb_hull *hull, struct input *in)
{
    struct app a;

    for (uint32_t lives = take(in) % 3 + 1; lives > 0; lives--) {
        attach(&a, hull);
        say(&a, VB_HULL_HELLO);
        say(&a, VB_HULL_SERVICE);
        if (lives > 1)
            play(&a, in);
        else
            say(&a, VB_HULL_SERVICE_RELEASE);
        leave(&a);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vb_hull *hull = target.hull ? target.hull : open_hull();
    struct input in = {data, data + size};
    struct app victim, a;

    attach(&victim, hull);
    say(&victim, VB_HULL_HELLO);
    require(victim.page);
    say(&victim, VB_HULL_PD_CREATE);
    require(victim.pd);
    attach(&a, hull);
    uint32_t how = take(&in);
    a.manages = how & 0x80;
    if (how % 8)
        say(&a, VB_HULL_HELLO);
    if (how & 8)
        say(&a, VB_HULL_SERVICE);
    if (how % 4)
        furnish(&a, how & 16, how & 32);
    play(&a, &in);
    leave(&a);
    inherit(hull, &in);
    say(&victim, VB_HULL_PD_DESTROY); // its own domain is still there
    uint32_t pd = victim.pd;
    say(&victim, VB_HULL_PD_CREATE);
    require(victim.pd == pd);
    leave(&victim);
    vb_hull_reap_settle(hull); // a tenant stays until its memory has gone back
    require(!vb_fifo_first(&hull->clients) && !vb_fifo_first(&hull->tenants));
    return 0;
}
