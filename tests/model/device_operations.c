// The kernels of devices other than the CPU: products in each form against float64 sums, and each other operation
// against the CPU's scalar table, with random shapes.
//
//   model_device_operations [--seed N|random] [--seconds S]
#include "device_pair.h"

#include <float.h>

enum { WIDE = 700, ROWS = 90, TOKENS = 9 };

// ---- products -----------------------------------------------------------------------------------------------------

static product random_product(st_random *r, const st_format *f, bool int8) {
  uint32_t columns = 1 + below(r, WIDE);
  if (f->block > 1) columns = f->block * (1 + below(r, WIDE / f->block));
  return (product){.desc = {.format = f,
                            .shape = {1 + below(r, ROWS), columns},
                            .precision = int8 ? ST_PRECISION_INT8 : ST_PRECISION_FLOAT},
                   .n = rounds.round ? 1 + below(r, TOKENS - 3) : 1 + 4 * below(r, 2),
                   .first = below(r, 3),
                   .count = 1 + below(r, 3),
                   .normed = below(r, 2),
                   .biased = below(r, 2),
                   .borrowed = below(r, 2)};
}

// Float32 sums in any order are within k eps of the sum of magnitudes; what the CPU's rows are is the weights.
static void expect_sums(const pair *p, const product *t, st_dmatrix *m, const float *x, const float *bias,
                        st_array *dst, size_t width) {
  uint32_t rows = (uint32_t)t->desc.shape.rows, columns = (uint32_t)t->desc.shape.columns;
  float *w = malloc((size_t)columns * sizeof *w), *y = malloc(TOKENS * width * sizeof *y);
  setun_error err;
  st_array *row = NULL;
  assert_non_null(w);
  assert_non_null(y);
  need(p->b[1]->array_new(p->queue[1], 1, columns, &row, &err), &err);
  need(p->b[0]->read(p->queue[0], dst, 0, TOKENS * width, y, &err), &err);
  for (int32_t i = 0; i < (int32_t)rows; i++) {
    p->b[1]->embed(p->queue[1], m, &i, 1, 1, row, 0);
    need(p->b[1]->read(p->queue[1], row, 0, columns, w, &err), &err);
    for (uint32_t k = 0; k < t->n; k++) {
      double sum = bias ? bias[i] : 0, size = fabs(sum);
      for (uint32_t j = 0; j < columns; j++) {
        double term = (double)w[j] * x[(size_t)(t->first + k) * columns + j];
        sum += term, size += fabs(term);
      }
      double off = fabs(sum - y[k * width + (size_t)i]);
      if (!(off <= size * (columns + 4) * 0x1p-24)) {
        fail_msg("%s, %u x %u, token %u of %u, row %d: expected %.9g, found %.9g (seed %llu, round %llu)",
                 t->desc.format->name, rows, columns, k, t->n, i, sum, (double)y[k * width + (size_t)i],
                 (unsigned long long)rounds.seed, (unsigned long long)rounds.round);
      }
    }
  }
  p->b[1]->array_free(row);
  free(w);
  free(y);
}

