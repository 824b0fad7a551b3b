// Attention: scores over the visible keys, softmax, and the weighted sum of values.
#include "kernel/ref/ref.h"

#include "base/float16.h"
#include "kernel/layout.h"

#include <math.h>

static float element(const void *cache, bool half, size_t i) {
  return half ? st_f32_from_f16(((const uint16_t *)cache)[i]) : ((const float *)cache)[i];
}

// Scores in order; returns the largest.
static float score(const st_attend *a, const float *q, size_t first, size_t last, size_t head, float *scores) {
  float largest = a->sinks ? a->sinks[head] : -INFINITY;
  for (size_t j = first; j < last; j++) {
    float s = 0;
    for (size_t d = 0; d < a->head_dim; d++) {
      s = fmaf(q[d], element(a->k, a->half, st_key_at(j, d, a->head_dim, a->runs)), s);
    }
    s *= a->scale;
    *scores++ = s;
    largest = s > largest ? s : largest;
  }
  return largest;
}

// One head of one token, which sees keys [first, last).
static void attend_head(const st_attend *a, const float *q, size_t first, size_t last, size_t head, float *scores,
                        float *out) {
  float largest = score(a, q, first, last, head, scores), lanes[16] = {0};
  size_t n_keys = last - first;
  for (size_t j = 0; j < n_keys; j++) {
    scores[j] = st_ref_exp(scores[j] - largest);
    lanes[j % 16] += scores[j];
  }
  float sum = st_ref_sum16(lanes);
  if (a->sinks) sum += st_ref_exp(a->sinks[head] - largest);
  float inverse = 1.0f / sum;
  for (size_t d = 0; d < a->head_dim; d++) out[d] = 0;
  for (size_t j = 0; j < n_keys; j++) {
    for (size_t d = 0; d < a->head_dim; d++) {
      out[d] = fmaf(scores[j], element(a->v, a->half, st_value_at(first + j, d, a->head_dim, a->runs)), out[d]);
    }
  }
  for (size_t d = 0; d < a->head_dim; d++) out[d] *= inverse;
}

void st_ref_attend(const st_attend *a) {
  size_t tokens = a->n_tokens ? a->n_tokens : 1;
  size_t row = st_attend_row(a);
  for (size_t t = 0; t < tokens; t++) {
    for (size_t h = 0; h < a->n_q; h++) {
      size_t at = t * a->token_stride + h * a->q_stride;
      attend_head(a, a->q + at, st_attend_first(a, t), a->n_keys + t, h, a->scores + (t * a->n_q + h) * row,
                  a->out + at);
    }
  }
}
