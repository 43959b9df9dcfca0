#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tshark judges the messages of our communication manager, one of each kind that it sends.

Host packages: tshark.
"""

import pathlib
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "linux")]

import judge  # noqa: E402

LIMIT_S = 60
REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP = (
    f"0x{number:04x}" for number in range(0x10, 0x19))
# Nobody listens; asked to wait and rejected; connected and disconnected; a service found.
TALK = [REQ, REJ, REQ, MRA, REJ, REQ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP]
KIND = "infiniband.mad.attributeid"
COMPLAINTS = ("_ws.malformed", "_ws.expert.message")
# Fields that every frame has, and those of single ones.
ALL = {"infiniband.bth.opcode": "100", "infiniband.bth.p_key": "65535",
       "infiniband.bth.destqp": "0x000001", "infiniband.deth.q_key": "0x0000000080010000",
       "infiniband.deth.srcqp": "0x00000001", "infiniband.mad.mgmtclass": "0x07",
       "infiniband.mad.classversion": "0x02", "infiniband.mad.method": "0x03"}
SINGLE = {
    0: {"infiniband.cm.req.serviceid.prefix": "0000000001",
        "infiniband.cm.req.serviceid.protocol": "0x06",
        "infiniband.cm.req.serviceid.dport": "0x1c07",
        "infiniband.cm.req.startpsn": "0x123456", "infiniband.cm.req.pkey": "0xffff",
        "infiniband.cm.req.pppmtu": "0x03", "infiniband.cm.req.maxcmretr": "0x0f",
        "infiniband.cm.req.retrcount": "0x07", "infiniband.cm.req.rnrretrcount": "0x07",
        "infiniband.cm.req.prim_localgid_ipv4": "127.0.66.1",
        "infiniband.cm.req.prim_remotegid_ipv4": "127.0.66.2",
        "infiniband.cm.req.prim_hoplim": "0x40", "infiniband.cm.req.prim_localacktout": "0x11",
        "infiniband.cm.req.ip_cm.ipv": "0x04", "infiniband.cm.req.ip_cm.sport": "0x9c40",
        "infiniband.cm.req.ip_cm.sip4": "127.0.66.1",
        "infiniband.cm.req.ip_cm.dip4": "127.0.66.2"},
    1: {"infiniband.cm.rej.reason": "0x0008", "infiniband.cm.rej.msgrej": "0x00"},
    4: {"infiniband.cm.rej.reason": "0x001c"},
    6: {"infiniband.cm.rep.startpsn": "0x654321", "infiniband.cm.rep.rnrretrcount": "0x07"},
}


def run(argv):
    result = subprocess.run([str(word) for word in argv], capture_output=True, text=True,
                            timeout=LIMIT_S, check=False)
    if result.returncode != 0:
        raise judge.Failure(f"{argv[0]}: status {result.returncode}: {result.stderr.strip()}")
    return result.stdout


def rows(path, fields):
    argv = ["tshark", "-n", "-r", path, "-T", "fields", "-E", "separator=/t"]
    for field in fields:
        argv += ["-e", field]
    return [line.split("\t") for line in run(argv).splitlines()]


def value_of(text):
    """Numbers however tshark writes them, and other texts as they are."""
    try:
        return int(text, 0)
    except ValueError:
        return text


def problems_of(path):
    """Returns the problems that tshark's reading shows."""
    single = {field for fields in SINGLE.values() for field in fields}
    columns = [KIND, *COMPLAINTS, *ALL, *sorted(single)]
    seen = [dict(zip(columns, row)) for row in rows(path, columns)]
    kinds = [value_of(row[KIND]) for row in seen]
    if kinds != [value_of(kind) for kind in TALK]:
        return [f"messages {kinds}, not {TALK}"]
    problems = []
    for index, row in enumerate(seen):
        wanted = ALL | SINGLE.get(index, {}) | dict.fromkeys(COMPLAINTS, "")
        problems += [f"frame {index + 1}: {field} is {row[field]}, not {want}"
                     for field, want in wanted.items() if value_of(row[field]) != value_of(want)]
    return problems


def test(options):
    peer = options.build.resolve() / "tests/cm_peer"
    judge.require(tools=("tshark",), files=(peer,))
    with tempfile.TemporaryDirectory(prefix="verbena-cm-") as name:
        path = pathlib.Path(name) / "sample.pcapng"
        run([peer, "sample", path])
        problems = problems_of(path)
        if problems:
            raise judge.Failure(f"{len(problems)} problems, the first: {problems[0]}")
        # The negative twin: the same judge finds a PSN that is another.
        whole = path.read_bytes()
        path.write_bytes(whole.replace(bytes.fromhex("123456"), bytes.fromhex("123457")))
        if not problems_of(path):
            raise judge.Failure("a wrong starting PSN is not seen")
    print(f"{len(TALK)} messages, each as it should be")


if __name__ == "__main__":
    parsed = judge.options(__doc__.splitlines()[0]).parse_args()
    judge.run(lambda: test(parsed))
