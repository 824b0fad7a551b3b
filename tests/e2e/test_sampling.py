#!/usr/bin/env python3
"""The sampling options of `setun run`, and the defaults that a model's files give."""
import json
import os
import shutil
import struct

from support import GOLDEN, TALES, Case, FolderCase, main, setun

PROMPT = "Once upon a time there was a dog. The dog had a ball. The dog"
OFF = ["--temp", "1", "--top-k", "0", "--top-p", "1", "--min-p", "0"]


class OptionsTest(Case):
    def ids(self, *args):
        return json.loads(self.good("run", TALES, "--ids", "-p", PROMPT, "-n", 40, "--ignore-eos", "--seed", 3, *args))

    def test_values_that_switch_a_step_off_change_nothing(self):
        want = self.ids(*OFF)
        for off in (["--typical", 1], ["--repeat-penalty", 1], ["--presence-penalty", 0], ["--frequency-penalty", 0],
                    ["--dry-multiplier", 0], ["--xtc-probability", 0], ["--dynatemp-range", 0],
                    ["--repeat-penalty", 2, "--repeat-last-n", 0], ["--dry-multiplier", 1, "--dry-penalty-last-n", 0],
                    ["--dynatemp-range", 0, "--dynatemp-exp", 2], ["--dry-multiplier", 0, "--dry-base", 3],
                    ["--mirostat", 0, "--mirostat-lr", 0.2]):
            with self.subTest(off=off):
                self.assertEqual(self.ids(*OFF, *off), want)

    def test_what_needs_another_option(self):
        for option, value, needs in (("--dry-base", 3, "--dry-multiplier"), ("--dry-allowed-length", 5, "--dry-multiplier"),
                                     ("--dry-penalty-last-n", 5, "--dry-multiplier"), ("--dry-sequence-breaker", "a", "--dry-multiplier"),
                                     ("--xtc-threshold", 0.2, "--xtc-probability"), ("--dynatemp-exp", 2, "--dynatemp-range"),
                                     ("--mirostat-lr", 0.2, "--mirostat"), ("--mirostat-ent", 4, "--mirostat")):
            self.fails(1, "run", TALES, "-p", "a", option, value, mentions=[option + " has no effect without " + needs])

    def test_each_step_has_its_effect(self):
        want = self.ids(*OFF)
        for on in (["--typical", 0.5], ["--repeat-penalty", 3], ["--presence-penalty", 5], ["--frequency-penalty", 5],
                   ["--xtc-probability", 1, "--xtc-threshold", 0.05], ["--dynatemp-range", 1],
                   ["--dry-multiplier", 5, "--dry-sequence-breaker", "none"]):
            with self.subTest(on=on):
                self.assertNotEqual(self.ids(*OFF, *on), want)
                self.assertEqual(self.ids(*OFF, *on), self.ids(*OFF, *on))

    def test_orders(self):
        plain = self.ids()
        default = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"
        self.assertEqual(self.ids("--samplers", default), plain)
        self.assertEqual(self.ids("--samplers", default.upper().replace("_", "-")), plain)
        self.assertEqual(self.ids("--sampling-seq", "edskypmxt"), plain)
        self.assertEqual(self.ids("--sampler-seq", "kpt"), self.ids("--samplers", "top_k;top_p;temperature"))
        self.assertEqual(self.ids("--samplers", "top_k", "--top-k", 1), self.ids("--temp", 0))
        hot = ("--temp", 3, "--top-p", 0.6, "--min-p", 0)
        self.assertNotEqual(self.ids(*hot, "--samplers", "temperature;top_p;min_p"), self.ids(*hot))
        self.assertEqual(self.ids("--sampling-seq", ""), self.ids(*OFF), "no sampler at all")
        for wrong, words in ((["--samplers", "top_k;infill"], ["--samplers", "'infill'"]),
                             (["--samplers", "top_k;topk"], ["--samplers", "top_k again"]),
                             (["--sampling-seq", "kz"], ["--sampling-seq", "'z'"]),
                             (["--sampling-seq", "kk"], ["--sampling-seq", "'k'"]),
                             (["--samplers", "xtc", "--sampling-seq", "x"], ["--samplers", "--sampling-seq"]),
                             (["--samplers", "top_p", "--top-k", 3], ["--top-k has no effect", "top_k"]),
                             (["--sampling-seq", "k", "--temp", 3], ["--temp has no effect", "temperature"])):
            with self.subTest(wrong=wrong):
                self.fails(2, "run", TALES, "-p", "a", *wrong, mentions=words)

    def test_mirostat(self):
        for version in 1, 2:
            with self.subTest(version=version):
                calm, wild = (self.ids("--mirostat", version, "--mirostat-ent", entropy, "--mirostat-lr", 0.3)
                              for entropy in (0, 6))
                greedy, free = self.ids("--temp", 0), self.ids("--temp", 0.8, "--sampling-seq", "t")
                self.assertNotEqual(calm, wild)
                self.assertEqual(calm, greedy, "without any surprise")
                self.assertNotEqual(self.ids("--mirostat", version, "--mirostat-ent", 2.5), free)
                self.assertNotEqual(self.ids("--mirostat", version, "--repeat-penalty", 3),
                                    self.ids("--mirostat", version), "penalties apply beside it")
        self.fails(2, "run", TALES, "-p", "a", "--mirostat", 3, mentions=["--mirostat", "'3'"])
        self.fails(2, "run", TALES, "-p", "a", "--mirostat", 2, "--top-k", 4, mentions=["--top-k has no effect", "Mirostat"])
        self.fails(2, "run", TALES, "-p", "a", "--mirostat", 1, "--samplers", "temp", mentions=["--samplers", "Mirostat"])

    def test_top_n_sigma(self):
        self.assertEqual(self.ids(*OFF, "--top-nsigma", 0.001), self.ids("--temp", 0))
        self.assertEqual(self.ids(*OFF, "--top-n-sigma", 1000), self.ids(*OFF))
        self.assertEqual(self.ids(*OFF, "--top-n-sigma", -1), self.ids(*OFF))

    def test_penalties_against_repetition(self):
        greedy = self.ids("--temp", 0)
        penalized = self.ids("--temp", 0, "--presence-penalty", 1000, "--repeat-last-n", -1)
        self.assertLess(len(set(greedy)), 40)
        self.assertEqual(len(set(penalized)), 40)
        prompt = set(json.loads(self.good("tokenize", TALES, "--ids", "--bos", "-p", PROMPT)))
        self.assertEqual(set(penalized) & prompt, set(), "the prompt counts as well")

    def test_dry_and_its_breakers(self):
        # repeated by the prompt: greedy text continues to repeat, DRY does not
        text = "The cat sat on the mat and the cat ran: " * 5
        run = lambda *args: json.loads(self.good("run", TALES, "--ids", "-p", text + "The cat sat on the", "-n", 1,
                                                 "--temp", 0, *args))
        plain = run()
        dry = run("--dry-multiplier", 50)
        self.assertNotEqual(dry, plain)
        self.assertEqual(run("--dry-multiplier", 50, "--dry-sequence-breaker", "on the"), plain)
        self.assertEqual(run("--dry-multiplier", 50, "--dry-sequence-breaker", "none"), dry)
        self.assertEqual(run("--dry-multiplier", 50, "--dry-sequence-breaker", r"on\x20the"), plain)
        self.assertEqual(run("--dry-multiplier", 50, "--dry-allowed-length", 200), plain)

    def test_logit_bias(self):
        first = self.ids("--temp", 0)
        never = self.ids("--temp", 0, "--logit-bias", f"{first[0]}-inf")
        self.assertNotIn(first[0], never)
        self.assertEqual(self.ids("--temp", 0, "--logit-bias", "77+1000"), [77] * 40)
        self.assertEqual(self.ids("--temp", 0, "--logit-bias", "77+1000", "--logit-bias", "77-1e3"), first)
        self.fails(1, "run", TALES, "-p", "a", "--logit-bias", "4096+1", mentions=["4096+1", "below 4096"])
        for wrong in ("77", "+1", "77+", "77+x", "77+inf", "77=1", "-1+1", "77+nan", "77+0x", "99999999999+1", "77+-1"):
            with self.subTest(wrong=wrong):
                self.fails(2, "run", TALES, "-p", "a", "--logit-bias", wrong, mentions=["--logit-bias", f"'{wrong}'"])

    def test_values_out_of_range(self):
        for option, value in (("--typical", 1.1), ("--repeat-penalty", 0), ("--repeat-last-n", -2), ("--dry-base", 0.5),
                              ("--dry-allowed-length", 0), ("--dry-penalty-last-n", -2), ("--xtc-probability", 2),
                              ("--xtc-threshold", -0.1), ("--dynatemp-range", -1), ("--dynatemp-exp", "x"),
                              ("--presence-penalty", "nan"), ("--frequency-penalty", "inf"), ("--dry-multiplier", -1)):
            with self.subTest(option=option):
                self.fails(2, "run", TALES, "-p", "a", option, value, mentions=[option, f"'{value}'"])
        self.fails(2, "run", TALES, "-p", "a", "--dry-sequence-breaker", "", mentions=["--dry-sequence-breaker"])
        many = ["--logit-bias=1+1"] * 257
        self.fails(2, "run", TALES, "-p", "a", *many, mentions=["--logit-bias", "256"])


