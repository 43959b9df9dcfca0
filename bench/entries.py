# SPDX-License-Identifier: Apache-2.0
"""The tables of bench/tables.py: what each runs, round by round in turn with its yardstick, and how
its rows are made of what was printed."""
import statistics
from dataclasses import dataclass
from typing import Callable

from programs import Command, Pair, cm_listens, cmtime, iperf3, lines, perftest, ucx, ways

PERFORMANCE = "docs/performance.md"
REDN = "docs/figures/redn.md"
RUN = "verbena run --port udp --address 127.0.0.1 -- "
TARGETS = ("spin", "sleep", "compute")
SIZES = ("64", "4K", "64K")
PORTS = ("udp", "shm")
NODES = range(1, 9)


@dataclass
class Table:
    """`rows` makes lines of Markdown of the rounds, each a dictionary of outputs by label."""
    rows: Callable
    commands: dict
    rounds: int = 1
    count: int = 0      # for {count}
    trial: int = 0      # instead of it, in a trial
    file: str = PERFORMANCE
    said: str = ""      # instead of the list of commands
    timed: bool = True  # False: the same on every run


def perf(words, parse=None):
    return Command(f"verbena perf {words} --seconds {{seconds}} --json",
                   *([parse] if parse else []))


# ---- rows

HEAD = ["| figure | median | spread | goal | met |", "|---|---|---|---|---|"]


def digits(value):
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def judged(value, least=None, most=None):
    """The goal, and whether it is met."""
    if least is not None:
        return f"≥ {least:g}", "yes" if value >= least else "**no**"
    if most is not None:
        return f"≤ {most:g}", "yes" if value <= most else "**no**"
    return "", ""


def line(figure, values, unit="", least=None, most=None):
    """The median, from least to most, and whether the median meets the goal."""
    middle = statistics.median(values)
    goal, met = judged(middle, least, most)
    spread = f"{digits(min(values))} to {digits(max(values))}" if len(values) > 1 else ""
    return f"| {figure} | {digits(middle)} {unit} | {spread} | {goal} | {met} |".replace("  ", " ")


def each(rounds, label, value):
    return [value(one[label]) for one in rounds]


def us(out, key="p50_ns"):
    return out[key] / 1e3


def mps(out):
    return out["ops_per_s"] / 1e6


def gbps(out):
    return out["bytes_per_s"] * 8e-9


def median_cells(name, rows):
    return f"| {name} | " + " | ".join(digits(statistics.median(values)) for values in rows) + " |"


def spread_cells(name, rows):
    return f"| {name} | " + " | ".join(f"{digits(min(values))} to {digits(max(values))}"
                                       for values in rows) + " |"


# ---- over udp and shm

def udp_rows(rounds):
    read = [one["read"] for one in rounds]
    return HEAD + [
        line("READ 64 B, p50", [us(r) for r in read], "µs"),
        line("echo, unconnected, p50", [us(r, "raw_p50_ns") for r in read], "µs"),
        line("echo, client connected, p50", [us(r, "raw_connected_p50_ns") for r in read], "µs"),
        line("READ / echo, unconnected", [r["raw_ratio"] for r in read], most=1.15),
        line("READ / echo, client connected", [r["raw_connected_ratio"] for r in read]),
        line("WRITE 64 B, depth 128", each(rounds, "write", mps), "M/s", least=4),
        line("SEND 64 B, depth 128", each(rounds, "send", mps), "M/s", least=3),
        line("plain packets of 96 B one way, segmented", each(rounds, "raw", mps), "M/s"),
        line("WRITE 64 B / plain packets",
             [mps(r["write"]) / mps(r["raw"]) for r in rounds]),
    ]


