// Conversations with tools for templates.
#include "chat/tool_history.h"

#include "base/memory.h"

#include <string.h>

static bool contains(const char *text, size_t length, const char *word) {
  size_t n = strlen(word);
  for (size_t i = 0; i + n <= length; i++) {
    if (text[i] == *word && !memcmp(text + i, word, n)) return true;
  }
  return false;
}

void st_tool_template_of(const char *text, size_t length, st_tool_template *t) {
  *t = (st_tool_template){.format = st_tool_format_of(text, length)};
  t->takes_tools = contains(text, length, "tools") && !st_tool_format_is_described(t->format);
  t->takes_calls = contains(text, length, "tool_calls") && !st_tool_format_is_described(t->format);
  t->takes_results = t->takes_calls || contains(text, length, "\"tool\"") || contains(text, length, "'tool'");
  t->calls_alone = t->takes_calls && contains(text, length, "'assistant' and message['content'] is none");
}

// The state of the conversion of a conversation.
typedef struct adapting {
  const st_tool_template *t;
  int form;
  st_json *root;
  st_json messages;
  setun_error *err;
} adapting;

static bool is_role(const st_json *message, const char *role) {
  const char *name = st_json_string(st_json_get(message, "role"));
  return name && !strcmp(name, role);
}

static setun_status expected(setun_error *err, const char *what, size_t i, const char *wanted, const st_json *found) {
  return st_fail(err, SETUN_ERROR_ARGUMENT, "%s[%zu]: expected %s, found %s", what, i, wanted,
                 found ? st_json_kind(found) : "nothing");
}

// ---- tools ----

static const st_json *function_of(const st_json *tool) {
  const st_json *function = st_json_get(tool, "function");
  return function ? function : tool;
}

// {"type": "function", "function": {name, description, parameters, ...}}: templates read all three.
static setun_status add_tool(st_json *root, st_json *list, const st_json *tool, size_t i, setun_error *err) {
  const st_json *function = function_of(tool), *name = st_json_get(function, "name");
  st_json value = st_json_make_object(), inner = st_json_make_object(), parameters = st_json_make_object();
  if (!st_json_is_object(tool)) return expected(err, "tools", i, "an object", tool);
  if (!st_json_length(name)) return expected(err, "tools", i, "a function with a name", name);
  if (st_json_get(function, "parameters") && !st_json_is_object(st_json_get(function, "parameters")))
    return expected(err, "tools", i, "parameters that are an object", st_json_get(function, "parameters"));
  st_json_set(root, &inner, "name", *name);
  st_json_set(root, &inner, "description", st_json_make_text(root, ""));
  st_json_set(root, &parameters, "type", st_json_make_text(root, "object"));
  st_json_set(root, &parameters, "properties", st_json_make_object());
  st_json_set(root, &inner, "parameters", parameters);
  for (size_t k = 0; k < st_json_members(function); k++) {
    const st_json_member *m = st_json_member_at(function, k);
    if (!strcmp(m->key, "type") && function == tool) continue;
    if (!st_json_is_null(&m->value)) st_json_set(root, &inner, m->key, m->value);
  }
  st_json_set(root, &value, "type", st_json_make_text(root, "function"));
  st_json_set(root, &value, "function", inner);
  st_json_push(root, list, value);
  return SETUN_OK;
}

static setun_status adapt_tools(st_json *root, setun_error *err) {
  const st_json *tools = st_json_get(root, "tools");
  st_json list = st_json_make_array();
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < st_json_size(tools) && s == SETUN_OK; i++)
    s = add_tool(root, &list, st_json_at(tools, i), i, err);
  if (s == SETUN_OK && st_json_size(tools)) st_json_set(root, root, "tools", list);
  return s;
}

// ---- text for templates that do not support tools ----

// How to write calls, for models that were not trained to.
static bool append_usage(st_buffer *out, const st_tool_format *f) {
  const char *close = f->close ? f->close : "";
  if (f->syntax != ST_TOOLS_JSON) {
    return st_buffer_format(out,
                            "To call a function, write: %s%s%sNAME%sARGUMENTS%s%s%s, where ARGUMENTS is a JSON object.",
                            f->opens[0], f->call_open ? f->call_open : "", f->name_open ? f->name_open : "",
                            f->name_close, f->after ? f->after : "", f->call_close ? f->call_close : "", close);
  }
  return st_buffer_format(
      out,
      "To call a function, write a JSON object with its name and arguments:\n%s\n%s{\"name\": NAME, "
      "\"%s\": ARGUMENTS}%s\n%s",
      f->opens[0], f->list ? "[" : "", f->arguments, f->list ? "]" : "", close);
}

