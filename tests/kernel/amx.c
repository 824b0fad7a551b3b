// The AMX products of int8 with their tile instructions emulated: the same source, on any processor with AVX-512,
// against the scalar table. It shows the arithmetic and the addressing; kernels.c runs the instructions where they
// exist.
#include "base/cpu.h"
#include "common/harness.h"

#include "base/float16.h"
#include "base/memory.h"
#include "kernel/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
static int check_emulated(timed_rounds r);
#endif

// Before TILES_BEGIN, so that a processor without AVX-512 gets here.
int main(int argc, char **argv) {
  timed_rounds r = rounds_of_arguments(argc, argv);
  table_name = "amx (emulated)";
#if defined(__x86_64__)
  st_cpu cpu = st_cpu_detect();
  if (cpu.avx512 && cpu.leaf7[0][ST_ECX] & 1u << 1) return check_emulated(r);
#else
  (void)r;
#endif
  printf("amx (emulated) skipped: this processor has no AVX-512 with VBMI\n");
  return 77;
}

#if defined(__x86_64__)
#include "common/tiles.h"

TILES_BEGIN
#include "kernel/x86/int8_amx.c"

#include "kernel/x86/blocks_amx.c"
#include "kernel/x86/rows_amx.c"
TILES_END

typedef struct {
  size_t rows, columns, tokens;
} shape;

static size_t parts(size_t n, size_t unit) {
  return (n + unit - 1) / unit;
}

static st_kernels amx;

// Products of 16 entries of the lists of second planes with a group of rows.
static size_t list_products(const st_input *input) {
  st_view v = st_view_input(input);
  size_t chunks = parts(input->tokens, st_chunk_tokens(input->tokens, 8)), n = 0;
  for (size_t i = 0; i < chunks * v.blocks; i++) n += parts(v.rest_count[i], 16);
  return n;
}

static size_t expected_products(const st_matrix *w, const st_input *input, size_t first, size_t last) {
  size_t groups = parts(last - first, 16), of_tokens = parts(input->tokens, 16), deep = parts(w->columns, 64);
  if (input->tokens < 16) return 0;
  if (input->kind == ST_ACT_INT8_TOKEN) {
    if (st_form_has_row_scales(w->form)) return 4 * parts(groups, 2) * parts(of_tokens, 2) * deep;
    return w->block < 64 || 1024 % w->block ? 0 : groups * of_tokens * deep;
  }
  return groups * (of_tokens * deep * 2 + list_products(input)) * st_coding_of(w->form).subs;
}

// Of a scale a row: operands are loaded once a product, sums between pieces of 512 columns (640 of five codes a byte).
static void check_traffic(const st_matrix *w, size_t products, size_t loads, size_t stores) {
  size_t pieces = parts(w->columns, st_form_is(w->form, ST_KIND_FIVES) ? 640 : 512),
         sums = products / parts(w->columns, 64);
  if (loads != products + (pieces - 1) * sums || stores != pieces * sums) {
    FAIL("%s, %zu columns: %zu loads and %zu stores of tiles for %zu products", form_name(w->form), w->columns, loads,
         stores, products);
  }
}

// Calls AMX's product, which must take the expected number of tile products.
static void counted_matmul(const st_matrix *w, const st_input *input, size_t first, size_t last, float *out,
                           size_t stride) {
  size_t before = tile_products, expected = expected_products(w, input, first, last);
  size_t loads = tile_loads, stores = tile_stores;
  amx.matmul[w->form][input->kind](w, input, first, last, out, stride);
  if (tile_products - before != expected) {
    FAIL("%s x %s, %zu tokens: %zu products of tiles, expected %zu", form_name(w->form), activation_names[input->kind],
         input->tokens, tile_products - before, expected);
  }
  if (st_form_has_row_scales(w->form) && input->kind == ST_ACT_INT8_TOKEN)
    check_traffic(w, expected, tile_loads - loads, tile_stores - stores);
}

