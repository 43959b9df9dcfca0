#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A Linux guest with soft-RoCE, under QEMU, joined by a tap device to a network namespace.

    with Guest() as guest:
        status, output = guest.run("ibv_devinfo -d rxe0")       # in the guest
        server = guest.spawn("ibv_rc_pingpong -d rxe0 -g 1")
        status, output = guest.exec(["ping", "-c1", GUEST_IP])  # on the host, in the namespace

The host is 10.77.0.1 and fd77::1, the guest 10.77.0.2 and fd77::2. GID index 1 of rxe0 is the IPv4
address. Run by hand it boots a guest, shows its device and runs the guest's ibv_rc_pingpong
against itself.

Host packages: qemu-system-x86, iproute2, and what image.py needs. Needs root and /dev/net/tun;
emulation is enough, KVM is not used.
"""

import argparse
import os
import pathlib
import re
import socket
import sys
import tempfile
import threading
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import image  # noqa: E402
import judge  # noqa: E402
import netns  # noqa: E402

HOST_IP, GUEST_IP = "10.77.0.1", "10.77.0.2"
HOST_IP6, GUEST_IP6 = "fd77::1", "fd77::2"
ROCE_PORT = 4791
# Leaves room for 4096 bytes of payload and all headers; the usual 1500 would for 1024.
MTU_JUMBO = 4200
BOOT_TIMEOUT_S = 180
MEMORY_MB = 512
TAP = "tap0"
OOPS = re.compile(r"BUG: |Oops: |general protection fault|kernel BUG at")
OOPS_LINES = 45


def obtain_image():
    """The folder with the kernel and its initramfs. The first call on a machine downloads packages, so it
    needs the machine's network (judge.run(..., prepare=obtain_image))."""
    judge.require(root=True, tools=("qemu-system-x86_64", "ip"), files=("/dev/net/tun",))
    try:
        return image.ensure()
    except image.ImageError as error:
        raise judge.Skip(f"no guest image: {error}") from error


class Job:
    """A shell command in the guest."""

    def __init__(self, guest, number):
        self.guest = guest
        self.number = number
        self.status = None
        self.pgid = None
        self.started = threading.Event()
        self.ended = threading.Event()

    def wait(self, timeout_s=60):
        """Waits for the end and returns the exit status; None when time is up."""
        self.ended.wait(timeout_s)
        self.guest.check_alive()
        return self.status

    def running(self):
        return not self.ended.is_set()

    def kill(self):
        """Kills the command and its children, and waits until they are gone."""
        self.started.wait(30)
        if self.running() and self.pgid:
            self.guest.send(f"kill {self.pgid}")
        return self.wait()

    def output(self):
        return (self.guest.folder / f"{self.number}.out").read_text(errors="replace")


