// OLMoE: q and k normalized over their full width; q, k and v sometimes clipped; experts in every layer.
#include "model/arch.h"
#include "model/hparams_read.h"

static const char *const names[] = {"olmoe", NULL};

static setun_status read_hf(const st_json *c, st_hparams *h, setun_error *err) {
  setun_status s = st_hf_experts(c, h, err);
  return s == SETUN_OK ? st_hf_positive(c, "clip_qkv", &h->clip_qkv, err) : s;
}

static const st_fact facts[] = {
    ST_FACTS_EXPERTS,
    {"attention.clamp_kqv", "clip_qkv", ST_FACT_USED, "null", ""},
    {0},
};

static const st_binding bindings[] = {
    ST_BIND_GLOBAL, ST_BIND_ATTENTION, ST_BIND_QK_NORMS, ST_BIND(ST_FFN_NORM), ST_BIND_MLP_EXPERTS, ST_BIND_END,
};

const st_spec st_spec_olmoe = {
    .name = "olmoe",
    .gguf_names = names,
    .model_types = names,
    .hf_class = "OlmoeForCausalLM",
    .facts = facts,
    .defaults = {.n_layer = 16,
                 .n_embd = 2048,
                 .n_head = 16,
                 .n_ff = 2048,
                 .n_vocab = 50304,
                 .n_ctx_train = 4096,
                 .norm_eps = 1e-5f,
                 .fn = ST_FN_SILU,
                 .n_expert = 64,
                 .n_expert_used = 8,
                 .rope = {.theta = 10000}},
    .wide_norms = true,
    .bindings = bindings,
    .read_hf = read_hf,
};
