#!/usr/bin/env python3
"""Compares the values of GGUF files that `setun convert` writes, as the PyPI package `gguf` reads them.

usage: compare_gguf_values.py [SETUN]      (needs the packages gguf and numpy)

models/setun-tales-7m is converted to float32 and to each layout that the package knows, with the embedding in each
format that is written; the package's own dequantization must give the float32 file's values: exactly for ternary
weights and float embeddings, and for Q8_0 and Q6_K embeddings what `setun inspect --tensor` gives.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy
from gguf import GGUFReader
from gguf.quants import dequantize

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COMMAND = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "setun")
MODEL = os.path.join(ROOT, "models", "setun-tales-7m")


def values(path):
    return {t.name: dequantize(t.data, t.tensor_type).astype(numpy.float32) for t in GGUFReader(path).tensors}


def convert(folder, *options):
    path = os.path.join(folder, "-".join(options).replace("--", "") + ".gguf")
    subprocess.run([COMMAND, "convert", MODEL, "-o", path, "--to", *options], check=True)
    return path


def inspected(folder, path, tensor):
    out = os.path.join(folder, "tensor.safetensors")
    subprocess.run([COMMAND, "inspect", path, "--tensor", tensor, "-o", out], check=True)
    with open(out, "rb") as file:
        data = file.read()
    start = 8 + int.from_bytes(data[:8], "little")
    entry = json.loads(data[8:start])[tensor]
    return numpy.frombuffer(data[start:], dtype="<f4").reshape(entry["shape"])


def main():
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        expected = values(convert(folder, "f32", "--embedding", "f32"))
        cases = [(to, "--embedding", form) for to in ("tq1_0", "tq2_0", "f16", "bf16")
                 for form in ("f16", "bf16", "q8_0", "q6_k")]
        for case in cases:
            path = convert(folder, *case)
            found = values(path)
            wrong = [] if set(found) == set(expected) else ["the names"]
            for name, value in found.items():
                quantized = name == "token_embd.weight" and case[2] in ("q8_0", "q6_k")
                right = inspected(folder, path, name) if quantized else expected[name]
                if name == "token_embd.weight" and case[2] == "f16":  # asked for, and coarser than bfloat16 near zero
                    right = right.astype(numpy.float16).astype(numpy.float32)
                if not numpy.array_equal(value, right):
                    wrong.append(name)
                if quantized and numpy.abs(value - expected[name]).max() > 0.05 * numpy.abs(expected[name]).max():
                    wrong.append(name + " (far from the original)")
            print(" ".join(case), len(found), "tensors:", "differ: " + ", ".join(wrong) if wrong else "the same values")
            bad += bool(wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
