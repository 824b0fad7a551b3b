// Attention: the parts of a query, merged and divided. Plain C, the same for all tables.
#include "kernel/attend.h"

#include "kernel/layout.h"
#include "kernel/ref/ref.h"

#include <float.h>
#include <math.h>
#include <string.h>

_Static_assert(ST_PART == 8 * ST_KEYS, "lanes/attend.h prefetches half of a part's keys as two blocks, twice");

st_key_range st_attend_parts(const st_attend *a) {
  size_t last = a->n_keys + (a->n_tokens ? a->n_tokens - 1 : 0);
  size_t first = a->window && a->n_keys > a->window ? a->n_keys - a->window : 0;
  return (st_key_range){first / ST_PART, (last + ST_PART - 1) / ST_PART};
}

// One of two parts has the largest score.
static float exp_of(float x) {
  return x == 0 ? 1.0f : st_ref_exp(x);
}

static void merge(const float *part_out, const float part_state[2], size_t n, float *out, float state[2]) {
  float largest = part_state[0] > state[0] ? part_state[0] : state[0];
  float before = exp_of(state[0] - largest), now = exp_of(part_state[0] - largest);
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
    if (index > first / ST_PART || a->merged) {
      merge(from, part_state + 2 * i, a->head_dim, to, state + 2 * i);
    } else if (to != from) {
      for (size_t d = 0; d < a->head_dim; d++) to[d] = from[d];
      state[2 * i] = part_state[2 * i], state[2 * i + 1] = part_state[2 * i + 1];
    }
  }
}

static float *result_of(const st_attend *a, float *out, size_t query) {
  return out + query / a->n_q * a->token_stride + query % a->n_q * a->q_stride;
}

void st_attend_finish(const st_kernels *k, const st_attend *a, const float *sums, const float *state, float *out) {
  enum { AHEAD = 4, LINE = 16 }; // results of many queries are no longer in the caches
  for (size_t i = 0, n = st_attend_queries(a); i < n; i++) {
    if (i + AHEAD < n) {
      const float *next = result_of(a, out, i + AHEAD);
      for (size_t d = 0; d < a->head_dim; d += LINE) __builtin_prefetch(next + d, 1);
    }
    float total = state[2 * i + 1];
    if (a->sinks) total += st_ref_exp(a->sinks[i % a->n_q] - state[2 * i]);
    float inverse = 1.0f / total, *to = result_of(a, out, i);
    const float *from = sums + i * a->head_dim;
    for (size_t d = 0; d < a->head_dim; d++) to[d] = from[d] * inverse;
    if (st_kv_format_of(a->values)->rotated) st_kv_rotate(k, to, a->head_dim); // back
  }
}

static void *take(uint8_t *base, size_t *used, size_t bytes) {
  uint8_t *at = base ? base + *used : NULL;
  *used += st_round_up(bytes, 64);
  return at;
}

static size_t lay_out(setun_kv_type keys, size_t queries, size_t head_dim, void *base, st_attend_memory *m) {
  size_t used = 0, sums = queries * (head_dim + 2) * sizeof(float);
  *m = (st_attend_memory){.codes.columns = st_round_up(head_dim, ST_STEP)};
  m->codes.row_bytes = m->codes.columns * st_kv_format_of(keys)->code_bits / 8;
  m->scores = take(base, &used, queries * ST_SCORES * sizeof(float));
  m->sums = take(base, &used, sums);
  m->next = take(base, &used, sums);
  if (!st_kv_is_codes(keys)) return used;
  m->row = take(base, &used, head_dim * sizeof(float));
  m->codes.codes = take(base, &used, queries * m->codes.row_bytes);
  m->codes.scales = take(base, &used, queries * sizeof(float));
  m->codes.sums = take(base, &used, queries * sizeof(int32_t));
  return used;
}

size_t st_attend_scratch(setun_kv_type keys, size_t queries, size_t head_dim) {
  st_attend_memory m;
  return lay_out(keys, queries, head_dim, NULL, &m);
}

st_attend_memory st_attend_memory_of(const st_attend *a, void *scratch) {
  st_attend_memory m;
  lay_out(a->keys, st_attend_queries(a), a->head_dim, scratch, &m);
  return m;
}

static void store_code(int8_t *codes, uint32_t bits, size_t i, int code) {
  int16_t wide = (int16_t)code;
  if (bits == 8)
    codes[i] = (int8_t)code;
  else
    memcpy(codes + 2 * i, &wide, sizeof wide);
}

// Codes of a query, at most `most` units; their scale, and their sum.
static float quantize_query(const float *x, size_t n, float most, uint32_t bits, int8_t *codes, int32_t *sum) {
  const float rounder = 12582912.0f; // ties to even
  float largest = 0;
  bool finite = true;
  for (size_t d = 0; d < n; d++) finite &= fabsf(x[d]) <= FLT_MAX;
  for (size_t d = 0; d < n; d++) largest = fabsf(x[d]) > largest ? fabsf(x[d]) : largest;
  float inverse = finite && largest >= ST_FACTOR_LEAST ? most / largest : 0;
  *sum = 0;
  for (size_t d = 0; d < n; d++) {
    int code = finite ? (int)((x[d] * inverse + rounder) - rounder) : 0;
    store_code(codes, bits, d, code);
    *sum += code;
  }
  return finite ? largest / most : NAN;
}

const st_attend_codes *st_attend_prepare(const st_kernels *k, const st_attend *a, const st_attend_memory *m) {
  if (!m->row) return NULL;
  const st_kv_format *f = st_kv_format_of(a->keys);
  const st_attend_codes *c = &m->codes;
  // Sums of products with the largest codes of keys must fit into 32 bits.
  float fit = 0x1p31f / (float)st_kv_offset(f->key_bits) / (float)c->columns - 1,
        limit = f->code_bits == 8 ? 127 : 16383, most = fit < limit ? floorf(fit) : limit;
  for (size_t i = 0; i < st_attend_queries(a); i++) {
    const float *from = a->q + i / a->n_q * a->token_stride + i % a->n_q * a->q_stride;
    int8_t *codes = c->codes + i * c->row_bytes;
    for (size_t d = 0; d < a->head_dim; d++) m->row[d] = from[d] * a->scale;
    if (f->rotated) st_kv_rotate(k, m->row, a->head_dim);
    memset(codes, 0, c->row_bytes);
    c->scales[i] = quantize_query(m->row, a->head_dim, most, f->code_bits, codes, &c->sums[i]);
  }
  return c;
}

void st_attend_run(const st_kernels *k, const st_attend *a, void *scratch, float *out) {
  st_attend_memory m = st_attend_memory_of(a, scratch);
  const st_attend_codes *queries = st_attend_prepare(k, a, &m);
  size_t states = st_attend_queries(a) * a->head_dim;
  st_key_range parts = st_attend_parts(a);
  for (size_t index = parts.first; index < parts.last; index++) {
    float *to = index == parts.first ? m.sums : m.next;
    const st_attend_part part = {.index = index,
                                 .fetched = index > parts.first,
                                 .next_k = index + 1 < parts.last ? a->k : NULL,
                                 .next_v = a->v,
                                 .next_index = index + 1,
                                 .queries = queries,
                                 .scores = m.scores,
                                 .out = to,
                                 .state = to + states};
    k->attend(a, &part);
    st_attend_merge(a, index, to, to + states, m.sums, m.sums + states);
  }
  st_attend_finish(k, a, m.sums, m.sums + states, out);
}
