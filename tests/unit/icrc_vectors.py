#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""ICRC vectors and constants, derived without any of Verbena's code.

With no argument, prints what src/wire/icrc.c and tests/unit/test_icrc.c hold as literals. With
--check ROOT, compares them with the files under ROOT.
pcapng_test.py does that, too. Host package: python3-scapy.

scapy computes the ICRC over IPv4 only; the masking below serves both families and is compared
with scapy's own result wherever that exists.
"""

import os
import re
import struct
import sys
import zlib

from scapy.all import IP, IPv6, UDP, Raw, raw
from scapy.contrib.roce import BTH

POLY = 0xEDB88320

# (version, source, destination, source port, destination port, identification, BTH fields,
#  extended headers as hex, payload bytes)
VECTORS = [
    (4, "10.0.0.1", "10.0.0.2", 49152, 4791, 0,
     dict(opcode=0x04, migreq=1, dqpn=0x11, ackreq=1, psn=0), "", 0),
    (4, "192.168.77.3", "192.168.77.130", 51967, 4791, 0xbeef,
     dict(opcode=0x0a, migreq=1, dqpn=0xabcdef, ackreq=1, psn=0xffffff),
     "00007f00deadb000 00001234 00000040", 64),
    (4, "127.0.0.1", "127.0.0.2", 4791, 4791, 63,
     dict(opcode=0x11, migreq=1, dqpn=0x000102, psn=0x800000), "1f 00002a", 0),
    (4, "172.16.254.9", "8.8.4.4", 65535, 4791, 0xffff,
     dict(opcode=0x05, solicited=1, migreq=1, fecn=1, becn=1, dqpn=0x400, psn=77), "cafef00d", 5),
    (4, "10.1.2.3", "10.3.2.1", 1, 14791, 0x0100,
     dict(opcode=0x07, migreq=0, dqpn=0x999, psn=0x123456), "", 4096),
    (6, "fe80::1", "fe80::2", 49153, 4791, 0,
     dict(opcode=0x0c, migreq=1, dqpn=0x12, ackreq=1, psn=1),
     "0000555512345678 89abcdef 00100000", 0),
    (6, "2001:db8::dead:beef", "2001:db8:1::1", 60000, 4791, 0,
     dict(opcode=0x13, migreq=1, dqpn=0xfffffe, ackreq=1, psn=0x7fffff),
     "0000000000001000 00000001 0123456789abcdef fedcba9876543210", 0),
    (6, "::1", "::1", 54321, 4791, 0,
     dict(opcode=0x10, migreq=1, becn=1, resv6=0x15, dqpn=3, psn=4), "00 000001", 1023),
]


def payload_bytes(count):
    return bytes((7 * i + 3) & 0xff for i in range(count))


def masked_icrc(ip):
    """CRC-32 of the packet (which ends in four bytes of ICRC) with its variant fields as ones."""
    data = bytearray(raw(ip))
    if ip.version == 4:
        udp = 20
        data[1] = 0xff
        data[8] = 0xff
        data[10:12] = b"\xff\xff"
    else:
        udp = 40
        data[0] |= 0x0f
        data[1:4] = b"\xff\xff\xff"
        data[7] = 0xff
    data[udp + 6:udp + 8] = b"\xff\xff"
    data[udp + 8 + 4] = 0xff
    return zlib.crc32(b"\xff" * 8 + bytes(data[:-4]))


def build(vector):
    """Returns (frame without the ICRC, ICRC as stored)."""
    version, src, dst, sport, dport, ident, bth_fields, ext_hex, count = vector
    pad = -count % 4
    body = bytes.fromhex(ext_hex) + payload_bytes(count) + bytes(pad)
    bth = BTH(padcount=pad, icrc=0, **bth_fields)
    frame = raw(bth / Raw(body))[:-4] if body else raw(bth)[:-4]
    udp = UDP(sport=sport, dport=dport)
    if version == 4:
        ip = IP(src=src, dst=dst, id=ident, flags="DF")
    else:
        ip = IPv6(src=src, dst=dst, fl=0x12345, tc=3)
    icrc = masked_icrc(ip.__class__(raw(ip / udp / Raw(frame + bytes(4)))))
    if version == 4:
        bth.icrc = None
        ours = struct.pack("<I", icrc)
        whole = raw(ip / udp / bth / Raw(body)) if body else raw(ip / udp / bth)
        assert whole[28:] == frame + ours, "scapy's ICRC differs"
    return frame, icrc


def vector_rows():
    rows = []
    for vector in VECTORS:
        version, src, dst, sport, dport, ident, _, ext_hex, count = vector
        frame, icrc = build(vector)
        headers = 12 + len(bytes.fromhex(ext_hex))
        rows.append('    {%d, "%s", "%s", %d, %d, 0x%04x,\n     "%s",\n     %d, 0x%08x},' % (
            version, src, dst, sport, dport, ident, frame[:headers].hex(), count, icrc))
    return rows


def field_shares(distance):
    """What each nibble of a big-endian 16-bit field adds to the CRC `distance` bytes on."""
    zero = zlib.crc32(bytes(distance))
    return [[zlib.crc32(struct.pack(">H", digit << 4 * k) + bytes(distance - 2)) ^ zero
             for digit in range(16)] for k in range(4)]


def divide_by_x(value):
    return ((value << 1) & 0xffffffff) ^ ((POLY << 1 | 1) & 0xffffffff if value >> 31 else 0)


def unshift_powers():
    """x^(-8 * digit * 16^k) modulo the polynomial, bit-reflected; 1 is 0x80000000."""
    tables = []
    for k in range(4):
        value, row = 0x80000000, []
        for _ in range(16):
            row.append(value)
            for _ in range(8 * 16 ** k):
                value = divide_by_x(value)
        tables.append(row)
    return tables


def constant_tables():
    tables = [("v4_total_shares", field_shares(26)), ("v4_id_shares", field_shares(24)),
              ("v6_payload_shares", field_shares(44)), ("udp_len_shares", field_shares(4)),
              ("unshift_powers", unshift_powers())]
    texts = []
    for name, rows in tables:
        values = ["0x%08x," % v for row in rows for v in row]
        lines = ("    " + " ".join(values[i:i + 8]) + "\n" for i in range(0, 64, 8))
        texts.append("static const uint32_t %s[64] = {\n%s};" % (name, "".join(lines)))
    return texts


def squeeze(text):
    return re.sub(r",(?=})", "", re.sub(r"\s", "", text))


def check(root):
    missing = 0
    for path, wanted in (("src/wire/icrc.c", constant_tables()),
                         ("tests/unit/test_icrc.c", vector_rows())):
        with open(os.path.join(root, path), encoding="utf-8") as handle:
            text = squeeze(handle.read())
        for item in wanted:
            if squeeze(item) not in text:
                print("%s lacks or differs from:\n%s" % (path, item), file=sys.stderr)
                missing += 1
    print("%d literals differ" % missing if missing else "all literals agree")
    return 1 if missing else 0


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        return check(sys.argv[2])
    if len(sys.argv) != 1:
        print("usage: icrc_vectors.py [--check ROOT]", file=sys.stderr)
        return 2
    print("\n".join(constant_tables() + vector_rows()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
