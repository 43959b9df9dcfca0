// SPDX-License-Identifier: Apache-2.0
// Two NICs in one process over loopback, each with a queue pair to the other, through the public
// header only.
#ifndef VB_TESTS_PAIR_H
#define VB_TESTS_PAIR_H

#include "verbena/nic.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    PAIR_MEMORY = 1 << 20,
    PAIR_RIGHTS = VB_RIGHT_LOCAL_WRITE | VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_READ,
};

struct pair_end {
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_cq *cq; // of both queues
    struct vb_qp *qp;
    struct vb_mr *mr;
    uint8_t *memory; // PAIR_MEMORY bytes, exactly
    struct vb_qp_peer peer;
};

struct pair {
    struct pair_end end[2];
};

// The address of host 0, 1 or 2 of this process alone, so that tests can run beside each other.
void pair_address(unsigned host, char text[16]);
struct vb_nic *pair_open_host(unsigned host, uint32_t drop_ppm);
struct vb_qp *pair_make_qp(struct pair_end *e);
// How `e` is named by a peer.
struct vb_qp_peer pair_peer_of(const struct pair_end *e, uint32_t mtu);

// Opens both ends; the queue pairs are in RESET and end[].peer is filled in.
struct pair pair_open(uint32_t mtu, uint32_t drop_ppm);
void pair_connect(struct pair *p);
void pair_close(struct pair *p);

// From end 0 to end 1, at the start of both memories, signaled.
void pair_post(struct pair *p, uint64_t wr_id, enum vb_wr_opcode opcode, uint32_t len);
void pair_post_recv(struct pair_end *e, uint64_t wr_id, uint32_t len);

// The next completion of end `i`, while both NICs run.
struct vb_wc pair_wait(struct pair *p, unsigned i);
void pair_look(struct pair *p, unsigned i, uint64_t wr_id, enum vb_wc_opcode opcode,
               enum vb_wc_status status, uint32_t len, const char *file, int line);

#define pair_expect(p, i, wr_id, opcode, len) \
    pair_look(p, i, wr_id, opcode, VB_WC_OK, len, __FILE__, __LINE__)
#define pair_expect_error(p, i, wr_id, status) \
    pair_look(p, i, wr_id, VB_WC_NOP, status, 0, __FILE__, __LINE__)

#endif
