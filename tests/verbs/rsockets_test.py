#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""rsockets under `verbena run`: our own programs, which judge every call (rsock.c) and every byte
(rsflow.c), peers that lie (rsliar.c), what a program of plain sockets does (rsplain.c), those of
rdmacm-utils, unmodified, and iperf3 through librspreload, a server and a client each. Exit statuses
and result lines are judged; one table goes to stdout. Times are information.

Each case runs with both on one address, with an address each, and between two network namespaces.
--only TEXT: cases with this in their name. Host packages: rdmacm-utils, iperf3, iproute2.
"""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path[1:1] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), up)
                 for up in ("..", "../linux")]
import judge  # noqa: E402
import netns  # noqa: E402

CASE_LIMIT_S = 60
TABLE = "{:<52} {:<22} {:>7}  {}"
FIRST_PORT = 20200
SELF = (("rsock", "127.92.0.9"), ("rsock", "::1"), ("rsliar", "127.92.0.9"), ("rsliar", "::1"),
        ("rsplain", "127.92.0.9", "--rsockets"))
APART = (("10.78.0.1", "10.78.0.2"), ("fd00:78::1", "fd00:78::2"))
FIGURES = r"^\S+ +\S+ +\S+ +(\S+ +)?\S+ +[\d.]+s +[\d.]+ +[\d.]+$"
FLOW = r"^sent ([0-9a-f]{16}) received ([0-9a-f]{16})$"
CUSTOM = "-I 10 -C 40 -S 30000"


@dataclasses.dataclass
class Case:
    server: str  # {a}: the server's address, {p}: the port, {d}: a directory, {t}: our programs
    client: str
    says: str = FIGURES  # by the client
    ends: bool = True  # the server, by itself
    ready: str = "log"  # how it is known that the server listens: log, tcp or udp
    run: tuple = ()  # options of `verbena run`
    environment: tuple = ()
    families: tuple = (4, 6)

    def name(self):
        text = self.client.replace(" {p}", "").replace("{t}/verbs_", "")
        return " ".join((*self.environment, *self.run, re.sub(r" ?(-[bsc] )?\{[adp]\}:?", "", text)))


def stream(options, tool="rstream", **more):
    family = "-f ip " if tool == "rstream" else ""
    return Case(f"{tool} {family}-b {{a}} -p {{p}} {options}",
                f"{tool} {family}-s {{a}} -p {{p}} {options}", families=(4,), **more)


def flow(seed, size, **more):
    return Case(f"{{t}}/verbs_rsflow server {{a}} {{p}} 5000000 {seed} {size}",
                f"{{t}}/verbs_rsflow client {{a}} {{p}} 5000000 {seed} 0", FLOW, **more)


def iperf3(options):
    return Case("iperf3 -s -1 -B {a} -p {p}", f"iperf3 -c {{a}} -p {{p}} {options}", "receiver",
                run=("--rsockets",))


PRELOADED = {"run": ("--rsockets",)}
CASES = (
    flow(1, 0), flow(2, 3000), flow(3, 1000000), flow(4, 0, run=("--faults", "drop=1%")),
    stream(CUSTOM), stream(CUSTOM + " -T v"), stream(CUSTOM + " -T b -T v"),
    stream(CUSTOM + " -T n -T v"), stream(CUSTOM + " -T a -T v"), stream(CUSTOM + " -T r"),
    stream(CUSTOM + " -B 9000 -T v"), stream("-I 10 -C 100 -S 1 -T v"),
    stream(CUSTOM, "riostream"), stream(CUSTOM + " -T b -T v", "riostream"),
    stream(CUSTOM + " -T n -T v", "riostream"), stream(CUSTOM + " -T a -T v", "riostream"),
    Case("udpong -b {a} -p {p} -C 100 -S 500", "udpong -s {a} -p {p} -C 100 -S 500", ends=False,
         ready="udp", families=(4,)),
    Case("udpong -b {a} -p {p} -C 50 -S 500", "udpong -s {a} -p {p} -C 50 -S 500 -T e",
         ends=False, ready="udp", families=(4,)),
    Case("rcopy -p {p}", "rcopy {d}/from {a}:{d}/to -p {p}", r"bytes in", ends=False,
         families=(4,)),
    stream(CUSTOM + " -T s -T v", **PRELOADED),
    stream(CUSTOM + " -T s -T n", **PRELOADED),
    stream(CUSTOM + " -T s -T f", **PRELOADED, ready="tcp", environment=("RDMAV_FORK_SAFE=1",),
           ends=False),
    iperf3("-n 20M"), iperf3("-n 20M -R"), iperf3("-n 20M -P 3"), iperf3("-t 1 --bidir"),
)


class Side:
    """One program, whose words go to a file that can be read while it runs."""

    def __init__(self, words, environment, space=None):
        self.file = tempfile.TemporaryFile("w+", encoding="utf-8")
        words = ["env", "-u", "VERBENA", *environment, *map(str, words)]
        options = {"stdout": self.file, "stderr": subprocess.STDOUT}
        self.process = space.popen(words, **options) if space else subprocess.Popen(
            words, stdin=subprocess.DEVNULL, preexec_fn=netns.die_with_parent, **options)

    def said(self):
        self.file.seek(0)
        return self.file.read()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.file.close()


def is_bound(kind, port, pid):
    """Whether the system knows a socket of that kind on the port, in the process's namespace."""
    wanted = re.compile(rf"^ *\d+: [0-9A-F]+:{port:04X} [0-9A-F:]+ (0A|07) ", re.M)
    files = (f"/proc/{pid}/net/{kind}", f"/proc/{pid}/net/{kind}6")
    return any(wanted.search(pathlib.Path(file).read_text(encoding="ascii")) for file in files)


