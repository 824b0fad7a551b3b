// Several models and sessions at once, stopping from another thread, and session files: round trips, damage, other
// models.
#define _DEFAULT_SOURCE // mkdtemp, nanosleep
#include "models.h"

#include "base/hash.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MODEL SETUN_SOURCE_DIR "/models/setun-tales-7m"
#define OTHER GOLDEN "hf/llama3"

enum { THREADS = 4, TOKENS = 40 };
enum { EXTENT_WORDS = 4 }; // of a session file, before the first layer

// A text of its own for each seed, drawn with a sampler.
typedef struct {
  const setun_model *model;
  setun_token first;
  uint64_t seed;
  setun_token ids[TOKENS];
  bool failed;
} text;

static void *write_text(void *user) {
  text *t = user;
  setun_session *s = NULL;
  setun_sampler *sampler = NULL;
  setun_sampler_params p = setun_sampler_params_default();
  setun_session_params one = {.size = sizeof one, .threads = 1};
  size_t n_vocab = setun_model_n_vocab(t->model);
  p.seed = t->seed;
  setun_status status = setun_session_new(t->model, &one, &s, NULL);
  if (status == SETUN_OK) status = setun_sampler_new(&p, &sampler, NULL);
  if (status == SETUN_OK) status = setun_session_eval(s, &t->first, 1, NULL, NULL);
  for (int i = 0; i < TOKENS && status == SETUN_OK; i++) {
    status = setun_sampler_sample(sampler, setun_session_logits(s), n_vocab, &t->ids[i], NULL);
    if (status == SETUN_OK) status = setun_session_eval(s, &t->ids[i], 1, NULL, NULL);
  }
  t->failed = status != SETUN_OK;
  setun_sampler_free(sampler);
  setun_session_free(s);
  return NULL;
}

// Each text alone, then all of them at once on threads of their own, with two models.
static void at_once(void **state) {
  (void)state;
  setun_model *models[2] = {load(MODEL, NULL), load(OTHER, NULL)};
  assert_string_not_equal(info_of(models[0]).architecture, info_of(models[1]).architecture);
  text alone[THREADS], together[THREADS];
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    alone[i] = (text){.model = models[i == THREADS - 1], .first = i, .seed = (uint64_t)i};
    together[i] = alone[i];
    write_text(&alone[i]);
    assert_false(alone[i].failed);
  }
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, write_text, &together[i]), 0);
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    assert_false(together[i].failed);
    assert_memory_equal(together[i].ids, alone[i].ids, sizeof alone[i].ids);
  }
  assert_memory_not_equal(alone[0].ids, alone[1].ids, sizeof alone[0].ids);
  setun_model_free(models[1]);
  setun_model_free(models[0]);
}

// Reports that the evaluation runs, and keeps it running until it is stopped, for a limited time.
typedef struct {
  setun_session *session;
  atomic_int calls;
} worker;

static bool busy(uint32_t position, const float *logits, void *user) {
  (void)position, (void)logits;
  nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  return atomic_fetch_add(&((worker *)user)->calls, 1) < 1000;
}

static void *stop_when_busy(void *user) {
  worker *w = user;
  while (atomic_load(&w->calls) < 2) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  setun_session_stop(w->session);
  return NULL;
}

// A token drawn where it is evaluated is the same as from all logits.
static void a_token_drawn_where_it_is_evaluated(void **state) {
  (void)state;
  setun_sampler *sampler = NULL;
  setun_sampler_params p = setun_sampler_params_default();
  setun_error problem;
  p.temperature = 0;
  assert_int_equal(setun_sampler_new(&p, &sampler, &problem), SETUN_OK);
  setun_model *m = load(MODEL, NULL);
  setun_session *a = session(m, 4, 1), *b = session(m, 4, 1);
  const setun_token ids[] = {1, 5, 9, 20, 33, 47};
  setun_token largest = -1;
  EXPECT_OK(setun_session_eval_sample(a, ids, 6, sampler, &largest, &err));
  eval(b, ids, 6, NULL);
  assert_int_equal(largest, likeliest(setun_session_logits(b), setun_model_n_vocab(m)));
  assert_int_equal(setun_session_position(a), 6);
  EXPECT_OK(setun_session_eval(a, &largest, 1, NULL, &err)); // continues as before
  eval(b, &largest, 1, NULL);
  assert_memory_equal(setun_session_logits(a), setun_session_logits(b), setun_model_n_vocab(m) * sizeof(float));
  assert_int_equal(setun_session_eval_sample(a, ids, 0, sampler, &largest, &problem), SETUN_ERROR_ARGUMENT);
  setun_sampler_free(sampler);
  setun_session_free(a);
  setun_session_free(b);
  setun_model_free(m);
}

