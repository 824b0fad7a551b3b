// Tokenizers of every kind against the reference's ids and texts (tests/tok, made by tools/make_tokenizer_fixtures.py).
//
// With arguments it is a tool instead: `tokenizer_reference FILE STRINGS.json` prints for each string its ids, its ids
// with control tokens recognized, and the text that those decode to, for tools/compare_tokenizers.py.
#include "base/file.h"
#include "base/memory.h"
#include "tokenizer/tokenizer.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *load(const char *path, size_t *length) {
  char *text;
  setun_error err = {0};
  if (st_file_load(path, 1u << 30, &text, length, &err)) fail_msg("%s", err.message);
  return text;
}

static st_tokenizer *open_tokenizer(const char *path) {
  size_t length;
  char *text = load(path, &length);
  setun_error err = {0};
  st_tokenizer *t = NULL;
  const char *dot = strrchr(path, '.');
  setun_status s = dot && !strcmp(dot, ".model") ? st_tokenizer_from_sentencepiece(text, length, path, &t, &err)
                                                 : st_tokenizer_from_json(text, length, path, &t, &err);
  st_free(text);
  if (s) fail_msg("%s", err.message);
  return t;
}

static json_t *parse(const char *path) {
  size_t length;
  char *text = load(path, &length);
  json_error_t where;
  json_t *root = json_loadb(text, length, JSON_ALLOW_NUL, &where);
  if (!root) fail_msg("%s: %s", path, where.text);
  st_free(text);
  return root;
}

static void encode(const st_tokenizer *t, const json_t *text, bool special, st_token_list *ids) {
  setun_error err = {0};
  ids->length = 0;
  if (st_tokenizer_encode(t, json_string_value(text), json_string_length(text), special, ids, &err)) {
    fail_msg("%s", err.message);
  }
}

static void decode(const st_tokenizer *t, const st_token_list *ids, st_buffer *out) {
  setun_error err = {0};
  st_decoder *d;
  const char *text;
  size_t length;
  out->length = 0;
  assert_true(st_buffer_append(out, "", 0));
  assert_int_equal(st_decoder_new(t, true, false, &d, &err), SETUN_OK);
  for (size_t i = 0; i <= ids->length; i++) {
    setun_status s = i < ids->length ? st_decoder_push(d, ids->ids[i], &text, &length, &err)
                                     : st_decoder_finish(d, &text, &length, &err);
    if (s) fail_msg("%s", err.message);
    assert_int_equal(strlen(text) <= length, 1);
    assert_true(st_buffer_append(out, text, length));
  }
  st_decoder_free(d);
}

static void check_ids(const char *name, size_t row, const char *column, const st_token_list *ids, const json_t *want) {
  bool same = ids->length == json_array_size(want);
  for (size_t i = 0; same && i < ids->length; i++) {
    same = ids->ids[i] == (int32_t)json_integer_value(json_array_get(want, i));
  }
  if (same) return;
  for (size_t i = 0; i < ids->length; i++) print_error("%d ", ids->ids[i]);
  fail_msg("%s: string %zu: its %s (above) differ from the reference's", name, row, column);
}