def bandwidth_rows(rounds):
    out = ["| round | echo of 4 KB, µs | WRITE 64 KB, Gb/s | plain 4 KB packets one way, Gb/s | "
           "iperf3 TCP, Gb/s | WRITE / plain packets | WRITE / TCP (goal ≥ 1.5) |",
           "|---|---|---|---|---|---|---|"]
    rows = []
    for one in rounds:
        write, raw, tcp = gbps(one["write"]), gbps(one["raw"]), one["tcp"]["gbps"]
        rows.append((us(one["write"], "raw_p50_ns"), write, raw, tcp, write / raw, write / tcp))
    for number, row in enumerate(rows, 1):
        out.append(median_cells(number, [[value] for value in row]))
    out.append(median_cells("median", zip(*rows)))
    return out


def shm_rows(rounds):
    read, bulk = [one["read"] for one in rounds], [one["bulk"] for one in rounds]
    return HEAD + [
        line("READ 64 B, p50", [us(r) for r in read], "µs"),
        line("cache line round trip, p50", [us(r, "raw_p50_ns") for r in read], "µs"),
        line("READ / cache line", [r["raw_ratio"] for r in read], most=4),
        line("WRITE 64 B, depth 128", each(rounds, "write", mps), "M/s", least=8),
        line("WRITE 64 KB", [gbps(b) for b in bulk], "Gb/s"),
        line("pipelined copy of 64 KB", [b["copy_gbps"] for b in bulk], "Gb/s"),
        line("WRITE 64 KB / copy", [gbps(b) / b["copy_gbps"] for b in bulk], least=0.7),
    ]


def targets_rows(rounds):
    out = ["| READ 64 B, p50 in µs, the target's program | " + " | ".join(
        t + "s" for t in TARGETS) + " |", "|---|---|---|---|"]
    for port in PORTS:
        rows = [each(rounds, f"{port} {t}", us) for t in TARGETS]
        out += [median_cells(port, rows), spread_cells("spread", rows)]
    return out


def idle_rows(rounds):
    return HEAD + [
        line(f"{port}, CPU time of the worse process",
             [max(one[port]["cpu_ns"], one[port]["server_cpu_ns"]) / 1e6 for one in rounds], "ms",
             most=10)
        for port in PORTS]


def pairs_rows(rounds):
    out = HEAD + [
        line("udp: WRITE 64 B, one queue pair, depth 16", each(rounds, "one", mps), "M/s"),
        line("udp: WRITE 64 B, 4,096 busy queue pairs, depth 16", each(rounds, "many", mps), "M/s"),
    ]
    for port in PORTS:
        few, full = [r[f"{port} few"] for r in rounds], [r[f"{port} open"] for r in rounds]
        out.append(line(f"{port}: READ 64 B, p50: 16,384 open and one busy / one open",
                        [us(b) / us(a) for a, b in zip(few, full)], most=1.1))
        out.append(line(f"{port}: likewise, time of one at depth 128",
                        [mps(a) / mps(b) for a, b in zip(few, full)], most=1.1))
    return out


# ---- instructions

def core_rows(rounds):
    out = rounds[0]["core"]
    core, driver = out["core"], out["driver"]
    rows = ["| instructions of one operation | core, both sides | with the driver |", "|---|---|---|"]
    for name, key in (("WRITE 64 B (goal ≤ 1,000)", "write64"), ("WRITE 4 KB", "write4K"),
                      ("READ 64 B", "read64")):
        rows.append(f"| {name} | {core[key]:,.0f} | {driver[key]:,.0f} |")
    rows += ["", "| WRITE 64 B | instructions | / one | goal | met |", "|---|---|---|---|---|"]
    for name, key, base, most in (
            ("one queue pair, depth 128", "write64", None, None),
            ("4,096 queue pairs, depth 128 each", "qps4096", "write64", 1.1),
            ("one queue pair, depth 16", "one16", None, None),
            ("4,096 queue pairs, depth 16 each", "qps4096-16", "one16", 1.1),
            ("one queue pair, depth 1", "one1", None, None),
            ("4,096 queue pairs, depth 1 each", "qps4096-1", "one1", 1.1),
            ("16 queue pairs, one unit", "units1", None, None),
            ("16 queue pairs, two units", "units2", "units1", 1.05)):
        ratio = core[key] / core[base] if base else 0
        goal, met = judged(ratio, most=most)
        rows.append(f"| {name} | {core[key]:,.0f} | {f'{ratio:.3f}' if base else ''} | {goal} "
                    f"| {met} |")
    return rows


