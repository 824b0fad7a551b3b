// Attention over the pages of the KV cache.
//
// The order of all sums is the same for any number of tokens, threads and passes. Keys are taken in parts of ST_PART
// positions, which begin at the multiples of ST_PART. A query's part gives the largest score, the sum of e^(score -
// largest), and the sum of the values, each times its e^(score - largest): a table's `attend`. The parts of a query are
// merged from the first that it sees to the last, and the sum of values is divided at the end. So the memory for scores
// does not grow with the context, and threads can share the parts of one query.
//
// Keys that are codes are multiplied by queries, times `scale`, that are codes too, of 14 bits at most, with a scale
// for each query: a score is an exact sum of integers, then times both scales. Values that are codes are multiplied by
// the factors of a block's keys, times the keys' scales, as codes of 16 bits with a scale for each query and block:
// again exact sums of integers, which times that scale are added up in float32. So only the order of the blocks
// matters.
#ifndef SETUN_KERNEL_ATTEND_H
#define SETUN_KERNEL_ATTEND_H

#include "kernel/cache.h"

enum { ST_PART = 512 };

// One KV head of a cache and the query heads that share it, of one token or of several that follow one another.
// A query is one head of one token; they are counted token by token.
struct st_attend {
  const float *q; // [n_tokens][token_stride] of [n_q][q_stride]: query heads, n_q of them a token
  size_t n_q, q_stride;
  size_t n_tokens; // 0 counts as 1
  size_t token_stride;
  size_t head_dim;
  // The head's blocks in page 0 of the cache; pages[i] has the positions from i * ST_KEYS on, as far as a token sees
  // them: other entries are not read.
  const uint8_t *k, *v;
  size_t page_bytes;
  const uint32_t *pages;
  setun_kv_type keys, values; // formats
  size_t n_keys;              // token 0 sees the keys [0, n_keys), token i [0, n_keys + i)
  size_t window;              // of these only the last `window`; 0: all
  float scale;                // of the scores
  bool merged;                // sums of other keys exist already: the first part of these is added to them
  const float *sinks;         // [n_q] learned logits that take part in the softmax only; NULL: none
};

// Queries for keys that are codes.
typedef struct st_attend_codes {
  int8_t *codes;    // [queries][row_bytes]: int16 or int8, as many bits as the format's code_bits
  float *scales;    // [queries]; NaN: a number is not finite
  int32_t *sums;    // [queries] of the codes
  size_t columns;   // of a head, padded to ST_STEP with zeros
  size_t row_bytes; // of these
} st_attend_codes;

// Those from query `first` on.
static inline st_attend_codes st_attend_codes_from(const st_attend_codes *c, size_t first) {
  return (st_attend_codes){c->codes + first * c->row_bytes, c->scales + first, c->sums + first, c->columns,
                           c->row_bytes};
}

// A part, and the destination of its results.
struct st_attend_part {
  size_t index;                   // keys [index * ST_PART, (index + 1) * ST_PART)
  bool fetched;                   // the thread has prefetched the keys
  const uint8_t *next_k, *next_v; // what it computes next: a head's blocks in page 0, like `k`, `v`; NULL: nothing
  size_t next_index;              // and the part of them
  const st_attend_codes *queries; // of st_attend_prepare; NULL where keys are numbers
  float *scores;                  // scratch [queries][ST_SCORES]
  float *out;                     // [queries][head_dim] sums of values; zeros for a query that sees none of the keys
  float *state; // [queries][2]: the largest of the scores and of the query's sink, and the sum of the others' e^(score
                // - largest)
};
enum { ST_SCORES = ST_PART + 16 };

static inline size_t st_attend_queries(const st_attend *a) {
  return a->n_q * (a->n_tokens ? a->n_tokens : 1);
}

// The keys of a part that a token sees, counted from the part's first; first == last where it sees none.
typedef struct st_key_range {
  size_t first, last;
} st_key_range;

static inline st_key_range st_attend_range(const st_attend *a, size_t token, size_t part) {
  size_t last = a->n_keys + token, first = a->window && last > a->window ? last - a->window : 0, from = part * ST_PART;
  first = first < from ? 0 : first - from < ST_PART ? first - from : ST_PART;
  last = last < from ? 0 : last - from < ST_PART ? last - from : ST_PART;
  return (st_key_range){first, last};
}

// The parts that some token sees: [first, last).
st_key_range st_attend_parts(const st_attend *a);

// Adds the results of part `index`, in the layout of st_attend_part, to those of the parts before it, likewise in `out`
// and `state`. A query's first part overwrites the result.
void st_attend_merge(const st_attend *a, size_t index, const float *part_out, const float *part_state, float *out,
                     float *state);
// The results, laid out as a->q, of merged sums.
void st_attend_finish(const st_kernels *k, const st_attend *a, const float *sums, const float *state, float *out);

// The factors of values that are codes are codes of at most that many units for the largest of a block; a largest
// one below ST_FACTOR_LEAST counts as zero.
static inline float st_factor_most(setun_kv_type values) {
  return st_kv_format_of(values)->code_bits == 8 ? 127.0f : 32767.0f;
}
#define ST_FACTOR_LEAST 0x1p-100f

// Memory for one thread that computes up to that many queries, and its contents; aligned to 64.
typedef struct st_attend_memory {
  float *scores, *row; // row: of a query that codes are made of; NULL where keys are numbers
  st_attend_codes codes;
  float *sums, *next; // [queries][head_dim], then their states
} st_attend_memory;
size_t st_attend_scratch(setun_kv_type keys, size_t queries, size_t head_dim);
st_attend_memory st_attend_memory_of(const st_attend *a, void *scratch);
// Makes the queries codes where keys are codes, otherwise returns NULL.
const st_attend_codes *st_attend_prepare(const st_kernels *k, const st_attend *a, const st_attend_memory *memory);

// All of it, one part after the other.
void st_attend_run(const st_kernels *k, const st_attend *a, void *scratch, float *out);

#endif
