// Repeats one product of 16 rows and 2560 columns, and does little else, so that a processor's counters, or an
// emulator's log (tools/count_arm.sh), show what the product takes.
// usage: bench_products ISA FORM float|token|block TOKENS COUNT
#include "form_names.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 16, COLUMNS = 2560, TOKENS_MOST = 64, BLOCK = 256 };

static const char *const activations[ST_ACT_COUNT] = {
    [ST_ACT_F32] = "float", [ST_ACT_INT8_TOKEN] = "token", [ST_ACT_INT8_BLOCK] = "block"};

static int find(const char *name, const char *(*name_of)(int), int count) {
  for (int i = 0; i < count; i++)
    if (!strcmp(name_of(i), name)) return i;
  return -1;
}

static const char *name_of_form(int form) {
  return form_name((st_form)form);
}

static const char *activation_name(int kind) {
  return activations[kind];
}

static int run(const st_kernels *k, int form, int kind, size_t tokens, size_t count) {
  size_t bytes = st_form_group_bytes((st_form)form, COLUMNS, BLOCK);
  uint8_t *codes = aligned_alloc(64, bytes);
  float *x = malloc(tokens * COLUMNS * sizeof *x), *out = malloc(tokens * ROWS * sizeof *out), scales[ROWS];
  size_t input_bytes = (k->input_bytes((st_activation)kind, tokens, COLUMNS) + 63) / 64 * 64;
  st_input input = {.kind = (st_activation)kind, .tokens = tokens, .columns = COLUMNS};
  input.data = aligned_alloc(64, input_bytes);
  input.scratch = aligned_alloc(64, k->scratch_bytes / 64 * 64 + 64);
  if (!codes || !x || !out || !input.data || !input.scratch) {
    fprintf(stderr, "bench_products: out of memory\n");
    return 1;
  }
  memset(codes, 0x11, bytes);
  for (size_t i = 0; i < tokens * COLUMNS; i++) x[i] = (float)(i % 64) - 31.5f;
  for (int r = 0; r < ROWS; r++) scales[r] = 1;
  st_matrix m = {.form = (st_form)form,
                 .rows = ROWS,
                 .columns = COLUMNS,
                 .block = BLOCK,
                 .group_bytes = bytes,
                 .data = codes,
                 .scales = st_form_has_row_scales((st_form)form) ? scales : NULL};
  k->prepare(&input, x, COLUMNS, NULL, 0, 0, tokens);
  for (size_t i = 0; i < count; i++) k->matmul[form][kind](&m, &input, 0, ROWS, out, ROWS);
  free(codes), free(x), free(out), free(input.data), free(input.scratch);
  return 0;
}

// A decimal number from 1 to `most`; 0: the text is something else.
static size_t number(const char *text, size_t most) {
  char *end;
  unsigned long n = isdigit((unsigned char)*text) ? strtoul(text, &end, 10) : 0;
  return n && !*end && n <= most ? n : 0;
}

int main(int argc, char **argv) {
  st_kernels k;
  setun_error error = {SETUN_OK, ""};
  if (argc != 6) {
    fprintf(stderr, "usage: bench_products ISA FORM float|token|block TOKENS COUNT\n");
    return 2;
  }
  if (st_kernels_get(argv[1], &k, &error) != SETUN_OK) {
    fprintf(stderr, "bench_products: %s\n", error.message);
    return 2;
  }
  int form = find(argv[2], name_of_form, ST_FORM_COUNT), kind = find(argv[3], activation_name, ST_ACT_COUNT);
  size_t tokens = number(argv[4], TOKENS_MOST), count = number(argv[5], SIZE_MAX);
  if (form < 0 || kind < 0 || !k.matmul[form][kind]) {
    fprintf(stderr, "bench_products: expected a form and activations that have a product, found %s and %s\n", argv[2],
            argv[3]);
    return 2;
  }
  if (!tokens || !count) {
    fprintf(stderr, "bench_products: expected 1 to %d tokens and a count, found %s and %s\n", TOKENS_MOST, argv[4],
            argv[5]);
    return 2;
  }
  return run(&k, form, kind, tokens, count);
}
