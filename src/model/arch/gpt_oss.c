// gpt-oss: biases everywhere, a learned logit per head (sink) in each attention softmax, every second layer with a
// window, YaRN, a clamped activation, and experts in MXFP4.
#include "model/arch.h"
#include "model/hparams_read.h"

static const char *const gguf_names[] = {"gpt-oss", NULL};
static const char *const model_types[] = {"gpt_oss", NULL};

static setun_status read_hf(const st_json *c, st_hparams *h, setun_error *err) {
  setun_status s = st_hf_experts(c, h, err);
  if (!st_json_get(c, "rope_parameters") && !st_json_get(c, "rope_scaling")) {
    h->rope.scaling = ST_ROPE_YARN;
    h->rope.factor = 32;
    h->rope.original_max_position_embeddings = 4096;
    h->rope.truncate = false;
  }
  h->fn = ST_FN_GPT_OSS; // regardless of hidden_act, which the official class does not read
  return s;
}

// YaRN's ramp is not rounded; GGUF files do not say so.
static setun_status read_gguf(const st_metadata *m, const char *architecture, st_hparams *h, setun_error *err) {
  (void)m, (void)architecture, (void)err;
  h->rope.truncate = false;
  return SETUN_OK;
}

static const st_fact facts[] = {
    ST_FACTS_EXPERTS,
    {NULL, "sliding_window use_sliding_window layer_types", ST_FACT_USED, "null", ""},
    {NULL, "hidden_act", ST_FACT_NEUTRAL, "", "GptOssExperts computes its own activation (transformers 5.24)"},
    {NULL, "swiglu_alpha", ST_FACT_AT, "1.702", ""},
    {"swiglu_clamp_exp", "swiglu_limit", ST_FACT_AT, "7", ""},
    {0},
};

static const st_binding bindings[] = {
    ST_BIND_GLOBAL,
    ST_BIND_ATTENTION,
    ST_BIND(ST_ATTN_SINKS),
    {.role = ST_FFN_NORM, .gguf = "blk.%u.post_attention_norm"},
    {.role = ST_ROUTER, .hf = "model.layers.%u.mlp.router", .bias = true},
    {.role = ST_EXPERT_GATE, .hf = ST_NO_NAME, .bias = true},
    {.role = ST_EXPERT_GATE, .gguf = "blk.%u.ffn_gate.%e", .hf = ST_NO_NAME, .bias = true},
    {.role = ST_EXPERT_UP, .hf = ST_NO_NAME, .bias = true},
    {.role = ST_EXPERT_UP, .gguf = "blk.%u.ffn_up.%e", .hf = ST_NO_NAME, .bias = true},
    {.role = ST_EXPERT_GATE_UP, .bias = true},
    // MLX's directories
    {.role = ST_EXPERT_GATE, .gguf = ST_NO_NAME, .hf = "model.layers.%u.mlp.experts.gate_proj", .bias = true},
    {.role = ST_EXPERT_UP, .gguf = ST_NO_NAME, .hf = "model.layers.%u.mlp.experts.up_proj", .bias = true},
    {.role = ST_EXPERT_DOWN, .hf = "model.layers.%u.mlp.experts.down_proj", .bias = true},
    {.role = ST_EXPERT_DOWN, .gguf = "blk.%u.ffn_down.%e", .hf = ST_NO_NAME, .bias = true},
    ST_BIND_END,
};

const st_spec st_spec_gpt_oss = {
    .name = "gpt-oss",
    .gguf_names = gguf_names,
    .model_types = model_types,
    .hf_class = "GptOssForCausalLM",
    .facts = facts,
    .windows = {.period = 2, .config = true, .config_lists = true, .gguf = true},
    .defaults = {.n_layer = 36,
                 .n_embd = 2880,
                 .n_head = 64,
                 .n_head_kv = 8,
                 .head_dim = 64,
                 .n_ff = 2880,
                 .n_vocab = 201088,
                 .n_ctx_train = 131072,
                 .norm_eps = 1e-5f,
                 .qkv_bias = true,
                 .o_bias = true,
                 .fn = ST_FN_GPT_OSS,
                 .window = 128,
                 .n_expert = 128,
                 .n_expert_used = 4,
                 .router = ST_ROUTER_CHOSEN,
                 .rope = {.theta = 150000}},
    .bindings = bindings,
    .read_hf = read_hf,
    .read_gguf = read_gguf,
};
