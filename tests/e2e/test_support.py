#!/usr/bin/env python3
"""The exit status of the end-to-end tests themselves: a file whose tests are all skipped must not count as passed."""
import os
import subprocess
import sys
import unittest

from support import main

HERE = os.path.dirname(os.path.abspath(__file__))
HEAD = "import unittest\nfrom support import main\n"
SKIPPED_CLASS = """
class Absent(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise unittest.SkipTest("no model")
    def test_one(self):
        pass
    def test_two(self):
        pass
"""
SKIPPED_TEST = """
class Part(unittest.TestCase):
    def test_one(self):
        self.skipTest("not here")
"""
PASSED = """
class Present(unittest.TestCase):
    def test_one(self):
        pass
"""
FAILED = """
class Wrong(unittest.TestCase):
    def test_one(self):
        self.fail("wrong")
"""
SKIPPED_MODULE = """
def setUpModule():
    raise unittest.SkipTest("no models")
"""


class StatusTest(unittest.TestCase):
    def status(self, *parts):
        text = HEAD + "".join(parts) + "main()\n"
        return subprocess.run([sys.executable, "-B", "-c", text], cwd=HERE, capture_output=True, timeout=60).returncode

    def test_all_skipped(self):
        for parts in ([SKIPPED_CLASS], [SKIPPED_TEST], [SKIPPED_CLASS, SKIPPED_TEST], [SKIPPED_MODULE, PASSED]):
            with self.subTest(parts=parts):
                self.assertEqual(self.status(*parts), 77)

    def test_some_ran(self):
        self.assertEqual(self.status(PASSED), 0)
        self.assertEqual(self.status(SKIPPED_CLASS, PASSED), 0)
        self.assertEqual(self.status(SKIPPED_TEST, PASSED), 0)

    def test_failed_or_nothing_there(self):
        self.assertEqual(self.status(FAILED, SKIPPED_CLASS), 1)
        self.assertEqual(self.status(), 1)


if __name__ == "__main__":
    main()
