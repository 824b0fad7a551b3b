#!/usr/bin/env python3
"""The command quantize: formats, recipes, what is kept and what is refused; the loss, by perplexity --against."""
import array
import errno
import json
import math
import os
import re
import shutil
import struct
import subprocess
import time
import unittest

import gguf
from support import COMMAND, GOLDEN, TALES, FolderCase, failing, main, read_safetensors, setun

MODEL = os.path.join(GOLDEN, "gguf", "llama3.gguf")
IDS = [1, 17, 5, 203, 44, 90, 300, 2, 8, 77, 150, 31, 219, 6]
Q4_0, Q8_0, ZP2_32, T5, INT8_ROW = 2, 8, 0x53540032, 0x53540005, 0x53540008


def needs_lapack(test):
    """Calibration loads the system's LAPACK, which is optional; the message without it is a skipped test's reason."""
    def wrapper(self):
        text = self.path("small")
        with open(text, "w", encoding="utf-8") as file:
            file.write("A river ran past the mill. " * 9)
        result = setun("quantize", MODEL, "-o", self.path("small.gguf"), "--scheme", "q4_0", "--calibration", text, "--windows", "1",
                       "--window", "16")
        if b"LAPACK" in result.stderr:
            self.skipTest(result.stderr.decode())
        os.remove(self.path("small.gguf"))
        test(self)
    wrapper.__doc__ = test.__doc__
    return wrapper


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

    def test_rows(self):
        """Rows of 8-bit integers with one scale: less error than with the largest weight as 127, the same results as with the floats
        that they mean, a scale that is not finite found, and other lengths refused."""
        out, plain, logits = self.path("out.gguf"), self.path("plain.gguf"), []
        self.good("quantize", MODEL, "-o", out, "--scheme", "q8_0", "--embedding", "int8-row", "--head", "int8-row")
        kinds = self.kinds(out)
        self.assertEqual({kinds[name] for name in ("token_embd.weight", "output.weight") if name in kinds}, {INT8_ROW})
        before, after = (array.array("f", self.weights(path, "token_embd.weight")) for path in (MODEL, out))
        ours = math.fsum((x - y) ** 2 for x, y in zip(before, after))
        plainly = 0
        for i in range(0, len(before), 64):
            d = max(map(abs, before[i:i + 64])) / 127
            plainly += math.fsum((x - d * round(x / d)) ** 2 for x in before[i:i + 64])
        self.assertLess(ours, plainly)
        self.good("convert", out, "-o", plain, "--to", "f32")
        self.assertEqual(self.weights(plain, "token_embd.weight"), self.weights(out, "token_embd.weight"))
        for model in (out, plain):
            self.good("logits", model, "--ids", ",".join(map(str, IDS)), "-o", self.path("logits"), "--precise")
            logits.append(read_safetensors(self.path("logits"))["logits"][1])
        self.assertLess(max(abs(x - y) for x, y in zip(*logits)), 2e-5)
        self.good("inspect", out, "--check")
        with open(out, "r+b") as file:
            file.seek(gguf.read(out)[1]["token_embd.weight"][2] + 5 * 66)
            file.write(b"\x00\x7c")
        self.assertIn("token_embd.weight: invalid code, scale or number in the byte at offset 330",
                      setun("inspect", out, "--check").stderr.decode())
        self.fails(1, "logits", out, "--ids", "1", "-o", self.path("logits"), mentions=["token_embd.weight", "row 5"])

    def test_ternary_source(self):
        """Ternary weights are quantized from their values."""
        out = self.path("out.gguf")
        self.good("quantize", TALES, "-o", out, "--scheme", "q8_0")
        self.good("run", out, "-p", "Once", "-n", "4")

    @needs_lapack
    def test_ternary(self):
        """Floats are refused with what would be lost, measured; forced, the loss is said, and calibration makes it less."""
        out, share = self.path("out.gguf"), 0
        refusal = self.fails(1, "quantize", MODEL, "-o", out, "--scheme", "ternary", mentions=["21 matrices", "not trained"])
        self.assertFalse(os.path.exists(out))
        told = setun("quantize", MODEL, "-o", out, "--scheme", "ternary", "--force").stderr.decode()
        names = [name for name, kind in self.kinds(out).items() if kind == T5]
        self.assertEqual(len(names), 21)
        lost = whole = 0
        for name in names:
            x, y = (array.array("f", self.weights(path, name)) for path in (MODEL, out))
            part, all_ = (math.fsum(a) for a in zip(*(((p - q) ** 2, p * p) for p, q in zip(x, y))))
            lost, whole, share = lost + part, whole + all_, max(share, math.sqrt(part / all_))
        for text in (refusal, told):
            self.assertIn(f"differ by {100 * math.sqrt(lost / whole):.0f}% from", text)
            self.assertIn(f"the most, {100 * share:.0f}%, in blk.", text)
        rounded = self.loss(out)
        text = self.path("text")
        with open(text, "w", encoding="utf-8") as file:
            file.write(" ".join(f"The {i}th of the sacks that the miller counted was heavier by {i * i % 97}." for i in range(400)))
        calibration = ("--calibration", text, "--windows", "8", "--window", "64")
        self.fails(1, "quantize", MODEL, "-o", out, "--scheme", "ternary", *calibration, mentions=["21 matrices", "not trained"])
        self.good("quantize", MODEL, "-o", out, "--scheme", "ternary", "--force", *calibration)
        self.assertEqual([name for name, kind in self.kinds(out).items() if kind == T5], names)
        self.assertNotEqual(self.loss(out), rounded)
        self.fails(1, "quantize", MODEL, "-o", out, "--scheme", "ternary", "--group", "64", "--force",
                   mentions=["blk.0.ffn_down", "q2_0", "multiple of 64", "160", "a scale a row"])

    def test_latent(self):
        """Weights that were trained to be ternary become it exactly, as convert makes them."""
        for source in (TALES, os.path.join(GOLDEN, "hf", "bitnet-latent")):
            converted, quantized = self.path("converted.gguf"), self.path("quantized.gguf")
            self.good("convert", source, "-o", converted, "--to", "t5")
            self.good("quantize", source, "-o", quantized, "--scheme", "ternary")
            found = []
            for path in (converted, quantized):
                tensors = gguf.read(path)[1]
                first = min(offset for _, _, offset in tensors.values())
                with open(path, "rb") as file:
                    found.append(({name: (dims, kind, at - first) for name, (dims, kind, at) in tensors.items()}, file.read()[first:]))
            self.assertEqual(*found)

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
                               ("# nothing", ["found no line"]), ("# one\nx.* = q8_0", ["recipe: line 2", "\"x.*\"", "no matrix"]),
                               ("* = q8_0\nblk.0.* = keep", ["recipe: line 2", "\"blk.0.*\"", "no matrix"]),
                               ("\nblk.* = q4_k", ["recipe: line 2", "blk.0.", "multiple of 256"]),
                               ("* = stq1_0", ["line 1", "stq1_0"]), ("blk.* = keep", ["none of its", "quantized"])):
            with open(recipe, "w", encoding="utf-8") as file:
                file.write(text)
            self.fails(1, "quantize", MODEL, "-o", self.path("bad.gguf"), "--scheme", recipe, mentions=mentions)
        self.assertFalse(os.path.exists(self.path("bad.gguf")))

    @needs_lapack
    def test_experts(self):
        """Ternary experts, 2 bits for the others, 8-bit rows of the embedding. Experts that few tokens reach are
        rounded, and named; others are not. A model with shared experts, by a recipe."""
        text, out, recipe = self.path("text"), self.path("out.gguf"), self.path("recipe")
        with open(text, "w", encoding="utf-8") as file:
            file.write(" ".join(f"The {i}th of the sacks that the miller counted was heavier by {i * i % 97}." for i in range(900)))
        with open(recipe, "w", encoding="utf-8") as file:
            file.write("blk.*.ffn_*.*.weight = ternary\nblk.*.ffn_down_shexp.weight = keep\n* = zp2-32\n")
        for name, scheme, windows in (("mixtral", ("ternary-experts", "--group", "32"), "1"),
                                      ("qwen2-moe", (recipe, "--embedding", "int8-row"), "12")):
            model, plain = os.path.join(GOLDEN, "gguf", name + ".gguf"), self.path("plain.gguf")
            args = ("quantize", model, "-o", out, "--scheme", *scheme)
            more = ("--calibration", text, "--window", "64", "--windows", windows)
            if name == "mixtral":
                self.fails(2, *args, mentions=["--calibration"])
            self.fails(1, *args, *more, mentions=["not trained", "ternary weights (t5)"])
            result = setun(*args, *more, "--force")
            self.assertEqual(result.returncode, 0, result.stderr)
            few = re.findall(r"layer (\d+): too few tokens were routed to \d+ of the experts, whose matrices are rounded: (\d+)",
                             result.stderr.decode())
            self.assertEqual("0" in dict(few), name == "mixtral", result.stderr)
            self.check_experts(out)
            self.good("quantize", model, "-o", plain, "--scheme", "ternary", "--force")
            expert = dict(few).get("0", "0")
            rounded, made = (self.weights(path, f"blk.0.ffn_down.{expert}.weight") for path in (plain, out))
            self.assertEqual(rounded == made, name == "mixtral")
            self.good("logits", out, "--ids", "1,17,5", "-o", self.path("logits"))

    def check_experts(self, path):
        seen = set()
        for name, kind in self.kinds(path).items():
            expert = re.fullmatch(r"blk\.\d+\.ffn_(gate|up|down)\.\d+\.weight", name)
            other = re.fullmatch(r"blk\.\d+\.(attn_(q|k|v|output)|ffn_(gate|up)_shexp)\.weight", name)
            want = T5 if expert else ZP2_32 if other else INT8_ROW if name == "token_embd.weight" else None
            seen.add(want)
            if want is not None:
                self.assertEqual(kind, want, name)
            elif "norm" in name:
                self.assertEqual(kind, 0, name)
        self.assertEqual(seen, {T5, ZP2_32, INT8_ROW, None})

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

    def calibration(self, *more):
        text = self.path("text")
        with open(text, "w", encoding="utf-8") as file:
            file.write(" ".join(f"The {i}th of the sacks that the miller counted was heavier by {i * i % 97}." for i in range(300)))
        return ("--scheme", "zp2-32", "--calibration", text, "--window", "64", *more)

    def content(self, path):
        with open(path, "rb") as file:
            return file.read()

    @needs_lapack
    def test_interrupted(self):
        """Killed, or without room for a layer's file: nothing incomplete has the target's name, and the same command gives what an
        uninterrupted one gives."""
        args, whole = self.calibration("--windows", "8"), self.path("whole.gguf")
        self.good("quantize", MODEL, "-o", whole, *args)
        out = self.path("full.gguf")
        self.fails(1, "quantize", MODEL, "-o", out, *args, env=failing("layer-1", errno.ENOSPC, "rename"),
                   mentions=["full.gguf.layer-1", os.strerror(errno.ENOSPC)])
        self.assertFalse(os.path.exists(out))
        self.assertTrue(os.path.exists(out + ".layer-0"))
        self.good("quantize", MODEL, "-o", out, *args)
        self.assertEqual(self.content(out), self.content(whole))
        out = self.path("killed.gguf")
        process = subprocess.Popen([COMMAND, "quantize", MODEL, "-o", out, *args], stderr=subprocess.DEVNULL)
        while process.poll() is None and not os.path.exists(out + ".layer-0"):
            time.sleep(.002)
        process.kill()
        process.wait()
        if os.path.exists(out):  # it was faster
            self.assertEqual(self.content(out), self.content(whole))
        self.good("quantize", MODEL, "-o", out, *args)
        self.assertEqual(self.content(out), self.content(whole))
        self.assertFalse([name for name in os.listdir(self.folder) if ".layer-" in name and "part" not in name])

    @needs_lapack
    def test_not_finite(self):
        """A weight that is NaN or infinite is named, with its row, and nothing is written."""
        model, out = self.path("model.gguf"), self.path("out.gguf")
        shutil.copy(MODEL, model)
        at = gguf.read(model)[1]["blk.1.ffn_down.weight"][2] + 4 * (7 * 160 + 5)
        for value in (math.nan, math.inf):
            with open(model, "r+b") as file:
                file.seek(at)
                file.write(struct.pack("<f", value))
            for scheme in (("--scheme", "q4_0"), ("--scheme", "ternary", "--force"), self.calibration("--windows", "2")):
                self.fails(1, "quantize", model, "-o", out, *scheme, mentions=["blk.1.ffn_down.weight", "finite", "row 7"])
                self.assertFalse(os.path.exists(out))

    def test_refused(self):
        bad = self.path("bad.gguf")
        self.fails(1, "quantize", MODEL, "-o", bad, "--scheme", "q4_k", mentions=["blk.0.", "multiple of 256", "have 64", "q4_0"])
        self.fails(1, "quantize", MODEL, "-o", self.path("folder"), "--scheme", "q8_0", mentions=["ends in .gguf", "not q8_0"])
        self.fails(2, "quantize", MODEL, "-o", bad, "--scheme", "q9_z", mentions=["q9_z", "neither"])
        self.fails(2, "quantize", MODEL, "-o", bad, mentions=["--scheme"])
        self.fails(2, "quantize", MODEL, "-o", MODEL, "--scheme", "q8_0", mentions=["-o"])
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    main()
