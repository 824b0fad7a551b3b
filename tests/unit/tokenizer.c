// Tokenizers: vocabularies as GGUF holds them, special tokens, ends of text, the streaming decoder, hard texts, and
// the errors of malformed input.
#include "tokenizer/tokenizer.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define TEXT(s) ((st_text){s, sizeof(s) - 1})
#define MARK "\xE2\x96\x81"

static setun_error err;

// ---- a byte-level vocabulary: 256 bytes, four merges, and special tokens ----

enum { HE = 256, LL, HELL, HELLO, END, TOOL, SIZE };

typedef struct {
  char printed[256][4];
  st_text tokens[SIZE];
  int32_t types[SIZE];
  st_text merges[4];
  st_vocabulary v;
} byte_vocabulary;

static void print_byte(int byte, char out[4]) {
  bool visible = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
  uint32_t code = (uint32_t)byte;
  if (!visible) { // the 68 others are numbered in order from U+0100
    code = 0x100;
    for (int b = 0; b < byte; b++) code += !((b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD));
  }
  out[st_utf8_encode(code, out)] = '\0';
}

static void fill(byte_vocabulary *b) {
  memset(b, 0, sizeof *b);
  st_vocabulary_init(&b->v);
  for (int i = 0; i < 256; i++) {
    print_byte(i, b->printed[i]);
    b->tokens[i] = (st_text){b->printed[i], strlen(b->printed[i])};
  }
  b->tokens[HE] = TEXT("he"), b->tokens[LL] = TEXT("ll"), b->tokens[HELL] = TEXT("hell"),
  b->tokens[HELLO] = TEXT("hello");
  b->tokens[END] = TEXT("<|im_end|>"), b->tokens[TOOL] = TEXT("<tool>");
  b->merges[0] = TEXT("h e"), b->merges[1] = TEXT("l l"), b->merges[2] = TEXT("he ll"), b->merges[3] = TEXT("hell o");
  for (int i = 0; i < SIZE; i++) b->types[i] = ST_TOKEN_NORMAL;
  b->types[END] = ST_TOKEN_CONTROL, b->types[TOOL] = ST_TOKEN_USER_DEFINED;
  b->v.model = "gpt2", b->v.pre = "qwen2";
  b->v.n = SIZE, b->v.tokens = b->tokens, b->v.types = b->types;
  b->v.n_merges = COUNT(b->merges), b->v.merges = b->merges;
}

static st_tokenizer *byte_tokenizer(void) {
  static byte_vocabulary b;
  fill(&b);
  st_tokenizer *t = NULL;
  if (st_tokenizer_from_vocabulary(&b.v, &t, &err)) fail_msg("%s", err.message);
  return t;
}

static void expect_ids(const st_tokenizer *t, const char *text, size_t length, bool special, const int32_t *want,
                       size_t n) {
  st_token_list ids = {0};
  if (st_tokenizer_encode(t, text, length, special, &ids, &err)) fail_msg("%s", err.message);
  assert_int_equal(ids.length, n);
  for (size_t i = 0; i < n; i++) assert_int_equal(ids.ids[i], want[i]);
  st_token_list_free(&ids);
}

