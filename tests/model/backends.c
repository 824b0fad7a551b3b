// Every backend of the registry: passes over several runs of tokens, which are bit-identical to each sequence
// alone; the logits of all models of golden/hf beside those of the CPU's scalar table; and errors of a device, which
// end an evaluation and leave the session usable.
//
//   model_backends [--all]    also those of golden/gguf; all of them streamed too, on each device
#include "placed.h"

#include "base/random.h"

#include <glob.h>
#include <math.h>

// Whether a backend has a device here. Drivers of GPUs are not made for sanitizers, so that only the CPU is tested
// then.
static bool is_usable(const st_backend *b) {
  st_device_facts facts;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  if (b != st_backend_at(0)) return false;
#endif
  return b->device_at(0, &facts) && !facts.problem[0];
}

static void registry(void **state) {
  (void)state;
  assert_ptr_equal(st_backend_at(0), st_backend_find(NULL));
  assert_ptr_equal(st_backend_find("cpu"), st_backend_find(NULL));
  assert_null(st_backend_find("abacus"));
  size_t n = 0;
  for (const st_backend *b; (b = st_backend_at(n)); n++) {
    assert_ptr_equal(st_backend_find(b->name), b);
    assert_non_null(b->available());
    if (!is_usable(b)) print_message("%s: skipped, since it has no device here, or for sanitizers\n", b->name);
  }
  assert_true(is_usable(st_backend_at(0)));
  assert_true(n > 0);
}

// ---- runs ---------------------------------------------------------------------------------------------------------

enum {
  HEADS = 4,
  KV_HEADS = 2,
  HEAD_DIM = 16,
  TOKENS = 1100,
  WIDTH = HEADS * HEAD_DIM,
  KV_WIDTH = KV_HEADS * HEAD_DIM
};
enum { LAYERS = 2, LAYER_PAGES = (TOKENS + ST_CACHE_POSITIONS - 1) / ST_CACHE_POSITIONS };
enum { SEQUENCE_PAGES = LAYERS * LAYER_PAGES };

// The pages of two sequences are interleaved, backwards; those of a single sequence are in order.
static uint32_t together_pages[2][SEQUENCE_PAGES], alone_pages[SEQUENCE_PAGES];

static void number_pages(void) {
  for (uint32_t i = 0; i < SEQUENCE_PAGES; i++) {
    alone_pages[i] = i;
    for (uint32_t s = 0; s < 2; s++) together_pages[s][i] = 2 * (SEQUENCE_PAGES - 1 - i) + s;
  }
}

typedef struct run_of {
  uint32_t sequence, position, n;
} run_of;

static st_token_run token_run(const run_of *r, const uint32_t *pages) {
  return (st_token_run){.position = r->position, .n = r->n, .pages = pages, .stride = LAYER_PAGES};
}

// A queue with a cache, and what is rotated, stored and looked up in it.
typedef struct bench {
  const st_backend *b;
  st_device *device;
  st_queue *queue;
  st_cache *cache;
  st_dmatrix *inputs; // [TOKENS, WIDTH] rows of q; k and v are their beginnings
  st_dvector *table;
  st_array *q, *k, *v, *out;
} bench;

static void open_bench(bench *t, const st_backend *b, uint32_t n_sequences, setun_kv_type kv, int threads) {
  static float rows[TOKENS * WIDTH], table[TOKENS * HEAD_DIM];
  st_random random;
  st_random_seed(&random, 5);
  for (int i = 0; i < TOKENS * WIDTH; i++) rows[i] = (float)st_random_unit(&random) - 0.5f;
  for (int i = 0; i < TOKENS * HEAD_DIM; i++) table[i] = (float)st_random_unit(&random) * 2 - 1;
  const st_matrix_desc desc = {.format = st_format_get(ST_F32), .shape = {TOKENS, WIDTH}};
  const st_cache_shape shape = {n_sequences * SEQUENCE_PAGES, TOKENS, HEADS, KV_HEADS, HEAD_DIM, kv, kv};
  *t = (bench){.b = b};
  assert_int_equal(t->b->device_new(&(st_device_options){.isa = NULL}, &t->device, NULL), SETUN_OK);
  assert_int_equal(t->b->matrix_new(t->device, &desc, &t->inputs, NULL), SETUN_OK);
  const st_matrix_rows all = {.count = TOKENS, .data = rows};
  assert_int_equal(t->b->matrix_write(t->inputs, &all, NULL), SETUN_OK);
  assert_int_equal(t->b->vector_new(t->device, table, TOKENS * HEAD_DIM, &t->table, NULL), SETUN_OK);
  assert_int_equal(t->b->queue_new(t->device, &(st_queue_options){threads, TOKENS}, &t->queue, NULL), SETUN_OK);
  assert_int_equal(t->b->cache_new(t->queue, &shape, &t->cache, NULL), SETUN_OK);
  st_array **arrays[] = {&t->q, &t->k, &t->v, &t->out};
  for (int i = 0; i < 4; i++) {
    assert_int_equal(t->b->array_new(t->queue, TOKENS, WIDTH, arrays[i], NULL), SETUN_OK);
  }
}

