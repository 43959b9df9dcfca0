# SPDX-License-Identifier: Apache-2.0
"""A network namespace of our own, with the processes that run in it. Host package: iproute2."""

import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import time

import judge

PREFIX = "verbena"
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
TCP_LISTEN = "0A"


def die_with_parent():
    """In a child before exec: be killed when the test is, even by SIGKILL."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def command(*argv):
    """Runs a set-up command; a machine that refuses it cannot run the test."""
    result = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        raise judge.Skip(f"{' '.join(argv)}: {result.stdout.strip()}")
    return result.stdout


def delete(name):
    subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)


def remove_stale():
    """Removes namespaces whose test was killed before it could clean up."""
    for line in command("ip", "netns", "list").splitlines():
        owner = re.match(rf"{PREFIX}-(\d+)-", line)
        if owner and not os.path.exists(f"/proc/{owner.group(1)}"):
            delete(line.split()[0])


class Namespace:
    """Context manager: created on entry; its processes are killed and it is deleted on exit."""

    def __init__(self, label):
        self.name = f"{PREFIX}-{os.getpid()}-{label}"
        self.processes = []
        self.created = False

    def __enter__(self):
        remove_stale()
        command("ip", "netns", "add", self.name)
        self.created = True
        try:
            self.ip("link", "set", "lo", "up")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exception):
        self.close()

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()
        self.processes.clear()
        if self.created:
            self.created = False
            delete(self.name)

    def ip(self, *argv):
        return command("ip", "-netns", self.name, *argv)

    def await_up(self, link):
        """Waits until ports on the link are active: its other end has to be up, too."""
        judge.await_link(link, run=self.ip)

    def popen(self, argv, **options):
        """Starts a host command in the namespace; its pid is the command's own."""
        argv = ["ip", "netns", "exec", self.name, *map(str, argv)]
        options.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen(argv, preexec_fn=die_with_parent, **options)
        self.processes.append(process)
        return process

    def exec(self, argv, timeout_s=60):
        """Runs a host command in the namespace; returns (status, output of both streams)."""
        process = self.popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            output, _ = process.communicate(timeout=timeout_s)
        finally:
            self.forget(process)
        return process.returncode, output

    def forget(self, process):
        """Ends a process that popen() started, if it still runs."""
        if process.poll() is None:
            process.kill()
        process.wait()
        if process in self.processes:
            self.processes.remove(process)

    def holds(self, process):
        """Whether the process has entered the namespace: `ip netns exec` starts outside."""
        try:
            return os.path.samefile(f"/proc/{process.pid}/ns/net", f"/run/netns/{self.name}")
        except OSError:
            return False

    def wait_listening(self, port, process, timeout_s=20):
        """Waits until somebody in the namespace listens on a TCP port, None meaning any; False if
        `process` ends first."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if process.poll() is not None:
                return False
            if self.holds(process) and is_listening(process.pid, port):
                return True
            time.sleep(judge.POLL_S)
        return False


def is_listening(pid, port):
    """Looks into the TCP tables of the namespace that process `pid` lives in."""
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{table}", encoding="ascii") as file:
                rows = [line.split() for line in file]
        except OSError:
            continue
        ports = {int(row[1].rpartition(":")[2], 16) for row in rows[1:] if row[3] == TCP_LISTEN}
        if port in ports or (port is None and ports):
            return True
    return False


@contextlib.contextmanager
def joined():
    """Two namespaces and a cable: 10.78.0.1 and fd00:78::1 in the first, .2 and ::2 in the other."""
    with Namespace("a") as a, Namespace("b") as b:
        cable = f"vc{os.getpid() % 100000}"
        a.ip("link", "add", cable, "type", "veth", "peer", "name", f"{cable}p")
        a.ip("link", "set", f"{cable}p", "netns", b.name)
        for space, name, last in ((a, cable, 1), (b, f"{cable}p", 2)):
            space.ip("address", "add", f"10.78.0.{last}/24", "dev", name)
            space.ip("address", "add", f"fd00:78::{last}/64", "dev", name, "nodad")
            space.ip("link", "set", name, "mtu", "4200", "up")
            space.ip("route", "add", "default", "dev", name)
        a.await_up(cable)
        b.await_up(f"{cable}p")
        yield a, b


def own_address():
    """What packets to far away carry; nothing is sent. None: there is only the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with contextlib.suppress(OSError):
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
    return None
