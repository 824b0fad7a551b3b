// Hyperparameters from GGUF metadata: keys that begin with the architecture's name.
#include "model/facts.h"
#include "model/hparams_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

setun_status st_gguf_spec(const st_directory *d, const st_spec **spec, setun_error *err) {
  st_text name = {0};
  setun_status s = st_facts_check_type(&d->metadata, err);
  if (s == SETUN_OK) s = st_metadata_text(&d->metadata, "general.architecture", &name, err);
  if (s != SETUN_OK) return s;
  if (!name.data) return st_fail(err, SETUN_ERROR_FORMAT, "general.architecture: expected a string, found none");
  *spec = st_spec_find(true, "general.architecture", name.data, name.length, err);
  return *spec ? SETUN_OK : SETUN_ERROR_UNSUPPORTED;
}

// A reader of one file's keys: after a failure, later steps do nothing.
typedef struct {
  const st_metadata *m;
  bool defaults;       // absent keys have the family's defaults
  const char *scaling; // RoPE scaling where no key names one; NULL: none
  char architecture[64];
  setun_status status;
  setun_error *err;
} keys;

static const char *full_key(const keys *k, const char *name, char out[128]) {
  snprintf(out, 128, "%s.%s", k->architecture, name);
  return out;
}

static void get_u32(keys *k, const char *name, uint32_t *out) {
  char key[128];
  if (k->status == SETUN_OK) k->status = st_metadata_u32(k->m, full_key(k, name, key), 0, 1u << 30, out, k->err);
}

static void need(keys *k, const char *name, const char *expected) {
  char key[128];
  if (k->status != SETUN_OK || st_metadata_find(k->m, full_key(k, name, key)) || k->defaults) return;
  k->status = st_fail(k->err, SETUN_ERROR_FORMAT, "%s: expected %s, found none", key, expected);
}

static void need_u32(keys *k, const char *name, uint32_t *out) {
  need(k, name, "a positive integer");
  get_u32(k, name, out);
}

// One number for all layers, or an array with one number per layer, all equal.
static void get_layers_u32(keys *k, const char *name, uint32_t n_layer, uint32_t *out) {
  char key[128];
  const st_meta *item = k->status == SETUN_OK ? st_metadata_find(k->m, full_key(k, name, key)) : NULL;
  if (!item || item->type != ST_META_ARRAY || !st_meta_is_integer(item->element)) {
    get_u32(k, name, out);
    return;
  }
  double first = item->count ? st_meta_number(item, 0) : 0;
  if (item->count != n_layer || first < 0 || first > 1u << 30) {
    k->status = st_fail(k->err, SETUN_ERROR_FORMAT,
                        "%s: expected %u integers from 0 to 1073741824, one per layer, found %llu, the first %.0f", key,
                        n_layer, (unsigned long long)item->count, first);
    return;
  }
  for (uint64_t i = 1; i < item->count; i++) {
    double x = st_meta_number(item, i);
    if (x == first) continue;
    k->status = st_fail(k->err, SETUN_ERROR_UNSUPPORTED,
                        "%s: expected the same number in all layers, found %.0f and %.0f", key, first, x);
    return;
  }
  *out = (uint32_t)first;
}

// A key that may only repeat a value known from elsewhere.
static void same_u32(keys *k, const char *name, const char *what, uint32_t expected) {
  char key[128];
  uint32_t found = expected;
  get_u32(k, name, &found);
  if (k->status != SETUN_OK || found == expected) return;
  k->status = st_fail(k->err, SETUN_ERROR_UNSUPPORTED, "%s: expected %s %u, found %u", full_key(k, name, key), what,
                      expected, found);
}

static void get_f32(keys *k, const char *name, float *out) {
  char key[128];
  if (k->status == SETUN_OK) k->status = st_metadata_f32(k->m, full_key(k, name, key), out, k->err);
}

static bool is(st_text t, const char *text) {
  return t.length == strlen(text) && !memcmp(t.data, text, t.length);
}

// A factor that files contain only where it applies: 0 means none.
static void get_factor(keys *k, const char *name, float *out) {
  char key[128];
  float x = 0;
  get_f32(k, name, &x);
  if (k->status == SETUN_OK && x < 0) {
    k->status = st_fail(k->err, SETUN_ERROR_FORMAT, "%s: expected a positive number, found %g", full_key(k, name, key),
                        (double)x);
  }
  if (x > 0) *out = x;
}

// The factor of any scaling; older files call it scale_linear for every type.
static void read_stretch(keys *k, float *out) {
  char key[128];
  float older = 0, factor = 0;
  get_factor(k, "rope.scale_linear", &older);
  get_factor(k, "rope.scaling.factor", &factor);
  if (k->status == SETUN_OK && older != 0 && factor != 0 && older != factor) {
    k->status = st_fail(k->err, SETUN_ERROR_UNSUPPORTED, "%s: expected rope.scaling.factor, %g, found %g",
                        full_key(k, "rope.scale_linear", key), (double)factor, (double)older);
  }
  if (factor > 0) *out = factor;
  if (older > 0 && !(factor > 0)) *out = older;
}