static void check_product(st_random *r, const st_format *f, bool int8) {
  pair p;
  product t = random_product(r, f, int8);
  uint32_t rows = (uint32_t)t.desc.shape.rows, columns = (uint32_t)t.desc.shape.columns;
  size_t width = t.count * rows;
  st_dmatrix *m[2];
  st_array *x[2], *dst[2], *sum[2];
  st_dvector *norm[2], *bias[2];
  static float numbers[TOKENS * WIDE], zeros[3 * TOKENS * ROWS], biases[3 * ROWS];
  for (size_t i = 0; i < TOKENS * WIDE; i++) numbers[i] = unit(r);
  for (size_t i = 0; i < 3 * ROWS; i++) biases[i] = unit(r);
  open_devices(&p);
  void *codes = calloc(1, (size_t)gpu->matrix_info(p.device[0], &t.desc).codes + 64);
  assert_non_null(codes);
  fill(&p, r, &t, m, codes);
  open_queues(&p);
  new_array(&p, x, TOKENS, columns, numbers);
  new_array(&p, dst, TOKENS, width, zeros);
  new_array(&p, sum, TOKENS, rows, numbers);
  new_vector(&p, norm, numbers + 1, columns);
  new_vector(&p, bias, biases, 3 * ROWS);
  for (int i = 0; i < 2; i++) {
    st_linear_out outs[3];
    for (uint32_t k = 0; k < t.count; k++) {
      outs[k] = (st_linear_out){
          .matrix = m[i], .bias = t.biased ? bias[i] : NULL, .dst = dst[i], .row = 0, .column = k * rows};
    }
    p.b[i]->linear(p.queue[i], x[i], t.first, t.n, t.normed ? norm[i] : NULL, 1e-5f, outs, (int)t.count);
    if (t.count == 1) p.b[i]->add(p.queue[i], sum[i], dst[i], t.n, rows, 0.5f);
  }
  // int8 activations and their sums are exact; only the last multiplications are rounded
  expect_near(&p, dst, TOKENS * width, int8 && f->block == 1 ? 1e-6 : 1e-4, f->name);
  expect_near(&p, sum, (size_t)TOKENS * rows, 1e-4, f->name);
  if (!int8 && !t.normed) expect_sums(&p, &t, m[1], numbers, t.biased ? biases : NULL, dst[0], width);
  const int32_t ids[] = {(int32_t)rows - 1, 0};
  for (int i = 0; i < 2; i++) p.b[i]->embed(p.queue[i], m[i], ids, 2, 1.5f, x[i], 1);
  expect_near(&p, x, (size_t)3 * columns, 0, f->name);
  free_vector(&p, norm);
  free_vector(&p, bias);
  free_array(&p, x);
  free_array(&p, dst);
  free_array(&p, sum);
  for (int i = 0; i < 2; i++) p.b[i]->matrix_free(m[i]);
  close_pair(&p);
  free(codes);
}

// Two products of one input, the gate of both, and a product of that: dispatches that a device may join.
static void check_gate(st_random *r, const st_format *f, bool int8) {
  product t = random_product(r, f, int8), down = t;
  t.borrowed = false;
  uint32_t rows = f->block > 1 ? f->block * (1 + below(r, ROWS / f->block + 1)) : (uint32_t)t.desc.shape.rows;
  uint32_t columns = (uint32_t)t.desc.shape.columns;
  t.desc.shape.rows = down.desc.shape.columns = rows;
  down.borrowed = false;
  static float numbers[TOKENS * WIDE], biases[2 * WIDE];
  for (size_t i = 0; i < TOKENS * WIDE; i++) numbers[i] = unit(r);
  for (size_t i = 0; i < 2 * WIDE; i++) biases[i] = unit(r);
  pair p;
  st_dmatrix *m[3][2];
  st_array *x[2], *gate[2], *up[2], *dst[2];
  st_dvector *norm[2], *bias[2];
  open_devices(&p);
  for (int k = 0; k < 3; k++) fill(&p, r, k < 2 ? &t : &down, m[k], NULL);
  open_queues(&p);
  new_array(&p, x, TOKENS, columns, numbers);
  new_array(&p, gate, TOKENS, rows, numbers + 1);
  new_array(&p, up, TOKENS, rows, numbers + 2);
  new_array(&p, dst, TOKENS, (size_t)down.desc.shape.rows, numbers + 3);
  new_vector(&p, norm, numbers + 1, columns > rows ? columns : rows);
  new_vector(&p, bias, biases, 2 * rows);
  st_activation_fn fn = (st_activation_fn)below(r, ST_FN_SILU_CLAMPED + 1);
  for (int i = 0; i < 2; i++) {
    const st_dvector *b = t.biased ? bias[i] : NULL;
    const st_linear_out both[] = {{.matrix = m[0][i], .bias = b, .dst = gate[i]}, {.matrix = m[1][i], .dst = up[i]}};
    const st_linear_out last = {.matrix = m[2][i], .dst = dst[i]};
    p.b[i]->linear(p.queue[i], x[i], t.first, t.n, t.normed ? norm[i] : NULL, 1e-5f, both, 2);
    p.b[i]->glu(p.queue[i], fn, gate[i], up[i], t.n, rows, gate[i]);
    p.b[i]->linear(p.queue[i], gate[i], 0, t.n, down.normed ? norm[i] : NULL, 1e-5f, &last, 1);
  }
  // Sums of large numbers may be off by some of their last bits, 5e-7 of the largest. A clamped gate of them is small,
  // at most 56, and off by that times its slope, at most 8.
  double largest = expect_near(&p, up, (size_t)TOKENS * rows, 1e-4, f->name);
  expect_within(&p, gate, (size_t)TOKENS * rows, 1e-4, 8 * 5e-7 * largest, f->name);
  // a number that the two compute a little differently may get another code
  expect_near(&p, dst, (size_t)TOKENS * down.desc.shape.rows, int8 ? 2e-2 : 1e-4, f->name);
  for (int k = 0; k < 3; k++) {
    for (int i = 0; i < 2; i++) p.b[i]->matrix_free(m[k][i]);
  }
  free_vector(&p, norm);
  free_vector(&p, bias);
  free_array(&p, x);
  free_array(&p, gate);
  free_array(&p, up);
  free_array(&p, dst);
  close_pair(&p);
}

