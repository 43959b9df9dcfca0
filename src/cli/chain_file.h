// SPDX-License-Identifier: Apache-2.0
// Programs from files, as text or as `verbena chain asm` writes them.
#ifndef VB_CLI_CHAIN_FILE_H
#define VB_CLI_CHAIN_FILE_H

#include "chain/image.h"

// "-" is standard input. NULL: the command has said on stderr why.
struct vb_image *vb_chain_file_load(const char *command, const char *name);

#endif
