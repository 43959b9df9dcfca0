#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Linux as the peer of unmodified rdma_cm programs: Debian's rdmacm-utils and perftest (-R) in a
guest on the kernel's rdma_cm and soft-RoCE, and the same programs here under `verbena run`.

Each row is one run of a program with itself, in one of both roles; the exit status of both and what
the client says in the end are judged, and one table goes to stdout. Then cmtime in the guest with
itself, for scale: times are information, never judged.
Host packages: as pingpong_test.py, and rdmacm-utils, perftest. Needs root and /dev/net/tun.
"""

import dataclasses
import re
import subprocess
import tempfile
import time

import outcome
from guest import GUEST_IP, GUEST_IP6, HOST_IP, HOST_IP6, Guest

FIRST_PORT = 7200
ROW_LIMIT_S = 60
GRACE_S = 3  # for the other side of one that failed
RETRIES_MAX = 3  # rows that may have a second try: the guest is emulated
LOSS_PERCENT = 1
ROLES = ("server", "client")
TABLE = "{:<44} {:<7} {:<3} {:>4} {:>5}  {}"
LISTENS = r"rdma_listen: "  # the log of `verbena run`
DONE = r"return status 0"
# perftest makes a second connection as soon as the first one stands; nothing tells its client that
# the server listens again, and an emulated server is slow. These are the answers if it does not.
RACE = r"Event: RDMA_CM_EVENT_(REJECTED; error: 8|UNREACHABLE; error: 1)\."
RACES_MAX = 5
FIGURES = r"^\s*\d+\s+\d+(\s+[\d.]+){3}"  # of perftest
RATE = r"^custom( +\S+){4} +[\d.]+s +[\d.]+ +[\d.]+$"  # of rstream


@dataclasses.dataclass
class Program:
    server: str  # {a}: the server's address, {p}: the port
    client: str
    says: str = ""  # the client, as a pattern
    families: tuple = (4, 6)
    lossy: bool = False  # is run with packets lost, too: nothing is lost for good
    races: bool = False

    def words(self, role, address, port):
        return (self.server if role == "server" else self.client).format(a=address, p=port)


def pair(server, client, options="", says="", lossy=False):
    return Program(f"{server} {options}", f"{client} {options}", says, lossy=lossy)


def perftest(tool, options, lossy=False):
    words = f"{tool} -R {options} -n 500 -p {{p}}"
    return Program(words, words + " {a}", FIGURES, families=(4,), lossy=lossy, races=True)


RPING = ("rping -s -V -a {a} -p {p}", "rping -c -V -a {a} -p {p}")
UCMATOSE = ("ucmatose -b {a} -p {p}", "ucmatose -s {a} -p {p}")
UDADDY = ("udaddy -b {a}", "udaddy -s {a}")  # on port 7174, always
RSTREAM = ("rstream -b {a} -p {p}", "rstream -s {a} -p {p}")
PROGRAMS = (
    pair(*RPING, "-v -C 100", "ping-99: ", lossy=True),
    pair(*RPING, "-C 20 -S 65000", lossy=True),
    pair(*UCMATOSE, says=DONE),
    pair(*UCMATOSE, "-c 20 -C 50 -S 3000", DONE, lossy=True),
    pair(*UDADDY, says=DONE),
    pair(*UDADDY, "-c 4 -C 0", DONE, lossy=True),  # no messages, which could be lost
    pair("rdma_server -s {a} -p {p}", "rdma_client -s {a} -p {p}", says="rdma_client: end 0"),
    pair(*RSTREAM, "-S 5000 -C 200 -T v", RATE, lossy=True),
    pair(*RSTREAM, "-S 1048576 -C 10 -T n", RATE),
    perftest("ib_send_bw", "-s 4096", lossy=True),
    perftest("ib_write_bw", "-q 2", lossy=True),
    perftest("ib_read_lat", ""),
    perftest("ib_atomic_bw", "", lossy=True),
    perftest("ib_send_lat", "-c UD"),
)


@dataclasses.dataclass
class Row:
    """One run. `role` is ours; the guest has the other one."""
    program: Program
    role: str
    ip: int = 4
    loss: int = 0
    lost: int = 0

    def address(self):
        """The server's."""
        ours, theirs = (HOST_IP, GUEST_IP) if self.ip == 4 else (HOST_IP6, GUEST_IP6)
        return ours if self.role == "server" else theirs

    def name(self):
        return f"{self.program.client} {self.role} ipv{self.ip} loss {self.loss}"


