// Contexts: sequences in one pass give what each gives alone, bit for bit, through random schedules of forks,
// truncation, drops, reuse, saving and loading in a pool that is nearly full; pages are shared and counted; a full pool
// is an error that changes nothing. The reference is a session with one sequence's tokens and nothing else.
#include "models.h"

#include "base/random.h"
#include "rounds.h"

#define TALES SETUN_SOURCE_DIR "/models/setun-tales-7m"

// gemma3 has windows, qwen35 and qwen3-next recurrent layers, gpt-oss, qwen2-moe and qwen3-next experts, gpt-oss sinks
// too, bitnet and the tales int8 activations by token, gpt-oss in GGUF and the synthetic ones, which have a format, by
// block.
static const struct {
  const char *model, *format;
  enum { PLAIN, WINDOWS, RECURRENT } layers;
} models[] = {{TALES, NULL, PLAIN},
              {GOLDEN "hf/gemma3", NULL, WINDOWS},
              {GOLDEN "hf/gpt-oss", NULL, WINDOWS},
              {GOLDEN "hf/qwen2-moe", NULL, PLAIN},
              {GOLDEN "gguf/qwen35.gguf", NULL, RECURRENT},
              {GOLDEN "hf/qwen3-next", NULL, RECURRENT},
              {GOLDEN "hf/bitnet-auto", NULL, PLAIN},
              {GOLDEN "gguf/gpt-oss.gguf", NULL, WINDOWS},
              {"tiny", "q4_0", PLAIN},
              {"tiny-moe", "q8_0", PLAIN}};
enum { N_MODELS = sizeof models / sizeof *models };
enum { SEQUENCES = 20, CONTEXT = 200, PAGE = 64, MOST = 100, CHANGES = 60 };

static timed_rounds rounds;

static setun_context *context_of(const setun_model *m, const setun_context_params *params) {
  setun_context *c = NULL;
  EXPECT_OK(setun_context_new(m, params, &c, &err));
  return c;
}

static int add(setun_context *c) {
  int sequence = -1;
  EXPECT_OK(setun_context_add(c, &sequence, &err));
  return sequence;
}

static void go_on(setun_context *c, int sequence, const setun_token *ids, size_t n) {
  const setun_batch_entry e = {sequence, SETUN_LOGITS_LAST, ids, n};
  EXPECT_OK(setun_context_eval(c, &e, 1, NULL, &err));
}

// ---- random schedules ---------------------------------------------------------------------------------------------

typedef struct text {
  bool used;
  uint32_t n;
  setun_token ids[CONTEXT];
} text;

typedef struct schedule {
  const setun_model *model;
  setun_context *context;
  setun_session *alone;
  size_t n_vocab;
  uint32_t n_ctx;
  bool windows; // layers have a window, and release what they do not see, or a state, of which they keep a few
  st_random random;
  text texts[SEQUENCES]; // the expected tokens of each sequence
  text dropped;          // the last one
  unsigned full, compared;
} schedule;

static uint32_t below(schedule *s, uint32_t n) {
  return (uint32_t)(st_random_u64(&s->random) % n);
}

// The sequence's tokens alone, in chunks of the session's own; the session keeps the beginning that it has already, but
// with windows, where it could have to compute it again.
static const float *logits_alone(schedule *s, const setun_token *ids, uint32_t n) {
  const setun_token *has = setun_session_tokens(s->alone);
  uint32_t same = 0, position = setun_session_position(s->alone);
  while (!s->windows && same < position && same + 1 < n && has[same] == ids[same]) same++;
  EXPECT_OK(setun_session_truncate(s->alone, same, &err));
  EXPECT_OK(setun_session_eval(s->alone, ids + same, n - same, NULL, &err));
  return setun_session_logits(s->alone);
}

