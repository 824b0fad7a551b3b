// Hyperparameters as GGUF keys, as hparams_gguf.c reads them.
#include "model/hparams_write.h"

#include <math.h>
#include <stdio.h>

typedef struct {
  st_keys *keys;
  const char *architecture;
} writer;

static void put_u32(const writer *w, const char *name, uint32_t value) {
  char key[128];
  snprintf(key, sizeof key, "%s.%s", w->architecture, name);
  st_keys_u32(w->keys, key, value);
}

static void put_f32(const writer *w, const char *name, float value) {
  char key[128];
  snprintf(key, sizeof key, "%s.%s", w->architecture, name);
  st_keys_f32(w->keys, key, value);
}

static void put_text(const writer *w, const char *name, const char *value) {
  char key[128];
  snprintf(key, sizeof key, "%s.%s", w->architecture, name);
  st_keys_text(w->keys, key, value);
}

// Pairs of elements for the three components of a position in images, as in published files: 11, 11 and 10 of 32.
static void put_sections(const writer *w, uint32_t pairs) {
  char key[128];
  int32_t sections[4] = {(int32_t)(pairs + 2) / 3};
  sections[1] = ((int32_t)pairs - sections[0] + 1) / 2;
  sections[2] = (int32_t)pairs - sections[0] - sections[1];
  snprintf(key, sizeof key, "%s.rope.dimension_sections", w->architecture);
  st_keys_i32s(w->keys, key, sections, 4);
}

// Recurrent layers; also as an interval, where there is one, for older readers.
static void put_delta(const writer *w, const st_hparams *h) {
  const st_delta_params *d = &h->delta;
  char key[128];
  uint32_t interval = 1;
  bool regular = true;
  if (!d->n_taps) return;
  put_u32(w, "ssm.conv_kernel", d->n_taps);
  put_u32(w, "ssm.state_size", d->key_dim);
  put_u32(w, "ssm.group_count", d->n_key_heads);
  put_u32(w, "ssm.time_step_rank", d->n_value_heads);
  put_u32(w, "ssm.inner_size", d->n_value_heads * d->value_dim);
  snprintf(key, sizeof key, "%s.attention.recurrent_layers", w->architecture);
  st_keys_bools(w->keys, key, h->recurrent, h->n_layer);
  while (interval < h->n_layer && h->recurrent[interval - 1]) interval++;
  for (uint32_t i = 0; i < h->n_layer; i++) regular = regular && h->recurrent[i] == ((i + 1) % interval != 0);
  if (regular) put_u32(w, "full_attention_interval", interval);
}

static void put_rope(const writer *w, const st_hparams *h) {
  static const char *const types[] = {[ST_ROPE_PLAIN] = NULL,
                                      [ST_ROPE_LINEAR] = "linear",
                                      [ST_ROPE_LLAMA3] = NULL,
                                      [ST_ROPE_YARN] = "yarn",
                                      [ST_ROPE_LONG] = "longrope"};
  const st_rope_params *r = &h->rope;
  put_u32(w, "rope.dimension_count", h->n_rot);
  put_f32(w, "rope.freq_base", r->theta);
  if (h->has_rope_local) put_f32(w, "rope.freq_base_swa", h->rope_local.theta);
  if (!types[r->scaling]) return;
  put_text(w, "rope.scaling.type", types[r->scaling]);
  if (r->scaling != ST_ROPE_LONG) put_f32(w, "rope.scaling.factor", r->factor);
  if (r->original_max_position_embeddings) {
    put_u32(w, "rope.scaling.original_context_length", r->original_max_position_embeddings);
  }
  if (r->scaling == ST_ROPE_YARN) {
    put_f32(w, "rope.scaling.yarn_beta_fast", r->beta_fast);
    put_f32(w, "rope.scaling.yarn_beta_slow", r->beta_slow);
    if (r->attention_factor > 0) put_f32(w, "rope.scaling.yarn_attn_factor", r->attention_factor);
  } else if (r->scaling == ST_ROPE_LONG && r->attention_factor > 0) {
    put_f32(w, "rope.scaling.attn_factor", r->attention_factor);
  }
}

// Which layers slide: a period where there is one, otherwise a flag per layer.
static void put_windows(const writer *w, const st_hparams *h) {
  char key[128];
  uint32_t period = 0;
  bool periodic = true;
  if (!h->window) return;
  put_u32(w, "attention.sliding_window", h->bidirectional ? 2 * (h->window - 1) : h->window);
  while (period < h->n_layer && h->sliding[period]) period++;
  period = period < h->n_layer ? period + 1 : 0;
  for (uint32_t i = 0; i < h->n_layer; i++) periodic = periodic && h->sliding[i] == (!period || (i + 1) % period != 0);
  snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", w->architecture);
  if (periodic)
    st_keys_u32(w->keys, key, period);
  else
    st_keys_bools(w->keys, key, h->sliding, h->n_layer);
}

