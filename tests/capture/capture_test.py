#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Others judge our packets: tcpdump captures, tshark dissects, scapy recomputes each ICRC.

Two network namespaces are joined by a veth pair without offloads, so that a captured frame is what
a wire would carry. Host packages: iproute2, ethtool, tcpdump, tshark, python3-scapy. Needs root.
"""

import collections
import contextlib
import dataclasses
import logging
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "linux")]

import judge  # noqa: E402
import netns  # noqa: E402

# Scapy warns about routes and interfaces of the machine, which this test does not use.
logging.getLogger("scapy").setLevel(logging.ERROR)
try:
    from scapy.contrib import roce
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether
    from scapy.utils import RawPcapReader, wrpcap
except ImportError:
    roce = None

SERVER_IP, CLIENT_IP = "10.78.0.1", "10.78.0.2"
DEVICE = "veth0"
MTU = 4200
ROCE_PORT = 4791
RUN_LIMIT_S = 60
LAST_PACKET = b"the capture ends here"
SEND_LAST = ("import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"
             f".sendto({LAST_PACKET!r}, ({SERVER_IP!r}, {ROCE_PORT}))")
FRAME_MAX = 8192
PCAP_HEADER_BYTES = 24
RECORD = struct.Struct("<IIII")  # seconds, microseconds, bytes captured, bytes sent
OFFLOADS = ("tx", "rx", "tso", "gso", "gro", "tx-udp-segmentation")
CAPTURE_BUFFER_KB = 65536
FRAMES_FOR_SCAPY = 400  # of a capture, more or less
EXPERT_ERROR = 0x800000
ETHERNET_BYTES, IP_BYTES, UDP_BYTES, BTH_BYTES = 14, 20, 8, 12
IDENTIFICATION_OFFSET = ETHERNET_BYTES + 4
PSN_OFFSET = ETHERNET_BYTES + IP_BYTES + UDP_BYTES + 9

SEND_SPLIT = {"SEND_FIRST", "SEND_MIDDLE", "SEND_LAST"}
WRITE_SPLIT = {"RDMA_WRITE_FIRST", "RDMA_WRITE_MIDDLE", "RDMA_WRITE_LAST"}
READ_SPLIT = {
    "RDMA_READ_RESPONSE_FIRST", "RDMA_READ_RESPONSE_MIDDLE", "RDMA_READ_RESPONSE_LAST"}


@dataclasses.dataclass
class Pair:
    """A server and its client, both run to their end, and the opcodes that must be on the wire."""
    name: str
    server: list
    client: list
    opcodes: set


def pairs(build):
    """Everything that is captured; a new kind of traffic is one more entry."""
    return [
        pingpong(build, 1, 1024, {"SEND_ONLY"}),
        pingpong(build, 1024, 1024, {"SEND_ONLY"}),
        pingpong(build, 4095, 4096, {"SEND_ONLY"}),
        pingpong(build, 5001, 1024, SEND_SPLIT),
        pingpong(build, 65536, 4096, SEND_SPLIT),
        perf(build, "send", 64, 4096, {"SEND_ONLY", "ACKNOWLEDGE"}),
        perf(build, "write", 63, 4096, {"RDMA_WRITE_ONLY", "ACKNOWLEDGE"}),
        perf(build, "write", 5001, 1024, WRITE_SPLIT | {"ACKNOWLEDGE"}),
        perf(build, "write", 65536, 4096, WRITE_SPLIT | {"ACKNOWLEDGE"}),
        perf(build, "read", 63, 4096, {"RDMA_READ_REQUEST", "RDMA_READ_RESPONSE_ONLY"}),
        perf(build, "read", 5001, 1024, READ_SPLIT | {"RDMA_READ_REQUEST"}),
        perf(build, "read", 65536, 4096, READ_SPLIT | {"RDMA_READ_REQUEST"}),
        congested(build, 65536, 4096, WRITE_SPLIT | {"ACKNOWLEDGE", "CNP"}),
    ]


def pingpong(build, size, mtu, opcodes):
    base = [build / "tests/rc_pingpong", "--size", size, "--mtu", mtu, "--iters", 20, "--check",
            "--seconds-limit", RUN_LIMIT_S]
    return Pair(
        f"pingpong {size} mtu {mtu}", base + ["--local", SERVER_IP],
        base + ["--local", CLIENT_IP, SERVER_IP], opcodes | {"ACKNOWLEDGE"})


def perf(build, operation, size, mtu, opcodes):
    command = [build / "verbena", "perf"]
    return Pair(
        f"perf {operation} {size} mtu {mtu}",
        command + ["--listen", "--once", "--local", SERVER_IP],
        command + [operation, SERVER_IP, "--local", CLIENT_IP, "--size", size, "--mtu", mtu,
                   "--iters", 40], opcodes)


def congested(build, size, mtu, opcodes):
    """WRITEs that reach the server marked by congestion."""
    pair = perf(build, "write", size, mtu, opcodes)
    env = ["/usr/bin/env", "VERBENA_CONGESTION=dcqcn"]
    return Pair(
        f"congested {size} mtu {mtu}", [*env, "VERBENA_FAULTS=mark=10%", *pair.server],
        [*env, *pair.client], opcodes)


@contextlib.contextmanager
def joined_namespaces():
    """Yields (server, client) namespaces whose veth ends see single, complete frames."""
    with netns.Namespace("server") as server, netns.Namespace("client") as client:
        server.ip(
            "link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", client.name)
        for side, address in ((server, SERVER_IP), (client, CLIENT_IP)):
            side.ip("address", "add", f"{address}/24", "dev", DEVICE)
            side.ip("link", "set", DEVICE, "mtu", str(MTU), "up")
            settings = [word for name in OFFLOADS for word in (name, "off")]
            status, output = side.exec(["ethtool", "-K", DEVICE, *settings])
            if status != 0:
                raise judge.Skip(f"ethtool cannot turn offloads off: {output.strip()}")
        yield server, client


def drop_last(path):
    """Takes the packet that ends a capture out of it."""
    content, at = pathlib.Path(path).read_bytes(), PCAP_HEADER_BYTES
    while at < len(content):
        end = at + RECORD.size + RECORD.unpack_from(content, at)[2]
        if LAST_PACKET in content[at:end]:
            content = content[:at] + content[end:]
        else:
            at = end
    pathlib.Path(path).write_bytes(content)


@contextlib.contextmanager
def captured(side, path):
    """Captures RoCE traffic into `path` while the body runs; fails if any of it was dropped."""
    with open(path, "wb") as file:
        tcpdump = side.popen(
            ["tcpdump", "-n", "-i", DEVICE, "-s", "0", "-B", CAPTURE_BUFFER_KB, "--immediate-mode",
             "-U", "-w", "-", "udp", "port", ROCE_PORT],
            stdout=file, stderr=subprocess.PIPE, text=True)
        words = tcpdump.stderr.readline()
        while words and "listening on" not in words:
            words = tcpdump.stderr.readline()
        if not words:
            raise judge.Failure("tcpdump does not start")
        yield
        # Interrupted, tcpdump leaves what it has not read yet: a last packet tells that it has all.
        status, output = side.exec(["python3", "-c", SEND_LAST])
        if status:
            raise judge.Failure(f"the packet that ends the capture cannot be sent: {output.strip()}")
        until = time.monotonic() + RUN_LIMIT_S
        while LAST_PACKET not in pathlib.Path(path).read_bytes()[-FRAME_MAX:]:
            if tcpdump.poll() is not None or time.monotonic() > until:
                raise judge.Failure("the packet that ends the capture is not in it")
            time.sleep(0.01)  # nothing tells when a file has grown
        tcpdump.send_signal(signal.SIGINT)
        _, report = tcpdump.communicate(timeout=30)
        side.forget(tcpdump)
    drop_last(path)
    if not re.search(r"^0 packets dropped by kernel", report, re.MULTILINE):
        raise judge.Failure(f"the capture is incomplete: {report.strip()}")


def run_pair(pair, server_side, client_side):
    """Runs both commands to their end; raises Failure when either fails."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    server = server_side.popen(pair.server, **streams)
    if not server_side.wait_listening(None, server):
        server_side.forget(server)
        output = server.stdout.read().strip()
        raise judge.Failure(f"{pair.name}: the server does not listen: {output}")
    client = client_side.popen(pair.client, **streams)
    for side, process, role in ((client_side, client, "client"), (server_side, server, "server")):
        try:
            output, _ = process.communicate(timeout=RUN_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise judge.Failure(f"{pair.name}: the {role} does not end") from error
        side.forget(process)
        if process.returncode != 0:
            raise judge.Failure(
                f"{pair.name}: {role} status {process.returncode}: {output.strip()}")


def tshark_problems(path):
    """What tshark finds wrong with the frames of a capture, one line each."""
    fields = ("infiniband.bth.opcode", "_ws.malformed", "_ws.expert.severity", "_ws.expert.message")
    # Payloads are plain data: tshark would guess protocols in them and call those malformed.
    argv = ["tshark", "-n", "-r", path, "-d", "infiniband,data",
            "-o", "infiniband.try_heuristic_first:FALSE", "-o", "udp.check_checksum:TRUE",
            "-o", "ip.check_checksum:TRUE", "-T", "fields", "-E", "separator=/t",
            "-e", "frame.number"]
    for field in fields:
        argv += ["-e", field]
    result = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        raise judge.Failure(f"tshark: {result.stderr.strip()}")
    problems = []
    for line in result.stdout.splitlines():
        number, opcode, malformed, severities, messages = line.split("\t")
        if not opcode:
            problems.append(f"frame {number}: not seen as RoCE v2")
        if malformed:
            problems.append(f"frame {number}: malformed: {messages}")
        if any(int(severity) >= EXPERT_ERROR for severity in severities.split(",") if severity):
            problems.append(f"frame {number}: expert error: {messages}")
    return problems


def icrc_problem(frame):
    """Compares the ICRC a frame carries with the one scapy computes from the frame's bytes."""
    ip = IP(frame[ETHERNET_BYTES:])
    if ip.frag or ip.flags.MF or len(frame) != ETHERNET_BYTES + ip.len:
        return "a fragment, or not one frame"
    if not ip.haslayer(roce.BTH) or ip.len < IP_BYTES + UDP_BYTES + BTH_BYTES + 4:
        return "no BTH"
    carried, computed = frame[-4:], ip[roce.BTH].compute_icrc(None)
    if carried != computed:
        return f"ICRC {carried.hex()}, scapy computes {computed.hex()}"
    return None


def read_frames(path):
    reader = RawPcapReader(str(path))
    try:
        return [frame for frame, _metadata in reader]
    finally:
        reader.close()


def opcode_name(frame):
    opcode = frame[ETHERNET_BYTES + IP_BYTES + UDP_BYTES]
    return roce._bth_opcodes.get(opcode, f"0x{opcode:02x}").removeprefix("RC_")


def judge_capture(pair, path, full):
    """Judges one pair's capture; returns its frames. Scapy is slow: without --full it sees every
    Nth of them, tshark all."""
    frames = read_frames(path)
    step = 1 if full else 1 + len(frames) // FRAMES_FOR_SCAPY
    problems = [f"frame {n + 1}: {problem}" for n in range(0, len(frames), step)
                if (problem := icrc_problem(frames[n]))]
    problems += tshark_problems(path)
    counts = collections.Counter(opcode_name(frame) for frame in frames)
    problems += [f"no {opcode} was seen" for opcode in sorted(pair.opcodes - set(counts))]
    listing = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    result = "FAILED" if problems else "ok"
    print(f"{pair.name:<24} {len(frames):>6} frames  {result:<6}  {listing}", flush=True)
    if problems:
        raise judge.Failure(f"{pair.name}: {len(problems)} problems, the first: {problems[0]}")
    return frames


def judge_the_judges(frames, folder):
    """The negative twin: each opcode's first frame, damaged, must be found wrong."""
    firsts = {opcode_name(frame): frame for frame in reversed(frames)}
    for name, frame in sorted(firsts.items()):
        for offset in (IDENTIFICATION_OFFSET, PSN_OFFSET, len(frame) - 5, len(frame) - 1):
            damaged = bytearray(frame)
            damaged[offset] ^= 0x01
            if not icrc_problem(bytes(damaged)):
                raise judge.Failure(f"scapy accepts {name} with its byte {offset} flipped")
    short = folder / "short.pcap"
    acknowledge = firsts["ACKNOWLEDGE"]
    wrpcap(str(short), [Ether(truncated(acknowledge, 6))])
    if not tshark_problems(short):
        raise judge.Failure("tshark accepts an ACKNOWLEDGE that ends inside its AETH")
    print(f"negative twin: {4 * len(firsts)} flipped bytes and a short frame, each found")


def truncated(frame, count):
    """The frame without its last bytes, with lengths to match."""
    ip = IP(frame[ETHERNET_BYTES:len(frame) - count])
    ip.len -= count
    ip[UDP].len -= count
    del ip.chksum
    ip[UDP].chksum = 0
    return frame[:ETHERNET_BYTES] + bytes(ip)


def test(options):
    chosen = [pair for pair in pairs(options.build.resolve()) if options.only in pair.name]
    if not chosen:
        raise judge.Failure(f"no pair has {options.only!r} in its name")
    judge.require(
        root=True, tools=("ip", "ethtool", "tcpdump", "tshark"), files={pair.server[0] for pair in chosen})
    if roce is None:
        raise judge.Skip(f"missing: python3-scapy for {sys.executable}")
    frames = []
    with tempfile.TemporaryDirectory(prefix="verbena-capture-") as name, \
            joined_namespaces() as (server, client):
        for number, pair in enumerate(chosen):
            path = pathlib.Path(name) / f"{number}.pcap"
            with captured(client, path):
                run_pair(pair, server, client)
            frames += judge_capture(pair, path, options.full)
        judge_the_judges(frames, pathlib.Path(name))
    print(f"{len(chosen)} captures, {len(frames)} frames: none malformed, every ICRC that was computed again right")


if __name__ == "__main__":
    parsed = judge.options(__doc__.splitlines()[0],
                           full="scapy computes the ICRC of every frame").parse_args()
    judge.run(lambda: test(parsed))