// ---- attention ----------------------------------------------------------------------------------------------------

// Queries and keys rotated, stored, attended to; and the stored rows, which are the CPU's to the bit.
static void check_attention(st_random *r, setun_kv_type keys, setun_kv_type values) {
  enum { TOKENS_MOST = 80, DIM_MOST = 160 };
  const uint32_t group = 1 + below(r, 3), heads_kv = 1 + below(r, 3), heads = group * heads_kv;
  const uint32_t dim = 2 * (1 + below(r, DIM_MOST / 2)), n = 1 + below(r, TOKENS_MOST), width = heads * dim;
  const uint32_t pages[] = {2, 0, 1};
  const st_token_run run = {.n = n, .pages = pages, .stride = 3};
  const st_batch batch = {&run, 1, n};
  const st_cache_shape shape = {3, 192, heads, heads_kv, dim, keys, values};
  static float numbers[TOKENS_MOST * 9 * DIM_MOST], table[TOKENS_MOST * DIM_MOST];
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) numbers[i] = unit(r);
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) table[i] = unit(r);
  pair p;
  st_array *q[2], *k[2], *v[2], *dst[2];
  st_dvector *t[2];
  st_cache *cache[2];
  setun_error err;
  static char saved[2][2][64 * DIM_MOST * 4 + 256];
  uint32_t n_saved = n < 64 ? n : 64;
  open_devices(&p);
  open_queues(&p);
  new_array(&p, q, n, width, numbers);
  new_array(&p, k, n, width, numbers + 7);
  new_array(&p, v, n, width, numbers + 13);
  new_array(&p, dst, n, width, numbers);
  new_vector(&p, t, table, (size_t)n * dim);
  uint32_t window = below(r, 2) ? 0 : 1 + below(r, n), rotated = 2 * (1 + below(r, dim / 2));
  bool interleaved = below(r, 2);
  for (int i = 0; i < 2; i++) {
    st_rope_args rope = {heads, dim, rotated, t[i], interleaved, 0, UINT32_MAX};
    need(p.b[i]->cache_new(p.queue[i], &shape, &cache[i], &err), &err);
    p.b[i]->rope(p.queue[i], q[i], &batch, &rope, q[i]);
    rope.heads = heads_kv;
    p.b[i]->rope(p.queue[i], k[i], &batch, &rope, k[i]);
    p.b[i]->cache_write(p.queue[i], cache[i], 0, &batch, k[i], v[i]);
    const st_attend_args attend = {.n_head = heads, .window = window, .scale = 0.2f, .q = q[i], .dst = dst[i]};
    p.b[i]->attend(p.queue[i], cache[i], &batch, &attend);
    need(p.b[i]->cache_save(p.queue[i], cache[i], 2, heads_kv - 1, n_saved, saved[i][0], saved[i][1], &err), &err);
  }
  expect_near(&p, q, (size_t)n * width, 1e-6, "rope");
  assert_memory_equal(saved[0][0], saved[1][0], n_saved * gpu->cache_row_size(keys, true, dim));
  assert_memory_equal(saved[0][1], saved[1][1], n_saved * gpu->cache_row_size(values, false, dim));
  need(gpu->cache_restore(p.queue[0], cache[0], 1, 0, n_saved, saved[1][0], saved[1][1], &err), &err);
  need(gpu->cache_save(p.queue[0], cache[0], 1, 0, n_saved, saved[0][0], saved[0][1], &err), &err);
  assert_memory_equal(saved[0][0], saved[1][0], n_saved * gpu->cache_row_size(keys, true, dim));
  assert_memory_equal(saved[0][1], saved[1][1], n_saved * gpu->cache_row_size(values, false, dim));
  // the CPU rounds queries and factors to codes of 16 bits, or of 8, where keys or values are codes
  bool q4 = keys == SETUN_KV_Q4 || values == SETUN_KV_Q4, q8 = keys == SETUN_KV_Q8 || values == SETUN_KV_Q8;
  expect_near(&p, dst, (size_t)n * width, q4 ? 5e-2 : q8 ? 1e-3 : 1e-5, "attention");
  for (int i = 0; i < 2; i++) p.b[i]->cache_free(cache[i]);
  free_vector(&p, t);
  free_array(&p, q);
  free_array(&p, k);
  free_array(&p, v);
  free_array(&p, dst);
  close_pair(&p);
}

