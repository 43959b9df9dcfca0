#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measurements on this machine: rows are whole, every 1000th operation is verified, no process hangs."""

import contextlib
import json
import os
import re
import resource
import signal
import socket
import tempfile
import time
import unittest

from command import main, run, some, start, wait_for

KEYS = {"op", "port", "size", "depth", "qps", "p50_ns", "p99_ns", "p999_ns", "ops_per_s",
        "bytes_per_s", "raw_p50_ns"}
ONE_SIDED = ("read", "write", "cas", "fadd")
PATIENCE_S = 60
LOOKS_AT_REST = 20
# A rusage has two times, each less than a microsecond short. A difference of two of them is less than
# 2 us wrong: the client's, the server's and ours.
CPU_ROUNDING_NS = 6000
CONTROL = str(20000 + os.getpid() % 20000)


def addresses():
    """Two that no other test uses."""
    pid = os.getpid()
    middle = f"{pid >> 8 & 255}.{pid & 255}"
    return f"127.201.{middle}", f"127.202.{middle}"


def perf(*words, **variables):
    done = run("perf", *words, "--json", "--local", ",".join(addresses()), **variables)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


def children_cpu_ns():
    """Of all children that have ended, and of those that they waited for."""
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (use.ru_utime + use.ru_stime) * 1e9


def threads(pid):
    """State and switches of each thread of a process and of its children."""
    found = {}
    pids = [str(pid)]
    for pid in pids:  # grows meanwhile
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in os.listdir(f"/proc/{pid}/task"):
                place = f"/proc/{pid}/task/{task}"
                with open(f"{place}/children", encoding="ascii") as file:
                    pids += file.read().split()
                with open(f"{place}/status", encoding="ascii") as file:
                    words = dict(line.split(":", 1) for line in file)
                found[task] = (words["State"].split()[0],
                               int(words["voluntary_ctxt_switches"])
                               + int(words["nonvoluntary_ctxt_switches"]))
    return found


def waits_for_nothing(pid):
    """Its first thread is in poll() without descriptors, as `perf idle` is once both are connected."""
    with open(f"/proc/{pid}/syscall", encoding="ascii") as file:
        return file.read().split()[1:3] == ["0x0", "0x0"]


