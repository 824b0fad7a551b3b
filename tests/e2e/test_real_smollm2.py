#!/usr/bin/env python3
"""SmolLM2-135M-Instruct (GGUF, Q4_1) against transformers' numbers, in float32 on the dequantized weights."""
import json
import os
import tempfile

from support import Case, golden, main, read_safetensors, real_model, rows

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
GOLDEN = ("real", "smollm2-135m-instruct-q4_1.json")


class SmolTest(Case):
    @classmethod
    def setUpClass(cls):
        cls.golden = golden(*GOLDEN)
        cls.model = real_model(FILE)

    def test_greedy_ids(self):
        for prompt in self.golden["prompts"]:
            with self.subTest(text=prompt["text"]):
                found = json.loads(self.good("run", self.model, "-p", prompt["text"], "-n", len(prompt["greedy"]), "--temp", 0,
                                             "--precise", "--ids", "--ignore-eos", "--special"))
                self.assertEqual(found, prompt["greedy"])

    def test_logits_after_a_prompt(self):
        for prompt in self.golden["prompts"]:
            with self.subTest(text=prompt["text"]), tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "out.safetensors")
                self.good("logits", self.model, "--ids", json.dumps(prompt["ids"]), "--precise", "-o", path)
                last = rows(read_safetensors(path)["logits"])[-1]
                worst = max(abs(last[id] - want) for id, want in zip(prompt["top"]["ids"], prompt["top"]["logits"]))
                self.assertLess(worst, 2e-3)

    def test_perplexity(self):
        text = self.golden["texts"][0]
        for args, bound in ((["--precise"], 5e-5), ([], 5e-3)):
            with self.subTest(args=args):
                found = json.loads(self.good("perplexity", self.model, "--ids", "-", "--ctx", len(text["ids"]), "--json", *args,
                                             stdin=json.dumps(text["ids"]).encode()))
                self.assertEqual(found["tokens"], len(text["nll"]))
                self.assertLess(abs(found["perplexity"] / text["perplexity"] - 1), bound)

    def test_memory_is_what_was_planned(self):
        for budget in ("75M", "104M", "300M"):
            with self.subTest(budget=budget):
                found = json.loads(self.good("bench", self.model, "-p", 508, "-n", 2, "-r", 1, "--buffer", "16M", "-t", 2,
                                             "--memory", budget, "--json"))
                self.assertLess(found["memory_peak"], found["memory_budget"])
                self.assertLess(abs(found["memory_peak"] / found["memory_planned"] - 1), 0.05)

    def test_prompt_ids(self):
        for prompt in self.golden["prompts"]:
            with self.subTest(text=prompt["text"]):
                found = json.loads(self.good("tokenize", self.model, "--ids", "--special", stdin=prompt["text"].encode()))
                self.assertEqual(found, prompt["ids"])

    def test_hostile_strings(self):
        """Both columns. The program that made the reference reads a backslash and an n as a newline before it tokenizes
        (33 of the 400 texts hold one), so its ids are those of the text with newlines. Setun keeps the text as it is."""
        for row in golden("tok", "smollm2.json"):
            text = row["text"].replace("\\n", "\n")
            for column, args in (("ids", []), ("ids_special", ["--special"])):
                with self.subTest(text=text, column=column):
                    found = json.loads(self.good("tokenize", self.model, "--ids", *args, stdin=text.encode()))
                    self.assertEqual(found, row[column])

    def test_decoding_an_encoding_gives_the_text_back(self):
        for row in golden("tok", "smollm2.json")[::4]:
            with self.subTest(text=row["text"]):
                ids = self.good("tokenize", self.model, "--ids", stdin=row["text"].encode())
                self.assertEqual(self.good("detokenize", self.model, stdin=ids), row["text"].encode())

    def test_inspect(self):
        values = json.loads(self.good("inspect", self.model, "--json", "--tensors"))
        self.assertEqual((values["container"], values["architecture"]), ("gguf", "llama"))
        self.assertLessEqual({"q4_1", "q8_0", "f32"}, {row["format"] for row in values["formats"]})
        self.assertEqual(values["bytes"], sum(tensor["bytes"] for tensor in values["tensor_list"]))


if __name__ == "__main__":
    main()
