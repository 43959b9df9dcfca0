// SPDX-License-Identifier: Apache-2.0
// Two ends of the public interface, each run by its own NIC's helper: over each port, or over IPv6,
// where one address must do for both. What the tests of the host layer share.
#ifndef VB_TESTS_DUO_H
#define VB_TESTS_DUO_H

#include "flavour.h"
#include "verbena/nic.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    DUO_BYTES = 1 << 16,
    DUO_RIGHTS = VB_RIGHT_ALL,
    DUO_REMOTE = VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_READ | VB_RIGHT_REMOTE_ATOMIC |
                 VB_RIGHT_FLUSH_GLOBAL,
    DUO_FOREVER = -1,  // as long as CTest lets the test run
    DUO_QUIET_MS = 20, // long enough for loopback, when nothing must come
    DUO_IDLE_MS = 200, // longer than anything that looks now and then sleeps
    DUO_TIMEOUT = 16, // of an acknowledgement, 268 ms: a busy machine may not run the peer for long
};

struct duo_end {
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_channel *channel;
    struct vb_cq *cq; // on the channel
    struct vb_mr *mr; // of all rights
    uint8_t *memory;  // DUO_BYTES, exactly
};

// A test's state: how its NICs are joined, and those that a failure leaves open.
struct duo_state {
    const char *way; // "udp", "shm", "auto", "ipv6" or "hull", each end attached to one of its own
    struct vb_nic *nic[2];
    struct vb_hull *hull[2];
};

struct duo {
    struct duo_end end[2];
    struct duo_state *state;
};

// Cmocka's group setup and teardown: a directory of its own where shm ports meet.
int duo_set_up(void **state);
int duo_tear_down(void **state);

// And those of each test.
int duo_begin(void **state);
int duo_end(void **state);

// Skips the test if its way is "ipv6" and the machine has no ::1.
void duo_open(struct duo *d, struct duo_state *state);
// What duo_open() makes on both NICs.
void duo_open_ends(struct duo *d);
void duo_close(struct duo *d);
// A NIC of this process alone on one of its addresses (0 to 2).
struct vb_nic *duo_open_nic(unsigned host, const char *port);

// Defaults fill what the options leave 0: both queues of 16 on the end's queue.
struct vb_qp *duo_make_qp(const struct duo_end *e, struct vb_qp_opts opts);
// How end `i` names the other, whose queue pair is `there`.
struct vb_qp_peer duo_peer(const struct duo *d, unsigned i, const struct vb_qp *there);
void duo_join(const struct duo *d, struct vb_qp *here, struct vb_qp *there);
// Two queue pairs of a service, connected.
void duo_connect(const struct duo *d, enum vb_service service, struct vb_qp *qp[2]);

// A signaled request to end 1's memory, from end 0's.
struct vb_send_wr duo_wr(const struct duo *d, enum vb_wr_opcode opcode, uint64_t wr_id);
// Posts it with `len` bytes at offset `at` of end 0's memory; UINT32_MAX: without any.
void duo_post(const struct duo *d, struct vb_qp *qp, struct vb_send_wr wr, uint32_t at,
              uint32_t len);
void duo_post_recv(const struct duo_end *e, struct vb_qp *qp, uint64_t wr_id, uint32_t at,
                   uint32_t len);

// The next completion; only this queue is polled.
struct vb_wc duo_wait(struct vb_cq *cq);
void duo_look(struct vb_cq *cq, uint64_t wr_id, enum vb_wc_status status, const char *file,
              int line);
#define duo_expect(cq, wr_id, status) duo_look(cq, wr_id, status, __FILE__, __LINE__)
// Nothing completes for a while.
void duo_expect_quiet(struct vb_cq *cq);
// The threads of this process's NICs, hulls and managers come to rest: none of them runs for
// DUO_IDLE_MS, not even to look.
void duo_expect_idle(void);
// The helpers of both NICs, or the hulls that they are attached to, are asleep.
void duo_await_sleep(const struct duo *d);

// Whether it becomes readable within so many ms, or DUO_FOREVER.
bool duo_is_readable(int fd, int timeout_ms);
// The next asynchronous event, by its descriptor.
struct vb_nic_event duo_wait_event(struct vb_nic *nic);
uint64_t duo_counter(const struct vb_nic *nic, const char *name);
void duo_fill(uint8_t *bytes, uint32_t len, uint32_t seed);
uint64_t duo_now_ns(void);
// Polls for one completion, which must be this one and good: for other threads than the test's,
// where cmocka's asserts do not work. DUO_CHECK ends such a thread and says where it failed.
bool duo_wait_ok(struct vb_cq *cq, uint64_t wr_id);
#define DUO_CHECK(w, condition)   \
    do {                          \
        if (!(condition)) {       \
            (w)->line = __LINE__; \
            return NULL;          \
        }                         \
    } while (0)

// The thread sanitizer takes threads that a forked child does not have for rivals, and lets it
// start none: there children neither free what they inherited nor open NICs.
#if UNDER_TSAN
#define DUO_CHILD_IS_FREE 0
#else
#define DUO_CHILD_IS_FREE 1
#endif

#define DUO_PATIENCE_S 3600 // for calls that take a time limit: longer than CTest lets a test run
#define DUO_TEST(test, way)                                                    \
    {                                                                          \
#test " (" way ")", test, duo_begin, duo_end, (void *)(uintptr_t)(way) \
    }
#define DUO_PORTS(test) DUO_TEST(test, "udp"), DUO_TEST(test, "shm"), DUO_TEST(test, "auto")
#define DUO_WAYS(test)  DUO_PORTS(test), DUO_TEST(test, "ipv6")

#endif
