// setun.h: text that continues a session's, stop texts, models and sessions in memory, and structs of other sizes.
#define _XOPEN_SOURCE 700
#include "models.h"

#include "base/file.h"

#include <unistd.h>

#define MODEL SETUN_SOURCE_DIR "/models/setun-tales-7m"
#define GGUF GOLDEN "gguf/llama3.gguf"

enum { MOST = 48, TEXT_MOST = 4096 };

typedef struct shown {
  char text[TEXT_MOST];
  size_t length;
} shown;

static bool keep(const char *text, size_t length, void *user) {
  shown *s = user;
  assert_true(length && s->length + length < sizeof s->text);
  memcpy(s->text + s->length, text, length);
  s->length += length;
  s->text[s->length] = 0;
  return true;
}

// ---- stop texts ----

// The expected output of a text: everything before the stop text that is complete first, of several the longest.
static size_t cut(const char *text, size_t n, const char *const *stops, size_t n_stops, bool *found) {
  for (size_t end = 1; end <= n; end++) {
    size_t longest = 0;
    for (size_t i = 0; i < n_stops; i++) {
      size_t length = strlen(stops[i]);
      if (length <= end && length > longest && !memcmp(text + end - length, stops[i], length)) longest = length;
    }
    *found = longest != 0;
    if (longest) return end - longest;
  }
  *found = false;
  return n;
}

// Texts and stop texts over two letters, cut into pieces at random.
static void stop_texts(void **state) {
  (void)state;
  static const char *const sets[][3] = {{"ab"}, {"aab", "ba"}, {"abab", "bb", "a"}, {"bba", "abba", "aaaaaa"}, {NULL}};
  uint32_t seed = 1;
  for (size_t set = 0; set < sizeof sets / sizeof *sets; set++) {
    size_t n_stops = 0;
    while (n_stops < 3 && sets[set][n_stops]) n_stops++;
    setun_stops *s = NULL;
    assert_int_equal(setun_stops_new(sets[set], n_stops, &s, NULL), SETUN_OK);
    for (int round = 0; round < 3000; round++) {
      char text[16];
      shown out = {.length = 0};
      size_t n = (seed = seed * 1664525u + 1013904223u) >> 28, length = 0;
      bool found = false, want = false;
      const char *part = NULL;
      for (size_t i = 0; i < n; i++) text[i] = (seed = seed * 1664525u + 1013904223u) >> 30 & 1 ? 'a' : 'b';
      for (size_t i = 0; i < n;) {
        size_t piece = 1 + ((seed = seed * 1664525u + 1013904223u) >> 30);
        if (piece > n - i) piece = n - i;
        assert_int_equal(setun_stops_push(s, text + i, piece, &part, &length, &found, NULL), SETUN_OK);
        if (length) keep(part, length, &out);
        i += piece;
        bool whole = false;
        size_t certain = cut(text, i, sets[set], n_stops, &whole);
        assert_true(out.length <= certain);
        assert_int_equal(found, whole);
      }
      assert_int_equal(setun_stops_finish(s, &part, &length, NULL), SETUN_OK);
      if (length) keep(part, length, &out);
      size_t expected = cut(text, n, sets[set], n_stops, &want);
      assert_int_equal(out.length, expected);
      assert_memory_equal(out.text, text, expected);
    }
    setun_stops_free(s);
  }
}

static void refused_stop_texts(void **state) {
  (void)state;
  static const char *const bad[] = {"", "\xC3", "\xFF", NULL};
  for (size_t i = 0; i < 4; i++) {
    setun_stops *s = NULL;
    setun_error err = {SETUN_OK, ""};
    const char *texts[] = {"fine", bad[i]};
    assert_int_equal(setun_stops_new(texts, 2, &s, &err), SETUN_ERROR_ARGUMENT);
    assert_non_null(strstr(err.message, "stop text 1"));
    assert_null(s);
  }
}

// ---- generating ----

typedef struct story {
  setun_model *model;
  setun_session *session;
  setun_sampler *sampler;
} story;

static story begin(const char *path) {
  story s = {.model = load(path, NULL)};
  setun_token ids[16];
  size_t n = 0;
  setun_error err = {SETUN_OK, ""};
  setun_sampler_params greedy = setun_sampler_params_default();
  greedy.temperature = 0;
  s.session = session(s.model, 8, 1);
  if (setun_sampler_new(&greedy, &s.sampler, &err) != SETUN_OK) fail_msg("%s", err.message);
  if (setun_tokenize(s.model, "Once upon a time", 16, SETUN_TOKENIZE_BOS, ids, 16, &n, &err)) {
    fail_msg("%s", err.message);
  }
  eval(s.session, ids, n, NULL);
  return s;
}

