// SPDX-License-Identifier: Apache-2.0
// Bytes between packets and scatter lists: every segment is proved before the first byte moves.
#include "nic/pu.h"

#include <string.h>

// The pieces of segments that a byte range covers.
struct pieces {
    uint32_t count, copies;
    struct {
        uint8_t *at; // NULL: copied, by these
        uint32_t len, key;
        uint64_t addr;
    } piece[VB_MAX_SGE];
};

static enum vb_mem_refusal resolve(struct vb_pu *pu, struct vb_accessor who,
                                   const struct vb_seg *seg, uint32_t num_seg, uint32_t offset,
                                   uint32_t len, enum vb_access need, struct pieces *out)
{
    out->count = out->copies = 0;
    for (uint32_t i = 0; i < num_seg && len > 0; i++) {
        if (offset >= seg[i].len) {
            offset -= seg[i].len;
            continue;
        }
        uint32_t take = seg[i].len - offset < len ? seg[i].len - offset : len;
        enum vb_mem_refusal r =
            vb_mem_access(&pu->dev->mkeys, who, seg[i].key, seg[i].addr + offset, take, need,
                          &out->piece[out->count].at);
        if (r == VB_MEM_COPIED) {
            out->copies++;
            out->piece[out->count].at = NULL;
            out->piece[out->count].key = seg[i].key;
            out->piece[out->count].addr = seg[i].addr + offset;
        } else if (r != VB_MEM_OK) {
            return r;
        }
        out->piece[out->count++].len = take;
        len -= take;
        offset = 0;
    }
    if (out->count > 0)
        vb_share_pieces(pu, who.qpn, out->count - 1, out->copies);
    return len == 0 ? VB_MEM_OK : VB_MEM_BOUNDS;
}

enum vb_mem_refusal vb_gather_list(struct vb_pu *pu, struct vb_accessor who,
                                   const struct vb_seg *seg, uint32_t num_seg, uint32_t offset,
                                   uint8_t *dst, uint32_t len)
{
    struct pieces p;
    enum vb_mem_refusal r = resolve(pu, who, seg, num_seg, offset, len, VB_LOCAL_READ, &p);

    if (r != VB_MEM_OK)
        return r;
    for (uint32_t i = 0; r == VB_MEM_OK && i < p.count; i++) {
        if (p.piece[i].at) {
            memcpy(dst, p.piece[i].at, p.piece[i].len);
            vb_pu_touch(pu, p.piece[i].at, p.piece[i].len, false);
        } else {
            r = vb_mem_copy(&pu->dev->mkeys, who, p.piece[i].key, p.piece[i].addr, p.piece[i].len,
                            VB_LOCAL_READ, dst);
        }
        dst += p.piece[i].len;
    }
    return r;
}

enum vb_mem_refusal vb_lend(struct vb_pu *pu, struct vb_accessor who, const struct vb_seg *seg,
                            uint32_t num_seg, uint32_t offset, uint32_t len, const uint8_t **at)
{
    *at = NULL;
    for (; num_seg > 0 && offset >= seg->len; seg++, num_seg--)
        offset -= seg->len;
    if (num_seg == 0 || seg->len - offset < len)
        return VB_MEM_OK;
    uint8_t *where;
    enum vb_mem_refusal r = vb_mem_access(&pu->dev->mkeys, who, seg->key, seg->addr + offset, len,
                                          VB_LOCAL_READ, &where);
    if (r != VB_MEM_OK)
        return r == VB_MEM_COPIED ? VB_MEM_OK : r;
    vb_pu_touch(pu, where, len, false);
    *at = where;
    return VB_MEM_OK;
}

static enum vb_mem_refusal store(struct vb_pu *pu, struct vb_accessor who, uint32_t key,
                                 uint64_t addr, const uint8_t *src, uint32_t len)
{
    return vb_mem_copy(&pu->dev->mkeys, who, key, addr, len, VB_LOCAL_WRITE,
                       (uint8_t *)(uintptr_t)src);
}

static enum vb_mem_refusal store_alone(struct vb_pu *pu, struct vb_accessor who,
                                       const struct vb_seg *seg, uint32_t offset,
                                       const uint8_t *src, uint32_t len)
{
    vb_share_pieces(pu, who.qpn, 0, 1);
    return store(pu, who, seg->key, seg->addr + offset, src, len);
}

enum vb_mem_refusal vb_scatter(struct vb_pu *pu, struct vb_accessor who, const struct vb_seg *seg,
                               uint32_t num_seg, uint32_t offset, const uint8_t *src, uint32_t len)
{
    struct pieces p;
    enum vb_mem_refusal r;

    if (vb_seg_holds(seg, num_seg, offset, len)) {
        uint8_t *at;
        r = vb_mem_access(&pu->dev->mkeys, who, seg->key, seg->addr + offset, len, VB_LOCAL_WRITE,
                          &at);
        if (r != VB_MEM_OK)
            return r == VB_MEM_COPIED ? store_alone(pu, who, seg, offset, src, len) : r;
        memcpy(at, src, len);
        vb_pu_touch(pu, at, len, true);
        return VB_MEM_OK;
    }
    r = resolve(pu, who, seg, num_seg, offset, len, VB_LOCAL_WRITE, &p);
    if (r != VB_MEM_OK)
        return r;
    for (uint32_t i = 0; r == VB_MEM_OK && i < p.count; i++) {
        if (p.piece[i].at) {
            memcpy(p.piece[i].at, src, p.piece[i].len);
            vb_pu_touch(pu, p.piece[i].at, p.piece[i].len, true);
        } else {
            r = store(pu, who, p.piece[i].key, p.piece[i].addr, src, p.piece[i].len);
        }
        src += p.piece[i].len;
    }
    return r;
}
