# SPDX-License-Identifier: Apache-2.0
"""An operating system that fails does not end the service of its application.

The application runs in a guest. It keeps a hash table in memory of the hull, which the guest has as
a PCI device (ivshmem); the hull, outside, answers gets from it by a chain program. The guest's
kernel panics, and then the whole virtual machine is killed: no get fails, and none is answered
wrong. At the end the table is spoiled on purpose, which the client must notice.
"""

import contextlib
import mmap
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time

import judge
import netns

HULL_ADDRESS, CLIENT_ADDRESS = "127.62.0.1", "127.62.0.2"
TABLE_BYTES, TABLE_ITEMS = 1 << 20, 65536  # as in hull_table.h
LIMIT_S = 60
PHASES = ("the guest runs", "its kernel has panicked", "its virtual machine is gone")
COLUMNS = ("right", "missed", "wrong", "failed", "newest", "longest_us")


class Gets:
    """The agent and the client; its newest report is `last`."""

    def __init__(self, program, socket):
        self.process = subprocess.Popen(
            [program, socket, CLIENT_ADDRESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, preexec_fn=netns.die_with_parent)
        self.last = None
        self.lines = 0
        words = self.process.stdout.readline().split()
        if words[:1] != ["table"]:
            raise judge.Failure("the agent cannot set up the service")
        self.memory = f"/proc/{words[1]}/fd/{words[2]}", TABLE_BYTES

    def start(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.last = dict(zip(COLUMNS, map(int, line.split())))
            self.lines += 1

    def report(self):
        """The next report: it says what came until now."""
        seen = self.lines
        wait_for(lambda: self.lines > seen, "the client says nothing")
        return self.last

    def watch(self, count, when):
        """Watches that many gets: each must be answered right. Returns the first and last report."""
        before = after = self.report()
        while after["right"] < before["right"] + count:
            after = self.report()
            if after["missed"] or after["wrong"] or after["failed"]:
                raise judge.Failure(f"{when}: {after}")
        return before, after

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def wait_for(holds, otherwise):
    until = time.monotonic() + LIMIT_S
    while not holds():
        if time.monotonic() > until:
            raise judge.Failure(otherwise)
        time.sleep(0.02)


def start_hull(build, folder):
    """Returns the hull's process when applications can attach."""
    ready, far_end = os.pipe()
    socket = folder / "hull"
    environment = os.environ | {"VERBENA_RUNTIME_DIR": str(folder)}
    hull = subprocess.Popen(
        [build / "verbena", "nic", "--name", "osfailure", "--address", HULL_ADDRESS, "--port",
         "udp", "--socket", socket, "--ready-fd", str(far_end)],
        pass_fds=(far_end,), env=environment, preexec_fn=netns.die_with_parent)
    os.close(far_end)
    with os.fdopen(ready) as line:
        if not line.readline():
            hull.wait()
            raise judge.Failure("the hull does not start")
    return hull, socket


@contextlib.contextmanager
def service(build):
    """A hull, and in it the service whose table is memory for a guest."""
    judge.require(files=(build / "tests/os_failure", build / "tests/guest_table"))
    with tempfile.TemporaryDirectory(prefix="verbena-os-failure-") as name:
        os.environ["VERBENA_RUNTIME_DIR"] = name
        hull, socket = start_hull(build, pathlib.Path(name))
        gets = None
        try:
            gets = Gets(build / "tests/os_failure", socket)
            yield gets
        finally:
            if gets:
                gets.close()
            hull.terminate()
            hull.wait()


def spoil(path):
    """Writes nonsense over all values."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), TABLE_BYTES) as table:
        table[TABLE_ITEMS:] = b"\xa5" * (TABLE_BYTES - TABLE_ITEMS)


def start_application(guest, build):
    shutil.copy(build / "tests/guest_table", guest.folder)
    application = guest.spawn("exec /job/guest_table")
    application.started.wait(LIMIT_S)
    wait_for(lambda: "filled" in application.output() or not application.running(),
             "the guest does not fill the table")
    if not application.running():
        raise judge.Failure(f"in the guest: {application.output().strip()}")


def run(guest, gets, build, count):
    """Fails the guest, which has the memory of `gets`; `count` gets in each phase."""
    start_application(guest, build)
    gets.start()
    alive = gets.watch(count, "while the guest runs")
    wait_for(lambda: gets.report()["newest"] > alive[0]["newest"],
             "the guest's updates do not arrive")
    guest.spawn("echo c >/proc/sysrq-trigger")
    wait_for(lambda: "Kernel panic" in guest.console(), "the guest does not panic")
    gets.report()
    panicked = gets.watch(count, "after the panic")
    if panicked[1]["newest"] != panicked[0]["newest"]:
        raise judge.Failure("the guest still writes: this was no panic")
    guest.close()
    killed = gets.watch(count, "without the virtual machine")
    spoil(gets.memory[0])
    wait_for(lambda: gets.report()["wrong"], "the client notices nothing")
    for phase, (before, after) in zip(PHASES, (alive, panicked, killed)):
        print(f"{phase}: {after['right'] - before['right']} gets, all right; newest version"
              f" {after['newest']}; longest so far {after['longest_us']} us", flush=True)
