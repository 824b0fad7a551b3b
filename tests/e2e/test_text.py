#!/usr/bin/env python3
"""`setun tokenize` and `setun detokenize` on the small model of the repository."""
import json
import os
import pty
import shutil
import subprocess
import tempfile

from support import COMMAND, TALES, Case, main

TEXTS = ["Once upon a time", "  two  spaces ", "line\nline\n\n", "caf\u00e9 \u65e5\u672c\u8a9e \U0001f642", "\t", " ", "a",
         "don't 12345 !!??", "\u0000x", "\r\n", "e\u0301"]


class TokenizeTest(Case):
    def ids(self, text, *args):
        return json.loads(self.good("tokenize", TALES, "--ids", *args, stdin=text.encode()))

    def test_decoding_an_encoding_gives_the_text_back(self):
        for text in TEXTS:
            with self.subTest(text=text):
                ids = self.ids(text)
                self.assertEqual(self.good("detokenize", TALES, stdin=json.dumps(ids).encode()), text.encode())
                self.assertEqual(self.good("detokenize", TALES, *ids), text.encode())
                self.assertEqual(self.good("detokenize", TALES, ",".join(map(str, ids))), text.encode())

    def test_the_ways_to_give_a_text(self):
        want = self.ids("a fox")
        self.assertEqual(json.loads(self.good("tokenize", TALES, "--ids", "-p", "a fox")), want)
        self.assertEqual(json.loads(self.good("tokenize", TALES, "--ids", "-f", "-", stdin=b"a fox")), want)
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"a fox")
            file.flush()
            self.assertEqual(json.loads(self.good("tokenize", TALES, "--ids", "-f", file.name)), want)

    def test_bos_only_when_asked(self):
        self.assertEqual(self.ids("a fox", "--bos"), [0] + self.ids("a fox"))
        self.assertEqual(self.ids("", "--bos"), [0])
        self.assertEqual(self.ids(""), [])
        self.assertEqual(self.ids("<|begin_of_text|>a", "--bos", "--special"), [0] + self.ids("a"))

    def test_control_tokens_only_when_asked(self):
        text = "a<|end_of_text|>b"
        self.assertNotIn(1, self.ids(text))
        self.assertEqual(self.ids(text, "--special"), self.ids("a") + [1] + self.ids("b"))

    def test_table_and_json_hold_the_same(self):
        text = 'The "caf\u00e9"\n'
        values = json.loads(self.good("tokenize", TALES, "--json", stdin=text.encode()))
        self.assertEqual([value["id"] for value in values], self.ids(text))
        self.assertEqual("".join(value["text"] for value in values), text)
        table = self.good("tokenize", TALES, stdin=text.encode()).decode().splitlines()
        self.assertEqual([(int(id), json.loads(piece)) for id, piece in (line.split(maxsplit=1) for line in table)],
                         [(value["id"], value["text"]) for value in values])
        self.assertEqual(json.loads(self.good("tokenize", TALES, "--json", stdin=b"")), [])

    def test_long_text(self):
        text = "A fox and a bell went to the lake. " * 20000
        ids = self.ids(text)
        self.assertEqual(self.good("detokenize", TALES, stdin=json.dumps(ids).encode()).decode(), text)


class TokenizerAloneTest(Case):
    """A directory that has nothing but tokenizer files, and tokenizer.json itself."""

    def test_without_config_and_weights(self):
        want = json.loads(self.good("tokenize", TALES, "--ids", "-p", "a fox"))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tokenizer.json")
            shutil.copy(os.path.join(TALES, "tokenizer.json"), path)
            for model in (folder, path):
                with self.subTest(model=model):
                    self.assertEqual(json.loads(self.good("tokenize", model, "--ids", "-p", "a fox")), want)
                    self.assertEqual(self.good("detokenize", model, *want), b"a fox")
            shutil.copy(os.path.join(TALES, "config.json"), folder)
            self.assertEqual(json.loads(self.good("tokenize", folder, "--ids", "-p", "a fox")), want)

    def test_nothing_there(self):
        with tempfile.TemporaryDirectory() as folder:
            self.fails(1, "tokenize", folder, "-p", "a", mentions=["tokenizer.json", "found none"])
            with open(os.path.join(folder, "vocab.json"), "w") as file:
                file.write('{"a": 0}')
            self.fails(1, "tokenize", folder, "-p", "a", mentions=["config.json"])
            with open(os.path.join(folder, "tokenizer.json"), "w") as file:
                file.write('{"version": "1.0"}')
            self.fails(1, "tokenize", folder, "-p", "a", mentions=["tokenizer.json", "model"])
            self.fails(1, "run", folder, "-p", "a", mentions=["config.json"])


class DetokenizeTest(Case):
    def test_control_tokens_only_when_asked(self):
        self.assertEqual(self.good("detokenize", TALES, 0, 1), b"")
        self.assertEqual(self.good("detokenize", TALES, "--special", 0, 1), b"<|begin_of_text|><|end_of_text|>")

    def test_broken_characters(self):
        ids = json.loads(self.good("tokenize", TALES, "--ids", stdin="\u65e5".encode()))
        if len(ids) > 1:
            cut = self.good("detokenize", TALES, *ids[:-1]).decode()
            self.assertEqual(cut.strip("\ufffd"), "")
            self.assertTrue(cut)

    def test_ids_that_are_none(self):
        self.fails(2, "detokenize", TALES, "x", mentions=["0 to 2147483647", 'found "x"'])
        self.fails(2, "detokenize", TALES, "1,,2")
        table = self.good("tokenize", TALES, "-p", "hi")
        self.fails(1, "detokenize", TALES, stdin=table, mentions=["standard input", "tokenize --ids"])
        self.fails(2, "detokenize", TALES, "99999999999")
        for text in ("[1", "[1 2]", "[1,]", "[-1]", "[1.5]", "{}", "[[1]]", '["1"]'):
            with self.subTest(text=text):
                self.fails(1, "detokenize", TALES, stdin=text.encode(), mentions=["standard input"])
        self.assertEqual(self.good("detokenize", TALES, stdin=b" [ ] \n"), b"")
        self.fails(1, "detokenize", TALES, 4096, mentions=["4096"])

    def test_no_ids_at_a_terminal_is_wrong_usage(self):
        leader, follower = pty.openpty()
        try:
            self.fails(2, "detokenize", TALES, stdin=follower)
        finally:
            os.close(leader)
            os.close(follower)

    def test_a_pipe_of_both(self):
        command = f'"{COMMAND}" tokenize "$0" --ids | "{COMMAND}" detokenize "$0"'
        result = subprocess.run(["sh", "-c", command, TALES], input=b"It was a sunny day.\n", capture_output=True)
        self.assertEqual(result.stdout, b"It was a sunny day.\n")


if __name__ == "__main__":
    main()
