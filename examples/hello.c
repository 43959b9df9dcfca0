// SPDX-License-Identifier: Apache-2.0
// Hello, remote memory: two NICs in one process. The first writes into the second's memory and
// reads it back; the second's program does nothing at all. Usage: hello [ADDRESS ADDRESS]
#include <verbena/nic.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct end {
    struct vb_nic *nic; // the card
    struct vb_pd *pd;   // what belongs together: memory and queue pairs of one domain
    struct vb_cq *cq;   // where completions appear
    struct vb_qp *qp;   // one end of a connection
    struct vb_mr *mr;   // memory that the card may use, under a key
    char memory[64];
};

// Every function that can fail returns 0 or a negative errno.
static void check(int err, const char *what)
{
    if (err < 0) {
        fprintf(stderr, "hello: cannot %s: %s\n", what, strerror(-err));
        exit(1);
    }
}

static void open_end(struct end *e, const char *address)
{
    char why[VB_ERROR_TEXT]; // says more than an errno
    if (vb_nic_open(&(struct vb_nic_opts){.address = address, .error_text = why}, &e->nic) < 0) {
        fprintf(stderr, "hello: %s\n", why);
        exit(1);
    }
    check(vb_pd_alloc(e->nic, &e->pd), "make a protection domain");
    check(vb_cq_create(e->nic, &(struct vb_cq_opts){.entries = 16}, &e->cq), "make a queue");
    const struct vb_qp_opts opts = {.send_cq = e->cq, .recv_cq = e->cq, .send_depth = 16};
    check(vb_qp_create(e->pd, &opts, &e->qp), "make a queue pair");
    const uint32_t rights = VB_RIGHT_LOCAL_WRITE | VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_READ;
    check(vb_mr_reg(e->pd, e->memory, sizeof e->memory, rights, &e->mr), "register memory");
}

// Each end must know the other's address and queue pair number. Programs on two machines tell each
// other through a socket; packet numbers may be anything that both agree on.
static void connect_to(struct end *e, const struct end *peer)
{
    struct vb_qp_peer to = {.qpn = vb_qp_num(peer->qp),
                            .rights = VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_READ};
    vb_nic_gid(peer->nic, to.gid);
    check(vb_qp_connect(e->qp, &to), "connect");
}

// Posts one request about the peer's memory and polls until it is done.
static void move(struct end *e, const struct end *peer, enum vb_wr_opcode opcode)
{
    const struct vb_sge here = {(uintptr_t)e->memory, sizeof e->memory, vb_mr_key(e->mr)};
    const struct vb_send_wr wr = {.opcode = opcode,
                                  .flags = VB_WR_SIGNALED,
                                  .sge = &here,
                                  .num_sge = 1,
                                  .raddr = (uintptr_t)peer->memory,
                                  .rkey = vb_mr_key(peer->mr)};
    struct vb_wc wc;
    check(vb_post_send(e->qp, &wr, 1), "post");
    while (vb_poll_cq(e->cq, &wc, 1) == 0)
        ;
    if (wc.status != VB_WC_OK) {
        fprintf(stderr, "hello: %s\n", vb_wc_status_text(wc.status));
        exit(1);
    }
}

int main(int argc, char **argv)
{
    static struct end here, there;
    open_end(&here, argc == 3 ? argv[1] : "127.0.0.1");
    open_end(&there, argc == 3 ? argv[2] : "127.0.0.2");
    connect_to(&here, &there);
    connect_to(&there, &here);
    snprintf(here.memory, sizeof here.memory, "hello, remote memory");
    move(&here, &there, VB_WR_WRITE);
    printf("written there:  %s\n", there.memory);
    memset(here.memory, 0, sizeof here.memory);
    move(&here, &there, VB_WR_READ);
    printf("read back here: %s\n", here.memory);
    vb_nic_close(here.nic); // closes everything on it
    vb_nic_close(there.nic);
    return 0;
}
