#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The generator and the runner of mutants: each operator, each verdict, and a tree with a bug of each."""

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "sim" / "mutants"))

import judges  # noqa: E402
import mutants  # noqa: E402
import overlay  # noqa: E402
import source  # noqa: E402


def one(body, head="static int f(int a, int b)\n"):
    return source.functions_of("x.c", f"{head}{{\n{body}}}\n")[0]


def outcomes(body):
    """(operator, text after it) of every change to a function with this body."""
    f = one(body)
    return {(c.operator, source.changed_body(f, c)[2:-2]) for _, changes in source.sites_of(f)
            for c in changes}


class OperatorTest(unittest.TestCase):
    def changes(self, body, operator, *expected):
        found = {text for name, text in outcomes(body) if name == operator}
        self.assertEqual(found, {f"{text}" for text in expected})

    def test_compare(self):
        self.changes("    return a < b;\n", "compare", "    return a <= b;\n", "    return a >= b;\n")
        self.changes("    return a == b;\n", "compare", "    return a != b;\n")

    def test_logic(self):
        self.changes("    return a && b;\n", "logic", "    return a || b;\n")

    def test_arithmetic_is_binary(self):
        self.changes("    return a - b;\n", "arithmetic", "    return a + b;\n")
        self.changes("    return -a;\n", "arithmetic")
        self.changes("    int *p = &a;\n", "arithmetic")
        self.changes("    return a & b;\n", "arithmetic", "    return a | b;\n")

    def test_assign(self):
        self.changes("    a += b;\n", "assign", "    a -= b;\n", "    a = b;\n")
        self.changes("    a++;\n", "assign", "    a--;\n")

    def test_truth(self):
        self.changes("    return true;\n", "truth", "    return false;\n")

    def test_constant(self):
        self.changes("    return 7u;\n", "constant", "    return 8u;\n", "    return 6u;\n")
        self.changes("    return 0;\n", "constant", "    return 1;\n")
        self.changes("    return 0x10;\n", "constant", "    return 0x11;\n", "    return 0xf;\n")
        self.changes("    return 1.5;\n", "constant")

    def test_negate(self):
        self.changes("    if (a)\n        b();\n", "negate", "    if (!(a))\n        b();\n")
        self.changes("    return !a;\n", "negate", "    return a;\n")

    def test_delete(self):
        self.changes("    a = b;\n    return a;\n", "delete", "    ;\n    return a;\n",
                     "    a = b;\n    ;\n")
        self.changes("    if (a)\n        g(a, b);\n", "delete", "    if (a)\n        ;\n")
        self.changes("    switch (a) {\n    case 1: b(); break;\n    }\n", "delete",
                     "    switch (a) {\n    case 1: ; break;\n    }\n",
                     "    switch (a) {\n    case 1: b(); ;\n    }\n")

    def test_delete_spares(self):
        for body in ("    for (a; b; c) {\n    }\n", "    int c = 1;\n", "    struct x *c;\n",
                     "    struct x y = {a, b};\n", "out:\n    ;\n", "    uint8_t *c = d;\n"):
            self.changes(body, "delete")
        self.changes("    x = a ? b : c;\n", "delete", "    ;\n")

    def test_assertions_are_judges(self):
        self.assertEqual(outcomes("    assert(a < 1 && !b);\n"), set())

    def test_strings_and_comments_stay(self):
        self.assertEqual(outcomes('    // a < 1\n    const char *c = "a < 1"; /* 2 */\n#if 1 < 2\n#endif\n'),
                         set())

    def test_same_changes_nothing(self):
        f = one("    return a;\n")
        self.assertEqual(source.changed_body(f, source.Change("same", 0, 0)), f.body)
        self.assertNotIn("same", {name for name, _ in outcomes("    return a < 1;\n")})


