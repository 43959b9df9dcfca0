#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh [--chain|--cm] [NAME…]: plants each bug of this directory into a copy of the sources and expects
# the simulator to find it within SEEDS (200) seeds. With --chain it plants those of chain/, which
# the unit tests of chain programs have to find, random programs (FLOW_PROGRAMS, 500) among them, or
# the simulator's worlds of chain programs (CHAIN_SEEDS, 500): some need a network with faults. With
# --cm it plants those of cm/, for the worlds of communication managers.
# Fails if one survives or no longer applies.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
seeds=${SEEDS:-200}
what=sim
only=
targets=verbena
if [ "${1:-}" = --chain ]; then
    what=chain
    programs="test_cross test_loop test_local test_cross_wire test_hash_get test_flow"
    targets="$programs verbena"
    here=$here/chain
    shift
elif [ "${1:-}" = --cm ]; then
    only=--cm
    here=$here/cm
    shift
fi
copy=$(mktemp -d "${TMPDIR:-/tmp}/verbena-mutants.XXXXXX")
trap 'rm -rf "$copy"' EXIT INT TERM

cp -r "$root/CMakeLists.txt" "$root/cmake" "$root/include" "$root/src" "$root/sim" "$copy/"
if [ $what = chain ]; then
    cp -r "$root/tests" "$root/scripts" "$copy/"
fi
cd "$copy"

build() {
    # shellcheck disable=SC2086 # several targets
    cmake --build out --target $targets >build.log 2>&1 || { cat build.log; return 1; }
}

# Prints the violation's seed and text, nothing if none was found.
hunt_seeds() {
    ./out/verbena sim --seeds "$@" >found.txt 2>&1 || true
    sed -n '/VIOLATION/{s/^seed \([0-9]*\):.*/\1/p;n;s/^ *//p;}' found.txt | paste -s -d ' '
}

# Prints the program with the first unit test that fails, that test and why; if none does, what the
# simulator finds.
hunt_chain() {
    for program in $programs; do
        FLOW_PROGRAMS=${FLOW_PROGRAMS:-500} timeout 120 "out/tests/$program" >found.txt 2>&1 &&
            continue
        failed_test=$(sed -n 's/^\[  FAILED  \] \(test_[a-z0-9_]*\)$/\1/p' found.txt | head -1)
        reason=$(sed -n 's/^\[  ERROR   \] --- \(\[.*error: \)*//p' found.txt | head -1)
        echo "${program#test_} ${failed_test:-it ends by a signal}: $reason"
        return
    done
    violation=$(hunt_seeds "${CHAIN_SEEDS:-500}" --chains only)
    if [ -n "$violation" ]; then echo "sim seed $violation"; fi
}

hunt() {
    # shellcheck disable=SC2086 # none or one
    if [ $what = sim ]; then hunt_seeds "$seeds" $only; else hunt_chain; fi
}

tests=$([ $what = chain ] && echo ON || echo OFF)
cmake -G Ninja -S . -B out -DVERBENA_TESTS="$tests" >build.log 2>&1 || { cat build.log; exit 1; }
build
hunted=$(hunt)
if [ -n "$hunted" ] || { [ $what = sim ] && ! ./out/verbena sim --seeds "$seeds" $only >found.txt 2>&1; }; then
    echo "run.sh: the sources fail without any mutant:"
    cat found.txt
    exit 1
fi

failed=0
count=0
printf '%-34s %10s  %s\n' mutant "$([ $what = sim ] && echo seed || echo test)" 'how it was caught'
for patch in "$here"/*.patch; do
    name=$(basename "$patch" .patch)
    if [ $# -gt 0 ]; then
        case " $* " in *" $name "*) ;; *) continue ;; esac
    fi
    count=$((count + 1))
    if ! patch -p1 -s -F0 <"$patch" >patch.log 2>&1; then
        printf '%-34s %10s  %s\n' "$name" - 'DOES NOT APPLY'
        failed=1
        rm -rf src && cp -r "$root/src" src
        continue
    fi
    build
    found=$(hunt)
    if [ -n "$found" ]; then
        printf '%-34s %10s  %s\n' "$name" "${found%% *}" "$(echo "${found#* }" | cut -c1-110)"
    else
        printf '%-34s %10s  %s\n' "$name" - 'SURVIVED'
        failed=1
    fi
    patch -p1 -s -R <"$patch"
done
[ "$failed" -eq 0 ] && echo "all $count mutants were caught"
exit "$failed"
