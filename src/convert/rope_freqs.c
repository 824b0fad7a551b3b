// RoPE scalings that are numbers in config.json and tensors of divisors in GGUF, in both directions.
#include "convert/conversion.h"

#include "base/memory.h"
#include "model/rope.h"

#include <math.h>
#include <string.h>

// Llama 3.1's divisor for a pair with this frequency: 1 for short wavelengths, the factor for long ones, a ramp in
// between.
static float llama3_divisor(const st_rope_params *r, float frequency) {
  double original = r->original_max_position_embeddings ? r->original_max_position_embeddings : 8192;
  double low = r->low_freq_factor != 0 ? (double)r->low_freq_factor : 1;
  double high = r->high_freq_factor != 0 ? (double)r->high_freq_factor : 4;
  double wavelength = 2 * 3.14159265358979323846 / (double)frequency;
  if (wavelength < original / high) return 1;
  if (wavelength > original / low) return r->factor;
  double smooth = (original / wavelength - low) / (high - low);
  return (float)(1 / ((1 - smooth) / (double)r->factor + smooth));
}

// The same as llama.cpp's converter computes it with tensors: in float32 throughout.
static float llama3_divisor_f32(const st_rope_params *r, float frequency) {
  float original = (float)r->original_max_position_embeddings, low = r->low_freq_factor, high = r->high_freq_factor;
  float wavelength = (float)(2 * 3.14159265358979323846) / frequency;
  if (wavelength < original / high) return 1;
  if (wavelength > original / low) return r->factor;
  float smooth = (original / wavelength - low) / (high - low);
  return 1 / ((1 - smooth) / r->factor + smooth);
}

static float frequency_of(const st_hparams *h, uint32_t pair) {
  return 1.0f / powf(h->rope.theta, (float)(2 * pair) / (float)h->n_rot);
}

// A tensor of n_rot / 2 floats; `values` NULL: Llama 3's.
static setun_status add(st_conversion *p, st_role role, const float *values, setun_error *err) {
  char name[ST_USE_NAME];
  uint32_t pairs = p->h.n_rot / 2;
  st_tensor_use place = {.known = true, .role = role};
  if (!st_use_name(p->target_spec, true, &place, name)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "RoPE scaling: %s has no tensor for its divisors in GGUF",
                   p->target_spec->name);
  }
  st_buffer full = {0};
  st_item *item = st_conversion_add(p);
  if (!item || !st_buffer_format(&full, "%s.weight", name)) return st_fail_memory(err, name);
  *item = (st_item){.name = full.data,
                    .place = place,
                    .kind = ST_ITEM_SCALES,
                    .format = st_format_of_floats(),
                    .n_dims = 1,
                    .dims = {pairs, 1, 1, 1},
                    .shape = {1, pairs},
                    .n_scales = pairs};
  item->scales = st_malloc(pairs, sizeof *item->scales);
  if (!item->scales) return st_fail_memory(err, name);
  for (uint32_t i = 0; i < pairs; i++) {
    item->scales[i] = values ? values[i] : llama3_divisor(&p->h.rope, frequency_of(&p->h, i));
  }
  return SETUN_OK;
}

setun_status st_conversion_rope(st_conversion *p, setun_error *err) {
  st_rope_params *r = &p->h.rope;
  if (!p->to_gguf || p->from_gguf || !p->has_hparams) return SETUN_OK;
  setun_status s = SETUN_OK;
  for (int role = 0; role < ST_ROLE_COUNT && s == SETUN_OK; role++) {
    if (st_role_get((st_role)role)->kind != ST_KIND_TABLE) continue;
    float **factors = st_role_rope_factors(r, (st_role)role);
    if (r->scaling == (factors ? ST_ROPE_LONG : ST_ROPE_LLAMA3)) {
      s = add(p, (st_role)role, factors ? *factors : NULL, err);
    }
  }
  return s;
}

// ---- from divisors to the rule ------------------------------------------------------------------------------------