static void finish(story *s) {
  setun_sampler_free(s->sampler);
  setun_session_free(s->session);
  setun_model_free(s->model);
}

static setun_generate_result generate(story *s, const setun_generate_params *p) {
  setun_generate_result r = {.size = sizeof r};
  setun_error err = {SETUN_OK, ""};
  if (setun_generate(s->session, s->sampler, p, &r, &err) != SETUN_OK) fail_msg("%s", err.message);
  return r;
}

// The same tokens as a loop of samples and evaluations, and the text as setun_detokenize gives it, in one call or two.
static void equals_a_loop(void **state) {
  (void)state;
  story a = begin(MODEL), b = begin(MODEL);
  setun_token ids[MOST];
  shown out = {.length = 0};
  char text[TEXT_MOST];
  size_t vocab = setun_model_n_vocab(a.model), length = 0;
  for (int i = 0; i < MOST; i++) {
    ids[i] = likeliest(setun_session_logits(a.session), vocab);
    eval(a.session, ids + i, 1, NULL);
  }
  setun_generate_params p = setun_generate_params_default();
  p.on_text = keep;
  p.user = &out;
  p.max_tokens = MOST / 2;
  for (int i = 0; i < 2; i++) {
    setun_generate_result r = generate(&b, &p);
    assert_int_equal(r.n_tokens, MOST / 2);
    assert_string_equal(setun_end_name(r.end), "length");
  }
  uint32_t at = setun_session_position(b.session) - MOST;
  assert_memory_equal(setun_session_tokens(b.session) + at, ids, sizeof ids);
  assert_memory_equal(setun_session_logits(a.session), setun_session_logits(b.session), vocab * sizeof(float));
  assert_int_equal(setun_detokenize(a.model, ids, MOST, SETUN_DECODE_CONTINUES, text, sizeof text, &length, NULL),
                   SETUN_OK);
  assert_int_equal(length, out.length);
  assert_memory_equal(text, out.text, length);
  size_t again = 0;
  memset(text, 'x', sizeof text);
  assert_int_equal(setun_detokenize(a.model, ids, MOST, SETUN_DECODE_CONTINUES, text, 5, &again, NULL), SETUN_OK);
  assert_int_equal(again, length);
  assert_memory_equal(text, out.text, 5);
  assert_int_equal(text[5], 'x');
  finish(&a);
  finish(&b);
}

// Every part of the text as a stop text: the output is what precedes its first occurrence.
static void stops_anywhere(void **state) {
  (void)state;
  story whole = begin(MODEL);
  shown all = {.length = 0};
  setun_generate_params p = setun_generate_params_default();
  p.on_text = keep;
  p.user = &all;
  p.max_tokens = MOST / 2;
  generate(&whole, &p);
  uint32_t start = setun_session_position(whole.session) - MOST / 2;
  for (size_t from = 3; from + 6 < all.length && from < 40; from += 3) {
    char stop[8] = "";
    const char *const stops[] = {"no such text", stop};
    shown out = {.length = 0};
    bool found = false;
    memcpy(stop, all.text + from, 5);
    assert_int_equal(setun_session_truncate(whole.session, start - 1, NULL), SETUN_OK);
    eval(whole.session, &(setun_token){setun_session_tokens(whole.session)[start - 1]}, 1, NULL);
    setun_sampler_reset(whole.sampler);
    p.user = &out;
    p.stops = stops;
    p.n_stops = 2;
    setun_generate_result r = generate(&whole, &p);
    assert_string_equal(setun_end_name(r.end), "stop");
    size_t expected = cut(all.text, all.length, &stops[1], 1, &found);
    assert_true(found);
    assert_int_equal(out.length, expected);
    assert_memory_equal(out.text, all.text, expected);
  }
  finish(&whole);
}

