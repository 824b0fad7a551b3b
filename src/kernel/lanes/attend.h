// Attention in 16 lanes. A query is one head of one token. Keys and values are read once for several queries; each
// query's sums are its own, in the order of its columns and keys.
//
// Scores and values are the same sum: rows of a matrix, each times a number of each query, added up column by column.
// For scores the rows are a block's columns and its keys lie side by side; for values the rows are keys. A slab of
// columns of a few queries' sums stays in registers meanwhile; data that many queries read is in the first-level cache
// after the first of them.
#ifndef SETUN_KERNEL_LANES_ATTEND_H
#define SETUN_KERNEL_LANES_ATTEND_H

#include "kernel/lanes/attend_codes.h"
#include "kernel/lanes/misc.h"

#include <math.h>
#include <string.h>

enum {
  LANES_QUERIES = 48, // that read keys and values together
  FEW_QUERIES = 4     // up to so many read from memory, with prefetching
};

typedef struct {
  const float *q;
  float *scores, *out; // the score of key j of the part is scores[j]
  float *state;
  size_t index;       // of all queries
  size_t first, last; // keys of the part that it sees
} lanes_query;

// Those from `first` on.
LANES_INLINE void lanes_list(const st_attend *a, const st_attend_part *p, size_t first, size_t n, lanes_query *q) {
  size_t token = first / a->n_q, head = first % a->n_q;
  st_key_range keys = st_attend_range(a, token, p->index);
  for (size_t i = 0; i < n; i++) {
    q[i] = (lanes_query){.q = a->q + token * a->token_stride + head * a->q_stride,
                         .scores = p->scores + (first + i) * ST_SCORES,
                         .out = p->out + (first + i) * a->head_dim,
                         .state = p->state + 2 * (first + i),
                         .index = first + i,
                         .first = keys.first,
                         .last = keys.last};
    if (++head == a->n_q) keys = st_attend_range(a, ++token, p->index), head = 0;
  }
}

LANES_INLINE size_t lanes_size(bool half) {
  return half ? 2 : 4;
}
LANES_INLINE vf lanes_cached_load(const void *p, bool half) {
  return half ? vf_half(p) : vf_load(p);
}
LANES_INLINE vf lanes_cached_load_n(const void *p, bool half, size_t n) {
  return half ? vf_half_n(p, n) : vf_load_n(p, n);
}

// Sums of `n` queries over the rows of a matrix: out[i][c] (+)= sum over r of factors[i][r] * matrix[r * stride + c].
typedef struct {
  const uint8_t *matrix; // half precision or float32
  size_t rows, stride;
  bool half;
  bool more; // added to out; otherwise out is set, and multiplied by `scale`
  float scale;
  const uint8_t *next, *ahead; // blocks to prefetch: one of the same size that is read next, and another one; or NULL
  size_t ahead_bytes;
  const float *factors[LANES_HEADS];
  float *out[LANES_HEADS];
} lanes_sums;

// Into the second-level cache, while a row is multiplied.
LANES_INLINE void lanes_cache_prefetch(const lanes_sums *a, size_t r, size_t c, size_t bytes, bool half) {
  size_t at = (r * a->stride + c) * lanes_size(half);
  for (size_t i = 0; a->next && i < bytes; i += 64) __builtin_prefetch(a->next + at + i, 0, 2);
  if (at >= a->ahead_bytes) return;
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(a->ahead + at + i, 0, 2);
}

// `slab` * 16 columns from c on; with `part` only that many columns of one vector.
LANES_INLINE void lanes_sum_slab(const lanes_sums *a, size_t n, size_t c, size_t slab, size_t part, bool half) {
  vf sums[LANES_HEADS * LANES_SLAB], v[LANES_SLAB];
#pragma GCC unroll 32
  for (size_t i = 0; i < n * slab; i++) {
    const float *out = a->out[i / slab] + c + 16 * (i % slab);
    sums[i] = !a->more ? vf_set(0) : part ? vf_load_n(out, part) : vf_load(out);
  }
  const uint8_t *row = a->matrix + c * lanes_size(half);
  for (size_t r = 0; r < a->rows; r++, row += a->stride * lanes_size(half)) {
    if (a->next || a->ahead) lanes_cache_prefetch(a, r, c, slab * 16 * lanes_size(half), half);
#pragma GCC unroll 8
    for (size_t s = 0; s < slab; s++) {
      const uint8_t *at = row + s * 16 * lanes_size(half);
      v[s] = part ? lanes_cached_load_n(at, half, part) : lanes_cached_load(at, half);
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < n; i++) {
      vf factor = vf_set(a->factors[i][r]);
#pragma GCC unroll 8
      for (size_t s = 0; s < slab; s++) sums[i * slab + s] = vf_fma(factor, v[s], sums[i * slab + s]);
    }
  }
#pragma GCC unroll 32
  for (size_t i = 0; i < n * slab; i++) {
    float *out = a->out[i / slab] + c + 16 * (i % slab);
    vf sum = a->more ? sums[i] : vf_mul(sums[i], vf_set(a->scale));
    if (part)
      vf_store_n(out, sum, part);
    else
      vf_store(out, sum);
  }
}

