#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A hull that is killed and restarted by a service manager: memory with a name is as it was."""

import os
import random
import signal
import socket
import sys
import time
import unittest

import hull_kit
from command import TIMEOUT_S, main

ADDRESS = "127.64.0.1"
LIVES, NAMES, LIFE_S = 12, 8, 0.003  # names that find room at a manager which does not listen
MANY = 150
WORDS = ("--address", ADDRESS, "--port", "udp")


class Store(hull_kit.WithHull):
    def setUp(self):
        super().setUp()
        self.manager = hull_kit.Manager(self.path("notify"))
        self.addCleanup(self.manager.close)

    def name(self, name):
        return f"memory.verbena0.{os.getuid()}.{name}"

    def test_killed_and_restarted(self):
        self.start(*WORDS, manager=self.manager)
        app = self.attach()
        self.assertEqual(self.ask(app, "put table 65536 first"), "ok")
        self.assertEqual(self.ask(app, "put o:d+d 4096 second"), "ok")
        self.manager.hear_all()
        self.assertEqual([n for n, _ in self.manager.kept],
                         [self.name("table"), self.name("+" + b"o:d+d".hex())])
        for _ in range(3):
            self.assertEqual(self.ask(app, "put table 65536 before_the_end"), "ok")
            self.end(self.hull, signal.SIGKILL)
            self.assertTrue(self.ask(app, "get none").startswith("error the hull is gone"))
            self.leave(app)
            self.start(*WORDS, manager=self.manager)
            app = self.attach()
            self.assertEqual(self.ask(app, "get table"), "before_the_end")
            self.assertEqual(self.ask(app, "get o:d+d"), "second")
            self.assertEqual(self.ask(app, "work 10"), "ok")
        self.assertEqual(self.ask(app, "drop table"), "ok")
        self.leave(app)
        _, err = self.end(self.hull, signal.SIGTERM)
        self.assertNotIn("descriptor", err)
        self.start(*WORDS, manager=self.manager)  # an orderly restart keeps what is left
        self.manager.hear_all()
        app = self.attach()
        self.assertIn("there is no memory 'table'", self.ask(app, "get table"))
        self.assertEqual(self.ask(app, "get o:d+d"), "second")

    def test_many_names(self):
        """More than the first hundred descriptors of the manager."""
        self.start(*WORDS, manager=self.manager)
        app = self.attach()
        for i in range(MANY):
            self.assertEqual(self.ask(app, f"put n{i} 4096 t{i}"), "ok")
            self.manager.hear_all()
        self.end(self.hull, signal.SIGKILL)
        self.start(*WORDS, manager=self.manager)
        app = self.attach()
        for i in range(MANY):
            self.assertEqual(self.ask(app, f"get n{i}"), f"t{i}")

    def test_killed_at_any_moment(self):
        """What an application was told of is there, whenever the hull dies."""
        draw = random.Random(seed := os.environ.get("VERBENA_SEED", "1"))
        print(f"seed {seed}; replay: VERBENA_SEED={seed} {sys.argv[0]}", flush=True)
        told = {}
        self.start(*WORDS, manager=self.manager)
        for life in range(LIVES):
            app = self.attach()
            for name, text in told.items():
                self.assertEqual(self.ask(app, f"get {name}"), text)
            self.leave(app)
            app = self.attach()
            app.stdin.write("".join(f"put n{life}-{i} 4096 t{life}-{i}\n" for i in range(NAMES)))
            app.stdin.flush()
            said = [app.stdout.readline().strip()] if life % 2 else []  # not always so early
            time.sleep(draw.random() * LIFE_S)  # the moment of the kill is drawn
            self.end(self.hull, signal.SIGKILL)
            said += app.communicate(timeout=TIMEOUT_S)[0].splitlines()
            for i in range(said.count("ok")):
                told[f"n{life}-{i}"] = f"t{life}-{i}"
            self.start(*WORDS, manager=self.manager)
        self.assertGreaterEqual(len(told), LIVES // 2)
        _, err = self.end(self.hull, signal.SIGTERM)
        self.assertNotIn("descriptor", err)

    def test_without_its_descriptors_all_is_gone(self):
        self.start(*WORDS, manager=self.manager)
        app = self.attach()
        self.assertEqual(self.ask(app, "put table 65536 first"), "ok")
        self.end(self.hull, signal.SIGKILL)
        self.start(*WORDS, manager=self.manager, given=[])
        app = self.attach()
        self.assertIn("there is no memory 'table'", self.ask(app, "get table"))

    def test_strangers_are_refused_with_words(self):
        ours, theirs = socket.socketpair()
        self.addCleanup(ours.close)
        with theirs, open("/dev/null") as null:
            self.start(*WORDS, manager=self.manager,
                       given=[("what", theirs.fileno()), (self.name("x"), null.fileno()),
                              ("memory.other.1.x", null.fileno()), ("hull-x", null.fileno())])
        app = self.attach()
        self.assertIn("there is no memory 'x'", self.ask(app, "get x"))
        ours.settimeout(hull_kit.PATIENCE_S)
        self.assertEqual(ours.recv(1), b"")  # the hull has closed its end
        _, err = self.end(self.hull, signal.SIGTERM)
        self.assertIn("descriptor 'what' is neither stored memory nor the socket", err)
        self.assertIn(f"descriptor '{self.name('x')}': this is no memfd", err)
        self.assertIn("there is no NIC 'other' now", err)
        self.manager.hear_all()
        removed = [s["FDNAME"] for s in self.manager.said if "FDSTOREREMOVE" in s]
        self.assertEqual(removed, [self.name("x")])

    def test_a_wrong_environment(self):
        with open("/dev/null") as null:
            for names, count, said in (("a:b", 1, "LISTEN_FDNAMES does not name 1"),
                                       ("a", "many", "LISTEN_FDS is 'many'"),
                                       ("a:b:c", 3, "descriptor 'c': it is not open")):
                self.start(*WORDS, manager=self.manager, given=[("a", null.fileno())], names=names,
                           count=count)
                self.attach()
                _, err = self.end(self.hull, signal.SIGTERM)
                self.assertIn(said, err)

    def test_a_socket_of_the_managers(self):
        path = self.path("hull-verbena0")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(path)
            os.chmod(path, 0o600)
            listener.listen(8)
            for _ in range(2):
                self.start(*WORDS, manager=self.manager,
                           given=[("hull-verbena0", listener.fileno())])
                self.leave(self.attach())
                _, err = self.end(self.hull, signal.SIGTERM)
                self.assertNotIn("descriptor", err)
                self.assertTrue(os.path.exists(path))


if __name__ == "__main__":
    main()
