#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""An operating system that fails does not end the service of its application.

The application runs in a guest. It keeps a hash table in memory of the hull, which the guest has as
a PCI device (ivshmem); the hull, outside, answers gets from it by a chain program. The guest's
kernel panics, and then the whole virtual machine is killed: no get fails, and none is answered
wrong. At the end the table is spoiled on purpose, which the client must notice.

Host packages: qemu-system-x86, iproute2, apt, binutils, cpio. Needs root and /dev/net/tun.
"""

import mmap
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time

import netns
import outcome
from guest import Guest

HULL_ADDRESS, CLIENT_ADDRESS = "127.62.0.1", "127.62.0.2"
TABLE_BYTES, TABLE_ITEMS = 1 << 20, 65536  # as in hull_table.h
FILL_S = 60
PANIC_S = 60
AFTER_PANIC_S = 5
AFTER_KILL_S = 2
COLUMNS = ("right", "missed", "wrong", "failed", "newest", "longest_us")


class GuestWithMemory(Guest):
    """A guest with a PCI device whose memory is the file at `path`. When its kernel panics it
    stays as it is."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def qemu_command(self, entry, base, jobs_fd):
        command = [str(word).replace("panic=-1", "panic=0")
                   for word in super().qemu_command(entry, base, jobs_fd)]
        return command + [
            "-object", f"memory-backend-file,id=table,mem-path={self.path},size={TABLE_BYTES},"
            "share=on", "-device", "ivshmem-plain,memdev=table",
        ]

    def console(self):
        return (pathlib.Path(self.temporary.name) / "console").read_text(errors="replace")


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
            raise outcome.Failure("the agent cannot set up the service")
        self.path = f"/proc/{words[1]}/fd/{words[2]}"

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
        wait_for(lambda: self.lines > seen, 30, "the client says nothing")
        return self.last

    def watch(self, seconds, when):
        """Watches for so long; gets must go on, and nothing must go wrong."""
        before = self.report()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.judge(self.report(), when)
        after = self.report()
        if after["right"] <= before["right"]:
            raise outcome.Failure(f"no answers {when}")
        return before, after

    @staticmethod
    def judge(report, when):
        if report["missed"] or report["wrong"] or report["failed"]:
            raise outcome.Failure(f"{when}: {report}")

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def wait_for(holds, seconds, otherwise):
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise outcome.Failure(otherwise)
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
            raise outcome.Failure("the hull does not start")
    return hull, socket


def spoil(path):
    """Writes nonsense over all values."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), TABLE_BYTES) as table:
        table[TABLE_ITEMS:] = b"\xa5" * (TABLE_BYTES - TABLE_ITEMS)


def fail_the_guest(gets, build):
    with GuestWithMemory(gets.path) as guest:
        shutil.copy(build / "tests" / "guest_table", guest.folder)
        application = guest.spawn("exec /job/guest_table")
        application.started.wait(FILL_S)
        wait_for(lambda: "filled" in application.output() or not application.running(), FILL_S,
                 "the guest does not fill the table")
        if not application.running():
            raise outcome.Failure(f"in the guest: {application.output().strip()}")
        gets.start()
        alive = gets.watch(AFTER_PANIC_S, "while the guest runs")
        if alive[1]["newest"] <= alive[0]["newest"]:
            raise outcome.Failure("the guest's updates do not arrive")
        guest.spawn("echo c >/proc/sysrq-trigger")
        wait_for(lambda: "Kernel panic" in guest.console(), PANIC_S, "the guest does not panic")
        gets.report()
        panicked = gets.watch(AFTER_PANIC_S, "after the panic")
        if panicked[1]["newest"] != panicked[0]["newest"]:
            raise outcome.Failure("the guest still writes: this was no panic")
    killed = gets.watch(AFTER_KILL_S, "without the virtual machine")
    return alive, panicked, killed


def run(build):
    outcome.require(tools=("qemu-system-x86_64", "ip"), devices=("/dev/net/tun",),
                    files=(build / "tests" / "os_failure", build / "tests" / "guest_table"))
    with tempfile.TemporaryDirectory(prefix="verbena-os-failure-") as name:
        folder = pathlib.Path(name)
        os.environ["VERBENA_RUNTIME_DIR"] = name
        hull, socket = start_hull(build, folder)
        gets = None
        try:
            gets = Gets(build / "tests" / "os_failure", socket)
            phases = fail_the_guest(gets, build)
            spoil(gets.path)
            wait_for(lambda: gets.report()["wrong"], 10, "the client notices nothing")
        finally:
            if gets:
                gets.close()
            hull.terminate()
            hull.wait()
    for text, (before, after) in zip(("the guest runs", "its kernel has panicked",
                                      "its virtual machine is gone"), phases):
        print(f"{text}: {after['right'] - before['right']} gets, all right; newest version"
              f" {after['newest']}; longest so far {after['longest_us']} us")


if __name__ == "__main__":
    arguments = outcome.options("gets from memory of a guest that fails")
    outcome.run("os_failure", lambda: run(arguments.build.resolve()), arguments.no_skip)
