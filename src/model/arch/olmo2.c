// OLMo 2: no norm before a branch but one behind it, and q and k normalized over their full width.
#include "model/arch.h"

static const char *const names[] = {"olmo2", NULL};

static const st_binding bindings[] = {
    ST_BIND_GLOBAL,
    ST_BIND(ST_ATTN_Q),
    ST_BIND(ST_ATTN_K),
    ST_BIND(ST_ATTN_V),
    ST_BIND(ST_ATTN_Q_NORM),
    ST_BIND(ST_ATTN_K_NORM),
    ST_BIND(ST_ATTN_O),
    ST_BIND(ST_ATTN_POST_NORM),
    ST_BIND_MLP,
    ST_BIND(ST_FFN_POST_NORM),
    ST_BIND_END,
};

const st_spec st_spec_olmo2 = {
    .name = "olmo2",
    .gguf_names = names,
    .model_types = names,
    .hf_class = "Olmo2ForCausalLM",
    .defaults = {.n_layer = 32,
                 .n_embd = 4096,
                 .n_head = 32,
                 .n_ff = 11008,
                 .n_vocab = 50304,
                 .n_ctx_train = 2048,
                 .norm_eps = 1e-5f,
                 .fn = ST_FN_SILU,
                 .rope = {.theta = 10000}},
    .wide_norms = true,
    .bindings = bindings,
};
