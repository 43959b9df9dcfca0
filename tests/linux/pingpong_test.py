#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Linux as the peer: our rc_pingpong against ibv_rc_pingpong on the kernel's soft-RoCE.

Each case is one run of both programs, in one of both roles; a table of them goes to stdout. Times
are information, never judged.
Host packages: qemu-system-x86, iproute2, apt, binutils, cpio. Needs root and /dev/net/tun.
"""

import dataclasses
import math
import re
import sys
import time

import outcome
from guest import HOST_IP, HOST_IP6, Guest
from two_sides import TwoSides, failure

SIZES = (1, 64, 1000, 1024, 4096, 5000, 65536)
MTUS = (1024, 4096)
ITERATIONS = 500
ITERATIONS_LONG = 2000
FIRST_TCP_PORT = 18515
CASE_LIMIT_S = 30
FAILURES_MAX = 5
RETRIES_MAX = 3  # cases that may have a second try
LOSS_PERCENT = 1
SIGNAL_EVERY = 64  # messages: most completions are not asked for
# Each is (size, MTU, iterations, iterations to run while packets are being lost).
LOSSY = ((64, 1024, 2000, 500), (5000, 1024, 2000, 500), (65536, 4096, 1000, 500))
SIZES_IPV6 = (1, 64, 5000, 65536)
ROLES = ("server", "client")
GID_INDEX = {4: 1, 6: 2}  # of the guest's addresses
TABLE = "{:<7} {:<4} {:>6} {:>5} {:>5} {:>6} {:>8} {:>8}  {}"


@dataclasses.dataclass
class Case:
    """One run. `role` is ours; the guest has the other one."""
    role: str
    size: int
    mtu: int
    iterations: int
    lossy_iterations: int = 0
    ip: int = 4
    signal_every: int = 1
    usec_per_iteration: str = "-"
    packets_lost: int = 0

    def loss_percent(self):
        return LOSS_PERCENT if self.lossy_iterations else 0

    def name(self):
        return (f"{self.role} ipv{self.ip} size {self.size} mtu {self.mtu}"
                f" loss {self.loss_percent()}"
                + (f" signaled 1/{self.signal_every}" if self.signal_every > 1 else ""))


def cases(full):
    """Both roles; over the whole range of sizes they take turns without --full."""
    def roles(number):
        return ROLES if full else (ROLES[number % 2],)
    sizes = [(size, mtu) for mtu in MTUS for size in SIZES]
    matrix = [Case(role, size, mtu, ITERATIONS)
              for number, (size, mtu) in enumerate(sizes) for role in roles(number)]
    matrix += [Case(role, 64, 4096, ITERATIONS_LONG) for role in ROLES]
    matrix += [Case(role, *lossy) for lossy in LOSSY for role in ROLES]
    sizes = [(size, mtu) for mtu in MTUS for size in SIZES_IPV6]
    matrix += [Case(role, size, mtu, ITERATIONS, ip=6)
               for number, (size, mtu) in enumerate(sizes) for role in roles(number)]
    matrix += [Case(role, *LOSSY[1], ip=6) for role in ROLES]
    # Soft-RoCE acknowledges only what asks for it.
    matrix += [Case(role, 64, 1024, ITERATIONS_LONG, signal_every=SIGNAL_EVERY)
               for role in ROLES]
    matrix += [Case(role, *LOSSY[1], signal_every=SIGNAL_EVERY) for role in ROLES]
    return matrix


class Run(TwoSides):
    """Both programs of one case."""

    def __init__(self, guest, tool, case, port):
        self.case = case
        our_command = [
            tool, "--local", HOST_IP, "--tcp-port", port, "--size", case.size, "--iters",
            case.iterations, "--mtu", case.mtu, "--check", "--seconds-limit", CASE_LIMIT_S,
            "--nic", HOST_IP if case.ip == 4 else HOST_IP6,
            "--signal-every", case.signal_every]
        their_command = (
            f"ibv_rc_pingpong -d rxe0 -g {GID_INDEX[case.ip]} -c -p {port} -s {case.size}"
            f" -n {case.iterations} -m {case.mtu}")
        super().__init__(guest, case.role, port, our_command, their_command)

    def is_decided(self):
        statuses = (self.ours.poll(), self.theirs.status)
        return None not in statuses or any(statuses)

    def lose_packets(self):
        """Loses packets until as many have passed as the lossy iterations need, then heals: a run's
        last acknowledgement must arrive, since ibv_rc_pingpong does not wait for its peer."""
        packets_per_message = math.ceil(self.case.size / self.case.mtu)
        enough = 2 * self.case.lossy_iterations * (packets_per_message + 1)
        seen, lost = self.guest.losses()
        while seen < enough and self.ours.poll() is None and self.theirs.running():
            seen, lost = self.guest.losses()
        self.guest.loss(0)
        self.case.packets_lost = lost

    def finish(self):
        """Waits until both end, or one fails; returns what went wrong."""
        deadline = time.monotonic() + CASE_LIMIT_S + 1
        while time.monotonic() < deadline and not self.is_decided():
            self.theirs.ended.wait(0.05)
        self.guest.check_alive()
        their_status, their_output = self.theirs.status, self.theirs.output()
        our_status = self.ours.poll()
        our_output = self.our_output()
        if our_status == 0 and their_status == 0:
            speed = re.search(r"iters in .* = ([0-9.]+) usec/iter", their_output)
            self.case.usec_per_iteration = speed.group(1) if speed else "?"
            return "the guest found invalid data" if "invalid data" in their_output else None
        return failure(our_status, our_output, their_status, their_output)


def run_case(guest, tool, case, port):
    """Returns None or one line that says why the case failed."""
    with Run(guest, tool, case, port) as run:
        if case.lossy_iterations:
            guest.loss(LOSS_PERCENT)
        problem = run.start()
        if case.lossy_iterations:
            if not problem:
                run.lose_packets()
            guest.loss(0)
        return problem or run.finish()


def run_all(guest, tool, chosen):
    print(TABLE.format("role", "ip", "size", "mtu", "loss", "lost", "iters", "us/iter", "result"))
    failed = retries = 0
    for index, case in enumerate(chosen):
        problem = run_case(guest, tool, case, FIRST_TCP_PORT + index)
        said = "ok"
        if problem and retries < RETRIES_MAX:
            retries += 1
            said = f"ok, after: {problem}"
            guest.again()
            problem = run_case(guest, tool, case, FIRST_TCP_PORT + index)
        failed += problem is not None
        print(TABLE.format(
            case.role, f"v{case.ip}", case.size, case.mtu, f"{case.loss_percent()} %", case.packets_lost,
            case.iterations, case.usec_per_iteration, problem or said), flush=True)
        if failed == FAILURES_MAX:
            break
    if failed:
        print(guest.must("rdma statistic; dmesg | tail -5"), file=sys.stderr)
        raise outcome.Failure(f"{failed} of {index + 1} cases, {len(chosen)} planned")
    lossy = [case for case in chosen if case.lossy_iterations]
    if lossy and not any(case.packets_lost for case in lossy):
        raise outcome.Failure("no packet was lost in the runs that should lose some")
    print(f"{len(chosen)} of {len(chosen)} cases passed")


def test(options):
    tool = (options.build / "tests" / "rc_pingpong").resolve()
    planned = cases(options.full)
    chosen = [case for case in planned if options.only in case.name()]
    if not chosen:
        raise outcome.Failure(f"no case has {options.only!r} in its name, as {planned[0].name()!r}")
    outcome.require(files=(tool,))
    with Guest() as guest:
        run_all(guest, tool, chosen)


if __name__ == "__main__":
    parsed = outcome.options(__doc__.splitlines()[0], full="every size in both roles")
    outcome.run("pingpong_test", lambda: test(parsed), parsed.no_skip)