def entries_rows(rounds):
    out = rounds[0]["entries"]
    rows = ["| executed entries | instructions each | entries of a request | instructions of a "
            "request | goal for each | met |", "|---|---|---|---|---|---|"]
    for name, key in (("hash get, one bucket", "hash_get"),
                      ("hash get, two in turn", "hash_get_seq"),
                      ("hash get, two in parallel", "hash_get_par"),
                      ("list walk of 8 nodes, unrolled", "list_walk"),
                      ("list walk of 8 nodes, recycled", "list_loop")):
        one, count = out[key]["instructions"], out[key]["entries"]
        goal, met = judged(one, most=150)
        rows.append(f"| {name} | {one:.0f} | {count:.1f} | {one * count:,.0f} | {goal} | {met} |")
    for name, key in (("NOP", "nop"), ("WAIT that need not wait", "wait"), ("SEND_EN", "send_en"),
                      ("READ of 8 bytes", "read8"), ("WRITE of 8 bytes", "write8"), ("CAS", "cas"),
                      ("masked addition", "fadd"), ("NOP that completes", "signaled"),
                      ("READ into two segments", "read_bytes"),
                      ("addition of two records", "add")):
        rows.append(f"| {name} | {out[key]['instructions']:.0f} |  |  |  |  |")
    return rows


# ---- gets

GET_GOALS = {"udp": 1.15, "shm": 2.5}


def ratio_of(rounds, label, via):
    return [one[label][via]["p50_ns"] / one[label]["chain"]["p50_ns"] for one in rounds]


def gets_rows(rounds):
    labels = [f"{port} {size}" for port in PORTS for size in SIZES]
    out = ["| median of rounds | " + " | ".join(f"{label}B".replace("4B", "4 B").replace("KB", " KB")
                                               for label in labels) + " |",
           "|---" * (len(labels) + 1) + "|"]
    for via, name in (("read", "one READ, p50 µs"), ("chain", "chain, p50 µs")):
        out.append(median_cells(name, [each(rounds, label, lambda o: us(o[via])) for label in labels]))
    read = {label: each(rounds, label, lambda o: o["chain"]["read_ratio"]) for label in labels}
    out.append(median_cells("chain / one READ (goal ≤ 1.15 udp, ≤ 2.5 shm)", read.values()))
    out.append("| met | " + " | ".join(
        judged(statistics.median(values), most=GET_GOALS[label.split()[0]])[1]
        for label, values in read.items()) + " |")
    out.append(spread_cells("spread", read.values()))
    for via, goal in (("farm", " (goal ≥ 1.6 udp)"), ("rpc", ""), ("rpc-blocking", "")):
        out.append(median_cells(f"{via} / chain{goal}",
                                [ratio_of(rounds, label, via) for label in labels]))
    out.append(median_cells("chain, depth 8, M/s",
                            [each(rounds, label, lambda o: mps(o["chain"])) for label in labels]))
    return out


def collisions_rows(rounds):
    out = ["| key in its second bucket, median of rounds | udp | shm |", "|---|---|---|"]
    for how in ("seq", "par"):
        labels = [f"{port} {how}" for port in PORTS]
        chain = [each(rounds, label, lambda o: us(o["chain"])) for label in labels]
        out += [median_cells(f"{how}: chain, p50 µs", chain), spread_cells("spread", chain)]
        out.append(median_cells(f"{how}: chain / one READ",
                                [each(rounds, label, lambda o: o["chain"]["read_ratio"])
                                 for label in labels]))
        for via in ("farm", "rpc"):
            out.append(median_cells(f"{how}: {via} / chain",
                                    [ratio_of(rounds, label, via) for label in labels]))
    return out


