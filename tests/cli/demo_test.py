#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The demonstration: every verb both ways, a table, and the way on."""

import unittest

from command import main, run


class Demo(unittest.TestCase):
    def test_demo(self):
        done = run("demo")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count(" ok"), 24, done.stdout)
        self.assertNotIn("WRONG", done.stdout)
        for row in ("read", "write", "send"):
            self.assertRegex(done.stdout, rf"(?m)^{row} +udp ")
        self.assertIn("Try next", done.stdout)


if __name__ == "__main__":
    main()
