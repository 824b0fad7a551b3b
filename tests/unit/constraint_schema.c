// JSON schemas as constraints: every text of tests/constraint/schemas.json gets the verdict that jsonschema-rs gave it,
// what cannot be enforced is refused by its path, and texts that masks allow are JSON and end.
#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "constraint/constraint.h"
#include "constraint/schema.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct {
  st_tokenizer *tokenizer;
  st_token_trie *trie;
  json_t *cases, *refused;
} shared;

static int set_up(void **state) {
  (void)state;
  static const char path[] = SETUN_SOURCE_DIR "/models/setun-tales-7m/tokenizer.json";
  char *text;
  size_t length;
  setun_error err = {0};
  if (st_file_load(path, 1 << 26, &text, &length, &err)) fail_msg("%s", err.message);
  if (st_tokenizer_from_json(text, length, path, &shared.tokenizer, &err)) fail_msg("%s", err.message);
  st_free(text);
  if (st_token_trie_new(shared.tokenizer, &shared.trie, &err)) fail_msg("%s", err.message);
  json_t *root = json_load_file(SETUN_TEST_DATA "/constraint/schemas.json", JSON_ALLOW_NUL, NULL);
  assert_non_null(root);
  shared.cases = json_incref(json_object_get(root, "cases"));
  shared.refused = json_incref(json_object_get(root, "refused"));
  json_decref(root);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  json_decref(shared.cases);
  json_decref(shared.refused);
  st_token_trie_free(shared.trie);
  st_tokenizer_free(shared.tokenizer);
  return 0;
}

static setun_status compile_within(const st_constraint_limits *limits, const char *schema, uint32_t space,
                                   const st_schema_options *options, st_constraint **c, setun_error *err) {
  st_grammar *g;
  setun_status status = st_grammar_from_schema(schema, strlen(schema), options, limits, &g, err);
  if (status) return status;
  st_term around = st_term_json_space(st_grammar_terms(g), space);
  st_grammar_set_space(g, around, around);
  return st_constraint_compile(g, shared.trie, c, err);
}

static setun_status compile(const char *schema, uint32_t space, const st_schema_options *options, st_constraint **c,
                            setun_error *err) {
  return compile_within(NULL, schema, space, options, c, err);
}

static st_matcher *matcher_of(const char *schema, uint32_t space, const st_schema_options *options) {
  st_constraint *c = NULL;
  st_matcher *m = NULL;
  setun_error err = {0};
  if (compile(schema, space, options, &c, &err)) fail_msg("%s: %s", schema, err.message);
  if (st_matcher_new(c, &m, &err)) fail_msg("%s: %s", schema, err.message);
  st_constraint_release(c); // the matcher holds one
  return m;
}

static bool fits(st_matcher *m, const char *text) {
  setun_error err = {0};
  st_matcher_reset(m);
  setun_status status = st_matcher_accept_bytes(m, text, strlen(text), &err);
  if (status && status != SETUN_ERROR_ARGUMENT) fail_msg("%s: %s", text, err.message);
  return !status && st_matcher_may_end(m);
}

static size_t count_wrong(st_matcher *m, const char *schema, const json_t *texts, bool valid) {
  size_t wrong = 0, i;
  json_t *one;
  json_array_foreach(texts, i, one) {
    if (fits(m, json_string_value(one)) == valid) continue;
    print_error("%s: expected %s, found the contrary: %s\n", schema, valid ? "valid" : "invalid",
                json_string_value(one));
    wrong++;
  }
  return wrong;
}