static void compare(schedule *s, const float *logits, const text *t, uint32_t n) {
  assert_non_null(logits);
  if (memcmp(logits, logits_alone(s, t->ids, n), s->n_vocab * sizeof *logits)) {
    fail_msg("the logits after %u tokens are not those of the sequence alone", n);
  }
  s->compared++;
}

static int some(schedule *s) {
  int found = -1;
  uint32_t seen = 0;
  for (int i = 0; i < SEQUENCES; i++) {
    if (s->texts[i].used && below(s, ++seen) == 0) found = i;
  }
  return found;
}

static void check_state(const schedule *s) {
  setun_context_info info = info_of_context(s->context);
  uint32_t n = 0;
  for (int i = 0; i < SEQUENCES; i++) {
    const text *t = &s->texts[i];
    n += t->used;
    assert_int_equal(setun_context_position(s->context, i), t->used ? t->n : 0);
    if (t->used) assert_memory_equal(setun_context_tokens(s->context, i), t->ids, t->n * sizeof *t->ids);
  }
  assert_int_equal(info.n_seq, n);
  assert_true(info.pages_used + info.pages_kept <= info.pages);
}

static void drop(schedule *s, int i) {
  EXPECT_OK(setun_context_drop(s->context, i, &err));
  s->dropped = s->texts[i];
  s->texts[i].used = false;
}

// The refusal names what frees pages; the test does that.
static void make_room(schedule *s, const setun_error *e) {
  const char *named = strstr(e->message, "dropping sequence ");
  assert_non_null(strstr(e->message, "the KV cache is full"));
  int i = named ? atoi(named + strlen("dropping sequence ")) : some(s);
  assert_true(s->texts[i].used);
  drop(s, i);
  s->full++;
}

static void evaluate(schedule *s) {
  setun_batch_entry entries[SEQUENCES];
  static setun_token ids[SEQUENCES][MOST];
  setun_error e = {SETUN_OK, ""};
  uint32_t n = 0, most = 1 + below(s, SEQUENCES), wanted = 0;
  for (int i = SEQUENCES - 1; i >= 0 && n < most; i--) {
    uint32_t left = s->n_ctx - s->texts[i].n, count = below(s, 4) ? 1 : 1 + below(s, MOST);
    if (!s->texts[i].used || !below(s, 3) || !left) continue;
    if (count > left) count = left;
    for (uint32_t k = 0; k < count; k++) ids[n][k] = (setun_token)below(s, (uint32_t)s->n_vocab);
    setun_logits logits = (setun_logits)below(s, 3);
    if (logits == SETUN_LOGITS_ALL && wanted + count > MOST) logits = SETUN_LOGITS_LAST;
    wanted += logits == SETUN_LOGITS_ALL ? count : 1;
    entries[n] = (setun_batch_entry){i, logits, ids[n], count};
    n++;
  }
  setun_context_info before = info_of_context(s->context);
  setun_status status = setun_context_eval(s->context, entries, n, NULL, &e);
  if (status == SETUN_ERROR_LIMIT) {
    setun_context_info after = info_of_context(s->context);
    assert_memory_equal(&before, &after, sizeof before);
    check_state(s);
    make_room(s, &e);
    return;
  }
  if (status != SETUN_OK) fail_msg("%s", e.message);
  for (uint32_t i = 0; i < n; i++) {
    text *t = &s->texts[entries[i].sequence];
    memcpy(t->ids + t->n, entries[i].ids, entries[i].n * sizeof *t->ids);
    t->n += (uint32_t)entries[i].n;
  }
  for (uint32_t i = 0; i < n; i++) {
    const text *t = &s->texts[entries[i].sequence];
    uint32_t all = entries[i].logits == SETUN_LOGITS_ALL, count = (uint32_t)entries[i].n;
    uint32_t rows = all ? count : entries[i].logits != SETUN_LOGITS_NONE;
    assert_null(setun_context_logits(s->context, i, rows));
    for (uint32_t k = 0; k < rows; k += 1 + below(s, 20)) {
      compare(s, setun_context_logits(s->context, i, k), t, t->n - (all ? count - 1 - k : 0));
    }
  }
}