// A parameter that only some scalings have.
static void refuse_with(keys *k, const char *name, const char *neutral, const char *others, float found) {
  char key[128];
  if (k->status != SETUN_OK) return;
  k->status = st_fail(k->err, SETUN_ERROR_UNSUPPORTED, "%s: expected %s where the scaling is %s, found %g",
                      full_key(k, name, key), neutral, others, (double)found);
}

static void read_rope(keys *k, st_rope_params *r) {
  char key[128];
  st_text type = {0};
  float attention = 1, extra = 1, extrapolation = -1; // below 0: the type's default
  get_f32(k, "rope.freq_base", &r->theta);
  if (k->status == SETUN_OK) k->status = st_metadata_text(k->m, full_key(k, "rope.scaling.type", key), &type, k->err);
  if (!type.data && k->scaling) type = (st_text){k->scaling, strlen(k->scaling)};
  read_stretch(k, &r->factor);
  get_u32(k, "rope.scaling.original_context_length", &r->original_max_position_embeddings);
  get_factor(k, "rope.scaling.yarn_beta_fast", &r->beta_fast);
  get_factor(k, "rope.scaling.yarn_beta_slow", &r->beta_slow);
  get_factor(k, "rope.scaling.yarn_attn_factor", &attention);
  get_factor(k, "rope.scaling.attn_factor", &extra);
  get_f32(k, "rope.scaling.yarn_ext_factor", &extrapolation);
  bool yarn = type.data && is(type, "yarn"), longrope = type.data && is(type, "longrope");
  if (extrapolation > 0 && !yarn) refuse_with(k, "rope.scaling.yarn_ext_factor", "0", "not YaRN", extrapolation);
  if (!yarn && !longrope) {
    const char *other = "neither YaRN nor LongRoPE";
    if (attention != 1) refuse_with(k, "rope.scaling.yarn_attn_factor", "1", other, attention);
    if (extra != 1) refuse_with(k, "rope.scaling.attn_factor", "1", other, extra);
  }
  if (longrope && r->factor != 1) refuse_with(k, "rope.scaling.factor", "1", "LongRoPE", r->factor);
  if (k->status != SETUN_OK || (type.data && is(type, "none"))) return;
  if (!type.data || is(type, "linear")) { // older files give a factor alone
    if (type.data || r->factor != 1) r->scaling = ST_ROPE_LINEAR;
  } else if (yarn) {
    r->scaling = ST_ROPE_YARN;
    if (extrapolation >= 0) r->extrapolation = extrapolation;
    bool given = st_metadata_find(k->m, full_key(k, "rope.scaling.yarn_attn_factor", key)) != NULL;
    bool stretches = r->factor > 1 && r->extrapolation > 0 && !given;
    r->attention_factor = (stretches ? 0.1f * logf(r->factor) + 1 : attention) * extra;
  } else if (longrope) {
    r->scaling = ST_ROPE_LONG; // its factors are tensors
    if (attention * extra != 1) r->attention_factor = attention * extra;
  } else {
    k->status = st_fail(k->err, SETUN_ERROR_UNSUPPORTED, "%s: expected none, linear, yarn or longrope, found \"%.*s\"",
                        full_key(k, "rope.scaling.type", key), (int)(type.length < 64 ? type.length : 64), type.data);
  }
}

// Some tensor layouts are used only by int8 models and imply them; see docs/formats.md.
static bool prescribes_int8(const st_directory *d, const st_spec *spec) {
  return spec->gguf_int8 || st_directory_has_int8_layouts(d);
}

static void read_activations(keys *k, const st_directory *d, const st_spec *spec, st_hparams *h) {
  char key[128];
  st_text text = {0};
  if (k->status == SETUN_OK) k->status = st_metadata_text(k->m, full_key(k, "hidden_activation", key), &text, k->err);
  if (k->status == SETUN_OK && text.data) k->status = st_hparams_fn(key, text.data, text.length, &h->fn, k->err);
  text = (st_text){0};
  h->int8 = prescribes_int8(d, spec);
  if (k->status == SETUN_OK) k->status = st_metadata_text(k->m, "setun.activation", &text, k->err);
  if (k->status != SETUN_OK || !text.data) return;
  if (!is(text, "int8") && !is(text, "float")) {
    k->status = st_fail(k->err, SETUN_ERROR_FORMAT, "setun.activation: expected int8 or float, found \"%.*s\"",
                        (int)(text.length < 64 ? text.length : 64), text.data);
  }
  h->int8 = is(text, "int8");
}

