// SPDX-License-Identifier: Apache-2.0
// The rate machine of DCQCN: cut, fast recovery, additive and hyper increase.
#include "nic/dcqcn.h"

#define NS_PER_US 1000u
#define NS_PER_S  1000000000u

struct vb_dcqcn_params vb_dcqcn_defaults(void)
{
#define FALLBACK(name, fallback, least, most) .name = (fallback),
    return (struct vb_dcqcn_params){VB_DCQCN_KNOBS(FALLBACK)};
#undef FALLBACK
}

static uint64_t Bps(uint32_t mbps)
{
    return (uint64_t)mbps * VB_DCQCN_BPS_PER_MBPS;
}

static uint32_t decayed(const struct vb_dcqcn_params *p, uint32_t alpha)
{
    return (uint32_t)((uint64_t)alpha * p->rp_dce_tcp_g >> 10);
}

static void set_due(struct vb_dcqcn *d, const struct vb_dcqcn_params *p, uint64_t now_ns)
{
    d->alpha_ns = now_ns + (uint64_t)p->rp_dce_tcp_rtt_us * NS_PER_US;
    d->rise_ns = now_ns + (uint64_t)p->rp_time_reset_us * NS_PER_US;
}

void vb_dcqcn_cut(struct vb_dcqcn *d, const struct vb_dcqcn_params *p, uint64_t now_ns)
{
    uint64_t least = Bps(p->rp_min_rate_mbps);

    if (d->limited)
        vb_dcqcn_advance(d, p, now_ns);
    if (!d->limited) {
        d->limited = true;
        d->rate_Bps = Bps(p->rp_max_rate_mbps);
        d->alpha = VB_DCQCN_ONE;
        d->free_ns = now_ns;
    }
    d->target_Bps = d->rate_Bps;
    d->rate_Bps -= d->rate_Bps * d->alpha / (2 * VB_DCQCN_ONE);
    if (d->rate_Bps < least)
        d->rate_Bps = least;
    d->alpha = decayed(p, d->alpha) + (1024 - p->rp_dce_tcp_g) * (VB_DCQCN_ONE >> 10);
    d->bytes = 0;
    d->time_stage = d->byte_stage = 0;
    set_due(d, p, now_ns);
}

// One step up. The counter that is behind decides about hyper increase, the one ahead about the
// end of fast recovery.
static void rise(struct vb_dcqcn *d, const struct vb_dcqcn_params *p)
{
    uint64_t most = Bps(p->rp_max_rate_mbps);
    uint32_t behind = d->time_stage < d->byte_stage ? d->time_stage : d->byte_stage;
    uint32_t ahead = d->time_stage < d->byte_stage ? d->byte_stage : d->time_stage;

    if (behind > p->rp_threshold)
        d->target_Bps += (behind - p->rp_threshold) * Bps(p->rp_hai_rate_mbps);
    else if (ahead >= p->rp_threshold)
        d->target_Bps += Bps(p->rp_ai_rate_mbps);
    if (d->target_Bps > most)
        d->target_Bps = most;
    d->rate_Bps = (d->rate_Bps + d->target_Bps) / 2;
    if (most - d->rate_Bps < Bps(p->rp_ai_rate_mbps))
        d->limited = false;
}

void vb_dcqcn_advance(struct vb_dcqcn *d, const struct vb_dcqcn_params *p, uint64_t now_ns)
{
    uint64_t rise_every = (uint64_t)p->rp_time_reset_us * NS_PER_US;
    uint64_t decay_every = (uint64_t)p->rp_dce_tcp_rtt_us * NS_PER_US;

    // What was known so long ago is known no more.
    if (now_ns >= d->rise_ns + VB_DCQCN_PATIENCE * rise_every) {
        d->limited = false;
        return;
    }
    for (; d->limited && now_ns >= d->rise_ns; d->rise_ns += rise_every) {
        d->time_stage++;
        rise(d, p);
    }
    for (; d->alpha > 0 && now_ns >= d->alpha_ns; d->alpha_ns += decay_every)
        d->alpha = decayed(p, d->alpha);
}

void vb_dcqcn_charge(struct vb_dcqcn *d, const struct vb_dcqcn_params *p, uint64_t now_ns,
                     uint32_t bytes)
{
    uint64_t burst_ns = (uint64_t)p->rp_burst_bytes * NS_PER_S / d->rate_Bps;
    uint64_t oldest_ns = now_ns > burst_ns ? now_ns - burst_ns : 0;

    if (d->free_ns < oldest_ns)
        d->free_ns = oldest_ns; // what a longer pause did not use is lost
    d->free_ns += (uint64_t)bytes * NS_PER_S / d->rate_Bps;
    d->bytes += bytes;
    while (d->limited && d->bytes >= p->rp_byte_reset) {
        d->bytes -= p->rp_byte_reset;
        d->byte_stage++;
        rise(d, p);
    }
}
