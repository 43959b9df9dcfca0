#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Linux as the peer of unmodified programs: Debian's ibverbs-utils and perftest in a guest on the
kernel's soft-RoCE, and the same programs here under `verbena run`.

Each row is one run of a program with itself, in one of both roles; exit status and result line of
both are judged, and one table goes to stdout. Times are information, never judged. What soft-RoCE
cannot do is tried in the guest alone, and shown with the words of the tool.
Host packages: as pingpong_test.py, and ibverbs-utils, perftest. Needs root and /dev/net/tun.
"""

import dataclasses
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../verbs"))
import outcome  # noqa: E402
from guest import GUEST_IP, HOST_IP, HOST_IP6, Guest  # noqa: E402
from programs import Case, judge, perftest_cases, pingpong_cases  # noqa: E402
from two_sides import TwoSides, failure  # noqa: E402

FIRST_TCP_PORT = 19515
ROW_LIMIT_S = 60
FAILURES_MAX = 5
# An emulated guest on a busy machine may be away for longer than retries last, and nobody sends
# datagrams again: that many rows of the table may have a second try.
RETRIES_MAX = 3
GRACE_S = 3  # for the other side of one that failed
ITERATIONS = 500
LOSS_PERCENT = 1
GID_INDEX = {4: 1, 6: 2}  # of the guest's addresses
ROLES = ("server", "client")
TABLE = "{:<17} {:<38} {:<7} {:<3} {:>4} {:>5} {:>12}  {}"
# What Debian 12's soft-RoCE has not, and the words of the tools for it.
LACKING = {"XRC": "Error opening XRC domain", "ibv_xsrq_pingpong": "Couldn't Open the XRC Domain",
           "-t": "The device isn't completion timestamp capable",
           "-o": "The device isn't ODP capable", "-O": "The device isn't ODP capable"}
# The guest is emulated: all sizes up to 8 MB take their time, even five of each.
ALL_SIZES = (("ib_send_bw", "server"), ("ib_write_bw", "client"), ("ib_read_bw", "client"))
# How the one that asks posts: without --full only ours does it.
POSTING = {"-I", "--use_old_post_send"}
IPV6 = (("ibv_rc_pingpong",), ("ibv_uc_pingpong",), ("ibv_ud_pingpong", "-e"),
        ("ibv_srq_pingpong",), ("ib_send_bw",), ("ib_send_bw", "-c", "UD", "-s", "512"),
        ("ib_write_bw", "-q", "4", "-b"), ("ib_read_lat",), ("ib_atomic_lat",),
        ("ib_write_lat", "-c", "UC"))
LOSSY = (("ib_send_bw", "-s", "4096"), ("ib_write_bw", "-q", "4"), ("ib_read_bw", "-s", "16384"),
         ("ib_atomic_bw",), ("ib_send_lat", "-s", "5000"), ("ib_write_lat",))


@dataclasses.dataclass
class Row:
    """One run. `role` is ours; the guest has the other one."""
    case: Case
    role: str
    ip: int = 4
    loss: int = 0
    lost: int = 0

    def lacking(self):
        """What of it soft-RoCE has not, or None."""
        words = (self.case.tool, *self.case.options)
        return next((word for word in LACKING if word in words), None)

    def name(self):
        return f"{self.case.name()} {self.role} ipv{self.ip} loss {self.loss}"


def shortened(case):
    """Fewer iterations than the default."""
    given, iterations = case.options, ITERATIONS
    if case.tool == "ib_send_bw" and {"UC", "UD"} & set(given):
        # No more than buffers on the way take, since nobody sends them again.
        given += () if "-s" in given else ("-s", "512")
        iterations //= 4 if "-q" in given else 1
    return Case(case.tool, (*given, "-n", str(iterations)))


def roles(number, case, full):
    """Without --full combinations of options take turns, and each third one is left out."""
    if full or len(case.options) == 2:  # the iterations alone
        return ROLES
    if number % 3 == 2:
        return ()
    return ("client",) if POSTING & set(case.options) else (ROLES[number % 2],)


def rows(full):
    """Each tool in both roles, combinations of options, some over IPv6, and with packets lost."""
    plain = [shortened(case) for case in (*pingpong_cases(True), *perftest_cases(True, False))
             if not case.run and not {"-a", "1048576"} & set(case.options)]
    both = [Row(case, role) for number, case in enumerate(plain)
            for role in roles(number, case, full)]
    both += [Row(Case(tool, ("-a", "-n", "5")), role) for tool, role in ALL_SIZES if full]
    both += [Row(shortened(Case(tool, tuple(given))), role, ip=6)
             for number, (tool, *given) in enumerate(IPV6)
             for role in (ROLES if full else (ROLES[number % 2],))]
    both += [Row(shortened(Case(tool, tuple(given))), role, loss=LOSS_PERCENT)
             for number, (tool, *given) in enumerate(LOSSY)
             for role in (ROLES if full else (ROLES[number % 2],))]
    return [dataclasses.replace(row, case=dataclasses.replace(row.case)) for row in both]


def their_command(row, port):
    option = "-g" if row.case.tool.startswith("ibv_") else "-x"
    return " ".join((row.case.tool, "-d", "rxe0", option, str(GID_INDEX[row.ip]), "-p", str(port),
                     *row.case.options))


class Run(TwoSides):
    """Both programs of one row."""

    def __init__(self, guest, verbena, row, port):
        self.row = row
        gid = ("--ipv6",) if row.ip == 6 else ()
        if row.case.tool.startswith("ibv_"):
            gid = ("-g", "0")
        our_command = [
            "env", "-u", "VERBENA", verbena, "run", "--log", "error",
            "--address", HOST_IP if row.ip == 4 else HOST_IP6, "--", row.case.tool, "-p", port,
            *row.case.options, *gid]
        super().__init__(guest, row.role, port, our_command, their_command(row, port))

    def wait(self):
        """Returns when both have ended, or one has failed and the other had its time."""
        deadline = time.monotonic() + ROW_LIMIT_S
        failed = False
        while time.monotonic() < deadline:
            statuses = (self.ours.poll(), self.theirs.status)
            if None not in statuses:
                break
            if any(statuses) and not failed:
                failed = True
                deadline = min(deadline, time.monotonic() + GRACE_S)
            self.theirs.ended.wait(0.02) if self.theirs.running() else time.sleep(0.02)
        self.guest.check_alive()

    def finish(self):
        """Waits until both end, or one fails; returns what went wrong."""
        self.wait()
        our_status, their_status = self.ours.poll(), self.theirs.status
        if their_status is None:
            self.theirs.kill()
        ours, theirs = self.our_output(), self.theirs.output()
        if our_status != 0 or their_status != 0:
            return failure(our_status, ours, their_status, theirs)
        client, server = (ours, theirs) if self.row.role == "client" else (theirs, ours)
        problem = judge(self.row.case, client)
        if not problem and self.row.case.tool.startswith("ibv_"):
            problem = judge(self.row.case, server)
        return problem


def try_in_guest(guest, row, port):
    """Runs both programs in the guest; returns None or what the one that failed said."""
    command = their_command(row, port)
    server = guest.spawn(command)
    if guest.wait_listening(port, server):
        status, said = guest.run(f"{command} {GUEST_IP}", ROW_LIMIT_S)
        if status == 0:
            status, said = server.wait(GRACE_S), ""
        if status == 0:
            return None
    else:
        said = ""
    if server.running():
        server.kill()
    return f"{said}{server.output()}"


def run_row(guest, verbena, row, port):
    """Returns None or one line that says why the row failed."""
    with Run(guest, verbena, row, port) as run:
        if row.loss:
            guest.loss(row.loss)
        problem = run.start() or run.finish()
        if row.loss:
            row.lost = guest.losses()[1]
            guest.loss(0)
        return problem


class Table:
    """Runs rows and prints them."""

    def __init__(self, guest, verbena):
        self.guest = guest
        self.verbena = verbena
        self.port = FIRST_TCP_PORT
        self.cannot = {}  # by tool and what it lacks: what the tool said, None where it can
        self.failed = self.passed = self.impossible = self.retries = 0

    def next_port(self):
        self.port += 1
        return self.port

    def is_impossible(self, row):
        """Whether the guest cannot do it even with itself, and its tool says so."""
        lacking = row.lacking()
        if lacking is None:
            return False
        if (row.case.tool, lacking) not in self.cannot:
            said = try_in_guest(self.guest, row, self.next_port())
            self.cannot[row.case.tool, lacking] = said and LACKING[lacking] in said
        return self.cannot[row.case.tool, lacking]

    def outcome_of(self, row):
        if self.is_impossible(row):
            self.impossible += 1
            return f"rxe: no: {LACKING[row.lacking()]}"
        problem = run_row(self.guest, self.verbena, row, self.next_port())
        said = "ok"
        if problem and self.retries < RETRIES_MAX:
            self.retries += 1
            said = f"ok, after: {problem}"
            self.guest.again()
            problem = run_row(self.guest, self.verbena, row, self.next_port())
        self.failed += problem is not None
        self.passed += problem is None
        return problem or said

    def run(self, row):
        said = self.outcome_of(row)
        print(TABLE.format(
            row.case.tool, " ".join(row.case.options) or "-", row.role, f"v{row.ip}",
            row.lost if row.loss else "-", row.case.iterations, row.case.figure, said), flush=True)


def run_all(guest, verbena, chosen):
    print(TABLE.format("program", "options", "ours", "ip", "lost", "iters", "figure", "outcome"))
    table = Table(guest, verbena)
    start = time.monotonic()
    for row in chosen:
        table.run(row)
        if table.failed == FAILURES_MAX:
            break
    print(f"{table.passed} runs passed, {table.failed} failed, {table.impossible} that soft-RoCE"
          f" cannot do, in {time.monotonic() - start:.0f} s", flush=True)
    if table.failed:
        print(guest.must("rdma statistic; dmesg | tail -5"), file=sys.stderr)
        raise outcome.Failure(f"{table.failed} runs")
    lossy = [row for row in chosen if row.loss]
    if lossy and not any(row.lost for row in lossy):
        raise outcome.Failure("no packet was lost in the runs that should lose some")


def test(options):
    verbena = (options.build / "verbena").resolve()
    planned = rows(options.full)
    chosen = [row for row in planned if options.only in row.name()]
    if not chosen:
        raise outcome.Failure(f"no row has {options.only!r} in its name, as {planned[0].name()!r}")
    outcome.require(tools=("ibv_rc_pingpong", "ib_send_bw"), files=(verbena,))
    with Guest() as guest:
        run_all(guest, verbena, chosen)


if __name__ == "__main__":
    parsed = outcome.options(__doc__.splitlines()[0], full="every combination in both roles")
    outcome.run("programs_test", lambda: test(parsed), parsed.no_skip)
