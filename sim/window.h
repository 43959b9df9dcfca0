// SPDX-License-Identifier: Apache-2.0
// Memory windows as the reference model has them: made, bound, invalidated.
#ifndef VB_SIM_WINDOW_H
#define VB_SIM_WINDOW_H

#include "sim/memory.h"

// What a binding asks for.
struct vb_hostwin_wish {
    uint32_t window; // its new key
    uint32_t region;
    uint64_t addr;
    uint32_t len; // 0: unbinds
    uint32_t rights;
    bool zero_based;
};

// A new window, on the NIC and in the model. NULL: no room, or the NIC refused.
struct vb_window *vb_hostwin_create(struct vb_hostmem *mem, struct vb_dev *dev, uint32_t pd,
                                    bool type2);
// A new one in the place of another, bound or not.
int vb_hostwin_replace(struct vb_dev *dev, struct vb_window *w);

// By any of its keys, old or new; NULL: none.
struct vb_window *vb_hostwin_find(struct vb_hostmem *mem, uint32_t key);

// Bind and invalidate as the NIC has to; a refusal changes nothing.
enum vb_mem_refusal vb_hostwin_bind(struct vb_hostmem *mem, struct vb_user user,
                                    const struct vb_hostwin_wish *wish);
enum vb_mem_refusal vb_hostwin_invalidate(struct vb_hostmem *mem, struct vb_user user,
                                          uint32_t key);
// The same judgements without the deed.
enum vb_mem_refusal vb_hostwin_judge_bind(struct vb_hostmem *mem, struct vb_user user,
                                          const struct vb_hostwin_wish *wish);
enum vb_mem_refusal vb_hostwin_judge_invalidate(struct vb_hostmem *mem, struct vb_user user,
                                                uint32_t key);

#endif