static void test_verdicts(void **state) {
  (void)state;
  size_t wrong = 0, i;
  json_t *one;
  assert_true(json_array_size(shared.cases) > 100);
  json_array_foreach(shared.cases, i, one) {
    char *schema = json_dumps(json_array_get(one, 1), JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    st_matcher *m = matcher_of(schema, 8, NULL);
    wrong += count_wrong(m, schema, json_array_get(one, 2), true);
    wrong += count_wrong(m, schema, json_array_get(one, 3), false);
    st_matcher_free(m);
    free(schema);
  }
  assert_int_equal(wrong, 0);
}

static void test_refused(void **state) {
  (void)state;
  size_t wrong = 0, i;
  json_t *one;
  json_array_foreach(shared.refused, i, one) {
    char *schema = json_dumps(json_array_get(one, 0), JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    const char *expected = json_string_value(json_array_get(one, 1));
    st_constraint *c = NULL;
    setun_error err = {0};
    setun_status status = compile(schema, 0, NULL, &c, &err);
    if (!status || !strstr(err.message, expected)) {
      print_error("%s: expected \"%s\", found \"%s\"\n", schema, expected, status ? err.message : "(no refusal)");
      wrong++;
    }
    st_constraint_release(c);
    free(schema);
  }
  assert_int_equal(wrong, 0);
}

// ---- texts that masks allow ----

static bool is_allowed(const uint32_t *mask, uint32_t id) {
  return mask[id / 32] >> id % 32 & 1;
}

// A random token of the mask; `ending`: one that ends something, if the mask has one.
static uint32_t choose(const uint32_t *mask, st_random *random, bool ending) {
  uint32_t n = st_tokenizer_size(shared.tokenizer), count = 0, chosen = UINT32_MAX;
  for (int pass = ending ? 0 : 1; pass < 2 && !count; pass++) {
    for (uint32_t id = 0; id < n; id++) {
      const char *bytes = "";
      size_t length = 0;
      if (!is_allowed(mask, id)) continue;
      st_tokenizer_piece(shared.tokenizer, (int32_t)id, false, &bytes, &length, NULL);
      if (!pass && length && (length != 1 || !strchr("\"}]", *bytes))) continue;
      if (st_random_u64(random) % ++count == 0) chosen = id;
    }
  }
  return chosen;
}

// False: the text did not end in time, as with a pattern that random letters rarely match.
static bool check_sample(st_matcher *m, const char *schema, st_random *random, st_buffer *text) {
  enum { WORDS = 4096, TOKENS_MOST = 100 };
  static uint32_t mask[WORDS];
  setun_error err = {0};
  size_t words = st_mask_words(st_token_trie_size(shared.trie));
  assert_true(words <= WORDS);
  st_matcher_reset(m);
  text->length = 0;
  for (int i = 0; i < TOKENS_MOST; i++) {
    if (st_matcher_mask(m, mask, words, &err)) fail_msg("%s: %s: %s", schema, text->data, err.message);
    uint32_t id = choose(mask, random, i > 25);
    const char *bytes;
    size_t length;
    if (st_tokenizer_is_end(shared.tokenizer, (int32_t)id)) return true;
    assert_int_equal(st_tokenizer_piece(shared.tokenizer, (int32_t)id, false, &bytes, &length, &err), SETUN_OK);
    assert_true(st_buffer_append(text, bytes, length));
    if (st_matcher_accept(m, (int32_t)id, &err)) fail_msg("%s: %s: %s", schema, text->data, err.message);
  }
  return false;
}

static void test_samples(void **state) {
  (void)state;
  st_random random;
  st_buffer text = {0};
  size_t i, n_ended = 0;
  json_t *one;
  st_random_seed(&random, 1);
  json_array_foreach(shared.cases, i, one) {
    char *schema = json_dumps(json_array_get(one, 1), JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    st_matcher *m = matcher_of(schema, 0, NULL);
    bool ended = check_sample(m, schema, &random, &text);
    json_error_t why;
    json_t *value =
        !ended ? json_null()
               : json_loadb(text.data, text.length,
                            JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &why);
    if (!value) fail_msg("%s: not JSON: %s: %s", schema, text.data, why.text);
    n_ended += ended;
    json_decref(value);
    st_matcher_free(m);
    free(schema);
  }
  assert_true(n_ended * 10 > json_array_size(shared.cases) * 9);
  st_buffer_free(&text);
}

// ---- no token leads to a text that cannot be finished ----

// Each with a valid text, and one that cannot be finished although its beginning is valid.
#define UNIQUE(rest) "{\"type\":\"array\",\"uniqueItems\":true," rest "}"
#define PAIR_OF(value) "\"properties\":{\"a\":" value ",\"b\":" value "},\"additionalProperties\":false"
static const char *const exhausted[][3] = {
    {UNIQUE("\"items\":{\"enum\":[\"a\",\"b\",\"c\"]}"), "[\"c\",\"a\",\"b\"]", "[\"c\",\"a\",\"b\","},
    {UNIQUE("\"items\":{\"enum\":[1,1.0,2]},\"minItems\":2"), "[2.0,1]", "[2,1.0,"},
    {UNIQUE("\"items\":{\"enum\":[0,1,null]},\"minItems\":3"), "[1,-0,null]", "[null,1,0.0,"},
    {UNIQUE("\"items\":{\"type\":\"boolean\"}"), "[false,true]", "[true,false,"},
    {UNIQUE("\"items\":{\"type\":\"boolean\"},\"minItems\":2"), "[true,false]", "[true,false,"},
    {UNIQUE("\"prefixItems\":[{\"const\":true}],\"items\":{\"type\":\"boolean\"}"), "[true,false]", "[true,false,"},
    {UNIQUE("\"items\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":3},\"contains\":{\"const\":2}"), "[3,2]",
     "[1,2,3,"},
    {"{\"type\":\"array\",\"prefixItems\":[{\"enum\":[1,2]},{\"enum\":[3,4]}],\"items\":false,"
     "\"contains\":{\"const\":1}}",
     "[1,4]", "[2"},
    {"{\"type\":\"array\",\"prefixItems\":[{\"enum\":[1,\"x\"]}],\"items\":{\"type\":\"null\"},"
     "\"contains\":{\"type\":\"string\"}}",
     "[\"x\",null]", "[1"},
    {"{\"type\":\"object\"," PAIR_OF("{\"type\":\"null\"}") "}", "{\"b\":null,\"a\":null}", "{\"b\":null,\"a\":null,"},
    {"{\"type\":\"object\",\"patternProperties\":{\"^[ab]$\":{\"type\":\"null\"}},\"additionalProperties\":false}",
     "{\"b\":null,\"a\":null}", "{\"b\":null,\"a\":null,"},
    {"{\"type\":\"object\"," PAIR_OF(
         "{\"enum\":[1,\"x\"]}") ",\"not\":{\"additionalProperties\":{\"type\":\"integer\"}}}",
     "{\"b\":1,\"a\":\"x\"}", "{\"b\":1,\"a\":1"},
};

static bool may_begin(st_matcher *m, const char *text) {
  setun_error err = {0};
  st_matcher_reset(m);
  return !st_matcher_accept_bytes(m, text, strlen(text), &err);
}

static void test_exhausted(void **state) {
  (void)state;
  st_random random;
  st_buffer text = {0};
  st_random_seed(&random, 2);
  for (size_t i = 0; i < sizeof exhausted / sizeof *exhausted; i++) {
    for (uint32_t space = 0; space <= 2; space += 2) {
      const char *schema = exhausted[i][0];
      st_matcher *m = matcher_of(schema, space, NULL);
      if (!fits(m, exhausted[i][1])) fail_msg("%s: %s: not valid", schema, exhausted[i][1]);
      if (may_begin(m, exhausted[i][2])) fail_msg("%s: %s: can be written", schema, exhausted[i][2]);
      for (int k = 0; k < 20; k++) { // which fails for an empty mask
        bool ended = check_sample(m, schema, &random, &text);
        if (ended && !fits(m, text.data)) fail_msg("%s: %s: not valid", schema, text.data);
        if (!ended && !strstr(schema, "1.0") && !strstr(schema, "null")) fail_msg("%s: %s: no end", schema, text.data);
      }
      st_matcher_free(m);
    }
  }
  st_buffer_free(&text);
}

// Ordered properties: none may be left out that minProperties still needs.
static void test_ordered_minimum(void **state) {
  (void)state;
  static const char schema[] =
      "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"},"
      "\"c\":{\"type\":\"null\"}},\"additionalProperties\":false,\"minProperties\":2}";
  st_schema_options ordered = {.ordered = true};
  st_matcher *any = matcher_of(schema, 0, NULL), *fixed = matcher_of(schema, 0, &ordered);
  assert_true(fits(any, "{\"c\":null,\"b\":null}"));
  assert_false(may_begin(fixed, "{\"c\""));
  assert_true(fits(fixed, "{\"b\":null,\"c\":null}"));
  assert_true(fits(fixed, "{\"a\":null,\"b\":null,\"c\":null}"));
  st_matcher_free(any);
  st_matcher_free(fixed);
}

// ---- single properties ----

static void test_order(void **state) {
  (void)state;
  static const char schema[] = "{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"integer\"},\"a\":{}},"
                               "\"required\":[\"a\"]}";
  st_schema_options ordered = {.ordered = true};
  st_matcher *any = matcher_of(schema, 0, NULL), *fixed = matcher_of(schema, 0, &ordered);
  assert_true(fits(any, "{\"a\":1,\"b\":2}"));
  assert_true(fits(any, "{\"c\":0,\"b\":2,\"a\":1}"));
  assert_true(fits(fixed, "{\"b\":2,\"a\":1}"));
  assert_true(fits(fixed, "{\"a\":1,\"c\":0}"));
  assert_false(fits(fixed, "{\"a\":1,\"b\":2}"));
  assert_false(fits(any, "{\"a\":1,\"b\":2,\"a\":3}"));
  assert_false(fits(any, "{\"a\":1,\"\\u0061\":3}"));
  assert_false(fits(any, "{\"a\":1,\"z\":3,\"z\":4}"));
  st_matcher_free(any);
  st_matcher_free(fixed);
}

// Numbers that a double cannot hold, halves of surrogate pairs, raw control characters, too much white space.
static void test_json(void **state) {
  (void)state;
  st_matcher *m = matcher_of("{}", 8, NULL);
  assert_true(fits(m, "\"\x7F\\/\\u00e9\\ud83d\\ude00\""));
  assert_true(fits(m, "[1,        2]"));
  assert_false(fits(m, "[1,         2]"));
  assert_false(fits(m, "1e400"));
  assert_false(fits(m, "\"\\ud83d\""));
  assert_false(fits(m, "\"\n\""));
  assert_false(fits(m, "\"\xC0\x80\""));
  assert_false(fits(m, "01"));
  assert_false(fits(m, "1."));
  assert_false(fits(m, "+1"));
  assert_false(fits(m, "tru"));
  st_matcher_free(m);
}

// A schema within a larger grammar, as tools have it.
static void test_embedded(void **state) {
  (void)state;
  setun_error err = {0};
  st_grammar *g;
  assert_int_equal(st_grammar_new(NULL, &g, &err), SETUN_OK);
  static const char schema[] = "{\"type\":\"array\",\"items\":{\"type\":\"boolean\"}}";
  st_node inside, list[3];
  assert_int_equal(st_grammar_add_schema(g, schema, strlen(schema), NULL, &inside, &err), SETUN_OK);
  list[0] = st_node_term(g, st_term_text(st_grammar_terms(g), "<call>", 6));
  list[1] = inside;
  list[2] = st_node_term(g, st_term_text(st_grammar_terms(g), "</call>", 7));
  st_grammar_set_root(g, st_node_seq(g, list, 3));
  st_constraint *c;
  st_matcher *m;
  assert_int_equal(st_constraint_compile(g, shared.trie, &c, &err), SETUN_OK);
  assert_int_equal(st_matcher_new(c, &m, &err), SETUN_OK);
  assert_true(fits(m, "<call>[true,false]</call>"));
  assert_false(fits(m, "<call>[true,1]</call>"));
  st_matcher_free(m);
  st_constraint_release(c);
}

// ---- limits ----

static void expect_limit(st_buffer *schema) {
  st_constraint *c = NULL;
  setun_error err = {0};
  setun_status status = compile(schema->data, 0, NULL, &c, &err);
  if (status && status != SETUN_ERROR_LIMIT) fail_msg("%s", err.message);
  st_constraint_release(c);
  schema->length = 0;
}

// A schema that takes too much is refused with the limit's name and the place, not as one that no value satisfies.
static void test_named_limits(void **state) {
  (void)state;
  static const char slow[] = "{\"properties\":{\"x\":{\"type\":\"string\",\"pattern\":\"^[ab]*a[ab]{18}$\","
                             "\"not\":{\"pattern\":\"^[ab]*b[ab]{16}$\"}}}}";
  static const struct {
    st_constraint_limits limits;
    const char *named;
  } cases[] = {{{.max_milliseconds = 1}, "more than 1 ms of processor time"},
               {{.max_bytes = 1 << 20}, "more than its 1024 KiB of memory"},
               {{.max_states = 3000}, "more than 3000 states"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    st_constraint *c = NULL;
    setun_error err = {0};
    assert_int_equal(compile_within(&cases[i].limits, slow, 0, NULL, &c, &err), SETUN_ERROR_LIMIT);
    if (!strstr(err.message, cases[i].named)) fail_msg("expected \"%s\" in: %s", cases[i].named, err.message);
    if (strncmp(err.message, "schema: #/properties/x", 22)) fail_msg("expected the place in: %s", err.message);
  }
}

// A key that comes twice in a schema is refused, however it is spelled: neither of its values is ignored.
static void test_duplicate_keys(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"{\"type\":\"string\",\"type\":\"integer\"}", "duplicate key \"type\""},
      {"{\"properties\":{\"x\":{\"enum\":[1],\"en\\u0075m\":[2]}}}", "duplicate key \"enum\" in #/properties/x"},
      {"{\"const\":[{\"a\":1,\"a\":1}]}", "duplicate key \"a\" in #/const/0"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    st_constraint *c = NULL;
    setun_error err = {0};
    assert_int_equal(compile_within(NULL, cases[i][0], 0, NULL, &c, &err), SETUN_ERROR_FORMAT);
    if (!strstr(err.message, cases[i][1])) fail_msg("expected \"%s\" in: %s", cases[i][1], err.message);
  }
}

// Long counts alone cost nothing: no text is searched for.
static void test_long_counts(void **state) {
  (void)state;
  const st_constraint_limits limits = {.max_bytes = 4 << 20, .max_states = 2000};
  static const char *const schemas[] = {
      "{\"type\":\"string\",\"pattern\":\"^a{65536}$\"}", "{\"type\":\"string\",\"pattern\":\"(a{1000}){1000}{1000}\"}",
      "{\"type\":\"string\",\"pattern\":\"^.*a.{300}$\"}", "{\"type\":\"string\",\"minLength\":100000}"};
  for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
    st_constraint *c = NULL;
    setun_error err = {0};
    if (compile_within(&limits, schemas[i], 0, NULL, &c, &err)) fail_msg("%s: %s", schemas[i], err.message);
    assert_true(st_constraint_bytes(c) < 1 << 20);
    st_constraint_release(c);
  }
}

