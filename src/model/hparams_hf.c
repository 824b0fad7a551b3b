// Hyperparameters from config.json, in the style of transformers 4 (rope_theta, rope_scaling) and 5 (rope_parameters).
#include "model/hparams_read.h"

#include "base/memory.h"
#include "model/rope.h"
#include "source/hf_quant.h"

#include <math.h>
#include <string.h>

// The object that describes the text model: multimodal checkpoints nest it.
static const st_json *text_config(const st_directory *d) {
  const st_json *inner = st_json_get(d->config, "text_config");
  return st_json_is_object(inner) ? inner : d->config;
}

setun_status st_hf_spec(const st_directory *d, const st_spec **spec, setun_error *err) {
  const char *type = NULL;
  if (!d->config) return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected a model, found only tensors", d->path);
  setun_status s = st_json_text(d->config, "model_type", &type, err);
  if (s != SETUN_OK) return st_fail_in(err, s, "config.json");
  type = st_rotation_plain_type(type);
  *spec = st_spec_find(false, "config.json: model_type", type ? type : "", type ? strlen(type) : 0, err);
  return *spec ? SETUN_OK : SETUN_ERROR_UNSUPPORTED;
}

// A changed base instead of a scaling (Hunyuan): theta * alpha^(d / (d - 2)), for any length. The other members then
// have no effect.
static setun_status read_alpha(const st_json *scaling, uint32_t pairs, st_rope_params *r, setun_error *err) {
  float alpha = 0;
  setun_status s = st_hf_positive(scaling, "alpha", &alpha, err);
  if (s == SETUN_OK) s = st_hf_positive(scaling, "rope_theta", &r->theta, err);
  if (s != SETUN_OK) return st_fail_in(err, s, "rope scaling");
  r->theta = (float)((double)r->theta * pow((double)alpha, 2.0 * pairs / (2.0 * pairs - 2.0)));
  return SETUN_OK;
}

static setun_status rope_type(const char *name, st_rope_scaling *scaling, setun_error *err) {
  static const struct {
    const char *name;
    st_rope_scaling scaling;
  } known[] = {{"default", ST_ROPE_PLAIN}, {"linear", ST_ROPE_LINEAR}, {"llama3", ST_ROPE_LLAMA3},
               {"yarn", ST_ROPE_YARN},     {"longrope", ST_ROPE_LONG}, {"su", ST_ROPE_LONG}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (!strcmp(known[i].name, name)) {
      *scaling = known[i].scaling;
      return SETUN_OK;
    }
  }
  return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                 "rope_type: expected default, linear, llama3, yarn or longrope, found \"%.64s\"", name);
}

// LongRoPE's divisors: one for each pair of a head.
static setun_status read_factors(const st_json *object, const char *key, uint32_t pairs, float **out,
                                 setun_error *err) {
  const st_json *list = st_json_get(object, key);
  if (!st_json_is_array(list) || st_json_size(list) != pairs) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected an array of %u numbers, found %s of %zu", key, pairs,
                   st_json_kind(list), st_json_size(list));
  }
  float *factors = st_calloc(pairs, sizeof *factors);
  if (!factors) return st_fail_memory(err, key);
  for (uint32_t i = 0; i < pairs; i++) {
    const st_json *x = st_json_at(list, i);
    factors[i] = (float)st_json_number(x);
    if (!st_json_is_number(x)) {
      st_free(factors);
      return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected numbers, found %s at index %u", key, st_json_kind(x), i);
    }
  }
  setun_status s = st_rope_check_divisors(key, factors, pairs, err);
  if (s != SETUN_OK) {
    st_free(factors);
    return s;
  }
  st_free(*out);
  *out = factors;
  return SETUN_OK;
}

// RoPE on part of each head.
static setun_status read_partial(const st_json *object, const st_spec *spec, uint32_t head_dim, st_hparams *h,
                                 setun_error *err) {
  float share = 1;
  setun_status s = st_json_f32(object, "partial_rotary_factor", &share, err);
  if (s != SETUN_OK || !st_json_get(object, "partial_rotary_factor")) return s;
  if (share != 1 && !spec->partial_rope) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "partial_rotary_factor: expected 1, found %g", (double)share);
  }
  if (!(share > 0 && share <= 1)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "partial_rotary_factor: expected a number above 0, at most 1, found %g",
                   (double)share);
  }
  h->n_rot = (uint32_t)((double)share * head_dim);
  return SETUN_OK;
}

