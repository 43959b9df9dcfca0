#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Plants small bugs into the pure layers and expects the simulator or a unit test to find each.

mutants.py [--set core|chain|cm] [NAME…]   the bugs written by hand: each must be found
mutants.py --draw N [--seed S]             N one-token changes drawn at random, and their score
mutants.py --replay [--seed S]             four of each kind that are known to be found, by that judge

A draw's seed is by default the hash of sources and judges, so it is fixed when these are, and a draw in
parts is one draw whatever is committed meanwhile. That of a replay is VERBENA_SEED or the commit's hash.
docs/mutants.md describes the operators and the judges.
"""

import argparse
import collections
import concurrent.futures
import difflib
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from judges import CAUGHT, Outcome, judge_named, judges_for, run_judge
from overlay import LAYERS, BuildError, Mutant, Overlay, Tree
from source import Change, changed_body, functions_of, parameters_of, sites_of

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SETS = {"core": HERE, "chain": HERE / "chain", "cm": HERE / "cm"}
KNOWN = HERE / "caught.txt"
REPLAYED = 4  # of each kind
QUICK_SEEDS = 32  # of a judge that CI replays
HAND_SEEDS, DRAWN_SEEDS = 200, 100
LIMIT_S, LIMIT_TIMES = 5, 10  # a judge's processor time: so much more than without a mutant


# ---- random mutants

def all_functions(root, layers):
    return [f for layer in layers for path in sorted((root / "src" / layer).glob("*.[ch]"))
            for f in functions_of(str(path.relative_to(root)), path.read_text(encoding="utf-8"))]


def mutant_of(function, change):
    name = f"{function.path}:{function.key}:{change.operator}:{change.token}:{change.variant}"
    return Mutant(name, function.path.split("/")[1],
                  {(function.path, function.key): changed_body(function, change)})


class Draw:
    """N changes, drawn uniformly over the tokens that some operator changes. If the one of a place
    does not compile, the place takes the next in the shuffled line, N further, so each place is
    the same whichever part of the draw is run."""

    def __init__(self, root, layers, count, seed):
        self.count, self.seed = count, seed
        self.functions = all_functions(root, layers)
        sites = [(f, changes) for f in self.functions if parameters_of(f.head) is not None
                 for _, changes in sites_of(f)]
        rng = random.Random(f"{seed} {' '.join(layers)}")
        rng.shuffle(sites)
        self.line = [(f, rng.choice(changes)) for f, changes in sites]
        if not count or count > len(sites):
            raise ValueError(f"there are {len(sites)} tokens to draw from, not {count}")
        self.tries = [0] * count

    def at(self, place):
        return self.line[(place + self.tries[place] * self.count) % len(self.line)]

    def mutant(self, place):
        return mutant_of(*self.at(place))


def difference(root, mutant):
    """A mutant as a diff."""
    out = []
    for path, text in mutant.files.items():
        out += diff_of(path, (root / path).read_text(encoding="utf-8"), text)
    for path in sorted({p for p, _ in mutant.bodies}):
        old = new = (root / path).read_text(encoding="utf-8")
        for f in reversed(functions_of(path, old)):
            if (path, f.key) in mutant.bodies:
                new = new[:f.start] + f.head + mutant.bodies[path, f.key] + new[f.end:]
        out += diff_of(path, old, new)
    return "".join(out)


def diff_of(path, old, new):
    return difflib.unified_diff(old.splitlines(True), new.splitlines(True), f"a/{path}", f"b/{path}")


# ---- mutants written by hand

def patched(root, patch):
    """The files that a patch touches, path -> text after it."""
    paths = re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(encoding="utf-8"), re.M)
    with tempfile.TemporaryDirectory(prefix="verbena-mutants.") as place:
        for path in paths:
            (Path(place) / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / path, Path(place) / path)
        done = subprocess.run(["patch", "-p1", "-s", "-F0", "-i", str(patch.resolve())], cwd=place,
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(f"{patch.name} does not apply: {done.stdout.strip()}")
        return {path: (Path(place) / path).read_text(encoding="utf-8") for path in paths}


def bodies_of(path, old, new):
    """The bodies that differ, if nothing else does and calls can reach them; else None."""
    before, after = functions_of(path, old), functions_of(path, new)
    if [f.head for f in before] != [f.head for f in after]:
        return None
    at = [0, 0]
    for f, g in zip(before, after):
        if old[at[0]:f.start] != new[at[1]:g.start]:
            return None
        at = [f.end, g.end]
    if old[at[0]:] != new[at[1]:]:
        return None
    changed = [(f, g) for f, g in zip(before, after) if f.body != g.body]
    if any(parameters_of(f.head) is None for f, _ in changed):
        return None
    return {(path, f.key): g.body for f, g in changed}


def hand_written(root, patch, what):
    files = patched(root, patch)
    bodies = {}
    for path, text in files.items():
        part = bodies_of(path, (root / path).read_text(encoding="utf-8"), text)
        if part is None:
            return Mutant(patch.stem, what, files=files)
        bodies.update(part)
    return Mutant(patch.stem, what, bodies)


# ---- running

class Court:
    """A build with mutants and the judges that can see each."""

    def __init__(self, options, tree, place, judges, seeds_first=False):
        self.options, self.judges, self.place = options, judges, Path(place)
        self.seeds_first = seeds_first
        self.overlay = Overlay(tree, self.place, options.jobs, {j.program for j in judges})
        self.programs, self.seen, self.cost = {}, {}, {}

    def link(self, names):
        names = [n for n in names if n not in self.programs]
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            self.programs.update(zip(names, pool.map(self.overlay.link, names)))

    def rehearse(self):
        """Each judge without a mutant: it must pass; what it costs, and which functions it calls."""
        judges = self.judges

        def once(i):
            seen = self.place / f"seen.{i}"
            outcome = run_judge(judges[i], self.programs[judges[i].program], 0, 3600, seen)
            return outcome, seen.read_bytes()
        self.link(sorted({j.program for j in judges}))
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            for judge, (outcome, seen) in zip(judges, pool.map(once, range(len(judges)))):
                if outcome.verdict != "survived":
                    raise BuildError(f"{judge.name} fails without a mutant: {outcome.text}")
                self.cost[judge], self.seen[judge] = outcome.cpu_s, seen
        judges.sort(key=lambda j: (self.seeds_first and not j.arguments, self.cost[j]))

    def try_mutant(self, mutant, only=None):
        """The first judge that sees a mutant, and how; None and how it survived. `only`: one judge."""
        judges = [only] if only else [
            j for j in self.judges if j not in self.seen or self.seen[j][mutant.number] or mutant.files]
        for judge in judges:
            self.link([judge.program])
            limit_s = int(LIMIT_S + LIMIT_TIMES * self.cost.get(judge, 4))
            outcome = run_judge(judge, self.programs[judge.program], mutant.number, limit_s)
            if outcome.verdict != "survived":
                return judge, outcome
        return None, Outcome("survived", only.name if only else
                             f"{len(judges)} judges" if judges else "no judge calls it")


def row_of(mutant, label, judge, outcome):
    return {"mutant": mutant.name, "label": label, "layer": mutant.layer, "verdict": outcome.verdict,
            "judge": judge.name if judge else "", "text": " ".join(outcome.text.split())[:160]}


def print_row(row):
    print(f"{row['label']:>34} {row['verdict']:9} {row['judge']:40} {row['text'][:90]}", flush=True)


def print_scores(rows):
    table = collections.defaultdict(collections.Counter)
    for row in rows:
        table[row["layer"]][row["verdict"]] += 1
        table["all"][row["verdict"]] += 1
    print(f"\n{'':8}" + "".join(f"{c:>10}" for c in ("mutants",) + CAUGHT + ("survived", "caught")))
    for layer in [x for x in dict.fromkeys(LAYERS + tuple(SETS)) if x in table] + ["all"]:
        counts, total = table[layer], sum(table[layer].values())
        share = sum(counts[c] for c in CAUGHT) / total if total else 0
        print(f"{layer:8}{total:10}" + "".join(f"{counts[c]:10}" for c in CAUGHT + ("survived",)) +
              f"{share:10.3f}")


def judge_all(court, labelled, report, only=None):
    """Runs mutants, two at a time; `only`: a mutant's name -> its one judge."""
    def one(item):
        label, mutant = item
        return row_of(mutant, label, *court.try_mutant(mutant, (only or {}).get(mutant.name)))
    with concurrent.futures.ThreadPoolExecutor(court.options.jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(one, x) for x in labelled]):
            report(done.result())


