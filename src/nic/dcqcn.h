// SPDX-License-Identifier: Apache-2.0
// DCQCN's reaction point (Zhu et al., SIGCOMM 2015): the rate of one queue pair, which falls when
// the peer tells of congestion and rises again by time and by bytes sent. Integers only, no clock:
// what timers would do is caught up with when the rate is looked at.
#ifndef VB_NIC_DCQCN_H
#define VB_NIC_DCQCN_H

#include <stdbool.h>
#include <stdint.h>

// X(name, default, least, most). Names are mlx5's where it has one; defaults are the paper's.
#define VB_DCQCN_KNOBS(X)                                                                    \
    X(cnp_interval_us, 50, 0, 1000000)        /* between two CNPs of one queue pair */       \
    X(rp_time_reset_us, 55, 1, 1000000)       /* a step up every so often */                 \
    X(rp_byte_reset, 10000000, 1, 2000000000) /* and whenever so many bytes were sent */     \
    X(rp_threshold, 5, 1, 1000)               /* steps of one kind that end fast recovery */ \
    X(rp_ai_rate_mbps, 40, 1, 400000)         /* additive increase */                        \
    X(rp_hai_rate_mbps, 400, 1, 400000)       /* hyper increase */                           \
    X(rp_dce_tcp_g, 1020, 0, 1023)            /* 1024 (1 - g): g is 1/256 */                 \
    X(rp_dce_tcp_rtt_us, 55, 1, 1000000)      /* alpha decays every so often */              \
    X(rp_min_rate_mbps, 10, 1, 400000)                                                       \
    X(rp_max_rate_mbps, 40000, 10, 400000)  /* where cuts begin; from there on no limit */   \
    X(rp_burst_bytes, 16384, 4096, 1048576) /* may leave at once after a pause */

struct vb_dcqcn_params {
#define VB_DCQCN_FIELD(name, fallback, least, most) uint32_t name;
    VB_DCQCN_KNOBS(VB_DCQCN_FIELD)
#undef VB_DCQCN_FIELD
};

enum {
    VB_DCQCN_ONE = 1 << 20,        // alpha of 1
    VB_DCQCN_PATIENCE = 1024,      // steps up while nothing was sent, after which there is no limit
    VB_DCQCN_BPS_PER_MBPS = 125000 // bytes a second
};

struct vb_dcqcn {
    uint64_t rate_Bps, target_Bps;
    uint64_t free_ns;  // until then what was sent takes, at the rate
    uint64_t alpha_ns; // when alpha decays next
    uint64_t rise_ns;  // when the timer's next step up is due
    uint64_t bytes;    // sent since the byte counter's last step
    uint32_t alpha;    // of VB_DCQCN_ONE
    uint32_t time_stage, byte_stage;
    bool limited; // false: no congestion was heard of, or the rate has recovered
};

struct vb_dcqcn_params vb_dcqcn_defaults(void);
// A CNP has come: cuts the rate.
void vb_dcqcn_cut(struct vb_dcqcn *d, const struct vb_dcqcn_params *p, uint64_t now_ns);
// Does what was due until now. To be called before the rate is looked at, while it is limited.
void vb_dcqcn_advance(struct vb_dcqcn *d, const struct vb_dcqcn_params *p, uint64_t now_ns);
// So many bytes have left.
void vb_dcqcn_charge(struct vb_dcqcn *d, const struct vb_dcqcn_params *p, uint64_t now_ns,
                     uint32_t bytes);

#endif
