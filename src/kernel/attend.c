// Attention: the parts of a query, merged and divided. Plain C, the same for all tables.
#include "kernel/attend.h"

#include "kernel/layout.h"
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
    if (index > first / ST_PART || a->merged) {
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
    if (st_kv_format_of(a->values)->rotated) st_kv_rotate(to, a->head_dim); // back
  }
}

void st_attend_code_scores(const st_kernels *k, const st_attend *a, const st_attend_part *p) {
  enum { FEW_QUERIES = 4 }; // up to so many wait for memory
  const uint32_t *pages = a->pages + p->index * (ST_PART / ST_KEYS);
  size_t begin = st_attend_range(a, 0, p->index).first;
  size_t end = st_attend_range(a, a->n_tokens ? a->n_tokens - 1 : 0, p->index).last;
  size_t block = st_kv_block_bytes(a->keys, true, a->head_dim);
  st_matrix m = {.form = st_kv_format_of(a->keys)->form,
                 .rows = ST_KEYS,
                 .columns = a->head_dim,
                 .block = ST_STEP,
                 .group_bytes = st_kv_group_bytes(a->keys, a->head_dim)};
  for (size_t j = begin / ST_KEYS * ST_KEYS; j < end; j += ST_KEYS) {
    size_t first = begin > j ? (begin - j) / ST_GROUP * ST_GROUP : 0, last = end - j < ST_KEYS ? end - j : ST_KEYS;
    m.data = a->k + pages[j / ST_KEYS] * a->page_bytes;
    if (j + ST_KEYS < end && p->queries->tokens <= FEW_QUERIES) {
      const uint8_t *next = a->k + pages[j / ST_KEYS + 1] * a->page_bytes;
      for (size_t i = 0; i < block; i += 64) __builtin_prefetch(next + i, 0, 3);
    }
    k->matmul[m.form][ST_ACT_F32](&m, p->queries, first, last, p->scores + j, ST_SCORES);
  }
}

static void *take(uint8_t *base, size_t *used, size_t bytes) {
  uint8_t *at = base ? base + *used : NULL;
  *used += st_round_up(bytes, 64);
  return at;
}

static size_t lay_out(const st_kernels *k, setun_kv_type keys, size_t queries, size_t head_dim, void *base,
                      st_attend_memory *m) {
  bool codes = st_kv_format_of(keys)->form != ST_FORM_COUNT;
  size_t used = 0, sums = queries * (head_dim + 2) * sizeof(float);
  *m = (st_attend_memory){0};
  m->scores = take(base, &used, queries * ST_SCORES * sizeof(float));
  m->sums = take(base, &used, sums);
  m->next = take(base, &used, sums);
  if (!codes) return used;
  m->rows = take(base, &used, queries * head_dim * sizeof(float));
  m->input = take(base, &used, k->input_bytes(ST_ACT_F32, queries, head_dim));
  m->products = take(base, &used, k->scratch_bytes);
  return used;
}

size_t st_attend_scratch(const st_kernels *k, setun_kv_type keys, size_t queries, size_t head_dim) {
  st_attend_memory m;
  return lay_out(k, keys, queries, head_dim, NULL, &m);
}

st_attend_memory st_attend_memory_of(const st_kernels *k, const st_attend *a, void *scratch) {
  st_attend_memory m;
  lay_out(k, a->keys, st_attend_queries(a), a->head_dim, scratch, &m);
  return m;
}

const st_input *st_attend_prepare(const st_kernels *k, const st_attend *a, const st_attend_memory *memory,
                                  st_input *input) {
  if (!memory->input) return NULL;
  size_t n = st_attend_queries(a);
  for (size_t i = 0; i < n; i++) {
    const float *from = a->q + i / a->n_q * a->token_stride + i % a->n_q * a->q_stride;
    float *to = memory->rows + i * a->head_dim;
    for (size_t d = 0; d < a->head_dim; d++) to[d] = from[d] * a->scale;
    if (st_kv_format_of(a->keys)->rotated) st_kv_rotate(to, a->head_dim);
  }
  *input = (st_input){ST_ACT_F32, n, a->head_dim, memory->input, memory->products};
  k->prepare(input, memory->rows, a->head_dim, NULL, 0, 0, n);
  return input;
}

void st_attend_run(const st_kernels *k, const st_attend *a, void *scratch, float *out) {
  st_attend_memory m = st_attend_memory_of(k, a, scratch);
  st_input input;
  const st_input *queries = st_attend_prepare(k, a, &m, &input);
  size_t states = st_attend_queries(a) * a->head_dim;
  st_key_range parts = st_attend_parts(a);
  for (size_t index = parts.first; index < parts.last; index++) {
    float *to = index == parts.first ? m.sums : m.next;
    k->attend(k, a, &(st_attend_part){index, queries, m.scores, to, to + states});
    st_attend_merge(a, index, to, to + states, m.sums, m.sums + states);
  }
  st_attend_finish(a, m.sums, m.sums + states, out);
}
