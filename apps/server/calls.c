// Tool calls in requests and answers.
#define _POSIX_C_SOURCE 200809L
#include "calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOOLS_MOST = 1024, NAME_MOST = 128 };

// ---- requests ----

static bool is_name(const st_json *name) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:/-";
  size_t n = st_json_length(name);
  return st_json_is_string(name) && n >= 1 && n <= NAME_MOST && strspn(st_json_string(name), letters) == n;
}

static bool is_text(const st_json *value, const char *text) {
  return st_json_is_string(value) && !strcmp(st_json_string(value), text);
}

static const st_json *name_of(const st_json *tools, size_t i) {
  return st_json_get(st_json_get(st_json_at(tools, i), "function"), "name");
}

static bool read_tool(const st_json *tools, size_t i, problem *p) {
  const st_json *tool = st_json_at(tools, i), *function = st_json_get(tool, "function");
  const st_json *name = st_json_get(function, "name"), *parameters = st_json_get(function, "parameters");
  const st_json *description = st_json_get(function, "description"), *strict = st_json_get(function, "strict");
  if (!st_json_is_object(tool))
    return invalid(p, "tools", "tools[%zu]: expected an object, found %s", i, kind_of(tool));
  if (!is_text(st_json_get(tool, "type"), "function"))
    return invalid(p, "tools", "tools[%zu].type: only function is supported", i);
  if (!is_name(name))
    return invalid(p, "tools", "tools[%zu].function.name: expected 1 to %d letters, digits, _ . : / or -", i,
                   NAME_MOST);
  if (parameters && !st_json_is_object(parameters))
    return invalid(p, "tools", "tools[%zu].function.parameters: expected an object, found %s", i, kind_of(parameters));
  if (description && !st_json_is_string(description))
    return invalid(p, "tools", "tools[%zu].function.description: expected a string, found %s", i, kind_of(description));
  if (strict && !st_json_is_bool(strict))
    return invalid(p, "tools", "tools[%zu].function.strict: expected true or false, found %s", i, kind_of(strict));
  for (size_t k = 0; k < i; k++) {
    if (is_text(name_of(tools, k), st_json_string(name)))
      return invalid(p, "tools", "tools[%zu].function.name: %.64s is given twice", i, st_json_string(name));
  }
  return true;
}

static const st_json *allowed_of(const st_json *wanted) {
  return is_text(st_json_get(wanted, "type"), "allowed_tools") ? st_json_get(wanted, "allowed_tools") : NULL;
}

bool tool_is_allowed(const st_json *wanted, const st_json *tool) {
  const st_json *allowed = allowed_of(wanted), *list = st_json_get(allowed, "tools");
  const char *name = st_json_string(st_json_get(st_json_get(tool, "function"), "name"));
  if (!allowed) return true;
  for (size_t i = 0; name && i < st_json_size(list); i++) {
    if (is_text(name_of(list, i), name)) return true;
  }
  return false;
}

// tool_choice {"type": "allowed_tools", "allowed_tools": {"mode", "tools"}}: the others are kept from the model.
static bool read_allowed(job *j, const st_json *tools, const st_json *allowed, problem *p) {
  const char *key = "tool_choice";
  const st_json *mode = st_json_get(allowed, "mode"), *list = st_json_get(allowed, "tools");
  bool required = is_text(mode, "required");
  if (!required && !is_text(mode, "auto"))
    return invalid(p, key, "%s.mode: expected auto or required, found %s", key,
                   st_json_is_string(mode) ? st_json_string(mode) : kind_of(mode));
  if (!st_json_size(list)) return invalid(p, key, "%s.tools: expected functions, found none", key);
  for (size_t i = 0; i < st_json_size(list); i++) {
    const char *name = st_json_string(name_of(list, i));
    bool known = false;
    for (size_t k = 0; name && k < st_json_size(tools); k++) known |= is_text(name_of(tools, k), name);
    if (!known)
      return invalid(p, key, "%s.tools[%zu]: expected one of the tools, found %.64s", key, i, name ? name : "nothing");
  }
  j->tool_choice = required ? TOOLS_REQUIRED : TOOLS_AUTO;
  return true;
}