// With more queries than LANES_WIDE a slab is one vector, of which more sums fit into registers.
LANES_INLINE void lanes_sum_slabs(const lanes_sums *a, size_t n, size_t c, size_t last, bool half) {
  const size_t most = n > LANES_WIDE ? 1 : LANES_SLAB;
  for (size_t width; c < last; c += width) {
    size_t slab = last - c < 16 * most ? (last - c) / 16 : most;
    width = slab ? 16 * slab : last - c;
    if (slab == most)
      lanes_sum_slab(a, n, c, most, 0, half);
    else if (slab == 3 && most > 3)
      lanes_sum_slab(a, n, c, 3, 0, half);
    else if (slab == 2 && most > 2)
      lanes_sum_slab(a, n, c, 2, 0, half);
    else
      lanes_sum_slab(a, n, c, 1, slab ? 0 : width, half);
  }
}

// Columns [c, last).
LANES_INLINE void lanes_sums_of(const lanes_sums *a, size_t n, size_t c, size_t last) {
  if (a->half)
    lanes_sum_slabs(a, n, c, last, true);
  else
    lanes_sum_slabs(a, n, c, last, false);
}

#define LANES_SUM_COLUMNS(n)                                                                                           \
  LANES_APART void lanes_sum_columns_##n(const lanes_sums *a, size_t c, size_t last) {                                 \
    lanes_sums_of(a, n <= LANES_HEADS ? n : 1, c, last);                                                               \
  }
LANES_SUM_COLUMNS(1)
LANES_SUM_COLUMNS(2)
LANES_SUM_COLUMNS(3)
LANES_SUM_COLUMNS(4)
LANES_SUM_COLUMNS(5)
LANES_SUM_COLUMNS(6)

LANES_INLINE void lanes_sum_columns(const lanes_sums *a, size_t n, size_t c, size_t last) {
  switch (n) {
  case 1: lanes_sum_columns_1(a, c, last); break;
  case 2: lanes_sum_columns_2(a, c, last); break;
  case 3: lanes_sum_columns_3(a, c, last); break;
  case 4: lanes_sum_columns_4(a, c, last); break;
  case 5: lanes_sum_columns_5(a, c, last); break;
  default: lanes_sum_columns_6(a, c, last);
  }
}

LANES_INLINE size_t lanes_least(size_t a, size_t b) {
  return a < b ? a : b;
}
LANES_INLINE size_t lanes_greatest(size_t a, size_t b) {
  return a > b ? a : b;
}

// A part, and what holds for all of its blocks.
typedef struct {
  const st_attend *a;
  const st_attend_part *p;
  const uint32_t *pages;         // of the keys that the part may have
  size_t key_bytes, value_bytes; // of a block
  uint32_t key_bits, value_bits;
  bool few;  // queries: what is read next is prefetched
  bool half; // of the next part's keys are prefetched with factors, half with values; otherwise all with values
} lanes_part;

LANES_INLINE lanes_part lanes_part_of(const st_attend *a, const st_attend_part *p, bool few) {
  const bool whole = p->next_k && (p->next_index + 1) * ST_PART <= a->n_keys;
  return (lanes_part){.a = a,
                      .p = p,
                      .pages = a->pages + p->index * (ST_PART / ST_KEYS),
                      .key_bytes = st_kv_block_bytes(a->keys, true, a->head_dim),
                      .value_bytes = st_kv_block_bytes(a->values, false, a->head_dim),
                      .key_bits = st_kv_format_of(a->keys)->key_bits,
                      .value_bits = st_kv_format_of(a->values)->value_bits,
                      .few = few,
                      .half = few && whole && st_kv_is_codes(a->values)};
}

