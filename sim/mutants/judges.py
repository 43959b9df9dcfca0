# SPDX-License-Identifier: Apache-2.0
"""What judges a mutant: pure unit tests and ranges of the simulator's seeds, the cheapest first.

A judge runs with limits on processor time, not on the clock, so a busy machine changes no verdict.
"""

import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

CAUGHT = ("judge", "assert", "crash", "timeout")
# A test that includes one of these, itself or through its helpers, may depend on more than its input.
IMPURE = {"pthread.h", "sys/socket.h", "sys/wait.h", "unistd.h", "poll.h", "time.h", "signal.h"}
IMPURE_LAYERS = {"hull", "verbs", "rdmacm", "rsocket", "rspreload"}
MEMORY_BYTES = 4 << 30
# Takes longer than all others together, and judges by a score: by name only.
SLOW = {"test_chain_mutants"}
NOT_RUN = (126, 127)  # of prlimit: there was no judge
WALL_S = 900  # a judge that sleeps for ever; none does without a mutant


@dataclass(frozen=True)
class Judge:
    """`arguments`: empty for a unit test."""
    program: str
    arguments: tuple = ()

    @property
    def name(self):
        return " ".join((self.program,) + self.arguments).removeprefix("verbena ")


def judge_named(name):
    words = tuple(name.split())
    return Judge("verbena", words) if words[0] == "sim" else Judge(words[0], words[1:])


@dataclass(frozen=True)
class Outcome:
    verdict: str  # survived, or one of CAUGHT
    text: str = ""
    cpu_s: float = 0.0


def included_files(root, test):
    """The files of the tree that a unit test includes, its helpers' sources among them."""
    seen, todo = set(), [Path(test)]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for name in re.findall(r'^#include "([^"]+)"', (root / path).read_text(encoding="utf-8"), re.M):
            for place in ("src", "include", ".", "tests/unit"):
                found = Path(place) / name
                if (root / found).is_file():
                    todo.append(found)
                    if place == "tests/unit" or name.startswith("tests/unit/"):
                        todo += [s for s in [found.with_suffix(".c")] if (root / s).is_file()]
                    break
    return seen


def is_pure(root, test):
    """Whether a unit test has no sockets, threads, processes or clocks."""
    files = included_files(root, test)
    if any(p.parts[0] == "src" and p.parts[1] in IMPURE_LAYERS for p in files):
        return False
    return not any(set(re.findall(r"^#include <([^>]+)>", (root / p).read_text(encoding="utf-8"), re.M)) &
                   IMPURE for p in files if p.parts[0] == "tests")


def unit_judges(root):
    return [Judge(p.stem) for p in sorted(Path(root).glob("tests/unit/test_*.c"))
            if p.stem not in SLOW and is_pure(Path(root), p.relative_to(root))]


def seed_judges(seeds, *mode):
    """The simulator's seeds 1 to `seeds`, in ranges that grow: most mutants are seen by the first."""
    found, start, step = [], 1, 8
    while start <= seeds:
        count = min(step, seeds - start + 1)
        found.append(Judge("verbena", ("sim", "--jobs", "1", "--start", str(start), "--seeds",
                                       str(count)) + mode))
        start, step = start + count, step * 4
    return found


def judges_for(root, what, seeds):
    """The judges of the set `what`: core, chain, cm, or any (of random mutants)."""
    core = seed_judges(seeds)
    chain = seed_judges(5 * seeds, "--chains", "only")  # a tenth of the time for each
    cm = seed_judges(5 * seeds if what == "any" else seeds, "--cm")
    if what == "any":
        return unit_judges(root) + core + chain + cm
    return {"core": core + unit_judges(root), "chain": unit_judges(root) + chain, "cm": cm}[what]


def classify(status, output):
    """The verdict of a run that ended with `status`, as subprocess tells it. Of a judge is only what
    judges print: an end that they do not explain is a crash."""
    if status == 0:
        return "survived", ""
    if status == -24 or "CPU time limit exceeded" in output:
        return "timeout", "out of processor time"
    broken = re.search(r"^(?:\S+: )?(\S+:\d+): \S+: (Assertion .* failed)\.$", output, re.M)
    if broken and "/sim/" not in broken.group(1) and "/tests/" not in broken.group(1):
        return "assert", broken.group(2)
    crash = re.search(r"the simulator crashed: .*|Test failed with exception: .*|double free.*|"
                      r"free\(\): .*|malloc.*: .*", output)
    if status < 0 or crash:
        return "crash", crash.group(0) if crash else f"signal {-status}"
    violation = re.search(r"^seed (\d+): VIOLATION.*\n\s*(.*)", output, re.M)
    if violation:
        return "judge", f"seed {violation.group(1)}: {violation.group(2)}"
    failed = re.search(r"^\[  FAILED  \] (.+)$", output, re.M)
    reason = re.search(r"^\[  ERROR   \] --- (?!\[.*error: *$)(.+)", output, re.M)
    leak = re.search(r"SUMMARY: LeakSanitizer: .*", output)
    if failed:
        return "judge", f"{failed.group(1)}: {reason.group(1) if reason else 'failed'}"
    if leak:
        return "judge", leak.group(0)
    return "crash", f"exit status {status}: {output.strip()[-100:]}"


def run_judge(judge, program, number, limit_s, seen=None):
    """Runs one judge of the mutant `number`."""
    env = dict(os.environ, LC_ALL="C", VB_MUTANT=str(number))
    env.pop("VB_MUTANT_SEEN", None)
    env.pop("VERBENA_SEED", None)  # a judge draws the same for every mutant
    if seen:
        env["VB_MUTANT_SEEN"] = str(seen)
    command = ["prlimit", f"--cpu={limit_s}:{limit_s + 1}", f"--data={MEMORY_BYTES}", "--core=0", program,
               *judge.arguments]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryDirectory() as place:
        child = subprocess.Popen(command, stdout=out, stderr=out, env=env, cwd=place,
                                 stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            usage = wait_for(child)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            child.wait()
            return Outcome("timeout", f"still running after {WALL_S} s")
        out.seek(max(0, out.seek(0, 2) - 100000))
        output = out.read().decode(errors="replace")
    if child.returncode in NOT_RUN:
        raise OSError(f"{program} cannot be run: {output.strip()[-200:]}")
    return Outcome(*classify(child.returncode, output), usage)


def wait_for(child):
    """Waits for a child and tells the processor time of it and of the children it waited for."""
    begun = time.monotonic()
    while True:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return usage.ru_utime + usage.ru_stime
        if time.monotonic() - begun > WALL_S:
            raise subprocess.TimeoutExpired(child.args, WALL_S)
        time.sleep(0.005)