// A member of a union that matches nothing may have many states; those of the others are not left for later.
static void test_union(void **state) {
  (void)state;
  st_matcher *m = matcher_of("{\"type\":\"string\",\"oneOf\":[{\"pattern\":\"customer\"},{\"pattern\":\"maker\"},"
                             "{\"pattern\":\"operator\"},{\"pattern\":\"admin\"},{\"pattern\":\"designer\"}]}",
                             0, NULL);
  static const char *const texts[] = {"\"customer\"", "\"maker\""};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    setun_error err = {0};
    st_matcher_reset(m);
    if (st_matcher_accept_bytes(m, texts[i], strlen(texts[i]), &err)) fail_msg("%s: %s", texts[i], err.message);
    assert_true(st_matcher_may_end(m));
  }
  st_matcher_free(m);
}

enum { MATCHERS = 2, FEW_PLACES = 500 };

// The masks of both constraints at this place are the same.
static void same_masks(st_matcher *const m[MATCHERS], uint32_t *bits[MATCHERS], size_t words) {
  setun_error err = {0};
  for (int i = 0; i < MATCHERS; i++) {
    if (st_matcher_mask(m[i], bits[i], words, &err)) fail_msg("constraint %d: %s", i, err.message);
  }
  assert_memory_equal(bits[0], bits[1], words * sizeof *bits[0]);
}

