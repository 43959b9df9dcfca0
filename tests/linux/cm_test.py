#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Linux as the peer of our communication manager: rping and udaddy on its rdma_cm and soft-RoCE.

Each case is one run of both programs, in one of both roles, with rping's own check of the data.
Host packages: as pingpong_test.py. Needs root and /dev/net/tun.
"""

import subprocess
import time

import outcome
from guest import GUEST_IP, GUEST_IP6, HOST_IP, HOST_IP6, Guest

PORT = 7174
LIMIT_S = 60
LOSS_PERCENT = 1
# Role of ours, our address, the guest's, pings, bytes, packets lost in per cent.
CASES = [(role, ours, theirs, count, size, loss)
         for role in ("client", "server")
         for ours, theirs in ((HOST_IP, GUEST_IP), (HOST_IP6, GUEST_IP6))
         for count, size, loss in ((50, 64, 0), (50, 5000, 0))]
CASES += [(role, HOST_IP, GUEST_IP, 200, 1000, LOSS_PERCENT) for role in ("client", "server")]


def wait_for_guest(guest, job):
    """rping says nothing when it listens: its port is in the kernel's table of connections."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and job.running():
        status, text = guest.run("rdma resource show cm_id 2>/dev/null | grep -c LISTEN")
        if status == 0 and text.strip() != "0":
            return
    raise outcome.Failure(f"the guest's rping does not listen: {job.output()}")


def run_client(guest, tool, ours, theirs, count, size):
    job = guest.spawn(f"rping -s -v -V -a {theirs} -p {PORT} -S {size} -C {count}")
    wait_for_guest(guest, job)
    status, output = guest.exec([tool, "ask", ours, theirs, PORT, count, size], LIMIT_S)
    if status != 0:
        job.kill()
        return f"ours: status {status}: {output.strip()}; guest: {job.output()[-200:]}"
    # A server's own status says only that the client has left.
    job.wait(LIMIT_S)
    return None


def run_server(guest, tool, ours, count, size):
    server = guest.popen([tool, "serve", ours, PORT], stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
    try:
        if server.stdout.readline() != "ready\n":
            return "our server does not start"
        status, output = guest.run(f"rping -c -V -a {ours} -p {PORT} -S {size} -C {count}", LIMIT_S)
        if status != 0:
            return f"guest: status {status}: {output.strip()[-200:]}"
        server.wait(LIMIT_S)
        said = server.stdout.read().strip()
        return None if f"{count} pings served" in said else f"ours: {said}"
    finally:
        guest.namespace.forget(server)


def run_case(guest, tool, case):
    role, ours, theirs, count, size, loss = case
    guest.loss(loss)
    if role == "client":
        problem = run_client(guest, tool, ours, theirs, count, size)
    else:
        problem = run_server(guest, tool, ours, count, size)
    guest.loss(0)
    return problem


def judge_lookup(guest, tool):
    """A datagram service of the guest's, by its port: the key is rdma_cm's own."""
    job = guest.spawn(f"udaddy -b {GUEST_IP}")  # on PORT, always
    try:
        wait_for_guest(guest, job)
        status, output = guest.exec([tool, "look", HOST_IP, GUEST_IP, PORT], LIMIT_S)
    finally:
        job.kill()
    if status != 0 or "key 0x01234567" not in output:
        raise outcome.Failure(f"looking a service up: status {status}: {output.strip()}")
    print(f"looked up in the guest: {output.strip()}")


def judge_refusals(guest, tool):
    """The negative twins: nobody listens there."""
    status, output = guest.exec([tool, "ask", HOST_IP, GUEST_IP, PORT + 1, 1, 64], LIMIT_S)
    if status == 0 or "nobody listens" not in output:
        raise outcome.Failure(f"a guest that does not listen: status {status}: {output.strip()}")
    status, output = guest.exec([tool, "look", HOST_IP, GUEST_IP, PORT + 1], LIMIT_S)
    if status == 0 or "status 1 " not in output:
        raise outcome.Failure(f"a service that is not there: {output.strip()}")
    print("refused by the guest: ok")


def test(options):
    tool = (options.build / "tests" / "cm_peer").resolve()
    outcome.require(files=(tool,))
    failed = 0
    with Guest() as guest:
        for case in CASES:
            problem = run_case(guest, tool, case)
            failed += problem is not None
            print("{:<7} {:<10} {:<10} {:>4} {:>6} {:>3} %  ".format(*case) + (problem or "ok"),
                  flush=True)
        judge_lookup(guest, tool)
        judge_refusals(guest, tool)
    if failed:
        raise outcome.Failure(f"{failed} of {len(CASES)} cases")
    print(f"{len(CASES)} of {len(CASES)} cases passed")


if __name__ == "__main__":
    parsed = outcome.options(__doc__.splitlines()[0])
    outcome.run("cm_test", lambda: test(parsed), parsed.no_skip)