// Text without a choice is evaluated in one pass, and then the session is as if it had been given.
static void forced_text(void **state) {
  (void)state;
  static const char text[] = ", there were three bears and a very small (girl|boy) who had lost her way.";
  setun_constraint_params what = setun_constraint_params_default();
  what.grammar = SETUN_GRAMMAR_EXPRESSION;
  what.text = text;
  what.length = strlen(text);
  story a = begin(MODEL), b = begin(MODEL);
  setun_constraint *c = NULL;
  setun_error err = {SETUN_OK, ""};
  if (setun_constraint_new(b.model, &what, &c, &err)) fail_msg("%s", err.message);
  assert_int_equal(setun_sampler_constrain(b.sampler, c, NULL), SETUN_OK);
  setun_token ids[64];
  size_t forced = 0, before = setun_session_position(b.session);
  assert_int_equal(setun_sampler_forced(b.sampler, ids, 64, &forced, NULL), SETUN_OK);
  assert_in_range(forced, 8, 64);
  shown out = {.length = 0};
  setun_generate_params p = setun_generate_params_default();
  p.on_text = keep;
  p.user = &out;
  p.max_tokens = forced;
  setun_generate_result r = generate(&b, &p);
  assert_int_equal(r.n_tokens, forced);
  assert_int_equal(setun_session_position(b.session), before + forced);
  eval(a.session, ids, forced, NULL);
  assert_memory_equal(setun_session_logits(a.session), setun_session_logits(b.session),
                      setun_model_n_vocab(a.model) * sizeof(float));
  p.max_tokens = 0;
  r = generate(&b, &p);
  assert_string_equal(setun_end_name(r.end), "token");
  bool girl = !strcmp(out.text, ", there were three bears and a very small girl who had lost her way.");
  bool boy = !strcmp(out.text, ", there were three bears and a very small boy who had lost her way.");
  assert_true(girl || boy);
  setun_constraint_free(c);
  finish(&a);
  finish(&b);
}

static void needs_logits(void **state) {
  (void)state;
  story s = begin(MODEL);
  setun_error err = {SETUN_OK, ""};
  assert_int_equal(setun_session_truncate(s.session, 0, NULL), SETUN_OK);
  assert_int_equal(setun_generate(s.session, s.sampler, NULL, NULL, &err), SETUN_ERROR_STATE);
  assert_non_null(strstr(err.message, "logits"));
  finish(&s);
}

// ---- progress ----

typedef struct steps {
  double last;
  int calls, most;
} steps;

static bool step(double fraction, void *user) {
  steps *s = user;
  assert_true(fraction >= s->last && fraction <= 1);
  s->last = fraction;
  return !s->most || ++s->calls < s->most;
}

static void progress(void **state) {
  (void)state;
  story s = begin(MODEL);
  setun_token ids[20];
  setun_error err = {SETUN_OK, ""};
  steps seen = {0};
  setun_eval_params p = setun_eval_params_default();
  for (int i = 0; i < 20; i++) ids[i] = 5 + i;
  p.progress = step;
  p.user = &seen;
  eval(s.session, ids, 20, &p);
  assert_true(seen.last == 1);
  seen = (steps){.most = 3};
  uint32_t before = setun_session_position(s.session);
  assert_int_equal(setun_session_eval(s.session, ids, 20, &p, &err), SETUN_ERROR_CANCELED);
  assert_int_equal(setun_session_position(s.session), before);
  finish(&s);
}

// ---- in memory ----

static bool read_bytes(void *user, uint64_t offset, void *to, size_t n) {
  const st_text *file = user;
  assert_true(offset <= file->length && n <= file->length - offset);
  memcpy(to, file->data + offset, n);
  return true;
}

static bool read_nothing(void *user, uint64_t offset, void *to, size_t n) {
  (void)user, (void)offset, (void)to, (void)n;
  return false;
}

static void model_in_memory(void **state) {
  (void)state;
  char *bytes = NULL;
  size_t n = 0;
  setun_error err = {SETUN_OK, ""};
  if (st_file_load(GGUF, 1 << 28, &bytes, &n, &err) != SETUN_OK) fail_msg("%s", err.message);
  st_text file = {bytes, n};
  const setun_token ids[] = {1, 2, 3};
  setun_model *m = load(GGUF, NULL);
  setun_session *s = session(m, 0, 1);
  eval(s, ids, 3, NULL);
  const setun_source sources[] = {{.length = n, .bytes = bytes}, {.length = n, .read = read_bytes, .user = &file}};
  for (int i = 0; i < 2; i++) {
    setun_model *other = NULL;
    setun_model_params p = setun_model_params_default();
    p.precise = true;
    p.source = &sources[i];
    if (setun_model_load(i ? "a name" : NULL, &p, &other, &err) != SETUN_OK) fail_msg("%s", err.message);
    setun_session *t = session(other, 0, 1);
    eval(t, ids, 3, NULL);
    assert_memory_equal(setun_session_logits(s), setun_session_logits(t), setun_model_n_vocab(m) * sizeof(float));
    setun_session_free(t);
    setun_model_free(other);
  }
  setun_source bad[] = {{.length = n},
                        {.length = n, .bytes = bytes, .read = read_bytes, .user = &file},
                        {.length = n, .read = read_nothing},
                        {.length = n - 64, .bytes = bytes},
                        {.length = 0, .bytes = bytes}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    setun_model *other = NULL;
    setun_model_params p = setun_model_params_default();
    p.source = &bad[i];
    setun_status got = setun_model_load("a name", &p, &other, &err);
    assert_int_not_equal(got, SETUN_OK);
    if (i < 2) assert_int_equal(got, SETUN_ERROR_ARGUMENT);
    assert_null(other);
  }
  setun_session_free(s);
  setun_model_free(m);
  st_free(bytes);
}

