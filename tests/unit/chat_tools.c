// Calls of tools in every format, cut into pieces in every way: what comes out must not depend on how the text arrived.
#include "chat/tool_calls.h"
#include "chat/tool_history.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":"
    "{"
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"detail\":{\"type\":\"boolean\"},"
    "\"units\":{\"type\":[\"string\",\"null\"]},\"where\":{\"type\":\"object\"},\"any\":{},"
    "\"level\":{\"$ref\":\"#/$defs/level\"}},\"$defs\":{\"level\":{\"enum\":[\"1\",\"2\"]}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}}]";

// "C:", "N:" or "T:" and the text, a part for each change of channel, and for each name.
typedef struct parts {
  char text[4096];
  int last;
} parts;

static bool take(setun_channel channel, const char *text, size_t length, void *user) {
  static const char *const names[] = {"|C:", "|R:", "|M:", "|T:", "|N:"};
  parts *p = user;
  if (p->last != (int)channel + 1) strcat(p->text, names[channel]);
  p->last = (int)channel + 1;
  strncat(p->text, text, length);
  return true;
}

// What the templates of each format have, as the table of formats knows them.
static const char *const templates[][2] = {
    {"harmony", "<|channel|>commentary to="},
    {"deepseek-v3.2", "'｜DSML｜' + 'function_calls>' + 'invoke name='"},
    {"deepseek-v4", "'｜DSML｜' + 'tool_calls>' + 'invoke name='"},
    {"deepseek-r1", "<｜tool▁calls▁begin｜> ```json"},
    {"deepseek-v3.1", "<｜tool▁calls▁begin｜>"},
    {"mistral-args", "[TOOL_CALLS] [ARGS]"},
    {"mistral-list", "[TOOL_CALLS]["},
    {"gemma", "<|tool_call>call:"},
    {"functiongemma", "<start_function_call>"},
    {"qwen3-coder", "<tool_call> <function= <parameter="},
    {"minimax", "minimax:tool_call <invoke name= <parameter name="},
    {"glm-4.7", "<tool_call>{function-name}<arg_key>"},
    {"glm", "<tool_call> <arg_key> <arg_value>"},
    {"granite-3", "<|tool_call|> followed by a JSON list"},
    {"phi", "<|tool|> <|/tool|>"},
    {"hunyuan", "<tool_calls>"},
    {"hermes", "<tool_call>"},
    {"llama-3", "ipython \"parameters\""},
    {"described", "<|im_start|>"},
};

static const st_tool_format *format_named(const char *name) {
  for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
    if (strcmp(templates[i][0], name)) continue;
    const st_tool_format *f = st_tool_format_of(templates[i][1], strlen(templates[i][1]));
    assert_string_equal(f->name, name);
    assert_int_equal(st_tool_format_is_described(f), i + 1 == sizeof templates / sizeof *templates);
    return f;
  }
  fail_msg("no format %s", name);
  return NULL;
}

// In the input, what lies between U+0001 and U+0002 is a control token.
static void feed(st_calls *c, const char *input, size_t step, parts *p) {
  setun_error err;
  for (const char *s = input; *s;) {
    const char *end = *s == 1 ? strchr(s, 2) : s + strcspn(s, "\001");
    if (*s == 1) {
      if (st_calls_takes(c, s + 1, (size_t)(end - s - 1)))
        assert_int_equal(st_calls_control(c, s + 1, (size_t)(end - s - 1), take, p, &err), SETUN_OK);
      s = end + 1;
      continue;
    }
    while (s < end) {
      size_t n = (size_t)(end - s) < step ? (size_t)(end - s) : step;
      assert_int_equal(st_calls_text(c, s, n, take, p, &err), SETUN_OK);
      s += n;
    }
  }
  assert_int_equal(st_calls_finish(c, take, p, &err), SETUN_OK);
}

