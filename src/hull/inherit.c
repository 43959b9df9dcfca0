// SPDX-License-Identifier: Apache-2.0
// Takes over descriptors of the service manager's.
#include "hull/inherit.h"

#include "host/contract.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

// ---- what the environment says

// Decimal digits and nothing else.
static bool parse_number(const char *text, unsigned long max, unsigned long *value)
{
    char *end;

    if (!text || *text < '0' || *text > '9' || strlen(text) > 10)
        return false;
    *value = strtoul(text, &end, 10);
    return !*end && *value <= max;
}

// As managers allow them; a colon ends one.
static bool is_name(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (name[i] < ' ' || name[i] >= 0x7f)
            return false;
    return len <= VB_INHERITED_NAME;
}

static bool take_names(struct vb_inherited *in, const char *names)
{
    char *at = in->text;

    memcpy(at, names, strlen(names) + 1);
    for (uint32_t i = 0; i < in->count; i++) {
        size_t len = strcspn(at, ":");
        bool last = at[len] == '\0';
        if (!is_name(at, len) || last != (i + 1 == in->count))
            return false;
        at[len] = '\0';
        in->fd[i].name = at;
        at += len + 1;
    }
    return true;
}

static void name_nothing(struct vb_inherited *in)
{
    for (uint32_t i = 0; i < in->count; i++)
        in->fd[i].name = "";
}

int vb_inherited_parse(const char *count, const char *names, struct vb_inherited *in,
                       char error[VB_ERROR_TEXT])
{
    unsigned long number;

    *in = (struct vb_inherited){0};
    if (!parse_number(count, VB_INHERITED_MAX, &number)) {
        snprintf(error, VB_ERROR_TEXT, "LISTEN_FDS is '%.20s': a number up to %d is right", count,
                 VB_INHERITED_MAX);
        return -EINVAL;
    }
    if (number == 0)
        return 0;
    in->fd = calloc(number, sizeof *in->fd);
    in->text = malloc(names ? strlen(names) + 1 : 1);
    if (!in->fd || !in->text) {
        free(in->fd);
        free(in->text);
        *in = (struct vb_inherited){0};
        snprintf(error, VB_ERROR_TEXT, "out of memory");
        return -ENOMEM;
    }
    in->count = (uint32_t)number;
    for (uint32_t i = 0; i < in->count; i++)
        in->fd[i].fd = VB_INHERITED_FIRST + (int)i;
    name_nothing(in);
    if (!names || take_names(in, names))
        return 0;
    name_nothing(in);
    snprintf(error, VB_ERROR_TEXT,
             "LISTEN_FDNAMES does not name %u descriptors, each by up to %d printable characters",
             in->count, VB_INHERITED_NAME);
    return -EINVAL;
}

static bool is_meant_for_us(void)
{
    unsigned long pid;
    return parse_number(getenv("LISTEN_PID"), INT32_MAX, &pid) && (pid_t)pid == getpid();
}

int vb_inherited_take(struct vb_inherited *in, char error[VB_ERROR_TEXT])
{
    const char *count = is_meant_for_us() ? getenv("LISTEN_FDS") : NULL;
    int err = 0;

    *in = (struct vb_inherited){0};
    if (count)
        err = vb_inherited_parse(count, getenv("LISTEN_FDNAMES"), in, error);
    for (uint32_t i = 0; i < in->count; i++)
        if (fcntl(in->fd[i].fd, F_SETFD, FD_CLOEXEC) < 0) {
            in->fd[i].fd = -1;
            in->fd[i].why = "it is not open";
        }
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return err;
}

// ---- a socket

static bool is_option(int fd, int option, int wanted)
{
    int value;
    socklen_t size = sizeof value;
    return getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 && value == wanted;
}

// Its mode says who may attach, as that of a socket which we make ourselves.
static const char *judge_listener(int fd, char *path, size_t room)
{
    struct sockaddr_un at = {0};
    socklen_t size = sizeof at;
    struct stat file;

    if (!is_option(fd, SO_DOMAIN, AF_UNIX) || !is_option(fd, SO_TYPE, SOCK_SEQPACKET) ||
        !is_option(fd, SO_ACCEPTCONN, 1))
        return "this is no listening socket for packets in order (ListenSequentialPacket=)";
    if (getsockname(fd, (struct sockaddr *)&at, &size) < 0 || at.sun_path[0] != '/' ||
        strnlen(at.sun_path, sizeof at.sun_path) >= room ||
        strnlen(at.sun_path, sizeof at.sun_path) == sizeof at.sun_path)
        return "this socket has no file";
    if (lstat(at.sun_path, &file) < 0 || !S_ISSOCK(file.st_mode))
        return "this socket's file is gone";
    if (file.st_mode & 0777 & ~0660)
        return "this socket is open to strangers: SocketMode= is to be 0600 or 0660";
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0)
        return "this socket cannot be used";
    memcpy(path, at.sun_path, strlen(at.sun_path) + 1);
    return NULL;
}

int vb_inherited_listener(struct vb_inherited *in, const char *name, char *path, size_t room,
                          char error[VB_ERROR_TEXT])
{
    for (uint32_t i = 0; in && i < in->count; i++) {
        struct vb_inherited_fd *e = &in->fd[i];
        if (e->fd < 0 || strcmp(e->name, name) != 0)
            continue;
        e->why = judge_listener(e->fd, path, room);
        if (e->why) {
            snprintf(error, VB_ERROR_TEXT, "descriptor '%.70s': %s", name, e->why);
            return -EPERM;
        }
        int fd = e->fd;
        e->fd = -1;
        return fd;
    }
    return -ENOENT;
}

void vb_inherited_free(struct vb_inherited *in)
{
    for (uint32_t i = 0; i < in->count; i++) {
        int fds[VB_HULL_FDS] = {in->fd[i].fd, -1};
        vb_contract_close(fds);
    }
    free(in->fd);
    free(in->text);
    *in = (struct vb_inherited){0};
}
