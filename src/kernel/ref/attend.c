// Attention over a part of the keys: scores, their exponentials, and the weighted sum of values.
#include "kernel/attend.h"
#include "kernel/ref/ref.h"

#include "base/float16.h"

#include <float.h>
#include <math.h>
#include <string.h>

static float number(const uint8_t *block, setun_kv_type type, size_t i) {
  if (type == SETUN_KV_F16) {
    uint16_t half;
    memcpy(&half, block + 2 * i, sizeof half);
    return st_f32_from_f16(half);
  }
  float x;
  memcpy(&x, block + 4 * i, sizeof x);
  return x;
}

// Scores of keys that are numbers, each at its place.
static void number_scores(const st_attend *a, const uint32_t *pages, const float *q, st_key_range keys, float *scores) {
  for (size_t j = keys.first; j < keys.last; j++) {
    const uint8_t *block = a->k + pages[j / ST_KEYS] * a->page_bytes;
    float s = 0;
    for (size_t d = 0; d < a->head_dim; d++) s = fmaf(q[d], number(block, a->keys, d * ST_KEYS + j % ST_KEYS), s);
    scores[j] = s * a->scale;
  }
}

// Code d of a query.
static int query_code(const st_attend_codes *q, size_t i, uint32_t bits, size_t d) {
  const int8_t *row = q->codes + i * q->row_bytes;
  int16_t wide;
  if (bits == 8) return row[d];
  memcpy(&wide, row + 2 * d, sizeof wide);
  return wide;
}

// Scores of keys that are codes, of query i.
static void code_scores(const st_attend *a, const uint32_t *pages, const st_attend_codes *q, size_t i,
                        st_key_range keys, float *scores) {
  const st_kv_format *f = st_kv_format_of(a->keys);
  for (size_t j = keys.first; j < keys.last; j++) {
    const uint8_t *block = a->k + pages[j / ST_KEYS] * a->page_bytes;
    uint16_t scale;
    int32_t sum = 0;
    memcpy(&scale, block + 2 * (j % ST_KEYS), sizeof scale);
    for (size_t d = 0; d < a->head_dim; d++) {
      sum += st_kv_get(f->key_bits, block, st_kv_code_of(a->keys, true, a->head_dim, j % ST_KEYS, d)) *
             query_code(q, i, f->code_bits, d);
    }
    scores[j] = (float)sum * (st_f32_from_f16(scale) * q->scales[i]);
  }
}

static void number_values(const st_attend *a, const uint32_t *pages, st_key_range keys, const float *factors,
                          float *out) {
  for (size_t j = keys.first; j < keys.last; j++) {
    const uint8_t *block = a->v + pages[j / ST_KEYS] * a->page_bytes;
    for (size_t d = 0; d < a->head_dim; d++) {
      out[d] = fmaf(factors[j], number(block, a->values, j % ST_KEYS * a->head_dim + d), out[d]);
    }
  }
}

// Codes of the factors of a block's keys [first, last), counted from the block's first; their scale.
static float quantize_factors(const uint8_t *block, const float *factors, size_t first, size_t last, float most,
                              int16_t *codes) {
  float scaled[ST_KEYS], largest = 0;
  bool finite = true;
  for (size_t i = first; i < last; i++) {
    uint16_t scale;
    memcpy(&scale, block + 2 * i, sizeof scale);
    scaled[i] = factors[i] * st_f32_from_f16(scale);
    finite &= fabsf(scaled[i]) <= FLT_MAX;
    if (fabsf(scaled[i]) > largest) largest = fabsf(scaled[i]);
  }
  float inverse = finite && largest >= ST_FACTOR_LEAST ? most / largest : 0;
  for (size_t i = first; i < last; i++) codes[i] = (int16_t)(finite ? rintf(scaled[i] * inverse) : 0);
  return finite ? largest / most : NAN;
}

static void code_values(const st_attend *a, const uint32_t *pages, st_key_range keys, const float *factors,
                        float *out) {
  uint32_t bits = st_kv_format_of(a->values)->value_bits;
  for (size_t j = keys.first / ST_KEYS * ST_KEYS; j < keys.last; j += ST_KEYS) {
    const uint8_t *block = a->v + pages[j / ST_KEYS] * a->page_bytes;
    size_t first = keys.first > j ? keys.first - j : 0, last = keys.last - j < ST_KEYS ? keys.last - j : ST_KEYS;
    int16_t codes[ST_KEYS];
    float scale = quantize_factors(block, factors + j, first, last, st_factor_most(a->values), codes);
    for (size_t d = 0; d < a->head_dim; d++) {
      int32_t sum = 0;
      for (size_t i = first; i < last; i++) {
        sum += st_kv_get(bits, block, st_kv_code_of(a->values, false, a->head_dim, i, d)) * codes[i];
      }
      out[d] = fmaf((float)sum, scale, out[d]);
    }
  }
}

// One query, whose scores are made.
static void attend_query(const st_attend *a, const uint32_t *pages, st_key_range keys, size_t head, float *scores,
                         float *out, float *state) {
  float largest = a->sinks ? a->sinks[head] : -INFINITY, lanes[16] = {0};
  for (size_t j = keys.first; j < keys.last; j++) largest = scores[j] > largest ? scores[j] : largest;
  for (size_t j = keys.first; j < keys.last; j++) {
    scores[j] = st_ref_exp(scores[j] - largest);
    lanes[(j - keys.first) % 16] += scores[j];
  }
  state[0] = largest, state[1] = st_ref_sum16(lanes);
  for (size_t d = 0; d < a->head_dim; d++) out[d] = 0;
  if (st_kv_is_codes(a->values))
    code_values(a, pages, keys, scores, out);
  else
    number_values(a, pages, keys, scores, out);
}

void st_ref_attend(const st_attend *a, const st_attend_part *p) {
  const uint32_t *pages = a->pages + p->index * (ST_PART / ST_KEYS);
  for (size_t i = 0, n = st_attend_queries(a); i < n; i++) {
    size_t token = i / a->n_q, head = i % a->n_q;
    st_key_range keys = st_attend_range(a, token, p->index);
    float *scores = p->scores + i * ST_SCORES;
    if (p->queries)
      code_scores(a, pages, p->queries, i, keys, scores);
    else
      number_scores(a, pages, a->q + token * a->token_stride + head * a->q_stride, keys, scores);
    attend_query(a, pages, keys, head, scores, p->out + i * a->head_dim, p->state + 2 * i);
  }
}
