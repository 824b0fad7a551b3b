"""The command `convert`: every layout to every other, containers, refusals, and failures to write."""
import filecmp
import hashlib
import itertools
import json
import math
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

import edit
import gguf
from support import COMMAND, GOLDEN, ROOT, TALES, FolderCase, read_safetensors, setun

# name: (K a multiple of, rows a multiple of, half-precision scales)
LAYOUTS = {"t2": (1, 1, False), "t5": (1, 1, False), "t16": (1, 1, False),
           "i2_s": (128, 1, False), "i2_s-arm": (64, 1, False), "i2_s-x4": (1, 4, False),
           "tq1_0": (256, 1, True), "tq2_0": (256, 1, True), "q2_0": (64, 1, True), "q2_0-128": (128, 1, True),
           "pq2_0": (128, 1, True), "ptq1_0": (128, 1, True), "iq1_bn": (64, 1, True), "iq2_bn": (64, 1, False)}
FLOATS = ("f32", "f16", "bf16")
PROMPT = "Once upon a time"


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def convert(source, target, to, *more, **options):
    return setun("convert", source, "-o", target, "--to", to, *more, **options)


def read_tensors(directory):
    """Name: (type, bytes)."""
    with open(os.path.join(directory, "model.safetensors"), "rb") as file:
        data = file.read()
    start = 8 + int.from_bytes(data[:8], "little")
    return {name: (entry["dtype"], data[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]])
            for name, entry in json.loads(data[8:start]).items() if name != "__metadata__"}


def floats(kind, data):
    if kind == "BF16":
        data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    return struct.unpack(f"<{len(data) // 4}f", data)


def pairs(names):
    """Every pair of layouts; under sanitizers, where each run takes long, every eleventh: the code is the same."""
    every = list(itertools.product(names, names))
    return every[::11] if os.environ.get("SETUN_SANITIZE") else every


class Folder(FolderCase):
    def converted(self, source, name, to, *more):
        """The path of a conversion that must succeed."""
        target = self.path(name)
        result = convert(source, target, to, *more)
        self.assertEqual(result.returncode, 0, f"{source} to {to}: {result.stderr.decode()}")
        return target

    def refused(self, source, to, *words, more=(), name="refused.gguf"):
        target = self.path(name)
        result = convert(source, target, to, *more)
        message = result.stderr.decode()
        self.assertEqual(result.returncode, 1, f"{source} to {to} should have been refused")
        for word in words:
            self.assertIn(word, message)
        self.assertFalse(os.path.exists(target), "something was written")
        self.assertEqual([n for n in os.listdir(self.folder) if ".part" in n], [])

    def ids(self, model, prompt=PROMPT, n=24):
        result = setun("run", model, "-p", prompt, "--temp", "0", "-n", n, "--ids", "--ignore-eos")
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return json.loads(result.stdout)


