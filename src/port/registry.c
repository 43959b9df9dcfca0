// SPDX-License-Identifier: Apache-2.0
// The registry's file: made, checked, and its slots taken, read and given back.
#include "port/registry.h"

#include "base/bits.h"
#include "port/clock.h"
#include "port/shm.h"
#include "port/shm_place.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

// Bytes that locks are on; those of the slots come first.
enum {
    LOCK_ORDER = 4096, // of the sockets
};

#define LOCK_STALE_NS 300000000ull

#define LOAD(field)         atomic_load_explicit(&(field), memory_order_relaxed)
#define STORE(field, value) atomic_store_explicit(&(field), value, memory_order_relaxed)

static bool lock_bytes(const struct registry *r, int how, uint32_t first, uint32_t count)
{
    struct flock range = {
        .l_type = (short)how, .l_whence = SEEK_SET, .l_start = (off_t)first, .l_len = (off_t)count};
    return fcntl(r->fd, F_OFD_SETLK, &range) == 0;
}

// ---- the file

static uint64_t draw_secret(void)
{
    uint64_t secret;
    if (getrandom(&secret, sizeof secret, GRND_NONBLOCK) != sizeof secret)
        secret = vb_clock_ns() * 0x9e3779b97f4a7c15u ^ (uint64_t)getpid() << 32;
    return secret;
}

static bool is_sound(const struct registry_file *f)
{
    return f->magic == REGISTRY_MAGIC && f->version == REGISTRY_VERSION &&
           f->slots == REGISTRY_SLOTS;
}

// How the file begins; the rest of a new one is zero.
struct registry_head {
    uint64_t magic;
    uint32_t version, slots;
    uint64_t secret;
};

static_assert(offsetof(struct registry_file, hint) == sizeof(struct registry_head), "the same");

