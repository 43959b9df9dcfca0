#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""doctor says what is found, what is wrong and what to do; exit status 1 if something prevents use."""

import json
import os
import pwd
import resource
import shutil
import struct
import subprocess
import unittest

import command
import judge
from command import TIMEOUT_S, WithFiles, environment, main

COMPILER = shutil.which("cc")
# Takes UDP port 4791 on all addresses of a network namespace of its own, and asks the doctor.
TAKEN = """
import socket, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
family = socket.AF_INET6 if ":" in sys.argv[2] else socket.AF_INET
holder = socket.socket(family, socket.SOCK_DGRAM)
holder.bind((sys.argv[2], 4791))
sys.exit(subprocess.run([sys.argv[1], "doctor"]).returncode)
"""


def can_unshare():
    done = subprocess.run(["unshare", "-rn", "ip", "link", "set", "lo", "up"], capture_output=True,
                          check=False)
    return done.returncode == 0


class Doctor(WithFiles):
    def setUp(self):
        super().setUp()
        os.chmod(self.dir.name, 0o700)
        self.place = {"VERBENA_RUNTIME_DIR": self.dir.name}

    def ask(self, *words, **more):
        return subprocess.run([command.VERBENA, "doctor", *words], capture_output=True, text=True,
                              env=environment(**self.place), timeout=TIMEOUT_S, check=False, **more)

    def lines(self, text, topic):
        """(verdict, rest) of the lines on a topic."""
        rows = [line.split(None, 2) for line in text.splitlines()]
        for row in rows:
            self.assertIn(row[0], ("ok", "note", "problem"))
        return [(row[0], row[2]) for row in rows if row[1] == topic]

    def program(self, *words, **more):
        """The last line on a program, and the exit status."""
        done = self.ask("--", *words, **more)
        self.assertEqual(done.stderr, "")
        return *self.lines(done.stdout, "program")[-1], done.returncode

    def test_healthy(self):
        done = self.ask()
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        for topic in ("files", "memlock", "threads", "memfd", "directory", "sockets", "library",
                      "device"):
            self.assertEqual([row[0] for row in self.lines(done.stdout, topic)], ["ok"], topic)
        self.assertIn("verbena0", self.lines(done.stdout, "device")[0][1])
        self.assertTrue(any(text.startswith("127.0.0.1 (lo")
                            for _, text in self.lines(done.stdout, "address")))
        self.assertEqual(self.lines(done.stdout, "program"), [])
        # The registry stays; nothing of this NIC does.
        left = [name for name in os.listdir(self.dir.name) if not name.startswith("nics-")]
        self.assertEqual(left, [])

    def test_json(self):
        text = self.ask().stdout
        for words in (("-j",), ("-jp",), ("--json", "--", "cat")):
            done = self.ask(*words)
            rows = json.loads(done.stdout)
            self.assertGreaterEqual(len(rows), text.count("\n"))
            for row in rows:
                self.assertLessEqual({"verdict", "topic", "found"}, set(row))

    def test_few_descriptors(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
        done = self.ask(preexec_fn=limit)
        self.assertEqual(done.returncode, 1)
        verdict, text = self.lines(done.stdout, "files")[0]
        self.assertEqual(verdict, "problem")
        self.assertIn("24 descriptors", text)
        self.assertIn("-> raise the limit: ulimit -n", text)

    def test_no_place_for_sockets(self):
        self.place["VERBENA_RUNTIME_DIR"] = "/proc/nothing/here"
        done = self.ask()
        verdict, text = self.lines(done.stdout, "directory")[0]
        self.assertEqual(verdict, "note")  # udp works all the same
        self.assertIn("/proc/nothing/here", text)
        self.assertIn("-> set VERBENA_RUNTIME_DIR", text)
        self.assertEqual(done.returncode, 0)

    def test_switched_off(self):
        self.place["VERBENA"] = "off"
        self.assertEqual([row[0] for row in self.lines(self.ask().stdout, "switch")], ["note"])

    @unittest.skipUnless(can_unshare(), "no network namespaces here")
    def test_port_taken(self):
        # ::1 is left in the second case, but programs are not led there by themselves.
        for address, problem in (("127.0.0.1", None), ("0.0.0.0", "device"), ("::", "address")):
            done = subprocess.run(
                ["unshare", "-rn", "/usr/bin/python3", "-c", TAKEN, command.VERBENA, address],
                env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
            rows = self.lines(done.stdout, "address")
            self.assertEqual(rows[0][0], "note", done)
            self.assertRegex(rows[0][1], r"^127.0.0.1 \(lo\): UDP port 4791 is taken by process \d+ "
                             r"\(python3\) -> ")
            self.assertEqual(done.returncode, 1 if problem else 0, done)
            if problem:
                self.assertIn("problem", [row[0] for row in self.lines(done.stdout, problem)])

    @unittest.skipUnless(can_unshare(), "no network namespaces here")
    def test_no_network(self):
        done = subprocess.run(["unshare", "-rn", command.VERBENA, "doctor"], env=environment(),
                              capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 1)
        verdict, text = self.lines(done.stdout, "sockets")[0]
        self.assertEqual(verdict, "problem")
        self.assertIn("-> ip link set lo up", text)

    # ---- programs

    def file(self, name, content):
        path = self.path(name)
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, 0o755)
        return path

    def test_programs_that_are_none(self):
        self.assertEqual(self.program("no-such-program")[0::2], ("problem", 1))
        self.assertEqual(self.program(self.path("nothing"))[0::2], ("problem", 1))
        verdict, text, status = self.program(self.file("text", b"hello, world\n"))
        self.assertEqual((verdict, status), ("problem", 1))
        self.assertIn("is no program", text)
        path = self.file("closed", b"#!/bin/sh\n")
        os.chmod(path, 0o644)
        self.assertIn("may not be run", self.program(path)[1])

    def test_programs_that_cannot_be_served(self):
        with open(command.VERBENA, "rb") as file:
            machine = struct.unpack_from("<H", file.read(64), 18)[0]
        for bits, kind, wanted in ((2, machine, "statically linked"), (1, machine, "another kind"),
                                   (2, 0x1234, "another kind")):
            head = struct.pack("<4sBBB9xHHIQQQIHHHHHH", b"\x7fELF", bits, 1, 1, 2, kind, 1, 0, 64, 0,
                               0, 64, 56, 0, 64, 0, 0)
            verdict, text, status = self.program(self.file("program", head))
            self.assertEqual((verdict, status), ("problem", 1))
            self.assertIn(wanted, text)

    def test_scripts(self):
        verdict, text, status = self.program(self.file("script", b"#! /bin/sh -e\nib_send_bw\n"))
        self.assertEqual((verdict, status), ("note", 0))
        self.assertIn("not linked to libibverbs", text)
        loop = self.path("loop")
        self.file("loop", f"#!{loop}\n".encode())
        self.assertEqual(self.program(loop)[2], 0)

    # Bytes of a real program with every part of its headers bent: said something, and ended.
    def test_bent_programs(self):
        with open("/proc/self/exe", "rb") as file:
            good = file.read(1 << 16)
        for at in list(range(16, 64, 3)) + list(range(64, 64 + 56 * 3, 7)):
            for byte in (0xff, 0x7f):
                bent = bytearray(good)
                bent[at] = byte
                done = self.ask("--", self.file("bent", bytes(bent)))
                self.judge_verdict(done)
        for length in (5, 63, 64, 100, 1000):
            self.judge_verdict(self.ask("--", self.file("short", good[:length])))

    def judge_verdict(self, done):
        """It ended by itself, said something of the program, and its status says whether that was a
        problem."""
        verdicts = [row[0] for row in self.lines(done.stdout, "program")]
        self.assertNotEqual(verdicts, [], done)
        self.assertEqual((done.returncode, done.stderr), (int("problem" in verdicts), ""), done)

    @judge.needs(tools=("ibv_devinfo",))
    def test_a_verbs_program(self):
        verdict, text, status = self.program("ibv_devinfo")
        self.assertEqual((verdict, status), ("ok", 0))
        self.assertIn("it loads our libibverbs", text)

    @judge.needs(root=True, tools=("ibv_devinfo",))
    def test_set_uid(self):
        path = self.path("devinfo")
        shutil.copy(shutil.which("ibv_devinfo"), path)
        os.chown(path, pwd.getpwnam("nobody").pw_uid, 0)
        os.chmod(path, 0o4755)
        verdict, text, status = self.program(path)
        self.assertEqual((verdict, status), ("problem", 1))
        self.assertIn("set-uid", text)

    @judge.needs(tools=("cc",))
    def test_rpath(self):
        source = self.path("x.c", "struct ibv_device **ibv_get_device_list(int *n);\n"
                           "int main(void) { return !ibv_get_device_list(0); }\n")
        where = subprocess.run([COMPILER, "-print-file-name=libibverbs.so"], capture_output=True,
                               text=True, check=True).stdout.strip()
        where = os.path.dirname(os.path.realpath(where))
        for tags, verdict in (("--disable-new-dtags", "problem"), ("--enable-new-dtags", "ok")):
            path = self.path("x")
            subprocess.run([COMPILER, source, "-o", path, "-libverbs", f"-Wl,{tags},-rpath,{where}"],
                           check=True)
            found, text, _ = self.program(path)
            self.assertEqual(found, verdict, text)
            self.assertEqual("RPATH" in text, verdict == "problem")

    def test_bad_lines(self):
        for words, right in ((("ls",), "write -- before"), (("--fly",), "--fly")):
            done = self.ask(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(right, done.stderr)
        self.assertIn("Usage: verbena doctor", self.ask("--help").stdout)


if __name__ == "__main__":
    main()