static bool read_choice(job *j, const st_json *tools, const st_json *wanted, problem *p) {
  const char *key = "tool_choice";
  const st_json *name = st_json_get(st_json_get(wanted, "function"), "name");
  j->tool_choice = st_json_size(tools) ? TOOLS_AUTO : TOOLS_NONE;
  if (!wanted || is_text(wanted, "auto")) return true;
  if (is_text(wanted, "none")) {
    j->tool_choice = TOOLS_NONE;
    return true;
  }
  if (allowed_of(wanted)) return read_allowed(j, tools, allowed_of(wanted), p);
  bool required = is_text(wanted, "required");
  if (!required && (!is_text(st_json_get(wanted, "type"), "function") || !st_json_is_string(name)))
    return invalid(p, key, "%s: expected none, auto, required, a function or allowed_tools, found %s", key,
                   st_json_is_string(wanted) ? st_json_string(wanted) : kind_of(wanted));
  if (!st_json_size(tools)) return invalid(p, key, "%s: expected tools as well, found none", key);
  j->tool_choice = TOOLS_REQUIRED;
  for (size_t i = 0; !required && i < st_json_size(tools); i++) {
    if (!is_text(name_of(tools, i), st_json_string(name))) continue;
    j->tool_name = strdup(st_json_string(name));
    return j->tool_name || fail_memory(p);
  }
  return required || invalid(p, key, "%s: expected one of the tools, found %.64s", key, st_json_string(name));
}

bool read_tools(job *j, const st_json *body, problem *p) {
  const st_json *tools = st_json_get(body, "tools"), *parallel = st_json_get(body, "parallel_tool_calls");
  if (tools && !st_json_is_array(tools))
    return invalid(p, "tools", "tools: expected an array, found %s", kind_of(tools));
  if (st_json_size(tools) > TOOLS_MOST)
    return invalid(p, "tools", "tools: expected at most %d, found %zu", TOOLS_MOST, st_json_size(tools));
  for (size_t i = 0; i < st_json_size(tools); i++) {
    if (!read_tool(tools, i, p)) return false;
  }
  if (parallel && !st_json_is_bool(parallel))
    return invalid(p, "parallel_tool_calls", "parallel_tool_calls: expected true or false, found %s",
                   kind_of(parallel));
  j->one_call = st_json_is(parallel, ST_JSON_FALSE);
  return read_choice(j, tools, st_json_get(body, "tool_choice"), p);
}

st_json tool_value(st_json *root, const st_json *name, const st_json *parameters, const st_json *members) {
  const st_json *description = st_json_get(members, "description"), *strict = st_json_get(members, "strict");
  st_json tool = st_json_make_object(), function = st_json_make_object();
  if (!root) return tool;
  if (name) put(root, &function, "name", st_json_copy_of(root, name));
  if (description) put(root, &function, "description", st_json_copy_of(root, description));
  if (parameters) put(root, &function, "parameters", st_json_copy_of(root, parameters));
  if (strict) put(root, &function, "strict", st_json_copy_of(root, strict));
  put_text(root, &tool, "type", "function");
  put(root, &tool, "function", function);
  return tool;
}

// ---- answers ----

bool call_begin(choice *c, const char *name, size_t n) {
  tool_call *grown = realloc(c->calls, (c->n_calls + 1) * sizeof *grown);
  char *copy = malloc(n + 1);
  if (grown) c->calls = grown;
  if (!grown || !copy) {
    free(copy);
    return false;
  }
  memcpy(copy, name, n);
  copy[n] = 0;
  tool_call *call = &grown[c->n_calls];
  *call = (tool_call){.name = copy};
  const char *unique = strpbrk(c->job->id, "_-");
  snprintf(call->id, sizeof call->id, "%s%s_%u_%zu", c->job->format->call_prefix, unique ? unique + 1 : c->job->id,
           (unsigned)c->index, c->n_calls);
  c->n_calls++;
  return true;
}

bool call_append(choice *c, const char *arguments, size_t n) {
  return !c->n_calls || st_buffer_append(&c->calls[c->n_calls - 1].arguments, arguments, n);
}

void calls_free(choice *c) {
  for (size_t i = 0; i < c->n_calls; i++) {
    free(c->calls[i].name);
    st_buffer_free(&c->calls[i].arguments);
  }
  free(c->calls);
}

bool next_call_news(choice *c, call_news *n) {
  bool ended = c->state == CHOICE_ENDED;
  if (c->sent_calls == c->n_calls) return false;
  tool_call *call = &c->calls[c->sent_calls];
  bool last = c->sent_calls + 1 == c->n_calls;
  *n = (call_news){.call = call,
                   .index = c->sent_calls,
                   .begins = !call->told,
                   .ends = ended || !last,
                   .arguments = call->arguments.data ? call->arguments.data + call->sent : "",
                   .length = call->arguments.length - call->sent};
  if (!n->begins && !n->ends && !n->length) return false;
  call->told = true;
  call->sent = call->arguments.length;
  if (n->ends) c->sent_calls++;
  return true;
}