static void reuse(schedule *s) {
  int from = some(s), sequence = -1;
  uint32_t position = 0;
  const text *t = from >= 0 && below(s, 2) ? &s->texts[from] : &s->dropped;
  text mine = *t;
  setun_error e = {SETUN_OK, ""};
  if (mine.n > 1) mine.n = 1 + below(s, mine.n);
  if (mine.n < s->n_ctx) mine.ids[mine.n++] = (setun_token)below(s, (uint32_t)s->n_vocab);
  uint32_t least = 0; // existing sequences must be found
  for (int i = 0; i < SEQUENCES && !s->windows; i++) {
    uint32_t same = 0;
    while (s->texts[i].used && same < s->texts[i].n && same + 1 < mine.n && s->texts[i].ids[same] == mine.ids[same])
      same++;
    if (same > least) least = same;
  }
  setun_status status = setun_context_reuse(s->context, mine.ids, mine.n, &sequence, &position, &e);
  if (status == SETUN_ERROR_LIMIT) {
    drop(s, some(s));
    return;
  }
  if (status != SETUN_OK) fail_msg("%s", e.message);
  assert_true(position >= least && position < mine.n);
  mine.used = true;
  mine.n = position;
  s->texts[sequence] = mine;
}

// Through memory, to itself or to another sequence.
static void save_and_load(schedule *s) {
  int from = some(s), to = some(s);
  size_t length = 0;
  setun_error e = {SETUN_OK, ""};
  if (from < 0) return;
  EXPECT_OK(setun_context_save_memory(s->context, from, NULL, 0, &length, &err));
  void *bytes = malloc(length);
  EXPECT_OK(setun_context_save_memory(s->context, from, bytes, length, &length, &err));
  setun_status status = setun_context_load_memory(s->context, to, bytes, length, &e);
  if (status == SETUN_ERROR_LIMIT) {
    check_state(s);
    make_room(s, &e);
  } else if (status != SETUN_OK) {
    fail_msg("%s", e.message);
  } else {
    s->texts[to] = s->texts[from];
  }
  free(bytes);
}

static void add_or_fork(schedule *s, bool fork) {
  int from = fork ? some(s) : -1, sequence = -1;
  setun_error e = {SETUN_OK, ""};
  setun_status status =
      from < 0 ? setun_context_add(s->context, &sequence, &e) : setun_context_fork(s->context, from, &sequence, &e);
  if (status == SETUN_ERROR_LIMIT) {
    drop(s, some(s));
    return;
  }
  if (status != SETUN_OK) fail_msg("%s", e.message);
  assert_false(s->texts[sequence].used);
  s->texts[sequence] = from < 0 ? (text){.used = true} : s->texts[from];
}

static void change(schedule *s) {
  int i = some(s);
  switch (below(s, 12)) {
  case 0:
    if (i >= 0) drop(s, i);
    break;
  case 1:
    if (i < 0) break;
    s->texts[i].n = below(s, s->texts[i].n + 1);
    EXPECT_OK(setun_context_truncate(s->context, i, s->texts[i].n, &err));
    break;
  case 2: save_and_load(s); break;
  case 3: reuse(s); break;
  case 4:
  case 5: add_or_fork(s, false); break;
  case 6: add_or_fork(s, true); break;
  default: evaluate(s);
  }
  check_state(s);
}

