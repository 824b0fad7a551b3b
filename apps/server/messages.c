// Messages to prompts.
#include "messages.h"
#include "calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The kinds of parts that hold a text, by the APIs that have them.
static bool is_text_part(const char *type) {
  static const char *const types[] = {"text", "input_text", "output_text", "refusal", "summary_text", "reasoning_text"};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    if (!strcmp(type, types[i])) return true;
  }
  return false;
}

static bool add_part(st_buffer *text, const st_json *part, const char *param, problem *p) {
  const char *type = st_json_string(st_json_get(part, "type"));
  if (!st_json_is_object(part))
    return invalid(p, param, "%s: expected parts that are objects, found %s", param, kind_of(part));
  if (!type)
    return invalid(p, param, "%s: expected a type in each part, found %s", param, kind_of(st_json_get(part, "type")));
  if (!is_text_part(type))
    return invalid(p, param, "%s: parts of type %.40s are not supported, only text", param, type);
  const st_json *value = st_json_get(part, strcmp(type, "refusal") ? "text" : "refusal");
  if (!st_json_is_string(value)) return invalid(p, param, "%s: expected a string, found %s", param, kind_of(value));
  bool whole = (!text->length || st_buffer_text(text, "\n")) &&
               st_buffer_append(text, st_json_string(value), st_json_length(value));
  return whole || fail_memory(p);
}

bool content_text(st_json *root, const st_json *content, const char *param, st_json *text, problem *p) {
  st_buffer joined = {0};
  *text = st_json_make_null();
  if (!content || st_json_is_null(content)) return true;
  if (st_json_is_string(content)) {
    *text = st_json_copy_of(root, content);
    return true;
  }
  if (!st_json_is_array(content))
    return invalid(p, param, "%s: expected a string or an array, found %s", param, kind_of(content));
  bool fine = true;
  for (size_t i = 0; fine && i < st_json_size(content); i++) fine = add_part(&joined, st_json_at(content, i), param, p);
  if (fine) *text = bytes_value(root, joined.data ? joined.data : "", joined.length);
  st_buffer_free(&joined);
  return fine;
}

void add_message(st_json *root, st_json *messages, const char *role, st_json content) {
  st_json message = st_json_make_object();
  put_text(root, &message, "role", role);
  put(root, &message, "content", content);
  push(root, messages, message);
}

st_json call_value(st_json *root, const st_json *id, const st_json *name, const st_json *arguments) {
  st_json call = st_json_make_object(), function = st_json_make_object();
  put(root, &function, "name", st_json_copy_of(root, name));
  put(root, &function, "arguments", st_json_copy_of(root, arguments));
  put(root, &call, "id", st_json_copy_of(root, id));
  put_text(root, &call, "type", "function");
  put(root, &call, "function", function);
  return call;
}

void add_tool_message(st_json *root, st_json *messages, const st_json *id, st_json content) {
  st_json message = st_json_make_object();
  put_text(root, &message, "role", "tool");
  put(root, &message, "tool_call_id", st_json_copy_of(root, id));
  put(root, &message, "content", content);
  push(root, messages, message);
}

// A copy whose content is a string.
static bool copy_message(st_json *root, const st_json *from, size_t i, st_json *to, problem *p) {
  char param[64];
  snprintf(param, sizeof param, "messages[%zu]", i);
  if (!st_json_is_object(from)) return invalid(p, param, "%s: expected an object, found %s", param, kind_of(from));
  const st_json *role = st_json_get(from, "role"), *content = st_json_get(from, "content");
  if (!st_json_is_string(role)) return invalid(p, param, "%s.role: expected a string, found %s", param, kind_of(role));
  bool assistant = !strcmp(st_json_string(role), "assistant");
  if (!content && !assistant) return invalid(p, param, "%s.content: expected a string or parts, found nothing", param);
  *to = st_json_make_object();
  for (size_t k = 0; k < st_json_members(from); k++) {
    const st_json_member *m = st_json_member_at(from, k);
    st_json value = st_json_make_null();
    if (!strcmp(m->key, "content")) {
      if (!content_text(root, &m->value, param, &value, p)) return false;
      // Templates expect an answer that consists only of calls to have an empty text.
      if (assistant && st_json_is_null(&value) && !st_json_get(from, "tool_calls")) value = bytes_value(root, "", 0);
    } else if (!strcmp(m->key, "role") && !strcmp(st_json_string(role), "developer")) {
      value = bytes_value(root, "system", 6); // the name that templates know it by
    } else {
      value = st_json_copy_of(root, &m->value);
    }
    put(root, to, m->key, value);
  }
  return true;
}

