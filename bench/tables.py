#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tables.py [--stale | NAME ...]: measures tables of docs/performance.md and docs/figures/redn.md and
writes them there, each into its block, with the commands, the commit, the date and the machine.
Raw outputs stay in build/bench/NAME.json. A table that fails leaves its block as it was.

    bench/tables.py              all tables, which takes a quarter of an hour
    bench/tables.py udp shm      only these
    bench/tables.py --stale      only those that the code has changed under, or never measured
    bench/tables.py --list       measure nothing: names of all, or with --stale of those
    bench/tables.py --trial NAME one short round, printed and not written anywhere
    bench/tables.py --check      measure nothing: are the blocks whole, their commits in the history,
                                 and the text without figures?
"""
import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import time

from entries import PERFORMANCE, REDN, TABLES
from programs import ROOT, Failed, Output, named

CODE = ("src", "include", "presets", "bench", "CMakeLists.txt")
BLOCK = re.compile(r"(?ms)^<!-- bench: (\S+) -->\n(.*?)^<!-- end -->$")
STAMP = re.compile(r"(?m)^\*.*Commit ([0-9a-f]{12})(-dirty)?, (\d{4}-\d\d-\d\d), "
                   r"[^,\n]+, \d+ cores, Linux [^,\n]+, \d+ % busy before\.\*$")
UNMEASURED = re.compile(r"(?m)^\*Not measured since commit ([0-9a-f]{7,12})\b.*\*$")
# A number with the unit of a measurement.
FIGURE = re.compile(r"\d[\d.,]*\s?(?:µs|us|ns|ms|s|M/s|K/s|Gb/s|%|×|times|instructions)(?!\w)")


# ---- the machine

def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)


def commit():
    found = git("rev-parse", "--short=12", "HEAD")
    if found.returncode:
        raise Failed("the tree is no git repository, so that the commit is not known")
    return found.stdout.strip() + ("-dirty" if git("status", "--porcelain", "--", *CODE).stdout
                                   else "")


def cpu():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        found = re.search(r"model name\s*: (.*)", file.read())
    return found[1].replace(",", "") if found else "unknown CPU"


def busy_percent(seconds=0.2):
    """Of all cores, by whatever else runs."""
    def look():
        with open("/proc/stat", encoding="ascii") as file:
            times = [int(word) for word in file.readline().split()[1:]]
        return sum(times), times[3] + times[4]
    before = look()
    time.sleep(seconds)
    after = look()
    total = after[0] - before[0]
    return round(100 * (1 - (after[1] - before[1]) / total)) if total else 0


def stamp():
    return {"commit": commit(), "date": datetime.date.today().isoformat(), "cpu": cpu(),
            "cores": os.cpu_count(), "kernel": platform.release(), "busy": busy_percent()}


# ---- measuring and printing

def measure(name, build, trial=False):
    table = TABLES[name]
    raw = {"table": name, "stamp": stamp(), "rounds": []}
    values = {"seconds": 0.1 if trial else 1, "count": table.trial if trial else table.count,
              "plots": os.path.join(build, "bench") if trial else "docs/figures"}
    rounds = 1 if trial else table.rounds
    for number in range(rounds):
        print(f"tables.py: {name}, round {number + 1} of {rounds}", file=sys.stderr)
        raw["rounds"].append({label: command.run(build, values)
                              for label, command in table.commands.items()})
    return raw


def render(raw):
    """The block's text: the table, and under it what it was made by."""
    name, table = raw["table"], TABLES[raw["table"]]
    rounds = [Output({label: named(output, table.commands[label].said())
                      for label, output in one.items()}, f"bench/tables.py {name}")
              for one in raw["rounds"]]
    at = raw["stamp"]
    said = table.said or ", ".join(f"`{command.said(table.count)}`"
                                   for command in table.commands.values())
    times = f"{len(rounds)} rounds in turn" if len(rounds) > 1 else "one run"
    kind = "" if table.timed else "; the same on every run"
    return "\n".join([
        *table.rows(rounds), "",
        f"*`bench/tables.py {name}`, {times}{kind}: {said}. Commit {at['commit']}, {at['date']}, "
        f"{at['cpu']}, {at['cores']} cores, Linux {at['kernel']}, {at['busy']} % busy before.*", ""])