// ---- recurrent layers ---------------------------------------------------------------------------------------------

// Two turns of two sequences; and their states, which either device continues.
static void check_recurrent(st_random *r) {
  enum { VALUES_MOST = 150, RUN = 4, SLOTS = 2, CHANNELS = 4 * 64 + 4 * VALUES_MOST };
  uint32_t keys = 1 + below(r, 2), each = 1 + below(r, 2), dim = 16 * (1 + below(r, 4)),
           values = 1 + below(r, VALUES_MOST);
  const st_state_shape shape = {SLOTS, 2, keys, keys * each, dim, values, 2 + below(r, 4), below(r, 2)};
  const uint32_t channels = st_state_channels(&shape), heads = keys * each, width = heads * values;
  static float numbers[2 * RUN * CHANNELS], taps[8 * CHANNELS];
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) numbers[i] = 3 * unit(r);
  for (size_t i = 0; i < sizeof taps / sizeof *taps; i++) taps[i] = unit(r);
  pair p;
  st_array *x[2], *mixed[2], *alpha[2], *beta[2], *dst[2];
  st_dvector *tap[2], *rate[2], *bias[2];
  st_states *states[2];
  setun_error err;
  open_devices(&p);
  open_queues(&p);
  uint32_t first = 1 + below(r, RUN), n = first + 1 + below(r, RUN);
  new_array(&p, x, n, channels, numbers);
  new_array(&p, mixed, n, channels, numbers);
  new_array(&p, dst, n, width, numbers);
  new_vector(&p, tap, taps, (size_t)shape.n_taps * channels);
  new_vector(&p, rate, taps + 5, heads);
  new_vector(&p, bias, taps + 9, heads);
  for (int i = 0; i < 2; i++) need(p.b[i]->states_new(p.queue[i], &shape, &states[i], &err), &err);
  for (int turn = 0; turn < 3; turn++) {
    uint32_t from[] = {turn ? 1 : ST_NO_STATE, turn ? 0 : ST_NO_STATE};
    const st_token_run runs[] = {{.n = first, .state_from = from[0], .state_to = 1},
                                 {.n = n - first, .state_from = from[1], .state_to = 0}};
    const st_batch batch = {runs, 2, n};
    new_array(&p, alpha, n, heads, numbers + turn);
    new_array(&p, beta, n, heads, numbers + 7 + turn);
    for (int i = 0; i < 2; i++) {
      const st_delta_args delta = {1, mixed[i], alpha[i], beta[i], rate[i], bias[i], dst[i]};
      p.b[i]->convolve(p.queue[i], states[i], 1, &batch, x[i], tap[i], mixed[i]);
      p.b[i]->delta(p.queue[i], states[i], &batch, &delta);
    }
    expect_near(&p, dst, (size_t)n * width, 2e-5, "recurrent layers");
    free_array(&p, alpha);
    free_array(&p, beta);
    assert_int_equal(gpu->state_size(&shape), p.b[1]->state_size(&shape));
    char *saved = calloc(1, (size_t)gpu->state_size(&shape));
    assert_non_null(saved);
    for (uint32_t slot = 0; turn == 1 && slot < SLOTS; slot++) { // the last turn goes on from the CPU's
      need(p.b[1]->state_save(p.queue[1], states[1], slot, saved, &err), &err);
      need(gpu->state_restore(p.queue[0], states[0], slot, saved, &err), &err);
      need(gpu->state_save(p.queue[0], states[0], slot, saved, &err), &err);
      need(p.b[1]->state_restore(p.queue[1], states[1], slot, saved, &err), &err);
    }
    free(saved);
  }
  for (int i = 0; i < 2; i++) p.b[i]->states_free(states[i]);
  free_vector(&p, tap);
  free_vector(&p, rate);
  free_vector(&p, bias);
  free_array(&p, x);
  free_array(&p, mixed);
  free_array(&p, dst);
  close_pair(&p);
}

