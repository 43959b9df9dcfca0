#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measurements on this machine: rows are whole, every 1000th operation is verified, nobody hangs."""

import contextlib
import json
import os
import re
import signal
import socket
import time
import unittest

from command import main, run, start

KEYS = {"op", "port", "size", "depth", "qps", "p50_ns", "p99_ns", "p999_ns", "ops_per_s",
        "bytes_per_s", "raw_p50_ns"}
CONTROL = str(20000 + os.getpid() % 20000)


def addresses():
    """Two that no other test uses."""
    pid = os.getpid()
    middle = f"{pid >> 8 & 255}.{pid & 255}"
    return f"127.201.{middle}", f"127.202.{middle}"


def perf(*words):
    done = run("perf", *words, "--json", "--local", ",".join(addresses()))
    return done, [json.loads(line) for line in done.stdout.splitlines()]


class Perf(unittest.TestCase):
    def rows(self, *words):
        done, rows = perf(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        for row in rows:
            self.assertLessEqual(KEYS, row.keys())
            self.assertGreater(row["p50_ns"], 0)
            self.assertLessEqual(row["p50_ns"], row["p999_ns"])
            self.assertGreater(row["raw_p50_ns"], 0)
            self.assertGreater(row["ops_per_s"], 0)
            self.assertAlmostEqual(row["bytes_per_s"] / row["ops_per_s"] / row["size"], 1, 2)
        return rows

    def test_every_operation_and_many_sizes(self):
        sizes = [1, 2, 3, 7, 8, 9, 64, 1000, 4096, 4097, 65536]
        text = ",".join(map(str, sizes))
        for op in ("read", "write", "send"):
            with self.subTest(op):
                rows = self.rows(op, "--size", text, "--iters", "2000", "--depth", "32")
                self.assertEqual([row["size"] for row in rows], sizes)
                for row in rows:
                    self.assertEqual(row["op"], op)
                    # 2,000 one by one, 2,000 and one in flight, and those that warm up
                    self.assertIn(row["verified"], (4, 5))
                    self.assertGreaterEqual(row["rate_ops"], 2000)

    def test_several_queue_pairs_verify_each(self):
        for op in ("read", "write", "send"):
            with self.subTest(op):
                row, = self.rows(op, "--qps", "5", "--iters", "20000", "--size", "200")
                self.assertEqual(row["qps"], 5)
                self.assertGreaterEqual(row["verified"], 35)

    def test_depths(self):
        for depth in (1, 2, 5, 130, 4096):
            with self.subTest(depth):
                row, = self.rows("write", "--depth", str(depth), "--iters", "9000")
                self.assertEqual(row["depth"], depth)
                self.assertGreaterEqual(row["verified"], 18)

    def test_long_messages(self):
        for op in ("read", "write", "send"):
            with self.subTest(op):
                self.rows(op, "--size", "1M,5M", "--iters", "20", "--depth", "4")

    def test_with_losses(self):
        for op in ("read", "write", "send"):
            with self.subTest(op):
                row, = self.rows(op, "--drop", "1%", "--iters", "1200", "--size", "3000",
                                 "--mtu", "1024", "--depth", "16")
                self.assertGreaterEqual(row["verified"], 2)

    def test_raw(self):
        row, = self.rows("raw", "--seconds", "0.2", "--size", "100")
        self.assertEqual(row["op"], "raw")

    def test_the_table(self):
        done = run("perf", "read", "--iters", "500", "--local", ",".join(addresses()))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^read +udp +64 +128 +1 +\d")

    def test_an_address_in_use(self):
        server = self.listen(addresses()[0])
        busy = start("perf", "write", addresses()[0], "--control", CONTROL, "--seconds", "20",
                     "--local", addresses()[1])
        self.wait_for_port(addresses()[1])
        done = run("perf", "read", "--iters", "10", "--local", ",".join(reversed(addresses())))
        self.assertEqual(done.returncode, 1)
        self.assertIn("is in use", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.end(busy)
        self.assertEqual(server.wait(20), 0)

    def listen(self, address):
        server = start("perf", "--listen", "--once", "--local", address, "--control", CONTROL)
        self.addCleanup(self.end, server)
        line = server.stderr.readline()
        self.assertIn("serving", line)
        return server

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def wait_for_port(self, address):
        until = time.monotonic() + 20
        while f"{address}:4791" not in sockets():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)

    def test_a_server_elsewhere(self):
        server = self.listen(addresses()[0])
        done = run("perf", "send", addresses()[0], "--control", CONTROL, "--iters", "2000",
                   "--local", addresses()[1], "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreaterEqual(json.loads(done.stdout)["verified"], 4)
        self.assertEqual(server.wait(20), 0)

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
        self.assertEqual(server.wait(20), 0)

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
                _, errors = client.communicate(timeout=30)
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
        client.communicate(timeout=30)
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


def wait_gone(pid):
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as f:
                if f.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


if __name__ == "__main__":
    main()
