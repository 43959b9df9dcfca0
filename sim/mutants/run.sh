#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh [NAME…]: plants each bug of this directory into a copy of the sources and expects the
# simulator to find it within SEEDS (200) seeds. Fails if one survives or no longer applies.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
seeds=${SEEDS:-200}
copy=$(mktemp -d "${TMPDIR:-/tmp}/verbena-mutants.XXXXXX")
trap 'rm -rf "$copy"' EXIT INT TERM

cp -r "$root/CMakeLists.txt" "$root/cmake" "$root/include" "$root/src" "$root/sim" "$copy/"
cd "$copy"

build() {
    cmake --build out --target verbena >build.log 2>&1 || { cat build.log; return 1; }
}

# Prints the violation's seed and text, nothing if none was found.
hunt() {
    ./out/verbena sim --seeds "$seeds" >found.txt 2>&1 || true
    sed -n '/VIOLATION/{s/^seed \([0-9]*\):.*/\1/p;n;s/^ *//p;}' found.txt | paste -s -d ' '
}

cmake -G Ninja -S . -B out >build.log 2>&1 || { cat build.log; exit 1; }
build
if ! ./out/verbena sim --seeds "$seeds" >found.txt 2>&1; then
    echo "run.sh: the sources fail without any mutant:"
    cat found.txt
    exit 1
fi

failed=0
count=0
printf '%-34s %6s  %s\n' mutant seed 'how it was caught'
for patch in "$here"/*.patch; do
    name=$(basename "$patch" .patch)
    if [ $# -gt 0 ]; then
        case " $* " in *" $name "*) ;; *) continue ;; esac
    fi
    count=$((count + 1))
    if ! patch -p1 -s -F0 <"$patch" >patch.log 2>&1; then
        printf '%-34s %6s  %s\n' "$name" - 'DOES NOT APPLY'
        failed=1
        rm -rf src && cp -r "$root/src" src
        continue
    fi
    build
    found=$(hunt)
    if [ -n "$found" ]; then
        printf '%-34s %6s  %s\n' "$name" "${found%% *}" "$(echo "${found#* }" | cut -c1-110)"
    else
        printf '%-34s %6s  %s\n' "$name" - 'SURVIVED'
        failed=1
    fi
    patch -p1 -s -R <"$patch"
done
[ "$failed" -eq 0 ] && echo "all $count mutants were caught"
exit "$failed"
