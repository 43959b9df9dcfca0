#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Attributes of paths on the packets, as a link shows them: traffic class, hop limit, flow label, and
the service level as the priority that queues and VLANs follow. Of programs that use verbs (tests/verbs/path.c) over
IPv4 and IPv6, and of both sides of a connection by rdma_cm with a type of service (ucmatose) or a
path that the program gave (tests/verbs/cm_path.c).

Host packages: iproute2, nftables, rdmacm-utils.
"""

import contextlib
import json
import os
import pathlib
import socket
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import judge  # noqa: E402

LIMIT_S = 60
ROCE_PORT = 4791
ETH_P_ALL, ETH_P_IP, ETH_P_IPV6 = 3, 0x0800, 0x86dd
PACKETS = 40
ECT0 = 2
PRIORITIES = range(7)
# Our address and that of a neighbour that nobody is.
ENDS = {"v4": ("10.79.0.1", "10.79.0.2"), "v6": ("fd00:79::1", "fd00:79::2")}
# Counts packets of RoCE by their priority.
RULES = """table inet seen {{
    chain out {{
        type filter hook output priority 0
{}
    }}
}}
""".format("\n".join(f"        udp dport {ROCE_PORT} meta priority 0:{n} counter" for n in PRIORITIES))


def prepare():
    """The far end of the link is only looked at."""
    for _, peer in ENDS.values():
        judge.ip("neigh", "add", peer, "lladdr", "02:00:00:00:00:99", "dev", "eth0")
    nft("-f", "-", given=RULES)


def nft(*words, given=None):
    return subprocess.run(["nft", *words], input=given, check=True, timeout=LIMIT_S, text=True,
                          stdout=subprocess.PIPE).stdout


def priorities():
    """How many packets had which priority since the last look."""
    listed = json.loads(nft("-j", "list", "table", "inet", "seen"))
    nft("-f", "-", given="flush table inet seen\n" + RULES)
    counts = [part["counter"]["packets"] for entry in listed["nftables"] if "rule" in entry
              for part in entry["rule"]["expr"] if "counter" in part]
    return {n: count for n, count in zip(PRIORITIES, counts) if count}


class Tap:
    """All packets of RoCE on a link from now on."""

    def __init__(self, link):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        self.socket.bind((link, 0))
        self.socket.setblocking(False)

    def packets(self):
        """Those that have come: source, class, hop limit and flow label."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                packet = self.read(self.socket.recv(1 << 16))
                if packet:
                    found.append(packet)
        return found

    @staticmethod
    def read(data):
        kind, = struct.unpack_from("!H", data, 12)
        packet = data[14:]
        if kind == ETH_P_IP and packet[9] == socket.IPPROTO_UDP:
            udp = packet[(packet[0] & 15) * 4:]
            found = (socket.inet_ntoa(packet[12:16]), packet[1], packet[8], 0)
        elif kind == ETH_P_IPV6 and packet[6] == socket.IPPROTO_UDP:
            udp = packet[40:]
            word, = struct.unpack_from("!I", packet)
            found = (socket.inet_ntop(socket.AF_INET6, packet[8:24]), word >> 20 & 0xff, packet[7],
                     word & 0xfffff)
        else:
            return None
        return found if struct.unpack_from("!H", udp, 2)[0] == ROCE_PORT else None


def run(argv, **variables):
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True,
                          timeout=LIMIT_S, check=False, env={**os.environ, **variables})
    if done.returncode != 0:
        raise judge.Failure(f"{argv}: status {done.returncode}: {done.stderr.strip()}")


def sent(options, family, service, attributes, **variables):
    """What a link sees of a program that asks for attributes (class, hops, label, level), and the
    priorities that its packets had."""
    own, peer = ENDS[family]
    tap = Tap("wire0")
    priorities()
    run([options.build / "verbena", "run", "--address", own, "--", options.build /
         "tests/verbs_path", "send", "0", service, *attributes, peer], **variables)
    found = tap.packets()
    if len(found) != PACKETS:
        raise judge.Failure(f"{family} {service}: {len(found)} packets, not {PACKETS}")
    return {packet[1:] for packet in found}, priorities()


