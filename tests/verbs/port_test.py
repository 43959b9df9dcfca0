#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a port says of itself is what the link below is: state, width and speed, MTU. In a network
namespace whose links the test makes, changes and takes away.
Host packages: ibverbs-utils, iproute2, util-linux."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import judge  # noqa: E402

LIMIT_S = 60
INSIDE = "VERBENA_PORT_TEST_INSIDE"
OWN, OWN_V6 = "10.80.1.1", "fd00:80::1"


def ip(*words):
    subprocess.run(["ip", *words], check=True, timeout=LIMIT_S)


def told(options, address):
    """State, physical state, width, speed and active MTU by ibv_devinfo."""
    done = subprocess.run([options.build / "verbena", "run", "--address", address, "--",
                           "ibv_devinfo", "-v"], capture_output=True, text=True, timeout=LIMIT_S,
                          check=False)
    found = [re.search(rf"\b{name}:\s+([^\n(]+)", done.stdout)
             for name in ("state", "phys_state", "active_width", "active_speed", "active_mtu")]
    if done.returncode or not all(found):
        raise judge.Failure(f"ibv_devinfo: {done.stdout} {done.stderr}")
    return tuple(match.group(1).strip() for match in found)


def expect(options, address, wanted, what):
    seen = told(options, address)
    if seen != wanted:
        raise judge.Failure(f"{what}: {seen}, not {wanted}")


def check(options):
    up = ("PORT_ACTIVE", "LINK_UP")
    down = ("PORT_DOWN", "DISABLED")
    ten = ("1X", "10.0 Gbps")  # what veth says of itself
    ip("link", "set", "lo", "up")
    ip("link", "add", "p0", "type", "veth", "peer", "name", "p1")
    ip("address", "add", f"{OWN}/24", "dev", "p0")
    ip("address", "add", f"{OWN_V6}/64", "dev", "p0", "nodad")
    ip("link", "set", "p0", "up")
    ip("link", "set", "p1", "up")
    for address in (OWN, OWN_V6):
        expect(options, address, (*up, *ten, "1024"), "a link")
    ip("link", "set", "p0", "mtu", "9000")
    expect(options, OWN, (*up, *ten, "4096"), "a link with a larger MTU")
    ip("link", "set", "p1", "down")
    expect(options, OWN, (*down, *ten, "4096"), "a link without a carrier")
    ip("link", "set", "p1", "up")
    expect(options, OWN, (*up, *ten, "4096"), "a link that is back")
    ip("link", "set", "p0", "down")
    expect(options, OWN, (*down, *ten, "4096"), "a link that is down")
    # A loopback has no speed: the least, as Linux's soft-RoCE says of links that do not tell.
    expect(options, "127.0.0.1", (*up, "1X", "2.5 Gbps", "4096"), "the loopback")
    print("a port is as its link is")


def test(options):
    missing = [tool for tool in ("ip", "unshare", "ibv_devinfo") if not shutil.which(tool)]
    if missing:
        raise judge.Skip(f"missing: {', '.join(missing)}")
    if INSIDE not in os.environ:
        if subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode:
            raise judge.Skip("no network namespaces here")
        os.execvpe("unshare", ["unshare", "-rn", sys.executable, *sys.argv],
                   {**os.environ, INSIDE: "1"})
    options.build = options.build.resolve()
    check(options)


if __name__ == "__main__":
    parsed = judge.options(__doc__.splitlines()[0]).parse_args()
    judge.run(lambda: test(parsed))
