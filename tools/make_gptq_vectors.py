#!/usr/bin/env python3
"""Makes tests/quant/gptq.safetensors: GPTQ of small matrices in NumPy, from the paper's algorithm in float64.

usage: python3 tools/make_gptq_vectors.py

Independent of Setun's code. CASE.weights f32 [rows, K], CASE.inputs f32 [tokens, K], CASE.d f32 and CASE.zero u8 [rows, K/32]
(scales and zero points by the least and the largest weight of 32), CASE.codes u8 [rows, K]. CASE is zpB. Columns go by the size
of their inputs, the largest first; 1% of the mean of the diagonal is added to it; scales are fixed before.
"""
import json
import os
import struct

import numpy as np

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "quant", "gptq.safetensors")
DTYPES = {"float32": "F32", "uint8": "U8", "int8": "I8"}
GROUP = 32


def gptq(w, h, d, zero, most):
    """Codes [rows, K]: Frantar et al., algorithm 1, column by column."""
    k = w.shape[1]
    order = np.lexsort((np.arange(k), -np.diag(h)))
    h = h[np.ix_(order, order)].copy()
    h[np.diag_indices(k)] += .01 * np.mean(np.diag(h))
    upper = np.linalg.cholesky(np.linalg.inv(h)).T
    w = w[:, order].astype(np.float64)
    codes = np.zeros(w.shape, np.uint8)
    for i in range(k):
        g = order[i] // GROUP
        q = np.clip(np.rint(w[:, i] / d[:, g]) + zero[:, g], 0, most)
        codes[:, order[i]] = q
        miss = (w[:, i] - (q - zero[:, g]) * d[:, g]) / upper[i, i]
        w[:, i:] -= miss[:, None] * upper[i, i:]
    return codes


def main():
    rng = np.random.default_rng(29)
    out = {}
    for bits in (2, 3, 4, 8):
        rows, k, tokens, most = 8, 96, 120, (1 << bits) - 1
        w = (rng.normal(0, .02, (rows, k)) * np.exp(rng.normal(0, .3, (rows, 1)))).astype(np.float32)
        mix = rng.normal(0, 1, (k, k)) * (rng.random((k, k)) < .2) + np.eye(k)  # inputs that depend on one another
        x = ((rng.normal(0, 1, (tokens, k)) @ mix) * np.exp(rng.normal(0, 1, k))).astype(np.float32)
        low = np.minimum(w.reshape(rows, -1, GROUP).min(2), 0).astype(np.float64)
        high = np.maximum(w.reshape(rows, -1, GROUP).max(2), 0).astype(np.float64)
        d = ((high - low) / most).astype(np.float16).astype(np.float64)
        zero = np.clip(np.rint(-low / d), 0, most)
        h = x.astype(np.float64).T @ x.astype(np.float64)
        case = f"zp{bits}"
        out[case + ".weights"], out[case + ".inputs"] = w, x
        out[case + ".d"], out[case + ".zero"] = d.astype(np.float32), zero.astype(np.uint8)
        out[case + ".codes"] = gptq(w, h, d, zero, most)
    header, data = {}, b""
    for key in sorted(out):
        a = np.ascontiguousarray(out[key])
        header[key] = {"dtype": DTYPES[str(a.dtype)], "shape": list(a.shape), "data_offsets": [len(data), len(data) + a.nbytes]}
        data += a.tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(OUT, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    main()
