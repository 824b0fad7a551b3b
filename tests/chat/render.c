// Renders templates for the comparison scripts: each line of the input is a JSON object {"template", "context", "now":
// [year, month, day, hour, minute, second]}; each line of the output {"text", "spans"} or {"error", "status"}.
#include "jinja/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *render(json_t *request) {
  json_t *text = json_object_get(request, "template"), *now = json_object_get(request, "now"), *spans;
  setun_error err = {0};
  st_template *t = NULL;
  st_buffer out = {0};
  st_template_spans marks = {0};
  int n[6] = {2026, 1, 2, 3, 4, 5};
  for (size_t i = 0; i < 6 && i < json_array_size(now); i++) n[i] = (int)json_integer_value(json_array_get(now, i));
  st_template_time clock = {n[0], n[1], n[2], n[3], n[4], n[5], 0};
  st_template_options options = {.now = &clock};
  setun_status status = st_template_compile(json_string_value(text), json_string_length(text), "template", &t, &err);
  if (!status) status = st_template_render(t, json_object_get(request, "context"), &options, &out, &marks, &err);
  st_template_free(t);
  json_t *reply = json_object();
  if (status) {
    json_object_set_new(reply, "error", json_string(err.message));
    json_object_set_new(reply, "status", json_integer(status));
  } else {
    spans = json_array();
    for (size_t i = 0; i < marks.n; i++) {
      json_array_append_new(spans,
                            json_pack("[I,I]", (json_int_t)marks.items[i].begin, (json_int_t)marks.items[i].end));
    }
    json_object_set_new(reply, "text", json_stringn(out.data, out.length));
    json_object_set_new(reply, "spans", spans);
  }
  st_buffer_free(&out);
  st_template_spans_free(&marks);
  return reply;
}

int main(void) {
  st_buffer in = {0};
  for (int c; (c = getchar()) != EOF;) {
    char byte = (char)c;
    if (byte != '\n') {
      if (!st_buffer_append(&in, &byte, 1)) return 1;
      continue;
    }
    setun_error err = {0};
    json_t *request = st_json_parse_values(in.data ? in.data : "", in.length, "request", &err);
    json_t *reply = request ? render(request) : json_pack("{s:s,s:i}", "error", err.message, "status", -1);
    char *text = json_dumps(reply, JSON_COMPACT);
    puts(text ? text : "{\"error\":\"unprintable\",\"status\":-2}");
    fflush(stdout);
    free(text);
    json_decref(reply);
    json_decref(request);
    in.length = 0;
  }
  st_buffer_free(&in);
  return 0;
}
