// Encoding with guarded parts: a user's text never becomes a control token. The expected ids are those of the text
// split at the unguarded control tokens, each piece encoded as plain text; the splitting is done by a search here, not
// by the tokenizer.
#include "base/file.h"
#include "base/memory.h"
#include "tokenizer/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char begin_text[] = "<|begin_of_text|>", end_text[] = "<|end_of_text|>";

static st_tokenizer *load(void) {
  char *text = NULL;
  size_t length = 0;
  st_tokenizer *t = NULL;
  setun_error err = {0};
  if (st_file_load(SETUN_SOURCE_DIR "/models/setun-tales-7m/tokenizer.json", 1 << 26, &text, &length, &err) ||
      st_tokenizer_from_json(text, length, "tokenizer.json", &t, &err))
    fail_msg("%s", err.message);
  st_free(text);
  return t;
}

static bool touches(const setun_span *guards, size_t n, size_t begin, size_t end) {
  for (size_t i = 0; i < n; i++) {
    if (guards[i].begin < end && begin < guards[i].end) return true;
  }
  return false;
}

static void expect(const st_tokenizer *t, const char *text, size_t length, const setun_span *guards, size_t n,
                   st_token_list *out) {
  size_t done = 0, i = 0;
  while (i < length) {
    const char *token = !strncmp(text + i, begin_text, strlen(begin_text)) ? begin_text
                        : !strncmp(text + i, end_text, strlen(end_text))   ? end_text
                                                                           : NULL;
    if (!token || touches(guards, n, i, i + strlen(token))) {
      i++;
      continue;
    }
    assert_int_equal(st_tokenizer_encode(t, text + done, i - done, false, out, NULL), SETUN_OK);
    assert_true(st_token_list_append(out, token == begin_text ? 0 : 1));
    done = i += strlen(token);
  }
  assert_int_equal(st_tokenizer_encode(t, text + done, length - done, false, out, NULL), SETUN_OK);
}

static void check(const st_tokenizer *t, const char *text, size_t length, const setun_span *guards, size_t n) {
  st_token_list found = {0}, wanted = {0};
  setun_error err = {0};
  expect(t, text, length, guards, n, &wanted);
  if (st_tokenizer_encode_guarded(t, text, length, guards, n, &found, &err)) fail_msg("%s", err.message);
  bool same = found.length == wanted.length && (!found.length || !memcmp(found.ids, wanted.ids, found.length * 4));
  if (!same) {
    for (size_t i = 0; i < n; i++) print_error("guard %zu..%zu\n", guards[i].begin, guards[i].end);
    fail_msg("'%.*s': expected %zu ids, found %zu, or others", (int)length, text, wanted.length, found.length);
  }
  st_token_list_free(&found);
  st_token_list_free(&wanted);
}

static void random_texts(void **state) {
  (void)state;
  static const char *const pieces[] = {
      begin_text, end_text, "<|end_of", "_text|>", "<|", "|>", "Once upon a time", " there ", "was\n\n",
      "a",        " cat",   "\n",       "é",       "42", "!!", "<|end_of_text|",   ">"};
  st_tokenizer *t = load();
  unsigned seed = 12345;
  for (int round = 0; round < 4000; round++) {
    char text[1024] = "";
    setun_span guards[16];
    size_t n = 0, last = 0;
    for (int i = 0; i < 12; i++) {
      seed = seed * 1103515245u + 12345u;
      strcat(text, pieces[(seed >> 16) % (sizeof pieces / sizeof *pieces)]);
      seed = seed * 1103515245u + 12345u;
      if ((seed >> 16) % 3 == 0 && strlen(text) > last) guards[n++] = (setun_span){last, strlen(text)};
      if ((seed >> 18) % 2 == 0) last = strlen(text);
      if (n && guards[n - 1].end > last) last = guards[n - 1].end;
    }
    check(t, text, strlen(text), guards, n);
    check(t, text, strlen(text), NULL, 0);
    check(t, text, strlen(text), &(setun_span){0, strlen(text)}, 1);
  }
  st_tokenizer_free(t);
}

static void guards_inside_of_tokens(void **state) {
  (void)state;
  st_tokenizer *t = load();
  char text[128];
  snprintf(text, sizeof text, "a%sb%sc", begin_text, end_text);
  for (size_t from = 0; from <= strlen(text); from++) {
    for (size_t to = from; to <= strlen(text); to++) check(t, text, strlen(text), &(setun_span){from, to}, from < to);
  }
  st_tokenizer_free(t);
}

