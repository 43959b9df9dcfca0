#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Real devices of the machine beside ours, under `verbena run`: a library of the tests plays the
system's libibverbs, beside.c uses both devices at once. And the system's own, whatever it has."""

import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli"))
import command  # noqa: E402


def built(name):
    return os.path.join(os.path.dirname(os.path.abspath(command.VERBENA)), "tests", name)


def devices(**variables):
    done = command.run("run", "--log", "info", "--", "ibv_devinfo", "-l", **variables)
    return done.stdout.split()[3:], done.stderr


class Beside(unittest.TestCase):
    def test_two_devices(self):
        done = command.run("run", "--", built("verbs_beside"),
                           VERBENA_REAL=built("libverbs_fake.so"))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "all ok\n", ""), done)

    def test_list(self):
        names, words = devices(VERBENA_REAL=built("libverbs_fake.so"))
        self.assertEqual(names, ["verbena0", "fake0"])
        self.assertIn("real devices by", words)

    def test_ours_works_as_ever(self):
        done = command.run("run", "--", built("verbs_verify"), "new",
                           VERBENA_REAL=built("libverbs_fake.so"))
        self.assertIn("all ok", done.stdout, done)


class Found(unittest.TestCase):
    """A machine with a card, as far as /sys says: a namespace in which it lists one."""

    def machine(self, *words):
        setup = ("mount -t tmpfs none /sys/class && mkdir /sys/class/infiniband && "
                 "ln -s ../../devices/card /sys/class/infiniband/mlx5_0 && exec \"$@\"")
        done = subprocess.run(["unshare", "-Urm", "sh", "-c", setup, "sh",
                               os.path.abspath(command.VERBENA), "run", "--log", "info", *words],
                              capture_output=True, text=True, check=False,
                              env=command.environment())
        if "unshare" in done.stderr or "mount:" in done.stderr:
            self.skipTest("no namespaces here")
        return done

    def test_the_systems_library_is_asked(self):
        done = self.machine("--", "ibv_devinfo", "-l")
        self.assertIn("verbena0", done.stdout, done)
        self.assertRegex(done.stderr, r"real devices by /usr/lib\S*/libibverbs.so.1")

    def test_its_devices_stay_in_the_view(self):
        done = self.machine("--sysfs", "--", "ls", "/sys/class/infiniband")
        self.assertEqual(done.stdout.split(), ["mlx5_0", "verbena0"], done)


class Alone(unittest.TestCase):
    def test_nothing_is_loaded_where_nothing_is(self):
        if os.path.isdir("/sys/class/infiniband"):
            self.skipTest("this machine may have devices")
        names, words = devices()
        self.assertEqual(names, ["verbena0"])
        self.assertNotIn("real devices", words)

    def test_off(self):
        names, words = devices(VERBENA_REAL="off")
        self.assertEqual(names, ["verbena0"])
        self.assertNotIn("real devices", words)

    def test_no_such_library(self):
        names, words = devices(VERBENA_REAL="/nowhere/libibverbs.so.1")
        self.assertEqual(names, ["verbena0"])
        self.assertIn("no real devices: /nowhere/libibverbs.so.1", words)

    def test_the_systems_library(self):
        path = subprocess.run(["gcc", "-print-file-name=libibverbs.so.1"], capture_output=True,
                              text=True, check=False).stdout.strip()
        if not os.path.isabs(path):
            self.skipTest("the system has none")
        names, words = devices(VERBENA_REAL=path)
        self.assertEqual(names[0], "verbena0")
        self.assertIn(f"real devices by {path}", words)


if __name__ == "__main__":
    command.main(tools=("ibv_devinfo",))
