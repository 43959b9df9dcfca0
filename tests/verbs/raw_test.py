#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that use a vendor's library beside libibverbs, under `verbena run`: one that drives
queues by hand (raw.c, linked with -lmlx5), and libefa. Host packages: libibverbs-dev, gcc."""

import os
import statistics
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli"))
import command  # noqa: E402

LOOKS = 20  # that are judged
NAP_MIN_NS = 500_000  # a nap of a thread that finds nothing is a millisecond
# A look, one pass over the lanes and a few system calls, takes about 20 us of processor time. Time in
# which other threads have the core is not counted. Cold caches and a busy hyperthread beside it make it
# two or three times as long.
LOOK_MAX_NS = 200_000

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "raw.c")


def raw():
    return os.path.join(os.path.dirname(command.VERBENA), "tests", "verbs_raw")


class ByHand(unittest.TestCase):
    def succeeds(self, *words, program=None, **variables):
        done = command.run("run", *words, "--", program or raw(), **variables)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(done.stdout, "right: ok\nwrong: ok\nall ok\n", done)
        return done

    def test_every_port(self):
        for port in ("udp", "shm", "auto"):
            with self.subTest(port=port):
                self.succeeds("--port", port)

    def test_several_units(self):
        self.succeeds("--pus", "2")

    def test_under_faults(self):
        # NAKs come: behind a fatal one the responder is in ERR and says no more, so where that one
        # is lost the requester ends by retries, and has another syndrome.
        self.succeeds("--faults", "drop=0.2%,op=send|write|read|read_resp|atomic|atomic_ack|ack;"
                      "reorder=1%;dup=1%")

    def test_says_what_it_refuses(self):
        done = self.succeeds("--log", "error")
        self.assertIn("mlx5dv_devx_alloc_uar: only cards have it", done.stderr)
        self.assertIn("mlx5dv_init_obj: there are QP, CQ and SRQ", done.stderr)
        self.assertEqual(self.succeeds().stderr, "")

    def test_plainly_compiled(self):
        with tempfile.TemporaryDirectory() as place:
            program = os.path.join(place, "raw")
            subprocess.run(["gcc", SOURCE, "-o", program, "-libverbs", "-lmlx5"], check=True)
            self.succeeds(program=program)

    def test_without_us_there_is_no_device(self):
        """The twin of all above: what they show is not the machine's own doing."""
        if os.path.isdir("/sys/class/infiniband"):
            self.skipTest("this machine may have devices")
        done = command.run("run", "--", raw(), VERBENA="off")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("list && list[0]", done.stderr)


class Idle(unittest.TestCase):
    PROGRAM = """
import ctypes, os, sys, time
verbs, mlx5 = ctypes.CDLL("libibverbs.so.1"), ctypes.CDLL("libmlx5.so.1")
for name in ("ibv_get_device_list", "ibv_open_device", "ibv_create_cq"):
    getattr(verbs, name).restype = ctypes.c_void_p
devices = ctypes.cast(verbs.ibv_get_device_list(None), ctypes.POINTER(ctypes.c_void_p))
context = ctypes.c_void_p(verbs.ibv_open_device(ctypes.c_void_p(devices[0])))
cq = ctypes.c_void_p(verbs.ibv_create_cq(context, 10, None, None, 0))
out = (ctypes.c_uint64 * 16)()
obj = (ctypes.c_void_p * 16)(None, None, cq, ctypes.addressof(out))
assert mlx5.mlx5dv_init_obj(obj, ctypes.c_uint64(2)) == 0 and out[0]
# The thread that looks is in ppoll() with a time limit, or it is awake.
PPOLL = {"271", "73"}  # on x86-64 and aarch64
def nap(task):
    number, _, _, limit, *_ = open(f"/proc/self/task/{task}/syscall").read().split() + [""] * 4
    if number not in PPOLL or int(limit, 16) == 0:
        return 0
    return ctypes.c_int64.from_address(int(limit, 16) + 8).value
def switches(task):
    return next(int(line.split()[1]) for line in open(f"/proc/self/task/{task}/status")
                if line.startswith("voluntary_ctxt_switches"))
def processor_ns(task):
    return time.clock_gettime_ns(~int(task) << 3 | 6)  # its CPUCLOCK_SCHED
used, costs = {}, []
while len(costs) < int(sys.argv[1]):
    for task in os.listdir("/proc/self/task"):
        if int(task) == os.getpid():
            continue
        number = switches(task)
        ns = processor_ns(task)
        # In one nap since `number` was read: the thread used no time meanwhile.
        if nap(task) < int(sys.argv[2]) or switches(task) != number or (task, number) in used:
            continue
        used[task, number] = ns
        if (task, number - 1) in used:
            costs.append(ns - used[task, number - 1])
print(*costs)
"""

    def test_looks_are_rare(self):
        """A queue by hand is looked at now and then, not all the time: from one long nap to the next
        the thread switches once, and works for less than half of a nap. If it napped briefly in
        between, or not at all, no two long naps would follow each other, and time would run out. The
        median is judged: some costs have the time of interrupts in them."""
        done = command.run("run", "--", sys.executable, "-c", self.PROGRAM, str(LOOKS), str(NAP_MIN_NS))
        self.assertEqual(done.returncode, 0, done)
        costs = list(map(int, done.stdout.split()))
        self.assertGreaterEqual(len(costs), LOOKS, done)
        self.assertLess(statistics.median(costs), LOOK_MAX_NS, done)


class Efa(unittest.TestCase):
    PROGRAM = """
import ctypes
efa = ctypes.CDLL("libefa.so.1", use_errno=True)
print(efa.efadv_query_device(None, None, 0))
efa.efadv_create_driver_qp.restype = ctypes.c_void_p
print(efa.efadv_create_driver_qp(None, None, 0), ctypes.get_errno())
"""

    def test_refuses(self):
        done = command.run("run", "--log", "error", "--", sys.executable, "-c", self.PROGRAM)
        self.assertEqual(done.stdout, "95\nNone 95\n", done)
        self.assertIn("efadv_query_device: it is no EFA device", done.stderr)


if __name__ == "__main__":
    command.main(tools=("gcc",))
