#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Kills the application of a service while its NIC answers gets, and compares with a run in which
an unrelated process is killed. Fails if an answer failed or was wrong, or if anything was left in
the hull; with --strict also if the slowest gets or the longest gap are not within twice of the
other run's. Prints one JSON object a run and a summary; --plot draws answers over time, as figure 16
of the RedN paper does."""

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 60
SLICE_MS = 10  # of the plot: shorter than a restart, longer than a turn of the scheduler
PLOT_ROUNDS = 6
PLOT_LIFE_US = 400000


class Hull:
    """verbena nic in a directory of its own, and what the system says of it."""

    def __init__(self, build, address):
        self.build = build
        self.dir = tempfile.mkdtemp(prefix="verbena-crash-")
        self.env = dict(os.environ, VERBENA_RUNTIME_DIR=self.dir)
        self.socket = os.path.join(self.dir, "hull-crash")
        ready, given = os.pipe()
        self.child = subprocess.Popen(
            [f"{build}/verbena", "nic", "--name", "crash", "--address", address, "--port", "auto",
             "--ready-fd", str(given)],
            pass_fds=[given], env=self.env, stderr=subprocess.DEVNULL)
        os.close(given)
        with os.fdopen(ready) as line:
            if line.read() != "ready\n":
                raise SystemExit("crash.py: the hull does not start")

    def end(self):
        self.child.terminate()
        status = self.child.wait(PATIENCE_S)
        shutil.rmtree(self.dir, ignore_errors=True)
        if status != 0:
            raise SystemExit(f"crash.py: the hull ended with {status}")

    def app(self, how):
        done = subprocess.run([f"{self.build}/bench/crash_app", self.socket, how], env=self.env,
                              capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        if done.returncode != 0:
            sys.stderr.write(self.show("stat", "-d") + self.show("res", "show", "qp", "-d"))
            raise SystemExit(f"crash.py: crash_app {how}: {done.stderr}")

    def show(self, *words):
        """What the command says of the hull, for a failure's report."""
        try:
            done = subprocess.run([f"{self.build}/verbena", *words], env=self.env, text=True,
                                  capture_output=True, timeout=PATIENCE_S, check=False)
        except subprocess.TimeoutExpired:
            return f"verbena {' '.join(words)}: no answer\n"
        return done.stdout + done.stderr

    def belongings(self):
        """What the hull has when it has heard of everybody's end: soon after, and for a while."""
        deadline = time.monotonic() + PATIENCE_S
        last, same = None, 0
        while same < 3 and time.monotonic() < deadline:
            now = self.look()
            same = same + 1 if now == last else 0
            last = now
            time.sleep(0.02)
        return last

    def look(self):
        """Descriptors, shared mappings, objects, and kilobytes of its own memory."""
        proc = f"/proc/{self.child.pid}"
        with open(f"{proc}/maps", encoding="utf-8") as maps:
            mappings = sum("memfd:verbena-hull" in line for line in maps)
        with open(f"{proc}/status", encoding="utf-8") as status:
            anonymous = int(re.search(r"RssAnon:\s+(\d+)", status.read())[1])
        rows = {}
        for kind in ("qp", "cq", "mr", "pd"):
            listed = subprocess.run([f"{self.build}/verbena", "res", "show", kind, "-j"],
                                    env=self.env, capture_output=True, text=True,
                                    timeout=PATIENCE_S, check=True)
            rows[kind] = len(json.loads(listed.stdout))
        return {"descriptors": len(os.listdir(f"{proc}/fd")), "mappings": mappings, **rows,
                "anonymous_kb": anonymous}


def run(hull, words, rounds, client):
    done = subprocess.run(
        [f"{hull.build}/bench/crash_get", "--hull", hull.socket, "--address", client, "--port",
         "auto", "--rounds", str(rounds), *words],
        env=hull.env, capture_output=True, text=True, timeout=PATIENCE_S + rounds, check=False)
    sys.stderr.write(done.stderr)
    if not done.stdout:
        raise SystemExit("crash.py: crash_get says nothing")
    row = json.loads(done.stdout)
    if not row["ok"]:
        sys.stderr.write(done.stdout)
    return row