class TokensWithoutTextTest(FolderCase):
    """A vocabulary that lacks ids which the embedding has: they are never drawn."""
    TAIL, INSIDE = range(4000, 4096), range(300, 320)
    MISSING = {*TAIL, *INSIDE}


    def model(self, missing):
        """The small model without these tokens and the merges that need them."""
        path = os.path.join(self.folder, "model")
        shutil.copytree(TALES, path, dirs_exist_ok=True)
        with open(os.path.join(TALES, "tokenizer.json"), encoding="utf-8") as file:
            data = json.load(file)
        model = data["model"]
        vocab = model["vocab"] = {text: id for text, id in model["vocab"].items() if id not in missing}
        model["merges"] = [pair for pair in model["merges"] if all(part in vocab for part in (*pair, "".join(pair)))]
        with open(os.path.join(path, "tokenizer.json"), "w", encoding="utf-8") as file:
            json.dump(data, file)
        return path

    def test_never_drawn_by_any_sampler(self):
        model = self.model(self.MISSING)
        pushed = [f"--logit-bias={id}+1000" for id in (*self.INSIDE, *self.TAIL[:40])]
        for how in (["--temp", 0], [*OFF, "--temp", 2], ["--temp", 2], [*OFF, "--temp", 2, "--typical", 0.9],
                    [*OFF, "--temp", 2, "--xtc-probability", 1], [*OFF, "--temp", 2, "--dynatemp-range", 1],
                    [*OFF, "--temp", 2, "--repeat-penalty", 1.5, "--dry-multiplier", 1]):
            with self.subTest(how=how):
                text = ["run", model, "-p", PROMPT, "-n", 120, "--ignore-eos", "--seed", 5, *pushed, *how]
                self.assertFalse(self.MISSING & set(json.loads(self.good(*text, "--ids"))))
                self.good(*text)
        template = os.path.join(self.folder, "template")
        with open(template, "w", encoding="utf-8") as file:
            file.write("{% for m in messages %}{{ m.content }}{% endfor %}")
        self.good("chat", model, "--template", template, "-n", 60, "--temp", 2, "--seed", 5, *pushed,
                  stdin=b"Once upon a time\n")

    def test_nothing_else_changes(self):
        draw = ("-p", "a", "-n", 60, "--ignore-eos", "--seed", 5, "--ids", "--temp", 0)
        never = [f"--logit-bias={id}-inf" for id in self.TAIL]
        self.assertEqual(self.good("run", self.model(self.TAIL), *draw), self.good("run", TALES, *draw, *never))

    def test_notice(self):
        inside = self.model(self.MISSING)
        words = ["no text for 116 of 4096 token ids (300 to 319, 4000 to 4095): they are never drawn"]
        result = setun("run", inside, "-p", "a", "-n", 1)
        self.assertEqual(result.stderr.decode().count("never drawn"), 1)
        self.assertIn(words[0], result.stderr.decode())
        notices = json.loads(self.good("inspect", inside, "--json"))["notices"]
        self.assertEqual([line.split(" has ")[1] for line in notices if "never drawn" in line], words)
        padded = self.model(self.TAIL)
        self.assertEqual(setun("run", padded, "-p", "a", "-n", 1).stderr, b"", "padding is ordinary")
        self.assertIn("96 of 4096 token ids (4000 to 4095), which pad the embedding",
                      setun("run", padded, "-p", "a", "-n", 1, "--verbose").stderr.decode())


