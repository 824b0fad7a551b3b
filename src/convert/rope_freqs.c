// RoPE scalings that config.json says in numbers and GGUF in tensors of divisors.
#include "convert/plan.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

// Llama 3.1's divisor for a pair of that frequency: 1 for short wavelengths, the factor for long ones, a ramp between.
static float llama3_divisor(const st_rope_params *r, double frequency) {
  double original = r->original_max_position_embeddings ? r->original_max_position_embeddings : 8192;
  double low = r->low_freq_factor != 0 ? (double)r->low_freq_factor : 1;
  double high = r->high_freq_factor != 0 ? (double)r->high_freq_factor : 4;
  double wavelength = 2 * 3.14159265358979323846 / frequency;
  if (wavelength < original / high) return 1;
  if (wavelength > original / low) return r->factor;
  double smooth = (original / wavelength - low) / (high - low);
  return (float)(1 / ((1 - smooth) / (double)r->factor + smooth));
}

// A tensor of head_dim / 2 floats; `values` NULL: Llama 3's.
static setun_status add(st_plan *p, st_role role, const float *values, setun_error *err) {
  char name[ST_PLACE_NAME];
  uint32_t pairs = p->h.head_dim / 2;
  st_place place = {.known = true, .role = role};
  if (!st_place_name(p->target_spec, true, &place, name)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "RoPE scaling: %s has no tensor for its divisors in GGUF",
                   p->target_spec->name);
  }
  st_buffer full = {0};
  st_item *item = st_plan_add(p);
  if (!item || !st_buffer_format(&full, "%s.weight", name)) return st_fail_memory(err, name);
  *item = (st_item){.name = full.data,
                    .place = place,
                    .how = ST_HOW_SCALES,
                    .format = st_format_get(ST_F32),
                    .n_dims = 1,
                    .dims = {pairs, 1, 1, 1},
                    .shape = {1, pairs},
                    .n_scales = pairs};
  item->scales = st_malloc(pairs, sizeof *item->scales);
  if (!item->scales) return st_fail_memory(err, name);
  for (uint32_t i = 0; i < pairs; i++) {
    double frequency = (double)(1.0f / powf(p->h.rope.theta, (float)(2 * i) / (float)p->h.head_dim));
    item->scales[i] = values ? values[i] : llama3_divisor(&p->h.rope, frequency);
  }
  return SETUN_OK;
}

setun_status st_plan_rope(st_plan *p, setun_error *err) {
  const st_rope_params *r = &p->h.rope;
  if (!p->to_gguf || p->from_gguf || !p->has_hparams) return SETUN_OK;
  if (r->scaling == ST_ROPE_LLAMA3) return add(p, ST_ROPE_FREQS, NULL, err);
  if (r->scaling != ST_ROPE_LONG) return SETUN_OK;
  setun_status s = add(p, ST_ROPE_SHORT, r->short_factor, err);
  return s == SETUN_OK ? add(p, ST_ROPE_LONG_FACTORS, r->long_factor, err) : s;
}
