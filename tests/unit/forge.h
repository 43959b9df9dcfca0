// SPDX-License-Identifier: Apache-2.0
// One device with one queue pair against a forged peer: packets are written by hand, what the
// device sends is decoded and kept, time moves only when a test moves it.
#ifndef VB_TESTS_FORGE_H
#define VB_TESTS_FORGE_H

#include "host/driver.h"
#include "nic/dev.h"
#include "nic/pu.h"
#include "wire/packet.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    FORGE_MEMORY = 512 * 1024, // bytes of the registered region
    FORGE_SENT_MAX = 4096,     // frames kept
    FORGE_FEED_MAX = 256,      // frames of one batch
    FORGE_PEER_QPN = 0x00beef,
    FORGE_STEP_KINDS = VB_STEP_TURN + 1,
};

struct forge_opts {
    enum vb_qp_state state; // how far the queue pair is brought
    uint32_t mtu;
    uint32_t our_psn, peer_psn; // the first of each direction
    uint32_t access;            // remote rights of the queue pair
    uint8_t timeout, retry_cnt, rnr_retry, rnr_timer;
    uint8_t reads_out, reads_in; // max_rd_atomic, max_dest_rd_atomic
    uint32_t window_bytes, fetch_depth;
    uint32_t lend_bytes;
    uint32_t send_depth, recv_depth, sges, inline_bytes;
    uint32_t send_cq_entries, recv_cq_entries;
    uint64_t sq_start, rq_start, cq_start;
    bool no_wqe_checks, be_replies;
    enum vb_qp_type type;
    uint32_t srq_depth;  // receives come from a shared queue; 0: from the queue pair's own
    uint32_t xrcd;       // of an XRC target and its shared queue
    uint32_t qkey;       // of a UD queue pair, and what the forged peer sends
    uint32_t key_access; // of the memory's key
    bool check_zero_length, no_credits;
    bool ipv6; // addresses of both sides
    const struct vb_dcqcn_params *dcqcn;
    uint32_t audit_entries; // of a program's audit, which nobody reads; 0: there is no program
    bool guarded;           // memory can go and come back: forge.is_there
};

struct forge_sent {
    struct vb_packet pkt; // its payload points into bytes
    uint8_t *bytes;
    uint32_t len;
};

struct forge {
    struct vb_dev *dev;
    struct vb_pu *pu;
    uint64_t now_ns;
    struct forge_opts opts;
    uint32_t pd, send_cqn, recv_cqn, program;
    struct vb_driver_cq send_cq, recv_cq, audit;
    struct vb_driver_qp qp;
    struct vb_driver_srq srq;
    uint32_t srqn;
    struct vb_qpc *ctx; // the device's half, to look at
    uint8_t *memory;    // FORGE_MEMORY bytes, exactly
    bool is_there;
    struct vb_mem_guard guard;
    uint32_t key; // of memory
    struct vb_ip local, remote;
    // what came out
    struct forge_sent sent[FORGE_SENT_MAX];
    uint32_t sent_count;
    uint32_t kept; // frames, those forgotten included
    uint32_t steps[FORGE_STEP_KINDS];
    enum vb_rx_verdict verdict; // of the last frame
    // what goes in
    struct vb_rx_frame feed[FORGE_FEED_MAX];
    uint32_t feed_count;
};

struct forge_opts forge_defaults(void);
// The defaults with these remote rights of the queue pair and of the memory's key.
struct forge_opts forge_rights(uint32_t qp, uint32_t key);
struct forge *forge_open(const struct forge_opts *opts); // NULL: the defaults
void forge_close(struct forge *f);
struct vb_qpc_mods forge_mods(const struct forge *f, enum vb_qp_state state);
void forge_modify(struct forge *f, enum vb_qp_state state);
enum vb_qp_state forge_state(const struct forge *f);
const struct vb_counters *forge_counters(const struct forge *f);
uint64_t forge_addr(const struct forge *f, uint32_t offset); // of a byte of memory
void forge_fill(struct forge *f, uint32_t offset, uint32_t len, uint8_t seed);
uint64_t forge_word(const struct forge *f, uint32_t offset);
void forge_set_word(struct forge *f, uint32_t offset, uint64_t value);
bool forge_filled(const uint8_t *bytes, uint32_t len, uint8_t seed); // as forge_fill() would

// ---- running

void forge_run(struct forge *f); // feeds what waits, steps until idle, keeps what is sent
void forge_advance(struct forge *f, uint64_t ns); // time passes, then it runs
void forge_forget(struct forge *f);               // drops what was sent so far
void forge_keep(struct forge *f);                 // takes the transmit queue's frames

// ---- packets to the device

// RC's opcodes become those of the queue pair's own service.
struct vb_packet forge_packet(const struct forge *f, enum vb_opcode opcode, uint32_t psn);
struct vb_packet forge_reth(const struct forge *f, enum vb_opcode opcode, uint32_t psn,
                            uint32_t offset, uint32_t dma_len);