// A tensor of the first layer that has one: "blk.%u.NAME".
static const st_tensor *first_tensor(const st_directory *d, const char *name, uint32_t n_layer) {
  for (uint32_t i = 0; i < n_layer && i < ST_MAX_LAYERS; i++) {
    char full[96];
    snprintf(full, sizeof full, "blk.%u.%s", i, name);
    const st_tensor *t = st_directory_find(d, full);
    if (t) return t;
  }
  return NULL;
}

// The width of feed-forward parts for which older files have no key: the rows of the tensors.
static void width_from(const st_directory *d, const st_hparams *h, const char *name, uint32_t *out) {
  const st_tensor *t = *out ? NULL : first_tensor(d, name, h->n_layer);
  if (t && t->dims[1] < 1u << 30) *out = (uint32_t)t->dims[1];
}

// Dense layers among expert layers are recognized by their tensors.
static void read_experts(keys *k, const st_directory *d, st_hparams *h) {
  char key[128];
  uint32_t gating = 0;
  float scale = 1;
  bool some = false;
  h->n_expert = h->n_expert_used = h->n_ff_expert = h->n_ff_shared = 0;
  get_u32(k, "expert_count", &h->n_expert);
  get_u32(k, "expert_used_count", &h->n_expert_used);
  get_u32(k, "expert_feed_forward_length", &h->n_ff_expert);
  get_u32(k, "expert_shared_feed_forward_length", &h->n_ff_shared);
  get_u32(k, "expert_gating_func", &gating);
  get_f32(k, "expert_weights_scale", &scale);
  if (k->status == SETUN_OK) {
    k->status = st_metadata_bool(k->m, full_key(k, "expert_weights_norm", key), &h->router_renormalize, k->err);
  }
  if (k->status != SETUN_OK || !h->n_expert) return;
  enum { SOFTMAX = 1, SIGMOID, SOFTMAX_OF_CHOSEN };
  if (gating == SIGMOID || gating > SOFTMAX_OF_CHOSEN || (scale != 0 && scale != 1)) {
    k->status =
        st_fail(k->err, SETUN_ERROR_UNSUPPORTED,
                "%s.expert_gating_func, expert_weights_scale: expected a softmax and no factor, found %u and %g",
                k->architecture, gating, (double)scale);
    return;
  }
  if (gating) h->router = gating == SOFTMAX_OF_CHOSEN ? ST_ROUTER_CHOSEN : ST_ROUTER_ALL;
  width_from(d, h, "ffn_gate_exps.weight", &h->n_ff_expert);
  width_from(d, h, "ffn_gate.0.weight", &h->n_ff_expert);
  width_from(d, h, "ffn_gate_shexp.weight", &h->n_ff_shared);
  for (uint32_t i = 0; i < h->n_layer && i < ST_MAX_LAYERS; i++) {
    char dense[64];
    snprintf(dense, sizeof dense, "blk.%u.ffn_gate.weight", i);
    h->sparse[i] = !st_directory_find(d, dense);
    some = some || h->sparse[i];
  }
  if (some) return;
  k->status = st_fail(k->err, SETUN_ERROR_UNSUPPORTED, "%s: expected 0 where no layer has experts, found %u",
                      full_key(k, "expert_count", key), h->n_expert);
}

static void read_factors(keys *k, st_hparams *h) {
  float divisor = 1;
  get_factor(k, "embedding_scale", &h->embed_scale);
  get_factor(k, "residual_scale", &h->residual_scale);
  get_factor(k, "logit_scale", &divisor);
  get_factor(k, "attention.scale", &h->attn_scale);
  get_factor(k, "final_logit_softcapping", &h->logit_softcap);
  get_factor(k, "attention.clamp_kqv", &h->clip_qkv);
  h->logit_scale = 1 / divisor;
}

// RoPE rotates whole heads, except in families with a dimension count, with one table, or a second one for sliding
// layers in families that have it.
static void check_rope(keys *k, const st_spec *spec, st_hparams *h) {
  char key[128];
  uint32_t head_dim = h->head_dim ? h->head_dim : h->n_head ? h->n_embd / h->n_head : 0;
  static const char *const sizes[] = {"rope.dimension_count", "rope.dimension_count_swa", "attention.value_length",
                                      "attention.key_length_swa", "attention.value_length_swa"};
  if (spec->partial_rope) get_u32(k, sizes[0], &h->n_rot);
  for (size_t i = spec->partial_rope; i < sizeof sizes / sizeof *sizes && head_dim; i++)
    same_u32(k, sizes[i], "the head size", head_dim);
  float local = h->rope.theta;
  if (h->has_rope_local) return;
  get_f32(k, "rope.freq_base_swa", &local);
  if (k->status != SETUN_OK || local == h->rope.theta) return;
  k->status = st_fail(k->err, SETUN_ERROR_UNSUPPORTED, "%s: expected rope.freq_base, %g, found %g",
                      full_key(k, "rope.freq_base_swa", key), (double)h->rope.theta, (double)local);
}

