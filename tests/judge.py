# SPDX-License-Identifier: Apache-2.0
"""How a system test begins, ends and says what it left out. One module for all of them.

Exit status 0: passed; 1: failed; 77: could not run here. A case that cannot run prints
`SKIPPED: test: case: reason`; with CI=true it fails, unless skips.txt lists it with its reason. A test
has one try. Where a race of a foreign tool needs another one, tried() counts it, and the end of the
test prints `TRIES: test: what: count`.

Run as root, a test has a network namespace of its own, so that no address or port of another test
is in its way: loopback, and eth0 with two addresses and a default route, whose other end is wire0. A
test that changes these links says so (run(..., links=True)), and has them as any user, too.
"""

import argparse
import atexit
import collections
import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

EXIT_SKIP = 77
SKIPS = pathlib.Path(__file__).resolve().parent / "skips.txt"
WHOLE = "*"  # as a case: the whole test
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
OWN_ADDRESSES = ("10.79.0.1/24", "fd00:79::1/64")
POLL_S = 0.02


class Skip(unittest.SkipTest):
    """The test or case cannot run here; the message is one line that says what is missing."""


class Failure(Exception):
    """The test ran and failed; the message is one line that says why."""


def name():
    """Of the test that runs, as CTest knows it: area.test of area/test_test.py."""
    path = pathlib.Path(sys.argv[0]).resolve()
    if path.stem.endswith("_test"):
        return f"{path.parent.name}.{path.stem.removesuffix('_test')}"
    return path.stem.replace("_", ".")


# ---- skips

def listed(path=SKIPS):
    """{(test, case): reason} of the committed list."""
    entries = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            words = line.split(None, 2)
            if len(words) < 3:
                raise SystemExit(f"{path.name}:{number}: TEST CASE-or-* reason, not '{line}'")
            entries[words[0], words[1]] = words[2]
    return entries


def skipped(case, reason):
    """Says that a case did not run; returns whether that is accepted."""
    print(f"SKIPPED: {name()}: {case}: {reason}", flush=True)
    if os.environ.get("CI", "").lower() != "true":
        return True
    accepted = listed()
    if (name(), case) in accepted or (name(), WHOLE) in accepted:
        return True
    print(f"FAILED: {name()}: {case}: this skip is not in tests/skips.txt", flush=True)
    return False


def missing(tools=(), files=(), root=False):
    """What is not here of all that."""
    absent = ["root"] if root and os.geteuid() != 0 else []
    absent += [tool for tool in tools if not shutil.which(tool)]
    return absent + [str(path) for path in files if not os.path.exists(path)]


def require(**what):
    """Raises Skip with everything that is missing, in one line."""
    absent = missing(**what)
    if absent:
        raise Skip(f"missing: {', '.join(absent)}")


def needs(**what):
    """The same as a decorator of a test case or method."""
    absent = missing(**what)
    return unittest.skipIf(absent, f"missing: {', '.join(absent)}")


# ---- tries

TRIES = collections.Counter()


def tried(what):
    """Another try because of a foreign tool's race, which `what` names."""
    if not TRIES:
        atexit.register(print_tries)
    TRIES[what] += 1


def print_tries():
    for what, count in TRIES.items():
        print(f"TRIES: {name()}: {what}: {count}", flush=True)


# ---- a network of its own

def unshare(kinds):
    return ctypes.CDLL(None).unshare(kinds) == 0


def unshare_as_user():
    """A new network namespace in a user namespace in which this user is root."""
    maps = {"setgroups": "deny", "uid_map": f"0 {os.geteuid()} 1", "gid_map": f"0 {os.getegid()} 1"}
    if not unshare(CLONE_NEWUSER | CLONE_NEWNET):
        return False
    for file, text in maps.items():
        pathlib.Path("/proc/self", file).write_text(text, encoding="ascii")
    return True


def ip(*words):
    """Runs ip, which has to succeed; what it printed."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def await_link(name, state="UP", run=ip):
    """A worker of the kernel brings the state of a link after its carrier, up to a second later."""
    while f" state {state} " not in run("-o", "link", "show", name):
        time.sleep(POLL_S)


def own_network(needed):
    """Moves this process and all that it starts into a new network namespace. Without the right to
    do so it stays where it is, beside other tests, unless it needs one."""
    if needed:
        require(tools=("ip",))
    if missing(tools=("ip",)) or not unshare(CLONE_NEWNET):
        if not needed:
            return
        if not unshare_as_user():
            raise Skip("network namespaces are forbidden here")
    lines = ["link set lo up", "link add eth0 type veth peer name wire0", "link set wire0 up",
             "link set eth0 up"]
    lines += [f"address add {address} dev eth0 nodad" if ":" in address else
              f"address add {address} dev eth0" for address in OWN_ADDRESSES]
    lines.append("route add default dev eth0")
    try:
        for line in lines:
            ip(*line.split())
        await_link("eth0")
    except Failure as failure:
        raise Skip(str(failure)) from failure


# ---- a test

def stop_on_signals():
    """Turns SIGTERM and SIGHUP into an exception, so that context managers clean up. SIGINT, which a
    shell ignores for what it runs in the background, is heard by the test and its children."""
    def stop(number, _frame):
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)


def options(description, full=None):
    """The command line that system tests share; `full` says what --full adds, where there is."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--build", type=pathlib.Path, default="build", help="build tree (build)")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with this in their name")
    if full:
        parser.add_argument("--full", action="store_true", help=full)
    return parser


def run(test, links=False, prepare=None):
    """Runs test() and exits with its outcome; `links`: it needs a network of its own. `prepare()` runs
    before, in the machine's network, where packages can be downloaded."""
    stop_on_signals()
    try:
        if prepare:
            prepare()
        own_network(links)
        test()
    except Skip as skip:
        sys.exit(EXIT_SKIP if skipped(WHOLE, skip) else 1)
    except Failure as failure:
        print(f"{name()}: FAILED: {failure}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)


class Result(unittest.TextTestResult):
    """Fails with a skip that is not accepted."""

    refused = 0

    def addSkip(self, test, reason):  # noqa: N802
        super().addSkip(test, reason)
        # "module.Class.method", or "setUpClass (module.Class)"
        words = re.sub(r"^\w+ \((.*)\)$", r"\1", test.id()).split(" ")[0]
        self.refused += not skipped(words.removeprefix("__main__."), reason)

    def wasSuccessful(self):  # noqa: N802
        return super().wasSuccessful() and not self.refused


def run_cases(words, **required):
    """Runs the test cases of the program that calls it, and exits with their outcome."""
    def cases():
        require(**required)
        runner = unittest.TextTestRunner(resultclass=Result, verbosity=2)
        unittest.main(module="__main__", argv=["tests", *words], testRunner=runner)
    run(cases)
