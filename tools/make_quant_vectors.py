#!/usr/bin/env python3
"""Makes the vectors of the quantization tests, tests/quant/*.safetensors, from the layouts' definitions.

Independent of Setun's code: every layout is written here a second time, weight by weight, as docs/formats.md draws it.
Needs numpy, and the PyPI package gguf for the encoders of the common blocks. The vectors in peers.safetensors are
ik_llama.cpp's quantizer's own output; they are made anew only when its program is given:

    python3 tools/make_quant_vectors.py [--ik-quantize PATH/llama-quantize] [--ggml PATH/libggml-base.so]

ternary.safetensors. Cases: NAME.trits i8 [rows, K], NAME.x i8 [K], NAME.dot i64 [rows] (the products), and
NAME.dot64/128/256 i64 [rows, K/64...]. For each layout that takes the case: LAYOUT.NAME.bytes u8 (the whole tensor),
LAYOUT.NAME.scales f32 [rows, scales a row] (those that lie in the bytes), LAYOUT.NAME.bad i64 [n, 2] (offset, value: a
byte that is invalid once it stands there).

Random numbers come from a generator of each case and layout, seeded by their names (generator()), so that the vectors that there are
stay as they are when a layout or a format is added. values() has one generator: a new format's values are appended at its end, from
a generator of their own (see zero_points()).
"""
import argparse
import json
import os
import struct
import subprocess
import tempfile
import zlib

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "tests", "quant")
DTYPES = {"int8": "I8", "uint8": "U8", "float32": "F32", "int64": "I64", "float16": "F16"}


