#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# flavour.sh asan|tsan|fuzz TREE: configures and builds that flavour of the tests in TREE.
set -eu

flavour=$1
tree=$2
source=$(cd "$(dirname "$0")/.." && pwd)

# Compiling is most of what a sanitizer costs here: half as long with less to optimize and to describe.
quickly="-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O1 -g1"

target=tested
case $flavour in
asan) set -- -DVERBENA_TESTS=ON -DVERBENA_SANITIZE=address,undefined "$quickly" ;;
tsan) set -- -DVERBENA_TESTS=ON -DVERBENA_SANITIZE=thread "$quickly" ;;
# clang is also the second compiler whose warnings are errors.
fuzz)
    target=all
    set -- -DVERBENA_FUZZ=ON -DVERBENA_SANITIZE=address,undefined -DVERBENA_WERROR=ON \
        -DCMAKE_C_COMPILER=clang
    ;;
*)
    echo "flavour.sh: unknown flavour '$flavour'; one of asan, tsan, fuzz" >&2
    exit 2
    ;;
esac

cmake -G Ninja -S "$source" -B "$tree" "$@"
cmake --build "$tree" --target $target
