// How fast each function is on one thread, one line each: milliseconds, multiply-adds and bytes of weights a second,
// and the share of the ceiling that is nearer: this table's multiply-adds from registers, or this machine's reading of
// memory.
#ifndef SETUN_TESTS_KERNEL_BENCH_H
#define SETUN_TESTS_KERNEL_BENCH_H

#include "checks.h"

#include <time.h>

// This thread's own processor time, so that other work on the machine disturbs less.
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

enum { ARENA = 256 << 20 }; // more than any cache here, so that one token's weights come from memory

typedef struct {
  st_kernels k;
  double int8, floats, bytes; // ceilings, a second
  uint8_t *arena;
} ceilings;

static void measure_ceilings(ceilings *b) {
  b->int8 = b->floats = b->bytes = 0;
  for (int i = 0; i < 5; i++) {
    double t = now(), n = (double)b->k.peak_int8(1u << 30);
    b->int8 = fmax(b->int8, n / (now() - t));
    t = now(), n = (double)b->k.peak_float(1u << 28);
    b->floats = fmax(b->floats, n / (now() - t));
    t = now(), b->k.read(b->arena, ARENA);
    b->bytes = fmax(b->bytes, ARENA / (now() - t));
  }
  printf("%s, 1 thread: int8 %.0f GMAC/s, float32 %.0f GMAC/s from registers, read %.1f GB/s\n", b->k.name,
         b->int8 / 1e9, b->floats / 1e9, b->bytes / 1e9);
}

// One product; copies of the matrix follow one another through the arena, as a model's matrices do. Best of several.
static void bench_product(ceilings *b, st_form form, st_activation kind, size_t rows, size_t columns, size_t tokens) {
  if (!b->k.matmul[form][kind]) return;
  matrix w = make_matrix(form, rows, columns, 256, RANDOM);
  size_t bytes = rows / 16 * w.m.group_bytes, copies = tokens == 1 ? ARENA / bytes : 1;
  for (size_t i = 0; i < copies; i++) memcpy(b->arena + i * bytes, w.m.data, bytes);
  float *x = st_malloc(tokens * columns, sizeof *x), *out = st_malloc(tokens * rows, sizeof *out);
  random_activations(x, tokens * columns, RANDOM);
  st_input input;
  prepare(&b->k, &input, kind, x, tokens, columns);
  double best = 1e9;
  for (double start = now(); now() - start < 0.3;) {
    double t = now();
    for (size_t i = 0; i < copies; i++) {
      w.m.data = b->arena + i * bytes;
      b->k.matmul[form][kind](&w.m, &input, 0, rows, out, rows);
    }
    best = fmin(best, (now() - t) / (double)copies);
  }
  double macs = (double)rows * (double)columns * (double)tokens / best, moved = (double)bytes / best;
  double compute = macs / (kind == ST_ACT_F32 ? b->floats : b->int8), memory = moved / b->bytes;
  printf("%-6s %-4s x %-10s %5zux%-5zu %4zu tokens: %9.4f ms %7.1f GMAC/s %6.2f GB/s %5.1f%% of %s\n", b->k.name,
         st_form_name(form), activation_names[kind], rows, columns, tokens, best * 1e3, macs * 1e-9, moved * 1e-9,
         100 * fmax(compute, memory), compute > memory ? "multiply-adds" : "memory");
  st_free(x), st_free(out), free_input(&input);
  free_matrix(&w);
}

static void print_small(const char *name, const char *what, double seconds, double elements) {
  printf("%-6s %-38s %9.2f us %7.2f G elements/s\n", name, what, seconds * 1e6, elements / seconds * 1e-9);
}

#define BENCH(what, elements, call)                                                                                    \
  do {                                                                                                                 \
    double best = 1e9;                                                                                                 \
    for (int round = 0; round < 20; round++) {                                                                         \
      double t = now();                                                                                                \
      for (int i = 0; i < 50; i++) call;                                                                               \
      best = fmin(best, (now() - t) / 50);                                                                             \
    }                                                                                                                  \
    print_small(b->k.name, what, best, elements);                                                                      \
  } while (0)

