// SPDX-License-Identifier: Apache-2.0
// What a service manager may say of descriptors: LISTEN_FDS, a line's end, and LISTEN_FDNAMES.
// Refused with words, or as many names as descriptors, of which those that say whose memory it is
// are written in the same way again.
#include "hull/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check(const char *name)
{
    struct vb_store_key key;
    char again[VB_STORE_NAME];

    require(strlen(name) <= VB_INHERITED_NAME && !strchr(name, ':'));
    for (const char *c = name; *c; c++)
        require(*c >= ' ' && *c < 0x7f);
    if (!vb_store_read(name, &key))
        return;
    require(key.name[0] && key.nic[0] && key.uid != (uid_t)-1);
    vb_store_write(&key, again);
    require(strcmp(name, again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vb_inherited in;
    char error[VB_ERROR_TEXT] = "";
    char *text = malloc(size + 1); // exact, so that the sanitizer guards its end

    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    char *names = strchr(text, '\n');
    if (names)
        *names++ = '\0';
    int err = vb_inherited_parse(text, names, &in, error);
    require(err == 0 || (err == -EINVAL && error[0]));
    require(in.count <= VB_INHERITED_MAX);
    for (uint32_t i = 0; i < in.count; i++) {
        require(in.fd[i].fd == VB_INHERITED_FIRST + (int)i && !in.fd[i].why);
        require(!err || !in.fd[i].name[0]);
        check(in.fd[i].name);
        in.fd[i].fd = -1; // it is none of ours
    }
    vb_inherited_free(&in);
    free(text);
    return 0;
}
