// SPDX-License-Identifier: Apache-2.0
// Intrusive doubly linked FIFO: O(1) push, pop and removal, no allocation.
#ifndef VB_BASE_FIFO_H
#define VB_BASE_FIFO_H

#include <stdbool.h>
#include <stddef.h>

struct vb_link {
    struct vb_link *prev, *next; // both NULL while not queued
};

struct vb_fifo {
    struct vb_link head;
};

#define VB_CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline void vb_fifo_init(struct vb_fifo *f)
{
    f->head.prev = f->head.next = &f->head;
}

static inline bool vb_fifo_empty(const struct vb_fifo *f)
{
    return f->head.next == &f->head;
}

static inline bool vb_link_queued(const struct vb_link *l)
{
    return l->next != NULL;
}

static inline void vb_fifo_push(struct vb_fifo *f, struct vb_link *l)
{
    l->prev = f->head.prev;
    l->next = &f->head;
    l->prev->next = l;
    f->head.prev = l;
}

static inline void vb_fifo_push_front(struct vb_fifo *f, struct vb_link *l)
{
    l->prev = &f->head;
    l->next = f->head.next;
    l->next->prev = l;
    f->head.next = l;
}

static inline void vb_link_remove(struct vb_link *l)
{
    l->prev->next = l->next;
    l->next->prev = l->prev;
    l->prev = l->next = NULL;
}

static inline struct vb_link *vb_fifo_first(const struct vb_fifo *f)
{
    return vb_fifo_empty(f) ? NULL : f->head.next;
}

#endif
