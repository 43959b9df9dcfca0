#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a port says of itself is what the link below is: state, width and speed, MTU.
Host packages: ibverbs-utils, iproute2."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import judge  # noqa: E402

LIMIT_S = 60
OWN, OWN_V6 = (address.split("/")[0] for address in judge.OWN_ADDRESSES)


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


def set_link(name, how, state):
    judge.ip("link", "set", name, how)
    judge.await_link("eth0", state)


def check(options):
    up = ("PORT_ACTIVE", "LINK_UP")
    down = ("PORT_DOWN", "DISABLED")
    ten = ("1X", "10.0 Gbps")  # what veth says of itself
    for address in (OWN, OWN_V6):
        expect(options, address, (*up, *ten, "1024"), "a link")
    judge.ip("link", "set", "eth0", "mtu", "9000")
    expect(options, OWN, (*up, *ten, "4096"), "a link with a larger MTU")
    set_link("wire0", "down", "LOWERLAYERDOWN")
    expect(options, OWN, (*down, *ten, "4096"), "a link without a carrier")
    set_link("wire0", "up", "UP")
    expect(options, OWN, (*up, *ten, "4096"), "a link that is back")
    set_link("eth0", "down", "DOWN")
    expect(options, OWN, (*down, *ten, "4096"), "a link that is down")
    # A loopback has no speed: the least, as Linux's soft-RoCE says of links that do not tell.
    expect(options, "127.0.0.1", (*up, "1X", "2.5 Gbps", "4096"), "the loopback")
    print("a port is as its link is")


def test(options):
    judge.require(tools=("ibv_devinfo",))
    options.build = options.build.resolve()
    check(options)


if __name__ == "__main__":
    parsed = judge.options(__doc__.splitlines()[0]).parse_args()
    judge.run(lambda: test(parsed), links=True)