# ---- blocks

def replace(text, name, block):
    begin = f"<!-- bench: {name} -->\n"
    if text.count(begin) != 1:
        raise Failed(f"there is no one block '{begin.strip()}' to write to")
    at = text.index(begin) + len(begin)
    end = text.find("<!-- end -->", at)
    if end < 0:
        raise Failed(f"the block of {name} has no end")
    return text[:at] + block + text[end:]


def problems(path, text):
    """What is wrong with a document's blocks and with the text around them."""
    found = [match[1] for match in BLOCK.finditer(text)]
    opened = re.findall(r"(?m)^<!-- bench: (.*) -->$", text)
    for name in opened:
        if name not in TABLES or TABLES[name].file != path:
            yield f"{path}: no table '{name}' belongs here"
        elif opened.count(name) > 1:
            yield f"{path}: several blocks of {name}"
        elif name not in found:
            yield f"{path}: the block of {name} has no end"
    for name in TABLES:
        if TABLES[name].file == path and name not in opened:
            yield f"{path}: {name} has no block"
    for name, body in BLOCK.findall(text):
        if not STAMP.search(body) and not UNMEASURED.search(body):
            yield f"{path}: the table of {name} lacks its commit, date or machine"
    words = re.sub(r"(?ms)^    .*?$|`[^`\n]*`", "", BLOCK.sub("", text))
    for match in FIGURE.finditer(words):
        yield f"{path}: '{match[0]}' stands outside of any table: a rerun would not change it"


def no_history():
    """Why commits cannot be looked up here, or None if they can."""
    shallow = git("rev-parse", "--is-shallow-repository")
    if shallow.returncode:
        return "no git repository"
    return "a shallow clone" if shallow.stdout.strip() == "true" else None


def unknown_commits(path, text):
    """Tables that name a commit which the history does not have, or code that was never committed."""
    for name, body in BLOCK.findall(text):
        at = STAMP.search(body) or UNMEASURED.search(body)
        if not at:
            continue
        if at.re is STAMP and at[2]:
            yield f"{path}: the table of {name} was measured with changes that no commit has"
        if git("merge-base", "--is-ancestor", at[1], "HEAD").returncode:
            yield f"{path}: the table of {name} names commit {at[1]}, which is not in the history"


def is_stale(name, text):
    body = dict(BLOCK.findall(text)).get(name, "")
    at = STAMP.search(body)
    return not at or bool(at[2]) or git("diff", "--quiet", at[1], "--", *CODE).returncode != 0


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def build_tree(build):
    """So that what is measured is what the commit says."""
    done = subprocess.run(["cmake", "--build", build], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"tables.py: cmake --build {build} failed; run 'make' to see why")


def update(name, build):
    raw = measure(name, build)
    os.makedirs(os.path.join(build, "bench"), exist_ok=True)
    with open(os.path.join(build, "bench", f"{name}.json"), "w", encoding="utf-8") as file:
        json.dump(raw, file, indent=1)
    path = TABLES[name].file
    text = replace(read(path), name, render(raw))
    with open(os.path.join(ROOT, path), "w", encoding="utf-8") as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    for flag in ("--list", "--stale", "--trial", "--check"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    build, failed = os.path.abspath(options.build), 0
    unknown = [name for name in options.names if name not in TABLES]
    if unknown:
        parser.error(f"there is no table '{unknown[0]}'; there are {', '.join(TABLES)}")
    if options.check:
        wrong = [line for path in (PERFORMANCE, REDN) for line in problems(path, read(path))]
        if without := no_history():
            print(f"tables.py: commits are not looked up: {without}", file=sys.stderr)
        else:
            wrong += [line for path in (PERFORMANCE, REDN) for line in unknown_commits(path, read(path))]
        print("\n".join(wrong) or "tables.py: every block is whole")
        return 1 if wrong else 0
    names = options.names or list(TABLES)
    if options.stale:
        names = [name for name in names if is_stale(name, read(TABLES[name].file))]
    if options.list:
        print("\n".join(names))
        return 0
    if not options.trial:
        build_tree(build)
    for name in names:
        try:
            if options.trial:
                print(render(measure(name, build, trial=True)))
            else:
                update(name, build)
        except Failed as error:
            print(f"tables.py: {name}: {error}", file=sys.stderr)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
