// Qwen 2 (biases on q, k and v) and Qwen 3 (q and k normalized per head; Ternary-Bonsai has this shape).
#include "model/arch.h"

static const char *const qwen2_names[] = {"qwen2", NULL};
static const char *const qwen3_names[] = {"qwen3", NULL};
static const char *const chat_templates[] = {"ChatML", NULL};

// A window applies only with use_sliding_window, and then from layer max_window_layers on.
// A macro: C11 cannot initialize a static object from another object.
#define WINDOWS                                                                                                        \
  { .layers = ST_WINDOW_FROM, .config = true, .with_switch = true, .config_window = 4096, .config_lists = true }

// What Qwen2Config and Qwen3Config have in common.
#define CONFIG                                                                                                         \
  .n_layer = 32, .n_embd = 4096, .n_head = 32, .n_head_kv = 32, .n_ff = 22016, .n_vocab = 151936,                      \
  .n_ctx_train = 32768, .norm_eps = 1e-6f, .fn = ST_FN_SILU

static const st_fact qwen2_facts[] = {
    {NULL, "sliding_window max_window_layers layer_types", ST_FACT_USED, "null", ""},
    {NULL, "use_sliding_window", ST_FACT_USED, "", ""},
    {NULL, "attention_bias", ST_FACT_NEUTRAL, "", "Qwen2Config has no such field: q, k and v have a bias, o has none"},
    {0},
};

static const st_fact qwen3_facts[] = {
    {NULL, "sliding_window max_window_layers layer_types", ST_FACT_USED, "null", ""},
    {NULL, "use_sliding_window", ST_FACT_USED, "", ""},
    {NULL, "head_dim", ST_FACT_USED, "", "Qwen3Config has only a number here"},
    {0},
};

static const st_binding qwen2_bindings[] = {ST_BIND_LLAMA, ST_BIND_END};

static const st_binding qwen3_bindings[] = {
    ST_BIND_GLOBAL, ST_BIND_ATTENTION, ST_BIND_QK_NORMS, ST_BIND(ST_FFN_NORM), ST_BIND_MLP, ST_BIND_END,
};

const st_spec st_spec_qwen2 = {
    .name = "qwen2",
    .gguf_names = qwen2_names,
    .model_types = qwen2_names,
    .hf_class = "Qwen2ForCausalLM",
    .facts = qwen2_facts,
    .windows = WINDOWS,
    .defaults = {CONFIG, .qkv_bias = true, .rope = {.theta = 10000}},
    .hf_pre = "qwen2",
    .bindings = qwen2_bindings,
    .chat_templates = chat_templates,
};

const st_spec st_spec_qwen3 = {
    .name = "qwen3",
    .gguf_names = qwen3_names,
    .model_types = qwen3_names,
    .hf_class = "Qwen3ForCausalLM",
    .facts = qwen3_facts,
    .windows = WINDOWS,
    .defaults = {CONFIG, .head_dim = 128, .rope = {.theta = 10000}},
    .hf_pre = "qwen2",
    .bindings = qwen3_bindings,
    .chat_templates = chat_templates,
};