// YaRN's attention factor as two numbers, which are used only together.
static setun_status read_mscale(const st_json *scaling, st_rope_params *r, setun_error *err) {
  float mscale = 0, all = 0;
  setun_status s = st_json_f32(scaling, "mscale", &mscale, err);
  if (s == SETUN_OK) s = st_json_f32(scaling, "mscale_all_dim", &all, err);
  if (s != SETUN_OK || !mscale || !all || !(r->factor > 1)) return s;
  float log_factor = 0.1f * logf(r->factor);
  r->attention_factor = (mscale * log_factor + 1) / (all * log_factor + 1);
  return SETUN_OK;
}

// The numeric members, all positive. Those without a default in the official class are required; an attention_factor
// with a scaling that does not use one is refused.
static setun_status read_members(const st_json *scaling, st_rope_params *r, setun_error *err) {
  enum {
    LINEAR = 1 << ST_ROPE_LINEAR,
    LLAMA3 = 1 << ST_ROPE_LLAMA3,
    YARN = 1 << ST_ROPE_YARN,
    LONG = 1 << ST_ROPE_LONG
  };
  const struct {
    const char *key;
    float *out;
    unsigned needed, refused; // with these scalings
  } members[] = {{"rope_theta", &r->theta, 0, 0},
                 {"factor", &r->factor, LINEAR | LLAMA3 | YARN, 0},
                 {"low_freq_factor", &r->low_freq_factor, LLAMA3, 0},
                 {"high_freq_factor", &r->high_freq_factor, LLAMA3, 0},
                 {"beta_fast", &r->beta_fast, 0, 0},
                 {"beta_slow", &r->beta_slow, 0, 0},
                 {"attention_factor", &r->attention_factor, 0, ~(unsigned)(YARN | LONG)}};
  for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
    const char *key = members[i].key;
    float x = 0;
    if (!st_json_get(scaling, key)) {
      if (!(members[i].needed & 1u << r->scaling)) continue;
      return st_fail(err, SETUN_ERROR_FORMAT, "rope scaling: %s: expected a number, found none", key);
    }
    setun_status s = st_json_f32(scaling, key, &x, err);
    if (s != SETUN_OK) return st_fail_in(err, s, "rope scaling");
    if (!(x > 0)) {
      return st_fail(err, SETUN_ERROR_FORMAT, "rope scaling: %s: expected a positive number, found %g", key, (double)x);
    }
    if (x != 1 && members[i].refused & 1u << r->scaling) {
      return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                     "rope scaling: %s: expected it with yarn or longrope only, found %g with another rope_type", key,
                     (double)x);
    }
    *members[i].out = x;
  }
  return SETUN_OK;
}

// One object of scaling parameters; `scaling` may be NULL.
static setun_status read_scaling(const st_json *scaling, uint32_t pairs, st_rope_params *r, setun_error *err) {
  const char *type = NULL;
  if (!scaling) return SETUN_OK;
  if (!st_json_is_object(scaling)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "rope scaling: expected an object, found %s", st_json_kind(scaling));
  }
  setun_status s = st_json_text(scaling, "type", &type, err);
  if (s == SETUN_OK) s = st_json_text(scaling, "rope_type", &type, err);
  if (s == SETUN_OK && type && !strcmp(type, "dynamic") && st_json_get(scaling, "alpha") && pairs > 1) {
    return read_alpha(scaling, pairs, r, err);
  }
  // The name in older LongRoPE files; YaRN has no such factors (Phi3Config).
  if (s == SETUN_OK && type && !strcmp(type, "yarn") && st_json_get(scaling, "short_factor")) type = "longrope";
  if (s == SETUN_OK) s = rope_type(type ? type : "default", &r->scaling, err);
  if (s == SETUN_OK) s = read_members(scaling, r, err);
  if (s == SETUN_OK) s = st_json_bool(scaling, "truncate", &r->truncate, err);
  if (s == SETUN_OK && r->scaling == ST_ROPE_YARN && !r->attention_factor) s = read_mscale(scaling, r, err);
  if (s == SETUN_OK) {
    s = st_json_u32(scaling, "original_max_position_embeddings", 1, 1u << 30, &r->original_max_position_embeddings,
                    err);
  }
  if (s == SETUN_OK && r->scaling == ST_ROPE_LONG) {
    s = read_factors(scaling, "short_factor", pairs, &r->short_factor, err);
    if (s == SETUN_OK) s = read_factors(scaling, "long_factor", pairs, &r->long_factor, err);
  }
  return s;
}

// LongRoPE's magnitude follows from the lengths; transformers 5 uses a factor instead if present, transformers 4 does
// not.
static setun_status check_longrope(const st_hparams *h, setun_error *err) {
  const st_rope_params *r = &h->rope;
  uint32_t original = r->original_max_position_embeddings ? r->original_max_position_embeddings : h->n_ctx_train;
  float expected = (float)h->n_ctx_train / (float)original;
  if (r->scaling != ST_ROPE_LONG || r->factor == 1 || fabsf(r->factor - expected) < 1e-3f * expected) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "rope scaling: factor: expected %u tokens by the original %u, found %g",
                 h->n_ctx_train, original, (double)r->factor);
}

