# SPDX-License-Identifier: Apache-2.0
"""How a system test begins and ends.

Exit status 0: passed; 1: failed; 77: could not run here, which in CI is a failure.
"""

import argparse
import os
import pathlib
import shutil
import signal
import sys

EXIT_SKIP = 77


class Skip(Exception):
    """The test cannot run here; the message is one line that says what is missing."""


class Failure(Exception):
    """The test ran and failed; the message is one line that says why."""


def require(tools=(), devices=(), files=()):
    """Raises Skip with everything that is missing, in one line."""
    missing = []
    if os.geteuid() != 0:
        missing.append("root")
    missing += [tool for tool in tools if not shutil.which(tool)]
    missing += [path for path in devices if not os.path.exists(path)]
    missing += [str(path) for path in files if not os.path.exists(path)]
    if missing:
        raise Skip(f"missing: {', '.join(missing)}")


def stop_on_signals():
    """Turns SIGTERM and SIGHUP into an exception, so that context managers clean up."""
    def stop(number, _frame):
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)


def options(description, full=None):
    """The command line that all system tests share; `full` says what --full adds, where there is."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--build", type=pathlib.Path, default="build", help="build tree (build)")
    parser.add_argument("--no-skip", action="store_true", help="fail where the test cannot run")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with this in their name")
    if full:
        parser.add_argument("--full", action="store_true", help=full)
    return parser.parse_args()


def run(name, test, no_skip=False):
    """Runs test() and exits with its outcome."""
    stop_on_signals()
    try:
        test()
    except Skip as skip:
        in_ci = no_skip or os.environ.get("CI", "").lower() == "true"
        print(f"{name}: {'cannot run' if in_ci else 'skipped'}: {skip}", file=sys.stderr)
        sys.exit(1 if in_ci else EXIT_SKIP)
    except Failure as failure:
        print(f"{name}: FAILED: {failure}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)
