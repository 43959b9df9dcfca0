// SPDX-License-Identifier: Apache-2.0
// A view of /sys/class: a mount namespace in which a small file system in memory lies over it. What
// the machine has there is bound into it, name by name; of infiniband and infiniband_verbs the
// machine's own devices stay, and ours is added. No rights are needed where the system lets users
// make namespaces, nothing is written to a disk, and nothing outlives the last process inside.
#include "cli/sysfs.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static const char top[] = "/sys/class";

enum {
    PATH_BYTES = 512,
    TEXT_BYTES = 256,
};

// ---- a namespace

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool whole = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return whole;
}

// Users stay who they are.
static bool map_self(uid_t uid, gid_t gid)
{
    char line[64];

    write_text("/proc/self/setgroups", "deny"); // the map of groups asks for it
    snprintf(line, sizeof line, "%u %u 1", gid, gid);
    if (!write_text("/proc/self/gid_map", line))
        return false;
    snprintf(line, sizeof line, "%u %u 1", uid, uid);
    return write_text("/proc/self/uid_map", line);
}

static bool enter_namespace(void)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();

    if (unshare(CLONE_NEWNS) != 0 &&
        (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || !map_self(uid, gid)))
        return false;
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

// ---- files

// The first failure stays: what follows does nothing.
struct tree {
    bool failed;
};

static void make_parents(struct tree *t, char *path)
{
    for (char *slash = strchr(path + sizeof top, '/'); slash && !t->failed;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        t->failed = mkdir(path, 0755) != 0 && errno != EEXIST;
        *slash = '/';
    }
}

__attribute__((format(printf, 3, 4))) static void put(struct tree *t, const char *name,
                                                      const char *format, ...)
{
    char path[PATH_BYTES], text[TEXT_BYTES];
    va_list args;

    if (t->failed)
        return;
    snprintf(path, sizeof path, "%s/%s", top, name);
    make_parents(t, path);
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    int fd = t->failed ? -1 : open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    t->failed = fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
}

// As the kernel writes identifiers: groups of 16 bits.
static const char *grouped(const uint8_t *bytes, unsigned len, char text[64])
{
    int at = 0;

    for (unsigned i = 0; i < len; i += 2)
        at += snprintf(text + at, (size_t)(64 - at), "%s%02x%02x", i ? ":" : "", bytes[i],
                       bytes[i + 1]);
    return text;
}

struct rate {
    unsigned code, tenths; // of a Gb/s, for each lane
    const char *name;
};

static void put_rate(struct tree *t, const char *path, const struct ibv_port_attr *port)
{
    static const struct rate rates[] = {{1, 25, "SDR"},    {2, 50, "DDR"},    {4, 100, "QDR"},
                                        {8, 100, "FDR10"}, {16, 140, "FDR"},  {32, 250, "EDR"},
                                        {64, 500, "HDR"},  {128, 1000, "NDR"}};
    static const unsigned lanes[] = {[1] = 1, [2] = 4, [4] = 8, [8] = 12, [16] = 2};
    const struct rate *rate = &rates[0];
    unsigned width = port->active_width <= 16 ? lanes[port->active_width] : 0;

    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++)
        if (rates[i].code == port->active_speed)
            rate = &rates[i];
    put(t, path, "%u Gb/sec (%uX %s)\n", rate->tenths * width / 10, width, rate->name);
}

// A file of the device: its path is put together from the device's name and the rest.
#define PUT(rest, ...)                                                          \
    do {                                                                        \
        snprintf(path, sizeof path, "infiniband/%.64s/%s", device->name, rest); \
        put(t, path, __VA_ARGS__);                                              \
    } while (0)

static void put_gids(struct tree *t, const struct vb_sysfs_device *device)
{
    char path[PATH_BYTES / 2], text[64], rest[48];

    for (unsigned i = 0; i < device->gids; i++) {
        snprintf(rest, sizeof rest, "ports/1/gids/%u", i);
        PUT(rest, "%s\n", grouped(device->gid[i].gid.raw, 16, text));
        snprintf(rest, sizeof rest, "ports/1/gid_attrs/types/%u", i);
        PUT(rest, "RoCE v2\n");
        snprintf(rest, sizeof rest, "ports/1/gid_attrs/ndevs/%u", i);
        PUT(rest, "%s\n", device->gid[i].interface);
    }
}

