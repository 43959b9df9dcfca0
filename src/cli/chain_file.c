// SPDX-License-Identifier: Apache-2.0
// Programs from files.
#include "cli/chain_file.h"

#include "chain/file.h"
#include "chain/text.h"
#include "cli/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FILE_BYTES_MAX = 1 << 30,
};

// The whole file, "-" being standard input. NULL: a line on stderr has said why.
static char *read_file(const char *command, const char *name, size_t *len)
{
    FILE *in = strcmp(name, "-") == 0 ? stdin : fopen(name, "rb");
    size_t room = 0;
    char *bytes = NULL;

    *len = 0;
    if (!in) {
        vb_usage_error(command, "%s: %s", name, strerror(errno));
        return NULL;
    }
    do {
        room = 2 * room + 4096;
        char *more = room <= FILE_BYTES_MAX ? realloc(bytes, room) : NULL;
        if (!more) {
            vb_usage_error(command, "%s: the file is too large", name);
            free(bytes);
            bytes = NULL;
            break;
        }
        bytes = more;
        *len += fread(bytes + *len, 1, room - *len, in);
    } while (*len == room);
    if (bytes && ferror(in)) {
        vb_usage_error(command, "%s: %s", name, strerror(errno));
        free(bytes);
        bytes = NULL;
    }
    if (in != stdin)
        fclose(in);
    return bytes;
}

struct vb_image *vb_chain_file_load(const char *command, const char *name)
{
    char error[VB_IMAGE_TEXT];
    size_t len;
    char *bytes = read_file(command, name, &len);

    if (!bytes)
        return NULL;
    struct vb_image *image = vb_image_is_file((const uint8_t *)bytes, len)
                                 ? vb_image_decode((const uint8_t *)bytes, len, error)
                                 : vb_asm(bytes, len, error);
    free(bytes);
    if (!image)
        vb_usage_error(command, "%s: %s", name, error);
    return image;
}