class Runner:
    def __init__(self, options, directory):
        self.options, self.directory = options, directory
        self.port = FIRST_PORT + os.getpid() % 400 * 20
        self.spaces = (None, None)
        self.passed = self.failures = self.turn = 0

    def command(self, words, case, address, server):
        filled = words.format(a=server, p=self.port, d=self.directory,
                              t=self.options.build / "tests")
        return [self.options.build / "verbena", "run", "--log", "info", "--address", address,
                *case.run, "--", *filled.split()]

    def await_server(self, case, side, deadline):
        while time.monotonic() < deadline and side.process.poll() is None:
            if case.ready == "log" and "rdma_listen:" in side.said():
                return True
            if case.ready != "log" and is_bound(case.ready, self.port, side.process.pid):
                return True
            time.sleep(0.02)
        return False

    def run(self, case, place):
        """Runs both sides; returns None, or in words what is wrong."""
        self.port += 1
        deadline = time.monotonic() + CASE_LIMIT_S
        sides = [Side(self.command(case.server, case, place[0], place[0]), case.environment,
                      self.spaces[0])]
        try:
            if not self.await_server(case, sides[0], deadline):
                return complain("the server did not listen", sides)
            sides.append(Side(self.command(case.client, case, place[1], place[0]),
                              case.environment, self.spaces[1]))
            for side in reversed(sides if case.ends else sides[1:]):
                try:
                    status = side.process.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    return complain(f"no end after {CASE_LIMIT_S} s", sides)
                if status:
                    return complain(f"exit status {status}", sides)
            if not re.search(case.says, sides[1].said(), re.M):
                return complain(f"the client did not say '{case.says}'", sides)
            return self.compare(case, sides)
        finally:
            for side in sides:
                side.end()

    def compare(self, case, sides):
        """What is equal at both ends."""
        if case.says == FLOW:
            ours, theirs = (re.search(FLOW, side.said(), re.M) for side in sides)
            if not ours or ours.groups() != theirs.groups()[::-1]:
                return complain("the bytes differ", sides)
        if case.client.startswith("rcopy"):
            first, second = (self.directory / name for name in ("from", "to"))
            if not second.exists() or first.read_bytes() != second.read_bytes():
                return complain("the files differ", sides)
        return None

    def report(self, name, place, began, wrong):
        self.passed += wrong is None
        self.failures += wrong is not None
        print(TABLE.format(name, place, f"{time.monotonic() - began:.1f} s", wrong or "ok"),
              flush=True)

    def run_everywhere(self):
        own = netns.own_address()
        for place in (("127.0.0.1", "127.0.0.1"), (own, own), ("127.92.0.1", "127.92.0.2"),
                      ("::1", "::1")):
            if place[0]:
                self.run_at(place, some=place[0] != "127.0.0.1")
            else:
                self.failures += not judge.skipped("own address", "the machine has none")
        if os.geteuid() != 0:
            self.failures += not judge.skipped("namespaces", "missing: root")
            return
        with netns.joined() as self.spaces:
            for place in APART:
                self.run_at(place)

    def run_at(self, place, some=True):
        """Without --full every third case, but for one place."""
        self.turn += 1
        for number, case in enumerate(CASES):
            if self.options.only not in case.name() or \
                    (6 if ":" in place[0] else 4) not in case.families or \
                    (some and not self.options.full and number % 3 != self.turn % 3):
                continue
            (self.directory / "to").unlink(missing_ok=True)
            began = time.monotonic()
            self.report(case.name(), " ".join(place), began, self.run(case, place))

    def run_all(self):
        words = {case.client.split()[0] for case in CASES}
        judge.require(tools=sorted(word for word in words if "/" not in word))
        self.run_everywhere()

    def run_self(self):
        for name, address, *run in SELF:
            if self.options.only not in name:
                continue
            began = time.monotonic()
            side = Side([self.options.build / "verbena", "run", "--address", address, *run, "--",
                         self.options.build / f"tests/verbs_{name}", address], ())
            try:
                wrong = f"exit status {status}: {side.said()}" \
                    if (status := side.process.wait(CASE_LIMIT_S)) else None
            except subprocess.TimeoutExpired:
                wrong = f"no end after {CASE_LIMIT_S} s: {side.said()}"
            side.end()
            self.report(name, address, began, wrong)


def complain(what, sides):
    said = [" | ".join(side.said().strip().splitlines()[-4:]) for side in sides]
    return f"{what}: {' // '.join(said)}"


def test(options):
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory)
        (path / "from").write_bytes(os.urandom(3_000_001))
        print(TABLE.format("case", "addresses", "time", "outcome"))
        runner = Runner(options, path)
        runner.run_self()
        runner.run_all()
    print(f"{runner.passed} cases passed, {runner.failures} failed")
    if runner.failures:
        raise judge.Failure(f"{runner.failures} cases failed")


if __name__ == "__main__":
    chosen = judge.options(__doc__, full="all cases everywhere").parse_args()
    judge.run(lambda: test(chosen))