class Guest:
    """Context manager around one booted guest; everything it made is gone after exit. With `memory`,
    a file's path and its bytes, it has that as a PCI device (ivshmem), and stays as it is when its
    kernel panics."""

    def __init__(self, mtu=MTU_JUMBO, memory=None):
        self.mtu = mtu
        self.memory = memory
        self.jobs = {}
        self.ready = threading.Event()
        self.lock = threading.Lock()
        self.failure = None
        self.closing = False
        self.qemu = None
        self.line = None
        self.reader = None
        self.temporary = None
        self.folder = None
        self.namespace = netns.Namespace("guest")

    def __enter__(self):
        entry = obtain_image()
        self.temporary = tempfile.TemporaryDirectory(prefix="verbena-guest-")
        self.folder = pathlib.Path(self.temporary.name) / "job"
        self.folder.mkdir()
        try:
            self.namespace.__enter__()
            self.add_tap()
            self.boot(entry)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exception):
        self.close()

    def add_tap(self):
        ip = self.namespace.ip
        ip("tuntap", "add", "dev", TAP, "mode", "tap")
        ip("address", "add", f"{HOST_IP}/24", "dev", TAP)
        ip("address", "add", f"{HOST_IP6}/64", "dev", TAP, "nodad")
        # The emulated guest is slow to take packets: room for a burst of datagrams, but not for so
        # many that they wait for longer than a sender does.
        ip("link", "set", TAP, "mtu", str(self.mtu), "txqueuelen", "1000", "up")

    def boot(self, entry):
        """Starts QEMU and returns when the guest says that rxe0 is there."""
        base = pathlib.Path(self.temporary.name)
        self.line, far_end = socket.socketpair()
        with far_end, open(base / "qemu", "wb") as messages:
            self.qemu = self.namespace.popen(
                self.qemu_command(entry, base, far_end.fileno()), stdout=messages, stderr=messages,
                pass_fds=(far_end.fileno(),))
        self.reader = threading.Thread(target=self.read_events, daemon=True)
        self.reader.start()
        if not self.ready.wait(BOOT_TIMEOUT_S):
            self.failure = f"the guest did not boot in {BOOT_TIMEOUT_S} s"
        self.check_alive()

    def qemu_command(self, entry, base, jobs_fd):
        path, size = self.memory or (None, 0)
        shared = ["-object", f"memory-backend-file,id=memory,mem-path={path},size={size},share=on",
                  "-device", "ivshmem-plain,memdev=memory"] if self.memory else []
        panic = 0 if self.memory else -1
        return [
            # Room for a second CPU makes QEMU emulate atomic operations as such. For one alone they are
            # no barriers, though devices run in a thread of their own: a notification may get lost.
            "qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-smp", "1,maxcpus=2",
            "-m", str(MEMORY_MB),
            "-nodefaults", "-no-reboot", "-display", "none", "-kernel", entry / "kernel",
            "-initrd", entry / "initrd",
            # no_timer_check: on a busy machine ticks of an emulated timer come late, and the kernel
            # would take it for a broken one.
            "-append", f"console=ttyS0 quiet panic={panic} mitigations=off nokaslr no_timer_check"
            f" vb_mtu={self.mtu}",
            "-serial", f"file:{base / 'console'}",
            "-chardev", f"socket,id=jobs,fd={jobs_fd}", "-serial", "chardev:jobs",
            "-netdev", f"tap,id=net0,ifname={TAP},script=no,downscript=no",
            "-device", "virtio-net-pci,netdev=net0,mac=52:54:00:77:00:02,romfile=",
            "-fsdev", f"local,id=job,path={self.folder},security_model=none",
            "-device", "virtio-9p-pci,fsdev=job,mount_tag=job", *shared,
        ]

    def read_events(self):
        """Runs in its own thread: turns the guest's lines into events."""
        with self.line.makefile("r", encoding="ascii", errors="replace", newline="\n") as lines:
            try:
                for line in lines:
                    self.on_event(line.split())
            except OSError:
                pass
        if not self.failure:
            self.failure = "the guest is gone"
        self.ready.set()
        for job in list(self.jobs.values()):
            job.started.set()
            job.ended.set()

    def on_event(self, words):
        if words[:1] == ["ready"]:
            self.ready.set()
        elif words[:1] == ["failed"]:
            self.failure = " ".join(words[1:])
        elif words[:1] == ["started"] and len(words) == 3:
            job = self.jobs[int(words[1])]
            job.pgid = int(words[2])
            job.started.set()
        elif words[:1] == ["done"] and len(words) == 3:
            job = self.jobs[int(words[1])]
            job.status = int(words[2])
            job.started.set()
            job.ended.set()

    def check_alive(self):
        if self.failure and not self.closing:
            raise judge.Failure(f"{self.failure}: {self.last_words()}")

    def console(self):
        return (pathlib.Path(self.temporary.name) / "console").read_text(errors="replace")

    def last_words(self):
        """What QEMU and the guest said last; of a kernel that has failed, from there on."""
        words = []
        for name in ("qemu", "console"):
            path = pathlib.Path(self.temporary.name) / name
            if path.exists():
                lines = path.read_text(errors="replace").strip().splitlines()
                failed = [i for i, line in enumerate(lines) if OOPS.search(line)]
                words += lines[failed[0]:failed[0] + OOPS_LINES] if failed else lines[-5:]
        return " | ".join(words) or "no message"

    def send(self, line):
        with self.lock:
            self.line.sendall(f"{line}\n".encode("ascii"))

    def spawn(self, text):
        """Starts a shell command in the guest."""
        self.check_alive()
        job = Job(self, len(self.jobs))
        (self.folder / f"{job.number}.sh").write_text(f"{text}\n")
        self.jobs[job.number] = job
        self.send(f"run {job.number}")
        return job

    def run(self, text, timeout_s=60):
        """Runs a shell command in the guest; returns (status, output). A command that takes too
        long is killed and has the status None."""
        job = self.spawn(text)
        status = job.wait(timeout_s)
        if job.running():
            job.kill()
            status = None
        return status, job.output()

    def must(self, text, timeout_s=60):
        """Runs a shell command in the guest that has to succeed; returns its output."""
        status, output = self.run(text, timeout_s)
        if status != 0:
            raise judge.Failure(f"in the guest: {text}: status {status}: {output.strip()}")
        return output

    def wait_until(self, condition, job, timeout_s=20):
        """Waits until a shell command in the guest succeeds; False if `job` ends first."""
        probe = self.spawn(f"until {condition}; do usleep 20000; done")
        deadline = time.monotonic() + timeout_s
        while probe.running() and job.running() and time.monotonic() < deadline:
            probe.ended.wait(0.05)
        self.check_alive()
        if probe.running():
            probe.kill()
        return probe.status == 0

    def wait_listening(self, port, job, timeout_s=20):
        """Waits until somebody in the guest listens on a TCP port; False if `job` ends first."""
        pattern = f":{port:04X} [0-9A-F:]* 0A "
        return self.wait_until(f"grep -q '{pattern}' /proc/net/tcp /proc/net/tcp6", job, timeout_s)

    def exec(self, argv, timeout_s=60):
        """Runs a host command in the namespace; returns (status, output)."""
        return self.namespace.exec(argv, timeout_s)

    def popen(self, argv, **options):
        """Starts a host command in the namespace."""
        return self.namespace.popen(argv, **options)

    def loss(self, percent):
        """Drops that share of RoCE packets in each direction; 0 heals.

        It happens in the guest's traffic control, whose kernel we know. To its sender a dropped
        packet looks sent: a firewall's drop on the way out would be an error it can see.
        """
        if percent <= 0:
            self.must("tc qdisc del dev eth0 clsact 2>/dev/null; true")
            return
        action = f"action pass random netrand pipe {round(100 / percent)} action trap"
        lines = ["tc qdisc add dev eth0 clsact"]
        for hook in ("ingress", "egress"):
            for priority, protocol, match in ((1, "ip", "ip"), (2, "ipv6", "ip6")):
                lines.append(
                    f"tc filter add dev eth0 {hook} protocol {protocol} prio {priority}"
                    f" u32 match {match} protocol 17 0xff"
                    f" match {match} dport {ROCE_PORT} 0xffff {action}")
        self.must("tc qdisc del dev eth0 clsact 2>/dev/null; " + " && ".join(lines))

    def losses(self):
        """Packets since loss() was set, both directions together: (seen, dropped)."""
        text = self.must("tc -s actions list action gact")
        counts = re.findall(r"gact action (\w+).*?Sent \d+ bytes (\d+) pkt", text, re.DOTALL)
        seen = sum(int(packets) for action, packets in counts if action == "pass")
        return seen, sum(int(packets) for action, packets in counts if action == "trap")

    def close(self):
        self.closing = True
        if self.qemu:
            self.namespace.forget(self.qemu)
        if self.line:
            self.line.close()
        if self.reader:
            self.reader.join()
        self.namespace.close()
        if self.temporary:
            self.temporary.cleanup()


def show(mtu):
    with Guest(mtu) as guest:
        print(guest.must("uname -r; rdma link; ibv_devinfo -v -d rxe0"))
        server = guest.spawn("ibv_rc_pingpong -d rxe0 -g 1 -n 200 -c")
        if not guest.wait_listening(18515, server):
            raise judge.Failure(f"the guest's server does not listen: {server.output()}")
        print(guest.must(f"ibv_rc_pingpong -d rxe0 -g 1 -n 200 -c {GUEST_IP}"))
        if server.wait() != 0:
            raise judge.Failure(f"the guest's server: {server.output()}")


def arguments():
    parser = argparse.ArgumentParser(description="boot the guest and run its own ibv_rc_pingpong")
    parser.add_argument("--mtu", type=int, default=MTU_JUMBO, help="the interface's (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    parsed = arguments()
    judge.run(lambda: show(parsed.mtu))
