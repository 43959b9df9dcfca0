# SPDX-License-Identifier: Apache-2.0
"""Verbs programs that nobody here wrote: which ones, with which options, and what a success of
each looks like. Host packages: ibverbs-utils, perftest.
"""

import dataclasses
import re

BANDWIDTH_TOOLS = ("ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw")
LATENCY_TOOLS = ("ib_send_lat", "ib_write_lat", "ib_read_lat", "ib_atomic_lat")
SERVICES = {"ib_send": ("RC", "UC", "UD", "XRC"), "ib_write": ("RC", "UC", "XRC"),
            "ib_read": ("RC", "XRC"), "ib_atomic": ("RC", "XRC")}
# Unreliable services have no flow control: between two machines' worth of network a receiver that is
# not scheduled in time loses messages, and the tool waits for them for ever. So no more than its
# buffers hold. On one machine the sender sees how full the receiver is.
LIGHT = {("ib_send_bw", "UC"): ("-n", "200", "-s", "512"),
         ("ib_send_bw", "UD"): ("-n", "200", "-s", "512")}
QUICK = ("-n", "500")  # of 64 KB, a tenth of the default
ALL_SIZES = 23  # -a: 2 to 8388608
# perftest learns its clock's rate from 200 looks at two clocks. One preemption between the two clocks
# of a look is enough for "Correlation coefficient r^2: 0.4 < 0.9" and "Can't produce a report": a
# bandwidth tool then exits with 1, after all messages have come. With this option it reports rates of
# 0, so iterations are judged, and rates are not.
ANY_CLOCK = "-F"
NUMBER = r"(?:[\d.]+|-?nan|inf)"
FIGURES = rf"^\s*\d+\s+[1-9]\d*(\s+{NUMBER}){{3}}"  # of perftest


@dataclasses.dataclass
class Case:
    tool: str
    options: tuple = ()
    run: tuple = ()  # options of `verbena run`
    words: str = ""  # the client fails, and says so
    iterations: str = "-"
    figure: str = "-"

    def name(self):
        return " ".join((self.tool, *self.run, *self.options))

    def command(self, port):
        """The tool's words, but for its peer and its GID."""
        more = () if self.tool.startswith("ibv_") else (ANY_CLOCK,)
        return (self.tool, "-p", port, *self.options, *more)

    def asked(self):
        """How many iterations at least."""
        return int(self.options[self.options.index("-n") + 1]) if "-n" in self.options else 1


def pingpong_cases(full):
    yield Case("ibv_rc_pingpong", ("-c",))
    for kind in ("rc", "uc", "ud", "srq"):
        yield Case(f"ibv_{kind}_pingpong")
        yield Case(f"ibv_{kind}_pingpong", ("-e",))
    yield Case("ibv_rc_pingpong", ("-N",))
    yield Case("ibv_xsrq_pingpong")
    if full:
        yield Case("ibv_xsrq_pingpong", ("-e",))
        yield Case("ibv_rc_pingpong", ("-t",))
        yield Case("ibv_rc_pingpong", ("-o",))
        yield Case("ibv_rc_pingpong", ("-O",))
        yield Case("ibv_rc_pingpong", ("-o", "-P"))
        yield Case("ibv_rc_pingpong", ("-s", "1048576", "-n", "100", "-m", "4096"))


def variants(tool, service, full):
    """What each tool is run with besides its defaults."""
    bandwidth = tool in BANDWIDTH_TOOLS
    connected = service in ("RC", "UC")
    yield ()
    if not full:
        return
    if not tool.startswith("ib_write"):  # which has no events
        yield ("-e",)
    if tool.startswith(("ib_send", "ib_write")):
        yield ("-I", "64", "-s", "64")
    if connected or service == "UD":
        yield ("--use_old_post_send",)
    if bandwidth:
        yield ("-q", "4")
    if not tool.startswith("ib_atomic") and service == "RC":
        yield ("-a", *QUICK) if bandwidth else ("-a", "-n", "100")  # 5,000 of each size would be 84 GB
    if tool.startswith("ib_send") and service in ("RC", "UD"):
        yield ("--use-srq",)
    if bandwidth and tool != "ib_read_bw":
        yield ("-b",)
    if tool.startswith("ib_atomic"):
        yield ("-A", "CMP_AND_SWAP")


def perftest_cases(full, apart):
    for tool in BANDWIDTH_TOOLS + LATENCY_TOOLS:
        for service in SERVICES[tool.rpartition("_")[0]]:
            if not full and tool in LATENCY_TOOLS and service == "XRC" and tool != "ib_send_lat":
                continue  # the quick run takes no more than a minute or so
            for variant in variants(tool, service, full):
                given = () if service == "RC" else ("-c", service)
                light = LIGHT.get((tool, service), ()) if apart else ()
                quick = QUICK if not full and tool in BANDWIDTH_TOOLS and not light else ()
                yield Case(tool, (*given, *variant, *light, *quick))
    if not full:
        yield Case("ib_send_bw", ("-e", *QUICK))
        yield Case("ib_send_bw", ("--use-srq", "-q", "4", *QUICK))
        yield Case("ib_write_bw", ("-b", "-q", "4", "--use_old_post_send", *QUICK))
        yield Case("ib_send_lat", ("-I", "64", "-s", "64", "--use_old_post_send"))
        yield Case("ib_write_bw", QUICK, ("--port", "auto"))
    faults = ("--faults", "drop=1%,reorder=1%,delay=50us")
    yield Case("ib_write_bw", ("-n", "1000", "-s", "4096"), faults)
    yield Case("ib_send_lat", ("-n", "200"), faults)
    yield Case("ib_write_bw", ("-n", "100", "-u", "8"), ("--faults", "drop=100%"),
               "timeout: no answer from the peer: retries exceeded")


def pingpong_problem(case, text):
    if case.tool == "ibv_xsrq_pingpong":
        return None if text.splitlines()[-1:] == ["success"] else f"no success: {text[-80:]}"
    match = re.search(r"(\d+) iters in [\d.]+ seconds = ([\d.]+) usec/iter", text)
    if not match:
        return f"no result line: {text.splitlines()[-3:]}"
    if "invalid data" in text:  # -c
        return "invalid data"
    case.iterations, case.figure = match[1], f"{match[2]} us"
    return None


def problem_of(case, text):
    """What is wrong with the client's output, or None."""
    if case.tool.startswith("ibv_"):
        return pingpong_problem(case, text)
    rows = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 5 and all(re.fullmatch(NUMBER, f) for f in fields):
            rows.append(fields)
    wanted = ALL_SIZES if "-a" in case.options else 1
    if "UD" in case.options and "-a" in case.options:
        wanted = 1
    if len(rows) < wanted:
        return f"{len(rows)} result lines instead of {wanted}: {text.splitlines()[-3:]}"
    if any(int(row[1]) < case.asked() for row in rows):
        return f"fewer iterations than {case.asked()}: {rows}"
    case.iterations = rows[-1][1]
    column = 3 if case.tool in BANDWIDTH_TOOLS else 4
    unit = "MB/s" if case.tool in BANDWIDTH_TOOLS else "us"
    case.figure = f"{float(rows[-1][column]):.1f} {unit}"
    return None
