// SPDX-License-Identifier: Apache-2.0
// rping's two roles over our communication manager, for cm_test.py to set against Linux's, and a
// sample of every message for tshark.
//
//   cm_peer ask OURS THEIRS PORT COUNT BYTES   as `rping -c` does
//   cm_peer serve OURS PORT                    as `rping -s` does
//   cm_peer look OURS THEIRS PORT              finds a datagram service
//   cm_peer sample TRACE                       all messages between two NICs of its own
#include "base/bytes.h"
#include "cm/cma.h"
#include "host/cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PATIENCE_MS = 20000,
    BUFFER = 65536,
    NOTE_BYTES = 16, // address, key and length, as rping tells them
    RIGHTS = VB_RIGHT_LOCAL_WRITE | VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_READ,
};

struct end {
    struct vb_nic *nic;
    struct vb_ip ip;
    struct vb_host_cm *cm;
    struct vb_pd *pd;
    struct vb_cq *cq;
    struct vb_qp *qp;
    struct vb_mr *mr;
    uint32_t id;
    int sends, notes; // completed, and not yet waited for
    uint8_t *memory;  // BUFFER to give, BUFFER to take, then notes to send and to receive
};

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fprintf(stderr, "cm_peer: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

static void check(int err, const char *what)
{
    if (err < 0)
        die("%s: %s", what, strerror(-err));
}

static struct vb_ip address(const char *text)
{
    struct vb_ip ip = {.b = {[10] = 0xff, [11] = 0xff}};
    if (inet_pton(AF_INET, text, ip.b + 12) != 1 && inet_pton(AF_INET6, text, ip.b) != 1)
        die("'%s' is no address", text);
    return ip;
}

// ---- one end

static void open_end(struct end *e, const char *ours)
{
    const struct vb_nic_opts opts = {.address = ours, .port = "udp"};
    const struct vb_cq_opts cq = {.entries = 64};

    e->ip = address(ours);
    check(vb_nic_open(&opts, &e->nic), ours);
    check(vb_host_cm_open(e->nic, NULL, &e->cm), "queue pair 1");
    check(vb_pd_alloc(e->nic, &e->pd), "domain");
    check(vb_cq_create(e->nic, &cq, &e->cq), "completion queue");
    const struct vb_qp_opts qp = {
        .send_cq = e->cq, .recv_cq = e->cq, .send_depth = 16, .recv_depth = 16};
    check(vb_qp_create(e->pd, &qp, &e->qp), "queue pair");
    e->memory = calloc(1, 2 * BUFFER + 2 * NOTE_BYTES);
    if (!e->memory)
        die("no memory");
    check(vb_mr_reg(e->pd, e->memory, 2 * BUFFER + 2 * NOTE_BYTES, RIGHTS, &e->mr), "memory");
}

static void close_end(struct end *e)
{
    vb_host_cm_close(e->cm);
    vb_nic_close(e->nic);
    free(e->memory);
}

static struct vb_cm_event wait_for(struct end *e, enum vb_cm_event_kind kind)
{
    struct pollfd fd = {.fd = vb_host_cm_event_fd(e->cm), .events = POLLIN};
    struct vb_cm_event event;

    if (poll(&fd, 1, PATIENCE_MS) != 1 || !vb_host_cm_take_event(e->cm, &event))
        die("no event, but '%s' should come", vb_cm_event_text(kind));
    if (event.kind != kind)
        die("'%s' instead of '%s': %s", vb_cm_event_text(event.kind), vb_cm_event_text(kind),
            vb_cm_reason_text(event.reason));
    return event;
}

static void listen_to(struct end *e, enum vb_cma_space space, uint16_t port)
{
    uint64_t now_ns;
    struct vb_cm *cm = vb_host_cm_enter(e->cm, &now_ns);
    check(vb_cm_listen(cm, vb_cma_service_id(space, port), 0, 0, e), "listen");
    vb_host_cm_leave(e->cm);
}

// ---- connecting

static struct vb_cm_request ask(struct end *e, const char *theirs, uint16_t port)
{
    uint8_t header[VB_CMA_HEADER_BYTES];
    const struct vb_cma_header names = {.port = 40000, .source = e->ip, .target = address(theirs)};
    uint64_t now_ns;

    vb_cma_encode(&names, header);
    const struct vb_cm_request request = {
        .peer = names.target,
        .service_id = vb_cma_service_id(VB_CMA_TCP, port),
        .qpn = vb_qp_num(e->qp),
        .psn = 0x123456,
        .mtu = 3,
        .responder_resources = 1,
        .initiator_depth = 1,
        .retries = 7,
        .rnr_retries = 7,
        .ack_timeout = 17,
        .flow_control = 1,
        .private_data = {header, sizeof header},
    };
    struct vb_cm *cm = vb_host_cm_enter(e->cm, &now_ns);
    check(vb_cm_connect(cm, now_ns, &request, &e->id), "connect");
    vb_host_cm_leave(e->cm);
    return request;
}

static void confirm(struct end *e, const struct vb_cm_request *request)
{
    const struct vb_cm_event event = wait_for(e, VB_CM_EVENT_REPLY);
    struct vb_qp_peer peer;
    uint64_t now_ns;

    vb_host_cm_active_peer(request, &event.message, &peer);
    peer.rights = RIGHTS & ~VB_RIGHT_LOCAL_WRITE;
    check(vb_qp_connect(e->qp, &peer), "queue pair");
    struct vb_cm *cm = vb_host_cm_enter(e->cm, &now_ns);
    check(vb_cm_confirm(cm, now_ns, e->id, NULL), "confirm");
    vb_host_cm_leave(e->cm);
}

static void accept_one(struct end *e)
{
    const struct vb_cm_event event = wait_for(e, VB_CM_EVENT_REQUEST);
    const struct vb_cm_answer answer = {.qpn = vb_qp_num(e->qp),
                                        .psn = 0x654321,
                                        .responder_resources = 1,
                                        .initiator_depth = 1,
                                        .rnr_retries = 7,
                                        .flow_control = 1};
    struct vb_qp_peer peer;
    struct vb_cma_header names;
    uint64_t now_ns;

    if (!vb_cma_decode(event.message.private_data, &names))
        die("the request has no header of rdma_cm");
    if (!vb_ip_equal(&names.source, &event.peer) || !vb_ip_equal(&names.target, &e->ip))
        die("the header of rdma_cm names others");
    vb_host_cm_passive_peer(&answer, &event.message, &peer);
    peer.rights = RIGHTS & ~VB_RIGHT_LOCAL_WRITE;
    check(vb_qp_connect(e->qp, &peer), "queue pair");
    struct vb_cm *cm = vb_host_cm_enter(e->cm, &now_ns);
    e->id = event.id;
    check(vb_cm_accept(cm, now_ns, e->id, &answer), "accept");
    vb_host_cm_leave(e->cm);
}

static void disconnect(struct end *e)
{
    uint64_t now_ns;
    struct vb_cm *cm = vb_host_cm_enter(e->cm, &now_ns);
    check(vb_cm_disconnect(cm, now_ns, e->id, NULL), "disconnect");
    vb_host_cm_leave(e->cm);
}

// ---- rping

static uint8_t *note_out(const struct end *e)
{
    return e->memory + 2 * BUFFER;
}

static uint8_t *note_in(const struct end *e)
{
    return note_out(e) + NOTE_BYTES;
}

static void post_note_receive(struct end *e)
{
    const struct vb_sge sge = {(uintptr_t)note_in(e), NOTE_BYTES, vb_mr_key(e->mr)};
    const struct vb_recv_wr wr = {.sge = &sge, .num_sge = 1};
    if (vb_post_recv(e->qp, &wr, 1) != 1)
        die("cannot post a receive");
}

static void post(struct end *e, enum vb_wr_opcode opcode, const void *from, uint32_t len)
{
    const struct vb_sge sge = {(uintptr_t)from, len, vb_mr_key(e->mr)};
    const struct vb_send_wr wr = {.sge = &sge,
                                  .num_sge = 1,
                                  .opcode = opcode,
                                  .flags = VB_WR_SIGNALED,
                                  .raddr = vb_get_be64(note_in(e)),
                                  .rkey = vb_get_be32(note_in(e) + 8)};
    if (vb_post_send(e->qp, &wr, 1) != 1)
        die("cannot post a request");
}

// Counts a completion, if there is one: ours and the peer's notes may come in any order.
static void pump(struct end *e)
{
    struct vb_wc wc;

    if (vb_poll_cq(e->cq, &wc, 1) == 0)
        return;
    if (wc.status != VB_WC_OK)
        die("completion: %s", vb_wc_status_text(wc.status));
    if (wc.opcode == VB_WC_RECV)
        e->notes++;
    else
        e->sends++;
}

static void finish(struct end *e, int sends, int notes)
{
    while (e->sends < sends || e->notes < notes)
        pump(e);
    e->sends -= sends;
    e->notes -= notes;
}

static void tell(struct end *e, const uint8_t *buffer, uint32_t len, int notes)
{
    vb_put_be64(note_out(e), (uintptr_t)buffer);
    vb_put_be32(note_out(e) + 8, vb_mr_key(e->mr));
    vb_put_be32(note_out(e) + 12, len);
    post(e, VB_WR_SEND, note_out(e), NOTE_BYTES);
    finish(e, 1, notes);
}

static void client_ping(struct end *e, uint32_t round, uint32_t len)
{
    uint8_t *give = e->memory, *take = e->memory + BUFFER;

    for (uint32_t i = 0; i < len; i++)
        give[i] = (uint8_t)('A' + (i + round) % 26);
    give[len - 1] = 0; // rping sends back a string
    memset(take, 0, len);
    post_note_receive(e);
    tell(e, give, len, 1); // it reads, and says so
    post_note_receive(e);
    tell(e, take, len, 1); // it writes, and says so
    if (memcmp(give, take, len) != 0)
        die("round %u: the bytes that came back are others", round);
}

static int run_client(struct end *e, char **argv)
{
    uint32_t count = (uint32_t)atoi(argv[2]), len = (uint32_t)atoi(argv[3]);
    const struct vb_cm_request request = ask(e, argv[0], (uint16_t)atoi(argv[1]));

    if (len < 2 || len > BUFFER)
        die("2 to %d bytes", BUFFER);
    confirm(e, &request);
    for (uint32_t i = 0; i < count; i++)
        client_ping(e, i, len);
    disconnect(e);
    wait_for(e, VB_CM_EVENT_DISCONNECTED);
    printf("%u pings of %u bytes\n", count, len);
    return 0;
}

static bool is_over(struct end *e)
{
    struct pollfd fd = {.fd = vb_host_cm_event_fd(e->cm), .events = POLLIN};
    return poll(&fd, 1, 0) == 1;
}

// False: the client has left instead.
static bool take_note(struct end *e)
{
    for (; e->notes == 0; pump(e))
        if (is_over(e))
            return false;
    e->notes--;
    return true;
}

static int run_server(struct end *e, char **argv)
{
    uint32_t count = 0;

    listen_to(e, VB_CMA_TCP, (uint16_t)atoi(argv[0]));
    printf("ready\n");
    fflush(stdout);
    post_note_receive(e); // the client may be quick
    accept_one(e);
    wait_for(e, VB_CM_EVENT_ESTABLISHED);
    for (; take_note(e); count++) {
        uint32_t len = vb_get_be32(note_in(e) + 12);
        if (len > BUFFER)
            die("%u bytes are too many", len);
        post(e, VB_WR_READ, e->memory, len);
        finish(e, 1, 0);
        post_note_receive(e);
        post(e, VB_WR_SEND, note_out(e), NOTE_BYTES); // go ahead
        finish(e, 1, 1);
        post(e, VB_WR_WRITE, e->memory, len);
        finish(e, 1, 0);
        post_note_receive(e);
        post(e, VB_WR_SEND, note_out(e), NOTE_BYTES);
        finish(e, 1, 0);
    }
    wait_for(e, VB_CM_EVENT_DISCONNECTED);
    printf("%u pings served\n", count);
    return 0;
}

// ---- datagram services

static void look_up(struct end *e, const char *theirs, uint16_t port)
{
    uint8_t header[VB_CMA_HEADER_BYTES];
    const struct vb_cma_header names = {.port = 40001, .source = e->ip, .target = address(theirs)};
    uint64_t now_ns;
    uint32_t id;

    vb_cma_encode(&names, header);
    const struct vb_cm_lookup lookup = {.peer = names.target,
                                        .service_id = vb_cma_service_id(VB_CMA_UDP, port),
                                        .private_data = {header, sizeof header}};
    struct vb_cm *cm = vb_host_cm_enter(e->cm, &now_ns);
    check(vb_cm_sidr_ask(cm, now_ns, &lookup, &id), "lookup");
    vb_host_cm_leave(e->cm);
}

static int run_look(struct end *e, char **argv)
{
    look_up(e, argv[0], (uint16_t)atoi(argv[1]));
    const struct vb_cm_event event = wait_for(e, VB_CM_EVENT_SIDR_REPLY);
    printf("status %u queue pair %u key 0x%08x\n", event.message.sidr_rep.status,
           event.message.sidr_rep.qpn, event.message.sidr_rep.qkey);
    return event.message.sidr_rep.status != VB_SIDR_OK;
}

// ---- every message

static void reject_one(struct end *e)
{
    const struct vb_cm_event event = wait_for(e, VB_CM_EVENT_REQUEST);
    const struct vb_cm_refusal refusal = {.reason = VB_CM_CONSUMER, .private_data = {"no", 2}};
    uint64_t now_ns;
    struct vb_cm *cm = vb_host_cm_enter(e->cm, &now_ns);
    check(vb_cm_delay(cm, now_ns, event.id, 18), "delay");
    check(vb_cm_reject(cm, now_ns, event.id, &refusal), "reject");
    vb_host_cm_leave(e->cm);
}

static void find_one(struct end *e)
{
    const struct vb_cm_event event = wait_for(e, VB_CM_EVENT_SIDR_REQUEST);
    const struct vb_cm_found found = {.qpn = 0x77, .qkey = 0x01234567, .private_data = {"me", 2}};
    uint64_t now_ns;
    struct vb_cm *cm = vb_host_cm_enter(e->cm, &now_ns);
    check(vb_cm_sidr_reply(cm, now_ns, event.id, &found), "reply");
    vb_host_cm_leave(e->cm);
}

static void sample(struct end end[2], const char *theirs)
{
    listen_to(&end[1], VB_CMA_TCP, 7174);
    listen_to(&end[1], VB_CMA_UDP, 7174);
    ask(&end[0], theirs, 7175); // nobody listens
    wait_for(&end[0], VB_CM_EVENT_REJECTED);
    wait_for(&end[0], VB_CM_EVENT_GONE);
    ask(&end[0], theirs, 7174);
    reject_one(&end[1]);
    wait_for(&end[0], VB_CM_EVENT_REJECTED);
    wait_for(&end[0], VB_CM_EVENT_GONE);
    const struct vb_cm_request request = ask(&end[0], theirs, 7174);
    accept_one(&end[1]);
    confirm(&end[0], &request);
    wait_for(&end[1], VB_CM_EVENT_ESTABLISHED);
    disconnect(&end[0]);
    wait_for(&end[1], VB_CM_EVENT_DISCONNECTED);
    wait_for(&end[0], VB_CM_EVENT_DISCONNECTED);
    look_up(&end[0], theirs, 7174);
    find_one(&end[1]);
}

static int run_sample(const char *path)
{
    static const char *const names[2] = {"127.0.66.1", "127.0.66.2"};
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    struct end end[2] = {0};

    if (fd < 0)
        die("%s: %s", path, strerror(errno));
    open_end(&end[0], names[0]);
    open_end(&end[1], names[1]);
    check(vb_nic_trace(end[0].nic, 1 << 20), "trace");
    sample(end, names[1]);
    struct pollfd event = {.fd = vb_host_cm_event_fd(end[0].cm), .events = POLLIN};
    poll(&event, 1, PATIENCE_MS); // the SIDR_REP has come
    check(vb_nic_trace_dump(end[0].nic, fd), "dump");
    close_end(&end[0]);
    close_end(&end[1]);
    return close(fd);
}

int main(int argc, char **argv)
{
    struct end end = {0};
    int status;

    if (argc == 3 && strcmp(argv[1], "sample") == 0)
        return run_sample(argv[2]);
    bool asks = argc == 7 && strcmp(argv[1], "ask") == 0;
    bool looks = argc == 5 && strcmp(argv[1], "look") == 0;
    if (!asks && !looks && !(argc == 4 && strcmp(argv[1], "serve") == 0))
        die("ask OURS THEIRS PORT COUNT BYTES | serve OURS PORT | look OURS THEIRS PORT | "
            "sample FILE");
    open_end(&end, argv[2]);
    if (asks)
        status = run_client(&end, argv + 3);
    else
        status = looks ? run_look(&end, argv + 3) : run_server(&end, argv + 3);
    close_end(&end);
    return status;
}
