#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Linux as the peer: the kernel's soft-RoCE and rdma_cm in a guest, booted once.

Four parts: pingpong.py, verbs_programs.py, cm_programs.py, and os_failure.py, which is the last one
since it fails the guest. Without --full, about 20 rows that cover each program, service, role, IPv6
and loss; with it, everything. Every row has one try; one table goes to stdout. Times in it are
information, never judged.
Host packages: qemu-system-x86, iproute2, apt, binutils, cpio, ibverbs-utils, rdmacm-utils, perftest.
Needs root and /dev/net/tun.
"""

import contextlib
import os
import re
import sys

sys.path += [os.path.join(os.path.dirname(os.path.abspath(__file__)), up) for up in ("..", "../verbs")]
import cm_programs  # noqa: E402
import judge  # noqa: E402
import os_failure  # noqa: E402
import pingpong  # noqa: E402
import verbs_programs  # noqa: E402
from guest import Guest, obtain_image  # noqa: E402
from table import Table  # noqa: E402

ROWS = {"pingpong": pingpong, "verbs": verbs_programs, "cm": cm_programs}
FAILURE = "os-failure"
GETS, GETS_FULL = 2000, 50000  # in each phase of os_failure
REFUSALS_PORT = 7200


def chosen_rows(options):
    rows = [row for part, module in ROWS.items() if options.part in (None, part)
            for row in (module.full() if options.full else module.short())]
    rows = [row for row in rows if options.only in row.full_name()]
    number, count = map(int, options.slice.split("/"))
    return rows[number - 1::count]


def test(options):
    build = options.build.resolve()
    rows = chosen_rows(options)
    last = options.part in (None, FAILURE) and options.only in FAILURE
    if not rows and not last:
        raise judge.Failure(f"no row has {options.only!r} in its name")
    judge.require(root=True, tools=("ibv_rc_pingpong", "ib_send_bw", "rping"),
                  files=(build / "verbena", build / "tests/rc_pingpong"))
    with contextlib.ExitStack() as stack:
        gets = stack.enter_context(os_failure.service(build)) if last else None
        guest = stack.enter_context(Guest(memory=gets.memory if last else None))
        if rows:
            Table(guest, build).run_all(rows)
        if options.part in (None, "cm") and not options.only:
            cm_programs.judge_refusals(guest, build, REFUSALS_PORT)
        if last:
            os_failure.run(guest, gets, build, GETS_FULL if options.full else GETS)


def parse():
    parser = judge.options(__doc__.splitlines()[0], full="every row in both roles")
    parser.add_argument("--part", choices=(*ROWS, FAILURE), help="only this one")
    parser.add_argument("--slice", default="1/1", metavar="K/N", help="every Nth row from the Kth on")
    options = parser.parse_args()
    number = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", options.slice)
    if not number or int(number[1]) > int(number[2]):
        parser.error(f"--slice is K/N, such as 1/3, not '{options.slice}'")
    return options


if __name__ == "__main__":
    OPTIONS = parse()
    judge.run(lambda: test(OPTIONS), prepare=obtain_image)
