# SPDX-License-Identifier: Apache-2.0
"""Debian's ibverbs-utils and perftest, unmodified, here under `verbena run` and in the guest. Exit
status and result line of both are judged. What soft-RoCE cannot do is tried in the guest alone, and
shown with the words of the tool.
"""

import dataclasses

import programs
import table
from guest import GUEST_IP, HOST_IP, HOST_IP6
from sides import LIMIT_S, Pair
from table import GID_INDEX, LOSS_PERCENT, ROLES

# Nobody sends a datagram again: fewer than the receives that perftest has posted (512), and no more
# than buffers on the way take.
ITERATIONS = 500
# 4 us * 2^16 = 0.3 s, seven times: an emulated guest can be late.
QP_TIMEOUT = 16
# What Debian 12's soft-RoCE has not, and the words of the tools for it.
LACKING = {"XRC": "Error opening XRC domain", "ibv_xsrq_pingpong": "Couldn't Open the XRC Domain",
           "-t": "The device isn't completion timestamp capable",
           "-o": "The device isn't ODP capable", "-O": "The device isn't ODP capable"}
# The guest is emulated: all sizes up to 8 MB take their time, even five of each.
ALL_SIZES = (("ib_send_bw", "server"), ("ib_write_bw", "client"), ("ib_read_bw", "client"))
IPV6 = ("ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong -e", "ibv_srq_pingpong",
        "ib_send_bw", "ib_send_bw -c UD -s 512", "ib_write_bw -q 4 -b", "ib_read_lat",
        "ib_atomic_lat", "ib_write_lat -c UC")
LOSSY = ("ib_send_bw -s 4096", "ib_write_bw -q 4", "ib_read_bw -s 16384", "ib_atomic_bw",
         "ib_send_lat -s 5000", "ib_write_lat")
# Each tool, service and role once, some over IPv6 and some with packets lost.
SHORT = (("ibv_rc_pingpong -c", "client", 6, 0), ("ibv_uc_pingpong", "server", 4, 0),
         ("ibv_ud_pingpong -e", "client", 4, 0), ("ibv_srq_pingpong -e", "server", 6, 0),
         ("ib_send_bw -s 4096", "server", 4, 1), ("ib_send_bw -c UC -n 200", "client", 4, 0),
         ("ib_send_bw -c UD -n 200", "server", 6, 0), ("ib_write_bw -q 4 -b -s 8192", "client", 6, 0),
         ("ib_read_bw -s 16384", "client", 4, 1), ("ib_atomic_bw", "server", 4, 1),
         ("ib_send_lat -s 5000", "client", 4, 1), ("ib_write_lat -c UC", "server", 4, 0),
         ("ib_read_lat", "server", 6, 0), ("ib_atomic_lat -A CMP_AND_SWAP", "client", 4, 0))
CANNOT = {}  # by tool and what it lacks: whether soft-RoCE cannot do it with itself


@dataclasses.dataclass
class Program(table.Row):
    tool: str
    given: tuple

    def name(self):
        return " ".join((self.tool, *self.given))

    def case(self):
        return programs.Case(self.tool, self.given)

    def lacking(self):
        """What of it soft-RoCE has not, or None."""
        return next((word for word in LACKING if word in (self.tool, *self.given)), None)

    def run(self, guest, build, port):
        lacking = self.lacking()
        if lacking:
            key = self.tool, lacking
            if key not in CANNOT:
                said = self.try_in_guest(guest, port)
                CANNOT[key] = said is not None and LACKING[lacking] in said
            if CANNOT[key]:
                self.impossible = LACKING[lacking]
                return None
        if self.loss:
            guest.loss(self.loss)
        try:
            return self.run_both(guest, build, port)
        finally:
            if self.loss:
                self.lost = guest.losses()[1]
                guest.loss(0)

    def run_both(self, guest, build, port):
        peer = {"server": (), "client": (GUEST_IP,)}[self.role]
        gid = ("--ipv6",) if self.ip == 6 else ()
        if self.tool.startswith("ibv_"):
            gid = ("-g", "0")
        ours = ["env", "-u", "VERBENA", build / "verbena", "run", "--log", "error", "--address",
                HOST_IP if self.ip == 4 else HOST_IP6, "--", *self.case().command(port), *gid,
                *peer]
        pair = Pair(guest, self.role, ours,
                    (*self.their_words(port), *(() if peer else (HOST_IP,))))
        problem = pair.run(port)
        if problem:
            return problem
        case = self.case()
        problem = programs.problem_of(case, pair.client_said)
        if not problem and self.tool.startswith("ibv_"):
            problem = programs.problem_of(case, pair.server_said)
        self.figure = case.figure
        return problem

    def their_words(self, port):
        option = "-g" if self.tool.startswith("ibv_") else "-x"
        return (*self.case().command(port), "-d", "rxe0", option, GID_INDEX[self.ip])

    def try_in_guest(self, guest, port):
        """Runs both programs in the guest; returns None or what the one that failed said."""
        command = " ".join(map(str, self.their_words(port)))
        server = guest.spawn(command)
        said = ""
        if guest.wait_listening(port, server, LIMIT_S):
            status, said = guest.run(f"{command} {GUEST_IP}", LIMIT_S)
            if status == 0 and server.wait(LIMIT_S) == 0:
                return None
        if server.running():
            server.kill()
        return f"{said}{server.output()}"


def program(tool, *given, **more):
    """With fewer iterations than the default."""
    reliable = not {"UC", "UD"} & set(given)
    iterations = ITERATIONS
    if tool == "ib_send_bw" and not reliable:
        given += () if "-s" in given else ("-s", "512")
        iterations //= 4 if "-q" in given else 1
    if tool.startswith("ib_") and reliable and not more.get("loss"):
        given += ("-u", str(QP_TIMEOUT))
    if "-n" not in given:
        given += ("-n", str(iterations))
    return Program(tool, given, **more)


def short():
    return [program(*words.split(), role=role, ip=ip, loss=loss * LOSS_PERCENT)
            for words, role, ip, loss in SHORT]


def full():
    """Every combination of options in both roles."""
    plain = [case for case in (*programs.pingpong_cases(True), *programs.perftest_cases(True, False))
             if not case.run and not {"-a", "1048576"} & set(case.options)]
    rows = [program(case.tool, *case.options, role=role) for case in plain for role in ROLES]
    rows += [Program(tool, ("-a", "-n", "5"), role=role) for tool, role in ALL_SIZES]
    rows += [program(*words.split(), role=role, ip=6) for words in IPV6 for role in ROLES]
    return rows + [program(*words.split(), role=role, loss=LOSS_PERCENT)
                   for words in LOSSY for role in ROLES]
