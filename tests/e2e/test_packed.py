#!/usr/bin/env python3
"""Whole models whose weights GPTQ or compressed-tensors packed: the same logits as with the weights that they mean, written
here as floats. What is packed is quantized here, by the formats' definitions, in the standard library alone. And what is
wrong with such files."""
import array
import json
import math
import os
import random
import shutil
import struct
import unittest

from support import GOLDEN, ROOT, TALES, FolderCase, argmax, main, negative_log_likelihood, read_safetensors, rows as rows_of

BASE = os.path.join(GOLDEN, "hf", "llama3")
IDS = "1,17,5,203,44,90,300,2,8,77,150,31,219,6"
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "I32": 4, "I64": 8, "I16": 2, "U8": 1}


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    n = int.from_bytes(data[:8], "little")
    return {name: (e["dtype"], e["shape"], data[8 + n + e["data_offsets"][0]:8 + n + e["data_offsets"][1]])
            for name, e in json.loads(data[8:8 + n]).items() if name != "__metadata__"}


def save(path, tensors):
    header, data = {}, bytearray()
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


def floats_of(content):
    """BF16 as floats."""
    return struct.unpack(f"<{len(content) // 2}f", b"".join(b"\0\0" + content[i:i + 2] for i in range(0, len(content), 2)))


