// SPDX-License-Identifier: Apache-2.0
// A place to run a chain program without ports, clocks or threads: a device for the program,
// another for its clients, and a wire between them that loses nothing. What runs is the NIC's own
// core.
#ifndef VB_CHAIN_MACHINE_H
#define VB_CHAIN_MACHINE_H

#include "chain/image.h"
#include "nic/step.h"

struct vb_machine;

struct vb_machine_opts {
    uint64_t seed;         // who makes the next step, where several can
    uint32_t units;        // of the server's device: a power of two; 0: one
    uint32_t fetch_depth;  // entries fetched ahead; 0: the device's default
    uint64_t start;        // of all counters: a multiple of every ring's size
    uint32_t rate, burst;  // of every queue; 0: no limit
    uint32_t limit;        // entries executed for each request; 0: any number
    uint64_t shared_bytes; // of each shared region, if more than the image asks for
    uint32_t last;         // who makes a step only when nobody else can: a unit, counted from 1, or
                           // UINT32_MAX, the clients; 0: nobody
};

// NULL: error (VB_IMAGE_TEXT bytes) says why.
struct vb_machine *vb_machine_create(const struct vb_image *image,
                                     const struct vb_machine_opts *opts, char *error);
void vb_machine_destroy(struct vb_machine *m);

// Memory as the server's or the client's CPU sees it.
uint8_t *vb_machine_data(struct vb_machine *m, uint32_t region);
uint8_t *vb_machine_send_ring(struct vb_machine *m, uint32_t queue);
uint8_t *vb_machine_recv_ring(struct vb_machine *m, uint32_t queue);
// The address of a region's first byte as the program names it.
uint64_t vb_machine_address(struct vb_machine *m, uint32_t region);
// Bytes of a region: a shared one may have more than the image asks for.
uint64_t vb_machine_bytes(const struct vb_machine *m, uint32_t region);
uint32_t vb_machine_qpn(const struct vb_machine *m, uint32_t queue);
// The queue with this number, or -1.
int vb_machine_queue(const struct vb_machine *m, uint32_t qpn);
// The completion queue with this number, or -1.
int vb_machine_cq(const struct vb_machine *m, uint32_t cqn);

// Makes one step, of the server (unit) or of the clients (unit UINT32_MAX). False: nothing is left
// to do, and no timer runs.
bool vb_machine_step(struct vb_machine *m, struct vb_step *step, uint32_t *unit);
// Steps until nothing is left to do, at most so many. Returns how many.
uint64_t vb_machine_run(struct vb_machine *m, uint64_t steps_max);
// The same without looking at steps, as a NIC runs: until nothing is left to do, timers aside.
void vb_machine_poll(struct vb_machine *m);
uint64_t vb_machine_now_ns(const struct vb_machine *m);

// The client of a queue sends a request; its receives are posted beforehand.
int vb_machine_send(struct vb_machine *m, uint32_t queue, const void *payload, uint32_t len);

struct vb_machine_reply {
    bool with_imm;
    uint32_t imm;
    uint32_t len;
    uint8_t bytes[256]; // of a SEND
};
// The oldest reply to the client of a queue. False: none.
bool vb_machine_take(struct vb_machine *m, uint32_t queue, struct vb_machine_reply *reply);

// Why the queue stopped: the syndrome of its first error completion; 0: none.
uint8_t vb_machine_fault(struct vb_machine *m, uint32_t queue);
// Blocks of the queue that were executed.
uint64_t vb_machine_executed(struct vb_machine *m, uint32_t queue);
// The program as it is now. NULL: no memory.
struct vb_image *vb_machine_snapshot(const struct vb_machine *m);

#endif
