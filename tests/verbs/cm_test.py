#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""rdma_cm programs under `verbena run`: our own, which judges every call and event (cm.c), and those
of rdmacm-utils and perftest (-R), unmodified, a server and a client each, on every kind of address.
The exit status of both and what they say in the end are judged; one table goes to stdout.

Between two network namespaces, too (needs root). --only TEXT runs cases with this in their name.
Host packages: rdmacm-utils, perftest, iproute2.
"""

import collections
import dataclasses
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path[1:1] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), up)
                 for up in ("..", "../linux")]
import judge  # noqa: E402
import netns  # noqa: E402
from programs import ANY_CLOCK, FIGURES  # noqa: E402

CASE_LIMIT_S = 60
OWN_LIMIT_S = 120
TABLE = "{:<26} {:<40} {:>7}  {}"
FIRST_PORT = 7200
# A race of perftest's own (create_rdma_cm_connection()): after a handshake by a first connection the
# server listens a second time and the client connects a second time, and nothing orders the two. These
# are the answers where no one listens: of a REJ, invalid service id (8), and for datagrams, where a SIDR
# REP comes instead, service id not supported (1). Each such try is counted and printed.
TOO_EARLY = ("RDMA_CM_EVENT_REJECTED; error: 8.", "RDMA_CM_EVENT_UNREACHABLE; error: 1.")
TRIES = 12


@dataclasses.dataclass
class Case:
    server: str  # {a}: the address, {p}: the port
    client: str
    says: str = ""  # by the client
    ends: bool = True  # the server, by itself
    families: tuple = (4, 6)
    run: tuple = ()  # options of `verbena run`
    client_run: tuple = ()  # those of the client besides

    def name(self):
        return " ".join((*self.run, *self.client_run, self.client.replace(" {a}", "").replace(" {p}", "").replace("{g}", "GROUP")))


def perftest(tool):
    words = f"{tool} -R {ANY_CLOCK} -p {{p}}"
    return Case(words, words + " {a}", FIGURES, families=(4,))


DONE = r"return status 0"
CASES = (
    Case("rping -s -a {a} -p {p} -C 100 -V", "rping -c -a {a} -p {p} -C 100 -V"),
    Case("rping -s -a {a} -p {p} -C 20 -V -S 65000", "rping -c -a {a} -p {p} -C 20 -V -S 65000"),
    Case("rping -s -P -a {a} -p {p}", "rping -c -a {a} -p {p} -C 50 -V", ends=False),
    Case("ucmatose -b {a} -p {p}", "ucmatose -s {a} -p {p}", DONE),
    Case("ucmatose -b {a} -p {p} -c 50 -C 100", "ucmatose -s {a} -p {p} -c 50 -C 100", DONE),
    Case("udaddy -b {a}", "udaddy -s {a}", DONE),
    Case("rdma_server -s {a} -p {p}", "rdma_client -s {a} -p {p}", "rdma_client: end 0"),
    # These two listen everywhere, by IPv4.
    Case("rdma_xserver -p {p}", "rdma_xclient -s {a} -p {p}", "rdma_xclient: end 0",
         families=(4,)),
    Case("rdma_xserver -p {p} -c x", "rdma_xclient -s {a} -p {p} -c x", "rdma_xclient: end 0",
         families=(4,)),
    Case("cmtime -b {a} -p {p}", "cmtime -s {a} -p {p}", r"disconnect +: +\d", ends=False),
    *map(perftest, ("ib_send_bw", "ib_write_bw", "ib_read_lat", "ib_atomic_bw", "ib_send_lat -c UD")),
    Case("rping -s -a {a} -p {p} -C 100 -V", "rping -c -a {a} -p {p} -C 100 -V",
         run=("--faults", "drop=1%")),
    # REQ, RTU and DREQ: the server hears of the end though the DREQ is lost and the client exits.
    Case("rping -s -a {a} -p {p} -C 10 -V", "rping -c -a {a} -p {p} -C 10 -V",
         client_run=("--faults", "drop=#3,dir=tx,qp=1")),
)
GROUP = Case("mckey -m {g} -b {a}", "mckey -m {g} -s -b {a}", DONE)


class Side:
    """One program, whose words go to a file that can be read while it runs."""

    def __init__(self, words, namespace=None):
        self.file = tempfile.TemporaryFile("w+", encoding="utf-8")
        options = {"stdout": self.file, "stderr": subprocess.STDOUT}
        if namespace:
            self.process = namespace.popen(words, **options)
        else:
            self.process = subprocess.Popen(list(map(str, words)), stdin=subprocess.DEVNULL,
                                            preexec_fn=netns.die_with_parent, **options)

    def said(self):
        self.file.seek(0)
        return self.file.read()

    def wait_for(self, pattern, deadline):
        while not re.search(pattern, self.said()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.file.close()


OUTCOMES = collections.Counter()  # of all runs: good or not


def outcome(good):
    """Counts a run and returns how many failures it is."""
    OUTCOMES[good] += 1
    return 0 if good else 1


class Table:
    def __init__(self, options, place, spaces=(None, None), addresses=(None, None)):
        self.options, self.place, self.spaces, self.addresses = options, place, spaces, addresses
        self.port = FIRST_PORT + os.getpid() % 500 * 100

    def command(self, case, side, address):
        words = (case.client if side else case.server).format(
            a=address, p=self.port, g="ff05::7171" if ":" in address else "239.7.1.71")
        own = self.addresses[side]
        where = ("--address", own) if own else ()
        return ["env", "-u", "VERBENA", self.options.build / "verbena", "run", "--log", "info",
                *where, *case.run, *(case.client_run if side else ()), "--", *words.split()]

    def run(self, case, address):
        """Runs both sides; returns None, or in words what is wrong."""
        self.port += 1
        deadline = time.monotonic() + CASE_LIMIT_S
        sides = [Side(self.command(case, 0, address), self.spaces[0])]
        try:
            if not sides[0].wait_for("rdma_listen:|rdma_join_multicast:", deadline):
                return self.complain("the server did not listen", sides)
            sides.append(Side(self.command(case, 1, address), self.spaces[1]))
            for side in reversed(sides if case.ends else sides[1:]):
                try:
                    status = side.process.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    return self.complain(f"no end after {CASE_LIMIT_S} s", sides)
                if status:
                    return self.complain(f"exit status {status}", sides)
            if not re.search(case.says, sides[1].said(), re.M):
                return self.complain(f"the client did not say '{case.says}'", sides)
            return None
        finally:
            for side in sides:
                side.end()

    @staticmethod
    def complain(what, sides):
        said = [" | ".join(side.said().strip().splitlines()[-9:]) for side in sides]
        return f"{what}: {' // '.join(said)}"

    def run_all(self, cases, address):
        """Runs the cases and returns how many failed."""
        failures = 0
        family = 6 if ":" in address else 4
        for case in cases:
            if family not in case.families or self.options.only not in case.name():
                continue
            began = time.monotonic()
            for _ in range(TRIES if "-R" in case.client else 1):
                wrong = self.run(case, address)
                if not wrong or not any(words in wrong for words in TOO_EARLY):
                    break
                judge.tried("perftest -R connects again before its server listens again")
            failures += outcome(not wrong)
            print(TABLE.format(f"{self.place} {address}", case.name(),
                               f"{time.monotonic() - began:.1f}", wrong or "ok"), flush=True)
        return failures


def own_program(options, address, *words, name="cm"):
    """cm.c, cm_odd.c, cm_path.c or cm_rare.c, both ends in one process."""
    argv = [options.build / "verbena", "run", "--log", "off", "--address", address, "--",
            options.build / f"tests/verbs_{name}", address, *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=OWN_LIMIT_S, check=False)
    good = done.returncode == 0 and done.stdout.endswith("all ok\n")
    print(TABLE.format(f"own {address}", f"{name} " + " ".join(words), "",
                       "ok" if good else done.stdout[-200:] + done.stderr[-400:]), flush=True)
    return outcome(good)


def some(options, cases, turn):
    """Without --full every third one, others each time."""
    return cases if options.full else [
        case for number, case in enumerate(cases) if number % 3 == turn % 3]


def run_apart(options):
    """Between two network namespaces."""
    with netns.joined() as spaces:
        cases = [case for case in CASES if "-P" not in case.server]
        return sum(Table(options, "netns", spaces).run_all(some(options, cases, turn), address)
                   for turn, address in enumerate(("10.78.0.1", "fd00:78::1")))


def main(options):
    judge.require(tools=("rping", "ib_send_bw"))
    failures = 0
    print(TABLE.format("where", "program", "s", "outcome"), flush=True)
    if options.only in "cm":
        failures += own_program(options, "127.78.0.1", "patient") + own_program(options, "::1")
        failures += own_program(options, "127.78.0.1", name="cm_odd")
        failures += own_program(options, "127.78.0.1", name="cm_rare")
        failures += own_program(options, "::1", name="cm_rare")
        failures += own_program(options, "127.78.0.1", name="cm_path")
        failures += own_program(options, "::1", name="cm_path")
    places = [a for a in ("127.0.0.1", netns.own_address(), "::1") if a]
    if len(places) < 3 and not judge.skipped("own address", "the machine has none"):
        failures += 1
    for turn, address in enumerate(places):
        table = Table(options, "local", addresses=(options.address,) * 2)
        groups = [] if address == "::1" else [GROUP]  # Linux has no route to those of IPv6 there
        cases = some(options, CASES, turn) if turn else CASES
        failures += table.run_all([*cases, *groups], address)
    if os.geteuid() == 0:
        failures += run_apart(options)
    elif not judge.skipped("namespaces", "missing: root"):
        failures += 1
    counts = f"{OUTCOMES[True]} runs passed, {OUTCOMES[False]} failed"
    if not OUTCOMES:
        raise judge.Failure(f"{counts}: no case has '{options.only}' in its name")
    if failures:
        raise judge.Failure(counts)
    print(counts)


def parse():
    parser = judge.options(__doc__.splitlines()[0], full="all cases on every kind of address")
    parser.add_argument("--address", help="of both NICs, instead of the machine's")
    options = parser.parse_args()
    options.build = options.build.resolve()
    return options


if __name__ == "__main__":
    OPTIONS = parse()
    judge.run(lambda: main(OPTIONS))
