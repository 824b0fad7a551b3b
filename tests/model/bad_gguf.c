// GGUF files that must be refused, with a message that names the key or the tensor: golden ones with some bytes changed
// in place.
#define _DEFAULT_SOURCE // mkstemp
#include "models.h"

#include <unistd.h>

// One change; members that are zero or NULL change nothing.
typedef struct {
  const char *base;     // of tests/golden/gguf
  const char *key;      // in the header
  const char *renamed;  // the key's new name, of the same length
  uint32_t value;       // the key's new value: the bits of its first four bytes
  const char *tensor;   // gets another type
  uint32_t type;        // that one
  uint32_t tail;        // zero bytes appended
  const char *words[2]; // in the message
} broken;

static char *find(char *file, size_t length, const char *text) {
  uint64_t n = strlen(text);
  for (size_t i = 0; i + 8 + n < length; i++) {
    if (!memcmp(file + i, &n, 8) && !memcmp(file + i + 8, text, n)) return file + i + 8;
  }
  fail_msg("no \"%s\" in the file", text);
  return NULL;
}

static void change(const broken *b, char *file, size_t length) {
  if (b->key) {
    char *key = find(file, length, b->key);
    size_t n = strlen(b->key);
    if (b->renamed) {
      assert_int_equal(strlen(b->renamed), n);
      memcpy(key, b->renamed, n);
    }
    if (b->value) memcpy(key + n + 4, &b->value, 4);
  }
  if (b->tensor) {
    char *at = find(file, length, b->tensor) + strlen(b->tensor);
    uint32_t n_dims;
    memcpy(&n_dims, at, 4);
    memcpy(at + 4 + 8 * n_dims, &b->type, 4);
  }
}

static void check_with(const broken *b, const setun_model_params *params) {
  char path[512], written[] = "/tmp/setun-gguf-XXXXXX";
  char *file = NULL;
  size_t length;
  setun_error err = {SETUN_OK, ""};
  snprintf(path, sizeof path, GOLDEN "gguf/%s.gguf", b->base);
  if (st_file_load(path, 1 << 24, &file, &length, &err) != SETUN_OK) fail_msg("%s", err.message);
  change(b, file, length);
  int descriptor = mkstemp(written);
  assert_true(descriptor >= 0);
  FILE *f = fdopen(descriptor, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(file, 1, length, f), length);
  for (uint32_t i = 0; i < b->tail; i++) fputc(0, f);
  assert_int_equal(fclose(f), 0);
  st_free(file);
  setun_model *m = NULL;
  setun_status s = setun_model_load(written, params, &m, &err);
  setun_model_free(m);
  unlink(written);
  for (int i = 0; i < 2 && b->words[i]; i++) {
    if (s == SETUN_OK) fail_msg("%s: expected an error with \"%s\"", b->base, b->words[i]);
    if (!strstr(err.message, b->words[i])) fail_msg("expected \"%s\" in \"%s\"", b->words[i], err.message);
  }
  if (!b->words[0] && s != SETUN_OK) fail_msg("%s", err.message);
}

static void check(const broken *b) {
  check_with(b, NULL);
}

static void keys(void **state) {
  (void)state;
  const broken cases[] = {
      {.base = "llama3"},
      {.base = "llama3", .tail = 31},
      {.base = "llama3",
       .key = "llama.context_length",
       .renamed = "Xlama.context_length",
       .words = {"llama.context_length", "found none"}},
      {.base = "llama3",
       .key = "llama.attention.layer_norm_rms_epsilon",
       .renamed = "Xlama.attention.layer_norm_rms_epsilon",
       .words = {"llama.attention.layer_norm_rms_epsilon", "found none"}},
      {.base = "llama3",
       .key = "llama.attention.layer_norm_rms_epsilon",
       .value = 0x40000000,
       .words = {"llama.attention.layer_norm_rms_epsilon", "found 2"}},
      {.base = "llama3",
       .key = "llama.attention.value_length",
       .value = 17,
       .words = {"llama.attention.value_length", "expected the head size 16, found 17"}},
      {.base = "llama3",
       .key = "llama.block_count",
       .value = 1000,
       .words = {"llama.block_count: expected at most the", "found 1000"}},
      {.base = "llama3",
       .key = "llama.vocab_size",
       .value = 319,
       .words = {"llama.vocab_size", "rows, 320, found 319"}},
      {.base = "llama3",
       .key = "llama.attention.head_count_kv",
       .value = 3,
       .words = {"llama.attention.head_count_kv", "found 3"}},
      {.base = "llama3",
       .key = "llama.rope.freq_base",
       .value = 0x00800000,
       .words = {"llama.rope.freq_base", "found 1.17549e-38"}},
      {.base = "gemma3-multimodal",
       .key = "gemma3.rope.scaling.factor",
       .value = 0x000116C2,
       .words = {"gemma3.rope.scaling.factor", "found 9.99995e-41"}},
      {.base = "llama3", .tail = 32, .words = {"found", "before the end of the file"}},
      {.base = "llama3",
       .tensor = "blk.1.ffn_up.weight",
       .type = 8,
       .words = {"blk.1.ffn_up.weight: q8_0 of", "before the next tensor"}},
      {.base = "llama3",
       .key = "tokenizer.ggml.padding_token_id",
       .value = 320,
       .words = {"tokenizer.ggml.padding_token_id", "320"}},
      {.base = "llama3",
       .key = "tokenizer.ggml.bos_token_id",
       .value = 320,
       .words = {"tokenizer.ggml.bos_token_id", "320"}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i]);
}

static void keep(setun_log_level level, const char *message, void *user) {
  if (level == SETUN_LOG_WARNING) snprintf(user, 256, "%s", message);
}

// The pre-tokenizer that replaces a missing one is reported.
static void default_pre(void **state) {
  (void)state;
  char seen[256] = "";
  setun_model_params p = setun_model_params_default();
  p.log = keep;
  p.user = seen;
  check_with(&(broken){.base = "llama3"}, &p);
  assert_string_equal(seen, "");
  check_with(&(broken){.base = "llama3", .key = "tokenizer.ggml.pre", .renamed = "tokenizer.ggml.prX"}, &p);
  assert_non_null(strstr(seen, "tokenizer.ggml.pre: expected this key, found none: texts are split as by \"default\""));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(keys), cmocka_unit_test(default_pre)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