static bool append_tools(st_buffer *out, const st_json *tools, const st_tool_format *f) {
  bool ok = st_buffer_text(out, "You can call these functions, one JSON object each:\n");
  for (size_t i = 0; i < st_json_size(tools) && ok; i++)
    ok = st_json_append_shortest(function_of(st_json_at(tools, i)), out) && st_buffer_text(out, "\n");
  return ok && append_usage(out, f);
}

// A call as the model would have written it, in the JSON and NAMED syntaxes.
static bool append_call(st_buffer *out, const st_json *call, const st_tool_format *f) {
  const st_json *function = function_of(call), *name = st_json_get(function, "name");
  if (f->syntax != ST_TOOLS_JSON) {
    return (!f->call_open || st_buffer_text(out, f->call_open)) &&
           (!f->name_open || st_buffer_text(out, f->name_open)) &&
           st_buffer_append(out, st_json_string(name), st_json_length(name)) && st_buffer_text(out, f->name_close) &&
           st_json_append_shortest(st_json_get(function, "arguments"), out) &&
           (!f->after || st_buffer_text(out, f->after)) && (!f->call_close || st_buffer_text(out, f->call_close));
  }
  return st_buffer_text(out, "{\"name\": ") && st_json_append_shortest(name, out) &&
         st_buffer_format(out, ", \"%s\": ", f->arguments) &&
         st_json_append_shortest(st_json_get(function, "arguments"), out) && st_buffer_text(out, "}");
}

static bool append_calls(st_buffer *out, const st_json *calls, const st_tool_format *f) {
  bool each = f->syntax == ST_TOOLS_JSON && !f->list, ok = true;
  for (size_t i = 0; i < st_json_size(calls) && ok; i++) {
    if (!i || each) ok = (!out->length || st_buffer_text(out, "\n")) && st_buffer_text(out, f->opens[0]);
    if (ok && each) ok = st_buffer_text(out, "\n");
    if (ok && f->list) ok = st_buffer_text(out, i ? ", " : "[");
    ok = ok && append_call(out, st_json_at(calls, i), f);
    if (ok && each && f->close) ok = st_buffer_text(out, "\n") && st_buffer_text(out, f->close);
  }
  if (ok && f->list) ok = st_buffer_text(out, "]");
  return ok && (each || !f->close || st_buffer_text(out, f->close));
}

// ---- calls ----

static st_json no_text(adapting *a) {
  return a->form & ST_TOOL_EMPTY_TEXT ? st_json_make_text(a->root, "") : st_json_make_null();
}

// An id of exactly the required number of letters and digits: the original one, or one derived from it.
static st_json fitting_id(st_json *root, const st_json *id, size_t length) {
  static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  enum { ID_MOST = 16 };
  char made[ID_MOST];
  const char *text = st_json_length(id) ? st_json_string(id) : "";
  if (!length || (st_json_length(id) == length && strspn(text, digits) == length))
    return id ? *id : st_json_make_text(root, "");
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < st_json_length(id); i++) hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
  for (size_t i = 0; i < length && i < ID_MOST; i++) {
    made[i] = digits[(hash >> 8) % (sizeof digits - 1)];
    hash = hash * 6364136223846793005u + 1442695040888963407u;
  }
  return st_json_make_string(root, made, length < ID_MOST ? length : ID_MOST);
}

static setun_status adapt_arguments(adapting *a, const st_json *arguments, size_t i, st_json *out) {
  st_json *root = NULL;
  *out = st_json_make_object();
  if (!arguments || (st_json_is_string(arguments) && !st_json_length(arguments))) return SETUN_OK;
  if (st_json_is_object(arguments)) {
    *out = *arguments;
    return SETUN_OK;
  }
  if (!st_json_is_string(arguments)) return expected(a->err, "messages", i, "arguments that are an object", arguments);
  setun_status s =
      st_json_parse_lenient(st_json_string(arguments), st_json_length(arguments), "arguments of a call", &root, NULL);
  if (s == SETUN_OK && st_json_is_object(root))
    *out = st_json_copy_of(a->root, root);
  else
    s = st_fail(a->err, SETUN_ERROR_ARGUMENT, "messages[%zu]: expected a call's arguments to be a JSON object", i);
  st_json_free(root);
  return s;
}

static setun_status arguments_text(adapting *a, st_json *arguments) {
  st_buffer text = {0};
  if (!(a->form & ST_TOOL_TEXT_ARGUMENTS)) return SETUN_OK;
  bool ok = st_json_append_shortest(arguments, &text);
  if (ok) *arguments = st_json_make_string(a->root, text.data, text.length);
  st_buffer_free(&text);
  return ok ? SETUN_OK : st_fail_memory(a->err, "a conversation");
}