def judge_alone(court, label, mutant, report, only=None):
    """Runs a mutant in a build of its own, by judges that `court` has rehearsed."""
    with tempfile.TemporaryDirectory(prefix="verbena-mutants.") as place:
        own = Court(court.options, court.overlay.tree, place, list(court.judges))
        own.cost, mutant.number = court.cost, 0
        own.overlay.build([Mutant(mutant.name, mutant.layer, files=mutant.files)])
        judge_all(own, [(label, mutant)], report, only)


def run_patches(options, tree, what, patches, report):
    mutants = [hand_written(ROOT, p, what) for p in patches]
    judges = judges_for(ROOT, what, options.seeds or HAND_SEEDS)
    together = [m for m in mutants if m.bodies]
    for number, m in enumerate(together, 1):
        m.number = number
    with tempfile.TemporaryDirectory(prefix="verbena-mutants.") as place:
        # Bugs of the core are planted for the simulator: unit tests see what it has not seen.
        court = Court(options, tree, place, list(judges), seeds_first=what == "core")
        court.overlay.build(together)
        court.rehearse()
        alone = [m for m in mutants if not m.bodies or m.number in court.overlay.dropped]
        judge_all(court, [(m.name, m) for m in together if m not in alone], report)
    for m, patch in ((m, p) for m, p in zip(mutants, patches) if m in alone):
        m.files = m.files or patched(ROOT, patch)
        judge_alone(court, m.name, m, report)


