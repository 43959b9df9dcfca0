// SPDX-License-Identifier: Apache-2.0
// Hands named memory to the service manager, and takes it back.
#include "hull/store.h"

#include "hull/hull.h"
#include "hull/notify.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "memory."

enum {
    RETRY_NS = 10 * 1000 * 1000, // a manager that has no room for our messages is tried again
    LINES = VB_STORE_NAME + 64,
};

// A message that waits.
struct due {
    struct vb_link link;
    const struct vb_hull_mapping *mapping; // NULL: the name goes
    char name[VB_STORE_NAME];
};

// ---- names

static bool is_plain(const char *text)
{
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && *text != '-' && *text != '_')
            return false;
    return true;
}

static_assert(sizeof PREFIX + VB_HULL_NAME + 11 + 1 + 2 * VB_HULL_NAME < VB_STORE_NAME,
              "every name finds room");

void vb_store_write(const struct vb_store_key *key, char text[VB_STORE_NAME])
{
    int len = snprintf(text, VB_STORE_NAME, PREFIX "%s.%" PRIu32 ".", key->nic, (uint32_t)key->uid);

    if (is_plain(key->name)) {
        snprintf(text + len, VB_STORE_NAME - (size_t)len, "%s", key->name);
        return;
    }
    text[len++] = '+';
    for (const char *c = key->name; *c; c++, len += 2)
        snprintf(text + len, VB_STORE_NAME - (size_t)len, "%02x", (unsigned char)*c);
}

// The next word, up to a dot or the end. False: it is empty, or does not fit.
static bool take_word(const char **text, char *word, size_t room)
{
    size_t len = strcspn(*text, ".");

    if (len == 0 || len >= room)
        return false;
    memcpy(word, *text, len);
    word[len] = '\0';
    *text += len + ((*text)[len] == '.');
    return true;
}

