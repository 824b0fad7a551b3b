// Embeddings through contexts: the golden vectors, however the tokens are split into calls and passes; a sequence that
// was pooled otherwise is refused.
#include "models.h"

#include <math.h>

#define MODEL GOLDEN "hf/bitnet-embed-qwen3-wide"
enum { WIDTH = 128 };

static setun_context *context_of(const setun_model *m, setun_pooling pooling, uint32_t n_batch, uint64_t n_cache) {
  setun_error err = {SETUN_OK, ""};
  setun_context *c = NULL;
  setun_context_params p = setun_context_params_default();
  p.kv_keys = p.kv_values = SETUN_KV_F32;
  p.pooling = pooling;
  p.n_batch = n_batch;
  p.n_cache = n_cache;
  p.n_ctx = 256;
  p.n_seq_max = 4;
  p.threads = 2;
  if (setun_context_new(m, &p, &c, &err) != SETUN_OK) fail_msg("%s", err.message);
  return c;
}

static void embed(setun_context *c, const setun_embedding_input *texts, size_t n, float *out) {
  setun_error err = {SETUN_OK, ""};
  if (setun_context_embed(c, texts, n, NULL, out, &err) != SETUN_OK) fail_msg("%s", err.message);
}

// Against the official computation's vector of that name.
static void compare(const golden *g, const char *name, const float *x) {
  size_t count;
  float *want = golden_read(g, name, "F32", &count, NULL);
  double dot = 0, a = 0, b = 0;
  assert_int_equal(count, WIDTH);
  for (size_t i = 0; i < WIDTH; i++) {
    dot += (double)x[i] * (double)want[i];
    a += (double)x[i] * (double)x[i];
    b += (double)want[i] * (double)want[i];
  }
  assert_true(fabs(a - 1) < 1e-5);
  assert_true(dot / sqrt(a * b) > 0.999); // allows for other roundings of int8 activations
  st_free(want);
}

static void golden_vectors(void **state) {
  (void)state;
  golden g = golden_open(MODEL "/golden.safetensors");
  setun_model *m = load(MODEL, NULL);
  for (int i = 0; i < 3; i++) {
    static const setun_pooling poolings[] = {SETUN_POOLING_MODEL, SETUN_POOLING_LAST, SETUN_POOLING_MEAN};
    char name[32], ids_name[32];
    float x[WIDTH];
    size_t n;
    snprintf(ids_name, sizeof ids_name, "embed%d_ids", i);
    setun_token *ids = golden_ids(&g, ids_name, &n);
    for (int k = 0; k < 3; k++) {
      setun_context *c = context_of(m, poolings[k], 0, 0);
      embed(c, &(setun_embedding_input){ids, n}, 1, x);
      snprintf(name, sizeof name, "embed%d%s", i, k == 2 ? "_mean" : "");
      compare(&g, name, x);
      setun_context_free(c);
    }
    st_free(ids);
  }
  setun_model_free(m);
  golden_close(&g);
}

// ---- bit-identical ------------------------------------------------------------------------------------------------

enum { TEXTS = 9, LONGEST = 150 };

static void make_texts(setun_token ids[TEXTS][LONGEST], setun_embedding_input texts[TEXTS]) {
  static const size_t lengths[TEXTS] = {3, LONGEST, 1, 40, 17, 64, 65, 2, 100};
  for (size_t i = 0; i < TEXTS; i++) {
    for (size_t k = 0; k < lengths[i]; k++) ids[i][k] = (setun_token)((i * 37 + k * 11 + 5) % 320);
    texts[i] = (setun_embedding_input){ids[i], lengths[i]};
  }
}

// A sequence's tokens, a few at a time.
static void embed_in_pieces(setun_context *c, const setun_embedding_input *text, size_t piece, float *out) {
  setun_error err = {SETUN_OK, ""};
  int q = 0;
  setun_status s = setun_context_add(c, &q, &err);
  for (size_t at = 0; at < text->n && s == SETUN_OK; at += piece) {
    size_t n = text->n - at < piece ? text->n - at : piece;
    s = setun_context_eval(c, &(setun_batch_entry){q, SETUN_LOGITS_POOL, text->ids + at, n}, 1, NULL, &err);
  }
  if (s == SETUN_OK) s = setun_context_get_embedding(c, q, NULL, out, &err);
  if (s == SETUN_OK) s = setun_context_drop(c, q, &err);
  if (s != SETUN_OK) fail_msg("%s", err.message);
}

static void same_however_cut(void **state) {
  (void)state;
  static setun_token ids[TEXTS][LONGEST];
  static float want[TEXTS][WIDTH], found[TEXTS][WIDTH];
  static const setun_pooling poolings[] = {SETUN_POOLING_MEAN, SETUN_POOLING_CLS, SETUN_POOLING_LAST};
  setun_embedding_input texts[TEXTS];
  make_texts(ids, texts);
  setun_model *m = load(MODEL, NULL);
  for (int k = 0; k < 3; k++) {
    setun_context *whole = context_of(m, poolings[k], 0, 0), *small = context_of(m, poolings[k], 16, 192);
    for (size_t i = 0; i < TEXTS; i++) embed(whole, &texts[i], 1, want[i]);
    embed(whole, texts, TEXTS, found[0]);
    assert_memory_equal(found, want, sizeof want);
    embed(small, texts, TEXTS, found[0]); // a cache that holds few of them at once
    assert_memory_equal(found, want, sizeof want);
    for (size_t i = 0; i < TEXTS; i++) embed_in_pieces(small, &texts[i], 1 + i * 7, found[i]);
    assert_memory_equal(found, want, sizeof want);
    setun_context_info info = {.size = sizeof info};
    assert_int_equal(setun_context_get_info(small, &info, NULL), SETUN_OK);
    assert_int_equal(info.n_seq, 0);
    setun_context_free(small);
    setun_context_free(whole);
  }
  setun_model_free(m);
}