static void check_with(const char *format, const char *input, const char *expected, bool streams) {
  st_json *tools = NULL;
  assert_int_equal(st_json_parse_any(tools_text, sizeof tools_text - 1, "tools", &tools, NULL), SETUN_OK);
  for (size_t step = 1; step < 60; step++) {
    st_calls c = {.format = format_named(format), .tools = tools, .streams = streams};
    parts p = {0};
    c.control[0] = strchr(input, 1) != NULL;
    feed(&c, input, step, &p);
    if (strcmp(p.text, expected))
      fail_msg("%s: '%s' by %zu: expected '%s', found '%s'", format, input, step, expected, p.text);
    st_calls_free(&c);
  }
  st_json_free(tools);
}

static void check(const char *format, const char *input, const char *expected) {
  check_with(format, input, expected, false);
}

// A call whose parts are the same, whether its text arrives at once or in pieces.
static void check_call(const char *format, const char *input, const char *expected) {
  check_with(format, input, expected, false);
  check_with(format, input, expected, true);
}

#define WEATHER "|N:get_weather|T:{\"city\": \"Oslo\"}"

static void table(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) format_named(templates[i][0]);
}

static void hermes(void **state) {
  (void)state;
  check("hermes", "Plain.\n", "|C:Plain.\n");
  check("hermes", "", "");
  check("hermes", "a < b <tool", "|C:a < b <tool");
  check_call("hermes", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>",
             WEATHER);
  check_call("hermes",
             "Let me look.\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n"
             "</tool_call>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n",
             "|C:Let me look." WEATHER "|N:f|T:{}");
  check_call("hermes", "<tool_call>{\"arguments\": {\"s\": \"</tool_call>}\\\"\"}, \"name\": \"f\"}</tool_call>",
             "|N:f|T:{\"s\": \"</tool_call>}\\\"\"}");
  check("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>", "|N:f|T:{\"a\": 1}");
  check("hermes", "<tool_call>{\"name\": \"f\"}</tool_call>", "|N:f|T:{}");
  check("hermes",
        "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1}}}</tool_call>",
        "|N:f|T:{\"a\": 1}");
  check("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {}}", "|N:f|T:{}"); // ended before the mark
  check("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> Done.", "|N:f|T:{}|C: Done.");
}

static void what_does_not_parse_is_text(void **state) {
  (void)state;
  static const char *const texts[] = {
      "<tool_call>no object</tool_call>",
      "a\n <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 01}}</tool_call> b",
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1",
      "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
      "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>",
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\\ud800\"}}</tool_call>",
      "<tool_call>\n",
      "<tool_call><tool_call",
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    char expected[256];
    snprintf(expected, sizeof expected, "|C:%s", texts[i]);
    check("hermes", texts[i], expected);
  }
  check("hermes", "<tool_call>oops <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
        "|C:<tool_call>oops|N:f|T:{}");
  check("mistral-args", "[TOOL_CALLS]f[ARGS]1", "|C:[TOOL_CALLS]f[ARGS]1");
  check("qwen3-coder", "<tool_call>\n<function=f>\n<parameter=a>\nnever ends",
        "|C:<tool_call>\n<function=f>\n<parameter=a>\nnever ends");
  check("gemma", "<|tool_call>call:f{a:<|\"|>never", "|C:<|tool_call>call:f{a:<|\"|>never");
  check("llama-3", "{\"name\": \"nobody\", \"parameters\": {}}", "|C:{\"name\": \"nobody\", \"parameters\": {}}");
  check("llama-3", "{\"answer\": 42}", "|C:{\"answer\": 42}");
}

