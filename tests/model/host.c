// The host's replacements for operations that a backend omits (backend/host.h): a device with arrays of its own, and
// with matrices and products alone, is bit-identical to the CPU; and a copy that fails ends an evaluation, after which
// the session is usable.
#include "placed.h"

#include "backend/host.h"

// Objects of a device of its own, whose products are the CPU's.
struct st_device {
  st_host_device host;
  st_device *own;
};
struct st_dvector {
  st_host_vector host;
  st_dvector *own;
};
struct st_queue {
  st_host_queue host;
  st_queue *own;
};
struct st_array {
  st_host_array host;
  st_array *own;
};

static const st_backend *cpu;
static st_backend apart;
static int until_fault; // copies

static bool all(setun_status s, setun_status other) {
  return s == SETUN_OK && other == SETUN_OK;
}

static setun_status device_new(const st_device_options *options, st_device **device, setun_error *err) {
  st_device *d = *device = st_calloc(1, sizeof *d);
  assert_true(all(st_host_device_open(&d->host, options, err), cpu->device_new(options, &d->own, err)));
  return SETUN_OK;
}

static void device_free(st_device *d) {
  st_host_device_close(&d->host);
  cpu->device_free(d->own);
  st_free(d);
}

static const char *device_isa(const st_device *d) {
  return cpu->device_isa(d->own);
}

static st_matrix_info matrix_info(const st_device *d, const st_matrix_desc *desc) {
  return cpu->matrix_info(d->own, desc);
}

static setun_status matrix_new(st_device *d, const st_matrix_desc *desc, st_dmatrix **matrix, setun_error *err) {
  return cpu->matrix_new(d->own, desc, matrix, err);
}

static setun_status vector_new(st_device *d, const float *values, size_t n, st_dvector **vector, setun_error *err) {
  st_dvector *v = *vector = st_calloc(1, sizeof *v);
  assert_true(all(st_host_vector_open(&v->host, d, values, n, err), cpu->vector_new(d->own, values, n, &v->own, err)));
  return SETUN_OK;
}

static void vector_free(st_dvector *v) {
  if (!v) return;
  st_host_vector_close(&v->host);
  cpu->vector_free(v->own);
  st_free(v);
}

static setun_status queue_new(st_device *d, const st_queue_options *options, st_queue **queue, setun_error *err) {
  st_queue *q = *queue = st_calloc(1, sizeof *q);
  assert_true(
      all(st_host_queue_open(&q->host, &apart, d, options, err), cpu->queue_new(d->own, options, &q->own, err)));
  return SETUN_OK;
}

static void queue_free(st_queue *q) {
  if (!q) return;
  st_host_queue_close(&q->host);
  cpu->queue_free(q->own);
  st_free(q);
}

static setun_status array_new(st_queue *q, size_t tokens, size_t width, st_array **array, setun_error *err) {
  st_array *a = *array = st_calloc(1, sizeof *a);
  assert_true(
      all(st_host_array_open(&a->host, q, tokens, width, err), cpu->array_new(q->own, tokens, width, &a->own, err)));
  return SETUN_OK;
}

static void array_free(st_array *a) {
  if (!a) return;
  st_host_array_close(&a->host);
  cpu->array_free(a->own);
  st_free(a);
}

static void embed(st_queue *q, const st_dmatrix *m, const int32_t *ids, uint32_t n, float scale, st_array *dst,
                  uint32_t first) {
  cpu->embed(q->own, m, ids, n, scale, dst->own, first);
}

static void linear(st_queue *q, const st_array *x, uint32_t first, uint32_t n, const st_dvector *norm, float eps,
                   const st_linear_out *outs, int count) {
  for (int i = 0; i < count; i++) {
    st_linear_out out = outs[i];
    out.bias = out.bias ? out.bias->own : NULL;
    out.dst = out.dst->own;
    cpu->linear(q->own, x->own, first, n, norm ? norm->own : NULL, eps, &out, 1);
  }
}

// One operation that the device has: its result is on the device alone.
static void rope(st_queue *q, const st_array *x, const st_batch *batch, const st_rope_args *args, st_array *dst) {
  st_rope_args a = *args;
  a.table = a.table ? a.table->own : NULL;
  cpu->rope(q->own, x->own, batch, &a, dst->own);
}

