// The table of tool_formats.h. Sources: the chat templates that the models were published with.
#include "chat/tool_formats.h"

#include <string.h>

// From the most specific hints to the least: the first row whose hints are all in the template is used.
static const st_tool_format formats[] = {
    {.name = "harmony", // gpt-oss
     .syntax = ST_TOOLS_HARMONY,
     .hints = {"<|channel|>commentary", "to="},
     .one_call = true,
     .thoughts = "thinking"},
    {.name = "deepseek-v3.2",
     .syntax = ST_TOOLS_FIELDS,
     .hints = {"｜DSML｜", "function_calls>", "invoke name="},
     .opens = {"<｜DSML｜function_calls>"},
     .close = "</｜DSML｜function_calls>",
     .name_open = "<｜DSML｜invoke name=\"",
     .name_close = "\">",
     .key_open = "<｜DSML｜parameter name=\"",
     .key_close = "\"",
     .typed = " string=\"",
     .value_open = "\">",
     .value_close = "</｜DSML｜parameter>",
     .call_close = "</｜DSML｜invoke>",
     .spacer = "\n"},
    {.name = "deepseek-v4",
     .syntax = ST_TOOLS_FIELDS,
     .hints = {"｜DSML｜", "tool_calls>", "invoke name="},
     .opens = {"<｜DSML｜tool_calls>"},
     .close = "</｜DSML｜tool_calls>",
     .name_open = "<｜DSML｜invoke name=\"",
     .name_close = "\">",
     .key_open = "<｜DSML｜parameter name=\"",
     .key_close = "\"",
     .typed = " string=\"",
     .value_open = "\">",
     .value_close = "</｜DSML｜parameter>",
     .call_close = "</｜DSML｜invoke>",
     .spacer = "\n"},
    {.name = "deepseek-r1",
     .syntax = ST_TOOLS_NAMED,
     .hints = {"<｜tool▁calls▁begin｜>", "```json"},
     .opens = {"<｜tool▁calls▁begin｜>"},
     .call_open = "<｜tool▁call▁begin｜>",
     .name_open = "function<｜tool▁sep｜>",
     .name_close = "\n```json\n",
     .after = "\n```",
     .call_close = "<｜tool▁call▁end｜>",
     .close = "<｜tool▁calls▁end｜>"},
    {.name = "deepseek-v3.1",
     .syntax = ST_TOOLS_NAMED,
     .hints = {"<｜tool▁calls▁begin｜>"},
     .opens = {"<｜tool▁calls▁begin｜>"},
     .call_open = "<｜tool▁call▁begin｜>",
     .name_close = "<｜tool▁sep｜>",
     .call_close = "<｜tool▁call▁end｜>",
     .close = "<｜tool▁calls▁end｜>"},
    {.name = "mistral-args", // Small 3.2, Devstral, Ministral 3, Magistral
     .syntax = ST_TOOLS_NAMED,
     .hints = {"[TOOL_CALLS]", "[ARGS]"},
     .opens = {"[TOOL_CALLS]"},
     .name_close = "[ARGS]",
     .id_length = 9},
    {.name = "mistral-list", // Nemo, 7B v0.3
     .syntax = ST_TOOLS_JSON,
     .hints = {"[TOOL_CALLS]"},
     .opens = {"[TOOL_CALLS]"},
     .list = true,
     .arguments = "arguments",
     .id_length = 9},
    {.name = "gemma",
     .syntax = ST_TOOLS_GEMMA,
     .hints = {"<|tool_call>call:"},
     .opens = {"<|tool_call>"},
     .close = "<tool_call|>",
     .stop = "<|tool_response>",
     .quote = "<|\"|>"},
    {.name = "functiongemma",
     .syntax = ST_TOOLS_GEMMA,
     .hints = {"<start_function_call>"},
     .opens = {"<start_function_call>"},
     .close = "<end_function_call>",
     .stop = "<start_function_response>",
     .quote = "<escape>"},
    {.name = "qwen3-coder", // and Qwen 3.5
     .syntax = ST_TOOLS_FIELDS,
     .hints = {"<tool_call>", "<function=", "<parameter="},
     .opens = {"<tool_call>", "<function="},
     .close = "</tool_call>",
     .name_open = "<function=",
     .name_close = ">",
     .key_open = "<parameter=",
     .key_close = ">",
     .value_close = "</parameter>",
     .call_close = "</function>",
     .spacer = "\n",
     .wraps_values = true},
    {.name = "minimax", // M2
     .syntax = ST_TOOLS_FIELDS,
     .hints = {"minimax:tool_call", "<invoke name=", "<parameter name="},
     .opens = {"<minimax:tool_call>"},
     .close = "</minimax:tool_call>",
     .name_open = "<invoke name=\"",
     .name_close = "\">",
     .key_open = "<parameter name=\"",
     .key_close = "\">",
     .value_close = "</parameter>",
     .call_close = "</invoke>",
     .spacer = "\n"},
    {.name = "glm-4.7",
     .syntax = ST_TOOLS_FIELDS,
     .hints = {"<tool_call>{function-name}<arg_key>"},
     .opens = {"<tool_call>"},
     .close = "</tool_call>",
     .stop = "<|observation|>",
     .key_open = "<arg_key>",
     .key_close = "</arg_key>",
     .value_open = "<arg_value>",
     .value_close = "</arg_value>",
     .spacer = ""},
    {.name = "glm", // 4.5 and 4.6
     .syntax = ST_TOOLS_FIELDS,
     .hints = {"<tool_call>", "<arg_key>", "<arg_value>"},
     .opens = {"<tool_call>"},
     .close = "</tool_call>",
     .stop = "<|observation|>",
     .key_open = "<arg_key>",
     .key_close = "</arg_key>",
     .value_open = "<arg_value>",
     .value_close = "</arg_value>",
     .spacer = "\n"},
    {.name = "granite-3", // 3.3
     .syntax = ST_TOOLS_JSON,
     .hints = {"<|tool_call|>"},
     .opens = {"<|tool_call|>"},
     .list = true,
     .arguments = "arguments"},
    {.name = "phi", // Phi 4 mini
     .syntax = ST_TOOLS_JSON,
     .hints = {"<|tool|>", "<|/tool|>"},
     .opens = {"<|tool_call|>", "functools"},
     .close = "<|/tool_call|>",
     .list = true,
     .arguments = "arguments",
     .tools_in_message = true},
    {.name = "hunyuan", // A13B, Apriel
     .syntax = ST_TOOLS_JSON,
     .hints = {"<tool_calls>"},
     .opens = {"<tool_calls>"},
     .close = "</tool_calls>",
     .list = true,
     .arguments = "arguments"},
    {.name = "hermes", // Hermes 2 and 3, Qwen 2.5 and 3, Granite 4, SmolLM3
     .syntax = ST_TOOLS_JSON,
     .hints = {"<tool_call>"},
     .unless = "]<]minimax[>[", // MiniMax M3 has the mark, but elements inside of it
     .opens = {"<tool_call>"},
     .close = "</tool_call>",
     .arguments = "arguments"},
    {.name = "llama-3", // Llama 3.1 to 3.3
     .syntax = ST_TOOLS_JSON,
     .hints = {"ipython", "\"parameters\""},
     .opens = {"<|python_tag|>"},
     .bare = true,
     .arguments = "parameters",
     .one_call = true},
    {.name = "described", // any other model
     .syntax = ST_TOOLS_JSON,
     .opens = {"<tool_call>"},
     .close = "</tool_call>",
     .arguments = "arguments"},
};
enum { FORMATS = sizeof formats / sizeof *formats };

static bool contains(const char *text, size_t length, const char *word) {
  size_t n = strlen(word);
  for (size_t i = 0; i + n <= length; i++) {
    if (text[i] == *word && !memcmp(text + i, word, n)) return true;
  }
  return false;
}

const st_tool_format *st_tool_format_of(const char *template_text, size_t length) {
  for (size_t i = 0; i + 1 < FORMATS; i++) {
    bool all = !formats[i].unless || !contains(template_text, length, formats[i].unless);
    for (size_t k = 0; k < ST_TOOL_HINTS && formats[i].hints[k]; k++) {
      all = all && contains(template_text, length, formats[i].hints[k]);
    }
    if (all) return &formats[i];
  }
  return &formats[FORMATS - 1];
}

bool st_tool_format_is_described(const st_tool_format *format) {
  return format == &formats[FORMATS - 1];
}