def hand_written_main(options, tree):
    rows = []

    def report(row):
        rows.append(row)
        print_row(row)
    known = set()
    for what in [options.set] if options.set else SETS:
        patches = sorted(SETS[what].glob("*.patch"))
        known.update(p.stem for p in patches)
        patches = [p for p in patches if not options.names or p.stem in options.names]
        if patches:
            run_patches(options, tree, what, patches, report)
    if set(options.names) - known:
        raise BuildError(f"no such mutant: {' '.join(sorted(set(options.names) - known))}")
    return rows


def fingerprint():
    """Of all that a verdict depends on: results are kept while it is unchanged."""
    digest = hashlib.sha256()
    for top in ("src", "sim", "tests/unit", "include", "presets"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.is_file() and path.suffix not in (".patch", ".pyc", ".md") and path != KNOWN:
                digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def chosen_places(options):
    if options.only:
        return [int(x) - 1 for x in options.only.split(",")]
    part, parts = (int(x) for x in options.part.split("/"))
    return [i for i in range(options.draw) if i % parts == part - 1]


def settle(draw, court, places):
    """Builds the draw's mutants; what does not compile is drawn again."""
    fixed, todo, number = {}, list(places), 0
    while todo:
        for place in todo:
            number += 1
            fixed[place] = draw.mutant(place)
            fixed[place].number = number
        court.overlay.build([m for m in fixed.values()])
        todo = [p for p in places if fixed[p].number in court.overlay.dropped]
        for place in todo:
            draw.tries[place] += 1
    return fixed


def draw_main(options, tree):
    layers = (options.layer,) if options.layer else LAYERS
    draw = Draw(ROOT, layers, options.draw, options.seed)
    kept = Path(options.build) / "mutants" / f"{fingerprint()}-{options.seed[:12]}-{options.draw}" \
        f"-{options.layer or 'all'}-{options.seeds or DRAWN_SEEDS}.jsonl"
    kept.parent.mkdir(exist_ok=True)
    rows = {}
    if kept.exists() and not options.fresh:
        rows = {r["place"]: r for r in map(json.loads, kept.read_text(encoding="utf-8").splitlines())}
    places = chosen_places(options)
    wanted = [p for p in places if p not in rows] if not options.only else places
    if wanted:
        with tempfile.TemporaryDirectory(prefix="verbena-mutants.") as place, \
             open(kept, "a", encoding="utf-8") as out:
            court = Court(options, tree, place, judges_for(ROOT, "any", options.seeds or DRAWN_SEEDS))
            mutants = settle(draw, court, wanted)
            at = {str(p + 1): p for p in wanted}

            def report(row):
                function, change = draw.at(at[row["label"]])
                row |= {"place": at[row["label"]], "digest": function.digest,
                        "diff": difference(ROOT, mutants[at[row["label"]]])}
                rows[row["place"]] = row
                out.write(json.dumps(row) + "\n")
                out.flush()
                print_row(row)
            if options.show:
                for p in wanted:
                    print(f"# {p + 1}: {mutants[p].name}\n{difference(ROOT, mutants[p])}")
                return []
            court.rehearse()
            judge_all(court, [(str(p + 1), mutants[p]) for p in wanted], report)
    rows = [rows[p] for p in places]
    for row in rows:
        if row["verdict"] == "survived":
            print(f"\n{row['label']}: {row['mutant']} survived ({row['text']})\n{row['diff']}"
                  f"replay: sim/mutants/mutants.py --draw {options.draw} --seed {options.seed}"
                  f"{' --layer ' + options.layer if options.layer else ''} --only {row['label']}")
    return rows


def again_main(options, tree):
    """The survivors of an earlier draw, judged by the judges of today."""
    functions = {(f.path, f.key): f for f in all_functions(ROOT, LAYERS)}
    old = {r["mutant"]: r for r in json.loads(Path(options.again).read_text(encoding="utf-8"))
           if r["verdict"] == "survived"}
    mutants, rows = {}, []
    for name, row in old.items():
        path, key, operator, token, variant = name.split(":")
        function = functions.get((path, key))
        if function is None or function.digest != row["digest"]:
            print(f"{row['label']}: {path}:{key} is another function now")
            continue
        mutants[name] = mutant_of(function, Change(operator, int(token), int(variant)))
        mutants[name].number = len(mutants)

    def report(row):
        rows.append(old[row["mutant"]] | row)
        print_row(row)
    with tempfile.TemporaryDirectory(prefix="verbena-mutants.") as place:
        court = Court(options, tree, place, judges_for(ROOT, "any", options.seeds or DRAWN_SEEDS))
        court.overlay.build(list(mutants.values()))
        court.rehearse()
        judge_all(court, [(old[n]["label"], m) for n, m in mutants.items()], report)
    return rows


# ---- replay of what is known to be found

def known_entries(path):
    """The lines of the list: `patch SET NAME JUDGE…` and `drawn FILE FUNCTION DIGEST CHANGE JUDGE…`."""
    lines = [line.split() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line and not line[0].startswith("#")]


def replayable(entry, functions):
    """An entry as (mutant, judge), or None if it is stale: its function changed since, or the patch
    is gone."""
    if entry[0] == "patch":
        patch = SETS[entry[1]] / f"{entry[2]}.patch"
        return (hand_written(ROOT, patch, entry[1]), judge_named(" ".join(entry[3:]))) \
            if patch.exists() else None
    _, path, key, digest, change = entry[:5]
    function = functions.get((path, key))
    if function is None or function.digest != digest:
        return None
    operator, token, variant = change.split(":")
    return (mutant_of(function, Change(operator, int(token), int(variant))),
            judge_named(" ".join(entry[5:])))


def replay_main(options, tree):
    chosen = choose_known(options)
    only = {m.name: judge for m, judge in chosen}
    together = [m for m, _ in chosen if not m.files]
    for number, mutant in enumerate(together, 1):
        mutant.number = number
    rows = []

    def report(row):
        rows.append(row)
        print_row(row)
    with tempfile.TemporaryDirectory(prefix="verbena-mutants.") as place:
        court = Court(options, tree, place, sorted(set(only.values()), key=lambda j: j.name))
        court.overlay.build(together)
        if court.overlay.dropped:
            names = " ".join(m.name for m in together if m.number in court.overlay.dropped)
            raise BuildError(f"does not compile: {names}")
        court.rehearse()
        judge_all(court, [(str(m.number), m) for m in together], report, only)
    for number, mutant in enumerate((m for m, _ in chosen if m.files), len(together) + 1):
        judge_alone(court, str(number), mutant, report, only)
    for row in rows:
        print(f"{row['label']}: {row['mutant']}")
    print(f"replay: sim/mutants/mutants.py --replay --seed {options.seed}")
    return rows


def choose_known(options):
    """As many of each kind as asked for, drawn by the seed: (mutant, judge). All of them, or some of
    those that few files are compiled for."""
    functions = {(f.path, f.key): f for f in all_functions(ROOT, LAYERS)}
    entries = known_entries(options.known)
    random.Random(options.seed).shuffle(entries)
    chosen = []
    for kind in ("patch", "drawn"):
        listed = [entry for entry in entries if entry[0] == kind]
        found = [f for f in (replayable(entry, functions) for entry in listed) if f]
        print(f"{kind}: {len(found)} of {len(listed)} known mutants can be replayed")
        least = len(listed)
        if options.count is not None:
            least, found = options.count, [f for f in found if is_quick(*f)]
        if len(found) < least:
            raise BuildError(f"{len(found)} of {least}: write {options.known} anew with --keep")
        chosen += found[:options.count]
    return chosen


def is_quick(mutant, judge):
    """Whether CI has the time: sources that few others include, and a short range of seeds."""
    seeds = dict(zip(judge.arguments, judge.arguments[1:])).get("--seeds", "0")
    return not mutant.files and all(path.endswith(".c") for path, _ in mutant.bodies) and \
        int(seeds) <= QUICK_SEEDS


def count_of(text):
    """How many to replay; None: all."""
    return None if text == "all" else int(text)


def keep_known(path, rows):
    """Adds to the list of known mutants each patch that was caught, and of drawn mutants what a judge
    saw in sources that few others include. Drops entries that are stale."""
    functions = {(f.path, f.key): f for f in all_functions(ROOT, LAYERS)}
    entries = known_entries(path) if Path(path).exists() else []
    lines = {" ".join(e[:5 if e[0] == "drawn" else 3]): " ".join(e) for e in entries
             if replayable(e, functions)}
    for row in rows:
        if row["verdict"] not in CAUGHT:
            continue
        if ":" not in row["mutant"]:
            head = f"patch {row['layer']} {row['mutant']}"
        else:
            source, key, operator, token, variant = row["mutant"].split(":")
            if row["verdict"] != "judge" or not source.endswith(".c"):
                continue
            head = f"drawn {source} {key} {row['digest']} {operator}:{token}:{variant}"
        lines[head] = f"{head} {row['judge']}"
    Path(path).write_text(
        "# Mutants that a judge saw, for `mutants.py --replay`; written by `mutants.py --keep`.\n" +
        "".join(f"{line}\n" for _, line in sorted(lines.items())), encoding="utf-8")


def commit_hash():
    done = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True,
                          text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="patches to run, without .patch")
    parser.add_argument("--set", choices=SETS, help="one set of patches")
    parser.add_argument("--draw", type=int, metavar="N", help="draw N mutants")
    parser.add_argument("--layer", choices=LAYERS, help="draw from one layer only")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="only every N-th of the draw")
    parser.add_argument("--only", metavar="K,…", help="these of the draw, again")
    parser.add_argument("--list", action="store_true", help="list the draw and run nothing")
    parser.add_argument("--show", metavar="K,…", help="print these of the draw as diffs")
    parser.add_argument("--fresh", action="store_true", help="forget kept results of this draw")
    parser.add_argument("--again", metavar="FILE", help="judge the survivors in these results again")
    parser.add_argument("--replay", action="store_true", help="replay known mutants")
    parser.add_argument("--known", default=str(KNOWN), metavar="FILE", help="the list to replay from")
    parser.add_argument("--count", type=count_of, default=REPLAYED, metavar="N|all",
                        help="how many of each kind to replay")
    parser.add_argument("--least", type=float, default=0, metavar="SHARE",
                        help="a draw of which less is caught is a failure")
    parser.add_argument("--keep", action="store_true", help="add what was found to the list")
    parser.add_argument("--seed", help="of a draw or a replay")
    parser.add_argument("--seeds", type=int, metavar="N",
                        help=f"seeds of the simulator ({HAND_SEEDS}, for draws {DRAWN_SEEDS})")
    parser.add_argument("--build", default=str(ROOT / "build"), metavar="DIR", help="a build tree")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    parser.add_argument("--json", metavar="FILE", help="write the results there, too")
    options = parser.parse_args(arguments)
    if not options.seed and not options.draw:
        options.seed = os.environ.get("VERBENA_SEED") or commit_hash()
    options.seed = options.seed or fingerprint()
    if options.show:
        options.only = options.show
    return options


def main(arguments):
    options = parse(arguments)
    if options.draw or options.replay:
        print(f"seed {options.seed}")
    try:
        tree = Tree(ROOT, options.build)
        if options.list:
            draw = Draw(ROOT, (options.layer,) if options.layer else LAYERS, options.draw, options.seed)
            for place in chosen_places(options):
                print(f"{place + 1:5} {draw.mutant(place).name}")
            return 0
        tree.ninja(*sorted({j.program for j in judges_for(ROOT, "any", 1)}))
        mode = draw_main if options.draw else again_main if options.again else \
            replay_main if options.replay else hand_written_main
        rows = mode(options, tree)
    except (BuildError, OSError, ValueError) as error:
        print(f"mutants.py: {error}", file=sys.stderr)
        return 2
    if options.show:
        return 0
    print_scores(rows)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if options.keep:
        keep_known(options.known, [r for r in rows if "digest" in r or ":" not in r["mutant"]])
    caught = sum(r["verdict"] in CAUGHT for r in rows)
    if options.draw or options.again:
        return 1 if caught < options.least * len(rows) else 0
    return 1 if caught < len(rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
