// Attention: the parts of a query, merged and divided. Plain C, the same for all tables.
#include "kernel/attend.h"

#include "kernel/ref/ref.h"

st_key_range st_attend_parts(const st_attend *a) {
  size_t last = a->n_keys + (a->n_tokens ? a->n_tokens - 1 : 0);
  size_t first = a->window && a->n_keys > a->window ? a->n_keys - a->window : 0;
  return (st_key_range){first / ST_PART, (last + ST_PART - 1) / ST_PART};
}

static void merge(const float *part_out, const float part_state[2], size_t n, float *out, float state[2]) {
  float largest = part_state[0] > state[0] ? part_state[0] : state[0];
  float before = st_ref_exp(state[0] - largest), now = st_ref_exp(part_state[0] - largest);
  state[0] = largest;
  state[1] = state[1] * before + part_state[1] * now;
  for (size_t d = 0; d < n; d++) out[d] = out[d] * before + part_out[d] * now;
}

void st_attend_merge(const st_attend *a, size_t index, const float *part_out, const float *part_state, float *out,
                     float *state) {
  for (size_t i = 0, n = st_attend_queries(a); i < n; i++) {
    size_t token = i / a->n_q, seen = a->n_keys + token;
    size_t first = a->window && seen > a->window ? seen - a->window : 0;
    float *to = out + i * a->head_dim;
    const float *from = part_out + i * a->head_dim;
    if (index < first / ST_PART || index * ST_PART >= seen) continue;
    if (index > first / ST_PART) {
      merge(from, part_state + 2 * i, a->head_dim, to, state + 2 * i);
    } else if (to != from) {
      for (size_t d = 0; d < a->head_dim; d++) to[d] = from[d];
      state[2 * i] = part_state[2 * i], state[2 * i + 1] = part_state[2 * i + 1];
    }
  }
}

void st_attend_finish(const st_attend *a, const float *sums, const float *state, float *out) {
  for (size_t i = 0, n = st_attend_queries(a); i < n; i++) {
    float total = state[2 * i + 1];
    if (a->sinks) total += st_ref_exp(a->sinks[i % a->n_q] - state[2 * i]);
    float inverse = 1.0f / total, *to = out + i / a->n_q * a->token_stride + i % a->n_q * a->q_stride;
    const float *from = sums + i * a->head_dim;
    for (size_t d = 0; d < a->head_dim; d++) to[d] = from[d] * inverse;
  }
}

size_t st_attend_scratch(size_t queries, size_t head_dim) {
  return queries * (ST_SCORES + 2 * (head_dim + 2));
}

void st_attend_run(const st_kernels *k, const st_attend *a, float *scratch, float *out) {
  size_t n = st_attend_queries(a), each = n * (a->head_dim + 2);
  float *scores = scratch, *sums = scores + n * ST_SCORES, *next = sums + each;
  st_key_range parts = st_attend_parts(a);
  for (size_t index = parts.first; index < parts.last; index++) {
    float *to = index == parts.first ? sums : next, *state = to + n * a->head_dim;
    k->attend(a, &(st_attend_part){.index = index, .scores = scores, .out = to, .state = state});
    st_attend_merge(a, index, to, state, sums, sums + n * a->head_dim);
  }
  st_attend_finish(a, sums, sums + n * a->head_dim, out);
}
