// Every array of a prepared input, of every table that this processor runs, against the scalar table's bit for bit:
// whole and broken tiles, in parts as threads take them, with and without a norm.
#include "common/harness.h"

#include "base/float16.h"
#include "base/memory.h"
#include "kernel/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/layout.h"

enum { MAX_TOKENS = 75, MAX_COLUMNS = 1100 };

// Tokens that a table interleaves: as many as it prepares together at least; the scalar table prepares one.
static size_t tile_width(const st_kernels *k) {
  size_t unit = k->prepare_unit(ST_ACT_INT8_TOKEN, MAX_TOKENS);
  return unit > 1 ? unit : ST_TILE_MOST;
}

// An input, and where one of its tokens is in it.
typedef struct {
  st_view v;
  size_t token, first, lane, count;
} token_view;

static token_view token_of(const st_input *input, size_t token, size_t width) {
  token_view t = {.v = st_view_input(input), .token = token, .first = token - token % width, .lane = token % width};
  t.count = st_tile_tokens(input->tokens, t.first, width);
  return t;
}

// Word b of a block array, of `rows` words a block, of which this is `row`.
static float block_word(const token_view *t, const void *array, size_t b, size_t rows, size_t row) {
  float word;
  size_t at = rows * (t->first * t->v.blocks + b * t->count) + row * t->count + t->lane;
  memcpy(&word, (const uint8_t *)array + 4 * at, 4);
  return word;
}

static bool same_block(st_activation kind, const token_view *x, const token_view *y, size_t b) {
  if (kind != ST_ACT_F32) {
    bool equal = same(block_word(x, x->v.block_sum, b, 1, 0), block_word(y, y->v.block_sum, b, 1, 0));
    if (!equal || kind == ST_ACT_INT8_TOKEN) return equal;
  }
  const void *p[] = {x->v.block_scale, x->v.block_product, x->v.half_sum[0], x->v.half_sum[1]};
  const void *q[] = {y->v.block_scale, y->v.block_product, y->v.half_sum[0], y->v.half_sum[1]};
  for (int i = 0; i < 4; i++) {
    if (!same(block_word(x, p[i], b, 1, 0), block_word(y, q[i], b, 1, 0))) return false;
  }
  for (size_t half = 0; half < 2; half++) {
    float u = block_word(x, x->v.half_product, b, 2, half), w = block_word(y, y->v.half_product, b, 2, half);
    if (!same(u, w)) return false;
  }
  return true;
}

// Of floats only the columns: past them is zero times the norm's factor, which may be NaN, and is multiplied by padding
// alone.
static bool same_codes(st_activation kind, size_t columns, const token_view *x, const token_view *y) {
  size_t group = kind == ST_ACT_F32 ? 1 : 4;
  for (size_t i = 0; i < (kind == ST_ACT_F32 ? columns : x->v.padded); i++) {
    size_t in_x = x->first * x->v.padded + (i / group * x->count + x->lane) * group + i % group;
    size_t in_y = y->first * y->v.padded + (i / group * y->count + y->lane) * group + i % group;
    if (kind == ST_ACT_F32 ? !same(x->v.values[in_x], y->v.values[in_y]) : x->v.codes[in_x] != y->v.codes[in_y])
      return false;
  }
  return true;
}

// Where entry `at` of a view's second plane is in its lists: its 32 codes, `width` words apart.
typedef struct {
  size_t at, codes, width;
} entry_place;

static bool same_entry(const st_view *x, entry_place e, const st_view *y, entry_place f) {
  if (!same(x->rest_scale[e.at], y->rest_scale[f.at])) return false;
  if (x->rest_sum[e.at] != y->rest_sum[f.at]) return false;
  for (int i = 0; i < 2; i++) {
    if (x->rest_half[i][e.at] != y->rest_half[i][f.at]) return false;
  }
  for (size_t j = 0; j < 8; j++) {
    if (memcmp(x->rest + e.codes + 4 * j * e.width, y->rest + f.codes + 4 * j * f.width, 4)) return false;
  }
  return true;
}

// The entry of a token in a block's list, which must be the only one; false without one.
static bool find_entry(const st_view *v, st_rest_list list, size_t token, entry_place *e) {
  size_t found = 0;
  *e = (entry_place){0};
  for (size_t i = 0; i < v->rest_count[list.count_at]; i++) {
    if (v->rest_place[list.at + i] != token) continue;
    e->at = list.at + i, e->width = list.width, found++;
    e->codes = 32 * (e->at - i % list.width) + 4 * (i % list.width);
  }
  return found == 1;
}

// The scalar table (y) keeps the second plane token by token, the others in lists of blocks.
static bool same_rest(const token_view *x, const token_view *y, size_t tokens, size_t width) {
  size_t count = y->v.rest_count[y->token], entries = 0, chunk = st_chunk_tokens(tokens, width);
  for (size_t b = 0; b < x->v.blocks; b++) {
    size_t first = x->token - x->token % chunk, at = y->token * y->v.blocks + entries;
    st_rest_list list = st_rest_list_of(&x->v, tokens, width, first, b);
    entry_place e, f = {at, 32 * at, 1};
    if (!find_entry(&x->v, list, x->token - first, &e)) continue;
    if (entries == count || y->v.rest_place[at] != b || !same_entry(&x->v, e, &y->v, f)) return false;
    entries++;
  }
  return entries == count;
}

