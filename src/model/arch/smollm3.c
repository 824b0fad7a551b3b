// SmolLM3: Llama with some layers without RoPE: every fourth, unless a list says otherwise.
#include "model/arch.h"

enum { INTERVAL = 4 }; // in the class, and in all GGUF files, which have no key for it

static const char *const names[] = {"smollm3", NULL};
static const char *const chat_templates[] = {"ChatML", NULL};

static void by_interval(st_hparams *h, uint32_t interval) {
  for (uint32_t i = 0; i < h->n_layer && i < ST_MAX_LAYERS; i++) h->no_rope[i] = (i + 1) % interval == 0;
}

// A list of ones (RoPE) and zeros (none), at least as long as the model (SmolLM3Config).
static setun_status read_list(const st_json *list, st_hparams *h, setun_error *err) {
  if (!st_json_is_array(list) || st_json_size(list) < h->n_layer) {
    return st_fail(err, SETUN_ERROR_FORMAT, "no_rope_layers: expected an array of at least %u numbers, found %s of %zu",
                   h->n_layer, st_json_kind(list), st_json_size(list));
  }
  for (uint32_t i = 0; i < h->n_layer && i < ST_MAX_LAYERS; i++) {
    const st_json *x = st_json_at(list, i);
    double rope = st_json_is_number(x) ? st_json_number(x) : -1;
    if (rope != 0 && rope != 1) {
      return st_fail(err, SETUN_ERROR_FORMAT, "no_rope_layers: expected 0 or 1, found another value at index %u", i);
    }
    h->no_rope[i] = rope == 0;
  }
  return SETUN_OK;
}

static setun_status read_hf(const st_json *c, st_hparams *h, setun_error *err) {
  uint32_t interval = INTERVAL;
  const st_json *list = st_json_get(c, "no_rope_layers");
  setun_status s = st_json_bool(c, "mlp_bias", &h->mlp_bias, err);
  if (s == SETUN_OK) s = st_json_u32(c, "no_rope_layer_interval", 1, 1u << 20, &interval, err);
  if (s != SETUN_OK) return s;
  by_interval(h, interval);
  if (list) s = read_list(list, h, err);
  // Without layer_types, the layers without RoPE slide.
  for (uint32_t i = 0; i < h->n_layer && i < ST_MAX_LAYERS && !st_json_get(c, "layer_types"); i++) {
    h->sliding[i] = h->sliding[i] && h->no_rope[i];
  }
  return s;
}

static setun_status read_gguf(const st_metadata *m, const char *architecture, st_hparams *h, setun_error *err) {
  (void)m, (void)architecture, (void)err;
  by_interval(h, INTERVAL);
  return SETUN_OK;
}

static const st_fact facts[] = {
    {NULL, "sliding_window layer_types no_rope_layers", ST_FACT_USED, "null", ""},
    {NULL, "use_sliding_window no_rope_layer_interval mlp_bias", ST_FACT_USED, "", ""},
    {0},
};

static const st_binding bindings[] = {ST_BIND_LLAMA, ST_BIND_END};

const st_spec st_spec_smollm3 = {
    .name = "smollm3",
    .gguf_names = names,
    .model_types = names,
    .hf_class = "SmolLM3ForCausalLM",
    .facts = facts,
    .windows = {.config = true, .with_switch = true, .config_lists = true},
    .defaults = {.n_layer = 36,
                 .n_embd = 2048,
                 .n_head = 16,
                 .n_head_kv = 4,
                 .n_ff = 11008,
                 .n_vocab = 128256,
                 .n_ctx_train = 32768,
                 .norm_eps = 1e-6f,
                 .tied = true,
                 .fn = ST_FN_SILU,
                 .rope = {.theta = 2e6f}},
    .gguf_interleaved = true,
    .bindings = bindings,
    .chat_templates = chat_templates,
    .read_hf = read_hf,
    .read_gguf = read_gguf,
};
