# SPDX-License-Identifier: Apache-2.0
"""Our rc_pingpong, every size and MTU, against ibv_rc_pingpong on the kernel's soft-RoCE."""

import dataclasses
import math
import re

import table
from guest import GUEST_IP, HOST_IP, HOST_IP6
from sides import LIMIT_S, Pair
from table import GID_INDEX, LOSS_PERCENT, ROLES

SIZES = (1, 64, 1000, 1024, 4096, 5000, 65536)
MTUS = (1024, 4096)
ITERATIONS = 500
ITERATIONS_LONG = 2000
SIGNAL_EVERY = 64  # messages: most completions are not asked for
# Each is (size, MTU, iterations, iterations to run while packets are being lost).
LOSSY = ((64, 1024, 2000, 500), (5000, 1024, 2000, 500), (65536, 4096, 1000, 500))
SIZES_IPV6 = (1, 64, 5000, 65536)


@dataclasses.dataclass
class PingPong(table.Row):
    size: int
    mtu: int
    iterations: int
    lossy_iterations: int = 0
    signal_every: int = 1

    def __post_init__(self):
        self.loss = LOSS_PERCENT if self.lossy_iterations else 0

    def name(self):
        return (f"rc_pingpong size {self.size} mtu {self.mtu}"
                + (f" signaled 1/{self.signal_every}" if self.signal_every > 1 else ""))

    def run(self, guest, build, port):
        peer = {"server": (), "client": (GUEST_IP,)}[self.role]
        ours = [build / "tests/rc_pingpong", "--local", HOST_IP, "--tcp-port", port, "--size",
                self.size, "--iters", self.iterations, "--mtu", self.mtu, "--check",
                "--seconds-limit", LIMIT_S, "--nic", HOST_IP if self.ip == 4 else HOST_IP6,
                "--signal-every", self.signal_every, *peer]
        theirs = ["ibv_rc_pingpong -d rxe0 -c -g", GID_INDEX[self.ip], "-p", port, "-s", self.size,
                  "-n", self.iterations, "-m", self.mtu, *(() if peer else (HOST_IP,))]
        pair = Pair(guest, self.role, ours, theirs)
        problem = pair.run(port, (lambda running: self.lose_packets(guest, running))
                           if self.loss else None)
        their_words = pair.client_said if self.role == "server" else pair.server_said
        speed = re.search(r"iters in .* = ([0-9.]+) usec/iter", their_words)
        self.figure = f"{speed[1]} us" if speed else "-"
        if not problem and "invalid data" in their_words:
            return "the guest found invalid data"
        return problem

    def lose_packets(self, guest, running):
        """Loses packets until as many have passed as the lossy iterations need, then heals: a run's
        last acknowledgement must arrive, since ibv_rc_pingpong does not wait for its peer."""
        enough = 2 * self.lossy_iterations * (math.ceil(self.size / self.mtu) + 1)
        guest.loss(self.loss)
        seen = 0
        while seen < enough and running():
            seen, self.lost = guest.losses()
        guest.loss(0)


def short():
    """Each way once: lost packets, IPv6 with many packets to a message, few completions."""
    return [PingPong(5000, 1024, 1000, 300, role="server"),
            PingPong(65536, 4096, 100, role="client", ip=6),
            PingPong(64, 1024, ITERATIONS, signal_every=SIGNAL_EVERY, role="client")]


def full():
    return [row for role in ROLES for row in (
        *(PingPong(size, mtu, ITERATIONS, role=role) for mtu in MTUS for size in SIZES),
        PingPong(64, 4096, ITERATIONS_LONG, role=role),
        *(PingPong(*lossy, role=role) for lossy in LOSSY),
        *(PingPong(size, mtu, ITERATIONS, role=role, ip=6) for mtu in MTUS for size in SIZES_IPV6),
        PingPong(*LOSSY[1], role=role, ip=6),
        # Soft-RoCE acknowledges only what asks for it.
        PingPong(64, 1024, ITERATIONS_LONG, signal_every=SIGNAL_EVERY, role=role),
        PingPong(*LOSSY[1], signal_every=SIGNAL_EVERY, role=role))]
