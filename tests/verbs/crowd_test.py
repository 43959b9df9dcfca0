#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Many servers and clients of one user on one machine (crowd.c), which connect, work, are killed,
started again and stopped at random: no message is another's, nobody hangs, nothing stays.

    crowd_test.py [--build TREE] [--servers N] [--clients N] [--seconds S] [--seed N]
"""
import argparse
import mmap
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli"))
import command  # noqa: E402
import judge  # noqa: E402

BUCKETS = 32
COUNTS = ("connected", "refused", "unreachable", "broken", "exchanged", "wrong")
SCORE = struct.Struct(f"Q{len(COUNTS)}Q{BUCKETS}QQ")  # crowd.c's struct score
FIRST_PORT = 21000
CALM_S = 40   # what is broken has shown by then: retries, timeouts
POLL_S = 0.1
ALIVE_S = 30  # a sign of life from everybody, once all go on
END_S = 30    # crowd.c's PATIENCE_MS, and more


class Crowd:
    def __init__(self, options, directory):
        self.options = options
        self.count = options.servers + options.clients
        self.random = random.Random(options.seed)
        print(f"seed {options.seed}", flush=True)
        self.path = os.path.join(directory, "scores")
        with open(self.path, "wb") as file:
            file.truncate(self.count * SCORE.size)
        with open(self.path, "r+b") as file:
            self.scores = mmap.mmap(file.fileno(), 0)
        self.environment = dict(os.environ, VERBENA_RUNTIME_DIR=directory, VERBENA_LOG="off")
        self.addresses = options.addresses.split(",")
        self.process = [None] * self.count
        self.stopped = {}  # number: when it goes on
        self.kills = self.stops = 0
        self.failures = []

    def start(self, number):
        program = os.path.join(os.path.dirname(command.VERBENA), "tests", "verbs_crowd")
        words = [command.VERBENA, "run", "--port", self.options.port, "--", program, self.path,
                 str(number)]
        if number < self.options.servers:
            words += ["server", "::", str(FIRST_PORT + number)]
        else:
            words += ["client", str(self.random.getrandbits(32)), str(FIRST_PORT),
                      str(self.options.servers), *self.addresses]
        self.process[number] = subprocess.Popen(words, env=self.environment,
                                                stdout=subprocess.DEVNULL)

    def score(self, number):
        return SCORE.unpack_from(self.scores, number * SCORE.size)

    def disturb(self):
        """One is killed and begins again, or is stopped for a while."""
        number = self.random.randrange(self.count)
        if number in self.stopped:
            return
        if self.random.random() < 0.5:
            self.process[number].kill()
            self.process[number].wait()
            self.start(number)
            self.kills += 1
        else:
            self.process[number].send_signal(signal.SIGSTOP)
            self.stopped[number] = time.monotonic() + self.random.uniform(0.05, 2)
            self.stops += 1

    def go_on(self, now):
        for number in [n for n, until in self.stopped.items() if until <= now]:
            self.process[number].send_signal(signal.SIGCONT)
            del self.stopped[number]

    def watch(self):
        """Who ended by itself has failed."""
        for number, process in enumerate(self.process):
            if process.poll() is not None:
                self.failures.append(f"process {number} ended with {process.returncode}")
                self.start(number)

    def run(self):
        for number in range(self.count):
            self.start(number)
        self.wait_alive(range(self.count), 0)
        end = time.monotonic() + self.options.seconds
        while (now := time.monotonic()) < end:
            self.go_on(now)
            self.disturb()
            self.watch()
            self.show(end - now)
            time.sleep(self.options.pause)  # the pace of disturbances
        self.go_on(float("inf"))

    def show(self, left):
        if sys.stderr.isatty():
            print(f"\r{left:4.0f} s left, {self.total('connected')} connections ", end="",
                  file=sys.stderr)

    def total(self, name):
        at = 1 + COUNTS.index(name)
        return sum(self.score(n)[at] for n in range(self.count))

    def wait_alive(self, numbers, since_ns):
        """Until each of them has given a sign of life."""
        deadline = time.monotonic() + CALM_S + ALIVE_S
        waiting = set(numbers)
        while waiting and time.monotonic() < deadline:
            waiting = {n for n in waiting if self.score(n)[0] <= since_ns}
            time.sleep(POLL_S)
        for number in sorted(waiting):
            kind = "server" if number < self.options.servers else "client"
            self.failures.append(f"{kind} {number} hangs")

    def connections(self):
        """Of each process."""
        return {number: self.score(number)[1] for number in range(self.count)}

    def calm_down(self):
        """Nobody is disturbed any more: soon everybody works: clients connect, and to
        each server."""
        self.wait_alive(range(self.count), time.monotonic_ns())
        before = waiting = self.connections()
        deadline = time.monotonic() + CALM_S + ALIVE_S
        while waiting and time.monotonic() < deadline:
            waiting = {n for n, count in self.connections().items() if count == before[n]}
            time.sleep(POLL_S)
        self.failures += [f"process {number} has no new connection" for number in sorted(waiting)]

    def end(self):
        """Clients first: without servers they would wait for an answer."""
        self.end_some(range(self.options.servers, self.count))
        self.end_some(range(self.options.servers))

    def end_some(self, numbers):
        for number in numbers:
            self.process[number].terminate()
        deadline = time.monotonic() + END_S + self.count / 10
        for number in numbers:
            process = self.process[number]
            try:
                status = process.wait(max(0.1, deadline - time.monotonic()))
                if status:
                    self.failures.append(f"process {number} ended with {status}")
            except subprocess.TimeoutExpired:
                self.failures.append(f"process {number} does not end")
                process.kill()
                process.wait()

    def inspect(self, directory):
        """What stays: the registry, and nothing that a process owned."""
        done = subprocess.run([command.VERBENA, "link", "-j"], env=self.environment,
                              capture_output=True, text=True, check=False)
        if done.stdout.strip() not in ("[]", ""):
            self.failures.append("NICs are left: " + done.stdout[:200])
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            try:
                probe = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                probe.connect(path)
                self.failures.append(f"{name} is still served")
            except OSError:
                pass
            finally:
                probe.close()

    def times(self):
        took = [0] * BUCKETS
        for number in range(self.options.servers, self.count):
            row = self.score(number)[1 + len(COUNTS):]
            for i in range(BUCKETS):
                took[i] += row[i]
        return took

    def quantile(self, share):
        """The upper end of the bucket, in us."""
        took = self.times()
        wanted, seen = share * sum(took), 0
        for i, count in enumerate(took):
            seen += count
            if seen >= wanted:
                return 2 ** (i + 1)
        return 0

    def report(self, seconds):
        clients = range(self.options.servers, self.count)
        connected = sum(self.score(n)[1] for n in clients)
        print(f"{self.options.servers} servers, {self.options.clients} clients, {seconds:.0f} s: "
              f"{connected} connections ({connected / seconds:.0f} a second), "
              f"{sum(self.score(n)[5] for n in clients)} exchanges; "
              f"{self.kills} killed, {self.stops} stopped")
        print(f"refused {self.total('refused')}, unreachable {self.total('unreachable')}, broken "
              f"{self.total('broken')}, of others {self.total('wrong')}")
        print(f"time to connect: half within {self.quantile(0.5)} us, 99 % within "
              f"{self.quantile(0.99)} us")
        if self.total("wrong"):
            self.failures.append(f"{self.total('wrong')} messages were somebody else's")
        if connected < self.options.clients:
            self.failures.append("hardly anybody connected")


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", help="the tree to test")
    parser.add_argument("--servers", type=int, default=6)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--pause", type=float, default=0.2, help="between two disturbances, in s")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("VERBENA_SEED", "1"), 0))
    parser.add_argument("--port", default="udp")
    parser.add_argument("--addresses", default="127.0.0.1,::1")
    return parser.parse_args()


def test(options):
    if options.build:
        command.VERBENA = os.path.join(options.build, "verbena")
    with tempfile.TemporaryDirectory(prefix="verbena-crowd-") as directory:
        crowd = Crowd(options, directory)
        began = time.monotonic()
        try:
            crowd.run()
            seconds = time.monotonic() - began
            crowd.calm_down()
        finally:
            crowd.end()
        crowd.report(seconds)
        crowd.inspect(directory)
    for failure in crowd.failures:
        print("failed: " + failure)
    if crowd.failures:
        raise judge.Failure(f"{len(crowd.failures)} failures")
    print("all ok")


if __name__ == "__main__":
    OPTIONS = parse()
    judge.run(lambda: test(OPTIONS))
