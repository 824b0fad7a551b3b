#!/usr/bin/env python3
"""Tencent's formats in files: Sherry's trits exactly to other layouts and back, trits that it cannot hold, both type numbers, and
Q2_0C. Bytes and values are those of tools/make_quant_vectors.py."""
import os

import gguf
from support import ROOT, FolderCase, main, read_safetensors

NAME = "blk.0.ffn_gate.weight"
ROWS, COLUMNS, BYTES = 17, 512, 17 * 84


def vectors(name):
    return read_safetensors(os.path.join(ROOT, "tests", "quant", name))


def raw(path, size):
    """The first tensor's type and bytes."""
    _, tensors, data = gguf.read(path)
    _, kind, at = tensors[NAME]
    return kind, data[at:at + size]


class SherryTest(FolderCase):
    def file(self, name, kind, shape, content, keys=()):
        gguf.write(self.path(name), [(NAME, shape, kind, content), ("blk.1.ffn_gate.weight", shape, kind, content)], keys)
        return self.path(name)

    def values(self, path):
        out = self.path("values")
        self.good("inspect", path, "--tensor", NAME, "-o", out)
        return list(next(iter(read_safetensors(out).values()))[1])

    def convert(self, source, name, to):
        self.good("convert", source, "-o", self.path(name), "--to", to)
        return self.path(name)

    def test_sherry(self):
        ternary = vectors("ternary.safetensors")
        content = bytes(ternary["stq1_0.sherry_k512_n17.bytes"][1])
        trits, scales = (ternary[key][1] for key in ("sherry_k512_n17.trits", "stq1_0.sherry_k512_n17.scales"))
        want = [trits[i] * scales[i // 256] for i in range(ROWS * COLUMNS)]
        first = self.file("first.gguf", 42, [COLUMNS, ROWS], content, [("general.file_type", 41), ("general.finetune", "2bit-stride16")])
        later = self.file("later.gguf", 43, [COLUMNS, ROWS], content)
        for path in (first, later):
            self.assertEqual(self.values(path), want)
            self.good("inspect", path, "--check")
        for to in ("tq2_0", "tq1_0", "q2_0"):
            there = self.convert(first, "there.gguf", to)
            self.assertEqual(self.values(there), want)
            for back, kind in (("stq1_0", 43), ("stq1_0-42", 42)):
                self.assertEqual(raw(self.convert(there, "back.gguf", back), BYTES), (kind, content))
        self.assertEqual(self.values(self.convert(later, "f32.gguf", "f32")), want)
        self.assertEqual(raw(self.convert(self.path("f32.gguf"), "again.gguf", "stq1_0"), BYTES), (43, content))

    def test_other_trits(self):
        ternary = vectors("ternary.safetensors")
        shape = ternary["k1280_n17.trits"][0]
        content = bytes(ternary["tq2_0.k1280_n17.bytes"][1])
        source = self.file("other.gguf", 35, shape[::-1], content)
        for to in ("stq1_0", "stq1_0-42"):
            self.fails(1, "convert", source, "-o", self.path("none.gguf"), "--to", to,
                       mentions=[NAME, "exactly one zero", "column 0 of row 0"])
        self.fails(1, "convert", source, "-o", self.path("none.gguf"), "--to", "t2", mentions=["layouts that keep them separate: tq"])

    def test_q2_0c(self):
        value = vectors("values.safetensors")
        want = value["q2_0c.values"]
        path = self.file("q2_0c.gguf", 40, want[0][::-1], bytes(value["q2_0c.bytes"][1]))
        self.assertEqual(self.values(path), list(want[1]))
        self.assertEqual(self.values(self.convert(path, "q2f.gguf", "f32")), list(want[1]))


if __name__ == "__main__":
    main()