static setun_status adapt_call(adapting *a, const st_json *call, size_t i, st_json *out) {
  const st_json *function = function_of(call);
  st_json inner = st_json_make_object(), arguments;
  if (!st_json_length(st_json_get(function, "name")))
    return expected(a->err, "messages", i, "calls with a function's name", st_json_get(function, "name"));
  setun_status s = adapt_arguments(a, st_json_get(function, "arguments"), i, &arguments);
  if (s == SETUN_OK && a->t->takes_calls) s = arguments_text(a, &arguments);
  if (s != SETUN_OK) return s;
  st_json_set(a->root, &inner, "name", *st_json_get(function, "name"));
  st_json_set(a->root, &inner, "arguments", arguments);
  *out = st_json_make_object();
  st_json_set(a->root, out, "id", fitting_id(a->root, st_json_get(call, "id"), a->t->format->id_length));
  st_json_set(a->root, out, "type", st_json_make_text(a->root, "function"));
  st_json_set(a->root, out, "function", inner);
  return SETUN_OK;
}

// A message's members, with its reasoning in the member that the template reads.
static st_json copy_message(adapting *a, const st_json *message) {
  const char *thoughts = a->t->format->thoughts;
  st_json copy = st_json_make_object();
  for (size_t k = 0; k < st_json_members(message); k++) {
    const st_json_member *m = st_json_member_at(message, k);
    bool rename = thoughts && !strcmp(m->key, "reasoning_content");
    st_json_set(a->root, &copy, rename ? thoughts : m->key, m->value);
  }
  return copy;
}

// The text of an answer with these calls for a template that does not write them.
static setun_status write_calls(adapting *a, st_json *message, const st_json *calls) {
  const st_json *content = st_json_get(message, "content");
  st_buffer text = {0};
  bool ok = (!st_json_length(content) || st_buffer_append(&text, st_json_string(content), st_json_length(content))) &&
            append_calls(&text, calls, a->t->format);
  if (ok) st_json_set(a->root, message, "content", st_json_make_string(a->root, text.data, text.length));
  st_buffer_free(&text);
  st_json_delete(message, "tool_calls");
  return ok ? SETUN_OK : st_fail_memory(a->err, "a conversation");
}

// The name of the function that returned a result, from the call with the same id.
static const st_json *called_name(const st_json *messages, size_t i, const st_json *id) {
  while (st_json_length(id) && i--) {
    const st_json *calls = st_json_get(st_json_at(messages, i), "tool_calls");
    for (size_t k = 0; k < st_json_size(calls); k++) {
      const st_json *call = st_json_at(calls, k), *other = st_json_get(call, "id");
      if (st_json_length(other) == st_json_length(id) && !strcmp(st_json_string(other), st_json_string(id)))
        return st_json_get(function_of(call), "name");
    }
  }
  return NULL;
}

static setun_status add_result(adapting *a, const st_json *messages, size_t i) {
  const st_json *from = st_json_at(messages, i), *id = st_json_get(from, "tool_call_id");
  const st_json *content = st_json_get(from, "content"), *name = called_name(messages, i, id);
  st_json message = copy_message(a, from);
  if (id) st_json_set(a->root, &message, "tool_call_id", fitting_id(a->root, id, a->t->format->id_length));
  if (name && !st_json_get(from, "name")) st_json_set(a->root, &message, "name", *name);
  if (!a->t->takes_results) {
    st_buffer text = {0};
    bool ok = st_buffer_text(&text, "<tool_response>\n") &&
              (!st_json_length(content) || st_buffer_append(&text, st_json_string(content), st_json_length(content))) &&
              st_buffer_text(&text, "\n</tool_response>");
    message = st_json_make_object();
    st_json_set(a->root, &message, "role", st_json_make_text(a->root, "user"));
    if (ok) st_json_set(a->root, &message, "content", st_json_make_string(a->root, text.data, text.length));
    st_buffer_free(&text);
    if (!ok) return st_fail_memory(a->err, "a conversation");
  }
  st_json_push(a->root, &a->messages, message);
  return SETUN_OK;
}

// The index of the result of the call with this id among the messages from `i` on; SIZE_MAX: not found.
static size_t result_of(const st_json *messages, size_t i, const st_json *id) {
  for (; is_role(st_json_at(messages, i), "tool"); i++) {
    const st_json *other = st_json_get(st_json_at(messages, i), "tool_call_id");
    if (st_json_length(id) && st_json_length(other) == st_json_length(id) &&
        !strcmp(st_json_string(other), st_json_string(id)))
      return i;
  }
  return SIZE_MAX;
}