static void run_schedule(const char *model, const char *format, int layers, uint64_t seed) {
  static schedule s;
  s = (schedule){.windows = layers != PLAIN};
  st_random_seed(&s.random, seed);
  setun_error e = {SETUN_OK, ""};
  setun_model_params mp = setun_model_params_default();
  setun_model *m = NULL;
  mp.precise = below(&s, 2);
  mp.threads = 2;
  setun_synthesis_params synthetic = setun_synthesis_params_default();
  synthetic.shape = model, synthetic.format = format;
  setun_status status =
      format ? setun_model_load_synthetic(&synthetic, &mp, &m, &e) : setun_model_load(model, &mp, &m, &e);
  if (status != SETUN_OK) fail_msg("%s", e.message);
  uint32_t trained = info_of(m).n_ctx_train;
  s.model = m;
  s.n_vocab = setun_model_n_vocab(m);
  s.n_ctx = trained < CONTEXT ? trained : CONTEXT;
  setun_context_params cp = setun_context_params_default();
  cp.n_ctx = s.n_ctx;
  cp.n_seq_max = SEQUENCES;
  cp.n_cache = PAGE * (8 + below(&s, 16)); // of 80
  cp.n_batch = 1 + below(&s, 90);
  cp.n_logits = MOST + SEQUENCES;
  cp.threads = 1 + (int)below(&s, 3);
  cp.kv_keys = (setun_kv_type)below(&s, 4), cp.kv_values = (setun_kv_type)below(&s, 4);
  if (!below(&s, 2) && layers != RECURRENT) { // a window of the context, and sinks
    cp.n_ctx = 0;
    cp.window = 1 + below(&s, 60);
    cp.sinks = below(&s, 2) ? below(&s, 70) : 0;
    s.windows = true;
  }
  setun_session_params sp = setun_session_params_default();
  sp.n_ctx = cp.n_ctx;
  sp.window = cp.window, sp.sinks = cp.sinks;
  sp.n_batch = 1 + below(&s, 90);
  sp.threads = 1 + (int)below(&s, 3);
  sp.kv_keys = cp.kv_keys, sp.kv_values = cp.kv_values;
  s.context = context_of(m, &cp);
  if (setun_session_new(m, &sp, &s.alone, &e) != SETUN_OK) fail_msg("%s", e.message);
  for (int i = 0; i < CHANGES; i++) change(&s);
  setun_session_free(s.alone);
  setun_context_free(s.context);
  setun_model_free(m);
  print_message("%s, window %u, %u sinks: %u compared, %u times full\n", format ? model : strrchr(model, '/') + 1,
                cp.window, cp.sinks, s.compared, s.full);
}

static void schedules(void **state) {
  (void)state;
  for (; rounds_go_on(&rounds); rounds.round++) {
    for (size_t i = 0; i < N_MODELS && rounds_go_on(&rounds); i++) {
      uint64_t seed = rounds_seed(&rounds, i);
      print_message("round %llu, seed %llu: ", (unsigned long long)rounds.round, (unsigned long long)seed);
      run_schedule(models[i].model, models[i].format, models[i].layers, seed);
    }
  }
  rounds_print(&rounds);
}

// ---- pages --------------------------------------------------------------------------------------------------------

static void fill(setun_token *ids, size_t n, uint32_t seed, size_t n_vocab) {
  for (size_t i = 0; i < n; i++) ids[i] = (setun_token)((i * i * 7 + seed * 31 + i) % n_vocab);
}

static void forks_share_pages(void **state) {
  (void)state;
  setun_model *m = load(TALES, NULL);
  const uint64_t layers = info_of(m).n_layer;
  setun_context_params p = {.size = sizeof p, .n_ctx = 256, .n_seq_max = 4, .threads = 1};
  setun_context *c = context_of(m, &p);
  setun_token ids[150];
  fill(ids, 150, 1, setun_model_n_vocab(m));
  int first = add(c), copy = -1;
  go_on(c, first, ids, 130);
  assert_int_equal(info_of_context(c).pages, 4 * 4 * layers);
  assert_int_equal(info_of_context(c).pages_used, 3 * layers);
  EXPECT_OK(setun_context_fork(c, first, &copy, &err));
  assert_int_equal(info_of_context(c).pages_used, 3 * layers);
  go_on(c, copy, ids + 130, 1); // into the last page, which is copied
  assert_int_equal(info_of_context(c).pages_used, 4 * layers);
  go_on(c, first, ids + 130, 2); // which is its own by then
  assert_int_equal(info_of_context(c).pages_used, 4 * layers);
  EXPECT_OK(setun_context_truncate(c, copy, 64, &err));
  assert_int_equal(info_of_context(c).pages_used, 3 * layers);
  go_on(c, copy, ids, 1); // after a shared page, to which nothing is written
  assert_int_equal(info_of_context(c).pages_used, 4 * layers);
  EXPECT_OK(setun_context_drop(c, first, &err));
  assert_int_equal(info_of_context(c).pages_used, 2 * layers);
  assert_int_equal(info_of_context(c).pages_kept, 2 * layers);
  setun_context_free(c);
  setun_model_free(m);
}