// Attention is causal: a token's vector is what the text up to it has with SETUN_POOLING_LAST.
static void all_tokens(void **state) {
  (void)state;
  static setun_token ids[TEXTS][LONGEST];
  static float want[WIDTH], found[2][TEXTS * LONGEST * WIDTH];
  setun_embedding_input texts[TEXTS];
  make_texts(ids, texts);
  setun_model *m = load(MODEL, NULL);
  setun_context *last = context_of(m, SETUN_POOLING_LAST, 0, 0);
  setun_context *whole = context_of(m, SETUN_POOLING_NONE, 0, 0), *small = context_of(m, SETUN_POOLING_NONE, 16, 192);
  embed(whole, texts, TEXTS, found[0]);
  embed(small, texts, TEXTS, found[1]);
  assert_memory_equal(found[1], found[0], sizeof found[0]);
  size_t at = 0;
  for (size_t i = 0; i < TEXTS; at += texts[i++].n * WIDTH) {
    for (size_t n = 1; n <= texts[i].n; n += n < 4 ? 1 : 45) {
      embed(last, &(setun_embedding_input){ids[i], n}, 1, want);
      assert_memory_equal(found[0] + at + (n - 1) * WIDTH, want, sizeof want);
    }
    embed_in_pieces(small, &texts[i], 1 + i * 7, found[1] + at);
  }
  assert_memory_equal(found[1], found[0], sizeof found[0]);
  setun_context_params windowed = setun_context_params_default();
  setun_context *none = NULL;
  windowed.window = 64;
  windowed.pooling = SETUN_POOLING_NONE;
  assert_int_equal(setun_context_new(m, &windowed, &none, NULL), SETUN_ERROR_ARGUMENT);
  setun_context_free(small);
  setun_context_free(whole);
  setun_context_free(last);
  setun_model_free(m);
}

// ---- refusals -----------------------------------------------------------------------------------------------------

static void eval_as(setun_context *c, int q, setun_logits logits, const setun_token *ids, size_t n) {
  setun_error err = {SETUN_OK, ""};
  if (setun_context_eval(c, &(setun_batch_entry){q, logits, ids, n}, 1, NULL, &err) != SETUN_OK)
    fail_msg("%s", err.message);
}

// Which tokens are pooled: in `mean` all, in `last` and `cls` one of them.
static void what_was_not_pooled(void **state) {
  (void)state;
  static const setun_token ids[] = {5, 6, 7, 8};
  float x[WIDTH];
  setun_model *m = load(MODEL, NULL);
  for (setun_pooling p = SETUN_POOLING_MEAN; p <= SETUN_POOLING_LAST; p++) {
    const setun_status all = SETUN_ERROR_STATE, cls = p == SETUN_POOLING_CLS ? SETUN_OK : all,
                       last = p == SETUN_POOLING_LAST ? SETUN_OK : all;
    setun_context *c = context_of(m, p, 0, 0);
    int q = 0, copy = 0;
    assert_int_equal(setun_context_add(c, &q, NULL), SETUN_OK);
    assert_int_equal(setun_context_get_embedding(c, q, NULL, x, NULL), all);
    eval_as(c, q, SETUN_LOGITS_POOL, ids, 2);
    eval_as(c, q, SETUN_LOGITS_LAST, ids + 2, 1);
    assert_int_equal(setun_context_get_embedding(c, q, NULL, x, NULL), cls);
    eval_as(c, q, SETUN_LOGITS_POOL, ids + 3, 1);
    assert_int_equal(setun_context_get_embedding(c, q, NULL, x, NULL), p == SETUN_POOLING_LAST ? last : cls);
    assert_int_equal(setun_context_fork(c, q, &copy, NULL), SETUN_OK);
    assert_int_equal(setun_context_get_embedding(c, copy, NULL, x, NULL), all);
    assert_int_equal(setun_context_truncate(c, q, 2, NULL), SETUN_OK);
    assert_int_equal(setun_context_get_embedding(c, q, NULL, x, NULL), all);
    setun_context_free(c);
  }
  setun_context *none = context_of(m, SETUN_POOLING_OFF, 0, 0);
  const setun_embedding_input text = {ids, 4}, empty = {ids, 0};
  assert_int_equal(setun_context_embed(none, &text, 1, NULL, x, NULL), SETUN_ERROR_STATE);
  setun_context_free(none);
  setun_context *c = context_of(m, SETUN_POOLING_MODEL, 0, 0);
  assert_int_equal(setun_context_embed(c, &empty, 1, NULL, x, NULL), SETUN_ERROR_ARGUMENT);
  const setun_embedding_params part = {.size = sizeof part, .n_dimensions = WIDTH / 2};
  assert_int_equal(setun_context_embed(c, &text, 1, &part, x, NULL), SETUN_ERROR_ARGUMENT);
  const setun_embedding_params both = {.size = sizeof both, .raw = true, .normalize = true};
  assert_int_equal(setun_context_embed(c, &text, 1, &both, x, NULL), SETUN_ERROR_ARGUMENT);
  setun_context_free(c);
  setun_model_free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(golden_vectors),
      cmocka_unit_test(same_however_cut),
      cmocka_unit_test(all_tokens),
      cmocka_unit_test(what_was_not_pooled),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