def lists_rows(rounds):
    out = ["| key in the first N of 8, median of rounds | " + " | ".join(map(str, NODES)) + " |",
           "|---" * (len(NODES) + 1) + "|"]
    for port in PORTS:
        for tail, name in (("", ""), (" --break", ", break")):
            labels = [f"{port} {n}{tail}" for n in NODES]
            chain = [each(rounds, label, lambda o: us(o["chain"])) for label in labels]
            out += [median_cells(f"{port}{name}: chain, p50 µs", chain),
                    spread_cells("spread", chain)]
            for via in ("chase", "rpc"):
                out.append(median_cells(f"{port}{name}: {via} / chain",
                                        [ratio_of(rounds, label, via) for label in labels]))
    return out


def soak_rows(rounds):
    out = ["| gets, server's thread asleep | gets | M/s | wrong | server's thread, ns |",
           "|---|---|---|---|---|"]
    for port in PORTS:
        got = rounds[0][port]
        out.append(f"| {port} | {got['gets']:,} | {digits(got['gets_per_second'] / 1e6)} | "
                   f"{got['wrong']} | {got['server_thread_ns']} |")
    return out


# ---- unmodified programs

def verbs_rows(rounds):
    def against(figure, value, yardstick):
        return [value(r) / yardstick(r) for r in rounds] if figure else []

    def echo(r):
        return us(r["echo"], "raw_p50_ns")

    def connected(r):
        return us(r["echo"], "raw_connected_p50_ns")

    out = HEAD + [line("echo of 64 B, unconnected", [echo(r) for r in rounds], "µs"),
                  line("echo of 64 B, client connected", [connected(r) for r in rounds], "µs")]
    for name, value in (
            ("ib_send_lat 64 B, both ways", lambda r: 2 * r["send_lat"]["typical_us"]),
            ("ib_read_lat 64 B", lambda r: r["read_lat"]["typical_us"])):
        out.append(line(name, [value(r) for r in rounds], "µs"))
        out.append(line("/ echo, unconnected", against(name, value, echo), most=1.3))
        out.append(line("/ echo, client connected", against(name, value, connected)))
    return out + [
        line("ib_write_lat 64 B, one way", [r["write_lat"]["typical_us"] for r in rounds], "µs"),
        line("ib_write_bw 64 KB", [r["write_bw"]["gbps"] for r in rounds], "Gb/s"),
        line("/ iperf3 TCP", [r["write_bw"]["gbps"] / r["tcp"]["gbps"] for r in rounds], least=1.2),
        line("ib_send_bw 64 B", [r["send_bw"]["mps"] for r in rounds], "M/s"),
        line("/ UCX's tag_bw over TCP", [r["send_bw"]["mps"] / r["ucx"]["mps"] for r in rounds],
             least=10),
    ]


def connections_rows(rounds):
    return HEAD + [line(f"{step}, for one of 100 connections", each(rounds, "cmtime",
                                                                   lambda o: o[step]), "µs")
                   for step in ("resolve addr", "resolve route", "create qp", "connect",
                                "disconnect")]


# ---- the hull

def crash_rows(rounds):
    application, unrelated, summary = rounds[0]["crash"]

    def row(name, value, ratio=None):
        text = f"| {name} | {value(application)} | {value(unrelated)} |"
        return text + (f" {ratio:.2f} | ≤ 2 |" if ratio else "  |  |")

    def ms(key):
        return lambda out: f"{out[key] / 1e6:.2f} ms"

    ratios = summary["ratios"]
    return [f"| {application['rounds']:,} kills | application | unrelated process | ratio | goal |",
            "|---|---|---|---|---|",
            row("gets", lambda o: f"{o['gets']:,}"),
            row("failed, unanswered, wrong",
                lambda o: f"{o['failed']}, {o['unanswered']}, {o['wrong']}"),
            row("p50, p99", lambda o: f"{us(o):.1f}, {us(o, 'p99_ns'):.1f} µs"),
            row("p99.99", ms("p9999_ns"), ratios["p9999_ns"]),
            row("longest gap", ms("gap_ns"), ratios["gap_ns"]), "",
            "![answers over time](figures/hull-crash.svg)", "",
            "Answers over time, beside a NIC that lives in the application, as in Figure 16 of the "
            "RedN paper."]


