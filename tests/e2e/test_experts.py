#!/usr/bin/env python3
"""A mixture of experts under a budget that is too small for it: the same ids, the plan, and the trace of its
experts, replayed."""
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from random import Random

import gguf
from support import ROOT, TALES, Case, main, setun

MIB = 1 << 20
ARGS = ("-p", "the quick brown fox jumps over the lazy dog and the cat", "-n", 24, "--temp", 0, "--ignore-eos")
SMALL = ("--ctx", 128, "-b", 32)


def codes_of(stored):
    return [byte >> shift & 3 for byte in stored for shift in (0, 2, 4, 6)]


def decode(string, differences, shift):
    """The positions of a delta's string, and what is added to the first expert's codes there."""
    bits = int.from_bytes(string, "little")
    at = -1
    for _ in range(differences):
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros + 1
        by, low = 1 + (bits & 1), bits >> 1 & (1 << shift) - 1
        bits >>= 1 + shift
        at += 1 + (zeros << shift) + low
        yield at, by


class ExpertsTest(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.models = {name: os.path.join(folder.name, name + ".gguf") for name in ("t16", "q8")}
        for args in (("bench", "--synthetic", "small-moe", "--format", "t16", "-p", 8, "-n", 2, "-r", 1, "--buffer", "16M", "--save", cls.models["t16"]),
                     ("bench", "--synthetic", "small-moe", "--format", "q8_0", "-p", 8, "-n", 2, "-r", 1, "--buffer", "16M", "--save",
                      cls.models["q8"])):
            result = setun(*args)
            if result.returncode:
                raise AssertionError(result.stderr.decode())

    def plan(self, model, memory):
        return json.loads(self.good("plan", model, *SMALL, "-t", 1, "--memory", memory, "--json"))

    def test_ids_are_the_same(self):
        for name in ("q8",):
            model = self.models[name]
            expected = self.good("run", model, *ARGS, *SMALL, "--ids")
            whole = self.plan(model, "1G")
            self.assertEqual((whole["experts"], whole["experts_cached"], whole["expert_hit_rate_uniform"]), (64, 0, 1))
            for room in (0, 16):
                memory = whole["least"] + room * MIB
                plan = self.plan(model, memory)
                self.assertTrue(4 <= plan["experts_cached"] < 64, plan)
                self.assertAlmostEqual(plan["expert_hit_rate_uniform"], plan["experts_cached"] / 64)
                self.assertGreaterEqual(plan["expert_hit_rate_zipf"], plan["expert_hit_rate_uniform"])
                self.assertLessEqual(plan["memory_planned"] + plan["reserve"], memory)
                for threads, batch in ((1, 32), (2, 5)):
                    with self.subTest(name=name, room=room, threads=threads, batch=batch):
                        got = setun("run", model, *ARGS, "--ctx", 128, "-b", batch, "-t", threads, "--memory", memory, "--ids", "--verbose")
                        self.assertEqual(got.stdout, expected, got.stderr)
                        self.assertRegex(got.stderr.decode(), r"of 64 experts fit into the cache, which held \d+ of \d+ requested")

    def test_prompts_read_in_order(self):
        """A prompt uses nearly all experts, so those of the next layer are read without waiting for its router; a token alone does not.
        Of 120 tokens, some are a trial of reading ahead, whose result is reported."""
        model, memory = self.models["t16"], self.plan(self.models["t16"], "1G")["least"]
        found = []
        for args in (ARGS, ("-p", "a", "-n", 120, "--temp", 0, "--ignore-eos")):
            got = setun("run", model, *args, *SMALL, "-t", 1, "--memory", memory, "--ids", "--verbose")
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertRegex(got.stderr.decode(), r"experts  hits of those requested, by layer \(slots by (lru|score|next)\)")
            found.append(re.findall(r" (\d+) read in order, before they were requested", got.stderr.decode()))
            trials = re.findall(r" trials: (\d+); passes that read ahead took [\d.]+ % of the time of", got.stderr.decode())
            self.assertEqual(trials, ["1"] if args[3] == 120 else [])  # of 16 or 32 passes, after 80
        self.assertEqual([len(numbers) for numbers in found], [1, 0])
        self.assertGreater(int(found[0][0]), 0)

    def test_trace(self):
        trace, plot = (os.path.join(self.folder, name) for name in ("trace", "plot.svg"))
        self.good("run", self.models["t16"], *ARGS, "--ids", "--trace", trace)
        with open(trace, encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertEqual(lines[0], "setun-experts 1 layers=4 experts=16 used=4")
        passes = [line.split() for line in lines[1:]]
        self.assertEqual([p[0] for p in passes], ["0", "1", "2", "3"] * (len(passes) // 4))
        for _, tokens, *used in passes:
            counts = [int(word.partition(":")[2] or 1) for word in used]
            self.assertEqual(sum(counts), 4 * int(tokens))
        self.assertEqual([p[1] for p in passes[4:]], ["1"] * 92)  # the prompt's pass, and 23 tokens
        tool = os.path.join(ROOT, "tools", "replay_experts.py")
        result = subprocess.run([sys.executable, tool, trace, "--json", "--svg", plot], capture_output=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        got = json.loads(result.stdout)
        self.assertEqual(got["experts"], 64)
        for rates in got["hit_rates"]:
            for rule in ("lru", "lfu", "score", "next", "setun"):
                self.assertLessEqual(rates[rule], rates["belady"] + 1e-9, rates)
        self.assertEqual(xml.etree.ElementTree.parse(plot).getroot().tag, "{http://www.w3.org/2000/svg}svg")

    def test_spread(self):
        """Tokens at random use the experts of a synthetic model by Zipf's law with s = 1, another order in each layer."""
        trace = os.path.join(self.folder, "spread")
        self.good("run", self.models["t16"], "-p", "a", "-n", 250, "--temp", 50, "--top-k", 0, "--top-p", 1, "--min-p", 0, "--seed", 1,
                  "--ctx", 256, "--ids", "--ignore-eos", "--trace", trace)
        tool = os.path.join(ROOT, "tools", "replay_experts.py")
        result = subprocess.run([sys.executable, tool, trace, "--json", "--capacity", "32"], capture_output=True, check=True)
        self.assertAlmostEqual(json.loads(result.stdout)["zipf_exponent"], 1, delta=0.1)
        most = {}
        with open(trace, encoding="utf-8") as file:
            for line in file.readlines()[1:]:
                layer, _, *used = line.split()
                for word in used:
                    counts = most.setdefault(layer, {})
                    counts[word] = counts.get(word, 0) + 1
        self.assertGreater(len({max(counts, key=counts.get) for counts in most.values()}), 1)

    def test_state(self):
        """The next start has what the last one left in the cache; a file of another model is refused."""
        model, state = self.models["q8"], os.path.join(self.folder, "state")
        memory = self.plan(model, "1G")["least"] + 24 * MIB
        args = ("-p", "a", "-n", 1, "--temp", 0, *SMALL, "-t", 1, "--ids", "--verbose", "--experts-state", state)
        def run(path=model, memory=memory):
            return setun("run", path, *args, "--memory", memory)
        def hits(result):
            report = result.stderr.decode().partition("hits of those requested, by layer")[2]
            return [sum(map(int, numbers)) for numbers in zip(*re.findall(r"(\d+)/(\d+)", report))]
        first = run()
        self.assertEqual(first.returncode, 0, first.stderr)
        with open(state, "rb") as file:
            bytes = file.read()
        self.assertEqual((bytes[:8], len(bytes)), (b"SETUNEXP", 24 + 4 * int.from_bytes(bytes[12:16], "little")))
        again = run()
        self.assertEqual((again.returncode, again.stdout), (0, first.stdout), again.stderr)
        # One pass, whose experts all fit: none is there at the first start, and each at the second.
        wanted = hits(first)[1]
        self.assertEqual((hits(first), hits(again)), ([0, wanted], [wanted, wanted]))
        other = run(self.models["t16"], "1G")  # resident: the file is of no use, and stays
        self.assertEqual(other.returncode, 0, other.stderr)
        self.assertIn(b"--experts-state %s is not used: all experts are resident" % state.encode(), other.stderr)
        none = run(TALES, "1G")
        self.assertEqual(none.returncode, 1)
        self.assertIn(b"--experts-state: expected a model with experts, found one without", none.stderr)
        with open(state, "rb") as file:
            self.assertEqual(file.read()[:8], b"SETUNEXP")
        for spoiled, mention in ((b"x" * 40, "a file of cached experts"), (bytes[:-1], "as many bytes"), (bytes[:16] + b"12345678" + bytes[24:], "of another"),
                                 (bytes[:24] + b"\xff" * 4 + bytes[28:], "experts that the model has")):
            with open(state, "wb") as file:
                file.write(spoiled)
            result = run()
            self.assertEqual(result.returncode, 1)
            self.assertIn(mention, result.stderr.decode())
            self.assertIn(state, result.stderr.decode())

    def rewrite(self, target, name, change):
        """The q8 model with other tensors, (name, dims, type, bytes) each, in place of one."""
        keys, found, data = gguf.read(self.models["q8"])
        ends = sorted([t[2] for t in found.values()] + [len(data)])
        tensors = []
        for each, (dims, kind, at) in found.items():
            content = data[at:ends[ends.index(at) + 1]]
            tensors += change(dims, kind, content) if each == name else [(each, dims, kind, content)]
        gguf.write(target, tensors, gguf.raw_pairs(self.models["q8"], ""), keys.get("general.alignment", 32))

    def test_unequal(self):
        """An expert of another size than those of its layer, and a stack that has fewer than the file says."""
        other, stack = os.path.join(self.folder, "other.gguf"), "blk.1.ffn_up_exps.weight"

        def split(dims, kind, content):  # expert 5 as F16
            n = len(content) // 16
            tensors = [(f"blk.1.ffn_up.{e}.weight", dims[:2], kind, content[e * n:(e + 1) * n]) for e in range(16)]
            tensors[5] = (tensors[5][0], dims[:2], 1, bytes(512 * 512 * 2))
            return tensors
        self.rewrite(other, stack, split)
        plan = self.plan(other, "1G")
        self.assertEqual((plan["experts"], plan["experts_cached"]), (64, 0))  # all resident: the file runs
        args = ("run", other, "-p", "a", "-n", 1, *SMALL, "--ids")
        self.good(*args, "--memory", "1G")
        self.fails(1, *args, "-t", 1, "--memory", plan["least"] + 4 * MIB,
                   mentions=["blk.1.ffn_up.5.weight", "blk.1.ffn_up.0.weight", 512 * 512 // 32 * 34, 512 * 512 * 2, "equal in size"])
        self.rewrite(other, stack, lambda dims, kind, content: [(stack, [*dims[:2], 15], kind, content[:len(content) // 16 * 15])])
        self.fails(1, *args, "--memory", "1G", mentions=[stack, "16, 512", "15, 512"])

    def test_deltas(self):
        """Deltas of experts that differ in 1% of their trits, decoded here: they give the other expert's codes, both ways, and
        take at most 1.25 times their entropy."""
        plain, other = (os.path.join(self.folder, name) for name in ("plain.gguf", "deltas.gguf"))
        model = os.path.join(self.folder, "tiny.gguf")
        self.good("bench", "--synthetic", "tiny-moe", "--format", "t16", "-p", 8, "-n", 2, "-r", 1, "--buffer", "16M", "--save", model)
        said = setun("convert", model, "-o", plain, "--to", "t16", "--deltas")
        self.assertIn("deltas save nothing here", said.stderr.decode())
        tensors, data = gguf.read(plain)[1:]
        self.assertNotIn("blk.0.expert_deltas", tensors)
        data, random, n = bytearray(data), Random(1), 256 * 256
        for layer in range(2):
            for matrix in ("gate", "up", "down"):
                begins = [tensors[f"blk.{layer}.ffn_{matrix}.{e}.weight"][2] for e in range(8)]
                first = data[begins[0]:begins[0] + n // 4]
                for at in begins[1:]:
                    codes = codes_of(first)
                    for i in random.sample(range(n), n // 100):
                        codes[i] = (codes[i] + random.choice((1, 2))) % 3
                    data[at:at + n // 4] = bytes(a | b << 2 | c << 4 | d << 6 for a, b, c, d in zip(*[iter(codes)] * 4))
        with open(plain, "wb") as file:
            file.write(data)
        said = setun("convert", plain, "-o", other, "--to", "t16", "--deltas")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertRegex(said.stderr.decode(), r"layer 1: 28 pairs of experts differ in 1\.00 to 1\.99 % of their trits, .*: 28 deltas of")
        tensors, data = gguf.read(other)[1:]
        for layer in (1,):
            experts = [[codes_of(data[at:at + n // 4]) for at in (tensors[f"blk.{layer}.ffn_{m}.{e}.weight"][2] for m in ("gate", "up", "down"))]
                       for e in range(8)]
            dims, kind, at = tensors[f"blk.{layer}.expert_deltas"]
            self.assertEqual((kind, len(dims), struct.unpack_from("<II", data, at)), (24, 1, (1, 28)))
            end = at + 8 + 28 * 16
            for i in range(28):
                a, b, length = struct.unpack_from("<IIQ", data, at + 8 + 16 * i)
                changed = sum(x != y for k in range(3) for x, y in zip(experts[a][k], experts[b][k]))
                p = changed / (3 * n)
                self.assertLessEqual(length, 1.25 * 3 * n / 8 * (p - p * math.log2(p) - (1 - p) * math.log2(1 - p)))
                string = end + 36
                for k in range(3):
                    size, differences, shift = struct.unpack_from("<III", data, end + 12 * k)
                    found = list(decode(data[string:string + size], differences, shift))
                    made = experts[a][k][:]
                    for position, by in found:
                        made[position] = (made[position] + by) % 3
                    self.assertEqual(made, experts[b][k], (layer, a, b))
                    string += size
                end += length
                self.assertEqual(string, end)
            self.assertEqual(end, at + dims[0])
        self.assertEqual(self.good("run", other, *ARGS, *SMALL, "--ids"), self.good("run", plain, *ARGS, *SMALL, "--ids"))
        self.fails(1, "convert", plain, "-o", other, "--to", "tq2_0", "--deltas", mentions=["t16"])

    def test_trace_without_experts(self):
        trace = os.path.join(self.folder, "none")
        self.fails(1, "run", os.path.join(ROOT, "models", "setun-tales-7m"), "-p", "a", "-n", 1, "--trace", trace, mentions=["--trace", "experts"])
        self.assertFalse(os.path.exists(trace))


if __name__ == "__main__":
    main()