static bool same_scalar_rest(const token_view *x, const token_view *y) {
  size_t count = x->v.rest_count[x->token], at = x->token * x->v.blocks, bytes = 4 * count;
  return count == y->v.rest_count[x->token] && !memcmp(x->v.rest_place + at, y->v.rest_place + at, bytes) &&
         !memcmp(x->v.rest + 32 * at, y->v.rest + 32 * at, 32 * count);
}

static bool same_token(st_activation kind, size_t columns, const token_view *x, const token_view *y) {
  if (!same_codes(kind, columns, x, y)) return false;
  if (kind == ST_ACT_INT8_TOKEN &&
      (!same(x->v.scale[x->token], y->v.scale[x->token]) || x->v.sum[x->token] != y->v.sum[x->token]))
    return false;
  for (size_t b = 0; kind != ST_ACT_F32 && b < x->v.blocks; b++) {
    if (!same_block(kind, x, y, b)) return false;
  }
  return true;
}

// Values such as models have, mixed with extreme floats.
static void edged_activations(float *x, size_t n) {
  static const float edges[] = {0, -0.0f, 1e-36f, 9e-37f, 1e-40f, 3e38f, INFINITY, -INFINITY, NAN};
  random_activations(x, n, RANDOM);
  for (size_t i = 0; i < n; i++) {
    if (!random_below(300)) x[i] = edges[random_below(9)];
  }
  if (n < 64 || random_below(4)) return;
  size_t first = random_below((uint32_t)(n - 63));
  for (size_t i = 0; i < 64; i++) x[first + i] *= 1e-37f; // near the least block
}

static void check_prepare(const st_kernels *k, const st_kernels *reference, st_activation kind, size_t tokens,
                          size_t columns, const float *norm) {
  static float x[MAX_TOKENS * MAX_COLUMNS];
  edged_activations(x, tokens * columns);
  st_input out = {.kind = kind,
                  .tokens = tokens,
                  .columns = columns,
                  .data = st_aligned_alloc(k->input_bytes(kind, tokens, columns))};
  st_input expected = {.kind = kind,
                       .tokens = tokens,
                       .columns = columns,
                       .data = st_aligned_alloc(reference->input_bytes(kind, tokens, columns))};
  reference->prepare(&expected, x, columns, norm, 1e-5f, 0, tokens);
  size_t unit = k->prepare_unit(kind, tokens), width = tile_width(k);
  size_t middle = random_below((uint32_t)((tokens + unit - 1) / unit) + 1) * unit; // the later part first
  if (middle > tokens) middle = tokens;
  k->prepare(&out, x, columns, norm, 1e-5f, middle, tokens);
  k->prepare(&out, x, columns, norm, 1e-5f, 0, middle);
  for (size_t t = 0; t < tokens; t++) {
    token_view a = token_of(&out, t, width), b = token_of(&expected, t, tile_width(reference));
    comparisons++;
    bool equal = same_token(kind, columns, &a, &b);
    if (kind == ST_ACT_INT8_BLOCK && equal) {
      equal = k->prepare != reference->prepare ? same_rest(&a, &b, tokens, width) : same_scalar_rest(&a, &b);
    }
    if (!equal) {
      FAIL("prepare %s of %zu tokens of %zu%s, in two at %zu: token %zu", activation_names[kind], tokens, columns,
           norm ? " with a norm" : "", middle, t);
    }
  }
  st_free(out.data), st_free(expected.data);
}

// Every kind of input, with and without a norm, of some tokens and columns.
static void check_inputs(const st_kernels *k, const st_kernels *reference, size_t round) {
  static const size_t columns[] = {1, 16, 31, 32, 33, 64, 100, 512, 530, 576, MAX_COLUMNS};
  static const size_t tokens[] = {1, 5, 6, 7, 8, 9, 17, 48, 49, 75};
  enum { COLUMNS = sizeof columns / sizeof *columns, TOKENS = sizeof tokens / sizeof *tokens };
  static float norm[MAX_COLUMNS];
  for (size_t i = 0; i < MAX_COLUMNS; i++) norm[i] = random_float();
  for (size_t i = 0; i < COLUMNS; i++) {
    size_t n = round ? 1 + random_below(MAX_TOKENS) : tokens[i % TOKENS];
    for (int kind = 0; kind < ST_ACT_COUNT; kind++) {
      check_prepare(k, reference, (st_activation)kind, n, columns[i], NULL);
      check_prepare(k, reference, (st_activation)kind, n, columns[i], norm);
    }
  }
}

int main(int argc, char **argv) {
  enum { NAMES = 16 };
  static uint64_t compared[NAMES];
  timed_rounds r = rounds_of_arguments(argc, argv);
  st_kernels tables[NAMES];
  bool there[NAMES];
  size_t n = 0;
  setun_error err;
  for (; st_isa_name(n) && n < NAMES; n++) there[n] = st_kernels_get(st_isa_name(n), &tables[n], &err) == SETUN_OK;
  for (; rounds_go_on(&r); r.round++) {
    for (size_t i = 0; i < n && rounds_go_on(&r); i++) {
      uint64_t before = comparisons;
      if (!there[i]) continue;
      table_name = tables[i].name;
      st_random_seed(&random_state, rounds_seed(&r, 0));
      check_inputs(&tables[i], &tables[0], (size_t)r.round);
      compared[i] += comparisons - before;
    }
  }
  for (size_t i = 0; i < n; i++)
    printf("%-8s %s, %llu comparisons\n", st_isa_name(i), there[i] ? "runs" : "skipped",
           (unsigned long long)compared[i]);
  printf("%d failures\n", failures);
  rounds_print(&r);
  return failures != 0;
}
