// SPDX-License-Identifier: Apache-2.0
// The reference model's rates: those of DCQCN (Zhu et al., SIGCOMM 2015), which CNPs cut, and those
// of shares. The model keeps its own books, in floating point, by what it sees come and go: marks,
// CNPs and packets. Packets of SEND and WRITE have rates, and so have responses to READs and to
// requests that are answered by one packet; other requests and acknowledgements have none, but an
// acknowledgement does not overtake a response.
//
// A rate R of a queue pair: each packet of b bytes takes b/R, and the next may leave when that time
// is over; a pause of more than a burst's time earns no more than a burst. So no packet may leave
// before free_ns, and a queue pair that waits goes on when a quarter of a burst more is free, at
// the latest. The NIC counts in whole bytes a second, nanoseconds and parts of 2^20 of alpha, each
// off by less than one. The model carries along how far that may take the NIC from the exact
// values. A decay of alpha by g multiplies what alpha is off by with g. A cut makes r (1 - a/2) of
// a rate r: what r is off by is multiplied with 1 - a'/2, where a' is the NIC's alpha, and r times
// half of what alpha is off by is added. A rise halves the sum of what rate and target are off by.
// At a least or greatest value that both have reached nothing is off. A time of b bytes is off by
// b / (r - off) - b / r. Nothing else is allowed (seed 173665544: alpha decays often and slowly,
// and 2,000 ns, which were allowed before, were not enough).
//
// The rate R of a share, with a burst B, on U units: a unit that has queue pairs of the share has a
// part r of the rate, and the parts are R + U at most, as each is rounded up. A unit has credit C,
// which grows by r up to B. A queue pair q takes pieces of P = B/4 from it in advance: C may fall
// below 0, and a piece is dated when C would be 0 without it and those behind it. The queue pair
// has G[q] bytes left, P at most. It sends while G[q] is above 0 and its last piece is due, so it
// may send one packet of at most F bytes too much: G[q] > -F. Let
//     S = C + sum of G[q]    on one unit.
// Sending b bytes takes b from S. Time adds r at most. Nothing else adds to S: a piece that is
// taken or given back moves between C and G; a queue pair that goes leaves its debt to C; a part
// that changes moves dates, not bytes; a piece that is not used for B/r is lost, and a unit without
// queue pairs earns nothing. So a time T sees on one unit at most r T + S(begin) - S(end) bytes.
//     S(begin) <= B + Q P, with Q queue pairs.
//     S(end) >= -P - Q (F - 1), where it ends with a packet:
// that packet's piece is due, so there is a last piece taken of those that are due. C was -P at
// least at its date. What was taken from C since is of queue pairs that wait, whose G has it, less
// what they owed before: F - 1 at most; or it is the debt of queue pairs that have gone, F - 1
// each. Those that came in their places have not sent, as their pieces are behind. So each of the Q
// places has F - 1 at most, but a queue pair that was made again on another unit has left a debt on
// each unit. All units together send in a time T at most
//     (R + U) T + U (B + P) + Q (P + F)
// bytes, with U F in place of F in worlds where queue pairs change units.
//
// A queue pair that waits has made up for its last packet, and has a piece of its own, behind those
// of the others that wait, and behind debts in the places of queue pairs that have gone: it goes on
// after Q (F + P) / (R/U) at the latest. It may wait however long ago the share was used: what a
// queue pair has to make up for is not forgotten.
#include "sim/model.h"

#include "sim/trace.h"

enum {
    RESUME_PART = 4,
    SLACK_NS = 2000, // of shares: the model's arithmetic, and rounding
    PATIENCE = 1024, // steps up that nobody looked at, after which the limit is forgotten
};

#define MBPS       0.000125 // in bytes a nanosecond
#define RATE_UNIT  1e-9     // the NIC's: a byte a second
#define ALPHA_UNIT (1.0 / (1 << 20))

static struct vb_coverage *cover_of(const struct vb_ep *ep)
{
    return ep->node->world->cover;
}

static const struct vb_dcqcn_params *params_of(const struct vb_ep *ep)
{
    return &ep->node->world->scen.cc;
}

static bool is_controlled(const struct vb_ep *ep)
{
    return ep->node->world->scen.dcqcn && ep->opts.service != VB_SERVICE_UD;
}

// ---- CNPs

void vb_model_marked(struct vb_ep *ep)
{
    struct vb_paced *p = &ep->paced;

    ep->node->tally.marked++;
    vb_cover(cover_of(ep), VB_COVER_CC_MARKED);
    if (is_controlled(ep) && ep->node->world->now_ns >= p->quiet_ns)
        p->cnp_due = true;
}

