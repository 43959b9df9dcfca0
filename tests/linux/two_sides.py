# SPDX-License-Identifier: Apache-2.0
"""One run of two programs that find each other over TCP: ours on the host, and the guest's."""

import subprocess

from guest import GUEST_IP, HOST_IP


class TwoSides:
    """As a context manager it leaves neither running. `role` is ours: "server" or "client"."""

    def __init__(self, guest, role, port, our_command, their_command):
        self.guest = guest
        self.role = role
        self.port = port
        self.our_command = our_command
        self.their_command = their_command
        self.ours = None
        self.theirs = None

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        if self.ours:
            self.guest.namespace.forget(self.ours)
        if self.theirs and self.theirs.running():
            self.theirs.kill()

    def start_ours(self, *peer):
        self.ours = self.guest.popen([*self.our_command, *peer], stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True)

    def start(self):
        """Starts the server, waits until it listens, starts the client; returns what went wrong."""
        if self.role == "server":
            self.start_ours()
            if not self.guest.namespace.wait_listening(self.port, self.ours):
                return f"our server does not listen: {last_lines(self.our_output())}"
            self.theirs = self.guest.spawn(f"{self.their_command} {HOST_IP}")
        else:
            self.theirs = self.guest.spawn(self.their_command)
            if not self.guest.wait_listening(self.port, self.theirs):
                return f"the guest's server does not listen: {last_lines(self.theirs.output())}"
            self.start_ours(GUEST_IP)
        return None

    def our_output(self):
        """Ends our program if it still runs."""
        self.guest.namespace.forget(self.ours)
        return self.ours.stdout.read()


def failure(our_status, ours, their_status, theirs):
    """One line of how both ended and what they said."""
    return (f"ours: {verdict(our_status)}: {last_lines(ours)};"
            f" guest: {verdict(their_status)}: {last_lines(theirs)}")


def verdict(status):
    return "still running" if status is None else f"status {status}"


def last_lines(text):
    """What it said in the end, and our library whenever it did."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" -*")]
    ours = [line for line in lines[:-4] if "verbena[" in line]
    return " | ".join(ours + lines[-4:]) or "no output"
