// SPDX-License-Identifier: Apache-2.0
// What one executed work-queue entry of a chain costs the core: the hash get, in memory. Run under
// `valgrind --tool=callgrind --toggle-collect=exchange` it counts instructions; alone it prints
// nanoseconds.
#include "base/bytes.h"
#include "chain/machine.h"
#include "port/clock.h"
#include "verbena/offload.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    BATCH = 4,
    VALUE = 64
};

void exchange(struct vb_machine *m, uint32_t k, const struct vb_hash_request *request);

__attribute__((noinline)) void exchange(struct vb_machine *m, uint32_t k,
                                        const struct vb_hash_request *request)
{
    struct vb_machine_reply reply;

    for (uint32_t i = 0; i < BATCH; i++)
        vb_machine_send(m, k, request, sizeof *request);
    vb_machine_poll(m);
    for (uint32_t i = 0; i < BATCH; i++)
        if (!vb_machine_take(m, k, &reply) || reply.imm != VALUE)
            abort();
}

int main(int argc, char **argv)
{
    char error[VB_IMAGE_TEXT];
    uint32_t rounds = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 100000;
    struct vb_image *image =
        vb_offload_hash_get(&(struct vb_hash_opts){.slots = 8, .value_max = VALUE}, error);
    struct vb_machine *m =
        image ? vb_machine_create(image, &(struct vb_machine_opts){.shared_bytes = 4096}, error)
              : NULL;

    if (!m) {
        fprintf(stderr, "chain_cost: %s\n", error);
        return 1;
    }
    uint32_t index = (uint32_t)vb_image_find_region(image, "index");
    uint32_t items = (uint32_t)vb_image_find_region(image, "items");
    uint32_t k = (uint32_t)vb_image_find_queue(image, "K");
    struct vb_hash_bucket *bucket = (void *)vb_machine_data(m, index);
    struct vb_hash_request request = {.key = "key 1"};
    *bucket = (struct vb_hash_bucket){.addr = htobe64(vb_machine_address(m, items)),
                                      .len = htobe32(VALUE),
                                      .len_again = htobe32(VALUE)};
    vb_hash_store_key(bucket->key, request.key);
    vb_put_be64(request.bucket, vb_machine_address(m, index));
    exchange(m, k, &request);
    uint64_t begin = vb_clock_ns();
    for (uint32_t i = 0; i < rounds; i++)
        exchange(m, k, &request);
    uint64_t ns = vb_clock_ns() - begin;
    printf("%u gets: %.0f ns each, client, wire and server\n", rounds * BATCH,
           (double)ns / (rounds * BATCH));
    vb_machine_destroy(m);
    vb_image_destroy(image);
    return 0;
}