static void other_json(void **state) {
  (void)state;
  check_call("llama-3", "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}", WEATHER);
  check_call("llama-3",
             " \n{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; {\"name\": \"get_weather\", "
             "\"parameters\": {\"city\": \"Oslo\"}}",
             "|N:f|T:{}" WEATHER);
  check_call("llama-3", "\001<|python_tag|>\002{\"name\": \"f\", \"parameters\": {\"a\": [1, 2]}}",
             "|N:f|T:{\"a\": [1, 2]}");
  check("llama-3", "\001<|python_tag|>\002brave_search.call(query=\"a \\\"b\\\"\", n=3, x=True)",
        "|N:brave_search|T:{\"query\": \"a \\\\\\\"b\\\\\\\"\", \"n\": 3, \"x\": true}");
  check("llama-3", "\001<|python_tag|>\002print(1)", "|C:<|python_tag|>print(1)");
  check("llama-3", "See {\"name\": \"f\", \"parameters\": {}}", "|C:See {\"name\": \"f\", \"parameters\": {}}");
  check_call(
      "mistral-list",
      "\001[TOOL_CALLS]\002[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}, \"id\": \"012345678\"}, "
      "{\"name\": \"f\", \"arguments\": {}}]",
      WEATHER "|N:f|T:{}");
  check("mistral-list", "\001</s>\002[TOOL_CALLS][]", "|C:[TOOL_CALLS][]"); // these letters are not a control token
  check_call("granite-3", "<|tool_call|>[{\"arguments\": {\"city\": \"Oslo\"}, \"name\": \"get_weather\"}]", WEATHER);
  check_call("phi", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|>", "|N:f|T:{}");
  check_call("phi", "functools[{\"name\": \"f\", \"arguments\": {}}]", "|N:f|T:{}");
  check_call("hunyuan", "<tool_calls>\n[{\"name\": \"f\", \"arguments\": {}}]\n</tool_calls>", "|N:f|T:{}");
  check_call("hunyuan",
             "<tool_calls>\n{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"f\", \"arguments\": {\"b\": 1}}\n"
             "</tool_calls>",
             "|N:f|T:{}|N:f|T:{\"b\": 1}");
}

static void named(void **state) {
  (void)state;
  check_call("mistral-args",
             "\001[TOOL_CALLS]\002get_weather\001[ARGS]\002{\"city\": \"Oslo\"}\001[TOOL_CALLS]\002f\001[ARGS]\002{}",
             WEATHER "|N:f|T:{}");
  check_call("mistral-args",
             "Hm.\001[TOOL_CALLS]\002get_weather\001[CALL_ID]\002abcdefghi\001[ARGS]\002{\"city\": \"Oslo\"}",
             "|C:Hm." WEATHER);
  check_call("mistral-args", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]", "|N:f|T:{}");
  check_call(
      "deepseek-v3.1",
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Oslo\"}<｜tool▁call▁end｜>"
      "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
      WEATHER "|N:f|T:{}");
  check_call(
      "deepseek-r1",
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Oslo\"}\n```"
      "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>"
      "<｜tool▁calls▁end｜>",
      WEATHER "|N:f|T:{}");
}

static void fields(void **state) {
  (void)state;
  check_call("qwen3-coder",
             "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>",
             WEATHER);
  check_call("qwen3-coder", "<function=f>\n</function>", "|N:f|T:{}");
  check_call(
      "qwen3-coder",
      "Yes.\n<tool_call>\n<function=get_weather>\n<parameter=city>\n 12\n\"x\"\n\n</parameter>\n<parameter=days>\n3\n"
      "</parameter>\n<parameter=detail>\nTrue\n</parameter>\n<parameter=units>\nNone\n</parameter>\n"
      "<parameter=where>\n{\"a\": [1]}\n</parameter>\n<parameter=level>\n1\n</parameter>\n<parameter=any>\ntrue "
      "story\n</parameter>\n</function>\n</tool_call>",
      "|C:Yes.|N:get_weather|T:{\"city\": \" 12\\n\\\"x\\\"\\n\", \"days\": 3, \"detail\": true, \"units\": null, "
      "\"where\": {\"a\": [1]}, \"level\": \"1\", \"any\": \"true story\"}");
  check_call("glm", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>",
             WEATHER);
  check_call(
      "glm",
      "<tool_call>f\n</tool_call>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n"
      "</tool_call>",
      "|N:f|T:{}" WEATHER);
  check_call("glm-4.7", "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value></tool_call>",
             WEATHER);
  check_call(
      "deepseek-v3.2",
      "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" "
      "string=\"true\">Oslo</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter "
      "name=\"a\" string=\"false\">[1]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
      WEATHER "|N:f|T:{\"a\": [1]}");
  check_call(
      "minimax",
      "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Oslo</parameter>\n</invoke>\n"
      "</minimax:tool_call>",
      WEATHER);
}

static void gemma(void **state) {
  (void)state;
  check_call("gemma", "<|tool_call>call:get_weather{city:<|\"|>Oslo<|\"|>}<tool_call|>", WEATHER);
  check_call("gemma",
             "<|tool_call>call:f{a:1,b:-2.5,c:true,d:{<|\"|>x y<|\"|>:[<|\"|>a,}b<|\"|>,null]},e:[]}<tool_call|>"
             "<|tool_call>call:f{}<tool_call|><|tool_response>ignored",
             "|N:f|T:{\"a\": 1, \"b\": -2.5, \"c\": true, \"d\": {\"x y\": [\"a,}b\", null]}, \"e\": []}|N:f|T:{}"
             "|C:<|tool_response>ignored");
  check_call("functiongemma",
             "\001<start_function_call>\002call:get_weather{city:<escape>Oslo<escape>}<end_function_call>\001<start_"
             "function_response>"
             "\002ignored",
             WEATHER);
}

static void harmony(void **state) {
  (void)state;
  setun_error err;
  for (int streams = 0; streams < 2; streams++) {
    st_calls c = {.streams = streams};
    parts p = {0};
    assert_int_equal(st_calls_message(&c, "f", 1, take, &p, &err), SETUN_OK);
    assert_int_equal(st_calls_message_text(&c, "{\"a\":", 5, take, &p, &err), SETUN_OK);
    assert_int_equal(st_calls_message_text(&c, " 1}", 3, take, &p, &err), SETUN_OK);
    assert_int_equal(st_calls_finish(&c, take, &p, &err), SETUN_OK);
    assert_string_equal(p.text, "|N:f|T:{\"a\": 1}");
    st_calls_free(&c);
  }
  st_calls c = {0};
  parts p = {0};
  assert_int_equal(st_calls_message(&c, "python", 6, take, &p, &err), SETUN_OK);
  assert_int_equal(st_calls_message_text(&c, "print(1)", 8, take, &p, &err), SETUN_OK);
  assert_int_equal(st_calls_message_end(&c, take, &p, &err), SETUN_OK);
  assert_string_equal(p.text, "|C:print(1)");
  st_calls_free(&c);
}

// ---- conversations ----

static void adapt(const char *template_text, const char *context, const char *expected) {
  st_tool_template t;
  st_json *root = NULL;
  st_buffer text = {0};
  setun_error err;
  st_tool_template_of(template_text, strlen(template_text), &t);
  assert_int_equal(st_json_parse_values(context, strlen(context), "context", &root, &err), SETUN_OK);
  if (st_tool_adapt(&t, 0, root, &err) != SETUN_OK) {
    assert_string_equal(err.message, expected);
  } else {
    assert_true(st_json_append_exact(root, &text));
    assert_string_equal(text.data, expected);
  }
  st_buffer_free(&text);
  st_json_free(root);
}

#define CALLS(id)                                                                                                      \
  "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"" id "\",\"type\":\"function\",\"function\":"    \
  "{\"name\":\"f\",\"arguments\":"
static void conversations(void **state) {
  (void)state;
  // Arguments become values, and results get the function's name.
  adapt("tools tool_calls <tool_call>",
        "{\"messages\":[" CALLS(
            "x") "\"{\\\"a\\\": 1.5}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"r\"}]}",
        "{\"messages\":[" CALLS(
            "x") "{\"a\":1.5}}}]},{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"r\",\"name\":\"f\"}]}");
  adapt("tools tool_calls <tool_call>", "{\"messages\":[" CALLS("x") "\"oops\"}}]}]}",
        "messages[0]: expected a call's arguments to be a JSON object");
  // Ids as Mistral requires them.
  adapt(
      "tools tool_calls [TOOL_CALLS] [ARGS]",
      "{\"messages\":[" CALLS(
          "abcdefgh1") "{}}}]},{\"role\":\"tool\",\"tool_call_id\":\"abcdefgh1\",\"content\":\"r\"}]}",
      "{\"messages\":[" CALLS(
          "abcdefgh1") "{}}}]},{\"role\":\"tool\",\"tool_call_id\":\"abcdefgh1\",\"content\":\"r\",\"name\":\"f\"}]}");
  // Tools get what templates read.
  adapt("tools tool_calls <tool_call>",
        "{\"messages\":[],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}",
        "{\"messages\":[],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"\","
        "\"parameters\":"
        "{\"type\":\"object\",\"properties\":{}}}}]}");
  adapt("tools tool_calls <tool_call>", "{\"messages\":[],\"tools\":[{\"type\":\"function\"}]}",
        "tools[0]: expected a function with a name, found nothing");
}

// One call a message, each with its result.
static void single_calls(void **state) {
  (void)state;
  adapt("tools tool_calls ipython \"parameters\"",
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"t\",\"tool_calls\":[{\"id\":\"x\",\"function\":{\"name\":"
        "\"f\"}},"
        "{\"id\":\"y\",\"function\":{\"name\":\"g\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"y\",\"content\":\"2\"},"
        "{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"1\"},{\"role\":\"user\",\"content\":\"u\"}]}",
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"t\",\"tool_calls\":[{\"id\":\"x\",\"type\":\"function\","
        "\"function\":"
        "{\"name\":\"f\",\"arguments\":{}}}]},{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"1\",\"name\":"
        "\"f\"},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"y\",\"type\":\"function\",\"function\":{"
        "\"name\":\"g\","
        "\"arguments\":{}}}]},{\"role\":\"tool\",\"tool_call_id\":\"y\",\"content\":\"2\",\"name\":\"g\"},"
        "{\"role\":\"user\",\"content\":\"u\"}]}");
}

// A template that writes calls only of messages without a text.
static void calls_alone(void **state) {
  (void)state;
  adapt("tools tool_calls <｜tool▁calls▁begin｜> message['role'] == 'assistant' and message['content'] is none",
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"t\",\"tool_calls\":[{\"id\":\"x\",\"function\":{\"name\":"
        "\"f\"}}]}," CALLS("y") "{}}}]}]}",
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"t\"}," CALLS("x") "{}}}]}," CALLS("y") "{}}}]}]}");
}

// A template without tools.
static void described(void **state) {
  (void)state;
  adapt("plain",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"u\"}," CALLS(
            "x") "{\"a\":1}}}]},"
                 "{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"r\"}],"
                 "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\"}}]}",
        "{\"messages\":[{\"role\":\"system\",\"content\":\"You can call these functions, one JSON object each:\\n"
        "{\\\"name\\\":\\\"f\\\",\\\"description\\\":\\\"d\\\",\\\"parameters\\\":{\\\"type\\\":\\\"object\\\","
        "\\\"properties\\\":{}}}\\n"
        "To call a function, write a JSON object with its name and arguments:\\n<tool_call>\\n{\\\"name\\\": NAME, "
        "\\\"arguments\\\": ARGUMENTS}\\n</tool_call>\"},{\"role\":\"user\",\"content\":\"u\"},"
        "{\"role\":\"assistant\",\"content\":\"<tool_call>\\n{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": "
        "{\\\"a\\\":1}}\\n"
        "</tool_call>\"},{\"role\":\"user\",\"content\":\"<tool_response>\\nr\\n</tool_response>\"}],"
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"type\":"
        "\"object\","
        "\"properties\":{}}}}]}");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(table),        cmocka_unit_test(hermes),      cmocka_unit_test(what_does_not_parse_is_text),
      cmocka_unit_test(other_json),   cmocka_unit_test(named),       cmocka_unit_test(fields),
      cmocka_unit_test(gemma),        cmocka_unit_test(harmony),     cmocka_unit_test(conversations),
      cmocka_unit_test(single_calls), cmocka_unit_test(calls_alone), cmocka_unit_test(described),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
