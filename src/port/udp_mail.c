// SPDX-License-Identifier: Apache-2.0
// Frames that came to the wrong NIC of an address go on to the right one's inbox, a Unix socket in
// the user's directory: checked already, several in one datagram, each with where it came from.
#include "base/bytes.h"
#include "base/cancel.h"
#include "cm/message.h"
#include "port/udp_state.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    ROOM_BYTES = UDP_RX_BYTES / 2, // of a datagram
    FRAMES_MAX = VB_PORT_RX_BATCH / 2,
    FULL_BYTES = 2 * ROOM_BYTES, // that wait to be read: too many for one more
};

// Of the IP header there is no room for the flow label.
struct record {
    uint32_t len;
    uint8_t ce, traffic_class, hop_limit, reserved;
    struct vb_ip src;
};

static_assert(sizeof(struct record) == 24, "no padding");

static uint32_t padded(uint32_t len)
{
    return (len + 7) & ~7u;
}

// ---- the inbox

static int bind_inbox(int fd, const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    static_assert(sizeof at.sun_path >= REGISTRY_PATH, "a path has room");
    memcpy(at.sun_path, path, strlen(path) + 1);
    if (unlink(path) < 0 && errno != ENOENT)
        return -errno;
    return bind(fd, (const struct sockaddr *)&at, sizeof at) < 0 ? -errno : 0;
}

int vb_udp_mail_open(struct udp *u)
{
    struct udp_mail *m = &u->mail;
    char path[REGISTRY_PATH];
    m->out = malloc(ROOM_BYTES);
    m->in = malloc(ROOM_BYTES);
    m->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (m->fd < 0)
        return -errno;
    if (m->out == NULL || m->in == NULL)
        return -ENOMEM;
    const struct registry *r = &u->share->registry;
    m->taken = atomic_load(&r->file->slot[r->slot].site[r->site].mail[u->unit]);
    if (!vb_registry_inbox(r, r->slot, r->site, u->unit, path))
        return -ENAMETOOLONG;
    return bind_inbox(m->fd, path);
}

void vb_udp_mail_close(struct udp *u)
{
    if (u->mail.fd >= 0)
        close(u->mail.fd);
    if (u->mail.out_fd >= 0)
        close(u->mail.out_fd);
    free(u->mail.out);
    free(u->mail.in);
}

static const struct registry_slot *own_slot(const struct udp *u)
{
    return &u->share->registry.file->slot[u->share->registry.slot];
}

static const struct registry_site *own_site(const struct udp *u)
{
    return &own_slot(u)->site[u->share->registry.site];
}

bool vb_udp_mail_waits(const struct udp *u)
{
    return u->mail.look ||
           atomic_load_explicit(&own_site(u)->mail[u->unit], memory_order_relaxed) != u->mail.taken;
}

// ---- sending on

// What a stopped process has not read is charged to the socket that it was sent from, for as long
// as it stands still: mail for others then leaves through a new one.
static bool renew(struct udp_mail *m)
{
    int waiting = 0, fd;
    if (ioctl(m->out_fd >= 0 ? m->out_fd : m->fd, SIOCOUTQ, &waiting) < 0 || waiting < FULL_BYTES)
        return false; // it is the receiver that has no room
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    if (m->out_fd >= 0)
        close(m->out_fd);
    m->out_fd = fd;
    return true;
}

static bool send_out(struct udp_mail *m, const struct sockaddr_un *to)
{
    for (int tries = 0; tries < 2; tries++) {
        int fd = m->out_fd >= 0 ? m->out_fd : m->fd;
        if (sendto(fd, m->out, m->out_used, MSG_DONTWAIT, (const struct sockaddr *)to,
                   sizeof *to) >= 0)
            return true;
        if (errno != EAGAIN || !renew(m))
            return false;
    }
    return false;
}

