#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh TREE SECONDS [FUZZER...]: runs each fuzzer built in TREE for SECONDS, all by default.
# Seeds come from fuzz/corpus/FUZZER; what is found stays in TREE/corpus and TREE/artifacts.
set -eu

here=$(dirname "$0")
seeds=$(cd "$here/.." && pwd)/fuzz/corpus
tree=$1
seconds=$2
shift 2

if [ $# -eq 0 ]; then
    for path in "$tree"/fuzz/fuzz_*; do
        if [ -x "$path" ] && [ -f "$path" ]; then
            set -- "$@" "${path##*/}"
        fi
    done
fi
if [ $# -eq 0 ]; then
    echo "fuzz.sh: no fuzzer in $tree/fuzz" >&2
    exit 1
fi

export UBSAN_OPTIONS=print_stacktrace=1
for name in "$@"; do
    found=$tree/corpus/$name
    mkdir -p "$found" "$tree/artifacts"
    corpora=$found
    if [ -d "$seeds/$name" ]; then
        corpora="$found $seeds/$name"
    fi
    echo "fuzz.sh: $name for $seconds s"
    # shellcheck disable=SC2086 # a list of two directories
    "$here/fixed.sh" "$tree/fuzz/$name" -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=2048 -print_final_stats=1 -verbosity=1 \
        -artifact_prefix="$tree/artifacts/$name-" $corpora
done
