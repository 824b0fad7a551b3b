#!/usr/bin/env python3
"""Writes tests/golden/names: for three published models their config.json's shape and a list of all tensors, one a line: the
name in Hugging Face checkpoints, a tab, the name in GGUF files. From the published naming schemes, written out here without
a look at Setun's tables. Heads that are tied are listed too: some checkpoints hold them.

usage: make_name_lists.py      (from anywhere; Python's standard library only)
"""
import json
import os

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "names")

ATTENTION = [("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"), ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output")]
MLP = [("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down")]
QK_NORMS = [("self_attn.q_norm", "attn_q_norm"), ("self_attn.k_norm", "attn_k_norm")]
TWO_NORMS = [("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm")]
FOUR_NORMS = [("input_layernorm", "attn_norm"), ("post_attention_layernorm", "post_attention_norm"),
              ("pre_feedforward_layernorm", "ffn_norm"), ("post_feedforward_layernorm", "post_ffw_norm")]

MODELS = {
    "llama-3.2-1b": (ATTENTION + MLP + TWO_NORMS, dict(
        model_type="llama", hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, head_dim=64, vocab_size=128256, max_position_embeddings=131072, rms_norm_eps=1e-5,
        rope_theta=500000.0, rope_scaling=dict(factor=32.0, high_freq_factor=4.0, low_freq_factor=1.0,
                                               original_max_position_embeddings=8192, rope_type="llama3"),
        hidden_act="silu", tie_word_embeddings=True, attention_bias=False, mlp_bias=False, torch_dtype="bfloat16")),
    "qwen3-1.7b": (ATTENTION + QK_NORMS + MLP + TWO_NORMS, dict(
        model_type="qwen3", hidden_size=2048, intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, vocab_size=151936, max_position_embeddings=40960, max_window_layers=28,
        rms_norm_eps=1e-6, rope_scaling=None, rope_theta=1000000, sliding_window=None, use_sliding_window=False,
        hidden_act="silu", tie_word_embeddings=True, attention_bias=False, torch_dtype="bfloat16")),
    "gemma-3-1b": (ATTENTION + QK_NORMS + MLP + FOUR_NORMS, dict(
        model_type="gemma3_text", hidden_size=1152, intermediate_size=6912, num_hidden_layers=26, num_attention_heads=4,
        num_key_value_heads=1, head_dim=256, vocab_size=262144, max_position_embeddings=32768, rms_norm_eps=1e-6,
        query_pre_attn_scalar=256, rope_local_base_freq=10000, rope_scaling=None, rope_theta=1000000, sliding_window=512,
        sliding_window_pattern=6, hidden_activation="gelu_pytorch_tanh", attn_logit_softcapping=None,
        final_logit_softcapping=None, attention_bias=False, torch_dtype="bfloat16")),
}

os.makedirs(OUT, exist_ok=True)
for name, (layer, config) in MODELS.items():
    pairs = [("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")]
    for i in range(config["num_hidden_layers"]):
        pairs += [(f"model.layers.{i}.{hf}", f"blk.{i}.{gguf}") for hf, gguf in layer]
    with open(os.path.join(OUT, name + ".json"), "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")
    with open(os.path.join(OUT, name + ".tsv"), "w") as f:
        f.writelines(f"{hf}.weight\t{gguf}.weight\n" for hf, gguf in pairs)