static void close_bench(bench *t) {
  st_array *arrays[] = {t->q, t->k, t->v, t->out};
  for (int i = 0; i < 4; i++) t->b->array_free(arrays[i]);
  t->b->cache_free(t->cache);
  t->b->queue_free(t->queue);
  t->b->vector_free(t->table);
  t->b->matrix_free(t->inputs);
  t->b->device_free(t->device);
}

// Token p of sequence s has the rows of the inputs that s and p say. out: [n_tokens, WIDTH].
static void attend(bench *t, const st_token_run *runs, const uint32_t *seeds, uint32_t n_runs, uint32_t window,
                   float *out) {
  st_batch batch = {.runs = runs, .n_runs = n_runs};
  int32_t ids[TOKENS];
  for (uint32_t i = 0; i < n_runs; i++) {
    for (uint32_t p = 0; p < runs[i].n; p++) {
      ids[batch.n_tokens++] = (int32_t)((seeds[i] * 31 + (runs[i].position + p) * 7) % TOKENS);
    }
  }
  t->b->embed(t->queue, t->inputs, ids, batch.n_tokens, 1, t->q, 0);
  t->b->embed(t->queue, t->inputs, ids, batch.n_tokens, 2, t->k, 0);
  t->b->embed(t->queue, t->inputs, ids, batch.n_tokens, 3, t->v, 0);
  for (uint32_t layer = 0; layer < LAYERS; layer++) {
    st_rope_args rope = {HEADS, HEAD_DIM, HEAD_DIM, t->table, layer, 0, UINT32_MAX};
    t->b->rope(t->queue, t->q, &batch, &rope, t->q);
    rope.heads = KV_HEADS;
    t->b->rope(t->queue, t->k, &batch, &rope, t->k);
    t->b->cache_write(t->queue, t->cache, layer, &batch, t->k, t->v);
    t->b->attend(
        t->queue, t->cache, &batch,
        &(st_attend_args){.layer = layer, .n_head = HEADS, .window = window, .scale = 0.25f, .q = t->q, .dst = t->out});
    t->b->add(t->queue, t->q, t->out, batch.n_tokens, WIDTH, 1);
  }
  assert_int_equal(t->b->read(t->queue, t->q, 0, (size_t)batch.n_tokens * WIDTH, out, NULL), SETUN_OK);
}

