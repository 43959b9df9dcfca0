#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Programs are priced by one command."""

import glob
import json
import math
import os
import re
import tempfile
import unittest
import xml.etree.ElementTree

from command import WithFiles, main, run
import judge

ROOT = os.path.join(os.path.dirname(__file__), "../..")
IF = os.path.join(ROOT, "examples/chains/if.chain")
PARTS = ("fetch", "wait", "issue", "pcie", "network")


class Cost(WithFiles):
    def done(self, *words):
        result = run("chain", "cost", *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        return result.stdout

    def priced(self, *words):
        return json.loads(self.done(*words, "--json"))

    def refused(self, words, *expected):
        result = run("chain", "cost", *words)
        self.assertEqual(result.returncode, 2, result)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for text in expected:
            self.assertIn(text, result.stderr)

    def test_the_conditional_of_the_tutorial(self):
        text = self.done(IF)
        self.assertIn("latency    3.240 us", text)
        self.assertIn("* K:then (nop) as write", text)
        self.assertIn("critical path", text)
        cost = self.priced(IF)
        # doorbell, fetch, READ, CAS, WAIT, fetch, WRITE, completion: docs/cost.md
        sums = 0.30 + 0.35 + 2 * (0.17 + 0.59) + 0.02 + 0.35 + 0.17 + 0.39 + 0.14
        self.assertAlmostEqual(cost["latency"], sums, places=5)
        self.assertEqual([e["entry"] for e in cost["entries"] if e["queue"] == "K"],
                         ["K:then (nop) as write"])

    def test_every_example_and_preset(self):
        presets = [os.path.basename(p)[:-5] for p in glob.glob(os.path.join(ROOT, "presets/*.cost"))]
        self.assertEqual(len(presets), 6)
        for program in glob.glob(os.path.join(ROOT, "examples/chains/*.chain")):
            for preset in presets:
                with self.subTest(program=program, preset=preset):
                    cost = self.priced(program, "--preset", preset)
                    self.assertEqual(cost["preset"], preset)
                    self.assertAlmostEqual(sum(cost["parts"][p] for p in PARTS), cost["latency"],
                                           places=4)
                    for e in cost["entries"]:
                        self.assertAlmostEqual(e["at"] + sum(e[p] for p in PARTS), e["done"],
                                               places=4)
        self.assertEqual(self.priced(IF, "--preset", "nic-memory")["parts"]["fetch"], 0)

    def test_messages_are_charged(self):
        # One that names a bucket outside of memory: the program ends there.
        cost = self.priced("hash_get", "--send", "K=" + "00" * 14)
        self.assertEqual((cost["operations"], cost["replies"]), (1, 0))
        self.assertGreater(cost["errors"], 0)
        self.assertEqual(self.priced(IF)["errors"], 0)
        self.assertTrue(cost["entries"][0]["message"])
        managed = self.priced("hash_get", "--send", "K=" + "00" * 14, "--managed-client")
        self.assertAlmostEqual(managed["latency"], cost["latency"] + 0.35, places=5)

    def test_a_preset_of_ones_own(self):
        mine = self.path("mine.cost", "name mine\nlike connectx5-b\nfetch 0.45 us\n")
        self.assertAlmostEqual(self.priced(IF, "--preset", mine)["latency"],
                               self.priced(IF)["latency"] + 0.2, places=5)
        wrong = self.path("wrong.cost", "name mine\nlike connectx5-b\nfetch 1 s\n")
        self.refused([IF, "--preset", wrong], "wrong.cost: line 3: 'fetch' wants a time")
        self.refused([IF, "--preset", self.path("no.cost")], "No such file")
        self.refused([IF, "--preset", "connectx4"], "'connectx4' is no preset", "connectx5-a")

    def test_pictures(self):
        picture = self.path("if.svg")
        self.done(IF, "--svg", picture)
        svg = xml.etree.ElementTree.parse(picture).getroot()
        texts = [t.text for t in svg.iter("{http://www.w3.org/2000/svg}text")]
        self.assertIn("W", texts)
        self.assertIn("K", texts)
        result = run("chain", "cost", IF, "--svg", os.path.join(self.dir.name, "no", "file"))
        self.assertEqual(result.returncode, 1)
        self.assertIn("No such file", result.stderr)

    def test_rates_by_operations(self):
        one, ten = self.priced(IF), self.priced(IF, "--operations", "10")
        self.assertAlmostEqual(ten["rate"], 10 * one["rate"], delta=one["rate"] / 1000)

    def test_wrong_words(self):
        self.refused([], "name one program")
        self.refused([IF, "--operations", "many"], "--operations")
        self.refused([IF, "--put", "nothing=00"], "--put names a region")

    def test_a_limit_of_steps(self):
        self.assertTrue(self.priced(IF, "--steps", "3")["cut"])
        self.assertIn("cut        by the limit", self.done(IF, "--steps", "3"))
        self.assertFalse(self.priced(IF)["cut"])


class Figures(unittest.TestCase):
    def done(self, *words):
        result = run("figures", *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        return result.stdout

    def test_the_document_is_what_the_command_prints(self):
        with open(os.path.join(ROOT, "docs/figures/redn.md"), encoding="utf-8") as file:
            text = file.read()
        block = text.split("<!-- bench: redn-model -->\n")[1].split("<!-- end -->")[0]
        self.assertIn(self.done("redn", "--model"), block)

    def test_rows_are_marked_and_what_is_not_run_is_said(self):
        listed = self.done("--list").splitlines()
        rows = self.rows("redn", "--model")
        self.assertEqual(len(rows), len([row for row in listed if row.startswith("redn")]))
        for row in rows:
            self.assertRegex(row, r"\*(input|fitted|predicted)\* \|$")
        self.assertIn("not run: figure 13", "\n".join(listed))

    def rows(self, *words):
        return [row for row in self.done(*words).splitlines() if row.startswith(("| fig", "| tab"))]

    def test_one_preset_serves_all_experiments_on_a_card(self):
        named = {"ConnectX-3": "connectx3", "ConnectX-6": "connectx6",
                 "two ports": "connectx5-dual-port"}
        for row in self.rows("redn", "--model"):
            own = [preset for card, preset in named.items() if card in row]
            first, second = row.split("|")[4:6]
            self.assertEqual(first.strip() == "-", bool(own), row)  # A has no such preset
            self.assertEqual(re.findall(r"connectx[\w-]+", first + second), own, row)
        # Preset A runs one entry of a program at a time: it cannot have the rate of many queues.
        off = [row.split("|")[4] for row in self.rows("redn", "--model") if "| table 3 | READ" in row]
        self.assertRegex(off[0], r"\(-\d\d %\)")

    def test_rows_that_follow_from_an_input_are_no_predictions(self):
        predicted = [row for row in self.rows("redn", "--model") if "*predicted*" in row]
        self.assertEqual([row.split("|")[2].strip().split(",")[0] for row in predicted],
                         ["if", "while", "a second bucket", "a second bucket",
                          "lists of 8: READ by READ / chain"])

    def test_misfits_are_computed_and_explained(self):
        text = self.done("redn", "--model")
        misfits = text.split("Does not fit")[1].split("Not run")[0]
        for row in self.rows("redn", "--model"):
            where, what = [cell.strip() for cell in row.split("|")[1:3]]
            off = [abs(int(cell)) for cell in re.findall(r"\(([+-]\d+) %\)", row)]
            self.assertEqual(f"{where}, {what}" in misfits, not off or max(off) > 10, row)
        self.assertNotIn("not explained", misfits)

    def test_explanations_contain_no_figures(self):
        lines = [line for line in self.done("redn", "--model").splitlines() if line.startswith("- ")]
        self.assertGreater(len(lines), 9)
        for line in lines:
            # Names, sizes and computed deviations aside.
            rest = re.sub(r"(figure|figures|table) \d+|connectx\d-?\w?|ConnectX-\d|lists of \d+|"
                          r"\d+ K?B\b|[+-]\d+ %", "", line)
            self.assertNotRegex(rest, r"\d", line)

    def measured(self, *words):
        """The cells of both kinds of measurement, by row."""
        rows = [row.split("|") for row in self.rows("redn", "--seconds", "0.02", *words)]
        first = 6 if not words else 4
        return [(row[2].strip(), row[first].strip(), row[first + 1].strip()) for row in rows]

    def test_this_machine_is_measured_in_the_same_run(self):
        rows = self.measured()
        self.assertGreater(len([row for row in rows if row[1:] != ("-", "-")]), 15)
        for _, between, local in rows:
            self.assertIn("-", (between, local))
            for value in (between, local):
                self.assertTrue(value in "-?" or math.isfinite(float(value)), value)

    def test_local_entries_have_a_column_of_their_own(self):
        head = self.done("redn", "--here", "--seconds", "0.02").splitlines()[0]
        self.assertIn("| here: two processes, udp | here: local entries, one process |", head)
        rows = {what: (between, local) for what, between, local in self.measured("--here")}
        self.assertEqual(rows["READ, 64 B"][1], "-")
        for what in ("CAS", "if", "one more, queue order"):
            self.assertEqual(rows[what][0], "-", what)
            self.assertNotEqual(rows[what][1], "-", what)

    def test_plots_without_gnuplot(self):
        with tempfile.TemporaryDirectory() as folder:
            result = run("figures", "redn", "--model", "--plots", folder, PATH=folder)
        self.assertEqual((result.returncode, result.stderr.count("\n")), (1, 1), result)
        self.assertIn("gnuplot", result.stderr)

    @judge.needs(tools=("gnuplot",))
    def test_plots(self):
        with tempfile.TemporaryDirectory() as folder:
            place = os.path.join(folder, "made")
            result = run("figures", "redn", "--model", "--plots", place)
            self.assertEqual((result.returncode, result.stderr), (0, ""), result)
            self.assertEqual(sorted(os.listdir(place)),
                             ["redn-figure-10.svg", "redn-figure-13.svg"])
            for name in os.listdir(place):
                with open(os.path.join(place, name), encoding="utf-8") as file:
                    self.assertIn("connectx5-a", file.read())
            self.assertEqual(run("figures", "redn", "--here", "--seconds", "0.02", "--plots",
                                 place).returncode, 0)
            with open(os.path.join(place, "redn-figure-13-here.svg"), encoding="utf-8") as file:
                text = file.read()
            self.assertNotIn("connectx5", text)
            self.assertIn("this machine", text)
            result = run("figures", "redn", "--model", "--plots", "/proc/none")
            self.assertEqual((result.returncode, result.stderr.count("\n")), (1, 1), result)

    def test_what_must_be_close(self):
        for row in self.rows("redn", "--model"):
            if any(what in row for what in ("| if |", "while, recycled", "one port, 64 B")):
                off = [abs(int(cell.split("(")[1].split(" ")[0])) for cell in row.split("|")[4:6]]
                self.assertLessEqual(min(off), 10, row)

    def test_wrong_words(self):
        for words in ([], ["strom"], ["redn", "more"]):
            result = run("figures", *words)
            self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result)
            self.assertIn("verbena figures redn", result.stderr)
        result = run("figures", "redn", "--model", "--here")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result)


if __name__ == "__main__":
    main()
