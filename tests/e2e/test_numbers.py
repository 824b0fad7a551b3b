#!/usr/bin/env python3
"""`setun logits`, `perplexity`, `inspect` and `bench` on the small model of the repository."""
import json
import math
import os
import random
import re
import signal
import struct
import subprocess
import tempfile
import time

import edit
import gguf
from support import (COMMAND, GOLDEN, TALES, Case, FolderCase, argmax, main, negative_log_likelihood, read_safetensors,
                     rows, setun)

TEXT = ("Once upon a time, there was a small fox named Pip. Pip liked to play near the river with his friend, a brown "
        "dog. One day, they found a golden key under an old tree.")
VOCABULARY, WIDTH, BLOCKS = 4096, 256, 8


class OutCase(FolderCase):
    def setUp(self):
        super().setUp()
        self.out = os.path.join(self.folder, "out.safetensors")
        self.ids = json.loads(self.good("tokenize", TALES, "--ids", "--bos", "-p", TEXT))

    def logits(self, *args):
        self.assertEqual(self.good("logits", TALES, "-o", self.out, *args), b"")
        self.assertEqual(os.listdir(self.folder), ["out.safetensors"])
        return read_safetensors(self.out)


class LogitsTest(OutCase):
    def test_shapes_and_hidden_states(self):
        tensors = self.logits("-p", TEXT, "--layers", "--precise")
        self.assertEqual({name: shape for name, (shape, _) in tensors.items()},
                         {"logits": [len(self.ids), VOCABULARY], "hidden": [BLOCKS + 1, len(self.ids), WIDTH]})
        for _, values in tensors.values():
            self.assertTrue(all(map(math.isfinite, values)))

    def test_ids_are_taken_literally_and_a_text_begins_with_bos(self):
        text = self.logits("-p", TEXT)
        self.assertEqual(self.logits("--ids", ",".join(map(str, self.ids))), text)
        self.assertEqual(self.logits("--ids", json.dumps(self.ids)), text)
        self.assertEqual(self.logits("--ids", json.dumps(self.ids[1:]))["logits"][0][0], len(self.ids) - 1)

    def test_a_later_token_changes_nothing_before_it(self):
        whole, part = rows(self.logits("-p", TEXT)["logits"]), rows(self.logits("--ids", json.dumps(self.ids[:9]))["logits"])
        self.assertEqual(whole[:9], part)

    def test_the_likeliest_token_is_what_run_prints(self):
        new = json.loads(self.good("run", TALES, "-p", TEXT, "-n", 6, "--temp", 0, "--ids", "--ignore-eos"))
        found = rows(self.logits("--ids", json.dumps(self.ids + new[:-1]))["logits"])[len(self.ids) - 1:]
        self.assertEqual([argmax(row) for row in found], new)

    def test_errors_leave_nothing_behind(self):
        self.fails(1, "logits", TALES, "--ids", "1,4096", "-o", self.out, mentions=["4096"])
        self.fails(2, "logits", TALES, "--ids", "1,x", "-o", self.out)
        self.fails(1, "logits", TALES, "-p", "a", "-o", os.path.join(self.folder, "none", "x"), mentions=["none"])
        self.fails(1, "logits", TALES, "-p", "a", "-o", self.folder, mentions=[self.folder])
        self.assertEqual(os.listdir(self.folder), [])

    def test_an_interrupt_leaves_the_old_file(self):
        with open(self.out, "w", encoding="utf-8") as file:
            file.write("old")
        process = subprocess.Popen([COMMAND, "logits", TALES, "--ids", ",".join(["5"] * 250), "-o", self.out, "--isa",
                                    "scalar", "-t", "1", "-b", "1"], stderr=subprocess.PIPE)
        until = time.monotonic() + 60
        while len(os.listdir(self.folder)) < 2 and process.poll() is None and time.monotonic() < until:
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(os.listdir(self.folder), ["out.safetensors"])
        with open(self.out, encoding="utf-8") as file:
            self.assertEqual(file.read(), "old")


