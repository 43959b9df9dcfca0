#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh [ROUNDS [SECONDS [ROW ...]]]: the figures that must hold, side by side with what lies below
# or a user would take instead, in turn and repeated (5 rounds of 3 s each). Raw outputs stay in
# build/bench; the table goes to standard output and build/bench/table.md. All rows take minutes;
# name some to have only these, here or in BENCH_ROWS:
#   read64 write64 send64 write64K              over udp (the last beside iperf3)
#   shm-read64 shm-write64 shm-write64K         over shm
#   targets                                     READ from programs that spin, sleep and compute
#   idle                                        CPU time of 10 s without anything to do
#   qps4096 qps16384                            4,096 queue pairs busy; 16,384 open and one busy
#   incast                                      8 senders and one receiver, simulated and for real
#   get                                         values by keys: chain, FaRM's way, RPC and one READ
#   collision                                   likewise, keys in their second bucket: seq and par
#   list                                        values from lists of 8: chain, READs, RPC
#   units                                       one unit and two; needs valgrind, as qps4096 does
set -eu

here=$(cd "$(dirname "$0")" && pwd)
rounds=${1:-5}
seconds=${2:-3}
if [ $# -gt 2 ]; then
    shift 2
    rows=$*
else
    rows=${BENCH_ROWS:-read64 write64 send64 write64K shm-read64 shm-write64 shm-write64K targets idle \
        qps4096 qps16384 incast get collision list units}
fi
verbena=${VERBENA:-$here/../build/verbena}
programs=${BENCH_PROGRAMS:-$here/../build/bench}
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
for row in $rows; do
    case $row in
    read64 | write64 | send64 | write64K | shm-read64 | shm-write64 | shm-write64K | targets | idle) ;;
    qps4096 | qps16384 | incast | get | collision | list | units) ;;
    *)
        echo "run.sh: there is no row '$row'; the head of this file lists them" >&2
        exit 2
        ;;
    esac
done

wants()
{
    case " $rows " in
    *" $1 "*) return 0 ;;
    esac
    return 1
}

if wants write64K && ! command -v iperf3 >/dev/null; then
    echo "run.sh: iperf3 is missing; 'make bench' installs it" >&2
    exit 1
fi

if { wants qps4096 || wants units; } && ! command -v valgrind >/dev/null; then
    echo "run.sh: valgrind is missing, which counts instructions for qps4096 and units" >&2
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
    if wants write64K; then
        echo "iperf3: $(iperf3 --version | head -n 1)"
    fi
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

# perf NAME OPERATION [options]: one output of this round.
perf()
{
    name=$1
    shift
    "$verbena" perf "$@" --seconds "$seconds" --json >"$out/$name-$round.json"
}

run_udp()
{
    if wants read64; then
        perf read64 read --size 64
    fi
    if wants write64; then
        perf write64 write --size 64 --depth 128
    fi
    if wants send64; then
        perf send64 send --size 64 --depth 128
    fi
    if wants write64K; then
        perf write64K write --size 64K
        tcp "$out/iperf3-$round.json"
    fi
}

run_shm()
{
    if wants shm-read64; then
        perf shm-read64 read --port shm --size 64
    fi
    if wants shm-write64; then
        perf shm-write64 write --port shm --size 64 --depth 128
    fi
    if wants shm-write64K; then
        perf shm-write64K write --port shm --size 64K
    fi
}

# Many queue pairs beside one, in turn; the depth is that of each.
run_scale()
{
    if wants qps4096; then
        perf qps1 write --size 64 --depth 16
        perf qps4096 write --size 64 --depth 16 --qps 4096
    fi
    if wants qps16384; then
        perf open1 read --size 64
        perf open16384 read --size 64 --qps 16384 --active 1
        perf shm-open1 read --port shm --size 64
        perf shm-open16384 read --port shm --size 64 --qps 16384 --active 1
    fi
    if wants incast; then
        "$programs/incast" 8 "$seconds" >"$out/incast-$round.json"
    fi
}

# All ways in turn within each output, which has a line for each.
run_get()
{
    for size in 64 4K 64K; do
        perf "get$size" get --via all --size "$size"
        perf "shm-get$size" get --port shm --via all --size "$size"
    done
}

run_collision()
{
    for how in seq par; do
        perf "get-$how" get --via all --collision "$how"
        perf "shm-get-$how" get --port shm --via all --collision "$how"
    done
}

# The chain that stops at the key has a run of its own, with everything else once more.
run_list()
{
    for nodes in 1 2 3 4 5 6 7 8; do
        perf "list$nodes" get --via all --list "$nodes"
        perf "list$nodes-break" get --via all --list "$nodes" --break
        perf "shm-list$nodes" get --port shm --via all --list "$nodes"
        perf "shm-list$nodes-break" get --port shm --via all --list "$nodes" --break
    done
}

run_targets()
{
    for target in spin sleep compute; do
        perf "target-$target" read --size 64 --target "$target"
        perf "shm-target-$target" read --port shm --size 64 --target "$target"
    done
}

round=1
while [ "$round" -le "$rounds" ]; do
    echo "run.sh: round $round of $rounds" >&2
    run_udp
    run_shm
    run_scale
    if wants targets; then
        run_targets
    fi
    if wants get; then
        run_get
    fi
    if wants collision; then
        run_collision
    fi
    if wants list; then
        run_list
    fi
    round=$((round + 1))
done
# Once is enough: virtual time and instructions are the same each time.
if wants incast; then
    "$verbena" sim incast --ms 2000 --json >"$out/incast-sim-1.json"
fi
if wants qps4096; then
    echo "run.sh: counting instructions" >&2
    "$here/core_cost.py" "$programs/core_cost" qps4096 qps4096-16 --json >"$out/cost-qps4096-1.json"
fi
if wants units; then
    "$here/core_cost.py" "$programs/core_cost" units2 --json >"$out/cost-units-1.json"
fi
# Nothing happens that could vary.
if wants idle; then
    echo "run.sh: idle, 10 s each" >&2
    for port_name in udp shm; do
        "$verbena" perf idle --port "$port_name" --seconds 10 --json >"$out/idle-$port_name-1.json"
    done
fi

"$here/table.py" "$out" | tee "$out/table.md"