static void check_tiles(const st_kernels *k, const st_kernels *reference, st_form form, shape s, uint32_t block,
                        mode how) {
  s.columns = whole_columns(form, block, s.columns);
  matrix w = make_matrix(form, s.rows, s.columns, block, how);
  for (st_activation kind = ST_ACT_INT8_TOKEN; kind <= ST_ACT_INT8_BLOCK; kind++) {
    if (!k->matmul[form][kind]) continue;
    check_product(k, reference, &w, kind, how, s.tokens);
    if (how != RANDOM) check_product(k, reference, &w, kind, RANDOM, s.tokens);
  }
  free_matrix(&w);
}

// Whole tiles and tails of tokens, columns and rows; extremes; several pieces of columns and passes of tokens. The
// first round has the extremes of a shape with all of them but passes, and random codes, since at an extreme all codes
// of a matrix are the same, wherever they are taken from; the next rounds the listed shapes, then there are any.
static void check_form(const st_kernels *k, const st_kernels *reference, st_form form, size_t round) {
  static const shape shapes[] = {{16, 64, 17},    {50, 96, 33},   {33, 1, 16},    {100, 1024, 32}, {48, 1056, 48},
                                 {17, 4160, 260}, {40, 2560, 40}, {17, 67, 100},  {5, 96, 64},     {18, 352, 130},
                                 {20, 320, 15},   {31, 2080, 25}, {1, 1120, 129}, {33, 544, 24},   {16, 256, 31},
                                 {16, 32, 16},    {35, 1312, 50}, {32, 160, 530}, {300, 96, 70},   {150, 1312, 290}};
  static const uint32_t blocks[] = {64, 128, 256, 512, 32, 96};
  enum { LISTED = sizeof shapes / sizeof *shapes };
  uint32_t block = blocks[random_below(round ? 6 : 3)];
  if (!round) {
    check_tiles(k, reference, form, (shape){20, 1120, 33}, block, LARGEST);
    check_tiles(k, reference, form, (shape){20, 96, 16}, block, SMALLEST);
    check_tiles(k, reference, form, (shape){33, 352, 17}, block, RANDOM);
  } else if (round <= LISTED) {
    check_tiles(k, reference, form, shapes[round - 1], block, (mode)random_below(MODES));
  } else {
    shape s = {1 + random_below(50), 1 + random_below(1200), 16 + random_below(50)};
    check_tiles(k, reference, form, s, block, (mode)random_below(MODES));
  }
}

// A token's codes in the second copy.
static bool same_token(const st_input *input, size_t token) {
  st_view v = st_view_input(input);
  st_amx_view copy = st_amx_view_input(input);
  size_t padded = st_round_up(input->columns, 64), of = token / 16 * 16, row = token % 16;
  size_t first = token / 8 * 8, lane = token % 8;
  size_t n = token < input->tokens ? st_tile_tokens(input->tokens, first, 8) : 0; // 0: missing, all zeros
  for (size_t i = 0; i < padded; i++) {
    int8_t code = n && i < v.padded ? v.codes[first * v.padded + (i / 4 * n + lane) * 4 + i % 4] : 0;
    if (copy.codes[of * padded + i / 64 * 1024 + row * 64 + i % 64] != code) return false;
  }
  for (size_t b = 0; b < v.blocks && input->kind == ST_ACT_INT8_BLOCK; b++) {
    size_t from = first * v.blocks + b * n, at = of * v.blocks + b * 16;
    if (!same(copy.block_scale[at + row], n ? v.block_scale[from + lane] : 0)) return false;
  }
  return true;
}

// And of the lists of the chunk that begins at a token.
static bool same_lists(const st_input *input, size_t token) {
  st_view v = st_view_input(input);
  st_amx_view copy = st_amx_view_input(input);
  for (size_t b = 0; b < v.blocks; b++) {
    st_rest_list list = st_rest_list_of(&v, input->tokens, 8, token, b);
    for (size_t e = 0; e < v.rest_count[list.count_at]; e++) {
      for (size_t i = 0; i < 32; i++) {
        size_t word = (e / list.width * 8 + i / 4) * list.width + e % list.width;
        if (copy.rest[32 * (list.at + e) + i] != v.rest[32 * list.at + 4 * word + i % 4]) return false;
      }
    }
  }
  return true;
}

