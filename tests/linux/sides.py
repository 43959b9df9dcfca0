# SPDX-License-Identifier: Apache-2.0
"""One run of two programs, a server and its client: ours on the host, and the guest's."""

import re
import subprocess
import tempfile
import time

LIMIT_S = 60
GRACE_S = 3  # for the other side of one that failed
POLL_S = 0.02
OUR_LISTEN = r"rdma_listen: "  # the log of `verbena run`
COMPLAINT = r"(?i)verbena\[|fail|error|could|unable|invalid|syndrom|can't"
# No tool says that it listens with rdma_cm: the kernel's table of connections does.
THEIR_LISTEN = "rdma resource show cm_id 2>/dev/null | grep -q LISTEN"


class Ours:
    """Our program, whose output goes to a file that can be read while it runs."""

    def __init__(self, guest, words):
        self.guest = guest
        self.file = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self.process = guest.popen(words, stdout=self.file, stderr=subprocess.STDOUT)

    def output(self):
        self.file.seek(0)
        return self.file.read()

    def status(self):
        return self.process.poll()

    def listens(self, port):
        """Waits until it listens on a TCP port, or with rdma_cm if that is None."""
        if port is not None:
            return self.guest.namespace.wait_listening(port, self.process, LIMIT_S)
        deadline = time.monotonic() + LIMIT_S
        while not re.search(OUR_LISTEN, self.output()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def end(self):
        self.guest.namespace.forget(self.process)
        self.file.close()

    def __str__(self):
        return f"ours: {verdict(self)}"


class Theirs:
    """The guest's program."""

    def __init__(self, guest, words):
        self.guest = guest
        self.job = guest.spawn(" ".join(map(str, words)))

    def output(self):
        return self.job.output()

    def status(self):
        return self.job.status

    def listens(self, port):
        if port is not None:
            return self.guest.wait_listening(port, self.job, LIMIT_S)
        return self.guest.wait_until(THEIR_LISTEN, self.job, LIMIT_S)

    def end(self):
        if self.job.running():
            self.job.kill()

    def __str__(self):
        return f"guest: {verdict(self)}"


class Pair:
    """Runs both, and keeps what each said. `role` is ours: "server" or "client"."""

    def __init__(self, guest, role, ours, theirs):
        self.guest = guest
        makers = [lambda: Ours(guest, ours), lambda: Theirs(guest, theirs)]
        self.start_server, self.start_client = makers if role == "server" else makers[::-1]
        self.server_said = self.client_said = ""

    def run(self, port, during=None):
        """Returns None, or one line that says what went wrong. The server is ready when it listens
        on the TCP port, None: with rdma_cm. during(is_running) is called while both run."""
        server = self.start_server()
        client = None
        try:
            if not server.listens(port):
                return f"the server does not listen: {server}"
            client = self.start_client()
            if during:
                during(lambda: server.status() is None and client.status() is None)
            self.wait(server, client)
            self.server_said, self.client_said = server.output(), client.output()
            if (server.status(), client.status()) != (0, 0):
                return f"client: {client}; server: {server}"
            return None
        finally:
            for side in (client, server):
                if side:
                    side.end()

    def wait(self, *sides):
        """Returns when both have ended, or one has failed and the other had its time."""
        deadline = time.monotonic() + LIMIT_S
        failed = False
        while time.monotonic() < deadline:
            statuses = [side.status() for side in sides]
            if None not in statuses:
                break
            if any(statuses) and not failed:
                failed = True
                deadline = min(deadline, time.monotonic() + GRACE_S)
            time.sleep(POLL_S)
            self.guest.check_alive()


def verdict(side):
    status = side.status()
    ended = "still running" if status is None else f"status {status}"
    return f"{ended}: {last_lines(side.output())}"


def last_lines(text):
    """What it said in the end, and what it or our library complained of before."""
    lines = [line.strip() for line in text.splitlines()
             if line.strip(" -*") and not line.startswith("ERRNO")]
    # A tool's errors stand before its results, which go through a buffer.
    first = [line for line in lines[:-4] if re.search(COMPLAINT, line)]
    return " | ".join(first[-4:] + lines[-4:]) or "no output"