static setun_status fault(setun_error *err) {
  return until_fault-- == 0 ? st_fail(err, SETUN_ERROR_IO, "the device is lost") : SETUN_OK;
}

static setun_status read_array(st_queue *q, const st_array *a, uint32_t token, size_t n, float *out, setun_error *err) {
  setun_status s = st_host_finish(q, err);
  if (s == SETUN_OK) s = fault(err);
  return s == SETUN_OK ? cpu->read(q->own, a->own, token, n, out, err) : s;
}

static setun_status write_array(st_queue *q, st_array *a, uint32_t token, size_t n, const float *in, setun_error *err) {
  setun_status s = fault(err);
  return s == SETUN_OK ? cpu->write(q->own, a->own, token, n, in, err) : s;
}

static int prepare(void **state) {
  (void)state;
  cpu = st_backend_find("cpu");
  apart = (st_backend){.name = "apart",
                       .device_new = device_new,
                       .device_free = device_free,
                       .device_isa = device_isa,
                       .matrix_info = matrix_info,
                       .matrix_new = matrix_new,
                       .matrix_write = cpu->matrix_write,
                       .matrix_borrow = cpu->matrix_borrow,
                       .matrix_free = cpu->matrix_free,
                       .matrix_bytes = cpu->matrix_bytes,
                       .vector_new = vector_new,
                       .vector_free = vector_free,
                       .queue_new = queue_new,
                       .queue_free = queue_free,
                       .array_new = array_new,
                       .array_free = array_free,
                       .embed = embed,
                       .linear = linear,
                       .finish = st_host_finish,
                       .read = read_array,
                       .write = write_array};
  st_host_complete(&apart);
  until_fault = -1;
  return 0;
}

static placed place_on(const st_backend *b, const char *path, const uint32_t *resident,
                       const setun_session_params *params) {
  const st_placement_options options = {
      .backend = b, .threads = 2, .context_size = st_context_size_of, .resident_parts = resident};
  return place(path, &options, params);
}

static void check_bits(const char *path, const uint32_t *resident) {
  const setun_session_params params = {.size = sizeof params, .threads = 2, .n_batch = 7, .n_ctx = 32};
  placed want = place_on(cpu, path, NULL, &params), got = place_on(&apart, path, resident, &params);
  float *a = placed_logits(&want), *b = placed_logits(&got);
  assert_memory_equal(a, b, PLACED_LOGITS * want.n_vocab * sizeof *a);
  st_free(a);
  st_free(b);
  placed_free(&want);
  placed_free(&got);
}

// Nothing is left out.
static void complete(void **state) {
  (void)state;
  void *functions[sizeof apart / sizeof(void *)];
  memcpy(functions, &apart, sizeof apart);
  for (size_t i = 0; i < sizeof apart / sizeof(void *); i++) {
    if (!functions[i]) fail_msg("function %zu of a backend has no default", i);
  }
}

// Norms in each place, biases, sinks, windows, clipping, every gate, experts and shared ones, codes of int8 models,
// recurrent states.
static void bits(void **state) {
  (void)state;
  const uint32_t none = 0;
  static const char *const models[] = {"llama3",      "gemma3",    "gpt-oss",           "olmo2",  "olmoe",
                                       "bitnet-auto", "qwen2-moe", "qwen3-ternary-rot", "qwen35", "qwen3-next"};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    char path[4096];
    snprintf(path, sizeof path, GOLDEN "hf/%s", models[i]);
    check_bits(path, NULL);
    check_bits(path, &none);
  }
}