static void wrong_guards_are_refused(void **state) {
  (void)state;
  st_tokenizer *t = load();
  st_token_list out = {0};
  setun_error err;
  const setun_span beyond[] = {{0, 4}}, backwards[] = {{2, 1}}, unordered[] = {{2, 3}, {0, 1}};
  assert_int_equal(st_tokenizer_encode_guarded(t, "abc", 3, beyond, 1, &out, &err), SETUN_ERROR_ARGUMENT);
  assert_int_equal(st_tokenizer_encode_guarded(t, "abc", 3, backwards, 1, &out, &err), SETUN_ERROR_ARGUMENT);
  assert_int_equal(st_tokenizer_encode_guarded(t, "abc", 3, unordered, 2, &out, &err), SETUN_ERROR_ARGUMENT);
  assert_int_equal(st_tokenizer_encode_guarded(t, "a\xFF", 2, NULL, 0, &out, &err), SETUN_ERROR_ARGUMENT);
  assert_int_equal(out.length, 0);
  st_tokenizer_free(t);
}

// Control tokens that are looked for in normalized text, one that is the beginning of another, one that takes the white
// space behind it, and one that users may write.
static const char small[] =
    "{\"added_tokens\": ["
    "{\"id\": 4, \"content\": \"<n>\", \"special\": true, \"normalized\": true, \"lstrip\": false, \"rstrip\": false, "
    "\"single_word\": false},"
    "{\"id\": 5, \"content\": \"<a>\", \"special\": true, \"normalized\": false, \"lstrip\": false, \"rstrip\": false, "
    "\"single_word\": false},"
    "{\"id\": 6, \"content\": \"<a>b\", \"special\": true, \"normalized\": false, \"lstrip\": false, \"rstrip\": "
    "false, \"single_word\": false},"
    "{\"id\": 7, \"content\": \"<u>\", \"special\": false, \"normalized\": false, \"lstrip\": false, \"rstrip\": "
    "false, \"single_word\": false}],"
    "\"normalizer\": null, \"pre_tokenizer\": null, \"post_processor\": null, \"decoder\": null,"
    "\"model\": {\"type\": \"BPE\", \"unk_token\": \"?\", \"vocab\": {\"?\": 0, \"a\": 1, \"b\": 2, \"ab\": 3, \"<\": "
    "8, \">\": 9, \"n\": 10, \"u\": 11}, \"merges\": [\"a b\"]}}";

static void check_small(const char *text, const setun_span *guards, size_t n, const char *expected) {
  st_tokenizer *t = NULL;
  st_token_list out = {0};
  setun_error err = {0};
  char found[256] = "";
  if (st_tokenizer_from_json(small, sizeof small - 1, "small", &t, &err)) fail_msg("%s", err.message);
  assert_int_equal(st_tokenizer_encode_guarded(t, text, strlen(text), guards, n, &out, &err), SETUN_OK);
  for (size_t i = 0; i < out.length; i++) snprintf(found + strlen(found), 16, "%s%d", i ? " " : "", (int)out.ids[i]);
  if (strcmp(found, expected)) fail_msg("'%s': expected %s, found %s", text, expected, found);
  st_token_list_free(&out);
  st_tokenizer_free(t);
}

static void special_kinds(void **state) {
  (void)state;
  check_small("<a>b", NULL, 0, "6");
  check_small("<a>b", &(setun_span){3, 4}, 1, "5 2");     // the longer one would reach into the guarded part
  check_small("<a>b", &(setun_span){0, 1}, 1, "8 1 9 2"); // neither
  check_small("<u><a>", &(setun_span){0, 6}, 1, "7 8 1 9");
  check_small("<n>ab<n>", NULL, 0, "4 3 4");
  check_small("<n>ab<n>", &(setun_span){3, 5}, 1, "4 3 4");
  check_small("<n>ab<n>", &(setun_span){3, 8}, 1, "4 3 8 10 9");
  check_small("<n>ab<n>", &(setun_span){0, 8}, 1, "8 10 9 3 8 10 9");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_texts),
      cmocka_unit_test(guards_inside_of_tokens),
      cmocka_unit_test(wrong_guards_are_refused),
      cmocka_unit_test(special_kinds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