static void runs_with(const st_backend *b, setun_kv_type kv, int threads, uint32_t window) {
  // prompts, more of both in another order, then one token each
  static const run_of passes[][2] = {
      {{0, 0, 37}, {1, 0, 20}}, {{1, 20, 9}, {0, 37, 1}}, {{0, 38, 1}, {1, 29, 1}}, {{1, 30, 30}, {0, 39, 33}}};
  enum { PASSES = sizeof passes / sizeof *passes };
  static float together[TOKENS * WIDTH], alone[TOKENS * WIDTH];
  bench both, single[2];
  open_bench(&both, b, 2, kv, threads);
  for (int i = 0; i < 2; i++) open_bench(&single[i], b, 1, kv, 1);
  for (int pass = 0; pass < PASSES; pass++) {
    const run_of *p = passes[pass];
    const uint32_t seeds[2] = {p[0].sequence + 1, p[1].sequence + 1};
    const st_token_run two[2] = {token_run(&p[0], together_pages[p[0].sequence]),
                                 token_run(&p[1], together_pages[p[1].sequence])};
    attend(&both, two, seeds, 2, window, together);
    const float *rows = together;
    for (int i = 0; i < 2; i++) {
      st_token_run run = token_run(&p[i], alone_pages);
      attend(&single[p[i].sequence], &run, &seeds[i], 1, window, alone);
      assert_memory_equal(rows, alone, run.n * WIDTH * sizeof *alone);
      rows += run.n * WIDTH;
    }
  }
  // the stored keys and values are the same, too
  enum { SAVED = 60 };
  static char keys[2][SAVED * HEAD_DIM * 4 + SAVED * 4], values[2][SAVED * HEAD_DIM * 4 + SAVED * 4];
  size_t key_bytes = SAVED * both.b->cache_row_size(kv, true, HEAD_DIM);
  size_t value_bytes = SAVED * both.b->cache_row_size(kv, false, HEAD_DIM);
  assert_true(key_bytes <= sizeof keys[0] && value_bytes <= sizeof values[0]);
  for (uint32_t s = 0; s < 2; s++) {
    uint32_t page = together_pages[s][LAYER_PAGES];
    assert_int_equal(both.b->cache_save(both.queue, both.cache, page, 1, SAVED, keys[0], values[0], NULL), SETUN_OK);
    assert_int_equal(both.b->cache_save(single[s].queue, single[s].cache, alone_pages[LAYER_PAGES], 1, SAVED, keys[1],
                                        values[1], NULL),
                     SETUN_OK);
    assert_memory_equal(keys[0], keys[1], key_bytes);
    assert_memory_equal(values[0], values[1], value_bytes);
  }
  close_bench(&both);
  for (int i = 0; i < 2; i++) close_bench(&single[i]);
}

static bool whole; // --all

// Calls `fn` for each backend with each format of its cache; devices, which are slow where the CPU emulates them,
// with half precision alone unless all is asked for. Other tests have their formats.
static void each_cache(void (*fn)(const st_backend *b, setun_kv_type kv)) {
  number_pages();
  for (size_t i = 0; st_backend_at(i); i++) {
    for (int kv = SETUN_KV_F16; kv <= SETUN_KV_Q4; kv++) {
      if (i > 0 && !whole && kv != SETUN_KV_F16) continue;
      if (is_usable(st_backend_at(i)) && st_backend_at(i)->cache_format_name((setun_kv_type)kv))
        fn(st_backend_at(i), (setun_kv_type)kv);
    }
  }
}

static void runs_of(const st_backend *b, setun_kv_type kv) {
  for (int threads = 1; threads <= (b == st_backend_at(0) ? 3 : 1); threads++) {
    runs_with(b, kv, threads, 0);
    runs_with(b, kv, threads, 8);
  }
}

static void runs(void **state) {
  (void)state;
  each_cache(runs_of);
}

// Tokens that see several parts of keys, which threads share: one by one, and all at once.
static void parts_with(const st_backend *b, setun_kv_type kv, uint32_t window) {
  enum { BEFORE = 1020, AFTER = TOKENS - BEFORE };
  static float want[TOKENS * WIDTH], got[TOKENS * WIDTH];
  const uint32_t seed = 1;
  for (int threads = 1; threads <= (b == st_backend_at(0) ? 6 : 2); threads += threads < 3 ? 1 : 3) {
    bench t;
    open_bench(&t, b, 1, kv, threads);
    const run_of first = {0, 0, threads == 1 ? TOKENS : BEFORE};
    const st_token_run run = token_run(&first, alone_pages);
    attend(&t, &run, &seed, 1, window, threads == 1 ? want : got);
    for (uint32_t i = BEFORE; threads > 1 && i < TOKENS; i += 8) {
      const run_of one = {0, i, i + 8 < TOKENS ? 1 : TOKENS - i};
      const st_token_run r = token_run(&one, alone_pages), rest = token_run(&(run_of){0, i + 1, 7}, alone_pages);
      attend(&t, &r, &seed, 1, window, got);
      assert_memory_equal(got, want + (size_t)i * WIDTH, one.n * WIDTH * sizeof *got);
      if (one.n == 1) attend(&t, &rest, &seed, 1, window, got);
    }
    close_bench(&t);
  }
}

static void parts_of(const st_backend *b, setun_kv_type kv) {
  if (whole || b == st_backend_at(0)) parts_with(b, kv, 0);
  parts_with(b, kv, 700);
}

