#!/usr/bin/env python3
"""Parts of a model are there in every layer or in none; heads beside tied embeddings; tensors of RoPE's divisors; and their
conversion. By editing the reference models, whose own numbers are those of the official classes."""
import json
import os
import re
import struct
import tempfile

import edit
import gguf
from support import GOLDEN, TALES, Case, main, read_safetensors, setun

HF, GGUF = os.path.join(GOLDEN, "hf"), os.path.join(GOLDEN, "gguf")
IDS = ",".join(str(i) for i in range(3, 35))


class PartsCase(Case):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        self.made = 0

    def path(self, end=""):
        self.made += 1
        return os.path.join(self.folder, f"{self.made}{end}")

    def hf(self, name, config=(), drop=(), put=()):
        return edit.checkpoint(os.path.join(HF, name), self.path(), config, drop, put)

    def gguf(self, name, drop=(), put=(), drop_key=()):
        return edit.file(os.path.join(GGUF, name + ".gguf"), self.path(".gguf"), drop, put, drop_key)

    def logits(self, model, mentions=()):
        out = self.path()
        result = setun("logits", model, "--ids", IDS, "--precise", "-o", out)
        text = result.stderr.decode()
        self.assertEqual(result.returncode, 0, text)
        for word in mentions:
            self.assertIn(word, text)
        if not mentions:
            self.assertEqual(text, "")
        return list(read_safetensors(out)["logits"][1])

    def notices(self, model):
        return json.loads(self.good("inspect", model, "--json"))["notices"]

    def refused(self, model, *mentions):
        self.fails(1, "logits", model, "--ids", IDS, "-o", self.path(), mentions=mentions)
        self.fails(1, "plan", model, mentions=mentions)


class LayersTest(PartsCase):
    def test_sub_norms(self):
        for name in ("bitnet-latent", "bitnet-auto"):
            for part in ("self_attn.attn_sub_norm.weight", "mlp.ffn_sub_norm.weight"):
                one = "model.layers.1." + part
                self.refused(self.hf(name, drop=one.__eq__), one)
                self.refused(self.hf(name, drop=lambda n, p=part: n.endswith(p)), "model.layers.0." + part)
        self.refused(self.hf("bitnet-latent", {"use_sub_norms": False}), "sub_norm")

    def test_without_sub_norms(self):
        """A BitNet whose use_sub_norms is false gives the results of a Llama with the same weights."""
        def norms(name):
            return "sub_norm" in name
        plain = self.hf("bitnet-latent", {"use_sub_norms": False}, norms)
        llama = self.hf("bitnet-latent", {"model_type": "llama"}, norms)
        self.assertEqual(self.logits(plain), self.logits(llama))
        self.refused(self.hf("bitnet-latent", drop=norms), "model.layers.0.self_attn.attn_sub_norm.weight")

    def test_optional_norms_in_one_layer(self):
        """1bitLLM's checkpoints, of the llama family, have sub-norms in all layers."""
        tensors = edit.safetensors(os.path.join(HF, "bitnet-latent", "model.safetensors"))
        names = {"self_attn.attn_sub_norm": "self_attn.inner_attn_ln", "mlp.ffn_sub_norm": "mlp.ffn_layernorm"}
        moved = {}
        for name, tensor in tensors.items():
            for old, new in names.items():
                if old in name:
                    moved[name.replace(old, new)] = tensor
        for gone in ("model.layers.1.self_attn.inner_attn_ln.weight", "model.layers.0.mlp.ffn_layernorm.weight"):
            rest = {name: tensor for name, tensor in moved.items() if name != gone}
            model = self.hf("bitnet-latent", {"model_type": "llama"}, lambda n: "sub_norm" in n, rest)
            self.refused(model, gone, "layer")

    def test_biases(self):
        for name, parts in (("gpt-oss", ["self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias",
                                         "self_attn.o_proj.bias", "mlp.router.bias", "mlp.experts.gate_up_proj_bias",
                                         "mlp.experts.down_proj_bias"]),
                            ("qwen2-moe", ["self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"])):
            for part in parts:
                one = "model.layers.1." + part
                self.refused(self.hf(name, drop=one.__eq__), one)
        for name, parts in (("gpt-oss", ["attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_output.bias",
                                         "ffn_gate_inp.bias", "ffn_gate_exps.bias", "ffn_up_exps.bias",
                                         "ffn_down_exps.bias"]),
                            ("qwen2-moe", ["attn_q.bias", "attn_k.bias", "attn_v.bias"]),
                            ("llama3-tied-sharded", ["attn_q.bias", "attn_output.bias", "ffn_up.bias"])):
            for part in parts:
                one = "blk.1." + part
                self.refused(self.gguf(name, drop=one.__eq__), one)
        for part in ("ffn_gate_inp.bias", "ffn_gate_exps.bias"):  # that the family has
            self.refused(self.gguf("gpt-oss", drop=lambda n, p=part: n.endswith(p)), "blk.0." + part)

    def test_promised_biases(self):
        for name in ("qwen3", "qwen3-moe", "olmoe", "gemma3", "bitnet-latent", "llama3"):
            with self.subTest(name=name):
                self.refused(self.hf(name, {"attention_bias": True}), "model.layers.0.self_attn.q_proj.bias")


