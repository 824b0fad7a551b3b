#!/usr/bin/env python3
"""Makes tests/quant/affine.safetensors: MLX's affine groups, as MLX itself quantizes them on a CPU.

Needs numpy and the PyPI packages mlx and mlx-cpu. Of each format NAME.bytes u8 (blocks of scale, bias and codes, as
docs/formats.md draws them) and NAME.values f32 [rows, K], by NumPy from the words, scales and biases alone; they are
compared with mx.dequantize here, which rounds to the scales' type.

    python3 tools/make_affine_vectors.py
"""
import mlx.core as mx
import numpy as np

import make_quant_vectors

ROWS, COLUMNS = 2, 256


def codes_of(words, bits):
    """[rows, K / 32 * bits] words as [rows, K] codes: a string of bits, the lowest first."""
    string = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").reshape(len(words), -1, bits)
    return (string.astype(np.int64) << np.arange(bits)).sum(axis=2)


def numbers(x, dtype):
    """An MLX array as bytes and as float32."""
    raw = np.array(x.view(mx.uint16))
    values = (raw.astype(np.uint32) << 16).view(np.float32) if dtype == mx.bfloat16 else raw.view(np.float16)
    return raw, values.astype(np.float32)


def make(random, bits, group, dtype):
    w = mx.array(random.standard_normal((ROWS, COLUMNS)).astype(np.float32)).astype(dtype)
    words, scales, biases = mx.quantize(w, group_size=group, bits=bits)
    own = np.array(mx.dequantize(words, scales, biases, group_size=group, bits=bits).astype(mx.float32))
    packed = np.array(words)
    codes = codes_of(packed, bits).reshape(ROWS, -1, group)
    (s_raw, s), (m_raw, m) = numbers(scales, dtype), numbers(biases, dtype)
    s, m = s[:, :, None], m[:, :, None]
    # As specified: 128 is subtracted from codes of 8 bits.
    off = 128 if bits == 8 else 0
    values = s * (codes - off).astype(np.float32) + (m + s * np.float32(off))
    assert values.dtype == np.float32
    exact = s.astype(np.float64) * codes + m
    assert np.abs(values - exact).max() <= 2e-6 * np.abs(exact).max()
    rounding = 2.0 ** (-8 if dtype == mx.bfloat16 else -11)
    error = np.abs(own.reshape(exact.shape) - exact)
    assert (error <= 3 * rounding * (np.abs(s * codes) + np.abs(m))).all(), (bits, group, dtype, error.max())
    blocks = packed.view(np.uint8).reshape(ROWS, COLUMNS // group, -1)
    heads = np.stack([s_raw, m_raw], axis=2).view(np.uint8).reshape(ROWS, -1, 4)
    return np.concatenate([heads, blocks], axis=2).reshape(-1), values.reshape(ROWS, COLUMNS)


def main():
    random = np.random.default_rng(25)
    out = {}
    for bits in (2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            for dtype, end in ((mx.float16, ""), (mx.bfloat16, "-bf16")):
                name = f"affine{bits}-{group}{end}"
                out[name + ".bytes"], out[name + ".values"] = make(random, bits, group, dtype)
    make_quant_vectors.save("affine.safetensors", out)


if __name__ == "__main__":
    main()
