// Every error of setun.h that arguments can cause: the status, one line that names what was wrong, unchanged outputs,
// and the same status without a setun_error.
#define _XOPEN_SOURCE 700 // mkstemp
#include "models.h"

#include <math.h>
#include <unistd.h>

#define MODEL SETUN_SOURCE_DIR "/models/setun-tales-7m"
#define TERNARY GOLDEN "hf/bitnet-auto"

// The call, made with an error and without; `error` is its last argument.
#define REFUSED(status, mention, function, ...)                                                                        \
  do {                                                                                                                 \
    setun_error found_ = {SETUN_OK, ""};                                                                               \
    check_refusal(#function, status, mention, function(__VA_ARGS__, &found_), &found_);                                \
    assert_int_equal(function(__VA_ARGS__, NULL), status);                                                             \
  } while (0)

static void check_refusal(const char *function, setun_status want, const char *mention, setun_status got,
                          const setun_error *error) {
  if (got != want) fail_msg("%s: expected status %d, found %d: %s", function, want, got, error->message);
  assert_int_equal(error->code, want);
  assert_true(*error->message);
  assert_null(strpbrk(error->message, "\r\n"));
  if (!strstr(error->message, mention)) fail_msg("%s: \"%s\" does not mention %s", function, error->message, mention);
}

static setun_model *vocabulary(void) {
  setun_error err = {SETUN_OK, ""};
  setun_model *m = NULL;
  if (setun_model_load_vocabulary(MODEL, NULL, &m, &err) != SETUN_OK) fail_msg("%s", err.message);
  return m;
}

static bool refuse(double fraction, void *user) {
  (void)user;
  return fraction < 0.5;
}

static void loading(void **state) {
  (void)state;
  setun_model *const before = (setun_model *)(void *)state, *m = before;
  setun_model_params p = setun_model_params_default();
  REFUSED(SETUN_ERROR_IO, "no-such-model", setun_model_load, "no-such-model", NULL, &m);
  REFUSED(SETUN_ERROR_IO, "no-such-model", setun_model_load_vocabulary, "no-such-model", &p, &m);
  REFUSED(SETUN_ERROR_FORMAT, "README.md", setun_model_load, MODEL "/README.md", &p, &m);
  REFUSED(SETUN_ERROR_ARGUMENT, "give the directory", setun_model_load, MODEL "/model.safetensors", &p, &m);
  p.isa = "mmx";
  REFUSED(SETUN_ERROR_ARGUMENT, "mmx", setun_model_load, MODEL, &p, &m);
  p.isa = NULL, p.activation = "int4";
  REFUSED(SETUN_ERROR_ARGUMENT, "int4", setun_model_load, MODEL, &p, &m);
  p.activation = NULL, p.assume = "q17";
  REFUSED(
      SETUN_ERROR_ARGUMENT,
      "expected one of mxfp4, nvfp4, q2_0c, q1_0, t5, t5-zpm, i2_s, i2_s-arm, i2_s-x4, q2_0, q2_0-128, pq2_0, ptq1_0, "
      "stq1_0, stq1_0-42, found",
      setun_model_load, MODEL, &p, &m);
  REFUSED(SETUN_ERROR_ARGUMENT, "\"q17\"", setun_model_load, MODEL, &p, &m);
  p.assume = "f32"; // whose type has one meaning
  REFUSED(SETUN_ERROR_ARGUMENT, "\"f32\"", setun_model_load, MODEL, &p, &m);
  p.assume = NULL, p.threads = -1;
  REFUSED(SETUN_ERROR_ARGUMENT, "-1", setun_model_load, MODEL, &p, &m);
  p.threads = 1025;
  REFUSED(SETUN_ERROR_ARGUMENT, "1025", setun_model_load, MODEL, &p, &m);
  p.threads = 0, p.progress = refuse;
  REFUSED(SETUN_ERROR_CANCELED, "", setun_model_load, MODEL, &p, &m);
  p.progress = NULL, p.n_adapters = 1, p.adapters = &(setun_adapter){"no-such-adapter", 1};
  REFUSED(SETUN_ERROR_IO, "no-such-adapter", setun_model_load, MODEL, &p, &m);
  assert_ptr_equal(m, before);
  setun_model_free(NULL);
}

static void text(void **state) {
  (void)state;
  setun_model *m = vocabulary();
  size_t count = 77;
  setun_token id = -5;
  assert_null(info_of(m).architecture);
  assert_int_equal(setun_model_n_vocab(m), 4096);
  REFUSED(SETUN_ERROR_ARGUMENT, "byte 1", setun_tokenize, m, "a\xff", 2, 0, &id, 1, &count);
  assert_int_equal(count, 77);
  assert_int_equal(id, -5);
  assert_int_equal(setun_tokenize(m, "a dog", 5, SETUN_TOKENIZE_BOS_ALWAYS, NULL, 0, &count, NULL), SETUN_OK);
  assert_in_range(count, 2, 6);
  assert_int_equal(setun_tokenize(m, "a dog", 5, SETUN_TOKENIZE_BOS_ALWAYS, &id, 1, &count, NULL), SETUN_OK);
  assert_int_equal(id, 0);
  assert_false(setun_token_is_end(m, -1));
  assert_false(setun_token_is_end(m, INT32_MAX));
  assert_true(setun_token_is_end(m, 1));
  setun_decoder *d = NULL;
  assert_int_equal(setun_decoder_new(m, 0, &d, NULL), SETUN_OK);
  const char *const before = "before", *out = before;
  size_t length = 6;
  REFUSED(SETUN_ERROR_ARGUMENT, "4096", setun_decoder_push, d, 4096, &out, &length);
  REFUSED(SETUN_ERROR_ARGUMENT, "-1", setun_decoder_push, d, -1, &out, &length);
  assert_ptr_equal(out, before);
  assert_int_equal(length, 6);
  setun_decoder_free(d);
  setun_decoder_free(NULL);
  setun_session *s = NULL;
  REFUSED(SETUN_ERROR_STATE, "vocabulary", setun_session_new, m, NULL, &s);
  assert_null(s);
  setun_model_free(m);
}

static bool never(uint32_t position, const float *logits, void *user) {
  (void)logits;
  return position < *(uint32_t *)user;
}

static bool never_hidden(uint32_t layer, uint32_t position, uint32_t n, const float *hidden, void *user) {
  (void)position, (void)n, (void)hidden, (void)user;
  return layer < 2;
}

static void sessions(void **state) {
  (void)state;
  setun_model *m = load(MODEL, NULL);
  setun_session *s = NULL;
  setun_session_params p = setun_session_params_default();
  p.n_ctx = 257;
  REFUSED(SETUN_ERROR_LIMIT, "257", setun_session_new, m, &p, &s);
  p.n_ctx = 16, p.threads = -1;
  REFUSED(SETUN_ERROR_ARGUMENT, "-1", setun_session_new, m, &p, &s);
  p.threads = 1025;
  REFUSED(SETUN_ERROR_ARGUMENT, "1025", setun_session_new, m, &p, &s);
  p.threads = 1, p.kv_values = (setun_kv_type)9;
  REFUSED(SETUN_ERROR_ARGUMENT, "9", setun_session_new, m, &p, &s);
  assert_null(s);
  p.kv_values = SETUN_KV_F16, p.n_batch = UINT32_MAX;
  assert_int_equal(setun_session_new(m, &p, &s, NULL), SETUN_OK);
  assert_int_equal(setun_session_context(s), 16);
  assert_int_equal(setun_session_threads(s), 1);
  assert_null(setun_session_logits(s));

  setun_token ids[17] = {0, 5, 6, 7, 8};
  REFUSED(SETUN_ERROR_LIMIT, "17 tokens", setun_session_eval, s, ids, 17, NULL);
  REFUSED(SETUN_ERROR_LIMIT, "tokens", setun_session_eval, s, ids, SIZE_MAX, NULL);
  ids[3] = 4096;
  REFUSED(SETUN_ERROR_ARGUMENT, "4096", setun_session_eval, s, ids, 5, NULL);
  ids[3] = INT32_MIN;
  REFUSED(SETUN_ERROR_ARGUMENT, "-2147483648", setun_session_eval, s, ids, 5, NULL);
  ids[3] = 7;
  assert_int_equal(setun_session_eval(s, NULL, 0, NULL, NULL), SETUN_OK);
  uint32_t stop_at = 2;
  setun_eval_params eval_params = {.size = sizeof eval_params, .on_logits = never, .user = &stop_at};
  REFUSED(SETUN_ERROR_CANCELED, "", setun_session_eval, s, ids, 5, &eval_params);
  eval_params = (setun_eval_params){.size = sizeof(setun_eval_params), .on_hidden = never_hidden};
  REFUSED(SETUN_ERROR_CANCELED, "", setun_session_eval, s, ids, 5, &eval_params);
  assert_int_equal(setun_session_position(s), 0);
  eval(s, ids, 5, NULL);
  REFUSED(SETUN_ERROR_ARGUMENT, "6", setun_session_truncate, s, 6);
  assert_int_equal(setun_session_position(s), 5);
  assert_non_null(setun_session_logits(s));
  assert_memory_equal(setun_session_tokens(s), ids, 5 * sizeof *ids);
  REFUSED(SETUN_ERROR_IO, "no-such-folder", setun_session_save, s, "/no-such-folder/session");
  REFUSED(SETUN_ERROR_IO, "no-such-file", setun_session_load, s, "no-such-file");
  REFUSED(SETUN_ERROR_FORMAT, "README.md", setun_session_load, s, MODEL "/README.md");
  assert_int_equal(setun_session_position(s), 5);
  setun_session_stop(s); // nothing runs, so nothing is stopped
  eval(s, ids, 1, NULL);
  setun_session_free(s);
  setun_session_free(NULL);
  setun_model_free(m);
}

static void refuse_params(setun_sampler_params p, const char *mention) {
  setun_sampler *s = NULL;
  REFUSED(SETUN_ERROR_ARGUMENT, mention, setun_sampler_new, &p, &s);
  assert_null(s);
}

static void sampler_params(void **state) {
  (void)state;
#define REFUSE_PARAM(name, value)                                                                                      \
  do {                                                                                                                 \
    setun_sampler_params p_ = setun_sampler_params_default();                                                          \
    p_.name = value;                                                                                                   \
    refuse_params(p_, #name);                                                                                          \
  } while (0)
  REFUSE_PARAM(penalty_last_n, -2);
  REFUSE_PARAM(repeat_penalty, 0);
  REFUSE_PARAM(repeat_penalty, -1);
  REFUSE_PARAM(repeat_penalty, INFINITY);
  REFUSE_PARAM(repeat_penalty, NAN);
  REFUSE_PARAM(presence_penalty, NAN);
  REFUSE_PARAM(frequency_penalty, -INFINITY);
  REFUSE_PARAM(dry_multiplier, -0.5f);
  REFUSE_PARAM(dry_base, 0.5f);
  REFUSE_PARAM(dry_allowed_length, 0);
  REFUSE_PARAM(dry_penalty_last_n, -2);
  REFUSE_PARAM(top_k, -1);
  REFUSE_PARAM(typical_p, 1.5f);
  REFUSE_PARAM(top_p, -0.1f);
  REFUSE_PARAM(min_p, NAN);
  REFUSE_PARAM(xtc_probability, 2);
  REFUSE_PARAM(xtc_threshold, -1);
  REFUSE_PARAM(temperature, -1);
  REFUSE_PARAM(temperature, INFINITY);
  REFUSE_PARAM(dynatemp_range, NAN);
  REFUSE_PARAM(dynatemp_exponent, -1);
#undef REFUSE_PARAM
  setun_sampler_free(NULL);
}

static void samplers(void **state) {
  (void)state;
  setun_sampler *s = NULL;
  setun_model *m = vocabulary();
  assert_int_equal(setun_sampler_new(NULL, &s, NULL), SETUN_OK);
  REFUSED(SETUN_ERROR_ARGUMENT, "-1", setun_sampler_add_bias, s, -1, 1);
  REFUSED(SETUN_ERROR_ARGUMENT, "3", setun_sampler_add_bias, s, 3, NAN);
  REFUSED(SETUN_ERROR_ARGUMENT, "3", setun_sampler_add_bias, s, 3, INFINITY);
  setun_token ids[65] = {1, 2, -3};
  REFUSED(SETUN_ERROR_ARGUMENT, "0", setun_sampler_add_breaker, s, ids, 0);
  REFUSED(SETUN_ERROR_ARGUMENT, "65", setun_sampler_add_breaker, s, ids, 65);
  REFUSED(SETUN_ERROR_ARGUMENT, "-3", setun_sampler_add_breaker, s, ids, 3);
  char long_text[257];
  memset(long_text, 'a', sizeof long_text);
  REFUSED(SETUN_ERROR_ARGUMENT, "0", setun_sampler_add_breaker_text, s, m, "", 0);
  REFUSED(SETUN_ERROR_ARGUMENT, "257", setun_sampler_add_breaker_text, s, m, long_text, 257);
  REFUSED(SETUN_ERROR_ARGUMENT, "-1", setun_sampler_accept, s, -1);

  float logits[8] = {0};
  setun_token id = -5;
  setun_candidate candidate = {-5, -5};
  size_t count = 77;
  for (int both = 0; both < 2; both++) {
#define DRAW(status, mention, n)                                                                                       \
  do {                                                                                                                 \
    if (both)                                                                                                          \
      REFUSED(status, mention, setun_sampler_probabilities, s, logits, n, &candidate, 1, &count);                      \
    else                                                                                                               \
      REFUSED(status, mention, setun_sampler_sample, s, logits, n, &id);                                               \
  } while (0)
    DRAW(SETUN_ERROR_FORMAT, "0 tokens", 0);
    DRAW(SETUN_ERROR_ARGUMENT, "2147483648", (size_t)INT32_MAX + 1);
    logits[5] = NAN;
    DRAW(SETUN_ERROR_FORMAT, "5", 8);
    logits[5] = INFINITY;
    DRAW(SETUN_ERROR_FORMAT, "5", 8);
    for (int i = 0; i < 8; i++) logits[i] = -INFINITY;
    DRAW(SETUN_ERROR_FORMAT, "none", 8);
    for (int i = 0; i < 8; i++) logits[i] = 0;
  }
  assert_int_equal(setun_sampler_add_bias(s, 8, 1, NULL), SETUN_OK);
  for (int both = 0; both < 2; both++) DRAW(SETUN_ERROR_ARGUMENT, "token 8", 8);
#undef DRAW
  assert_int_equal(id, -5);
  assert_int_equal(candidate.id, -5);
  assert_int_equal(count, 77);
  setun_sampler_free(s);
  setun_model_free(m);
}

static void files(void **state) {
  (void)state;
  setun_file *f = NULL;
  setun_file_params p = setun_file_params_default();
  REFUSED(SETUN_ERROR_IO, "no-such-file", setun_file_open, "no-such-file", &p, &f);
  p.assume = "q17";
  REFUSED(SETUN_ERROR_ARGUMENT, "q17", setun_file_open, MODEL, &p, &f);
  assert_null(f);
  assert_int_equal(setun_file_open(MODEL, NULL, &f, NULL), SETUN_OK);
  setun_tensor_info info = {.n_dims = 77};
  size_t n = setun_file_tensor_count(f), n_meta = setun_file_meta_count(f);
  REFUSED(SETUN_ERROR_ARGUMENT, "tensor index", setun_file_tensor, f, n, &info);
  assert_int_equal(info.n_dims, 77);
  const char *key = NULL, *value = NULL;
  REFUSED(SETUN_ERROR_ARGUMENT, "metadata index", setun_file_meta, f, n_meta, &key, &value);
  assert_null(key);
  int n_dims = 77;
  uint64_t dims[4] = {0};
  float one[1] = {5};
  REFUSED(SETUN_ERROR_ARGUMENT, "no-such-tensor", setun_file_read, f, "no-such-tensor", &n_dims, dims, NULL, 0);
  REFUSED(SETUN_ERROR_ARGUMENT, "found 1", setun_file_read, f, "model.norm.weight", &n_dims, dims, one, 1);
  assert_true(one[0] == 5);
  assert_int_equal(setun_file_read(f, "model.norm.weight", &n_dims, dims, NULL, 0, NULL), SETUN_OK);
  setun_file_close(f);
  setun_file_close(NULL);
}

static void ceilings(void **state) {
  (void)state;
  setun_ceilings c = {.size = sizeof c, .read_bytes_per_s = 77};
  REFUSED(SETUN_ERROR_ARGUMENT, "mmx", setun_measure_ceilings, "mmx", 1, 1 << 20, &c);
  REFUSED(SETUN_ERROR_ARGUMENT, "1025", setun_measure_ceilings, NULL, 1025, 1 << 20, &c);
  REFUSED(SETUN_ERROR_ARGUMENT, "-1", setun_measure_ceilings, NULL, -1, 1 << 20, &c);
  double read = 77;
  REFUSED(SETUN_ERROR_ARGUMENT, "mmx", setun_measure_read, "mmx", 1, 1 << 20, &read);
  assert_true(read == 77);
  assert_int_equal(setun_measure_read(NULL, 1, 1 << 20, &read, NULL), SETUN_OK);
  assert_true(read > 1e6 && read != 77);
  assert_true(c.read_bytes_per_s == 77);
}

// Conversions that make no sense, or are impossible; nothing is written.
static void conversions(void **state) {
  (void)state;
  static const char target[] = "no-such-folder/converted.gguf";
  setun_convert_params p = setun_convert_params_default();
  REFUSED(SETUN_ERROR_ARGUMENT, "layout", setun_convert, MODEL, target, NULL);
  REFUSED(SETUN_ERROR_ARGUMENT, "layout", setun_convert, MODEL, target, &p);
  p.to = "q4_0";
  REFUSED(SETUN_ERROR_ARGUMENT, "q4_0", setun_convert, MODEL, target, &p);
  p.to = "t2", p.embedding = "q4_0";
  REFUSED(SETUN_ERROR_ARGUMENT, "embedding", setun_convert, MODEL, target, &p);
  p.embedding = "keep", p.head = "t2";
  REFUSED(SETUN_ERROR_ARGUMENT, "head", setun_convert, MODEL, target, &p);
  p.head = NULL, p.experts = "loose";
  REFUSED(SETUN_ERROR_ARGUMENT, "loose", setun_convert, MODEL, target, &p);
  p.experts = NULL, p.assume = "q17";
  REFUSED(SETUN_ERROR_ARGUMENT, "q17", setun_convert, MODEL, target, &p);
  p.assume = NULL;
  REFUSED(SETUN_ERROR_IO, "no-such-model", setun_convert, "no-such-model", target, &p);
  p.to = "hf-u8";
  REFUSED(SETUN_ERROR_UNSUPPORTED, "hf-u8", setun_convert, TERNARY, target, &p);
  p.to = "t2";
  REFUSED(SETUN_ERROR_IO, "no-such-folder", setun_convert, TERNARY, target, &p);
  setun_file *f = NULL;
  int64_t offset = 0;
  setun_tensor_zeros zeros;
  assert_int_equal(setun_file_open(TERNARY, NULL, &f, NULL), SETUN_OK);
  REFUSED(SETUN_ERROR_ARGUMENT, "index", setun_file_check, f, 100000, &offset);
  REFUSED(SETUN_ERROR_ARGUMENT, "index", setun_file_zeros, f, 100000, &zeros);
  assert_null(setun_file_notice(f, setun_file_notice_count(f)));
  setun_file_close(f);
}

static void outputs(void **state) {
  (void)state;
  char path[] = "/tmp/setun-output-XXXXXX";
  setun_output *o = NULL;
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(close(fd), 0);
  REFUSED(SETUN_ERROR_ARGUMENT, "path", setun_output_open, NULL, &o);
  REFUSED(SETUN_ERROR_ARGUMENT, "output", setun_output_open, path, NULL);
  REFUSED(SETUN_ERROR_IO, "/no-such-folder", setun_output_open, "/no-such-folder/x", &o);
  REFUSED(SETUN_ERROR_IO, "not a regular file", setun_output_open, "/tmp", &o);
  REFUSED(SETUN_ERROR_ARGUMENT, "output", setun_output_write, NULL, 0, "x", 1);
  REFUSED(SETUN_ERROR_ARGUMENT, "output", setun_output_commit, NULL);
  assert_null(o);
  setun_output_discard(NULL);
  assert_int_equal(setun_output_open(path, &o, NULL), SETUN_OK);
  REFUSED(SETUN_ERROR_ARGUMENT, "bytes", setun_output_write, o, 0, NULL, 1);
  REFUSED(SETUN_ERROR_ARGUMENT, "2^63", setun_output_write, o, (uint64_t)INT64_MAX, "x", 1);
  assert_int_equal(setun_output_write(o, 2, "b", 1, NULL), SETUN_OK);
  assert_int_equal(setun_output_write(o, 0, "a", 1, NULL), SETUN_OK);
  assert_int_equal(setun_output_commit(o, NULL), SETUN_OK);
  char text[8] = "";
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  assert_int_equal(fread(text, 1, sizeof text, f), 3);
  fclose(f);
  assert_memory_equal(text, "a\0b", 3);
  assert_int_equal(setun_output_open(path, &o, NULL), SETUN_OK);
  setun_output_discard(o);
  assert_int_equal(remove(path), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(loading),        cmocka_unit_test(text),        cmocka_unit_test(sessions),
      cmocka_unit_test(sampler_params), cmocka_unit_test(samplers),    cmocka_unit_test(files),
      cmocka_unit_test(ceilings),       cmocka_unit_test(conversions), cmocka_unit_test(outputs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
