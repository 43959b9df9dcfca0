#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that every tidy rule can fail: a clean tree passes, and each small sin is found."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import tidy

sys.path.append(str(Path(__file__).resolve().parent.parent))
import judge  # noqa: E402

HEAD = "// SPDX-License-Identifier: Apache-2.0\n// A fixture.\n"
SCRIPT = "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n"
WORD = "TO" + "DO"
CLEAN = {
    "include/verbena/nic.h": HEAD + "#include <stdint.h>\n",
    "include/verbena/kv.h": HEAD + '#include "verbena/nic.h"\n',
    "src/base/bytes.h": HEAD + "struct bytes {\n    int n; // of strcpy()\n};\n",
    "src/base/bytes.c": HEAD + '#include "base/bytes.h"\n\nstatic const int table[] = {1, 2};\n',
    "src/nic/pu.h": HEAD + '#include "verbena/nic.h"\n\nint vb_pu_poll(void);\n',
    "src/nic/pu.c": HEAD + '#include "nic/pu.h"\n#include "base/bytes.h"\n\n'
                    "static int read(int n)\n{\n    return n;\n}\n\n"
                    "int vb_pu_poll(void)\n{\n    return read(1) + ops->write(2);\n}\n",
    "src/port/udp.c": HEAD + '#include <sys/socket.h>\n#include "nic/pu.h"\n\n'
                      "int f(void)\n{\n    return socket(0, 0, 0);\n}\n",
    "src/kv/store.c": HEAD + '#include "verbena/kv.h"\n',
    "src/cli/main.c": HEAD + "static int verbosity;\n",
    "tests/unit/test_pu.c": HEAD + '#include "nic/pu.h"\n',
    "tests/linux/peer_test.sh": SCRIPT,
    "tests/linux/guest.sh": SCRIPT,
    "Makefile": "# SPDX-License-Identifier: Apache-2.0\nx:\n\ttests/linux/guest.sh\n",
    "README.md": "# A fixture\n",
}
SOURCES = [p for p in CLEAN if p.endswith(".c")] + ["tests/linux/peer_test.sh"]
MAN = """.\\" SPDX-License-Identifier: Apache-2.0
.Dd November 1, 2026
.Dt VERBENA 1
.Os
.Sh NAME
.Nm verbena
.Nd a fixture
"""
PATCH = """--- a/README.md
+++ b/README.md
@@ -1 +1 @@
-# A fixture
+# A mutant
"""


def function(lines):
    return "int f(void)\n{\n" + "    ;\n" * (lines - 3) + "}\n"


class TidyTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="tidy.")
        self.addCleanup(shutil.rmtree, self.root)
        for path, text in CLEAN.items():
            self.write(path, text)

    def write(self, path, text):
        full = Path(self.root, path)
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text, encoding="utf-8")

    def findings(self, sources=()):
        return tidy.findings(self.root, SOURCES + list(sources))

    def passes(self, path, text, sources=()):
        self.write(path, text)
        self.assertEqual(self.findings(sources), [])

    def fails(self, path, text, message, sources=()):
        """With that file the tree has exactly one finding, and it holds the message."""
        self.write(path, text)
        found = self.findings(sources)
        self.assertEqual(len(found), 1, found)
        self.assertIn(message, found[0][2])
        self.write(path, CLEAN.get(path, ""))
        if path not in CLEAN:
            os.unlink(Path(self.root, path))

    def test_clean_tree_passes(self):
        self.assertEqual(self.findings(), [])

    def test_lines(self):
        base = CLEAN["src/base/bytes.c"]
        self.passes("src/base/bytes.c", base + "// " + "x" * 97 + "\n")
        self.fails("src/base/bytes.c", base + "// " + "x" * 98 + "\n", "101 columns")
        self.fails("src/base/bytes.c", base + "// \tx\n", "a tab")
        self.fails("README.md", "# A fixture \n", "trailing white space")
        self.fails("README.md", "# A fixture", "one newline")
        self.fails("README.md", "# A fixture\n\n", "one newline")
        self.fails("README.md", f"{WORD}: more\n", "unfinished")
        self.fails("README.md", "See /home" + "/someone/file\n", "path of one machine")
        self.passes("README.md", "See $PREFIX/home/x, todo lists and XXXXXX\n")

    def test_heads(self):
        self.fails("src/base/bytes.h", "// A fixture.\n// and more\n", "first line must be")
        self.fails("src/base/bytes.h", HEAD.split("\n", maxsplit=1)[0] + "\nint x(void);\n",
                   "second line must be")
        self.fails("tests/linux/guest.sh", "#!/bin/sh\n", "none of the first lines")

    def test_function_length(self):
        self.passes("src/port/udp.c", HEAD + function(70))
        self.fails("src/port/udp.c", HEAD + function(71), "f: 71 lines, at most 70")

    def test_ratchet(self):
        self.write(tidy.RATCHET, "# comment\nsrc/port/udp.c f 80\n")
        self.passes("src/port/udp.c", HEAD + function(80))
        self.fails("src/port/udp.c", HEAD + function(81), "grew from 80 to 81")
        self.fails("src/port/udp.c", HEAD + function(79), "lower the entry to 79")
        self.fails("src/port/udp.c", HEAD + function(70), "short enough now")
        self.fails("src/port/udp.c", HEAD, "no longer there")

    def test_calls_banned_everywhere(self):
        for call in ("strcpy(a, b)", "sprintf (a, b)", "strtok(a, b)", "rand()", "random()"):
            body = f"int f(void)\n{{\n    {call};\n}}\n"
            self.fails("src/cli/main.c", HEAD + body, "must not be called")
        self.passes("src/cli/main.c", HEAD + "// gets()\n#define S \"gets()\"\n")
        self.fails("src/cli/main.c", HEAD + "#define G(x) gets(x)\n", "must not be called")

    def test_calls_banned_in_pure_layers(self):
        clock = HEAD + "int f(void)\n{\n    return clock_gettime(0, 0);\n}\n"
        print_ = HEAD + "int f(void)\n{\n    return printf(x);\n}\n"
        self.fails("src/nic/pu.c", clock, "clock_gettime() must not")
        self.fails("src/nic/pu.c", print_, "printf() must not")
        self.fails("src/nic/pu.c", HEAD + "#include <unistd.h>\n", "pure layer")
        self.fails("src/nic/pu.c", HEAD + "int f(void)\n{\n    write(1, a, 2);\n}\n", "write()")
        self.passes("src/nic/pu.c", HEAD + "#include <string.h>\n")
        base = '#include "base/bytes.h"\n'
        self.fails("src/base/bytes.c", clock + base, "clock_gettime() must not")
        self.passes("src/base/bytes.c", print_ + base)
        self.passes("src/port/udp.c", clock)

    def test_sleeps_and_skips(self):
        for sin in ("usleep(5)", "nanosleep(&t, NULL)", "(void)poll(NULL, 0, 5)"):
            body = f"void f(void)\n{{\n    {sin};\n}}\n"
            self.fails("tests/unit/test_pu.c", HEAD + body, "a sleep in a test")
            self.passes("src/port/udp.c", HEAD + body)
            self.passes("tests/unit/test_pu.c", HEAD + body.replace(";", "; // no end is the claim"))
        body = "void f(void)\n{\n    skip();\n}\n"
        self.fails("tests/unit/test_pu.c", HEAD + body, "skip() is silent")
        self.passes("tests/unit/test_pu.c", HEAD + body.replace("skip()", 'SKIP("no root")'))

    def test_global_state(self):
        for sin in ("static int n;\n", "int n = 1;\n", "static const char *p;\n",
                    "static struct {\n    int a;\n} s;\n", "static int (*hook)(void);\n",
                    "static _Thread_local int t;\n", "static int a[2] = {1, 2};\n",
                    "int f(void)\n{\n    static int n;\n    return n;\n}\n"):
            self.fails("src/port/udp.c", HEAD + sin, "global mutable state")
        for fine in ("static const char *const p = 0;\n", "typedef int n;\n", "struct s;\n",
                     "enum e {\n    A,\n};\n", "int f(int n);\n", "static_assert(1, x);\n",
                     "extern int f(int (*g)(int));\n", "static const int a[] = {1, 2};\n",
                     "struct s {\n    int n;\n} __attribute__((aligned(64)));\n",
                     "int f(void)\n{\n    static const int n = 1;\n    return n;\n}\n"):
            self.passes("src/port/udp.c", HEAD + fine)

    def test_layers(self):
        up = "points upwards"
        self.fails("src/base/bytes.c", CLEAN["src/base/bytes.c"] + '#include "nic/pu.h"\n', up)
        self.fails("src/base/bytes.c", CLEAN["src/base/bytes.c"] + '#include "../nic/pu.h"\n', up)
        self.fails("include/verbena/nic.h", HEAD + '#include "base/bytes.h"\n', up)
        self.fails("src/kv/store.c", CLEAN["src/kv/store.c"] + '#include "nic/pu.h"\n',
                   "public headers only")
        self.fails("src/port/udp.c", HEAD + '#include "nic/gone.h"\n', "does not exist")
        self.fails("src/misc/x.c", HEAD, "not a layer", ["src/misc/x.c"])
        self.passes("src/cli/main.c", HEAD + '#include "nic/pu.h"\n#include "verbena_config.h"\n')

    def test_dead_files(self):
        self.fails("src/nic/qp.c", HEAD, "the build does not know it")
        self.fails("src/nic/qp.h", HEAD, "nobody includes it")
        self.fails("src/nic/qp.h", HEAD + '#include "nic/qp.h"\n', "nobody includes it")
        self.fails("tests/linux/more_test.sh", SCRIPT, "not registered")
        self.fails("scripts/old.sh", SCRIPT, "nobody mentions it")
        self.passes("src/nic/qp.c", HEAD, ["src/nic/qp.c"])

    @judge.needs(tools=("mandoc",))
    def test_manual_page(self):
        body = MAN + ".Sh DESCRIPTION\nText.\n"
        self.passes("docs/man/verbena.1", body)
        self.fails("docs/man/verbena.1", body + ".Fo\n", "verbena.1")

    def test_mutants_apply(self):
        self.passes("sim/mutants/a.patch", PATCH)
        self.fails("sim/mutants/a.patch", PATCH.replace("-# A", "-# B"), "does not apply")
        self.fails("sim/mutants/chain/a.patch", PATCH.replace("-# A", "-# B"), "does not apply")

    def test_excuses(self):
        model = HEAD + '#include "sim/excuse.h"\n\nconst int excuse = VB_EXCUSE_LATE;\n'
        more = ["sim/model.c"]
        self.write("sim/excuse.h", HEAD + '#define VB_EXCUSES(X) X(LATE, "a timer")\n')
        self.write("sim/model.c", model)
        self.passes("sim/EXCUSES.md", "| `LATE` | why |\n", more)
        self.fails("sim/EXCUSES.md", "none\n", "lists the excuse LATE 0 times", more)
        self.fails("sim/EXCUSES.md", "| `LATE` | |\n| `EARLY` | |\n", "no excuse", more)
        self.write("sim/EXCUSES.md", "| `LATE` | why |\n")
        self.fails("sim/model.c", model.replace("LATE", "NONE"), "nothing counts", more)

    def test_command(self):
        """The program itself prints the finding and exits with 1, and with 0 when clean."""
        listing = Path(self.root, "sources.txt")
        listing.write_text("\n".join(SOURCES), encoding="utf-8")
        command = [tidy.__file__, self.root, str(listing)]
        good = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual((good.returncode, good.stdout), (0, "tidy: 0 findings\n"))
        self.write("README.md", "# A fixture \n")
        bad = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(bad.returncode, 1)
        self.assertIn("README.md:1: trailing white space\n", bad.stdout)


if __name__ == "__main__":
    judge.run_cases(sys.argv[1:])