class TiedTest(PartsCase):
    def test_without_an_embedding(self):
        """Nothing says how many ids there are, so none counts as being without text."""
        self.assertNotIn(b"has no text", self.good("inspect", self.gguf("llama3", drop={"token_embd.weight", "output.weight"}.__contains__)))

    def test_unequal(self):
        """transformers 5 keeps a head that differs from the embedding, and says so."""
        plain = os.path.join(HF, "llama3")
        tied = self.hf("llama3", {"tie_word_embeddings": True})
        notice = ("lm_head.weight", "differs from the embedding")
        self.assertEqual(self.logits(tied, notice), self.logits(plain))
        self.assertEqual([all(word in line for word in notice) for line in self.notices(tied)].count(True), 1)
        self.assertFalse(any(notice[0] in line for line in self.notices(plain)))
        target, directory = self.path(".gguf"), self.path()
        for made in (target, directory):
            self.assertEqual(setun("convert", tied, "--to", "f32", "-o", made).returncode, 0)
        self.assertIn("output.weight", gguf.read(target)[1])
        with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
            self.assertIs(json.load(file)["tie_word_embeddings"], False)
        self.assertEqual(self.logits(directory), self.logits(plain))
        other = self.path(".gguf")
        self.assertEqual(setun("convert", plain, "--to", "f32", "-o", other).returncode, 0)
        self.assertEqual(self.logits(target), self.logits(other))

    def test_equal(self):
        tensors = edit.safetensors(os.path.join(HF, "llama3", "model.safetensors"))
        copied = {"lm_head.weight": tensors["model.embed_tokens.weight"]}
        both = self.hf("llama3", {"tie_word_embeddings": True}, put=copied)
        alone = self.hf("llama3", {"tie_word_embeddings": True}, "lm_head.weight".__eq__)
        self.assertEqual(self.logits(both), self.logits(alone))
        self.assertFalse(any("lm_head" in line for line in self.notices(both)))
        target = self.path(".gguf")
        self.assertEqual(setun("convert", both, "--to", "f32", "-o", target).returncode, 0)
        self.assertNotIn("output.weight", gguf.read(target)[1])