class Matrix(Folder):
    """setun-tales-7m in every layout."""

    def test_every_pair_of_gguf_layouts(self):
        names = [*LAYOUTS, *FLOATS]
        files = {to: self.converted(TALES, to + ".gguf", to) for to in names}
        digests = {to: digest(path) for to, path in files.items()}
        expected = self.ids(TALES)
        for to, path in files.items():
            with self.subTest(ids=to):
                self.assertEqual(self.ids(path), expected)
        for source, to in pairs(names):
            with self.subTest(source=source, to=to):
                self.assertEqual(digest(self.converted(files[source], "again.gguf", to)), digests[to])

    def test_directories(self):
        expected = self.ids(TALES)
        t2 = self.converted(TALES, "t2.gguf", "t2")
        for to in ("hf-u8", *FLOATS):
            with self.subTest(to=to):
                own = self.converted(TALES, "own-" + to, to)  # from a directory
                made = self.converted(t2, "made-" + to, to)  # from a GGUF file
                self.assertEqual(self.ids(own), expected)
                self.assertEqual(self.ids(made), expected)
                for source in (own, made):
                    self.assertEqual(digest(self.converted(source, "again.gguf", "t2")), digest(t2))
                again = self.converted(made, "again-" + to, "hf-u8")
                back = self.converted(again, "back-" + to, to)
                self.assertEqual(filecmp.dircmp(made, back).diff_files, [])
                # The original's weights.
                if to == "hf-u8":
                    original, written = read_tensors(TALES), read_tensors(own)
                    for name, (kind, data) in original.items():
                        self.assertEqual(floats(*written[name]) if name.endswith("_scale") else written[name][1],
                                         floats(kind, data) if name.endswith("_scale") else data, name)

    def test_reciprocals(self):
        """One of the model's scales is not the reciprocal of a float32 number."""
        self.refused(TALES, "hf-u8-div", "reciprocal", "hf-u8", name="div")
        rounded = self.converted(TALES, "rounded", "hf-u8-div", "--round-scales")
        self.assertEqual(len(self.ids(rounded)), 24)

    def test_layouts_belong_to_containers(self):
        self.refused(TALES, "hf-u8", "Hugging Face")
        self.refused(TALES, "tq2_0", "GGUF", name="directory")

    def test_embedding(self):
        for form in ("bf16", "f16", "q8_0", "q6_k", "f32"):
            path = self.converted(TALES, form + ".gguf", "tq2_0", "--embedding", form)
            other = self.converted(TALES, form + "-head.gguf", "tq2_0", "--head", form)  # the head is the embedding
            self.assertEqual(digest(path), digest(other))
            self.assertEqual(self.ids(path)[:8], self.ids(TALES)[:8])

    def test_keys(self):
        keys, tensors, _ = gguf.read(self.converted(TALES, "t5.gguf", "t5"))
        self.assertEqual(keys["setun.layout"], "t5")
        self.assertEqual(keys["setun.t5.digits"], "minus-zero-plus")
        self.assertEqual(keys["setun.activation"], "int8")
        self.assertNotIn("general.alignment", keys)  # which is 32 then
        names = list(tensors)
        self.assertEqual(names[0], "token_embd.weight")
        self.assertEqual(names[-1], "output_norm.weight")
        self.assertLess(names.index("blk.0.attn_q.weight"), names.index("blk.0.attn_q.scale"))
        offsets = [offset for _, _, offset in tensors.values()]
        self.assertEqual(offsets, sorted(offsets))
        self.assertTrue(all(offset % 32 == 0 for offset in offsets))
        keys, tensors, _ = gguf.read(self.converted(self.path("t5.gguf"), "tq1_0.gguf", "tq1_0"))
        self.assertNotIn("setun.t5.digits", keys)
        self.assertNotIn("blk.0.attn_q.scale", tensors)


