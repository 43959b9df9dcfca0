#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The table of GIDs: IPv4, IPv6, 127.0.0.1 and ::1 of one device, used at once by one process, and
by programs that nobody here wrote. Needs root for network namespaces. Host packages: ibverbs-utils,
iproute2."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli"))
import command  # noqa: E402
import netns  # noqa: E402

HERE, THERE = ("10.78.1.1", "fd00:78::1"), ("10.78.1.2", "fd00:78::2")
TABLE = [HERE[0], HERE[1], "127.0.0.1", "::1"]
FIRST_TCP_PORT = 21400
LIMIT_S = 60
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


class Gids(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.place = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.here = self.stack.enter_context(netns.Namespace("gids-a"))
        self.there = self.stack.enter_context(netns.Namespace("gids-b"))
        netns.command("ip", "link", "add", "name", "va", "netns", self.here.name, "type", "veth",
                      "peer", "name", "vb", "netns", self.there.name)
        for space, link, addresses in ((self.here, "va", HERE), (self.there, "vb", THERE)):
            space.ip("address", "add", f"{addresses[0]}/24", "dev", link)
            space.ip("address", "add", f"{addresses[1]}/64", "dev", link, "nodad")
            space.ip("link", "set", link, "up")
        self.program = os.path.join(os.path.dirname(command.VERBENA), "tests", "verbs_gids")

    def start(self, space, *words, **variables):
        environment = command.environment(VERBENA_RUNTIME_DIR=self.place, **variables)
        return space.popen([command.VERBENA, *words], env=environment, **PIPES)

    def shown(self, *options, **variables):
        out, err = self.start(self.here, "run", *options, "--", "ibv_devinfo", "-v",
                              **variables).communicate(timeout=LIMIT_S)
        found = re.findall(r"GID\[\s*\d+\]:\s+(\S+), (.*)", out)
        self.assertTrue(all(kind == "RoCE v2" for _, kind in found), out + err)
        return [gid.removeprefix("::ffff:") for gid, _ in found]

    def test_the_table(self):
        self.assertEqual(self.shown(), TABLE)
        self.assertEqual(self.shown("--port", "shm"), TABLE[:1])
        self.assertEqual(self.shown("--address", "127.0.0.1"), ["127.0.0.1"])
        self.assertEqual(self.shown("--address", f"::1,{HERE[0]},127.0.0.1,192.0.2.9,10.78.1.99"),
                         ["::1", HERE[0], "127.0.0.1"])
        self.here.ip("address", "del", f"{HERE[0]}/24", "dev", "va")
        self.assertEqual(self.shown(), [HERE[1], "127.0.0.1", "::1"])

    def pass_on(self, pair):
        """What each has to tell the other."""
        said = [process.stdout.readline() for process in pair]
        for process, line in zip(pair, reversed(said)):
            if not line:
                self.fail(process.stderr.read())
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(line)
                process.stdin.flush()

    def exchange(self, spaces, count, *options):
        pair = [self.start(space, "run", *options, "--", self.program, str(count), "hold")
                for space in spaces]
        for _ in range(2 + count):
            self.pass_on(pair)
        for process in pair:
            self.assertEqual(process.stderr.readline(), "all ok\n")
        return pair

    def end(self, pair):
        for process in pair:
            _, err = process.communicate(input="x", timeout=LIMIT_S)
            self.assertEqual((process.returncode, err), (0, ""))

    def test_one_process_on_all(self):
        pair = self.exchange((self.here, self.here), 4)
        out, _ = self.start(self.here, "link").communicate(timeout=LIMIT_S)
        also = ",".join(TABLE[1:])
        self.assertEqual(out.count(f" addr {HERE[0]} also {also} type "), 2, out)
        self.end(pair)

    def test_from_elsewhere(self):
        """IPv4 and IPv6 over a link, for two pairs of processes at the same time."""
        spaces = (self.here, self.there)
        pairs = [self.exchange(spaces, 2), self.exchange(spaces, 2)]
        for pair in pairs:
            self.end(pair)
        # Only one NIC that meets others in memory is on an address.
        self.end(self.exchange(spaces, 2, "--port", "auto"))

    def test_nothing_is_taken_before_it_is_used(self):
        process = self.start(self.here, "run", "--", "ibv_rc_pingpong", "-g", "0", "-p",
                             str(FIRST_TCP_PORT))
        self.assertTrue(self.here.wait_listening(FIRST_TCP_PORT, process))
        out, _ = self.start(self.here, "link").communicate(timeout=LIMIT_S)
        self.assertIn(f" addr {HERE[0]} type udp", out)
        process.kill()

    def test_pingpongs(self):
        for i, kind in enumerate(("rc", "uc", "ud", "srq")):
            tool = f"ibv_{kind}_pingpong"
            for gid in range(len(TABLE)):
                with self.subTest(tool=tool, gid=gid):
                    port = FIRST_TCP_PORT + 1 + 4 * i + gid
                    words = ("run", "--", tool, "-g", str(gid), "-n", "200", "-p", str(port))
                    server = self.start(self.here, *words)
                    self.assertTrue(self.here.wait_listening(port, server))
                    client = self.start(self.here, *words, "127.0.0.1")
                    for process in (client, server):
                        _, err = process.communicate(timeout=LIMIT_S)
                        self.assertEqual((process.returncode, err), (0, ""))


if __name__ == "__main__":
    command.main(root=True, tools=("ip", "ibv_rc_pingpong"))
