#!/usr/bin/env python3
"""Makes tests/quant/gptq.safetensors: GPTQ of small matrices in NumPy, from the paper's algorithm in float64; and scales of trits.

usage: python3 tools/make_gptq_vectors.py

Independent of Setun's code. CASE.weights f32 [rows, K], CASE.inputs f32 [tokens, K], CASE.d f32 and CASE.zero u8 [rows, K/32]
(scales and zero points by the least and the largest weight of 32), CASE.codes u8 [rows, K]. CASE is zpB. Columns go by the size
of their inputs, the largest first; 1% of the mean of the diagonal is added to it; scales are fixed before. The case "ternary"
has codes 0 to 2, zero points of 1 and the scales of "scales", which has rows of weights and importances, and in d the scales of
least error: by trying each of a row's magnitudes as the smallest that is not rounded to zero.
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


def ternary_scale(x, importance):
    """The scale d with the least sum of importance * (x - d * trit)^2, over all sets of trits that result from a threshold."""
    x, importance = np.abs(x.astype(np.float64)), importance.astype(np.float64)
    best, scale = np.sum(importance * x * x), 0.
    for least in np.unique(x[x > 0]):
        kept = (x >= least) & (importance > 0)
        if not kept.any():
            continue
        d = np.sum((importance * x)[kept]) / np.sum(importance[kept])
        error = np.sum(importance * (x - d * kept) ** 2)
        if error < best:
            best, scale = error, d
    return scale


def ternary(rng, out):
    rows, k, tokens = 8, 96, 120
    w = (rng.normal(0, .02, (rows, k)) * np.exp(rng.normal(0, .3, (rows, 1)))).astype(np.float32)
    x = (rng.normal(0, 1, (tokens, k)) @ (rng.normal(0, 1, (k, k)) * (rng.random((k, k)) < .2) + np.eye(k))).astype(np.float32)
    d = np.array([[ternary_scale(g, np.ones(GROUP)) for g in row.reshape(-1, GROUP)] for row in w]).astype(np.float32)
    h = x.astype(np.float64).T @ x.astype(np.float64)
    zero = np.ones(d.shape, np.uint8)
    out["ternary.weights"], out["ternary.inputs"], out["ternary.d"], out["ternary.zero"] = w, x, d, zero
    out["ternary.codes"] = gptq(w, h, d.astype(np.float64), zero, 2)
    rows, k = 12, 64
    w = rng.normal(0, .05, (rows, k)).astype(np.float32)
    w[1] = 0
    w[2] = np.sign(w[2]) * .25             # ternary already
    w[3, 5:] = 0                           # few that are not zero
    w[4] = np.round(w[4] * 20) / 20        # ties
    w[5, 0] = 1e4                          # one that is far larger
    w[6] = w[6] ** 3
    importance = np.exp(rng.normal(0, 1, (rows, k))).astype(np.float32)
    importance[7, :32] = 0
    out["scales.weights"], out["scales.importance"] = w, importance
    out["scales.d"] = np.array([[ternary_scale(r, np.ones(k)), ternary_scale(r, i)] for r, i in zip(w, importance)]).astype(np.float32)


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
    ternary(rng, out)
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
