// Maple: experts with a clamped SwiGLU in every layer; for each full-attention layer without RoPE three layers with a
// window and RoPE on half of each head; q and k normalized per head.
#include "model/arch.h"
#include "model/hparams_read.h"

static const char *const names[] = {"maple", NULL};
static const char *const chat_templates[] = {"ChatML", NULL};

// Only layers with a window use positions.
static setun_status read_layers(st_hparams *h) {
  for (uint32_t i = 0; i < h->n_layer && i < ST_MAX_LAYERS; i++) h->no_rope[i] = !h->sliding[i];
  return SETUN_OK;
}

static setun_status read_hf(const st_json *c, st_hparams *h, setun_error *err) {
  h->fn = ST_FN_SILU_CLAMPED; // from the class; config.json has no key for the limit
  if (!h->n_rot) h->n_rot = h->head_dim / 2;
  setun_status s = st_hf_experts(c, h, err);
  return s == SETUN_OK ? read_layers(h) : s;
}

static setun_status read_gguf(const st_metadata *m, const char *architecture, st_hparams *h, setun_error *err) {
  (void)m, (void)architecture, (void)err;
  h->fn = ST_FN_SILU_CLAMPED;
  return read_layers(h);
}

static const st_fact facts[] = {
    ST_FACTS_EXPERTS,
    {NULL, "sliding_window layer_types", ST_FACT_USED, "null", ""},
    {"swiglu_clamp_exp", NULL, ST_FACT_AT, "7", ""},
    {"hidden_activation", "hidden_act", ST_FACT_AT, "silu", "clamped"},
    {NULL, "nope_on_global_attention use_qk_norm", ST_FACT_AT, "true", ""},
    {NULL, "use_bias num_shared_experts moe_router_enable_expert_bias", ST_FACT_AT, "0|false|", ""},
    {0},
};

static const st_binding bindings[] = {
    {.role = ST_TOKEN_EMBD, .hf = "model.word_embeddings"},
    ST_BIND(ST_OUTPUT_NORM),
    ST_BIND(ST_OUTPUT),
    ST_BIND_ATTENTION,
    ST_BIND_QK_NORMS,
    ST_BIND(ST_FFN_NORM),
    ST_BIND_MLP_EXPERTS,
    ST_BIND_END,
};

const st_spec st_spec_maple = {
    .name = "maple",
    .gguf_names = names,
    .model_types = names,
    .hf_class = "MapleForCausalLM",
    .facts = facts,
    .windows = {.period = 4, .config = true, .config_lists = true},
    .defaults = {.n_layer = 24,
                 .n_embd = 2048,
                 .n_head = 16,
                 .n_head_kv = 4,
                 .head_dim = 128,
                 .n_ff = 4096,
                 .n_vocab = 151936,
                 .n_ctx_train = 131072,
                 .norm_eps = 1e-6f,
                 .fn = ST_FN_SILU,
                 .window = 512,
                 .n_expert = 256,
                 .n_expert_used = 8,
                 .n_ff_expert = 512,
                 .router = ST_ROUTER_ALL,
                 .router_renormalize = true,
                 .rope = {.theta = 10000}},
    .partial_rope = true,
    .hf_pre = "qwen2",
    .bindings = bindings,
    .chat_templates = chat_templates,
    .read_hf = read_hf,
    .read_gguf = read_gguf,
};