// Rotations are the scalar table's to the bit, with all factors and none; and columns in another order.
static void check_rotation(st_random *r) {
  enum { MOST = 1024 };
  uint32_t block = 2u << below(r, 7), width = block * (1 + below(r, MOST / block)), n = 1 + below(r, TOKENS - 1);
  static float numbers[TOKENS * MOST];
  static uint32_t order[MOST];
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) numbers[i] = unit(r);
  for (uint32_t i = 0; i < width; i++) order[i] = below(r, width);
  pair p;
  st_array *x[2], *y[2];
  st_dvector *norm[2], *before[2], *after[2];
  open_devices(&p);
  open_queues(&p);
  new_array(&p, x, TOKENS, width, numbers);
  new_array(&p, y, TOKENS, width, numbers);
  new_vector(&p, norm, numbers + 3, width);
  new_vector(&p, before, numbers + 5, width);
  new_vector(&p, after, numbers + 8, width);
  for (int i = 0; i < 2; i++) {
    const st_hadamard_args full = {width, block, norm[i], 1e-5f, before[i], after[i]},
                           plain = {.width = width, .block = block};
    p.b[i]->hadamard(p.queue[i], x[i], 0, n, &full, x[i]);
    p.b[i]->hadamard(p.queue[i], x[i], 1, n, &plain, y[i]);
  }
  expect_near(&p, y, (size_t)TOKENS * width, 0, "rotation");
  for (int i = 0; i < 2; i++) p.b[i]->reorder(p.queue[i], y[i], 1, n, width, order, x[i]);
  expect_near(&p, x, (size_t)TOKENS * width, 0, "another order");
  free_vector(&p, norm);
  free_vector(&p, before);
  free_vector(&p, after);
  free_array(&p, x);
  free_array(&p, y);
  close_pair(&p);
}

// ---- others -------------------------------------------------------------------------------------------------------

