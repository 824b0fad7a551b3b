#!/usr/bin/env python3
"""setun-tales-7m against transformers' numbers in tests/golden/tales.

Rounding to int8 makes whole BitNet models chaotic: moving the embeddings by one part in ten million moves logits by
0.037 on average and perplexity by 0.02%. Hence these bounds; single layers are compared exactly elsewhere. The default mode,
which keeps the KV cache in half precision, stays within 0.5% of the perplexity."""
import json
import math
import os
import tempfile

from support import GOLDEN, TALES, Case, argmax, golden, main, negative_log_likelihood, read_safetensors, rows


class TalesTest(Case):
    @classmethod
    def setUpClass(cls):
        cls.text = golden("tales", "golden.json")["texts"][0]
        cls.prompts = golden("tales", "golden.json")["prompts"]
        cls.tensors = read_safetensors(os.path.join(GOLDEN, "tales", "golden.safetensors"))
        cls.ids = list(cls.tensors["input_ids"][1])

    def logits(self, *args):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.safetensors")
            self.good("logits", TALES, "--ids", json.dumps(self.ids), "-o", path, *args)
            return rows(read_safetensors(path)["logits"])

    def test_logits(self):
        for args, bound in ((["--precise"], 0.002), ([], 0.005)):
            with self.subTest(args=args):
                found = self.logits(*args)
                nll = [negative_log_likelihood(row, target) for row, target in zip(found, self.ids[1:])]
                perplexity = math.exp(math.fsum(nll) / len(nll))
                self.assertLess(abs(perplexity / self.text["perplexity"] - 1), bound)
                top = [argmax(row) == want for row, want in zip(found, self.tensors["top"][1])]
                self.assertGreaterEqual(sum(top) / len(top), 0.98)
                sums, count = 0.0, 0
                for position, want in zip(self.tensors["positions"][1], rows(self.tensors["logits"])):
                    sums += math.fsum(abs(a - b) for a, b in zip(found[position], want))
                    count += len(want)
                self.assertLess(sums / count, 0.06)

    def test_perplexity(self):
        found = json.loads(self.good("perplexity", TALES, "--ids", "-", "--ctx", len(self.ids), "--precise", "--json",
                                     stdin=json.dumps(self.ids).encode()))
        self.assertEqual(found["tokens"], len(self.ids) - 1)
        self.assertLess(abs(found["perplexity"] / self.text["perplexity"] - 1), 0.002)

    def test_ids_of_the_prompts(self):
        for prompt in self.prompts:
            with self.subTest(text=prompt["text"]):
                found = json.loads(self.good("tokenize", TALES, "--ids", "--bos", "-p", prompt["text"]))
                self.assertEqual(found, prompt["ids"])


if __name__ == "__main__":
    main()
