#!/usr/bin/env python3
"""README.md quotes what the programs print, such as the whole story of ./demo.sh, and names files that exist."""
import os
import re
import shlex
import subprocess
import sys
import tempfile

from support import ROOT, Case, main


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def quoted(text, command):
    """The words that the indented block with this command shows before the timings."""
    block = text.split(f"    $ {command}\n", 1)[1]
    lines = []
    for line in block.splitlines():
        if line and not line.startswith("    ") or line.startswith("    load "):
            break
        lines.append(line.strip())
    return " ".join(lines).split()


class ReadmeTest(Case):
    def test_demo(self):
        script = read("demo.sh").replace("\\\n", " ")
        line = re.search(r"^build/setun (run .*?) 2>", script, re.M).group(1).replace("${1:-Once upon a time}", "Once upon a time")
        story = self.good(*shlex.split(line), cwd=ROOT).decode()
        self.assertEqual(story.split(), quoted(read("README.md"), "./demo.sh"))
        self.assertTrue(story.rstrip().endswith("."))

    def test_the_models_that_it_fetches(self):
        """Without arguments of its own kind the tool fetches nothing: no folder is called --help."""
        tool = os.path.join(ROOT, "tools", "fetch_test_models.py")
        for word, status in (("--help", 0), ("--no-such", 2)):
            with tempfile.TemporaryDirectory() as folder:
                result = subprocess.run([sys.executable, tool, word], cwd=folder, capture_output=True)
                self.assertEqual((result.returncode, os.listdir(folder)), (status, []))

    def test_files(self):
        for name in re.findall(r"\]\(([^)#:]+)\)", read("README.md")):
            with self.subTest(file=name):
                self.assertTrue(os.path.exists(os.path.join(ROOT, name)))


if __name__ == "__main__":
    main()