static void parts(void **state) {
  (void)state;
  each_cache(parts_of);
}

// A page that is copied, and what is written to the copy does not change the first.
static void copied_pages_of(const st_backend *b, setun_kv_type kv) {
  bench t;
  enum { ROWS = 3 };
  open_bench(&t, b, 1, kv, 1);
  static float out[TOKENS * WIDTH];
  char rows[3][2][ROWS * HEAD_DIM * 4];
  size_t keys = ROWS * t.b->cache_row_size(kv, true, HEAD_DIM);
  size_t values = ROWS * t.b->cache_row_size(kv, false, HEAD_DIM);
  const st_token_run run = token_run(&(run_of){0, 0, ROWS}, alone_pages);
  attend(&t, &run, (const uint32_t[]){1}, 1, 0, out);
  t.b->cache_copy_page(t.queue, t.cache, 0, 5);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(t.b->cache_save(t.queue, t.cache, i ? 5 : 0, 1, ROWS, rows[i][0], rows[i][1], NULL), SETUN_OK);
  }
  assert_memory_equal(rows[0][0], rows[1][0], keys);
  assert_memory_equal(rows[0][1], rows[1][1], values);
  attend(&t, &run, (const uint32_t[]){2}, 1, 0, out);
  assert_int_equal(t.b->cache_save(t.queue, t.cache, 5, 1, ROWS, rows[2][0], rows[2][1], NULL), SETUN_OK);
  assert_memory_equal(rows[0][0], rows[2][0], keys);
  assert_int_equal(t.b->cache_save(t.queue, t.cache, 0, 1, ROWS, rows[2][0], rows[2][1], NULL), SETUN_OK);
  assert_memory_not_equal(rows[0][0], rows[2][0], keys);
  close_bench(&t);
}

static void copied_pages(void **state) {
  (void)state;
  each_cache(copied_pages_of);
}

// ---- models -------------------------------------------------------------------------------------------------------

static float *logits_of(const char *path, const st_backend *b, const char *isa, bool streams, size_t *n, bool *int8) {
  const uint32_t none = 0;
  const st_placement_options options = {.backend = b,
                                        .isa = isa,
                                        .precise = true,
                                        .threads = 2,
                                        .context_size = st_context_size_of,
                                        .resident_parts = streams ? &none : NULL};
  setun_kv_type kv = b->cache_format_name(SETUN_KV_F32) ? SETUN_KV_F32 : SETUN_KV_F16;
  const setun_session_params params = {
      .size = sizeof params, .threads = 2, .n_batch = 7, .n_ctx = 32, .kv_keys = kv, .kv_values = kv};
  placed p = place(path, &options, &params);
  float *out = placed_logits(&p);
  *n = PLACED_LOGITS * p.n_vocab;
  *int8 = p.placement->model->h.int8;
  placed_free(&p);
  return out;
}

// The largest difference, relative to the largest value.
static double distance(const float *a, const float *b, size_t n) {
  double most = 0, largest = 0;
  for (size_t i = 0; i < n; i++) {
    double d = fabs((double)a[i] - b[i]), v = fabs((double)b[i]);
    if (d > most || isnan(d)) most = d;
    if (v > largest) largest = v;
  }
  return most / largest;
}

static size_t likeliest_of(const float *logits, size_t n) {
  size_t best = 0;
  for (size_t i = 1; i < n; i++) best = logits[i] > logits[best] ? i : best;
  return best;
}

// Additions in another order change the logits by a millionth. Where int8 activations are prescribed, that may make
// another code of a number occasionally.
static void models_of(const st_backend *b, const char *path, bool streams_too) {
  size_t n, m;
  bool int8;
  float *want = logits_of(path, st_backend_find("cpu"), "scalar", false, &n, &int8);
  for (int streams = 0; streams <= streams_too; streams++) {
    float *got = logits_of(path, b, NULL, streams, &m, &int8);
    assert_int_equal(n, m);
    double d = distance(got, want, n);
    if (!(d <= (int8 ? 2e-2 : 2e-5))) {
      fail_msg("%s, %s%s: logits differ by %.2g of the largest", b->name, path, streams ? ", streamed" : "", d);
    }
    size_t vocabulary = n / PLACED_LOGITS;
    for (size_t i = 0; i < n && !int8; i += vocabulary)
      assert_int_equal(likeliest_of(got + i, vocabulary), likeliest_of(want + i, vocabulary));
    st_free(got);
  }
  st_free(want);
}

