#!/usr/bin/env python3
"""`--draft`: the ids are those of one token at a time, whatever the sampling, and repeated text takes fewer passes."""
import json
import os
import shutil
import tempfile

from support import GOLDEN, TALES, Case, main, setun

LINES = "Tom has a red ball. The ball is big. Tom and Sue play with the ball. "
PROMPT = LINES * 2 + "Tom has a red"


class DraftTest(Case):
    def ids(self, *args):
        return json.loads(self.good("run", TALES, "-p", PROMPT, "--ids", "--ignore-eos", *args))

    def test_ids_are_the_same(self):
        for args in (("--temp", 0), ("--temp", 0, "--repeat-penalty", 1.3), ("--seed", 3), ("--seed", 4, "--dry-multiplier", 0.8),
                     ("--temp", 0, "-c", 80), ("--temp", 0, "-b", 3), ("--seed", 5, "-t", 2, "--kv", "q8"),
                     ("--temp", 0, "--logit-bias", "20-inf"), ("--temp", 0, "--window", 33),
                     ("--seed", 6, "--window", 33, "--kv-sinks", 4)):
            with self.subTest(args=args):
                plain = self.ids("-n", 60, *args)
                for draft in ("ngram", TALES, self.other()):
                    self.assertEqual(self.ids("-n", 60, *args, "--draft", draft), plain, draft)

    @classmethod
    def other(cls):
        """A model with the same tokens, whose guesses are mostly wrong: the same model with other frequencies of RoPE."""
        if not hasattr(cls, "folder"):
            cls.folder = tempfile.TemporaryDirectory()
            cls.addClassCleanup(cls.folder.cleanup)
            shutil.copytree(TALES, cls.folder.name, dirs_exist_ok=True)
            path = os.path.join(cls.folder.name, "config.json")
            with open(path, encoding="utf-8") as file:
                config = json.load(file)
            config["rope_theta"] = 2.0
            os.chmod(path, 0o644)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(config, file)
        return cls.folder.name

    def test_weights_that_stream(self):
        """Under the least budget, where experts go through their cache."""
        with tempfile.TemporaryDirectory() as folder:
            model, draft = (os.path.join(folder, name) for name in ("model.gguf", "draft.gguf"))
            for path, format in ((model, "q8_0"), (draft, "t16")):
                self.good("bench", "--synthetic", "small-moe", "--format", format, "-p", 8, "-n", 2, "-r", 1, "--buffer", "16M", "--save", path)
            args = ("-c", 256, "-b", 32)
            sampled = (model, "-p", PROMPT, "-n", 40, "--ids", "--ignore-eos", *args)
            # Under a sanitizer, which keeps freed memory, loading a second model takes more than was planned.
            for kind in ("ngram",) if os.environ.get("SETUN_SANITIZE") else ("ngram", draft):
                memory = json.loads(self.good("plan", model, *args, "--draft", kind, "--json"))["least"]
                plan = json.loads(self.good("plan", model, *args, "--draft", kind, "--memory", memory, "--json"))
                self.assertTrue(4 <= plan["experts_cached"] < 64, plan)
                for more in (("--temp", 0), ("--seed", 3)):
                    with self.subTest(draft=kind, args=more):
                        self.assertEqual(self.good("run", *sampled, *more, "--draft", kind, "--memory", memory),
                                         self.good("run", *sampled, *more))

    def test_draft_model_counts(self):
        """Greedy guesses of the model itself are all right, and `--json` says so."""
        got = json.loads(self.good("run", TALES, "-p", PROMPT, "-n", 40, "--temp", 0, "--ignore-eos", "--json", "--draft", TALES))
        t = got["timings"]
        self.assertGreater(t["draft_passes"], 0)
        self.assertGreaterEqual(t["draft_tokens"], t["draft_accepted"])
        # guesses after the text's end are not wrong: at most one pass's guesses were left over
        self.assertGreaterEqual(t["draft_accepted"], t["draft_tokens"] - 16)
        plain = json.loads(self.good("run", TALES, "-p", PROMPT, "-n", 40, "--temp", 0, "--ignore-eos", "--json"))
        self.assertEqual(got["ids"], plain["ids"])
        self.assertNotIn("draft_tokens", plain["timings"])
        said = setun("run", TALES, "-p", PROMPT, "-n", 40, "--temp", 0, "--ignore-eos", "--verbose", "--draft", TALES).stderr.decode()
        self.assertRegex(said, r"draft +\d+ of \d+ drafted tokens accepted")

    def test_recurrent_layers(self):
        """Wrong guesses leave no trace in the state; nor does a text that is saved and continued."""
        for name in ("hf/qwen35", "hf/qwen3-next"):
            model = os.path.join(GOLDEN, name)
            def ids(*args, n=60):
                return json.loads(self.good("run", model, "-p", "hello hello hello", "-n", n, "--ids", "--ignore-eos", *args))
            for args in (("--temp", 0), ("--seed", 3)):
                with self.subTest(name=name, args=args):
                    plain = ids(*args)
                    for draft in ("ngram", model):
                        self.assertEqual(ids(*args, "--draft", draft), plain, draft)
            with tempfile.TemporaryDirectory() as folder:
                session = os.path.join(folder, "session")
                first = ids("--temp", 0, "--session", session, n=20)
                self.assertEqual(first, ids("--temp", 0, n=20))
                more = json.loads(self.good("run", model, "-p", "", "-n", 10, "--temp", 0, "--ids", "--ignore-eos", "--session", session))
                self.assertEqual(first + more, ids("--temp", 0, n=30))
        # two slots for the sequence and two for snapshots, of four layers with four heads of 16 x 16 and three inputs of 128
        slot = 4 * 4 * (4 * 16 * 16 + 3 * 128)
        plan, bytes = (json.loads(self.good(*args, model, "--json")) for args in (("plan",), ("inspect", "--bytes")))
        self.assertTrue(4 * slot <= plan["cache_states"] <= 4 * slot + 4096)
        self.assertEqual(bytes["kv_cache"]["states"], plan["cache_states"])
        self.fails(1, "run", model, "-p", "a", "--window", 33, mentions=["window", "recurrent layers"])
        self.fails(1, "run", model, "-p", "a", "--kv-sinks", 3, mentions=["sinks", "recurrent layers", "0 and 3"])

    def test_chat_is_the_same(self):
        lines = b"Tom has a red ball.\nTom has a red ball.\n"
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write("{% for m in messages %}{{ m.content }} {% endfor %}")
            file.flush()
            template = ("--template", file.name)
            args = ("chat", TALES, *template, "-n", 20, "--seed", 2)
            plain = self.good(*args, "--draft", "none", stdin=lines)
            for draft in ((), ("--draft", "ngram"), ("--draft", TALES)):
                self.assertEqual(self.good(*args, *draft, stdin=lines), plain)

    def test_other_tokens_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tiny.gguf")
            self.good("bench", "--synthetic", "tiny", "--save", path, "-p", 4, "-n", 2, "-r", 1, "--buffer", "1M")
            self.fails(1, "run", TALES, "-p", "a", "-n", 1, "--draft", path, mentions=["draft model", "tokens", "expected", "found"])

    def test_stop_and_session(self):
        """Tokens that were computed ahead are not in the saved session."""
        with tempfile.TemporaryDirectory() as folder:
            saved = []
            for name, draft in (("none", "none"), ("ngram", "ngram"), ("model", TALES)):
                path = os.path.join(folder, name)
                args = ("run", TALES, "--temp", 0, "--session", path, "--draft", draft)
                texts = [self.good(*args, "-p", PROMPT, "-n", 30, "--stop", "play"), self.good(*args, "-p", " Then", "-n", 20)]
                with open(path, "rb") as file:
                    saved.append((texts, file.read()))
            self.assertEqual(saved[0], saved[1])
            self.assertEqual(saved[0], saved[2])

    def test_plan(self):
        """The least that `plan` names for it does."""
        without = json.loads(self.good("plan", TALES, "-c", 64, "-b", 1, "-t", 1, "--json"))
        for draft in ("ngram", TALES):
            args = ("-c", 64, "-b", 1, "-t", 1, "--draft", draft)
            plan = json.loads(self.good("plan", TALES, *args, "--json"))
            # sanitizers take memory for the draft model, which is loaded first; no plan counts that
            if draft == "ngram" or not os.environ.get("SETUN_SANITIZE"):
                self.good("run", TALES, "-p", "a", "-n", 1, *args, "--memory", plan["least"])
        # a draft model takes what the model itself takes: weights, cache and work
        own = without["total"] - without["process"]
        self.assertGreater(plan["total"] - without["total"], own // 2)
        self.fails(1, "run", TALES, "-p", "a", "-n", 1, *args, "--memory", without["least"] // 2, mentions=["expected at least"])

    def test_wrong_usage(self):
        self.fails(1, "run", TALES, "-p", "a", "--draft", "no-such-model", mentions=["no-such-model"])


if __name__ == "__main__":
    main()
