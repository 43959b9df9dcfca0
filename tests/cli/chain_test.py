#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Chain programs from text to file and back."""

import glob
import json
import os

from command import WithFiles, main, run

ROOT = os.path.join(os.path.dirname(__file__), "../..")
EXAMPLES = sorted(glob.glob(os.path.join(ROOT, "examples/chains/*.chain")))


class Chain(WithFiles):
    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def done(self, *words):
        result = run("chain", *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        return result.stdout

    def refused(self, words, *expected):
        result = run("chain", *words)
        self.assertEqual(result.returncode, 2, result)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for text in expected:
            self.assertIn(text, result.stderr)

    def test_examples_go_round(self):
        self.assertGreaterEqual(len(EXAMPLES), 2)
        for example in EXAMPLES:
            with self.subTest(example):
                self.done("asm", example, "-o", self.path("a.bin"))
                text = self.done("dis", self.path("a.bin"))
                self.done("asm", self.path("a.chain", text), "--output", self.path("b.bin"))
                self.assertEqual(self.read("a.bin"), self.read("b.bin"))
                # The canonical text of a text is the same.
                self.assertEqual(self.done("dis", example), text)
                self.assertEqual(self.done("dis", self.path("a.chain")), text)

    def test_the_conditional_is_a_nop_that_may_become_a_write(self):
        text = self.done("dis", next(e for e in EXAMPLES if e.endswith("/if.chain")))
        self.assertIn("then:\n    nop as write answer <- one:8 signaled", text)
        self.assertIn("read x -> then.qpn:3", text)

    def test_wrong_programs(self):
        self.refused(["asm", self.path("x", "cq c 4\n\nqueue W ring\n")], "/x: line 3: ", "loop", "peer")
        self.refused(["dis", self.path("y", "vbchain\x1aabc")], "/y: ", "ends too early")
        self.refused(["asm", self.path("nothing")], "nothing", "No such file")
        self.refused(["asm", self.dir.name], "directory")

    def test_wrong_words(self):
        self.refused([], "asm, dis, check")
        self.refused(["fly", "x"], "'fly'", "asm, dis, check")
        self.refused(["asm"], "one file")
        self.refused(["asm", "a", "b"], "one file")
        self.refused(["asm", "a", "-o"], "needs a value")
        self.refused(["asm", "a", "--fly"], "--fly")

    def test_examples_are_right(self):
        for program in [*EXAMPLES, "hash_get"]:
            with self.subTest(program):
                self.assertIn("0 errors, 0 warnings", self.done("check", program))

    def test_mistakes_are_found(self):
        with open(os.path.join(ROOT, "examples/chains/if.chain"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        wait = [i for i, line in enumerate(lines) if line.split()[:1] == ["wait"]][0]
        wrong = self.path("wrong.chain", "\n".join(lines[:wait] + lines[wait + 1:]) + "\n")
        result = run("chain", "check", wrong)
        self.assertIn("WAIT", result.stdout)
        self.assertNotIn("0 errors, 0 warnings", result.stdout)

    def test_traces(self):
        text = self.done("trace", EXAMPLES[0])
        self.assertIn("writes greeting+0", text)
        for line in self.done("trace", EXAMPLES[0], "--json").splitlines():
            json.loads(line)
        self.done("run", EXAMPLES[0])
        self.refused(["trace"], "name one program")
        self.refused(["check", self.path("nothing")], "No such file")

    def test_a_program_is_dumped_as_it_has_become(self):
        example = next(e for e in EXAMPLES if e.endswith("/if.chain"))
        before = self.done("run", example, "--steps", "1", "--dump", "-")
        after = self.done("run", example, "--dump", "-")
        self.assertIn("nop as write answer <- one:8", before)
        self.assertNotIn("nop as write", after)
        self.assertIn("write answer <- one:8", after)
        self.assertEqual(self.done("dis", self.path("after.chain", after)), after)
        self.done("run", "hash_get", "--dump", self.path("get.chain"))
        self.done("asm", self.path("get.chain"), "-o", self.path("get.bin"))
        result = run("chain", "run", example, "--dump", os.path.join(self.dir.name, "no", "file"))
        self.assertEqual(result.returncode, 1)
        self.assertIn("No such file", result.stderr)

    def test_output_that_cannot_be_written(self):
        result = run("chain", "dis", EXAMPLES[0], "-o", os.path.join(self.dir.name, "no", "file"))
        self.assertEqual(result.returncode, 1)
        self.assertIn("No such file", result.stderr)

    def test_help_teaches_by_a_program_that_assembles(self):
        text = self.done("--help")
        self.assertIn("Usage: verbena chain asm", text)
        listing = [line for line in text.splitlines() if line.startswith("  ") and "--" not in line]
        listing = listing[[i for i, line in enumerate(listing) if "program hello" in line][0]:]
        listing = [line for line in listing if not line.startswith("  -o")]
        self.assertIn("nop as write", self.done("dis", self.path("help.chain", "\n".join(listing))))

    def test_the_listings_of_the_manual_are_one_program(self):
        with open(os.path.join(ROOT, "docs/chain-text.md"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        blocks = "\n".join(line if line.startswith("    ") else "" for line in lines).split("\n\n")
        starts = ("    program", "    code", "    block", "    receives")
        program = [b.strip("\n") for b in blocks if b.strip("\n").startswith(starts)]
        self.assertEqual(len(program), 4)
        text = self.done("dis", self.path("manual.chain", "\n".join(program) + "\n"))
        self.assertIn("recv -> V.raddr+5:3, scratch:8", text)


if __name__ == "__main__":
    main()