class FunctionTest(unittest.TestCase):
    TEXT = ("// A file.\nstruct s {\n    int n;\n};\n\nstatic const int t[] = {\n    1,\n};\n\n"
            "#define M(x)   \\\n    (x)\n\n"
            "static inline uint32_t first(const struct s *p,\n                            int n[2])\n"
            "{\n    if (n[0]) {\n        return 1;\n    }\n    return 0;\n}\n\n"
            "__attribute__((format(printf, 1, 2))) void second(const char *f, ...)\n{\n}\n"
            "#if A\nvoid third(void)\n{\n}\n#else\nvoid third(void)\n{\n    first(0, 0);\n}\n#endif\n")

    def test_functions(self):
        found = source.functions_of("x.h", self.TEXT)
        self.assertEqual([f.key for f in found], ["first", "second", "third", "third#1"])
        for f in found:
            self.assertEqual(self.TEXT[f.start:f.end], f.text)

    def test_parameters(self):
        heads = {"int f(void)\n": [], "int f(int a, struct s *b)\n": ["a", "b"],
                 "void f(void (*go)(void *ctx, int n), uint64_t v[4])\n": ["go", "v"],
                 "int f(const char *const *list, unsigned __int128 n)\n": ["list", "n"],
                 "int f(const char *format, ...)\n": None}
        for head, names in heads.items():
            self.assertEqual(source.parameters_of(head), names)

    def test_twins(self):
        for head in ("static int f(int a)\n", "ALWAYS_INLINE int f(int a)\n", "int f(int a)\n"):
            self.assertEqual(overlay.twin_head(head, "f", "g"),
                             "static __attribute__((unused)) int g(int a)\n")

    def test_digest_follows_the_text(self):
        self.assertNotEqual(one("    a = 1;\n").digest, one("    a = 2;\n").digest)
        self.assertEqual(one("    a = 1;\n").digest, one("    a = 1;\n").digest)

    def test_patch_inside_functions(self):
        new = self.TEXT.replace("return 1", "return 2").replace("first(0, 0)", "first(0, 1)")
        self.assertEqual(set(mutants.bodies_of("x.h", self.TEXT, new)),
                         {("x.h", "first"), ("x.h", "third#1")})

    def test_patch_that_needs_its_own_build(self):
        for old, new in (("int n;", "long n;"), ("    1,\n", "    2,\n"), ("int n[2]", "int n[3]"),
                         ("(x)\n", "(x + 1)\n"), (", ...)\n{\n", ", ...)\n{\n    return;\n")):
            self.assertIsNone(mutants.bodies_of("x.h", self.TEXT, self.TEXT.replace(old, new)))


class VerdictTest(unittest.TestCase):
    def test_verdicts(self):
        cases = (
            (0, "", "survived"),
            (1, "seed 3: VIOLATION at event 1, 2 ns\n  a frame is lost\n", "judge"),
            (1, "[  ERROR   ] --- 1 != 2\n[  FAILED  ] test_a\n", "judge"),
            (23, "SUMMARY: LeakSanitizer: 8 byte(s) leaked in 1 allocation(s).\n", "judge"),
            (-6, "p: /r/src/nic/pu.c:9: f: Assertion `a' failed.\n", "assert"),
            (1, "p: /r/src/nic/pu.c:9: f: Assertion `a' failed.\n"
                "seed 1: VIOLATION at event 0, 0 ns\n  the simulator crashed: Aborted\n", "assert"),
            (-11, "", "crash"),
            (1, "Test failed with exception: Segmentation fault(11)\n[  FAILED  ] test_a\n", "crash"),
            (1, "[  ERROR   ] --- 1 != 2\n[  FAILED  ] test_a (udp)\n", "judge"),
            (255, "[  FAILED  ] GROUP SETUP\n[  ERROR   ] tests\n", "judge"),
            (2, "verbena sim: unknown option '--seed'\n", "crash"),
            (1, "verbena sim: out of memory\n", "crash"),
            (1, "", "crash"),
            (-6, "p: /r/tests/unit/a.c:9: f: Assertion `a' failed.\n", "crash"),
            (-24, "", "timeout"),
            (1, "seed 1: VIOLATION at event 0, 0 ns\n"
                "  the simulator crashed: CPU time limit exceeded\n", "timeout"),
        )
        for status, output, verdict in cases:
            self.assertEqual(judges.classify(status, output)[0], verdict, output)

    def test_what_cannot_run_is_no_verdict(self):
        with self.assertRaises(OSError):
            judges.run_judge(judges.Judge("test_a"), "/no/such/program", 1, 5)

    def test_ranges_of_seeds_are_complete(self):
        seen = []
        for judge in judges.seed_judges(200):
            start, count = (int(judge.arguments[i]) for i in (4, 6))
            seen += range(start, start + count)
        self.assertEqual(seen, list(range(1, 201)))