// Text of unlimited length: queries with several rotations.
static void check_windows(void) {
  enum { N = 1200, STEP = 24 };
  static setun_token ids[N];
  const setun_session_params params = {.size = sizeof params, .threads = 2, .n_batch = 64, .window = 40, .sinks = 4};
  placed want = place_on(cpu, GOLDEN "hf/llama3", NULL, &params),
         got = place_on(&apart, GOLDEN "hf/llama3", NULL, &params);
  for (int i = 0; i < N; i++) ids[i] = 1 + i * 7 % 90;
  for (int i = 0; i < N; i += STEP) {
    assert_int_equal(st_session_eval(want.session, ids + i, STEP, NULL, NULL), SETUN_OK);
    assert_int_equal(st_session_eval(got.session, ids + i, STEP, NULL, NULL), SETUN_OK);
    assert_memory_equal(st_session_logits(want.session), st_session_logits(got.session), want.n_vocab * sizeof(float));
  }
  placed_free(&want);
  placed_free(&got);
}

static void windows(void **state) {
  (void)state;
  void (*by_host)(st_queue *, const st_array *, const st_batch *, const st_rope_args *, st_array *) = apart.rope;
  check_windows();
  apart.rope = rope;
  check_windows();
  apart.rope = by_host;
}

static st_operation lacking;

static bool lacks_operation(const st_device *device, const st_matrix_desc *desc, st_operation operation) {
  (void)device, (void)desc;
  return operation != lacking;
}

// A matrix that the device has no operation for is refused by name, before anything is loaded.
static void unsupported(void **state) {
  (void)state;
  static const struct {
    st_operation operation;
    const char *name, *lacks;
  } cases[] = {{ST_OP_EMBED, "model.embed_tokens", "a format whose rows can be looked up"},
               {ST_OP_LINEAR, "self_attn.q_proj", "a format that can be multiplied"}};
  st_placement_options options = {.backend = &apart, .threads = 2, .context_size = st_context_size_of};
  bool (*supports)(const st_device *, const st_matrix_desc *, st_operation) = apart.supports;
  apart.supports = lacks_operation;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    st_directory *d = NULL;
    st_placement *p = NULL;
    setun_error err = {SETUN_OK, ""};
    lacking = cases[i].operation;
    assert_int_equal(st_directory_open(GOLDEN "hf/llama3", &(st_open_options){0}, &d, &err), SETUN_OK);
    assert_int_equal(st_placement_load(d, &options, &p, &err), SETUN_ERROR_UNSUPPORTED);
    if (p || !strstr(err.message, cases[i].name) || !strstr(err.message, cases[i].lacks)) fail_msg("%s", err.message);
    st_directory_free(d);
  }
  apart.supports = supports;
}

// Whichever copy fails, the evaluation fails with its error, and the next one is right.
static void faults(void **state) {
  (void)state;
  const setun_session_params params = {.size = sizeof params, .threads = 2, .n_batch = 4, .n_ctx = 32};
  const setun_token ids[] = {1, 5, 9, 20, 33, 47};
  enum { N = sizeof ids / sizeof *ids };
  setun_error err;
  placed p = place_on(&apart, GOLDEN "hf/mixtral", NULL, &params),
         right = place_on(cpu, GOLDEN "hf/mixtral", NULL, &params);
  assert_int_equal(st_session_eval(right.session, ids, N, NULL, NULL), SETUN_OK);
  setun_status status = SETUN_ERROR_IO;
  for (int n = 0; status != SETUN_OK; n++) {
    until_fault = n;
    status = st_session_eval(p.session, ids, N, NULL, &err);
    bool failed = until_fault < 0 && status != SETUN_OK;
    until_fault = -1;
    if (status != SETUN_OK) {
      assert_true(failed);
      assert_int_equal(status, SETUN_ERROR_IO);
      assert_string_equal(err.message, "the device is lost");
      assert_int_equal(st_session_truncate(p.session, 0, NULL), SETUN_OK);
      assert_int_equal(st_session_eval(p.session, ids, N, NULL, NULL), SETUN_OK);
    } else {
      assert_true(n > 50);
    }
    assert_memory_equal(st_session_logits(p.session), st_session_logits(right.session), p.n_vocab * sizeof(float));
    assert_int_equal(st_session_truncate(p.session, 0, NULL), SETUN_OK);
  }
  placed_free(&p);
  placed_free(&right);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(complete), cmocka_unit_test(bits), cmocka_unit_test(windows),
                                     cmocka_unit_test(unsupported), cmocka_unit_test(faults)};
  return cmocka_run_group_tests(tests, prepare, NULL);
}