class RopeTest(PartsCase):
    def divisors(self):
        source = os.path.join(GGUF, "llama3.gguf")
        (n,), _, offset = gguf.read(source)[1]["rope_freqs.weight"]
        with open(source, "rb") as file:
            return list(struct.unpack_from(f"<{n}f", file.read(), offset))

    def with_divisors(self, values):
        return self.gguf("llama3", put={"rope_freqs.weight": struct.pack(f"<{len(values)}f", *values)})

    def test_divisors_are_positive_and_finite(self):
        good = self.divisors()
        for bad in (0.0, -1.0, 1e-38, float("inf"), float("nan")):
            values = good[:]
            values[3] = bad
            model = self.with_divisors(values)
            self.fails(1, "logits", model, "--ids", IDS, "-o", self.path(), mentions=["rope_freqs.weight"])
            result = setun("inspect", model, "--check")
            self.assertEqual(result.returncode, 1)
            self.assertIn("rope_freqs.weight", result.stderr.decode())
        self.good("inspect", os.path.join(GGUF, "llama3.gguf"), "--check")

    def test_the_rule_comes_back(self):
        """config.json of the checkpoint that the file was made of, from the divisors alone."""
        with open(os.path.join(HF, "llama3", "config.json"), encoding="utf-8") as file:
            expected = json.load(file)["rope_parameters"]
        target = self.path()
        self.assertEqual(setun("convert", os.path.join(GGUF, "llama3.gguf"), "--to", "f32", "-o", target).returncode, 0)
        with open(os.path.join(target, "config.json"), encoding="utf-8") as file:
            found = json.load(file)["rope_scaling"]
        for key in ("rope_type", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"):
            self.assertEqual(found[key], expected[key])
        differences = zip(self.logits(target), self.logits(os.path.join(HF, "llama3")))
        self.assertLess(max(abs(a - b) for a, b in differences), 1e-5)
        values = self.divisors()
        values[1] += 0.25
        self.fails(1, "convert", self.with_divisors(values), "--to", "f32", "-o", self.path(),
                   mentions=["rope_freqs.weight"])


class WritingTest(PartsCase):
    def convert(self, source, end, to, *more):
        target = self.path(end)
        result = setun("convert", source, "--to", to, "-o", target, *more)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return target

    def test_gpt_oss_becomes_gguf(self):
        source = os.path.join(HF, "gpt-oss")
        for more in ((), ("--experts", "stacked")):
            target = self.convert(source, ".gguf", "f32", *more)
            self.assertEqual(self.logits(target), self.logits(source))
        published = gguf.read(os.path.join(GGUF, "gpt-oss.gguf"))[1]
        made = gguf.read(target)[1]
        self.assertEqual({n: t[0] for n, t in made.items()}, {n: t[0] for n, t in published.items()})

    def test_gpt_oss_becomes_a_directory(self):
        """The tensors of the checkpoint that the GGUF file was made of, byte for byte."""
        target = self.convert(os.path.join(GGUF, "gpt-oss.gguf"), "", "f32")
        made = edit.safetensors(os.path.join(target, "model.safetensors"))
        original = edit.safetensors(os.path.join(HF, "gpt-oss", "model.safetensors"))
        self.assertEqual(made.keys(), original.keys())
        for name, tensor in original.items():
            self.assertEqual(made[name], tensor, name)
        self.assertEqual(self.logits(target), self.logits(os.path.join(GGUF, "gpt-oss.gguf")))

    def test_alignment(self):
        for source, to, more, wanted in ((TALES, "t2", (), None), (TALES, "tq2_0", (), None), (TALES, "t16", (), 4096),
                                         (os.path.join(HF, "mixtral"), "f32", (), 4096),
                                         (os.path.join(HF, "mixtral"), "f32", ("--experts", "stacked"), None)):
            keys, tensors, _ = gguf.read(self.convert(source, ".gguf", to, *more))
            self.assertEqual(keys.get("general.alignment"), wanted)
            self.assertTrue(all(offset % (wanted or 32) == 0 for _, _, offset in tensors.values()))

    def test_without_a_tokenizer(self):
        bare = self.gguf("qwen3", drop_key=lambda name: name.startswith("tokenizer."))
        target = self.convert(bare, "", "f32")
        self.assertEqual(sorted(os.listdir(target)), ["config.json", "model.safetensors"])
        whole = self.convert(os.path.join(GGUF, "qwen3.gguf"), "", "f32")
        self.assertEqual(edit.safetensors(os.path.join(target, "model.safetensors")),
                         edit.safetensors(os.path.join(whole, "model.safetensors")))

    def test_the_least_says_what_it_is(self):
        text = self.good("plan", TALES, "--ctx", "64", "--batch-size", "8", "-t", "1").decode()
        self.assertRegex(text, r"least budget +\S+ MiB  including what is left to the system")
        sizes = dict(re.findall(r"(in all|left to the system|least budget) +(\S+) MiB", text))
        self.assertGreater(float(sizes["least budget"]), float(sizes["left to the system"]))


if __name__ == "__main__":
    main()
