# SPDX-License-Identifier: Apache-2.0
"""Debian's rdmacm-utils and perftest (-R), unmodified, here under `verbena run` and in the guest on
the kernel's rdma_cm. The exit status of both and what the client says in the end are judged.
"""

import dataclasses
import re

import judge
import table
from guest import GUEST_IP, GUEST_IP6, HOST_IP, HOST_IP6
from programs import ANY_CLOCK, FIGURES
from sides import LIMIT_S, Ours, Pair
from table import LOSS_PERCENT, ROLES

DONE = r"return status 0"
RATE = r"^custom( +\S+){4} +[\d.]+s +[\d.]+ +[\d.]+$"  # of rstream
RACES_MAX = 12


@dataclasses.dataclass
class Race:
    """Of a tool with itself: how its clients fail then, and why."""
    pattern: str
    name: str
    by_loss: bool = False  # only where packets are lost

    def is_lost(self, problem, loss):
        return (loss or not self.by_loss) and re.search(self.pattern, problem, re.S)


# perftest makes a second connection as soon as the first one stands; nothing tells its client that
# the server listens again, and an emulated server is slow. These are the answers if it does not.
AGAIN = Race(r"Event: RDMA_CM_EVENT_(REJECTED; error: 8|UNREACHABLE; error: 1)\.",
             "perftest -R connects again before its server listens again")
# Nothing acknowledges the answer to a look-up of a datagram service, so if it gets lost the client
# asks again. By then the server of udaddy may have ended, with success: nobody is there any more.
GONE = Race(r"RDMA_CM_EVENT_UNREACHABLE, error: .*; server: \w+: status 0",
            "udaddy's server ends before its client has its answer", by_loss=True)


@dataclasses.dataclass
class Tool:
    server: str  # {a}: the server's address, {p}: the port
    client: str
    says: str = ""  # the client, as a pattern
    families: tuple = (4, 6)
    lossy: bool = False  # is run with packets lost, too: nothing is lost for good
    race: Race = None


def pair(server, client, options="", says="", lossy=False, race=None):
    return Tool(f"{server} {options}", f"{client} {options}", says, lossy=lossy, race=race)


def perftest(tool, options, lossy=False):
    words = f"{tool} -R {ANY_CLOCK} {options} -n 500 -p {{p}}"
    return Tool(words, words + " {a}", FIGURES, families=(4,), lossy=lossy, race=AGAIN)


RPING = ("rping -s -V -a {a} -p {p}", "rping -c -V -a {a} -p {p}")
UCMATOSE = ("ucmatose -b {a} -p {p}", "ucmatose -s {a} -p {p}")
UDADDY = ("udaddy -b {a}", "udaddy -s {a}")  # on port 7174, always
RSTREAM = ("rstream -b {a} -p {p}", "rstream -s {a} -p {p}")
TOOLS = (
    pair(*RPING, "-v -C 100", "ping-99: ", lossy=True),
    pair(*RPING, "-C 20 -S 65000", lossy=True),
    pair(*UCMATOSE, says=DONE),
    pair(*UCMATOSE, "-c 20 -C 50 -S 3000", DONE, lossy=True),
    pair(*UDADDY, says=DONE),
    pair(*UDADDY, "-c 4 -C 0", DONE, lossy=True, race=GONE),  # no messages, which could be lost
    pair("rdma_server -s {a} -p {p}", "rdma_client -s {a} -p {p}", says="rdma_client: end 0"),
    pair(*RSTREAM, "-S 5000 -C 200 -T v", RATE, lossy=True),
    pair(*RSTREAM, "-S 1048576 -C 10 -T n", RATE),
    perftest("ib_send_bw", "-s 4096", lossy=True),
    perftest("ib_write_bw", "-q 2", lossy=True),
    perftest("ib_read_lat", ""),
    perftest("ib_atomic_bw", "", lossy=True),
    perftest("ib_send_lat", "-c UD"),
)
# Each program once, and of roles, families and loss some each: (tool, role, ip, loss). With us as its
# server perftest hardly ever races itself.
SHORT = ((0, "server", 6, 0), (3, "client", 4, 1), (4, "server", 6, 0), (6, "client", 6, 0),
         (7, "client", 4, 1), (9, "server", 4, 0))


@dataclasses.dataclass
class Connected(table.Row):
    tool: Tool

    def name(self):
        return " ".join(re.sub(r" -[abps] {[ap]}| {a}", "", self.tool.client).split())

    def run(self, guest, build, port):
        if self.loss:
            guest.loss(self.loss)
        try:
            race = self.tool.race
            for _ in range(RACES_MAX if race else 1):
                problem = self.run_both(guest, build, port)
                if not problem or not race or not race.is_lost(problem, self.loss):
                    break
                judge.tried(race.name)
            return problem
        finally:
            if self.loss:
                self.lost = guest.losses()[1]
                guest.loss(0)

    def run_both(self, guest, build, port):
        own, other = (HOST_IP, GUEST_IP) if self.ip == 4 else (HOST_IP6, GUEST_IP6)
        address = own if self.role == "server" else other
        server, client = (words.format(a=address, p=port).split()
                          for words in (self.tool.server, self.tool.client))
        ours, theirs = (server, client) if self.role == "server" else (client, server)
        both = Pair(guest, self.role, [*under_us(build, own), *ours], theirs)
        problem = both.run(None)
        if problem or re.search(self.tool.says, both.client_said, re.M):
            return problem
        return f"'{self.tool.says}' was not said: {both.client_said[-200:]}"


def under_us(build, address):
    return ["env", "-u", "VERBENA", build / "verbena", "run", "--log", "info", "--address", address,
            "--"]


def short():
    return [Connected(TOOLS[number], role=role, ip=ip, loss=loss * LOSS_PERCENT)
            for number, role, ip, loss in SHORT]


def full():
    """Every program in both roles, over both families, and with packets lost."""
    rows = [Connected(tool, role=role, ip=ip)
            for ip in (4, 6) for tool in TOOLS if ip in tool.families for role in ROLES]
    return rows + [Connected(tool, role=role, loss=LOSS_PERCENT)
                   for tool in TOOLS if tool.lossy for role in ROLES]


def judge_refusals(guest, build, port):
    """The negative twins: nobody listens there, on either side."""
    status, output = guest.exec(
        [*under_us(build, HOST_IP), "rping", "-c", "-a", GUEST_IP, "-p", port], LIMIT_S)
    if status == 0 or "RDMA_CM_EVENT_REJECTED" not in output:
        raise judge.Failure(f"a guest that does not listen: status {status}: {output.strip()}")
    server = Ours(guest, [*under_us(build, HOST_IP), *TOOLS[0].server.format(
        a=HOST_IP, p=port).split()])
    try:
        server.listens(None)
        status, output = guest.run(f"rping -c -a {HOST_IP} -p {port + 1}", LIMIT_S)
    finally:
        server.end()
    if status == 0 or "RDMA_CM_EVENT_REJECTED" not in output:
        raise judge.Failure(f"we do not listen there: status {status}: {output.strip()}")
    print("where nobody listens: refused, by the guest and by us", flush=True)
