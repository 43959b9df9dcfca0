#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Values got by their keys: every way over both ports, whole rows, right bytes, errors that are told."""

import json
import unittest

from command import main, run, some, start
from perf_test import CONTROL, KEYS, addresses, perf

WAYS = ("chain", "farm", "rpc", "rpc-blocking", "read")
LIST_WAYS = ("chain", "chase", "rpc", "rpc-blocking", "read")
MORE_KEYS = KEYS | {"via", "collision", "list", "break", "served_by", "target", "verified",
                    "latency_rnr", "rate_rnr"}


class Get(unittest.TestCase):
    def rows(self, *words):
        done, rows = perf("get", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        for row in rows:
            self.assertLessEqual(MORE_KEYS, row.keys())
            self.assertEqual(row["op"], "get")
            self.assertGreater(row["p50_ns"], 0)
            self.assertGreater(row["raw_p50_ns"], 0)
            self.assertGreater(row["ops_per_s"], 0)
            self.assertAlmostEqual(row["bytes_per_s"] / row["ops_per_s"] / row["size"], 1, 2)
            # One at a time there is always a receive.
            self.assertEqual(row["latency_rnr"], 0)
        return rows

    def test_every_way(self):
        for port in ("udp", "shm"):
            for via in WAYS:
                with self.subTest((port, via)):
                    rows = self.rows("--via", via, "--port", port, "--size", "64,65536",
                                     *some(("--iters", "300"), ("--seconds", "0.1")))
                    self.assertEqual([row["size"] for row in rows], [64, 65536])
                    for row in rows:
                        self.assertEqual((row["via"], row["port"]), (via, port))
                        self.assertEqual("read_ratio" in row, via == "read")

    def test_all_in_turn(self):
        for port in ("udp", "shm"):
            with self.subTest(port):
                iters = some(1000, 4000)
                rows = self.rows("--port", port, "--size", "4096", "--iters", str(iters))
                self.assertEqual(tuple(row["via"] for row in rows), WAYS)
                read = rows[-1]
                self.assertEqual(read["read_ratio"], 1)
                for row in rows:
                    # So many one by one, as many with others under way, and those that warm up
                    self.assertIn(row["verified"] - 2 * iters // 1000, (0, 1))
                    self.assertEqual(row["rate_ops"], iters)
                    self.assertEqual(row["latency_ops"], iters)
                    self.assertEqual(row["read_p50_ns"], read["p50_ns"])
                    self.assertAlmostEqual(row["read_ratio"], row["p50_ns"] / read["p50_ns"], 3)

    def test_who_serves(self):
        rows = self.rows("--port", "shm", "--iters", "100")
        self.assertEqual([(row["served_by"], row["target"]) for row in rows],
                         [("nic", "poll"), ("nic", "poll"), ("program", "poll"),
                          ("program", "block"), ("nic", "poll")])

    def test_sizes_and_depths(self):
        sizes = some([1, 63, 4097], [1, 7, 8, 63, 65, 1000, 4097])
        for depth in some(("1", "5", "128"), ("1", "2", "5", "64", "128")):
            with self.subTest(depth):
                rows = self.rows("--port", "shm", "--size", ",".join(map(str, sizes)), "--iters",
                                 "2000", "--depth", depth)
                self.assertEqual(len(rows), len(sizes) * len(WAYS))
                for row in rows:
                    self.assertIn(row["verified"], (4, 5))

    def test_keys_in_their_second_bucket(self):
        for port in ("udp", "shm"):
            for how in ("seq", "par"):
                with self.subTest((port, how)):
                    rows = self.rows("--port", port, "--collision", how, "--iters", "1000")
                    self.assertEqual({row["collision"] for row in rows}, {how})
                    self.assertEqual(len(rows), len(WAYS))

    def test_lists(self):
        for port in ("udp", "shm"):
            for nodes in some((1, 8), (1, 4, 8)):
                for more in ((), ("--break",)):
                    with self.subTest((port, nodes, more)):
                        iters = some(1000, 2000)
                        rows = self.rows("--port", port, "--list", str(nodes), "--iters",
                                         str(iters), *more)
                        self.assertEqual(tuple(row["via"] for row in rows), LIST_WAYS)
                        for row in rows:
                            self.assertEqual((row["list"], row["break"]), (nodes, bool(more)))
                            self.assertEqual(row["latency_ops"], iters)
                            self.assertIn(row["verified"] - 2 * iters // 1000, (0, 1))

    def test_lists_of_other_sizes_and_depths(self):
        for depth in some(("5",), ("1", "5", "64")):
            rows = self.rows("--port", "shm", "--list", "8", "--size", "1,33,4097", "--iters",
                             "2000", "--depth", depth)
            self.assertEqual(len(rows), 3 * len(LIST_WAYS))
        for via in LIST_WAYS:
            rows = self.rows("--port", "shm", "--list", "3", "--via", via, "--iters", "100")
            self.assertEqual([row["via"] for row in rows], [via])

    def test_a_hash_table_is_no_list(self):
        for row in self.rows("--port", "shm", "--iters", "100"):
            self.assertEqual((row["list"], row["break"]), (0, False))

    def test_with_losses(self):
        for row in self.rows("--iters", "600", "--drop", "1%", "--size", "3000", "--mtu", "1024"):
            self.assertGreaterEqual(row["rate_ops"], 600)

    def test_errors_are_told(self):
        for via, rules, right in (("read", "wc=retry_exc:read@#5", "get via read failed"),
                                  ("farm", "wc=retry_exc:read@#5", "get via farm failed"),
                                  ("chain", "qp_error=#100", "get via chain failed"),
                                  ("rpc", "qp_error=#100", "get via rpc failed")):
            with self.subTest(via):
                done, rows = perf("get", "--via", via, "--iters", "500", "--faults", rules)
                self.assertEqual((done.returncode, rows), (1, []))
                self.assertIn(right, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)

    def test_the_table(self):
        done = run("perf", "get", "--iters", "200", "--port", "shm", "--local",
                   ",".join(addresses()))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^get +shm +rc +64 +8 +1 .* via chain, [\d.]+ of a READ$")
        self.assertRegex(done.stdout, r"(?m)^get +shm .* via read$")
        self.assertRegex(done.stdout, r"(?m)^  get 64 via farm: slices")

    def test_a_server_elsewhere(self):
        ours, theirs = addresses()
        server = start("perf", "--listen", "--once", "--local", theirs, "--control", CONTROL)
        self.assertIn("serving", server.stderr.readline())
        done = run("perf", "get", theirs, "--control", CONTROL, "--iters", "1000", "--local", ours,
                   "--json")
        server.communicate(timeout=60)
        self.assertEqual((done.returncode, server.returncode), (0, 0), done.stderr)
        self.assertEqual(tuple(json.loads(line)["via"] for line in done.stdout.splitlines()), WAYS)

    def test_what_is_refused(self):
        for words, right in ((("--via", "fly"),
                              "chain, farm, chase, rpc, rpc-blocking, read and all"),
                             (("--list", "9"), "1 to 8"), (("--list", "0"), "1 to 8"),
                             (("--break",), "--list"), (("--via", "chase"), "--list"),
                             (("--list", "2", "--via", "farm"), "chase"),
                             (("--list", "2", "--collision", "seq"), "--collision"),
                             (("--list", "2", "--depth", "65"), "64"),
                             (("--collision", "both"), "none, seq and par"),
                             (("--size", "64,65537"), "64K"), (("--depth", "129"), "128"),
                             (("--qps", "2"), "--qps"), (("--service", "uc"), "need rc"),
                             (("--target", "sleep"), "--target")):
            with self.subTest(words):
                done = run("perf", "get", *words)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done)
                self.assertIn(right, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)
        for words in (("--via", "chain"), ("--collision", "seq"), ("--list", "3"), ("--break",)):
            done = run("perf", "read", *words)
            self.assertEqual(done.returncode, 2)
            self.assertIn("are for get", done.stderr)

    def test_environment(self):
        done, rows = perf("get", "--iters", "50", "--port", "shm", VERBENA_VIA="farm")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([row["via"] for row in rows], ["farm"])
        self.assertEqual(json.loads(done.stdout)["size"], 64)


if __name__ == "__main__":
    main()
