#!/usr/bin/env python3
"""`run` and `chat` with --json-schema, --regex and --grammar."""
import json
import os
import re
import tempfile

from support import TALES, Case, main, setun

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 1, "maximum": 99}},
          "required": ["name", "age"], "additionalProperties": False}


class ConstraintTest(Case):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def run_text(self, *args):
        return setun("run", TALES, "-p", "Once", "--no-echo", *args).stdout.decode()[:-1]

    def test_schema(self):
        path = self.file("s.json", json.dumps(SCHEMA))
        for seed in range(3):
            value = json.loads(self.run_text("--json-schema", path, "--temp", 2, "--seed", seed))
            self.assertTrue(set(value) == {"name", "age"} and len(value["name"]) <= 8 and 1 <= value["age"] <= 99, value)
            drafted = self.run_text("--json-schema", path, "--temp", 2, "--seed", seed, "--draft", "ngram")
            self.assertEqual(json.loads(drafted), value)

    def test_expressions_and_grammars(self):
        gbnf, lark = self.file("g.gbnf", 'root ::= ("yes" | "no") " " [0-9]{2}\n'), self.file("g.lark", 'start: ("yes" | "no") " " /[0-9]{2}/\n')
        for args in (("--regex", "(yes|no) [0-9]{2}"), ("--grammar", gbnf), ("--grammar", lark)):
            self.assertRegex(self.run_text(*args, "--seed", 1), r"^(yes|no) [0-9]{2}$")

    def test_text_that_must_follow_costs_no_pass(self):
        r = json.loads(setun("run", TALES, "-p", "Once", "--regex", "a tale of two cats and a dog", "--json").stdout)
        self.assertEqual((r["text"], r["stop_reason"], r["timings"]["decode_tokens"]), ("a tale of two cats and a dog", "token", 0))
        want = json.loads(setun("tokenize", TALES, "-p", "a tale of two cats and a dog", "--ids").stdout)
        self.assertEqual(r["ids"][:-1], want, "as the tokenizer writes it")

    def test_a_conversation(self):
        template = self.file("t.jinja", "{{ bos_token }}{% for m in messages %}{{ m.content }} {% endfor %}")
        out = setun("chat", TALES, "--template", template, "--regex", "[a-z]{3}[.]", stdin=b"Once\nupon\n").stdout.decode()
        self.assertEqual(len(re.findall(r"^[a-z]{3}\.$", out, re.M)), 2, out)

    def test_refusals(self):
        bad = self.file("b.json", '{"type": "nothing"}')
        self.fails(1, "run", TALES, "-p", "a", "--json-schema", bad, mentions=["b.json", "type"])
        self.fails(1, "run", TALES, "-p", "a", "--regex", "(a", mentions=["--regex"])
        self.fails(1, "run", TALES, "-p", "a", "--grammar", self.file("x.gbnf", "root ::= nowhere"), mentions=["nowhere"])
        self.fails(2, "run", TALES, "-p", "a", "--regex", "a", "--json-schema", bad, mentions=["exclude"])
        self.fails(2, "run", TALES, "-p", "a", "--regex", "a", "--ignore-eos", mentions=["--ignore-eos"])
        self.fails(1, "run", TALES, "-p", "a", "--json-schema", "/no/such/file", mentions=["/no/such/file"])


if __name__ == "__main__":
    main()
