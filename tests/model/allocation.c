// Out of memory everywhere: the n-th allocation of the library fails, for every n. The call either fails with
// SETUN_ERROR_MEMORY or gives its usual result; nothing leaks (which the address sanitizer checks), and the objects
// that existed before still work. See allocators.h.
#define _DEFAULT_SOURCE // mkdtemp
#include "allocators.h"
#include "models.h"
#include "tokenizer/internal.h"

#include <unistd.h>

enum { DENSE = 3000, STEP = 7, MOST = 40000 };

// ---- the work ----

// The objects that the work uses, and a digest of all its results.
typedef struct {
  const char *path;
  const setun_model *model; // NULL: the work loads it
  uint64_t digest;
} work;

typedef setun_status (*work_fn)(work *w, setun_error *err);

static void digest(work *w, const void *bytes, size_t n) {
  for (size_t i = 0; i < n; i++) w->digest = (w->digest ^ ((const unsigned char *)bytes)[i]) * 0x100000001B3u;
}

static setun_status load_model(work *w, setun_error *err) {
  setun_model *m = NULL;
  setun_model_params p = setun_model_params_default();
  p.threads = 2;
  setun_status s = setun_model_load(w->path, &p, &m, err);
  assert_true((s == SETUN_OK) == (m != NULL));
  if (m) digest(w, &(uint64_t){info_of(m).n_params}, sizeof(uint64_t));
  setun_model_free(m);
  return s;
}

static setun_status look_into_file(work *w, setun_error *err) {
  setun_file *f = NULL;
  const char *key, *value;
  int n_dims;
  uint64_t dims[4];
  setun_tensor_info info = {.size = sizeof info};
  float *data = NULL;
  setun_status s = setun_file_open(w->path, NULL, &f, err);
  setun_file_info all = {.size = sizeof all};
  if (s == SETUN_OK) s = setun_file_get_info(f, &all, err);
  if (s == SETUN_OK) digest(w, &all.n_params, sizeof all.n_params);
  size_t n = f ? setun_file_tensor_count(f) : 0, n_meta = f ? setun_file_meta_count(f) : 0, room = 0;
  for (size_t i = 0; s == SETUN_OK && i < n_meta; i++) {
    s = setun_file_meta(f, i, &key, &value, err);
    if (s == SETUN_OK) digest(w, value, strlen(value));
  }
  for (size_t i = 0; s == SETUN_OK && i < n && i < 12; i++) {
    s = setun_file_tensor(f, i, &info, err);
    if (s == SETUN_OK) digest(w, info.format, strlen(info.format));
    if (s == SETUN_OK) s = setun_file_read(f, info.name, &n_dims, dims, NULL, 0, err);
    if (s != SETUN_OK) break;
    room = 1;
    for (int k = 0; k < n_dims; k++) room *= dims[k];
    data = __real_calloc(room, sizeof *data);
    s = setun_file_read(f, info.name, &n_dims, dims, data, room, err);
    if (s == SETUN_OK) digest(w, data, room * sizeof *data);
    free(data);
  }
  setun_file_close(f);
  return s;
}

static setun_status tokenize(work *w, setun_error *err) {
  static const char text[] = "The quick brown fox \xE6\x97\xA5 jumps,  over 12 dogs and a lazy one.\n";
  setun_token ids[128];
  size_t n = 0, length = 0;
  const char *out = NULL;
  setun_decoder *d = NULL;
  setun_status s = setun_tokenize(w->model, text, sizeof text - 1, SETUN_TOKENIZE_BOS, ids, 128, &n, err);
  if (s == SETUN_OK) digest(w, ids, n * sizeof *ids);
  if (s == SETUN_OK) s = setun_decoder_new(w->model, SETUN_DECODE_SPECIAL, &d, err);
  for (size_t i = 0; s == SETUN_OK && i < n; i++) {
    s = setun_decoder_push(d, ids[i], &out, &length, err);
    if (s == SETUN_OK) digest(w, out, length);
  }
  if (s == SETUN_OK) s = setun_decoder_finish(d, &out, &length, err);
  if (s == SETUN_OK) digest(w, out, length);
  setun_decoder_free(d);
  return s;
}

