// Required calls in every format: answers of random tokens that the constraint allows are read back by the same row of
// the table, whatever pieces they arrive in, as calls whose arguments are values of the tool's schema.
//
// usage: answer_calls [--print ANSWERS [MODEL]]
// With --print, that many answers a format and tool, and their calls on standard output, for tools/check_calls.py:
// {"format", "name", "arguments"}, after a first line with the tools. MODEL is a file whose vocabulary is used.
#include "answer_texts.h"
#include "base/file.h"
#include "base/memory.h"
#include "constraint/schema.h"
#include "runtime/vocabulary.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct {
  char *json; // of the vocabulary
  size_t length;
  st_tokenizer *tokenizer; // of the format under test
  st_token_trie *trie;
  st_json *tools;
  int answers; // to print; 0: none
  const char *model;
} shared;

// A template with the hints of each format, and the control tokens of its family.
typedef struct format_row {
  const char *name, *template_text, *control[8];
} format_row;
static const format_row rows[] = {
    {"harmony", "<|channel|>commentary to=", {"<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>"}},
    {"deepseek-v3.2", "'｜DSML｜' + 'function_calls>' + 'invoke name='", {0}},
    {"deepseek-v4", "'｜DSML｜' + 'tool_calls>' + 'invoke name='", {0}},
    {"deepseek-r1",
     "<｜tool▁calls▁begin｜> ```json",
     {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
      "<｜tool▁calls▁end｜>"}},
    {"deepseek-v3.1",
     "<｜tool▁calls▁begin｜>",
     {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
      "<｜tool▁calls▁end｜>"}},
    {"mistral-args", "[TOOL_CALLS] [ARGS]", {"[TOOL_CALLS]", "[ARGS]"}},
    {"mistral-list", "[TOOL_CALLS][", {"[TOOL_CALLS]"}},
    {"gemma", "<|tool_call>call:", {"<|tool_call>", "<tool_call|>", "<|\"|>", "<|tool_response>"}},
    {"functiongemma", "<start_function_call>", {"<start_function_call>", "<end_function_call>", "<escape>"}},
    {"qwen3-coder", "<tool_call> <function= <parameter=", {"<tool_call>", "</tool_call>"}},
    {"minimax", "minimax:tool_call <invoke name= <parameter name=", {"<minimax:tool_call>", "</minimax:tool_call>"}},
    {"glm-4.7",
     "<tool_call>{function-name}<arg_key>",
     {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<|observation|>"}},
    {"glm",
     "<tool_call> <arg_key> <arg_value>",
     {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<|observation|>"}},
    {"granite-3", "<|tool_call|> followed by a JSON list", {"<|tool_call|>"}},
    {"phi", "<|tool|> <|/tool|>", {"<|tool_call|>", "<|/tool_call|>"}},
    {"hunyuan", "<tool_calls>", {"<tool_calls>", "</tool_calls>"}},
    {"hermes", "<tool_call>", {"<tool_call>", "</tool_call>"}},
    {"llama-3", "ipython \"parameters\"", {"<|python_tag|>"}},
    {"described", "<|im_start|>", {0}},
};
enum { ROWS = sizeof rows / sizeof *rows };

// Names, keys and values of all kinds, those with marks of the formats in them too.
static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather-2.0\",\"strict\":true,\"parameters\":{\"type\":"
    "\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"maxLength\":12},\"days\":{\"type\":\"integer\","
    "\"minimum\":-3,\"maximum\":14},\"detail\":{\"type\":\"boolean\"},\"price\":{\"type\":\"number\",\"minimum\":0,"
    "\"maximum\":20,\"multipleOf\":0.25},\"units\":{\"enum\":[\"°C\",\"</parameter>\",\"12\",\"a\\nb\",12,null]},"
    "\"code\":{\"type\":\"string\",\"pattern\":\"^[0-9]{2}\\\"[<>\\\\n]?$\"},\"maybe\":{\"type\":[\"string\","
    "\"null\",\"integer\"],\"maxLength\":6,\"maximum\":99,\"minimum\":0}},\"required\":[\"city\",\"days\"],"
    "\"additionalProperties\":false}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"nested\",\"strict\":true,\"parameters\":{\"$ref\":\"#/$defs/"
    "args\",\"$defs\":{\"args\":{\"type\":\"object\",\"properties\":{\"list\":{\"type\":\"array\",\"items\":{"
    "\"anyOf\":[{\"type\":\"string\",\"maxLength\":14},{\"type\":\"boolean\"},{\"$ref\":\"#/$defs/place\"}]},"
    "\"minItems\":1,\"maxItems\":3},\"größe 城\":{\"$ref\":\"#/$defs/place\"},\"s\":{\"type\":\"string\","
    "\"minLength\":1,\"maxLength\":9,\"not\":{\"pattern\":\"^ \"}}},\"required\":[\"list\"],"
    "\"additionalProperties\":false},\"place\":{\"type\":\"object\",\"properties\":{\"x\":{\"const\":1.5},\"tag\":{"
    "\"const\":\"</arg_value><|\\\\\\\"|>}\"},\"deep\":{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"},{"
    "\"type\":\"string\",\"format\":\"date\"}],\"minItems\":2,\"items\":false}},\"additionalProperties\":false,"
    "\"minProperties\":1}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"none\",\"strict\":true,\"parameters\":{\"type\":\"object\","
    "\"properties\":{},\"additionalProperties\":false}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"one_of_two\",\"strict\":true,\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":4},\"b\":{\"type\":\"integer\",\"minimum\":0,"
    "\"maximum\":9},\"c\":{\"type\":\"null\"}},\"minProperties\":1,\"maxProperties\":2,\"additionalProperties\":"
    "false}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"untyped\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"any\":{},\"x\":{\"type\":\"object\",\"maxProperties\":2,\"additionalProperties\":{\"type\":\"string\","
    "\"maxLength\":3}}}}}},{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]";

static void print_call(const format_row *row, const st_buffer *name, const st_buffer *arguments) {
  json_t *line = json_pack("{ss, ss%, ss%}", "format", row->name, "name", name->data, name->length, "arguments",
                           arguments->data, arguments->length);
  assert_non_null(line);
  json_dumpf(line, stdout, JSON_COMPACT);
  putchar('\n');
  json_decref(line);
}

static int set_up(void **state) {
  (void)state;
  setun_error err;
  static const char path[] = SETUN_SOURCE_DIR "/models/setun-tales-7m/tokenizer.json";
  if (st_file_load(path, 1 << 26, &shared.json, &shared.length, &err)) fail_msg("%s", err.message);
  if (st_json_parse_any(tools_text, sizeof tools_text - 1, "tools", &shared.tools, &err)) fail_msg("%s", err.message);
  return 0;
}

static void close_vocabulary(void) {
  st_token_trie_free(shared.trie);
  st_tokenizer_free(shared.tokenizer);
  shared.trie = NULL;
  shared.tokenizer = NULL;
}

static int tear_down(void **state) {
  (void)state;
  close_vocabulary();
  st_json_free(shared.tools);
  st_free(shared.json);
  return 0;
}

// The tales model's vocabulary, with the row's control tokens behind it where `control` says so.
static void open_vocabulary(const format_row *row, bool control) {
  setun_error err;
  close_vocabulary();
  if (shared.model) {
    st_directory *d = NULL;
    if (st_directory_open(shared.model, NULL, &d, &err) || st_vocabulary_load(d, NULL, NULL, &shared.tokenizer, &err) ||
        st_token_trie_new(shared.tokenizer, &shared.trie, &err))
      fail_msg("%s", err.message);
    st_directory_free(d);
    return;
  }
  json_t *root = json_loadb(shared.json, shared.length, 0, NULL);
  json_t *added = json_object_get(root, "added_tokens");
  json_int_t id = (json_int_t)json_object_size(json_object_get(json_object_get(root, "model"), "vocab"));
  for (size_t i = 0; control && i < 8 && row->control[i]; i++) {
    json_t *one = json_deep_copy(json_array_get(added, 0));
    json_object_set_new(one, "content", json_string(row->control[i]));
    json_object_set_new(one, "id", json_integer(id++));
    json_array_append_new(added, one);
  }
  char *text = json_dumps(root, JSON_COMPACT);
  json_decref(root);
  if (st_tokenizer_from_json(text, strlen(text), "tokenizer.json", &shared.tokenizer, &err) ||
      st_token_trie_new(shared.tokenizer, &shared.trie, &err))
    fail_msg("%s", err.message);
  free(text);
}

static st_constraint *required(const format_row *row, const char *only, bool one) {
  setun_error err;
  st_grammar *g;
  st_constraint *c = NULL;
  st_node node = ST_NODE_EMPTY;
  st_text text = {row->template_text, strlen(row->template_text)};
  st_answer_place place = {shared.tokenizer, st_tool_format_of(text.data, text.length), text, {"", 0}};
  st_answer_calls calls = {shared.tools, only, one};
  assert_string_equal(place.format->name, row->name);
  assert_int_equal(st_grammar_new(NULL, &g, &err), SETUN_OK);
  st_grammar_set_space(g, ST_TERM_EPSILON, st_term_text(st_grammar_terms(g), " ", 1));
  if (st_answer_calls_node(g, &place, &calls, &node, &err)) fail_msg("%s: %s", row->name, err.message);
  st_grammar_set_root(g, node);
  if (st_constraint_compile(g, shared.trie, &c, &err)) fail_msg("%s: %s", row->name, err.message);
  return c;
}

// ---- the values of a tool's schema ----

static const st_json *parameters_of(const char *tool) {
  return st_json_get(st_tool_function(shared.tools, (st_text){tool, strlen(tool)}), "parameters");
}

static void check_arguments(const format_row *row, const char *tool, const st_buffer *arguments) {
  setun_error err;
  st_grammar *g;
  st_constraint *c = NULL;
  st_matcher *m = NULL;
  st_buffer schema = {0};
  json_t *value = json_loadb(arguments->data, arguments->length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
  if (!json_is_object(value)) fail_msg("%s, %s: not an object: %s", row->name, tool, arguments->data);
  json_decref(value);
  if (!parameters_of(tool)) return;
  assert_true(st_json_append_shortest(parameters_of(tool), &schema));
  if (st_grammar_from_schema(schema.data, schema.length, NULL, NULL, &g, &err)) fail_msg("%s", err.message);
  st_term space = st_term_json_space(st_grammar_terms(g), 8);
  st_grammar_set_space(g, space, space);
  if (st_constraint_compile(g, shared.trie, &c, &err) || st_matcher_new(c, &m, &err)) fail_msg("%s", err.message);
  if (st_matcher_accept_bytes(m, arguments->data, arguments->length, &err) || !st_matcher_may_end(m))
    fail_msg("%s, %s: not a value of the schema: %s", row->name, tool, arguments->data);
  st_matcher_free(m);
  st_constraint_release(c);
  st_buffer_free(&schema);
}

// ---- reading in pieces ----

static void read_pieces(const format_row *row, const answer_text *a, size_t cut, bool streams, answer_calls *r) {
  st_calls c = {.format = st_tool_format_of(row->template_text, strlen(row->template_text)),
                .tools = shared.tools,
                .streams = streams};
  for (size_t i = 0; i < ST_TOOL_OPENS && c.format->opens[i]; i++) {
    int32_t id = st_tokenizer_find(shared.tokenizer, c.format->opens[i], strlen(c.format->opens[i]));
    c.control[i] = id >= 0 && st_tokenizer_is_control(shared.tokenizer, id);
  }
  assert_true(answer_read(a, &c, cut, r));
  st_calls_free(&c);
}

static bool same_calls(const answer_calls *a, const answer_calls *b) {
  bool same = a->n == b->n && a->content.length == b->content.length;
  for (size_t i = 0; same && i < a->n; i++) {
    same = a->names[i].length == b->names[i].length && a->arguments[i].length == b->arguments[i].length &&
           !memcmp(a->names[i].data, b->names[i].data, a->names[i].length) &&
           !memcmp(a->arguments[i].data, b->arguments[i].data, a->arguments[i].length);
  }
  return same;
}

static size_t length_of(const answer_text *a) {
  size_t n = 0;
  for (size_t i = 0; i < a->n; i++) n += a->pieces[i].control ? 0 : a->pieces[i].length;
  return n;
}

static void fail_answer(const format_row *row, const answer_text *a, const char *what) {
  print_error("%s: %s:\n", row->name, what);
  for (size_t i = 0; i < a->n; i++) print_error("%s", a->pieces[i].text);
  fail_msg("\n%s: %s", row->name, what);
}

// Every cut for short answers, some of them for long ones.
static void check_pieces(const format_row *row, const answer_text *a, const answer_calls *whole) {
  size_t n = length_of(a), step = n > 300 ? n / 60 : 1;
  for (size_t cut = 1; cut < n + step; cut += step) {
    for (int streams = 0; streams < 2; streams++) {
      answer_calls r = {0};
      read_pieces(row, a, cut < n ? cut : SIZE_MAX, streams, &r);
      if (!same_calls(whole, &r)) fail_answer(row, a, "read otherwise in pieces");
      answer_calls_free(&r);
    }
  }
}

static void check_answer(const format_row *row, const answer_text *a) {
  answer_calls whole = {0};
  read_pieces(row, a, 0, false, &whole);
  if (!whole.n || whole.content.length) fail_answer(row, a, "not read as calls alone");
  for (size_t i = 0; i < whole.n; i++) {
    check_arguments(row, whole.names[i].data, &whole.arguments[i]);
    if (shared.answers) print_call(row, &whole.names[i], &whole.arguments[i]);
  }
  check_pieces(row, a, &whole);
  answer_calls_free(&whole);
}

static void check_tool(const format_row *row, const char *tool, int samples, uint64_t seed) {
  static answer_text a;
  const st_tool_format *f = st_tool_format_of(row->template_text, strlen(row->template_text));
  char wrapped[64];
  snprintf(wrapped, sizeof wrapped, "\n%s", f->value_close ? f->value_close : "}");
  const char *const closers[] = {
      f->close ? f->close : "]", wrapped, wrapped + 1, f->quote ? f->quote : "\"", "}", "]", ":", "0", NULL};
  setun_error err;
  st_random random;
  int ended = 0;
  st_constraint *c = required(row, tool, tool != NULL);
  st_random_seed(&random, seed);
  for (int i = 0; i < samples; i++) {
    if (answer_sample(c, shared.tokenizer, closers, &random, &a, &err)) {
      ended++;
      check_answer(row, &a);
    } else if (err.code) {
      fail_answer(row, &a, err.message);
    }
  }
  answer_clear(&a);
  if (!ended) fail_msg("%s, %s: %d of %d answers ended", row->name, tool ? tool : "any", ended, samples);
  st_constraint_release(c);
}

static void test_formats(void **state) {
  (void)state;
  for (size_t i = 0; i < ROWS; i++) {
    bool harmony = !strcmp(rows[i].name, "harmony"); // whose marks are control tokens only
    for (int control = harmony; control < (shared.model ? !harmony : 2); control++) {
      open_vocabulary(&rows[i], control);
      check_tool(&rows[i], NULL, shared.answers ? shared.answers : 3, 1);
      for (size_t k = 0; k < st_json_size(shared.tools); k++) {
        const st_json *function = st_json_get(st_json_at(shared.tools, k), "function");
        check_tool(&rows[i], st_json_string(st_json_get(function, "name")), shared.answers ? shared.answers : 2, 2 + k);
      }
    }
  }
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_formats)};
  if (argc > 2 && !strcmp(argv[1], "--print")) {
    shared.answers = atoi(argv[2]);
    shared.model = argc > 3 ? argv[3] : NULL;
    puts(tools_text);
  }
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
