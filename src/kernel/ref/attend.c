// Attention over a part of the keys: scores, their exponentials, and the weighted sum of values.
#include "kernel/attend.h"
#include "kernel/ref/ref.h"

#include "base/float16.h"

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

// Column d of the value of a position.
static float value(const st_attend *a, const uint8_t *block, size_t at, size_t d) {
  const st_kv_format *f = st_kv_format_of(a->values);
  if (f->form == ST_FORM_COUNT) return number(block, a->values, at * a->head_dim + d);
  uint8_t byte = block[st_kv_code_at(f->bits, a->head_dim, at, d)];
  uint16_t scale;
  memcpy(&scale, block + st_kv_scale_at(f->bits, a->head_dim, at, d), sizeof scale);
  int code = f->bits == 8 ? (int8_t)byte : (byte >> (d % 32 < 16 ? 0 : 4) & 15) - 8;
  return (float)code * st_f32_from_f16(scale);
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
  for (size_t j = keys.first; j < keys.last; j++) {
    const uint8_t *block = a->v + pages[j / ST_KEYS] * a->page_bytes;
    for (size_t d = 0; d < a->head_dim; d++) out[d] = fmaf(scores[j], value(a, block, j % ST_KEYS, d), out[d]);
  }
}

void st_ref_attend(const st_kernels *k, const st_attend *a, const st_attend_part *p) {
  const uint32_t *pages = a->pages + p->index * (ST_PART / ST_KEYS);
  if (p->queries) st_attend_code_scores(k, a, p);
  for (size_t i = 0, n = st_attend_queries(a); i < n; i++) {
    size_t token = i / a->n_q, head = i % a->n_q;
    st_key_range keys = st_attend_range(a, token, p->index);
    float *scores = p->scores + i * ST_SCORES;
    if (!p->queries) {
      number_scores(a, pages, a->q + token * a->token_stride + head * a->q_stride, keys, scores);
    }
    attend_query(a, pages, keys, head, scores, p->out + i * a->head_dim, p->state + 2 * i);
  }
}
