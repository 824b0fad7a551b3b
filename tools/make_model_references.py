#!/usr/bin/env python3
"""Makes tests/golden/numpy: tiny checkpoints of Mistral, MiniCPM, OLMo 3 and Maple and LoRA adapters, with what they compute, and what
golden models compute with hyperparameters that their files do not have (facts.safetensors).

usage: make_model_references.py        (from anywhere; needs numpy)

The reference is the Llama-like block of this file, in float64 and written from the papers and the models' published code,
with Mistral's window, Maple's experts, MiniCPM's factors and LongRoPE, BitNet's int8 activations, and gpt-oss's sinks and experts. It is first
held against tests/golden/hf (llama3, bitnet-auto, gpt-oss and olmo2), which the official implementation made. For adapters it computes with merged
weights W + scale * alpha / r * B A, where Setun leaves W as it is; BitNet's W is ternary, so there the two are added as
outputs. Everything is seeded: a second run gives the same files.
"""
import json
import os
import shutil
import struct

import numpy as np

from parity import load, save

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "tests", "golden")
OUT = os.path.join(GOLDEN, "numpy")


# ---- the reference ---------------------------------------------------------------------------------------------------


class Model:
    def __init__(self, config, weights, adapters=(), context=None):
        self.c, self.w, self.adapters = config, weights, adapters
        self.head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        self.context = context or config["max_position_embeddings"]
        self.bitnet = config.get("quantization_config", {}).get("quant_method") == "bitnet"
        self.scale_emb = config.get("scale_emb", 1)
        self.residual = config["scale_depth"] / np.sqrt(config["num_hidden_layers"]) if "scale_depth" in config else 1
        self.logit_divisor = config["hidden_size"] / config["dim_model_base"] if "dim_model_base" in config else 1

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.c["rms_norm_eps"]) * self.w[name + ".weight"]

    def linear(self, x, name):
        """x times a matrix, ternary or of floats, with the adapters that it has."""
        w, module_input = self.w[name + ".weight"], x
        if name + ".rms_norm.weight" in self.w:  # BitNet's use_rms_norm
            x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.c["quantization_config"]["rms_norm_eps"]) * self.w[name + ".rms_norm.weight"]
        if w.dtype == np.uint8:  # four quarters of the rows in a byte, int8 activations
            trits = np.concatenate([(w >> (2 * i)) & 3 for i in range(4)]).astype(np.int64) - 1
            x32 = x.astype(np.float32)
            s = np.float32(127) / np.maximum(np.abs(x32).max(-1, keepdims=True), np.float32(1e-5))
            codes = np.clip(np.rint(x32 * s), -128, 127).astype(np.int64)
            y = (codes @ trits.T) / s.astype(np.float64) * np.float64(self.w[name + ".weight_scale"][0])
        else:
            y = x @ w.astype(np.float64).T
        y = y + self.w.get(name + ".bias", 0)
        for a, b, scale in (f[name] for f in self.adapters if name in f):
            y = y + scale * (module_input @ a.astype(np.float64).T) @ b.astype(np.float64).T
        return y

    def frequencies(self):
        c, d = self.c, self.head_dim
        r = c.get("rope_parameters") or c.get("rope_scaling") or {}
        f = 1 / (r.get("rope_theta") or c.get("rope_theta", 10000.0)) ** (np.arange(0, d, 2) / d)
        kind, scale = r.get("rope_type", r.get("type", "default")), 1.0
        if kind == "llama3":
            wave, old = 2 * np.pi / f, r["original_max_position_embeddings"]
            smooth = (old / wave - r["low_freq_factor"]) / (r["high_freq_factor"] - r["low_freq_factor"])
            mixed = (1 - smooth) * f / r["factor"] + smooth * f
            f = np.where(wave < old / r["high_freq_factor"], f, np.where(wave > old / r["low_freq_factor"], f / r["factor"], mixed))
        elif kind == "longrope":
            old = r["original_max_position_embeddings"]
            f = f / np.array(r["long_factor"] if self.context > old else r["short_factor"])
            scale = np.sqrt(1 + np.log(c["max_position_embeddings"] / old) / np.log(old))
        elif kind == "yarn":
            f, scale = self.yarn(f, r)
        else:
            assert kind == "default"
        return f, scale

    def yarn(self, f, r):
        """YaRN, sections 3.2 and 3.4; ext_factor (llama.cpp's): how much of the fast pairs' own frequencies is kept."""
        d, base, old = self.head_dim, r.get("rope_theta") or self.c["rope_theta"], r["original_max_position_embeddings"]
        pair = lambda turns: d * np.log(old / (turns * 2 * np.pi)) / (2 * np.log(base))
        low, high = pair(r.get("beta_fast", 32)), pair(r.get("beta_slow", 1))
        if r.get("truncate", True):
            low, high = np.floor(low), np.ceil(high)
        low, high, ext = max(low, 0), min(high, d - 1), r.get("ext_factor", 1)
        kept = ext * (1 - np.clip((np.arange(d // 2) - low) / max(high - low, 0.001), 0, 1))
        return f / r["factor"] * (1 - kept) + f * kept, 0.1 * np.log(r["factor"]) + 1 if ext else 1.0

    def rope(self, x, layer):
        f, scale = self.frequencies()
        if self.c["model_type"] == "maple":  # half of each head, in layers with a window
            if not self.window(layer):
                return x
            d = int(self.head_dim * self.c["partial_rotary_factor"])
            f, rest = 1 / self.c["rope_theta"] ** (np.arange(0, d, 2) / d), x[..., d:]
            x = x[..., :d]
        if self.c["model_type"] == "olmo3" and self.window(layer):  # the scaling is of full layers only
            f, scale = 1 / self.c["rope_theta"] ** (np.arange(0, self.head_dim, 2) / self.head_dim), 1.0
        angle = np.arange(x.shape[0])[:, None] * f
        cos, sin = np.cos(angle)[:, None] * scale, np.sin(angle)[:, None] * scale
        a, b = np.split(x, 2, -1)
        turned = [a * cos - b * sin, b * cos + a * sin]
        return np.concatenate(turned + ([rest] if self.c["model_type"] == "maple" else []), -1)

    def window(self, layer):
        types = self.c.get("layer_types")
        return self.c.get("sliding_window") if not types or types[layer] == "sliding_attention" else None

    def attention(self, x, p):
        c, d, n, layer = self.c, self.head_dim, x.shape[0], int(p.split(".")[2])
        olmo = c["model_type"] in ("olmo2", "olmo3")  # no norm before a branch, norms of q and k over the full width
        h = x if olmo else self.norm(x, p + "input_layernorm")
        heads, kv = c["num_attention_heads"], c.get("num_key_value_heads") or c["num_attention_heads"]
        most = c.get("clip_qkv") or np.inf
        q, k, v = (self.linear(h, p + f"self_attn.{m}_proj") for m in "qkv")
        q, k = self.olmo_norm(q, p, "self_attn.q_norm"), self.olmo_norm(k, p, "self_attn.k_norm")
        q, k, v = (np.clip(x, -most, most).reshape(n, -1, d) for x in (q, k, v))
        if c["model_type"] == "maple":
            q, k = self.norm(q, p + "self_attn.q_norm"), self.norm(k, p + "self_attn.k_norm")
        q, k, v = self.rope(q, layer), self.rope(k, layer).repeat(heads // kv, 1), v.repeat(heads // kv, 1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(d)
        distance = np.arange(n)[:, None] - np.arange(n)
        visible = (distance >= 0) & (distance < (self.window(layer) or n + 1))
        scores = np.where(visible, scores, -np.inf)
        sinks = self.w.get(p + "self_attn.sinks", np.full(heads, -np.inf)).astype(np.float64)[:, None, None]
        most = np.maximum(scores.max(-1, keepdims=True), sinks)
        e = np.exp(scores - most)
        o = np.einsum("hqk,khd->qhd", e / (e.sum(-1, keepdims=True) + np.exp(sinks - most)), v).reshape(n, heads * d)
        if self.bitnet:
            o = self.norm(o, p + "self_attn.attn_sub_norm")
        return self.linear(o, p + "self_attn.o_proj")

    def mlp(self, x, p):
        h = x if self.c["model_type"] in ("olmo2", "olmo3") else self.norm(x, p + "post_attention_layernorm")
        if p + "mlp.router.weight" in self.w:
            return self.gpt_oss_experts(h, p + "mlp.")
        if p + "mlp.gate.weight" in self.w:
            return self.maple_experts(h, p + "mlp.")
        gate, up = self.linear(h, p + "mlp.gate_proj"), self.linear(h, p + "mlp.up_proj")
        h = (np.maximum(gate, 0) ** 2 if self.c["hidden_act"] == "relu2" else gate / (1 + np.exp(-gate))) * up
        if self.bitnet:
            h = self.norm(h, p + "mlp.ffn_sub_norm")
        return self.linear(h, p + "mlp.down_proj")

    def gpt_oss_experts(self, h, p):
        """A softmax over the chosen experts' logits; gates in even rows, the others in odd ones; both clamped."""
        logits, y = self.linear(h, p + "router"), np.zeros_like(h)
        for t, chosen in enumerate(np.argsort(-logits, kind="stable")[:, : self.c["num_experts_per_tok"]]):
            share = np.exp(logits[t, chosen] - logits[t, chosen].max())
            for e, weight in zip(chosen, share / share.sum()):
                z = mxfp4(self.w, p + "experts.gate_up_proj", e) @ h[t] + self.w[p + "experts.gate_up_proj_bias"][e]
                gate, up = np.minimum(z[::2], 7), np.clip(z[1::2], -7, 7)
                z = (up + 1) * gate / (1 + np.exp(-1.702 * gate))
                y[t] += weight * (mxfp4(self.w, p + "experts.down_proj", e) @ z + self.w[p + "experts.down_proj_bias"][e])
        return y

    def maple_experts(self, h, p):
        """Shares of a softmax over all experts, divided by their sum; gate and up are clamped."""
        logits, y = self.linear(h, p + "gate"), np.zeros_like(h)
        for t, chosen in enumerate(np.argsort(-logits, kind="stable")[:, : self.c["num_experts_per_tok"]]):
            share = np.exp(logits[t, chosen] - logits[t].max())
            for e, weight in zip(chosen, share / share.sum()):
                gate, up = (self.linear(h[t], f"{p}experts.{e}.{m}_proj") for m in ("gate", "up"))
                gate, up = np.minimum(gate, 7), np.clip(up, -7, 7)
                y[t] += weight * self.linear(up * gate / (1 + np.exp(-gate)), f"{p}experts.{e}.down_proj")
        return y

    def olmo_norm(self, x, p, name):
        """OLMo 2 and 3 do not normalize the inputs of attention and feed-forward parts; norms of these names are elsewhere."""
        return self.norm(x, p + name) if self.c["model_type"] in ("olmo2", "olmo3") else x

    def run(self, ids):
        """Hidden states [layers + 1, n, hidden] and logits [n, vocabulary]."""
        x = self.w["model.word_embeddings.weight" if self.c["model_type"] == "maple" else "model.embed_tokens.weight"][ids].astype(np.float64) * self.scale_emb
        hidden = [x]
        for i in range(self.c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            x = x + self.olmo_norm(self.attention(x, p), p, "post_attention_layernorm") * self.residual
            x = x + self.olmo_norm(self.mlp(x, p), p, "post_feedforward_layernorm") * self.residual
            hidden.append(x)
        head = "model.embed_tokens" if self.c.get("tie_word_embeddings") else "lm_head"
        return np.stack(hidden), self.linear(self.norm(x, "model.norm"), head) / self.logit_divisor


def mxfp4(weights, name, expert):
    """An expert's matrix: 16 bytes of 32 weights, the lower half first, times a power of two."""
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float64)
    values = np.concatenate([values, -values])
    blocks, scales = weights[name + "_blocks"][expert], weights[name + "_scales"][expert].astype(np.float64)
    w = np.stack([values[blocks & 15], values[blocks >> 4]], -1).reshape(*blocks.shape[:2], 32)
    return (w * 2 ** (scales - 127)[..., None]).reshape(blocks.shape[0], -1)


def check_against_official(name, bound):
    d = os.path.join(GOLDEN, "hf", name)
    with open(os.path.join(d, "config.json")) as f:
        config = json.load(f)
    golden = load(os.path.join(d, "golden.safetensors"))
    _, logits = Model(config, load(os.path.join(d, "model.safetensors"))).run(golden["input_ids"])
    error = np.abs(logits - golden["logits"]).max()
    print(f"{name}: logits within {error:.1e} of the official implementation's")
    assert error < bound


# ---- checkpoints -----------------------------------------------------------------------------------------------------

SHAPE = dict(hidden_size=36, intermediate_size=56, num_hidden_layers=3, num_attention_heads=3, vocab_size=320, hidden_act="silu")


def random_weights(rng, config, dtype):
    """Weights large enough that attention and activations are far from flat."""
    h, ff, d = config["hidden_size"], config["intermediate_size"], config["hidden_size"] // config["num_attention_heads"]
    kv = config["num_key_value_heads"] * d
    shapes = {"model.embed_tokens": (config["vocab_size"], h)}
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        shapes.update({p + "input_layernorm": (h,), p + "post_attention_layernorm": (h,)})
        shapes.update({p + "self_attn.q_proj": (h, h), p + "self_attn.k_proj": (kv, h), p + "self_attn.v_proj": (kv, h)})
        shapes.update({p + "self_attn.o_proj": (h, h), p + "mlp.gate_proj": (ff, h), p + "mlp.up_proj": (ff, h)})
        shapes.update({p + "mlp.down_proj": (h, ff)})
    shapes["model.norm"] = (h,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head"] = (config["vocab_size"], h)
    weights = {}
    for name, shape in shapes.items():
        a = 1 + 0.2 * rng.standard_normal(shape) if len(shape) == 1 else 1.5 * rng.standard_normal(shape) / np.sqrt(shape[1])
        weights[name + ".weight"] = a.astype(dtype)
    return weights


def greedy(model, ids, steps):
    ids = list(ids)
    for _ in range(steps):
        ids.append(int(model.run(np.array(ids))[1][-1].argmax()))
    return np.array(ids[-steps:], "<i8")


def write_checkpoint(name, config, weights, tokens, short_context=None):
    d = os.path.join(OUT, name)
    os.makedirs(d, exist_ok=True)
    with open(os.path.join(d, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")
    save(os.path.join(d, "model.safetensors"), weights)
    shutil.copy(os.path.join(GOLDEN, "hf", "llama3", "tokenizer.json"), d)
    ids = np.random.default_rng(5).integers(3, config["vocab_size"], tokens).astype("<i8")
    model = Model(config, weights)
    hidden, logits = model.run(ids)
    golden = {"input_ids": ids, "hidden": hidden.astype("<f4"), "logits": logits.astype("<f4"), "greedy": greedy(model, ids, 16)}
    if short_context:
        golden["logits_short"] = Model(config, weights, context=short_context).run(ids)[1].astype("<f4")
    save(os.path.join(d, "golden.safetensors"), golden)


def maple():
    """Weights so large that values are often clamped."""
    config = dict(model_type="maple", hidden_size=36, intermediate_size=56, moe_intermediate_size=20, num_hidden_layers=4,
                  num_attention_heads=3, num_key_value_heads=1, head_dim=12, vocab_size=320, hidden_act="silu", num_experts=6,
                  num_experts_per_tok=2, num_shared_experts=0, norm_topk_prob=True, nope_on_global_attention=True, use_qk_norm=True,
                  use_bias=False, partial_rotary_factor=0.5, max_position_embeddings=128, rms_norm_eps=1e-6, rope_theta=10000.0,
                  sliding_window=7, layer_types=["sliding_attention"] * 3 + ["full_attention"], tie_word_embeddings=False,
                  bos_token_id=1, eos_token_id=2)
    rng, h, ff = np.random.default_rng(27), config["hidden_size"], config["moe_intermediate_size"]
    weights = random_weights(rng, config, "<f4")
    weights["model.word_embeddings.weight"] = weights.pop("model.embed_tokens.weight")
    draw = lambda rows, columns, size=1: (size * rng.standard_normal((rows, columns)) / np.sqrt(columns)).astype("<f4")
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        for name in ("gate", "up", "down"):
            del weights[p + f"mlp.{name}_proj.weight"]
        for name in ("self_attn.q_norm", "self_attn.k_norm"):
            weights[p + name + ".weight"] = (1 + 0.2 * rng.standard_normal(config["head_dim"])).astype("<f4")
        weights[p + "mlp.gate.weight"] = draw(config["num_experts"], h)
        for e in range(config["num_experts"]):
            weights.update({f"{p}mlp.experts.{e}.{m}_proj.weight": draw(*((h, ff, 0.2) if m == "down" else (ff, h, 5))) for m in ("gate", "up", "down")})
    write_checkpoint("maple", config, weights, 25)


def checkpoints():
    mistral = dict(model_type="mistral", num_key_value_heads=1, max_position_embeddings=128, rms_norm_eps=1e-5,
                   rope_theta=10000.0, sliding_window=7, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, **SHAPE)
    write_checkpoint("mistral", mistral, random_weights(np.random.default_rng(1), mistral, "<f4"), 25)
    factors = np.random.default_rng(2).uniform(1, 4, (2, 6)).round(3).tolist()
    minicpm = dict(model_type="minicpm", num_key_value_heads=3, max_position_embeddings=64, rms_norm_eps=1e-5, scale_emb=12,
                   scale_depth=1.4, dim_model_base=9, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
                   rope_scaling=dict(rope_type="longrope", short_factor=sorted(factors[0]), long_factor=sorted(factors[1]),
                                     original_max_position_embeddings=32), **SHAPE)
    write_checkpoint("minicpm", minicpm, random_weights(np.random.default_rng(3), minicpm, "<f2"), 25, short_context=32)
    olmo3 = dict(model_type="olmo3", num_key_value_heads=3, max_position_embeddings=128, rms_norm_eps=1e-6, rope_theta=500000.0,
                 rope_scaling=dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=16, beta_fast=32.0, beta_slow=1.0),
                 sliding_window=7, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
                 layer_types=["sliding_attention", "full_attention", "sliding_attention"], **SHAPE)
    rng = np.random.default_rng(6)
    weights, h = random_weights(rng, olmo3, "<f4"), SHAPE["hidden_size"]
    for i in range(SHAPE["num_hidden_layers"]):
        del weights[f"model.layers.{i}.input_layernorm.weight"]
        for name in ("self_attn.q_norm", "self_attn.k_norm", "post_feedforward_layernorm"):
            weights[f"model.layers.{i}.{name}.weight"] = (1 + 0.2 * rng.standard_normal(h)).astype("<f4")
    write_checkpoint("olmo3", olmo3, weights, 25)
    maple()
    with open(os.path.join(GOLDEN, "hf", "bitnet-auto", "config.json")) as f:
        bitnet = json.load(f)
    bitnet["quantization_config"].update(use_rms_norm=True, rms_norm_eps=1e-3)
    weights, rng = load(os.path.join(GOLDEN, "hf", "bitnet-auto", "model.safetensors")), np.random.default_rng(4)
    for name in [n for n, w in weights.items() if w.dtype == np.uint8]:
        weights[name.replace(".weight", ".rms_norm.weight")] = rng.uniform(0.5, 1.5, weights[name].shape[1]).astype("<f4")
    write_checkpoint("bitnet-norms", bitnet, weights, 20)


# ---- facts -----------------------------------------------------------------------------------------------------------


def facts():
    """Golden models with hyperparameters that their files do not have; the last positions' logits."""
    out, last = {}, 12
    every_third = ["full_attention" if (i + 1) % 3 == 0 else "sliding_attention" for i in range(4)]
    yarn = dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=16)
    cases = [("hf/gpt-oss", "period_3", dict(layer_types=every_third), {})]
    cases += [("hf/gpt-oss", f"ext_{ext}", {}, dict(ext_factor=ext)) for ext in (0.5, 0)]
    cases += [("numpy/mistral", f"ext_{ext}", dict(sliding_window=None), dict(yarn, ext_factor=ext)) for ext in (1, 0.5, 0)]
    cases += [("hf/llama3", "clamp_kqv", dict(clip_qkv=0.25), {})]
    for model, case, changes, rope in cases:
        with open(os.path.join(GOLDEN, model, "config.json")) as f:
            config = dict(json.load(f), **changes)
        if rope:
            config["rope_scaling"] = dict(config.get("rope_scaling") or {}, **rope)
        name, d = os.path.basename(model), os.path.join(GOLDEN, model)
        ids = np.random.default_rng(11).integers(3, config["vocab_size"], 40).astype("<i8")
        weights = load(os.path.join(d, "model.safetensors"))
        out["input_ids"] = ids
        out[f"{name}.{case}"] = Model(config, weights).run(ids)[1][-last:].astype("<f4")
    save(os.path.join(OUT, "facts.safetensors"), out)


# ---- adapters --------------------------------------------------------------------------------------------------------


def make_adapter(rng, config, modules, rank):
    h, ff, v = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    d = config.get("head_dim") or h // config["num_attention_heads"]
    q, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    shapes = dict(q_proj=(q, h), k_proj=(kv, h), v_proj=(kv, h), o_proj=(h, q), gate_proj=(ff, h), up_proj=(ff, h),
                  down_proj=(h, ff), lm_head=(v, h))
    factors = {}
    for module in modules:
        rows, columns = shapes[module]
        part = "" if module == "lm_head" else "mlp." if module.split("_")[0] in ("gate", "up", "down") else "self_attn."
        names = ["lm_head"] if module == "lm_head" else [f"model.layers.{i}.{part}{module}" for i in range(config["num_hidden_layers"])]
        for name in names:
            factors[name] = (rng.standard_normal((rank, columns)).astype("<f4") / np.float32(np.sqrt(columns)),
                             rng.standard_normal((rows, rank)).astype("<f4") * np.float32(0.3))
    return factors


def write_peft(name, factors, rank, alpha, rslora=False):
    d = os.path.join(OUT, name)
    os.makedirs(d, exist_ok=True)
    with open(os.path.join(d, "adapter_config.json"), "w") as f:
        json.dump(dict(peft_type="LORA", task_type="CAUSAL_LM", r=rank, lora_alpha=alpha, use_rslora=rslora, bias="none",
                       target_modules=sorted({n.split(".")[-1] for n in factors}), base_model_name_or_path="tiny",
                       fan_in_fan_out=False, modules_to_save=None, rank_pattern={}, alpha_pattern={}), f, indent=1)
        f.write("\n")
    save(os.path.join(d, "adapter_model.safetensors"),
         {f"base_model.model.{n}.lora_{k}.weight": ab[i] for n, ab in factors.items() for i, k in enumerate("AB")})


def interleave(b, head_dim):
    """Rows of q or k, reordered from halves to pairs, as GGUF files of Llama store them."""
    return b.reshape(-1, 2, head_dim // 2, b.shape[1]).swapaxes(1, 2).reshape(b.shape)


def write_gguf(name, factors, alpha, head_dim):
    gguf_names = dict(q_proj="attn_q", k_proj="attn_k", v_proj="attn_v", o_proj="attn_output", gate_proj="ffn_gate",
                      up_proj="ffn_up", down_proj="ffn_down")
    text = lambda s: struct.pack("<Q", len(s)) + s.encode()
    keys = [(k, 8, text(v)) for k, v in (("general.architecture", "llama"), ("general.type", "adapter"), ("adapter.type", "lora"))]
    keys.append(("adapter.lora.alpha", 6, struct.pack("<f", alpha)))
    tensors = []
    for module, (a, b) in factors.items():
        layer, kind = module.split(".")[2], module.split(".")[-1]
        base = f"blk.{layer}.{gguf_names[kind]}.weight.lora_"
        tensors += [(base + "a", a), (base + "b", interleave(b, head_dim) if kind in ("q_proj", "k_proj") else b)]
    out, at = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)), 0
    for k, kind, value in keys:
        out += text(k) + struct.pack("<I", kind) + value
    for n, a in tensors:
        out += text(n) + struct.pack("<IQQIQ", 2, a.shape[1], a.shape[0], 0, at)
        at += (a.nbytes + 31) // 32 * 32
    out += bytes(-len(out) % 32)
    for _, a in tensors:
        out += a.astype("<f4").tobytes() + bytes(-a.nbytes % 32)
    with open(os.path.join(OUT, name), "wb") as f:
        f.write(out)


def adapters():
    rng, out = np.random.default_rng(7), {}
    for base in ("llama3", "bitnet-auto"):
        d = os.path.join(GOLDEN, "hf", base)
        with open(os.path.join(d, "config.json")) as f:
            config = json.load(f)
        weights = load(os.path.join(d, "model.safetensors"))
        ids = rng.integers(3, config["vocab_size"], 12).astype("<i8")
        everything = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        first = make_adapter(rng, config, everything if base == "llama3" else ["q_proj", "down_proj"], 3)
        second = make_adapter(rng, config, ["q_proj", "lm_head"], 2)
        if base == "llama3":
            write_peft("adapter-first", first, 3, 6)
            write_peft("adapter-second", second, 2, 4, rslora=True)
            write_gguf("adapter-first.gguf", first, 6, config["head_dim"])
        else:
            write_peft("adapter-bitnet", first, 3, 6)
        scaled = [{n: (a, b, 0.75 * 6 / 3) for n, (a, b) in first.items()},
                  {n: (a, b, -0.5 * 4 / np.sqrt(2)) for n, (a, b) in second.items()}]
        out[base + ".input_ids"] = ids
        out[base + ".logits_first"] = Model(config, weights, scaled[:1]).run(ids)[1].astype("<f4")
        if base == "llama3":
            merged = {n: w.astype(np.float64) for n, w in weights.items()}
            for f in scaled:
                for n, (a, b, scale) in f.items():
                    merged[n + ".weight"] = merged[n + ".weight"] + scale * b.astype(np.float64) @ a.astype(np.float64)
            logits = Model(config, merged).run(ids)[1]
            assert np.abs(logits - Model(config, weights, scaled).run(ids)[1]).max() < 1e-9
            out[base + ".logits_both"] = logits.astype("<f4")
    save(os.path.join(OUT, "adapters.safetensors"), out)


if __name__ == "__main__":
    check_against_official("llama3", 1e-4)
    check_against_official("bitnet-auto", 0.06)
    check_against_official("gpt-oss", 1e-4)
    check_against_official("olmo2", 1e-4)
    os.makedirs(OUT, exist_ok=True)
    checkpoints()
    facts()
    adapters()
