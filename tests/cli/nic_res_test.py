#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""link, stat and res on a hull: its NIC is like any other, and has tenants and sessions."""

import json
import os
import pwd
import re
import shutil

import command
import hull_kit
import judge
from command import main

ADDRESS = "127.64.0.4"


class Hulls(hull_kit.WithHull):
    def setUp(self):
        super().setUp()
        self.start("--address", ADDRESS, "--port", "udp", "--name", "deck")
        self.app = self.attach("deck")
        self.assertEqual(self.ask(self.app, "put ta:ble 65536 x"), "ok")
        self.assertEqual(self.ask(self.app, "work 10"), "ok")

    def answer(self, *words):
        done = command.run(*words, **self.place)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        return done.stdout

    def rows(self, *words):
        return json.loads(self.answer(*words, "-j"))

    def test_it_is_like_any_other(self):
        row, = self.rows("link")
        self.assertEqual((row["addr"], row["hull"], row["pid"]), (ADDRESS, "deck", self.hull.pid))
        owner = {"uid": os.getuid(), "app": self.app.pid}
        for kind, count in (("qp", 2), ("cq", 1)):
            rows = self.rows("res", kind)
            self.assertEqual(len(rows), count)
            for row in rows:
                self.assertEqual({k: row[k] for k in owner}, owner)
        self.assertEqual(len(self.rows("res", "mr")), 1)
        self.assertEqual(self.rows("res", "qp", "app", str(self.app.pid)), self.rows("res", "qp"))
        self.assertEqual(self.rows("stat", "qp")[0]["app"], self.app.pid)

    def test_tenants(self):
        row, = self.rows("res", "tenant")
        self.assertEqual((row["uid"], row["applications"], row["queue_pairs"], row["named"]),
                         (os.getuid(), 1, 2, 1))
        self.assertGreater(row["bytes"], 65536)
        self.assertNotIn("max_bytes", row)
        detailed, = self.rows("res", "tenant", "-d")
        self.assertEqual(detailed["max_bytes"], 64 << 30)
        self.assertEqual(detailed["queue_pairs"], 2)
        self.assertRegex(self.answer("res", "tenant"),
                         rf"^dev verbena0 uid {os.getuid()} applications 1 queue_pairs 2 .* pid "
                         rf"{self.hull.pid} comm verbena\n$")
        done = command.run("res", "tenant", "uid", str(os.getuid() + 1), **self.place)
        self.assertEqual((done.returncode, done.stdout), (1, ""))

    def test_who_may_attach_is_told_of_himself(self):
        self.assertEqual(self.rows("res", "tenant", "hull", "deck"), self.rows("res", "tenant"))
        elsewhere = self.path("elsewhere")  # as another user, who sees the socket alone
        os.mkdir(elsewhere, 0o700)
        path, self.place = self.path("hull-deck"), {"VERBENA_RUNTIME_DIR": elsewhere}
        row, = self.rows("res", "tenant", "hull", path)
        self.assertEqual((row["hull"], row["uid"], row["applications"], row["queue_pairs"],
                          row["named"]), (path, os.getuid(), 1, 2, 1))
        self.assertNotIn("max_bytes", row)
        self.assertEqual(self.rows("res", "tenant", "hull", path, "-d")[0]["max_bytes"], 64 << 30)
        self.assertIn(f"hull {path} uid {os.getuid()} applications 1 ",
                      self.answer("res", "tenant", "hull", path))
        done = command.run("res", "tenant", "hull", "none", **self.place)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("no hull at", done.stderr)

    def test_sessions(self):
        second = self.attach("deck")
        rows = self.rows("res", "session")
        self.assertEqual([row["app"] for row in rows], [self.app.pid, second.pid])
        self.assertEqual([row["name"] for row in rows], ["hull_app"] * 2)
        self.assertEqual([row["qp"] for row in rows], [2, 0])
        self.assertEqual([row["mr"] for row in rows], [1, 0])
        self.assertGreater(rows[0]["bytes"], 65536)
        self.assertEqual(rows[1]["bytes"], 0)
        self.assertEqual(len(self.rows("res", "session", "app", str(second.pid))), 1)
        self.leave(second)
        self.assertEqual(len(self.rows("res", "session")), 1)

    def test_named_memory(self):
        row, = self.rows("res", "memory")
        self.assertEqual((row["uid"], row["name"], row["bytes"], row["users"]),
                         (os.getuid(), "ta:ble", 65536, 1))
        self.leave(self.app)
        row, = self.rows("res", "memory", "name", "ta:ble")
        self.assertEqual(row["users"], 0)

    def test_rates(self):
        row, = self.rows("stat", "tenant")
        self.assertGreaterEqual(row["sent_bytes"], 10 * 2048)
        self.assertEqual(row["uid"], os.getuid())
        self.app.stdin.write("work 200000\n")
        self.app.stdin.flush()
        text = self.answer("stat", "tenant", "--watch", "0.3", "--count", "1")
        rate = re.search(rf"uid {os.getuid()} .*sent_bytes (\d+)/s", text)
        self.assertTrue(rate, text)
        self.assertGreater(int(rate[1]), 0)

    @judge.needs(root=True)  # to become somebody else
    def test_root_sees_the_hulls_of_others(self):
        nobody = pwd.getpwnam("nobody")
        os.chmod(self.dir.name, 0o755)
        theirs, program = self.path("theirs"), self.path("verbena")
        os.mkdir(theirs, 0o755)
        os.chown(theirs, nobody.pw_uid, nobody.pw_gid)
        shutil.copy(command.VERBENA, program)
        self.place = {"VERBENA_RUNTIME_DIR": theirs}
        child = self.spawn(program, "nic", "--address", "127.64.0.5", "--port", "udp",
                           user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[])
        self.assertIn("socket", child.stderr.readline())
        self.assertEqual(self.rows("link")[0]["pid"], child.pid)
        app = self.attach(os.path.join(theirs, "hull-verbena0"))
        self.assertEqual(self.rows("res", "tenant")[0]["uid"], os.getuid())
        self.leave(app)
        os.chmod(theirs, 0o777)
        done = command.run("link", **self.place)
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertIn(theirs, done.stderr)

    def test_an_application_has_no_tenants(self):
        self.leave(self.app)
        self.hull.terminate()
        self.hull.wait(command.TIMEOUT_S)
        for kind in ("tenant", "session", "memory"):
            self.assertEqual(self.rows("res", kind), [])
        program = os.path.join(os.path.dirname(command.VERBENA), "tests/inspect_target")
        child = self.spawn(program, ADDRESS)
        self.assertIn("ready", child.stdout.readline())
        for kind in ("tenant", "session", "memory"):
            self.assertEqual(self.rows("res", kind), [])
        self.assertNotIn("hull", self.rows("link")[0])


if __name__ == "__main__":
    main()
