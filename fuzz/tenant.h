// SPDX-License-Identifier: Apache-2.0
// A server's NIC with the programs of two clients, and the clients' NIC, with a wire between them:
// all memory has its exact size, and every step is judged by what it touched.
#ifndef VB_FUZZ_TENANT_H
#define VB_FUZZ_TENANT_H

#include "chain/image.h"
#include "nic/dev.h"
#include "nic/pu.h"
#include "verbena/offload.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TENANT_QUEUES = 3,
    TENANT_CQS = 6,
    TENANT_REGIONS = 16,
    TENANT_SLOTS = 4,
    TENANT_VALUE_MAX = 64,
    TENANT_VALUE = 24,    // bytes of the value that there is
    TENANT_SHARED = 1024, // of the index and of the items
    TENANT_PAYLOAD = 8192,
    TENANT_DEPTH = 64,   // requests and replies of a client
    TENANT_LIMIT = 3000, // entries for a request
    TENANT_UNITS = 2,
    TENANT_LANE = 128,
    TENANT_STEPS = 40000, // far more than one poll may take
};

enum tenant_kind {
    TENANT_HASH,
    TENANT_HASH_SEQ,
    TENANT_HASH_PAR,
    TENANT_WALK,
    TENANT_WALK_STOPS,
    TENANT_WALK_COPIES,
    TENANT_LOOP,
    TENANT_ASKED, // those before it answer
    TENANT_MOV = TENANT_ASKED,
    TENANT_KINDS
};

struct tenant_memory {
    uint8_t *at; // NULL: none
    uint64_t addr, bytes;
    uint32_t key;
};

struct tenant_cq {
    uint8_t *ring;
    uint32_t dbrec[2], entries, cqn, taken;
};

// A client's program, and the client.
struct tenant {
    enum tenant_kind kind;
    const struct vb_image *image;
    uint32_t program, slots;
    struct tenant_cq cq[TENANT_CQS];
    uint32_t qpn[TENANT_QUEUES], dbrec[TENANT_QUEUES][2];
    struct tenant_memory send[TENANT_QUEUES], recv[TENANT_QUEUES], data[TENANT_REGIONS];
    uint8_t *marked[TENANT_QUEUES]; // by byte of a send ring: belongs to a key
    uint32_t k;                     // the queue that the client is connected with
    // The client's end.
    uint32_t far_qpn, far_dbrec[2], sent, asked;
    struct tenant_cq far_cq;
    struct tenant_memory far_ring, far_recvs, far_payload;
};

// Frames to one unit: those handed over, and those behind them.
struct tenant_lane {
    struct vb_rx_frame frame[TENANT_LANE];
    uint32_t fed, count;
};

struct tenant_server {
    struct vb_dev *near, *far;
    uint32_t units, depth, pd, far_pd;
    uint64_t now_ns, next_addr;
    struct vb_ip near_ip, far_ip;
    struct tenant_memory index, items, other; // `other` is in the domain, and nobody's
    uint8_t before[3][TENANT_SHARED];
    struct tenant tenant[2]; // the first is hostile
    struct tenant_lane lane[TENANT_UNITS + 1];
    // What becomes of the hostile one's next frame.
    bool loses, repeats;
    uint8_t spoils;
    uint16_t spoils_at;
};

void tenant_require(bool holds);

// ---- tenant.c: life
void tenant_open(struct tenant_server *s, const enum tenant_kind kind[2]);
void tenant_close(struct tenant_server *s);
// Rings the doorbells of a program.
void tenant_start(struct tenant_server *s, struct tenant *t);

// ---- tenant_image.c: programs and what they are asked
const struct vb_image *tenant_image(enum tenant_kind kind);
void tenant_fill(struct tenant_server *s);
// A request that finds the value; returns its length.
uint32_t tenant_good_request(const struct tenant_server *s, enum tenant_kind kind,
                             uint8_t *request);

// ---- tenant_run.c: clients, the wire, and judging
// The client posts an entry; of requests the payload is where its next message lies.
uint8_t *tenant_payload(struct tenant *t);
void tenant_post(struct tenant_server *s, struct tenant *t, const uint8_t entry[64]);
void tenant_send(struct tenant_server *s, struct tenant *t, const uint8_t *bytes, uint32_t len);
// A frame for a unit of the server's; copied.
void tenant_frame(struct tenant_server *s, const uint8_t *bytes, uint32_t len, struct vb_ip from);
// At most so many turns; ends when nothing is left to do.
void tenant_run(struct tenant_server *s, uint32_t turns);
// The client asks for the value, and gets it.
void tenant_expect_answer(struct tenant_server *s, struct tenant *t);
// What nobody may write is as it was.
void tenant_expect_unchanged(const struct tenant_server *s);
void tenant_observe(void *ctx, const struct vb_step *step);
void tenant_observe_far(void *ctx, const struct vb_step *step);

#endif
