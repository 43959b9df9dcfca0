// SPDX-License-Identifier: Apache-2.0
// riomap(), riounmap(), riowrite(): memory that the peer writes into directly.
#include "rsocket/socket.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct vb_rs_mapping {
    struct vb_rs_mapping *next;
    struct ibv_mr *mr;
    void *buf;
    size_t len;
    uint64_t offset;
    int index;    // the place in the peer's table, -1 for memory that only we use
    bool pending; // the peer has not been told
};

static bool is_taken(const struct vb_rsocket *rs, int index)
{
    for (const struct vb_rs_mapping *m = rs->mappings; m; m = m->next)
        if (m->index == index)
            return true;
    return false;
}

static int free_place(const struct vb_rsocket *rs)
{
    for (uint32_t i = 0; i < rs->stream.peer_iomaps.bytes; i++)
        if (!is_taken(rs, (int)i))
            return (int)i;
    return -1;
}

// Appended, so that the peer hears of them in order.
static void append(struct vb_rsocket *rs, struct vb_rs_mapping *m)
{
    struct vb_rs_mapping **at = &rs->mappings;

    while (*at)
        at = &(*at)->next;
    *at = m;
}

static off_t map(struct vb_rsocket *rs, void *buf, size_t len, int prot, off_t offset)
{
    bool remote = prot & PROT_WRITE;

    if (rs->type != SOCK_STREAM || !rs->end.memory || prot & ~PROT_WRITE || len > UINT32_MAX)
        return -EINVAL;
    int index = remote ? free_place(rs) : -1;
    if (remote && index < 0)
        return -ENOMEM;
    struct vb_rs_mapping *m = calloc(1, sizeof *m);
    if (!m)
        return -ENOMEM;
    m->mr = ibv_reg_mr(rs->id->qp->pd, buf, len,
                       IBV_ACCESS_LOCAL_WRITE | (remote ? IBV_ACCESS_REMOTE_WRITE : 0));
    if (!m->mr) {
        int error = errno;
        free(m);
        return -error;
    }
    m->buf = buf;
    m->len = len;
    m->offset = offset == -1 ? (uintptr_t)buf : (uint64_t)offset;
    m->index = index;
    m->pending = remote;
    rs->mappings_pending |= remote;
    append(rs, m);
    return (off_t)m->offset;
}

off_t riomap(int socket, void *buf, size_t len, int prot, int flags, off_t offset)
{
    struct vb_rsocket *rs = vb_rs_get(socket);

    (void)flags;
    if (!rs)
        return vb_rs_fail(EBADF);
    pthread_mutex_lock(&rs->lock);
    off_t mapped = map(rs, buf, len, prot, offset);
    pthread_mutex_unlock(&rs->lock);
    vb_rs_put(rs);
    return mapped < 0 && mapped > -4096 ? vb_rs_fail((int)-mapped) : mapped;
}

static int unmap(struct vb_rsocket *rs, const void *buf, size_t len)
{
    for (struct vb_rs_mapping **at = &rs->mappings; *at; at = &(*at)->next) {
        struct vb_rs_mapping *m = *at;
        if (m->buf != buf || m->len != len)
            continue;
        *at = m->next;
        ibv_dereg_mr(m->mr);
        free(m);
        return 0;
    }
    return -EINVAL;
}

int riounmap(int socket, void *buf, size_t len)
{
    struct vb_rsocket *rs = vb_rs_get(socket);

    if (!rs)
        return vb_rs_fail(EBADF);
    pthread_mutex_lock(&rs->lock);
    int err = unmap(rs, buf, len);
    pthread_mutex_unlock(&rs->lock);
    vb_rs_put(rs);
    return vb_rs_answer(err);
}

void vb_rs_free_mappings(struct vb_rsocket *rs)
{
    while (rs->mappings)
        unmap(rs, rs->mappings->buf, rs->mappings->len);
}

static struct vb_rs_mapping *next_pending(const struct vb_rsocket *rs)
{
    struct vb_rs_mapping *m = rs->mappings;

    while (m && !m->pending)
        m = m->next;
    return m;
}

// The peer hears of new mappings before the data that follows.
int vb_rs_send_mappings(struct vb_rsocket *rs, int flags)
{
    struct vb_rs_mapping *m;
    int err = 0;

    while (!err && (m = next_pending(rs)) != NULL) {
        struct vb_rs_iomap entry = {m->offset, {(uintptr_t)m->buf, m->mr->rkey, (uint32_t)m->len}};
        struct vb_rs_post post;
        if (!vb_rs_take_iomap(&rs->stream, (uint32_t)m->index, &entry, &post)) {
            err = vb_rs_await_room(rs, flags);
            continue; // the list may have changed meanwhile
        }
        m->pending = false;
        err = vb_rs_post(rs, &post);
    }
    rs->mappings_pending = next_pending(rs) != NULL;
    return err;
}

static bool has_send_room(struct vb_rsocket *rs, const void *context)
{
    (void)context;
    return !rs->stream.may_write || vb_rs_has_room(&rs->stream);
}

static ssize_t write_direct(struct vb_rsocket *rs, const uint8_t *buf, size_t count,
                            uint64_t offset, int flags)
{
    size_t left = count;
    int err = rs->type == SOCK_STREAM ? vb_rs_await_connected(rs, flags) : -EINVAL;

    if (!err && rs->mappings_pending)
        err = vb_rs_send_mappings(rs, flags);
    while (!err && left) {
        struct vb_rs_post post;
        bool mapped;
        uint32_t bytes = vb_rs_take_direct(&rs->stream, offset, left, &mapped, &post);
        if (!mapped)
            break; // nothing, or no more, is mapped there
        if (!bytes) {
            err = vb_rs_wait(rs, flags, VB_RS_OUT, has_send_room, NULL);
            if (!err && !rs->stream.may_write)
                err = rs->error ? vb_rs_take_error(rs) : -ECONNRESET;
            continue;
        }
        memcpy(post.piece[0].data, buf, post.piece[0].bytes);
        if (post.pieces > 1)
            memcpy(post.piece[1].data, buf + post.piece[0].bytes, post.piece[1].bytes);
        err = vb_rs_post(rs, &post);
        buf += bytes;
        offset += bytes;
        left -= bytes;
    }
    return left < count || !err ? (ssize_t)(count - left) : err;
}

size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags)
{
    struct vb_rsocket *rs = vb_rs_get(socket);

    if (!rs)
        return (size_t)vb_rs_fail(EBADF);
    pthread_mutex_lock(&rs->lock);
    ssize_t sent = write_direct(rs, buf, count, (uint64_t)offset, flags);
    pthread_mutex_unlock(&rs->lock);
    vb_rs_put(rs);
    return (size_t)(sent < 0 ? vb_rs_fail((int)-sent) : sent);
}
