#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`verbena run --sysfs`: programs that read /sys/class/infiniband find the device there, as verbs
describe it, without rights, and nothing of it is seen by others or stays behind.
Host packages: ibverbs-utils, util-linux; infiniband-diags if it is there."""

import os
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli"))
import command  # noqa: E402
import judge  # noqa: E402

DEVICE = "/sys/class/infiniband/verbena0"
LIST = "import os; print(*os.listdir('/sys/class/infiniband'))"


def mounts():
    with open("/proc/self/mounts", encoding="utf-8") as file:
        return file.read()


class View(unittest.TestCase):
    def shows(self, *words, **variables):
        done = command.run("run", "--sysfs", "--", *words, **variables)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout

    def test_readers(self):
        self.assertIn("verbena0", self.shows("ls", "/sys/class/infiniband").split())
        self.assertIn("verbena0", self.shows(sys.executable, "-c", LIST).split())
        self.assertEqual(self.shows("sh", "-c", f"cd {DEVICE}/ports && echo *"), "1\n")
        self.assertRegex(self.shows("cat", f"{DEVICE}/ports/1/gids/0"),
                         r"^[0-9a-f]{4}(:[0-9a-f]{4}){7}\n$")
        self.assertEqual(self.shows("cat", f"{DEVICE}/ports/1/state"), "4: ACTIVE\n")
        self.assertEqual(self.shows("cat", f"{DEVICE}/ports/1/gid_attrs/types/0"), "RoCE v2\n")
        files = self.shows("find", DEVICE, "-type", "f").split()
        self.assertGreater(len(files), 20)
        self.assertEqual(self.shows("cat", *files).count("\n"), len(files))

    def test_says_what_verbs_say(self):
        said = self.shows("sh", "-c", f"ibv_devinfo -v; cat {DEVICE}/node_guid {DEVICE}/fw_ver "
                          f"{DEVICE}/ports/1/gids/0 {DEVICE}/ports/1/link_layer")
        guid, version, gid, layer = said.splitlines()[-4:]
        self.assertRegex(said, rf"node_guid:\s+{guid}\n")
        self.assertRegex(said, rf"fw_ver:\s+{re.escape(version)}\n")
        self.assertRegex(said, rf"link_layer:\s+{layer}\n")
        spoken = re.search(r"GID\[\s*0\]:\s+(\S+?),", said)[1].removeprefix("::ffff:")
        octets = bytes.fromhex(gid.replace(":", ""))[-4:]
        self.assertIn(spoken, (".".join(map(str, octets)), gid))

    def test_all_gids(self):
        """As many as verbs list, each with its type and its interface."""
        said = self.shows("sh", "-c", f"ibv_devinfo -v; cd {DEVICE}/ports/1; echo files: $(ls gids); "
                          "cat gid_attrs/types/*; ls gid_attrs/ndevs | wc -l")
        count = said.count("GID[")
        self.assertGreater(count, 0)
        self.assertIn(f"files: {' '.join(map(str, range(count)))}\n", said)
        self.assertTrue(said.endswith("RoCE v2\n" * count + f"{count}\n"), said)

    @judge.needs(tools=("ibstat",))
    def test_ibstat(self):
        self.assertIn("State: Active", self.shows("ibstat", "verbena0"))

    def test_the_machine_stays(self):
        for name in os.listdir("/sys/class"):
            if not name.startswith("infiniband"):
                inside = self.shows("ls", f"/sys/class/{name}").split()
                self.assertEqual(sorted(inside), sorted(os.listdir(f"/sys/class/{name}")))
                break
        self.assertEqual(self.shows("id"), subprocess.run(["id"], capture_output=True, text=True,
                                                          check=True).stdout)

    def test_verbs_work_inside(self):
        verify = os.path.join(os.path.dirname(command.VERBENA), "tests", "verbs_verify")
        for port in ("udp", "shm"):
            with self.subTest(port=port):
                done = command.run("run", "--sysfs", "--port", port, "--", verify, "old")
                self.assertIn("all ok", done.stdout, done)

    def test_by_the_environment(self):
        done = command.run("run", "--", "ls", DEVICE, VERBENA_SYSFS="1")
        self.assertEqual(done.returncode, 0, done)

    @judge.needs(root=True)  # the other tests have no rights then, either
    def test_without_rights(self):
        words = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
                 os.path.abspath(command.VERBENA), "run", "--sysfs", "--"]
        if subprocess.run([*words[:6], "test", "-x", words[6]], check=False).returncode:
            self.skipTest("others may not come to the command")
        done = subprocess.run([*words, "ls", DEVICE], capture_output=True, text=True, check=False,
                              env=command.environment())
        self.assertIn("node_guid", done.stdout, done)


class NotThere(unittest.TestCase):
    def test_without_the_option(self):
        self.assertNotEqual(command.run("run", "--", "ls", DEVICE).returncode, 0)
        off = command.run("run", "--sysfs", "--", "ls", DEVICE, VERBENA="off")
        self.assertNotEqual(off.returncode, 0, off)

    def test_nothing_can_be_changed(self):
        done = command.run("run", "--sysfs", "--", "touch", f"{DEVICE}/x")
        self.assertNotEqual(done.returncode, 0, done)

    def test_nobody_else_sees_it_and_nothing_stays(self):
        before = mounts()
        process = command.start("run", "--sysfs", "--", "sh", "-c", f"ls {DEVICE}; exec sleep 60")
        try:
            self.assertNotEqual(process.stdout.readline(), "")
            self.assertFalse(os.path.exists(DEVICE))
            self.assertEqual(mounts(), before)
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        self.assertFalse(os.path.exists(DEVICE))
        self.assertEqual(mounts(), before)

    def test_a_system_that_forbids_it(self):
        if subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode:
            self.skipTest("no user namespaces here, as in a chroot")
        limits = "/proc/sys/user"
        done = subprocess.run(
            ["unshare", "-Urm", "sh", "-c",
             f"echo 0 > {limits}/max_mnt_namespaces; echo 0 > {limits}/max_user_namespaces; "
             f"exec {command.VERBENA} run --sysfs -- echo ran"],
            capture_output=True, text=True, check=False, env=command.environment())
        self.assertEqual((done.returncode, done.stdout), (1, ""), done)
        self.assertIn("--sysfs: this system lets you make no mount namespace", done.stderr)


def setUpModule():  # noqa: N802
    done = command.run("run", "--sysfs", "--", "true")
    if done.returncode == 1 and "lets you make no mount namespace" in done.stderr:
        raise unittest.SkipTest("no mount namespaces here")


if __name__ == "__main__":
    command.main(tools=("ibv_devinfo", "unshare", "setpriv"))
