# SPDX-License-Identifier: Apache-2.0
"""A hull as a process, applications at it, and a service manager that keeps its descriptors."""

import array
import os
import select
import socket
import subprocess
import sys

import command
from command import TIMEOUT_S, WithFiles, environment

PATIENCE_S = 30
FDS_MAX = 16

# Puts descriptors where a service manager would, says so, and becomes the command.
SHIM = """
import fcntl, os, sys
count, names, fds = sys.argv[1], sys.argv[2], [int(f) for f in sys.argv[3].split(",") if f]
high = [fcntl.fcntl(f, fcntl.F_DUPFD, max(fds) + len(fds) + 3) for f in fds]  # above all others
for f in set(fds):
    os.close(f)
for i, f in enumerate(high):
    os.dup2(f, 3 + i, inheritable=True)
    os.close(f)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=count, LISTEN_FDNAMES=names)
os.execv(sys.argv[4], sys.argv[4:])
"""


class Manager:
    """Hears notifications, keeps descriptors by name, and starts the hull with them."""

    def __init__(self, path):
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        self.socket.settimeout(PATIENCE_S)
        self.kept = []  # (name, descriptor)
        self.said = []

    def close(self):
        self.forget()
        self.socket.close()

    def forget(self, name=None):
        for kept, fd in self.kept:
            if name in (None, kept):
                os.close(fd)
        self.kept = [(k, f) for k, f in self.kept if name not in (None, k)]

    def hear(self):
        """One message, as a dictionary."""
        fds = array.array("i")
        text, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(FDS_MAX * 4))
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(data)
        said = dict(line.split("=", 1) for line in text.decode().splitlines())
        self.said.append(said)
        if said.get("FDSTORE") == "1":
            self.kept += [(said["FDNAME"], fd) for fd in fds]
        if said.get("FDSTOREREMOVE") == "1":
            self.forget(said["FDNAME"])
        return said

    def hear_until(self, key, hull):
        """Fails when the hull ends before it has said so."""
        with os.fdopen(os.pidfd_open(hull.pid)) as end:
            while True:
                ready, _, _ = select.select([self.socket, end], [], [], PATIENCE_S)
                if self.socket not in ready:
                    raise AssertionError(f"no {key}: " + (hull.communicate()[1] if ready else "time is up"))
                if key in self.hear():
                    return

    def hear_all(self):
        self.socket.setblocking(False)
        try:
            while True:
                self.hear()
        except BlockingIOError:
            self.socket.settimeout(PATIENCE_S)


class WithHull(WithFiles):
    """Tests with a directory, at most one hull, and applications."""

    def setUp(self):
        super().setUp()
        os.chmod(self.dir.name, 0o700)
        self.place = {"VERBENA_RUNTIME_DIR": self.dir.name}
        self.children = []
        self.hull = None

    def tearDown(self):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.communicate()
        super().tearDown()

    def spawn(self, *words, fds=(), variables=(), **who):
        child = subprocess.Popen(words, env=environment(**self.place, **dict(variables)),
                                 pass_fds=fds, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, **who)
        self.children.append(child)
        return child

    def start(self, *words, manager=None, given=None, names=None, count=None):
        """Starts a hull; with a manager it is ready when that says so, and has what it kept or is
        `given` (names and descriptors)."""
        if manager is None:
            ready, told = os.pipe()
            self.hull = self.spawn(command.VERBENA, "nic", "--ready-fd", str(told), *words,
                                   fds=[told])
            os.close(told)
            with os.fdopen(ready) as line:
                self.assertEqual(line.read(), "ready\n")
            return self.hull
        manager.hear_all()
        given = manager.kept if given is None else given
        fds = [fd for _, fd in given]
        names = ":".join(name for name, _ in given) if names is None else names
        self.hull = self.spawn(sys.executable, "-c", SHIM, str(len(fds) if count is None else count),
                               names, ",".join(map(str, fds)), command.VERBENA, "nic", *words,
                               fds=fds, variables={"NOTIFY_SOCKET": manager.path})
        manager.hear_until("READY", self.hull)
        return self.hull

    def end(self, child, how):
        child.send_signal(how)
        out, err = child.communicate(timeout=TIMEOUT_S)
        self.children.remove(child)
        return out, err

    def attach(self, name="verbena0"):
        program = os.path.join(os.path.dirname(command.VERBENA), "tests/hull_app")
        app = self.spawn(program, name if "/" in name else self.path("hull-" + name))
        self.assertEqual(app.stdout.readline(), "ready\n")
        return app

    def ask(self, app, line):
        app.stdin.write(line + "\n")
        app.stdin.flush()
        return app.stdout.readline().rstrip("\n")

    def leave(self, app):
        app.communicate(timeout=TIMEOUT_S)
        self.assertEqual(app.returncode, 0)
        self.children.remove(app)
