// SPDX-License-Identifier: Apache-2.0
// What belongs to the process: the system's calls, the settings, the table of descriptors.
#include "rspreload/config.h"
#include "rspreload/preload.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_FILE "/etc/rdma/rsocket/preload_config"

enum {
    PAGE = 1024,
    PAGES = 1024, // descriptors beyond a million are left alone
    RULES = 64,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct vb_rp_real real;
static struct vb_rp_settings settings;
static struct vb_rp_rule rules[RULES];
static unsigned rule_count;
static const void *own_base[2];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static _Atomic(_Atomic(struct vb_rp_entry *) *) pages[PAGES];
static __thread unsigned depth;

static void *find(const char *name)
{
    void *at = dlsym(RTLD_NEXT, name);

    if (!at) {
        fprintf(stderr, "librspreload: the system has no %s()\n", name);
        abort();
    }
    return at;
}

// Object pointers become function pointers through memory.
#define FIND(name)                          \
    do {                                    \
        void *at = find(#name);             \
        memcpy(&real.name, &at, sizeof at); \
    } while (0)

static void find_calls(void)
{
    FIND(socket);
    FIND(bind);
    FIND(listen);
    FIND(accept4);
    FIND(connect);
    FIND(recv);
    FIND(recvfrom);
    FIND(recvmsg);
    FIND(read);
    FIND(readv);
    FIND(send);
    FIND(sendto);
    FIND(sendmsg);
    FIND(write);
    FIND(writev);
    FIND(poll);
    FIND(select);
    FIND(shutdown);
    FIND(close);
    FIND(getpeername);
    FIND(getsockname);
    FIND(setsockopt);
    FIND(getsockopt);
    FIND(fcntl);
    FIND(ioctl);
    FIND(dup);
    FIND(dup2);
    FIND(sendfile);
}

static int number(const char *name)
{
    const char *text = getenv(name);
    return text ? (int)strtol(text, NULL, 10) : 0;
}

static void read_rules(void)
{
    FILE *f = fopen(CONFIG_FILE, "re");
    char line[120];

    while (f && rule_count < RULES && fgets(line, sizeof line, f))
        if (vb_rp_rule_parse(line, &rules[rule_count]))
            rule_count++;
    if (f)
        fclose(f);
}

static const void *base_of(const void *address)
{
    Dl_info info;
    return address && dladdr(address, &info) ? info.dli_fbase : NULL;
}

// What another thread of the parent had half done is not done here.
static void disown(struct vb_rp_entry *entry)
{
    entry->foreign = entry->rs >= 0;
    if (entry->mode == VB_RP_FORK_MOVING)
        entry->mode = VB_RP_PLAIN;
}

// In a child, connections are the parent's: closing them here must not end them there.
static void in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&moved, NULL);
    for (int p = 0; p < PAGES; p++) {
        _Atomic(struct vb_rp_entry *) *page = pages[p];
        for (int i = 0; page && i < PAGE; i++)
            if (page[i])
                disown(page[i]);
    }
}

static void start(void)
{
    find_calls();
    settings = (struct vb_rp_settings){number("RS_SQ_SIZE"), number("RS_RQ_SIZE"),
                                       number("RS_INLINE"), number("RDMAV_FORK_SAFE") != 0};
    own_base[0] = base_of(dlsym(RTLD_DEFAULT, "rsocket"));
    own_base[1] = base_of(dlsym(RTLD_DEFAULT, "ibv_get_device_list"));
    vb_rp_enter();
    read_rules();
    vb_rp_leave();
    pthread_atfork(NULL, NULL, in_child);
}

const struct vb_rp_real *vb_rp_real(void)
{
    pthread_once(&once, start);
    return &real;
}

const struct vb_rp_settings *vb_rp_settings(void)
{
    pthread_once(&once, start);
    return &settings;
}

bool vb_rp_is_asked_for(int domain, int type, int protocol)
{
    pthread_once(&once, start);
    for (unsigned i = 0; i < rule_count; i++)
        if (vb_rp_rule_matches(&rules[i], program_invocation_short_name, domain, type, protocol))
            return true;
    return rule_count == 0;
}

bool vb_rp_is_own(const void *caller)
{
    const void *base = base_of(caller);

    return depth || (base && (base == own_base[0] || base == own_base[1]));
}

void vb_rp_enter(void)
{
    depth++;
}

void vb_rp_leave(void)
{
    depth--;
}