static bool is_answer(const st_json *message) {
  const char *role = st_json_string(st_json_get(message, "role"));
  return role && !strcmp(role, "assistant");
}

// Whether the last message is to be continued, rather than answered.
static bool wants_more(const st_json *body, const st_json *messages, bool *more, problem *p) {
  const st_json *go_on = st_json_get(body, "continue_final_message"), *add = st_json_get(body, "add_generation_prompt");
  size_t n = st_json_size(messages);
  const st_json *answer = st_json_at(messages, n - 1);
  bool last = is_answer(answer), calls = last && st_json_size(st_json_get(answer, "tool_calls"));
  if ((go_on && !st_json_is_bool(go_on)) || (add && !st_json_is_bool(add)))
    return invalid(p, NULL, "continue_final_message, add_generation_prompt: expected true or false");
  if (st_json_is(go_on, ST_JSON_TRUE) && st_json_is(add, ST_JSON_TRUE))
    return invalid(p, NULL, "continue_final_message and add_generation_prompt exclude each other");
  if (st_json_is(go_on, ST_JSON_TRUE) && !last)
    return invalid(p, "continue_final_message", "continue_final_message: the last message is not the assistant's");
  if (calls && !st_json_is(add, ST_JSON_FALSE))
    return invalid(p, "messages", "messages: expected results after the last answer's tool_calls, found none");
  *more = last && !calls && !st_json_is(go_on, ST_JSON_FALSE) && !st_json_is(add, ST_JSON_TRUE);
  if (*more && n > 1 && is_answer(st_json_at(messages, n - 2)))
    return invalid(p, "messages", "messages: expected at most one answer at the end, found two");
  return true;
}

// The request's variables for the template, except those that the server itself sets.
static bool add_variables(st_json *root, const st_json *body, problem *p) {
  const st_json *kwargs = st_json_get(body, "chat_template_kwargs");
  if (kwargs && !st_json_is_object(kwargs))
    return invalid(p, "chat_template_kwargs", "chat_template_kwargs: expected an object, found %s", kind_of(kwargs));
  for (size_t i = 0; i < st_json_members(kwargs); i++) {
    const st_json_member *m = st_json_member_at(kwargs, i);
    st_json_set(root, root, m->key, st_json_copy_of(root, &m->value));
  }
  const st_json *tools = st_json_get(body, "tools"), *wanted = st_json_get(body, "tool_choice");
  bool none = st_json_is_string(wanted) && !strcmp(st_json_string(wanted), "none");
  st_json list = st_json_make_array();
  for (size_t i = 0; i < st_json_size(tools); i++) {
    if (tool_is_allowed(wanted, st_json_at(tools, i)))
      st_json_push(root, &list, st_json_copy_of(root, st_json_at(tools, i)));
  }
  if (st_json_size(tools) && !none) st_json_set(root, root, "tools", list);
  const st_json *effort = st_json_get(body, "reasoning_effort");
  if (effort && !st_json_is_string(effort))
    return invalid(p, "reasoning_effort", "reasoning_effort: expected a string, found %s", kind_of(effort));
  if (effort && !st_json_find(root, "reasoning_effort"))
    st_json_set(root, root, "reasoning_effort", st_json_copy_of(root, effort));
  return true;
}

