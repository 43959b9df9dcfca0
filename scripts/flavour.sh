#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# flavour.sh asan|tsan TREE: configures and builds that flavour of the tests in TREE: the address and
# undefined-behaviour sanitizers with the fuzzers, or the thread sanitizer.
set -eu

flavour=$1
tree=$2
source=$(cd "$(dirname "$0")/.." && pwd)

# Compiling is most of what a sanitizer costs here: half as long with less to optimize and to describe.
quickly="-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O1 -g1"

case $flavour in
# clang is also the second compiler whose warnings are errors, in all that is built.
asan)
    target=all
    set -- -DVERBENA_FUZZ=ON -DVERBENA_SANITIZE=address,undefined -DVERBENA_WERROR=ON \
        -DCMAKE_C_COMPILER=clang -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld
    ;;
tsan)
    target=tested
    set -- -DVERBENA_SANITIZE=thread
    ;;
*)
    echo "flavour.sh: unknown flavour '$flavour'; one of asan, tsan" >&2
    exit 2
    ;;
esac

cmake -G Ninja -S "$source" -B "$tree" -DVERBENA_TESTS=ON "$quickly" "$@" >"$tree.log" 2>&1 &&
    cmake --build "$tree" --target $target >>"$tree.log" 2>&1 || {
    tail -n 60 "$tree.log"
    exit 1
}
