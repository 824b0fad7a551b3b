#!/usr/bin/env python3
"""Makes the reference of a new family: a tiny checkpoint with random weights of a class of transformers, and what that class
computes with it, as the folders of tests/golden/hf have them.

usage: make_family_reference.py MODEL_TYPE FOLDER [--code FILE] [--set KEY=JSON]... [--seed N] [--tokens N] [--greedy N]

  MODEL_TYPE        of config.json, as transformers knows it: qwen3, olmo2, ...
  FOLDER            where it goes, such as tests/golden/hf/olmo2: new or empty
  --code FILE       Python that is run first and registers the class where transformers has none of it: the modelling code
                    that a checkpoint is published with, and AutoConfig.register and AutoModelForCausalLM.register
  --set KEY=JSON    a field of the configuration in addition to the tiny sizes below: --set tie_word_embeddings=true,
                    --set sliding_window=8; choose them so that every part of the family is at work
  --seed N          of the weights and the ids (default 1)
  --tokens N        that are evaluated (default 40: more than any window)
  --greedy N        that are then generated (default 48)

Weights are large, norms are far from 1 and biases far from 0, so that a part that is left out shows. The folder gets
config.json, model.safetensors, a tokenizer of 320 tokens, golden.json and golden.safetensors:

  input_ids I64 [tokens], greedy I64 [greedy]: the ids that are evaluated, and the likeliest that follow one after the other
  hidden F32 [blocks + 1, tokens, hidden]: the input of block 0 and the output of each block
  logits F32 [tokens, vocabulary]; layer0_bf16 F32 [tokens, hidden]: block 0's output when computed in bfloat16

Needs numpy, torch and transformers. Then parity.py --reference FOLDER/golden.safetensors FOLDER says where the first difference
is; tests/model/families.c compares whatever lies in tests/golden/hf.
"""
import argparse
import json
import os
import runpy
import shutil
import sys

import numpy as np

import parity

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENIZER = os.path.join(HERE, "..", "tests", "golden", "hf", "llama3")
LEAST_MARGIN = 1e-3  # between the likeliest token and the next: below it the last bits of floats choose
SIZES = {"vocab_size": 320, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2,
         "pad_token_id": 0, "num_experts": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96,
         "shared_expert_intermediate_size": 96}


def configuration(model_type, settings):
    """The class's configuration, tiny in every size for which it has a field."""
    from transformers import AutoConfig

    known = AutoConfig.for_model(model_type)
    lost = [key for key in settings if not hasattr(known, key)]
    if lost:
        sys.exit(f"{model_type}: {type(known).__name__} has no field {', '.join(lost)}")
    sizes = {key: value for key, value in SIZES.items() if hasattr(known, key)}
    return AutoConfig.for_model(model_type, **{**sizes, **settings})


def randomize(model, seed):
    """Replaces all weights: matrices with variance 2 / columns, norms around 1, biases and other vectors around 0."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() > 1:
                p.copy_(noise * (2 / p.shape[-1]) ** 0.5)
            else:
                p.copy_(noise * 0.3 + (1 if "norm" in name and name.endswith("weight") else 0))


def generate(model, ids, count):
    """The likeliest ids that follow, and the smallest difference between the largest logit and the second."""
    import torch

    text, margin = list(ids), float("inf")
    with torch.no_grad():
        for _ in range(count):
            logits = model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1].float()
            best = logits.topk(2)
            margin = min(margin, float(best.values[0] - best.values[1]))
            text.append(int(best.indices[0]))
    return text[len(ids):], margin


def make(o):
    import torch
    import transformers

    if o.code:
        runpy.run_path(o.code)
    config = configuration(o.model_type, {key: json.loads(value) for key, value in (s.split("=", 1) for s in o.set)})
    torch.manual_seed(o.seed)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    randomize(model, o.seed)
    text = config.get_text_config()
    ids = [1] + np.random.default_rng(o.seed).integers(3, text.vocab_size, o.tokens - 1).tolist()
    greedy, margin = generate(model, ids, o.greedy)
    if margin < LEAST_MARGIN:
        sys.exit(f"two tokens are almost equally likely (difference {margin:.1e}, at least {LEAST_MARGIN:.0e} is needed): "
                 f"take another --seed")
    os.makedirs(o.folder, exist_ok=True)
    if os.listdir(o.folder):
        sys.exit(f"{o.folder}: expected an empty folder")
    model.save_pretrained(o.folder)
    os.chmod(os.path.join(o.folder, "model.safetensors"), 0o644)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(TOKENIZER, name), o.folder)
    reference = parity.make_reference(o.folder, ids)
    reference["greedy"] = np.array(greedy, "<i8")
    parity.save(os.path.join(o.folder, "golden.safetensors"), reference)
    own = np.abs(reference["layer0_bf16"] - reference["hidden"][1])
    facts = {"seed": o.seed, "transformers": transformers.__version__, "torch": torch.__version__, "smallest_greedy_margin": margin,
             "bf16_own_error": {"max": float(own.max()), "mean": float(own.mean())}}
    with open(os.path.join(o.folder, "golden.json"), "w", encoding="utf-8") as file:
        json.dump(facts, file, indent=1)
    print(f"{o.folder}: {type(model).__name__}, {sum(p.numel() for p in model.parameters())} weights, "
          f"{len(ids)} tokens and {len(greedy)} after them")


def main():
    p = argparse.ArgumentParser(description="Makes a tiny checkpoint of a family, and what transformers computes with it.")
    p.add_argument("model_type", metavar="MODEL_TYPE")
    p.add_argument("folder", metavar="FOLDER")
    p.add_argument("--code", metavar="FILE")
    p.add_argument("--set", action="append", default=[], metavar="KEY=JSON")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--tokens", type=int, default=40)
    p.add_argument("--greedy", type=int, default=48)
    make(p.parse_args())


if __name__ == "__main__":
    main()