// Whether attention is bidirectional: by the architecture's name, where the window key gives twice the reach, or by a
// key, which leaves the reach of windows open.
static void read_direction(keys *k, const st_spec *spec, st_hparams *h) {
  char key[128];
  bool causal = true, sliding = false;
  h->bidirectional = spec->gguf_bidirectional && !strcmp(k->architecture, spec->gguf_bidirectional);
  if (h->bidirectional) {
    h->direction_key = "general.architecture";
    if (h->window) h->window = h->window / 2 + 1;
    return;
  }
  if (k->status == SETUN_OK) k->status = st_metadata_bool(k->m, full_key(k, "attention.causal", key), &causal, k->err);
  if (k->status != SETUN_OK || causal) return;
  h->bidirectional = true;
  h->direction_key = "attention.causal";
  for (uint32_t i = 0; i < h->n_layer && i < ST_MAX_LAYERS; i++) sliding = sliding || (h->window && h->sliding[i]);
  if (!sliding) return;
  k->status = st_fail(k->err, SETUN_ERROR_UNSUPPORTED, "%s: expected true with a sliding window, found false", key);
}

// The vocabulary's size is the number of the embedding's rows.
static setun_status read_vocabulary_size(const st_directory *d, st_hparams *h, setun_error *err) {
  const st_tensor *t = st_directory_find(d, "token_embd.weight");
  if (!t) return st_fail(err, SETUN_ERROR_FORMAT, "token_embd.weight: expected the embedding, found none");
  uint64_t rows = st_tensor_shape(t).rows;
  if (rows > 1u << 28) {
    return st_fail(err, SETUN_ERROR_LIMIT, "token_embd.weight: expected at most %u rows, found %llu", 1u << 28,
                   (unsigned long long)rows);
  }
  h->n_vocab = (uint32_t)rows;
  return SETUN_OK;
}

setun_status st_gguf_hparams(const st_directory *d, const st_spec *spec, st_hparams *h, setun_error *err) {
  keys k = {.m = &d->metadata, .defaults = spec->gguf_defaults, .status = SETUN_OK, .err = err};
  if (spec->gguf_longrope && st_directory_find(d, "rope_factors_long.weight")) k.scaling = "longrope";
  st_text name = st_metadata_find(&d->metadata, "general.architecture")->as.text;
  snprintf(k.architecture, sizeof k.architecture, "%.*s", (int)name.length, name.data);
  need_u32(&k, "block_count", &h->n_layer);
  need_u32(&k, "embedding_length", &h->n_embd);
  need(&k, "attention.head_count", "a positive integer");
  get_layers_u32(&k, "attention.head_count", h->n_layer, &h->n_head);
  char key[128];
  bool experts = st_metadata_find(k.m, full_key(&k, "expert_count", key)) != NULL; // possibly in all layers
  if (!experts) need(&k, "feed_forward_length", "a positive integer");
  get_layers_u32(&k, "feed_forward_length", h->n_layer, &h->n_ff);
  if (!k.defaults || st_metadata_find(k.m, full_key(&k, "attention.head_count", key))) h->n_head_kv = 0;
  get_layers_u32(&k, "attention.head_count_kv", h->n_layer, &h->n_head_kv);
  h->head_dim = 0;
  get_u32(&k, "attention.key_length", &h->head_dim);
  need_u32(&k, "context_length", &h->n_ctx_train);
  need(&k, "attention.layer_norm_rms_epsilon", "a number");
  get_f32(&k, "attention.layer_norm_rms_epsilon", &h->norm_eps);
  read_rope(&k, &h->rope);
  read_activations(&k, d, spec, h);
  read_experts(&k, d, h);
  read_factors(&k, h);
  check_rope(&k, spec, h);
  if (k.status == SETUN_OK) k.status = st_gguf_windows(&d->metadata, k.architecture, spec, h, err);
  h->interleaved = spec->gguf_interleaved;
  h->norm_plus_one = false; // GGUF files store 1 + w
  h->tied = !st_directory_find(d, "output.weight");
  read_direction(&k, spec, h);
  if (k.status == SETUN_OK) k.status = read_vocabulary_size(d, h, err);
  same_u32(&k, "vocab_size", "the embedding's rows,", h->n_vocab);
  h->delta.tiled = spec->gguf_tiled;
  h->delta.joined_mixed = first_tensor(d, "ssm_in.weight", h->n_layer) != NULL; // older Qwen3-Next files
  if (k.status == SETUN_OK && spec->read_gguf) k.status = spec->read_gguf(&d->metadata, k.architecture, h, err);
  return k.status;
}
