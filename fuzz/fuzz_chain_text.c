// SPDX-License-Identifier: Apache-2.0
// Chain programs from anyone, as text or as a file: what is accepted can be loaded, and is the same
// program after the way to text, and to a file, and back. Input: one of the two.
#include "chain/file.h"
#include "chain/text.h"

#include <stdlib.h>
#include <string.h>

enum {
    LARGE = 1 << 20 // bytes of a program that would only cost time
};

static void require(bool holds)
{
    if (!holds)
        abort();
}

static uint64_t bytes_of(const struct vb_image *image)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < image->queues; i++)
        sum += (uint64_t)image->queue[i].blocks * 64 +
               (uint64_t)image->queue[i].recvs * image->queue[i].recv_stride;
    for (uint32_t i = 0; i < image->regions; i++)
        sum += image->region[i].kind == VB_REGION_OWN ? image->region[i].bytes : 0;
    return sum;
}

static void check_text(const struct vb_image *image)
{
    char error[VB_IMAGE_TEXT];
    char *text = vb_dis(image);

    require(text != NULL);
    struct vb_image *again = vb_asm(text, strlen(text), error);
    require(again && vb_image_equal(image, again));
    char *same = vb_dis(again);
    require(same && strcmp(text, same) == 0);
    vb_image_destroy(again);
    free(text);
    free(same);
}

static void check_file(const struct vb_image *image)
{
    char error[VB_IMAGE_TEXT];
    size_t len;
    uint8_t *bytes = vb_image_encode(image, &len);

    require(bytes && vb_image_is_file(bytes, len));
    struct vb_image *again = vb_image_decode(bytes, len, error);
    require(again && vb_image_equal(image, again));
    vb_image_destroy(again);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *image;
    char *exact = malloc(size ? size : 1); // so that the sanitizer guards its end

    if (!exact)
        return 0;
    if (size)
        memcpy(exact, data, size);
    if (vb_image_is_file((const uint8_t *)exact, size))
        image = vb_image_decode((const uint8_t *)exact, size, error);
    else
        image = vb_asm(exact, size, error);
    free(exact);
    if (!image) {
        require(error[0] && memchr(error, 0, sizeof error) && !strchr(error, '\n'));
        return 0;
    }
    require(vb_image_check(image, error));
    if (bytes_of(image) <= LARGE) {
        check_text(image);
        check_file(image);
    }
    vb_image_destroy(image);
    return 0;
}