def cycle(hull, words, rounds, client):
    """One run, and what the hull has after it: with the service, and without."""
    row = run(hull, words, rounds, client)
    hull.app("check")
    kept = hull.belongings()
    hull.app("release")
    return row, kept, hull.belongings()


def differences(before, after):
    """Memory of its own may grow by some pages that the allocator keeps, and no more."""
    wrong = [f"{name}: {before[name]} before, {after[name]} after"
             for name in before if name != "anonymous_kb" and before[name] != after[name]]
    if after["anonymous_kb"] > before["anonymous_kb"] + 1024:
        wrong.append(f"{after['anonymous_kb'] - before['anonymous_kb']} KB more memory")
    return wrong


# ---- the plot

def read_slices(path):
    kills, slices = [], {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            first, second = line.split()
            if first == "kill":
                kills.append(float(second))
            else:
                at = int(first) // SLICE_MS * SLICE_MS
                slices[at] = slices.get(at, 0) + int(second)
    return kills, sorted(slices.items())


def measure(hull, client, path, words):
    """A few lives that are long enough to be seen in a plot."""
    done = subprocess.run(
        [f"{hull.build}/bench/crash_get", *words, "--address", client, "--port", "auto", "--rounds",
         str(PLOT_ROUNDS), "--life-us", str(PLOT_LIFE_US), "--seed", "3", "--slices", path],
        env=hull.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode != 0:
        raise SystemExit(f"crash.py: {done.stderr}{done.stdout}")


def draw(hull, options):
    """Answers over time: of the service, and of an application with a NIC of its own."""
    panels = {"the NIC in a hull, the application is killed": ["--hull", hull.socket],
              "the NIC in the application, which is killed": ["--plain", options.plain]}
    script = ["set terminal svg size 720,480 background '#ffffff'", f"set output '{options.plot}'",
              "set multiplot layout 2,1", f"set ylabel 'answers per {SLICE_MS} ms'", "set yrange [0:*]",
              "set key off", "set grid ytics", "set xlabel 'ms'"]
    for title, words in panels.items():
        path = os.path.join(hull.dir, "slices")
        measure(hull, options.client, path, words)
        if words[0] == "--hull":
            hull.app("release")
        kills, slices = read_slices(path)
        script.append("unset arrow")
        script += [f"set arrow from {k},graph 0 to {k},graph 1 nohead lc 'red'" for k in kills]
        script.append(f"set title '{title}; red: a kill'")
        script.append("plot '-' with steps lc 'black'")
        script += [f"{at} {count}" for at, count in slices]
        script.append("e")
    script.append("unset multiplot")
    subprocess.run(["gnuplot"], input="\n".join(script) + "\n", text=True, check=True)


def judge(rows, strict):
    wrong = [f"{row['killed']}: an answer failed or was wrong, or a life ended by itself"
             for row in rows if not row["ok"]]
    ratios = {name: round(rows[0][name] / max(1, rows[1][name]), 2)
              for name in ("p9999_ns", "gap_ns")}
    if strict:
        wrong += [f"{name}: {ratio} of the other run's" for name, ratio in ratios.items()
                  if ratio > 2]
    return ratios, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--address", default="127.62.0.1", help="the hull's")
    parser.add_argument("--client", default="127.62.0.2", help="the client's")
    parser.add_argument("--plain", default="127.62.0.3", help="of a NIC without a hull, to plot")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--plot", metavar="FILE.svg")
    options = parser.parse_args()
    hull = Hull(os.path.abspath(options.build), options.address)
    with contextlib.ExitStack() as stack:
        stack.callback(hull.end)
        _, kept, empty = cycle(hull, [], 3, options.client)
        rows, wrong = [], []
        for words in ([], ["--unrelated"]):
            row, kept_now, empty_now = cycle(hull, words, options.rounds, options.client)
            print(json.dumps(row), flush=True)
            rows.append(row)
            wrong += differences(kept, kept_now) + differences(empty, empty_now)
        ratios, said = judge(rows, options.strict)
        if options.plot:
            draw(hull, options)
    print(json.dumps({"bench": "crash", "ratios": ratios, "hull": kept, "wrong": wrong + said}))
    return 1 if wrong + said else 0


if __name__ == "__main__":
    sys.exit(main())