void forge_queue(struct forge *f, const struct vb_packet *pkt);
void forge_queue_from(struct forge *f, const struct vb_packet *pkt, const struct vb_ip *src);
void forge_queue_bytes(struct forge *f, const void *bytes, uint32_t len, const struct vb_ip *src);
enum vb_rx_verdict forge_give(struct forge *f, const struct vb_packet *pkt); // queues and runs
enum vb_rx_verdict forge_ack(struct forge *f, uint32_t psn);
enum vb_rx_verdict forge_nak(struct forge *f, uint32_t psn, enum vb_aeth_kind kind, unsigned value);
enum vb_rx_verdict forge_response(struct forge *f, enum vb_opcode opcode, uint32_t psn,
                                  const void *payload, uint32_t len);
// A request of SEND or WRITE with `len` bytes as forge_fill() makes them from `seed`.
enum vb_rx_verdict forge_send(struct forge *f, enum vb_opcode opcode, uint32_t psn, uint32_t len,
                              uint8_t seed);
// An atomic on memory[offset], to be changed and given.
struct vb_packet forge_atomic(const struct forge *f, enum vb_opcode opcode, uint32_t psn,
                              uint32_t offset, uint64_t swap_add, uint64_t compare);

// ---- work for the device

void forge_post_send(struct forge *f, const struct vb_send_wr *wr); // must be taken
void forge_post_recv(struct forge *f, uint64_t wr_id, uint32_t offset, uint32_t len);
void forge_post_srq(struct forge *f, uint64_t wr_id, uint32_t offset, uint32_t len);
// One signaled request from or to memory[offset]; the remote side is address 0x1000, key 0x2222.
void forge_post(struct forge *f, uint64_t wr_id, enum vb_wr_opcode opcode, uint32_t offset,
                uint32_t len);
void forge_post_flags(struct forge *f, uint64_t wr_id, enum vb_wr_opcode opcode, uint32_t len,
                      uint32_t flags);

// ---- looking; the macros report the caller's line

const struct vb_packet *forge_look_sent(const struct forge *f, uint32_t i, const char *file,
                                        int line);
void forge_look_answer(const struct forge *f, uint32_t i, uint32_t psn, uint8_t syndrome,
                       const char *file, int line);
void forge_look_ack(const struct forge *f, uint32_t i, uint32_t psn, const char *file, int line);
void forge_look_wc(struct forge *f, struct vb_driver_cq *cq, uint64_t wr_id,
                   enum vb_wc_status status, uint32_t byte_len, const char *file, int line);
void forge_look_none(struct forge *f, const char *file, int line);
struct vb_wc forge_take_wc(struct forge *f, struct vb_driver_cq *cq, const char *file, int line);
void forge_look_event(struct forge *f, enum vb_event_kind kind, uint32_t number, const char *file,
                      int line);
void forge_look_no_event(struct forge *f, const char *file, int line);

#define forge_sent(f, i) forge_look_sent(f, i, __FILE__, __LINE__)
// An ACK; of its credits only whether it has any is looked at.
#define forge_expect_ack(f, i, psn) forge_look_ack(f, i, psn, __FILE__, __LINE__)
#define forge_expect_credits(f, i, psn, code) \
    forge_look_answer(f, i, psn, vb_aeth_syndrome(VB_AETH_ACK, code), __FILE__, __LINE__)
#define forge_expect_nak(f, i, psn, code) \
    forge_look_answer(f, i, psn, vb_aeth_syndrome(VB_AETH_NAK, code), __FILE__, __LINE__)
#define forge_expect_rnr(f, i, psn, code) \
    forge_look_answer(f, i, psn, vb_aeth_syndrome(VB_AETH_RNR, code), __FILE__, __LINE__)
// The next send completion; its length is not looked at.
#define forge_expect_done(f, wr_id, status) \
    forge_look_wc(f, &(f)->send_cq, wr_id, status, UINT32_MAX, __FILE__, __LINE__)
#define forge_expect_recv(f, wr_id, status, len) \
    forge_look_wc(f, &(f)->recv_cq, wr_id, status, len, __FILE__, __LINE__)
#define forge_expect_none(f) forge_look_none(f, __FILE__, __LINE__)
#define forge_next_done(f)   forge_take_wc(f, &(f)->send_cq, __FILE__, __LINE__)
#define forge_next_recv(f)   forge_take_wc(f, &(f)->recv_cq, __FILE__, __LINE__)
// The oldest event, of the queue pair or of another object.
#define forge_expect_event(f, kind, number) forge_look_event(f, kind, number, __FILE__, __LINE__)
#define forge_expect_qp_event(f, kind)      forge_expect_event(f, kind, (f)->qp.qpn)
#define forge_expect_no_event(f)            forge_look_no_event(f, __FILE__, __LINE__)

#endif