// Places that only tokens which were not chosen led to are freed: a text may be long, and those that others have
// reached, or that are taken back to, stay.
static void test_places(void **state) {
  (void)state;
  const st_constraint_limits limits[MATCHERS] = {{0}, {.max_stacks = FEW_PLACES}};
  static const char *const pieces[] = {"\"a", "%d\"", ":{\"b", "\":[1,", "\"x\",{", "}]},", NULL};
  size_t words = st_mask_words(st_token_trie_size(shared.trie));
  st_matcher *m[MATCHERS], *early[MATCHERS];
  uint32_t *bits[MATCHERS];
  setun_error err = {0};
  for (int i = 0; i < MATCHERS; i++) {
    st_constraint *c = NULL;
    assert_int_equal(compile_within(&limits[i], "{\"type\":\"object\"}", 0, NULL, &c, &err), SETUN_OK);
    assert_int_equal(st_matcher_new(c, &m[i], &err), SETUN_OK);
    st_constraint_release(c);
    bits[i] = malloc(words * sizeof *bits[i]);
    assert_int_equal(st_matcher_accept_bytes(m[i], "{\"early\":[{\"x\":", 15, &err), SETUN_OK);
    assert_int_equal(st_matcher_copy(m[i], &early[i], &err), SETUN_OK);
    assert_int_equal(st_matcher_accept_bytes(m[i], "1}],", 4, &err), SETUN_OK);
  }
  for (int member = 0; member < 40; member++) {
    for (const char *const *piece = pieces; *piece; piece++) {
      char text[32];
      int n = strcmp(*piece, "%d\"") ? snprintf(text, sizeof text, "%s", *piece)
                                     : snprintf(text, sizeof text, "%d\"", member);
      for (int i = 0; i < MATCHERS; i++) {
        if (st_matcher_accept_bytes(m[i], text, (size_t)n, &err)) fail_msg("%s: %s", text, err.message);
      }
      same_masks(m, bits, words);
    }
  }
  for (int i = 0; i < MATCHERS; i++) assert_int_equal(st_matcher_rollback(m[i], 204, &err), SETUN_OK);
  same_masks(m, bits, words);
  same_masks(early, bits, words);
  for (int i = 0; i < MATCHERS; i++) {
    assert_int_equal(st_matcher_accept_bytes(m[i], "\"early\"", 7, &err), SETUN_ERROR_ARGUMENT); // it is written
    assert_int_equal(st_matcher_accept_bytes(early[i], "2}]}", 4, &err), SETUN_OK);
    assert_true(st_matcher_may_end(early[i]));
    st_matcher_free(m[i]), st_matcher_free(early[i]), free(bits[i]);
  }
}

