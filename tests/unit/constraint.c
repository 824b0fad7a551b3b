// Constraints: masks compared with trying every token, grammars of several kinds, objects and arrays, forced text,
// limits. Which texts are right is written down here by hand, or is what another implementation says
// (constraint_data.h).
#include "constraint/constraint.h"
#include "constraint/frontends.h"
#include "constraint_masks.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "base/random.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define TEXT(s) ((st_text){s, sizeof(s) - 1})

static setun_error err;
static st_tokenizer *tales;
static st_token_trie *trie;

static char *read_file(const char *path, size_t *n) {
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("%s is missing", path);
  fseek(f, 0, SEEK_END);
  *n = (size_t)ftell(f);
  rewind(f);
  char *text = malloc(*n + 1);
  assert_true(text && fread(text, 1, *n, f) == *n);
  fclose(f);
  return text;
}

static st_tokenizer *tokenizer_of_tales(void) {
  st_tokenizer *t;
  size_t n;
  char *json = read_file(SETUN_SOURCE_DIR "/models/setun-tales-7m/tokenizer.json", &n);
  assert_int_equal(st_tokenizer_from_json(json, n, "tokenizer.json", &t, &err), SETUN_OK);
  free(json);
  return t;
}

static int open_vocabulary(void **state) {
  (void)state;
  tales = tokenizer_of_tales();
  return st_token_trie_new(tales, &trie, &err);
}
static int close_vocabulary(void **state) {
  (void)state;
  st_token_trie_free(trie);
  st_tokenizer_free(tales);
  return 0;
}

static st_constraint *compiled(st_grammar *g) {
  return masks_compile(g, trie);
}
static st_constraint *gbnf(const char *text) {
  return masks_gbnf(text, tales, trie);
}
static st_constraint *lark(const char *text) {
  return masks_lark(text, tales, trie);
}
static st_constraint *expression(const char *text) {
  return masks_expression(text, trie);
}

// Is the whole text in the language? As one piece, and byte by byte.
static bool accepts(st_constraint *c, const char *text) {
  st_matcher *m;
  assert_int_equal(st_matcher_new(c, &m, &err), SETUN_OK);
  size_t n = strlen(text), i = 0;
  bool whole = !st_matcher_accept_bytes(m, text, n, &err) && st_matcher_may_end(m);
  st_matcher_reset(m);
  while (i < n && !st_matcher_accept_bytes(m, text + i, 1, &err)) i++;
  assert_int_equal(whole, i == n && st_matcher_may_end(m));
  st_matcher_free(m);
  return whole;
}

typedef struct {
  const char *text;
  bool accepted;
} verdict;
static void check_verdicts(st_constraint *c, const verdict *list, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (accepts(c, list[i].text) != list[i].accepted) fail_msg("%s: expected %d", list[i].text, list[i].accepted);
  }
  st_constraint_release(c);
}
#define VERDICTS(constraint, ...)                                                                                      \
  check_verdicts(constraint, (const verdict[]){__VA_ARGS__}, COUNT(((const verdict[]){__VA_ARGS__})))

// ---- masks ----

static void test_masks(void **state) {
  (void)state;
  check_all_masks(tales, trie, 1);
}

// ---- grammars ----

static void test_gbnf(void **state) {
  (void)state;
  VERDICTS(gbnf(ARITHMETIC), {"1=", true}, {"1+2*3-4=", true}, {"(1+(2))*3=", true}, {"(  1 \n)=", true},
           {"(   1)=", false}, {"1+=", false}, {"=", false}, {"1", false}, {"1=2", false}, {"(1=", false});
  VERDICTS(gbnf(C_SUBSET), {"", true}, {"int f(){}", true},
           {"int f(int a, char b){x = a + b * 3 < 2;return f(x, 1);}", true}, {"int f(int a,char b){}", false},
           {"int f(){while (a < b) {a = (a + 1);}}", true}, {"intf(){}", false});
  VERDICTS(gbnf("root ::= root \"a\" | \"\"\n"), {"", true}, {"aaaa", true}, {"ab", false});
  VERDICTS(gbnf("root ::= a\na ::= b \"x\" | \"p\"\nb ::= c \"y\"\nc ::= a \"z\" | \"q\"\n"), {"p", true},
           {"qyx", true}, {"pzyx", true}, {"qyxzyx", true}, {"qyxz", false}, {"yx", false});
  VERDICTS(gbnf("root ::= s\ns ::= s s | \"a\" |\n"), {"", true}, {"a", true}, {"aaaaaaaa", true}, {"aab", false});
  VERDICTS(gbnf("root ::= \"a\"{2,} \"b\"{ 0 , } \"c\"{1}"), {"aac", true}, {"aaaabbbc", true}, {"ac", false},
           {"aab", false});
  VERDICTS(gbnf("root ::= ( # a comment\n  \"x\" |\n  \"y\"){2,3}\n"), {"xy", true}, {"x", false}, {"xyxy", false});
  VERDICTS(gbnf("root ::= (\"x\" |\n \"y\"){2,3} [^a-c\\]] . \"\\u00e9\\x41\\U0001F600\"\n"),
           {"xyd \xC3\xA9"
            "A\xF0\x9F\x98\x80",
            true},
           {"xydd\xC3\xA9"
            "A",
            false},
           {"xx]\n\xC3\xA9"
            "A\xF0\x9F\x98\x80",
            false});
}