static bool keep_hidden(uint32_t layer, uint32_t position, uint32_t n, const float *hidden, void *user) {
  (void)layer, (void)position;
  digest(user, hidden, n);
  return true;
}

static char folder[] = "/tmp/setun-allocation-XXXXXX", session_path[64];

static setun_status evaluate(work *w, setun_error *err) {
  setun_token ids[24];
  setun_session *s = NULL;
  setun_session_params p = {.size = sizeof p, .n_ctx = 32, .n_batch = 8, .threads = 2};
  setun_eval_params hidden = {.size = sizeof hidden, .on_hidden = keep_hidden, .user = w};
  size_t n_vocab = setun_model_n_vocab(w->model);
  for (int i = 0; i < 24; i++) ids[i] = i * 3;
  setun_status status = setun_session_new(w->model, &p, &s, err);
  if (status == SETUN_OK) status = setun_session_eval(s, ids, 12, NULL, err);
  if (status == SETUN_OK) status = setun_session_eval(s, ids + 12, 12, &hidden, err);
  if (status == SETUN_OK) digest(w, setun_session_logits(s), n_vocab * sizeof(float));
  if (status == SETUN_OK) status = setun_session_save(s, session_path, err);
  if (status == SETUN_OK) status = setun_session_truncate(s, 0, err);
  if (status == SETUN_OK) status = setun_session_load(s, session_path, err);
  if (status == SETUN_OK) status = setun_session_eval(s, ids, 2, NULL, err);
  if (status == SETUN_OK) digest(w, setun_session_logits(s), n_vocab * sizeof(float));
  setun_session_free(s);
  return status;
}

// Sequences that fork, are dropped, found again and forgotten, in a small cache.
static setun_status compute(work *w, setun_context *c, setun_error *err) {
  setun_token ids[90];
  int a = -1, b = -1;
  uint32_t position = 0;
  for (int i = 0; i < 90; i++) ids[i] = i * 3 % 50;
  setun_status s = setun_context_add(c, &a, err);
  setun_batch_entry entries[] = {{a, SETUN_LOGITS_LAST, ids, 70}, {0, SETUN_LOGITS_LAST, ids + 70, 1}};
  if (s == SETUN_OK) s = setun_context_eval(c, entries, 1, NULL, err);
  if (s == SETUN_OK) s = setun_context_fork(c, a, &b, err);
  entries[0].ids += 70, entries[0].n = 2, entries[1].sequence = b;
  if (s == SETUN_OK) s = setun_context_eval(c, entries, 2, NULL, err);
  if (s == SETUN_OK) digest(w, setun_context_logits(c, 1, 0), setun_model_n_vocab(w->model) * sizeof(float));
  if (s == SETUN_OK) s = setun_context_drop(c, b, err);
  if (s == SETUN_OK) s = setun_context_reuse(c, ids, 90, &b, &position, err);
  if (s == SETUN_OK) s = setun_context_drop(c, b, err);
  if (s == SETUN_OK) s = setun_context_drop(c, a, err);
  digest(w, &position, sizeof position);
  if (s == SETUN_OK) s = setun_context_add(c, &a, err);
  entries[0] = (setun_batch_entry){a, SETUN_LOGITS_ALL, ids + 1, 5};
  if (s == SETUN_OK) s = setun_context_eval(c, entries, 1, NULL, err);
  if (s == SETUN_OK) digest(w, setun_context_logits(c, 0, 4), setun_model_n_vocab(w->model) * sizeof(float));
  if (s == SETUN_OK) s = setun_context_drop(c, a, err);
  return s;
}

static const setun_context_params small = {
    .size = sizeof small, .n_ctx = 96, .n_seq_max = 2, .n_cache = 192, .n_batch = 8, .n_logits = 6, .threads = 2};