def rows(full):
    """Every program in both roles; over IPv6 and with loss they take turns without --full."""
    def roles(number):
        return ROLES if full else (ROLES[number % 2],)
    plain = [Row(program, role) for program in PROGRAMS for role in ROLES if 4 in program.families]
    return plain + [Row(program, role, 6) for number, program in enumerate(PROGRAMS)
                    for role in roles(number) if 6 in program.families] + [
                        Row(program, role, loss=LOSS_PERCENT)
                        for number, program in enumerate(PROGRAMS)
                        for role in roles(number + 1) if program.lossy]


class Ours:
    """Our program, whose words go to a file that can be read while it runs."""

    def __init__(self, guest, verbena, row, port):
        self.guest = guest
        self.file = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self.process = guest.popen(
            ["env", "-u", "VERBENA", verbena, "run", "--log", "info",
             "--address", HOST_IP if row.ip == 4 else HOST_IP6, "--",
             *row.program.words(row.role, row.address(), port).split()],
            stdout=self.file, stderr=subprocess.STDOUT)

    def output(self):
        self.file.seek(0)
        return self.file.read()

    def status(self):
        return self.process.poll()

    def wait(self, limit_s):
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            pass

    def wait_listening(self):
        deadline = time.monotonic() + ROW_LIMIT_S
        while not re.search(LISTENS, self.output()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def end(self):
        self.guest.namespace.forget(self.process)
        self.file.close()


class Theirs:
    """The same program in the guest."""

    def __init__(self, guest, row, port):
        self.guest = guest
        role = "client" if row.role == "server" else "server"
        self.job = guest.spawn(row.program.words(role, row.address(), port))

    def output(self):
        return self.job.output()

    def status(self):
        return self.job.status

    def wait(self, limit_s):
        self.job.wait(limit_s)

    def wait_listening(self):
        """No tool says that it listens: the kernel's table of connections does."""
        probe = self.guest.spawn(
            "until rdma resource show cm_id 2>/dev/null | grep -q LISTEN; do usleep 20000; done")
        deadline = time.monotonic() + ROW_LIMIT_S
        while probe.running() and self.job.running() and time.monotonic() < deadline:
            probe.ended.wait(0.05)
        if probe.running():
            probe.kill()
        return probe.status == 0

    def end(self):
        if self.job.running():
            self.job.kill()


def last_lines(text):
    lines = [line.strip() for line in text.splitlines()
             if line.strip(" -*") and not line.startswith("ERRNO")]
    return " | ".join(lines[-5:]) or "no output"


def verdict(who, side):
    status = side.status()
    ended = "still running" if status is None else f"status {status}"
    return f"{who}: {ended}: {last_lines(side.output())}"


def run_sides(server, start_client, row):
    """Returns None or what went wrong."""
    if not server.wait_listening():
        return "does not listen: " + verdict("server", server)
    client = start_client()
    try:
        client.wait(ROW_LIMIT_S)
        server.wait(ROW_LIMIT_S if client.status() == 0 else GRACE_S)
        if client.status() != 0 or server.status() != 0:
            return f"{verdict('client', client)}; {verdict('server', server)}"
        if not re.search(row.program.says, client.output(), re.M):
            return f"'{row.program.says}' was not said: {last_lines(client.output())}"
        return None
    finally:
        client.end()


def run_row(guest, verbena, row, port):
    """Returns None or one line that says why the row failed."""
    if row.loss:
        guest.loss(row.loss)
    makers = [lambda: Ours(guest, verbena, row, port), lambda: Theirs(guest, row, port)]
    if row.role == "client":
        makers.reverse()
    server = makers[0]()
    try:
        return run_sides(server, makers[1], row)
    finally:
        server.end()
        if row.loss:
            row.lost = guest.losses()[1]
            guest.loss(0)


class Table:
    """Runs rows and prints them."""

    def __init__(self, guest, verbena):
        self.guest = guest
        self.verbena = verbena
        self.port = FIRST_PORT
        self.failed = self.retries = 0

    def attempt(self, row):
        """Runs a row, again if the program's own two sides were at odds."""
        for _ in range(RACES_MAX):
            self.port += 1
            problem = run_row(self.guest, self.verbena, row, self.port)
            if not problem or not row.program.races or not re.search(RACE, problem):
                break
        return problem

    def run(self, row):
        start, said = time.monotonic(), "ok"
        problem = self.attempt(row)
        if problem and self.retries < RETRIES_MAX:
            self.retries += 1
            said = f"ok, after: {problem}"
            self.guest.again()
            problem = self.attempt(row)
        self.failed += problem is not None
        words = " ".join(re.sub(r" -[abps] {[ap]}| {a}", "", row.program.client).split())
        print(TABLE.format(words, row.role, f"v{row.ip}", row.lost if row.loss else "-",
                           f"{time.monotonic() - start:.1f}", problem or said), flush=True)


def run_all(guest, verbena, chosen):
    """Runs the rows and returns how many failed."""
    print(TABLE.format("program", "ours", "ip", "lost", "s", "outcome"), flush=True)
    table = Table(guest, verbena)
    for row in chosen:
        table.run(row)
    return table.failed


def judge_refusals(guest, verbena):
    """The negative twins: nobody listens there, on either side."""
    status, output = guest.exec(["env", "-u", "VERBENA", verbena, "run", "--address", HOST_IP, "--",
                                 "rping", "-c", "-a", GUEST_IP, "-p", FIRST_PORT], ROW_LIMIT_S)
    if status == 0 or "RDMA_CM_EVENT_REJECTED" not in output:
        raise outcome.Failure(f"a guest that does not listen: status {status}: {output.strip()}")
    server = Ours(guest, verbena, Row(PROGRAMS[0], "server"), FIRST_PORT)
    try:
        server.wait_listening()
        status, output = guest.run(f"rping -c -a {HOST_IP} -p {FIRST_PORT - 1}", ROW_LIMIT_S)
    finally:
        server.end()
    if status == 0 or "RDMA_CM_EVENT_REJECTED" not in output:
        raise outcome.Failure(f"we do not listen there: status {status}: {output.strip()}")
    print("where nobody listens: refused, by the guest and by us")


def show_scale(guest):
    """How long the guest's own connections take, to itself."""
    server = guest.spawn(f"cmtime -b {GUEST_IP}")
    time.sleep(1)
    status, output = guest.run(f"cmtime -s {GUEST_IP}", ROW_LIMIT_S)
    server.kill()
    print(f"cmtime in the guest with itself (status {status}):\n{output.strip()}")


def test(options):
    verbena = (options.build / "verbena").resolve()
    planned = rows(options.full)
    chosen = [row for row in planned if options.only in row.name()]
    if not chosen:
        raise outcome.Failure(f"no row has {options.only!r} in its name, as {planned[0].name()!r}")
    library = verbena.parent / "lib/verbena/librdmacm.so.1"
    outcome.require(tools=("rping", "ib_send_bw"), files=(verbena, library))
    with Guest() as guest:
        failed = run_all(guest, verbena, chosen)
        judge_refusals(guest, verbena)
        show_scale(guest)
    if failed:
        raise outcome.Failure(f"{failed} of {len(chosen)} rows")
    lossy = [row for row in chosen if row.loss]
    if lossy and not any(row.lost for row in lossy):
        raise outcome.Failure("no packet was lost in the runs that should lose some")
    print(f"{len(chosen)} of {len(chosen)} rows passed")


if __name__ == "__main__":
    parsed = outcome.options(__doc__.splitlines()[0], full="everything in both roles")
    outcome.run("cm_programs_test", lambda: test(parsed), parsed.no_skip)
