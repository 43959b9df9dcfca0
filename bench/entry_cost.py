#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""entry_cost.py [BENCH [ROW ...]]: instructions of one executed local entry by callgrind: by kind,
as a ring of equal ones (entry_cost), and on average over all entries of loops that our offloads
execute to answer a request (offload_cost): all that the engine of loops does, waiting, opening and
completing included. The same on every run and machine. BENCH: the directory of the programs. Prints
one JSON object: for each row instructions an entry, and of offloads the entries of a request."""
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = ("nop", "wait", "send_en", "read8", "read_bytes", "write8", "cas", "fadd", "add", "signaled")
OFFLOADS = ("hash_get", "hash_get_seq", "hash_get_par", "list_walk", "list_loop")


def cost(program, row, function):
    """Instructions inside the function, for each entry that the program says it executed."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--toggle-collect=" + function,
             "--callgrind-out-file=" + os.path.join(folder, "out"), program, row],
            capture_output=True, text=True, check=False)
    instructions = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
    entries = re.search(r": (\d+) entries(?:.* each of (\d+) requests)?", done.stdout)
    if done.returncode or not instructions or not entries:
        sys.exit("entry_cost.py: %s %s failed:\n%s" % (program, row, done.stderr))
    count = int(entries.group(1))
    found = {"instructions": round(int(instructions.group(1)) / count, 1)}
    if entries.group(2):
        found["entries"] = round(count / int(entries.group(2)), 1)
    return found


def main():
    bench = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../build/bench")
    costs = {}
    for row in sys.argv[2:] or KINDS + OFFLOADS:
        if row in KINDS:
            costs[row] = cost(os.path.join(bench, "entry_cost"), row, "exchange")
        elif row in OFFLOADS:
            costs[row] = cost(os.path.join(bench, "offload_cost"), row, "vb_loop_run")
        else:
            sys.exit("entry_cost.py: there is no row '%s'; there are %s"
                     % (row, ", ".join(KINDS + OFFLOADS)))
    print(json.dumps(costs))


if __name__ == "__main__":
    main()
