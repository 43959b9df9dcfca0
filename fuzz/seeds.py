#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the fuzzers of packets, live queue pairs, work-queue entries, offloads, shared
memory and communication managers: one story per file, in the bytes that they read as choices (fuzz/rig*.c and each fuzzer's
own head). To be run again when the meaning of those changes."""

import pathlib
import struct

RC, RC_SHARED, UC, UD, XRC_INI, XRC_TGT = range(6)
SERVICES = {"rc": (RC, RC_SHARED), "rc_shared": (RC_SHARED, RC), "uc": (UC, UC), "ud": (UD, UD),
            "xrc": (XRC_INI, XRC_TGT)}
UNOBSERVED, UNITS, PORT, SMALL, FAULTS, IPV6, NARROW = (1 << i for i in range(7))
SHARED, APART = 0x30, 0x40  # of the layout
# enum vb_wr_opcode
(SEND, WRITE, READ, NOP, SEND_IMM, SEND_INVAL, WRITE_IMM, CAS, FADD, MASKED_CAS, MASKED_FADD,
 ATOMIC_WRITE, FLUSH, BIND, LOCAL_INVAL) = range(15)
ATOMICS = (CAS, FADD, MASKED_CAS, MASKED_FADD)
ALONE = (NOP, FLUSH, BIND, LOCAL_INVAL)
SIGNALED, FENCE, SOLICITED, INLINE = 1, 2, 4, 8


def address(offset=0, place=0):
    """An address in region `place` (0 to 3), or in window `place` - 4."""
    return bytes([place, offset // 8 if place < 4 else offset])


def segment(size, offset=0, place=0):
    if size < 128:
        return bytes([size]) + address(offset, place)
    return b"\x80" + address(offset, place) + struct.pack(">H", size)


def list_length(count):
    return count if count < 4 else next(c for c in range(128, 256) if c % 17 == count)


class Frames:
    """Commands of fuzz_frames."""

    def __init__(self, flags=0, layout=0, apart=0):
        self.bytes = bytes([flags, layout, apart])

    def command(self, code, which, *more):
        self.bytes += bytes([which * 16 + code]) + b"".join(more)
        return self

    def send(self, qp, opcode, sizes=(64,), flags=SIGNALED, imm=0, place=0, extra=b""):
        count = 0 if opcode in ALONE else 1 if opcode in ATOMICS + (ATOMIC_WRITE,) else len(sizes)
        body = bytes([opcode, flags | imm << 4, list_length(len(sizes))]) + address(0, place)
        for i in range(count):
            body += segment(sizes[i], 64 * i)
        if opcode in ATOMICS:
            body += b"\x05"
        elif opcode == FLUSH:
            body += struct.pack(">H", 64)
        elif opcode in (SEND_INVAL, LOCAL_INVAL):
            body += b"\x01"
        body += extra
        return self.command(0, qp, body, b"\0" if qp == UD else b"")

    def bind(self, qp, window, size=512, zero_based=False):
        rights = 0x0e | window | (0x10 if zero_based else 0)
        return self.send(qp, BIND, extra=bytes([rights]) + address() + bytes([size // 8]))

    def receive(self, qp, *sizes):
        body = bytes([len(sizes)])
        for i, size in enumerate(sizes):
            body += segment(size, 512 * i)
        return self.command(3, qp, body)

    def wait(self, us):
        return self.command(5, 4, struct.pack(">H", us * 1000 // 16))

    def settle(self):
        return self.command(6, 0)

    def control(self, qp, code, *more):
        return self.command(7, qp, bytes([code]), *more)

    def run(self):
        return self.command(9, 0)

    def steps(self, unit, count):
        return self.command(10, unit, bytes([count]))

    def answer(self, qp):
        return self.command(11, qp)

    def request(self, qp, choice, *more):
        return self.command(12, qp, bytes([choice]), *more)

    def deliver(self, choice=4, *mask):
        return self.command(13, 0, bytes([choice, *mask]))

    def packet(self, qp, opcode, *more):
        return self.command(14, qp, bytes([opcode]), *more)

    def exchange(self, rounds=2):
        for _ in range(rounds):
            self.run().deliver()
        return self.settle()


def everything(qp, peer, **setup):
    """Every operation once, right; what the service does not have fails."""
    f = Frames(**setup)
    for _ in range(4):
        f.receive(peer, 2000, 500)
    for opcode in range(15):
        f.send(qp, opcode, (64, 300) if opcode < CAS else (8,), flags=SIGNALED | SOLICITED)
        f.run().deliver().deliver()
    f.send(qp, SEND, (100,), flags=SIGNALED | INLINE).send(qp, READ, (700, 900, 300))
    f.send(qp, SEND, tuple([40] * 16), flags=SIGNALED | FENCE)
    f.exchange(4)
    f.control(qp, 2).settle()
    return f.control(qp, 0).receive(peer, 64).send(qp, SEND).exchange()


def losses(qp, peer):
    """Packets that are lost, come twice or in another order; answers that never come."""
    f = Frames()
    for _ in range(4):
        f.receive(peer, 2900)
    f.send(qp, WRITE, (2000,)).send(qp, READ, (2000,)).send(qp, FADD, (8,)).send(qp, SEND, (900,))
    f.run().deliver(0x84, 0x12).deliver(0x86, 0xff).deliver(5).wait(200).run().deliver(0x84, 0x01)
    f.wait(200).exchange(3).wait(600)
    for _ in range(6):
        f.wait(600).run()
    return f.settle()


def windows():
    f = Frames()
    f.bind(RC_SHARED, 0).bind(RC_SHARED, 1, zero_based=True).exchange()
    f.send(RC, WRITE, (64,), place=4).send(RC, READ, (64,), place=5).send(RC, FADD, (8,), place=4)
    f.exchange(3).receive(RC_SHARED, 500).send(RC, SEND_INVAL, (32,)).exchange(3)
    f.control(RC, 14, b"\x00").bind(RC, 1).send(RC, LOCAL_INVAL, flags=SIGNALED).exchange(3)
    f.bind(RC, 1).bind(RC, 0, size=0).exchange().control(RC, 14, b"\x04\x7f")
    f.control(RC, 14, b"\x00").bind(RC, 0x21).exchange()
    return f.control(RC, 14, b"\x05").control(RC, 14, b"\x0d").settle()


def states():
    f = Frames(apart=0x3f)
    for qp in range(6):
        f.receive(qp, 300)
        for state in (1, 2, 3):
            f.control(qp, 5 | state << 4).send(qp, SEND).send(qp, WRITE)
            f.request(qp, 1, address(), b"\0\x40") if qp != UD else f.request(qp, 1, b"\0\x40")
            f.run()
        f.control(qp, 3).send(qp, SEND).exchange().control(qp, 4).exchange()
        f.send(qp, READ).exchange().control(qp, 4).send(qp, SEND).exchange()
        f.control(qp, 7).control(qp, 0)
    return f.exchange()


def queues():
    """Armed and moderated completion queues, resizing, limits of shared queues, overruns."""
    f = Frames(flags=SMALL)
    for i in range(3):
        f.control(RC, 10 | i << 4, b"\xc3").control(RC, 10 | i << 4, b"\0")
    f.control(RC, 11, b"\x04").control(RC, 11 | 16, b"\x03")
    for qp in (RC_SHARED, XRC_TGT):
        f.receive(qp, 100).receive(qp, 100)
    f.send(RC, SEND, (20,)).send(XRC_INI, SEND, (20,)).exchange(3).wait(10)
    f.control(RC, 9, b"\1").control(RC, 9 | 16, b"\2").settle()
    for _ in range(12):
        f.send(RC, NOP).send(UC, NOP)
    f.run().settle().control(XRC_TGT, 8 | 16).receive(XRC_TGT, 50)
    return f.send(XRC_INI, SEND, (20,)).exchange(3)


def midway():
    """Units that stop after any step, while memory, queues and queue pairs go."""
    f = Frames(flags=NARROW)
    read = (b"\0\0", struct.pack(">H", 2000))
    for peer in (RC, XRC_TGT):
        place = bytes([3 if peer == XRC_TGT else 0, 0])
        f.request(peer, 7, place, read[1]).run().request(peer, 0x47, b"\1", place, read[1])
        f.request(peer, 0x47, b"\0", place, read[1]).steps(0, 3)
        f.request(peer, 0x47, b"\2", place, read[1]).steps(0, 1).steps(1, 1)
        region = place[0] * 8
        f.control(peer, 14, bytes([region])).run().control(peer, 14, bytes([region + 2]))
        f.settle().control(peer, 0)
    for code in (0, 7, 0x18, 2):
        for peer in (RC, UD, XRC_TGT):
            f.receive(peer, 2900).request(peer, 1, *((b"\0\x40",) if peer == UD else read))
            f.steps(0, 1).steps(1, 1).control(peer, code).settle().control(peer, 0)
    f.receive(XRC_TGT, 2900).request(XRC_TGT, 0x20, *read).control(XRC_TGT, 0x18).settle()
    f.send(UC, SEND).send(UC, READ).send(UC, SEND).send(UC, SEND)
    f.run().send(UC, READ).steps(0, 4).control(UC, 4).settle()
    f.send(RC, WRITE, (2900,)).send(RC, WRITE, (2900,)).send(RC, WRITE, (2900,))
    return f.exchange(6)


def nonsense():
    """Control operations that are refused."""
    f = Frames()
    for what in range(5):
        for choice in range(16):
            f.control(RC, 15, bytes([what, choice | choice << 1 & 0x30, 4 + choice % 4]))
    return f.control(RC, 15, b"\x04\xb8\0\0\0\x05").settle()


def edges():
    """The last bytes of regions, and one more."""
    f = Frames()
    end = b"\x20\x40"  # 64 bytes before the end of the first region
    for size in (64, 65, 63):
        f.control(RC, 0).control(RC_SHARED, 0).control(UC, 0)
        f.command(3, RC_SHARED, b"\1", bytes([size]), end)
        for opcode in (SEND, WRITE, READ):
            f.command(0, RC, bytes([opcode, SIGNALED, 1]), end, bytes([size]), end)
            f.command(0, UC, bytes([opcode, SIGNALED, 1]), end, bytes([size]), end)
            f.run().deliver().deliver()
        f.settle()
        f.command(0, RC, bytes([FADD, SIGNALED, 1]), b"\x20" + bytes([71 - size]), b"\x08\0\0\5")
        f.exchange(2)
    return f


def faults():
    f = Frames(flags=FAULTS | IPV6).receive(RC_SHARED, 500).receive(UD, 500)
    f.send(RC, SEND).control(RC, 12).exchange(3).control(RC, 0).control(RC_SHARED, 0)
    f.control(RC, 13).send(RC, SEND).exchange().control(RC, 0)
    f.send(UD, SEND, (30,)).exchange().control(RC, 14, b"\x07").send(RC, WRITE).exchange(3)
    f.control(RC, 10, b"\0").control(RC, 0x8d).send(RC, NOP).run().settle().wait(20)
    return f.control(RC, 14, b"\x06").settle()


def strangers():
    """Packets of all opcodes as a peer could make them, in and out of place."""
    f = Frames(flags=UNITS)
    for qp in range(6):
        f.receive(qp, 900).receive(qp, 900)
        for choice in range(16):
            more = b"\0\x40" if qp == UD else address() + b"\0\x40"
            f.request(qp, choice | 0xa0, more)
    for opcode in (0x04, 0x0c, 0x11, 0x12, 0x13, 0x1c, 0x1d, 0x24, 0x64, 0x65, 0x81, 0xa4, 0xac,
                   0xb1, 0xc0, 0xc1):
        f.packet(opcode % 6, opcode, b"\0\0\x08\0\0\0\0\0\0")
    f.send(RC, READ, (900,)).send(RC, CAS, (8,)).send(RC, WRITE)
    f.run().answer(RC).answer(RC).answer(RC).answer(RC).answer(RC).answer(RC)
    return f.command(8, RC, b"\x04\0\0\x08\x42\x05\xff\x00\x01").settle()


def frames():
    for name, (qp, peer) in SERVICES.items():
        yield name, everything(qp, peer)
        yield name + "_units", everything(qp, peer, flags=UNITS | PORT | UNOBSERVED,
                                          layout=APART | SHARED | 1)
    yield "losses", losses(RC, RC_SHARED)
    yield "losses_xrc", losses(XRC_INI, XRC_TGT)
    for story in (windows, states, queues, midway, nonsense, edges, faults, strangers):
        yield story.__name__, story()


# ---- work-queue entries

W_SEND, W_WRITE, W_READ, W_NOP, W_SEND_IMM, W_WRITE_IMM, W_SEND_INVAL = range(7)
W_CAS, W_FADD, W_MASKED_CAS, W_MASKED_FADD, W_UMR, W_FLUSH, W_ATOMIC_WRITE = range(7, 14)


class Entries(Frames):
    """Commands of fuzz_wqe."""

    def entry(self, qp, opcode, body, choice=0, imm=b""):
        head = b"\0" if qp == UD and opcode not in (W_NOP, W_UMR) else b""
        flags = 0x08 | (0x10 if imm else 0)
        return self.command(0, qp, bytes([choice, opcode, flags]) + imm + head + body)

    def receive(self, qp, *sizes):
        body = bytes([len(sizes)])
        for i, size in enumerate(sizes):
            body += bytes([size // 16]) + address(256 * i)
        return self.command(5, qp, body)

    def records(self, *more):
        return self.command(7, 0, bytes(more))

    def control(self, qp, code, *more):
        return self.command(8, qp, bytes([code]), *more)

    def deliver(self, choice=4, *mask):
        return self.command(9, 0, bytes([choice, *mask]))

    def run(self):
        return self.command(12, 0)

    def settle(self):
        return self.run().command(13, 0)


def entry_body(opcode):
    one = b"\x01\x08" + address()
    bodies = {W_NOP: b"", W_UMR: bytes([0x70, 8]) + address(), W_FLUSH: b"\x40" + address()}
    if opcode in bodies:
        return bodies[opcode]
    if W_CAS <= opcode <= W_MASKED_FADD:
        return b"\x05" + address() + address(64)
    if opcode == W_ATOMIC_WRITE:
        return address() + address(64)
    return (address() if opcode in (W_WRITE, W_READ, W_WRITE_IMM) else b"") + one


def entries_of(qp, peer, **setup):
    f = Entries(**setup)
    for _ in range(3):
        f.receive(peer, 512, 512)
    for opcode in range(14):
        f.entry(qp, opcode, entry_body(opcode)).run().deliver().deliver()
    f.settle().control(qp, 0).receive(peer, 512)
    f.entry(qp, W_SEND, b"\x80\x20").entry(qp, W_SEND, b"\x10" + b"\x08\0\0" * 16)
    f.run().deliver().command(4, qp, b"\0\0\0\x04\xff\xff\xff\xff").run().deliver()
    f.command(6, 4, b"\x60\0").run().deliver()
    f.entry(qp, W_SEND, b"\x01\x08\0\0", choice=0x80 + 0x00).settle()
    return f.control(qp, 2).settle()


def hostile():
    f = Entries(flags=0x80 | UNITS).receive(RC, 256).records(0x80, 0xff, 0xff, 0xff, 0)
    f.records(1, 0, 0, 0x12, 0x34).command(15, RC, b"\x81\0\0\xff\xff").run()
    f.entry(RC, 0x80, b"\x3d\x01\x08\0\0").entry(RC, W_UMR, b"\x01\x08", imm=b"\0\1\2\3")
    return f.run().deliver().settle().control(RC, 7).settle()


def entries():
    for name, (qp, peer) in SERVICES.items():
        yield name, entries_of(qp, peer)
    yield "units", entries_of(RC, RC_SHARED, flags=UNITS | PORT | UNOBSERVED, layout=APART)
    yield "small", entries_of(UC, UC, flags=SMALL | FAULTS, layout=SHARED)
    yield "hostile", hostile()


# ---- chain programs

SELF, SELF_MANAGED, FRONT, BACK = range(4)
(C_NOP, C_WAIT, C_SEND_EN, C_RECV_EN, C_WRITE, C_READ, C_SEND, C_CAS, C_FADD, C_MASKED_CAS,
 C_MASKED_FADD, C_WRITE_IMM) = range(12)


class Chains:
    """Commands of fuzz_chain."""

    def __init__(self, setup=0):
        self.bytes = bytes([setup])

    def command(self, code, qp, *more):
        self.bytes += bytes([qp * 16 + code]) + b"".join(more)
        return self

    def entry(self, qp, opcode, body=b"", flags=0x08, ahead=0, opmod=b""):
        size = b"" if opmod else b"\x10"
        return self.command(0, qp, bytes([opcode | ahead << 4, flags]) + opmod + size + body)

    def work(self, qp, opcode, remote=b"\0\0", local=b"\1\x10", **more):
        atomic = b"\0\0\0\1\0" if C_CAS <= opcode <= C_MASKED_FADD else b""
        head = b"" if opcode == C_SEND else remote
        return self.entry(qp, opcode, head + atomic + local, **more)

    def control(self, qp, choice):
        return self.command(10, qp, bytes([choice]))

    def run(self):
        return self.command(15, 0)

    def settle(self):
        return self.run().command(13, 0)


def chains():
    f = Chains()
    for opcode in (C_NOP, C_WRITE, C_READ, C_CAS, C_FADD, C_MASKED_CAS, C_MASKED_FADD):
        f.work(SELF, opcode).settle()
    for calc in range(1, 8):
        f.work(SELF, C_WRITE, opmod=bytes([calc]), flags=0x0a).settle()
    yield "memory", f
    f = Chains(1)  # two units: one waits for the other, which it has opened
    f.entry(SELF, C_SEND_EN, bytes([SELF_MANAGED | 4 << 2])).entry(SELF, C_WAIT, b"\1")
    f.entry(SELF_MANAGED, C_NOP, flags=0x18).run().run().run()
    f.entry(SELF, C_WAIT, b"\x04").run().control(SELF, 6).settle()
    yield "wait", f
    f = Chains(0x10 | 0x20)  # a rate and a limit; a ring that opens itself far ahead
    for i in range(4):
        f.entry(SELF_MANAGED, C_SEND_EN, bytes([0x41, 0, 0, 0x40 * i, 0]), flags=0x10, ahead=i)
    f.command(14, SELF_MANAGED + 8, b"\0\0\0\4")
    for _ in range(6):
        f.run().command(11, SELF_MANAGED, b"\xff")
    yield "endless", f.settle().control(SELF_MANAGED, 0x85).settle()
    f = Chains()  # the first changes the second, which was opened or not
    f.work(SELF, C_WRITE, remote=b"\x11\x0c").entry(SELF_MANAGED, C_NOP, flags=0x18).run()
    f.entry(SELF, C_SEND_EN, bytes([SELF_MANAGED | 1 << 2])).settle().control(SELF, 0x87).settle()
    yield "change", f
    f = Chains(1)
    f.command(9, BACK, b"\x81\0\0\0\1\0\0").work(FRONT, C_SEND).run().command(12, 0, b"\0")
    f.run().command(12, 0, b"\1").entry(SELF, C_RECV_EN, bytes([FRONT | 2 << 2]))
    f.work(BACK, C_SEND).run().command(12, 0, b"\0").settle().control(FRONT, 0x87).settle()
    yield "peers", f


# ---- packets

# Of each set of headers: an opcode, the bytes behind the BTH, and those of the payload.
PACKETS = {
    "send": (0x04, 0, 5), "send_imm": (0x05, 4, 4), "send_inv": (0x17, 4, 4),
    "write": (0x0a, 16, 7), "write_imm": (0x0b, 20, 1), "read": (0x0c, 16, 0),
    "response": (0x0d, 4, 64), "ack": (0x11, 4, 0),
    "atomic": (0x13, 28, 0), "atomic_ack": (0x12, 12, 0), "flush": (0x1c, 20, 0),
    "atomic_write": (0x1d, 16, 8), "uc": (0x2a, 16, 6), "ud": (0x64, 8, 3), "ud_imm": (0x65, 12, 2),
    "cnp": (0x81, 16, 0), "xrc_send": (0xa4, 4, 9), "xrc_write": (0xab, 24, 4),
    "xrc_read": (0xac, 20, 0), "xrc_atomic": (0xb4, 32, 0), "masked": (0xc0, 48, 0),
}


def packets():
    for i, (name, (opcode, headers, payload)) in enumerate(PACKETS.items()):
        pad = -payload % 4
        frame = struct.pack(">BBHII", opcode, 0x40 | pad << 4, 0xffff, 0x12, 0x80000000 | i)
        if name == "masked":
            frame += bytes(15) + b"\x08" + bytes(32)
        else:
            frame += bytes(headers)
        yield name, bytes([i % 2, 0, i]) + frame + bytes(payload + pad + 4)


# ---- shared memory

def guests():
    head = bytes(1) + struct.pack("<Q", 5)
    record, fill, receive, bell = 0x80, 0x81, 2, 3
    frames = b"".join(struct.pack("<BBH", record, 0, size) + bytes([receive, 0, 0, 0])
                      for size in (16, 64, 56, 57, 4132))
    laps = (struct.pack("<BBH", record, 0, 4000) + bytes([receive, 0, 0, 0])) * 4
    skip = struct.pack("<BBH", record, 0, 0) + bytes([receive, 0, 0, 0])
    yield "frames", head + frames + bytes([bell, 0, 1, 0])
    yield "laps", head + laps + skip + laps
    too_long = struct.pack("<BBH", record, 0, 5000) + bytes([receive, 0, 0, 0])
    yield "garbage", head + frames + too_long
    yield "rewritten", head + frames + bytes([fill, 0, 255, 0, receive, 0, 0, 0]) + frames
    hello = struct.pack("<QIIQ", 0x766572626e73686d, 1, 1 << 14, 5)
    yield "hello", b"\1" + bytes(8) + hello + frames


def peers():
    def step(kind, choice=0, value=0):
        return struct.pack(">BBH", kind, choice, value)

    send, accept, reply, read, consumed, nap, look, word, hang_up = range(9)
    talk = step(reply) + step(look) + step(send, 20, 500) + step(read)
    yield "talk", b"\0" + talk + step(nap, 0, 1) + step(send, 1, 40) + step(read) + step(nap, 0, 3)
    yield "laps", b"\0" + talk + (step(send, 3, 4000) + step(read)) * 6
    full = step(send, 60, 4000) + step(send, 60, 40)
    yield "full", b"\0" + talk + full + step(read) + step(send, 9)
    yield "lies", b"\0" + talk + step(consumed, 3, 9) + step(send, 60, 900) + step(consumed, 1, 7)
    yield "chatter", b"\0" + talk + step(word, 3) + step(look) + step(send, 2) + step(accept)
    yield "wrong_board", b"\2" + talk + step(hang_up) + step(look)
    yield "raw", b"\1" + struct.pack("<QII", 0x766572626e73686d, 1, 5000) + talk


# ---- offloads

def offloads():
    (bent, raw, many, attack, forge, lose, repeat, spoil, start, ask, run) = (
        0, 3, 4, 5, 7, 8, 9, 10, 11, 12, 0x7f)
    kinds = ("hash", "hash_seq", "hash_par", "walk", "walk_stops", "walk_copies", "loop", "mov")
    good, elsewhere, longer = b"\0", b"\x80", b"\x30"
    everywhere = b"".join(bytes([bent]) + elsewhere + bytes([place << 3, how, 9, 9, run])
                          for place, how in ((0, 6), (0, 1), (1, 0), (2, 0), (6, 0), (0, 3)))
    for i, kind in enumerate(kinds):
        head = bytes([i & 3, i, (i + 3) % 7])
        asks = (bytes([bent]) + good + bytes([run])) * 3
        yield kind, head + asks + bytes([start, run, ask]) + asks
        yield kind + "_elsewhere", head + everywhere + bytes([start, run])
        yield kind + "_long", head + bytes([bent]) + longer + bytes([200, 9, 9, run]) + asks
        yield kind + "_many", head + bytes([many, 31, run, many, 31, ask, run, run])
        yield kind + "_raw", head + bytes([raw, 0, run, raw, 60]) + bytes(range(60)) + bytes([run])
    keys = b"".join(bytes([attack, opcode, place, place, 6, 0, 64, 1, 0, 2, 8, run])
                    for opcode in (0, 1, 2, 3, 4, 5, 6, 70) for place in (40, 0xa8))
    yield "keys", bytes([1, 0, 0]) + keys
    frame = bytes([4, 0x40, 0xff, 0xff, 0, 0, 0, 0, 0x80, 0, 0, 0]) + bytes(16)
    yield "frames", (bytes([1, 6, 6, forge, len(frame)]) + frame +
                     bytes([lose, bent, 0, run, repeat, bent, 0, run, spoil, 5, 0, 20, bent, 0, run,
                            ask]))


# ---- communication managers

def managers():
    (connect, look_up, pass_on, pick, repeat, bend, lose, take, do, wait, forge, again, listen,
     unlisten) = range(14)
    accept, reject, confirm, delay, heard, disconnect, abandon, found = range(8)
    a, b = 0, 128
    ask = bytes([a | connect, 7, 20, 1, 0, 17, 5, 0])

    def call(who, what, size=40, which=0):
        return bytes([who | do, which, what, size])

    asked = ask + bytes([a | pass_on, b | take, 1])
    answered = asked + call(b, accept) + bytes([b | pass_on, a | take, 1])
    stands = answered + call(a, confirm) + bytes([a | pass_on, b | take, 1])
    yield "stands", stands
    yield "leaves", stands + call(a, disconnect) + bytes([a | pass_on, b | pass_on, a | take, 9, b | take, 9,
                                                          wait, 35, a | take, 9, b | take, 9])
    yield "both_leave", stands + call(a, disconnect) + call(b, disconnect) + bytes(
        [a | pass_on, b | pass_on, a | pass_on, b | pass_on, wait, 35])
    yield "rejects", asked + call(b, reject) + bytes([a | again, b | pass_on, a | take, 9])
    yield "delays", asked + call(b, delay, 12) + bytes([b | pass_on]) + call(b, accept) + bytes(
        [b | pass_on, a | take, 1]) + call(a, delay, 12) + call(a, abandon)
    yield "heard", answered + call(b, heard) + call(b, abandon)
    yield "silence", ask + bytes([a | lose]) + bytes([wait, 31]) * 20 + bytes([a | take, 9])
    yield "repeats", ask + bytes([a | repeat, 0, a | repeat, 0, b | take, 9]) + call(b, accept) + bytes(
        [b | repeat, 0, b | repeat, 0])
    yield "bent", stands + ask + bytes([a | bend, 3, 24, 1, 26, 2, 17, 0x15, 30, 4])
    yield "stale", stands + ask + bytes([a | pass_on, b | pass_on, b | pass_on])
    yield "flood", (ask + bytes([a | pass_on])) * 9 + bytes([b | unlisten, b | listen, 1])
    lookup = bytes([a | look_up, 7, 20, 1, 0, 0, 0, 0, a | pass_on, b | take, 1])
    yield "found", lookup + call(b, found) + bytes([b | pass_on, a | take, 9])
    yield "forged", stands + b"".join(bytes([who | forge, 12, kind, 0, 0]) + bytes(8) + bytes([0, 0, 17, 0])
                                      for who in (a, b) for kind in range(0x10, 0x1b))
    for kind in range(0x10, 0x1b):
        yield f"mad_{kind:x}", (bytes([1, 7, 2, 3]) + bytes(13) + bytes([kind]) + bytes(6) +
                                bytes(i & 0x3f for i in range(232)))


def main():
    corpus = pathlib.Path(__file__).parent / "corpus"
    for fuzzer, stories in (("fuzz_frames", frames()), ("fuzz_wqe", entries()),
                            ("fuzz_chain", chains()),
                            ("fuzz_tenant", offloads()),
                            ("fuzz_packet", packets()), ("fuzz_shm", guests()),
                            ("fuzz_shm_peer", peers()), ("fuzz_cm", managers())):
        (corpus / fuzzer).mkdir(parents=True, exist_ok=True)
        for name, story in stories:
            (corpus / fuzzer / name).write_bytes(getattr(story, "bytes", story))


if __name__ == "__main__":
    main()