// A registry comes into being whole: written under another name, then linked.
static int make_file(const char *path)
{
    const struct registry_head head = {.magic = REGISTRY_MAGIC,
                                       .version = REGISTRY_VERSION,
                                       .slots = REGISTRY_SLOTS,
                                       .secret = draw_secret()};
    char other[REGISTRY_PATH + 32];
    snprintf(other, sizeof other, "%s.%lx-%llx", path, (long)getpid(),
             (unsigned long long)draw_secret());
    int fd = open(other, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    // With room for all of it: who writes to a hole of a full disk through a map is killed.
    int error = -posix_fallocate(fd, 0, sizeof(struct registry_file));
    errno = 0;
    if (error == 0 && (pwrite(fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
                       (link(other, path) < 0 && errno != EEXIST)))
        error = errno ? -errno : -EIO;
    close(fd);
    unlink(other);
    return error;
}

// -ESTALE: the file is not what it should be.
static int adopt(struct registry *r)
{
    struct stat st;
    if (fstat(r->fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return -EPERM;
    if (st.st_size != sizeof *r->file)
        return -ESTALE;
    void *map = mmap(NULL, sizeof *r->file, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    r->file = map;
    return is_sound(r->file) ? 0 : -ESTALE;
}

static void drop(struct registry *r)
{
    if (r->file != NULL)
        munmap(r->file, sizeof *r->file);
    if (r->fd >= 0)
        close(r->fd);
    r->file = NULL;
    r->fd = -1;
    r->span = 0;
}

static int open_file(struct registry *r, const char *path)
{
    int error = 0;
    while ((r->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW)) < 0) {
        error = errno == ENOENT && error == 0 ? make_file(path) : -errno;
        if (error < 0)
            return error;
        error = 1; // made, or found; once is enough
    }
    error = adopt(r);
    if (error < 0)
        drop(r);
    return error;
}

int vb_registry_open(struct registry *r, const char *runtime_dir)
{
    char path[REGISTRY_PATH];
    struct stat ns;
    *r = (struct registry){.fd = -1};
    int error = vb_shm_place_dir(runtime_dir, r->dir, sizeof r->dir, NULL);
    if (error < 0)
        return error;
    r->netns = stat("/proc/self/ns/net", &ns) == 0 ? ns.st_ino : 0;
    int len = snprintf(path, sizeof path, "%s/nics-%u-%llu", r->dir, REGISTRY_VERSION,
                       (unsigned long long)r->netns);
    if (len < 0 || (size_t)len >= sizeof path ||
        !vb_registry_inbox(r, 0, 0, 0, (char[REGISTRY_PATH]){0}))
        return -ENAMETOOLONG;
    error = open_file(r, path);
    // Garbage makes way. Who still uses it has its address bound, which tells.
    if (error == -ESTALE && unlink(path) == 0)
        error = open_file(r, path);
    return error;
}

void vb_registry_close(struct registry *r)
{
    if (r->span > 0)
        vb_registry_release(r, vb_clock_ns());
    drop(r);
}

void vb_registry_abandon(struct registry *r)
{
    drop(r);
}

// ---- taking slots

static bool rests(const struct registry *r, uint32_t first, uint32_t span, uint64_t now_ns)
{
    for (uint32_t i = first; i < first + span; i++) {
        uint64_t used_ns = LOAD(r->file->slot[i].used_ns);
        if (LOAD(r->file->slot[i].id) != 0 || (used_ns != 0 && now_ns - used_ns < REGISTRY_REST_NS))
            return true;
    }
    return false;
}

// Round robin, so that a range rests as long as it can; those that rested enough first.
static bool find_room(struct registry *r, uint32_t span, uint64_t now_ns, uint32_t *first)
{
    uint32_t places = REGISTRY_SLOTS - span + 1;
    uint32_t hint = LOAD(r->file->hint);
    for (uint32_t try = 0; try < 2 * places; try++) {
        *first = (hint % places + try) % places;
        if (try < places && rests(r, *first, span, now_ns))
            continue;
        if (lock_bytes(r, F_WRLCK, *first, span)) {
            STORE(r->file->hint, *first + span);
            return true;
        }
    }
    return false;
}

// The address is there when `taken` says so.
static void settle(struct registry_slot *s, uint32_t site, const struct vb_ip *ip, uint32_t scope)
{
    struct registry_address *at = &s->at[site];
    uint64_t half[2];
    memcpy(half, ip->b, sizeof half);
    STORE(s->site[site].takes_rest, 0);
    for (uint32_t unit = 0; unit < REGISTRY_UNITS; unit++) {
        STORE(s->site[site].index[unit], REGISTRY_INDEX_NONE);
        STORE(s->site[site].index_ns[unit], 0);
        STORE(s->site[site].cookie[unit], 0);
    }
    STORE(at->half[0], half[0]);
    STORE(at->half[1], half[1]);
    STORE(at->scope, scope);
    atomic_store_explicit(&at->taken, 1, memory_order_release);
}

int vb_registry_claim(struct registry *r, uint32_t span, uint32_t units, const struct vb_ip *ip,
                      uint32_t scope, uint64_t now_ns)
{
    uint32_t first;
    assert(r->span == 0 && units >= 1 && units <= REGISTRY_UNITS);
    if (span == 0 || span > REGISTRY_SLOTS || !find_room(r, span, now_ns, &first))
        return -ENOSPC;
    for (uint32_t i = first; i < first + span; i++) {
        STORE(r->file->slot[i].id, 0);
        STORE(r->file->slot[i].head, first + 1);
        STORE(r->file->slot[i].used_ns, now_ns);
    }
    struct registry_slot *s = &r->file->slot[first];
    for (uint32_t site = 0; site < REGISTRY_SITES; site++)
        STORE(s->at[site].taken, 0);
    settle(s, 0, ip, scope);
    STORE(s->pid, (uint32_t)getpid());
    STORE(s->span, span);
    STORE(s->units, units);
    STORE(s->manages, 0);
    STORE(s->beat_ns, now_ns);
    r->slot = first;
    r->span = span;
    uint64_t id = (uint64_t)getpid() << 32 | atomic_fetch_add(&r->file->ids, 1);
    atomic_store_explicit(&s->id, id ? id : 1, memory_order_release);
    return 0;
}

int vb_registry_join(struct registry *r, const struct registry *first, const struct vb_ip *ip,
                     uint32_t scope)
{
    struct registry_slot *s = &r->file->slot[first->slot];
    assert(r->span == 0 && first->span > 0);
    if (r->file->secret != first->file->secret)
        return -ESTALE;
    for (uint32_t site = 0; site < REGISTRY_SITES; site++) {
        if (LOAD(s->at[site].taken) != 0)
            continue;
        settle(s, site, ip, scope);
        r->slot = first->slot;
        r->span = first->span;
        r->site = site;
        r->joined = true;
        return 0;
    }
    return -ENOSPC;
}

// All inboxes, whether or not the first is there: a process may have been killed while it cleared
// them.
static void leave_site(struct registry *r, uint32_t slot, uint32_t site)
{
    char path[REGISTRY_PATH];
    atomic_store_explicit(&r->file->slot[slot].at[site].taken, 0, memory_order_release);
    for (uint32_t unit = 0; unit < REGISTRY_UNITS; unit++)
        if (vb_registry_inbox(r, slot, site, unit, path))
            (void)unlink(path);
}

// The id goes last: nobody looks for inboxes of a slot without one.
static void forget(struct registry *r, uint32_t slot, uint32_t span, uint64_t now_ns)
{
    for (uint32_t i = slot; i < slot + span && i < REGISTRY_SLOTS; i++)
        STORE(r->file->slot[i].used_ns, now_ns);
    for (uint32_t site = 0; site < REGISTRY_SITES; site++)
        leave_site(r, slot, site);
    atomic_store_explicit(&r->file->slot[slot].id, 0, memory_order_release);
}

void vb_registry_release(struct registry *r, uint64_t now_ns)
{
    if (r->span == 0)
        return;
    if (r->joined) {
        leave_site(r, r->slot, r->site);
    } else {
        forget(r, r->slot, r->span, now_ns);
        (void)lock_bytes(r, F_UNLCK, r->slot, r->span);
    }
    r->span = 0;
}

// ---- reading slots

bool vb_registry_is_alive(const struct registry *r, uint32_t slot)
{
    struct flock range = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)slot, .l_len = 1};
    if (r->span > 0 && slot == r->slot)
        return true;
    return fcntl(r->fd, F_OFD_GETLK, &range) < 0 || range.l_type != F_UNLCK;
}

static bool read_site(const struct registry *r, uint32_t slot, uint32_t site,
                      struct registry_member *m)
{
    const struct registry_slot *s = &r->file->slot[slot];
    uint64_t id = atomic_load_explicit(&s->id, memory_order_acquire);
    *m = (struct registry_member){.slot = slot,
                                  .span = LOAD(s->span),
                                  .units = LOAD(s->units),
                                  .site = site,
                                  .pid = LOAD(s->pid),
                                  .takes_rest = LOAD(s->site[site].takes_rest) == 1,
                                  .manages = LOAD(s->manages) == 1,
                                  .beat_ns = LOAD(s->beat_ns)};
    for (uint32_t unit = 0; unit < REGISTRY_UNITS; unit++) {
        m->index[unit] = LOAD(s->site[site].index[unit]);
        if (m->index[unit] >= REGISTRY_INDEX_MAX)
            m->index[unit] = REGISTRY_INDEX_NONE;
    }
    return id != 0 && LOAD(s->head) == slot + 1 && m->span >= 1 &&
           m->span <= REGISTRY_SLOTS - slot && m->units >= 1 && m->units <= REGISTRY_UNITS &&
           vb_is_pow2(m->units);
}

bool vb_registry_read(const struct registry *r, uint32_t slot, struct registry_member *m)
{
    return read_site(r, slot, 0, m);
}

// REGISTRY_SITES: it is not there.
static uint32_t find_site(const struct registry *r, uint32_t slot, const struct vb_ip *ip,
                          uint32_t scope)
{
    const struct registry_slot *s = &r->file->slot[slot];
    uint64_t half[2];
    uint32_t site = 0;
    memcpy(half, ip->b, sizeof half);
    if (LOAD(s->id) == 0)
        return REGISTRY_SITES;
    while (site < REGISTRY_SITES &&
           (atomic_load_explicit(&s->at[site].taken, memory_order_acquire) != 1 ||
            LOAD(s->at[site].half[0]) != half[0] || LOAD(s->at[site].half[1]) != half[1] ||
            LOAD(s->at[site].scope) != scope))
        site++;
    return site;
}

bool vb_registry_is_at(const struct registry *r, uint32_t slot, const struct vb_ip *ip,
                       uint32_t scope)
{
    return find_site(r, slot, ip, scope) < REGISTRY_SITES;
}

bool vb_registry_read_at(const struct registry *r, uint32_t slot, const struct vb_ip *ip,
                         uint32_t scope, struct registry_member *m)
{
    uint32_t site = find_site(r, slot, ip, scope);
    return site < REGISTRY_SITES && read_site(r, slot, site, m);
}

bool vb_registry_address(const struct registry *r, uint32_t slot, uint32_t site, struct vb_ip *ip,
                         uint32_t *scope)
{
    const struct registry_slot *s = &r->file->slot[slot];
    const uint64_t half[2] = {LOAD(s->at[site].half[0]), LOAD(s->at[site].half[1])};
    memcpy(ip->b, half, sizeof half);
    *scope = LOAD(s->at[site].scope);
    return LOAD(s->id) != 0 && LOAD(s->at[site].taken) == 1;
}

static bool is_nowhere(const struct registry_slot *s)
{
    for (uint32_t site = 0; site < REGISTRY_SITES; site++)
        if (LOAD(s->at[site].taken) == 1)
            return false;
    return true;
}

// The lock keeps others from taking the slot between the look and the change. At its other
// addresses the dead one has places, too, which those who are there have to know of.
void vb_registry_bury(struct registry *r, uint32_t slot, uint32_t site, uint64_t now_ns)
{
    struct registry_member m;
    if (r->span > 0 && slot >= r->slot && slot < r->slot + r->span)
        return;
    if (!lock_bytes(r, F_WRLCK, slot, 1))
        return;
    bool sound = vb_registry_read(r, slot, &m);
    leave_site(r, slot, site);
    if (LOAD(r->file->slot[slot].id) != 0 && (!sound || is_nowhere(&r->file->slot[slot])))
        forget(r, slot, sound ? m.span : 1, now_ns);
    (void)lock_bytes(r, F_UNLCK, slot, 1);
}

bool vb_registry_find(const struct registry *r, uint32_t qpn, uint32_t *slot)
{
    struct registry_member m;
    uint32_t at = qpn >> REGISTRY_RANGE_BITS;
    if (at >= REGISTRY_SLOTS)
        return false;
    *slot = LOAD(r->file->slot[at].head) - 1;
    return *slot <= at && vb_registry_read(r, *slot, &m) && at < *slot + m.span;
}

// As vb_registry_find(), but for what senders need, since they ask often.
uint32_t vb_registry_cookie(const struct registry *r, const struct vb_ip *ip, uint32_t scope,
                            uint32_t qpn)
{
    uint32_t at = qpn >> REGISTRY_RANGE_BITS;
    uint32_t head = at < REGISTRY_SLOTS ? LOAD(r->file->slot[at].head) - 1 : REGISTRY_SLOTS;
    if (head > at)
        return 0;
    const struct registry_slot *s = &r->file->slot[head];
    uint32_t units = LOAD(s->units), site = find_site(r, head, ip, scope);
    if (site == REGISTRY_SITES || LOAD(s->head) != head + 1 || at - head >= LOAD(s->span) ||
        units > REGISTRY_UNITS || !vb_is_pow2(units))
        return 0;
    return LOAD(s->site[site].cookie[qpn & (units - 1)]);
}

bool vb_registry_inbox(const struct registry *r, uint32_t slot, uint32_t site, uint32_t unit,
                       char path[REGISTRY_PATH])
{
    int len = snprintf(path, REGISTRY_PATH, "%s/in-%llu-%u.%u+%u", r->dir,
                       (unsigned long long)r->netns, slot, site, unit);
    return len > 0 && len < REGISTRY_PATH;
}

// ---- the order of sockets

bool vb_registry_lock(struct registry *r, uint64_t now_ns)
{
    uint64_t since_ns = LOAD(r->file->locked_ns);
    bool stale = since_ns != 0 && (since_ns > now_ns || now_ns - since_ns > LOCK_STALE_NS);
    bool locked = lock_bytes(r, F_WRLCK, LOCK_ORDER, 1);
    if (locked || stale || since_ns == 0)
        STORE(r->file->locked_ns, now_ns);
    return locked || stale;
}

void vb_registry_unlock(struct registry *r)
{
    STORE(r->file->locked_ns, 0);
    (void)lock_bytes(r, F_UNLCK, LOCK_ORDER, 1);
}