// Scores of n queries for those keys of the block at j that at least one of them sees, and for others in the same
// vectors.
LANES_INLINE void lanes_block_scores(const st_attend *a, const lanes_query *q, size_t n, size_t j, const uint8_t *block,
                                     const uint8_t *next, lanes_block ahead) {
  size_t first = lanes_greatest(q[0].first, j), last = lanes_least(q[n - 1].last, j + ST_KEYS);
  if (first >= last) return;
  lanes_sums sums = {.matrix = block,
                     .rows = a->head_dim,
                     .stride = ST_KEYS,
                     .half = a->keys == SETUN_KV_F16,
                     .scale = a->scale,
                     .next = next,
                     .ahead = ahead.from,
                     .ahead_bytes = ahead.bytes};
  for (size_t i = 0; i < n; i++) sums.factors[i] = q[i].q, sums.out[i] = q[i].scores + j;
  lanes_sum_columns(&sums, n, (first - j) / 16 * 16, (last - j + 15) / 16 * 16);
}

// The same for keys that are codes.
LANES_INLINE void lanes_block_code_scores(const lanes_part *t, const lanes_query *q, size_t n, size_t j,
                                          const uint8_t *block, const uint8_t *next, lanes_block ahead) {
  const st_attend_codes *codes = t->p->queries;
  size_t first = lanes_greatest(q[0].first, j), last = lanes_least(q[n - 1].last, j + ST_KEYS);
  if (first >= last) return;
  lanes_code_keys keys = {.block = block,
                          .next = next,
                          .ahead = lanes_ahead_of(ahead, ST_KEYS / ST_GROUP),
                          .columns = codes->columns,
                          .first = (first - j) / ST_GROUP * ST_GROUP,
                          .last = last - j,
                          .bits = t->key_bits};
  for (size_t i = 0; i < n; i++) {
    keys.codes[i] = codes->codes + q[i].index * codes->row_bytes, keys.sums[i] = codes->sums[q[i].index];
    keys.scales[i] = codes->scales[q[i].index], keys.out[i] = q[i].scores + j;
  }
  lanes_all_code_keys(&keys, n);
}

// One line of each 4 KiB, long before the others are prefetched: these would wait for the translation of addresses, or
// be dropped. In a virtual machine pages can be that small even where its own are larger.
LANES_INLINE void lanes_translate(lanes_block b) {
  enum { PAGE = 4096 };
  for (size_t at = 0; at < b.bytes; at += PAGE) __builtin_prefetch(b.from + at, 0, 2);
}

// The blocks at key j of the part that the thread computes next; nothing where there are none.
LANES_INLINE bool lanes_next_page(const lanes_part *t, size_t j, size_t *page) {
  size_t then = t->p->next_index * ST_PART + j;
  if (!t->few || !t->p->next_k || then >= t->a->n_keys) return false;
  *page = t->a->pages[then / ST_KEYS] * t->a->page_bytes;
  return true;
}
LANES_INLINE lanes_block lanes_next_keys(const lanes_part *t, size_t j) {
  size_t page;
  return lanes_next_page(t, j, &page) ? (lanes_block){t->p->next_k + page, t->key_bytes} : (lanes_block){0};
}
LANES_INLINE lanes_block lanes_next_values(const lanes_part *t, size_t j) {
  size_t page;
  return lanes_next_page(t, j, &page) ? (lanes_block){t->p->next_v + page, t->value_bytes} : (lanes_block){0};
}

// Keys of the next part that are prefetched while factors are computed and become codes: two blocks, a few lines a
// step. Multiplying values takes a quarter of the time, too little for all keys.
typedef struct {
  lanes_block blocks[2];
  size_t line, each; // line: of both
} lanes_lines;

LANES_INLINE lanes_lines lanes_lines_of(const lanes_part *t, size_t j, size_t steps) {
  lanes_lines l = {0};
  if (t->half) l = (lanes_lines){.blocks = {lanes_next_keys(t, j), lanes_next_keys(t, j + ST_KEYS)}};
  l.each = (2 * (l.blocks[0].bytes / 64) + steps - 1) / steps;
  return l;
}

LANES_INLINE void lanes_fetch_lines(lanes_lines *l) {
  size_t lines = l->blocks[0].bytes / 64;
  for (size_t i = 0; i < l->each && l->line < 2 * lines; i++, l->line++) {
    size_t second = l->line >= lines;
    __builtin_prefetch(l->blocks[second].from + 64 * (l->line - second * lines), 0, 2);
  }
}