// What grows without bound is refused, or compiled within the limits; nothing crashes.
static void test_limits(void **state) {
  (void)state;
  st_buffer b = {0};
  for (int i = 0; i < 1000; i++) st_buffer_text(&b, "{\"not\":");
  st_buffer_text(&b, "true");
  for (int i = 0; i < 1000; i++) st_buffer_text(&b, "}");
  expect_limit(&b);
  // References that double at each step.
  st_buffer_text(&b, "{\"$ref\":\"#/$defs/a0\",\"$defs\":{");
  for (int i = 0; i < 60; i++) {
    st_buffer_format(&b, "\"a%d\":{\"allOf\":[{\"$ref\":\"#/$defs/a%d\"},{\"$ref\":\"#/$defs/a%d\"}]},", i, i + 1,
                     i + 1);
  }
  st_buffer_text(&b, "\"a60\":{\"type\":\"integer\"}}}");
  expect_limit(&b);
  // Alternatives that multiply: 2^24 intersections.
  st_buffer_text(&b, "{\"allOf\":[");
  for (int i = 0; i < 24; i++) {
    st_buffer_format(&b, "%s{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b%d\"]}]}", i ? "," : "", i, i);
  }
  st_buffer_text(&b, "]}");
  expect_limit(&b);
  st_buffer_text(&b, "{\"multipleOf\":19997,\"minimum\":0.00000000000000001,\"maximum\":1e300}");
  expect_limit(&b);
  st_buffer_text(&b, "{\"type\":\"array\",\"minItems\":4000000000,\"items\":{\"type\":\"null\"}}");
  expect_limit(&b);
  st_buffer_text(&b, "{\"maxLength\":4000000000,\"pattern\":\"(a|b)*a(a|b){30}\"}");
  expect_limit(&b);
  st_buffer_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_duplicate_keys), cmocka_unit_test(test_verdicts),        cmocka_unit_test(test_refused),
      cmocka_unit_test(test_samples),        cmocka_unit_test(test_order),           cmocka_unit_test(test_json),
      cmocka_unit_test(test_embedded),       cmocka_unit_test(test_limits),          cmocka_unit_test(test_places),
      cmocka_unit_test(test_union),          cmocka_unit_test(test_named_limits),    cmocka_unit_test(test_long_counts),
      cmocka_unit_test(test_exhausted),      cmocka_unit_test(test_ordered_minimum),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
