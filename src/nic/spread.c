// SPDX-License-Identifier: Apache-2.0
// Datagrams of one queue pair spread over the receive queues of others.
#include "nic/spread.h"

#include "base/bits.h"
#include "base/bytes.h"
#include "nic/pu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint32_t vb_toeplitz(const uint8_t key[VB_SPREAD_KEY], const uint8_t *input, uint32_t len)
{
    uint32_t hash = 0, window = vb_get_be32(key);

    for (uint32_t i = 0; i < len && i + 4 < VB_SPREAD_KEY; i++) {
        for (int bit = 7; bit >= 0; bit--) {
            if (input[i] >> bit & 1)
                hash ^= window;
            window = window << 1 | (key[i + 4] >> bit & 1);
        }
    }
    return hash;
}

static uint32_t add_ip(uint8_t *input, uint32_t len, const struct vb_ip *ip)
{
    uint32_t skip = vb_ip_is_v4(ip) ? 12 : 0;
    memcpy(input + len, ip->b + skip, 16 - skip);
    return len + 16 - skip;
}

struct vb_qpc *vb_spread_pick(const struct vb_qpc *qp, const struct vb_rx_frame *frame)
{
    const struct vb_spread *s = qp->spread;
    uint8_t input[32];
    uint32_t len = 0;

    if (s->fields & VB_SPREAD_SRC)
        len = add_ip(input, len, &frame->src);
    if (s->fields & VB_SPREAD_DST)
        len = add_ip(input, len, frame->to ? frame->to : &qp->local);
    struct vb_qpc *to = s->member[vb_toeplitz(s->key, input, len) & (s->count - 1)];
    bool takes = to && to->state >= VB_QPS_RTR && to->state != VB_QPS_ERR && !to->resp.closing;
    return takes ? to : NULL;
}

static bool may_join(const struct vb_qpc *qp, const struct vb_qpc *member)
{
    return member != qp && member->type == VB_QPT_UD && member->pu == qp->pu && !member->spread;
}

int vb_dev_qp_spread(struct vb_dev *dev, uint32_t qpn, const struct vb_spread_attr *attr)
{
    struct vb_qpc *qp = vb_dev_qp(dev, qpn);

    if (!qp)
        return -ENOENT;
    if (qp->type != VB_QPT_UD || qp->spread || qp->spreads || attr->count > VB_SPREAD_MAX ||
        !vb_is_pow2(attr->count))
        return -EINVAL;
    struct vb_spread *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->count = attr->count;
    s->fields = attr->fields;
    memcpy(s->key, attr->key, sizeof s->key);
    for (uint32_t i = 0; i < attr->count; i++) {
        s->member[i] = vb_dev_qp(dev, attr->qpn[i]);
        if (!s->member[i] || !may_join(qp, s->member[i])) {
            free(s);
            return -EINVAL;
        }
    }
    for (uint32_t i = 0; i < attr->count; i++)
        s->member[i]->spreads++;
    s->next = dev->spreads;
    dev->spreads = s;
    qp->spread = s;
    return 0;
}

static void forget(struct vb_spread *s, struct vb_qpc *gone)
{
    for (uint32_t i = 0; i < s->count && gone->spreads; i++) {
        if (s->member[i] != gone)
            continue;
        s->member[i] = NULL;
        gone->spreads--;
    }
}

static void end(struct vb_dev *dev, struct vb_spread *s)
{
    struct vb_spread **at = &dev->spreads;

    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->member[i])
            s->member[i]->spreads--;
    free(s);
}

void vb_spread_leave(struct vb_dev *dev, struct vb_qpc *qp)
{
    if (qp->spread)
        end(dev, qp->spread);
    qp->spread = NULL;
    for (struct vb_spread *s = dev->spreads; s && qp->spreads; s = s->next)
        forget(s, qp);
}
