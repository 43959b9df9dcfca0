#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""table.py DIR: makes the table of bench/run.sh from the raw outputs in DIR, as far as they go."""

import json
import statistics
import sys
from pathlib import Path

TARGETS = ("spin", "sleep", "compute")


def texts(folder, name):
    """The outputs of one command, in the order of the rounds."""
    paths = [p for p in folder.glob(f"{name}-*.json") if p.stem[len(name) + 1:].isdigit()]
    paths.sort(key=lambda p: int(p.stem[len(name) + 1:]))
    return [path.read_text(encoding="utf-8") for path in paths]


def rounds(folder, name):
    return [json.loads(text) for text in texts(folder, name)]


def ways(folder, name):
    """Of each round the rows of a get by the way it went."""
    return [{row["via"]: row for row in map(json.loads, text.splitlines())}
            for text in texts(folder, name)]


def line(figure, values, unit, least=None, most=None):
    """One row: the median, from least to most, and whether the median keeps the limit."""
    middle = statistics.median(values)
    target, mark = "", ""
    if least is not None:
        target, mark = f">= {least:g}", "yes" if middle >= least else "no"
    if most is not None:
        target, mark = f"<= {most:g}", "yes" if middle <= most else "no"
    spread = f"{min(values):.3g} to {max(values):.3g}"
    return f"| {figure} | {middle:.3g} {unit} | {spread} | {target} | {mark} |"


def microseconds(rows, key="p50_ns"):
    return [row[key] / 1e3 for row in rows]


def ratios(rows, below):
    """Of figures of the same output, so that a slow round is slow on both sides."""
    return [row["p50_ns"] / row[below] for row in rows]


def rates(rows):
    return [row["ops_per_s"] / 1e6 for row in rows]


def gigabits(rows):
    return [row["bytes_per_s"] * 8e-9 for row in rows]


def udp_lines(folder):
    if read := rounds(folder, "read64"):
        yield line("udp: READ 64 B, p50", microseconds(read), "us")
        yield line("raw UDP echo 64 B, p50", microseconds(read, "raw_p50_ns"), "us")
        yield line("udp: READ 64 B / raw echo", ratios(read, "raw_p50_ns"), "", most=1.15)
        yield line("udp: READ 64 B / raw echo, client connected",
                   ratios(read, "raw_connected_p50_ns"), "")
    if write := rounds(folder, "write64"):
        yield line("udp: WRITE 64 B, depth 128", rates(write), "M/s", least=4)
    if send := rounds(folder, "send64"):
        yield line("udp: SEND 64 B, depth 128", rates(send), "M/s", least=3)
    bulk, outputs = gigabits(rounds(folder, "write64K")), rounds(folder, "iperf3")
    tcp = [out["end"]["sum_received"]["bits_per_second"] * 1e-9 for out in outputs]
    if bulk:
        yield line("udp: WRITE 64 KB", bulk, "Gb/s")
    if bulk and len(bulk) == len(tcp):
        yield line("iperf3 TCP", tcp, "Gb/s")
        yield line("udp: WRITE 64 KB / iperf3 TCP, same round",
                   [b / t for b, t in zip(bulk, tcp)], "", least=1.5)


def shm_lines(folder):
    if read := rounds(folder, "shm-read64"):
        yield line("shm: READ 64 B, p50", microseconds(read), "us")
        yield line("cache line round trip, p50", microseconds(read, "raw_p50_ns"), "us")
        yield line("shm: READ 64 B / cache line", ratios(read, "raw_p50_ns"), "", most=4)
    if write := rounds(folder, "shm-write64"):
        yield line("shm: WRITE 64 B, depth 128", rates(write), "M/s", least=8)
    if bulk := rounds(folder, "shm-write64K"):
        copy = [row["copy_gbps"] for row in bulk]
        yield line("shm: WRITE 64 KB", gigabits(bulk), "Gb/s")
        yield line("pipelined copy 64 KB", copy, "Gb/s")
        yield line("shm: WRITE 64 KB / copy, same run",
                   [b / c for b, c in zip(gigabits(bulk), copy)], "", least=0.7)


def other_lines(folder):
    for prefix, port in (("", "udp"), ("shm-", "shm")):
        for target in TARGETS:
            if rows := rounds(folder, f"{prefix}target-{target}"):
                yield line(f"{port}: READ 64 B, p50, target {target}s", microseconds(rows), "us")
    for port in ("udp", "shm"):
        if idle := rounds(folder, f"idle-{port}"):
            # The worse of the two processes.
            cpu_ms = [row[key] / 1e6 for row in idle for key in ("cpu_ns", "server_cpu_ns")]
            yield line(f"{port}: idle {idle[0]['idle_s']:.0f} s, CPU time", [max(cpu_ms)], "ms",
                       most=10)


