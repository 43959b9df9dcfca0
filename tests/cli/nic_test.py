#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""verbena nic: readiness, the service manager, reload, a clean end, and words for bad input."""

import os
import pathlib
import resource
import signal
import socket
import stat
import subprocess

import command
from command import TIMEOUT_S, WithFiles, environment, main

ADDRESS = "127.47.0.1"
PATIENCE_S = 30


class Nic(WithFiles):
    def setUp(self):
        super().setUp()
        os.chmod(self.dir.name, 0o700)
        self.place = {"VERBENA_RUNTIME_DIR": self.dir.name}
        self.child = None

    def tearDown(self):
        if self.child:
            if self.child.poll() is None:
                self.child.kill()
            self.child.communicate()
        super().tearDown()

    def start(self, *words, **variables):
        """Starts it and waits for its line on the descriptor that it was given."""
        ready, given = os.pipe()
        self.child = subprocess.Popen(
            [command.VERBENA, "nic", "--ready-fd", str(given), *words], pass_fds=[given],
            env=environment(**self.place, **variables), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        os.close(given)
        with os.fdopen(ready) as line:
            self.assertEqual(line.read(), "ready\n")

    def hear(self, words):
        """Waits until it says so."""
        while words not in (line := self.child.stderr.readline()):
            self.assertNotEqual(line, "", f"it ended and did not say '{words}'")

    def end(self, how=signal.SIGTERM):
        self.child.send_signal(how)
        out, err = self.child.communicate(timeout=TIMEOUT_S)
        self.assertEqual((self.child.returncode, out), (0, ""), err)
        return err

    def test_a_socket_comes_and_goes(self):
        for how in (signal.SIGTERM, signal.SIGINT):
            self.start("--address", ADDRESS, "--port", "udp")
            path = self.path("hull-verbena0")
            mode = os.stat(path).st_mode
            self.assertTrue(stat.S_ISSOCK(mode))
            self.assertEqual(mode & 0o777, 0o600)
            self.assertIn(path, self.end(how))
            self.assertFalse(os.path.exists(path))

    def test_who_asked_for_a_line_may_be_gone(self):
        ready, given = os.pipe()
        os.close(ready)
        self.child = subprocess.Popen(
            [command.VERBENA, "nic", "--ready-fd", str(given), "--address", ADDRESS, "--port", "udp"],
            pass_fds=[given], env=environment(**self.place), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        os.close(given)
        self.assertIn("socket", self.child.stderr.readline())
        with self.attach(self.path("hull-verbena0")) as client:
            client.send(b"x")
            self.assertEqual(client.recv(1), b"")  # it serves, after it has written the line
        self.end()

    def test_a_file_at_its_place_is_left_alone(self):
        path = self.path("precious", "not a socket")
        done = command.run("nic", "--address", ADDRESS, "--port", "udp", "--socket", path,
                           **self.place)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("in use", done.stderr)
        with open(path) as kept:
            self.assertEqual(kept.read(), "not a socket")

    def test_two_nics_by_a_file(self):
        config = self.path("config", f"[nic one]\naddress = {ADDRESS}\nport = udp\n"
                                     f"group = {os.getgid()}\n"
                                     f"[nic two]\naddress = 127.47.0.2\nport = udp\n"
                                     f"socket = {self.path('elsewhere')}\n")
        self.start("--config", config)
        self.assertEqual(os.stat(self.path("hull-one")).st_mode & 0o777, 0o660)
        self.assertEqual(os.stat(self.path("elsewhere")).st_mode & 0o777, 0o600)
        self.end()

    def test_the_service_manager_is_told(self):
        path = self.path("notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(path)
            manager.settimeout(PATIENCE_S)
            self.start("--address", ADDRESS, "--port", "udp", NOTIFY_SOCKET=path)
            self.assertIn(b"READY=1", manager.recv(1000))
            self.end()
            self.assertIn(b"STOPPING=1", manager.recv(1000))

    def test_a_file_is_read_again(self):
        config = self.path("config", f"[nic one]\naddress = {ADDRESS}\nport = udp\n")
        self.start("--config", config)
        self.path("config", "[nic one\n")
        self.child.send_signal(signal.SIGHUP)
        self.hear("line 1: a section ends with ]; all stays as it was")
        self.path("config", "[tenant *]\nregions = 1\n")
        self.child.send_signal(signal.SIGHUP)
        self.hear("quotas were read again; NICs stay as they are until a restart\n")
        self.end()

    def test_a_file_is_read_again_with_the_same_nics(self):
        config = self.path("config", f"[nic one]\naddress = {ADDRESS}\nport = udp\n")
        self.start("--config", config)
        with open(config, "a") as more:
            more.write("[tenant *]\nregions = 1\n")
        self.child.send_signal(signal.SIGHUP)
        self.hear("quotas were read again\n")
        self.end()

    def test_the_command_inspects_it(self):
        self.start("--address", ADDRESS, "--port", "udp")
        done = command.run("link", **self.place)
        self.assertIn(ADDRESS, done.stdout, done)
        self.end()

    def descriptors(self):
        """How many the hull has."""
        return len(os.listdir(f"/proc/{self.child.pid}/fd"))

    def attach(self, path):
        """Connects as an application that has not said anything yet."""
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.settimeout(PATIENCE_S)
        client.connect(path)
        return client

    def test_who_is_attached_is_told_of_at_the_end(self):
        self.start("--address", ADDRESS, "--port", "udp")
        before = self.descriptors()
        with self.attach(self.path("hull-verbena0")) as client:
            command.wait_for(lambda: self.descriptors() > before, "nobody is attached")
            self.assertIn("NIC verbena0 ends, with 1 applications attached", self.end())
            self.assertEqual(client.recv(1), b"")

    def test_a_socket_that_was_left_behind_is_taken(self):
        self.start("--address", ADDRESS, "--port", "udp")
        self.child.kill()
        self.child.communicate()
        self.assertTrue(os.path.exists(self.path("hull-verbena0")))
        self.start("--address", ADDRESS, "--port", "udp")
        self.end()

    def test_two_at_one_place(self):
        self.start("--address", ADDRESS, "--port", "udp", "--metrics", self.path("metrics"))
        self.refused(1, "--address", ADDRESS, "--port", "udp", said="is in use: another hull")
        self.refused(1, "--address", ADDRESS, "--port", "udp", "--name", "two", "--metrics",
                     self.path("metrics"), said="Address already in use")
        self.end()

    def limited(self, which, limit, *words):
        return subprocess.Popen(
            [command.VERBENA, "nic", "--address", ADDRESS, "--port", "udp", *words],
            env=environment(**self.place), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, preexec_fn=lambda: resource.setrlimit(which, (limit, limit)))

    def test_few_descriptors(self):
        self.child = self.limited(resource.RLIMIT_NOFILE, 64)
        self.assertIn("descriptors, the system 64: who would need more is refused",
                      self.child.stderr.readline())
        self.assertIn("socket", self.child.stderr.readline())
        before = self.descriptors()
        clients = [self.attach(self.path("hull-verbena0")) for _ in range(80)]
        ended = [client for client in clients[40:] if client.recv(1) == b""]
        self.assertEqual(len(ended), 40)  # at once
        for client in clients:
            client.close()
        command.wait_for(lambda: self.descriptors() <= before, "the hull keeps descriptors")
        with self.attach(self.path("hull-verbena0")) as client:  # and others are heard again
            client.send(b"x")
            self.assertEqual(client.recv(1), b"")
        self.end()

    def test_no_room_for_its_memory(self):
        self.child = self.limited(resource.RLIMIT_FSIZE, 0)
        _, err = self.child.communicate(timeout=TIMEOUT_S)
        self.assertEqual((self.child.returncode, err.count("\n")), (1, 1), err)
        self.assertIn("File too large", err)

    def test_units_have_threads(self):
        self.start("--address", ADDRESS, "--port", "udp", "--pus", "4")
        tasks = f"/proc/{self.child.pid}/task"
        names = sorted(pathlib.Path(tasks, t, "comm").read_text().strip() for t in os.listdir(tasks))
        for name in ("verbena-hull", "verbena-hull-1", "verbena-hull-2", "verbena-hull-3"):
            self.assertIn(name, names)
        done = command.run("link", "-d", **self.place)
        self.assertIn(" units 4", done.stdout, done)
        self.end()

    def test_units_are_pinned(self):
        cpus = sorted(os.sched_getaffinity(0))
        pair = [cpus[-1], cpus[0]]
        self.start("--config", self.path("pinned", f"[nic two]\naddress = {ADDRESS}\nport = udp\n"
                                         f"pus = 2\ncpu = {pair[0]},{pair[1]}\n"))
        tasks = f"/proc/{self.child.pid}/task"
        there = {pathlib.Path(tasks, t, "comm").read_text().strip(): os.sched_getaffinity(int(t))
                 for t in os.listdir(tasks)}
        self.assertEqual([there["verbena-hull"], there["verbena-hull-1"]], [{cpu} for cpu in pair])
        self.end()

    def refused(self, status, *words, said):
        done = command.run("nic", *words, **self.place)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(said, done.stderr)

    def test_bad_input(self):
        self.refused(2, "now", said="takes no 'now'")
        self.refused(2, "--config", self.path("none"), said="No such file")
        self.refused(2, "--config", self.path("bad", "[nic a]\ncpu = x\n"), said="line 2: cpu is 'x'")
        self.refused(2, "--config", self.path("same", "[nic a]\n[nic b]\n"),
                     said="NICs 'a' and 'b' have one address")
        self.refused(2, "--config", self.path("twice", "[tenant *]\n[tenant *]\n"),
                     said="line 2: there is a section of tenant '*' already")
        self.refused(2, "--config", self.path("few", "[nic a]\npus = 2\ncpu = 1\n"),
                     said="NIC 'a' has 2 units (pus), and cpu names 1: give one for each, or none")
        self.refused(1, "--config", self.path("far", f"[nic a]\naddress = {ADDRESS}\nport = udp\n"
                                              "pus = 2\ncpu = 1023,1022\n"),
                     said="NIC a: unit 1 cannot run on cpu 1023")
        self.refused(2, "--pus", "3", said="--pus 3: give 1, 2, 4, 8 or 16")
        self.refused(2, "--pus", "32", said="--pus")
        self.refused(2, "--socket", "here", said="a path from / on")
        self.refused(2, "--config", self.path("two", "[nic a]\n[nic b]\nport = udp\n"), "--socket", "/x",
                     said="there are 2")
        self.refused(2, "--name", "a:b", said="--name is letters, digits, - and _, not 'a:b'")
        self.refused(2, "--ready-fd", "99", said="--ready-fd 99 is not open")
        self.refused(1, "--port", "ship", said="no port 'ship'")
        self.refused(1, "--address", "192.0.2.1", "--port", "udp", said="NIC verbena0: ")
        self.refused(1, "--address", ADDRESS, "--port", "udp", "--socket", "/nowhere/at/all",
                     said="/nowhere/at/all: No such file")


if __name__ == "__main__":
    main()