class Golden(Folder):
    """The small models of tests/golden: other families, other ways of quantizing, experts."""

    def same_text(self, name, to, *more, prompt="hello"):
        source = os.path.join(GOLDEN, "hf", name)
        target = self.converted(source, name + to + ".gguf", to, *more)
        self.assertEqual(self.ids(target, prompt), self.ids(source, prompt))
        return target

    def test_bitnet(self):
        for name in ("bitnet-auto", "bitnet-latent"):
            for to in ("t2", "t5", "t16", "i2_s-x4", "f32"):
                self.same_text(name, to)
        path = self.same_text("bitnet-div", "t2")
        keys, _, _ = gguf.read(path)
        self.assertEqual(keys["general.architecture"], "llama")
        self.assertIn("setun.divisors.values", keys)
        self.assertEqual(keys["setun.activation"], "int8")
        # There and back, rows and divisors equal the checkpoint's.
        back = self.converted(path, "back", "hf-u8-div")
        with open(os.path.join(back, "config.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["quantization_config"]["linear_class"], "bitlinear")
        original, made = read_tensors(os.path.join(GOLDEN, "hf", "bitnet-div")), read_tensors(back)
        for tensor, (kind, data) in original.items():
            if kind == "U8":
                self.assertEqual(made[tensor][1], data, tensor)
            elif tensor.endswith("_scale"):
                self.assertEqual(floats(*made[tensor]), floats(kind, data), tensor)

    def test_floats_beside_ternary_weights(self):
        """A matrix of floats in a ternary model stays floats in a packed directory, where it could be taken for latent weights."""
        source, module = self.path("mixed"), "model.layers.1.mlp.up_proj"
        shutil.copytree(os.path.join(GOLDEN, "hf", "bitnet-auto"), source)
        with open(os.path.join(source, "model.safetensors"), "rb") as file:
            header, data = json.loads(file.read(int.from_bytes(file.read(8), "little"))), file.read()
        rng, tensors, at = random.Random(6), {}, 0
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            tensors[name] = (entry["dtype"], entry["shape"], data[begin:end])
        quarter, columns = tensors[module + ".weight"][1]
        values = [rng.gauss(0, 0.05) for _ in range(4 * quarter * columns)]
        tensors[module + ".weight"] = ("F32", [4 * quarter, columns], struct.pack(f"<{len(values)}f", *values))
        del tensors[module + ".weight_scale"]
        header = {}
        for name, (dtype, shape, content) in tensors.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(content)]}
            at += len(content)
        text = json.dumps(header).encode()
        with open(os.path.join(source, "model.safetensors"), "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text + b"".join(t[2] for t in tensors.values()))
        with open(os.path.join(source, "config.json"), "r+", encoding="utf-8") as file:
            config = json.load(file)
            packed = "model.layers.0.mlp.up_proj"  # packed modules may not be listed: transformers would not unpack them
            config["quantization_config"]["modules_to_not_convert"] = ["lm_head", packed, module]
            file.seek(0)
            json.dump(config, file)
            file.truncate()
        middle = self.converted(source, "mixed.gguf", "t2")
        logits = []
        for model in (source, middle, self.converted(middle, "back", "hf-u8"), self.converted(source, "copy", "hf-u8")):
            self.good("logits", model, "--ids", "5,6,7,8,9,10", "--precise", "-o", self.path("logits"))
            logits.append(list(read_safetensors(self.path("logits"))["logits"][1]))
        self.assertEqual(logits[1:], 3 * logits[:1])
        for name in ("back", "copy"):  # with the head, which transformers exempts only if there is no list
            with open(os.path.join(self.path(name), "config.json"), encoding="utf-8") as file:
                exempt = json.load(file)["quantization_config"]["modules_to_not_convert"]
                self.assertEqual(exempt, ["lm_head", module])

    def test_norms_of_single_matrices(self):
        """use_rms_norm and its epsilon stay: the packed copy still gives the reference's numbers."""
        source = os.path.join(GOLDEN, "numpy", "bitnet-norms")
        copy = self.converted(source, "norms", "hf-u8")
        with open(os.path.join(copy, "config.json"), encoding="utf-8") as file:
            config = json.load(file)["quantization_config"]
        self.assertEqual((config["use_rms_norm"], config["rms_norm_eps"]), (True, 0.001))
        golden, out = read_safetensors(os.path.join(source, "golden.safetensors")), self.path("logits")
        ids = ",".join(map(str, golden["input_ids"][1]))
        self.good("logits", copy, "--ids", ids, "--precise", "-o", out)
        worst = max(abs(a - b) for a, b in zip(read_safetensors(out)["logits"][1], golden["logits"][1]))
        self.assertLess(worst, 0.06)
        self.refused(source, "f32", "use_rms_norm", name="floats")
        # Without the promised norms the model is refused.
        with open(os.path.join(copy, "model.safetensors"), "r+b") as file:
            head = file.read(int.from_bytes(file.read(8), "little"))
            file.seek(8)
            file.write(head.replace(b"layers.1.mlp.up_proj.rms_norm", b"layers.1.mlp.up_proj.rms_morn"))
        self.fails(1, "logits", copy, "--ids", ids, "-o", out, mentions=["layers.1.mlp.up_proj.rms_norm.weight",
                                                                        "use_rms_norm"])

    def test_keys_that_bitnet_files_leave_out(self):
        """The published BitNet files lack keys; the family's values apply then: epsilon 1e-5, RoPE base 500000, 2048 tokens."""
        source = self.converted(os.path.join(GOLDEN, "hf", "bitnet-auto"), "whole.gguf", "t2")
        keys = ["bitnet-b1.58." + key for key in ("attention.layer_norm_rms_epsilon", "rope.freq_base", "context_length")]
        keys.append("tokenizer.ggml.pre")
        self.assertLessEqual(set(keys), set(gguf.read(source)[0]))
        gguf.edit(source, self.path("without.gguf"), dict.fromkeys(keys))
        self.assertEqual(self.ids(self.path("without.gguf")), self.ids(source))

    def test_official_files(self):
        """The converter of another project made tests/golden/gguf from the same checkpoints."""
        for name in ("llama3", "llama3-tied-sharded", "qwen3", "qwen2-moe", "mixtral", "olmoe-plain", "gemma3-plain",
                     "granite", "hunyuan", "olmo2", "phi3", "smollm3", "qwen35", "qwen35-moe"):
            with self.subTest(name=name):
                path = self.converted(os.path.join(GOLDEN, "hf", name), name + ".gguf", "f32", "--experts", "stacked")
                _, ours, data = gguf.read(path)
                _, theirs, official = gguf.read(os.path.join(GOLDEN, "gguf", name + ".gguf"))
                self.assertEqual(set(ours), set(theirs))
                for tensor, (dims, kind, offset) in theirs.items():
                    self.assertEqual(ours[tensor][0], dims, tensor)
                    count = 1
                    for d in dims:
                        count *= d
                    if tensor == "rope_freqs.weight" or kind != 0 or ours[tensor][1] != 0:
                        continue
                    a = data[ours[tensor][2]:ours[tensor][2] + 4 * count]
                    self.assertEqual(a, official[offset:offset + 4 * count], tensor)

    def test_both_ways(self):
        """Each container that is made from the other gives the official numbers."""
        for name in ("granite", "hunyuan", "olmo2", "phi3", "smollm3", "qwen35", "qwen35-moe"):
            golden = read_safetensors(os.path.join(GOLDEN, "hf", name, "golden.safetensors"))
            ids, out = ",".join(map(str, golden["input_ids"][1])), self.path("logits")
            for target, source in ((name + ".gguf", os.path.join("hf", name)), (name, os.path.join("gguf", name + ".gguf"))):
                with self.subTest(target=target):
                    made = self.converted(os.path.join(GOLDEN, source), target, "f32")
                    self.good("logits", made, "--ids", ids, "--precise", "-o", out)
                    worst = max(abs(a - b) for a, b in zip(read_safetensors(out)["logits"][1], golden["logits"][1]))
                    self.assertLess(worst, 1e-4)

    def test_recurrent_layers(self):
        """There and back again: the same order of heads, the same decays, bit-identical logits."""
        for name in ("qwen35-multimodal", "qwen35-moe", "qwen3-next"):
            with self.subTest(name=name):
                made = self.converted(os.path.join(GOLDEN, "hf", name), name + ".gguf", "f32")
                back = self.converted(made, name, "f32")
                self.assertEqual(self.logits(back), self.logits(os.path.join(GOLDEN, "hf", name)))
        plain = self.converted(os.path.join(GOLDEN, "gguf", "qwen35-rot.gguf"), "plain.gguf", "f32", "--unrotate")
        official = self.logits(os.path.join(GOLDEN, "gguf", "qwen35.gguf"))
        self.assertLess(max(abs(a - b) for a, b in zip(self.logits(plain), official)), 1e-4)
        # Two matrices that directories have as one.
        joined = self.converted(os.path.join(GOLDEN, "gguf", "qwen3-next.gguf"), "joined", "f32")
        tensors = [edit.safetensors(os.path.join(path, "model.safetensors")) for path in (joined, os.path.join(GOLDEN, "hf", "qwen3-next"))]
        names = [name for name in tensors[0] if name.endswith("in_proj_qkvz.weight")]
        self.assertTrue(names)
        for name in names:
            dtype, shape, official = tensors[1][name]
            self.assertEqual(dtype, "BF16")
            wide = b"".join(b"\0\0" + official[i:i + 2] for i in range(0, len(official), 2))
            self.assertEqual(tensors[0][name], ("F32", shape, wide), name)
        self.assertEqual(self.logits(joined), self.logits(os.path.join(GOLDEN, "hf", "qwen3-next")))

    def test_recurrent_layers_in_ternary(self):
        """Hybrids whose matrices are trits times a scale go to ternary layouts and come back with every number."""
        for name in ("qwen35", "qwen35-moe", "qwen3-next"):
            source = self.path(name + "-trits")
            tensors, put = edit.safetensors(os.path.join(GOLDEN, "hf", name, "model.safetensors")), {}
            for at, (tensor, (dtype, shape, _)) in enumerate(sorted(tensors.items())):
                last = tensor.removesuffix(".weight").rsplit(".", 1)[-1]
                if ".layers." in tensor and ("proj" in last and len(shape) > 1 or last == "gate_up_proj"):
                    n, scale = math.prod(shape), 0.0625 * (1 + at % 3)
                    trits = (((i * i * 7 + i * 13 + at) >> 3) % 3 - 1 for i in range(n))
                    put[tensor] = ("F32", shape, struct.pack(f"<{n}f", *(t * scale for t in trits)))
            edit.checkpoint(os.path.join(GOLDEN, "hf", name), source, put=put)
            expected, count = self.logits(source), 0
            for layout, back in (("t2", "f32"), ("t5", "t16"), ("t16", "f32"), ("i2_s-x4", "t2"), ("hf-u8", "f32")):
                if layout == "hf-u8" and name != "qwen35":
                    continue  # experts in one tensor, and projections that are joined, are floats there
                with self.subTest(name=name, layout=layout):
                    made = self.converted(source, name + layout + ("" if layout == "hf-u8" else ".gguf"), layout)
                    once = self.converted(made, name + layout + back + ".gguf", back)
                    floats = self.converted(once, name + layout + "floats", "f32")
                    self.assertEqual(self.logits(floats), expected)
                    for model in (made, once):
                        found = self.logits(model)
                        self.assertLess(max(abs(a - b) for a, b in zip(found, expected)), 1e-4)
                    count += 1
            self.assertGreaterEqual(count, 4)

    def test_biases(self):
        """config.json says which biases the official class has to read; those that it cannot have are refused."""
        for name, keys in (("llama3-tied-sharded", ["attention_bias", "mlp_bias"]), ("qwen2-moe", ["qkv_bias"]),
                           ("gpt-oss", ["attention_bias"]), ("llama3", []), ("qwen3", [])):
            source = os.path.join(GOLDEN, "gguf", name + ".gguf")
            made = self.converted(source, name, "f32")
            with open(os.path.join(made, "config.json"), encoding="utf-8") as file:
                config = json.load(file)
            self.assertEqual([key for key in sorted(config) if key.endswith("_bias")], keys)
            self.assertTrue(all(config[key] is True for key in keys))
            # The reference implementation's own switch, where its file has it.
            with open(os.path.join(GOLDEN, "hf", name, "config.json"), encoding="utf-8") as file:
                official = json.load(file)
            self.assertEqual([key for key in sorted(official) if key.endswith("_bias") and official[key]], keys)
            self.assertEqual(self.logits(made), self.logits(os.path.join(GOLDEN, "hf", name)), name)
        source = os.path.join(GOLDEN, "gguf", "llama3-tied-sharded.gguf")
        without = edit.file(source, self.path("without.gguf"), lambda n: n.endswith("attn_output.bias"))
        self.refused(without, "f32", "attn_output", "LlamaForCausalLM", "bias", name="refused")

    def logits(self, model):
        out = self.path("logits")
        self.good("logits", model, "--ids", "1,2,3,4,5,6,7,8", "--precise", "-o", out)
        return list(read_safetensors(out)["logits"][1])

    def test_experts(self):
        source = os.path.join(GOLDEN, "hf", "qwen3-moe")
        split = self.converted(source, "split.gguf", "f32")
        stacked = self.converted(source, "stacked.gguf", "f32", "--experts", "stacked")
        names = list(gguf.read(split)[1])
        first = names.index("blk.0.ffn_gate.0.weight")
        self.assertEqual(names[first + 1:first + 4],
                         ["blk.0.ffn_up.0.weight", "blk.0.ffn_down.0.weight", "blk.0.ffn_gate.1.weight"])
        self.assertIn("blk.0.ffn_gate_exps.weight", gguf.read(stacked)[1])
        self.assertEqual(digest(self.converted(split, "a.gguf", "f32", "--experts", "stacked")), digest(stacked))
        self.assertEqual(digest(self.converted(stacked, "b.gguf", "f32")), digest(split))
        self.assertEqual(self.ids(split, "hello"), self.ids(source, "hello"))
        self.assertEqual(self.ids(stacked, "hello"), self.ids(source, "hello"))
        self.assertEqual(self.ids(self.converted(split, "back", "f32"), "hello"), self.ids(source, "hello"))

    def test_experts_that_directories_have_in_blocks(self):
        self.refused(os.path.join(GOLDEN, "hf", "gpt-oss"), "f32", "experts", "mxfp4", "convert to GGUF", name="refused")

    def test_not_ternary(self):
        self.refused(os.path.join(GOLDEN, "hf", "llama3"), "t2", "ternary")


def pack_t2(trits, rows, columns):
    out = bytearray()
    for r in range(rows):
        row = trits[r * columns:(r + 1) * columns] + [0] * (-columns % 4)
        for i in range(0, len(row), 4):
            out.append(sum((row[i + j] + 1) << 2 * j for j in range(4)))
    return bytes(out)


def write_t2(path, trits, rows, columns, scales, name="m", keys=()):
    gguf.write(path, [(name + ".weight", [columns, rows], gguf.T2_TYPE, pack_t2(trits, rows, columns)),
                      (name + ".scale", [len(scales)], gguf.F32_TYPE, struct.pack(f"<{len(scales)}f", *scales))], keys)


class Hostile(Folder):
    """Bare files of one matrix, of shapes and contents that find edges."""

    SHAPES = [(1, 1), (3, 5), (4, 127), (2, 128), (5, 129), (1, 256), (16, 64), (17, 320), (4, 8640)]

    def matrices(self):
        rng = random.Random(7)
        for rows, columns in self.SHAPES:
            n = rows * columns
            yield rows, columns, [rng.randint(-1, 1) for _ in range(n)], 0.75
        for value in (0, -1, 1):
            yield 4, 256, [value] * 1024, 0.5
        yield 4, 256, [rng.randint(-1, 1) for _ in range(1024)], 0.1  # not a half-precision number

    def test_matrix(self):
        for rows, columns, trits, scale in self.matrices():
            source = self.path("source.gguf")
            write_t2(source, trits, rows, columns, [scale])
            half = struct.unpack("<e", struct.pack("<e", scale))[0] == struct.unpack("<f", struct.pack("<f", scale))[0]
            files = {}
            for to, (multiple, row_multiple, keeps_half) in LAYOUTS.items():
                fits = columns % multiple == 0 and rows % row_multiple == 0 and (half or not keeps_half)
                with self.subTest(rows=rows, columns=columns, scale=scale, to=to):
                    if fits:
                        files[to] = self.converted(source, to + ".gguf", to)
                    elif columns % multiple == 0 and rows % row_multiple == 0:
                        self.refused(source, to, "m.weight", "scale", "t2")
                    else:
                        self.refused(source, to, "m.weight", to)
            digests = {to: digest(path) for to, path in files.items()}
            for a, b in pairs(files):
                with self.subTest(rows=rows, columns=columns, source=a, to=b):
                    self.assertEqual(digest(self.converted(files[a], "again.gguf", b)), digests[b])
            self.check_values(files, trits, scale)

    def check_values(self, files, trits, scale):
        scale = struct.unpack("<f", struct.pack("<f", scale))[0]
        for to, path in files.items():
            with self.subTest(values=to):
                _, tensors, data = gguf.read(self.converted(path, "floats.gguf", "f32"))
                offset = tensors["m.weight"][2]
                values = struct.unpack_from(f"<{len(trits)}f", data, offset)
                self.assertEqual(list(values), [t * scale for t in trits])

    def test_scales_of_rows(self):
        rng = random.Random(8)
        trits = [rng.choice((-1, 1)) for _ in range(4 * 256)]
        source = self.path("rows.gguf")
        write_t2(source, trits, 4, 256, [1, 2, 0.5, 4])
        for to in LAYOUTS:
            with self.subTest(to=to):
                path = self.converted(source, "rows-" + to + ".gguf", to)
                back = self.converted(path, "back.gguf", "t2")
                _, tensors, data = gguf.read(back)
                self.assertEqual(struct.unpack_from("<4f", data, tensors["m.scale"][2]), (1, 2, 0.5, 4))
                start = tensors["m.weight"][2]
                self.assertEqual(data[start:start + 256], pack_t2(trits, 4, 256))

    def test_scales_of_blocks(self):
        """Blocks of one row with scales of their own fit no layout with a scale a row."""
        block = lambda scale: struct.pack("<e", scale) + bytes([0x64] * 16)
        source = self.path("blocks.gguf")
        gguf.write(source, [("m.weight", [128, 2], gguf.Q2_0_TYPE, block(1) + block(2) + block(1) + block(1))],
                   [("setun.layout", "q2_0")])
        self.refused(source, "t2", "m.weight", "row 0", "q2_0")
        self.refused(source, "pq2_0", "m.weight", "row 0", "q2_0")
        self.converted(source, "rounded.gguf", "t2", "--round-scales")

    def test_codes(self):
        block = lambda last: struct.pack("<e", 1) + bytes([0x64] * 15 + [last])
        two = self.path("two.gguf")
        gguf.write(two, [("m.weight", [64, 2], gguf.Q2_0_TYPE, block(0x64) + block(0xE4))], [("setun.layout", "q2_0")])
        self.refused(two, "t2", "m.weight", "offset 35", "+2", "q2_0")
        self.converted(two, "floats.gguf", "f32")
        self.converted(two, "same.gguf", "q2_0")
        bad = self.path("bad.gguf")
        scale = ("m.scale", [1], gguf.F32_TYPE, struct.pack("<f", 1))
        gguf.write(bad, [("m.weight", [10, 2], gguf.T5_TYPE, bytes([121, 242, 0, 243])), scale])
        self.refused(bad, "t2", "m.weight", "offset 3")
        check = setun("inspect", "--check", bad)
        self.assertEqual(check.returncode, 1)
        self.assertIn(b"m.weight: invalid code, scale or number in the byte at offset 3", check.stderr)
        self.assertEqual(setun("inspect", "--check", two).returncode, 0)

    def poisoned(self, source, name, at, value):
        """A copy of the directory with these bytes in a tensor."""
        folder = tempfile.mkdtemp(dir=self.path("."))
        shutil.copytree(source, folder, dirs_exist_ok=True)
        with open(os.path.join(folder, "model.safetensors"), "r+b") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
            file.seek(8 + length + header[name]["data_offsets"][0] + at)
            file.write(value)
        return folder

    def test_floats_of_a_model_without_ternary_tensors(self):
        """Its matrices become such floats if these hold them exactly; its vectors keep their format."""
        source, vector = self.path("plain.gguf"), ("m.norm.weight", [2], gguf.F32_TYPE, struct.pack("<2f", 0.1, 0.2))
        numbers = (0.5, 1, 2, 3, 5, 7, 11, 13)
        gguf.write(source, [("m.weight", [4, 2], gguf.F32_TYPE, struct.pack("<8f", *numbers)), vector])
        for to, kind, data in (("f16", 1, struct.pack("<8e", *numbers)), ("f32", 0, struct.pack("<8f", *numbers)),
                               ("bf16", 30, b"".join(struct.pack("<f", x)[2:] for x in numbers))):
            out = self.converted(source, to + ".gguf", to)
            _, tensors, whole = gguf.read(out)
            _, found, at = tensors["m.weight"]
            self.assertEqual((found, whole[at:at + len(data)]), (kind, data))
            self.assertEqual(tensors["m.norm.weight"][1], gguf.F32_TYPE)
        self.assertEqual(digest(self.converted(self.path("bf16.gguf"), "back.gguf", "f32")), digest(self.path("f32.gguf")))
        gguf.write(source, [("m.weight", [4, 2], gguf.F32_TYPE, struct.pack("<8f", 0.5, 1, 2, 3, 5, 7, 11, 0.1)), vector])
        for to in ("f16", "bf16"):
            self.refused(source, to, "m.weight: 0.1", f"not exact in {to}; f32 holds it\n")
        gguf.write(source, [vector])
        for to in FLOATS:
            self.refused(source, to, f"none of its 1 tensors would become {to}")
        self.refused(source, "t2", "none of its 1 tensors is ternary")

    def test_quantized_values(self):
        """Every format of values to floats, to the bit as another library dequantizes it (tests/quant)."""
        blocks = read_safetensors(os.path.join(ROOT, "tests", "quant", "gguf-blocks.safetensors"))
        types = {"Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13,
                 "Q6_K": 14, "IQ4_NL": 20, "IQ4_XS": 23, "MXFP4": 39, "NVFP4": 40, "Q1_0": 41}
        source = self.path("values.gguf")
        for name, kind in types.items():
            ((rows, columns), values), (_, data) = blocks[name + ".values"], blocks[name + ".bytes"]
            plain = values.tobytes()
            with self.subTest(format=name):
                gguf.write(source, [("m.weight", [columns, rows], kind, data.tobytes())])
                _, tensors, whole = gguf.read(self.converted(source, name + ".gguf", "f32"))
                dims, found, at = tensors["m.weight"]
                self.assertEqual((dims, found), ([columns, rows], gguf.F32_TYPE))
                self.assertEqual(whole[at:at + len(plain)], plain)
                for to in ("f16", "bf16"):
                    exact = all(self.is_exact(x, to) for x in values)
                    if not exact:
                        self.refused(source, to, "m.weight", "f32 holds it")
                        continue
                    half = self.converted(source, f"{name}-{to}.gguf", to)
                    self.assertEqual(digest(self.converted(half, "wide.gguf", "f32")), digest(self.path(name + ".gguf")))

    @staticmethod
    def is_exact(x, to):
        if to == "bf16":
            return struct.pack("<f", x)[:2] == bytes(2)
        try:
            return struct.unpack("<e", struct.pack("<e", x))[0] == x
        except OverflowError:
            return False

    def test_quantized_embedding_of_a_ternary_model(self):
        source = self.converted(TALES, "q8.gguf", "tq2_0", "--embedding", "q8_0")
        kind = lambda path: gguf.read(path)[1]["token_embd.weight"][1]
        self.assertEqual(kind(self.converted(source, "f32.gguf", "f32")), gguf.F32_TYPE)
        for option in ("--embedding", "--head"):
            self.assertEqual(kind(self.converted(source, option + ".gguf", "f32", option, "keep")), 8)
        self.assertEqual(kind(self.converted(source, "t2.gguf", "t2")), 8)
        self.refused(source, "hf-u8", "q8_0 cannot be kept", "another format of the embedding", "(see --embedding)",
                     name="packed")
        made = self.converted(source, "packed", "hf-u8", "--embedding", "f32")
        self.assertEqual(self.ids(made), self.ids(source))
        self.assertEqual(self.ids(self.converted(source, "floats", "f32")), self.ids(source))

    def test_check_finds_what_loading_refuses_and_more(self):
        packed = self.converted(TALES, "packed", "hf-u8")
        self.assertEqual(setun("inspect", "--check", packed).returncode, 0)
        name, matrix = "model.embed_tokens.weight", "model.layers.1.mlp.down_proj.weight"
        for tensor, at, value, words in ((name, 70, b"\xc0\x7f", b"finite weights"), (name, 70, b"\x80\xff", b"finite weights"),
                                         ("model.norm.weight", 6, b"\x80\x7f", b"finite"), (matrix, 9, b"\xff", None)):
            with self.subTest(tensor=tensor, value=value):
                folder = self.poisoned(packed, tensor, at, value)
                check = setun("inspect", "--check", folder)
                self.assertEqual(check.returncode, 1)
                self.assertIn(f"{tensor}: invalid code, scale or number in the byte at offset {at} ".encode(), check.stderr)
                run = setun("run", folder, "-p", "a", "-n", 1)
                if words is None:  # every code has a value in kernels
                    self.assertEqual(run.returncode, 0, run.stderr)
                    continue
                self.assertEqual(run.returncode, 1)
                self.assertIn(words, run.stderr)
                self.assertIn(tensor.removesuffix(".weight").encode(), run.stderr)

    def test_zeros(self):
        source = self.path("zeros.gguf")
        write_t2(source, [0, 1, 0, 0, 0, -1, 1, 0, 0, 1, 0, 0], 3, 4, [1])
        report = json.loads(self.good_json("inspect", "--zeros", "--json", source))
        self.assertEqual(report, [{"name": "m.weight", "weights": 12, "zeros": 8, "columns": 4, "zero_columns": 2}])

    def good_json(self, *args):
        result = setun(*args)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return result.stdout


class Failures(Folder):
    def limited(self, source, target, to, size, default_signal):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL if default_signal else signal.SIG_IGN)
        return subprocess.run([COMMAND, "convert", source, "-o", target, "--to", to], preexec_fn=limit,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)

    def test_disk_full(self):
        """Writing fails: an error, no files left, an older target unchanged."""
        target, old = self.path("out.gguf"), b"older"
        with open(target, "wb") as file:
            file.write(old)
        for size in (0, 4096, 300000, 1000000):
            result = self.limited(TALES, target, "t2", size, False)
            self.assertEqual(result.returncode, 1)
            self.assertIn(b"writing", result.stderr)
            with open(target, "rb") as file:
                self.assertEqual(file.read(), old)
            self.assertEqual(os.listdir(self.folder), ["out.gguf"])
        directory = self.path("directory")
        result = self.limited(TALES, directory, "hf-u8", 300000, False)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(os.listdir(self.folder), ["out.gguf"])

    def test_killed(self):
        for name, to in (("out.gguf", "t2"), ("directory", "hf-u8")):
            result = self.limited(TALES, self.path(name), to, 300000, True)
            self.assertNotEqual(result.returncode, 0)
            self.assertFalse(os.path.exists(self.path(name)))

    def test_directory_is_there(self):
        os.mkdir(self.path("empty"))
        self.converted(TALES, "empty", "hf-u8")
        result = convert(TALES, self.path("empty"), "hf-u8")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"exists", result.stderr)

    def test_over_itself(self):
        path = self.converted(TALES, "m.gguf", "t2")
        first = digest(path)
        self.converted(path, "m.gguf", "tq1_0")
        self.converted(path, "m.gguf", "t2")
        self.assertEqual(digest(path), first)

    def test_memory(self):
        """96 MB of weights through a few MiB."""
        rows, columns = 24576, 16384
        path = self.path("big.gguf")
        packed = bytes([0x64, 0x55, 0x91, 0x46] * (columns // 16)) * rows
        gguf.write(path, [("m.weight", [columns, rows], gguf.T2_TYPE, packed),
                          ("m.scale", [1], gguf.F32_TYPE, struct.pack("<f", 1))])
        script = ("import resource, subprocess, sys\n"
                  "status = subprocess.run(sys.argv[1:]).returncode\n"
                  "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
                  "sys.exit(status)\n")
        result = subprocess.run([sys.executable, "-c", script, COMMAND, "convert", path, "-o", self.path("x.gguf"), "--to",
                                 "i2_s"], stdout=subprocess.PIPE, timeout=600)
        self.assertEqual(result.returncode, 0)
        self.assertLess(int(result.stdout), 200 * 1024)  # KiB, with room for sanitizers


if __name__ == "__main__":
    unittest.main()
