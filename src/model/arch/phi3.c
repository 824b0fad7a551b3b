// Phi 3 and Phi 4 mini: q, k and v in one matrix and gate and up in another, RoPE on part of each head, LongRoPE.
#include "model/arch.h"

static const char *const names[] = {"phi3", NULL};

static const st_fact facts[] = {
    {NULL, "sliding_window layer_types", ST_FACT_USED, "null", ""},
    {NULL, "attention_bias", ST_FACT_AT, "false", "Phi3Attention has none"},
    {NULL, "full_attn_mod", ST_FACT_AT, "0|1", "1: all layers are alike"},
    {NULL, "interpolate_factor", ST_FACT_AT, "1", ""},
    {0},
};

static const st_binding bindings[] = {
    ST_BIND_GLOBAL,
    ST_BIND(ST_ROPE_SHORT),
    ST_BIND(ST_ROPE_LONG_FACTORS),
    ST_BIND(ST_ATTN_NORM),
    ST_BIND(ST_ATTN_QKV),
    ST_BIND(ST_ATTN_O),
    ST_BIND(ST_FFN_NORM),
    {.role = ST_FFN_GATE_UP, .gguf = "blk.%u.ffn_up"},
    ST_BIND(ST_FFN_DOWN),
    ST_BIND_END,
};

const st_spec st_spec_phi3 = {
    .name = "phi3",
    .gguf_names = names,
    .model_types = names,
    .hf_class = "Phi3ForCausalLM",
    .facts = facts,
    .windows = {.config = true, .gguf = true}, // for all layers, as in Phi3Model's mask
    .partial_rope = true,
    .gguf_longrope = true,
    .defaults = {.n_layer = 32,
                 .n_embd = 3072,
                 .n_head = 32,
                 .n_ff = 8192,
                 .n_vocab = 32064,
                 .n_ctx_train = 4096,
                 .norm_eps = 1e-5f,
                 .fn = ST_FN_SILU,
                 .rope = {.theta = 10000, .original_max_position_embeddings = 4096}},
    .bindings = bindings,
};