static void put_experts(const writer *w, const st_hparams *h) {
  char key[128];
  if (!h->n_expert) return;
  put_u32(w, "expert_count", h->n_expert);
  put_u32(w, "expert_used_count", h->n_expert_used);
  put_u32(w, "expert_feed_forward_length", h->n_ff_expert);
  if (h->n_ff_shared) put_u32(w, "expert_shared_feed_forward_length", h->n_ff_shared);
  snprintf(key, sizeof key, "%s.expert_weights_norm", w->architecture);
  st_keys_bool(w->keys, key, h->router_renormalize);
}

static const char *fn_name(st_activation_fn fn) {
  return fn == ST_FN_SILU ? "silu" : fn == ST_FN_RELU2 ? "relu2" : fn == ST_FN_GELU_TANH ? "gelu_pytorch_tanh" : NULL;
}

static void put_factors(const writer *w, const st_spec *spec, const st_hparams *h) {
  if (spec->gguf_factors) {
    put_f32(w, "embedding_scale", h->embed_scale);
    put_f32(w, "residual_scale", h->residual_scale);
    put_f32(w, "logit_scale", 1 / h->logit_scale);
    if (h->attn_scale != 1.0f / sqrtf((float)h->head_dim)) put_f32(w, "attention.scale", h->attn_scale);
  }
  if (h->logit_softcap > 0) put_f32(w, "final_logit_softcapping", h->logit_softcap);
  if (h->clip_qkv > 0) put_f32(w, "attention.clamp_kqv", h->clip_qkv);
  if (h->fn != spec->defaults.fn && fn_name(h->fn)) put_text(w, "hidden_activation", fn_name(h->fn));
}

// Keys for embeddings. The pooling numbers are those that hparams_gguf.c reads.
static void put_embedding(const writer *w, const st_spec *spec, const st_hparams *h) {
  const st_embedding *e = &h->embedding;
  static const char *const dense[ST_DENSE_MOST][2] = {{"dense_2_feat_in", "dense_2_feat_out"},
                                                      {"dense_3_feat_in", "dense_3_feat_out"}};
  char key[128];
  static const uint32_t types[] = {[SETUN_POOLING_OFF] = 0,
                                   [SETUN_POOLING_MODEL] = 0,
                                   [SETUN_POOLING_MEAN] = 1,
                                   [SETUN_POOLING_CLS] = 2,
                                   [SETUN_POOLING_LAST] = 3};
  if (e->pooling != SETUN_POOLING_MODEL) put_u32(w, "pooling_type", types[e->pooling]);
  for (uint32_t i = 0; i < e->n_dense; i++) {
    put_u32(w, dense[i][0], (uint32_t)e->dense[i].columns);
    put_u32(w, dense[i][1], (uint32_t)e->dense[i].rows);
  }
  if (!h->bidirectional || spec->gguf_bidirectional) return;
  snprintf(key, sizeof key, "%s.attention.causal", w->architecture);
  st_keys_bool(w->keys, key, false);
}

void st_hparams_write_gguf(const st_spec *spec, const st_hparams *h, st_keys *keys) {
  bool other = h->bidirectional && spec->gguf_bidirectional;
  writer w = {keys, other ? spec->gguf_bidirectional : spec->gguf_names[0]};
  st_keys_text(keys, "general.architecture", w.architecture);
  st_keys_text(keys, "general.type", "model");
  put_u32(&w, "block_count", h->n_layer);
  put_u32(&w, "context_length", h->n_ctx_train);
  put_u32(&w, "embedding_length", h->n_embd);
  put_u32(&w, "feed_forward_length", h->n_ff);
  put_u32(&w, "attention.head_count", h->n_head);
  put_u32(&w, "attention.head_count_kv", h->n_head_kv);
  put_u32(&w, "attention.key_length", h->head_dim);
  put_u32(&w, "attention.value_length", h->head_dim);
  put_f32(&w, "attention.layer_norm_rms_epsilon", h->norm_eps);
  put_u32(&w, "vocab_size", h->n_vocab);
  put_windows(&w, h);
  put_rope(&w, h);
  if (spec->gguf_sections) put_sections(&w, h->n_rot / 2);
  put_delta(&w, h);
  put_experts(&w, h);
  put_factors(&w, spec, h);
  put_embedding(&w, spec, h);
}