// Whether the rule reproduces the divisor to the last bit, at the pair's frequency or a neighbouring one: math
// libraries' powers differ in the last bit.
static bool gives_one(const st_rope_params *rule, float frequency, float divisor) {
  const float near[] = {frequency, nextafterf(frequency, 0), nextafterf(frequency, 2)};
  for (size_t i = 0; i < sizeof near / sizeof *near; i++) {
    if (llama3_divisor(rule, near[i]) == divisor || llama3_divisor_f32(rule, near[i]) == divisor) return true;
  }
  return false;
}

static bool gives(const st_hparams *h, const st_rope_params *rule, const float *divisors) {
  for (uint32_t i = 0; i < h->n_rot / 2; i++) {
    if (!gives_one(rule, frequency_of(h, i), divisors[i])) return false;
  }
  return true;
}

// Fits the ramp, where the reciprocal of a divisor is linear in the frequency. With a low factor of 1, as in all
// published models (any other is the same rule with all three numbers scaled).
static bool fit(const st_hparams *h, const float *divisors, st_rope_params *rule) {
  double x[2], y[2], f = (double)rule->factor;
  int n = 0;
  for (uint32_t i = 0; i < h->n_rot / 2; i++) {
    if (divisors[i] == 1 || divisors[i] == rule->factor) continue;
    int at = n ? 1 : 0; // the first and the last of the ramp
    x[at] = (double)frequency_of(h, i) / (2 * 3.14159265358979323846);
    y[at] = (1 / (double)divisors[i] - 1 / f) / (1 - 1 / f);
    n++;
  }
  if (n < 2) return false;
  double slope = (y[0] - y[1]) / (x[0] - x[1]), below = slope * x[0] - y[0];
  double original = slope / below, high = 1 + 1 / below;
  if (!(original >= 1 && original < 1 << 30 && high > 1 && high < 1 << 20)) return false;
  rule->original_max_position_embeddings = (uint32_t)(original + 0.5);
  rule->high_freq_factor = roundf((float)high * 16) / 16;
  return true;
}

// The first rule that reproduces the divisors: the fitted one, then the usual ones.
static bool find_rule(const st_hparams *h, const float *divisors, st_rope_params *rule) {
  static const float usual[] = {4, 2, 8, 16, 32};
  *rule = h->rope;
  rule->scaling = ST_ROPE_LLAMA3;
  rule->factor = divisors[h->n_rot / 2 - 1];
  rule->low_freq_factor = 1;
  if (!(rule->factor > 1)) return false;
  if (fit(h, divisors, rule) && gives(h, rule, divisors)) return true;
  for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
    for (uint32_t original = 16; original <= 1u << 20; original *= 2) {
      rule->high_freq_factor = usual[i];
      rule->original_max_position_embeddings = original;
      if (gives(h, rule, divisors)) return true;
    }
  }
  return false;
}

bool st_conversion_is_rope_rule(const st_conversion *p, const st_bound *bound) {
  return st_role_get(bound->role)->kind == ST_KIND_TABLE && p->from_gguf && !p->to_gguf;
}

setun_status st_conversion_rope_rule(st_conversion *p, st_role role, const st_weight *divisors, setun_error *err) {
  float **factors = st_role_rope_factors(&p->h.rope, role);
  uint32_t pairs = p->h.n_rot / 2;
  float *values = st_malloc(pairs, sizeof *values);
  if (!values) return st_fail_memory(err, divisors->name);
  st_row_reader r;
  setun_status s = st_row_reader_open(p->d, divisors, &r, err);
  if (s == SETUN_OK) {
    s = st_read_floats(&r, 0, 1, values, err);
    st_row_reader_close(&r);
  }
  if (s == SETUN_OK) s = st_rope_check_divisors(divisors->name, values, pairs, err);
  if (s == SETUN_OK && factors) { // LongRoPE's divisors, which config.json lists
    st_free(*factors);
    *factors = values;
    return SETUN_OK;
  }
  st_rope_params rule;
  if (s == SETUN_OK && p->h.rope.scaling == ST_ROPE_PLAIN && find_rule(&p->h, values, &rule)) {
    p->h.rope = rule;
  } else if (s == SETUN_OK) {
    s = st_fail(err, SETUN_ERROR_UNSUPPORTED,
                "%s: expected the divisors of Llama 3's RoPE scaling, which config.json can state, found others",
                divisors->name);
  }
  st_free(values);
  return s;
}