static st_json bare_answer(adapting *a) {
  st_json message = st_json_make_object();
  st_json_set(a->root, &message, "role", st_json_make_text(a->root, "assistant"));
  st_json_set(a->root, &message, "content", no_text(a));
  return message;
}

// Converts an answer with calls, at *i, which is moved past it and past the results that belong to it.
static setun_status add_answer(adapting *a, const st_json *messages, size_t *i) {
  const st_json *from = st_json_at(messages, *i), *calls = st_json_get(from, "tool_calls");
  st_json message = copy_message(a, from), list = st_json_make_array();
  bool split = a->t->format->one_call && st_json_size(calls) > 1;
  setun_status s = SETUN_OK;
  if (!st_json_get(from, "content")) st_json_set(a->root, &message, "content", no_text(a));
  if (a->t->calls_alone && st_json_length(st_json_get(&message, "content"))) { // its text is a message of its own
    st_json_delete(&message, "tool_calls");
    st_json_push(a->root, &a->messages, message);
    message = bare_answer(a);
  }
  for (size_t k = 0; k < st_json_size(calls) && s == SETUN_OK; k++) {
    st_json call;
    s = adapt_call(a, st_json_at(calls, k), *i, &call);
    if (s != SETUN_OK) break;
    st_json_push(a->root, &list, call);
    if (!split) continue;
    st_json_set(a->root, &message, "tool_calls", list);
    st_json_push(a->root, &a->messages, message);
    size_t result = result_of(messages, *i + 1, st_json_get(st_json_at(calls, k), "id"));
    if (result != SIZE_MAX) s = add_result(a, messages, result);
    message = bare_answer(a);
    list = st_json_make_array();
  }
  if (s != SETUN_OK) return s;
  ++*i;
  if (split) {
    while (is_role(st_json_at(messages, *i), "tool")) ++*i;
    return SETUN_OK;
  }
  st_json_set(a->root, &message, "tool_calls", list);
  if (!a->t->takes_calls) s = write_calls(a, &message, &list);
  st_json_push(a->root, &a->messages, message);
  return s;
}

// ---- the conversation ----

// Extends the system message, or adds one, by text or by the tools as a member.
static setun_status describe_tools(adapting *a, const st_json *tools) {
  const st_json *first = st_json_at(&a->messages, 0);
  bool there = is_role(first, "system");
  st_json message = there ? *first : st_json_make_object();
  const st_json *content = there ? st_json_get(first, "content") : NULL;
  st_buffer text = {0};
  bool member = a->t->format->tools_in_message, ok = true;
  if (!member && st_json_length(content))
    ok = st_buffer_append(&text, st_json_string(content), st_json_length(content)) && st_buffer_text(&text, "\n\n");
  if (ok) ok = member ? st_json_append_shortest(tools, &text) : append_tools(&text, tools, a->t->format);
  if (!there) st_json_set(a->root, &message, "role", st_json_make_text(a->root, "system"));
  if (!there) st_json_set(a->root, &message, "content", st_json_make_text(a->root, ""));
  if (ok)
    st_json_set(a->root, &message, member ? "tools" : "content", st_json_make_string(a->root, text.data, text.length));
  st_buffer_free(&text);
  if (!ok) return st_fail_memory(a->err, "the tools");
  if (there) st_json_remove(&a->messages, 0, 1);
  st_json_insert(a->root, &a->messages, 0, message);
  return SETUN_OK;
}

setun_status st_tool_adapt(const st_tool_template *t, int form, st_json *context, setun_error *err) {
  adapting a = {.t = t, .form = form, .root = context, .messages = st_json_make_array(), .err = err};
  setun_status s = adapt_tools(context, err);
  if (s != SETUN_OK) return s;
  const st_json *messages = st_json_get(context, "messages");
  if (!st_json_is_array(messages)) return SETUN_OK;
  st_json before = *messages; // a copy: the context is edited meanwhile
  for (size_t i = 0; i < st_json_size(&before) && s == SETUN_OK;) {
    const st_json *message = st_json_at(&before, i);
    if (st_json_size(st_json_get(message, "tool_calls"))) {
      s = add_answer(&a, &before, &i);
    } else if (is_role(message, "tool")) {
      s = add_result(&a, &before, i++);
    } else {
      st_json_push(context, &a.messages, copy_message(&a, message));
      i++;
    }
  }
  st_json tools = st_json_make_null();
  if (st_json_size(st_json_get(context, "tools"))) tools = *st_json_get(context, "tools");
  if (s == SETUN_OK && st_json_size(&tools) && (!t->takes_tools || t->format->tools_in_message))
    s = describe_tools(&a, &tools);
  st_json_set(context, context, "messages", a.messages);
  if (s == SETUN_OK && st_json_failed(context)) s = st_fail_memory(err, "a conversation");
  return s;
}