// Text of unlimited length.
static const setun_context_params endless = {.size = sizeof endless,
                                             .n_seq_max = 2,
                                             .n_cache = 192,
                                             .n_batch = 8,
                                             .n_logits = 6,
                                             .threads = 2,
                                             .window = 20,
                                             .sinks = 3};

static setun_status serve(work *w, setun_error *err) {
  setun_context *c = NULL;
  setun_status s = setun_context_new(w->model, &small, &c, err);
  if (s == SETUN_OK) s = compute(w, c, err);
  setun_context_free(c);
  return s;
}

// A context allocates nothing once it exists: every allocation fails, and every call succeeds.
static void computing_allocates_nothing(void **state) {
  (void)state;
  const char *const paths[] = {GOLDEN "hf/bitnet-auto", GOLDEN "hf/gpt-oss", GOLDEN "hf/gemma3"};
  const setun_context_params *const params[] = {&small, &endless};
  for (size_t i = 0; i < 2 * sizeof paths / sizeof *paths; i++) {
    setun_error err = {SETUN_OK, ""};
    setun_context *c = NULL;
    setun_model *m = load(paths[i / 2], NULL);
    work w = {.path = paths[i / 2], .model = m};
    if (setun_context_new(m, params[i % 2], &c, &err) != SETUN_OK) fail_msg("%s", err.message);
    atomic_store(&left, 0);
    atomic_store(&lasting, true);
    atomic_store(&armed, true);
    setun_status s = SETUN_OK;
    for (int round = 0; round < 3 && s == SETUN_OK; round++) s = compute(&w, c, &err);
    atomic_store(&armed, false);
    if (s != SETUN_OK) fail_msg("%s: %s", paths[i / 2], err.message);
    assert_int_equal(atomic_load(&left), 0);
    setun_context_free(c);
    setun_model_free(m);
  }
}

static setun_status draw(work *w, setun_error *err) {
  float logits[64];
  setun_candidate likely[4];
  setun_sampler *s = NULL;
  size_t count = 0;
  setun_token id = 0;
  setun_sampler_params p = setun_sampler_params_default();
  p.repeat_penalty = 1.1f, p.penalty_last_n = -1, p.dry_multiplier = 1, p.typical_p = 0.9f, p.dynatemp_range = 0.2f;
  p.xtc_probability = 0.5f;
  for (int i = 0; i < 64; i++) logits[i] = (float)(i * 37 % 64) / 16;
  setun_status status = setun_sampler_new(&p, &s, err);
  for (int i = 0; status == SETUN_OK && i < 20; i++) status = setun_sampler_add_bias(s, i * 5 % 64, 0.5f, err);
  if (status == SETUN_OK) status = setun_sampler_add_breaker(s, &(setun_token){7}, 1, err);
  if (status == SETUN_OK) status = setun_sampler_add_breaker_text(s, w->model, "\n", 1, err);
  for (int i = 0; status == SETUN_OK && i < 40; i++) status = setun_sampler_accept(s, i % 10, err);
  for (int i = 0; status == SETUN_OK && i < 40; i++) {
    status = setun_sampler_sample(s, logits, 64, &id, err);
    if (status == SETUN_OK) digest(w, &id, sizeof id);
    if (status == SETUN_OK) status = setun_sampler_accept(s, id, err);
  }
  if (status == SETUN_OK) status = setun_sampler_probabilities(s, logits, 64, likely, 4, &count, err);
  if (status == SETUN_OK) digest(w, &likely[0].id, sizeof likely[0].id);
  setun_sampler_free(s);
  return status;
}

// A file's bytes into the digest.
static void digest_file(work *w, const char *path) {
  char bytes[4096];
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  for (size_t n; (n = fread(bytes, 1, sizeof bytes, file)) > 0;) digest(w, bytes, n);
  fclose(file);
}

static setun_status convert(work *w, setun_error *err) {
  char target[256];
  snprintf(target, sizeof target, "%s/converted.gguf", folder);
  setun_convert_params p = setun_convert_params_default();
  p.to = strstr(w->path, "bitnet") ? "t5" : "f32";
  p.embedding = "f16";
  setun_status s = setun_convert(w->path, target, &p, err);
  if (s == SETUN_OK) digest_file(w, target);
  unlink(target);
  return s;
}

