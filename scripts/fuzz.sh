#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh TREE SECONDS [FUZZER...]: runs each fuzzer built in TREE for SECONDS, all by default, two
# at a time. Each replays fuzz/corpus/FUZZER first; words come from fuzz/FUZZER.dict. An input that
# crashes stays in TREE/artifacts, and what several fuzzers print in TREE/logs. With VERBENA_SEED a
# fuzzer draws from that seed and starts from the committed corpus alone; without it each run draws
# others, and starts from what earlier runs have left in TREE/corpus as well.
set -eu

here=$(dirname "$0")
source=$(cd "$here/.." && pwd)/fuzz
tree=$1
seconds=$2
shift 2

seed=${VERBENA_SEED:-0}

run() {
    found=$tree/corpus/$1
    if [ "$seed" -ne 0 ]; then
        found=$(mktemp -d)
        trap 'rm -rf "$found"' EXIT
    fi
    mkdir -p "$found" "$tree/artifacts"
    set -- "$1" "$found"
    if [ -d "$source/corpus/$1" ]; then
        set -- "$@" "$source/corpus/$1"
    fi
    if [ -f "$source/$1.dict" ]; then
        set -- "$@" -dict="$source/$1.dict"
    fi
    name=$1
    shift
    # The device's rings are big for a sanitizer's quarantine: without a limit most of the time goes
    # into fresh pages.
    UBSAN_OPTIONS=print_stacktrace=1 ASAN_OPTIONS=quarantine_size_mb=16 \
        "$here/fixed.sh" "$tree/fuzz/$name" -max_total_time="$seconds" -timeout=60 \
        -seed="$seed" -rss_limit_mb=2048 -print_final_stats=1 -verbosity=1 \
        -artifact_prefix="$tree/artifacts/$name-" "$@"
}

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
if [ $# -eq 1 ]; then
    echo "fuzz.sh: $1 for $seconds s, seed $seed"
    run "$1"
    exit
fi

mkdir -p "$tree/logs"
# shellcheck disable=SC2016 # the inner shell's arguments
printf '%s\n' "$@" | xargs -P 2 -I NAME sh -c '
    log=$2/logs/$4.log
    if "$1" "$2" "$3" "$4" >"$log" 2>&1; then
        echo "$4: $(grep "DONE" "$log" | tail -n 1)"
    else
        tail -n 60 "$log"
        echo "fuzz.sh: $4 failed; see $log and $2/artifacts" >&2
        exit 1
    fi' sh "$0" "$tree" "$seconds" NAME
