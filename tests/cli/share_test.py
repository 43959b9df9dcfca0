#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Several servers on one address, clients behind a link: frames from elsewhere reach each of them,
whoever is killed or stopped. Needs root for network namespaces."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import unittest

import command
import netns

FIRST_CONTROL = 21000
PINGS = 300
FAMILIES = {"IPv4": ("10.77.1.1", "10.77.1.2", "24"), "IPv6": ("fd00:77::1", "fd00:77::2", "64")}
OPTIONS = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


class Share(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        place = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.here = self.stack.enter_context(netns.Namespace("here"))
        self.there = self.stack.enter_context(netns.Namespace("there"))
        netns.command("ip", "link", "add", "name", "va", "netns", self.here.name, "type", "veth",
                      "peer", "name", "vb", "netns", self.there.name)
        for space, link, side in ((self.here, "va", 0), (self.there, "vb", 1)):
            for family in FAMILIES.values():
                space.ip("address", "add", f"{family[side]}/{family[2]}", "dev", link,
                         *(["nodad"] if ":" in family[side] else []))
            space.ip("link", "set", link, "up")
        self.environment = command.environment(VERBENA_RUNTIME_DIR=place)

    def start(self, space, *words):
        return space.popen([command.VERBENA, *words], env=self.environment, **OPTIONS)

    def pingpong(self, space, address, i, *peer):
        return self.start(space, "run", "--address", address, "--", "ibv_rc_pingpong", "-g", "0",
                          "-e", "-c", "-m", "1024", "-n", PINGS, "-p", FIRST_CONTROL + i, *peer)

    def serve(self, family, i):
        """A process with a NIC that waits for its client."""
        server = self.pingpong(self.here, FAMILIES[family][0], i)
        self.assertTrue(self.here.wait_listening(FIRST_CONTROL + i, server))
        return server

    def expect_answers(self, family, servers):
        """All at the same time, so that the clients share an address, too."""
        there = FAMILIES[family][1]
        clients = [self.pingpong(self.there, there, i, FAMILIES["IPv4"][0]) for i in servers]
        for process in (*clients, *servers.values()):
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, err)

    def test_every_server_is_reached(self):
        for family in FAMILIES:
            with self.subTest(family):
                servers = {i: self.serve(family, i) for i in range(6)}
                servers[0].kill()  # the first of all
                servers[1].send_signal(signal.SIGSTOP)
                self.expect_answers(family, {i: servers[i] for i in (2, 4)})
                servers[3].kill()
                servers[0] = self.serve(family, 0)
                self.expect_answers(family, {i: servers[i] for i in (0, 5)})
                servers[1].send_signal(signal.SIGCONT)
                self.expect_answers(family, {1: servers[1]})

    def test_another_users_port(self):
        holder = self.here.popen(
            [sys.executable, "-c",
             "import os, socket, time; os.setgid(65534); os.setuid(65534)\n"
             "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
             "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
             "s.bind(('10.77.1.1', 4791)); print('bound', flush=True); time.sleep(60)"], **OPTIONS)
        self.assertEqual(holder.stdout.readline(), "bound\n", holder.stderr)
        done = self.start(self.here, "perf", "read", "--local", "10.77.1.1,127.0.0.1")
        _, err = done.communicate(timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"10.77.1.1 port 4791 is in use by process {holder.pid} (python", err)


if __name__ == "__main__":
    command.main(root=True, tools=("ip", "ibv_rc_pingpong"))
