#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Bad input gets one clear line and exit status 2; help and values can be asked for."""

import unittest

from command import main, run


class Usage(unittest.TestCase):
    def refused(self, words, *expected, **variables):
        done = run(*words, **variables)
        self.assertEqual(done.returncode, 2, done)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for text in expected:
            self.assertIn(text, done.stderr)

    def test_unknown_words(self):
        self.refused(["fly"], "'fly'", "chain, demo, doctor, figures, link, nic, perf, res, run, "
                     "sim and stat")
        operations = "read, write, write_imm, send, cas, fadd, get, idle, raw"
        self.refused(["perf"], operations)
        self.refused(["perf", "fly"], "'fly'", operations)
        self.refused(["perf", "read", "--fly"], "--fly", "--help")
        self.refused(["perf", "read", "127.0.0.1", "more"], "'more'")
        self.refused(["perf", "read", "--size"], "--size needs a value")
        self.refused(["demo", "fast"], "'fast'")

    def test_values_out_of_range(self):
        for words, right in (
                (("--size", "0"), "64,4K,1M"), (("--size", "12Q"), "64,4K,1M"),
                (("--size", "64,"), "64,4K,1M"), (("--size=1G",), "256M"),
                (("--size", "-1"), "'-1'"), (("--size", "99999999999999999999"), "--size"),
                (("--depth", "0"), "1 to 4096"), (("--depth", "4097"), "1 to 4096"),
                (("--depth", "12x"), "'12x'"), (("--qps", "16385"), "1 to 16384"),
                (("--active", "2"), "1 to --qps"), (("--active", "0"), "1 to 16384"),
                (("--qps", "16384", "--depth", "4096"), "4194304 entries"),
                (("--seconds", "0"), "seconds"), (("--seconds", "nan"), "'nan'"),
                (("--iters", "-5"), "'-5'"), (("--mtu", "1000"), "256, 512, 1024"),
                (("--reads", "17"), "1 to 16"), (("--drop", "60%"), "at most 50%"),
                (("--drop", "x"), "per million"), (("--port", "ship"), "udp, shm and auto"),
                (("--local", "nowhere"), "127.0.0.1"), (("--local", "192.0.2.1"), "two addresses"),
                (("--listen",), "--listen"), (("--control", "70000"), "65535"),
                (("--depth", "2000", "--size", "64M"), "below 1000")):
            with self.subTest(words):
                self.refused(["perf", "read", *words], right)
        self.refused(["perf", "raw", "--size", "128K"], "65000")
        self.refused(["perf", "raw", "--port", "shm", "--size", "64"], "cache line")

    def test_addresses(self):
        for local, right in (
                ("::1", "fd00::1,fd00::2"), ("fd00::1,", "''"), ("::1,::1", "twice"),
                ("127.0.0.1,::1", "two IPv6"), ("fd00::1::2", "not an IP address"),
                ("1" * 200, "not an IP address"), ("127.0.0.1,127.0.0.1", "twice")):
            with self.subTest(local):
                self.refused(["perf", "read", "--local", local], "--local", right)

    def test_operations_that_a_service_has_not(self):
        for words, right in (
                (("read", "--service", "uc"), "need rc"), (("cas", "--service", "uc"), "need rc"),
                (("write", "--service", "ud"), "only send"), (("raw", "--service", "ud"), "only send"),
                (("send", "--service", "xrc"), "rc, uc and ud"),
                (("send", "--service", "ud", "--size", "8K"), "at most the MTU"),
                (("send", "--service", "ud", "--mtu", "1024", "--size", "1025"), "one packet"),
                (("cas", "--size", "64"), "must be 8"), (("fadd", "--size", "8,4"), "must be 8")):
            with self.subTest(words):
                self.refused(["perf", *words], right)

    def test_targets(self):
        self.refused(["perf", "read", "--target", "dance"], "poll, spin, sleep and compute")
        self.refused(["perf", "send", "--target", "sleep"], "read, write, cas and fadd")
        self.refused(["perf", "idle", "--target", "spin"], "read, write, cas and fadd")

    def test_faults(self):
        for rules, right in (("drop=1x", "1%, 0.5%, 10ppm"), ("fly=1%", "no such key"),
                             ("drop=1%,drop=2%", "column")):
            with self.subTest(rules):
                self.refused(["perf", "read", "--faults", rules], "--faults", right)
                self.refused(["perf", "read"], "--faults", right, VERBENA_FAULTS=rules)
        self.refused(["perf", "read", "--faults", "drop=1%", "--drop", "1%"], "give one of them")

    def test_the_environment_is_judged_too(self):
        self.refused(["perf", "read"], "VERBENA_SIZE", "'big'", VERBENA_SIZE="big")
        self.refused(["perf", "read", "-xsize", "64"], "-xsize")
        self.refused(["sim", "--seed", "1", "--seeds", "2"], "--seed", "--seeds")
        self.refused(["sim", "--chains", "some"], "'some'", "drawn, none or only")
        self.refused(["perf", "read"], "VERBENA_JSON", VERBENA_JSON="perhaps")

    def test_help_and_version(self):
        for words in (["--help"], ["perf", "--help"], ["demo", "--help"]):
            done = run(*words)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("Usage: verbena", done.stdout)
        self.assertRegex(run("--version").stdout, r"^verbena \d+\.\d+\.\d+\n$")
        self.assertEqual(run().returncode, 2)

    def test_effective_values_and_their_origin(self):
        done = run("perf", "read", "--depth=7", "--print-config", VERBENA_SIZE="4K")
        rows = {line.split()[0]: line.split()[1:3] for line in done.stdout.splitlines()}
        self.assertEqual(done.returncode, 0)
        self.assertEqual(rows["depth"], ["7", "option"])
        self.assertEqual(rows["size"], ["4K", "environment"])
        self.assertEqual(rows["qps"], ["1", "default"])
        # An option wins over the environment.
        done = run("perf", "--size", "8", "--print-config", VERBENA_SIZE="4K")
        self.assertRegex(done.stdout, r"(?m)^size +8 +option ")


class Seeds(unittest.TestCase):
    def test_the_environment_does_not_turn_many_seeds_into_one(self):
        done = run("sim", "--seeds", "3", "--ops", "50", VERBENA_SEED="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("3 seeds", done.stdout)


if __name__ == "__main__":
    main()