static void stopped_from_another_thread(void **state) {
  (void)state;
  setun_error err = {SETUN_OK, ""};
  setun_model *m = load(MODEL, NULL);
  setun_session *s = session(m, 4, 1), *other = session(m, 4, 1);
  setun_token ids[64] = {0};
  worker w = {.session = s};
  pthread_t thread;
  for (int i = 1; i < 64; i++) ids[i] = i * 7;
  assert_int_equal(pthread_create(&thread, NULL, stop_when_busy, &w), 0);
  setun_eval_params p = {.size = sizeof p, .on_logits = busy, .user = &w};
  assert_int_equal(setun_session_eval(s, ids, 64, &p, &err), SETUN_ERROR_CANCELED);
  pthread_join(thread, NULL);
  assert_true(atomic_load(&w.calls) < 64);
  // complete passes were kept; continuing gives what a session gives that was not stopped
  uint32_t done = setun_session_position(s);
  assert_int_equal(done % 4, 0);
  assert_true(done < 64);
  eval(s, ids + done, 64 - done, NULL);
  eval(other, ids, 64, NULL);
  assert_memory_equal(setun_session_logits(s), setun_session_logits(other), setun_model_n_vocab(m) * sizeof(float));
  setun_session_free(s);
  setun_session_free(other);
  setun_model_free(m);
}

// ---- session files ----

static char folder[] = "/tmp/setun-sessions-XXXXXX", path[64];

static int make_folder(void **state) {
  (void)state;
  if (!mkdtemp(folder)) return 1;
  snprintf(path, sizeof path, "%s/text", folder);
  return 0;
}

static int remove_folder(void **state) {
  (void)state;
  unlink(path);
  return rmdir(folder); // fails if something was left beside the file
}

static setun_session *new_session(const setun_model *m, setun_kv_type kv, uint32_t n_ctx) {
  setun_session *s = NULL;
  setun_error err = {SETUN_OK, ""};
  setun_session_params p = {.size = sizeof p, .threads = 1, .kv_keys = kv, .kv_values = kv, .n_ctx = n_ctx};
  if (setun_session_new(m, &p, &s, &err) != SETUN_OK) fail_msg("%s", err.message);
  return s;
}

static void save(setun_session *s) {
  setun_error err = {SETUN_OK, ""};
  if (setun_session_save(s, path, &err) != SETUN_OK) fail_msg("%s", err.message);
}

static const setun_token tale[] = {0, 41, 502, 633, 724, 815, 906, 97, 188, 279, 360, 451};
enum { TALE = sizeof tale / sizeof *tale };

static void round_trip(void **state) {
  (void)state;
  setun_model *m = load(MODEL, NULL);
  size_t bytes = setun_model_n_vocab(m) * sizeof(float);
  for (int kv = SETUN_KV_F16; kv <= SETUN_KV_Q4; kv++) {
    for (uint32_t n = 0; n <= TALE; n += TALE / 2) {
      setun_session *a = new_session(m, (setun_kv_type)kv, 0), *b = new_session(m, (setun_kv_type)kv, 64);
      eval(a, tale, n, NULL);
      save(a);
      eval(b, tale, 3, NULL); // loading replaces the contents
      assert_int_equal(setun_session_load(b, path, NULL), SETUN_OK);
      assert_int_equal(setun_session_position(b), n);
      assert_null(setun_session_logits(b));
      if (n) assert_memory_equal(setun_session_tokens(b), tale, n * sizeof *tale);
      eval(a, tale + 1, 5, NULL);
      eval(b, tale + 1, 5, NULL);
      assert_memory_equal(setun_session_logits(a), setun_session_logits(b), bytes);
      setun_session_free(a);
      setun_session_free(b);
    }
  }
  setun_model_free(m);
}

static char *read_file(size_t *n) {
  char *bytes = NULL;
  setun_error err = {SETUN_OK, ""};
  if (st_file_load(path, 1 << 26, &bytes, n, &err) != SETUN_OK) fail_msg("%s", err.message);
  return bytes;
}