static void test_control_tokens(void **state) {
  (void)state;
  st_tokenizer *t = byte_tokenizer();
  const char *text = "hello<|im_end|><tool>";
  const int32_t special[] = {HELLO, END, TOOL};
  const int32_t plain[] = {HELLO, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>', TOOL};
  expect_ids(t, text, strlen(text), true, special, COUNT(special));
  expect_ids(t, text, strlen(text), false, plain, COUNT(plain));
  assert_true(st_tokenizer_is_control(t, END) && !st_tokenizer_is_control(t, TOOL) &&
              !st_tokenizer_is_control(t, SIZE));
  assert_int_equal(st_tokenizer_find(t, "<tool>", 6), TOOL);
  assert_int_equal(st_tokenizer_find(t, "nothing", 7), -1);
  const char *bytes;
  size_t length;
  assert_int_equal(st_tokenizer_piece(t, END, false, &bytes, &length, &err), SETUN_OK);
  assert_int_equal(length, 0);
  assert_int_equal(st_tokenizer_piece(t, END, true, &bytes, &length, &err), SETUN_OK);
  assert_int_equal(length, 10);
  assert_int_equal(st_tokenizer_piece(t, 10, true, &bytes, &length, &err), SETUN_OK);
  assert_true(length == 1 && bytes[0] == '\n');
  assert_int_not_equal(st_tokenizer_piece(t, SIZE, true, &bytes, &length, &err), SETUN_OK);
  assert_int_not_equal(st_tokenizer_piece(t, -1, true, &bytes, &length, &err), SETUN_OK);
  st_tokenizer_free(t);
}

// A byte-level vocabulary may consist of the bytes alone.
static void test_no_merges(void **state) {
  (void)state;
  static byte_vocabulary b;
  fill(&b);
  b.v.n_merges = 0;
  st_tokenizer *t = NULL;
  if (st_tokenizer_from_vocabulary(&b.v, &t, &err)) fail_msg("%s", err.message);
  const int32_t want[] = {'h', 'e', 'l', 'l', 'o', END};
  expect_ids(t, "hello<|im_end|>", 15, true, want, COUNT(want));
  st_tokenizer_free(t);
}

static void test_ends(void **state) {
  (void)state;
  st_tokenizer *t = byte_tokenizer();
  assert_true(st_tokenizer_is_end(t, END) && !st_tokenizer_is_end(t, TOOL) && !st_tokenizer_is_end(t, 1 << 30));
  assert_int_equal(st_tokenizer_add_end(t, TOOL, &err), SETUN_OK);
  assert_true(st_tokenizer_is_end(t, TOOL));
  assert_int_equal(st_tokenizer_add_end(t, SIZE, &err), SETUN_ERROR_FORMAT);
  assert_non_null(strstr(err.message, "262"));
  assert_int_equal(st_tokenizer_set_bos(t, SIZE, &err), SETUN_ERROR_FORMAT);
  assert_int_equal(st_tokenizer_bos(t), -1);
  const char *config = "{\"bos_token\": {\"content\": \"<tool>\"}, \"eos_token\": \"hello\", \"add_bos_token\": true}";
  assert_int_equal(st_tokenizer_apply_config(t, config, strlen(config), "config", &err), SETUN_OK);
  assert_int_equal(st_tokenizer_bos(t), TOOL);
  assert_int_equal(st_tokenizer_eos(t), HELLO);
  assert_true(st_tokenizer_add_bos(t) && st_tokenizer_is_end(t, HELLO));
  config = "{\"eos_token\": \"absent\"}";
  assert_int_equal(st_tokenizer_apply_config(t, config, strlen(config), "config", &err), SETUN_ERROR_FORMAT);
  assert_non_null(strstr(err.message, "absent"));
  st_tokenizer_free(t);
}

static void test_added_tokens(void **state) {
  (void)state;
  st_tokenizer *t = byte_tokenizer();
  const char *config = "{\"added_tokens_decoder\": {\"270\": {\"content\": \"<|x|>\", \"special\": true}, \"261\": "
                       "{\"content\": \"<tool>\", \"special\": true}}}";
  assert_int_equal(st_tokenizer_apply_config(t, config, strlen(config), "config", &err), SETUN_OK);
  assert_int_equal(st_tokenizer_size(t), 271);
  const int32_t want[] = {270, TOOL, 'a'};
  expect_ids(t, "<|x|><tool>a", 12, true, want, 3);
  const int32_t plain[] = {'<', '|', 'x', '|', '>'};
  expect_ids(t, "<|x|>", 5, false, plain, 5);
  config = "{\"added_tokens_decoder\": {\"5\": {\"content\": \"other\"}}}";
  assert_int_equal(st_tokenizer_apply_config(t, config, strlen(config), "config", &err), SETUN_ERROR_FORMAT);
  config = "{\"added_tokens_decoder\": {\"99999999\": {\"content\": \"other\"}}}";
  assert_int_equal(st_tokenizer_apply_config(t, config, strlen(config), "config", &err), SETUN_ERROR_FORMAT);
  st_tokenizer_free(t);
}

// ---- a vocabulary with scores: spaces as U+2581, byte fallback ----

static const st_text score_tokens[] = {{"<unk>", 5},  {"<s>", 3},  {"</s>", 4},   {MARK, 3},      {"a", 1},
                                       {"b", 1},      {"ab", 2},   {MARK "a", 4}, {MARK "ab", 5}, {"<0xC3>", 6},
                                       {"<0xA9>", 6}, {"\n\n", 2}, {"\n\n\n", 3}, {"<0x0A>", 6}};
static const float scores[] = {0, 0, 0, -10, -11, -12, -3, -1, -2, 0, 0, 0, 0, 0};
static const int32_t score_types[] = {2, 3, 3, 1, 1, 1, 1, 1, 1, 6, 6, 4, 4, 6};

static st_vocabulary score_vocabulary(void) {
  st_vocabulary v;
  st_vocabulary_init(&v);
  v.model = "llama", v.n = COUNT(score_tokens), v.tokens = score_tokens, v.scores = scores, v.types = score_types;
  return v;
}

static void test_scores(void **state) {
  (void)state;
  st_vocabulary v = score_vocabulary();
  st_tokenizer *t = NULL;
  assert_int_equal(st_tokenizer_from_vocabulary(&v, &t, &err), SETUN_OK);
  assert_true(st_tokenizer_bos(t) == 1 && st_tokenizer_eos(t) == 2 && st_tokenizer_add_bos(t));
  // The best score first: "▁a" before "ab".
  const int32_t ab[] = {8}, aab[] = {7, 6};
  expect_ids(t, "ab", 2, false, ab, 1);
  expect_ids(t, "aab", 3, false, aab, 2);
  const int32_t lines[] = {3, 9, 10, 12, 3, 5}; // bytes of é; the longest user-defined token; a space again after it
  expect_ids(t, "\xC3\xA9\n\n\nb", 6, false, lines, 6);
  const int32_t plain[] = {3, 0, 4};
  expect_ids(t, "<0x0A>a", 7, false, plain, 3); // no byte token and no control token from plain text
  const int32_t special[] = {1, 7};
  expect_ids(t, "<s>a", 4, true, special, 2);
  st_decoder *d;
  const char *text;
  size_t n;
  assert_int_equal(st_decoder_new(t, false, false, &d, &err), SETUN_OK);
  assert_int_equal(st_decoder_push(d, 8, &text, &n, &err), SETUN_OK);
  assert_string_equal(text, "ab"); // the text's first space is not one
  assert_int_equal(st_decoder_push(d, 8, &text, &n, &err), SETUN_OK);
  assert_string_equal(text, " ab");
  assert_int_equal(st_decoder_finish(d, &text, &n, &err), SETUN_OK);
  st_decoder_free(d);
  assert_int_equal(st_decoder_new(t, false, true, &d, &err), SETUN_OK);
  assert_int_equal(st_decoder_push(d, 8, &text, &n, &err), SETUN_OK);
  assert_string_equal(text, " ab");
  st_decoder_free(d);
  st_tokenizer_free(t);
}

// ---- the streaming decoder ----

// The expected texts are those of Python's bytes.decode(errors="replace").
static void test_decoder(void **state) {
  (void)state;
  static const struct {
    const char *bytes, *text;
  } rows[] = {
      {"a\xC3\xA9z", "a\xC3\xA9z"},
      {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"},
      {"\xF0\x9F\x98x", "\xEF\xBF\xBDx"},
      {"\xF0\x9F\x98\xF0\x9F\x98\x80", "\xEF\xBF\xBD\xF0\x9F\x98\x80"},
      {"\x80\xBF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
      {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
      {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
      {"\xE2\x82", "\xEF\xBF\xBD"},
      {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
      {"\xE2\x28\xA1", "\xEF\xBF\xBD(\xEF\xBF\xBD"},
      {"\xFF"
       "a",
       "\xEF\xBF\xBD"
       "a"},
  };
  st_tokenizer *t = byte_tokenizer();
  st_decoder *d;
  assert_int_equal(st_decoder_new(t, true, false, &d, &err), SETUN_OK);
  for (size_t i = 0; i < COUNT(rows); i++) {
    st_buffer whole = {0};
    const char *text;
    size_t n;
    for (const char *p = rows[i].bytes; *p; p++) {
      assert_int_equal(st_decoder_push(d, (unsigned char)*p, &text, &n, &err), SETUN_OK);
      assert_true(st_utf8_valid(text, n)); // whole characters only, whatever was pushed
      st_buffer_append(&whole, text, n);
    }
    assert_int_equal(st_decoder_finish(d, &text, &n, &err), SETUN_OK);
    st_buffer_append(&whole, text, n);
    assert_string_equal(whole.data, rows[i].text);
    st_buffer_free(&whole);
  }
  const char *text;
  size_t n;
  assert_int_equal(st_decoder_push(d, SIZE, &text, &n, &err), SETUN_ERROR_ARGUMENT);
  st_decoder_free(d);
  st_tokenizer_free(t);
}

// ---- hard texts ----

static char *repeat(const char *piece, size_t bytes) {
  size_t n = strlen(piece);
  char *text = st_malloc(bytes / n * n + 1, 1);
  assert_non_null(text);
  for (size_t i = 0; i < bytes / n; i++) memcpy(text + i * n, piece, n);
  text[bytes / n * n] = '\0';
  return text;
}

// A megabyte of one character passes through every pattern, and back. Quadratic behaviour would take hours.
static void test_long_runs(void **state) {
  (void)state;
  static const char *const pieces[] = {
      "a",   "hello", " ", "\n", "\r\n", "A", "7", "!", "\xF0\x9F\x98\x80", "\xCC\x81", "\xE4\xB8\x80", "\xE3\x80\x80",
      " \n", "aA",    "' "};
  static const char *const names[] = {"default",  "gpt-2",        "llama-bpe",      "qwen2",       "qwen35",
                                      "smollm",   "deepseek-llm", "deepseek-coder", "deepseek-v3", "falcon",
                                      "falcon_e", "tekken",       "gpt-4o",         "olmo",        "minicpm5",
                                      "bloom",    "viking",       "bailingmoe",     "seed-coder"};
  static byte_vocabulary b;
  for (size_t k = 0; k < COUNT(names); k++) {
    fill(&b);
    b.v.pre = names[k];
    st_tokenizer *t = NULL;
    if (st_tokenizer_from_vocabulary(&b.v, &t, &err)) fail_msg("%s: %s", names[k], err.message);
    for (size_t i = 0; i < COUNT(pieces); i++) {
      char *text = repeat(pieces[i], 200000);
      st_token_list ids = {0};
      if (st_tokenizer_encode(t, text, strlen(text), true, &ids, &err)) {
        fail_msg("%s, \"%s\": %s", names[k], pieces[i], err.message);
      }
      size_t at = 0;
      for (size_t j = 0; j < ids.length; j++) {
        const char *bytes;
        size_t n;
        assert_int_equal(st_tokenizer_piece(t, ids.ids[j], true, &bytes, &n, &err), SETUN_OK);
        assert_memory_equal(bytes, text + at, n);
        at += n;
      }
      assert_int_equal(at, strlen(text));
      st_token_list_free(&ids);
      st_free(text);
    }
    st_tokenizer_free(t);
  }
}

static void test_invalid_text(void **state) {
  (void)state;
  st_tokenizer *t = byte_tokenizer();
  st_token_list ids = {0};
  assert_true(st_token_list_append(&ids, 7));
  assert_int_equal(st_tokenizer_encode(t, "ab\xFF", 3, false, &ids, &err), SETUN_ERROR_ARGUMENT);
  assert_non_null(strstr(err.message, "byte 2"));
  assert_int_equal(ids.length, 1);
  const int32_t want[] = {'a', 0, 'b'};
  expect_ids(t, "a\0b", 3, false, want, 3);
  st_token_list_free(&ids);
  st_tokenizer_free(t);
}

// ---- malformed vocabularies ----

typedef void (*corruption)(byte_vocabulary *b);
static void unknown_pre(byte_vocabulary *b) {
  b->v.pre = "no-such-pattern";
}
static void unknown_model(byte_vocabulary *b) {
  b->v.model = "bert";
}
static void no_model(byte_vocabulary *b) {
  b->v.model = NULL;
}
static void no_tokens(byte_vocabulary *b) {
  b->v.n = 0;
}
static void no_merges(byte_vocabulary *b) {
  b->v.n_merges = 0, b->v.merges = NULL;
}
static void same_text(byte_vocabulary *b) {
  b->tokens[LL] = TEXT("he");
}
static void empty_text(byte_vocabulary *b) {
  b->tokens[LL] = TEXT("");
}
static void huge_text(byte_vocabulary *b) {
  b->tokens[LL].length = (size_t)1 << 40;
}
static void unknown_left(byte_vocabulary *b) {
  b->merges[1] = TEXT("qq l");
}
static void unknown_result(byte_vocabulary *b) {
  b->merges[1] = TEXT("l o");
}
static void no_space(byte_vocabulary *b) {
  b->merges[1] = TEXT("ll");
}
static void bad_type(byte_vocabulary *b) {
  b->types[3] = 7;
}
static void bad_byte(byte_vocabulary *b) {
  b->types[TOOL] = ST_TOKEN_BYTE;
}
static void bos_beyond(byte_vocabulary *b) {
  b->v.bos = SIZE;
}
static void eos_negative(byte_vocabulary *b) {
  b->v.eos = -7;
}

static void test_bad_vocabularies(void **state) {
  (void)state;
  static const struct {
    corruption corrupt;
    setun_status status;
    const char *says;
  } rows[] = {{unknown_pre, SETUN_ERROR_UNSUPPORTED, "no-such-pattern"},
              {unknown_model, SETUN_ERROR_UNSUPPORTED, "\"bert\""},
              {no_model, SETUN_ERROR_FORMAT, "tokenizer.ggml.model"},
              {no_tokens, SETUN_ERROR_FORMAT, "no tokens"},
              {no_merges, SETUN_ERROR_FORMAT, "tokenizer.ggml.merges"},
              {same_text, SETUN_ERROR_FORMAT, "\"he\""},
              {empty_text, SETUN_ERROR_FORMAT, "token 257 is empty"},
              {huge_text, SETUN_ERROR_UNSUPPORTED, "token 257"},
              {unknown_left, SETUN_ERROR_FORMAT, "\"qq\""},
              {unknown_result, SETUN_ERROR_FORMAT, "\"lo\""},
              {no_space, SETUN_ERROR_FORMAT, "merge 1"},
              {bad_type, SETUN_ERROR_FORMAT, "type 7"},
              {bad_byte, SETUN_ERROR_FORMAT, "<tool>"},
              {bos_beyond, SETUN_ERROR_FORMAT, "bos_token_id"},
              {eos_negative, SETUN_ERROR_FORMAT, "eos_token_id"}};
  static byte_vocabulary b;
  for (size_t i = 0; i < COUNT(rows); i++) {
    fill(&b);
    rows[i].corrupt(&b);
    st_tokenizer *t = NULL;
    assert_int_equal(st_tokenizer_from_vocabulary(&b.v, &t, &err), rows[i].status);
    assert_null(t);
    if (!strstr(err.message, rows[i].says)) fail_msg("\"%s\" does not say %s", err.message, rows[i].says);
  }
  st_vocabulary v = score_vocabulary();
  st_tokenizer *t = NULL;
  v.scores = NULL;
  assert_int_equal(st_tokenizer_from_vocabulary(&v, &t, &err), SETUN_ERROR_FORMAT);
  float not_a_number[COUNT(scores)] = {0};
  not_a_number[5] = strtof("nan", NULL);
  v.scores = not_a_number;
  assert_int_equal(st_tokenizer_from_vocabulary(&v, &t, &err), SETUN_ERROR_FORMAT);
}

// ---- malformed files ----

#define MODEL(vocab, merges) "\"model\": {\"type\": \"BPE\", \"vocab\": {" vocab "}, \"merges\": [" merges "]}"
#define AB "\"a\": 0, \"b\": 1, \"ab\": 2"

static void test_bad_json(void **state) {
  (void)state;
  static const struct {
    const char *text, *says;
  } rows[] = {
      {"", "line"},
      {"[]", "object"},
      {"{}", "model"},
      {"{\"model\": {\"type\": \"WordPiece\", \"vocab\": {}}}", "WordPiece"},
      {"{" MODEL("", "") "}", "no tokens"},
      {"{" MODEL("\"a\": 0, \"b\": 0", "") "}", "same id"},
      {"{" MODEL("\"a\": 0, \"\": 1", "") "}", "empty"},
      {"{" MODEL("\"a\": 0.5", "") "}", "id"},
      {"{" MODEL("\"a\": -1", "") "}", "id"},
      {"{" MODEL("\"a\": 900000000", "") "}", "id"},
      {"{" MODEL("\"a\": \"x\"", "") "}", "a string"},
      {"{" MODEL(AB, "\"a c\"") "}", "\"c\""},
      {"{" MODEL(AB, "\"b a\"") "}", "\"ba\""},
      {"{" MODEL(AB, "[\"a\"]") "}", "merge 0"},
      {"{" MODEL(AB, "\"ab\"") "}", "merge 0"},
      {"{\"model\": {\"type\": \"BPE\", \"vocab\": {" AB "}, \"merges\": [], \"dropout\": 0.1}}", "dropout"},
      {"{\"model\": {\"type\": \"BPE\", \"vocab\": {" AB "}, \"merges\": [], \"end_of_word_suffix\": \"</w>\"}}",
       "</w>"},
      {"{\"model\": {\"type\": \"BPE\", \"vocab\": {" AB "}, \"merges\": [], \"unk_token\": \"?\"}}", "unk_token"},
      {"{\"normalizer\": {\"type\": \"BertNormalizer\"}, " MODEL(AB, "") "}", "BertNormalizer"},
      {"{\"normalizer\": {\"type\": \"Precompiled\"}, " MODEL(AB, "") "}", "Precompiled"},
      {"{\"pre_tokenizer\": {\"type\": \"UnicodeScripts\"}, " MODEL(AB, "") "}", "UnicodeScripts"},
      {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(a\"}, \"behavior\": "
       "\"Isolated\"}, " MODEL(AB, "") "}",
       "(a"},
      {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"[a[b]]\"}, \"behavior\": "
       "\"Isolated\"}, " MODEL(AB, "") "}",
       "class"},
      {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, \"behavior\": \"Sideways\"}, " MODEL(
           AB, "") "}",
       "Sideways"},
      {"{\"post_processor\": {\"type\": \"BertProcessing\"}, " MODEL(AB, "") "}", "BertProcessing"},
      {"{\"decoder\": {\"type\": \"CTC\"}, " MODEL(AB, "") "}", "CTC"},
      {"{\"decoder\": {\"type\": 7}, " MODEL(AB, "") "}", "decoder"},
      {"{\"added_tokens\": [{\"id\": 70000000, \"content\": \"x\"}], " MODEL(AB, "") "}", "added_tokens"},
      {"{\"added_tokens\": [{\"id\": 3}], " MODEL(AB, "") "}", "content"},
      {"{\"added_tokens\": [{\"id\": 1, \"content\": \"x\"}], " MODEL(AB, "") "}", "same id"},
      {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", 0]], \"unk_id\": 4}}", "unk_id"},
      {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\"]], \"unk_id\": 0}}", "entry 0"},
      {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", 0]]}}", "unk_id"},
  };
  for (size_t i = 0; i < COUNT(rows); i++) {
    st_tokenizer *t = NULL;
    setun_status s = st_tokenizer_from_json(rows[i].text, strlen(rows[i].text), "file", &t, &err);
    if (!s) fail_msg("accepted: %s", rows[i].text);
    assert_null(t);
    if (!strstr(err.message, rows[i].says)) fail_msg("\"%s\" does not say %s", err.message, rows[i].says);
  }
}

// A pattern that needs exponential time is an error, not a wrong split.
static void test_match_limit(void **state) {
  (void)state;
  static const char file[] = "{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(a+)+$\"}, "
                             "\"behavior\": \"Isolated\"}, " MODEL(AB, "") "}";
  st_tokenizer *t = NULL;
  if (st_tokenizer_from_json(file, sizeof file - 1, "file", &t, &err)) fail_msg("%s", err.message);
  st_token_list ids = {0};
  assert_int_equal(st_tokenizer_encode(t, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", 50, false, &ids, &err),
                   SETUN_ERROR_LIMIT);
  assert_int_equal(ids.length, 0);
  st_token_list_free(&ids);
  st_tokenizer_free(t);
}

static void test_deep_json(void **state) {
  (void)state;
  st_buffer b = {0};
  st_buffer_text(&b, "{\"pre_tokenizer\": ");
  for (int i = 0; i < 1000; i++) st_buffer_text(&b, "{\"type\": \"Sequence\", \"pretokenizers\": [");
  for (int i = 0; i < 1000; i++) st_buffer_text(&b, "]}");
  st_buffer_text(&b, ", " MODEL(AB, "") "}");
  st_tokenizer *t = NULL;
  assert_int_not_equal(st_tokenizer_from_json(b.data, b.length, "file", &t, &err), SETUN_OK);
  st_buffer_free(&b);
}

// tokenizer.model and tokenizer.json cut off anywhere, and with any byte changed: an error or a tokenizer, nothing
// else.
static void damage(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/tok/%s", SETUN_TEST_DATA, name);
  char *bytes;
  size_t length;
  if (st_file_load(path, 1 << 24, &bytes, &length, &err)) fail_msg("%s", err.message);
  bool json = strstr(name, ".json") != NULL;
  for (size_t i = 0; i < length; i += json ? 61 : 7) {
    for (int kind = 0; kind < 2; kind++) {
      size_t n = kind ? length : i;
      char *copy = st_malloc(n, 1);
      assert_non_null(copy);
      memcpy(copy, bytes, n);
      if (kind) copy[i] = (char)(copy[i] ^ (1 << (i % 8)));
      st_tokenizer *t = NULL;
      setun_status s = json ? st_tokenizer_from_json(copy, n, name, &t, &err)
                            : st_tokenizer_from_sentencepiece(copy, n, name, &t, &err);
      st_token_list ids = {0};
      if (!s) st_tokenizer_encode(t, "Hello \xE6\x97\xA5 the\n", 14, true, &ids, &err);
      st_token_list_free(&ids);
      st_tokenizer_free(t);
      st_free(copy);
    }
  }
  st_free(bytes);
}

static void test_damage(void **state) {
  (void)state;
  damage("sp_bpe_user.model");
  damage("sp_unigram.model");
  damage("llama3.json");
  damage("unigram.json");
}

static void test_vocab_merges(void **state) {
  (void)state;
  static const char vocab[] = "{\"a\": 0, \"b\": 1, \"ab\": 2, \"\xC4\xA0\": 3}";
  static const char merges[] = "#version: 0.2\na b\r\n\n";
  st_tokenizer *t = NULL;
  assert_int_equal(
      st_tokenizer_from_vocab_merges(vocab, sizeof vocab - 1, merges, sizeof merges - 1, "gpt-2", &t, &err), SETUN_OK);
  const int32_t want[] = {2, 3, 0};
  expect_ids(t, "ab a", 4, false, want, 3);
  st_tokenizer_free(t);
  t = NULL;
  assert_int_equal(st_tokenizer_from_vocab_merges(vocab, sizeof vocab - 1, "a c\n", 4, "gpt-2", &t, &err),
                   SETUN_ERROR_FORMAT);
  assert_non_null(strstr(err.message, "line 1"));
  assert_int_equal(st_tokenizer_from_vocab_merges(vocab, sizeof vocab - 1, merges, sizeof merges - 1, "?", &t, &err),
                   SETUN_ERROR_UNSUPPORTED);
}

// In the Harmony format <|end|> ends one message of several; in Phi's models it ends the turn.
static void test_harmony_ends(void **state) {
  (void)state;
#define CONTROL(id, text) "{\"id\": " #id ", \"content\": \"" text "\", \"special\": true}"
  static const char phi[] = "{\"added_tokens\": [" CONTROL(3, "<|end|>") "], " MODEL(AB, "") "}";
  static const char harmony[] = "{\"added_tokens\": [" CONTROL(3, "<|end|>") ", " CONTROL(4, "<|return|>") ", " CONTROL(
      5, "<|call|>") ", " CONTROL(6, "<|channel|>") "], " MODEL(AB, "") "}";
  st_tokenizer *t = NULL;
  if (st_tokenizer_from_json(phi, sizeof phi - 1, "phi", &t, &err)) fail_msg("%s", err.message);
  assert_true(st_tokenizer_is_end(t, 3));
  st_tokenizer_free(t);
  if (st_tokenizer_from_json(harmony, sizeof harmony - 1, "harmony", &t, &err)) fail_msg("%s", err.message);
  assert_true(!st_tokenizer_is_end(t, 3) && st_tokenizer_is_end(t, 4) && st_tokenizer_is_end(t, 5));
  assert_false(st_tokenizer_is_end(t, 6));
  st_tokenizer_free(t);
#undef CONTROL
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_control_tokens), cmocka_unit_test(test_ends),
      cmocka_unit_test(test_no_merges),      cmocka_unit_test(test_harmony_ends),
      cmocka_unit_test(test_added_tokens),   cmocka_unit_test(test_scores),
      cmocka_unit_test(test_decoder),        cmocka_unit_test(test_long_runs),
      cmocka_unit_test(test_invalid_text),   cmocka_unit_test(test_bad_json),
      cmocka_unit_test(test_deep_json),      cmocka_unit_test(test_bad_vocabularies),
      cmocka_unit_test(test_damage),         cmocka_unit_test(test_vocab_merges),
      cmocka_unit_test(test_match_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
