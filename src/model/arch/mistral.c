// Mistral: Llama with a sliding window on all layers where config.json sets one. Its GGUF files call themselves llama.
#include "model/arch.h"

static const char *const gguf_names[] = {NULL};
static const char *const model_types[] = {"mistral", NULL};

// Absent means the official default of 4096, null means none.
static setun_status read_hf(const st_json *c, st_hparams *h, setun_error *err) {
  if (st_json_is_null(st_json_find(c, "sliding_window"))) h->window = 0;
  setun_status s = st_json_u32(c, "sliding_window", 0, 1u << 30, &h->window, err);
  for (uint32_t i = 0; i < h->n_layer && i < ST_MAX_LAYERS; i++) h->sliding[i] = h->window != 0;
  return s;
}

static const st_binding bindings[] = {
    ST_BIND_GLOBAL, ST_BIND_ATTENTION, ST_BIND(ST_FFN_NORM), ST_BIND_MLP, ST_BIND_END,
};

const st_spec st_spec_mistral = {
    .name = "mistral",
    .gguf_names = gguf_names,
    .model_types = model_types,
    .defaults = {.n_layer = 32,
                 .n_embd = 4096,
                 .n_head = 32,
                 .n_head_kv = 8,
                 .n_ff = 14336,
                 .n_vocab = 32000,
                 .n_ctx_train = 131072,
                 .norm_eps = 1e-6f,
                 .fn = ST_FN_SILU,
                 .window = 4096,
                 .rope = {.theta = 10000}},
    .bindings = bindings,
    .read_hf = read_hf,
};
