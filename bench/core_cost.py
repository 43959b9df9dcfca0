#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""core_cost.py [CORE_COST [ROW ...]]: instructions per operation by callgrind, requester and
responder together without a port: one queue pair against thousands of the same depth each, one unit
against two, and kinds of operations. The same on every run and machine. Each figure is the
difference of two runs of which one makes twice the rounds: what happens once does not count.
Prints one JSON object: what the core takes (vb_pu_poll on both sides), and all of it with posting
and polling by the driver."""
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

# Arguments of core_cost: operation, size, rounds, queue pairs, depth of each, units.
ROWS = {
    "write64": ("write", 64, 64, 1, 128, 1),
    "write4K": ("write", 4096, 64, 1, 128, 1),
    "read64": ("read", 64, 64, 1, 128, 1),
    "qps4096": ("write", 64, 1, 4096, 128, 1),
    "one16": ("write", 64, 256, 1, 16, 1),
    "qps4096-16": ("write", 64, 1, 4096, 16, 1),
    "one1": ("write", 64, 1024, 1, 1, 1),
    "qps4096-1": ("write", 64, 1, 4096, 1, 1),
    "units1": ("write", 64, 8, 16, 128, 1),
    "units2": ("write", 64, 8, 16, 128, 2),
}


def collected(program, arguments, function):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "callgrind.out")
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--toggle-collect=" + function,
             "--callgrind-out-file=" + out, program, *map(str, arguments)],
            capture_output=True, text=True, check=False)
    found = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
    if done.returncode or not found:
        sys.exit("core_cost.py: %s failed:\n%s" % (program, done.stderr))
    return int(found.group(1))


def cost(program, arguments, function):
    op, size, rounds, qps, depth, units = arguments
    twice = collected(program, (op, size, 2 * rounds, qps, depth, units), function)
    once = collected(program, arguments, function)
    return round((twice - once) / (rounds * qps * depth), 1)


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../build/bench/core_cost")
    wanted = sys.argv[2:] or list(ROWS)
    for name in wanted:
        if name not in ROWS:
            sys.exit("core_cost.py: there is no row '%s'; there are %s" % (name, ", ".join(ROWS)))
    single = [name for name in wanted if name in ("write64", "write4K", "read64")]
    print(json.dumps({"core": {n: cost(program, ROWS[n], "vb_pu_poll") for n in wanted},
                      "driver": {n: cost(program, ROWS[n], "exchange") for n in single}}))


if __name__ == "__main__":
    main()