static void refuse_gbnf(const char *text, const char *message) {
  st_grammar *g = NULL;
  setun_status status = st_grammar_from_gbnf(text, strlen(text), "g.gbnf", NULL, NULL, &g, &err);
  st_constraint *c = NULL;
  if (!status) status = st_constraint_compile(g, trie, &c, &err);
  assert_int_not_equal(status, SETUN_OK);
  if (!strstr(err.message, message)) fail_msg("expected \"%s\" in: %s", message, err.message);
}

static void test_gbnf_refused(void **state) {
  (void)state;
  refuse_gbnf("root ::= x\n", "rule \"x\" is used but not defined");
  refuse_gbnf("x ::= \"a\"\n", "the rule \"root\" is missing");
  refuse_gbnf("root ::= \"a\n", "g.gbnf:2:1: expected \", found the end");
  refuse_gbnf("root ::= [b-a]\n", "ascending order");
  refuse_gbnf("root ::= \"a\" {3,2}\n", "ascending order");
  refuse_gbnf("root ::= \"a\"\nroot ::= \"b\"\n", "g.gbnf:2:1: expected a rule that is not defined already");
  refuse_gbnf("root ::= \"a\" )\n", "g.gbnf:1:14: expected a new line");
  refuse_gbnf("root ::= root\n", "no finite text matches the rule \"root\"");
  refuse_gbnf("root ::= \"\\q\"\n", "expected an escape");
  refuse_gbnf("root ::= <think>\n", "need a vocabulary");
  char *deep = malloc(5001 * 2 + 16);
  strcpy(deep, "root ::= ");
  memset(deep + 9, '(', 5000);
  strcpy(deep + 5009, "\n");
  refuse_gbnf(deep, "nested too deeply");
  free(deep);
}

static void test_lark(void **state) {
  (void)state;
  VERDICTS(lark("// arithmetic\n?start: sum\n?sum: product | sum \"+\" product -> add\n     | sum \"-\" product\n"
                "?product: atom | product \"*\" atom\n?atom: NUMBER | \"-\" atom | \"(\" sum \")\"\n"
                "%import common.NUMBER\n%import common.WS_INLINE\n%ignore WS_INLINE\n"),
           {"1", true}, {" 1 + 2*( 3 - -4.5e3 ) ", true}, {"1 +", false}, {"", false}, {"1\n", false});
  VERDICTS(lark("start: \"a\"i [B] C ~ 2 D~1..2 \"x\"..\"z\"*\nB: /b+/\nC: \"c\" | /k/i\nD: (\"d\"{2,3})\n"),
           {"accdd", true}, {"AbbKkdddddd", true}, {"acdd", false}, {"accddxyz", true}, {"accd", false});
  VERDICTS(lark("start: X\nX: /[a-z]+/ & ~(\"if\" | \"else\") & /.{2,4}/\n"), {"if", false}, {"iff", true},
           {"a", false}, {"elsee", false});
  VERDICTS(lark("start: ESCAPED_STRING C_COMMENT?\n%import common (ESCAPED_STRING, C_COMMENT)\n"), {"\"a\\\"b\"", true},
           {"\"a\"/* * / **/", true}, {"\"a\"/* */ */", false}, {"\"a", false});
  static const char *const refused[][2] = {{"start: a{b}\na: \"x\"\n", "templates"},
                                           {"start: A\nA.2: \"x\"\n", "priorities"},
                                           {"start: /(?<=a)b/\n", "look-behind"},
                                           {"start: A\nA: B\nB: A\n", "refer to itself"},
                                           {"start: x\n", "t:1:8: expected a name that is defined"},
                                           {"%declare A\nstart: A\n", "the only supported directives"},
                                           {"a: \"x\"\n", "\"start\" is missing"}};
  for (size_t i = 0; i < COUNT(refused); i++) {
    st_grammar *g;
    assert_int_not_equal(st_grammar_from_lark(refused[i][0], strlen(refused[i][0]), "t", NULL, NULL, &g, &err),
                         SETUN_OK);
    if (!strstr(err.message, refused[i][1])) fail_msg("expected \"%s\" in: %s", refused[i][1], err.message);
  }
}

