// Mixtral: Llama's attention, and experts whose chosen weights sum to 1. Its GGUF files are named llama.
#include "model/arch.h"
#include "model/hparams_read.h"

static const char *const gguf_names[] = {NULL};
static const char *const model_types[] = {"mixtral", NULL};

static bool is_it(const st_hparams *h) {
  return h->n_expert != 0;
}

static const st_fact facts[] = {
    ST_FACTS_EXPERTS,
    {NULL, "sliding_window use_sliding_window layer_types", ST_FACT_USED, "null", ""},
    {NULL, "attention_bias", ST_FACT_AT, "false", ""},
    {0},
};

static const st_binding bindings[] = {
    ST_BIND_GLOBAL,
    ST_BIND_ATTENTION,
    ST_BIND(ST_FFN_NORM),
    {.role = ST_ROUTER, .hf = "model.layers.%u.block_sparse_moe.gate"},
    ST_BIND_EXPERTS("model.layers.%u.block_sparse_moe.experts.%e.w1", "model.layers.%u.block_sparse_moe.experts.%e.w3",
                    "model.layers.%u.block_sparse_moe.experts.%e.w2"),
    ST_BIND_STACKED_EXPERTS("model.layers.%u.block_sparse_moe.switch_mlp"),
    ST_BIND_END,
};

const st_spec st_spec_mixtral = {
    .name = "mixtral",
    .gguf_names = gguf_names,
    .model_types = model_types,
    .hf_class = "MixtralForCausalLM",
    .gguf_as = "llama",
    .is_it = is_it,
    .facts = facts,
    .windows = {.config = true},
    .defaults = {ST_MISTRAL_CONFIG, .norm_eps = 1e-5f, .n_expert = 8, .n_expert_used = 2, .router_renormalize = true,
                 .rope = {.theta = 1e6f}},
    .bindings = bindings,
    .read_hf = st_hf_experts,
};
