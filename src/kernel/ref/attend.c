// Attention over a part of the keys: scores, their exponentials, and the weighted sum of values.
#include "kernel/attend.h"
#include "kernel/ref/ref.h"

#include "base/float16.h"

#include <math.h>
#include <string.h>

static float element(const uint8_t *block, setun_kv_type type, size_t i) {
  if (type == SETUN_KV_F16) {
    uint16_t half;
    memcpy(&half, block + 2 * i, sizeof half);
    return st_f32_from_f16(half);
  }
  float x;
  memcpy(&x, block + 4 * i, sizeof x);
  return x;
}

// Scores of the keys in order; returns the largest.
static float score(const st_attend *a, const uint32_t *pages, const float *q, st_key_range keys, size_t head,
                   float *scores) {
  float largest = a->sinks ? a->sinks[head] : -INFINITY;
  for (size_t j = keys.first; j < keys.last; j++) {
    const uint8_t *block = a->k + pages[j / ST_KEYS] * a->page_bytes;
    float s = 0;
    for (size_t d = 0; d < a->head_dim; d++) s = fmaf(q[d], element(block, a->keys, d * ST_KEYS + j % ST_KEYS), s);
    s *= a->scale;
    *scores++ = s;
    largest = s > largest ? s : largest;
  }
  return largest;
}

// One query.
static void attend_query(const st_attend *a, const uint32_t *pages, const float *q, st_key_range keys, size_t head,
                         float *scores, float *out, float *state) {
  float largest = score(a, pages, q, keys, head, scores), lanes[16] = {0};
  size_t n_keys = keys.last - keys.first;
  for (size_t j = 0; j < n_keys; j++) {
    scores[j] = st_ref_exp(scores[j] - largest);
    lanes[j % 16] += scores[j];
  }
  state[0] = largest, state[1] = st_ref_sum16(lanes);
  for (size_t d = 0; d < a->head_dim; d++) out[d] = 0;
  for (size_t j = 0; j < n_keys; j++) {
    size_t at = keys.first + j;
    const uint8_t *block = a->v + pages[at / ST_KEYS] * a->page_bytes;
    for (size_t d = 0; d < a->head_dim; d++) {
      out[d] = fmaf(scores[j], element(block, a->values, at % ST_KEYS * a->head_dim + d), out[d]);
    }
  }
}

void st_ref_attend(const st_attend *a, const st_attend_part *p) {
  const uint32_t *pages = a->pages + p->index * (ST_PART / ST_KEYS);
  for (size_t i = 0, n = st_attend_queries(a); i < n; i++) {
    size_t token = i / a->n_q, head = i % a->n_q;
    attend_query(a, pages, a->q + token * a->token_stride + head * a->q_stride, st_attend_range(a, token, p->index),
                 head, p->scores + i * ST_SCORES, p->out + i * a->head_dim, p->state + 2 * i);
  }
}