static setun_status read_rope(const st_json *c, const st_spec *spec, st_hparams *h, setun_error *err) {
  uint32_t head_dim = h->head_dim ? h->head_dim : h->n_head ? h->n_embd / h->n_head : 0;
  const st_json *modern = st_json_get(c, "rope_parameters"), *own = h->has_rope_local ? modern : NULL;
  const st_json *full = st_json_get(own, "full_attention"), *sliding = st_json_get(own, "sliding_attention");
  setun_status s =
      st_json_u32(c, "original_max_position_embeddings", 1, 1u << 30, &h->rope.original_max_position_embeddings, err);
  if (s == SETUN_OK) s = st_json_f32(c, "rope_theta", &h->rope.theta, err);
  const st_json *objects[] = {c, st_json_get(c, "rope_scaling"), modern, full, sliding};
  for (size_t i = 0; i < sizeof objects / sizeof *objects && s == SETUN_OK; i++) {
    if (objects[i]) s = read_partial(objects[i], spec, head_dim, h, err);
  }
  uint32_t pairs = (h->n_rot ? h->n_rot : head_dim) / 2;
  if (s == SETUN_OK) s = read_scaling(objects[1], pairs, &h->rope, err);
  if (s == SETUN_OK) s = read_scaling(full ? full : modern, pairs, &h->rope, err);
  if (s == SETUN_OK) s = check_longrope(h, err);
  if (s == SETUN_OK && sliding) s = read_scaling(sliding, pairs, &h->rope_local, err);
  if (s == SETUN_OK && h->has_rope_local) s = st_json_f32(c, "rope_local_base_freq", &h->rope_local.theta, err);
  return s;
}

// Whether config.json declares BitNet quantization, packed or latent.
static setun_status read_quantization(const st_json *root, const st_json *c, st_hparams *h, setun_error *err) {
  const st_json *q = st_json_get(root, "quantization_config");
  if (!q) q = st_json_get(c, "quantization_config");
  const char *method = NULL;
  uint32_t weight_bits = 0, input_bits = 0;
  setun_status s = q ? st_json_text(q, "quant_method", &method, err) : SETUN_OK;
  if (s == SETUN_OK && q) s = st_json_bool(q, "use_rms_norm", &h->linear_norm, err);
  if (s == SETUN_OK && q) s = st_json_f32(q, "rms_norm_eps", &h->linear_norm_eps, err);
  if (s == SETUN_OK) s = st_json_u32(c, "weight_bits", 1, 32, &weight_bits, err);
  if (s == SETUN_OK) s = st_json_u32(c, "input_bits", 1, 32, &input_bits, err);
  h->int8 = (method && !strcmp(method, ST_HF_PACKED_METHOD)) || (weight_bits == 1 && input_bits == 8);
  // Setun's own key, for directories whose weights do not show it.
  const char *activation = NULL;
  if (s == SETUN_OK) s = st_json_text(root, "setun_activation", &activation, err);
  if (s == SETUN_OK && activation && strcmp(activation, "int8") && strcmp(activation, "float")) {
    s = st_fail(err, SETUN_ERROR_FORMAT, "setun_activation: expected int8 or float, found \"%.64s\"", activation);
  }
  if (activation) h->int8 = !strcmp(activation, "int8");
  return s;
}

setun_status st_hf_positive(const st_json *c, const char *key, float *out, setun_error *err) {
  setun_status s = st_json_f32(c, key, out, err);
  if (s != SETUN_OK || !st_json_is_number(st_json_get(c, key)) || *out > 0) return s;
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a positive number, found %g", key, (double)*out);
}

static setun_status read_numbers(const st_json *c, st_hparams *h, setun_error *err) {
  const struct {
    const char *key;
    uint32_t *out;
  } numbers[] = {{"num_hidden_layers", &h->n_layer},  {"hidden_size", &h->n_embd},
                 {"num_attention_heads", &h->n_head}, {"num_key_value_heads", &h->n_head_kv},
                 {"head_dim", &h->head_dim},          {"intermediate_size", &h->n_ff},
                 {"vocab_size", &h->n_vocab},         {"max_position_embeddings", &h->n_ctx_train}};
  // An explicit null means one KV head per head, and the width divided by the heads, regardless of the family's
  // defaults.
  if (st_json_is_null(st_json_find(c, "num_key_value_heads"))) h->n_head_kv = 0;
  if (st_json_is_null(st_json_find(c, "head_dim"))) h->head_dim = 0;
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers && s == SETUN_OK; i++) {
    s = st_json_u32(c, numbers[i].key, 1, 1u << 30, numbers[i].out, err);
  }
  if (s == SETUN_OK) s = st_json_f32(c, "rms_norm_eps", &h->norm_eps, err);
  return s;
}