static bool fill(st_json *root, const st_json *body, const st_json **rest, problem *p) {
  const st_json *messages = st_json_get(body, "messages");
  st_json list = st_json_make_array();
  bool more = false;
  size_t n = st_json_size(messages);
  *rest = NULL;
  if (!st_json_is_array(messages))
    return invalid(p, "messages", "messages: expected an array, found %s", kind_of(messages));
  if (!n) return invalid(p, "messages", "messages: expected at least one message, found none");
  if (!wants_more(body, messages, &more, p)) return false;
  for (size_t i = 0; i < n; i++) {
    st_json message;
    if (!copy_message(root, st_json_at(messages, i), i, &message, p)) return false;
    if (more && i + 1 == n)
      *rest = st_json_at(messages, i);
    else
      push(root, &list, message);
  }
  if (!add_variables(root, body, p)) return false;
  st_json_set(root, root, "messages", list);
  bool add = more || !st_json_is(st_json_get(body, "add_generation_prompt"), ST_JSON_FALSE);
  st_json_set(root, root, "add_generation_prompt", st_json_make_bool(add));
  return !st_json_failed(root) || fail_memory(p);
}

st_json *conversation_of(const st_json *body, const st_json **rest, problem *p) {
  st_json *root = st_json_new();
  if (!root) {
    fail_memory(p);
    return NULL;
  }
  if (fill(root, body, rest, p)) return root;
  st_json_free(root);
  return NULL;
}

// ---- tokens ----

static setun_token *rendered_tokens(const setun_rendering *r, size_t room, size_t *n, problem *p) {
  setun_error error;
  setun_status s = setun_rendering_tokenize(r, NULL, 0, n, &error);
  setun_token *ids =
      s == SETUN_OK && *n <= SIZE_MAX / sizeof *ids - room - 1 ? malloc((*n + room + 1) * sizeof *ids) : NULL;
  if (s == SETUN_OK && !ids) fail_memory(p);
  if (s == SETUN_OK && ids) s = setun_rendering_tokenize(r, ids, *n, n, &error);
  if (s == SETUN_OK) return ids;
  fail_with(p, NULL, &error);
  free(ids);
  return NULL;
}

// The conversation's tokens, followed by those of an answer that is being continued.
static setun_token *all_tokens(job *j, const st_json *rest, size_t *n, problem *p) {
  st_json *scratch = st_json_new();
  st_json text = st_json_make_null();
  size_t more = 0;
  setun_token *ids = NULL, *tail = NULL;
  bool fine = scratch ? content_text(scratch, rest ? st_json_get(rest, "content") : NULL, "messages", &text, p)
                      : fail_memory(p);
  if (fine && st_json_length(&text))
    fine = (tail = prompt_tokens_of(j->server, st_json_string(&text), st_json_length(&text), 0, &more, p)) != NULL;
  if (fine) ids = rendered_tokens(j->rendering, more, n, p);
  if (ids && more) memcpy(ids + *n, tail, more * sizeof *ids);
  if (ids) *n += more;
  free(tail);
  st_json_free(scratch);
  return ids;
}

bool job_add_conversation(job *j, st_json *context, const st_json *rest, problem *p) {
  const server *s = j->server;
  st_buffer text = {0};
  setun_error error;
  size_t n = 0;
  if (!s->chat) {
    st_json_free(context);
    return invalid(p, "messages", "%s", s->chat_problem);
  }
  const setun_chat *chat = s->chat_tools && st_json_get(context, "tools") ? s->chat_tools : s->chat;
  bool whole = st_json_append_shortest(context, &text);
  st_json_free(context);
  setun_status status =
      whole ? setun_chat_render_tools(chat, text.data, text.length, NULL, &j->rendering, &error) : SETUN_OK;
  st_buffer_free(&text);
  if (!whole) return fail_memory(p);
  if (status != SETUN_OK) return fail_with(p, "messages", &error);
  j->chat = true;
  setun_token *ids = all_tokens(j, rest, &n, p);
  return ids && job_add_prompt(j, ids, n, p);
}