static void write_file(const char *bytes, size_t n) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(bytes, 1, n, f), n);
  assert_int_equal(fclose(f), 0);
}

// Loading the file must fail, and leave the session as it was.
static void refuse(setun_session *s, setun_status want, const char *what) {
  setun_error err = {SETUN_OK, ""};
  uint32_t position = setun_session_position(s);
  setun_status got = setun_session_load(s, path, &err);
  if (got == SETUN_OK) fail_msg("%s: loaded", what);
  if (want && got != want) fail_msg("%s: expected status %d, found %d: %s", what, want, got, err.message);
  assert_non_null(strstr(err.message, path));
  assert_int_equal(setun_session_position(s), position);
  assert_memory_equal(setun_session_tokens(s), tale, position * sizeof *tale);
}

// A file of an older version, of *length bytes: without what says which positions there are, and in version 1 with
// `half` where the formats are; and the checksum over the same pieces.
static void make_older(char *file, size_t *length, uint32_t version, bool half) {
  enum { VERSION_AT = 8, TOKENS_AT = 12, SHAPE_AT = 24, FORMATS_AT = 36, HEADER = 40 };
  uint32_t n, shape[3], flag = half;
  memcpy(&n, file + TOKENS_AT, sizeof n);
  memcpy(shape, file + SHAPE_AT, sizeof shape);
  memcpy(file + VERSION_AT, &version, sizeof version);
  if (version == 1) memcpy(file + FORMATS_AT, &flag, sizeof flag);
  size_t at = HEADER, piece = (size_t)n * shape[2] * (half ? 2 : 4), words = (EXTENT_WORDS + shape[0]) * 4;
  size_t ids = HEADER + n * sizeof(setun_token);
  memmove(file + ids, file + ids + words, *length - ids - words);
  *length -= words;
  uint64_t hash = st_hash(ST_HASH_START, file, HEADER);
  for (size_t i = 0; i <= 2 * (size_t)shape[0] * shape[1]; i++) {
    size_t bytes = i ? piece : n * sizeof(setun_token);
    hash = st_hash(hash, file + at, bytes);
    at += bytes;
  }
  memcpy(file + at, &hash, sizeof hash);
  assert_int_equal(at + sizeof hash, *length);
}

static void older_files_are_read(void **state) {
  (void)state;
  setun_model *m = load(MODEL, NULL);
  size_t n, bytes = setun_model_n_vocab(m) * sizeof(float);
  for (int i = 0; i < 4; i++) {
    bool half = i & 1;
    uint32_t version = 1 + i / 2;
    setun_kv_type kv = half ? SETUN_KV_F16 : SETUN_KV_F32;
    setun_session *a = new_session(m, kv, 0), *b = new_session(m, kv, 0);
    eval(a, tale, TALE - 1, NULL);
    save(a);
    char *file = read_file(&n);
    make_older(file, &n, version, half);
    write_file(file, n);
    assert_int_equal(setun_session_load(b, path, NULL), SETUN_OK);
    eval(a, tale + TALE - 1, 1, NULL);
    eval(b, tale + TALE - 1, 1, NULL);
    assert_memory_equal(setun_session_logits(a), setun_session_logits(b), bytes);
    file[36] ^= 1; // another format
    write_file(file, n);
    setun_session *c = new_session(m, kv, 0);
    refuse(c, SETUN_ERROR_ARGUMENT, "a cache in another format");
    setun_session_free(a);
    setun_session_free(b);
    setun_session_free(c);
    st_free(file);
  }
  setun_model_free(m);
}

// Codes of version 2 had other bits.
static void older_codes_are_refused(void **state) {
  (void)state;
  setun_model *m = load(MODEL, NULL);
  for (int kv = SETUN_KV_Q8; kv <= SETUN_KV_Q4; kv++) {
    setun_session *s = new_session(m, (setun_kv_type)kv, 0);
    size_t n;
    eval(s, tale, TALE, NULL);
    save(s);
    char *file = read_file(&n);
    file[8] = 2; // the version
    write_file(file, n);
    refuse(s, SETUN_ERROR_UNSUPPORTED, "codes of version 2");
    setun_session_free(s);
    st_free(file);
  }
  setun_model_free(m);
}