def expect(seen, wanted, what):
    """All packets the same, and all of one priority."""
    header, priority = wanted
    if seen != ({header}, {priority: PACKETS}):
        raise judge.Failure(f"{what}: class, hop limit, flow label and priorities are {seen}, not "
                              f"{wanted}")


def check_verbs(options):
    for service in ("uc", "ud"):
        asked = (0xb9, 17, 0x12345, 0)
        expect(sent(options, "v4", service, asked), ((0xb9, 17, 0), 4), f"{service} over IPv4")
        expect(sent(options, "v6", service, asked), ((0xb9, 17, 0x12345), 0),
               f"{service} over IPv6")
        # Nothing asked for, or one hop, as ibv_rc_pingpong does: what the system does.
        for hops in (0, 1):
            expect(sent(options, "v4", service, (0, hops, 0, 0)), ((0, 64, 0), 0),
                   f"{service} over IPv4, nothing asked for")
        # While congestion is controlled, ECN's bits are not the program's.
        expect(sent(options, "v4", service, (0xbb, 9, 0, 0), VERBENA_CONGESTION="dcqcn"),
               ((0xb8 | ECT0, 9, 0), 4), f"{service} with ECN")
        for level in (1, 6):
            expect(sent(options, "v4", service, (0x28, 0, 0, level)), ((0x28, 64, 0), level),
                   f"{service} over IPv4 with a service level")
            expect(sent(options, "v6", service, (0x28, 0, 7, level)), ((0x28, 64, 7), level),
                   f"{service} over IPv6 with a service level")


def check_connection(options, tos):
    """Both sides of a connection have the type of service that the active one asked for."""
    tap = Tap("lo")
    launch = [str(options.build / "verbena"), "run", "--log", "info", "--address"]
    server = subprocess.Popen([*launch, "127.79.0.1", "--", "ucmatose", "-b", "127.79.0.1"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        for line in server.stderr:
            if "rdma_listen:" in line:
                break
        else:
            raise judge.Failure("the server did not listen")
        run([*launch, "127.79.0.2", "--", "ucmatose", "-b", "127.79.0.2", "-s", "127.79.0.1",
             *(["-t", str(tos)] if tos else [])])
        server.communicate(timeout=LIMIT_S)
    finally:
        server.kill()
        server.wait()
    found = {packet[:2] for packet in tap.packets()}
    wanted = {("127.79.0.1", tos), ("127.79.0.2", tos), ("127.79.0.1", 0), ("127.79.0.2", 0)}
    if found != wanted:  # the manager's own messages have none
        raise judge.Failure(f"sources and classes are {sorted(found)}, not {sorted(wanted)}")


def check_given(options, address, label):
    """A connection whose path the program gave (tests/verbs/cm_path.c): its packets have all of it,
    those of the passive side the class, the manager's nothing."""
    tap = Tap("lo")
    priorities()
    run([options.build / "verbena", "run", "--port", "udp", "--address", address, "--",
         options.build / "tests/verbs_cm_path", address, "given"])
    # Where none is asked for, IPv6's flow label is the system's.
    found = {(*packet[1:3], packet[3] if packet[3] == label else 0) for packet in tap.packets()}
    wanted = {(0x48, 17, label), (0x48, 64, 0), (0, 64, 0)}
    if found != wanted:
        raise judge.Failure(f"{address}: classes, hop limits and flow labels are {sorted(found)}, "
                            f"not {sorted(wanted)}")
    if 3 not in (seen := priorities()):
        raise judge.Failure(f"{address}: priorities are {seen}, without the service level 3")


def test(options):
    judge.require(tools=("nft", "ucmatose"))
    options.build = options.build.resolve()
    prepare()
    check_verbs(options)
    check_connection(options, 0x48)
    check_connection(options, 0)
    check_given(options, "127.79.0.3", 0)
    check_given(options, "::1", 0x12345)
    print("attributes of paths are on the packets")


if __name__ == "__main__":
    parsed = judge.options(__doc__.splitlines()[0]).parse_args()
    judge.run(lambda: test(parsed), links=True)