static void bench_small(ceilings *b) {
  enum { N = 6912, HIDDEN = 2560, KEYS = 2000, HEADS = 4, DIM = 128 };
  static float x[N], y[N], z[N], q[HEADS * DIM], out[HEADS * DIM];
  enum { TOKENS = 8, SEEN = 256, PAGES = (KEYS + ST_KEYS - 1) / ST_KEYS };
  static uint16_t k[PAGES * ST_KEYS * DIM], v[PAGES * ST_KEYS * DIM];
  uint32_t pages[PAGES];
  static int8_t codes[N];
  int32_t sum;
  random_floats(x, N, RANDOM), random_floats(y, N, RANDOM), random_floats(q, HEADS * DIM, RANDOM);
  for (size_t i = 0; i < sizeof k / sizeof *k; i++) k[i] = st_f16_from_f32(random_float()), v[i] = k[i];
  for (uint32_t i = 0; i < PAGES; i++) pages[i] = i;
  BENCH("rmsnorm 2560", HIDDEN, b->k.rmsnorm(x, y, HIDDEN, 1e-5f, z));
  BENCH("quantize_token 6912", N, b->k.quantize_token(x, N, codes, &sum));
  for (int kind = 0; kind < ST_ACT_COUNT; kind++) {
    st_input input = {.kind = (st_activation)kind, .tokens = 1, .columns = N};
    input.data = st_aligned_alloc(b->k.input_bytes(input.kind, 1, N));
    char what[64];
    snprintf(what, sizeof what, "prepare %s with norm, 6912", activation_names[kind]);
    BENCH(what, N, b->k.prepare(&input, x, N, y, 1e-5f, 0, 1));
    st_free(input.data);
  }
  BENCH("glu relu2 6912", N, b->k.glu(ST_GLU_RELU2, x, y, N, z));
  BENCH("glu silu 6912", N, b->k.glu(ST_GLU_SILU, x, y, N, z));
  BENCH("rope, one head of 128", DIM, b->k.rope(q, x, y, DIM, false));
  BENCH("add 2560", HIDDEN, b->k.add(z, x, 1, HIDDEN));
  random_floats(q, HEADS * DIM, RANDOM);
  st_attend a = {.q = q,
                 .n_q = HEADS,
                 .q_stride = DIM,
                 .head_dim = DIM,
                 .k = (const uint8_t *)k,
                 .v = (const uint8_t *)v,
                 .page_bytes = ST_KEYS * DIM * sizeof *k,
                 .pages = pages,
                 .n_keys = KEYS,
                 .scale = 0.1f};
  float *scratch = st_malloc(st_attend_scratch(TOKENS * HEADS, DIM), sizeof *scratch);
  BENCH("attend, 4 heads of 128, 2000 keys", 2.0 * HEADS * KEYS * DIM, st_attend_run(&b->k, &a, scratch, out));
  static float qs[TOKENS * HEADS * DIM], outs[TOKENS * HEADS * DIM];
  random_floats(qs, TOKENS * HEADS * DIM, RANDOM);
  a.q = qs, a.n_tokens = TOKENS, a.token_stride = HEADS * DIM, a.n_keys = SEEN;
  BENCH("attend, 8 tokens, 4 of 128, 256 keys", 2.0 * TOKENS * HEADS * SEEN * DIM,
        st_attend_run(&b->k, &a, scratch, outs));
  st_free(scratch);
}

static void bench_table(ceilings *b, const options *o) {
  static const size_t shapes[][2] = {{2560, 2560}, {640, 2560}, {6912, 2560}, {2560, 6912}};
  static const size_t tokens[] = {2, 4, 8, 16, 32, 128, 512};
  measure_ceilings(b);
  for (int i = 0; i < ST_FORM_COUNT * ST_ACT_COUNT; i++) {
    st_form form = (st_form)(i / ST_ACT_COUNT);
    st_activation kind = (st_activation)(i % ST_ACT_COUNT);
    if (!st_form_takes(form, kind) || (o->only && strcmp(o->only, st_form_name(form)))) continue;
    for (size_t s = 0; s < 4; s++) bench_product(b, form, kind, shapes[s][0], shapes[s][1], 1);
    for (size_t t = 0; t < 7; t++) bench_product(b, form, kind, 2560, 2560, tokens[t]);
  }
  if (!o->only || !strcmp(o->only, "misc")) bench_small(b);
}

static int run_bench(const options *o) {
  ceilings b = {.arena = st_pages_alloc(ARENA, true)};
  if (!b.arena) return fprintf(stderr, "no memory for the arena\n"), 1;
  st_random_seed(&random_state, o->rounds.seed);
  for (size_t i = 0; i < ARENA; i += 8) {
    uint64_t u = st_random_u64(&random_state);
    memcpy(b.arena + i, &u, 8);
  }
  for (size_t i = 1; st_isa_name(i); i++) { // the scalar table would take minutes
    setun_error err;
    if ((o->isa && strcmp(o->isa, st_isa_name(i))) || st_kernels_get(st_isa_name(i), &b.k, &err) != SETUN_OK) continue;
    bench_table(&b, o);
  }
  st_pages_free(b.arena, ARENA);
  return 0;
}

#endif