def hull_rows(rounds):
    """hull_lat has rounds of its own."""
    out = rounds[0]["hull"]
    rows = HEAD[:]
    for name, key, unit, most in (
            ("cache line round trip", "line_ns", "ns", None),
            ("READ 64 B, NIC in the process", "inside_ns", "ns", None),
            ("READ 64 B, NIC in a hull", "attached_ns", "ns", None),
            ("cache line round trips that the hull adds", "lines", "", 2)):
        got = out[key]
        rows.append(line(name, [got["least"], got["median"], got["most"]], unit, most=most))
    return rows


def crowd_rows(rounds):
    outs = [one["crowd"] for one in rounds]
    rows = [f"| one of {outs[0]['applications']:,} applications | median | spread |", "|---|---|---|"]
    for name, key, unit in (
            ("attaching, median", "attach_us_median", "µs"), ("attaching, p99", "attach_us_p99", "µs"),
            ("working, median", "work_us_median", "µs"),
            ("process, attaching and working, of all", "come_ms_each", "ms"),
            ("leaving, of all", "leave_ms_each", "ms"),
            ("resident memory of the hull", "hull_rss_kb_each", "KB"),
            ("of that its own", "hull_private_kb_each", "KB"),
            ("descriptors of the hull", "descriptors_each", ""),
            ("mappings of the hull", "mappings_each", ""),
            ("left after all: descriptors", "descriptors_left", ""),
            ("left after all: mappings", "mappings_left", ""),
            ("left after all: private memory", "private_kb_left", "KB")):
        rows.append(line(name, [out[key] for out in outs], unit).removesuffix(" | | |") + " |")
    return rows


def companies(out):
    """Of an isolation's output: who was beside the tenant."""
    return {name: value for name, value in out.items() if isinstance(value, dict) and "reads" in value}


def kept(out):
    """By the program's own limit, which its exit status tells."""
    return "kept" if out["status"] == 0 else "**missed**"


SIM_TIMES = ("nic_p50_ns", "nic_p99_ns", "nic_max_ns", "nic_max_without_frames_ns", "whole_p50_ns",
             "whole_p99_ns")


def isolation_sim_rows(rounds):
    rows = ["| READ 64 B in virtual time, µs | NIC p50 | NIC p99 | NIC, longest | without frames before "
            "the answer | whole p50 | whole p99 |", "|---|---|---|---|---|---|---|"]
    for label, end in (("shares", ""), ("no shares", ", without shares")):
        out = rounds[0][label]
        for name, got in companies(out).items():
            rows.append(f"| {name}{end} | " +
                        " | ".join(digits(us(got, key)) for key in SIM_TIMES) + " |")
        most = us(out["alone"], "nic_max_without_frames_ns") + us(out, "bound_ns")
        rows.append(f"| bound: alone + {digits(us(out, 'bound_ns'))}{end} | | | | {digits(most)}: "
                    f"{kept(out)} | | |")
    return rows


def isolation_rows(rounds):
    keys = [f"{span}_{q}_ns" for span in ("service", "whole") for q in ("p50", "p99")]
    rows = ["| READ 64 B in a running hull, µs, median (spread) | in the hull's thread p50 | p99 | "
            "whole p50 | p99 |", "|---|---|---|---|---|"]
    for port in ("udp", "auto"):
        for name, got in companies(rounds[0][port]).items():
            rows.append(f"| {port}: {name} | " + " | ".join(
                f"{digits(got[k]['median'] / 1e3)} ({digits(got[k]['least'] / 1e3)} to "
                f"{digits(got[k]['most'] / 1e3)})" for k in keys) + " |")
        rows.append(f"| {port}: its limit | {kept(rounds[0][port])} | | | |")
    return rows


# ---- many senders