static setun_status convert_to_directory(work *w, setun_error *err) {
  static const char *const names[] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"};
  char target[256], path[512];
  snprintf(target, sizeof target, "%s/converted", folder);
  setun_convert_params p = setun_convert_params_default();
  p.to = "hf-u8";
  setun_status s = setun_convert(w->path, target, &p, err);
  for (size_t i = 0; i < sizeof names / sizeof *names && s == SETUN_OK; i++) {
    snprintf(path, sizeof path, "%s/%s", target, names[i]);
    digest_file(w, path);
    unlink(path);
  }
  rmdir(target);
  return s;
}

static setun_synthesis_params synthetic_params(void) {
  setun_synthesis_params p = setun_synthesis_params_default();
  p.shape = "tiny-moe";
  p.format = "tq2_0";
  p.threads = 1;
  return p;
}

static setun_status synthesize(work *w, setun_error *err) {
  setun_model *m = NULL;
  setun_synthesis_params p = synthetic_params();
  setun_model_params reading = setun_model_params_default();
  reading.threads = 1;
  setun_status s = setun_model_load_synthetic(&p, &reading, &m, err);
  assert_true((s == SETUN_OK) == (m != NULL));
  if (m) digest(w, &(uint64_t){info_of(m).n_params}, sizeof(uint64_t));
  setun_model_free(m);
  return s;
}

static setun_status synthesize_file(work *w, setun_error *err) {
  char path[96];
  setun_synthesis_params p = synthetic_params();
  snprintf(path, sizeof path, "%s/synthetic.gguf", folder);
  setun_status s = setun_synthesize(path, &p, err);
  if (s == SETUN_OK) digest_file(w, path);
  unlink(path);
  return s;
}

static bool keep_text(setun_channel channel, const char *text, size_t length, void *user) {
  digest(user, &(unsigned char){(unsigned char)channel}, 1);
  digest(user, text, length);
  return true;
}

