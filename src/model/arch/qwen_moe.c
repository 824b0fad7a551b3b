// Qwen 2 and Qwen 3 with experts: the attention of the dense models, some layers possibly dense, and in Qwen 2 one
// expert that takes every token, weighted by the sigmoid of its own router.
#include "model/arch.h"
#include "model/hparams_read.h"

static const char *const qwen2_gguf[] = {"qwen2moe", NULL};
static const char *const qwen2_types[] = {"qwen2_moe", NULL};
static const char *const qwen3_gguf[] = {"qwen3moe", NULL};
static const char *const qwen3_types[] = {"qwen3_moe", NULL};

// The window, which counts only with use_sliding_window.
static setun_status read_window(const st_json *c, st_hparams *h, setun_error *err) {
  bool use = false;
  uint32_t window = 4096;
  setun_status s = st_json_bool(c, "use_sliding_window", &use, err);
  if (st_json_is_null(st_json_find(c, "sliding_window"))) window = 0;
  if (s == SETUN_OK && use) s = st_json_u32(c, "sliding_window", 0, 1u << 30, &window, err);
  h->window = use ? window : 0;
  return s;
}

// Qwen 2's official class slides every second layer of the first max_window_layers, unlike that of the dense model.
static setun_status read_qwen2(const st_json *c, st_hparams *h, setun_error *err) {
  uint32_t most = 28;
  setun_status s = st_hf_experts(c, h, err);
  if (s == SETUN_OK) s = read_window(c, h, err);
  if (s == SETUN_OK) s = st_json_u32(c, "max_window_layers", 0, 1u << 20, &most, err);
  if (s == SETUN_OK) s = st_hf_layer_types(c, 2, h, err);
  if (s == SETUN_OK && !st_json_get(c, "layer_types")) {
    for (uint32_t i = most; i < h->n_layer && i < ST_MAX_LAYERS; i++) h->sliding[i] = false;
  }
  return s;
}

// Qwen 3's has one window for all layers.
static setun_status read_qwen3(const st_json *c, st_hparams *h, setun_error *err) {
  setun_status s = st_hf_experts(c, h, err);
  if (s == SETUN_OK) s = read_window(c, h, err);
  for (uint32_t i = 0; i < h->n_layer && i < ST_MAX_LAYERS; i++) h->sliding[i] = h->window != 0;
  return s;
}

static const st_binding qwen2_bindings[] = {
    ST_BIND_GLOBAL,          ST_BIND_ATTENTION,
    ST_BIND(ST_FFN_NORM),    ST_BIND_MLP,
    ST_BIND_MLP_EXPERTS,     ST_BIND(ST_SHARED_ROUTER),
    ST_BIND(ST_SHARED_GATE), ST_BIND(ST_SHARED_UP),
    ST_BIND(ST_SHARED_DOWN), ST_BIND_END,
};

static const st_binding qwen3_bindings[] = {
    ST_BIND_GLOBAL,       ST_BIND_ATTENTION, ST_BIND(ST_ATTN_Q_NORM), ST_BIND(ST_ATTN_K_NORM),
    ST_BIND(ST_FFN_NORM), ST_BIND_MLP,       ST_BIND_MLP_EXPERTS,     ST_BIND_END,
};

const st_spec st_spec_qwen2_moe = {
    .name = "qwen2moe",
    .gguf_names = qwen2_gguf,
    .model_types = qwen2_types,
    .defaults = {.n_layer = 24,
                 .n_embd = 2048,
                 .n_head = 16,
                 .n_head_kv = 16,
                 .n_ff = 5632,
                 .n_vocab = 151936,
                 .n_ctx_train = 32768,
                 .norm_eps = 1e-6f,
                 .fn = ST_FN_SILU,
                 .n_expert = 60,
                 .n_expert_used = 4,
                 .n_ff_expert = 1408,
                 .n_ff_shared = 5632,
                 .rope = {.theta = 10000}},
    .bindings = qwen2_bindings,
    .read_hf = read_qwen2,
};

// GGUF files do not say that the chosen weights are divided by their sum; all published models do it.
static setun_status read_gguf_qwen3(const st_metadata *m, const char *architecture, st_hparams *h, setun_error *err) {
  (void)architecture, (void)err;
  if (!st_metadata_find(m, "qwen3moe.expert_weights_norm")) h->router_renormalize = true;
  return SETUN_OK;
}

const st_spec st_spec_qwen3_moe = {
    .name = "qwen3moe",
    .gguf_names = qwen3_gguf,
    .model_types = qwen3_types,
    .defaults = {.n_layer = 24,
                 .n_embd = 2048,
                 .n_head = 32,
                 .n_head_kv = 4,
                 .n_ff = 6144,
                 .n_vocab = 151936,
                 .n_ctx_train = 32768,
                 .norm_eps = 1e-6f,
                 .fn = ST_FN_SILU,
                 .n_expert = 128,
                 .n_expert_used = 8,
                 .n_ff_expert = 768,
                 .rope = {.theta = 10000}},
    .bindings = qwen3_bindings,
    .read_hf = read_qwen3,
    .read_gguf = read_gguf_qwen3,
};
