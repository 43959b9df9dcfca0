// SPDX-License-Identifier: Apache-2.0
// Memory that applications share with the hull: what it makes, and what they give. Nobody can take
// a page away from under the hull: whatever it maps is sealed against shrinking before.
#include "hull/hull.h"

#include "base/siphash.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif

enum {
    PAGE_BYTES = 4096,
};

// Systems that forbid executable memory want the flag; older ones do not know it.
static int open_memory(void)
{
    int fd = memfd_create("verbena-hull", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("verbena-hull", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd < 0 ? -errno : fd;
}

int vb_hull_memory_make(uint64_t bytes, void **map)
{
    int fd = open_memory();
    if (fd < 0)
        return fd;
    int err = ftruncate(fd, (off_t)bytes) < 0 ||
                      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0
                  ? -errno
                  : 0;
    if (!err) {
        *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        err = *map == MAP_FAILED ? -errno : 0;
    }
    if (!err)
        return fd;
    close(fd);
    return err;
}

int vb_hull_memory_make_readable(uint64_t bytes, void **map)
{
    int fd = open_memory();
    if (fd < 0)
        return fd;
    int err = ftruncate(fd, (off_t)bytes) < 0 ? -errno : 0;
    if (!err) {
        *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        err = *map == MAP_FAILED ? -errno : 0;
    }
    // Mappings that come after this one cannot write.
    if (!err && fcntl(fd, F_ADD_SEALS,
                      F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0) {
        err = -errno;
        munmap(*map, bytes);
    }
    if (!err)
        return fd;
    close(fd);
    return err;
}

// ---- mappings and who holds them

// Each use of a mapping counts, and each name once more: they take little room, but a mapping or a
// descriptor of the hull's.
static bool charge_part(struct vb_hull_tenant *t, uint64_t *used, uint64_t quota, uint64_t reaping,
                        uint64_t more, const char *what, struct vb_hull_reply *reply)
{
    if (vb_hull_charge(t, used, quota, more, what, reply))
        return true;
    uint64_t left = *used - reaping;
    if (left <= quota && more <= quota - left)
        vb_hull_refuse(
            reply, -EAGAIN,
            "user %u may have %llu %s, and of the %llu that it has %llu still go back to "
            "the system",
            (unsigned)t->uid, (unsigned long long)quota, what, (unsigned long long)*used,
            (unsigned long long)reaping);
    return false;
}

static bool charge_bytes(struct vb_hull_tenant *t, uint64_t bytes, struct vb_hull_reply *reply)
{
    return charge_part(t, &t->used.bytes, t->quota.bytes, t->reaping.bytes, bytes, "bytes", reply);
}

static bool charge(struct vb_hull_tenant *t, struct vb_hull_reply *reply)
{
    return charge_part(t, &t->used.memories, t->quota.memories, t->reaping.memories, 1, "memories",
                       reply);
}

static bool charge_kept(struct vb_hull_client *client, struct vb_hull_reply *reply)
{
    return vb_hull_descriptors_take(client->hull, client->tenant, 1, reply);
}

static void discharge_mapping(struct vb_hull_client *client, uint64_t bytes, bool named, bool kept)
{
    client->tenant->used.bytes -= bytes;
    client->tenant->used.memories -= named;
    if (kept)
        vb_hull_descriptors_give_back(client->hull, client->tenant, 1);
}

static bool charge_mapping(struct vb_hull_client *client, uint64_t bytes, bool named, bool kept,
                           struct vb_hull_reply *reply)
{
    vb_hull_reap_collect(client->hull);
    if (!charge_bytes(client->tenant, bytes, reply))
        return false;
    if (named && !charge(client->tenant, reply)) {
        discharge_mapping(client, bytes, false, false);
        return false;
    }
    if (!kept || charge_kept(client, reply))
        return true;
    discharge_mapping(client, bytes, named, false);
    return false;
}

static uint64_t hash_of(const struct vb_hull_tenant *t, const char name[VB_HULL_NAME])
{
    uint64_t hash = 0, word;

    static_assert(VB_HULL_NAME % sizeof word == 0, "whole words");
    for (uint32_t i = 0; i < VB_HULL_NAME; i += sizeof word) {
        memcpy(&word, name + i, sizeof word);
        hash = vb_siphash(t->secret, hash ^ word);
    }
    return hash;
}

// What is behind a name's end does not count.
static void give_name(struct vb_hull_mapping *m, const char *name)
{
    memcpy(m->name, name, strnlen(name, sizeof m->name - 1));
    m->named = true;
    vb_fifo_push(&m->tenant->named, &m->link);
    vb_table_add(&m->tenant->name_of, &m->entry, hash_of(m->tenant, m->name));
}

static void take_name(struct vb_hull_mapping *m)
{
    if (!vb_link_queued(&m->link))
        return;
    vb_link_remove(&m->link);
    vb_table_remove(&m->tenant->name_of, &m->entry);
    m->name[0] = '\0';
}

static void end_mapping(struct vb_hull *hull, struct vb_hull_mapping *m)
{
    take_name(m);
    m->memories += m->named;
    vb_hull_reap(hull, m);
}

void vb_hull_memory_forget(struct vb_hull *hull, struct vb_hull_mapping *mapping)
{
    end_mapping(hull, mapping);
}

static struct vb_hull_mapping *add_mapping(struct vb_hull_tenant *tenant, uint64_t bytes)
{
    struct vb_hull_mapping *m = calloc(1, sizeof *m);

    if (m) {
        m->tenant = tenant;
        m->bytes = bytes;
        m->fd = -1;
    }
    return m;
}

static struct vb_hull_hold *hold(struct vb_hull_client *client, struct vb_hull_mapping *m)
{
    struct vb_hull_hold *h = calloc(1, sizeof *h);

    if (!h)
        return NULL;
    h->number = ++client->holds_made;
    h->tag = client->request->number;
    h->lent =
        client->request->op != VB_HULL_MEMORY_CREATE && client->request->op != VB_HULL_MEMORY_GIVE;
    h->rings = client->request->op == VB_HULL_MEMORY_CREATE && client->request->memory.rings == 1;
    h->mapping = m;
    m->holds++;
    vb_fifo_push(&client->holds, &h->link);
    vb_table_add(&client->hold_of, &h->entry, h->number);
    vb_hull_clock_watch(client->hull, h, true);
    return h;
}

void vb_hull_memory_let_go(struct vb_hull_client *client, struct vb_hull_hold *h)
{
    struct vb_hull_mapping *m = h->mapping;

    vb_link_remove(&h->link);
    vb_table_remove(&client->hold_of, &h->entry);
    vb_hull_clock_watch(client->hull, h, false);
    free(h);
    if (--m->holds == 0 && !m->name[0]) {
        m->memories = 1; // it is charged as long as it is mapped
        end_mapping(client->hull, m);
    } else {
        client->tenant->used.memories--;
    }
}

static int answer(struct vb_hull_client *client, struct vb_hull_mapping *m,
                  struct vb_hull_reply *reply)
{
    struct vb_hull_tenant *t = client->tenant;

    // What has a name can be asked for again and again.
    if (!charge(t, reply))
        return reply->error;
    struct vb_hull_hold *h = hold(client, m);
    if (!h) {
        t->used.memories--;
        vb_hull_refuse(reply, -ENOMEM, "the hull is out of memory");
        return -ENOMEM;
    }
    reply->number = h->number;
    reply->memory = (struct vb_hull_memory){.bytes = m->bytes};
    memcpy(reply->memory.name, m->name, sizeof m->name);
    return 0;
}

// ---- the hull's memory

static struct vb_hull_mapping *find_named(struct vb_hull_tenant *tenant, const char *name)
{
    char padded[VB_HULL_NAME] = {0};

    memcpy(padded, name, strnlen(name, sizeof padded - 1));
    for (struct vb_entry *e = vb_table_find(&tenant->name_of, hash_of(tenant, padded)); e;
         e = vb_table_next(e)) {
        struct vb_hull_mapping *m = VB_CONTAINER_OF(e, struct vb_hull_mapping, entry);
        if (strcmp(m->name, padded) == 0)
            return m;
    }
    return NULL;
}

// A name that is there already.
static int reuse(struct vb_hull_client *client, struct vb_hull_mapping *m, uint64_t bytes,
                 struct vb_hull_reply *reply, int *fd)
{
    if (bytes && bytes != m->bytes) {
        vb_hull_refuse(reply, -EEXIST, "memory '%s' is there, with %llu bytes instead of %llu",
                       m->name, (unsigned long long)m->bytes, (unsigned long long)bytes);
        return -EEXIST;
    }
    *fd = m->fd;
    return answer(client, m, reply);
}

static bool is_wanted_well(const struct vb_hull_memory *w, struct vb_hull_reply *reply)
{
    if (!memchr(w->name, '\0', sizeof w->name))
        vb_hull_refuse(reply, -ENAMETOOLONG, "a name has at most %d characters", VB_HULL_NAME - 1);
    else if (w->bytes > INT64_MAX - PAGE_BYTES)
        vb_hull_refuse(reply, -EINVAL, "%llu bytes are more than there can be",
                       (unsigned long long)w->bytes);
    return !reply->error;
}

int vb_hull_memory_create(struct vb_hull_client *client, const struct vb_hull_memory *wanted,
                          struct vb_hull_reply *reply, int *fd, bool *close_it)
{
    struct vb_hull_tenant *t = client->tenant;
    uint64_t bytes = (wanted->bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    void *map;

    if (!is_wanted_well(wanted, reply))
        return reply->error;
    struct vb_hull_mapping *m = wanted->name[0] ? find_named(t, wanted->name) : NULL;
    if (m)
        return reuse(client, m, bytes, reply, fd);
    if (bytes == 0) {
        vb_hull_refuse(reply, wanted->name[0] ? -ENOENT : -EINVAL, "there is no memory '%s'",
                       wanted->name);
        return reply->error;
    }
    bool named = wanted->name[0], kept = named || client->service[0];
    if (!charge_mapping(client, bytes, named, kept, reply))
        return reply->error;
    m = add_mapping(t, bytes);
    int made = m ? vb_hull_memory_make(bytes, &map) : -ENOMEM;
    if (made < 0) {
        vb_hull_refuse(reply, made, "the hull cannot get %llu bytes: %s", (unsigned long long)bytes,
                       strerror(-made));
        discharge_mapping(client, bytes, named, kept);
        free(m);
        return made;
    }
    m->base = map;
    *fd = made;
    *close_it = !kept;
    m->kept = kept;
    if (kept)
        m->fd = made;
    if (named)
        give_name(m, wanted->name);
    int err = answer(client, m, reply);
    if (err)
        end_mapping(client->hull, m);
    else if (named)
        vb_store_add(client->hull, m); // before the application hears of it
    return err;
}

// ---- the application's

// A file that cannot shrink, of memory and of ordinary pages: touching it never fails.
static const char *judge(int fd, uint64_t *bytes)
{
    struct stat file;
    struct statfs system;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0)
        return "this is no memfd: only memory from memfd_create() can be sealed";
    if (!(seals & F_SEAL_SHRINK))
        return "this memfd is not sealed against shrinking (F_SEAL_SHRINK)";
    if (fstat(fd, &file) < 0 || fstatfs(fd, &system) < 0 || !S_ISREG(file.st_mode) ||
        system.f_type != TMPFS_MAGIC)
        return "this memfd has no ordinary pages";
    if (file.st_size <= 0)
        return "this memfd is empty";
    *bytes = (uint64_t)file.st_size / PAGE_BYTES * PAGE_BYTES;
    return *bytes ? NULL : "this memfd has not a single page";
}

int vb_hull_memory_give(struct vb_hull_client *client, int fd, struct vb_hull_reply *reply)
{
    struct vb_hull_tenant *t = client->tenant;
    uint64_t bytes = 0;
    const char *why = fd < 0 ? "no descriptor came with it" : judge(fd, &bytes);

    if (why) {
        vb_hull_refuse(reply, -EPERM, "%s", why);
        return -EPERM;
    }
    bool kept = client->service[0]; // who takes a service over has to map it, too
    if (!charge_mapping(client, bytes, false, kept, reply))
        return reply->error;
    struct vb_hull_mapping *m = add_mapping(t, bytes);
    if (!m) {
        discharge_mapping(client, bytes, false, kept);
        vb_hull_refuse(reply, -ENOMEM, "the hull is out of memory");
        return -ENOMEM;
    }
    m->kept = kept;
    m->fd = kept ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    void *map = kept && m->fd < 0 ? MAP_FAILED
                                  : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int err = map == MAP_FAILED ? -errno : 0;
    if (err) {
        vb_hull_refuse(reply, err, "the hull cannot map it for writing: %s", strerror(-err));
    } else {
        m->base = map;
        err = answer(client, m, reply);
    }
    if (err)
        end_mapping(client->hull, m);
    return err;
}

// ---- both

static struct vb_hull_hold *find_hold(struct vb_hull_client *client, uint32_t number)
{
    struct vb_entry *e = vb_table_find(&client->hold_of, number);
    return e ? VB_CONTAINER_OF(e, struct vb_hull_hold, entry) : NULL;
}

void vb_hull_memory_open(struct vb_hull_client *client, uint32_t number,
                         struct vb_hull_reply *reply, int *fd)
{
    const struct vb_hull_hold *h = find_hold(client, number);

    if (!h)
        vb_hull_refuse(reply, -ENOENT, "there is no memory %u", number);
    else if (h->mapping->fd < 0)
        vb_hull_refuse(reply, -EINVAL, "memory without a name has no descriptor");
    if (reply->error)
        return;
    *fd = h->mapping->fd;
    reply->number = number;
    reply->memory = (struct vb_hull_memory){.bytes = h->mapping->bytes};
}

// Keys name it by the first address: who comes later tries to have the same.
void vb_hull_memory_at(struct vb_hull_client *client, uint32_t number, uint64_t at,
                       struct vb_hull_reply *reply)
{
    struct vb_hull_hold *h = find_hold(client, number);

    if (!h)
        vb_hull_refuse(reply, -ENOENT, "there is no memory %u", number);
    else if (!h->at)
        h->at = at;
}

int vb_hull_memory_drop(struct vb_hull_client *client, uint32_t number, struct vb_hull_reply *reply)
{
    struct vb_hull_hold *h = find_hold(client, number);

    if (!h) {
        vb_hull_refuse(reply, -ENOENT, "there is no memory %u", number);
    } else if (h->users) {
        vb_hull_refuse(reply, -EBUSY, "%u regions and queues still lie there", h->users);
    } else {
        // A name is let go of with the last application that has it.
        if (h->mapping->holds == 1 && h->mapping->name[0]) {
            vb_store_remove(client->hull, h->mapping);
            take_name(h->mapping);
        }
        vb_hull_memory_let_go(client, h);
    }
    return reply->error;
}

int vb_hull_memory_hold(struct vb_hull_client *client, struct vb_hull_mapping *mapping,
                        struct vb_hull_reply *reply)
{
    return answer(client, mapping, reply);
}

void *vb_hull_memory_find(struct vb_hull_client *client, const struct vb_hull_place *place,
                          uint64_t bytes, uint32_t align, struct vb_hull_hold **out,
                          struct vb_hull_reply *reply)
{
    void *at = vb_hull_memory_find_readable(client, place, bytes, align, out, reply);

    if (!at || !(*out)->mapping->read_only)
        return at;
    vb_hull_refuse(reply, -EACCES, "memory %u is the hull's to write", place->memory);
    return NULL;
}

void *vb_hull_memory_find_readable(struct vb_hull_client *client, const struct vb_hull_place *place,
                                   uint64_t bytes, uint32_t align, struct vb_hull_hold **out,
                                   struct vb_hull_reply *reply)
{
    struct vb_hull_hold *h = find_hold(client, place->memory);

    if (!h) {
        vb_hull_refuse(reply, -ENOENT, "there is no memory %u", place->memory);
        return NULL;
    }
    const struct vb_hull_mapping *m = h->mapping;
    if (place->offset > m->bytes || bytes > m->bytes - place->offset || place->offset % align) {
        vb_hull_refuse(reply, -EFAULT,
                       "%llu bytes at %llu do not lie in memory %u of %llu, or not on %u",
                       (unsigned long long)bytes, (unsigned long long)place->offset, place->memory,
                       (unsigned long long)m->bytes, align);
        return NULL;
    }
    *out = h;
    return m->base + place->offset;
}

bool vb_hull_memory_locate(const struct vb_hull_client *client, const uint8_t *at, uint64_t bytes,
                           struct vb_hull_place *place)
{
    for (struct vb_link *l = client->holds.head.next; l != &client->holds.head; l = l->next) {
        const struct vb_hull_hold *h = VB_CONTAINER_OF(l, struct vb_hull_hold, link);
        uint64_t offset = (uintptr_t)at - (uintptr_t)h->mapping->base;
        if (offset > h->mapping->bytes || bytes > h->mapping->bytes - offset)
            continue;
        *place = (struct vb_hull_place){.memory = h->number, .offset = offset};
        return true;
    }
    return false;
}

// ---- after a restart

struct vb_hull_mapping *vb_hull_memory_named(struct vb_hull *hull, uid_t uid, const char *name)
{
    for (struct vb_link *l = hull->tenants.head.next; l != &hull->tenants.head; l = l->next) {
        struct vb_hull_tenant *t = VB_CONTAINER_OF(l, struct vb_hull_tenant, link);
        if (t->uid == uid)
            return find_named(t, name);
    }
    return NULL;
}

// As the hull makes it: what comes from a store may have been put there by anyone.
static const char *judge_own(int fd, uint64_t *bytes)
{
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    const char *why = judge(fd, bytes);
    struct stat file;

    if (why)
        return why;
    int seals = fcntl(fd, F_GET_SEALS), mode = fcntl(fd, F_GETFL);
    if ((seals & wanted) != wanted || fstat(fd, &file) < 0 || (uint64_t)file.st_size != *bytes)
        return "this memfd is not as the hull makes them";
    return (mode & O_ACCMODE) == O_RDWR ? NULL : "this memfd cannot be written";
}

const char *vb_hull_memory_restore(struct vb_hull *hull, uid_t uid, const char *name, int fd)
{
    uint64_t bytes = 0;
    const char *why = judge_own(fd, &bytes);

    if (why)
        return why;
    if (vb_hull_memory_named(hull, uid, name))
        return "there is memory of this name already";
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return "this memfd cannot be mapped for writing";
    struct vb_hull_tenant *t = vb_hull_tenant_of(hull, uid);
    struct vb_hull_mapping *m = t ? add_mapping(t, bytes) : NULL;
    if (!m) {
        munmap(map, bytes);
        return "the hull is out of memory";
    }
    // What is above a quota that has become lower stays.
    t->used.bytes += bytes;
    t->used.memories++;
    t->descriptors++;
    hull->descriptors.used++;
    m->base = map;
    m->fd = fd;
    m->kept = true;
    give_name(m, name);
    return NULL;
}