class PerplexityTest(OutCase):
    def perplexity(self, *args, **more):
        return json.loads(self.good("perplexity", TALES, "--json", *args, **more))

    def expected(self, ids, ctx, stride, *args):
        """From logits of whole windows: each token scored in the first window that holds it."""
        total, count, scored, start = 0.0, 0, 1, 0
        while scored < len(ids):
            window = ids[start:start + ctx]
            found = rows(self.logits("--ids", json.dumps(window), *args)["logits"])
            for i in range(scored - start, len(window)):
                total += negative_log_likelihood(found[i - 1], window[i])
                count += 1
            scored = start + len(window)
            start += stride
        return total / count, count

    def test_windows(self):
        for ctx, stride in ((len(self.ids) + 5, None), (len(self.ids), None), (16, None), (16, 15), (16, 1), (2, 1), (9, None)):
            with self.subTest(ctx=ctx, stride=stride):
                args = ["--ctx", ctx] + (["--stride", stride] if stride else [])
                found = self.perplexity("-p", TEXT, *args)
                nll, count = self.expected(self.ids, ctx, stride or ctx // 2)
                self.assertEqual((found["tokens"], count), (len(self.ids) - 1, len(self.ids) - 1))
                self.assertAlmostEqual(found["nll"], nll, delta=1e-5)
                self.assertAlmostEqual(found["perplexity"], math.exp(nll), delta=1e-4 * math.exp(nll))

    def test_ids_from_a_file(self):
        path = os.path.join(self.folder, "ids.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.ids, file)
        self.assertEqual(self.perplexity("--ids", path), self.perplexity("-p", TEXT))
        self.assertEqual(self.perplexity("--ids", "-", stdin=json.dumps(self.ids).encode()), self.perplexity("-p", TEXT))
        self.assertRegex(self.good("perplexity", TALES, "-p", TEXT).decode(), r"\Aperplexity [\d.]+ over \d+ tokens .+\n\Z")

    def test_too_little_text(self):
        self.fails(1, "perplexity", TALES, "-p", "", mentions=["at least 2"])
        self.fails(1, "perplexity", TALES, "--ids", "-", stdin=b"[5]", mentions=["at least 2"])
        self.fails(1, "perplexity", TALES, "--ids", "-", stdin=b"[5, 4096]", mentions=["4096"])
        self.fails(1, "perplexity", TALES, "--ids", "-", stdin=b"[5", mentions=["]"])


class InspectTest(OutCase):
    def test_summary_and_json_hold_the_same(self):
        values = json.loads(self.good("inspect", TALES, "--json", "--tensors"))
        self.assertEqual((values["container"], values["architecture"]), ("huggingface", "bitnet"))
        self.assertEqual(values["tensors"], len(values["tensor_list"]))
        self.assertEqual(values["bytes"], sum(tensor["bytes"] for tensor in values["tensor_list"]))
        self.assertEqual(values["bytes"], sum(row["bytes"] for row in values["formats"]))
        self.assertEqual(values["tensors"], sum(row["tensors"] for row in values["formats"]))
        # the embedding, eight blocks of seven matrices, and the norms
        matrices = 2 * 256 * 256 + 2 * 128 * 256 + 3 * 768 * 256
        self.assertEqual(values["weights"], 4096 * 256 + 8 * (matrices + 3 * 256 + 768) + 256)
        text = self.good("inspect", TALES, "--tensors").decode()
        for tensor in values["tensor_list"]:
            self.assertIn(tensor["name"], text)
        self.assertNotIn("tensor_list", json.loads(self.good("inspect", TALES, "--json")))

    def test_shapes_are_those_of_the_file(self):
        with open(os.path.join(TALES, "model.safetensors"), "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        listed = json.loads(self.good("inspect", TALES, "--json", "--tensors"))["tensor_list"]
        self.assertEqual({tensor["name"]: tensor["shape"] for tensor in listed},
                         {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"})
        bare = json.loads(self.good("inspect", os.path.join(TALES, "model.safetensors"), "--json", "--tensors"))
        self.assertEqual({tensor["name"] for tensor in bare["tensor_list"]}, {tensor["name"] for tensor in listed})

    def test_one_tensor_as_float32(self):
        self.good("inspect", TALES, "--tensor", "model.norm.weight", "-o", self.out)
        shape, values = read_safetensors(self.out)["model.norm.weight"]
        self.assertEqual((shape, len(values)), ([256], 256))
        name = "model.layers.0.self_attn.q_proj.weight"
        self.good("inspect", TALES, "--tensor", name, "-o", self.out)
        shape, values = read_safetensors(self.out)[name]
        self.assertEqual(shape, [256, 256])
        self.assertEqual(len({abs(value) for value in values if value}), 1, "one scale, and its negative, and zero")
        self.assertEqual(self.packed_trits(name), [(value > 0) - (value < 0) for value in values])

    def packed_trits(self, name):
        """Trits of a packed tensor, rows as the model uses them: four blocks of rows in the four pairs of bits."""
        with open(os.path.join(TALES, "model.safetensors"), "rb") as file:
            data = file.read()
        length = int.from_bytes(data[:8], "little")
        begin, end = json.loads(data[8:8 + length])[name]["data_offsets"]
        packed = data[8 + length + begin:8 + length + end]
        return [(byte >> shift & 3) - 1 for shift in (0, 2, 4, 6) for byte in packed]

    def test_a_tensor_that_is_not_there(self):
        self.fails(1, "inspect", TALES, "--tensor", "nothing", "-o", self.out, mentions=["nothing"])
        self.assertEqual(os.listdir(self.folder), [])


class BenchTest(Case):
    def test_json(self):
        values = json.loads(self.good("bench", TALES, "--json", "-p", 32, "-n", 8, "-r", 1, "-t", 1, "--buffer", "64M"))
        for key in ("prefill_tokens_per_s", "prefill_peak_share", "decode_tokens_per_s", "decode_bandwidth_share",
                    "bytes_per_token", "macs_per_token", "read_bandwidth_gbs", "int8_peak_gmacs"):
            self.assertGreater(values[key], 0, key)
        self.assertEqual(values["threads"], 1)
        self.assertIn(values["isa"], json.loads(self.good("version", "--json"))["isa"])
        matrices = 8 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 768 * 256)
        self.assertEqual(values["macs_per_token"], matrices + 4096 * 256)

    def test_table(self):
        values = json.loads(self.good("bench", TALES, "--json", "-p", 8, "-n", 4, "-r", 3, "-t", 1, "--buffer", "16M",
                                      "--sequences", 5, "--depth", 3))
        self.assertEqual(values["sequences"], 5)
        self.assertAlmostEqual(values["sequences_tokens_per_s"] * values["sequences_s_per_pass"], 5, 3)
        # bound: the larger of bytes / bandwidth and multiply-adds / ceiling; the head is F16, the rest int8
        bound = values["sequences_s_per_pass"] / values["sequences_bound_ratio"]
        reading = (values["bytes_per_token"] + 5 * values["cache_bytes_per_token"]) / values["read_bandwidth_gbs"] / 1e9
        int8 = 5 * values["macs_per_token"] / values["int8_peak_gmacs"] / 1e9
        self.assertGreaterEqual(bound * 1.001, max(reading, int8))
        text = self.good("bench", TALES, "-p", 16, "-n", 4, "-r", 1, "--buffer", "64M", "--sequences", 2).decode()
        self.assertIn("pass     2 sequences", text)
        self.assertRegex(text, r"(?m)^fork of a sequence [\d.]+ ms, .* with 1 tokens in the cache")
        self.assertEqual(values["prefix_tokens"], 3)
        self.fails(2, "bench", TALES, "--sequences", 0, mentions=["--sequences"])
        # a model of 256 tokens, which are fewer than a prompt has where -p is not given
        text = self.good("bench", TALES, "-n", 2, "-r", 1, "--buffer", "16M", "--sequences", 2, "--depth", 200).decode()
        self.assertRegex(text, r"(?m)^prefill +256 tokens(.*\n)+pass +2 sequences")
        text = self.good("bench", TALES, "-p", 16, "-n", 4, "-r", 1, "--buffer", "64M").decode()
        self.assertRegex(text, r"(?m)^prefill +16 tokens +[\d.]+ tokens/s ")
        self.assertRegex(text, r"(?m)^decode +4 tokens +[\d.]+ tokens/s ")


    def test_compare_isa(self):
        run = ("bench", TALES, "--compare-isa", "-p", 8, "-n", 2, "-r", 2, "-t", 1)
        values = json.loads(self.good(*run, "--json"))
        isas = [i for i in json.loads(self.good("version", "--json"))["isa"] if i != "scalar"]
        self.assertEqual([v["isa"] for v in values["isas"]], isas)
        for v in values["isas"]:
            self.assertGreater(min(v["prefill_tokens_per_s"], v["decode_tokens_per_s"]), 0)
        for v in values["slower"]:
            self.assertGreater(isas.index(v["isa"]), isas.index(v["than"]))
            self.assertLess(v["ratio"], 0.95)
        text = self.good(*run).decode()
        self.assertRegex(text, r"slower than")
        for option in (("--isa", "scalar"), ("--sequences", 2)):
            self.fails(2, *run, *option, mentions=["--compare-isa"])

    def test_compare_threads(self):
        run = ("bench", TALES, "--compare-threads", "-p", 8, "-n", 2, "-r", 1)
        values = json.loads(self.good(*run, "--json"))
        threads = [v["threads"] for v in values["threads"]]
        self.assertEqual((threads[0], threads), (1, sorted(set(threads))))
        for v in values["threads"]:
            self.assertGreater(min(v["prefill_tokens_per_s"], v["decode_tokens_per_s"]), 0)
        for v in values["slower"]:
            self.assertGreater(v["threads"], v["than"])
        self.assertRegex(self.good(*run).decode(), r"(?m)^1 thread +prefill .*(\n.*)*slower than")
        for option in (("--threads", 1), ("--compare-isa",)):
            self.fails(2, *run, *option, mentions=["--compare-threads"])


class SyntheticTest(FolderCase):
    """Synthetic models: without a file, and written to one that every other command reads."""
    SHORT = ("-p", 16, "-n", 4, "-r", 1, "-t", 1, "--buffer", "1M")

    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.folder, "synthetic model.gguf")

    def bench(self, *args):
        return json.loads(self.good("bench", "--json", *self.SHORT, *args))

    def test_without_a_file(self):
        values = self.bench("--synthetic", "tiny", "--depth", 100)
        matrices = 2 * (2 * 512 * 512 + 2 * 256 * 512 + 3 * 1024 * 512)
        self.assertEqual(values["macs_per_token"], matrices + 512 * 512)
        self.assertEqual(values["depth"], 100)
        # Keys and values of two layers, 256 float16 each, for 102 tokens on average.
        self.assertEqual(values["cache_bytes_per_token"], 2 * 2 * 256 * 2 * 102)
        text = self.good("bench", "--synthetic", "tiny", "--depth", 100, *self.SHORT).decode().splitlines()
        self.assertRegex(text[0], r"^this machine, 1 thread, \w+: reads [\d.]+ GB/s, .* int8/s, .* float/s$")
        self.assertRegex(text[-1], r"^decode .* 100 tokens in the cache before$")

    def test_file(self):
        for form, head in (("tq2_0", "q6_k"), ("t16", "f16"), ("q4_0", "q4_0")):
            with self.subTest(format=form):
                self.bench("--synthetic", "tiny", "--format", form, "--head", head, "--seed", 7, "--save", self.path)
                tensors = json.loads(self.good("inspect", self.path, "--tensors", "--json"))["tensor_list"]
                by_name = {t["name"]: t for t in tensors}
                self.assertEqual(by_name["blk.1.ffn_down.weight"]["format"], form)
                self.assertEqual(by_name["token_embd.weight"]["format"], head)
                self.assertEqual(by_name["blk.1.ffn_sub_norm.weight"]["format"], "f32")
                for t in tensors:
                    self.assertEqual(t["offset"] % 4096, 0, t["name"])
                places = [t["offset"] for t in tensors if t["name"].startswith("blk.0.")]
                self.assertLess(max(places), min(t["offset"] for t in tensors if t["name"].startswith("blk.1.")))
                if form != "q4_0":
                    for t in json.loads(self.good("inspect", self.path, "--zeros", "--json")):
                        self.assertAlmostEqual(t["zeros"] / t["weights"], 102 / 256, delta=0.006)
                ids = json.loads(self.good("run", self.path, "-p", "the end", "-n", 8, "--ids", "--temp", 0))
                self.assertEqual(len(ids), 8)

    def test_heads_of_ambiguous_types(self):
        """The file says what the type number of its embedding means, not only that of its matrices."""
        for form, head in (("i2_s", "q2_0"), ("q2_0", "i2_s-arm"), ("i2_s-x4", "q2_0-128"), ("t5", "q2_0")):
            self.bench("--synthetic", "tiny", "--format", form, "--head", head, "--save", self.path)
            tensors = json.loads(self.good("inspect", self.path, "--tensors", "--json"))["tensor_list"]
            formats = {t["name"]: t["format"] for t in tensors}
            self.assertEqual((formats["blk.1.ffn_up.weight"], formats["token_embd.weight"]), (form, head))
        for form, head in (("i2_s", "i2_s-arm"), ("q2_0-128", "q2_0")):
            self.fails(1, "bench", "--synthetic", "tiny", "--format", form, "--head", head, mentions=[form, head])

    def poison(self, form, name, at, row, word):
        """A number in a tensor of a file that was fine becomes infinite: loading names the tensor and the row."""
        self.bench("--synthetic", "tiny", "--format", form, "--save", self.path)
        tensors = json.loads(self.good("inspect", self.path, "--tensors", "--json"))["tensor_list"]
        with open(self.path, "r+b") as file:
            file.seek(next(t["offset"] for t in tensors if t["name"] == name) + at)
            file.write(b"\0\0\x80\x7f" if form == "iq2_bn" else b"\0\x7c")
        self.fails(1, "run", self.path, "-p", "the", "-n", 1, mentions=[name, f"finite {word}", "inf", f"row {row}"])

    def test_numbers_that_are_not_finite(self):
        self.poison("i2_s", "token_embd.weight", (17 * 512 + 3) * 2, 17, "weights")
        self.poison("tq2_0", "blk.1.ffn_down.weight", 100 * 4 * 66 + 2 * 66 + 64, 100, "scales")
        self.poison("iq2_bn", "blk.0.attn_q.weight", 33 * (4 + 8 * 16), 33, "scales")

    def test_usage(self):
        self.fails(2, "bench", TALES, "--synthetic", "tiny", mentions=["MODEL", "--synthetic"])
        self.fails(2, "bench", "--synthetic", "90b", mentions=["'90b'"])
        self.fails(2, "bench", "--synthetic", "tiny", "--format", "q17", mentions=["'q17'", "i2_s|", "|q4_1|"])
        self.fails(2, "bench", TALES, "--buffer", "4K", mentions=["1.0 MiB to 64.0 TiB", "'4K'"])
        formats = set("i2_s|i2_s-arm|i2_s-x4|tq1_0|tq2_0|q2_0|q2_0-128|pq2_0|ptq1_0|stq1_0|stq1_0-42|iq1_bn|iq2_bn|t2|t5|t16|f32|f16|bf16|"
                      "q8_0|int8-row|q2_k|q4_k|q6_k|q5_0|q5_1|q4_0|q4_1|zp2-32|zp2-64|zp2-128|zp3-32|zp3-64|zp3-128|zp4-32|zp4-64|zp4-128|zp8-32|"
                      "zp8-64|zp8-128|2:4-int4-32|2:4-int4-64|2:4-int4-128|2:4-fp4-32|2:4-fp4-64|2:4-fp4-128".split("|"))
        text = "".join(self.good("bench", "--help").decode().split())
        for option in ("--format", "--head"):
            found = re.search(option + r"([a-z0-9_|:-]+?)theformat", text).group(1)
            self.assertEqual(set(found.split("|")), formats)
        for option, value in (("--format", "i2_s"), ("--head", "f16"), ("--save", self.path), ("--seed", 3)):
            self.fails(2, "bench", TALES, option, value, mentions=["--synthetic"])
        self.fails(1, "bench", "--synthetic", "tiny", "--save", os.path.join(self.path, "x.gguf"), mentions=[self.path])
        self.fails(1, "bench", "--synthetic", "tiny", "--depth", 5000, mentions=["context"])


class NvFp4Test(Case):
    """NVFP4 with the scales that converters write beside it: the tensor's, and the activations', which is not needed."""

    def rewritten(self, name, weight, kind, content, more=()):
        """The golden llama3.gguf with another weight and further tensors."""
        source = os.path.join(GOLDEN, "gguf", "llama3.gguf")
        _, tensors, data = gguf.read(source)
        at = data.index(gguf.text(next(iter(tensors))))
        tensors = [(n, dims, t, data[start:start + 4 * math.prod(dims)]) for n, (dims, t, start) in tensors.items()]
        tensors = [(n, d, kind, content) if n == weight else (n, d, t, c) for n, d, t, c in tensors] + list(more)
        head, body = data[:8] + struct.pack("<Q", len(tensors)) + data[16:at], b""
        for n, dims, t, content in tensors:
            head += gguf.text(n) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, t, len(body))
            body += content + bytes(-len(content) % 32)
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(head + bytes(-len(head) % 32) + body)
        return path

    def test_scales(self):
        rng, values, packed = random.Random(4), [], b""
        e2m1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
        per_tensor = struct.unpack("<f", struct.pack("<f", 0.07))[0]
        _, tensors, _ = gguf.read(os.path.join(GOLDEN, "gguf", "llama3.gguf"))
        columns, rows = tensors["blk.0.ffn_up.weight"][0]
        self.assertEqual(columns % 64, 0)
        for _ in range(rows * columns // 64):
            scales = [rng.randrange(0x10, 0x40) for _ in range(4)]
            codes = [[rng.randrange(16) for _ in range(16)] for _ in range(4)]
            packed += bytes(scales) + b"".join(bytes(c[j] | c[j + 8] << 4 for j in range(8)) for c in codes)
            for byte, group in zip(scales, codes):
                scale = math.ldexp(1 + (byte & 7) / 8, (byte >> 3) - 7)
                values += [(-1 if c & 8 else 1) * e2m1[c & 7] * scale * per_tensor for c in group]
        one = lambda x: struct.pack("<f", x)
        with tempfile.TemporaryDirectory() as self.folder:
            name, beside = "blk.0.ffn_up.weight", [("blk.0.ffn_up.scale", [1], 0, one(per_tensor)),
                                                   ("blk.0.ffn_up.input_scale", [1], 0, one(3))]
            paths = [self.rewritten("floats.gguf", name, 0, struct.pack(f"<{len(values)}f", *values)),
                     self.rewritten("nvfp4.gguf", name, 40, packed, beside)]
            logits = []
            for path in paths:
                self.good("logits", path, "--ids", "5,6,7,8,9", "--precise", "-o", path + ".logits")
                logits.append(list(read_safetensors(path + ".logits")["logits"][1]))
            self.assertEqual(logits[0], logits[1])
            stray = self.rewritten("stray.gguf", name, 0, struct.pack(f"<{len(values)}f", *values), beside[1:])
            self.fails(1, "logits", stray, "--ids", "5", "-o", path + ".logits", mentions=["blk.0.ffn_up.input_scale"])


class ManyLinesTest(Case):
    def test_errors_are_one_line(self):
        for args in (["inspect", "a\nb"], ["run", "a\x1b[31mb", "-p", "x"], ["nope\n"]):
            result = setun(*args)
            self.assertRegex(result.stderr.decode(), r"\Asetun: error: [^\n\x1b]+\n\Z")


class LargeLogits(OutCase):
    def test_equal_ones(self):
        """All logits alike, however large: each of the 320 tokens is as likely as the others."""
        source, path = os.path.join(GOLDEN, "gguf", "llama3.gguf"), os.path.join(self.folder, "large.gguf")
        dims = gguf.read(source)[1]["output.weight"][0]
        for value in (1e10, 1e17, 1e20):
            with self.subTest(value=value):
                edit.file(source, path, put={"output.weight": struct.pack("<f", value) * math.prod(dims)})
                found = json.loads(self.good("perplexity", path, "--json", "-p", TEXT))
                self.assertAlmostEqual(found["perplexity"], 320, places=3)
                found = json.loads(self.good("run", path, "-p", "Hello", "-n", 2, "--temp", 0, "--json", "--logprobs", 2))
                for token in found["logprobs"]:
                    self.assertAlmostEqual(token["logprob"], -math.log(320), places=6)


if __name__ == "__main__":
    main()