HEAD = "// SPDX-License-Identifier: Apache-2.0\n// A fixture.\n"
SMALL = {
    "CMakeLists.txt": """
cmake_minimum_required(VERSION 3.22)
project(small C)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
add_compile_definitions(_GNU_SOURCE)
include_directories(src)
add_library(libverbena STATIC src/base/sum.c)
add_executable(verbena src/cli/main.c)
add_executable(test_sum tests/unit/test_sum.c)
target_link_libraries(verbena libverbena)
target_link_libraries(test_sum libverbena)
""",
    "src/base/sum.h": HEAD + """#include <assert.h>
#include <stdlib.h>
static inline int twice(int n)
{
    return n * 2;
}

int sum_to(int n);
int loop(int n);
int fail(int n);
void keep(void);
""",
    "src/base/sum.c": HEAD + """#include "base/sum.h"
#define FIRST 0

int sum_to(int n)
{
    int sum = FIRST;
    for (int i = 1; i <= n; i++)
        sum += i;
    return sum;
}

int loop(int n)
{
    while (n > 0)
        n--;
    return n;
}

int fail(int n)
{
    int limit = 4;
    assert(n < limit);
    return n;
}

void keep(void)
{
    void *volatile p = malloc(8);
    free(p);
}
""",
    "src/cli/main.c": HEAD + """#include "base/sum.h"
#include <stdio.h>
int main(void)
{
    if (loop(3) == 0)
        return 0;
    puts("seed 1: VIOLATION at event 1, 1 ns\\n  a loop ends early");
    return 1;
}
""",
    "tests/unit/test_sum.c": HEAD + """#include "base/sum.h"
#include <stdio.h>
int main(int argc, char **argv)
{
    (void)argv;
    for (int i = 0; i < 8; i++)
        keep();
    if (argc == 1 && sum_to(3) == 6 && twice(3) == 6 && fail(3) == 3)
        return 0;
    puts("[  FAILED  ] test_sum");
    return 1;
}
""",
    "patches/01-sum.patch": """The sum begins late.

--- a/src/base/sum.c
+++ b/src/base/sum.c
@@ -7,3 +7,3 @@
     int sum = FIRST;
-    for (int i = 1; i <= n; i++)
+    for (int i = 2; i <= n; i++)
         sum += i;
""",
    "patches/03-macro.patch": """Sums are too big, by a build of its own.

--- a/src/base/sum.c
+++ b/src/base/sum.c
@@ -3,3 +3,3 @@
 #include "base/sum.h"
-#define FIRST 0
+#define FIRST 1

""",
    "patches/04-crash.patch": """The sum ends the program.

--- a/src/base/sum.c
+++ b/src/base/sum.c
@@ -7,3 +7,3 @@
     int sum = FIRST;
-    for (int i = 1; i <= n; i++)
+    for (int i = 1; i <= n; abort())
         sum += i;
""",
    "patches/02-same.patch": """The sum begins with a summand of 0.

--- a/src/base/sum.c
+++ b/src/base/sum.c
@@ -7,3 +7,3 @@
     int sum = FIRST;
-    for (int i = 1; i <= n; i++)
+    for (int i = 0; i <= n; i++)
         sum += i;
""",
}


