// Llama 2 and 3, and models of the same shape: SmolLM2, TriLM, Falcon3-1.58, Llama3-8B-1.58, and 1bitLLM's BitNet
// checkpoints, which are named llama and add sub-norms.
#include "model/arch.h"

static const char *const gguf_names[] = {"llama", NULL};
static const char *const model_types[] = {"llama", NULL};
static const char *const chat_templates[] = {"Llama 3", "ChatML", NULL};

static setun_status read_hf(const st_json *c, st_hparams *h, setun_error *err) {
  return st_json_bool(c, "mlp_bias", &h->mlp_bias, err);
}

// Mixtral's GGUF files, which are named llama, have experts.
static const st_fact facts[] = {
    {NULL, "mlp_bias", ST_FACT_USED, "", ""},
    {"expert_count", NULL, ST_FACT_USED, "", ""},
    {"expert_used_count", NULL, ST_FACT_USED, "", ""},
    {"expert_feed_forward_length", NULL, ST_FACT_USED, "", ""},
    {"expert_gating_func", NULL, ST_FACT_USED, "", ""},
    {"expert_weights_scale", NULL, ST_FACT_USED, "", ""},
    {"expert_weights_norm", NULL, ST_FACT_USED, "", ""},
    {"attention.clamp_kqv", NULL, ST_FACT_USED, "", ""},
    {"tensor_data_layout", NULL, ST_FACT_AT, "Meta AI original pth",
     "rows of q and k for interleaved RoPE, as all GGUF files of this family have them"},
    {0},
};

static const st_binding bindings[] = {
    ST_BIND_GLOBAL,
    ST_BIND(ST_ROPE_FREQS),
    ST_BIND_ATTENTION,
    {.role = ST_ATTN_SUB_NORM, .hf = "model.layers.%u.self_attn.inner_attn_ln"},
    ST_BIND(ST_FFN_NORM),
    ST_BIND_MLP,
    {.role = ST_ROUTER, .hf = ST_NO_NAME},
    ST_BIND_EXPERTS(ST_NO_NAME, ST_NO_NAME, ST_NO_NAME),
    {.role = ST_FFN_SUB_NORM, .hf = "model.layers.%u.mlp.ffn_layernorm"},
    ST_BIND_END,
};

const st_spec st_spec_llama = {
    .name = "llama",
    .gguf_names = gguf_names,
    .model_types = model_types,
    .hf_class = "LlamaForCausalLM",
    .facts = facts,
    .windows = {.gguf = true}, // Mistral's GGUF files set one; it applies to all layers
    .defaults = {ST_LLAMA_CONFIG, .n_vocab = 32000, .norm_eps = 1e-6f, .router_renormalize = true,
                 .rope = {.theta = 10000}},
    .gguf_interleaved = true,
    .bindings = bindings,
    .chat_templates = chat_templates,
    .read_hf = read_hf,
};
