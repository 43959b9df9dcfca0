#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Others judge our traces: tshark and capinfos read one, scapy recomputes each ICRC, and a trace of
an exchange between two network namespaces must equal what tcpdump captured between them.

Host packages: iproute2, ethtool, tcpdump, tshark, python3-scapy. Needs root.
"""

import pathlib
import subprocess
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "linux"), str(TESTS / "unit")]

import capture_test  # noqa: E402
import judge  # noqa: E402

try:
    import icrc_vectors
    from scapy.layers.inet6 import IPv6
    from scapy.utils import RawPcapReader
except ImportError:
    icrc_vectors = None

ROUNDS = 40
ETHERNET = bytes(capture_test.ETHERNET_BYTES)
V6_SERVER, V6_CLIENT = "fd78::1", "fd78::2"
RUN_LIMIT_S = 60
CLOCK_STEP_S = 0.01  # of the kernel's coarse clock, and of rounding

# What trace_peer says on each of its three paths: opcode, PSN, direction, comments.
INBOUND, OUTBOUND = "0x00000001", "0x00000002"
TALK = [
    ("4", "1", OUTBOUND, ""),
    ("17", "1", INBOUND, ""),
    ("10", "5", OUTBOUND, "retransmission of PSN 5"),
    ("17", "5", INBOUND, "fault rule 1: dropped|verz\u00f6gert um 50 \u00b5s"),
    ("12", "6", OUTBOUND, ""),
    ("16", "6", INBOUND, ""),
]
GOOD, ABSENT = "1", ""
# Each path's interface and the state of its IP header's checksum, which IPv6 has not.
PATHS = [("udp 10.1.2.3", GOOD), ("udp 10.1.2.3", ABSENT), ("shm 127.0.0.1", GOOD)]
FIELDS = (
    "frame.time_epoch", "frame.interface_name", "infiniband.bth.opcode", "infiniband.bth.psn",
    "frame.packet_flags_direction", "frame.comment", "ip.checksum.status", "udp.checksum.status")


def expected_rows():
    """What tshark must show of the sample, a row of FIELDS each."""
    rows = []
    for interface, ip_status in PATHS:
        for opcode, psn, direction, comments in TALK:
            time = f"1767323045.{len(rows) * 1000001:09d}"
            rows.append([time, interface, opcode, psn, direction, comments, ip_status, GOOD])
    return rows


def run(argv):
    result = subprocess.run(
        [str(word) for word in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        timeout=RUN_LIMIT_S, check=False)
    if result.returncode != 0:
        raise judge.Failure(f"{argv[0]}: status {result.returncode}: {result.stderr.strip()}")
    return result.stdout


def tshark_rows(path):
    argv = ["tshark", "-n", "-r", path, "-d", "infiniband,data",
            "-o", "infiniband.try_heuristic_first:FALSE", "-o", "udp.check_checksum:TRUE",
            "-o", "ip.check_checksum:TRUE", "-T", "fields", "-E", "separator=/t",
            "-E", "aggregator=|"]
    for field in FIELDS:
        argv += ["-e", field]
    return [line.split("\t") for line in run(argv).splitlines()]


def read_packets(path):
    """The packets of a trace or a capture, and their times in seconds."""
    reader = RawPcapReader(str(path))
    try:
        return [(packet, seconds(metadata)) for packet, metadata in reader]
    finally:
        reader.close()


def seconds(metadata):
    if hasattr(metadata, "tshigh"):
        return ((metadata.tshigh << 32) + metadata.tslow) / metadata.tsresol
    return metadata.sec + metadata.usec / 1e6


def icrc_problem(packet):
    """Compares the ICRC of a packet with the one computed by others."""
    if packet[0] >> 4 == 4:
        return capture_test.icrc_problem(ETHERNET + packet)
    computed = icrc_vectors.masked_icrc(IPv6(packet))
    carried = int.from_bytes(packet[-4:], "little")
    return None if carried == computed else f"ICRC {carried:08x}, computed {computed:08x}"


def judge_sample(peer, folder):
    path = folder / "sample.pcapng"
    run([peer, "sample", path])
    wanted, rows = expected_rows(), tshark_rows(path)
    for number, (row, want) in enumerate(zip(rows, wanted), 1):
        if row != want:
            raise judge.Failure(f"packet {number}: tshark shows {row}, not {want}")
    if len(rows) != len(wanted):
        raise judge.Failure(f"tshark shows {len(rows)} packets, not {len(wanted)}")
    problems = capture_test.tshark_problems(path)
    packets = [packet for packet, _ in read_packets(path)]
    problems += [f"packet {n}: {problem}" for n, packet in enumerate(packets, 1)
                 if (problem := icrc_problem(packet))]
    if problems:
        raise judge.Failure(f"{len(problems)} problems, the first: {problems[0]}")
    judge_description(run(["capinfos", path]))
    judge_damage(path, packets, folder)
    print(f"sample: {len(rows)} packets on 2 interfaces, each as it should be")


def judge_description(text):
    for words in ("pcapng", "Capture application: Verbena ", "Strict time order:   True",
                  "Name = udp 10.1.2.3", "Description = shared memory", "Encapsulation = Raw IP",
                  "Time precision = nanoseconds", "Number of stat entries = 1"):
        if words not in text:
            raise judge.Failure(f"capinfos does not say '{words}'")


def judge_damage(path, packets, folder):
    """The negative twin: damage to the file must be found by the same judges."""
    whole = path.read_bytes()
    damaged = folder / "damaged.pcapng"
    for packet, offset, column in ((packets[0], 10, 6), (packets[0], 26, 7), (packets[6], 46, 7)):
        file = bytearray(whole)
        file[whole.index(packet) + offset] ^= 0x01
        damaged.write_bytes(file)
        if all(row[column] in (ABSENT, GOOD) for row in tshark_rows(damaged)):
            raise judge.Failure(f"tshark accepts a wrong {FIELDS[column]}")
    for packet in packets:
        if not icrc_problem(packet[:-1] + bytes([packet[-1] ^ 0x80])):
            raise judge.Failure("a wrong ICRC is accepted")
    damaged.write_bytes(whole[:-6])
    result = subprocess.run(
        ["capinfos", str(damaged)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if result.returncode == 0:
        raise judge.Failure("capinfos accepts a file without its end")


def exchange(peer, sides, addresses, folder):
    """Runs both ends; returns what tcpdump and the two traces hold, and when it began and ended."""
    names = ("echo", "ask")
    traces = [folder / f"{name}.pcapng" for name in names]
    capture = folder / "tcpdump.pcap"
    (server, client), (theirs, ours) = sides, addresses
    began = time.time()
    with capture_test.captured(client, capture):
        echo = server.popen(
            [peer, "echo", theirs, ours, traces[0]], stdout=subprocess.PIPE, text=True)
        if echo.stdout.readline() != "ready\n":
            raise judge.Failure("the echoing end does not start")
        status, output = client.exec([peer, "ask", ours, theirs, traces[1]], RUN_LIMIT_S)
        if status != 0:
            raise judge.Failure(f"the asking end: status {status}: {output.strip()}")
        if echo.wait(RUN_LIMIT_S) != 0:
            raise judge.Failure(f"the echoing end: status {echo.returncode}")
        server.forget(echo)
    captured = [(packet[len(ETHERNET):], when) for packet, when in read_packets(capture)]
    return captured, [read_packets(path) for path in traces], (began, time.time())


def judge_exchange(peer, sides, addresses, folder):
    captured, traces, (began, ended) = exchange(peer, sides, addresses, folder)
    if len(captured) != 2 * ROUNDS:
        raise judge.Failure(f"tcpdump captured {len(captured)} packets, not {2 * ROUNDS}")
    for end, trace in zip(("echoing", "asking"), traces):
        if len(trace) != len(captured):
            raise judge.Failure(f"the {end} end traced {len(trace)}, not {len(captured)}")
        for number, ((ours, _), (theirs, _)) in enumerate(zip(trace, captured), 1):
            if ours != theirs:
                raise judge.Failure(
                    f"{end} end, packet {number}: {ours[:60].hex()}, tcpdump {theirs[:60].hex()}")
        times = [began - CLOCK_STEP_S, *(when for _, when in trace), ended + CLOCK_STEP_S]
        if times != sorted(times):
            raise judge.Failure(f"the {end} end's times are not in order: {times}")
    problems = [problem for packet, _ in captured if (problem := icrc_problem(packet))]
    if problems:
        raise judge.Failure(problems[0])
    kind = "IPv6" if ":" in addresses[0] else "IPv4"
    print(f"{kind} exchange: two traces of {len(captured)} packets equal tcpdump's capture")


def test(options):
    peer = options.build.resolve() / "tests/trace_peer"
    judge.require(root=True, tools=("tshark", "capinfos", "ip", "ethtool", "tcpdump"), files=(peer,))
    if icrc_vectors is None:
        raise judge.Skip(f"missing: python3-scapy for {sys.executable}")
    if icrc_vectors.check(TESTS.parent) != 0:
        raise judge.Failure("literals of the ICRC differ from those that others compute")
    with tempfile.TemporaryDirectory(prefix="verbena-trace-") as name:
        folder = pathlib.Path(name)
        judge_sample(peer, folder)
        with capture_test.joined_namespaces() as sides:
            for side, address in zip(sides, (V6_SERVER, V6_CLIENT)):
                side.ip("address", "add", f"{address}/64", "dev", capture_test.DEVICE, "nodad")
            pairs = ((capture_test.SERVER_IP, capture_test.CLIENT_IP), (V6_SERVER, V6_CLIENT))
            for addresses in pairs:
                judge_exchange(peer, sides, addresses, folder)


if __name__ == "__main__":
    parsed = judge.options(__doc__.splitlines()[0]).parse_args()
    judge.run(lambda: test(parsed))
