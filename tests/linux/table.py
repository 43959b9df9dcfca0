# SPDX-License-Identifier: Apache-2.0
"""Rows against Linux: each is one run of two programs, and has one try."""

import dataclasses
import sys
import time

import judge

ROLES = ("server", "client")
GID_INDEX = {4: 1, 6: 2}  # of the guest's addresses
LOSS_PERCENT = 1
FIRST_PORT = 18515
FAILURES_MAX = 5
# What the guest knows when rows have failed: of soft-RoCE, of its network device, of its kernel.
STATE = ("rdma statistic; ip -s link show eth0; cat /proc/net/arp; grep -i virtio /proc/interrupts;"
         " tc -s qdisc show dev eth0; dmesg | tail -60")
TABLE = "{:<52} {:<7} {:<3} {:>5} {:>5} {:>14}  {}"


@dataclasses.dataclass(kw_only=True)
class Row:
    """`role` is ours; the guest has the other one. What a kind of row adds: name(), and run(guest,
    build, port), which returns None or one line that says why the row failed."""
    role: str
    ip: int = 4
    loss: int = 0
    lost: int = 0
    figure: str = "-"
    impossible: str = ""  # why soft-RoCE cannot do it even with itself

    def full_name(self):
        return f"{self.name()} {self.role} ipv{self.ip} loss {self.loss}"


class Table:
    """Runs rows and prints them."""

    def __init__(self, guest, build):
        self.guest, self.build = guest, build
        self.port = FIRST_PORT
        self.failed, self.done = 0, []
        print(TABLE.format("program", "ours", "ip", "lost", "s", "figure", "outcome"), flush=True)

    def run(self, row):
        self.port += 1
        start = time.monotonic()
        problem = row.run(self.guest, self.build, self.port)
        self.failed += problem is not None
        self.done.append(row)
        said = f"soft-RoCE: no: {row.impossible}" if row.impossible else problem or "ok"
        print(TABLE.format(row.name(), row.role, f"v{row.ip}", row.lost if row.loss else "-",
                           f"{time.monotonic() - start:.1f}", row.figure, said), flush=True)

    def run_all(self, rows):
        for row in rows:
            self.run(row)
            if self.failed == FAILURES_MAX:
                break
        impossible = sum(bool(row.impossible) for row in self.done)
        print(f"{len(self.done) - self.failed - impossible} rows passed, {self.failed} failed,"
              f" {impossible} that soft-RoCE cannot do; {len(rows)} planned", flush=True)
        if self.failed:
            print(self.guest.must(STATE), file=sys.stderr)
            raise judge.Failure(f"{self.failed} rows")
        lossy = [row for row in rows if row.loss]
        if lossy and not any(row.lost for row in lossy):
            raise judge.Failure("no packet was lost in the rows that should lose some")
