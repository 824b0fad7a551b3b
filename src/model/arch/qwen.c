// Qwen 2 (biases on q, k and v) and Qwen 3 (q and k normalized a head; Ternary-Bonsai ships in this shape).
#include "model/arch.h"
#include "model/hparams_read.h"

static const char *const qwen2_names[] = {"qwen2", NULL};
static const char *const qwen3_names[] = {"qwen3", NULL};

// A window counts only with use_sliding_window, and then from layer max_window_layers on.
static setun_status read_hf(const st_json *c, st_hparams *h, setun_error *err) {
  bool use = false;
  uint32_t full_layers = 28;
  setun_status s = st_json_bool(c, "use_sliding_window", &use, err);
  if (s == SETUN_OK) s = st_json_u32(c, "max_window_layers", 0, 1u << 20, &full_layers, err);
  h->window = 0;
  if (s == SETUN_OK && use) {
    h->window = 4096;
    s = st_json_u32(c, "sliding_window", 0, 1u << 30, &h->window, err);
  }
  if (s == SETUN_OK) s = st_hf_layer_types(c, 0, h, err);
  if (s == SETUN_OK && !st_json_get(c, "layer_types")) {
    for (uint32_t i = full_layers; i < h->n_layer && i < ST_MAX_LAYERS; i++) h->sliding[i] = h->window != 0;
  }
  return s;
}

static const st_binding qwen2_bindings[] = {
    ST_BIND_GLOBAL, ST_BIND_ATTENTION, ST_BIND(ST_FFN_NORM), ST_BIND_MLP, ST_BIND_END,
};

static const st_binding qwen3_bindings[] = {
    ST_BIND_GLOBAL, ST_BIND_ATTENTION, ST_BIND(ST_ATTN_Q_NORM), ST_BIND(ST_ATTN_K_NORM), ST_BIND(ST_FFN_NORM),
    ST_BIND_MLP,    ST_BIND_END,
};

const st_spec st_spec_qwen2 = {
    .name = "qwen2",
    .gguf_names = qwen2_names,
    .model_types = qwen2_names,
    .defaults = {.n_layer = 32,
                 .n_embd = 4096,
                 .n_head = 32,
                 .n_head_kv = 32,
                 .n_ff = 22016,
                 .n_vocab = 151936,
                 .n_ctx_train = 32768,
                 .norm_eps = 1e-6f,
                 .qkv_bias = true,
                 .fn = ST_FN_SILU,
                 .rope = {.theta = 10000}},
    .bindings = qwen2_bindings,
    .read_hf = read_hf,
};

const st_spec st_spec_qwen3 = {
    .name = "qwen3",
    .gguf_names = qwen3_names,
    .model_types = qwen3_names,
    .defaults = {.n_layer = 32,
                 .n_embd = 4096,
                 .n_head = 32,
                 .n_head_kv = 32,
                 .head_dim = 128,
                 .n_ff = 22016,
                 .n_vocab = 151936,
                 .n_ctx_train = 32768,
                 .norm_eps = 1e-6f,
                 .fn = ST_FN_SILU,
                 .rope = {.theta = 10000}},
    .bindings = qwen3_bindings,
    .read_hf = read_hf,
};
