#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""long.py [--build TREE] [--list] [--again] [PART...]: the tests that a release needs, at full size.

They come in parts of at most 20 minutes on two cores. The table in docs/testing.md holds each part's
last result with the commit it was run on. A result holds while the files that the part builds from
stay the same: then the part is not run again, unless --again asks for it. So a run that was
interrupted goes on where it stopped. Names select parts; a name may end with '*'. What a part runs is
built before it, so that a result is never of programs older than its files.
"""

import argparse
import contextlib
import datetime
import fcntl
import fnmatch
import hashlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True
import suite  # pylint: disable=wrong-import-position

TABLE = ROOT / "docs/testing.md"
BEGIN, END = "<!-- long: begin -->", "<!-- long: end -->"
LIMIT_S = 20 * 60
FUZZ_SECONDS = 600
FUZZERS_A_PART = 2  # at the same time, one on each core

PURE = ["CMakeLists.txt", "cmake", "include", "presets", "src/base", "src/wire", "src/nic", "src/cm",
        "src/chain", "src/cost"]
WORLDS = [":(glob)sim/*.[ch]"]  # no mutants, and no text
SIM = PURE + ["src/port", "src/host", "src/cli"] + WORLDS
ALL = ["CMakeLists.txt", "cmake", "include", "src", "presets"]
LIBRARY = ALL + [f":!src/{layer}" for layer in ("cli", "verbs", "rdmacm", "rsocket", "rspreload",
                                                "efa", "mlx5")]  # what libverbena.a has
GET = LIBRARY + ["bench/soak_get.c"]
TESTS = ["tests/CMakeLists.txt", "tests/wait.h", "tests/skips.txt"]
UNIT = TESTS + ["tests/unit"]
SYSTEM = ALL + TESTS + ["tests/judge.py", "tests/cli/command.py", "tests/linux/netns.py"]
AREAS = {"cli": SYSTEM + ["tests/cli"], "verbs": SYSTEM + ["tests/verbs"],
         "capture": SYSTEM + ["tests/capture", "tests/linux"],  # of which it captures rc_pingpong
         "linux": SYSTEM + ["tests/linux", "tests/unit", "tests/verbs/programs.py"]}
FUZZ = LIBRARY + [":(glob)sim/cm_sane.*", "fuzz", "scripts/fuzz.sh", "scripts/fixed.sh",
                  "scripts/flavour.sh"]
WHOLE = ALL + ["tests", "sim", "scripts", "fuzz", "bench", "examples", "units", "Makefile", ".ci",
               ".clang-format"]
JUDGES = SIM + UNIT + [":(glob)sim/mutants/*.py"]
PATCHES = {"core": ":(glob)sim/mutants/*.patch", "chain": "sim/mutants/chain", "cm": "sim/mutants/cm"}
SEEDS_A_PART = 2500
DRAWN, LEAST = 500, 0.90  # random mutants, and the share of them that has to be caught


def parts(build, seed):
    """[(name, command, files and folders that it builds from)]"""
    sim = f"{build}/verbena sim"
    rows = [(f"sim-{i + 1}", f"{sim} --seeds {SEEDS_A_PART} --start {seed + i * SEEDS_A_PART}"
             " --require-coverage", SIM) for i in range(4)]
    rows += [
        ("sim-cm", f"{sim} --cm --seeds 12000 --start {seed} --require-coverage", SIM),
        ("sim-chains", f"{sim} --chains only --seeds 4000 --start {seed} --require-coverage", SIM),
        ("sim-equal", f"{sim} --equal --seeds 1000 --start {seed} --require-coverage", SIM),
        ("flow", f"FLOW_PROGRAMS=100000 {build}/tests/test_flow", PURE + WORLDS + UNIT),
        ("rsockets", f"tests/verbs/rsockets_test.py --build {build} --full", AREAS["verbs"]),
        ("crowd", f"tests/verbs/crowd_test.py --build {build} --servers 50 --clients 200"
         " --seconds 600", AREAS["verbs"]),
        ("crash", f"bench/crash.py --build {build} --rounds 1000", ALL + ["bench"]),
        ("get-shm", f"{build}/bench/soak_get --gets 40000000 --port shm", GET),
        ("get-udp", f"{build}/bench/soak_get --gets 40000000 --port udp", GET),
        ("planted", "tests/suite/planted.py", WHOLE),
    ]
    sanitized = f"scripts/sanitized.sh {build}"
    unit = ALL + WORLDS + UNIT + ["examples", "scripts/sanitized.sh", "scripts/flavour.sh",
                                  "scripts/fixed.sh"]
    rows += [("asan-rest", f"{sanitized} asan sim isolation chain_mutants", unit),
             ("tsan-rest", f"{sanitized} tsan chain_silence offload_refusal process service_death", unit)]
    mutants = f"sim/mutants/mutants.py --build {build}"
    rows += [(f"mutants-{name}", f"{mutants} --set {name}", JUDGES + [patches])
             for name, patches in PATCHES.items()]
    rows.append(("mutants-known", f"{mutants} --replay --count all",
                 JUDGES + ["sim/mutants/caught.txt", *PATCHES.values()]))
    rows += [(f"mutants-drawn-{i}", f"{mutants} --draw {DRAWN} --part {i}/5", JUDGES)
             for i in range(1, 6)]
    rows.append(("mutants-score", f"{mutants} --draw {DRAWN} --least {LEAST}", JUDGES))
    for area, name in (("verbs", "programs"), ("verbs", "cm"), ("cli", "perf"),
                       ("cli", "perf_get"), ("capture", "capture")):
        rows.append((f"{area}-{name}", f"tests/{area}/{name}_test.py --build {build} --full",
                     AREAS[area]))
    linux = f"tests/linux/linux_test.py --build {build} --full --part"
    rows += [(f"linux-{part}", f"{linux} {part}", AREAS["linux"])
             for part in ("pingpong", "cm", "os-failure")]
    rows += [(f"linux-verbs-{i}", f"{linux} verbs --slice {i}/2", AREAS["linux"]) for i in (1, 2)]
    fuzzers = sorted(path.stem for path in (ROOT / "fuzz").glob("fuzz_*.c"))
    for i in range(0, len(fuzzers), FUZZERS_A_PART):
        some = " ".join(fuzzers[i:i + FUZZERS_A_PART])
        rows.append((f"fuzz-{i // FUZZERS_A_PART + 1}",
                     f"scripts/fuzz.sh {build}/asan {FUZZ_SECONDS} {some}", FUZZ))
    return [(name, f"env VERBENA_SEED={seed} {command}", inputs) for name, command, inputs in rows]


def digest(paths):
    """Of the files below some paths, as they are in the working tree."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--", *paths],
                            capture_output=True, text=True, check=True).stdout
    total = hashlib.sha256()
    for name in sorted(filter(None, listed.split("\0"))):
        path = ROOT / name
        if path.exists():
            total.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()[:12]