def incast_sim_rows(rounds):
    rows = ["| virtual time | goodput / one sender's | goal | slowest sender / fair share | gave up |",
            "|---|---|---|---|---|"]
    for label, out in rounds[0].items():
        fair = out["least_bytes"] * out["senders"] / (out["all_gbps"] * 1e9 / 8 * INCAST_S)
        goal = "≥ 0.7" if label == "8 senders" else ""
        rows.append(f"| {label} | {out['ratio']:.2f} | {goal} | {fair:.2f} | "
                    f"{out['retries_exceeded']} |")
    return rows


def incast_rows(rounds):
    outs = [one["incast"] for one in rounds]
    return HEAD + [
        line("one sender", [o["one_gbps"] for o in outs], "Gb/s"),
        line("8 senders together", [o["all_gbps"] for o in outs], "Gb/s"),
        line("8 senders / one", [o["ratio"] for o in outs]),
        line("slowest of the 8", [o["least_gbps"] for o in outs], "Gb/s"),
        line("queue pairs that gave up", [o["retries_exceeded"] for o in outs], most=0),
    ]


# ---- RedN

def model_rows(rounds):
    return rounds[0]["model"].rstrip("\n").splitlines()


def here_rows(rounds):
    return ["![hash gets by size, this machine](redn-figure-10-here.svg)",
            "![walks of lists, this machine](redn-figure-13-here.svg)", "",
            *rounds[0]["here"].rstrip("\n").splitlines()]


INCAST_S = 2
INCAST = f"verbena sim incast --ms {INCAST_S * 1000} --json"

