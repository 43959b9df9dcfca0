// SPDX-License-Identifier: Apache-2.0
// Hulls for tests.
#include "hull_kit.h"

#include "../wait.h"
#include "duo.h"
#include "pair.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static struct vb_hull *open_hull(unsigned host, const char *port, const char *text, bool still)
{
    struct vb_hull_config *config = malloc(sizeof *config);
    const char *pus = getenv("VERBENA_PUS");
    char address[16], all[1024], error[VB_ERROR_TEXT];
    struct vb_hull *hull = NULL;

    assert_non_null(config);
    pair_address(host, address);
    snprintf(all, sizeof all, "[nic hull%u]\naddress = %s\nport = %s\nspin_us = 20\npus = %s\n%s",
             host, address, port, pus ? pus : "1", text ? text : "");
    if (vb_hull_config_parse(all, (uint32_t)strlen(all), config, error) != 0)
        fail_msg("%s", error);
    config->nic[0].no_thread = still;
    if (vb_hull_open(config, 0, &hull, error) != 0)
        fail_msg("%s", error);
    free(config);
    return hull;
}

struct vb_hull *hull_kit_open(unsigned host, const char *port, const char *text)
{
    return open_hull(host, port, text, false);
}

struct vb_hull *hull_kit_open_still(unsigned host)
{
    return open_hull(host, "auto", NULL, true);
}

struct vb_nic *hull_kit_attach(const struct vb_hull *hull)
{
    char error[VB_ERROR_TEXT];
    const struct vb_nic_opts opts = {.hull = hull->path, .error_text = error};
    struct vb_nic *nic = NULL;

    if (vb_nic_open(&opts, &nic) != 0)
        fail_msg("%s", error);
    return nic;
}

struct vb_hull_counts hull_kit_wait(struct vb_hull *hull, uint32_t clients)
{
    struct vb_hull_counts counts;

    WAIT_UNTIL((vb_hull_count(hull, &counts), counts.clients == clients));
    return counts;
}

void hull_kit_await_sleep(const struct vb_hull *hull)
{
    WAIT_UNTIL(atomic_load(&hull->nic->helper.asleep) == (1u << hull->units) - 1);
}

int hull_kit_connect(const struct vb_hull *hull)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    memcpy(at.sun_path, hull->path, sizeof at.sun_path);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

int hull_kit_ask(int socket, struct vb_hull_request *request, struct vb_hull_reply *reply)
{
    int fds[VB_HULL_FDS];

    if (vb_contract_send(socket, request, sizeof *request, 0, NULL, 0) != 0)
        return -ENOTCONN;
    if (vb_contract_receive(socket, reply, sizeof *reply, 0, fds) != sizeof *reply)
        return -ENOTCONN;
    for (uint32_t i = 0; i < VB_HULL_FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return reply->error;
}

struct vb_hull_request hull_kit_hello(void)
{
    return (struct vb_hull_request){.op = VB_HULL_HELLO,
                                    .serial = 1,
                                    .hello = {.magic = VB_HULL_MAGIC,
                                              .version = VB_HULL_VERSION,
                                              .page_bytes = sizeof(struct vb_hull_page),
                                              .request_bytes = sizeof(struct vb_hull_request),
                                              .reply_bytes = sizeof(struct vb_hull_reply)}};
}

unsigned hull_kit_descriptors(void)
{
    unsigned count = 0;
    DIR *list = opendir("/proc/self/fd");

    assert_non_null(list);
    while (readdir(list))
        count++;
    closedir(list);
    return count;
}

// Of memory that is shared with applications.
unsigned hull_kit_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    unsigned count = 0;

    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        count += strstr(line, "memfd:") != NULL;
    fclose(maps);
    return count;
}
