// MiniCPM (BitCPM4): Llama with factors on the embeddings, the residual branches and the logits.
#include "model/arch.h"

#include <math.h>
#include <stdio.h>

static const char *const gguf_names[] = {"minicpm", NULL};
static const char *const model_types[] = {"minicpm", "minicpm4", NULL};
static const char *const chat_templates[] = {"ChatML", NULL};

static setun_status check(const st_hparams *h, setun_error *err) {
  if (isfinite(h->embed_scale) && isfinite(h->residual_scale) && isfinite(h->logit_scale)) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_FORMAT,
                 "scale_emb, scale_depth or dim_model_base: expected finite factors, found %g, %g, %g",
                 (double)h->embed_scale, (double)h->residual_scale, (double)h->logit_scale);
}

static setun_status read_hf(const st_json *c, st_hparams *h, setun_error *err) {
  float emb = 1, depth = 1, base = 1;
  setun_status s = st_json_f32(c, "scale_emb", &emb, err);
  if (s == SETUN_OK) s = st_json_f32(c, "scale_depth", &depth, err);
  if (s == SETUN_OK) s = st_json_f32(c, "dim_model_base", &base, err);
  h->embed_scale = emb;
  h->residual_scale = depth / sqrtf((float)h->n_layer);
  h->logit_scale = base / (float)h->n_embd;
  return s == SETUN_OK ? check(h, err) : s;
}

static size_t write_hf(const st_hparams *h, st_named_number out[ST_NAMED_NUMBERS]) {
  out[0] = (st_named_number){"scale_emb", h->embed_scale};
  out[1] = (st_named_number){"scale_depth", h->residual_scale * sqrtf((float)h->n_layer)};
  out[2] = (st_named_number){"dim_model_base", h->logit_scale * (float)h->n_embd};
  return 3;
}

// Files that predate these keys are the published 1B and 2B models.
static setun_status read_gguf(const st_metadata *m, const char *architecture, st_hparams *h, setun_error *err) {
  const struct {
    const char *name;
    float initial, *out;
  } keys[] = {{"embedding_scale", 12, &h->embed_scale},
              {"residual_scale", 1.4f / sqrtf((float)h->n_layer), &h->residual_scale},
              {"logit_scale", 1 / ((float)h->n_embd / 256), &h->logit_scale}};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", architecture, keys[i].name);
    if (!st_metadata_find(m, key)) *keys[i].out = keys[i].initial;
  }
  return check(h, err);
}

static const st_fact facts[] = {
    {NULL, "scale_emb scale_depth dim_model_base", ST_FACT_USED, "", ""},
    {0},
};

static const st_binding bindings[] = {
    ST_BIND_GLOBAL,
    ST_BIND(ST_ROPE_FREQS),
    ST_BIND(ST_ROPE_SHORT),
    ST_BIND(ST_ROPE_LONG_FACTORS),
    ST_BIND_ATTENTION,
    ST_BIND(ST_FFN_NORM),
    ST_BIND_MLP,
    ST_BIND_END,
};

const st_spec st_spec_minicpm = {
    .name = "minicpm",
    .gguf_names = gguf_names,
    .model_types = model_types,
    .hf_class = "MiniCPMForCausalLM",
    .facts = facts,
    .gguf_factors = true,
    .defaults = {ST_LLAMA_CONFIG, .n_vocab = 32000, .norm_eps = 1e-6f, .tied = true, .rope = {.theta = 10000}},
    .gguf_interleaved = true,
    .bindings = bindings,
    .chat_templates = chat_templates,
    .read_hf = read_hf,
    .read_gguf = read_gguf,
    .write_hf = write_hf,
};