static void check(const char *name, const char *extension) {
  char path[512];
  snprintf(path, sizeof path, "%s/tok/%s.%s", SETUN_TEST_DATA, name, extension);
  if (!strcmp(name, "tales")) snprintf(path, sizeof path, "%s/models/setun-tales-7m/tokenizer.json", SETUN_SOURCE_DIR);
  st_tokenizer *t = open_tokenizer(path);
  snprintf(path, sizeof path, "%s/tok/%s.ids.json", SETUN_TEST_DATA, name);
  json_t *want = parse(path);
  snprintf(path, sizeof path, "%s/tok/strings.json", SETUN_TEST_DATA);
  json_t *root = parse(path), *strings = json_object_get(root, "strings");
  st_token_list ids = {0};
  st_buffer text = {0};
  assert_true(json_array_size(strings) >= 200);
  for (size_t i = 0; i < json_array_size(strings); i++) {
    const json_t *string = json_array_get(strings, i);
    // The reference's Unigram takes "<unk>" in plain text for the unknown token; here plain text makes none.
    bool unknown = !strncmp(name, "unigram", 7) && strstr(json_string_value(string), "<unk>");
    encode(t, string, false, &ids);
    if (!unknown) check_ids(name, i, "ids", &ids, json_array_get(json_object_get(want, "ids"), i));
    // SentencePiece recognizes no control tokens: its texts are those of the plain ids.
    if (strcmp(extension, "model")) encode(t, string, true, &ids);
    if (unknown) continue;
    check_ids(name, i, "ids with control tokens", &ids, json_array_get(json_object_get(want, "special"), i));
    decode(t, &ids, &text);
    const json_t *expected = json_array_get(json_object_get(want, "text"), i);
    // Invalid bytes become one U+FFFD for each part of a character; the reference's ByteFallback decoder counts
    // differently.
    if (strstr(json_string_value(expected), "\xEF\xBF\xBD")) continue;
    if (text.length != json_string_length(expected) || memcmp(text.data, json_string_value(expected), text.length)) {
      fail_msg("%s: string %zu decodes to \"%s\", the reference says \"%s\"", name, i, text.data,
               json_string_value(expected));
    }
  }
  st_token_list_free(&ids);
  st_buffer_free(&text);
  json_decref(root);
  json_decref(want);
  st_tokenizer_free(t);
}

#define KIND(name, extension)                                                                                          \
  static void test_##name(void **state) {                                                                              \
    (void)state;                                                                                                       \
    check(#name, extension);                                                                                           \
  }
KIND(tales, "json")
KIND(gpt2, "json")
KIND(llama3, "json")
KIND(qwen2, "json")
KIND(gpt4o, "json")
KIND(smollm, "json")
KIND(falcon, "json")
KIND(splits, "json")
KIND(llama2, "json")
KIND(nofuse, "json")
KIND(metaspace, "json")
KIND(whitespace, "json")
KIND(unigram, "json")
KIND(unigram_bytes, "json")
KIND(sp_bpe, "model")
KIND(sp_bpe_user, "model")
KIND(sp_unigram, "model")
KIND(sp_unigram_bytes, "model")

static void print_ids(const st_token_list *ids) {
  printf("[");
  for (size_t i = 0; i < ids->length; i++) printf("%s%d", i ? "," : "", ids->ids[i]);
  printf("],");
}

static int dump(const char *file, const char *strings_file) {
  st_tokenizer *t = open_tokenizer(file);
  json_t *root = parse(strings_file), *strings = json_object_get(root, "strings");
  st_token_list ids = {0};
  st_buffer text = {0};
  printf("[");
  for (size_t i = 0; i < json_array_size(strings); i++) {
    printf("%s[", i ? ",\n" : "");
    encode(t, json_array_get(strings, i), false, &ids);
    print_ids(&ids);
    encode(t, json_array_get(strings, i), true, &ids);
    print_ids(&ids);
    decode(t, &ids, &text);
    json_t *value = json_stringn(text.data, text.length);
    char *shown = json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    printf("%s]", shown);
    free(shown);
    json_decref(value);
  }
  printf("]\n");
  st_token_list_free(&ids);
  st_buffer_free(&text);
  json_decref(root);
  st_tokenizer_free(t);
  return 0;
}

#define RUN(name) cmocka_unit_test(test_##name)

int main(int argc, char **argv) {
  if (argc == 3) return dump(argv[1], argv[2]);
  const struct CMUnitTest tests[] = {
      RUN(tales),   RUN(gpt2),          RUN(llama3), RUN(qwen2),       RUN(gpt4o),      RUN(smollm),
      RUN(falcon),  RUN(splits),        RUN(llama2), RUN(nofuse),      RUN(metaspace),  RUN(whitespace),
      RUN(unigram), RUN(unigram_bytes), RUN(sp_bpe), RUN(sp_bpe_user), RUN(sp_unigram), RUN(sp_unigram_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