// Biases of q, k, v and o, where the family's class has the switch.
static setun_status read_bias(const st_json *c, const st_spec *spec, st_hparams *h, setun_error *err) {
  const char key[] = "attention_bias";
  if (!st_json_get(c, key) || st_fact_find(spec, ST_HUGGINGFACE, key, sizeof key - 1)->use != ST_FACT_USED) {
    return SETUN_OK;
  }
  setun_status s = st_json_bool(c, key, &h->qkv_bias, err);
  h->o_bias = h->qkv_bias;
  return s;
}

static setun_status read_activation(const st_json *c, st_hparams *h, setun_error *err) {
  const char *name = NULL, *key = "hidden_activation";
  setun_status s = st_json_text(c, key, &name, err);
  if (s == SETUN_OK && !name) s = st_json_text(c, key = "hidden_act", &name, err);
  return s == SETUN_OK && name ? st_hparams_fn(key, name, strlen(name), &h->fn, err) : s;
}

setun_status st_hf_experts(const st_json *c, st_hparams *h, setun_error *err) {
  const struct {
    const char *key;
    uint32_t low, *out;
  } numbers[] = {{"num_experts", 1, &h->n_expert}, // one number with two names; each file has one of them
                 {"num_local_experts", 1, &h->n_expert},
                 {"num_experts_per_tok", 1, &h->n_expert_used},
                 {"moe_intermediate_size", 1, &h->n_ff_expert},
                 {"shared_expert_intermediate_size", 0, &h->n_ff_shared}};
  uint32_t step = 1;
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers && s == SETUN_OK; i++) {
    s = st_json_u32(c, numbers[i].key, numbers[i].low, 1u << 30, numbers[i].out, err);
  }
  if (s == SETUN_OK) s = st_json_bool(c, "norm_topk_prob", &h->router_renormalize, err);
  if (s == SETUN_OK) s = st_json_u32(c, "decoder_sparse_step", 1, 1u << 20, &step, err);
  if (s != SETUN_OK) return s;
  for (uint32_t i = 0; i < h->n_layer && i < ST_MAX_LAYERS; i++) h->sparse[i] = (i + 1) % step == 0;
  const st_json *dense = st_json_get(c, "mlp_only_layers");
  if (dense && !st_json_is_array(dense)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "mlp_only_layers: expected an array, found %s", st_json_kind(dense));
  }
  for (size_t i = 0; i < st_json_size(dense); i++) {
    double layer = st_json_number(st_json_at(dense, i));
    if (!st_json_is_number(st_json_at(dense, i)) || layer != floor(layer)) {
      return st_fail(err, SETUN_ERROR_FORMAT, "mlp_only_layers: expected integers, found %s at index %zu",
                     st_json_is_number(st_json_at(dense, i)) ? "a fraction" : st_json_kind(st_json_at(dense, i)), i);
    }
    // The official lists may name layers beyond a smaller model's last.
    if (layer >= 0 && layer < h->n_layer && layer < ST_MAX_LAYERS) h->sparse[(size_t)layer] = false;
  }
  return SETUN_OK;
}

setun_status st_hf_hparams(const st_directory *d, const st_spec *spec, st_hparams *h, setun_error *err) {
  const st_json *c = text_config(d), *inner = st_json_get(d->config, "text_config");
  if (inner && c != inner) {
    return st_fail(err, SETUN_ERROR_FORMAT, "config.json: text_config: expected an object, found %s",
                   st_json_kind(inner));
  }
  setun_status s = read_numbers(c, h, err);
  if (s == SETUN_OK) s = read_bias(c, spec, h, err);
  if (s == SETUN_OK) s = st_json_bool(d->config, "tie_word_embeddings", &h->tied, err); // a wrapper's
  if (s == SETUN_OK) s = st_json_bool(c, "tie_word_embeddings", &h->tied, err);
  if (s == SETUN_OK) s = read_activation(c, h, err);
  if (s == SETUN_OK) s = read_rope(c, spec, h, err);
  if (s == SETUN_OK) s = read_quantization(d->config, c, h, err);
  if (s == SETUN_OK) s = st_hf_windows(c, spec, h, err);
  if (s == SETUN_OK && spec->read_hf) s = spec->read_hf(c, h, err);
  return s == SETUN_OK ? s : st_fail_in(err, s, "config.json");
}