static bool read_hex(const char *hex, char name[VB_HULL_NAME])
{
    size_t len = strlen(hex);

    if (len % 2 || len / 2 >= VB_HULL_NAME)
        return false;
    for (size_t i = 0; i < len / 2; i++) {
        const char digits[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        if (!isxdigit((unsigned char)digits[0]) || !isxdigit((unsigned char)digits[1]))
            return false;
        name[i] = (char)strtoul(digits, NULL, 16);
    }
    name[len / 2] = '\0';
    return true;
}

bool vb_store_read(const char *text, struct vb_store_key *key)
{
    char uid[12], name[2 * VB_HULL_NAME], again[VB_STORE_NAME];
    const char *at = text + sizeof PREFIX - 1;

    if (strncmp(text, PREFIX, sizeof PREFIX - 1) != 0 ||
        !take_word(&at, key->nic, sizeof key->nic) || !take_word(&at, uid, sizeof uid) ||
        !take_word(&at, name, sizeof name) || *at)
        return false;
    unsigned long long number = strtoull(uid, NULL, 10);
    if (number >= UINT32_MAX) // (uid_t)-1 is nobody's
        return false;
    key->uid = (uid_t)number;
    if (name[0] != '+' && strlen(name) < sizeof key->name)
        memcpy(key->name, name, strlen(name) + 1);
    else if (name[0] != '+' || !read_hex(name + 1, key->name))
        return false;
    vb_store_write(key, again);
    return key->name[0] && is_plain(key->nic) && strcmp(text, again) == 0;
}

static void name_of(const struct vb_hull *hull, const struct vb_hull_mapping *m,
                    char text[VB_STORE_NAME])
{
    struct vb_store_key key = {.uid = m->tenant->uid};

    memcpy(key.nic, hull->config.name, sizeof key.nic);
    memcpy(key.name, m->name, sizeof key.name);
    vb_store_write(&key, text);
}

// ---- telling

// False: later.
static bool tell(const char *name, const struct vb_hull_mapping *m)
{
    char lines[LINES];

    // Memory cannot hang up: the manager need not watch it.
    if (m)
        snprintf(lines, sizeof lines, "FDSTORE=1\nFDPOLL=0\nFDNAME=%s\n", name);
    else
        snprintf(lines, sizeof lines, "FDSTOREREMOVE=1\nFDNAME=%s\n", name);
    int err = vb_hull_notify_fd(lines, m ? m->fd : -1);
    return err != -EAGAIN && err != -ENOBUFS && err != -ETOOMANYREFS && err != -ENOMEM &&
           err != -EMFILE && err != -ENFILE;
}

// Whether another message may leave now.
static bool may_tell(struct vb_store *s, uint64_t now_ns)
{
    uint64_t passed = (now_ns - s->counted_ns) / VB_STORE_MESSAGE_NS;

    s->counted_ns += passed * VB_STORE_MESSAGE_NS;
    s->sent = passed < s->sent ? s->sent - (uint32_t)passed : 0;
    if (s->sent == VB_STORE_BURST)
        return false;
    s->sent++;
    return true;
}

static void tell_or_queue(struct vb_hull *hull, const char *name, const struct vb_hull_mapping *m)
{
    if (!vb_hull_notify_wanted())
        return;
    if (vb_fifo_empty(&hull->store.due) && may_tell(&hull->store, hull->unit[0].looked_ns) &&
        tell(name, m))
        return;
    struct due *d = calloc(1, sizeof *d);
    if (!d)
        return;
    d->mapping = m;
    memcpy(d->name, name, sizeof d->name);
    vb_fifo_push(&hull->store.due, &d->link);
    hull->store.retry_ns = hull->unit[0].looked_ns + RETRY_NS;
}

void vb_store_add(struct vb_hull *hull, const struct vb_hull_mapping *m)
{
    char name[VB_STORE_NAME];

    name_of(hull, m, name);
    tell_or_queue(hull, name, m);
}

static void drop(struct due *d)
{
    vb_link_remove(&d->link);
    free(d);
}

// What the manager was not told of yet it need not forget: so no more can be due than there is
// memory, and was when it last listened.
static bool withdraw(struct vb_hull *hull, const struct vb_hull_mapping *m)
{
    bool found = false;

    for (struct vb_link *l = hull->store.due.head.next, *next; l != &hull->store.due.head;
         l = next) {
        struct due *d = VB_CONTAINER_OF(l, struct due, link);
        next = l->next;
        if (d->mapping != m)
            continue;
        drop(d);
        found = true;
    }
    return found;
}

void vb_store_remove(struct vb_hull *hull, const struct vb_hull_mapping *m)
{
    char name[VB_STORE_NAME];

    if (withdraw(hull, m))
        return;
    name_of(hull, m, name);
    tell_or_queue(hull, name, NULL);
}

void vb_store_flush(struct vb_hull *hull, uint64_t now_ns, uint64_t *deadline_ns)
{
    struct vb_link *link;

    while (now_ns >= hull->store.retry_ns && (link = vb_fifo_first(&hull->store.due))) {
        struct due *d = VB_CONTAINER_OF(link, struct due, link);
        if (may_tell(&hull->store, now_ns) && tell(d->name, d->mapping))
            drop(d);
        else
            hull->store.retry_ns = now_ns + RETRY_NS;
    }
    if (deadline_ns && !vb_fifo_empty(&hull->store.due) && hull->store.retry_ns < *deadline_ns)
        *deadline_ns = hull->store.retry_ns;
}

void vb_store_end(struct vb_hull *hull)
{
    struct vb_link *link;

    while ((link = vb_fifo_first(&hull->store.due))) {
        struct due *d = VB_CONTAINER_OF(link, struct due, link);
        tell(d->name, d->mapping);
        drop(d);
    }
}

// ---- after a restart

// What can never be ours again goes from the store, too, lest it come back beside a new one of its
// name; a name goes with all that has it, so the one that we have is stored again.
static void refuse(struct vb_hull *hull, const struct vb_store_key *key, const char *name)
{
    const struct vb_hull_mapping *m = vb_hull_memory_named(hull, key->uid, key->name);

    tell_or_queue(hull, name, NULL);
    if (m)
        vb_store_add(hull, m);
}

void vb_store_restore(struct vb_hull *hull, struct vb_inherited *in)
{
    struct vb_store_key key;

    for (uint32_t i = 0; in && i < in->count; i++) {
        struct vb_inherited_fd *e = &in->fd[i];
        if (e->fd < 0 || !vb_store_read(e->name, &key) || strcmp(key.nic, hull->config.name) != 0)
            continue;
        e->why = vb_hull_memory_restore(hull, key.uid, key.name, e->fd);
        if (e->why)
            refuse(hull, &key, e->name);
        else
            e->fd = -1;
    }
}