// A budget that would need streaming is refused before any weight is read: only files on disk can be streamed.
static void source_does_not_stream(void **state) {
  (void)state;
  setun_error err = {SETUN_OK, ""};
  setun_model *m = NULL;
  setun_plan plan = {.size = sizeof plan};
  setun_synthesis_params large = setun_synthesis_params_default();
  setun_session_params small = {.size = sizeof small, .n_ctx = 64, .n_batch = 8, .threads = 1};
  setun_model_params p = setun_model_params_default();
  large.shape = "8b"; // which is a source
  large.format = "t16";
  p.threads = 1;
  p.session = &small;
  p.memory = 1 << 20;
  assert_int_equal(setun_model_plan_synthetic(&large, &p, &plan, &err), SETUN_ERROR_MEMORY);
  p.memory = plan.least + (400 << 20); // the process grows until then
  if (setun_model_plan_synthetic(&large, &p, &plan, &err) != SETUN_OK) fail_msg("%s", err.message);
  assert_true(plan.streamed > 0);
  assert_int_equal(setun_model_load_synthetic(&large, &p, &m, &err), SETUN_ERROR_UNSUPPORTED);
  if (!strstr(err.message, "only weights of files on disk can be streamed")) fail_msg("%s", err.message);
  assert_null(m);
}

// The same bytes as the file, and back.
static void session_in_memory(void **state) {
  (void)state;
  char path[] = "/tmp/setun-session-XXXXXX", *file = NULL;
  close(mkstemp(path));
  story s = begin(MODEL);
  setun_error err = {SETUN_OK, ""};
  size_t n = 0, length = 0, again = 0;
  assert_int_equal(setun_session_save(s.session, path, &err), SETUN_OK);
  if (st_file_load(path, 1 << 28, &file, &n, &err) != SETUN_OK) fail_msg("%s", err.message);
  assert_int_equal(setun_session_save_memory(s.session, NULL, 0, &length, &err), SETUN_OK);
  assert_int_equal(length, n);
  char *bytes = malloc(length);
  memset(bytes, 1, length);
  assert_int_equal(setun_session_save_memory(s.session, bytes, length - 1, &again, &err), SETUN_OK);
  assert_true(again == length && bytes[0] == 1);
  assert_int_equal(setun_session_save_memory(s.session, bytes, length, &again, &err), SETUN_OK);
  assert_memory_equal(bytes, file, length);
  setun_session *other = session(s.model, 8, 1);
  assert_int_equal(setun_session_load_memory(other, bytes, length, &err), SETUN_OK);
  assert_int_equal(setun_session_position(other), setun_session_position(s.session));
  eval(s.session, &(setun_token){9}, 1, NULL);
  eval(other, &(setun_token){9}, 1, NULL);
  assert_memory_equal(setun_session_logits(s.session), setun_session_logits(other),
                      setun_model_n_vocab(s.model) * sizeof(float));
  bytes[length / 2] ^= 1;
  assert_int_equal(setun_session_load_memory(other, bytes, length, &err), SETUN_ERROR_FORMAT);
  for (size_t k = 0; k < 60; k++) assert_int_not_equal(setun_session_load_memory(other, bytes, k, &err), SETUN_OK);
  setun_session_free(other);
  free(bytes);
  st_free(file);
  unlink(path);
  finish(&s);
}

// ---- structs ----