def get_lines(folder):
    """Gets: the chain against one READ, and what else one would do against the chain."""
    for prefix, port, most, least in (("", "udp", 1.15, 1.6), ("shm-", "shm", 2.5, None)):
        for size in ("64", "4K", "64K"):
            got = ways(folder, f"{prefix}get{size}")
            if not got:
                continue
            name = f"{port}: get {size}"
            for via, text in (("read", "one READ"), ("chain", "chain")):
                yield line(f"{name}, {text}, p50", [g[via]["p50_ns"] / 1e3 for g in got], "us")
            yield line(f"{name}, chain / one READ", [g["chain"]["read_ratio"] for g in got], "",
                       most=most)
            for via, limit in (("farm", least), ("rpc", None), ("rpc-blocking", None)):
                yield line(f"{name}, {via} / chain",
                           [g[via]["p50_ns"] / g["chain"]["p50_ns"] for g in got], "", least=limit)
            yield line(f"{name}, chain, depth {got[0]['chain']['depth']}",
                       rates([g["chain"] for g in got]), "M/s")


def against_chain(name, got, *others):
    """The chain's latency, and what else one would do against it."""
    yield line(f"{name}, chain, p50", [g["chain"]["p50_ns"] / 1e3 for g in got], "us")
    yield line(f"{name}, chain / one READ", [g["chain"]["read_ratio"] for g in got], "")
    for via in others:
        yield line(f"{name}, {via} / chain",
                   [g[via]["p50_ns"] / g["chain"]["p50_ns"] for g in got], "")


def walk_lines(folder):
    """Keys in their second bucket, and lists with and without a break."""
    for prefix, port in (("", "udp"), ("shm-", "shm")):
        for how in ("seq", "par"):
            if got := ways(folder, f"{prefix}get-{how}"):
                yield from against_chain(f"{port}: get 64, collision {how}", got, "farm", "rpc")
        for nodes in range(1, 9):
            for tail, text in (("", ""), ("-break", ", break")):
                if got := ways(folder, f"{prefix}list{nodes}{tail}"):
                    yield from against_chain(f"{port}: list {nodes}{text}", got, "chase", "rpc")


def cost_lines(folder):
    """Instructions of the core, counted by callgrind."""
    if cost := rounds(folder, "cost-qps4096"):
        counts = cost[0]["instructions"]
        for depth, one, many in ((128, "one", "qps4096"), (16, "one16", "qps4096-16")):
            yield line(f"core: WRITE 64 B, depth {depth}", [counts[one]], "instructions")
            yield line("core: 4,096 queue pairs of that depth / one", [counts[many] / counts[one]],
                       "", most=1.1)
    if cost := rounds(folder, "cost-units"):
        yield line("core: two units / one, instructions", [cost[0]["ratios"]["units2"]], "",
                   most=1.05)


def scale_lines(folder):
    one, many = rates(rounds(folder, "qps1")), rates(rounds(folder, "qps4096"))
    if one and len(one) == len(many):
        yield line("udp: WRITE 64 B, depth 16", one, "M/s")
        yield line("udp: WRITE 64 B, 4,096 queue pairs, depth 16 each", many, "M/s")
    for prefix, port in (("", "udp"), ("shm-", "shm")):
        few, all_open = rounds(folder, f"{prefix}open1"), rounds(folder, f"{prefix}open16384")
        if few and len(few) == len(all_open):
            yield line(f"{port}: READ 64 B, p50, 16,384 open and one busy / one open",
                       [a["p50_ns"] / b["p50_ns"] for a, b in zip(all_open, few)], "", most=1.1)
            yield line(f"{port}: READ 64 B, time of one at depth, likewise",
                       [b["ops_per_s"] / a["ops_per_s"] for a, b in zip(all_open, few)], "",
                       most=1.1)
    if incast := rounds(folder, "incast-sim"):
        yield line("simulated: 8 senders / one, goodput", [r["ratio"] for r in incast], "",
                   least=0.7)
    if incast := rounds(folder, "incast"):
        yield line("udp: 8 senders, goodput", [r["all_gbps"] for r in incast], "Gb/s")
        yield line("udp: 8 senders / one, goodput", [r["ratio"] for r in incast], "")
        yield line("udp: 8 senders, queue pairs that gave up",
                   [r["retries_exceeded"] for r in incast], "", most=0)
    yield from cost_lines(folder)


def main():
    if len(sys.argv) != 2:
        print("usage: table.py DIR", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    lines = [*udp_lines(folder), *shm_lines(folder), *other_lines(folder),
             *scale_lines(folder), *get_lines(folder), *walk_lines(folder)]
    if not lines:
        print(f"table.py: there are no rounds in {folder}", file=sys.stderr)
        return 1
    count = max(int(path.stem.rsplit("-", 1)[1]) for path in folder.glob("*.json"))
    print(f"| rounds: {count} | median | spread | target | met |")
    print("|---|---|---|---|---|")
    print("\n".join(lines))
    print("\n" + (folder / "machine.txt").read_text(encoding="utf-8").strip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
