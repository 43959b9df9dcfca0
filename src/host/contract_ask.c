// SPDX-License-Identifier: Apache-2.0
// Asks a hull, as an application of this user that stays for a moment, what the user has there.
#include "host/contract.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

static int dial(const char *name, uint64_t timeout_ns, char text[VB_ERROR_TEXT])
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const struct timeval patience = {.tv_sec = (time_t)(timeout_ns / 1000000000),
                                     .tv_usec = (suseconds_t)(timeout_ns % 1000000000 / 1000)};

    snprintf(text, VB_ERROR_TEXT, "'%.60s' is too long for a hull's name", name);
    if (!vb_contract_path(name, at.sun_path, sizeof at.sun_path))
        return -ENAMETOOLONG;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (const struct sockaddr *)&at, sizeof at) == 0)
        return fd;
    int err = -errno;
    snprintf(text, VB_ERROR_TEXT, "no hull at %.100s: %s", at.sun_path, strerror(-err));
    close(fd);
    return err;
}

static int exchange(int fd, const struct vb_hull_request *request, struct vb_hull_reply *reply,
                    char text[VB_ERROR_TEXT])
{
    int fds[VB_HULL_FDS] = {-1, -1};
    int err = vb_contract_send(fd, request, sizeof *request, 0, NULL, 0);
    int bytes = err ? err : vb_contract_receive(fd, reply, sizeof *reply, 0, fds);

    if (bytes >= 0)
        vb_contract_close(fds);
    if (bytes != sizeof *reply || reply->op != request->op) {
        snprintf(text, VB_ERROR_TEXT, "%s",
                 bytes == -EAGAIN ? "the hull does not answer in time" : "this is no hull");
        return bytes == -EAGAIN ? -ETIMEDOUT : -EPROTO;
    }
    reply->text[VB_ERROR_TEXT - 1] = reply->error ? '\0' : reply->text[VB_ERROR_TEXT - 1];
    if (reply->error)
        snprintf(text, VB_ERROR_TEXT, "%s", reply->text);
    return reply->error > 0 ? -EPROTO : reply->error;
}

int vb_contract_account(const char *name, uint64_t timeout_ns, struct vb_hull_account *account,
                        char text[VB_ERROR_TEXT])
{
    struct vb_hull_request request = {.op = VB_HULL_HELLO};
    struct vb_hull_reply reply;
    int fd = dial(name, timeout_ns, text);

    if (fd < 0)
        return fd;
    request.hello = (struct vb_hull_hello){.magic = VB_HULL_MAGIC,
                                           .version = VB_HULL_VERSION,
                                           .page_bytes = sizeof(struct vb_hull_page),
                                           .request_bytes = sizeof request,
                                           .reply_bytes = sizeof reply};
    int err = exchange(fd, &request, &reply, text);
    request = (struct vb_hull_request){.op = VB_HULL_ACCOUNT};
    if (!err)
        err = exchange(fd, &request, &reply, text);
    if (!err)
        *account = reply.account;
    close(fd);
    return err;
}