// Forks of forks, each continued inside a page that it shares, dropped in every order: the others continue as if they
// were alone, and in the end no page is in use.
static void forks_dropped_in_any_order(void **state) {
  (void)state;
  enum { FORKS = 4, BEGIN = 70, EACH = 9 };
  setun_model *m = load(TALES, NULL);
  setun_context_params p = {.size = sizeof p, .n_ctx = 256, .n_seq_max = FORKS, .threads = 1};
  setun_context *c = context_of(m, &p);
  size_t bytes = setun_model_n_vocab(m) * sizeof(float);
  static setun_token ids[FORKS][BEGIN + FORKS * EACH];
  float *expected[FORKS]; // after all tokens of a sequence
  for (int i = 0; i < FORKS; i++) {
    setun_context_params one = {.size = sizeof one, .n_ctx = 256, .n_seq_max = 1, .threads = 1};
    size_t shared = i ? BEGIN + (size_t)(i - 1) * EACH : 0; // forked after these
    fill(ids[i], BEGIN + FORKS * EACH, 10 + (uint32_t)i, setun_model_n_vocab(m));
    memcpy(ids[i], ids[i ? i - 1 : 0], shared * sizeof **ids);
    setun_context *alone = context_of(m, &one);
    go_on(alone, add(alone), ids[i], BEGIN + FORKS * EACH);
    expected[i] = malloc(bytes);
    memcpy(expected[i], setun_context_logits(alone, 0, 0), bytes);
    setun_context_free(alone);
  }
  for (int order = 0; order < FORKS * FORKS * FORKS * FORKS; order++) {
    int sequence[FORKS], at[FORKS], digits = order;
    bool dropped[FORKS] = {false}, repeated = false;
    for (int i = 0; i < FORKS; i++, digits /= FORKS) {
      at[i] = digits % FORKS;
      repeated |= dropped[at[i]];
      dropped[at[i]] = true;
    }
    if (repeated) continue; // not a permutation
    sequence[0] = add(c);
    go_on(c, sequence[0], ids[0], BEGIN);
    for (int i = 1; i < FORKS; i++) {
      EXPECT_OK(setun_context_fork(c, sequence[i - 1], &sequence[i], &err));
      go_on(c, sequence[i], ids[i] + BEGIN + (i - 1) * EACH, EACH);
    }
    for (int k = 0; k < FORKS; k++) {
      int i = at[k];
      uint32_t n = setun_context_position(c, sequence[i]);
      go_on(c, sequence[i], ids[i] + n, BEGIN + FORKS * EACH - n);
      assert_memory_equal(setun_context_logits(c, 0, 0), expected[i], bytes);
      EXPECT_OK(setun_context_drop(c, sequence[i], &err));
    }
    assert_int_equal(info_of_context(c).pages_used, 0);
  }
  for (int i = 0; i < FORKS; i++) free(expected[i]);
  setun_context_free(c);
  setun_model_free(m);
}

