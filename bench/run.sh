#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh [ROUNDS [SECONDS]]: the figures that must hold, side by side with what a user would take
# instead, in turn and repeated (5 rounds of 3 s each). Raw outputs stay in build/bench; the table
# goes to standard output and build/bench/table.md.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
rounds=${1:-5}
seconds=${2:-3}
verbena=${VERBENA:-$here/../build/verbena}
out=${BENCH_OUT:-$here/../build/bench}
port=${BENCH_PORT:-18600}
server=

# iperf3 takes whole seconds only, and 0 as for ever.
case $rounds$seconds in
*[!0-9]*)
    echo "run.sh: rounds and seconds are whole numbers, for example: run.sh 5 3" >&2
    exit 2
    ;;
esac
if [ "$rounds" -lt 1 ] || [ "$seconds" -lt 1 ]; then
    echo "run.sh: at least one round of one second" >&2
    exit 2
fi
if ! command -v iperf3 >/dev/null; then
    echo "run.sh: iperf3 is missing; 'make bench' installs it" >&2
    exit 1
fi

leave()
{
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
    fi
}
trap leave EXIT
trap 'exit 130' INT TERM

# The first two cores this process may use, as verbena pins itself.
cores=$(taskset -cp $$ | sed 's/.*: //' | awk -F, '{
    for (i = 1; i <= NF; i++) {
        split($i, r, "-")
        for (c = r[1]; c <= (r[2] == "" ? r[1] : r[2]); c++)
            printf "%d ", c
    }
}')
# shellcheck disable=SC2086 # a list of numbers
set -- $cores
first=$1
second=${2:-$1}

mkdir -p "$out"
rm -f "$out"/*.json "$out"/machine.txt
{
    lscpu | sed -n 's/^Model name: */cpu: /p'
    echo "cores: $(nproc) (client $first, server $second)"
    echo "kernel: $(uname -sr)"
    echo "verbena: $("$verbena" --version)"
    echo "iperf3: $(iperf3 --version | head -n 1)"
    echo "load before: $(cut -d ' ' -f 1-3 /proc/loadavg)"
} >"$out/machine.txt"

# TCP on loopback, both ends pinned like verbena's. The server listens before the client is asked to
# connect, and neither can outlive its time.
tcp()
{
    timeout $((seconds + 20)) iperf3 -s -1 -p "$port" -A "$second" >/dev/null 2>&1 &
    server=$!
    tries=100
    until ss -Htln "sport = :$port" | grep -q .; do
        tries=$((tries - 1))
        if [ "$tries" -eq 0 ]; then
            echo "run.sh: iperf3 does not listen on port $port; BENCH_PORT names another" >&2
            exit 1
        fi
        sleep 0.05
    done
    timeout $((seconds + 20)) iperf3 -c 127.0.0.1 -p "$port" -A "$first,$second" -t "$seconds" \
        -J >"$1"
    wait "$server" || true
    server=
}

round=1
while [ "$round" -le "$rounds" ]; do
    echo "run.sh: round $round of $rounds" >&2
    "$verbena" perf read --size 64 --seconds "$seconds" --json >"$out/read64-$round.json"
    "$verbena" perf write --size 64 --depth 128 --seconds "$seconds" --json \
        >"$out/write64-$round.json"
    "$verbena" perf write --size 64K --seconds "$seconds" --json >"$out/write64K-$round.json"
    tcp "$out/iperf3-$round.json"
    round=$((round + 1))
done

"$here/table.py" "$out" | tee "$out/table.md"