// ---- grammars of well-known kinds ----

static void test_arithmetic(void **state) {
  (void)state;
  VERDICTS(gbnf("root ::= (sum \"=\" blank number \"\\n\")+\nsum ::= product ([-+] blank product)*\n"
                "product ::= value ([*/] blank value)*\nvalue ::= number | name | \"(\" blank sum \")\" blank\n"
                "number ::= [0-9]+ blank\nname ::= [a-z] [a-z0-9_]* blank\nblank ::= [ \\t]*\n"),
           {"1 + 2*(x3 - 4) = 5\n", true}, {"1=1\n2=2\n", true}, {"1+=2\n", false}, {"(1=1\n", false}, {"1 = 1", false},
           {"", false});
}

static void test_lists(void **state) {
  (void)state;
  VERDICTS(gbnf("root ::= line{2,3}\nline ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"\n"),
           {"- a\n- \xC3\xA9 b\n", true}, {"- a\n", false}, {"- a\n- b\n- c\n", true}, {"- a\n- b\n- c\n- d\n", false},
           {"- \n- b\n", false}, {"- a\xE2\x80\xA8\n- b\n", false});
}

static void test_c(void **state) {
  (void)state;
  VERDICTS(
      gbnf("root ::= (function)*\nfunction ::= type name \"(\" (type name (\",\" s type name)*)? \")\" s block\n"
           "type ::= (\"int\" | \"void\") blank | \"char\" s \"*\" s\nblock ::= \"{\" s statement* \"}\" s\n"
           "statement ::= block | \"return\" (blank value)? \";\" s | \"if\" s \"(\" s value \")\" s statement "
           "(\"else\" blank statement)? | value \";\" s | type name (\"=\" s value)? \";\" s\n"
           "value ::= term ((\"+\" | \"<\" | \"==\" | \"=\") s term)*\n"
           "term ::= name (\"(\" s (value (\",\" s value)*)? \")\" s)? | [0-9]+ s | \"(\" s value \")\" s | string s\n"
           "string ::= \"\\\"\" ([^\"\\\\\\n] | \"\\\\\" [n\"\\\\])* \"\\\"\"\n"
           "name ::= [a-zA-Z_] [a-zA-Z0-9_]* s\nblank ::= [ \\t\\n]+\ns ::= [ \\t\\n]*\n"),
      {"int f(int a, char *b) { if (a < 1) return g(b, \"x\\n\"); else { a = a + 1; } return a; }", true},
      {"void f() {}\nint g() { int x = (1 + 2); }", true}, {"int f( { }", false}, {"int f() { return 1 }", false},
      {"int f() { \"a; }", false});
}

static void test_left_recursion(void **state) {
  (void)state;
  VERDICTS(gbnf("root ::= root \"+\" product | product\nproduct ::= product \"*\" value | value\n"
                "value ::= call | \"(\" root \")\" | [0-9]+\ncall ::= value \"[\" root \"]\" | [a-z]\n"), // one through
                                                                                                          // another
           {"1+2*3+(4)", true}, {"a[1][b+2]*3", true}, {"(1)[2]", true}, {"1+", false}, {"[1]", false}, {"a[", false});
}

// ---- tokens, ends ----

static int32_t end_token(void) {
  for (int32_t i = 0; i < (int32_t)st_token_trie_size(trie); i++) {
    if (st_tokenizer_is_end(tales, i)) return i;
  }
  fail_msg("the vocabulary has no end");
  return -1;
}
static int32_t token_of(const char *text) {
  st_token_list ids = {0};
  assert_int_equal(st_tokenizer_encode(tales, text, strlen(text), false, &ids, &err), SETUN_OK);
  assert_int_equal(ids.length, 1);
  int32_t id = ids.ids[0];
  st_token_list_free(&ids);
  return id;
}

static void test_special_tokens(void **state) {
  (void)state;
  int32_t end = end_token();
  char text[128];
  snprintf(text, sizeof text, "root ::= \"a\" <[%d]> \"b\" !<[%d]>\n", (int)end, (int)end);
  st_constraint *c = gbnf(text);
  st_matcher *m;
  assert_int_equal(st_matcher_new(c, &m, &err), SETUN_OK);
  assert_false(st_matcher_allows(m, end));
  assert_int_equal(st_matcher_accept_bytes(m, "a", 1, &err), SETUN_OK);
  assert_false(st_matcher_may_end(m));
  assert_true(st_matcher_allows(m, end)); // named by the grammar, and not an end here
  assert_int_equal(st_matcher_accept(m, end, &err), SETUN_OK);
  assert_int_equal(st_matcher_accept_bytes(m, "b", 1, &err), SETUN_OK);
  assert_false(st_matcher_allows(m, end));
  int32_t a = token_of("a");
  assert_int_equal(st_matcher_accept(m, a, &err), SETUN_OK);
  assert_true(st_matcher_may_end(m) && st_matcher_must_end(m));
  assert_int_equal(st_matcher_accept(m, end, &err), SETUN_OK);
  assert_int_equal(st_matcher_accept(m, a, &err), SETUN_ERROR_STATE);
  st_matcher_free(m);
  st_constraint_release(c);
}

// Of several end tokens each may end a finished text, and none an unfinished one; one that the grammar names is text
// there.
static void test_several_ends(void **state) {
  (void)state;
  enum { BEGIN, END };
  st_tokenizer *t = tokenizer_of_tales();
  st_token_trie *own;
  assert_true(st_tokenizer_is_end(t, END) && !st_tokenizer_is_end(t, BEGIN));
  assert_int_equal(st_tokenizer_add_end(t, BEGIN, &err), SETUN_OK);
  assert_int_equal(st_token_trie_new(t, &own, &err), SETUN_OK);
  size_t words = st_mask_words(st_token_trie_size(own));
  uint32_t *bits = malloc(words * sizeof *bits);
  static const struct {
    const char *grammar, *text;
    bool begin, end;
  } cases[] = {
      {"root ::= [0-9]+ \".\"\n", "", false, false},      {"root ::= [0-9]+ \".\"\n", "12", false, false},
      {"root ::= [0-9]+ \".\"\n", "12.", true, true},     {"root ::= [0-9]+\n", "12", true, true},
      {"root ::= \"a\" <[0]> \"b\"\n", "a", true, false},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    st_constraint *c = masks_gbnf(cases[i].grammar, t, own);
    for (int32_t id = BEGIN; id <= END; id++) {
      bool want = id == BEGIN ? cases[i].begin : cases[i].end;
      st_matcher *m;
      assert_int_equal(st_matcher_new(c, &m, &err), SETUN_OK);
      assert_int_equal(st_matcher_accept_bytes(m, cases[i].text, strlen(cases[i].text), &err), SETUN_OK);
      assert_int_equal(st_matcher_mask(m, bits, words, &err), SETUN_OK);
      assert_int_equal(has(bits, (uint32_t)id), want);
      assert_int_equal(st_matcher_accept(m, id, &err), want ? SETUN_OK : SETUN_ERROR_ARGUMENT);
      if (want && cases[i].end) assert_int_equal(st_matcher_accept(m, token_of("3"), &err), SETUN_ERROR_STATE);
      st_matcher_free(m);
    }
    st_constraint_release(c);
  }
  free(bits);
  st_token_trie_free(own);
  st_tokenizer_free(t);
}

// A text that may end may also continue: [0-9]+; and the text of a control token does not match.
static void test_complete_is_not_finished(void **state) {
  (void)state;
  st_constraint *c = expression("[0-9]+|.*!");
  st_matcher *m;
  assert_int_equal(st_matcher_new(c, &m, &err), SETUN_OK);
  assert_int_equal(st_matcher_accept_bytes(m, "12", 2, &err), SETUN_OK);
  assert_true(st_matcher_may_end(m));
  assert_false(st_matcher_must_end(m));
  size_t words = st_mask_words(st_token_trie_size(trie));
  uint32_t *bits = malloc(words * sizeof *bits);
  assert_int_equal(st_matcher_mask(m, bits, words, &err), SETUN_OK);
  int32_t end = end_token();
  assert_true(has(bits, (uint32_t)end));
  assert_true(has(bits, (uint32_t)token_of("3")));
  assert_int_equal(st_matcher_accept_bytes(m, "x", 1, &err), SETUN_OK);
  assert_int_equal(st_matcher_mask(m, bits, words, &err), SETUN_OK);
  assert_false(has(bits, (uint32_t)end)); // though .* would match its text
  free(bits);
  st_matcher_free(m);
  st_constraint_release(c);
}

static void test_partial_utf8(void **state) {
  (void)state;
  st_constraint *c = expression("[\xC3\xA9\xE2\x82\xAC]{2}");
  st_matcher *m, *fork;
  assert_int_equal(st_matcher_new(c, &m, &err), SETUN_OK);
  assert_int_equal(st_matcher_accept_bytes(m, "\xE2\x82", 2, &err), SETUN_OK);
  assert_int_equal(st_matcher_copy(m, &fork, &err), SETUN_OK);
  assert_int_equal(st_matcher_accept_bytes(m, "\xA9", 1, &err), SETUN_ERROR_ARGUMENT);
  assert_int_equal(st_matcher_accept_bytes(m, "\xAC\xC3", 2, &err), SETUN_OK);
  assert_false(st_matcher_may_end(m));
  assert_int_equal(st_matcher_accept_bytes(m, "\xA9", 1, &err), SETUN_OK);
  assert_true(st_matcher_must_end(m));
  assert_int_equal(st_matcher_rollback(m, 2, &err), SETUN_OK);
  assert_int_equal(st_matcher_accepted(m), 1);
  assert_int_equal(st_matcher_accept_bytes(m, "\xAC\xE2", 2, &err), SETUN_OK);
  assert_int_equal(st_matcher_accept_bytes(fork, "\xAC\xC3\xA9", 3, &err), SETUN_OK);
  assert_true(st_matcher_must_end(fork));
  assert_int_equal(st_matcher_rollback(m, 3, &err), SETUN_ERROR_ARGUMENT);
  st_matcher_free(m);
  st_matcher_free(fork);
  st_constraint_release(c);
}

// ---- objects and arrays ----

// An object with name (text), age (number), tags (an array of unique values), a forbidden key, and any others.
static st_constraint *person(bool ordered, uint32_t space) {
  st_grammar *g;
  assert_int_equal(st_grammar_new(NULL, &g, &err), SETUN_OK);
  st_terms *t = st_grammar_terms(g);
  static const char NUMBER[] = "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][-+]?[0-9]+)?";
  st_term number, string = st_term_quoted(t, st_term_any_text(t, ST_JSON));
  assert_int_equal(st_expression_term(t, NUMBER, sizeof NUMBER - 1, false, ST_PLAIN, &number, &err), SETUN_OK);
  st_rule value = st_grammar_rule(g, "value", 5);
  st_value_choice any = {st_node_rule(g, value), 0}, text = {st_node_term(g, string), 0},
                  age = {st_node_term(g, number), 0};
  st_key_class others = {st_term_any_text(t, ST_JSON), &any, 1};
  st_node scalars = st_node_term(g, st_term_alt2(t, number, st_term_alt2(t, string, st_term_text(t, "true", 4))));
  st_node values[] = {scalars,
                      st_node_object(g, &(st_grammar_object){.classes = &others, .n_classes = 1, .max = ST_UNBOUNDED}),
                      st_node_array(g, &(st_grammar_array){.rest = {&any, 1}, .max = ST_UNBOUNDED})};
  st_grammar_define(g, value, st_node_alt(g, values, 3));
  st_value_choice tags = {st_node_array(g, &(st_grammar_array){.rest = {&any, 1}, .max = 5, .unique = true}), 0};
  st_property properties[] = {{TEXT("name"), true, &text, 1},
                              {TEXT("n\"\xC3\xA9"), false, &age, 1},
                              {TEXT("age"), true, &age, 1},
                              {TEXT("tags"), false, &tags, 1},
                              {TEXT("never"), false, NULL, 0}};
  st_dependency needs = {3, 1}; // tags need n"e
  st_grammar_object shape = {.properties = properties,
                             .n_properties = 5,
                             .classes = &others,
                             .n_classes = 1,
                             .dependencies = &needs,
                             .n_dependencies = ordered ? 0 : 1,
                             .min = 2,
                             .max = 5,
                             .ordered = ordered};
  st_term blank = st_term_json_space(t, space);
  st_grammar_set_space(g, blank, blank);
  st_grammar_set_root(g, st_node_object(g, &shape));
  return compiled(g);
}

static void test_objects(void **state) {
  (void)state;
  VERDICTS(person(false, 2), {"{\"name\":\"x\",\"age\":1}", true},
           {"{ \"age\" : 1.5e3,\n \"name\": \"\\u00e9\" }", true},
           {"{   \"age\":1,\"name\":\"x\"}", false},                         // three spaces
           {"{\"name\":\"x\"}", false}, {"{}", false},                       // age is required
           {"{\"name\":\"x\",\"age\":1,\"name\":\"y\"}", false},             // twice
           {"{\"name\":\"x\",\"age\":1,\"\\u006eame\":\"y\"}", false},       // twice, when decoded
           {"{\"name\":\"x\",\"age\":1,\"z\":1,\"\\u007A\":2}", false},      // the same of another key
           {"{\"name\":\"x\",\"age\":1,\"z\":[1,{\"z\":1}],\"y\":2}", true}, // keys of inner objects are others
           {"{\"name\":\"x\",\"age\":1,\"never\":1}", false}, {"{\"name\":\"x\",\"age\":1,\"neve\":1}", true},
           {"{\"n\\\"\xC3\xA9\":3,\"name\":\"x\",\"age\":1}", true},
           {"{\"n\\u0022\\u00E9\":3,\"name\":\"x\",\"age\":1}", true},
           {"{\"name\":\"x\",\"age\":1,\"tags\":[]}", false}, // without what it needs
           {"{\"tags\":[],\"n\\\"\xC3\xA9\":1,\"name\":\"x\",\"age\":1}", true},
           {"{\"a\":1,\"b\":2,\"c\":3,\"name\":\"x\",\"age\":1}", true},
           {"{\"a\":1,\"b\":2,\"c\":3,\"d\":4", false}, // no room is left for the required ones
           {"{\"a\":1,\"tags\":[],\"b\":2", false}, {"{\"name\":\"x\",\"age\":1,}", false},
           {"{\"name\":\"\t\",\"age\":1}", false});
  VERDICTS(person(true, 0), {"{\"name\":\"x\",\"age\":1,\"tags\":[],\"z\":1}", true},
           {"{\"age\":1,\"name\":\"x\"}", false}, {"{\"name\":\"x\",\"z\":1", false},
           {"{\"name\":\"x\",\"n\\\"\xC3\xA9\":2,\"age\":1}", true},
           {"{\"name\":\"x\",\"age\":1,\"z\":1,\"tags\":[]", false}, {"{\"name\":\"x\", \"age\":1}", false});
}

static void test_unique_items(void **state) {
  (void)state;
#define TAGS(list) "{\"name\":\"x\",\"age\":1,\"n\\\"\xC3\xA9\":1,\"tags\":[" list "]}"
  VERDICTS(person(false, 1), {TAGS("1,2,3"), true}, {TAGS("1,1"), false}, {TAGS("1,1.0"), false},
           {TAGS("10,1e1"), false}, {TAGS("1e1,10"), false}, {TAGS("1E1,10.0"), false}, {TAGS("1e1,10e0"), false},
           {TAGS("0e3,0"), false}, {TAGS("0,-0.0E-1"), false}, {TAGS("1e1,1e2,1"), true}, {TAGS("1.50,1.5"), false},
           {TAGS("0,-0"), false}, {TAGS("1,10,100"), true}, {TAGS("1,\"1\",true"), true}, {TAGS("true,true"), false},
           {TAGS("\"a\",\"\\u0061\""), false}, {TAGS("\"a\",\"ab\",\"\""), true},
           {TAGS("{\"a\":1,\"b\":[2]},{\"b\":[2.0],\"a\":1}"), false}, {TAGS("{\"a\":1},{\"a\":2}"), true},
           {TAGS("[1,2],[2,1]"), true}, {TAGS("[1, 2],[1,2]"), false}, {TAGS("[],[[]]"), true},
           {TAGS("1,2,3,4,5"), true}, {TAGS("1,2,3,4,5,6"), false});
}

// Counters: at least one item that is a number, at most two; and two positions with schemas of their own.
static void test_counters(void **state) {
  (void)state;
  st_grammar *g;
  assert_int_equal(st_grammar_new(NULL, &g, &err), SETUN_OK);
  st_terms *t = st_grammar_terms(g);
  st_node a = st_node_term(g, st_term_text(t, "a", 1)), n = st_node_term(g, st_term_text(t, "1", 1));
  st_value_choice rest[] = {{a, 0}, {n, 1}}, first = {n, 1};
  st_grammar_item prefix[] = {{rest, 2}, {&first, 1}};
  st_counter counter = {2, 3};
  st_grammar_array shape = {
      .prefix = prefix, .n_prefix = 2, .rest = {rest, 2}, .counters = &counter, .n_counters = 1, .min = 1, .max = 5};
  st_grammar_set_root(g, st_node_array(g, &shape));
  VERDICTS(compiled(g), {"[]", false}, {"[1]", false}, {"[1,1]", true}, {"[a,1]", false}, {"[a,1,a,a,1]", true},
           {"[a,1,a,a,a", false}, {"[a,a", false}, {"[1,1,1]", true}, {"[1,1,1,1", false}, {"[1,1,a,a,a]", true},
           {"[1,1,a,a,a,a", false});
}

// ---- forced text ----

static void test_forced(void **state) {
  (void)state;
  st_constraint *c = expression("The answer is: (yes|yet)[.]? Good bye");
  st_matcher *m;
  st_token_list ids = {0};
  assert_int_equal(st_matcher_new(c, &m, &err), SETUN_OK);
  assert_int_equal(st_matcher_forced_tokens(m, &ids, &err), SETUN_OK);
  assert_true(ids.length > 2);
  st_token_list whole = {0}; // they are the first tokens of the finished texts
  for (int i = 0; i < 2; i++) {
    const char *finished = i ? "The answer is: yet Good bye" : "The answer is: yes. Good bye";
    whole.length = 0;
    assert_int_equal(st_tokenizer_encode(tales, finished, strlen(finished), false, &whole, &err), SETUN_OK);
    assert_memory_equal(ids.ids, whole.ids, ids.length * sizeof *ids.ids);
  }
  for (size_t i = 0; i < ids.length; i++) assert_int_equal(st_matcher_accept(m, ids.ids[i], &err), SETUN_OK);
  assert_int_equal(st_matcher_rollback(m, ids.length, &err), SETUN_OK);
  assert_int_equal(st_matcher_accept_bytes(m, "The answer is: yes", 18, &err), SETUN_OK);
  ids.length = 0;
  assert_int_equal(st_matcher_forced_tokens(m, &ids, &err), SETUN_OK);
  assert_int_equal(ids.length, 0);
  assert_int_equal(st_matcher_accept_bytes(m, ".", 1, &err), SETUN_OK);
  assert_int_equal(st_matcher_forced_tokens(m, &ids, &err), SETUN_OK); // up to the end: no token can cross it
  for (size_t i = 0; i < ids.length; i++) assert_int_equal(st_matcher_accept(m, ids.ids[i], &err), SETUN_OK);
  assert_true(st_matcher_must_end(m));
  st_token_list_free(&ids);
  st_token_list_free(&whole);
  st_matcher_free(m);
  st_constraint_release(c);
}

// ---- limits ----

static void test_hard_expressions(void **state) {
  (void)state;
  VERDICTS(expression("(a|b)*a(a|b){12}"), {"abbbbbbbbbbbb", true}, {"bbbbbbbbbbbbb", false},
           {"babababababababababab", false}, {"abababababababababab", false}, {"bababababababababababb", true});
  VERDICTS(expression("[a-z]{1,1000}"), {"abc", true}, {"", false});
  VERDICTS(expression("(x{0,1000000}){0,1000000}y"), {"xxxxxy", true}, {"y", true});
  st_constraint *c = expression("[a-z]{1,1000}");
  st_matcher *m;
  char text[1002];
  memset(text, 'a', sizeof text);
  assert_int_equal(st_matcher_new(c, &m, &err), SETUN_OK);
  assert_int_equal(st_matcher_accept_bytes(m, text, 1000, &err), SETUN_OK);
  assert_true(st_matcher_must_end(m));
  st_matcher_reset(m);
  assert_int_equal(st_matcher_accept_bytes(m, text, 1001, &err), SETUN_ERROR_ARGUMENT);
  st_matcher_free(m);
  st_constraint_release(c);
}

static void test_limits(void **state) {
  (void)state;
  st_grammar *g;
  st_constraint *c;
  st_matcher *m;
  const char *text = "(a|b)*a(a|b){12}";
  st_constraint_limits limits = {.max_states = 60};
  assert_int_equal(st_grammar_from_expression(text, strlen(text), &limits, &g, &err), SETUN_OK);
  assert_int_equal(st_constraint_compile(g, trie, &c, &err), SETUN_OK);
  assert_int_equal(st_matcher_new(c, &m, &err), SETUN_OK);
  setun_status status = SETUN_OK;
  for (int i = 0; i < 40 && !status; i++) status = st_matcher_accept_bytes(m, i * i % 3 ? "a" : "b", 1, &err);
  assert_int_equal(status, SETUN_ERROR_LIMIT);
  assert_non_null(strstr(err.message, "60 states"));
  st_matcher_free(m);
  st_constraint_release(c);
  const char *ambiguous = "root ::= root root | \"a\" root | root \"a\" | \"a\"\n";
  limits = (st_constraint_limits){.max_configs = 50, .max_stacks = 5000};
  assert_int_equal(st_grammar_from_gbnf(ambiguous, strlen(ambiguous), "t", NULL, &limits, &g, &err), SETUN_OK);
  assert_int_equal(st_constraint_compile(g, trie, &c, &err), SETUN_OK);
  assert_int_equal(st_matcher_new(c, &m, &err), SETUN_OK);
  status = SETUN_OK;
  for (int i = 0; i < 200 && !status; i++) status = st_matcher_accept_bytes(m, "a", 1, &err);
  assert_int_equal(status, SETUN_ERROR_LIMIT);
  st_matcher_free(m);
  st_constraint_release(c);
}

// A text that the vocabulary cannot continue is an error that names the place.
static void test_no_token(void **state) {
  (void)state;
  st_constraint *c = gbnf("root ::= \"once\" <[1]>\n");
  st_matcher *m;
  assert_int_equal(st_matcher_new(c, &m, &err), SETUN_OK);
  uint32_t word;
  assert_int_equal(st_matcher_mask(m, &word, 1, &err), SETUN_ERROR_ARGUMENT);
  st_matcher_free(m);
  st_constraint_release(c);
}

// ---- threads ----

static void *sample(void *shared) {
  st_constraint *c = shared;
  size_t words = st_mask_words(st_token_trie_size(trie));
  uint32_t *bits = malloc(words * sizeof *bits);
  uint64_t sum = 0;
  st_random r;
  st_random_seed(&r, 3); // the same in all threads, so their results must be too
  st_matcher *m;
  setun_error own;
  if (st_matcher_new(c, &m, &own)) return free(bits), NULL;
  for (int step = 0; step < 30; step++) {
    if (st_matcher_mask(m, bits, words, &own)) break;
    uint32_t count = 0, token = 0;
    for (uint32_t i = 0; i < st_token_trie_size(trie); i++) count += has(bits, i), sum = sum * 31 + has(bits, i);
    for (uint64_t pick = st_random_u64(&r) % count; !has(bits, token) || pick--;) token++;
    if (st_matcher_accept(m, (int32_t)token, &own) || st_tokenizer_is_end(tales, (int32_t)token)) break;
  }
  st_matcher_free(m);
  free(bits);
  return (void *)(uintptr_t)(sum | 1);
}

static void test_threads(void **state) {
  (void)state;
  st_constraint *c = gbnf(JSON);
  pthread_t threads[4];
  void *results[4];
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, sample, c), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], &results[i]);
  for (int i = 0; i < 4; i++) assert_ptr_equal(results[i], results[0]);
  assert_non_null(results[0]);
  assert_true(st_constraint_bytes(c) > 1000);
  st_constraint_release(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_masks),          cmocka_unit_test(test_gbnf),
      cmocka_unit_test(test_gbnf_refused),   cmocka_unit_test(test_lark),
      cmocka_unit_test(test_special_tokens), cmocka_unit_test(test_complete_is_not_finished),
      cmocka_unit_test(test_partial_utf8),   cmocka_unit_test(test_objects),
      cmocka_unit_test(test_unique_items),   cmocka_unit_test(test_counters),
      cmocka_unit_test(test_forced),         cmocka_unit_test(test_hard_expressions),
      cmocka_unit_test(test_limits),         cmocka_unit_test(test_no_token),
      cmocka_unit_test(test_threads),        cmocka_unit_test(test_arithmetic),
      cmocka_unit_test(test_lists),          cmocka_unit_test(test_c),
      cmocka_unit_test(test_left_recursion), cmocka_unit_test(test_several_ends),
  };
  return cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
}
