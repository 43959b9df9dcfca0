#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""core_cost.py [CORE_COST [ROW ...]]: instructions per operation in the core by callgrind, requester
and responder together without a port: one queue pair against thousands of the same depth each, and
one unit against two. The same on every run and machine. Each figure is the difference of two runs
of which one makes twice the rounds: what happens once does not count. With --json one object."""
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

# What is compared: arguments of core_cost (operation, size, rounds, queue pairs, depth, units).
ROWS = {
    "one": ("one queue pair, depth 128", ("write", 64, 64, 1, 128, 1), None, None),
    "qps4096": ("4,096 queue pairs, depth 128 each", ("write", 64, 1, 4096, 128, 1), "one", 1.10),
    "one16": ("one queue pair, depth 16", ("write", 64, 256, 1, 16, 1), None, None),
    "qps4096-16": ("4,096 queue pairs, depth 16 each", ("write", 64, 1, 4096, 16, 1), "one16", 1.10),
    "one1": ("one queue pair, depth 1", ("write", 64, 1024, 1, 1, 1), None, None),
    "qps4096-1": ("4,096 queue pairs, depth 1 each", ("write", 64, 1, 4096, 1, 1), "one1", 1.10),
    "units1": ("16 queue pairs, one unit", ("write", 64, 8, 16, 128, 1), None, None),
    "units2": ("16 queue pairs, two units", ("write", 64, 8, 16, 128, 2), "units1", 1.05),
}


def collected(program, arguments):
    """Instructions inside vb_pu_poll, on both sides."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "callgrind.out")
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--toggle-collect=vb_pu_poll",
             "--callgrind-out-file=" + out, program, *map(str, arguments)],
            capture_output=True, text=True, check=False)
    found = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
    if done.returncode or not found:
        sys.exit("core_cost.py: %s failed:\n%s" % (program, done.stderr))
    return int(found.group(1))


def cost(program, arguments):
    op, size, rounds, qps, depth, units = arguments
    twice = collected(program, (op, size, 2 * rounds, qps, depth, units))
    once = collected(program, arguments)
    return (twice - once) / (rounds * qps * depth)


def main():
    words = [w for w in sys.argv[1:] if w != "--json"]
    program = words[0] if words else os.path.join(HERE, "../build/bench/core_cost")
    wanted = words[1:] or list(ROWS)
    for name in wanted:
        if name not in ROWS:
            sys.exit("core_cost.py: there is no row '%s'; there are %s" % (name, ", ".join(ROWS)))
    costs = {}
    if "--json" not in sys.argv:
        print("| WRITE 64 B | instructions | against | ratio | limit |\n|---|---|---|---|---|")
    for name in wanted:
        text, arguments, base, limit = ROWS[name]
        for each in (base, name):
            if each and each not in costs:
                costs[each] = cost(program, ROWS[each][1])
        if "--json" not in sys.argv:
            ratio = costs[name] / costs[base] if base else 0
            print("| %s | %.0f | %s | %s | %s |" % (
                text, costs[name], ROWS[base][0] if base else "",
                "%.3f" % ratio if base else "", "%.2f" % limit if base else ""), flush=True)
    if "--json" in sys.argv:
        print(json.dumps({"instructions": costs,
                          "ratios": {n: costs[n] / costs[ROWS[n][2]] for n in wanted if ROWS[n][2]}}))


if __name__ == "__main__":
    main()