// The softmax without its division, of n queries (at most LANES_SLAB) that see the same keys: scores in place become
// e^(score - largest), of all scores and the query's sink. Several at once, since the steps of each depend on one
// another.
LANES_INLINE void lanes_softmax(lanes_query *q, size_t n, const float *sinks, lanes_lines *ahead) {
  float *scores[LANES_SLAB], sink[LANES_SLAB];
  vf most[LANES_SLAB], sum[LANES_SLAB], p[LANES_SLAB];
  size_t keys = q->last - q->first;
#define LANES_EACH_QUERY _Pragma("GCC unroll 8") for (size_t i = 0; i < n; i++)
  LANES_EACH_QUERY {
    scores[i] = q[i].scores + q->first;
    sink[i] = sinks ? sinks[i] : -INFINITY;
    most[i] = vf_set(sink[i]);
    sum[i] = vf_set(0);
  }
  for (size_t j = 0; j + 16 <= keys; j += 16)
    LANES_EACH_QUERY most[i] = vf_max(vf_load(scores[i] + j), most[i]); // ignores NaN
  for (size_t j = keys / 16 * 16; j < keys; j++) {
    LANES_EACH_QUERY most[i] = vf_max(vf_set(scores[i][j]), most[i]);
  }
  LANES_EACH_QUERY most[i] = vf_set(vf_most(most[i]));
  for (size_t j = 0; j < keys; j += 16) {
    LANES_EACH_QUERY p[i] = vf_sub(vf_load(scores[i] + j), most[i]);
    lanes_exps(p, n);
    lanes_fetch_lines(ahead);
    LANES_EACH_QUERY {
      vf_store(scores[i] + j, p[i]);
      sum[i] = vf_add(sum[i], j + 16 <= keys ? p[i] : vf_load_n(scores[i] + j, keys - j));
    }
  }
  LANES_EACH_QUERY q[i].state[0] = vf_first(most[i]), q[i].state[1] = vf_sum(sum[i]);
#undef LANES_EACH_QUERY
}

#define LANES_SOFTMAX(n)                                                                                               \
  LANES_APART void lanes_softmax_##n(lanes_query *q, const float *sinks, lanes_lines *ahead) {                         \
    lanes_softmax(q, n <= LANES_SLAB ? n : 1, sinks, ahead);                                                           \
  }
LANES_SOFTMAX(1)
LANES_SOFTMAX(2)
LANES_SOFTMAX(3)
LANES_SOFTMAX(4)

// Of n queries, the first of which is the `head`-th of its token's.
LANES_INLINE void lanes_softmaxes(const st_attend *a, lanes_query *q, size_t n, size_t head, lanes_lines *ahead) {
  for (size_t i = 0, count; i < n; i += count) {
    size_t at = (head + i) % a->n_q, same = lanes_least(a->n_q - at, n - i);
    const float *sinks = a->sinks ? a->sinks + at : NULL;
    count = lanes_least(same, LANES_SLAB);
    switch (count) {
    case 1: lanes_softmax_1(q + i, sinks, ahead); break;
    case 2: lanes_softmax_2(q + i, sinks, ahead); break;
    case 3: lanes_softmax_3(q + i, sinks, ahead); break;
    default: lanes_softmax_4(q + i, sinks, ahead);
    }
  }
}

// Adds the values of keys [first, last), all of which n queries see. `rows` are those of the keys from j on.
LANES_INLINE void lanes_shared_values(const st_attend *a, const lanes_query *q, size_t n, size_t j, size_t first,
                                      size_t last, const uint8_t *rows, lanes_block ahead) {
  bool half = a->values == SETUN_KV_F16;
  lanes_sums sums = {.matrix = rows + (first - j) * a->head_dim * lanes_size(half),
                     .rows = last - first,
                     .stride = a->head_dim,
                     .half = half,
                     .more = true,
                     .ahead = ahead.from,
                     .ahead_bytes = ahead.bytes};
  for (size_t i = 0; i < n; i++) sums.factors[i] = q[i].scores + first, sums.out[i] = q[i].out;
  lanes_sum_columns(&sums, n, 0, a->head_dim);
}