static void put_port(struct tree *t, const struct vb_sysfs_device *device)
{
    static const char *const states[] = {"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};
    const struct ibv_port_attr *p = &device->port;
    char path[PATH_BYTES / 2];

    PUT("ports/1/state", "%d: %s\n", (int)p->state, states[p->state <= 5 ? p->state : 0]);
    PUT("ports/1/phys_state", "%u: %s\n", p->phys_state,
        p->phys_state == 5 ? "LinkUp" : "Disabled");
    PUT("ports/1/lid", "0x%x\n", p->lid);
    PUT("ports/1/lid_mask_count", "%u\n", p->lmc);
    PUT("ports/1/sm_lid", "0x%x\n", p->sm_lid);
    PUT("ports/1/sm_sl", "%u\n", p->sm_sl);
    PUT("ports/1/cap_mask", "0x%08x\n", p->port_cap_flags);
    PUT("ports/1/link_layer", "%s\n",
        p->link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
    put_gids(t, device);
    PUT("ports/1/pkeys/0", "0xffff\n");
    snprintf(path, sizeof path, "infiniband/%.64s/ports/1/rate", device->name);
    put_rate(t, path, p);
}

static void put_device(struct tree *t, const struct vb_sysfs_device *device)
{
    const struct ibv_device_attr *a = &device->attr;
    char path[PATH_BYTES / 2], text[64], host[64] = "";

    gethostname(host, sizeof host - 1);
    PUT("node_type", "1: CA\n");
    PUT("node_guid", "%s\n", grouped((const uint8_t *)&a->node_guid, 8, text));
    PUT("sys_image_guid", "%s\n", grouped((const uint8_t *)&a->sys_image_guid, 8, text));
    PUT("node_desc", "%s %s\n", host, device->name);
    PUT("fw_ver", "%s\n", a->fw_ver);
    PUT("hw_rev", "0x%x\n", a->hw_ver);
    PUT("hca_type", "Verbena\n");
    PUT("board_id", "software\n");
    PUT("device/vendor", "0x%06x\n", a->vendor_id);
    PUT("device/device", "0x%04x\n", a->vendor_part_id);
    PUT("device/numa_node", "-1\n");
    put_port(t, device);
}

static void put_verbs(struct tree *t, const struct vb_sysfs_device *device)
{
    if (access("/sys/class/infiniband_verbs/uverbs0", F_OK) == 0)
        return; // a device of the machine's own has the number
    put(t, "infiniband_verbs/uverbs0/ibdev", "%s\n", device->name);
    put(t, "infiniband_verbs/uverbs0/abi_version", "1\n");
}

// ---- the machine's own

static bool is_ours(const char *name)
{
    return strcmp(name, "infiniband") == 0 || strcmp(name, "infiniband_verbs") == 0;
}

static void bind_class(struct tree *t, int real, const char *name)
{
    char from[64 + NAME_MAX], to[PATH_BYTES];

    snprintf(from, sizeof from, "/proc/self/fd/%d/%s", real, name);
    snprintf(to, sizeof to, "%s/%s", top, name);
    t->failed = mkdir(to, 0755) != 0 || mount(from, to, NULL, MS_BIND | MS_REC, NULL) != 0;
}

// Links lead to ../../devices, from the new directory as from the old one; files are copied.
static void keep_entry(struct tree *t, int dir, const char *class, const char *name)
{
    char text[TEXT_BYTES], path[PATH_BYTES];
    ssize_t len = readlinkat(dir, name, text, sizeof text - 1);

    snprintf(path, sizeof path, "%s/%.32s/%.255s", top, class, name);
    if (len > 0) {
        text[len] = '\0';
        t->failed = symlink(text, path) != 0;
        return;
    }
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    len = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (len >= 0)
        put(t, path + sizeof top, "%.*s", (int)len, text);
}

static void keep_devices(struct tree *t, int real, const char *class)
{
    char path[PATH_BYTES];
    int fd = openat(real, class, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

    snprintf(path, sizeof path, "%s/%s", top, class);
    t->failed = t->failed || mkdir(path, 0755) != 0;
    for (const struct dirent *e; dir && !t->failed && (e = readdir(dir));)
        if (e->d_name[0] != '.')
            keep_entry(t, fd, class, e->d_name);
    if (dir)
        closedir(dir);
}

static void keep_machine(struct tree *t, int real)
{
    DIR *dir = fdopendir(dup(real));

    for (const struct dirent *e; dir && !t->failed && (e = readdir(dir));)
        if (e->d_name[0] != '.' && !is_ours(e->d_name))
            bind_class(t, real, e->d_name);
    if (dir)
        closedir(dir);
    keep_devices(t, real, "infiniband");
    keep_devices(t, real, "infiniband_verbs");
}

bool vb_sysfs_enter(const struct vb_sysfs_device *device, char why[VB_SYSFS_ERROR_BYTES])
{
    struct tree t = {0};

    if (!enter_namespace()) {
        snprintf(why, VB_SYSFS_ERROR_BYTES, "this system lets you make no mount namespace (%s)",
                 strerror(errno));
        return false;
    }
    int real = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (real < 0 || mount("verbena", top, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755") != 0) {
        snprintf(why, VB_SYSFS_ERROR_BYTES, "%s: %s", top, strerror(errno));
        return false;
    }
    keep_machine(&t, real);
    put_device(&t, device);
    put_verbs(&t, device);
    if (t.failed)
        snprintf(why, VB_SYSFS_ERROR_BYTES, "%s cannot be filled: %s", top, strerror(errno));
    close(real);
    if (!t.failed)
        mount(NULL, top, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL);
    return !t.failed;
}
