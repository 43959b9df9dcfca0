#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Verbs programs that nobody here wrote, unmodified, under `verbena run`: the pingpongs of
ibverbs-utils and perftest's tools, a server and a client each. The exit status of both and the
result line of the tool are judged; one table goes to stdout. Times are information, never judged.

--full runs every combination; without, one of each kind, and some of them between two network
namespaces, over IPv4 and over IPv6 (needs root). --namespaces runs all of them there, --ipv6 besides
with the NICs on IPv6 addresses.
Host packages: ibverbs-utils, perftest, iproute2.
"""

import contextlib
import os
import subprocess
import sys
import time

sys.path[1:1] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), up)
                 for up in ("..", "../linux")]
import judge  # noqa: E402
import netns  # noqa: E402
from programs import (  # noqa: E402
    BANDWIDTH_TOOLS, LIGHT, QUICK, Case, perftest_cases, pingpong_cases, problem_of)

FIRST_TCP_PORT = 23515
CASE_LIMIT_S = 60
GRACE_S = 3  # for a server whose client failed
TABLE = "{:<16} {:<34} {:<7} {:>8} {:>12}  {}"


def apart_cases(ipv6):
    """One of each kind between two namespaces."""
    for kind in ("rc", "ud") if ipv6 else ("rc", "uc", "ud", "srq", "xsrq"):
        yield Case(f"ibv_{kind}_pingpong")
    for tool in ("ib_send_bw", "ib_read_lat") if ipv6 else (*BANDWIDTH_TOOLS, "ib_write_lat"):
        yield Case(tool, QUICK if tool in BANDWIDTH_TOOLS else ())
    yield Case("ib_send_bw", ("-c", "UD", *LIGHT["ib_send_bw", "UD"]))
    if not ipv6:
        yield Case("ib_send_lat", ("-c", "XRC"))
        yield Case("ib_send_bw", ("-e", "--use-srq", "-q", "4", *QUICK))


class Place:
    """Where a side runs: here, or in a network namespace; and on which address, if not on its own."""

    def __init__(self, namespace=None, address=None):
        self.namespace = namespace
        self.address = address

    def popen(self, argv):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        if self.namespace:
            return self.namespace.popen(argv, **options)
        return subprocess.Popen(list(map(str, argv)), stdin=subprocess.DEVNULL,
                                preexec_fn=netns.die_with_parent, **options)

    def is_listening(self, process, port):
        if self.namespace and not self.namespace.holds(process):
            return False
        return netns.is_listening(process.pid, port)


class Table:
    def __init__(self, options, server, client, host, ipv6):
        self.verbena = options.build / "verbena"
        self.server, self.client, self.host = server, client, host
        self.ipv6 = ipv6
        self.port = FIRST_TCP_PORT + os.getpid() % 2000 * 16

    def command(self, case, peer):
        place = self.client if peer else self.server
        where = ("--address", place.address) if place.address else ()
        argv = ["env", "-u", "VERBENA", self.verbena, "run", "--log", "error", *where, *case.run,
                "--", *case.command(self.port)]
        if case.tool.startswith("ibv_"):
            argv += ["-g", "0"]
        elif self.ipv6:
            argv += ["--ipv6"]
        return argv + ([peer] if peer else [])

    def run(self, case):
        """Runs both sides; returns None, or in words what is wrong."""
        self.port += 1
        sides = [self.server.popen(self.command(case, None))]
        try:
            deadline = time.monotonic() + CASE_LIMIT_S
            while not self.server.is_listening(sides[0], self.port):
                if sides[0].poll() is not None or time.monotonic() > deadline:
                    return self.complain("server did not listen", sides)
                time.sleep(0.01)
            sides.append(self.client.popen(self.command(case, self.host)))
            for side in reversed(sides):
                side.wait(max(0.1, deadline - time.monotonic()))
                if side.returncode:
                    deadline = min(deadline, time.monotonic() + GRACE_S)
            if case.words:
                return self.judge_failure(case, sides)
            if any(side.returncode for side in sides):
                return self.complain("exit status " + " and ".join(
                    str(side.returncode) for side in sides), sides)
            return problem_of(case, sides[-1].stdout.read())
        except subprocess.TimeoutExpired:
            return self.complain(f"no end after {CASE_LIMIT_S} s", sides)
        finally:
            for side in sides:
                if side.poll() is None:
                    side.kill()
                side.wait()
                side.stdout.close()

    def judge_failure(self, case, sides):
        if not sides[-1].returncode:
            return self.complain("the client succeeded", sides)
        said = sides[-1].stdout.read()
        case.figure = "failed"
        return None if case.words in said else f"'{case.words}' was not said: {said[-200:]}"

    @staticmethod
    def complain(what, sides):
        for side in sides:
            side.kill()
            side.wait()
        said = [" | ".join(side.stdout.read().strip().splitlines()[-6:]) for side in sides]
        return f"{what}: {' // '.join(said)}"


@contextlib.contextmanager
def two_namespaces(ipv6):
    with netns.Namespace("a") as a, netns.Namespace("b") as b:
        pair = f"vb{os.getpid() % 100000}"
        a.ip("link", "add", pair, "type", "veth", "peer", "name", f"{pair}p")
        a.ip("link", "set", f"{pair}p", "netns", b.name)
        own = (("10.77.0.1", "fd00:7::1"), ("10.77.0.2", "fd00:7::2"))
        for space, name, (v4, v6) in ((a, pair, own[0]), (b, f"{pair}p", own[1])):
            space.ip("address", "add", f"{v4}/24", "dev", name)
            space.ip("address", "add", f"{v6}/64", "dev", name, "nodad")
            space.ip("link", "set", name, "mtu", "4200", "up")
        a.await_up(pair)
        b.await_up(f"{pair}p")
        # The tools shake hands over IPv4 in any case.
        yield (Place(a, own[0][1] if ipv6 else None), Place(b, own[1][1] if ipv6 else None),
               own[0][0])


def parse():
    parser = judge.options(__doc__.splitlines()[0], full="every combination")
    parser.add_argument("--namespaces", action="store_true", help="in two network namespaces")
    parser.add_argument("--ipv6", action="store_true", help="with IPv6 between them")
    options = parser.parse_args()
    options.build = options.build.resolve()
    return options


def run_all(table, cases):
    """Runs the cases and returns how many failed."""
    failures = 0
    print(TABLE.format("program", "options", "where", "iters", "figure", "outcome"), flush=True)
    for case in cases:
        wrong = table.run(case)
        failures += wrong is not None
        where = "local" if not table.server.namespace else "ipv6" if table.ipv6 else "netns"
        print(TABLE.format(case.tool, " ".join((*case.run, *case.options)) or "-", where,
                           case.iterations, case.figure, wrong or "ok"), flush=True)
    print(f"{len(cases)} runs, {failures} failed", flush=True)
    return failures


def run_apart(options, cases, ipv6):
    """The same between two namespaces."""
    with two_namespaces(ipv6) as (server, client, host):
        return run_all(Table(options, server, client, host, ipv6), cases)


def wanted(options, *lists):
    return [case for cases in lists for case in cases if options.only in case.name()]


def main(options):
    judge.require(tools=("ibv_rc_pingpong", "ib_send_bw"))
    cases = wanted(options, pingpong_cases(options.full),
                   perftest_cases(options.full, options.namespaces))
    if options.namespaces:
        failures = run_apart(options, cases, options.ipv6)
    else:
        failures = run_all(Table(options, Place(), Place(), "127.0.0.1", False), cases)
        if os.geteuid() == 0:
            for ipv6 in (False, True):
                failures += run_apart(options, wanted(options, apart_cases(ipv6)), ipv6)
        elif not judge.skipped("namespaces", "missing: root"):
            failures += 1
    if failures:
        raise judge.Failure(f"{failures} runs")


if __name__ == "__main__":
    OPTIONS = parse()
    judge.run(lambda: main(OPTIONS))