// Adds the values of keys [j, last) to n queries: those that all queries see for all at once, those that only some see
// before and after. Queries are in the order of their tokens: the last one's keys begin last, the first one's end
// first.
LANES_INLINE void lanes_add_values(const st_attend *a, const lanes_query *q, size_t n, size_t j, size_t last,
                                   const uint8_t *rows, lanes_block ahead) {
  size_t begin = lanes_greatest(q[n - 1].first, j), end = lanes_least(q[0].last, last);
  if (begin >= end) begin = end = last;
  for (size_t i = 0; i < n; i++) {
    size_t from = lanes_greatest(q[i].first, j), to = lanes_least(q[i].last, begin);
    if (from < to) lanes_shared_values(a, q + i, 1, j, from, to, rows, ahead);
  }
  if (begin < end) lanes_shared_values(a, q, n, j, begin, end, rows, ahead);
  for (size_t i = 0; end < last && i < n; i++) { // the last of them see more keys
    size_t to = lanes_least(q[i].last, last);
    if (end < to) lanes_shared_values(a, q + i, n - i, j, end, to, rows, ahead), end = to;
  }
}

// The factors of n queries for the keys [begin, end) become codes; those of keys that a query does not see are zero.
// Blocks by themselves, so that no step waits for the one before; the divisions of a query's blocks at once.
static void lanes_quantize_factors(const lanes_part *t, const lanes_query *q, size_t n, size_t begin, size_t end,
                                   lanes_lines *ahead) {
  const st_attend *a = t->a;
  const bool bytes = st_kv_format_of(a->values)->code_bits == 8;
  const vf most = vf_set(st_factor_most(a->values));
  for (size_t i = 0; i < n; i++) {
    float largest[16] = {0}, inverses[16], scales[16];
    for (size_t j = begin; j < end; j += ST_KEYS) {
      const uint8_t *block = a->v + t->pages[j / ST_KEYS] * a->page_bytes;
      size_t from = lanes_greatest(q[i].first, j), to = lanes_greatest(lanes_least(q[i].last, j + ST_KEYS), from);
      largest[j / ST_KEYS] = lanes_scale_factors(q[i].scores + j, block, from - j, to - j);
      lanes_fetch_lines(ahead);
    }
    vf l = vf_load(largest);
    vf_store(inverses, vf_choose(l, vf_set(ST_FACTOR_LEAST), vf_set(0), vf_div(most, l))); // 0 for infinity
    vf_store(scales, vf_choose(l, vf_set(INFINITY), vf_div(l, most), vf_set(NAN)));
    for (size_t j = begin; j < end; j += ST_KEYS) {
      lanes_code_factors(q[i].scores + j, bytes, inverses[j / ST_KEYS], scales[j / ST_KEYS]);
      lanes_fetch_lines(ahead);
    }
  }
}

// Adds the values of keys [j, last), which are codes, to n queries.
LANES_INLINE void lanes_add_code_values(const lanes_part *t, const lanes_query *q, size_t n, size_t j, size_t last,
                                        const uint8_t *block, lanes_block ahead) {
  size_t begin = lanes_greatest(q[0].first, j), end = lanes_least(q[n - 1].last, last);
  if (begin >= end) return;
  size_t width = t->value_bits < 8 ? ST_STEP : ST_GROUP;
  lanes_code_values values = {.block = block,
                              .ahead = lanes_ahead_of(ahead, (t->a->head_dim + width - 1) / width),
                              .head_dim = t->a->head_dim,
                              .first = (begin - j) / 4,
                              .last = (end - j + 3) / 4,
                              .bits = t->value_bits};
  for (size_t i = 0; i < n; i++) {
    lanes_factor_codes f;
    values.codes[i] = (const int8_t *)(q[i].scores + j);
    memcpy(&f, values.codes[i] + LANES_FACTORS_AT, sizeof f);
    values.sums[i] = f.sum, values.scales[i] = f.scale, values.out[i] = q[i].out;
  }
  lanes_all_code_values(&values, n);
}

// The ends of groups of about equally many of n queries, `most` at most each. Returns their number.
LANES_INLINE size_t lanes_groups(size_t n, size_t most, size_t *ends) {
  size_t groups = (n + most - 1) / most;
  for (size_t g = 0; g < groups; g++) ends[g] = n * (g + 1) / groups;
  return groups;
}

// What many queries read and write is no longer in the caches since the product that computed it.
LANES_INLINE void lanes_prefetch_row(const float *row, size_t n, bool written) {
  for (size_t d = 0; d < n; d += 16) {
    if (written)
      __builtin_prefetch(row + d, 1, 2);
    else
      __builtin_prefetch(row + d, 0, 3);
  }
}

// Groups of queries that read a block together.
typedef struct {
  const lanes_query *q;
  size_t count, ends[LANES_QUERIES];
} lanes_shares;

