#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""verbena run --hull: unmodified programs, whose memory the hull copies, on its NICs."""

import os
import signal
import subprocess

import command
import netns
from command import TIMEOUT_S, WithFiles, environment, main

ADDRESS = "127.47.1.1"
FURTHER = "127.47.1.2"
TCP_PORT = 18747
PINGPONGS = ("rc", "uc", "ud", "srq", "xsrq")


class HullRun(WithFiles):
    def setUp(self):
        super().setUp()
        os.chmod(self.dir.name, 0o700)
        self.place = {"VERBENA_RUNTIME_DIR": self.dir.name}
        self.hull = None

    def tearDown(self):
        if self.hull and self.hull.poll() is None:
            self.hull.kill()
            self.hull.wait()
        super().tearDown()

    def start_hull(self, copy="yes"):
        config = self.path("config", f"[nic one]\naddress = {ADDRESS}\nport = udp\n"
                                     f"[nic two]\naddress = {FURTHER}\nport = udp\npus = 2\n"
                                     f"[tenant *]\ncopy = {copy}\n")
        ready, given = os.pipe()
        self.hull = subprocess.Popen(
            [command.VERBENA, "nic", "--ready-fd", str(given), "--config", config],
            pass_fds=[given], env=environment(**self.place), stderr=subprocess.DEVNULL)
        os.close(given)
        with os.fdopen(ready) as line:
            self.assertEqual(line.read(), "ready\n")

    def end_hull(self):
        self.hull.send_signal(signal.SIGTERM)
        self.assertEqual(self.hull.wait(timeout=TIMEOUT_S), 0)

    def popen(self, hull, *words, stdout=subprocess.PIPE):
        return subprocess.Popen([command.VERBENA, "run", "--log", "info", "--hull", hull, "--",
                                 *words], env=environment(**self.place), stdout=stdout,
                                stderr=subprocess.STDOUT, text=True)

    def both(self, hulls, server, client, tcp_port=None):
        """A server, and a client once that listens: on a TCP port, or with rdma_cm."""
        words = self.path("server", "")

        def said():
            with open(words, encoding="utf-8") as file:
                return file.read()

        def is_ready(there):
            listens = netns.is_listening(there.pid, tcp_port) if tcp_port else \
                "rdma_listen:" in said()
            return listens or there.poll() is not None
        with open(words, "w", encoding="utf-8") as file, \
                self.popen(hulls[0], *server, stdout=file) as there:
            try:
                command.wait_for(lambda: is_ready(there), f"{server} does not listen")
                with self.popen(hulls[1], *client) as here:
                    text, _ = here.communicate(timeout=TIMEOUT_S)
                there.wait(TIMEOUT_S)
            finally:
                there.kill()
        self.assertEqual((here.returncode, there.returncode), (0, 0), text + said())
        return text + said()

    def test_pingpongs(self):
        self.start_hull()
        for hulls in (("one", "two"), ("one", "one")):
            for service in PINGPONGS:
                for events in ((), ("-e",)):
                    words = (f"ibv_{service}_pingpong", "-g", "0", "-n", "200", "-p", str(TCP_PORT),
                             *events)
                    with self.subTest(hulls=hulls, service=service, events=events):
                        self.both(hulls, words, (*words, "127.0.0.1"), TCP_PORT)
        self.end_hull()

    def test_connections(self):
        self.start_hull()
        for hulls in (("one", "two"), ("one", "one")):
            with self.subTest(hulls=hulls):
                text = self.both(hulls, ("rping", "-s", "-a", ADDRESS, "-C", "5", "-V"),
                                 ("rping", "-c", "-a", ADDRESS, "-C", "5", "-V", "-v"))
                self.assertIn("ping data: rdma-ping-4", text)
        self.end_hull()

    def test_it_has_to_be_allowed(self):
        self.start_hull(copy="no")
        with self.popen("one", "ibv_devinfo") as done:
            text, _ = done.communicate(timeout=TIMEOUT_S)
        self.assertIn("copy = yes", text)
        with self.popen("nobody", "ibv_devinfo") as done:
            text, _ = done.communicate(timeout=TIMEOUT_S)
        self.assertIn("no hull at", text)
        self.end_hull()


if __name__ == "__main__":
    main()