static setun_status converse(work *w, setun_error *err) {
  static const char text[] = "{% for m in messages %}[{{ m.role | upper }}] {{ m.content }}\n{% endfor %}<think>";
  static const char context[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"The quick brown fox.\"}]}";
  setun_chat_params p = setun_chat_params_default();
  setun_chat *chat = NULL;
  setun_rendering *r = NULL;
  setun_reply *reply = NULL;
  setun_token ids[128];
  size_t n = 0, length = 0;
  p.text = text, p.length = sizeof text - 1;
  setun_status s = setun_chat_new(w->model, &p, &chat, err);
  if (s == SETUN_OK) s = setun_chat_render(chat, context, sizeof context - 1, NULL, &r, err);
  if (s == SETUN_OK) s = setun_rendering_tokenize(r, ids, 128, &n, err);
  if (s == SETUN_OK) digest(w, ids, n * sizeof *ids);
  if (s == SETUN_OK) digest(w, setun_rendering_text(r, &length), 1);
  if (s == SETUN_OK) s = setun_reply_new(r, &reply, err);
  for (size_t i = 0; s == SETUN_OK && i < n; i++) s = setun_reply_push(reply, ids[i], keep_text, w, err);
  if (s == SETUN_OK) s = setun_reply_finish(reply, keep_text, w, err);
  setun_reply_free(reply);
  setun_rendering_free(r);
  setun_chat_free(chat);
  return s;
}

// PCRE2 allocates through the library.
static setun_status match(work *w, setun_error *err) {
  static const char pattern[] = "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
  static const char text[] = "Hello, world 1234!  ";
  st_regex *r = NULL;
  st_pattern_matcher m = {0};
  bool found = true;
  size_t start = 0, end = 0;
  setun_status s = st_regex_new(pattern, sizeof pattern - 1, &r, err);
  while (s == SETUN_OK && found && end < sizeof text - 1) {
    s = st_regex_match(r, &m, text, sizeof text - 1, end, &found, &start, &end, err);
    if (s == SETUN_OK) digest(w, &(size_t[]){start, end, found}, 3 * sizeof(size_t));
  }
  st_pattern_matcher_free(&m);
  st_regex_free(r);
  return s;
}

// ---- every n ----

// Tries the work with the n-th allocation failing. False when there are fewer.
static bool try_without(work w, work_fn fn, const char *name, long n, uint64_t want, long *carried_on) {
  setun_error err = {SETUN_OK, ""};
  atomic_store(&left, n);
  atomic_store(&armed, true);
  setun_status s = fn(&w, &err);
  atomic_store(&armed, false);
  bool reached = atomic_load(&left) < 0;
  if (s == SETUN_OK) {
    if (w.digest != want) fail_msg("%s: without allocation %ld the result is another", name, n);
    *carried_on += reached;
  } else {
    if (!reached) fail_msg("%s: failed with all memory: %s", name, err.message);
    if (s != SETUN_ERROR_MEMORY || err.code != s || !*err.message || strchr(err.message, '\n')) {
      fail_msg("%s: without allocation %ld: expected \"out of memory\", found status %d: %s", name, n, s, err.message);
    }
  }
  return reached;
}

static void each_allocation(work w, work_fn fn, const char *name) {
  setun_error err = {SETUN_OK, ""};
  work whole = w;
  if (fn(&whole, &err) != SETUN_OK) fail_msg("%s: %s", name, err.message);
  for (int all_later = 0; all_later < 2; all_later++) {
    long n = 0, tried = 0, carried_on = 0;
    atomic_store(&lasting, all_later);
    while (n < MOST && try_without(w, fn, name, n, whole.digest, &carried_on)) {
      tried++;
      n += (n < DENSE ? 1 : STEP) * (all_later ? 5 : 1);
    }
    assert_in_range(n, 1, MOST - 1);
    print_message("%s of %s: %ld of about %ld allocations failed%s, %ld without effect\n", name,
                  w.path + sizeof GOLDEN - 1, tried, n, all_later ? " with all later ones" : "", carried_on);
  }
  whole = w; // and everything works again
  if (fn(&whole, &err) != SETUN_OK) fail_msg("%s: %s", name, err.message);
}

static void all_of(const char *path) {
  work w = {.path = path};
  each_allocation(w, load_model, "loading");
  each_allocation(w, look_into_file, "inspection");
  each_allocation(w, convert, "conversion");
  if (strstr(path, "bitnet")) each_allocation(w, convert_to_directory, "conversion to a directory");
  setun_model *m = load(path, NULL);
  w.model = m;
  each_allocation(w, tokenize, "tokenizing");
  each_allocation(w, evaluate, "evaluation");
  each_allocation(w, serve, "sequences");
  each_allocation(w, draw, "sampling");
  each_allocation(w, converse, "conversation");
  setun_model_free(m);
}

static void patterns(void **state) {
  (void)state;
  each_allocation((work){.path = GOLDEN "a pattern"}, match, "matching");
}

static void huggingface(void **state) {
  (void)state;
  all_of(GOLDEN "hf/bitnet-auto");
}

static void gguf(void **state) {
  (void)state;
  all_of(GOLDEN "gguf/llama3.gguf");
}

static void synthesis(void **state) {
  (void)state;
  work w = {.path = GOLDEN "tiny-moe"};
  each_allocation(w, synthesize, "a synthetic model");
  each_allocation(w, synthesize_file, "a synthetic file");
}

static int make_folder(void **state) {
  (void)state;
  if (!mkdtemp(folder)) return 1;
  snprintf(session_path, sizeof session_path, "%s/session", folder);
  return 0;
}

static int remove_folder(void **state) {
  (void)state;
  unlink(session_path);
  return rmdir(folder); // fails when a save that failed left something behind
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(patterns), cmocka_unit_test(huggingface), cmocka_unit_test(gguf),
                                     cmocka_unit_test(synthesis), cmocka_unit_test(computing_allocates_nothing)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
