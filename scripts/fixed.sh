#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fixed.sh COMMAND...: runs COMMAND without address space randomisation, where that is allowed.
# The sanitizers of gcc 12 and clang 14 place their shadow memory badly on kernels that
# randomise mappings by 32 bits.
set -eu

if setarch -R true 2>/dev/null; then
    exec setarch -R "$@"
fi
exec "$@"
