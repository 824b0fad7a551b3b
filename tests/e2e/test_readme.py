#!/usr/bin/env python3
"""README.md quotes what the programs print, such as the whole story of ./demo.sh; pages name files and functions that exist."""
import glob
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

    def pages(self):
        for path in ["README.md", "CONTRIBUTING.md", *sorted(glob.glob(os.path.join(ROOT, "docs", "*.md")))]:
            yield os.path.relpath(os.path.join(ROOT, path), ROOT), read(path)

    def test_links(self):
        for page, text in self.pages():
            for name in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
                with self.subTest(page=page, file=name):
                    self.assertTrue(os.path.exists(os.path.join(ROOT, os.path.dirname(page), name)))

    def test_names(self):
        """Files, and functions and constants of the source."""
        folders = ("src", "include", "apps", "tests", "tools", "bench", "examples", "cmake", "python")
        files = [os.path.join(at, name) for folder in folders for at, _, names in os.walk(os.path.join(ROOT, folder)) for name in names]
        code = [path for path in files if path.endswith((".c", ".h", ".def"))]
        names = {os.path.basename(path) for path in files}
        words = {word for path in code for word in re.findall(r"\b(?:st|setun|ST|SETUN)_\w+", read(path))}
        self.assertGreater(len(words), 1000)
        for page, text in self.pages():
            for name in re.findall(r"`(?:\w+/)*([a-z]\w*\.(?:c|h|def|py|sh))`", text):
                with self.subTest(page=page, file=name):
                    self.assertTrue(name in names)
            for name in re.findall(r"`((?:st|setun|ST)_(?!NAME)[a-zA-Z0-9_]+)`", text):
                with self.subTest(page=page, name=name):
                    self.assertTrue(name in words)


if __name__ == "__main__":
    main()
