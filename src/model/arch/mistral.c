// Mistral: Llama with a sliding window on all layers where config.json sets one. Its GGUF files are named llama.
#include "model/arch.h"

static const char *const gguf_names[] = {NULL};
static const char *const model_types[] = {"mistral", NULL};

static bool is_it(const st_hparams *h) {
  return h->window && !h->n_expert;
}

static const st_fact facts[] = {
    {NULL, "sliding_window use_sliding_window layer_types", ST_FACT_USED, "null", ""},
    {NULL, "attention_bias", ST_FACT_AT, "false", ""},
    {0},
};

static const st_binding bindings[] = {ST_BIND_LLAMA, ST_BIND_END};

const st_spec st_spec_mistral = {
    .name = "mistral",
    .gguf_names = gguf_names,
    .model_types = model_types,
    .hf_class = "MistralForCausalLM",
    .gguf_as = "llama",
    .is_it = is_it,
    .facts = facts,
    .windows = {.config = true},
    .defaults = {ST_MISTRAL_CONFIG, .norm_eps = 1e-6f, .window = 4096, .rope = {.theta = 10000}},
    .bindings = bindings,
};
