// Calls of tools through published templates, for compare_calls.py: each line of the input is a JSON object
// {"template", "context"} whose last message is an answer with calls; each line of the output {"format", "written": the
// answer as the template writes it, "read": the channels and texts that were read out of it} or {"error"}. Where the
// template writes an answer with several calls as several answers, each is read by itself.
#define _POSIX_C_SOURCE 200809L
#include "chat/channels.h"
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

// Where a Harmony answer's channels go.
typedef struct routing {
  st_calls *calls;
  reading *out;
} routing;

// A conversation: without its last message, the same with a prompt for an answer, or whole.
typedef enum stage { ASKED, PROMPTED, ANSWERED } stage;

static bool take(setun_channel channel, const char *text, size_t length, void *user) {
  reading *r = user;
  st_json part = st_json_make_array();
  st_json_push(r->reply, &part, st_json_make_integer((int64_t)channel));
  st_json_push(r->reply, &part, st_json_make_string(r->reply, text, length));
  st_json_push(r->reply, r->list, part);
  return true;
}

static setun_status render(const st_json *request, stage what, int form, st_buffer *out, setun_error *err) {
  const st_json *text = st_json_find(request, "template");
  st_tool_template kind;
  st_template *t = NULL;
  st_json *context = st_json_new();
  st_template_time clock = {2026, 1, 2, 3, 4, 5, 0};
  st_template_options options = {.now = &clock};
  *context = st_json_copy_of(context, st_json_find(request, "context"));
  st_json messages = *st_json_find(context, "messages");
  if (what != ANSWERED) messages.count--;
  st_json_set(context, context, "messages", messages);
  st_json_set(context, context, "add_generation_prompt", st_json_make_bool(what == PROMPTED));
  st_tool_template_of(st_json_string(text), st_json_length(text), &kind);
  setun_status s = st_tool_adapt(&kind, form, context, err);
  if (!s) s = st_template_compile(st_json_string(text), st_json_length(text), "template", &t, err);
  if (!s) s = st_template_render(t, context, &options, out, NULL, err);
  st_template_free(t);
  st_json_free(context);
  return s;
}

// Passes the channels of a Harmony answer on, as setun_reply does.
static bool route(setun_channel channel, const char *text, size_t length, void *user) {
  routing *r = user;
  if (channel != SETUN_CHANNEL_CALL && r->calls->open) st_calls_message_end(r->calls, take, r->out, NULL);
  if (channel == SETUN_CHANNEL_CALL_NAME) return !st_calls_message(r->calls, text, length, take, r->out, NULL);
  if (channel == SETUN_CHANNEL_CALL) return !st_calls_message_text(r->calls, text, length, take, r->out, NULL);
  return take(channel, text, length, r->out);
}

// Harmony's marks are control tokens.
static void read_messages(routing *r, const char *prompt, size_t before, const char *text, size_t n) {
  st_channels channels = {0};
  st_channels_begin(&channels, prompt, before);
  for (size_t i = 0; i < n; i++) {
    const char *end = n - i > 2 && !memcmp(text + i, "<|", 2) ? strstr(text + i, "|>") : NULL;
    size_t mark = end ? (size_t)(end - text) + 2 - i : 0;
    if (mark && strspn(text + i + 2, "abcdefghijklmnopqrstuvwxyz") == mark - 4) {
      st_channels_control(&channels, text + i, mark, route, r, NULL);
      i += mark - 1;
    } else {
      st_channels_text(&channels, text + i, 1, route, r, NULL);
    }
  }
  st_channels_finish(&channels, route, r, NULL);
  st_channels_free(&channels);
}

static void read_calls(const st_json *request, const char *prompt, size_t before, const char *text, size_t n,
                       reading *out) {
  const st_json *template_text = st_json_find(request, "template");
  st_calls c = {.format = st_tool_format_of(st_json_string(template_text), st_json_length(template_text)),
                .tools = st_json_find(st_json_find(request, "context"), "tools")};
  if (c.format->syntax == ST_TOOLS_HARMONY) {
    read_messages(&(routing){&c, out}, prompt, before, text, n);
  } else {
    for (size_t i = 0; i < n; i++) st_calls_text(&c, text + i, 1, take, out, NULL);
  }
  st_calls_finish(&c, take, out, NULL);
  st_calls_free(&c);
}

// Reads the answers in `text`, which has `prompt` between two of them.
static void read_answers(const st_json *request, const st_buffer *prompt, char *text, st_json *reply) {
  st_json list = st_json_make_array();
  reading out = {reply, &list};
  for (char *next; text; text = next) {
    next = prompt->length ? strstr(text, prompt->data) : NULL;
    if (next) *next = 0;
    read_calls(request, prompt->data, prompt->length, text, strlen(text), &out);
    if (next) next += prompt->length;
  }
  st_json_set(reply, reply, "read", list);
}

// The length of what both begin with; not further than a mark begins, as the prompt for the answer may.
static size_t shared(const st_buffer *before, const st_buffer *all) {
  size_t same = 0;
  while (same < before->length && same < all->length && before->data[same] == all->data[same]) same++;
  for (size_t back = 0; back < 8 && back < same; back++) {
    char c = all->data[same - back - 1];
    if (c == '<') return same - back - 1;
    if (c == '>' || c == '\n') break;
  }
  return same;
}

static void answer(const st_json *request, st_json *reply) {
  setun_error err = {0};
  st_buffer asked = {0}, before = {0}, all = {0}, prompt = {0};
  const st_json *text = st_json_find(request, "template");
  st_json_set(reply, reply, "format",
              st_json_make_text(reply, st_tool_format_of(st_json_string(text), st_json_length(text))->name));
  setun_status s = SETUN_ERROR_FORMAT;
  for (int form = 0; form < ST_TOOL_FORMS && s == SETUN_ERROR_FORMAT; form++) {
    asked.length = before.length = all.length = 0;
    s = render(request, ASKED, form, &asked, &err);
    if (!s) s = render(request, PROMPTED, form, &before, &err);
    if (!s) s = render(request, ANSWERED, form, &all, &err);
  }
  if (s) {
    st_json_set(reply, reply, "error", st_json_make_text(reply, err.message));
  } else {
    size_t same = shared(&before, &all);
    if (asked.length < before.length) st_buffer_text(&prompt, before.data + asked.length);
    st_json_set(reply, reply, "written", st_json_make_string(reply, all.data + same, all.length - same));
    read_answers(request, &prompt, all.data + same, reply);
  }
  st_buffer_free(&asked);
  st_buffer_free(&before);
  st_buffer_free(&all);
  st_buffer_free(&prompt);
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