void vb_model_cnp_out(struct vb_ep *ep, const struct vb_packet *pkt)
{
    struct vb_paced *p = &ep->paced;

    VB_MODEL_CHECK(ep, p->cnp_due, "sent a CNP that no mark called for");
    VB_MODEL_CHECK(ep, pkt->marks & VB_MARK_BECN, "sent a CNP without its mark");
    p->cnp_due = false;
    p->quiet_ns = ep->node->world->now_ns + 1000ull * params_of(ep)->cnp_interval_us;
    ep->node->tally.cnps_sent++;
    vb_cover(cover_of(ep), VB_COVER_CC_CNP_SENT);
}

// ---- the rate machine

static double greater(double a, double b)
{
    return a > b ? a : b;
}

static void set_unsure(struct vb_ep *ep)
{
    if (!ep->paced.unsure)
        vb_excuse(cover_of(ep), VB_EXCUSE_RATE_UNSURE);
    ep->paced.unsure = true;
}

// A wait ends when its last packet and a quarter of a burst are free, at the latest at the least
// rate.
static double longest_wait_ns(const struct vb_ep *ep)
{
    const struct vb_dcqcn_params *c = params_of(ep);
    return (VB_FRAME_MAX + c->rp_burst_bytes / RESUME_PART) / (c->rp_min_rate_mbps * MBPS);
}

// Neither the model nor the NIC limits it any more; a wait may have begun meanwhile.
static void unlimited(struct vb_ep *ep)
{
    struct vb_paced *p = &ep->paced;
    double end_ns = (double)ep->node->world->now_ns + longest_wait_ns(ep);

    p->limited = false;
    if (p->unsure && p->latest_ns < end_ns)
        p->latest_ns = end_ns;
    p->unsure = false;
}

static void step_up(struct vb_ep *ep)
{
    const struct vb_dcqcn_params *c = params_of(ep);
    struct vb_paced *p = &ep->paced;
    uint32_t less = p->time_stage < p->byte_stage ? p->time_stage : p->byte_stage;
    uint32_t more = p->time_stage + p->byte_stage - less;
    double most = c->rp_max_rate_mbps * MBPS;

    if (less > c->rp_threshold)
        p->target += (less - c->rp_threshold) * (c->rp_hai_rate_mbps * MBPS);
    else if (more >= c->rp_threshold)
        p->target += c->rp_ai_rate_mbps * MBPS;
    if (p->target > most) { // the NIC's, too, or it comes nearer
        p->target_off = greater(0, p->target_off - (p->target - most));
        p->target = most;
    }
    p->rate = (p->rate + p->target) / 2;
    p->rate_off = (p->rate_off + p->target_off) / 2 + RATE_UNIT;
    double over = most - p->rate - c->rp_ai_rate_mbps * MBPS;
    // So close to the edge the NIC may be on the other side of it, and the rate is not judged until
    // both are surely beyond it.
    if (over <= p->rate_off && over >= -p->rate_off)
        set_unsure(ep);
    else if (over < 0)
        unlimited(ep);
    if (!p->limited)
        vb_cover(cover_of(ep), VB_COVER_CC_RECOVERED);
}

static void decay_alpha(struct vb_paced *p, double g)
{
    p->alpha *= g;
    p->alpha_off = p->alpha_off * g + ALPHA_UNIT;
}

static void catch_up(struct vb_ep *ep)
{
    const struct vb_dcqcn_params *c = params_of(ep);
    struct vb_paced *p = &ep->paced;
    uint64_t now = ep->node->world->now_ns;
    uint64_t rise = 1000ull * c->rp_time_reset_us, decay = 1000ull * c->rp_dce_tcp_rtt_us;

    if (p->limited && now >= p->rise_ns + PATIENCE * rise)
        unlimited(ep);
    for (; p->limited && now >= p->rise_ns; p->rise_ns += rise) {
        p->time_stage++;
        step_up(ep);
    }
    for (; p->limited && now >= p->decay_ns; p->decay_ns += decay)
        decay_alpha(p, c->rp_dce_tcp_g / 1024.0);
}

// How far the NIC may be from the time that so many bytes take, in whole nanoseconds.
static double time_off(const struct vb_paced *p, double bytes)
{
    double least = p->unsure ? p->rate / 2 : p->rate - p->rate_off;
    return bytes / least - bytes / p->rate + 1;
}

static double resumption(const struct vb_ep *ep)
{
    const struct vb_paced *p = &ep->paced;
    double part = params_of(ep)->rp_burst_bytes / RESUME_PART;

    return p->free_ns + p->free_off_ns + part / p->rate + time_off(p, part);
}

