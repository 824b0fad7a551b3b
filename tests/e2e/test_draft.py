#!/usr/bin/env python3
"""`--draft ngram`: the ids are those of one token at a time, whatever the sampling, and repeated text takes fewer passes."""
import json
import os
import tempfile

from support import TALES, Case, main

LINES = "Tom has a red ball. The ball is big. Tom and Sue play with the ball. "
PROMPT = LINES * 2 + "Tom has a red"


class DraftTest(Case):
    def ids(self, *args):
        return json.loads(self.good("run", TALES, "-p", PROMPT, "--ids", "--ignore-eos", *args))

    def test_ids_are_the_same(self):
        for args in (("--temp", 0), ("--temp", 0, "--repeat-penalty", 1.3), ("--seed", 3), ("--seed", 4, "--dry-multiplier", 0.8),
                     ("--temp", 0, "-c", 80), ("--temp", 0, "-b", 3), ("--seed", 5, "-t", 2, "--kv", "q8"),
                     ("--temp", 0, "--logit-bias", "20-inf")):
            with self.subTest(args=args):
                self.assertEqual(self.ids("-n", 60, *args, "--draft", "ngram"), self.ids("-n", 60, *args))

    def test_stop_and_session(self):
        """What was computed ahead is not in the session that is left."""
        with tempfile.TemporaryDirectory() as folder:
            saved = []
            for draft in ("none", "ngram"):
                path = os.path.join(folder, draft)
                args = ("run", TALES, "--temp", 0, "--session", path, "--draft", draft)
                texts = [self.good(*args, "-p", PROMPT, "-n", 30, "--stop", "play"), self.good(*args, "-p", " Then", "-n", 20)]
                with open(path, "rb") as file:
                    saved.append((texts, file.read()))
            self.assertEqual(saved[0], saved[1])

    def test_plan(self):
        """The least that `plan` names for it does."""
        args = ("-c", 64, "-b", 1, "-t", 1, "--draft", "ngram")
        least = json.loads(self.good("plan", TALES, *args, "--json"))["least"]
        self.good("run", TALES, "-p", "a", "-n", 1, *args, "--memory", least)

    def test_wrong_usage(self):
        self.fails(2, "run", TALES, "-p", "a", "--draft", "x", mentions=["none", "ngram"])


if __name__ == "__main__":
    main()
