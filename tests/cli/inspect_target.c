// SPDX-License-Identifier: Apache-2.0
// A program with NICs for `verbena link`, `stat` and `res` to look at: one at each address given.
// The first two are connected; the first writes once to the second. Says "ready" and the number of
// the first queue pair, and waits until its input ends.
#include "verbena/nic.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    NICS_MAX = 8,
    BYTES = 4096,
};

struct end {
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_cq *cq;
    struct vb_mr *mr;
    struct vb_qp *qp;
    uint8_t memory[BYTES];
};

static void require(int err, const char *what)
{
    if (err) {
        fprintf(stderr, "%s: %d\n", what, err);
        exit(1);
    }
}

static void make(struct end *e, const char *address)
{
    char why[VB_ERROR_TEXT] = "";
    const struct vb_nic_opts opts = {.address = address, .error_text = why};
    require(vb_nic_open(&opts, &e->nic), why);
    require(vb_pd_alloc(e->nic, &e->pd), "domain");
    require(vb_cq_create(e->nic, &(struct vb_cq_opts){.entries = 64}, &e->cq), "queue");
    require(vb_mr_reg(e->pd, e->memory, BYTES, VB_RIGHT_ALL, &e->mr), "region");
    const struct vb_qp_opts qp = {
        .send_cq = e->cq, .recv_cq = e->cq, .send_depth = 8, .recv_depth = 8};
    require(vb_qp_create(e->pd, &qp, &e->qp), "queue pair");
}

static void join(struct end *here, struct end *there)
{
    struct vb_qp_peer peer = {
        .qpn = vb_qp_num(there->qp), .psn = 100, .our_psn = 100, .rights = VB_RIGHT_REMOTE_WRITE};
    vb_nic_gid(there->nic, peer.gid);
    require(vb_qp_connect(here->qp, &peer), "connection");
}

static void write_once(struct end *here, struct end *there)
{
    const struct vb_sge sge = {(uintptr_t)here->memory, BYTES, vb_mr_key(here->mr)};
    const struct vb_send_wr wr = {.opcode = VB_WR_WRITE,
                                  .sge = &sge,
                                  .num_sge = 1,
                                  .flags = VB_WR_SIGNALED,
                                  .raddr = (uintptr_t)there->memory,
                                  .rkey = vb_mr_key(there->mr)};
    struct vb_wc wc;
    int n;
    require(vb_post_send(here->qp, &wr, 1) == 1 ? 0 : -1, "request");
    while ((n = vb_poll_cq(here->cq, &wc, 1)) == 0)
        continue;
    require(n == 1 && wc.status == VB_WC_OK ? 0 : -1, "completion");
}

int main(int argc, char **argv)
{
    static struct end end[NICS_MAX];
    char byte;
    int nics = argc - 1 < NICS_MAX ? argc - 1 : NICS_MAX;

    for (int i = 0; i < nics; i++)
        make(&end[i], argv[i + 1]);
    if (nics >= 2) {
        join(&end[0], &end[1]);
        join(&end[1], &end[0]);
        write_once(&end[0], &end[1]);
    }
    printf("ready %u\n", vb_qp_num(end[0].qp));
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        continue;
    return 0; // with NICs open: exit() takes care of them
}