def read_table(text):
    """{part: cells} of the table between the marks."""
    body = text[text.index(BEGIN):text.index(END)]
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in body.splitlines() if line.startswith("| ")]
    return {cells[0]: cells for cells in rows[1:]}


@contextlib.contextmanager
def locked(logs):
    """One at a time, of runs that go side by side."""
    with open(logs / "lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_row(cells, order):
    rows = {**read_table(TABLE.read_text()), cells[0]: cells}
    head = ["| part | result | s | commit | date | inputs | command |",
            "|---|---|---|---|---|---|---|"]
    lines = ["| " + " | ".join(rows[name]) + " |" for name in order if name in rows]
    text = TABLE.read_text()
    new = f"{BEGIN}\n" + "\n".join(head + lines) + f"\n{END}"
    TABLE.write_text(re.sub(re.escape(BEGIN) + ".*" + re.escape(END), lambda _: new, text,
                            flags=re.S))


def uncommitted():
    """The files outside docs that differ from the commit."""
    done = subprocess.run(["git", "-C", ROOT, "status", "--porcelain", "--untracked-files=no",
                           "--", ":!docs"], capture_output=True, text=True, check=True)
    return [line[3:] for line in done.stdout.splitlines()]


def commit():
    return (suite.commit() or "none")[:12] + ("+" if uncommitted() else "")


def is_known(name):
    """Whether a commit is in the history, with all that it was built from committed."""
    return subprocess.run(["git", "-C", ROOT, "merge-base", "--is-ancestor", name, "HEAD"],
                          capture_output=True, check=False).returncode == 0


def builds(name, build, log):
    """Brings the trees up to date that a part runs in; whether that was possible."""
    steps = [["cmake", "--build", build]]
    if name.startswith("fuzz-"):
        steps.append(["scripts/flavour.sh", "asan", f"{build}/asan"])
    with open(log, "w", encoding="utf-8") as out:
        built = all(subprocess.run(step, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT,
                                   check=False).returncode == 0 for step in steps)
    if not built:
        print(log.read_text(errors="replace")[-4000:])
    return built


def verdict(lines):
    """What a log ends with, before what else was counted: tries, a fuzzer's statistics and programs
    that end later."""
    after = ("TRIES: ", "SKIPPED: ", "verbena ", "stat::")
    judged = [line for line in lines if not line.startswith(after)]
    tries = [line.rsplit(": ", 1)[1] for line in lines if line.startswith("TRIES: ")]
    last = (judged or lines or ["no output"])[-1].strip().replace(f"{ROOT}/", "")
    return last + (f" ({', '.join(tries)} tries)" if tries else "")


def run(command, log):
    """(passed, seconds, what it printed as its result)."""
    began = time.monotonic()
    with open(log, "w", encoding="utf-8") as out:
        child = subprocess.Popen(command.split(), cwd=ROOT, stdout=out, stderr=subprocess.STDOUT,
                                 start_new_session=True)
        try:
            status = child.wait(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            status = "time-out"
        finally:
            if child.poll() is None:  # also if this one is interrupted
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    took = time.monotonic() - began
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    last = verdict(lines)
    if status:
        print("\n".join(lines[-40:]))
    last = last if status == 0 else f"FAILED ({status}): {last}"
    return status == 0, took, last.replace("|", "/")[:150]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--list", action="store_true", help="show which results hold; run nothing")
    parser.add_argument("--again", action="store_true", help="run parts whose result holds, too")
    parser.add_argument("part", nargs="*", default=["*"])
    args = parser.parse_args()

    seed, origin = suite.draw_seed()
    every = parts(args.build, seed)
    chosen = [row for row in every if any(fnmatch.fnmatch(row[0], p) for p in args.part)]
    if not chosen:
        sys.exit(f"long.py: no part '{' '.join(args.part)}'; one of {' '.join(r[0] for r in every)}")
    os.environ.update(CI="true", VERBENA_SEED=str(seed))
    logs = ROOT / args.build / "long"
    logs.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed} ({origin})")

    failed = []
    for name, command, inputs in chosen:
        rows = read_table(TABLE.read_text())
        mark = digest(inputs)
        holds = (name in rows and rows[name][5] == mark and is_known(rows[name][3]) and
                 not rows[name][1].startswith("FAILED"))
        if holds and not args.again or args.list:
            state = f"holds, of commit {rows[name][3]}" if holds else "has to run"
            print(f"{name}: {state}")
            continue
        print(f"{name}: {command}", flush=True)
        with locked(logs):
            built = builds(name, args.build, logs / f"{name}.build.log")
        passed, took, last = run(command, logs / f"{name}.log") if built else (
            False, 0, "FAILED: it does not build")
        if digest(inputs) != mark:
            passed, last = False, "FAILED: its files changed meanwhile"
        with locked(logs):
            write_row([name, last, f"{took:.0f}", commit(), datetime.date.today().isoformat(), mark,
                       f"`{command}`"], [row[0] for row in every])
        print(f"{name}: {last}, {took:.0f} s", flush=True)
        if not passed:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {' '.join(failed)}")


if __name__ == "__main__":
    main()
