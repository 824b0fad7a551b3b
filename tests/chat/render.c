// Renders templates for the comparison scripts: each line of the input is a JSON object {"template", "context", "now":
// [year, month, day, hour, minute, second]}; each line of the output {"text", "spans"} or {"error", "status"}.
#include "jinja/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(st_json *reply, const char *message, int status) {
  st_json_set(reply, reply, "error", st_json_make_text(reply, message));
  st_json_set(reply, reply, "status", st_json_make_integer(status));
}

static void render(const st_json *request, st_json *reply) {
  const st_json *text = st_json_find(request, "template"), *now = st_json_find(request, "now");
  setun_error err = {0};
  st_template *t = NULL;
  st_buffer out = {0};
  st_template_spans marks = {0};
  int n[6] = {2026, 1, 2, 3, 4, 5};
  for (size_t i = 0; i < 6 && i < st_json_size(now); i++) n[i] = (int)st_json_number(st_json_at(now, i));
  st_template_time clock = {n[0], n[1], n[2], n[3], n[4], n[5], 0};
  st_template_options options = {.now = &clock};
  setun_status status = st_template_compile(st_json_string(text), st_json_length(text), "template", &t, &err);
  if (!status) status = st_template_render(t, st_json_find(request, "context"), &options, &out, &marks, &err);
  st_template_free(t);
  if (status) {
    fail(reply, err.message, status);
  } else {
    st_json spans = st_json_make_array();
    for (size_t i = 0; i < marks.n; i++) {
      st_json span = st_json_make_array();
      st_json_push(reply, &span, st_json_make_integer((int64_t)marks.items[i].begin));
      st_json_push(reply, &span, st_json_make_integer((int64_t)marks.items[i].end));
      st_json_push(reply, &spans, span);
    }
    st_json_set(reply, reply, "text", st_json_make_string(reply, out.data ? out.data : "", out.length));
    st_json_set(reply, reply, "spans", spans);
  }
  st_buffer_free(&out);
  st_template_spans_free(&marks);
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
    st_json *request;
    st_json_parse_values(in.data ? in.data : "", in.length, "request", &request, &err);
    st_json *reply = st_json_new();
    st_buffer text = {0};
    if (!reply) return 1;
    if (request) {
      render(request, reply);
    } else {
      fail(reply, err.message, -1);
    }
    bool ok = !st_json_failed(reply) && st_json_append(reply, &text);
    puts(ok ? text.data : "{\"error\":\"unprintable\",\"status\":-2}");
    fflush(stdout);
    st_buffer_free(&text);
    st_json_free(reply);
    st_json_free(request);
    in.length = 0;
  }
  st_buffer_free(&in);
  return 0;
}
