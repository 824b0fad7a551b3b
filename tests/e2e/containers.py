"""GGUF files of golden directories, for families that golden/gguf has none of. Written from the published converters'
rules (names, keys, the order of rows) and not by the code under test; Python's standard library only."""
import json
import math
import os
import struct

import gguf

GLOBAL = {"model.embed_tokens": "token_embd", "model.word_embeddings": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "self_attn.attn_sub_norm": "attn_sub_norm",
         "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "mlp.ffn_sub_norm": "ffn_sub_norm", "mlp.gate": "ffn_gate_inp"}


OLMO = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}


def name_of(name, olmo=False):
    """The GGUF name of a module, and the number of its expert; None: no expert's."""
    if name in GLOBAL:
        return GLOBAL[name], None
    layer, rest = name[len("model.layers."):].split(".", 1)
    if not rest.startswith("mlp.experts."):
        return f"blk.{layer}.{OLMO[rest] if olmo and rest in OLMO else LAYER[rest]}", None
    expert, rest = rest[len("mlp.experts."):].split(".", 1)
    return f"blk.{layer}.{LAYER['mlp.' + rest]}_exps", int(expert)


def f32(kind, content):
    """Bytes of F32, F16 or BF16 as those of F32."""
    if kind == "F32":
        return content
    if kind == "BF16":
        return b"".join(b"\0\0" + content[i:i + 2] for i in range(0, len(content), 2))
    n = len(content) // 2
    return struct.pack(f"<{n}f", *struct.unpack(f"<{n}e", content))


def pairs_of_rows(content, rows, heads):
    """Rows of q or k from halves (i, i + d/2) to neighbours (2i, 2i + 1), as RoPE takes them in files of Llama's kind."""
    size, half = len(content) // rows, rows // heads // 2
    order = [head * 2 * half + i + part * half for head in range(heads) for i in range(half) for part in (0, 1)]
    return b"".join(content[row * size:(row + 1) * size] for row in order)


def trits(packed, rows, columns):
    """Hugging Face's bytes, each of four rows, as GGUF's t2, each byte of four columns."""
    quarter, out = rows // 4, bytearray()
    for row in range(rows):
        begin, shift = row % quarter * columns, row // quarter * 2
        codes = [packed[begin + c] >> shift & 3 for c in range(columns)]
        out += bytes(codes[c] | codes[c + 1] << 2 | codes[c + 2] << 4 | codes[c + 3] << 6 for c in range(0, columns, 4))
    return bytes(out)


def keys_of(config, architecture):
    layers, width = config["num_hidden_layers"], config["hidden_size"]
    head = config.get("head_dim") or width // config["num_attention_heads"]
    theta = (config.get("rope_parameters") or config).get("rope_theta", 10000.0)
    keys = {"block_count": layers, "context_length": config["max_position_embeddings"], "embedding_length": width,
            "feed_forward_length": config["intermediate_size"], "attention.head_count": config["num_attention_heads"],
            "attention.head_count_kv": config["num_key_value_heads"], "attention.key_length": head,
            "attention.value_length": head, "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
            "rope.freq_base": float(theta)}
    if config["model_type"] == "mistral":
        keys["attention.sliding_window"] = config["sliding_window"]
    if config["model_type"] == "olmo3":
        scaling = config["rope_scaling"]
        keys.update({"attention.sliding_window": config["sliding_window"], "rope.scaling.type": "yarn",
                     "attention.sliding_window_pattern": [t == "sliding_attention" for t in config["layer_types"]],
                     "rope.scaling.factor": scaling["factor"],
                     "rope.scaling.original_context_length": scaling["original_max_position_embeddings"]})
    if config["model_type"] == "maple":
        keys.update({"attention.sliding_window": config["sliding_window"],
                     "attention.sliding_window_pattern": [t == "sliding_attention" for t in config["layer_types"]],
                     "swiglu_clamp_exp": [7.0] * layers, "rope.dimension_count": int(head * config["partial_rotary_factor"])})
    if "scale_emb" in config:
        keys.update({"embedding_scale": float(config["scale_emb"]), "residual_scale": config["scale_depth"] / math.sqrt(layers),
                     "logit_scale": width / config["dim_model_base"], "rope.scaling.type": "longrope",
                     "rope.scaling.original_context_length": config["rope_scaling"]["original_max_position_embeddings"]})
    if "num_experts_per_tok" in config:
        keys.update({"expert_count": config.get("num_local_experts") or config["num_experts"], "expert_used_count": config["num_experts_per_tok"],
                     "expert_feed_forward_length": config["moe_intermediate_size"]})
    return [("general.architecture", architecture)] + [(f"{architecture}.{k}", v) for k, v in keys.items()]


def tensors_of(directory, config, neighbours):
    with open(os.path.join(directory, "model.safetensors"), "rb") as file:
        data = file.read()
    start = 8 + int.from_bytes(data[:8], "little")
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors, experts = [], {}
    for name, entry in json.loads(data[8:start]).items():
        module, part = name.rsplit(".", 1) if name != "__metadata__" else ("", "")
        if not module:
            continue
        content = data[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]]
        (target, expert), shape = name_of(module, config["model_type"] == "olmo3"), entry["shape"]
        kind, part = gguf.F32_TYPE, {"weight_scale": "scale"}.get(part, part)
        if entry["dtype"] == "U8":
            shape = [4 * shape[0], shape[1]]
            kind, content = gguf.T2_TYPE, trits(content, *shape)
        else:
            content = f32(entry["dtype"], content)
        if neighbours and target.split(".")[-1] in heads:
            content = pairs_of_rows(content, shape[0], heads[target.split(".")[-1]])
        if expert is None:
            tensors.append((f"{target}.{part}", shape[::-1], kind, content))
        else:
            experts.setdefault(target, {})[expert] = (shape[::-1], content)
    for target, parts in experts.items():  # all of a layer in one tensor
        tensors.append((target + ".weight", parts[0][0] + [len(parts)], gguf.F32_TYPE,
                        b"".join(parts[i][1] for i in range(len(parts)))))
    for name in ("short", "long") if "scale_emb" in config else ():
        factors = config["rope_scaling"][name + "_factor"]
        tensors.append((f"rope_factors_{name}.weight", [len(factors)], gguf.F32_TYPE, struct.pack(f"<{len(factors)}f", *factors)))
    return tensors


def write(directory, path, architecture, vocabulary):
    """The model of a directory as GGUF, with the tokenizer of another GGUF file."""
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    keys = keys_of(config, architecture) + gguf.raw_pairs(vocabulary, "tokenizer.")
    gguf.write(path, tensors_of(directory, config, neighbours=architecture in ("llama", "minicpm")), keys)
