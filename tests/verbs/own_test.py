#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Verbs programs of our own, in plain C against <infiniband/verbs.h>, under `verbena run`: every byte
and every status is theirs to judge (verify.c, life.c, ends.c,
surface.c, wrong.c, path.c, refused.c, small.c). And the launcher itself."""

import contextlib
import os
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli"))
import command  # noqa: E402

ADDRESS = "127.77.0.9"  # that no other test uses


def program(name):
    return os.path.join(os.path.dirname(command.VERBENA), "tests", f"verbs_{name}")


def both_ports():
    return ("udp", "shm", "auto")


class Programs(unittest.TestCase):
    def succeeds(self, *words, **variables):
        done = command.run("run", *words, **variables)
        self.assertEqual(done.returncode, 0, done)
        return done

    def test_every_verb(self):
        for port in both_ports():
            for way in ("old", "new"):
                with self.subTest(port=port, way=way):
                    done = self.succeeds("--port", port, "--", program("verify"), way)
                    self.assertIn("all ok", done.stdout)

    def test_every_verb_under_faults(self):
        done = self.succeeds("--faults", "drop=2%,reorder=1%,dup=1%", "--",
                             program("verify"), "new")
        self.assertIn("all ok", done.stdout)

    def test_on_several_units(self):
        done = self.succeeds("--pus", "2", "--", program("verify"), "old")
        self.assertIn("all ok", done.stdout)

    def test_life(self):
        for port in both_ports():
            with self.subTest(port=port):
                done = self.succeeds("--port", port, "--", program("life"))
                self.assertIn("all ok", done.stdout)
        self.assertIn("fork: ok", self.succeeds("--", program("life"), "leave").stdout)

    def test_ends(self):
        for port in both_ports():
            with self.subTest(port=port):  # freed memory that is used shows
                done = self.succeeds("--port", port, "--", program("ends"), MALLOC_PERTURB_="165")
                self.assertIn("all ok", done.stdout)
        slow = self.succeeds("--faults", "delay=100ms", "--", program("ends"), "polling")
        self.assertIn("polls while a queue pair ends: many", slow.stdout)

    def test_surface(self):
        for port in both_ports():
            with self.subTest(port=port):
                done = self.succeeds("--port", port, "--", program("surface"))
                self.assertIn("all ok", done.stdout)
                self.assertEqual(done.stderr, "")

    def test_paths(self):
        """Headers of datagrams are seen where there are packets."""
        for port, words in (("udp", ["0"]), ("auto", []), ("shm", [])):
            with self.subTest(port=port):
                done = self.succeeds("--port", port, "--", program("path"), *words)
                self.assertIn("all ok", done.stdout)

    def test_paths_with_a_hull(self):
        """Attributes reach the hull's packets, of queue pairs and of datagrams."""
        with tempfile.TemporaryDirectory() as place:
            config = os.path.join(place, "hull.conf")
            with open(config, "w", encoding="utf-8") as file:
                file.write("[nic paths]\naddress = 127.77.0.10\nport = udp\n"
                           "[tenant *]\ncopy = yes\n")
            hull = command.start("nic", "--config", config, VERBENA_RUNTIME_DIR=place)
            try:
                line = hull.stderr.readline()
                self.assertIn("socket", line)
                done = self.succeeds("--hull", "paths", "--", program("path"), "0",
                                     VERBENA_RUNTIME_DIR=place)
                self.assertIn("all ok", done.stdout)
            finally:
                hull.kill()
                hull.communicate()

    def test_small(self):
        self.assertIn("all ok", self.succeeds("--", program("small")).stdout)

    def test_refused(self):
        for port in both_ports():
            with self.subTest(port=port):
                done = self.succeeds("--port", port, "--", program("refused"))
                self.assertIn("all ok", done.stdout)
                self.assertEqual(done.stderr, "")

    def test_killed_in_the_middle(self):
        for port in both_ports():
            with self.subTest(port=port):
                words = ("run", "--port", port, "--address", ADDRESS, "--log", "error", "--",
                         program("life"), "stay")
                for _ in range(3):  # the address is free again each time
                    with self.staying(words):
                        if port == "udp":  # there is room for two
                            with self.staying(words):
                                continue
                        busy = command.run(*words)
                        self.assertEqual(busy.returncode, 1, busy)
                        self.assertIn(ADDRESS, busy.stderr)

    @contextlib.contextmanager
    def staying(self, words):
        """A program that has its device open; it is killed at the end."""
        process = command.start(*words)
        try:
            line = ""
            while line != "here\n":
                line = process.stdout.readline()
                self.assertNotEqual(line, "", "it ended before")
            yield
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()


