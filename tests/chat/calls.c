// Calls of tools through published templates, for compare_calls.py: each line of the input is a JSON object
// {"template", "context"} whose last message is an answer with calls; each line of the output {"format", "written": the
// answer as the template writes it, "read": the channels and texts that were read out of it} or {"error"}.
#define _POSIX_C_SOURCE 200809L
#include "chat/tool_calls.h"
#include "chat/tool_history.h"
#include "jinja/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reading {
  st_json *reply;
  st_json *list;
} reading;

static bool take(setun_channel channel, const char *text, size_t length, void *user) {
  reading *r = user;
  st_json part = st_json_make_array();
  st_json_push(r->reply, &part, st_json_make_integer((int64_t)channel));
  st_json_push(r->reply, &part, st_json_make_string(r->reply, text, length));
  st_json_push(r->reply, r->list, part);
  return true;
}

// The context without its last message, and with a prompt for it, or with it.
static setun_status render(const st_json *request, bool whole, int form, st_buffer *out, setun_error *err) {
  const st_json *text = st_json_find(request, "template");
  st_tool_template kind;
  st_template *t = NULL;
  st_json *context = st_json_new();
  st_template_time clock = {2026, 1, 2, 3, 4, 5, 0};
  st_template_options options = {.now = &clock};
  *context = st_json_copy_of(context, st_json_find(request, "context"));
  st_json messages = *st_json_find(context, "messages");
  if (!whole) messages.count--;
  st_json_set(context, context, "messages", messages);
  st_json_set(context, context, "add_generation_prompt", st_json_make_bool(!whole));
  st_tool_template_of(st_json_string(text), st_json_length(text), &kind);
  setun_status s = st_tool_adapt(&kind, form, context, err);
  if (!s) s = st_template_compile(st_json_string(text), st_json_length(text), "template", &t, err);
  if (!s) s = st_template_render(t, context, &options, out, NULL, err);
  st_template_free(t);
  st_json_free(context);
  return s;
}

static void read_calls(const st_json *request, const char *text, size_t n, st_json *reply) {
  const st_json *template_text = st_json_find(request, "template");
  st_json list = st_json_make_array();
  reading r = {reply, &list};
  st_calls c = {.format = st_tool_format_of(st_json_string(template_text), st_json_length(template_text)),
                .tools = st_json_find(st_json_find(request, "context"), "tools")};
  for (size_t i = 0; i < n; i++) st_calls_text(&c, text + i, 1, take, &r, NULL);
  st_calls_finish(&c, take, &r, NULL);
  st_calls_free(&c);
  st_json_set(reply, reply, "read", list);
}

static void answer(const st_json *request, st_json *reply) {
  setun_error err = {0};
  st_buffer before = {0}, all = {0};
  const st_json *text = st_json_find(request, "template");
  st_json_set(reply, reply, "format",
              st_json_make_text(reply, st_tool_format_of(st_json_string(text), st_json_length(text))->name));
  setun_status s = SETUN_ERROR_FORMAT;
  for (int form = 0; form < ST_TOOL_FORMS && s == SETUN_ERROR_FORMAT; form++) {
    before.length = all.length = 0;
    s = render(request, false, form, &before, &err);
    if (!s) s = render(request, true, form, &all, &err);
  }
  if (s) {
    st_json_set(reply, reply, "error", st_json_make_text(reply, err.message));
  } else {
    size_t same = 0;
    while (same < before.length && same < all.length && before.data[same] == all.data[same]) same++;
    // The prompt for the answer may begin as a mark does: back to where that begins.
    for (size_t back = 0; back < 8 && back < same; back++) {
      char c = all.data[same - back - 1];
      if (c == '<') same -= back + 1;
      if (c == '<' || c == '>' || c == '\n') break;
    }
    st_json_set(reply, reply, "written", st_json_make_string(reply, all.data + same, all.length - same));
    read_calls(request, all.data + same, all.length - same, reply);
  }
  st_buffer_free(&before);
  st_buffer_free(&all);
}

int main(void) {
  char *line = NULL;
  size_t capacity = 0;
  ssize_t n;
  while ((n = getline(&line, &capacity, stdin)) > 0) {
    st_json *request = NULL, *reply = st_json_new();
    st_buffer out = {0};
    if (st_json_parse_values(line, (size_t)n, "request", &request, NULL) != SETUN_OK) return 1;
    answer(request, reply);
    st_json_append_exact(reply, &out);
    puts(out.data);
    st_buffer_free(&out);
    st_json_free(reply);
    st_json_free(request);
  }
  free(line);
  return 0;
}
