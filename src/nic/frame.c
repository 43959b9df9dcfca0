// SPDX-License-Identifier: Apache-2.0
// Addresses and paths.
#include "nic/frame.h"

#include "base/bytes.h"
#include "verbena/wqe.h"
#include "wire/opcode.h"
#include "wire/roce.h"

#include <string.h>

static const uint8_t v4_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool vb_ip_is_v4(const struct vb_ip *ip)
{
    return memcmp(ip->b, v4_prefix, sizeof v4_prefix) == 0;
}

bool vb_path_attr_is_legal(const struct vb_path_attr *attr)
{
    return attr->flow_label <= 0xfffff && attr->sl <= VB_WQE_SL_MAX && attr->reserved == 0;
}

void vb_path_init(struct vb_path *path, const struct vb_ip *local, const struct vb_ip *remote,
                  uint16_t src_port)
{
    *path = (struct vb_path){
        .local = *local, .remote = *remote, .src_port = src_port, .ipv4 = vb_ip_is_v4(remote)};
    if (path->ipv4)
        vb_icrc_flow_init_v4(&path->icrc, local->b + 12, remote->b + 12, src_port,
                             VB_ROCE_UDP_PORT);
    else
        vb_icrc_flow_init_v6(&path->icrc, local->b, remote->b, src_port, VB_ROCE_UDP_PORT);
}

uint32_t vb_tx_source(const struct vb_path *path, const uint8_t *head, uint32_t len)
{
    const uint32_t at = VB_BTH_BYTES + 5; // behind the Q_Key

    if (path->qpn || len < at + 3 || !(vb_opcode_table[head[0]].facts & VB_OP_DETH))
        return path->qpn;
    return vb_get_be24(head + at);
}

void vb_tx_seal(struct vb_txq *txq, const struct vb_tx_frame *frame, uint16_t id)
{
    uint8_t *bytes = txq->arena + frame->offset;

    if (frame->body_len == 0)
        vb_icrc_seal(&frame->path->icrc, id, bytes, frame->len);
    else
        vb_icrc_seal_parts(&frame->path->icrc, id, bytes, frame->head, frame->body, frame->body_len,
                           bytes + frame->head, frame->len - frame->head - frame->body_len);
}

void vb_tx_copy(const struct vb_txq *txq, const struct vb_tx_frame *frame, uint8_t *dst)
{
    const uint8_t *bytes = txq->arena + frame->offset;

    if (frame->body_len == 0) {
        memcpy(dst, bytes, frame->len);
        return;
    }
    memcpy(dst, bytes, frame->head);
    memcpy(dst + frame->head, frame->body, frame->body_len);
    dst += frame->head + frame->body_len;
    memcpy(dst, bytes + frame->head, frame->len - frame->head - frame->body_len);
}
