#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""verbs.py [ROUNDS]: unmodified programs on the NIC (`verbena run --port udp`) beside what a user
without a card would take: perftest's latencies beside a raw UDP echo, its bandwidth beside iperf3,
its message rate beside UCX over TCP. Two processes, each on a core of its own, in turn, ROUNDS (5)
times; medians and spread. `make bench` installs what it needs."""
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
VERBENA = os.environ.get("VERBENA", os.path.join(HERE, "../build/verbena"))
NEEDED = ("ib_send_lat", "iperf3", "ucx_perftest", "taskset")
ADDRESS = "127.0.0.1"
RUN = [VERBENA, "run", "--port", "udp", "--address", ADDRESS, "--"]


def pinned(core, words):
    return ["taskset", "-c", str(core), *words]


def pair(server, client, port, env=None):
    """The client's output; the server ends by itself or is ended."""
    there = subprocess.Popen(pinned(1, server), stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, env=env)
    try:
        wait_for(port)
        done = subprocess.run(pinned(0, client), capture_output=True, text=True, timeout=120,
                              env=env, check=False)
    finally:
        try:
            there.wait(2)
        except subprocess.TimeoutExpired:
            there.terminate()
            there.wait()
    if done.returncode != 0:
        sys.exit("verbs.py: %s failed:\n%s%s" % (client, done.stdout, done.stderr))
    return done.stdout


def wait_for(port):
    """Until somebody listens there; without connecting, which would be a client."""
    wanted = ":%04X" % port
    for _ in range(500):
        with open("/proc/net/tcp", encoding="ascii") as file4, \
                open("/proc/net/tcp6", encoding="ascii") as file6:
            lines = file4.readlines()[1:] + file6.readlines()[1:]
        if any(line.split()[1].endswith(wanted) and line.split()[3] == "0A" for line in lines):
            return
        time.sleep(0.02)
    sys.exit("verbs.py: nobody listens on port %d" % port)


def perftest(tool, *words, port):
    words = [tool, "-p", str(port), *words]
    return pair(RUN + words, RUN + words + [ADDRESS], port)


def last_row(output):
    rows = [line.split() for line in output.splitlines() if re.match(r"\s*\d+\s+\d+\s", line)]
    return [float(cell) for cell in rows[-1]]


def latency_us(tool, port):
    """The typical one, which is the median."""
    return last_row(perftest(tool, "-s", "64", "-n", "20000", port=port))[4]


def echo_us():
    done = subprocess.run([VERBENA, "perf", "raw", "--size", "64", "--seconds", "1", "--json"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["raw_p50_ns"] / 1e3


def write_gbps(port):
    return last_row(perftest("ib_write_bw", "-s", "65536", "-n", "20000", "--report_gbits",
                             port=port))[3]


def iperf_gbps(port):
    words = ["iperf3", "-p", str(port)]
    output = pair(words + ["-s", "-1"], words + ["-c", ADDRESS, "-t", "2", "-J"], port)
    return json.loads(output)["end"]["sum_received"]["bits_per_second"] / 1e9


def send_mps(port):
    return last_row(perftest("ib_send_bw", "-s", "64", "-n", "400000", port=port))[4]


def ucx_mps(port):
    env = dict(os.environ, UCX_TLS="tcp,self", UCX_NET_DEVICES="lo", UCX_LOG_LEVEL="error")
    words = ["ucx_perftest", "-p", str(port), "-t", "tag_bw", "-s", "64", "-n", "200000", "-f"]
    output = pair(words, words + [ADDRESS], port, env)
    return float(output.split()[-1]) / 1e6  # the last column of the last line: messages a second


def line(name, values, unit, least=None, most=None):
    middle = statistics.median(values)
    target, mark = "", ""
    if least is not None:
        target, mark = f">= {least:g}", "yes" if middle >= least else "no"
    if most is not None:
        target, mark = f"<= {most:g}", "yes" if middle <= most else "no"
    print(f"| {name} | {middle:.3g} {unit} | {min(values):.3g} to {max(values):.3g} | {target} "
          f"| {mark} |")


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    missing = [name for name in NEEDED if not shutil.which(name)]
    if missing:
        sys.exit("verbs.py: %s missing; 'make bench' installs them" % ", ".join(missing))
    measured = []
    for number in range(rounds):
        port = 18700 + 10 * (number % 100)
        measured.append({
            "echo": echo_us(),
            "send": latency_us("ib_send_lat", port),
            "read": latency_us("ib_read_lat", port + 1),
            "write": latency_us("ib_write_lat", port + 2),
            "gbps": write_gbps(port + 3),
            "iperf": iperf_gbps(port + 4),
            "rate": send_mps(port + 5),
            "ucx": ucx_mps(port + 6),
        })
        print("round %d of %d" % (number + 1, rounds), file=sys.stderr)

    def all_of(value):
        return [value(m) for m in measured]
    print("| figure | median | spread | goal | met |\n|---|---|---|---|---|")
    line("UDP echo of 64 B, round trip", all_of(lambda m: m["echo"]), "us")
    line("ib_send_lat 64 B, both ways", all_of(lambda m: 2 * m["send"]), "us")
    line("/ echo", all_of(lambda m: 2 * m["send"] / m["echo"]), "", most=1.3)
    line("ib_read_lat 64 B", all_of(lambda m: m["read"]), "us")
    line("/ echo", all_of(lambda m: m["read"] / m["echo"]), "", most=1.3)
    line("ib_write_lat 64 B, one way", all_of(lambda m: m["write"]), "us")
    line("ib_write_bw 64 KB", all_of(lambda m: m["gbps"]), "Gb/s")
    line("/ iperf3's TCP", all_of(lambda m: m["gbps"] / m["iperf"]), "", least=1.2)
    line("ib_send_bw 64 B", all_of(lambda m: m["rate"]), "M/s")
    line("/ UCX's tag_bw over TCP", all_of(lambda m: m["rate"] / m["ucx"]), "", least=10)


if __name__ == "__main__":
    main()