static void cut(struct vb_ep *ep)
{
    const struct vb_dcqcn_params *c = params_of(ep);
    struct vb_paced *p = &ep->paced;
    uint64_t now = ep->node->world->now_ns;
    double least = c->rp_min_rate_mbps * MBPS, g = c->rp_dce_tcp_g / 1024.0;

    if (p->limited)
        catch_up(ep);
    if (!p->limited) {
        p->rate = c->rp_max_rate_mbps * MBPS;
        p->alpha = 1;
        p->free_ns = (double)now;
        p->rate_off = p->alpha_off = p->free_off_ns = 0;
        p->limited = true;
    }
    if (p->unsure) { // the NIC may begin anew, at the greatest rate
        p->rate_off = greater(p->rate_off, c->rp_max_rate_mbps * MBPS - p->rate);
        p->alpha_off = greater(p->alpha_off, 1 - p->alpha);
    }
    p->target = p->rate;
    p->target_off = p->rate_off;
    p->rate_off = p->rate_off * (1 - p->alpha / 2 + p->alpha_off / 2) + p->rate * p->alpha_off / 2 +
                  RATE_UNIT;
    p->rate *= 1 - p->alpha / 2;
    if (p->rate + p->rate_off <= least)
        p->rate_off = 0; // the NIC has the least rate as well
    if (p->rate < least)
        p->rate = least;
    if (p->rate_off > p->rate / 2)
        set_unsure(ep); // so little is known of it
    decay_alpha(p, g);
    p->alpha += 1 - g;
    p->bytes = p->time_stage = p->byte_stage = 0;
    if (p->latest_ns < resumption(ep)) // a wait that has begun ends as it would have
        p->latest_ns = resumption(ep);
    p->rise_ns = now + 1000ull * c->rp_time_reset_us;
    p->decay_ns = now + 1000ull * c->rp_dce_tcp_rtt_us;
}

static void charge(struct vb_ep *ep, uint32_t bytes)
{
    const struct vb_dcqcn_params *c = params_of(ep);
    struct vb_paced *p = &ep->paced;
    double oldest = (double)ep->node->world->now_ns - c->rp_burst_bytes / p->rate;

    double off = time_off(p, c->rp_burst_bytes), gap = oldest - p->free_ns;
    if (gap > p->free_off_ns + off || (gap > -p->free_off_ns - off && p->free_off_ns < off))
        p->free_off_ns = off; // both have lost what they did not use; or one of them may have
    if (gap > 0)
        p->free_ns = oldest;
    p->free_ns += bytes / p->rate;
    p->free_off_ns += time_off(p, bytes);
    p->latest_ns = resumption(ep);
    p->bytes += bytes;
    for (; p->limited && p->bytes >= c->rp_byte_reset; p->bytes -= c->rp_byte_reset) {
        p->byte_stage++;
        step_up(ep);
    }
}

enum vb_rx_verdict vb_model_cnp_in(struct vb_ep *ep, const struct vb_rx_frame *frame)
{
    if (!ep->paced.connected || ep->opts.service == VB_SERVICE_UD ||
        !vb_ip_equal(&frame->src, &ep->peer->node->ip))
        return VB_RX_STRANGER;
    if (!is_controlled(ep) || ep->state == VB_QPS_ERR) {
        ep->node->tally.cnps_ignored++;
        vb_cover(cover_of(ep), VB_COVER_CC_CNP_IGNORED);
        return VB_RX_STRANGER;
    }
    ep->node->tally.cnps_handled++;
    vb_cover(cover_of(ep), VB_COVER_CC_CNP_HANDLED);
    cut(ep);
    return VB_RX_APPLIED;
}

// ---- shares

static const struct vb_share_attr *share_of(const struct vb_ep *ep)
{
    uint32_t i = vb_ep_share_index(ep);
    return i ? &ep->node->share_attr[i - 1] : NULL;
}

// Queue pairs of the same share.
static uint32_t sharers(const struct vb_ep *ep)
{
    const struct vb_node *node = ep->node;
    uint32_t count = 0;

    for (uint32_t i = 0; i < node->ep_count; i++)
        count += vb_ep_share_index(node->ep[i]) == vb_ep_share_index(ep);
    return count;
}

