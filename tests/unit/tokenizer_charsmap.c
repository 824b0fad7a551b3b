// SentencePiece's compiled character map, in a GGUF vocabulary: what it does to text, and the errors of malformed ones;
// and which tokens the ids, types and texts of a vocabulary may give.
#include "tokenizer/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define TEXT(s) ((st_text){s, sizeof(s) - 1})
#define MARK "\xE2\x96\x81"

static setun_error err;

// ---- a map: "A" becomes "a", "AB" becomes "xy", a tab becomes a space, "Q" becomes nothing ----

enum { UNITS = 1024, TEXTS = 10, A = 256 ^ 'A', BELOW_A = 512, AB = BELOW_A ^ 'B', TAB = 256 ^ '\t', Q = 256 ^ 'Q' };

static const char texts[TEXTS] = "a\0xy\0 \0\0\0";

typedef struct {
  uint32_t size, units[UNITS];
  char texts[TEXTS];
} charsmap;

static uint32_t unit(unsigned char label, uint32_t from, uint32_t to) {
  return (from ^ to) << 10 | 1u << 8 | label; // each has a value: at `to`
}

static charsmap new_map(void) {
  charsmap m = {.size = UNITS * 4};
  m.units[0] = 256u << 10;
  m.units[A] = unit('A', A, BELOW_A), m.units[BELOW_A] = 1u << 31 | 0;
  m.units[AB] = unit('B', AB, 700), m.units[700] = 1u << 31 | 2;
  m.units[TAB] = unit('\t', TAB, 701), m.units[701] = 1u << 31 | 5;
  m.units[Q] = unit('Q', Q, 702), m.units[702] = 1u << 31 | 7;
  memcpy(m.texts, texts, TEXTS);
  return m;
}

enum { UNK, END, A_, X, Y, MARKED_A, SPACE, B, SIZE };

static const st_text tokens[SIZE] = {TEXT("<unk>"), TEXT("</s>"),   TEXT("a"),  TEXT("x"),
                                     TEXT("y"),     TEXT(MARK "a"), TEXT(MARK), TEXT("B")};

static st_vocabulary new_vocabulary(const charsmap *m, size_t length) {
  static const float scores[SIZE] = {0, 0, -2, -3, -3, -2, -3, -4};
  static const int32_t types[SIZE] = {ST_TOKEN_UNKNOWN, ST_TOKEN_CONTROL, 1, 1, 1, 1, 1, 1};
  st_vocabulary v;
  st_vocabulary_init(&v);
  v.model = "t5", v.n = SIZE, v.tokens = tokens, v.scores = scores, v.types = types;
  v.charsmap = (const char *)m, v.charsmap_length = length;
  v.add_space_prefix = v.remove_extra_whitespaces = 1;
  return v;
}

static void expect(const st_tokenizer *t, const char *text, const int32_t *ids, size_t n) {
  st_token_list list = {0};
  if (st_tokenizer_encode(t, text, strlen(text), false, &list, &err)) fail_msg("%s", err.message);
  assert_int_equal(list.length, n);
  if (n) assert_memory_equal(list.ids, ids, n * sizeof *ids);
  st_token_list_free(&list);
}
#define EXPECT(t, text, ...)                                                                                           \
  do {                                                                                                                 \
    static const int32_t wanted[] = {__VA_ARGS__};                                                                     \
    expect(t, text, wanted, COUNT(wanted));                                                                            \
  } while (0)

static void test_map(void **unused) {
  (void)unused;
  charsmap m = new_map();
  st_vocabulary v = new_vocabulary(&m, sizeof m.size + sizeof m.units + TEXTS);
  st_tokenizer *t = NULL;
  if (st_tokenizer_from_vocabulary(&v, &t, &err)) fail_msg("%s", err.message);
  EXPECT(t, "a", MARKED_A);
  EXPECT(t, "A", MARKED_A);
  EXPECT(t, "AB", SPACE, X, Y); // the longest entry
  EXPECT(t, "AAB", MARKED_A, X, Y);
  EXPECT(t, "A\t\tA", MARKED_A, MARKED_A);
  EXPECT(t, "AQA", MARKED_A, A_);
  EXPECT(t, "AQB", MARKED_A, B); // entries do not begin within the output of others
  EXPECT(t, "Z", SPACE, UNK);
  EXPECT(t, "</s>", SPACE, UNK); // plain text gives no control token
  expect(t, "QQ", NULL, 0);
  st_tokenizer_free(t);
}

static void refuse(const charsmap *m, size_t length, const char *mention) {
  st_vocabulary v = new_vocabulary(m, length);
  st_tokenizer *t = NULL;
  setun_status s = st_tokenizer_from_vocabulary(&v, &t, &err);
  st_tokenizer_free(t);
  assert_int_equal(s, SETUN_ERROR_FORMAT);
  if (!strstr(err.message, "tokenizer.ggml.precompiled_charsmap")) fail_msg("%s", err.message);
  if (!strstr(err.message, mention)) fail_msg("expected \"%s\" in: %s", mention, err.message);
}