// The logits of `n` tokens after the sequence's position: of its own tokens, then of those that follow.
static void same_as_alone(const setun_model *m, setun_context *c, int sequence, const setun_token *ids, size_t all) {
  setun_session *s = NULL;
  setun_session_params p = {.size = sizeof p, .n_ctx = 256, .threads = 1};
  uint32_t position = setun_context_position(c, sequence);
  go_on(c, sequence, ids + position, all - position);
  EXPECT_OK(setun_session_new(m, &p, &s, &err));
  EXPECT_OK(setun_session_eval(s, ids, all, NULL, &err));
  assert_memory_equal(setun_context_logits(c, 0, 0), setun_session_logits(s), setun_model_n_vocab(m) * sizeof(float));
  setun_session_free(s);
}

static void prefixes_are_reused(void **state) {
  (void)state;
  setun_model *m = load(TALES, NULL);
  const uint64_t layers = info_of(m).n_layer;
  setun_context_params p = {.size = sizeof p, .n_ctx = 256, .n_seq_max = 3, .n_cache = 512, .threads = 1};
  setun_context *c = context_of(m, &p);
  setun_token ids[200], other[200];
  int a = add(c), b = -1;
  uint32_t position = 77;
  fill(ids, 200, 1, setun_model_n_vocab(m));
  fill(other, 200, 2, setun_model_n_vocab(m));
  // No sequence has that beginning; then one has it, whole, and with its end cut off, since the last token is computed.
  EXPECT_OK(setun_context_reuse(c, ids, 200, &b, &position, &err));
  assert_int_equal(position, 0);
  EXPECT_OK(setun_context_drop(c, b, &err));
  assert_int_equal(info_of_context(c).pages_kept, 0);
  go_on(c, a, ids, 140);
  EXPECT_OK(setun_context_reuse(c, ids, 140, &b, &position, &err));
  assert_int_equal(position, 139);
  assert_int_equal(info_of_context(c).pages_used, 3 * layers);
  EXPECT_OK(setun_context_drop(c, b, &err));
  // Of one that was dropped, unchanged: no further page.
  EXPECT_OK(setun_context_drop(c, a, &err));
  EXPECT_OK(setun_context_reuse(c, ids, 200, &b, &position, &err));
  assert_int_equal(position, 140);
  assert_int_equal(info_of_context(c).pages_used, 3 * layers);
  same_as_alone(m, c, b, ids, 190);
  // One that differs after the beginning.
  memcpy(other, ids, 70 * sizeof *ids);
  other[70] = ids[70] ? 0 : 1;
  EXPECT_OK(setun_context_reuse(c, other, 200, &a, &position, &err));
  assert_int_equal(position, 70);
  same_as_alone(m, c, a, other, 120);
  // Dropped sequences are freed when their pages are needed, the least recently used first: 3 + 2 of 8 pages a layer
  // are used, one of them twice.
  EXPECT_OK(setun_context_drop(c, b, &err));
  EXPECT_OK(setun_context_drop(c, a, &err));
  assert_int_equal(info_of_context(c).pages_used, 0);
  b = add(c);
  fill(ids, 200, 3, setun_model_n_vocab(m));
  same_as_alone(m, c, b, ids, 200);
  EXPECT_OK(setun_context_reuse(c, other, 200, &a, &position, &err));
  assert_int_equal(position, 120); // dropped after the other
  setun_context_free(c);
  setun_model_free(m);
}