static void models(void **state) {
  (void)state;
  glob_t found;
  assert_int_equal(glob(GOLDEN "hf/*", 0, NULL, &found), 0);
  if (whole) assert_int_equal(glob(GOLDEN "gguf/*", GLOB_APPEND, NULL, &found), 0);
  for (size_t i = 0; st_backend_at(i); i++) {
    if (!is_usable(st_backend_at(i))) continue;
    for (size_t k = 0; k < found.gl_pathc; k++)
      models_of(st_backend_at(i), found.gl_pathv[k], whole || i == 0 || k % 4 == 0);
  }
  globfree(&found);
}

// ---- errors -------------------------------------------------------------------------------------------------------

static st_backend faulty; // the CPU's, whose waits fail when the count comes to 0
static int until_fault;

static setun_status fault(setun_error *err) {
  return until_fault-- == 0 ? st_fail(err, SETUN_ERROR_IO, "the device is lost") : SETUN_OK;
}

static setun_status faulty_finish(st_queue *queue, setun_error *err) {
  setun_status s = fault(err);
  return s == SETUN_OK ? st_backend_find("cpu")->finish(queue, err) : s;
}

static setun_status faulty_read(st_queue *queue, const st_array *array, uint32_t token, size_t n, float *out,
                                setun_error *err) {
  setun_status s = fault(err);
  return s == SETUN_OK ? st_backend_find("cpu")->read(queue, array, token, n, out, err) : s;
}

// Whichever wait fails: the evaluation fails, its pass leaves nothing, and the next one is right.
static void check_faults(const char *path, const uint32_t *resident_parts) {
  setun_error err = {SETUN_OK, ""};
  const st_placement_options options = {
      .backend = &faulty, .threads = 2, .context_size = st_context_size_of, .resident_parts = resident_parts};
  const setun_session_params params = {.size = sizeof params, .threads = 2, .n_batch = 4, .n_ctx = 32};
  const setun_token ids[] = {1, 5, 9, 20, 33, 47};
  enum { N = sizeof ids / sizeof *ids };
  st_session *right = NULL;
  until_fault = -1;
  placed p = place(path, &options, &params);
  if (st_session_new(p.placement->model, &params, &right, &err)) fail_msg("%s", err.message);
  if (st_session_eval(right, ids, N, NULL, &err)) fail_msg("%s", err.message);
  bool fails = true;
  for (int n = 0; fails; n++) {
    until_fault = n;
    setun_status status = st_session_eval(p.session, ids, N, NULL, &err);
    fails = status != SETUN_OK;
    if (fails) {
      assert_int_equal(status, SETUN_ERROR_IO);
      assert_string_equal(err.message, "the device is lost");
      uint32_t done = st_session_position(p.session);
      assert_true(done == 0 || done == 4);
      until_fault = -1;
      if (st_session_eval(p.session, ids + done, N - done, NULL, &err)) fail_msg("%s", err.message);
    } else {
      assert_true(n > 0);
    }
    assert_memory_equal(st_session_logits(p.session), st_session_logits(right), p.n_vocab * sizeof(float));
    assert_int_equal(st_session_truncate(p.session, 0, NULL), SETUN_OK);
  }
  st_session_free(right);
  placed_free(&p);
}

static void faults(void **state) {
  (void)state;
  const uint32_t none = 0;
  faulty = *st_backend_find("cpu");
  faulty.finish = faulty_finish;
  faulty.read = faulty_read;
  check_faults(GOLDEN "hf/llama3", NULL);
  check_faults(GOLDEN "hf/llama3", &none);
  check_faults(GOLDEN "hf/mixtral", NULL);
}

int main(int argc, char **argv) {
  whole = argc > 1 && !strcmp(argv[1], "--all");
  const struct CMUnitTest tests[] = {cmocka_unit_test(registry), cmocka_unit_test(runs),
                                     cmocka_unit_test(parts),    cmocka_unit_test(copied_pages),
                                     cmocka_unit_test(models),   cmocka_unit_test(faults)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