static void test_malformed(void **unused) {
  (void)unused;
  size_t length = sizeof(uint32_t) * (UNITS + 1) + TEXTS;
  charsmap m = new_map();
  refuse(&m, 3, "found 3");
  refuse(&m, 1000, "found one of 4096");
  m.size = UINT32_MAX;
  refuse(&m, length, "4294967295");
  m.size = 0;
  refuse(&m, length, "found one of 0");
  m.size = 4095;
  refuse(&m, length, "4095");
  m = new_map();
  m.units[700] = 1u << 31 | TEXTS;
  refuse(&m, length, "below 10");
  m = new_map();
  m.units[AB] = 0x1FFFFFu << 10 | 1u << 9 | 1u << 8 | 'B'; // its value would be far beyond the units
  refuse(&m, length, "among 1024 units");
  m = new_map();
  m.texts[TEXTS - 1] = 'z';
  refuse(&m, length, "0 byte");
}

// A unit whose children are its siblings: a text of any length would go round in a circle.
static void test_circle(void **unused) {
  (void)unused;
  charsmap m = new_map();
  m.units[A] = (uint32_t)'A' << 10 | 'A';
  m.units[A] |= 1u << 8;
  m.units[256] = 1u << 31 | 0;
  st_vocabulary v = new_vocabulary(&m, sizeof m.size + sizeof m.units + TEXTS);
  st_tokenizer *t = NULL;
  if (st_tokenizer_from_vocabulary(&v, &t, &err)) fail_msg("%s", err.message);
  EXPECT(t, "AAAAAAAA", MARKED_A);
  st_tokenizer_free(t);
}

static void test_map_of_another_model(void **unused) {
  (void)unused;
  charsmap m = new_map();
  st_vocabulary v = new_vocabulary(&m, sizeof m.size + sizeof m.units + TEXTS);
  st_tokenizer *t = NULL;
  v.model = "llama";
  assert_int_equal(st_tokenizer_from_vocabulary(&v, &t, &err), SETUN_ERROR_UNSUPPORTED);
  if (!strstr(err.message, "precompiled_charsmap")) fail_msg("%s", err.message);
}

// ---- ids ----

// A character without a token: an error that names it and the key, and no ids.
static void refuse_text(const st_tokenizer *t, const char *text, const char *mention) {
  st_token_list list = {0};
  assert_int_equal(st_tokenizer_encode(t, text, strlen(text), false, &list, &err), SETUN_ERROR_FORMAT);
  if (!strstr(err.message, mention)) fail_msg("expected \"%s\" in: %s", mention, err.message);
  assert_non_null(strstr(err.message, "tokenizer.ggml.unknown_token_id"));
  assert_int_equal(list.length, 0);
  st_token_list_free(&list);
}

// BPE by scores whose unknown token is not the first, as token_type says: before, "z" became token 0.
static void test_unknown_by_type(void **unused) {
  (void)unused;
  static const st_text list[] = {TEXT("<s>"), TEXT("<unk>"), TEXT("</s>"), TEXT("a"), TEXT(MARK)};
  static const float scores[] = {0, 0, 0, -1, -2};
  int32_t types[] = {ST_TOKEN_CONTROL, ST_TOKEN_UNKNOWN, ST_TOKEN_CONTROL, 1, 1};
  st_vocabulary v;
  st_vocabulary_init(&v);
  v.model = "llama", v.n = COUNT(list), v.tokens = list, v.scores = scores, v.types = types, v.bos = 0, v.eos = 2;
  st_tokenizer *t = NULL;
  if (st_tokenizer_from_vocabulary(&v, &t, &err)) fail_msg("%s", err.message);
  assert_int_equal(st_tokenizer_unk(t), 1);
  EXPECT(t, "azz", 4, 3, 1);
  st_tokenizer_free(t);
  v.unk = 2; // a key that names the end of text: text still does not end
  if (st_tokenizer_from_vocabulary(&v, &t, &err)) fail_msg("%s", err.message);
  EXPECT(t, "a", 4, 3);
  refuse_text(t, "azz", "U+007A (\"z\")");
  st_tokenizer_free(t);
  v.unk = -1, types[1] = 1; // none at all
  if (st_tokenizer_from_vocabulary(&v, &t, &err)) fail_msg("%s", err.message);
  assert_int_equal(st_tokenizer_unk(t), -1);
  EXPECT(t, "a", 4, 3);
  refuse_text(t, "za", "U+007A (\"z\")");
  refuse_text(t, "a\xE6\x97\xA5", "U+65E5 (\"\xE6\x97\xA5\")");
  refuse_text(t, "a\n", "U+000A:");
  refuse_text(t, "<s>", "U+003C (\"<\")");
  st_tokenizer_free(t);
}

static void test_none(void **unused) {
  (void)unused;
  charsmap m = new_map();
  st_vocabulary v = new_vocabulary(&m, sizeof m.size + sizeof m.units + TEXTS);
  st_tokenizer *t = NULL;
  v.eos = ST_ID_NONE;
  if (st_tokenizer_from_vocabulary(&v, &t, &err)) fail_msg("%s", err.message);
  assert_int_equal(st_tokenizer_eos(t), -1);
  st_tokenizer_free(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_map),
      cmocka_unit_test(test_malformed),
      cmocka_unit_test(test_circle),
      cmocka_unit_test(test_map_of_another_model),
      cmocka_unit_test(test_unknown_by_type),
      cmocka_unit_test(test_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