// Keys [begin, end) of the part, which some of the queries see. With `few` queries their values are prefetched, and
// the keys if they were not.
static void lanes_all_scores(const lanes_part *t, const lanes_shares *s, size_t begin, size_t end) {
  const st_attend *a = t->a;
  for (size_t j = begin; j < end; j += ST_KEYS) {
    const uint32_t *page = t->pages + j / ST_KEYS;
    const uint8_t *block = a->k + *page * a->page_bytes;
    const uint8_t *next = t->few && !t->p->fetched && j + ST_KEYS < end ? a->k + page[1] * a->page_bytes : NULL;
    lanes_block values = {0};
    if (t->few) values = (lanes_block){a->v + *page * a->page_bytes, t->value_bytes};
    lanes_translate(lanes_next_keys(t, j));
    for (size_t g = 0, from = 0; g < s->count; from = s->ends[g++]) {
      if (t->p->queries)
        lanes_block_code_scores(t, s->q + from, s->ends[g] - from, j, block, next, values);
      else
        lanes_block_scores(a, s->q + from, s->ends[g] - from, j, block, next, values);
      next = NULL, values = (lanes_block){0};
    }
  }
}

// Their values. With `few` queries the keys that are computed next are prefetched, or the second half of them.
static void lanes_all_values(const lanes_part *t, const lanes_shares *s, size_t begin, size_t end) {
  const st_attend *a = t->a;
  bool is_codes = st_kv_is_codes(a->values);
  for (size_t j = begin; j < end; j += ST_KEYS) {
    size_t last = lanes_least(j + ST_KEYS, end);
    const uint8_t *rows = a->v + t->pages[j / ST_KEYS] * a->page_bytes;
    lanes_block keys = lanes_next_keys(t, t->half ? (ST_PART + j) / 2 / ST_KEYS * ST_KEYS : j);
    if (t->half) keys.bytes /= 2, keys.from += j / ST_KEYS % 2 * keys.bytes;
    lanes_translate(lanes_next_values(t, j));
    for (size_t g = 0, from = 0; g < s->count; from = s->ends[g++]) {
      if (is_codes)
        lanes_add_code_values(t, s->q + from, s->ends[g] - from, j, last, rows, keys);
      else
        lanes_add_values(a, s->q + from, s->ends[g] - from, j, last, rows, keys);
      keys = (lanes_block){0};
    }
  }
}

// Queries [first, first + n), n at most LANES_QUERIES.
static void lanes_attend_queries(const st_attend *a, const st_attend_part *p, size_t first, size_t n) {
  lanes_query q[LANES_QUERIES];
  const bool few = n <= FEW_QUERIES, code_values = st_kv_is_codes(a->values);
  const lanes_part t = lanes_part_of(a, p, few);
  size_t most = few ? LANES_WIDE : LANES_HEADS;
  lanes_list(a, p, first, n, q);
  size_t begin = q[0].first / ST_KEYS * ST_KEYS, end = q[n - 1].last;
  lanes_shares keys = {.q = q}, values = {.q = q};
  keys.count = lanes_groups(n, p->queries ? LANES_CODES : most, keys.ends);
  values.count = lanes_groups(n, code_values ? LANES_CODES : most, values.ends);
  for (size_t i = 0; i < n && !few; i++) lanes_prefetch_row(q[i].q, a->head_dim, false);
  lanes_all_scores(&t, &keys, begin, end);
  for (size_t i = 0; i < n && !few; i++) lanes_prefetch_row(q[i].out, a->head_dim, true);
  lanes_lines ahead = lanes_lines_of(&t, 0, ST_PART / 16);
  lanes_softmaxes(a, q, n, first, &ahead);
  ahead = lanes_lines_of(&t, 2 * ST_KEYS, 2 * n * (ST_PART / ST_KEYS));
  if (code_values) lanes_quantize_factors(&t, q, n, begin, end, &ahead);
  for (size_t i = 0; i < n; i++) memset(q[i].out, 0, a->head_dim * sizeof *q[i].out);
  lanes_all_values(&t, &values, begin, end);
}

static void lanes_attend(const st_attend *a, const st_attend_part *p) {
  for (size_t i = 0, n = st_attend_queries(a); i < n; i += LANES_QUERIES) {
    lanes_attend_queries(a, p, i, n - i < LANES_QUERIES ? n - i : LANES_QUERIES);
  }
}

#endif