static void charge_share(struct vb_ep *ep, uint32_t bytes)
{
    const struct vb_share_attr *a = share_of(ep);
    const struct vb_scenario *scen = &ep->node->world->scen;
    uint64_t now = ep->node->world->now_ns;

    if (!a)
        return;
    vb_cover(cover_of(ep), VB_COVER_SHARE_SENT);
    if (!a->rate_Bps)
        return;
    vb_cover(cover_of(ep), VB_COVER_SHARE_PACED);
    struct vb_bucket *b = &ep->node->share_bucket[vb_ep_share_index(ep) - 1];
    b->bytes -= (double)(now - b->at_ns) * 1e-9 * (double)(a->rate_Bps + scen->units);
    b->bytes = (b->bytes > 0 ? b->bytes : 0) + bytes;
    b->at_ns = now;
    double piece = a->burst_bytes / 4.0;
    double debt = VB_FRAME_MAX * (scen->tight ? scen->units : 1.0); // rings that are too short move
    double most = scen->units * (a->burst_bytes + piece) + sharers(ep) * (piece + debt);
    if (b->bytes > a->burst_bytes)
        vb_cover(cover_of(ep), VB_COVER_SHARE_FILLED);
    VB_MODEL_CHECK(ep, b->bytes <= most, "its share sent %.0f bytes past its rate, at most %.0f",
                   b->bytes, most);
}

// ---- packets

static bool has_rate(const struct vb_packet *pkt)
{
    return pkt->facts & VB_OP_REQUEST ? pkt->facts & (VB_OP_SEND | VB_OP_WRITE)
                                      : !(pkt->facts & VB_OP_ACK);
}

void vb_model_rate_out(struct vb_ep *ep, const struct vb_packet *pkt, uint32_t bytes)
{
    struct vb_paced *p = &ep->paced;
    double now = (double)ep->node->world->now_ns;

    if (!has_rate(pkt))
        return;
    charge_share(ep, bytes);
    if (p->held_ns)
        p->freed_ns = ep->node->world->now_ns;
    p->held_ns = 0;
    if (!p->limited)
        return;
    catch_up(ep);
    if (!p->limited)
        return;
    double soonest = p->free_ns - p->free_off_ns;
    VB_MODEL_CHECK(ep, soonest <= now || p->unsure, "sent PSN %u %.0f ns sooner than its rate says",
                   pkt->psn, soonest - now);
    charge(ep, bytes);
}

static bool is_paced(const struct vb_ep *ep)
{
    const struct vb_share_attr *share = share_of(ep);
    return is_controlled(ep) || (share && share->rate_Bps);
}

void vb_model_rate_timer(struct vb_ep *ep)
{
    VB_MODEL_CHECK(ep, is_paced(ep), "has a timer of a rate, but no rate");
    vb_cover(cover_of(ep), VB_COVER_CC_TIMER);
}

// How long a queue pair waits for its share's rate at most; 0: it has none.
static double line_ns(const struct vb_ep *ep)
{
    const struct vb_share_attr *share = share_of(ep);

    if (!share || !share->rate_Bps)
        return 0;
    double ns_per_byte = 1e9 * ep->node->world->scen.units / (double)share->rate_Bps;
    return sharers(ep) * (share->burst_bytes / 4.0 + VB_FRAME_MAX) * ns_per_byte;
}

bool vb_model_rate_holds(const struct vb_ep *ep, uint64_t *until_ns)
{
    const struct vb_paced *p = &ep->paced;
    double now = (double)ep->node->world->now_ns, end = p->latest_ns, line = line_ns(ep);
    bool waits = end > now || line > 0;

    if (line > 0 && end < now + line + SLACK_NS)
        end = now + line + SLACK_NS;
    if (p->unsure)
        end = greater(end, now + longest_wait_ns(ep) + SLACK_NS);
    *until_ns = (uint64_t)end;
    return waits || p->unsure;
}

// A unit that was woken later than its timers asked for may have lost pieces of the share's rate,
// and its queue pairs stand in line for others.
static bool has_slept(const struct vb_ep *ep)
{
    const struct vb_share_attr *share = share_of(ep);
    double burst_ns =
        share && share->rate_Bps ? 1e9 * share->burst_bytes / (double)share->rate_Bps : 0;

    return (double)ep->node->world->now_ns > (double)ep->paced.timers_ns + burst_ns;
}

void vb_model_rate_waits(struct vb_ep *ep, bool waits)
{
    struct vb_paced *p = &ep->paced;
    uint64_t now = ep->node->world->now_ns;

    if (!waits || p->held_ns == 0 || has_slept(ep))
        p->held_ns = waits ? now : 0;
    p->timers_ns = vb_pu_deadline(vb_ep_unit(ep)->pu);
    double since = greater(p->latest_ns, (double)p->held_ns);
    double most = line_ns(ep) + (p->unsure ? longest_wait_ns(ep) : 0);
    VB_MODEL_CHECK(ep, !waits || (double)now <= since + most + SLACK_NS,
                   "has waited for its rate for %.0f ns, at most %.0f", (double)now - since, most);
}

void vb_model_rate_idle(struct vb_ep *ep)
{
    VB_MODEL_CHECK(ep, !ep->paced.cnp_due, "is idle with a CNP owed");
}