// The second copy of an input, prepared in parts from the last to the first, against the first copy, which
// tests/kernel/prepare.c compares with the scalar table's.
static void check_copy(const st_kernels *k, st_activation kind, size_t tokens, size_t columns) {
  size_t unit = k->prepare_unit(kind, tokens), bytes = k->input_bytes(kind, tokens, columns);
  float *x = st_malloc(tokens * columns, sizeof *x);
  st_input input = {.kind = kind, .tokens = tokens, .columns = columns, .data = st_aligned_alloc(bytes)};
  memset(input.data, 0x5A, bytes);
  random_activations(x, tokens * columns, RANDOM);
  for (size_t first = st_round_up(tokens, unit); first; first -= unit) {
    size_t last = first < tokens ? first : tokens;
    k->prepare(&input, x, columns, NULL, 0, first - unit, last);
  }
  for (size_t t = 0; t < st_round_up(tokens, 16); t++) {
    comparisons++;
    if (!same_token(&input, t)) FAIL("token %zu of %zu x %zu differs in tiles", t, tokens, columns);
    if (kind == ST_ACT_INT8_TOKEN || t >= tokens || t % unit) continue;
    if (!same_lists(&input, t)) FAIL("lists of token %zu of %zu x %zu differ in tiles", t, tokens, columns);
  }
  st_free(input.data), st_free(x);
}

static void check_copies(const st_kernels *k, size_t round) {
  for (size_t i = 0; i < 4; i++) {
    size_t tokens = round ? 16 + random_below(134) : 16 + 11 * i;
    check_copy(k, ST_ACT_INT8_TOKEN, tokens, 1 + random_below(200));
    check_copy(k, ST_ACT_INT8_BLOCK, tokens, 1 + random_below(200));
  }
}

// Codes that AMX has products for.
static bool has_tiles(st_form form) {
  if (st_form_is(form, ST_KIND_FIVES)) return true;
  return st_form_is(form, ST_KIND_CODES) && st_form_takes(form, ST_ACT_INT8_BLOCK) && !st_coding_of(form).minimums;
}

static int check_emulated(timed_rounds r) {
  static uint64_t compared[ST_FORM_COUNT + 1];
  st_kernels k, reference;
  setun_error err;
  if (st_kernels_get("avx512", &k, &err) != SETUN_OK || st_kernels_get("scalar", &reference, &err) != SETUN_OK)
    return 1;
  st_amx_init(&k);
  amx = k;
  for (int form = 0; form < ST_FORM_COUNT; form++) {
    if (!has_tiles((st_form)form)) continue;
    for (int kind = ST_ACT_INT8_TOKEN; kind <= ST_ACT_INT8_BLOCK; kind++) {
      if (k.matmul[form][kind]) k.matmul[form][kind] = counted_matmul;
    }
  }
  for (; rounds_go_on(&r); r.round++) {
    for (int form = 0; form <= ST_FORM_COUNT && rounds_go_on(&r); form++) {
      uint64_t before = comparisons;
      if (form < ST_FORM_COUNT && !has_tiles((st_form)form)) continue;
      st_random_seed(&random_state, rounds_seed(&r, (uint64_t)form));
      if (form == ST_FORM_COUNT)
        check_copies(&k, (size_t)r.round);
      else
        check_form(&k, &reference, (st_form)form, (size_t)r.round);
      compared[form] += comparisons - before;
    }
  }
  for (int form = 0; form < ST_FORM_COUNT; form++)
    if (compared[form])
      printf("%-8s %12llu comparisons\n", form_name((st_form)form), (unsigned long long)compared[form]);
  printf("%-8s %12llu comparisons\n", "input", (unsigned long long)compared[ST_FORM_COUNT]);
  printf("amx (emulated) %s: %zu products of tiles\n", failures ? "FAILED" : "ok", tile_products);
  rounds_print(&r);
  return failures != 0;
}
#endif
