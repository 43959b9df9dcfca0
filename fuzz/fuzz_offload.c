// SPDX-License-Identifier: Apache-2.0
// Messages to the service of offloads from anyone: each gets one answer that can be read, whoever
// joins can be ended, and the one who joined before is still there. And answers from anyone, as
// clients read them. Input: a message.
#include "verbena/nic.h"
#include "verbena/offload.h"
#include "verbena/offload_service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    VALUE_MAX = 64,
};

static struct vb_nic *nic;
static struct vb_offload_service *service;
static uint64_t resident; // the ticket of who joined first

static void require(bool holds)
{
    if (!holds)
        abort();
}

static struct vb_image *make_get(void *ctx, uint32_t depth, char *error)
{
    (void)ctx;
    return vb_offload_hash_get(&(struct vb_hash_opts){.slots = depth, .value_max = VALUE_MAX},
                               error);
}

static void open_service(void)
{
    static uint8_t memory[4096];
    char address[32], error[VB_OFFLOAD_TEXT] = "";
    uint8_t message[VB_OFFLOAD_MESSAGE], answer[VB_OFFLOAD_MESSAGE];
    const struct vb_offload_memory shared[] = {{"index", memory, sizeof memory, false},
                                               {"items", memory, sizeof memory, false}};
    struct vb_offload_join join = {
        .offload = "get", .nonce = 1, .qpn = 0x1000, .depth = 2, .bytes = 2 * VALUE_MAX};
    pid_t pid = getpid();

    snprintf(address, sizeof address, "127.%d.%d.1", 128 + (pid >> 8 & 63), pid & 255);
    require(
        vb_nic_open(
            &(struct vb_nic_opts){.address = address, .port = "udp", .seed = 1, .no_helper = true},
            &nic) == 0);
    require(vb_offload_open(nic, &(struct vb_offload_service_opts){.clients_max = 2}, &service) ==
            0);
    require(
        vb_offload_add(
            service,
            &(struct vb_offload_offer){
                .name = "get", .make = make_get, .memory = shared, .memories = 2, .depth_max = 8},
            error) == 0);
    vb_nic_gid(nic, join.gid);
    vb_offload_answer(service, message, vb_offload_write_join(message, &join), answer, &resident);
    require(resident != 0);
}

// Most inputs are no whole message: what they lack is filled in, so that more than heads is tried.
static uint32_t complete(uint8_t message[VB_OFFLOAD_MESSAGE], const uint8_t *data, size_t len)
{
    struct vb_offload_join join = {.offload = "get", .nonce = 2, .qpn = 0x2000, .depth = 2};

    vb_nic_gid(nic, join.gid);
    uint32_t whole = vb_offload_write_join(message, &join);
    for (size_t i = 0; i + 1 < len; i += 2) // pairs of place and value
        message[data[i] % whole] = data[i + 1];
    return whole;
}

static void tell(const uint8_t *message, size_t len)
{
    uint8_t answer[VB_OFFLOAD_MESSAGE];
    char error[VB_OFFLOAD_TEXT] = "";
    struct vb_offload_place place;
    struct vb_offload_stat stat;
    uint64_t ticket;
    uint32_t bytes = vb_offload_answer(service, message, len, answer, &ticket);

    int why = vb_offload_read_place(answer, bytes, &place, error);
    require(bytes > 0 && bytes <= sizeof answer && why >= 0);
    require((why == 0) == (ticket != 0) && (why == 0 || error[0]));
    if (why == 0)
        require(vb_offload_end(service, ticket) == 0);
    vb_offload_query(service, &stat);
    require(stat.clients == 1 && vb_offload_loaded(service, resident) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t message[VB_OFFLOAD_MESSAGE];
    char error[VB_OFFLOAD_TEXT];
    struct vb_offload_place place;

    if (!service)
        open_service();
    tell(data, size);
    tell(message, complete(message, data, size));
    if (vb_offload_read_place(data, size, &place, error) == 0)
        require(place.regions <= VB_OFFLOAD_REGIONS);
    (void)vb_offload_read_left(data, size, error);
    return 0;
}
