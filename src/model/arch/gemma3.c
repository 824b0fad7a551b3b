// Gemma 3, and the language part of its multimodal checkpoints: norms around each branch, q and k normalized per head,
// five sliding layers (with their own RoPE table) for each full one, embeddings times sqrt(hidden).
#include "model/arch.h"
#include "model/hparams_read.h"

#include <math.h>
#include <stdio.h>

enum { LAYERS_27B = 62 };

static const char bidirectional[] = "gemma-embedding";
static const char *const gguf_names[] = {"gemma3", bidirectional, NULL};
static const char *const model_types[] = {"gemma3_text", "gemma3", NULL};
static const char *const chat_templates[] = {"Gemma", NULL};
static const char *const ignored[] = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                                      "model.multi_modal_projector.", NULL};

static setun_status read_hf(const st_json *c, st_hparams *h, setun_error *err) {
  float scalar = 256;
  setun_status s = st_hf_positive(c, "query_pre_attn_scalar", &scalar, err);
  if (s == SETUN_OK) s = st_hf_positive(c, "final_logit_softcapping", &h->logit_softcap, err);
  if (s == SETUN_OK) s = st_json_bool(c, "use_bidirectional_attention", &h->bidirectional, err);
  h->attn_scale = 1.0f / sqrtf(scalar);
  h->embed_scale = sqrtf((float)h->n_embd);
  if (!h->bidirectional) return s;
  h->direction_key = "use_bidirectional_attention";
  h->window = h->window / 2 + 1; // Gemma3TextConfig: the reach in each direction, including the token itself
  return s;
}

static size_t write_hf(const st_hparams *h, st_named_number out[ST_NAMED_NUMBERS]) {
  out[0] = (st_named_number){"query_pre_attn_scalar", roundf(1 / (h->attn_scale * h->attn_scale))};
  return 1;
}

// GGUF files have neither the pattern, nor the local RoPE base, nor query_pre_attn_scalar, which is the head size
// except in the 27B model.
static setun_status read_gguf(const st_metadata *m, const char *architecture, st_hparams *h, setun_error *err) {
  char key[128];
  snprintf(key, sizeof key, "%s.rope.freq_base_swa", architecture);
  setun_status s = st_metadata_f32(m, key, &h->rope_local.theta, err);
  if (!h->attn_scale && h->n_layer == LAYERS_27B && h->n_head) {
    h->attn_scale = 1.0f / sqrtf((float)(h->n_embd / h->n_head));
  }
  h->embed_scale = sqrtf((float)h->n_embd);
  return s;
}

static const st_fact facts[] = {
    {NULL, "query_pre_attn_scalar _sliding_window_pattern sliding_window_pattern rope_local_base_freq", ST_FACT_USED,
     "", ""},
    {NULL, "sliding_window use_sliding_window layer_types", ST_FACT_USED, "null", ""},
    {NULL, "final_logit_softcapping", ST_FACT_USED, "null", ""},
    {NULL, "use_bidirectional_attention", ST_FACT_USED, "null", ""},
    {NULL, "rope:full_attention rope:sliding_attention", ST_FACT_USED, "null", ""},
    {NULL, "head_dim", ST_FACT_USED, "", "Gemma3TextConfig has only a number here"},
    {"embedding_scale", NULL, ST_FACT_AT, "0|1", "the family has its own, sqrt(hidden)"},
    {0},
};

static const st_binding bindings[] = {
    ST_BIND_GLOBAL,
    ST_BIND_ATTENTION,
    ST_BIND_QK_NORMS,
    ST_BIND(ST_ATTN_POST_NORM),
    {.role = ST_FFN_NORM, .hf = "model.layers.%u.pre_feedforward_layernorm"},
    ST_BIND_MLP,
    ST_BIND(ST_FFN_POST_NORM),
    ST_BIND_END,
};

const st_spec st_spec_gemma3 = {
    .name = "gemma3",
    .gguf_names = gguf_names,
    .gguf_bidirectional = bidirectional,
    .model_types = model_types,
    .hf_class = "Gemma3ForCausalLM",
    .facts = facts,
    .windows = {.period = 6, .config = true, .config_lists = true, .gguf = true},
    .defaults = {.n_layer = 26,
                 .n_embd = 2304,
                 .n_head = 8,
                 .n_head_kv = 4,
                 .head_dim = 256,
                 .n_ff = 9216,
                 .n_vocab = 262208,
                 .n_ctx_train = 131072,
                 .norm_eps = 1e-6f,
                 .tied = true,
                 .fn = ST_FN_GELU_TANH,
                 .window = 4096,
                 .rope = {.theta = 1e6f},
                 .rope_local = {.theta = 1e4f},
                 .has_rope_local = true,
                 .norm_plus_one = true},
    .bindings = bindings,
    .ignored = ignored,
    .hf_prefix = "language_model.",
    .hf_activation = "hidden_activation",
    .chat_templates = chat_templates,
    .read_hf = read_hf,
    .read_gguf = read_gguf,
    .write_hf = write_hf,
};
