#!/usr/bin/env python3
"""Compares Setun with transformers on a checkpoint of yours: the output of block 0, every block's output, and the logits.

usage: parity.py DIR [--text TEXT | --ids 1,2,3] [--model FILE] [--setun build/setun] [--save FILE] [--reference FILE]

  DIR               a Hugging Face directory, which both load
  --text, --ids     what they read (default: a paragraph of English); for a model with a sliding window give a text that is
                    longer than the window
  --model FILE      what Setun loads instead of DIR, say a GGUF file of the same weights
  --save FILE       writes what transformers computed (safetensors: input_ids, hidden, logits, layer0_bf16)
  --reference FILE  compares with such a file instead of running transformers

Examples: meta-llama/Llama-3.2-1B-Instruct, Qwen/Qwen3-1.7B and google/gemma-3-1b-it, downloaded.

Needs numpy; torch and transformers unless --reference is given, and accelerate for quantized checkpoints (BitNet). Three numbers decide, and the exit status is 0 when all hold:
  hidden states and logits in float32: largest difference at most 1e-4, relative to their largest magnitude where that is
    above 1;
  block 0 against transformers in bfloat16: the mean difference is at most 1.2 times transformers' own between bfloat16 and
    float32;
  the likeliest next token is the same at every position.
Models that prescribe int8 activations (BitNet) amplify the last bit of a float into whole steps of the rounding: for them
read the numbers, the bounds do not hold.
"""
import argparse
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

TEXT = ("In 1958 a computer was built in Moscow that counted in threes. Its digits were minus one, zero and one, so that "
        "numbers needed no sign, and rounding was cutting off. About fifty of them were made before production ended.")
KINDS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I8": "|i1", "U8": "|u1"}


def load(path):
    """A safetensors file as arrays; bfloat16 as float32."""
    with open(path, "rb") as f:
        data = f.read()
    length = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, t in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        if t["dtype"] not in KINDS:
            sys.exit(f"{path}: {name}: expected one of {', '.join(KINDS)}, found {t['dtype']}")
        begin, end = t["data_offsets"]
        a = np.frombuffer(data[8 + length + begin : 8 + length + end], KINDS[t["dtype"]]).reshape(t["shape"])
        tensors[name] = (a.astype(np.uint32) << 16).view(np.float32) if t["dtype"] == "BF16" else a
    return tensors


def save(path, tensors):
    header, at = {}, 0
    for name, a in tensors.items():
        kind = next(k for k, v in KINDS.items() if v == a.dtype.str)
        header[name] = {"dtype": kind, "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for a in tensors.values():
            f.write(np.ascontiguousarray(a).tobytes())


def blocks_of(model):
    """The list of decoder blocks, under any of the names that classes use."""
    for path in ("model.layers", "model.language_model.layers", "language_model.model.layers", "language_model.layers"):
        module = model
        for part in path.split("."):
            module = getattr(module, part, None)
        if module is not None:
            return module
    sys.exit(f"{type(model).__name__}: no list of decoder blocks found")


def require_packages(directory):
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        packed = "quantization_config" in json.load(file)
    needed = ["torch", "transformers"] + ["accelerate"] * packed
    missing = [name for name in needed if not importlib.util.find_spec(name)]
    if missing:
        why = " (accelerate for quantized checkpoints, such as BitNet's)" if "accelerate" in missing else ""
        sys.exit(f"{directory}: missing Python packages: {', '.join(missing)}{why}; or give --reference")


def run_transformers(directory, ids, dtype):
    """Input of block 0 and the output of each block [blocks + 1, tokens, hidden], and the logits, as float32."""
    require_packages(directory)
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, attn_implementation="eager").eval()
    hidden = []

    def keep(x):
        hidden.append((x[0] if isinstance(x, tuple) else x).detach().float().reshape(len(ids), -1).numpy().copy())

    def before(module, args, kwargs):
        keep(args[0] if args else kwargs["hidden_states"])

    blocks = blocks_of(model)
    hooks = [blocks[0].register_forward_pre_hook(before, with_kwargs=True)]
    hooks += [b.register_forward_hook(lambda module, args, out: keep(out)) for b in blocks]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float().numpy()
    for hook in hooks:
        hook.remove()
    return np.stack(hidden), logits


def tokens_of(directory, text):
    require_packages(directory)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(directory)(text)["input_ids"]


def make_reference(directory, ids):
    import torch

    hidden, logits = run_transformers(directory, ids, torch.float32)
    half, _ = run_transformers(directory, ids, torch.bfloat16)
    return {"input_ids": np.array(ids, "<i8"), "hidden": hidden.astype("<f4"), "logits": logits.astype("<f4"),
            "layer0_bf16": half[1].astype("<f4")}


def run_setun(exe, model, ids):
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "setun.safetensors")
        command = [exe, "logits", model, "--ids", ",".join(map(str, ids)), "--precise", "--layers", "-o", out]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr.strip() or f"{exe} failed with {done.returncode}")
        return load(out)


def compare(reference, got):
    """Prints each difference with its bound; true when all are within."""
    ok = True

    def row(name, value, bound):
        nonlocal ok
        ok = ok and value <= bound
        print(f"{'ok  ' if value <= bound else 'FAIL'} {name:48s} {value:.3e} (at most {bound:.3e})")

    for name in ("hidden", "logits"):
        want = reference[name]
        if want.shape != got[name].shape:
            sys.exit(f"{name}: expected the shape {list(want.shape)}, found {list(got[name].shape)}")
        row(f"{name}, largest difference in float32", np.abs(want - got[name]).max(), 1e-4 * max(1, np.abs(want).max()))
    each = np.abs(reference["hidden"] - got["hidden"]).max((1, 2))
    print("     by block: " + " ".join(f"{x:.1e}" for x in each))
    if "layer0_bf16" in reference:
        half = reference["layer0_bf16"]
        own = np.abs(half - reference["hidden"][1]).mean()
        row("block 0, mean difference from bfloat16", np.abs(half - got["hidden"][1]).mean(), 1.2 * own)
        print(f"     transformers' own, bfloat16 against float32: mean {own:.3e}")
    same = (reference["logits"].argmax(-1) == got["logits"].argmax(-1)).mean()
    row("positions with another likeliest token, share", 1 - same, 0)
    return ok


def main():
    p = argparse.ArgumentParser(description="Compares Setun with transformers on a checkpoint.")
    p.add_argument("directory")
    p.add_argument("--text", default=TEXT)
    p.add_argument("--ids", type=lambda s: [int(x) for x in s.split(",")])
    p.add_argument("--model")
    p.add_argument("--setun", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "setun"))
    p.add_argument("--save")
    p.add_argument("--reference")
    o = p.parse_args()
    if o.reference:
        reference = load(o.reference)
    else:
        reference = make_reference(o.directory, o.ids or tokens_of(o.directory, o.text))
    if o.save:
        save(o.save, reference)
    print(f"{len(reference['input_ids'])} tokens, {len(reference['hidden']) - 1} blocks")
    return not compare(reference, run_setun(o.setun, o.model or o.directory, reference["input_ids"].tolist()))


if __name__ == "__main__":
    sys.exit(main())