// A bit of each byte of the header, the ids and the checksum, and bytes all over the cache.
static void damaged(void **state) {
  (void)state;
  setun_model *m = load(MODEL, NULL);
  setun_session *a = new_session(m, SETUN_KV_F16, 0), *b = new_session(m, SETUN_KV_F16, 0), *c;
  size_t n, float_bytes = setun_model_n_vocab(m) * sizeof(float);
  eval(a, tale, TALE, NULL);
  save(a);
  char *whole = read_file(&n), what[64];
  eval(b, tale, 4, NULL);
  for (size_t i = 0; i < n;) {
    whole[i] ^= (char)(1 << i % 8);
    write_file(whole, n);
    snprintf(what, sizeof what, "bit %zu of byte %zu", i % 8, i);
    refuse(b, SETUN_OK, what);
    whole[i] ^= (char)(1 << i % 8);
    i += i < 40 + (TALE + EXTENT_WORDS + 10) * 4 || i >= n - 16 ? 1 : i + 997 < n - 16 ? 997 : n - 16 - i;
  }
  for (size_t length = 0; length < n; length += length < 50 ? 1 : n / 7) {
    write_file(whole, length);
    snprintf(what, sizeof what, "%zu bytes of %zu", length, n);
    refuse(b, SETUN_ERROR_FORMAT, what);
  }
  char *longer = st_calloc(n + 1, 1);
  memcpy(longer, whole, n);
  write_file(longer, n + 1);
  refuse(b, SETUN_ERROR_FORMAT, "one byte more");
  longer[8] = 99;
  write_file(longer, n);
  refuse(b, SETUN_ERROR_UNSUPPORTED, "a later version");
  // after all that the session continues as if nothing had been tried
  c = new_session(m, SETUN_KV_F16, 0);
  eval(b, tale + 4, TALE - 4, NULL);
  eval(c, tale, TALE, NULL);
  assert_memory_equal(setun_session_logits(b), setun_session_logits(c), float_bytes);
  st_free(longer);
  st_free(whole);
  setun_session_free(a);
  setun_session_free(b);
  setun_session_free(c);
  setun_model_free(m);
}

static void of_another_kind(void **state) {
  (void)state;
  setun_model *m = load(MODEL, NULL), *other = load(OTHER, NULL);
  setun_session *a = new_session(m, SETUN_KV_F16, 0), *b = new_session(other, SETUN_KV_F16, 0);
  setun_session *wide = new_session(m, SETUN_KV_F32, 0), *small = new_session(m, SETUN_KV_F16, TALE - 1);
  eval(a, tale, TALE, NULL);
  save(a);
  refuse(b, SETUN_ERROR_ARGUMENT, "another model's");
  refuse(wide, SETUN_ERROR_ARGUMENT, "another cache format");
  refuse(small, SETUN_ERROR_LIMIT, "a smaller context");
  setun_session_free(a);
  setun_session_free(b);
  setun_session_free(wide);
  setun_session_free(small);
  setun_model_free(m);
  setun_model_free(other);
}

// Saving over a file in a folder that cannot be written: the file is unchanged.
static void saved_whole_or_not_at_all(void **state) {
  (void)state;
  setun_model *m = load(MODEL, NULL);
  setun_session *a = new_session(m, SETUN_KV_F16, 0);
  size_t before_length, after_length;
  eval(a, tale, 4, NULL);
  save(a);
  char *before = read_file(&before_length);
  eval(a, tale + 4, 4, NULL);
  assert_int_equal(setun_session_save(a, "/dev/full/text", NULL), SETUN_ERROR_IO);
  if (geteuid() != 0) { // root may write anywhere
    chmod(folder, 0500);
    assert_int_equal(setun_session_save(a, path, NULL), SETUN_ERROR_IO);
    chmod(folder, 0700);
  }
  char *after = read_file(&after_length);
  assert_int_equal(after_length, before_length);
  assert_memory_equal(after, before, before_length);
  st_free(after);
  save(a);
  after = read_file(&after_length);
  assert_true(after_length > before_length);
  st_free(before);
  st_free(after);
  setun_session_free(a);
  setun_model_free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(at_once),
      cmocka_unit_test(stopped_from_another_thread),
      cmocka_unit_test(a_token_drawn_where_it_is_evaluated),
      cmocka_unit_test(round_trip),
      cmocka_unit_test(damaged),
      cmocka_unit_test(of_another_kind),
      cmocka_unit_test(saved_whole_or_not_at_all),
      cmocka_unit_test(older_files_are_read),
      cmocka_unit_test(older_codes_are_refused),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