void vb_udp_mail_flush(struct udp *u)
{
    struct udp_mail *m = &u->mail;
    const struct registry *r = &u->share->registry;
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct registry_member owner;
    char path[REGISTRY_PATH];
    if (m->out_used == 0)
        return;
    int before = vb_cancel_hold();
    if (vb_registry_read_at(r, m->out_slot, &u->share->ip, u->share->scope, &owner) &&
        vb_registry_inbox(r, m->out_slot, owner.site, m->out_unit, path)) {
        memcpy(to.sun_path, path, strlen(path) + 1);
        // A full inbox loses frames, as a full socket does; one that nobody has is a death's.
        if (send_out(m, &to))
            atomic_fetch_add(&r->file->slot[m->out_slot].site[owner.site].mail[m->out_unit], 1);
        else if (errno == ECONNREFUSED || errno == ENOENT)
            atomic_store(&u->share->doubted, true);
    }
    m->out_used = m->out_frames = 0;
    vb_cancel_allow(before);
}

void vb_udp_mail_enclose(struct udp *u, uint32_t slot, uint32_t unit,
                         const struct vb_rx_frame *frame)
{
    struct udp_mail *m = &u->mail;
    uint32_t bytes = (uint32_t)sizeof(struct record) + padded(frame->len);
    if (m->out_used > 0 && (m->out_slot != slot || m->out_unit != unit ||
                            m->out_used + bytes > ROOM_BYTES || m->out_frames == FRAMES_MAX))
        vb_udp_mail_flush(u);
    const struct record r = {.len = frame->len,
                             .ce = frame->ce,
                             .traffic_class = frame->traffic_class,
                             .hop_limit = frame->hop_limit,
                             .src = frame->src};
    m->out_slot = slot;
    m->out_unit = unit;
    memcpy(m->out + m->out_used, &r, sizeof r);
    memcpy(m->out + m->out_used + sizeof r, frame->data, frame->len);
    memset(m->out + m->out_used + sizeof r + frame->len, 0, padded(frame->len) - frame->len);
    m->out_used += bytes;
    m->out_frames++;
}

bool vb_udp_mail_divert(struct udp *u, const struct vb_rx_frame *frame, bool steered)
{
    const struct udp_share *s = u->share;
    uint32_t qpn = vb_get_be24(frame->head + 5), slot;
    struct registry_member m;
    if (qpn <= UDP_QPN_MANAGERS)
        return qpn == VB_GSI_QPN && vb_udp_manage_divert(u, frame);
    if (!vb_registry_find(&s->registry, qpn, &slot) || slot == s->registry.slot ||
        !vb_registry_read_at(&s->registry, slot, &s->ip, s->scope, &m))
        return false;
    vb_udp_mail_enclose(u, slot, qpn & (m.units - 1), frame);
    u->port.stats.rx_forwarded++;
    if (steered)
        atomic_store_explicit(&u->share->doubted, true, memory_order_relaxed);
    return true;
}

// ---- receiving

// Frames of one datagram; who wrote it may have a bug.
static uint32_t unpack(struct udp *u, uint32_t total, struct vb_rx_frame *frames, uint32_t room)
{
    uint32_t at = 0, made = 0;
    struct record r;
    while (made < room && total - at > sizeof r) {
        const uint8_t *frame = u->mail.in + at + sizeof r;
        memcpy(&r, u->mail.in + at, sizeof r);
        at += (uint32_t)sizeof r;
        if (r.len < VB_ICRC_FRAME_MIN || r.len > VB_FRAME_MAX || padded(r.len) > total - at) {
            u->port.stats.rx_bad_peers++;
            break;
        }
        at += padded(r.len);
        frames[made++] = (struct vb_rx_frame){.data = frame,
                                              .head = frame,
                                              .len = r.len,
                                              .src = r.src,
                                              .traffic_class = r.traffic_class,
                                              .hop_limit = r.hop_limit,
                                              .ce = r.ce & 1,
                                              .to = u->to};
    }
    return made;
}

// One datagram each time: its bytes must last until the next. It holds no more frames than half a
// batch.
uint32_t vb_udp_mail_receive(struct udp *u, struct vb_rx_frame *frames, uint32_t room)
{
    struct udp_mail *m = &u->mail;
    uint32_t sent = atomic_load(&own_site(u)->mail[u->unit]);
    if (room < FRAMES_MAX)
        return 0; // the next time, then
    int before = vb_cancel_hold();
    ssize_t bytes = recv(m->fd, m->in, ROOM_BYTES, MSG_DONTWAIT);
    vb_cancel_allow(before);
    if (bytes >= 0)
        return unpack(u, (uint32_t)bytes, frames, room);
    m->taken = sent; // all that was counted before the look
    m->look = false;
    return 0;
}
