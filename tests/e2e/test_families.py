#!/usr/bin/env python3
"""Every family that the library knows is listed in the docs, references and tests. Nothing is listed here."""
import json
import os
import re
import tempfile

import gguf
import test_facts
from support import GOLDEN, ROOT, Case, main, setun


def text_of(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


class FamiliesTest(Case):
    @classmethod
    def setUpClass(cls):
        """The names that files may have, from the error for one that is not known; and the specs' own."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "unknown.gguf")
            gguf.edit(os.path.join(GOLDEN, "gguf", "llama3.gguf"), path, {"general.architecture": "no-such-family"})
            cls.architectures = cls.expected(setun("plan", path))
            with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
                json.dump({"model_type": "no-such-family"}, file)
            os.symlink(os.path.join(GOLDEN, "hf", "llama3", "model.safetensors"), os.path.join(folder, "model.safetensors"))
            cls.model_types = cls.expected(setun("plan", folder))
        arch = os.path.join(ROOT, "src", "model", "arch")
        cls.specs = {}  # name: file
        for file in sorted(os.listdir(arch)):
            for name in re.findall(r'^    \.name = "(.*)",$', text_of("src", "model", "arch", file), re.MULTILINE):
                cls.specs[name] = file
        # The rows of docs/families.md: title, model types, architectures, file.
        cells = [[cell.strip() for cell in line.split("|")[1:-1]]
                 for line in text_of("docs", "families.md").splitlines() if line.startswith("| ")]
        cls.rows = [row for row in cells if len(row) > 3 and re.fullmatch(r"`\w+\.c`", row[3])]

    @staticmethod
    def expected(result):
        found = re.search(r"expected one of (.*), found", result.stderr.decode())
        return set(found[1].split(", "))

    def test_all_are_seen(self):
        self.assertEqual(len(self.specs), text_of("src", "model", "arch", "archs.def").count("\nARCH("))
        self.assertIn("llama", self.architectures & self.model_types)

    def test_docs(self):
        named = [set(re.findall(r"`(.*?)`", " ".join(row[i] for row in self.rows))) for i in (1, 2, 3)]
        self.assertEqual(named[0], self.model_types)
        self.assertEqual(named[1], self.architectures)
        self.assertEqual(named[2], set(self.specs.values()))

    def test_readme(self):
        row = next(line for line in text_of("README.md").splitlines() if line.startswith("| families |"))
        for title, *_ in self.rows:
            self.assertIn(title, row)

    def test_facts(self):
        """Each is tested with the table of facts, in the containers that it has."""
        self.assertEqual(set(test_facts.FAMILIES), set(self.specs))

    def test_references(self):
        """Each has reference numbers; tests/model/families.c compares all there are."""
        types = set()
        for kind in ("hf", "numpy"):
            for name in os.listdir(os.path.join(GOLDEN, kind)):
                folder = os.path.join(GOLDEN, kind, name)
                if os.path.exists(os.path.join(folder, "golden.safetensors")):
                    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
                        types.add(json.load(file)["model_type"])
        for name, (directory, _) in test_facts.FAMILIES.items():
            if directory:
                with open(os.path.join(GOLDEN, directory, "config.json"), encoding="utf-8") as file:
                    self.assertIn(json.load(file)["model_type"], types, name)


if __name__ == "__main__":
    main()
