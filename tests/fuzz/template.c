// Fuzz target: compiling and rendering any text as a template. The first byte chooses the context.
#include "jinja/template.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const CONTEXTS[] = {
    "{}",
    "{\"messages\": [{\"role\": \"user\", \"content\": \"h\\u00e9 <b> x\"}, {\"role\": \"assistant\", \"content\": "
    "null,"
    " \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, true, null]}}}]}],"
    " \"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"tools\": null}",
    "{\"a\": \"abc\", \"b\": [1, 2, 3], \"c\": {\"x\": {\"y\": [[], {}]}}, \"d\": -5, \"e\": 1e300, \"f\": "
    "\"\\u0130\\u03a3\"}",
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  const char *json = CONTEXTS[data[0] % 3];
  setun_error err = {0};
  st_template *t = NULL;
  if (st_template_compile((const char *)data + 1, size - 1, "fuzz", &t, &err)) return 0;
  st_json *context;
  st_json_parse_values(json, strlen(json), "context", &context, &err);
  st_template_time now = {2026, 11, 28, 1, 2, 3, 4};
  st_template_options options = {.now = &now, .max_steps = 200000, .max_memory = 16 << 20, .max_output = 1 << 20};
  st_buffer out = {0};
  st_template_spans spans = {0};
  if (context && !st_template_render(t, context, &options, &out, &spans, &err)) {
    // Spans are in order, apart, inside the text and not empty.
    size_t end = 0;
    for (size_t i = 0; i < spans.n; i++) {
      if (spans.items[i].begin < end + (i > 0) || spans.items[i].end <= spans.items[i].begin) __builtin_trap();
      end = spans.items[i].end;
    }
    if (end > out.length) __builtin_trap();
  }
  st_template_spans_free(&spans);
  st_buffer_free(&out);
  st_json_free(context);
  st_template_free(t);
  return 0;
}