static void full_pool(void **state) {
  (void)state;
  setun_model *m = load(TALES, NULL);
  const uint64_t layers = info_of(m).n_layer;
  setun_error e = {SETUN_OK, ""};
  setun_context_params p = {.size = sizeof p, .n_ctx = 256, .n_seq_max = 3, .n_cache = 300, .threads = 1};
  setun_context *c = context_of(m, &p);
  setun_token ids[200];
  char expected[80];
  int a = add(c), b = add(c);
  fill(ids, 200, 1, setun_model_n_vocab(m));
  go_on(c, a, ids, 100);
  go_on(c, b, ids, 129);
  assert_int_equal(info_of_context(c).pages, 5 * layers);
  assert_int_equal(info_of_context(c).pages_used, 5 * layers);
  // Both continue; only one of them would fit.
  setun_batch_entry both[] = {{a, SETUN_LOGITS_LAST, ids + 100, 28}, {b, SETUN_LOGITS_LAST, ids, 64}};
  assert_int_equal(setun_context_eval(c, both, 2, NULL, &e), SETUN_ERROR_LIMIT);
  snprintf(expected, sizeof expected, "truncate the call's sequences: dropping sequence %d of 129 tokens", b);
  assert_non_null(strstr(e.message, expected));
  assert_int_equal(setun_context_position(c, a), 100);
  assert_int_equal(setun_context_eval(c, both + 1, 1, NULL, &e), SETUN_ERROR_LIMIT);
  snprintf(expected, sizeof expected, "dropping sequence %d of 100 tokens would free %u", a, (unsigned)(2 * layers));
  assert_non_null(strstr(e.message, expected));
  same_as_alone(m, c, a, ids, 128);
  EXPECT_OK(setun_context_drop(c, a, &err));
  EXPECT_OK(setun_context_eval(c, both + 1, 1, NULL, &err));
  // Loading without enough room changes nothing.
  size_t length = 0;
  EXPECT_OK(setun_context_save_memory(c, b, NULL, 0, &length, &err));
  char *bytes = malloc(length);
  EXPECT_OK(setun_context_save_memory(c, b, bytes, length, &length, &err));
  a = add(c);
  go_on(c, a, ids, 5);
  assert_int_equal(setun_context_load_memory(c, a, bytes, length, &e), SETUN_ERROR_LIMIT);
  same_as_alone(m, c, a, ids, 60);
  EXPECT_OK(setun_context_drop(c, b, &err));
  EXPECT_OK(setun_context_load_memory(c, a, bytes, length, &err));
  assert_int_equal(setun_context_position(c, a), 193);
  free(bytes);
  setun_context_free(c);
  setun_model_free(m);
}

// A dropped sequence shares the page that another continues in, and no page is free: it is freed, and nothing is
// copied.
static void dropped_ones_make_room(void **state) {
  (void)state;
  setun_model *m = load(TALES, NULL);
  setun_context_params p = {.size = sizeof p, .n_ctx = 256, .n_seq_max = 2, .n_cache = 128, .threads = 1};
  setun_context *c = context_of(m, &p);
  setun_token ids[120];
  int a = add(c), b = -1;
  fill(ids, 120, 1, setun_model_n_vocab(m));
  go_on(c, a, ids, 100);
  EXPECT_OK(setun_context_fork(c, a, &b, &err));
  EXPECT_OK(setun_context_drop(c, b, &err));
  same_as_alone(m, c, a, ids, 110);
  assert_int_equal(info_of_context(c).pages_used, info_of_context(c).pages);
  setun_context_free(c);
  setun_model_free(m);
}

// A plan counts what a context takes: its pages, and some KiB of scratch for attention.
static void planned(void **state) {
  (void)state;
  setun_error e = {SETUN_OK, ""};
  setun_plan plan = {.size = sizeof plan}, whole = {.size = sizeof whole};
  setun_context_params p = {.size = sizeof p, .n_ctx = 256, .n_seq_max = 40, .n_cache = 3000, .threads = 1};
  setun_session_params other = setun_session_params_default();
  setun_model_params params = {.size = sizeof params, .context = &p, .threads = 1};
  EXPECT_OK(setun_model_plan(TALES, &params, &plan, &err));
  setun_model *m = NULL;
  EXPECT_OK(setun_model_load(TALES, &params, &m, &err));
  setun_context *c = context_of(m, &p);
  setun_context_info info = info_of_context(c);
  uint64_t pages = info.pages * info.page_bytes;
  assert_int_equal(info.pages, 47 * info_of(m).n_layer);
  assert_int_equal(plan.cache_pages, pages);
  assert_true(plan.cache >= pages && plan.cache < pages + (4 << 20));
  p.n_cache = 0;
  EXPECT_OK(setun_model_plan(TALES, &params, &whole, &err));
  assert_true(whole.cache > plan.cache * 3);
  params.session = &other;
  assert_int_equal(setun_model_plan(TALES, &params, &plan, &e), SETUN_ERROR_ARGUMENT);
  setun_context_free(c);
  setun_model_free(m);
}

