#!/usr/bin/env python3
"""Weights in a rotated basis: what declares it is applied completely or refused by name, adapters work with it, and
conversions keep it or undo it. tests/model/families.c compares the files with the reference outputs."""
import array
import json
import math
import os
import random

import gguf
from support import GOLDEN, FolderCase, main, read_safetensors, setun

PLAIN = os.path.join(GOLDEN, "gguf", "qwen3.gguf")
ROTATED, TIED, IDENTITY = (os.path.join(GOLDEN, "gguf", f"qwen3-rot{kind}.gguf") for kind in ("", "-tied", "-identity"))
TERNARY = os.path.join(GOLDEN, "gguf", "qwen3-ternary-rot-pq2.gguf")
IDS = ",".join(str(i) for i in range(3, 40))
KEY = "prism.hadamard."


def transform(x, block):
    """The normalized Walsh-Hadamard transform of each block."""
    x, half = list(x), 1
    while half < block:
        for i in range(len(x)):
            if not i & half:
                x[i], x[i + half] = x[i] + x[i + half], x[i] - x[i + half]
        half *= 2
    return [v / math.sqrt(block) for v in x]


class RotationTest(FolderCase):
    def logits(self, model, *args):
        out = self.path("logits")
        self.good("logits", model, "--ids", IDS, "--precise", "-o", out, *args)
        return read_safetensors(out)["logits"][1]

    def worst(self, a, b):
        return max(abs(x - y) for x, y in zip(a, b))

    def refused(self, changes, *mentions, source=ROTATED):
        path = self.path("edited.gguf")
        gguf.edit(source, path, {KEY + name: value for name, value in changes.items()})
        result = setun("logits", path, "--ids", IDS, "-o", self.path("logits"))
        text = result.stderr.decode()
        self.assertEqual(result.returncode, 1, text)
        for mention in mentions:
            self.assertIn(mention, text)

    def test_refused(self):
        names = [n.decode() for n in gguf.read_array(ROTATED, KEY + "weight_names")]
        widths, signs = (gguf.read_array(ROTATED, KEY + name) for name in ("sign_widths", "sign_values"))
        for name in ("version", "block_size", "transform", "axis", "sign_mode", "sign_widths", "sign_values", "weight_names"):
            self.refused({name: None}, KEY + name, "found")
        for name, values in {
                "version": (0, 3), "block_size": (0, 3, 96, 4096), "transform": ("walsh", 1), "axis": ("output", 1),
                "sign_mode": ("random", "identity", 1), "tied_output": (True, 1), "gdn_v_grouped": (1,), "another": (1, "x"),
                "sign_widths": (widths[:-1], widths + widths[:1], widths[:-1] + [7], "x", ["a"]),
                "sign_values": (signs[:-1], signs + [1], [2] + signs[1:], [0] + signs[1:], "x"),
                "inverse_weight_names": (["output.weight"], ["token_embd.weight"] * 2, "token_embd.weight", [1])}.items():
            for value in values:
                self.refused({name: value}, KEY)
        for listed in ([], names + names[:1], names + ["blk.9.attn_q.weight"], names + ["blk.0.attn_norm.weight"],
                       names + ["token_embd.weight"], names + ["blk.0.ffn_gate_inp.weight"], names + ["other.weight"], [1]):
            self.refused({"weight_names": (gguf.STRING, listed) if not listed else listed}, KEY)
        for name, value, found in (("version", 3, "found 3"), ("block_size", 96, "found 96"), ("another", 1, "unknown"),
                                   ("sign_mode", "random", 'found "random"'), ("sign_values", [2] + signs[1:], "found 2"),
                                   ("sign_widths", widths[:-1] + [7], "found 7"), ("block_size", None, "found none")):
            self.refused({name: value}, KEY + name, found)
        self.refused({"tied_output": None, "version": 1}, KEY + "tied_output", source=TIED)
        self.refused({"inverse_weight_names": None}, KEY + "inverse_weight_names", source=TIED)
        self.refused({"version": 2, "tied_output": True}, KEY + "tied_output")

    def test_shown(self):
        notices = json.loads(self.good("inspect", TIED, "--json"))["notices"]
        self.assertTrue(any("in a rotated basis" in n and "the embedding" in n for n in notices), notices)
        self.assertTrue(any("in a rotated basis" in n for n in json.loads(self.good("inspect", IDENTITY, "--json"))["notices"]))

    def test_ignored_it_is_another_model(self):
        plain = self.logits(PLAIN)
        self.assertLess(self.worst(self.logits(ROTATED), plain), 1e-4)
        self.assertGreater(self.worst(self.logits(ROTATED, "--ignore-key", KEY + "*"), plain), 1e-2)

    def test_value_heads_folded_in_tiled_order(self):
        """Without gdn_v_grouped the inputs of ssm_out are in the file's order of heads: the same model, folded again so."""
        source = os.path.join(GOLDEN, "gguf", "qwen35-rot.gguf")
        keys, tensors, data = gguf.read(source)
        data, block = bytearray(data), keys[KEY + "block_size"]
        key_heads, value_heads = keys["qwen35.ssm.group_count"], keys["qwen35.ssm.time_step_rank"]
        widths, signs = (gguf.read_array(source, KEY + name) for name in ("sign_widths", "sign_values"))
        for name, (dims, _, at) in tensors.items():
            if not name.endswith("ssm_out.weight"):
                continue
            columns, rows = dims
            begin, dim = sum(widths[:widths.index(columns)]), columns // value_heads
            own = signs[begin:begin + columns]
            grouped = [(h % key_heads * (value_heads // key_heads) + h // key_heads) * dim + i  # of each column in tiled order
                       for h in range(value_heads) for i in range(dim)]
            values = array.array("f", bytes(data[at:at + 4 * columns * rows]))
            for row in range(0, columns * rows, columns):
                plain = [s * x for s, x in zip(own, transform(values[row:row + columns], block), strict=True)]
                values[row:row + columns] = array.array("f", transform([s * plain[c] for s, c in zip(own, grouped, strict=True)], block))
            data[at:at + 4 * columns * rows] = values.tobytes()
        with open(self.path("folded.gguf"), "wb") as file:
            file.write(data)
        for change in ({KEY + "gdn_v_grouped": None}, {KEY + "gdn_v_grouped": False}):
            gguf.edit(self.path("folded.gguf"), self.path("tiled.gguf"), change)
            self.assertLess(self.worst(self.logits(self.path("tiled.gguf")), self.logits(source)), 1e-4)

    def test_adapters(self):
        """Adapters see plain activations, with rotated matrices and a rotated head as with plain ones."""
        draw, tensors = random.Random(5), []
        dims = gguf.read(PLAIN)[1]
        for name in ("blk.0.attn_q", "blk.0.attn_k", "blk.1.attn_output", "blk.1.ffn_gate", "blk.0.ffn_down"):
            columns, rows = dims[name + ".weight"][0]
            for part, shape in (("a", [columns, 4]), ("b", [4, rows])):
                values = array.array("f", (draw.gauss(0, 0.2) for _ in range(shape[0] * shape[1])))
                tensors.append((f"{name}.weight.lora_{part}", shape, gguf.F32_TYPE, values.tobytes()))
        adapter = self.path("adapter.gguf")
        gguf.write(adapter, tensors, [("general.type", "adapter"), ("general.architecture", "qwen3"), ("adapter.type", "lora"),
                                      ("adapter.lora.alpha", 8.0)])
        plain, without = self.logits(PLAIN, "--lora", adapter), self.logits(PLAIN)
        self.assertGreater(self.worst(plain, without), 1e-2)
        for model in (ROTATED, TIED, IDENTITY):
            self.assertLess(self.worst(self.logits(model, "--lora", adapter), plain), 1e-4, model)

    def convert(self, source, target, *args):
        path = self.path(target)
        self.good("convert", source, "-o", path, *args)
        return path

    def test_kept(self):
        """The basis is kept, under the names that tensors have in the target."""
        even = self.path("even.gguf")  # of one scale a tensor, which t16 needs
        with open(TERNARY, "rb") as file:
            data = bytearray(file.read())
        for dims, kind, at in gguf.read(TERNARY)[1].values():
            for block in range(at, at + dims[0] * dims[-1] // 128 * 34 if kind == 142 else at, 34):
                data[block:block + 2] = data[at:at + 2]
        with open(even, "wb") as file:
            file.write(data)
        for source, to in ((TERNARY, "ptq1_0"), (even, "t16")):
            kept = self.convert(source, "kept.gguf", "--to", to)
            self.assertLess(self.worst(self.logits(kept), self.logits(source)), 1e-5)
            self.assertEqual(sorted(gguf.read_array(kept, KEY + "weight_names")), sorted(gguf.read_array(TERNARY, KEY + "weight_names")))
        floats = self.convert(TIED, "floats", "--to", "f32")
        with open(os.path.join(floats, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.assertEqual(config["model_type"], "setun_hadamard_qwen3")  # which other readers refuse
        self.assertIn("model.layers.0.self_attn.q_proj.weight", config["setun_hadamard"]["weight_names"])
        self.assertEqual(config["setun_hadamard"]["inverse_weight_names"], ["model.embed_tokens.weight"])
        self.assertEqual(self.logits(floats), self.logits(TIED))
        self.good("tokenize", floats, "-p", "abc")
        again = self.convert(floats, "again.gguf", "--to", "f32")
        self.assertEqual(self.logits(again), self.logits(TIED))
        for name in ("version", "block_size", "sign_mode", "transform", "axis", "tied_output"):
            self.assertEqual(gguf.read(again)[0][KEY + name], gguf.read(TIED)[0][KEY + name])
        for name in ("sign_widths", "sign_values", "inverse_weight_names"):
            self.assertEqual(gguf.read_array(again, KEY + name), gguf.read_array(TIED, KEY + name))
        config.pop("setun_hadamard")
        with open(os.path.join(floats, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        self.fails(1, "plan", floats, mentions=["setun_hadamard: expected"])

    def tensor(self, model, name):
        out = self.path("tensor")
        self.good("inspect", model, "--tensor", name, "-o", out)
        return next(iter(read_safetensors(out).values()))[1]

    def test_undone(self):
        """Back to the weights that were rotated: within a float32 rounding or two of these, since the stored ones are
        rounded too; in a directory and in GGUF."""
        plain = self.logits(PLAIN)
        for source in (ROTATED, TIED, IDENTITY):
            for target in ("undone.gguf", "undone"):
                path = self.convert(source, os.path.basename(source) + target, "--to", "f32", "--unrotate")
                self.assertLess(self.worst(self.logits(path), plain), 1e-4)
                if target != "undone":
                    self.assertFalse([k for k in gguf.read(path)[0] if k.startswith(KEY)])
                    for name in ("blk.0.attn_q.weight", "blk.1.attn_k.weight", "blk.2.ffn_down.weight", "token_embd.weight"):
                        self.assertLess(self.worst(self.tensor(path, name), self.tensor(PLAIN, name)), 1e-6)
        folder = os.path.join(GOLDEN, "hf", "qwen3-ternary-rot")
        path = self.convert(TERNARY, "undone-ternary", "--to", "f32", "--unrotate")
        self.assertLess(self.worst(self.logits(path), self.logits(folder)), 1e-4)
        self.assertLess(self.worst(self.tensor(path, "model.layers.0.mlp.up_proj.weight"),
                                   self.tensor(folder, "model.layers.0.mlp.up_proj.weight")), 1e-6)

    def test_what_cannot_be_undone(self):
        target = self.path("none.gguf")
        for source, to, mentions in ((TERNARY, "t2", ["rotated basis", "f32"]), (TERNARY, "bf16", ["not exact in bf16; f32 holds it"]),
                                     (PLAIN, "f32", ["expected weights in a rotated basis"])):
            self.fails(1, "convert", source, "-o", target, "--to", to, "--unrotate", mentions=mentions)
            self.assertFalse(os.path.exists(target))


if __name__ == "__main__":
    main()