// A program that was built with fewer members, and one with more of them.
static void other_sizes(void **state) {
  (void)state;
  setun_error err = {SETUN_OK, ""};
  struct {
    setun_sampler_params own;
    uint64_t more[2];
  } larger;
  setun_sampler *s = NULL;
  setun_sampler_params_init(&larger.own, sizeof larger);
  assert_int_equal(larger.own.size, sizeof larger);
  assert_true(!larger.more[0] && !larger.more[1] && larger.own.top_k == 40);
  assert_int_equal(setun_sampler_new(&larger.own, &s, &err), SETUN_OK);
  setun_sampler_free(s);
  larger.more[1] = 1;
  assert_int_equal(setun_sampler_new(&larger.own, &s, &err), SETUN_ERROR_ARGUMENT);
  assert_non_null(strstr(err.message, "setun_sampler_params"));
  setun_sampler_params smaller = {.size = 0};
  assert_int_equal(setun_sampler_new(&smaller, &s, &err), SETUN_ERROR_ARGUMENT);
  assert_non_null(strstr(err.message, "setun_sampler_params.size"));
  unsigned char bytes[sizeof(setun_model_info)];
  memset(bytes, 0xAA, sizeof bytes);
  setun_model *m = load(MODEL, NULL);
  setun_model_info info = info_of(m);
  memcpy(bytes, &(size_t){24}, sizeof(size_t));
  assert_int_equal(setun_model_get_info(m, (setun_model_info *)(void *)bytes, &err), SETUN_OK);
  assert_memory_equal(bytes + 8, (char *)&info + 8, 16);
  for (size_t i = 24; i < sizeof bytes; i++) assert_int_equal(bytes[i], 0xAA);
  setun_model_free(m);
}

static void versions(void **state) {
  (void)state;
  char text[32];
  snprintf(text, sizeof text, "%d.%d.%d", SETUN_VERSION_MAJOR, SETUN_VERSION_MINOR, SETUN_VERSION_PATCH);
  assert_string_equal(setun_version(), text);
  assert_int_equal(setun_version_number(), SETUN_VERSION_NUMBER);
  assert_string_equal(setun_status_name(SETUN_ERROR_STATE), "state");
  assert_null(setun_status_name((setun_status)(SETUN_ERROR_STATE + 1)));
  static const char *const kv[] = {
      [SETUN_KV_F16] = "f16", [SETUN_KV_F32] = "f32", [SETUN_KV_Q8] = "q8", [SETUN_KV_Q4] = "q4"};
  for (size_t i = 0; i < sizeof kv / sizeof *kv; i++) {
    assert_string_equal(setun_choice_name(SETUN_CHOICE_KV, i), kv[i]);
  }
  assert_string_equal(setun_channel_name(SETUN_CHANNEL_CALL), "call");
}

// Against tokenizer.json of models/setun-tales-7m: ids 0 to 3 are its special tokens, ordinary ones follow.
static void tokens(void **state) {
  (void)state;
  setun_model *m = load(MODEL, NULL);
  setun_token_kind kind = SETUN_TOKEN_UNUSED;
  setun_token bos = setun_token_bos(m);
  const char *text = NULL;
  size_t n = 0, ids = 0;
  setun_token id = 0;
  assert_true(bos >= 0);
  assert_int_equal(setun_token_get_kind(m, bos, &kind, NULL), SETUN_OK);
  assert_string_equal(setun_token_kind_name(kind), "control");
  assert_int_equal(setun_token_get_text(m, bos, &text, &n, NULL), SETUN_OK);
  assert_true(n > 0);
  assert_int_equal(setun_tokenize(m, text, n, SETUN_TOKENIZE_SPECIAL, &id, 1, &ids, NULL), SETUN_OK);
  assert_true(ids == 1 && id == bos);
  assert_int_equal(setun_tokenize(m, " time", 5, 0, &id, 1, &ids, NULL), SETUN_OK);
  assert_int_equal(ids, 1);
  assert_int_equal(setun_token_get_kind(m, id, &kind, NULL), SETUN_OK);
  assert_string_equal(setun_token_kind_name(kind), "normal");
  assert_int_equal(setun_token_get_text(m, id, &text, &n, NULL), SETUN_OK);
  assert_true(n == 5 && !memcmp(text, " time", 5));
  assert_int_equal(setun_token_get_kind(m, (setun_token)setun_model_n_vocab(m), &kind, NULL), SETUN_ERROR_ARGUMENT);
  setun_model_free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(stop_texts),        cmocka_unit_test(refused_stop_texts),
                                     cmocka_unit_test(equals_a_loop),     cmocka_unit_test(stops_anywhere),
                                     cmocka_unit_test(needs_logits),      cmocka_unit_test(progress),
                                     cmocka_unit_test(model_in_memory),   cmocka_unit_test(source_does_not_stream),
                                     cmocka_unit_test(session_in_memory), cmocka_unit_test(other_sizes),
                                     cmocka_unit_test(versions),          cmocka_unit_test(tokens),
                                     cmocka_unit_test(forced_text)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