class Words(unittest.TestCase):
    def test_why_it_failed(self):
        done = command.run("run", "--log", "error", "--", program("verify"), "old")
        self.assertIn("the remote key, range or right is wrong", done.stderr)
        self.assertIn("RESET to INIT: an attribute that this step needs is missing", done.stderr)
        quiet = command.run("run", "--", program("verify"), "old")
        self.assertEqual(quiet.stderr, "")

    def test_each_reason(self):
        done = command.run("run", "--log", "error", "--address", ADDRESS, "--", program("wrong"))
        self.assertEqual(done.returncode, 0, done)
        lines = done.stderr.splitlines()
        for who, words in (
                ("request", "receiver not ready: the peer posted no receive in time"),
                ("request", "timeout: no answer from the peer: retries exceeded"),
                ("request", "wrong key, on the peer's side: the remote key, range or right"),
                ("request", "wrong key, on this side: a local key, range or right is wrong"),
                ("receive", "wrong length, on this side: the message is longer than the receive"),
                ("request", "wrong length or form, on the peer's side")):
            with self.subTest(words):
                self.assertTrue(any(f"to {ADDRESS}, queue pair" in line and words in line and
                                    f" {who} with wr_id" in line for line in lines), done)
        quiet = command.run("run", "--", program("wrong"))
        self.assertEqual((quiet.returncode, quiet.stderr), (0, ""))

    def test_where_the_device_is(self):
        done = command.run("run", "--log", "info", "--address", ADDRESS, "--", program("verify"))
        self.assertIn(f"verbena0 is at {ADDRESS}", done.stderr)
        taken = command.run("run", "--log", "error", "--address", "192.0.2.77", "--",
                            program("verify"))
        self.assertEqual(taken.returncode, 1, taken)
        self.assertIn("192.0.2.77", taken.stderr)

    def test_retries_exceeded(self):
        """Nothing arrives: the request fails as a card's would, and says why."""
        done = command.run("run", "--log", "error", "--faults", "drop=100%", "--",
                           program("verify"), "old")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("no answer from the peer: retries exceeded", done.stderr)


class Launcher(unittest.TestCase):
    def test_off(self):
        off = command.run("run", "--", "printenv", "LD_LIBRARY_PATH", VERBENA="off")
        self.assertNotIn("lib/verbena", off.stdout)
        on = command.run("run", "--", "printenv", "LD_LIBRARY_PATH", LD_LIBRARY_PATH="/there")
        self.assertRegex(on.stdout, r"lib/verbena:/there\n$")

    def test_status_is_the_programs(self):
        self.assertEqual(command.run("run", "--", "sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(command.run("run", "--", "no-such-program").returncode, 127)
        self.assertEqual(command.run("run", "--", "/").returncode, 126)

    def test_options_reach_the_program(self):
        done = command.run("run", "--port", "shm", "--faults", "drop=1%", "--pus", "4", "--log",
                           "info", "--", "env")
        for line in ("VERBENA_PORT=shm", "VERBENA_FAULTS=drop=1%", "VERBENA_PUS=4",
                     "VERBENA_LOG=info"):
            self.assertIn(line, done.stdout.splitlines())

    def test_bad_words(self):
        for words, right in ((("--port", "ship", "--", "true"), "udp, shm and auto"),
                             (("--log", "loud", "--", "true"), "error, info and debug"),
                             (("--faults", "dorp=1%", "--", "true"), "dorp"),
                             (("--pus", "3", "--", "true"), "1, 2, 4, 8 and 16"),
                             ((), "PROGRAM"), (("--",), "PROGRAM"), (("true",), "--")):
            with self.subTest(words):
                done = command.run("run", *words)
                self.assertEqual(done.returncode, 2, done)
                self.assertEqual(done.stderr.count("\n"), 1, done)
                self.assertIn(right, done.stderr)

    def test_idle_library_costs_nothing(self):
        """A program that loads it and calls no verb has no thread and no socket of ours."""
        done = command.run("run", "--", "sh", "-c",
                           "LD_PRELOAD=libibverbs.so.1 ls /proc/self/task /proc/self/fd")
        self.assertEqual(done.returncode, 0, done)
        tasks, fds = done.stdout.split("/proc/self/fd:")[::-1] if done.stdout.startswith(
            "/proc/self/fd:") else done.stdout.split("/proc/self/task:")
        self.assertLessEqual(len((tasks + fds).split()), 9, done)


if __name__ == "__main__":
    command.main(tools=("ibv_devinfo",))