static void check_rows(st_random *r) {
  enum { MOST = 300 };
  const uint32_t n = 1 + below(r, TOKENS), heads = 1 + below(r, 4), each = 1 + below(r, MOST / 4), width = heads * each;
  static float numbers[4 * TOKENS * MOST];
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) numbers[i] = 4 * unit(r);
  uint32_t tokens[TOKENS];
  float weights[TOKENS];
  for (int i = 0; i < TOKENS; i++) tokens[i] = below(r, TOKENS), weights[i] = unit(r);
  pair p;
  st_array *x[2], *y[2], *z[2];
  st_dvector *norm[2];
  setun_error err;
  open_devices(&p);
  open_queues(&p);
  new_array(&p, x, TOKENS, width, numbers);
  new_array(&p, y, TOKENS, width, numbers + 5);
  new_array(&p, z, TOKENS, width, numbers + 17);
  new_vector(&p, norm, numbers + 3, width);
  st_activation_fn fn = (st_activation_fn)below(r, ST_FN_SILU_CLAMPED + 1);
  const st_columns columns = {.from = 0, .from_step = each, .to = 0, .to_step = each, .n = each, .count = heads};
  int32_t largest[2][TOKENS];
  for (int i = 0; i < 2; i++) {
    p.b[i]->rmsnorm(p.queue[i], x[i], n, heads, each, norm[i], 1e-6f);
    p.b[i]->norm_into(p.queue[i], x[i], n, width, norm[i], 1e-6f, y[i]);
    p.b[i]->glu(p.queue[i], fn, x[i], y[i], n, width, z[i]);
    p.b[i]->clip(p.queue[i], z[i], n, width, 2);
    p.b[i]->gather(p.queue[i], z[i], tokens, n, width, y[i]);
    p.b[i]->scatter_add(p.queue[i], y[i], tokens, weights, n, width, z[i]);
    p.b[i]->add(p.queue[i], x[i], y[i], n, width, 0.25f);
    p.b[i]->clear(p.queue[i], z[i], 1, width);
    p.b[i]->copy_columns(p.queue[i], x[i], n, &columns, z[i]);
    need(p.b[i]->argmax(p.queue[i], p.b[i] == gpu ? x[0] : x[1], n, width, largest[i], &err), &err);
  }
  expect_near(&p, z, (size_t)TOKENS * width, 1e-5, "rows");
  float row[MOST];
  for (uint32_t t = 0; t < n; t++) { // of the device's own numbers
    need(gpu->read(p.queue[0], x[0], t, width, row, &err), &err);
    uint32_t best = 0;
    for (uint32_t i = 0; i < width; i++) best = row[i] > row[best] ? i : best;
    assert_int_equal(largest[0][t], best);
  }
  free_vector(&p, norm);
  free_array(&p, x);
  free_array(&p, y);
  free_array(&p, z);
  close_pair(&p);
}

// Norms are the scalar table's to the bit, whether the device's fma rounds once or twice: codes of activations must be.
static void norms(void **state) {
  enum { N = 40, WIDTH = 700 };
  (void)state;
  static float numbers[N * WIDTH];
  st_random r;
  pair p;
  st_array *x[2], *y[2];
  st_dvector *norm[2];
  st_random_seed(&r, 5);
  for (size_t i = 0; i < N * WIDTH; i++) numbers[i] = ldexpf(unit(&r), (int)(i / WIDTH) - N / 2);
  open_devices(&p);
  open_queues(&p);
  new_array(&p, x, N, WIDTH, numbers);
  new_array(&p, y, N, WIDTH, numbers);
  new_vector(&p, norm, numbers + 3, WIDTH);
  for (int i = 0; i < 2; i++) p.b[i]->norm_into(p.queue[i], x[i], N, WIDTH, norm[i], 1e-6f, y[i]);
  expect_near(&p, y, (size_t)N * WIDTH, 0, "norms");
  free_vector(&p, norm);
  free_array(&p, x);
  free_array(&p, y);
  close_pair(&p);
}

// A row of many parts; what is not finite is told.
static void largest(void **state) {
  enum { N = 300001 };
  (void)state;
  float *numbers = malloc(N * sizeof *numbers);
  pair p;
  st_array *x[2];
  int32_t id;
  setun_error err;
  assert_non_null(numbers);
  open_devices(&p);
  open_queues(&p);
  for (int i = 0; i < N; i++) numbers[i] = (float)(i % 1000) - 2000;
  numbers[270123] = numbers[299999] = -3;
  new_array(&p, x, 1, N, numbers);
  for (int i = 0; i < 2; i++) {
    for (int again = 0; again < 2; again++) {
      need(p.b[i]->argmax(p.queue[i], x[i], 1, N, &id, &err), &err);
      assert_int_equal(id, 270123);
    }
    numbers[7] = i ? NAN : INFINITY;
    need(p.b[i]->write(p.queue[i], x[i], 0, N, numbers, &err), &err);
    need(p.b[i]->argmax(p.queue[i], x[i], 1, N, &id, &err), &err);
    assert_int_equal(id, -1);
  }
  free_array(&p, x);
  close_pair(&p);
  free(numbers);
}

