#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/performance.md: every block is whole, its commit is in the history, and the
generator makes rows of what commands print or says in one line what is missing."""

import json
import os
import subprocess
import sys
import unittest
import unittest.mock

from command import WithFiles, main

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "bench"))
import tables  # noqa: E402
from programs import Failed, cmtime, perftest  # noqa: E402

STAMP = {"commit": "0123456789ab", "date": "2026-11-16", "cpu": "A CPU", "cores": 2,
         "kernel": "6.18", "busy": 1}
STAMPED = ("*`bench/tables.py udp`, 2 rounds in turn: `verbena perf`. Commit 0123456789ab, 2026-11-16, "
           "A CPU, 2 cores, Linux 6.18, 1 % busy before.*\n")


def read_row(p50, raw, connected):
    return {"p50_ns": p50, "raw_p50_ns": raw, "raw_connected_p50_ns": connected,
            "raw_ratio": p50 / raw, "raw_connected_ratio": p50 / connected}


def udp_raw():
    rates = {"write": {"ops_per_s": 5e6}, "send": {"ops_per_s": 2e6}, "raw": {"ops_per_s": 1e7}}
    return {"table": "udp", "stamp": STAMP, "rounds": [
        {"read": read_row(8000, 7000, 6500), **rates},
        {"read": read_row(9000, 7500, 7000), **rates},
        {"read": read_row(10000, 8000, 7500), **rates}]}


# What programs of the tree print, in short: by the program's name, or by verbena's first two words.
FAKE = '''#!/usr/bin/python3
import json, os, sys
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
row = {"p50_ns": 9000, "raw_p50_ns": 8000, "raw_connected_p50_ns": 7500, "raw_ratio": 1.125,
       "raw_connected_ratio": 1.2, "ops_per_s": 2e6, "bytes_per_s": 1e9, "copy_gbps": 9.5,
       "cpu_ns": 1, "server_cpu_ns": 2, "read_ratio": 1.1}
three = {"median": 2, "least": 1, "most": 3}
spans = {f"{s}_ns": 1500 for s in ("nic_p50", "nic_p99", "nic_max", "nic_max_without_frames",
                                   "whole_p50", "whole_p99")}
ranges = {f"{s}_{q}_ns": three for s in ("service", "whole") for q in ("p50", "p99")}
kinds = {
    "sim isolation": {"alone": {"reads": 1, **spans}, "busy": {"reads": 1, **spans},
                      "bound_ns": 9000},
    "sim incast": {"senders": 8, "least_bytes": 10, "all_gbps": 9.5, "ratio": 0.9,
                   "retries_exceeded": 0},
    "soak_get": {"gets": 20000, "gets_per_second": 3e5, "wrong": 0, "server_thread_ns": 0},
    "hull_lat": {key: three for key in ("line_ns", "inside_ns", "attached_ns", "lines")},
    "hull_crowd": {"applications": 20, **{key: 1.5 for key in (
        "attach_us_median", "attach_us_p99", "work_us_median", "come_ms_each", "leave_ms_each",
        "hull_rss_kb_each", "hull_private_kb_each", "descriptors_each", "mappings_each",
        "descriptors_left", "mappings_left", "private_kb_left")}},
    "hull_isolation": {"rounds": 9, "alone": {"reads": 1, **ranges}},
    "incast": {"one_gbps": 9.5, "all_gbps": 9, "ratio": 0.9, "least_gbps": 1, "retries_exceeded": 0},
}
ways = ("chain", "farm", "chase", "rpc", "rpc-blocking", "read")
if words[:2] == ["perf", "get"]:
    print("\\n".join(json.dumps({"via": via, **row}) for via in ways))
elif words[0] == "figures":
    print("| where | what |")
else:
    print(json.dumps(kinds.get(name if name != "verbena" else " ".join(words[:2]), row)))
'''


class Rows(unittest.TestCase):
    def test_median_spread_goal_and_both_echoes(self):
        text = tables.render(udp_raw())
        self.assertIn("| READ 64 B, p50 | 9 µs | 8 to 10 | | |", text)
        self.assertIn("| echo, unconnected, p50 | 7.5 µs | 7 to 8 | | |", text)
        self.assertIn("| READ / echo, unconnected | 1.2 | 1.14 to 1.25 | ≤ 1.15 | **no** |", text)
        self.assertIn("| READ / echo, client connected | 1.29 | 1.23 to 1.33 | | |", text)
        self.assertIn("| WRITE 64 B, depth 128 | 5 M/s | 5 to 5 | ≥ 4 | yes |", text)
        self.assertIn("| SEND 64 B, depth 128 | 2 M/s | 2 to 2 | ≥ 3 | **no** |", text)

    def test_the_stamp(self):
        text = tables.render(udp_raw())
        self.assertRegex(text, tables.STAMP)
        self.assertIn("*`bench/tables.py udp`, 3 rounds in turn: `verbena perf read --size 64`, ", text)
        for field in STAMP:
            raw = udp_raw()
            raw["stamp"] = {**STAMP, field: ""}
            self.assertNotRegex(tables.render(raw), tables.STAMP, field)

    def test_a_missing_field_is_named(self):
        for label, field, command in (("read", "raw_connected_ratio", "verbena perf read --size 64"),
                                      ("send", "ops_per_s", "verbena perf send --size 64 --depth 128")):
            raw = udp_raw()
            del raw["rounds"][1][label][field]
            with self.assertRaises(Failed) as caught:
                tables.render(raw)
            self.assertEqual(str(caught.exception),
                             f"'{field}' is missing from the output of '{command}'")

    def test_rounds_one_by_one(self):
        rounds = [{"write": {"bytes_per_s": 1e9 * n, "raw_p50_ns": 7000}, "tcp": {"gbps": 4},
                   "raw": {"bytes_per_s": 2e9}} for n in (1, 2, 3)]
        text = tables.render({"table": "bandwidth", "stamp": STAMP, "rounds": rounds})
        self.assertIn("| 1 | 7 | 8 | 16 | 4 | 0.5 | 2 |", text)
        self.assertIn("| median | 7 | 16 | 16 | 4 | 1 | 4 |", text)

    def test_instructions(self):
        entry = {"instructions": 160.7, "entries": 10.4}
        keys = ("hash_get", "hash_get_seq", "hash_get_par", "list_walk", "list_loop", "nop", "wait",
                "send_en", "read8", "read_bytes", "write8", "cas", "fadd", "add", "signaled")
        raw = {"table": "entries", "stamp": STAMP, "rounds": [{"entries": {k: entry for k in keys}}]}
        self.assertIn("| hash get, one bucket | 161 | 10.4 | 1,671 | ≤ 150 | **no** |",
                      tables.render(raw))
        self.assertIn("one run; the same on every run", tables.render(raw))

    def test_whoever_is_beside_the_tenant(self):
        times = {f"{span}_ns": 1500 for span in (
            "nic_p50", "nic_p99", "nic_max", "nic_max_without_frames", "whole_p50", "whole_p99")}
        out = {"alone": {"reads": 3, **times}, "crowd": {"reads": 4, **times}, "bound_ns": 9000}
        raw = {"table": "isolation-sim", "stamp": STAMP,
               "rounds": [{"shares": {**out, "status": 0}, "no shares": {**out, "status": 1}}]}
        text = tables.render(raw)
        self.assertIn("| crowd | 1.5 | 1.5 | 1.5 | 1.5 | 1.5 | 1.5 |", text)
        self.assertIn("| alone, without shares | 1.5 | 1.5 | 1.5 | 1.5 | 1.5 | 1.5 |", text)
        self.assertIn("| bound: alone + 9 | | | | 10.5: kept | | |", text)
        self.assertIn("| bound: alone + 9, without shares | | | | 10.5: **missed** | | |", text)

    def test_what_other_programs_print(self):
        text = (" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]\n"
                " 64      20000          3.50           90.10        5.95\n")
        parse = perftest("least", "most", "typical_us")
        self.assertEqual(parse(text)["typical_us"], 5.95)
        with self.assertRaises(LookupError):
            parse("Couldn't connect\n")
        text = ("step              total ms     max ms     min us  us / conn\n"
                "resolve addr :       36.09      29.99      16.00     360.91\n"
                "create qp    :        8.46       6.04      20.00      84.62\n")
        self.assertEqual(cmtime(text), {"resolve addr": 360.91, "create qp": 84.62})


class Blocks(unittest.TestCase):
    """Of a document that has all its blocks, and then something wrong."""

    def document(self, **changed):
        blocks = {name: STAMPED for name, table in tables.TABLES.items()
                  if table.file == tables.PERFORMANCE}
        blocks.update(changed)
        return "".join(f"<!-- bench: {name} -->\n{body}<!-- end -->\n\ntext\n\n"
                       for name, body in blocks.items() if body)

    def wrong(self, text):
        return list(tables.problems(tables.PERFORMANCE, text))

    def test_the_documents(self):
        for path in (tables.PERFORMANCE, tables.REDN):
            self.assertEqual(list(tables.problems(path, tables.read(path))), [])

    def test_whole(self):
        self.assertEqual(self.wrong(self.document()), [])
        self.assertEqual(self.wrong(self.document(
            udp="*Not measured since commit 1d31a1e: `bench/tables.py udp` fills this in.*\n")), [])

    def test_each_part_of_the_stamp_is_missed(self):
        for part in ("Commit 0123456789ab, ", "2026-11-16, ", "A CPU, ", "2 cores, ", "Linux 6.18, "):
            with self.subTest(part):
                self.assertEqual(self.wrong(self.document(udp=STAMPED.replace(part, ""))),
                                 ["docs/performance.md: the table of udp lacks its commit, date or "
                                  "machine"])
        self.assertEqual(len(self.wrong(self.document(udp="| a table | 1 |\n"))), 1)
        self.assertEqual(len(self.wrong(self.document(udp="*Not measured.*\n"))), 1)

    def test_names(self):
        self.assertEqual(self.wrong(self.document(fast=STAMPED)),
                         ["docs/performance.md: no table 'fast' belongs here"])
        self.assertEqual(self.wrong(self.document(**{"redn-here": STAMPED})),
                         ["docs/performance.md: no table 'redn-here' belongs here"])
        self.assertEqual(self.wrong(self.document(udp="")), ["docs/performance.md: udp has no block"])
        twice = self.document() + "<!-- bench: udp -->\n" + STAMPED + "<!-- end -->\n"
        self.assertIn("docs/performance.md: several blocks of udp", self.wrong(twice))
        self.assertIn("docs/performance.md: the block of incast has no end",
                      self.wrong(self.document().rsplit("<!-- end -->", 1)[0]))

    def test_figures_outside_of_tables(self):
        for text in ("A READ takes 7.5 µs.", "moves 24 Gb/s", "5 % faster", "2.5 times", "in 12 ns",
                     "964 instructions"):
            self.assertEqual(len(self.wrong(self.document() + text)), 1, text)
        for text in ("a WRITE of 64 KB", "depth 128", "`--seconds 3 s`", "    sleep 10 s\n",
                     "1,000 queue pairs"):
            self.assertEqual(self.wrong(self.document() + text), [], text)

    def test_one_block_is_replaced(self):
        before = self.document()
        after = tables.replace(before, "shm", "new\n")
        self.assertIn("<!-- bench: shm -->\nnew\n<!-- end -->", after)
        self.assertEqual(after.replace("new\n", STAMPED), before)
        for text in ("", before + before, "<!-- bench: shm -->\n"):
            with self.assertRaises(Failed):
                tables.replace(text, "shm", "new\n")

    def test_stale(self):
        self.assertTrue(tables.is_stale("udp", self.document()))  # no such commit
        self.assertTrue(tables.is_stale("udp", self.document(udp="")))
        head = tables.commit()
        stamped = STAMPED.replace("0123456789ab", head)
        self.assertEqual(tables.is_stale("udp", self.document(udp=stamped)), head.endswith("-dirty"))


class History(WithFiles):
    """Commits that tables name, in a clone that has all of them."""

    @classmethod
    def setUpClass(cls):
        if reason := tables.no_history():
            raise unittest.SkipTest(reason)

    def wrong(self, block):
        return list(tables.unknown_commits("a.md", f"<!-- bench: udp -->\n{block}<!-- end -->\n"))

    def test_the_documents(self):
        for path in (tables.PERFORMANCE, tables.REDN):
            self.assertEqual(list(tables.unknown_commits(path, tables.read(path))), [])

    def test_commits(self):
        head = tables.git("rev-parse", "--short=12", "HEAD").stdout.strip()
        unmeasured = "*Not measured since commit {}: `bench/tables.py udp` fills this in.*\n"
        self.assertEqual(self.wrong(STAMPED.replace("0123456789ab", head)), [])
        self.assertEqual(self.wrong(unmeasured.format(head[:7])), [])
        for block in (STAMPED, unmeasured.format("0123456")):
            found, = self.wrong(block)
            self.assertRegex(found, "^a.md: the table of udp names commit 012345.*, which is not in the history$")
        self.assertEqual(self.wrong(STAMPED.replace("0123456789ab", head + "-dirty")),
                         ["a.md: the table of udp was measured with changes that no commit has"])

    def test_a_commit_of_another_history(self):
        """It is among the objects, and no ancestor of the checked-out commit."""
        def git(*words):
            done = subprocess.run(["git", "-C", self.dir.name, "-c", "user.name=a", "-c", "user.email=a@b", *words],
                                  capture_output=True, text=True, check=True)
            return done.stdout.strip()
        with unittest.mock.patch.object(tables, "ROOT", self.dir.name):
            self.assertEqual(tables.no_history(), "no git repository")
            git("init", "-q")
            git("commit", "-q", "--allow-empty", "-m", "one")
            left = git("rev-parse", "--short=12", "HEAD")
            self.assertEqual((tables.no_history(), self.wrong(STAMPED.replace("0123456789ab", left))), (None, []))
            git("commit", "-q", "--amend", "--allow-empty", "-m", "another")
            self.assertEqual(len(self.wrong(STAMPED.replace("0123456789ab", left))), 1)


class Commands(WithFiles):
    """By a tree whose `verbena` prints what it is told to."""

    def run_tables(self, *names):
        return subprocess.run([os.path.join(ROOT, "bench/tables.py"), "--trial", *names, "--build",
                               self.dir.name], capture_output=True, text=True, timeout=300,
                              env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, check=False)

    def trial(self, script):
        os.chmod(self.path("verbena", "#!/bin/sh\n" + script), 0o755)
        return self.run_tables("idle")

    def test_every_table_of_the_tree(self):
        os.mkdir(self.path("bench"))
        for name in ("verbena", "bench/soak_get", "bench/hull_lat", "bench/hull_crowd",
                     "bench/hull_isolation", "bench/incast"):
            os.chmod(self.path(name, FAKE), 0o755)
        names = [name for name, table in tables.TABLES.items()
                 if all(command.text.startswith(("verbena ", "build/")) and not hasattr(command, "server")
                        for command in table.commands.values())]
        self.assertGreater(len(names), 14)
        done = self.run_tables(*names)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in names:
            self.assertRegex(done.stdout, rf"(?m)^\*`bench/tables.py {name}`, one run.*before\.\*$")
        self.assertNotIn("nan", done.stdout)

    def test_a_run(self):
        row = json.dumps({"cpu_ns": 2000000, "server_cpu_ns": 12000000})
        done = self.trial(f"echo '{row}'")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| udp, CPU time of the worse process | 12 ms | | ≤ 10 | **no** |", done.stdout)

    def test_failures_are_one_line(self):
        for script, words in (("echo '{\"cpu_ns\":1}'", "'server_cpu_ns' is missing"),
                              ("echo nothing", "printed something else"),
                              ("echo no core >&2; exit 3", "ended with status 3: no core")):
            done = self.trial(script)
            said = [line for line in done.stderr.splitlines() if "round" not in line]
            self.assertEqual((done.returncode, len(said)), (1, 1), done)
            self.assertIn("tables.py: idle: '", said[0])
            self.assertIn(words, said[0])

    def test_names_of_tables(self):
        tool = os.path.join(ROOT, "bench/tables.py")
        done = subprocess.run([tool, "--list"], capture_output=True, text=True, timeout=60, check=True)
        self.assertEqual(done.stdout.split(), list(tables.TABLES))
        done = subprocess.run([tool, "--list", "--stale"], capture_output=True, text=True, timeout=60,
                              check=True)
        self.assertLessEqual(set(done.stdout.split()), set(tables.TABLES))

    def test_wrong_names(self):
        done = subprocess.run([os.path.join(ROOT, "bench/tables.py"), "fast"], capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no table 'fast'; there are udp, ", done.stderr)


if __name__ == "__main__":
    main()
