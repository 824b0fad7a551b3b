#!/usr/bin/env python3
"""The command quantize: formats, recipes, what is kept and what is refused; the loss, by perplexity --against."""
import json
import os
import unittest

import gguf
from support import GOLDEN, TALES, FolderCase, main

MODEL = os.path.join(GOLDEN, "gguf", "llama3.gguf")
IDS = [1, 17, 5, 203, 44, 90, 300, 2, 8, 77, 150, 31, 219, 6]
Q4_0, Q8_0, ZP2_32 = 2, 8, 0x53540032


class QuantizeTest(FolderCase):
    def path(self, name):
        return os.path.join(self.folder, name)

    def kinds(self, path):
        """Name: type of the tensors."""
        return {name: kind for name, (_, kind, _) in gguf.read(path)[1].items()}

    def weights(self, path, name):
        """The bytes of a matrix as floats."""
        out = self.path("weights")
        self.good("inspect", path, "--tensor", name, "-o", out)
        with open(out, "rb") as file:
            data = file.read()
        return data[8 + int.from_bytes(data[:8], "little"):]

    def loss(self, path):
        with open(self.path("ids"), "w", encoding="utf-8") as file:
            json.dump(IDS, file)
        return json.loads(self.good("perplexity", path, "--ids", self.path("ids"), "--against", MODEL, "--precise", "--json"))["kl_divergence"]

    def test_schemes(self):
        """Only matrices change, and more bits lose less."""
        before, losses = self.kinds(MODEL), []
        for scheme, kind in (("zp2-32", ZP2_32), ("q4_0", Q4_0), ("q8_0", Q8_0)):
            out = self.path(scheme + ".gguf")
            self.good("quantize", MODEL, "-o", out, "--scheme", scheme)
            for name, now in self.kinds(out).items():
                matrix = name.startswith("blk.") and not name.endswith("norm.weight")
                self.assertEqual(now, kind if matrix else before[name], name)
            losses.append(self.loss(out))
        self.assertLess(losses[2], 1e-3)
        self.assertLess(10 * losses[2], losses[1])
        self.assertLess(3 * losses[1], losses[0])

    def test_directory_and_ends(self):
        out = self.path("out.gguf")
        self.good("quantize", os.path.join(GOLDEN, "hf", "llama3"), "-o", out, "--scheme", "q8_0", "--embedding", "q8_0", "--head", "f16")
        kinds = self.kinds(out)
        self.assertEqual((kinds["token_embd.weight"], kinds["output.weight"]), (Q8_0, 1))
        self.assertLess(self.loss(out), 1e-3)

    def test_ternary_source(self):
        """Ternary weights are quantized from their values."""
        out = self.path("out.gguf")
        self.good("quantize", TALES, "-o", out, "--scheme", "q8_0")
        self.good("run", out, "-p", "Once", "-n", "4")

    def test_recipe(self):
        recipe, out = self.path("recipe"), self.path("out.gguf")
        with open(recipe, "w", encoding="utf-8") as file:
            file.write("# attention\nblk.0.attn_*=keep\n  blk.?.attn_q.weight = q8_0 # finer\n\nblk.*.ffn_* = zp2-32\r\n")
        self.good("quantize", MODEL, "-o", out, "--scheme", recipe)
        kinds, before = self.kinds(out), self.kinds(MODEL)
        for name, kind in (("blk.0.attn_q", before["blk.0.attn_q.weight"]), ("blk.1.attn_q", Q8_0), ("blk.2.ffn_down", ZP2_32),
                           ("blk.1.attn_k", before["blk.1.attn_k.weight"])):
            self.assertEqual(kinds[name + ".weight"], kind, name)
        for text, mentions in (("a b", ["line 1", "no \"=\""]), ("\n* = q9", ["line 2", "\"q9\""]), ("= q8_0", ["line 1", "pattern"]),
                               ("# nothing", ["found no line"]), ("x.* = q8_0", ["none of its", "quantized"])):
            with open(recipe, "w", encoding="utf-8") as file:
                file.write(text)
            self.fails(1, "quantize", MODEL, "-o", self.path("bad.gguf"), "--scheme", recipe, mentions=mentions)
        self.assertFalse(os.path.exists(self.path("bad.gguf")))

    def test_gptq_directory(self):
        """A directory holds the same weights as the GGUF file, in tensors of GPTQ checkpoints, and runs."""
        for bits in (2, 3, 4, 8):
            scheme, out, folder = f"zp{bits}-32", self.path(f"{bits}.gguf"), self.path(f"dir{bits}")
            self.good("quantize", MODEL, "-o", out, "--scheme", scheme)
            self.good("quantize", MODEL, "-o", folder, "--scheme", scheme)
            with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
                config = json.load(file)["quantization_config"]
            self.assertEqual((config["quant_method"], config["bits"], config["group_size"], config["checkpoint_format"]),
                             ("gptq", bits, 32, "gptq_v2"))
            self.assertEqual(self.weights(folder, "model.layers.1.mlp.down_proj"), self.weights(out, "blk.1.ffn_down.weight"))
            self.assertAlmostEqual(self.loss(folder), self.loss(out), places=6)  # rows of q and k are in other orders
        self.assertNotIn("dir4.gguf", os.listdir(self.folder))
        mixed = self.path("mixed")
        with open(mixed, "w", encoding="utf-8") as file:
            file.write("*attn* = zp4-32\n* = zp2-32\n")
        self.fails(1, "quantize", MODEL, "-o", self.path("dir"), "--scheme", mixed, mentions=["zp4-32", "zp2-32", "expected"])

    def test_refused(self):
        bad = self.path("bad.gguf")
        self.fails(1, "quantize", MODEL, "-o", bad, "--scheme", "q4_k", mentions=["blk.0.", "multiple of 256", "have 64", "q4_0"])
        self.fails(1, "quantize", MODEL, "-o", self.path("folder"), "--scheme", "q8_0", mentions=["ends in .gguf", "not q8_0"])
        self.fails(1, "quantize", MODEL, "-o", bad, "--scheme", "q9_z", mentions=["q9_z", "No such file"])
        self.fails(2, "quantize", MODEL, "-o", bad, mentions=["--scheme"])
        self.fails(2, "quantize", MODEL, "-o", MODEL, "--scheme", "q8_0", mentions=["-o"])
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    main()