TABLES = {
    "udp": Table(udp_rows, {
        "read": perf("read --size 64"), "write": perf("write --size 64 --depth 128"),
        "send": perf("send --size 64 --depth 128"), "raw": perf("raw --size 96")}, rounds=5),
    "bandwidth": Table(bandwidth_rows, {
        "write": perf("write --size 64K"), "raw": perf("raw --size 4K"),
        "tcp": Pair("iperf3 -s -1 -p {port}", "iperf3 -c 127.0.0.1 -t 1 -J -p {port}", iperf3, 0)},
        rounds=7),
    "shm": Table(shm_rows, {
        "read": perf("read --port shm --size 64"),
        "write": perf("write --port shm --size 64 --depth 128"),
        "bulk": perf("write --port shm --size 64K")}, rounds=5),
    "targets": Table(targets_rows, {
        f"{port} {target}": perf(f"read --size 64 --port {port} --target {target}")
        for port in PORTS for target in TARGETS}, rounds=3,
        said="`verbena perf read --port PORT --target TARGET`"),
    "idle": Table(idle_rows, {
        port: Command(f"verbena perf idle --port {port} --seconds {{count}} --json")
        for port in PORTS}, rounds=3, count=10, trial=1, said="`verbena perf idle --seconds 10`"),
    "queue-pairs": Table(pairs_rows, {
        "one": perf("write --size 64 --depth 16"),
        "many": perf("write --size 64 --depth 16 --qps 4096"),
        **{f"{port} {name}": perf(f"read --size 64 --port {port}{words}")
           for port in PORTS for name, words in (("few", ""),
                                                 ("open", " --qps 16384 --active 1"))}}, rounds=3),
    "core": Table(core_rows, {"core": Command("bench/core_cost.py build/bench/core_cost")},
                  timed=False),
    "gets": Table(gets_rows, {
        f"{port} {size}": perf(f"get --via all --port {port} --size {size}", ways)
        for port in PORTS for size in SIZES}, rounds=3,
        said="`verbena perf get --via all --port PORT --size SIZE`"),
    "collisions": Table(collisions_rows, {
        f"{port} {how}": perf(f"get --via all --port {port} --collision {how}", ways)
        for port in PORTS for how in ("seq", "par")}, rounds=3,
        said="`verbena perf get --via all --port PORT --collision HOW`"),
    "lists": Table(lists_rows, {
        f"{port} {n}{tail}": Command(f"verbena perf get --via all --port {port} --list {n}{tail} "
                                     "--seconds 0.3 --json", ways)
        for n in NODES for port in PORTS for tail in ("", " --break")}, rounds=3,
        said="`verbena perf get --via all --port PORT --list N [--break] --seconds 0.3`"),
    "entries": Table(entries_rows, {"entries": Command("bench/entry_cost.py build/bench")},
                     timed=False),
    "soak-get": Table(soak_rows, {
        port: Command(f"build/bench/soak_get --port {port} --gets {{count}}") for port in PORTS},
        count=4000000, trial=20000, said="`build/bench/soak_get --port PORT --gets 4000000`"),
    "verbs": Table(verbs_rows, {
        "echo": perf("raw --size 64"),
        **{name: Pair(f"{RUN}{tool} -p {{port}}", f"{RUN}{tool} 127.0.0.1 -p {{port}}",
                      perftest(*columns), port)
           for port, (name, tool, columns) in enumerate((
               ("send_lat", "ib_send_lat -s 64 -n 20000", ("least", "most", "typical_us")),
               ("read_lat", "ib_read_lat -s 64 -n 20000", ("least", "most", "typical_us")),
               ("write_lat", "ib_write_lat -s 64 -n 20000", ("least", "most", "typical_us")),
               ("write_bw", "ib_write_bw -s 65536 -n 20000 --report_gbits", ("peak", "gbps")),
               ("send_bw", "ib_send_bw -s 64 -n 400000", ("peak", "mbps", "mps"))), 1)},
        "tcp": Pair("iperf3 -s -1 -p {port}", "iperf3 -c 127.0.0.1 -t 1 -J -p {port}", iperf3, 6),
        "ucx": Pair("ucx_perftest -t tag_bw -s 64 -n 200000 -f -p {port}",
                    "ucx_perftest 127.0.0.1 -t tag_bw -s 64 -n 200000 -f -p {port}", ucx, 7,
                    {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo", "UCX_LOG_LEVEL": "error"})},
        rounds=5),
    "connections": Table(connections_rows, {
        "cmtime": Pair("verbena run -- cmtime -b 127.0.0.1 -p {port}",
                       "verbena run -- cmtime -s 127.0.0.1 -p {port}", cmtime, 8,
                       listens=cm_listens)}, rounds=5),
    "crash": Table(crash_rows, {
        "crash": Command("bench/crash.py --build build --rounds {count} "
                         "--plot {plots}/hull-crash.svg", lines)}, count=1000, trial=10),
    "hull": Table(hull_rows, {"hull": Command("build/bench/hull_lat --json", statuses=(0, 1))}),
    "hull-crowd": Table(crowd_rows, {
        "crowd": Command("build/bench/hull_crowd --applications {count}")}, rounds=3, count=1000,
                        trial=20),
    "isolation-sim": Table(isolation_sim_rows, {
        "shares": Command("verbena sim isolation --json", statuses=(0, 1)),
        "no shares": Command("verbena sim isolation --no-shares --json", statuses=(0, 1))},
        timed=False),
    "isolation": Table(isolation_rows, {
        port: Command(f"build/bench/hull_isolation --port {port} --json", statuses=(0, 1))
        for port in ("udp", "auto")}),
    "incast-sim": Table(incast_sim_rows, {
        "8 senders": Command(INCAST), "15 senders": Command(INCAST + " --senders 15"),
        "8 senders, MTU 1024": Command(INCAST + " --mtu 1024"),
        "8 senders, WRITEs of 4 KB": Command(INCAST + " --size 4K")}, timed=False),
    "incast": Table(incast_rows, {"incast": Command("build/bench/incast 8 1")}, rounds=3),
    "redn-model": Table(model_rows, {
        "model": Command("verbena figures redn --model --plots {plots}", str)}, file=REDN,
        timed=False),
    "redn-here": Table(here_rows, {
        "here": Command("verbena figures redn --here --plots {plots} --seconds {seconds}",
                        str)}, file=REDN),
}
