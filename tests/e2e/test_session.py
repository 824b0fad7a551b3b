#!/usr/bin/env python3
"""`setun run --session`: texts that later runs continue."""
import json
import os
import signal
import subprocess
import tempfile
import unittest

from support import COMMAND, GOLDEN, TALES, Case, FolderCase, main, setun

PROMPT = "Once upon a time"
GREEDY = ("--temp", 0, "--ignore-eos", "--ids")


def contents(path):
    with open(path, "rb") as file:
        return file.read()


class SessionTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.folder, "text.session")

    def ids(self, *args, **more):
        return json.loads(self.good("run", TALES, *GREEDY, *args, **more))

    def go_on(self, prompt, n, *args):
        return self.ids("-p", prompt, "-n", n, "--session", self.path, *args)

    def test_going_on_gives_the_uninterrupted_text(self):
        want = self.ids("-p", PROMPT, "-n", 60)
        got = self.go_on(PROMPT, 10)
        for n in (1, 19, 0, 30):
            got += self.go_on("", n)
        self.assertEqual(got, want)
        self.assertEqual(os.listdir(self.folder), ["text.session"])

    def test_a_prompt_follows_the_text(self):
        first = self.go_on(PROMPT, 12)
        text = self.good("detokenize", TALES, *first).decode()
        got = self.go_on(" Then the dog said", 12)
        # the same ids in one prompt: the parts are tokenized separately, as they were here
        parts = [PROMPT + text, " Then the dog said"]
        ids = [json.loads(self.good("tokenize", TALES, "--ids", "-p", part)) for part in parts]
        self.assertEqual(ids[0][-len(first):], first, "the text splits as it was made")
        self.assertEqual(got, self.ids("-p", "".join(parts), "-n", 12))

    def test_penalties_see_the_earlier_text(self):
        biased = ("--repeat-penalty", 1.3, "--repeat-last-n", -1)
        want = self.ids("-p", PROMPT, "-n", 40, *biased)
        self.assertNotEqual(want, self.ids("-p", PROMPT, "-n", 40))
        self.assertEqual(self.go_on(PROMPT, 20, *biased) + self.go_on("", 20, *biased), want)

    def test_an_end_token_is_no_part_of_the_text(self):
        prompt = "And they were the best of friends. The end."
        for seed in range(40):
            run = ("-p", prompt, "-n", 60, "--ids", "--seed", seed)
            if json.loads(self.good("run", TALES, *run))[-1] == 1:
                break
        first = json.loads(self.good("run", TALES, *run, "--session", self.path))
        self.assertEqual(first[-1], 1)
        verbose = setun("run", TALES, "-p", "", "-n", 0, "--session", self.path, "--verbose").stderr.decode()
        count = len(json.loads(self.good("tokenize", TALES, "--ids", "--bos", "-p", prompt))) + len(first) - 1
        self.assertIn(f"holds {count} tokens", verbose)

    def test_ctrl_c_keeps_the_text(self):
        process = subprocess.Popen([COMMAND, "run", TALES, "-p", PROMPT, "--ignore-eos", "--temp", "0", "--isa", "scalar",
                                    "-t", "1", "--session", self.path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        first = process.stdout.read(len(PROMPT) + 40)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, errors)
        self.assertTrue(rest.endswith(b"\n"))
        more = self.good("run", TALES, "--temp", 0, "--isa", "scalar", "--ignore-eos", "-p", "", "-n", 10, "--session",
                         self.path)
        text = (first + rest)[:-1] + more
        want = self.good("run", TALES, "--temp", 0, "--isa", "scalar", "--ignore-eos", "-p", PROMPT, "-n", 240)
        self.assertEqual(want[:len(text) - 1], text[:-1])

    def test_the_context_is_for_all_of_it(self):
        self.go_on(PROMPT, 10)
        before = contents(self.path)
        args = ("run", TALES, "-p", PROMPT, "-n", 4, "--session", self.path, "--ctx", 16)
        self.fails(1, *args, mentions=["15 tokens", "holds 16"])
        self.fails(1, *args[:-1], 8, mentions=["15 tokens", "8", self.path])
        self.assertEqual(contents(self.path), before)
        result = setun("run", TALES, "-p", "", "--session", self.path, "--ctx", 18, *GREEDY)
        # 15 of the first run, the last of them evaluated again: 18 hold three more, which are all kept
        self.assertEqual(len(json.loads(result.stdout)), 3)
        self.assertIn(b"18 tokens is full (14 of the session, 1 of the prompt, 3 new", result.stderr)
        result = setun("run", TALES, "-p", "", "-n", 0, "--session", self.path, "--verbose", *GREEDY)
        self.assertIn(b"holds 18 tokens", result.stderr)

    def test_files_that_are_no_session_of_the_model(self):
        other = os.path.join(GOLDEN, "hf", "bitnet-auto")
        self.go_on(PROMPT, 4)
        before = contents(self.path)
        run = ("run", other, "-p", "a", "-n", 2, "--session", self.path)
        self.fails(1, *run, mentions=[self.path, "different model"])
        self.fails(1, "run", TALES, "-p", "a", "--kv", "f32", "--session", self.path, mentions=[self.path, "f16", "f32"])
        self.assertEqual(contents(self.path), before)
        with open(self.path, "wb") as file:
            file.write(before[:-1])
        self.fails(1, "run", TALES, "-p", "a", "--session", self.path, mentions=[self.path, len(before) - 1])
        self.fails(1, "run", TALES, "-p", "a", "--session", self.folder, mentions=[self.folder])

    def test_a_place_where_nothing_can_be_written(self):
        path = os.path.join(self.folder, "no-such-folder", "text.session")
        self.fails(1, "run", TALES, "-p", "a", "--session", path, mentions=[path])


class EscapeTest(Case):
    def test_escapes_only_when_asked(self):
        text = r"a\n\t\\b\x41\"\q\x4"
        for args, stdin in ((["-p", text], b""), (["-f", "-"], text.encode())):
            plain = self.good("tokenize", TALES, "--ids", *args, stdin=stdin)
            self.assertEqual(self.good("detokenize", TALES, stdin=plain), text.encode())
            for option in ("-e", "--escape"):
                escaped = self.good("tokenize", TALES, "--ids", *args, option, stdin=stdin)
                self.assertEqual(self.good("detokenize", TALES, stdin=escaped), b'a\n\t\\bA"\\q\\x4')

    def test_every_command_that_reads_text(self):
        ids = json.loads(self.good("run", TALES, "-p", r"One\nTwo", "-e", "-n", 5, "--temp", 0, "--ids"))
        self.assertEqual(json.loads(self.good("run", TALES, "-p", "One\nTwo", "-n", 5, "--temp", 0, "--ids")), ids)
        self.assertEqual(self.good("run", TALES, "-p", r"One\nTwo\xc3\xa9", "-e", "-n", 0), "One\nTwo\u00e9\n".encode())
        with tempfile.TemporaryDirectory() as folder:
            one, two = os.path.join(folder, "one"), os.path.join(folder, "two")
            self.good("logits", TALES, "-p", r"A\nB", "-e", "-o", one)
            self.good("logits", TALES, "-p", "A\nB", "-o", two)
            self.assertEqual(contents(one), contents(two))
        self.assertEqual(self.good("perplexity", TALES, "-p", r"A dog\nran home.", "-e"),
                         self.good("perplexity", TALES, "-p", "A dog\nran home."))


if __name__ == "__main__":
    main()