def generator(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def save(name, tensors):
    header, data = {}, b""
    for key in sorted(tensors):
        a = np.ascontiguousarray(tensors[key])
        header[key] = {"dtype": DTYPES[str(a.dtype)], "shape": list(a.shape),
                       "data_offsets": [len(data), len(data) + a.nbytes]}
        data += a.tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(OUT, name), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


# ---- layouts: from trits [N, K] (and scales [N, per row]) to the bytes of the tensor ------------------------------------


def put(out, at, shift, trit):
    out[at] |= (int(trit) + 1) << shift


def t2(w, s):
    n, k = w.shape
    stride = -(-k // 4)
    out = np.zeros(n * stride, np.uint8)
    for r in range(n):
        for c in range(4 * stride):
            put(out, r * stride + c // 4, 2 * (c % 4), w[r, c] if c < k else 0)
    return out


def base3_rows(w, digit_of):
    n, k = w.shape
    stride = -(-k // 5)
    out = np.zeros(n * stride, np.uint8)
    for r in range(n):
        for c in range(5 * stride):
            out[r * stride + c // 5] += digit_of[int(w[r, c]) if c < k else 0] * 3 ** (c % 5)
    return out


def t5(w, s):
    return base3_rows(w, {-1: 0, 0: 1, 1: 2})


def t5_zpm(w, s):
    return base3_rows(w, {0: 0, 1: 1, -1: 2})


def t16(w, s):
    n, k = w.shape
    groups, blocks = -(-n // 16), 2 * -(-k // 32)
    out = np.zeros(groups * blocks * 64, np.uint8)
    for r in range(groups * 16):
        for c in range(blocks * 16):
            block = (r // 16) * blocks + c // 16
            put(out, 64 * block + 4 * (r % 16) + c % 16 % 4, 2 * (c % 16 // 4), w[r, c] if r < n and c < k else 0)
    return out


def hf_u8(w, s):
    n, k = w.shape
    q = -(-n // 4)
    out = np.zeros((q, k), np.uint8)
    for o in range(n):
        for c in range(k):
            out[o - o // q * q, c] |= (int(w[o, c]) + 1) << 2 * (o // q)
    return out.reshape(-1)


def with_tail(codes, s):
    return np.concatenate([codes, np.frombuffer(struct.pack("<f", s) + bytes(28), np.uint8)])


def i2_s_flat(w, s, width):
    flat = w.reshape(-1)
    out = np.zeros(flat.size // 4, np.uint8)
    for i, t in enumerate(flat):
        g, j = divmod(i, 4 * width)
        put(out, g * width + j % width, 6 - 2 * (j // width), t)
    return with_tail(out, s)


def i2_s(w, s):
    return i2_s_flat(w, s, 32)


def i2_s_arm(w, s):
    return i2_s_flat(w, s, 16)


def i2_s_x4(w, s):
    n, k = w.shape
    out = np.zeros(n * k // 4, np.uint8)
    for r in range(n):
        for c in range(k):
            put(out, r // 4 * k + c, 6 - 2 * (r % 4), w[r, c])
    return with_tail(out, s)


def half(x):
    return np.frombuffer(np.float16(x).tobytes(), np.uint8)


def blocks_of(w, s, size, block):
    """The blocks of every row, each made by block(weights, scale)."""
    return np.concatenate([block(w[r, size * b:size * b + size], s[r, b]) for r in range(w.shape[0])
                           for b in range(w.shape[1] // size)])


def tq2_0(w, s):
    def block(v, d):
        q = np.zeros(64, np.uint8)
        for i in range(256):
            plane, j = divmod(i, 128)
            put(q, 32 * plane + j % 32, 2 * (j // 32), v[i])
        return np.concatenate([q, half(d)])
    return blocks_of(w, s, 256, block)


def fraction(digits):
    """Digits, most significant first, as ceil(q * 256 / 243)."""
    q = 0
    for d in digits:
        q = 3 * q + int(d)
    return -(-q * 256 // 243)


def tq1_0(w, s):
    def block(v, d):
        v = v + 1
        q = [fraction(v[m + 32 * n] for n in range(5)) for m in range(32)]
        q += [fraction(v[160 + m + 16 * n] for n in range(5)) for m in range(16)]
        q += [fraction([v[240 + j + 4 * m] for m in range(4)] + [0]) for j in range(4)]
        return np.concatenate([np.array(q, np.uint8), half(d)])
    return blocks_of(w, s, 256, block)


def ptq1_0(w, s):
    def block(v, d):
        v = v + 1
        q = [fraction(v[m + 16 * n] for n in range(5)) for m in range(16)]
        q += [fraction(v[80 + m + 8 * n] for n in range(5)) for m in range(8)]
        q += [fraction([v[120 + h + 2 * n] for n in range(4)] + [0]) for h in range(2)]
        return np.concatenate([np.array(q, np.uint8), half(d)])
    return blocks_of(w, s, 128, block)


def q2_0_of(size):
    def block(v, d):
        q = np.zeros(size // 4, np.uint8)
        for i in range(size):
            put(q, i // 4, 2 * (i % 4), v[i])
        return np.concatenate([half(d), q])
    return lambda w, s: blocks_of(w, s, size, block)


def iq2_bn(w, s):
    rows = []
    for r in range(w.shape[0]):
        q = np.zeros(w.shape[1] // 4, np.uint8)
        for i in range(w.shape[1]):
            b, j = divmod(i, 64)
            put(q, 16 * b + j % 16, 2 * (j // 16), w[r, i])
        rows += [np.frombuffer(struct.pack("<f", s[r, 0]), np.uint8), q]
    return np.concatenate(rows)


def iq1_bn(w, s):
    rows = []
    for r in range(w.shape[0]):
        rows.append(half(s[r, 0]))
        for b in range(w.shape[1] // 64):
            v = w[r, 64 * b:64 * b + 64] + 1
            q = [fraction(v[16 * i + 5 * k + j] for j in (4, 3, 2, 1, 0)) for i in range(4) for k in range(3)]
            q.append(fraction([0, v[63], v[47], v[31], v[15]]))
            rows.append(np.array(q, np.uint8))
    return np.concatenate(rows)


# name: (function, K a multiple of, rows a multiple of, weights a scale: 0 outer, -1 tensor, None row, else block; f16?)
LAYOUTS = {
    "t2": (t2, 1, 1, 0, False), "t5": (t5, 1, 1, 0, False), "t5-zpm": (t5_zpm, 1, 1, 0, False),
    "t16": (t16, 1, 1, 0, False), "hf-u8": (hf_u8, 1, 1, 0, False),
    "i2_s": (i2_s, 1, 1, -1, False), "i2_s-arm": (i2_s_arm, 1, 1, -1, False), "i2_s-x4": (i2_s_x4, 1, 4, -1, False),
    "tq1_0": (tq1_0, 256, 1, 256, True), "tq2_0": (tq2_0, 256, 1, 256, True),
    "q2_0": (q2_0_of(64), 64, 1, 64, True), "q2_0-128": (q2_0_of(128), 128, 1, 128, True),
    "pq2_0": (q2_0_of(128), 128, 1, 128, True), "ptq1_0": (ptq1_0, 128, 1, 128, True),
    "iq1_bn": (iq1_bn, 64, 1, None, True), "iq2_bn": (iq2_bn, 64, 1, None, False),
}
FLAT = {"i2_s": 128, "i2_s-arm": 64}  # the whole tensor is a multiple of this
FRACTIONS = {fraction(d) for d in np.ndindex(3, 3, 3, 3, 3)}


def bad_bytes(name, w, raw, make, scales, rng):
    """Single bytes that are invalid where they are: (offset, value)."""
    bad = []
    if name in ("t5", "t5-zpm"):
        bad = [(at, v) for at, v in zip(rng.integers(0, raw.size, 5), (243, 255, 250, 244, 249))]
    elif name in ("tq1_0", "ptq1_0", "iq1_bn"):
        never = sorted(set(range(256)) - FRACTIONS)
        assert len(never) == 13
        if name == "iq1_bn":
            stride = 2 + 13 * (w.shape[1] // 64)
            places = [r * stride + 2 + j for r in range(w.shape[0]) for j in range(stride - 2)]
            short = [p for p in places if (p % stride - 2) % 13 == 12]
            misfit = fraction([1, 0, 0, 0, 0])  # 81: one digit too many
        else:
            size, first, four = (54, 48, 52) if name == "tq1_0" else (28, 24, 26)
            places = [at for at in range(raw.size) if at % size < four]
            short = [at for at in places if at % size >= first]
            misfit = fraction([0, 1, 2, 0, 1])  # a fifth digit where there are four
        bad = [(int(rng.choice(places)), v) for v in never] + [(int(rng.choice(short)), misfit)]
    else:
        for _ in range(6):
            r, c = int(rng.integers(w.shape[0])), int(rng.integers(w.shape[1]))
            v = w.copy()
            v[r, c] = 2
            changed = make(v, scales)
            at = np.flatnonzero(changed != raw)
            assert at.size == 1
            bad.append((at[0], changed[at[0]]))
    return np.array(bad, np.int64)


# The 32 patterns of Sherry, by their index: four 2-bit codes each, the first in the lowest bits.
SHERRY = bytes.fromhex("A9892909A68626069A921A126A624A42" "012181A1042484A41018909840486068")


def stq1_0(w, s):
    def block(v, d):
        nibbles, signs = np.zeros(32, np.uint8), np.zeros(8, np.uint8)
        for g in range(64):
            four = [int(v[64 * (g // 16) + g % 16 + 16 * p]) for p in range(4)]
            index = SHERRY.index(sum((t + 1) << 2 * p for p, t in enumerate(four)))
            nibbles[g // 2] |= (index & 15) << 4 * (g % 2)
            signs[g // 8] |= (index >> 4) << g % 8
        return np.concatenate([nibbles, signs, half(d)])
    return blocks_of(w, s, 256, block)


def sherry(out):
    """Cases in which each four trits have exactly one zero; its own generator leaves the other vectors unchanged."""
    draw = np.random.default_rng(43)
    for name, n, k in (("sherry_k256_n1", 1, 256), ("sherry_k512_n17", 17, 512), ("sherry_k1280_n8", 8, 1280)):
        w = np.zeros((n, k), np.int8)
        for r in range(n):
            for g in range(k // 4):
                pattern = SHERRY[g % 32] if not r else SHERRY[int(draw.integers(32))]
                for p in range(4):
                    w[r, g // 16 * 64 + g % 16 + 16 * p] = (pattern >> 2 * p & 3) - 1
        x = draw.integers(-127, 128, k).astype(np.int8)
        products = w.astype(np.int64) * x
        out[name + ".trits"], out[name + ".x"], out[name + ".dot"] = w, x, products.sum(1)
        out[name + ".dot256"] = products.reshape(n, -1, 256).sum(2)
        scales = np.exp(draw.normal(-3, 2, (n, k // 256))).astype(np.float16).astype(np.float32)
        for layout in ("stq1_0", "stq1_0-42"):
            out[f"{layout}.{name}.scales"], out[f"{layout}.{name}.bytes"] = scales, stq1_0(w, scales)


def ternary():
    out = {}
    cases = {}
    rng = generator("cases")
    blocks = sorted({group for _, _, _, group, _ in LAYOUTS.values() if group and group > 0})
    for k in (1, 5, 64, 127, 128, 129, 256, 640, 1280):
        for n in (1, 8, 17):
            cases[f"k{k}_n{n}"] = rng.integers(-1, 2, (n, k)).astype(np.int8)
    cases["k8640_n4"] = rng.integers(-1, 2, (4, 8640)).astype(np.int8)
    cases["k8640_n1"] = cases["k8640_n4"][:1]
    cases["k320_n2"] = rng.integers(-1, 2, (2, 320)).astype(np.int8)  # flat i2_s: rows start inside a group
    cases["k96_n4"] = rng.integers(-1, 2, (4, 96)).astype(np.int8)
    cases["zero_k256_n20"] = np.zeros((20, 256), np.int8)
    cases["minus_k256_n20"] = -np.ones((20, 256), np.int8)
    cases["zero_k129_n3"] = np.zeros((3, 129), np.int8)
    cases["minus_k129_n3"] = -np.ones((3, 129), np.int8)
    cases["probe_k128_n128"] = np.eye(128, dtype=np.int8)
    cases["probe_k256_n256"] = np.eye(256, dtype=np.int8)
    cases["probe_k191_n191"] = np.eye(191, dtype=np.int8)
    for block in blocks:
        if sum(w.shape[1] % block == 0 for w in cases.values()) < 4:
            cases[f"k{3 * block}_n5"] = generator(f"k{3 * block}").integers(-1, 2, (5, 3 * block)).astype(np.int8)
    for name, w in cases.items():
        n, k = w.shape
        rng = generator(name)
        if name.startswith("probe"):
            x = (np.arange(k) % 192 - 64).astype(np.int8)
        elif name.startswith("minus"):
            x = np.full(k, 127, np.int8)
        else:
            x = rng.integers(-127, 128, k).astype(np.int8)
        products = w.astype(np.int64) * x
        out[name + ".trits"], out[name + ".x"], out[name + ".dot"] = w, x, products.sum(1)
        for size in blocks:
            if k % size == 0:
                out[f"{name}.dot{size}"] = products.reshape(n, -1, size).sum(2)
        for layout, (make, multiple, rows, group, is_half) in LAYOUTS.items():
            if k % multiple or n % rows or (n * k) % FLAT.get(layout, 1):
                continue
            rng = generator(f"{layout}.{name}")
            per_row = 1 if group is None else k // group if group and group > 0 else 0
            scales = np.exp(rng.normal(-3, 2, (n, per_row))).astype(np.float32)
            if is_half:
                scales = scales.astype(np.float16).astype(np.float32)
            if group == -1:
                scales = np.float32(np.exp(rng.normal(-3, 2)))
                out[f"{layout}.{name}.scales"] = np.array([scales], np.float32)
            elif per_row:
                out[f"{layout}.{name}.scales"] = scales
            raw = make(w, scales)
            out[f"{layout}.{name}.bytes"] = raw
            if not name.startswith("probe"):
                out[f"{layout}.{name}.bad"] = bad_bytes(layout, w, raw, make, scales, rng)
    # Code 3 is a value in these.
    rng = generator("two")
    w = rng.integers(-1, 3, (3, 256)).astype(np.int8)
    x = rng.integers(-127, 128, 256).astype(np.int8)
    out["two.trits"], out["two.x"] = w, x
    for size in (64, 128):
        out[f"two.dot{size}"] = (w.astype(np.int64) * x).reshape(3, -1, size).sum(2)
    for layout, size in (("q2_0", 64), ("q2_0-128", 128), ("pq2_0", 128)):
        scales = np.exp(rng.normal(-3, 2, (3, 256 // size))).astype(np.float16).astype(np.float32)
        out[f"{layout}.two.scales"], out[f"{layout}.two.bytes"] = scales, LAYOUTS[layout][0](w, scales)
    sherry(out)
    save("ternary.safetensors", out)


# ---- value formats ------------------------------------------------------------------------------------------------------


def e4m3(b):
    sign, e, m = -1.0 if b & 0x80 else 1.0, b >> 3 & 15, b & 7
    if b & 0x7F == 0x7F:
        return float("nan")
    return sign * (2.0 ** (e - 7) * (1 + m / 8) if e else 2.0 ** -6 * m / 8)


def e5m2(b):
    sign, e, m = -1.0 if b & 0x80 else 1.0, b >> 2 & 31, b & 3
    if e == 31:
        return float("nan") if m else sign * float("inf")
    return sign * (2.0 ** (e - 15) * (1 + m / 4) if e else 2.0 ** -14 * m / 4)


def seq(out):
    """Q2_0C; its own generator leaves the other vectors unchanged."""
    draw = np.random.default_rng(40)
    codes, scales = draw.integers(0, 4, (3, 2, 512)), np.exp(draw.normal(-3, 2, (3, 2))).astype(np.float16)
    raw = []
    for row in range(3):
        for block in range(2):
            packed = [sum(int(c) << 2 * i for i, c in enumerate(codes[row, block, at:at + 4])) for at in range(0, 512, 4)]
            raw += [half(scales[row, block]), np.array(packed, np.uint8)]
    out["q2_0c.bytes"] = np.concatenate(raw)
    out["q2_0c.values"] = (np.array([-3, -1, 1, 3], np.float32)[codes] * scales.astype(np.float32)[..., None]).reshape(3, 1024)


def int8_rows(out):
    """int8-row: f16 d, then K signed bytes; w = code * d. And weights with the least error that any of 4,001 scales has."""
    own = generator("int8")
    n, k = 24, 96
    codes, d = own.integers(-128, 128, (n, k)), own.normal(0, .01, n).astype(np.float16)
    d[:3] = 0, 6e-8, 60000
    out["int8-row.bytes"] = np.concatenate([d.view(np.uint8).reshape(n, 2), codes.astype(np.int8).view(np.uint8)], axis=1)
    out["int8-row.values"] = codes.astype(np.float32) * d.astype(np.float32)[:, None]
    n, k = 8, 576
    w = (own.normal(0, .02, (n, k)) * np.exp(own.normal(0, .5, (n, 1)))).astype(np.float32)
    w[4] = own.standard_t(4, k) * .02
    w[5] = own.laplace(0, .02, k)
    w[6, 7] = 1
    w[7] = 0
    least = []
    for row in w.astype(np.float64):
        most = np.abs(row).max() / 127
        scales = (np.linspace(.5, 1.05, 4001) * most).astype(np.float16).astype(np.float64)
        scales = scales[scales > 0]
        errors = [np.sum((row - s * np.clip(np.rint(row / s), -127, 127)) ** 2) for s in scales]
        least.append(min(errors) if errors else 0)
    out["fit.int8-row.weights"], out["fit.int8-row.least"] = w, np.array(least, np.float32)


def zero_points(out):
    """zpB-G: f16 d, int8 z, one stream of G codes of B bits, low bits first; 8 bits are signed. w = (code - z) * d."""
    own = np.random.default_rng(21)
    for bits in (2, 3, 4, 8):
        for block in (32, 64, 128):
            n = 24
            codes, zero = own.integers(0, 1 << bits, (n, block)), own.integers(0, 1 << bits, n)
            d = own.normal(0, .01, n).astype(np.float16)
            d[:4] = [0, -0.0, 2.0 ** -24, 65504]
            codes[4], codes[5] = 0, (1 << bits) - 1
            zero[4], zero[5] = (1 << bits) - 1, 0
            key = f"zp{bits}-{block}"
            signed = 128 if bits == 8 else 0
            stream = ((codes - signed)[..., None] >> np.arange(bits) & 1).reshape(n, -1).astype(np.uint8)
            packed = np.packbits(stream, axis=1, bitorder="little")
            out[key + ".bytes"] = np.concatenate([d.view(np.uint8).reshape(n, 2),
                                                  ((zero - signed) & 255).astype(np.uint8)[:, None], packed], axis=1)
            wide, code, z = d.astype(np.float32)[:, None], codes - signed, (signed - zero)[:, None]
            out[key + ".values"] = wide * code.astype(np.float32) + wide * z.astype(np.float32)  # exact except for a zero's sign


def two_of_four(out):
    """2:4-KIND-G: G / 16 words of values, G / 32 of metadata, f16 d. Its own generator leaves the other vectors unchanged."""
    own = np.random.default_rng(24)
    fp4 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6])
    meaning = {"int4": np.arange(16) - 16 * (np.arange(16) > 7), "fp4": np.concatenate([fp4, 0 - fp4])}
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    for kind in ("int4", "fp4"):
        for block in (32, 64, 128):
            n = 24
            d = own.normal(0, .01, n).astype(np.float16)
            d[:4] = [0, -0.0, 2.0 ** -24, 65504]
            raw, weights = [], np.zeros((n, block), np.float32)
            for i in range(n):
                words, marks = [0] * (block // 16), [0] * (block // 32)
                for four in range(block // 4):
                    pair, codes = pairs[own.integers(0, 6)], own.integers(0, 16, 2)
                    for j in range(2):
                        words[four // 4] |= int(codes[j]) << 4 * (four % 4 * 2 + j)
                        weights[i, 4 * four + pair[j]] = meaning[kind][codes[j]]
                    marks[four // 8] |= (pair[1] << 2 | pair[0]) << 4 * (four % 8)
                raw.append(np.frombuffer(struct.pack(f"<{len(words + marks)}I", *words, *marks) + d[i].tobytes(), np.uint8))
            out[f"2:4-{kind}-{block}.bytes"] = np.stack(raw)
            out[f"2:4-{kind}-{block}.values"] = weights * d.astype(np.float32)[:, None]


def values():
    from gguf import GGMLQuantizationType, quants
    out, rng = {}, generator("values")
    every = np.arange(256, dtype=np.uint8)
    for name, of in (("f8_e4m3", e4m3), ("f8_e5m2", e5m2)):
        out[name + ".bytes"], out[name + ".values"] = every, np.array([of(int(b)) for b in every], np.float32)
    x = rng.normal(0, 1, (24, 64)) * np.exp(rng.normal(-2, 2, (24, 1)))
    x[0] = 0
    x[1] = 1
    x[2] = -2.5
    x[3, 1:] = 0  # one weight alone
    x[4, :32] = np.arange(32) - 16
    x[5] = -np.abs(x[5])
    x[6] = np.abs(x[6])
    x = x.astype(np.float32)
    out["encode.values"] = x
    for name in ("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"):
        out[f"encode.{name.lower()}"] = quants.quantize(x, GGMLQuantizationType[name])
    # gpt-oss: the block's 16 bytes hold consecutive values in pairs.
    kv = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])
    pairs, scale = rng.integers(0, 256, (20, 16)).astype(np.uint8), rng.integers(1, 254, 20).astype(np.uint8)
    v = np.stack([kv[pairs & 15], kv[pairs >> 4]], -1).reshape(20, 32) * 2.0 ** (scale.astype(float)[:, None] - 127)
    out["gpt-oss.pairs"], out["gpt-oss.scales"], out["gpt-oss.values"] = pairs, scale, v.astype(np.float32)
    # Absmean quantization, from its formula in float32 with the mean rounded once.
    w = (rng.normal(0, .02, (37, 129))).astype(np.float32)
    mean = np.float32(np.abs(w.astype(np.float64)).mean())
    inverse = np.float32(1) / max(mean, np.float32(1e-5))
    out["absmean.weights"], out["absmean.mean"] = w, np.array([mean], np.float32)
    out["absmean.trits"] = np.clip(np.rint(w * inverse), -1, 1).astype(np.int8)
    seq(out)
    zero_points(out)
    int8_rows(out)
    two_of_four(out)
    save("values.safetensors", out)


# ---- ik_llama.cpp's quantizer -------------------------------------------------------------------------------------------


def write_gguf(path, tensors):
    """tensors: name -> (rows, K, type, bytes)."""
    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()
    keys = [("general.architecture", 8, text("llama"))]
    for key, v in (("block_count", 1), ("context_length", 32), ("embedding_length", 256), ("feed_forward_length", 512),
                   ("attention.head_count", 4), ("vocab_size", 8)):
        keys.append(("llama." + key, 4, struct.pack("<I", v)))
    keys.append(("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)))
    head = struct.pack("<IIQQ", 0x46554747, 3, len(tensors), len(keys))
    for key, kind, value in keys:
        head += text(key) + struct.pack("<I", kind) + value
    offset, data = 0, b""
    for name, (n, k, kind, raw) in tensors.items():
        head += text(name) + struct.pack("<IQQIQ", 2, k, n, kind, len(data))
        data += raw + bytes(-len(raw) % 32)
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)


def read_gguf(path):
    """name -> (type, bytes), by the gguf package's reading of the header; unknown types end at the next offset."""
    raw = open(path, "rb").read()
    at = 8
    n_tensors, n_keys = struct.unpack_from("<QQ", raw, at)
    at += 16
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def skip(kind, at):
        if kind == 8:
            return at + 8 + struct.unpack_from("<Q", raw, at)[0]
        if kind == 9:
            inner, count = struct.unpack_from("<IQ", raw, at)
            at += 12
            for _ in range(count):
                at = skip(inner, at)
            return at
        return at + sizes[kind]
    for _ in range(n_keys):
        at = skip(8, at)
        kind = struct.unpack_from("<I", raw, at)[0]
        at = skip(kind, at + 4)
    infos = []
    for _ in range(n_tensors):
        length = struct.unpack_from("<Q", raw, at)[0]
        name = raw[at + 8:at + 8 + length].decode()
        at += 8 + length
        dims = struct.unpack_from("<I", raw, at)[0]
        at += 4 + 8 * dims
        infos.append((name,) + struct.unpack_from("<IQ", raw, at))
        at += 12
    start = at + -at % 32
    return {name: (kind, raw[start + offset:]) for name, kind, offset in infos}


def peers(program):
    rng = generator("peers")
    n, k = 20, 256
    w = rng.integers(-1, 2, (n, k)).astype(np.int8)
    w[:, 0] = 1  # each row shows its scale
    w[3] = 1
    w[4] = -1
    scale = np.float32(np.float16(0.0371))
    row_scales = np.exp(rng.normal(-3, 1, (n, 1))).astype(np.float16)
    row_scales[:2] = scale
    latent = rng.normal(0, .05, (n, 256)).astype(np.float32)
    out = {"trits": w, "row_scales": row_scales.astype(np.float32)[:, 0], "scale": np.array([scale])}
    by_row = (w * row_scales).astype(np.float16)
    f16 = "blk.0.ffn_gate.weight", (n, k, 1, by_row.tobytes())
    packed = "blk.0.ffn_gate.weight", (n, k, 36, i2_s(w, scale).tobytes())
    floats = "blk.0.ffn_gate.weight", (n, k, 1, latent.astype(np.float16).tobytes())
    jobs = [("iq1_bn", f16, 134, n * (2 + 13 * k // 64)), ("iq2_bn", f16, 135, n * (4 + k // 4)),
            ("iq2_bn_of_i2_s", packed, 135, n * (4 + k // 4)), ("q6_k", floats, 14, n * 210)]
    with tempfile.TemporaryDirectory() as folder:
        for name, (tensor, entry), kind, size in jobs:
            source, target = os.path.join(folder, "in.gguf"), os.path.join(folder, "out.gguf")
            write_gguf(source, {tensor: entry})
            to = {134: "IQ1_BN", 135: "IQ2_BN", 14: "Q6_K"}[kind]
            subprocess.run([program, "--allow-requantize", "--pure", source, target, to, "1"], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            found, raw = read_gguf(target)[tensor]
            assert found == kind, (name, found)
            out[name + ".bytes"] = np.frombuffer(raw[:size], np.uint8)
    out["i2_s.bytes"] = i2_s(w, scale)
    out["latent"] = latent.astype(np.float16).astype(np.float32)
    save("peers.safetensors", out)


# ---- ggml's quantizer ---------------------------------------------------------------------------------------------------


def ggml(library):
    """ggml.safetensors: rows of weights of several kinds, importances of their columns, and the squared errors of ggml's own
    quantizer, of each row, without and with importance (then each square times its column's importance)."""
    import ctypes
    from gguf import GGMLQuantizationType, quants
    lib = ctypes.CDLL(library)
    lib.ggml_quantize_chunk.restype = ctypes.c_size_t
    own = np.random.default_rng(22)
    n, k = 24, 512
    x = own.normal(0, .02, (n, k)) * np.exp(own.normal(0, .5, (n, 1)))
    x[6:12] += own.normal(0, .02, (6, k // 32)).repeat(32, axis=1)  # blocks with means of their own
    x[12:18] = own.standard_t(3, (6, k)) * .01
    x[18:21] = own.laplace(0, .02, (3, k))
    x[21:24] = own.uniform(-.05, .05, (3, k))
    x = x.astype(np.float32)
    weight = np.exp(own.normal(0, 1.5, k)).astype(np.float32)
    out = {"weights": x, "importance": weight}
    for name in ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q6_K", "Q4_K", "Q2_K"):
        kind = GGMLQuantizationType[name]
        for importance in (None, weight):
            size = quants.quant_shape_to_byte_shape((n, k), kind)
            raw = np.zeros(size, np.uint8)
            lib.ggml_quantize_chunk(ctypes.c_int(kind.value), x.ctypes.data_as(ctypes.c_void_p),
                                    raw.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(0), ctypes.c_int64(n), ctypes.c_int64(k),
                                    None if importance is None else importance.ctypes.data_as(ctypes.c_void_p))
            lost = (quants.dequantize(raw, kind).astype(np.float64) - x) ** 2
            key = name.lower() + (".plain" if importance is None else ".important")
            out[key] = (lost if importance is None else lost * importance).sum(1).astype(np.float32)
    save("ggml.safetensors", out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ik-quantize", help="ik_llama.cpp's llama-quantize, to make peers.safetensors again")
    parser.add_argument("--ggml", help="llama.cpp's libggml-base.so, to make ggml.safetensors again")
    args = parser.parse_args()
    ternary()
    values()
    if args.ik_quantize:
        peers(args.ik_quantize)
    if args.ggml:
        ggml(args.ggml)