class Perf(unittest.TestCase):
    def rows(self, *words):
        done, rows = perf(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        for row in rows:
            self.assertLessEqual(KEYS, row.keys())
            # p50 is the median of the slices' medians. If most slices were slow and had few operations,
            # it is above the quantiles, which are those of all operations.
            self.assertGreater(row["p50_min_ns"], 0)
            self.assertLessEqual(row["p50_min_ns"], row["p50_ns"])
            self.assertLessEqual(row["p50_ns"], row["p50_max_ns"])
            self.assertLessEqual(row["p99_ns"], row["p999_ns"])
            self.assertGreater(row["raw_p50_ns"], 0)
            self.assertGreater(row["ops_per_s"], 0)
            self.assertAlmostEqual(row["bytes_per_s"] / row["ops_per_s"] / row["size"], 1, 2)
        return rows

    def test_every_operation_and_many_sizes(self):
        sizes = some([1, 7, 64, 4097, 65536], [1, 2, 3, 7, 8, 9, 64, 1000, 4096, 4097, 65536])
        text = ",".join(map(str, sizes))
        for op in ("read", "write", "send"):
            with self.subTest(op):
                iters = some(1000, 2000)
                rows = self.rows(op, "--size", text, "--iters", str(iters), "--depth", "32")
                self.assertEqual([row["size"] for row in rows], sizes)
                for row in rows:
                    self.assertEqual(row["op"], op)
                    # So many one by one, as many and one in flight, and those that warm up
                    self.assertIn(row["verified"] - 2 * iters // 1000, (0, 1))
                    self.assertGreaterEqual(row["rate_ops"], iters)

    def test_several_queue_pairs_verify_each(self):
        for op in ("read", "write", "write_imm", "send"):
            with self.subTest(op):
                iters = some(5000, 20000)
                row, = self.rows(op, "--qps", "5", "--iters", str(iters), "--size", "200")
                self.assertEqual(row["qps"], 5)
                # Each queue pair counts for itself, and may be short of the next one.
                self.assertGreaterEqual(row["verified"], 2 * iters // 1000 - 5)

    def test_thousands_of_queue_pairs(self):
        ports = ("udp", "shm")
        for number, op in enumerate(("read", "write", "send", "write_imm", "fadd")):
            for port in some(ports[number % 2:number % 2 + 1], ports):
                with self.subTest((op, port)):
                    row, = self.rows(op, "--port", port, "--qps", "3000", "--depth", "2",
                                     "--iters", "6000")
                    self.assertEqual((row["qps"], row["active"]), (3000, 3000))
                    self.assertGreaterEqual(row["rate_ops"], 6000)

    def test_all_queue_pairs_and_few_active(self):
        for port in some(("udp",), ("udp", "shm")):
            with self.subTest(port):
                row, = self.rows("write", "--port", port, "--qps", "16384", "--active", "3",
                                 "--iters", "9000")
                self.assertEqual((row["qps"], row["active"]), (16384, 3))
                self.assertGreaterEqual(row["verified"], 9)

    def test_atomics(self):
        for op in ("cas", "fadd"):
            for words in ((), ("--qps", "8"), ("--port", "shm"), ("--drop", "1%", "--qps", "3")):
                with self.subTest((op, *words)):
                    iters = 4000 if "--drop" not in words else some(1200, 4000)
                    row, = self.rows(op, "--iters", str(iters), *words)
                    self.assertEqual((row["op"], row["size"]), (op, 8))
                    self.assertGreaterEqual(row["verified"], max(1, iters // 1000))

    def test_unreliable_services(self):
        for words in (("send", "--service", "uc"), ("send", "--service", "ud"),
                      ("write", "--service", "uc"), ("write_imm", "--service", "uc")):
            for port in ("udp", "shm"):
                with self.subTest((*words, port)):
                    rows = self.rows(*words, "--port", port, "--size", some("7,4096", "7,64,4096"),
                                     "--iters", "5000", "--depth", "16", "--qps", "2")
                    for row in rows:
                        self.assertEqual(row["service"], words[2])
                        self.assertEqual(row["latency"], "until sent")
                        self.assertNotIn("raw_ratio", row)
                        self.assertNotIn("raw_connected_ratio", row)
                        self.assertGreater(row["verified"], 0)

    def test_what_is_lost_is_not_counted(self):
        for words in (("send", "--service", "ud"), ("send", "--service", "uc"),
                      ("write", "--service", "uc")):
            with self.subTest(words):
                iters = some(5000, 20000)
                row, = self.rows(*words, "--faults", "drop=20%,dir=tx", "--iters", str(iters),
                                 "--depth", "16")
                self.assertGreater(row["lost"], 0.15 * iters)
                self.assertGreaterEqual(row["rate_ops"] + row["lost"], iters)

    def test_ports(self):
        for given, real, raw in (("udp", "udp", "UDP echo"), ("shm", "shm", "cache line"),
                                 ("auto", "shm", "cache line")):
            for op in ("read", "write", "write_imm", "send"):
                with self.subTest((op, given)):
                    row, = self.rows(op, "--port", given, "--iters", "3000", "--size", "5000")
                    self.assertEqual((row["port"], row["raw"]), (real, raw))
                    self.assertGreaterEqual(row["verified"], 6)
                    for key in ("raw_connected_p50_ns", "raw_connected_ratio"):
                        self.assertEqual(key in row, real == "udp")

    def test_auto_without_a_place_to_meet(self):
        with tempfile.TemporaryDirectory() as place:
            os.chmod(place, 0o777)
            words = ("read", "--iters", "500")
            done, rows = perf(*words, "--port", "auto", VERBENA_RUNTIME_DIR=place)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((rows[0]["port"], rows[0]["raw"]), ("udp", "UDP echo"))
            done, _ = perf(*words, "--port", "shm", VERBENA_RUNTIME_DIR=place)
            self.assertEqual(done.returncode, 1)
            self.assertIn("chmod 700", done.stderr)

    def test_a_peer_that_pauses_is_waited_for(self):
        """Without losses only a busy machine is late. The server stands still until the client's NIC
        has counted a timeout, and the client goes on."""
        iters = 200000
        client = start("perf", "write", "--iters", str(iters), "--depth", "1",
                       "--local", ",".join(addresses()))
        self.addCleanup(self.end, client)
        for address in addresses():
            self.wait_for_port(address)
        server, = children(client.pid)
        # Latencies, which take turns with the echo's, are done: a WRITE is under way at any time.
        wait_for(lambda: counter(client.pid, "sent_pkts") > 1.25 * iters, "the rate is not measured")
        os.kill(server, signal.SIGSTOP)
        self.addCleanup(go_on, server)  # whatever comes
        wait_for(lambda: counter(client.pid, "local_ack_timeout_err") > 0, "no timeout is counted")
        go_on(server)
        _, words = client.communicate(timeout=PATIENCE_S)
        self.assertEqual(client.returncode, 0, words)

    def test_forced_errors_are_told(self):
        for rules, right in (("wc=retry_exc:read@#5", "read 4 of queue pair 0 failed"),
                             ("reg_mr=#1", "cannot register memory"),
                             ("qp_error=#100", "read 99 of queue pair 0 failed")):
            with self.subTest(rules):
                done, rows = perf("read", "--iters", "500", "--faults", rules)
                self.assertEqual((done.returncode, rows), (1, []))
                self.assertIn(right, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)

    def test_the_copy_beside_long_writes(self):
        row, = self.rows("write", "--port", "shm", "--size", "64K", "--iters", "400")
        self.assertGreater(row["copy_gbps"], 0)
        row, = self.rows("write", "--port", "shm", "--size", "4K", "--iters", "400")
        self.assertNotIn("copy_gbps", row)

    def test_targets_that_do_not_poll(self):
        ways = (*((op, "udp") for op in ONE_SIDED), ("write", "shm"))
        for number, target in enumerate(("spin", "sleep", "compute")):
            for op, port in some(ways[number::3], ways):
                with self.subTest((op, port, target)):
                    row, = self.rows(op, "--port", port, "--target", target, "--iters", "3000")
                    self.assertEqual(row["target"], target)
                    self.assertGreaterEqual(row["verified"], 6)

    def test_idle(self):
        for port in ("udp", "shm"):
            before_ns = children_cpu_ns()
            done, rows = perf("idle", "--port", port, "--seconds", "0.3")
            most_ns = children_cpu_ns() - before_ns + CPU_ROUNDING_NS
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreaterEqual(rows[0]["idle_s"], 0.3)
            self.assertGreater(rows[0]["cpu_ns"], 0)
            self.assertGreater(rows[0]["server_cpu_ns"], 0)
            # Both are parts of what the client, which waits for its server's end, has used altogether.
            self.assertLessEqual(rows[0]["cpu_ns"] + rows[0]["server_cpu_ns"], most_ns)

    def test_nobody_spins_while_idle(self):
        """Every thread of both sides sleeps in the kernel, and none was switched to between looks:
        a thread that spins is never found asleep, and one that wakes by itself is counted."""
        for port in ("udp", "shm"):
            with self.subTest(port):
                client = start("perf", "idle", "--port", port, "--seconds", "3600",
                               "--local", ",".join(addresses()))
                looks = []

                def at_rest():
                    looks.append(threads(client.pid))
                    last = looks[-LOOKS_AT_REST:]
                    return (len(last) == LOOKS_AT_REST and last.count(last[0]) == len(last)
                            and len(last[0]) >= 4 and all(state == "S" for state, _ in last[0].values())
                            and waits_for_nothing(client.pid))

                try:
                    wait_for(at_rest, "some thread of an idle pair does not stay asleep")
                finally:
                    client.terminate()
                    client.communicate(timeout=PATIENCE_S)

    def test_depths(self):
        for depth in some((1, 5, 4096), (1, 2, 5, 130, 4096)):
            with self.subTest(depth):
                iters = some(5000, 9000)
                row, = self.rows("write", "--depth", str(depth), "--iters", str(iters))
                self.assertEqual(row["depth"], depth)
                self.assertGreaterEqual(row["verified"], 2 * iters // 1000)

    def test_long_messages(self):
        for op in ("read", "write", "send"):
            with self.subTest(op):
                self.rows(op, "--size", "1M,5M", "--iters", "20", "--depth", "4")

    def test_with_losses(self):
        for op in ("read", "write", "send"):
            with self.subTest(op):
                iters = some(600, 1200)
                row, = self.rows(op, "--drop", "1%", "--iters", str(iters), "--size", "3000",
                                 "--mtu", "1024", "--depth", "16")
                self.assertGreaterEqual(row["verified"], iters // 600)

    def test_raw(self):
        row, = self.rows("raw", "--seconds", "0.2", "--size", "100")
        self.assertEqual((row["op"], row["port"]), ("raw", "udp"))
        row, = self.rows("raw", "--seconds", "0.2", "--port", "shm")
        self.assertEqual((row["op"], row["port"], row["raw"]), ("raw", "shm", "cache line"))
        self.assertAlmostEqual(row["copy_gbps"] * 1e9 / 8 / row["bytes_per_s"], 1, 2)

    def test_the_table(self):
        done = run("perf", "read", "--iters", "500", "--local", ",".join(addresses()))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^read +udp +rc +64 +128 +1 +\d")
        self.assertIn("raw is a UDP echo", done.stdout)
        # Both echoes and the ratios to them.
        self.assertRegex(done.stdout, r"(?m)^read +udp .*( +\d+\.\d\d){7} +\d+\.\d{4} ")
        done = run("perf", "read", "--iters", "500", "--local", ",".join(addresses()), "--port",
                   "auto", "--target", "sleep")
        self.assertRegex(done.stdout, r"(?m)^read +shm +rc +64 .* target sleeps$")
        self.assertRegex(done.stdout, r"(?m)^read +shm .*( +\d+\.\d\d){5} +- +- +\d+\.\d{4} ")
        self.assertIn("cache line", done.stdout)

    def test_an_address_in_use(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
            holder.bind((addresses()[1], 4791))
            done = run("perf", "read", "--iters", "10", "--local", ",".join(reversed(addresses())))
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"is in use by process {os.getpid()} (", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_an_address_for_both(self):
        server = self.listen(addresses()[0])
        done = run("perf", "send", addresses()[0], "--control", CONTROL, "--iters", "2000",
                   "--local", addresses()[0], "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreaterEqual(json.loads(done.stdout)["verified"], 4)
        self.assertEqual(server.wait(PATIENCE_S), 0)

    def listen(self, address, *words):
        server = start("perf", "--listen", "--once", "--local", address, "--control", CONTROL,
                       *words)
        self.addCleanup(self.end, server)
        line = server.stderr.readline()
        self.assertIn("serving", line)
        return server

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def wait_for_port(self, address):
        wait_for(lambda: f"{address}:4791" in sockets(), f"nobody is on {address}")

    def test_a_server_elsewhere(self):
        server = self.listen(addresses()[0])
        done = run("perf", "send", addresses()[0], "--control", CONTROL, "--iters", "2000",
                   "--local", addresses()[1], "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreaterEqual(json.loads(done.stdout)["verified"], 4)
        self.assertEqual(server.wait(PATIENCE_S), 0)

    def test_ports_of_both_sides(self):
        for ours, theirs, real in (("auto", "auto", "shm"), ("shm", "auto", "shm"),
                                   ("auto", "udp", "udp"), ("shm", "udp", None)):
            with self.subTest((ours, theirs)):
                server = self.listen(addresses()[0], "--port", theirs)
                done = run("perf", "write", addresses()[0], "--control", CONTROL, "--iters", "500",
                           "--local", addresses()[1], "--json", "--port", ours)
                if real:
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(json.loads(done.stdout)["port"], real)
                else:
                    self.assertEqual(done.returncode, 1)
                    self.assertIn("do not meet", done.stderr)
                self.assertEqual(server.wait(PATIENCE_S), 0)

    def test_no_server(self):
        done = run("perf", "read", addresses()[0], "--control", CONTROL)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--listen", done.stderr)

    def test_a_stranger_on_the_control_port(self):
        server = self.listen(addresses()[0])
        with socket.create_connection((addresses()[0], int(CONTROL)), timeout=20) as s:
            s.sendall(b"GET / HTTP/1.0\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                while s.recv(100):
                    pass
        self.assertEqual(server.wait(PATIENCE_S), 0)

    def test_nobody_stays_when_one_side_dies(self):
        for victim in ("client", "server"):
            with self.subTest(victim):
                client = start("perf", "write", "--seconds", "60", "--local",
                               ",".join(addresses()))
                self.addCleanup(self.end, client)
                for address in addresses():
                    self.wait_for_port(address)
                server, = children(client.pid)
                os.kill(client.pid if victim == "client" else server, signal.SIGKILL)
                _, errors = client.communicate(timeout=PATIENCE_S)
                if victim == "server":
                    self.assertEqual(client.returncode, 1)
                    self.assertIn("went away", errors)
                self.assertTrue(wait_gone(server))

    def test_interrupt(self):
        client = start("perf", "read", "--seconds", "60", "--local", ",".join(addresses()))
        self.addCleanup(self.end, client)
        for address in addresses():
            self.wait_for_port(address)
        server, = children(client.pid)
        client.send_signal(signal.SIGINT)
        client.communicate(timeout=PATIENCE_S)
        self.assertEqual(client.returncode, -signal.SIGINT)
        self.assertTrue(wait_gone(server))


def sockets():
    """Local addresses of UDP sockets, as text."""
    with open("/proc/net/udp", encoding="ascii") as f:
        local = re.findall(r"^ *\d+: ([0-9A-F]{8}):([0-9A-F]{4})", f.read(), re.M)
    return {".".join(str(b) for b in reversed(bytes.fromhex(ip))) + f":{int(port, 16)}"
            for ip, port in local}


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [int(word) for word in f.read().split()]


def stat(pid):
    """What the system says of a process behind its name, None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def go_on(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def counter(pid, name):
    """Of the NIC of a process."""
    return sum(row[name] for row in json.loads(run("stat", "-j", "pid", str(pid)).stdout or "[]"))


def wait_gone(pid):
    return wait_for(lambda: (stat(pid) or ["Z"])[0] == "Z", f"process {pid} stays")


if __name__ == "__main__":
    main()