static _Atomic(struct vb_rp_entry *) *place(int fd)
{
    if (fd < 0 || fd >= PAGE * PAGES)
        return NULL;
    _Atomic(struct vb_rp_entry *) *page =
        atomic_load_explicit(&pages[fd / PAGE], memory_order_acquire);
    return page ? &page[fd % PAGE] : NULL;
}

// Ordinary descriptors cost no lock, and none is taken for them in a signal handler.
bool vb_rp_has(int fd)
{
    _Atomic(struct vb_rp_entry *) *at = depth ? NULL : place(fd);
    return at && atomic_load_explicit(at, memory_order_relaxed);
}

struct vb_rp_entry *vb_rp_get(int fd)
{
    if (!vb_rp_has(fd))
        return NULL;
    pthread_mutex_lock(&lock);
    struct vb_rp_entry *entry = *place(fd);
    if (entry)
        entry->references++;
    pthread_mutex_unlock(&lock);
    return entry;
}

void vb_rp_put(struct vb_rp_entry *entry)
{
    int error = errno;

    pthread_mutex_lock(&lock);
    bool last = --entry->references == 0;
    pthread_mutex_unlock(&lock);
    if (!last)
        return;
    if (entry->rs >= 0 && !entry->foreign) {
        vb_rp_enter();
        rclose(entry->rs);
        vb_rp_leave();
    }
    free(entry);
    errno = error;
}

// The lock is held.
static _Atomic(struct vb_rp_entry *) *make_place(int fd)
{
    if (fd < 0 || fd >= PAGE * PAGES)
        return NULL;
    if (!pages[fd / PAGE])
        pages[fd / PAGE] = calloc(PAGE, sizeof(_Atomic(struct vb_rp_entry *)));
    return place(fd);
}

bool vb_rp_share(int fd, struct vb_rp_entry *entry)
{
    pthread_mutex_lock(&lock);
    _Atomic(struct vb_rp_entry *) *at = make_place(fd);
    if (at) {
        entry->references++;
        atomic_store_explicit(at, entry, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return at;
}

bool vb_rp_add(int fd, int rs, enum vb_rp_mode mode)
{
    struct vb_rp_entry *entry = calloc(1, sizeof *entry);

    if (!entry)
        return false;
    entry->rs = rs;
    entry->mode = mode;
    if (vb_rp_share(fd, entry))
        return true;
    free(entry);
    return false;
}

void vb_rp_remove(int fd)
{
    struct vb_rp_entry *entry = NULL;

    pthread_mutex_lock(&lock);
    _Atomic(struct vb_rp_entry *) *at = place(fd);
    if (at)
        entry = atomic_exchange(at, NULL);
    pthread_mutex_unlock(&lock);
    if (entry)
        vb_rp_put(entry);
}

void vb_rp_advance(struct vb_rp_entry *entry, enum vb_rp_mode from, enum vb_rp_mode to)
{
    pthread_mutex_lock(&lock);
    if (entry->mode == from)
        entry->mode = to;
    pthread_mutex_unlock(&lock);
}

bool vb_rp_move_begin(struct vb_rp_entry *entry, enum vb_rp_mode *from)
{
    pthread_mutex_lock(&lock);
    while ((*from = entry->mode) == VB_RP_FORK_MOVING)
        pthread_cond_wait(&moved, &lock);
    bool due = *from == VB_RP_FORK_ACTIVE || *from == VB_RP_FORK_PASSIVE;
    if (due)
        entry->mode = VB_RP_FORK_MOVING;
    pthread_mutex_unlock(&lock);
    return due;
}

void vb_rp_move_end(struct vb_rp_entry *entry, int rs)
{
    pthread_mutex_lock(&lock);
    entry->rs = rs;
    entry->mode = rs >= 0 ? VB_RP_RSOCKET : VB_RP_PLAIN;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&lock);
}

struct vb_rp_entry *vb_rp_get_rsocket(int fd)
{
    struct vb_rp_entry *entry = vb_rp_get(fd);

    if (!entry || entry->mode == VB_RP_RSOCKET)
        return entry;
    vb_rp_put(entry);
    return NULL;
}

struct vb_rp_entry *vb_rp_begin(int fd)
{
    struct vb_rp_entry *entry = vb_rp_get_rsocket(fd);

    if (entry)
        vb_rp_enter();
    return entry;
}

void vb_rp_end(struct vb_rp_entry *entry)
{
    vb_rp_leave();
    vb_rp_put(entry);
}
