#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""table.py DIR: makes the table of bench/run.sh from the raw outputs in DIR."""

import json
import statistics
import sys
from pathlib import Path


def rounds(folder, name):
    """The outputs of one command, in the order of the rounds."""
    paths = sorted(folder.glob(f"{name}-*.json"), key=lambda p: int(p.stem.rsplit("-", 1)[1]))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def line(figure, values, unit, target="", met=None):
    """One row: the median, and from least to most."""
    middle = statistics.median(values)
    mark = "" if met is None else ("yes" if met(middle) else "no")
    spread = f"{min(values):.3g} to {max(values):.3g}"
    return f"| {figure} | {middle:.3g} {unit} | {spread} | {target} | {mark} |"


def main():
    if len(sys.argv) != 2:
        print("usage: table.py DIR", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    read, write = rounds(folder, "read64"), rounds(folder, "write64")
    bulk = [row["bytes_per_s"] * 8e-9 for row in rounds(folder, "write64K")]
    tcp = [out["end"]["sum_received"]["bits_per_second"] * 1e-9 for out in rounds(folder, "iperf3")]
    if not read or not len(read) == len(write) == len(bulk) == len(tcp):
        print(f"table.py: the rounds in {folder} are not complete", file=sys.stderr)
        return 1
    # Ratios are of figures of the same round, so that a slow round is slow on both sides.
    print("\n".join((
        f"| {len(read)} rounds | median | spread | target | met |",
        "|---|---|---|---|---|",
        line("READ 64 B, p50", [r["p50_ns"] / 1e3 for r in read], "us"),
        line("raw UDP echo 64 B, p50", [r["raw_p50_ns"] / 1e3 for r in read], "us"),
        line("READ 64 B / raw echo", [r["p50_ns"] / r["raw_p50_ns"] for r in read], "", "<= 1.15",
             lambda v: v <= 1.15),
        line("READ 64 B / raw echo, client connected",
             [r["p50_ns"] / r["raw_connected_p50_ns"] for r in read], ""),
        line("WRITE 64 B, depth 128", [r["ops_per_s"] / 1e6 for r in write], "M/s", ">= 3",
             lambda v: v >= 3),
        line("WRITE 64 KB", bulk, "Gb/s"),
        line("iperf3 TCP", tcp, "Gb/s"),
        line("WRITE 64 KB / iperf3 TCP", [b / t for b, t in zip(bulk, tcp)], "", ">= 1.2",
             lambda v: v >= 1.2))))
    print("\n" + (folder / "machine.txt").read_text(encoding="utf-8").strip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
