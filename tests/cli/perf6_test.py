#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measurements over IPv6, in a network namespace of our own: loopback has no second ::1."""

import json
import os
import subprocess
import unittest

import command
import judge

NAMESPACE = f"verbena-perf-{os.getpid()}"
PAIR = ("fd00::1", "fd00::2")


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


def set_mtu(mtu):
    ip("-n", NAMESPACE, "link", "set", "lo", "mtu", str(mtu))


def perf(*words, local=",".join(PAIR)):
    words = ["ip", "netns", "exec", NAMESPACE, command.VERBENA, "perf", *words, "--local", local,
             "--json"]
    return subprocess.run(words, env=command.environment(), capture_output=True, text=True,
                          timeout=command.TIMEOUT_S, check=False)


class Perf6(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if ip("netns", "add", NAMESPACE).returncode != 0:
            raise judge.Skip("no network namespaces here")
        cls.addClassCleanup(ip, "netns", "del", NAMESPACE)
        ip("-n", NAMESPACE, "link", "set", "lo", "up")
        for address in PAIR:
            ip("-n", NAMESPACE, "-6", "address", "add", f"{address}/128", "dev", "lo", "nodad")

    def setUp(self):
        set_mtu(65536)

    def row(self, *words, **places):
        done = perf(*words, **places)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_every_operation(self):
        for port, real in (("udp", "udp"), ("shm", "shm"), ("auto", "shm")):
            for op in ("read", "write", "write_imm", "send", "cas", "fadd"):
                with self.subTest((op, port)):
                    row = self.row(op, "--port", port, "--iters", "2000", "--qps", "2")
                    self.assertEqual(row["port"], real)
                    self.assertGreaterEqual(row["verified"], 3)

    def test_raw_and_losses(self):
        self.assertGreater(self.row("raw", "--iters", "1000")["raw_p50_ns"], 0)
        self.row("read", "--drop", "1%", "--iters", "500", "--qps", "8")
        self.row("send", "--service", "ud", "--iters", "2000", "--depth", "16")

    def test_headers_are_longer_than_ipv4s(self):
        # 4096 bytes of payload, 36 + 4 of RoCE and 28 of IPv4 and UDP fit exactly, 48 do not.
        set_mtu(4096 + 36 + 4 + 28)
        self.assertEqual(self.row("read", "--iters", "50")["mtu"], 2048)
        self.assertEqual(self.row("read", "--iters", "50", local="127.0.0.1")["mtu"], 4096)
        done = perf("read", "--mtu", "4096")
        self.assertEqual(done.returncode, 1)
        self.assertIn("at most 2048", done.stderr)
        set_mtu(4096 + 36 + 4 + 48)
        self.assertEqual(self.row("read", "--iters", "50")["mtu"], 4096)

    def test_addresses_of_nobody(self):
        done = perf("read", local="fd00::8,fd00::9")
        self.assertEqual(done.returncode, 1)
        self.assertIn("not an address of this machine", done.stderr)
        # Memory needs no address to be real.
        self.row("read", "--port", "shm", "--iters", "100", local="fd00::8,fd00::9")


if __name__ == "__main__":
    command.main()