// Invalid requests are refused before anything is computed.
static void refusals(void **state) {
  (void)state;
  setun_model *m = load(TALES, NULL);
  setun_error e = {SETUN_OK, ""};
  setun_context_params p = {.size = sizeof p, .n_ctx = 64, .n_seq_max = 2, .threads = 1};
  setun_context *c = context_of(m, &p);
  const setun_token ids[80] = {0}, bad[] = {1, -1};
  int a = add(c), b = add(c), more = 7;
  assert_int_equal(setun_context_add(c, &more, &e), SETUN_ERROR_LIMIT);
  assert_int_equal(setun_context_fork(c, a, &more, &e), SETUN_ERROR_LIMIT);
  assert_int_equal(more, 7);
  const struct {
    setun_batch_entry entries[3];
    size_t n;
    setun_status status;
    const char *message;
  } wrong[] = {
      {{{a, SETUN_LOGITS_LAST, ids, 1}, {a, SETUN_LOGITS_LAST, ids, 1}}, 2, SETUN_ERROR_ARGUMENT, "found twice"},
      {{{a, SETUN_LOGITS_LAST, ids, 65}}, 1, SETUN_ERROR_LIMIT, "65 tokens after 0 do not fit into a context of 64"},
      {{{a, SETUN_LOGITS_NONE, ids, 1}, {b, SETUN_LOGITS_NONE, bad, 2}}, 2, SETUN_ERROR_ARGUMENT, "entry 1: token 1"},
      {{{a, SETUN_LOGITS_ALL, ids, 3}}, 1, SETUN_ERROR_LIMIT, "at most 2 tokens, found 3"},
      {{{a, (setun_logits)9, ids, 1}}, 1, SETUN_ERROR_ARGUMENT, "setun_logits, found 9"},
      {{{a, SETUN_LOGITS_NONE, NULL, 3}}, 1, SETUN_ERROR_ARGUMENT, "expected 3 tokens, found NULL"},
      {{{2, SETUN_LOGITS_NONE, ids, 1}}, 1, SETUN_ERROR_ARGUMENT, "sequence: expected"},
      {{{a, SETUN_LOGITS_NONE, ids, 1}, {b, SETUN_LOGITS_NONE, ids, 1}, {a, SETUN_LOGITS_NONE, ids, 1}},
       3,
       SETUN_ERROR_ARGUMENT,
       "at most one for each of 2 sequences, found 3"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_int_equal(setun_context_eval(c, wrong[i].entries, wrong[i].n, NULL, &e), wrong[i].status);
    if (!strstr(e.message, wrong[i].message)) fail_msg("%s", e.message);
  }
  assert_int_equal(setun_context_position(c, a) + setun_context_position(c, b), 0);
  assert_int_equal(info_of_context(c).pages_used, 0);
  EXPECT_OK(setun_context_drop(c, b, &err));
  assert_int_equal(setun_context_drop(c, b, &e), SETUN_ERROR_ARGUMENT);
  setun_context_free(c);
  setun_model_free(m);
}

int main(int argc, char **argv) {
  rounds = rounds_of_arguments(argc, argv);
  const struct CMUnitTest tests[] = {cmocka_unit_test(forks_share_pages),
                                     cmocka_unit_test(forks_dropped_in_any_order),
                                     cmocka_unit_test(prefixes_are_reused),
                                     cmocka_unit_test(full_pool),
                                     cmocka_unit_test(refusals),
                                     cmocka_unit_test(dropped_ones_make_room),
                                     cmocka_unit_test(planned),
                                     cmocka_unit_test(schedules)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