class TreeTest(unittest.TestCase):
    """A small tree from end to end."""

    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory(prefix="mutants.")
        cls.root = Path(cls.place.name)
        for path, text in SMALL.items():
            (cls.root / path).parent.mkdir(parents=True, exist_ok=True)
            (cls.root / path).write_text(text, encoding="utf-8")
        subprocess.run(["cmake", "-G", "Ninja", "-S", cls.root, "-B", cls.root / "build"], check=True,
                       capture_output=True)
        subprocess.run(["ninja", "-C", cls.root / "build"], check=True, capture_output=True)
        cls.before = mutants.ROOT, mutants.SETS
        mutants.ROOT = cls.root
        mutants.SETS = {"core": cls.root / "patches"}

    @classmethod
    def tearDownClass(cls):
        mutants.ROOT, mutants.SETS = cls.before
        cls.place.cleanup()

    def run_main(self, *arguments):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            status = mutants.main([*arguments, "--build", str(self.root / "build"), "--seeds", "8"])
        return status, out.getvalue()

    def change(self, path, key, operator, text):
        """The change of a function by an operator at the first token of that text."""
        f = next(f for f in mutants.all_functions(self.root, ("base",)) if (f.path, f.key) == (path, key))
        found = [c for i, changes in source.sites_of(f) for c in changes
                 if f.tokens[i].text == text and c.operator == operator]
        return f, found[0] if found else source.Change(operator, 0, 0)

    def test_verdicts_of_one_build(self):
        wanted = (("src/base/sum.c", "sum_to", "compare", "<=", "judge"),
                  ("src/base/sum.h", "twice", "arithmetic", "*", "judge"),
                  ("src/base/sum.c", "fail", "constant", "4", "survived"),  # variant 0: one more
                  ("src/base/sum.c", "loop", "delete", "n", "timeout"),
                  ("src/base/sum.c", "keep", "delete", "free", "judge"),
                  ("src/base/sum.c", "sum_to", "same", "{", "survived"))
        planted = []
        for number, (path, key, operator, text, _) in enumerate(wanted, 1):
            planted.append(mutants.mutant_of(*self.change(path, key, operator, text)))
            planted[-1].number = number
        planted.append(overlay.Mutant("no C", "base", {("src/base/sum.c", "loop"): "{\n    nothing\n}\n"}))
        planted[-1].number = 7
        f, change = self.change("src/base/sum.c", "fail", "constant", "4")
        planted.append(mutants.mutant_of(f, source.Change("constant", change.token, 1)))
        planted[-1].number = 8
        tree = overlay.Tree(self.root, self.root / "build")
        with tempfile.TemporaryDirectory(prefix="mutants.") as place:
            court = mutants.Court(mutants.parse([]), tree, place, judges.judges_for(self.root, "any", 8))
            court.overlay.build(planted)
            self.assertEqual(court.overlay.dropped, {7})
            court.rehearse()
            found = [court.try_mutant(m)[1].verdict for m in planted if m.number != 7]
        self.assertEqual(found, [verdict for *_, verdict in wanted] + ["assert"])

    def test_draw_is_the_same_in_parts(self):
        whole = mutants.Draw(self.root, ("base",), 9, "a")
        again = mutants.Draw(self.root, ("base",), 9, "a")
        other = mutants.Draw(self.root, ("base",), 9, "b")
        names = [whole.mutant(i).name for i in range(9)]
        self.assertEqual(names, [again.mutant(i).name for i in range(9)])
        self.assertNotEqual(names, [other.mutant(i).name for i in range(9)])
        whole.tries[3] = 1
        self.assertEqual([whole.mutant(i).name for i in (2, 4)], [names[2], names[4]])
        self.assertNotIn(whole.mutant(3).name, names)

    def test_draw_of_more_than_there_is(self):
        with self.assertRaises(ValueError):
            mutants.Draw(self.root, ("base",), 1000, "a")

    def test_draw_keeps_its_results(self):
        with tempfile.NamedTemporaryFile() as out:
            arguments = ("--draw", "9", "--layer", "base", "--seed", "a", "--json", out.name)
            status, text = self.run_main(*arguments, "--part", "1/2")
            self.assertEqual((status, len(json.loads(Path(out.name).read_text()))), (0, 5), text)
            status, text = self.run_main(*arguments)
            rows = json.loads(Path(out.name).read_text())
        self.assertEqual((status, len(rows)), (0, 9), text)
        self.assertEqual(self.run_main(*arguments[:-2], "--least", "1.0")[0],
                         int("survived" in {r["verdict"] for r in rows}))
        self.assertEqual(self.run_main(*arguments[:-2], "--least", "0.0")[0], 0)
        self.assertIn("judge", {r["verdict"] for r in rows})
        for row in rows:
            if row["verdict"] == "survived":
                self.assertIn(f"--seed a --layer base --only {row['label']}", text)

    def replay(self, *entries, count="1"):
        known = self.root / "known.txt"
        known.write_text("# A list.\n" + "".join(f"{e}\n" for e in entries), encoding="utf-8")
        return self.run_main("--replay", "--seed", "a", "--count", count, "--known", str(known))

    def entry(self, digest=None, operator="compare", text="<="):
        f, change = self.change("src/base/sum.c", "sum_to", operator, text)
        return f"drawn {f.path} {f.key} {digest or f.digest} {operator}:{change.token}:0 test_sum"

    def test_replay_of_what_is_caught(self):
        status, text = self.replay("patch core 01-sum test_sum", self.entry())
        self.assertEqual(status, 0, text)

    def test_replay_fails_by_an_equal_mutant(self):
        status, text = self.replay("patch core 01-sum test_sum", self.entry(None, "same", "{"))
        self.assertEqual(status, 1, text)
        self.assertIn("survived", text)

    def test_replay_passes_over_a_changed_function(self):
        status, text = self.replay("patch core 01-sum test_sum", self.entry("0" * 12))
        self.assertEqual(status, 2, text)
        self.assertIn("drawn: 0 of 1 known mutants can be replayed", text)

    def test_replay_needs_a_judge_that_passes_without_the_mutant(self):
        status, text = self.replay("patch core 01-sum test_sum", self.entry() + " always-red")
        self.assertEqual(status, 2, text)
        self.assertIn("test_sum always-red fails without a mutant", text)

    def test_replay_asks_the_named_judge_alone(self):
        status, text = self.replay("patch core 01-sum sim --jobs 1 --start 1 --seeds 8", self.entry())
        self.assertEqual(status, 1, text)
        self.assertRegex(text, r"1 survived +sim --jobs 1 --start 1 --seeds 8")

    def test_replay_draws_what_is_quick(self):
        for entry in ("03-macro test_sum", "01-sum sim --jobs 1 --start 1 --seeds 128"):
            status, text = self.replay(f"patch core {entry}", self.entry())
            self.assertEqual(status, 2, text)
            self.assertIn("0 of 1: write", text)

    def test_replay_of_all(self):
        entries = ["patch core 01-sum test_sum", "patch core 03-macro test_sum", self.entry(),
                   self.entry(operator="assign", text="+=")]
        status, text = self.replay(*entries, count="all")
        self.assertEqual(status, 0, text)
        self.assertRegex(text, r"4: 03-macro\n")
        for stale in (self.entry("0" * 12), "patch core 00-gone test_sum"):
            status, text = self.replay(*entries, stale, count="all")
            self.assertEqual(status, 2, text)
            self.assertIn("2 of 3 known mutants can be replayed", text)

    def test_keep_lists_each_caught_patch_and_drops_what_is_stale(self):
        known = self.root / "kept.txt"
        known.write_text("\n".join((self.entry(), self.entry("0" * 12), "patch core 00-gone test_sum",
                                    "patch core 01-sum sim")), encoding="utf-8")
        status, text = self.run_main("--set", "core", "--keep", "--known", str(known))
        self.assertEqual(status, 1, text)  # 02-same
        self.assertEqual(known.read_text(encoding="utf-8").splitlines()[1:],
                         [self.entry(), "patch core 01-sum test_sum", "patch core 03-macro test_sum",
                          "patch core 04-crash test_sum"])

    def test_patch(self):
        patch = self.root / "patches/01-sum.patch"
        self.assertEqual(set(mutants.hand_written(self.root, patch, "core").bodies),
                         {("src/base/sum.c", "sum_to")})
        # The simulator of this tree does not add, but a unit test does.
        status, text = self.run_main("--set", "core", "01-sum")
        self.assertEqual(status, 0, text)
        self.assertRegex(text, r"01-sum +judge +test_sum")
        status, text = self.run_main("--set", "core")
        self.assertEqual(status, 1, text)
        self.assertRegex(text, r"02-same +survived")
        self.assertEqual(self.run_main("no-such")[0], 2)


if __name__ == "__main__":
    unittest.main()
