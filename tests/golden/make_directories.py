#!/usr/bin/env python3
"""Writes directories.json: what the directories and weights of some files of this folder hold, read with the packages
gguf, safetensors and numpy and nothing of Setun, for tests/unit/format_directory.c and tests/unit/source_weight.c.

  tensors: name, dtype, shape (slowest first) and, of floats, the sum and some values at [flat index, value]
  weights: modules whose weight takes more than one tensor or is made ternary when read: shape, the scale as a
           multiplying number, the sum and the sum of magnitudes of the trits, and the trits of two rows
"""
import json
import os

import numpy as np
from gguf import GGUFReader
from safetensors import safe_open

HERE = os.path.dirname(os.path.abspath(__file__))


def probe(x):
    x = np.asarray(x, dtype=np.float32).reshape(-1)
    at = sorted({int(i) for i in np.linspace(0, x.size - 1, 5)})
    return {"sum": float(x.astype(np.float64).sum()), "values": [[i, float(x[i])] for i in at]}


def bf16(raw):
    return (np.frombuffer(raw, dtype="<u2").astype(np.uint32) << 16).view(np.float32)


def read_safetensors(path):
    """name -> (dtype, shape, array), without torch: bf16 is widened by hand."""
    out = {}
    raw = open(path, "rb").read()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    with safe_open(path, framework="numpy") as f:
        for name in f.keys():
            e = header[name]
            begin, end = e["data_offsets"]
            x = bf16(raw[start + begin:start + end]) if e["dtype"] == "BF16" else f.get_tensor(name)
            out[name] = (e["dtype"], e["shape"], np.asarray(x).reshape(e["shape"]))
    return out


def hf_tensors(name):
    folder = os.path.join(HERE, "hf", name)
    index = os.path.join(folder, "model.safetensors.index.json")
    if os.path.exists(index):
        where = json.load(open(index))["weight_map"]
        files = {f: read_safetensors(os.path.join(folder, f)) for f in set(where.values())}
        return {t: files[f][t] for t, f in where.items()}
    return read_safetensors(os.path.join(folder, "model.safetensors"))


def describe(dtype, shape, x):
    entry = {"dtype": dtype, "shape": [int(d) for d in shape]}
    if dtype in ("F32", "F16", "BF16"):
        entry.update(probe(x))
    return entry


def trits_entry(trits, scale):
    rows = trits.shape[0]
    return {"shape": list(trits.shape), "scale": float(scale), "sum": int(trits.sum()),
            "nonzero": int(np.abs(trits).sum()), "rows": [[r, trits[r].tolist()] for r in (0, rows - 1)]}


def packed(p, rows):
    """P[q, in] of Hugging Face BitNet: row i*q + r stands at bits 2i of P[r]."""
    return np.concatenate([(p >> (2 * i) & 3).astype(np.int8) - 1 for i in range(4)])[:rows]


def latent(w):
    """clip(round(w * (1 / max(mean|w|, 1e-5))), -1, 1); the scale is the mean."""
    mean = np.float32(np.abs(w.astype(np.float64)).mean())
    inverse = np.float32(1) / np.maximum(mean, np.float32(1e-5))
    return np.clip(np.rint(w.astype(np.float32) * inverse), -1, 1).astype(np.int8), mean


def hf(name):
    tensors = hf_tensors(name)
    out = {"tensors": {t: describe(*v) for t, v in tensors.items()}, "weights": {}}
    q = json.load(open(os.path.join(HERE, "hf", name, "config.json"))).get("quantization_config", {})
    for t, (dtype, shape, x) in tensors.items():
        module = t[:-len(".weight")] if t.endswith(".weight") else None
        if dtype == "U8":
            s = np.float32(tensors[module + ".weight_scale"][2].reshape(-1)[0])
            scale = s if q.get("linear_class") == "autobitlinear" else np.float32(1) / s
            out["weights"][module] = trits_entry(packed(x, 4 * shape[0]), scale)
        elif q and module and len(shape) == 2 and ".layers." in module:
            out["weights"][module] = trits_entry(*latent(x))
    return out


def gguf(name):
    reader = GGUFReader(os.path.join(HERE, "gguf", name))
    out = {"tensors": {}, "keys": {}}
    for t in reader.tensors:
        shape = [int(d) for d in t.shape[::-1]]
        out["tensors"][t.name] = describe(t.tensor_type.name, shape, t.data)
    for key, field in reader.fields.items():
        if key.startswith("GGUF."):
            continue
        value = field.contents()
        out["keys"][key] = {"count": len(value), "first": value[:3]} if isinstance(value, list) else value
    return out


result = {"hf/" + n: hf(n) for n in ("llama3-tied-sharded", "bitnet-auto", "bitnet-div", "bitnet-latent")}
result.update({"gguf/" + n: gguf(n) for n in ("qwen3.gguf", "mixtral.gguf")})


def lines(value, depth):
    """JSON with a line for each entry down to `depth`, so that a change shows as one line."""
    if depth == 0 or not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return "{\n" + ",\n".join(json.dumps(k) + ": " + lines(v, depth - 1) for k, v in value.items()) + "\n}"


with open(os.path.join(HERE, "directories.json"), "w") as f:
    f.write(lines(result, 3) + "\n")