// The largest k: all but some are far below, many are equal, and parts of the row have fewer than k.
static void top(void **state) {
  enum { N = 30011, MOST = ST_TOP_MOST };
  (void)state;
  static const uint32_t ks[] = {1, 2, 41, MOST}, widths[] = {MOST, 1025, N};
  static float numbers[N], values[MOST];
  int32_t ids[MOST];
  pair p;
  st_array *x[2];
  setun_error err;
  st_random r;
  open_devices(&p);
  open_queues(&p);
  st_random_seed(&r, 9);
  for (int i = 0; i < N; i++) numbers[i] = (float)((int)below(&r, 600) - 500) / (i % 7 ? 1 : 0x1p20f);
  numbers[3] = -0.0f, numbers[N - 1] = FLT_MAX, numbers[5] = -FLT_MAX;
  new_array(&p, x, 1, N, numbers);
  for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
    for (size_t k = 0; k < sizeof ks / sizeof *ks; k++) {
      int32_t host_ids[MOST];
      float host_values[MOST];
      need(gpu->top(p.queue[0], x[0], widths[w], ks[k], ids, values, &err), &err);
      need(p.b[1]->top(p.queue[1], x[1], widths[w], ks[k], host_ids, host_values, &err), &err);
      static bool taken[N];
      memset(taken, 0, sizeof taken);
      for (uint32_t i = 0; i < ks[k]; i++) { // selected one by one
        uint32_t best = UINT32_MAX;
        for (uint32_t j = 0; j < widths[w]; j++) {
          if (!taken[j] && (best == UINT32_MAX || numbers[j] > numbers[best])) best = j;
        }
        taken[best] = true;
        assert_int_equal(ids[i], best);
        assert_int_equal(host_ids[i], best);
        assert_true(values[i] == numbers[best]);
      }
    }
  }
  numbers[N - 9] = NAN;
  need(gpu->write(p.queue[0], x[0], 0, N, numbers, &err), &err);
  for (int again = 0; again < 2; again++) {
    need(gpu->top(p.queue[0], x[0], N, 3, ids, values, &err), &err);
    assert_int_equal(ids[0], -1);
    need(gpu->top(p.queue[0], x[0], N - 9, 3, ids, values, &err), &err);
    assert_true(ids[0] >= 0);
  }
  free_array(&p, x);
  close_pair(&p);
}

static uint64_t copies_of(const pair *p) {
  st_op_counts c;
  for (size_t i = 0; gpu->counted(p->queue[0], i, &c); i++) {
    if (!strcmp(c.name, "streamed weights")) return c.dispatches;
  }
  return 0;
}

// Borrowed codes that a queue copies, through buffers that are used again; then directly, as the device prefers.
static void copied(void **state) {
  enum { N = 64, MATRICES = 11, PASSES = 3 };
  (void)state;
  st_random r;
  st_random_seed(&r, 11);
  static float numbers[N], zeros[N];
  for (int i = 0; i < N; i++) numbers[i] = unit(&r);
  for (int copies = 1; copies >= 0; copies--) {
    pair p;
    setun_error err;
    st_dmatrix *m[MATRICES][2];
    st_array *x[2], *y[2];
    void *codes[MATRICES];
    const product t = {.desc = {.format = st_format_get(ST_F32), .shape = {N, N}}, .borrowed = true};
    p.b[0] = gpu, p.b[1] = st_backend_at(0);
    for (int i = 0; i < 2; i++) {
      const st_device_options options = {.isa = "scalar", .copies = copies};
      need(p.b[i]->device_new(&options, &p.device[i], &err), &err);
    }
    for (int k = 0; k < MATRICES; k++) {
      codes[k] = calloc(1, (size_t)gpu->matrix_info(p.device[0], &t.desc).codes + 64);
      assert_non_null(codes[k]);
      fill(&p, &r, &t, m[k], codes[k]);
    }
    open_queues(&p);
    new_array(&p, x, 1, N, numbers);
    new_array(&p, y, 1, N, zeros);
    for (int pass = 0; pass < PASSES; pass++) {
      for (int i = 0; i < 2; i++) {
        for (int k = 0; k < MATRICES; k++) {
          const st_linear_out out = {.matrix = m[k][i], .dst = y[i]};
          p.b[i]->linear(p.queue[i], x[i], 0, 1, NULL, 0, &out, 1);
          p.b[i]->add(p.queue[i], x[i], y[i], 1, N, 0.05f);
        }
      }
      expect_near(&p, x, N, 1e-5, copies ? "weights that a queue copies" : "weights that the host writes");
    }
    if (copies) assert_true(copies_of(&p) >= PASSES * MATRICES / 4);
    for (int k = 0; k < MATRICES; k++) {
      for (int i = 0; i < 2; i++) p.b[i]->matrix_free(m[k][i]);
      free(codes[k]);
    }
    free_array(&p, x);
    free_array(&p, y);
    close_pair(&p);
  }
}

