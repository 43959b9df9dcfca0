# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of bench/tables.py and reads what they print."""
import json
import os
import re
import shlex
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FIRST_PORT = 18700
LIMIT_S = 600


class Failed(Exception):
    """One line for the user: which command, what was wrong."""


class Output(dict):
    """What a command printed: a field that is missing is named, with the command."""

    def __init__(self, fields, command):
        super().__init__(fields)
        self.command = command

    def __missing__(self, key):
        raise Failed(f"'{key}' is missing from the output of '{self.command}'")


def named(value, command):
    """The same value, whose objects know where they came from."""
    if isinstance(value, dict):
        return Output({k: named(v, command) for k, v in value.items()}, command)
    if isinstance(value, list):
        return [named(v, command) for v in value]
    return value


# ---- what commands print

def ways(text):
    """The rows of a get, by the way it went."""
    return {row["via"]: row for row in map(json.loads, text.splitlines())}


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def iperf3(text):
    return {"gbps": json.loads(text)["end"]["sum_received"]["bits_per_second"] / 1e9}


def perftest(*columns):
    """The last row of perftest, by names of its columns."""
    def parse(text):
        rows = [row.split() for row in text.splitlines() if re.match(r"\s*\d+\s+\d+\s", row)]
        return dict(zip(("bytes", "iterations", *columns), map(float, rows[-1])))
    return parse


def ucx(text):
    return {"mps": float(text.split()[-1]) / 1e6}  # last column of the last line: messages a second


def cmtime(text):
    """Microseconds for a connection, by step."""
    return {m[1]: float(m[2]) for m in re.finditer(r"(?m)^([\w ]+?) *:.* (\S+)$", text)}


# ---- running them

class Command:
    """A command as a user would type it at the root of the tree; `verbena` and `build/` are those of
    the tree under test. Put in are `{seconds}` and `{count}`, less of both for a trial, and where
    `{plots}` go."""

    def __init__(self, text, parse=json.loads, statuses=(0,)):
        self.text, self.parse, self.statuses = text, parse, statuses

    def said(self, count=0):
        """For the reader of the table, without what is the same for all."""
        text = self.text.format(seconds=1, count=count, port=0, plots="docs/figures")
        return re.sub(r" (--seconds 1|--json|-p 0|-J|-f)\b", "", text)

    def words(self, build, text, values):
        first, *rest = shlex.split(text.format(**values))
        if first == "verbena":
            first = "build/verbena"
        elif first.startswith("bench/"):
            first = os.path.join(ROOT, first)
        return [re.sub(r"^build(?=/|$)", lambda _: build, word) for word in (first, *rest)]

    def run(self, build, values):
        return self.read(self.finish(self.words(build, self.text, values)))

    def finish(self, words, env=None):
        try:
            return subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT,
                                  env=env, check=False)
        except FileNotFoundError as error:
            raise Failed(f"'{words[0]}' is not there: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise Failed(f"'{self.said()}' did not end within {LIMIT_S} s") from error

    def read(self, done):
        if done.returncode not in self.statuses:
            raise Failed(f"'{self.said()}' ended with status {done.returncode}: "
                         f"{(done.stderr or done.stdout).strip()}")
        try:
            output = self.parse(done.stdout)
            if len(self.statuses) > 1:  # a program that judges a limit of its own
                output["status"] = done.returncode
            return output
        except (ValueError, LookupError) as error:
            raise Failed(f"'{self.said()}' printed something else: {error!r}") from error


class Pair(Command):
    """A server and a client, each on a core of its own; both texts have the same port."""

    def __init__(self, server, client, parse, port, env=None, listens=None):
        super().__init__(client, parse)
        self.server, self.port, self.env = server, port, env
        self.listens = listens or tcp_listens

    def run(self, build, values):
        cores = sorted(os.sched_getaffinity(0))
        values = {**values, "port": FIRST_PORT + self.port}
        env = {**os.environ, **(self.env or {})}
        server = ["taskset", "-c", str(cores[-1]), *self.words(build, self.server, values)]
        with subprocess.Popen(server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env=env) as there:
            try:
                self.wait(build, values["port"], there)
                return self.read(self.finish(
                    ["taskset", "-c", str(cores[0]), *self.words(build, self.text, values)], env))
            finally:
                end(there)

    def wait(self, build, port, server):
        """Until the server listens; without connecting, which would be a client."""
        for _ in range(500):
            if self.listens(build, port):
                return
            if server.poll() is not None:
                break
            time.sleep(0.02)
        raise Failed(f"nobody listens on port {port} for '{self.said()}'")


def end(process):
    """Most servers end with their client."""
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()


def tcp_listens(_, port):
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(path, encoding="ascii") as file:
            rows = [line.split() for line in file.readlines()[1:]]
        if any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows):
            return True
    return False


def cm_listens(build, port):
    """By the ids of rdma_cm in all processes of this user."""
    done = subprocess.run([os.path.join(build, "verbena"), "res", "show", "cm_id", "-j"],
                          capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return done.returncode == 0 and any(
        row["state"] == "LISTEN" and row["src-addr"].endswith(f":{port}")
        for row in json.loads(done.stdout))
