// SPDX-License-Identifier: Apache-2.0
// What a program's file says about how it is loaded. The file is a stranger's: offsets and lengths
// in it are checked.
#ifndef VB_CLI_ELF_FILE_H
#define VB_CLI_ELF_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vb_elf_kind {
    VB_ELF_OK,
    VB_ELF_SCRIPT,  // interpreter is what follows #!
    VB_ELF_NONE,    // neither
    VB_ELF_FOREIGN, // for another kind of machine
};

enum {
    VB_ELF_NEEDED = 64 // libraries kept
};

struct vb_elf {
    enum vb_elf_kind kind;
    char interpreter[PATH_MAX]; // "": statically linked
    const char *needed[VB_ELF_NEEDED];
    uint32_t needs;
    const char *rpath, *runpath; // NULL: none
    bool mentions_verbs;         // libibverbs.so is written somewhere in it
    const uint8_t *bytes;        // the file, mapped
    size_t len;
};

// 0 or a negative errno; vb_elf_close() in any case.
int vb_elf_open(const char *path, struct vb_elf *elf);
void vb_elf_close(struct vb_elf *elf);

bool vb_elf_needs(const struct vb_elf *elf, const char *library);

#endif