def half(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def words(stream, bits, whole=False):
    """Values as 32-bit words, low bits first: one stream, or 32 / bits whole ones a word."""
    if whole:
        each = 32 // bits
        return [sum(v << bits * i for i, v in enumerate(stream[at:at + each])) for at in range(0, len(stream), each)]
    number = 0
    for i, v in enumerate(stream):
        number |= v << bits * i
    return [number >> 32 * i & 0xFFFFFFFF for i in range((len(stream) * bits + 31) // 32)]


def i32(values):
    return b"".join(struct.pack("<I", v & 0xFFFFFFFF) for v in values)


def quantize(rows, bits, groups_of, n_groups, symmetric):
    """Codes [N][K], scales and zeros [N][groups]; and the floats that they mean."""
    most, out, scales, zeros, floats = (1 << bits) - 1, [], [], [], []
    for row in rows:
        ds, zs = [], []
        for g in range(n_groups):
            part = [v for v, of in zip(row, groups_of) if of == g]
            low, high = min(0, *part), max(0, *part)
            if symmetric:
                low, high = -max(-low, high), max(-low, high)
            d = half((high - low) / most) or half(1e-4)
            ds.append(d)
            zs.append(1 << bits - 1 if symmetric else min(most, max(1, round(-low / d))))
        codes = [min(most, max(0, round(v / ds[g]) + zs[g])) for v, g in zip(row, groups_of)]
        out.append(codes)
        scales.append(ds)
        zeros.append(zs)
        floats.append([ds[g] * (c - zs[g]) for c, g in zip(codes, groups_of)])
    return out, scales, zeros, floats


def transposed(rows):
    return [list(column) for column in zip(*rows)]


def flat(rows):
    return [v for row in rows for v in row]


def f32(rows):
    return ("F32", [len(rows), len(rows[0])], array.array("f", flat(rows)).tobytes())


def f16(rows):
    return ("F16", [len(rows), len(rows[0])], b"".join(struct.pack("<e", v) for v in flat(rows)))


def groups(columns, group, order):
    """The group of each column, in turns or at random."""
    of = [k // group for k in range(columns)]
    if order:
        order.shuffle(of)
    return of


def gptq(module, rows, bits, symmetric, version, order, group=32):
    of = groups(len(rows[0]), group, order)
    codes, scales, zeros, floats = quantize(rows, bits, of, max(of) + 1, symmetric)
    stored = [[z - (version == 1) for z in row] for row in transposed(zeros)]
    q = transposed([words(row, bits) for row in codes])
    z = [words(row, bits) for row in stored]
    return {module + ".qweight": ("I32", [len(q), len(rows)], i32(flat(q))),
            module + ".qzeros": ("I32", [len(z), len(z[0])], i32(flat(z))),
            module + ".scales": f16(transposed(scales)),
            module + ".g_idx": ("I32", [len(of)], i32(of))}, floats


def packed_ints(module, rows, bits, symmetric, order, group=32):
    of = groups(len(rows[0]), group, order)
    codes, scales, zeros, floats = quantize(rows, bits, of, max(of) + 1, symmetric)
    out = {module + ".weight_packed": ("I32", [len(rows), len(words(codes[0], bits, True))],
                                       i32(flat(words(row, bits, True) for row in codes))),
           module + ".weight_scale": f16(scales),
           module + ".weight_shape": ("I64", [2], struct.pack("<2q", len(rows), len(rows[0])))}
    if not symmetric:
        z = transposed([words(column, bits, True) for column in transposed(zeros)])
        out[module + ".weight_zero_point"] = ("I32", [len(z), len(z[0])], i32(flat(z)))
    if order:
        out[module + ".weight_g_idx"] = ("I32", [len(of)], i32(of))
    return out, floats


def bitmask(module, rows):
    kept, masks, floats = [], [], []
    for row in rows:
        row = [half(v) for v in row]
        mask, out = bytearray((len(row) + 7) // 8), [0.0] * len(row)
        for at in range(0, len(row), 4):
            for k in sorted(sorted(range(at, at + 4), key=lambda k: (-abs(row[k]), k))[:2]):
                mask[k // 8] |= 1 << k % 8
                out[k] = row[k]
                kept.append(row[k])
        masks.append(bytes(mask))
        floats.append(out)
    n, k = len(rows), len(rows[0])
    return {module + ".compressed": ("F16", [n, k // 2], b"".join(struct.pack("<e", v) for v in kept)),
            module + ".bitmask": ("U8", [n, len(masks[0])], b"".join(masks)),
            module + ".shape": ("I64", [2, 1], struct.pack("<2q", n, k))}, floats


def gptq_config(bits, symmetric=True, form="gptq", **more):
    return dict({"quant_method": "gptq", "bits": bits, "group_size": 32, "desc_act": True, "sym": symmetric,
                 "checkpoint_format": form, "damp_percent": 0.1, "true_sequential": True}, **more)


def ct_config(bits, symmetric=True):
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
            "quantization_status": "compressed",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
                "num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "group", "group_size": 32}}}}


class PackedTest(FolderCase):
    def path(self, name):
        return os.path.join(self.folder, name)

    def directory(self, name, tensors, quantization):
        path = self.path(name)
        os.mkdir(path)
        for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            shutil.copy(os.path.join(BASE, file), path)
        with open(os.path.join(BASE, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        if quantization:
            config["quantization_config"] = quantization
        with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        save(os.path.join(path, "model.safetensors"), tensors)
        return path

    def both(self, name, quantization, pack):
        """The packed directory, and one with what its weights mean."""
        packed, plain = {}, {}
        for key, (dtype, shape, content) in load(os.path.join(BASE, "model.safetensors")).items():
            if "_proj.weight" not in key:
                packed[key] = plain[key] = (dtype, shape, content)
                continue
            values = floats_of(content)
            rows = [values[i * shape[1]:(i + 1) * shape[1]] for i in range(shape[0])]
            tensors, floats = pack(key[:-len(".weight")], rows)
            packed.update(tensors)
            plain[key] = f32(floats)
        return self.directory(name, packed, quantization), self.directory(name + "-plain", plain, None)

    def logits(self, path, *extra):
        self.good("logits", path, "--ids", IDS, "-o", self.path("out"), *extra)
        return read_safetensors(self.path("out"))["logits"][1]

    def compare(self, packed, plain, exact):
        a, b = self.logits(packed, "--precise"), self.logits(plain, "--precise")
        if exact:
            self.assertEqual(a, b)
        self.assertLess(max(abs(x - y) for x, y in zip(a, b)), 2e-5)
        fast = self.logits(packed)
        self.assertLess(max(abs(x - y) for x, y in zip(fast, b)), 0.3)  # int8 activations; logits reach 8

    def test_gptq(self):
        for bits, symmetric, version, ordered in ((2, False, 2, False), (3, True, 1, True), (4, False, 1, True), (8, True, 2, False)):
            order = random.Random(bits) if ordered else None
            with self.subTest(bits=bits):
                config = gptq_config(bits, symmetric, "gptq_v2" if version == 2 else "gptq")
                packed, plain = self.both(f"gptq{bits}", config, lambda m, r: gptq(m, r, bits, symmetric, version, order))
                self.compare(packed, plain, not ordered)

    def test_older_config(self):
        """quantize_config.json beside config.json, and zero points of version 2 that are said to be of version 1."""
        packed, plain = self.both("older", None, lambda m, r: gptq(m, r, 4, True, 2, None))
        config = gptq_config(4)
        del config["quant_method"], config["checkpoint_format"]
        with open(os.path.join(packed, "quantize_config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        self.compare(packed, plain, True)
        text = self.good("inspect", packed, "--json").decode()
        self.assertIn("symmetric zero points are those of gptq_v2", text)

    def test_compressed_tensors(self):
        for bits, symmetric, ordered in ((4, True, True), (4, False, False), (8, True, False)):
            order = random.Random(bits) if ordered else None
            with self.subTest(bits=bits, symmetric=symmetric):
                packed, plain = self.both(f"ct{bits}{symmetric}", ct_config(bits, symmetric),
                                          lambda m, r: packed_ints(m, r, bits, symmetric, order))
                self.compare(packed, plain, not ordered)

    def test_other_groups(self):
        """Groups of 16 columns, of 48 with a shorter last one, and whole rows: rows here have 64 and 160 columns."""
        for group, ordered in ((16, True), (48, False), (-1, False)):
            order, size = random.Random(7) if ordered else None, 1000 if group < 0 else group
            with self.subTest(group=group):
                packed, plain = self.both(f"gptq{group}", gptq_config(4, False, group_size=group),
                                          lambda m, r: gptq(m, r, 4, False, 1, order, size))
                self.compare(packed, plain, False)
        config = ct_config(4, False)
        config["config_groups"]["group_0"]["weights"]["group_size"] = 16
        packed, plain = self.both("ct16", config, lambda m, r: packed_ints(m, r, 4, False, None, 16))
        self.compare(packed, plain, False)

    def test_against(self):
        """The divergence from the float model, against one computed here from both models' logits."""
        packed, _ = self.both("two", gptq_config(2), lambda m, r: gptq(m, r, 2, True, 1, None))
        ids = [int(i) for i in IDS.split(",")]
        with open(self.path("ids"), "w", encoding="utf-8") as file:
            json.dump(ids, file)
        logits = []
        for model in (packed, BASE):
            self.good("logits", model, "--ids", IDS, "-o", self.path("out"), "--precise")
            logits.append(rows_of(read_safetensors(self.path("out"))["logits"]))
        divergence = same = nll = 0
        for ours, theirs, target in zip(*logits, ids[1:]):
            q, p = ([-negative_log_likelihood(row, i) for i in range(len(row))] for row in (ours, theirs))
            divergence += math.fsum(math.exp(b) * (b - a) for a, b in zip(q, p))
            same += argmax(ours) == argmax(theirs)
            nll -= p[target]
        n = len(ids) - 1
        got = json.loads(self.good("perplexity", packed, "--ids", self.path("ids"), "--against", BASE, "--precise", "--json"))
        self.assertGreater(divergence / n, 0.01)
        self.assertAlmostEqual(got["kl_divergence"], divergence / n, delta=1e-5)
        self.assertAlmostEqual(got["same_top"], same / n, delta=1e-9)
        self.assertAlmostEqual(got["against_perplexity"], math.exp(nll / n), delta=1e-3)
        self.fails(1, "perplexity", packed, "--ids", self.path("ids"), "--against", TALES,
                   mentions=["setun-tales-7m", "vocabulary of 320"])

    def test_to_gguf(self):
        """Exactly as floats; kept with the same number of bits, except for columns in another order."""
        for ordered in (False, True):
            order = random.Random(3) if ordered else None
            packed, plain = self.both(f"gguf{ordered}", gptq_config(4), lambda m, r: gptq(m, r, 4, False, 1, order))
            out, recipe = self.path("out.gguf"), self.path("recipe")
            want = self.logits(plain, "--precise")
            self.good("convert", packed, "-o", out, "--to", "f32")
            self.assertLess(max(abs(x - y) for x, y in zip(self.logits(out, "--precise"), want)), 2e-5)
            with open(recipe, "w", encoding="utf-8") as file:
                file.write("blk.2.ffn_down.weight = q8_0\n* = keep\n")
            if ordered:
                self.fails(1, "quantize", packed, "-o", out, "--scheme", recipe, mentions=["blk.0.", "act-order"])
                continue
            self.good("quantize", packed, "-o", out, "--scheme", recipe)
            self.assertLess(max(abs(x - y) for x, y in zip(self.logits(out, "--precise"), want)), 0.2)
            self.assertLess(os.path.getsize(out), 200000)

    def test_bitmask(self):
        config = {"quant_method": "compressed-tensors", "format": "dense",
                  "sparsity_config": {"format": "sparse-24-bitmask", "sparsity_structure": "2:4", "targets": ["Linear"]}}
        packed, plain = self.both("bitmask", config, bitmask)
        self.compare(packed, plain, True)

    def test_refused_configs(self):
        tensors = load(os.path.join(BASE, "model.safetensors"))
        for i, (config, words_) in enumerate((
                (gptq_config(4, is_marlin_format=True), ["is_marlin_format"]),
                (gptq_config(4, pack_dtype="int8"), ["pack_dtype", "int32", "int8"]),
                (gptq_config(4, form="marlin"), ["checkpoint_format", "gptq_v2", "marlin"]),
                (gptq_config(4, some_new_trick=3), ["some_new_trick"]),
                (dict(ct_config(4), format="float-quantized"), ["float-quantized"]),
                (dict(ct_config(4), kv_cache_scheme={"num_bits": 8}), ["kv_cache_scheme"]),
                (dict(ct_config(4), sparsity_config={"format": "sparse-bitmask"}), ["sparse-bitmask"]))):
            path = self.directory(f"refused{i}", tensors, config)
            self.fails(1, "logits", path, "--ids", "1", "-o", self.path("out"), mentions=["quantization_config"] + words_)

    def test_bad_tensors(self):
        rows = [[float((r * 7 + k * 3) % 11 - 5) for k in range(64)] for r in range(64)]
        good = gptq("m", rows, 4, False, 1, random.Random(1))[0]
        sparse = bitmask("m", rows)[0]
        marlin = {name.replace("int4_g128_64x128", "m"): t for name, t in load(os.path.join(
            ROOT, "tests", "quant", "packed", "marlin-24", "input.safetensors")).items() if "int4_g128_64x128" in name}

        def changed(tensors, name, at, content):
            dtype, shape, data = tensors[name]
            return dict(tensors, **{name: (dtype, shape, data[:at] + content + data[at + len(content):])})

        def without(tensors, name):
            return {key: value for key, value in tensors.items() if key != name}
        short = dict(good, **{"m.g_idx": ("I32", [32], good["m.g_idx"][2][:128])})
        for tensors, mentions in (
                (changed(good, "m.g_idx", 20, i32([2])), ["m.g_idx", "element 5", "0 to 1", "found 2"]),
                (changed(good, "m.g_idx", 0, i32([-1])), ["m.g_idx", "element 0", "found -1"]),
                (changed(good, "m.scales", 6, b"\x00\x7e"), ["m.qweight", "finite", "row 3"]),
                (short, ["m.g_idx", "[1, 64]", "[32]"]),
                (without(good, "m.scales"), ["m.scales", "found none"]),
                (without(good, "m.qzeros"), ["m.qzeros", "found none"]),
                (changed(sparse, "m.bitmask", 8, bytes([sparse["m.bitmask"][2][8] | 15])),
                 ["m.bitmask", "row 1", "columns 0 to 3", "exactly two of four", "found 4"]),
                (changed(sparse, "m.bitmask", 9, bytes([sparse["m.bitmask"][2][9] & 15])),
                 ["m.bitmask", "row 1", "columns 12 to 15", "found 0"]),
                (changed(sparse, "m.shape", 8, struct.pack("<q", 62)), ["m.shape", "multiple of 4"]),
                (changed(marlin, "m.meta", 0, b"\0\0"), ["m.meta", "exactly two of four", "code 0"])):
            save(self.path("bad.safetensors"), tensors)
            self.fails(1, "inspect", self.path("bad.safetensors"), "--tensor", "m", "-o", self.path("out"), mentions=mentions)


if __name__ == "__main__":
    main()