class DefaultsTest(FolderCase):
    def settings(self, model, *args):
        result = setun("run", model, "-p", "a", "-n", 1, "--verbose", "--seed", 1, *args)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stderr.decode()

    def directory(self, config):
        path = os.path.join(self.folder, "model")
        shutil.copytree(TALES, path, dirs_exist_ok=True)
        with open(os.path.join(path, "generation_config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        return path

    def test_without_the_models_own(self):
        text = self.settings(TALES)
        self.assertIn("temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, seed 1\n", text)
        self.assertNotIn("own files", text)

    def test_generation_config(self):
        model = self.directory({"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 20,
                                "repetition_penalty": 1.05, "min_p": None, "typical_p": 1.0, "eos_token_id": 1})
        text = self.settings(model)
        self.assertIn("temperature 0.6, top-k 20, top-p 0.9, min-p 0.05, repeat-penalty 1.05, repeat-last-n -1, seed 1\n",
                      text)
        self.assertIn("own files: temperature 0.6, top-k 20, top-p 0.9, repeat-penalty 1.05, repeat-last-n -1\n", text)
        text = self.settings(model, "--temp", 1, "--top-k", 40, "--repeat-penalty", 1)
        self.assertIn("temperature 1, top-k 40, top-p 0.9, min-p 0.05, repeat-penalty 1,", text)
        self.assertIn("own files: top-p 0.9, repeat-last-n -1\n", text)
        options = ("-p", PROMPT, "-n", 30, "--seed", 9, "--ids", "--ignore-eos")
        given = ("--temp", 0.6, "--top-k", 20, "--top-p", 0.9, "--repeat-penalty", 1.05, "--repeat-last-n", -1)
        self.assertEqual(self.good("run", model, *options), self.good("run", TALES, *options, *given))

    def test_values_that_no_sampler_takes(self):
        text = self.settings(self.directory({"temperature": -1, "top_p": "most", "top_k": 2.5, "min_p": 0.1}))
        self.assertIn("temperature 0.8, top-k 40, top-p 0.95, min-p 0.1, seed 1\n", text)
        for key in ("temperature", "top_p", "top_k"):
            self.assertRegex(text, rf"warning: .*generation_config\.json: {key}: expected ")

    def gguf(self, keys):
        """A copy of a small file with these keys, each with its type and value."""
        with open(os.path.join(GOLDEN, "gguf", "llama3.gguf"), "rb") as file:
            data = file.read()
        added = b"".join(struct.pack("<Q", len(key)) + key + value for key, value in (
            *keys, (b"general.sampling.padding", struct.pack("<IQ", 8, 0)))) # as a string whose length is set below
        version, tensors, count = struct.unpack("<IQQ", data[4:24])
        # the tensors' data begins at a multiple of 32, so that what is added must be one too
        pad = -len(added) % 32
        added = added[:-8] + struct.pack("<Q", pad) + b" " * pad
        path = os.path.join(self.folder, "sampling.gguf")
        with open(path, "wb") as file:
            file.write(data[:4] + struct.pack("<IQQ", version, tensors, count + len(keys) + 1) + added + data[24:])
        return path

    def test_gguf_keys(self):
        text = self.settings(self.gguf([(b"general.sampling.temp", struct.pack("<If", 6, 0.7)),
                                        (b"general.sampling.top_k", struct.pack("<Ii", 5, 12)),
                                        (b"general.sampling.penalty_last_n", struct.pack("<Ii", 5, 128))]))
        self.assertIn("temperature 0.7, top-k 12, top-p 0.95, min-p 0.05, repeat-last-n 128, seed 1\n", text)
        self.assertIn("own files: temperature 0.7, top-k 12, repeat-last-n 128\n", text)

    def test_gguf_order_and_mirostat(self):
        def string(value):
            return struct.pack("<IQ", 8, len(value)) + value
        path = self.gguf([(b"general.sampling.sequence", string(b"top_k;temperature"))])
        text = self.settings(path)
        self.assertIn("min-p 0.05, samplers top_k;temperature, seed 1\n", text)
        self.assertIn("own files: samplers top_k;temperature\n", text)
        self.fails(1, "run", path, "-p", "a", "--top-p", 0.5, mentions=["--top-p has no effect", "own files"])
        self.good("run", path, "-p", "a", "-n", 1, "--top-p", 0.5, "--samplers", "top_p;temp")
        path = self.gguf([(b"general.sampling.mirostat", struct.pack("<Ii", 5, 2)),
                          (b"general.sampling.mirostat_tau", struct.pack("<If", 6, 3)),
                          (b"general.sampling.mirostat_eta", struct.pack("<If", 6, 0.25))])
        self.assertIn("mirostat 2, mirostat-ent 3, mirostat-lr 0.25, seed 1\n", self.settings(path))
        self.fails(1, "run", path, "-p", "a", "--top-k", 5, mentions=["--top-k has no effect", "own files"])
        self.good("run", path, "-p", "a", "-n", 1, "--top-k", 5, "--mirostat", 0)
        text = self.settings(self.gguf([(b"general.sampling.sequence", string(b"top_k;infill"))]))
        self.assertRegex(text, r"warning: .*general\.sampling\.sequence: .*'infill'; ignored")
        self.assertIn("top-k 40, top-p 0.95, min-p 0.05, seed 1\n", text)


if __name__ == "__main__":
    main()