// ---- rounds -------------------------------------------------------------------------------------------------------

// Each way in which the shaders of value formats read codes and scales; the first round has no others, since each is
// compiled.
static bool is_in_first_round(const st_format *f) {
  static const st_format_id chosen[] = {
      ST_Q5_1, ST_Q8_0, ST_Q3_K, ST_Q5_K, ST_Q6_K, ST_NVFP4, ST_INT8, ST_ZP3_128, ST_AFFINE8_32_BF16, ST_S24_F4_64};
  for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) {
    if (f->id == chosen[i]) return true;
  }
  return st_format_is_ternary(f) || st_format_is_number(f);
}

// One of each shader's file.
static bool has_gate_in_first_round(const st_format *f) {
  return f->id == ST_Q8_0 || f->id == ST_T5;
}

static void round_of_all(void) {
  uint64_t class = 0;
  st_random r;
  for (int id = 0; id < ST_FORMAT_COUNT; id++) {
    const st_format *f = st_format_get((st_format_id)id);
    bool trits = st_format_is_ternary(f) && (f->scales == ST_SCALE_OUTER || f->scales == ST_SCALE_BLOCK);
    if (!trits && st_format_is_ternary(f)) continue; // the others become one of these forms
    if (!rounds.round && !is_in_first_round(f)) continue;
    for (int int8 = 0; int8 <= trits; int8++) {
      st_random_seed(&r, rounds_seed(&rounds, class ++));
      if (rounds_go_on(&rounds)) check_product(&r, f, int8);
      if (rounds_go_on(&rounds) && (rounds.round || has_gate_in_first_round(f))) check_gate(&r, f, int8);
    }
  }
  for (int keys = SETUN_KV_F16; keys <= SETUN_KV_Q4; keys++) {
    for (int values = SETUN_KV_F16; values <= SETUN_KV_Q4; values++) {
      st_random_seed(&r, rounds_seed(&rounds, class ++));
      if (!rounds.round && keys != values) continue;
      if (rounds_go_on(&rounds)) check_attention(&r, (setun_kv_type)keys, (setun_kv_type)values);
    }
  }
  st_random_seed(&r, rounds_seed(&rounds, class ++));
  if (rounds_go_on(&rounds)) check_rows(&r);
  st_random_seed(&r, rounds_seed(&rounds, class ++));
  if (rounds_go_on(&rounds)) check_recurrent(&r);
  st_random_seed(&r, rounds_seed(&rounds, class ++));
  if (rounds_go_on(&rounds)) check_rotation(&r);
}

static void all(void **state) {
  (void)state;
  for (rounds.round = 0; rounds_go_on(&rounds); rounds.round++) round_of_all();
}

int main(int argc, char **argv) {
  rounds = rounds_of_arguments(argc, argv);
  if (!find_gpu()) return 77;
  const struct CMUnitTest tests[] = {cmocka_unit_test(norms), cmocka_unit_test(largest), cmocka_unit_test(top),
                                     cmocka_unit_test(copied), cmocka_unit_test(all)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  rounds_print(&rounds);
  return failed;
}
