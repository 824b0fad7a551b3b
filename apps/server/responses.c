// /v1/responses without stored state: OpenAI's newer form of conversations.
#include "calls.h"
#include "constraints.h"
#include "messages.h"
#include "replies.h"
#include "routes.h"

#include <stdio.h>
#include <string.h>

static const field response_fields[] = {
    {"input", FIELD_OTHER, 0, 1, 0, "a text, or the items of a conversation",
     "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"minItems\":1,\"items\":" SCHEMA("Item") "}]}"},
    {"instructions", FIELD_OTHER, 0, 0, 0, "the system prompt", "{\"type\":\"string\"}"},
    {"max_output_tokens", FIELD_INTEGER, offsetof(generation, max_tokens), 1, INT32_MAX - 1,
     "the most tokens that the answer may have", NULL},
    {"n", FIELD_INTEGER, offsetof(generation, n), 1, 1, "a response has one answer", NULL},
    {"reasoning", FIELD_OTHER, 0, 0, 0, "effort: a variable for the template",
     "{\"type\":\"object\",\"properties\":{\"effort\":{\"type\":[\"string\",\"null\"]}}}"},
    {"text", FIELD_OTHER, 0, 0, 0, "format: what the text must be",
     "{\"type\":\"object\",\"properties\":{\"format\":{\"anyOf\":[" SCHEMA("Format") ",{\"type\":\"null\"}]}}}"},
    {"tools", FIELD_OTHER, 0, 0, 0, "functions that the answer may call; other tools are ignored",
     "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"type\",\"name\"],"
     "\"properties\":{\"type\":{\"type\":\"string\"},\"name\":" SCHEMA(
         "ToolName") ",\"description\":{\"type\":[\"string\",\"null\"]},\"parameters\":{\"type\":[\"object\",\"null\"]}"
                     ","
                     "\"strict\":{\"type\":[\"boolean\",\"null\"]}}}}"},
    {"tool_choice", FIELD_OTHER, 0, 0, 0, "whether it may, must, or must not; or which one it must call",
     "{\"anyOf\":[{\"enum\":[\"none\",\"auto\",\"required\"]},{\"type\":\"object\",\"required\":[\"type\",\"name\"],"
     "\"properties\":{\"type\":{\"const\":\"function\"},\"name\":" SCHEMA(
         "ToolName") "}},{\"type\":\"object\",\"required\":[\"type\",\"mode\",\"tools\"],\"properties\":{\"type\":{"
                     "\"const\":\"allowed_tools\"},\"mode\":{\"enum\":[\"auto\",\"required\"]},\"tools\":{\"type\":"
                     "\"array\",\"minItems\":1,\"items\":{\"type\":\"object\",\"required\":[\"type\",\"name\"],"
                     "\"properties\":{\"type\":{\"const\":\"function\"},\"name\":" SCHEMA("ToolName") "}}}}}]}"},
    {"parallel_tool_calls", FIELD_OTHER, 0, 0, 0, "several calls in one answer (default true)",
     "{\"type\":\"boolean\"}"},
    {"chat_template_kwargs", FIELD_OTHER, 0, 0, 0, "variables for the template", "{\"type\":\"object\"}"},
    {"previous_response_id", FIELD_REFUSED, 0, 0, 0, "responses are not stored: send the whole conversation", NULL},
    {"conversation", FIELD_REFUSED, 0, 0, 0, "responses are not stored: send the whole conversation", NULL},
    {"background", FIELD_REFUSED, 0, 0, 0, "responses are not computed in the background", NULL},
    {"prompt", FIELD_REFUSED, 0, 0, 0, "stored prompts are not supported", NULL},
    {"top_logprobs", FIELD_REFUSED, 0, 0, 0, "log-probabilities are not part of responses; see /v1/chat/completions",
     NULL},
    {NULL, FIELD_BOOL, 0, 0, 0, NULL, NULL},
};
const field *const response_tables[] = {response_fields, sampling_fields, NULL};

enum { STAGE_NONE, STAGE_REASONING, STAGE_TEXT };

// ---- the response ----

typedef struct item_id {
  char text[48];
} item_id;

static item_id id_of(const job *j, const char *prefix) {
  item_id id;
  snprintf(id.text, sizeof id.text, "%s%s", prefix, strchr(j->id, '_') + 1);
  return id;
}

static st_json text_part(st_json *root, const char *text, size_t n) {
  st_json part = st_json_make_object();
  put_text(root, &part, "type", "output_text");
  put_bytes(root, &part, "text", text, n);
  put(root, &part, "annotations", st_json_make_array());
  put(root, &part, "logprobs", st_json_make_array());
  return part;
}

static st_json new_item(st_json *root, const job *j, const char *prefix, const char *type, const char *status) {
  st_json item = st_json_make_object();
  item_id id = id_of(j, prefix);
  put_text(root, &item, "id", id.text);
  put_text(root, &item, "type", type);
  put_text(root, &item, "status", status);
  return item;
}

static st_json message_item(st_json *root, const choice *c, bool done) {
  const char *status = !done ? "in_progress" : c->end == END_TOKEN || c->end == END_STOP ? "completed" : "incomplete";
  st_json item = new_item(root, c->job, "msg_", "message", status), content = st_json_make_array();
  if (done) push(root, &content, text_part(root, c->text.data, c->text.length));
  put_text(root, &item, "role", "assistant");
  put(root, &item, "content", content);
  return item;
}

static st_json reasoning_part(st_json *root, const char *text, size_t n) {
  st_json part = st_json_make_object();
  put_text(root, &part, "type", "reasoning_text");
  put_bytes(root, &part, "text", text, n);
  return part;
}

static st_json reasoning_item(st_json *root, const choice *c, bool done) {
  st_json item = new_item(root, c->job, "rs_", "reasoning", done ? "completed" : "in_progress"),
          content = st_json_make_array();
  if (done) push(root, &content, reasoning_part(root, c->reasoning.data, c->reasoning.length));
  put(root, &item, "summary", st_json_make_array());
  put(root, &item, "content", content);
  return item;
}

static st_json call_item(st_json *root, const choice *c, const tool_call *call, bool done) {
  bool whole = c->end == END_TOKEN || c->end == END_STOP || call + 1 < c->calls + c->n_calls;
  st_json item = st_json_make_object();
  item_id id;
  snprintf(id.text, sizeof id.text, "fc_%s", strchr(call->id, '_') + 1);
  put_text(root, &item, "id", id.text);
  put_text(root, &item, "type", "function_call");
  put_text(root, &item, "status", !done ? "in_progress" : whole ? "completed" : "incomplete");
  put_text(root, &item, "call_id", call->id);
  put_text(root, &item, "name", call->name);
  put_bytes(root, &item, "arguments", call->arguments.data, done ? call->arguments.length : 0);
  return item;
}

// The answer's items, in the same order as in a stream.
static st_json output_value(st_json *root, const choice *c) {
  st_json output = st_json_make_array();
  bool text = c->text_item || c->text.length || !c->n_calls;
  int64_t after = c->text_item ? c->text_item - 1 - (c->reasoning.length > 0) : 0; // calls before the text
  if (c->reasoning.length) push(root, &output, reasoning_item(root, c, true));
  for (size_t i = 0; i <= c->n_calls; i++) {
    if (text && (int64_t)i == after) push(root, &output, message_item(root, c, true));
    if (i < c->n_calls) push(root, &output, call_item(root, c, &c->calls[i], true));
  }
  return output;
}

static void put_response_usage(st_json *root, st_json *value, const job *j) {
  st_json object = st_json_make_object(), in = st_json_make_object(), out = st_json_make_object();
  usage u = job_usage(j);
  put_integer(root, &in, "cached_tokens", (int64_t)u.cached);
  put_integer(root, &out, "reasoning_tokens", 0);
  put_integer(root, &object, "input_tokens", (int64_t)u.prompt);
  put(root, &object, "input_tokens_details", in);
  put_integer(root, &object, "output_tokens", (int64_t)u.drawn);
  put(root, &object, "output_tokens_details", out);
  put_integer(root, &object, "total_tokens", (int64_t)(u.prompt + u.drawn));
  put(root, value, "usage", object);
}

// The request's members about tools, repeated unchanged.
static void put_tools(st_json *root, st_json *value, const job *j) {
  const st_json *wanted = st_json_get(j->asked, "tool_choice"), *tools = st_json_get(j->asked, "tools");
  if (!root) return;
  put(root, value, "tool_choice", wanted ? st_json_copy_of(root, wanted) : st_json_make_text(root, "auto"));
  put(root, value, "tools", tools ? st_json_copy_of(root, tools) : st_json_make_array());
  put_bool(root, value, "parallel_tool_calls", !j->one_call);
}

static void put_settings(st_json *root, st_json *value, const job *j) {
  st_json text = st_json_make_object(), plain = st_json_make_object();
  const st_json *format = st_json_get(st_json_get(j->asked, "text"), "format");
  const st_json *instructions = st_json_get(j->asked, "instructions");
  if (root) put(root, value, "instructions", instructions ? st_json_copy_of(root, instructions) : st_json_make_null());
  if (j->g.max_tokens >= 0)
    put_integer(root, value, "max_output_tokens", j->g.max_tokens);
  else
    put_null(root, value, "max_output_tokens");
  put_text(root, &plain, "type", "text");
  put(root, &text, "format", root && format ? st_json_copy_of(root, format) : plain);
  put(root, value, "text", text);
  put_real(root, value, "temperature", (double)j->g.sampling.temperature);
  put_real(root, value, "top_p", (double)j->g.sampling.top_p);
  put_tools(root, value, j);
  put_null(root, value, "previous_response_id");
  put_bool(root, value, "store", false);
  put_text(root, value, "truncation", "disabled");
  put(root, value, "metadata", st_json_make_object());
}

static st_json response_value(st_json *root, const job *j, bool done) {
  const choice *c = &j->choices[0];
  st_json value = st_json_make_object(), details = st_json_make_object();
  bool whole = c->end == END_TOKEN || c->end == END_STOP;
  put_text(root, &value, "id", j->id);
  put_text(root, &value, "object", "response");
  put_integer(root, &value, "created_at", j->created);
  put_text(root, &value, "status", !done ? "in_progress" : whole ? "completed" : "incomplete");
  put_null(root, &value, "error");
  put_text(root, &details, "reason", "max_output_tokens");
  put(root, &value, "incomplete_details", done && !whole ? details : st_json_make_null());
  put_text(root, &value, "model", j->server->about->name);
  put(root, &value, "output", done ? output_value(root, c) : st_json_make_array());
  put_settings(root, &value, j);
  if (done)
    put_response_usage(root, &value, j);
  else
    put_null(root, &value, "usage");
  return value;
}

// ---- the stream ----

static st_json *new_event(choice *c, const char *type) {
  st_json *root = st_json_new();
  put_text(root, root, "type", type);
  put_integer(root, root, "sequence_number", c->events++);
  return root;
}

static void emit(choice *c, const char *type, st_json *root) {
  send_event(c->job->x, type, root);
}

static void send_response(job *j, const char *type, bool done) {
  choice *c = &j->choices[0];
  st_json *root = new_event(c, type);
  put(root, root, "response", response_value(root, j, done));
  if (done) put_timings(root, root, j);
  emit(c, type, root);
}

// The members that locate an event's text.
static void put_place(st_json *root, choice *c, bool reasoning) {
  item_id id = id_of(c->job, reasoning ? "rs_" : "msg_");
  put_text(root, root, "item_id", id.text);
  put_integer(root, root, "output_index", reasoning ? 0 : c->text_item - 1);
  put_integer(root, root, "content_index", 0);
}

static void send_item(choice *c, const char *type, bool reasoning, bool done) {
  st_json *root = new_event(c, type);
  put_integer(root, root, "output_index", reasoning ? 0 : c->text_item - 1);
  put(root, root, "item", reasoning ? reasoning_item(root, c, done) : message_item(root, c, done));
  emit(c, type, root);
}

static void send_part(choice *c, const char *type, bool done) {
  st_json *root = new_event(c, type);
  put_place(root, c, false);
  put(root, root, "part", text_part(root, done ? c->text.data : "", done ? c->text.length : 0));
  emit(c, type, root);
}

static void send_text(choice *c, const char *type, const char *member, bool reasoning, const char *text, size_t n) {
  st_json *root = new_event(c, type);
  put_place(root, c, reasoning);
  put_bytes(root, root, member, text, n);
  if (!reasoning) put(root, root, "logprobs", st_json_make_array());
  if (c->job->g.timings) put_timings(root, root, c->job);
  emit(c, type, root);
}

static void close_reasoning(choice *c) {
  if (c->stage != STAGE_REASONING) return;
  send_text(c, "response.reasoning_text.done", "text", true, c->reasoning.data, c->reasoning.length);
  send_item(c, "response.output_item.done", true, true);
  c->stage = STAGE_NONE;
}

static void open_text(choice *c) {
  if (c->text_item) return;
  close_reasoning(c);
  c->stage = STAGE_TEXT;
  c->text_item = ++c->items;
  send_item(c, "response.output_item.added", false, false);
  send_part(c, "response.content_part.added", false);
}

// ---- calls ----

static st_json *call_event(choice *c, const char *type, const tool_call *call) {
  st_json *root = new_event(c, type);
  item_id id;
  snprintf(id.text, sizeof id.text, "fc_%s", strchr(call->id, '_') + 1);
  put_text(root, root, "item_id", id.text);
  put_integer(root, root, "output_index", call->item);
  return root;
}

static void send_call_item(choice *c, const char *type, const tool_call *call, bool done) {
  st_json *root = new_event(c, type);
  put_integer(root, root, "output_index", call->item);
  put(root, root, "item", call_item(root, c, call, done));
  emit(c, type, root);
}

static void send_calls(choice *c) {
  static const char delta[] = "response.function_call_arguments.delta",
                    done[] = "response.function_call_arguments.done";
  call_news n;
  while (next_call_news(c, &n)) {
    if (n.begins) {
      close_reasoning(c);
      n.call->item = c->items++;
      send_call_item(c, "response.output_item.added", n.call, false);
    }
    if (n.length) {
      st_json *root = call_event(c, delta, n.call);
      put_bytes(root, root, "delta", n.arguments, n.length);
      emit(c, delta, root);
    }
    if (!n.ends) continue;
    st_json *root = call_event(c, done, n.call);
    put_text(root, root, "name", n.call->name);
    put_bytes(root, root, "arguments", n.call->arguments.data, n.call->arguments.length);
    emit(c, done, root);
    send_call_item(c, "response.output_item.done", n.call, true);
  }
}

static void begin(job *j) {
  send_response(j, "response.created", false);
  send_response(j, "response.in_progress", false);
}

static void send_progress(job *j, choice *c) {
  st_json *root = j->g.progress ? st_json_new() : NULL;
  if (!root) return;
  if (!progress_news(c, root, root)) {
    st_json_free(root);
    return;
  }
  put_text(root, root, "type", "response.in_progress");
  put_integer(root, root, "sequence_number", c->events++);
  put(root, root, "response", response_value(root, j, false));
  emit(c, "response.in_progress", root);
}

static void piece(job *j, choice *c) {
  send_progress(j, c);
  news n = take_news(c);
  if (n.reasoning_length && !c->text_item) {
    if (c->stage == STAGE_NONE) send_item(c, "response.output_item.added", true, false), c->items++;
    c->stage = STAGE_REASONING;
    send_text(c, "response.reasoning_text.delta", "delta", true, n.reasoning, n.reasoning_length);
  }
  if (n.text_length) {
    open_text(c);
    send_text(c, "response.output_text.delta", "delta", false, n.text, n.text_length);
  }
  send_calls(c);
}

static void end(job *j, choice *c) {
  piece(j, c);
  close_reasoning(c);
  if (!c->n_calls) open_text(c);
  if (!c->text_item) return;
  send_text(c, "response.output_text.done", "text", false, c->text.data, c->text.length);
  send_part(c, "response.content_part.done", true);
  send_item(c, "response.output_item.done", false, true);
}

static void finish(job *j) {
  const choice *c = &j->choices[0];
  bool whole = c->end == END_TOKEN || c->end == END_STOP;
  if (j->g.stream) {
    send_response(j, whole ? "response.completed" : "response.incomplete", true);
    return;
  }
  st_json *root = st_json_new();
  if (root) *root = response_value(root, j, true);
  reply_json(j->x, root);
}

static void failed(job *j, const problem *p) {
  choice *c = &j->choices[0];
  st_json *root = new_event(c, "error");
  put_text(root, root, "code", p->code ? p->code : p->type);
  put_text(root, root, "message", p->message);
  put_null(root, root, "param");
  put(root, root, "error", root ? problem_value(root, p) : st_json_make_null());
  emit(c, "error", root);
}

static const job_format response_format = {begin, piece, end, finish, failed, "call_"};

// ---- the request ----

static bool add_call(st_json *root, st_json *messages, const st_json *item, const char *at, problem *p) {
  if (!require_string(item, at, "call_id", p) || !require_string(item, at, "name", p) ||
      !require_string(item, at, "arguments", p))
    return false;
  st_json message = st_json_make_object(), calls = st_json_make_array();
  push(root, &calls,
       call_value(root, st_json_get(item, "call_id"), st_json_get(item, "name"), st_json_get(item, "arguments")));
  put_text(root, &message, "role", "assistant");
  put_null(root, &message, "content");
  put(root, &message, "tool_calls", calls);
  push(root, messages, message);
  return true;
}

static bool add_result(st_json *root, st_json *messages, const st_json *item, const char *at, problem *p) {
  st_json text;
  if (!require_string(item, at, "call_id", p) ||
      !content_text(root, st_json_get(item, "output"), at, &text, p))
    return false;
  if (!st_json_is_string(&text))
    return invalid(p, at, "%s.output: expected a string or an array, found nothing", at);
  add_tool_message(root, messages, st_json_get(item, "call_id"), text);
  return true;
}

// `at`: its place in the request, such as input[2], for messages.
static bool add_item(st_json *root, st_json *messages, const st_json *item, const char *at, problem *p) {
  const st_json *type = st_json_get(item, "type"), *role = st_json_get(item, "role");
  const char *name = type ? st_json_string(type) : "message";
  st_json text;
  if (!st_json_is_object(item))
    return invalid(p, at, "%s: expected an object, found %s", at, kind_of(item));
  if (!name) return invalid(p, at, "%s.type: expected a string, found %s", at, kind_of(type));
  if (!strcmp(name, "reasoning")) return true; // reasoning is left out of later turns
  if (!strcmp(name, "function_call")) return add_call(root, messages, item, at, p);
  if (!strcmp(name, "function_call_output")) return add_result(root, messages, item, at, p);
  if (strcmp(name, "message")) return invalid(p, at, "%s: items of type %.40s are not supported", at, name);
  if (!st_json_is_string(role)) return invalid(p, at, "%s.role: expected a string, found %s", at, kind_of(role));
  if (!content_text(root, st_json_get(item, "content"), at, &text, p)) return false;
  if (!st_json_is_string(&text)) return invalid(p, at, "%s.content: expected a string or an array, found nothing", at);
  add_message(root, messages, st_json_string(role), text);
  return true;
}

// tool_choice of type allowed_tools in the form of OpenAI's chat; tools that are not functions are left out.
static st_json allowed_value(st_json *root, const st_json *wanted) {
  const st_json *tools = st_json_get(wanted, "tools"), *mode = st_json_get(wanted, "mode");
  st_json value = st_json_make_object(), allowed = st_json_make_object(), list = st_json_make_array();
  for (size_t i = 0; i < st_json_size(tools); i++) {
    const char *type = st_json_string(st_json_get(st_json_at(tools, i), "type"));
    if (type && !strcmp(type, "function"))
      push(root, &list, tool_value(root, st_json_get(st_json_at(tools, i), "name"), NULL, NULL));
  }
  put_text(root, &value, "type", "allowed_tools");
  if (mode) put(root, &allowed, "mode", st_json_copy_of(root, mode));
  put(root, &allowed, "tools", list);
  put(root, &value, "allowed_tools", allowed);
  return value;
}

// Functions in the form of OpenAI's chat; other tools are left out.
static bool add_tools(st_json *root, const st_json *body, problem *p) {
  const st_json *tools = st_json_get(body, "tools"), *wanted = st_json_get(body, "tool_choice");
  const st_json *parallel = st_json_get(body, "parallel_tool_calls");
  st_json list = st_json_make_array();
  if (tools && !st_json_is_array(tools))
    return invalid(p, "tools", "tools: expected an array, found %s", kind_of(tools));
  for (size_t i = 0; i < st_json_size(tools); i++) {
    const st_json *tool = st_json_at(tools, i);
    const char *type = st_json_string(st_json_get(tool, "type"));
    if (!st_json_is_object(tool)) return invalid(p, "tools", "tools: expected objects, found %s", kind_of(tool));
    if (!type) return invalid(p, "tools", "tools[%zu].type: expected a string", i);
    if (!strcmp(type, "function"))
      push(root, &list, tool_value(root, st_json_get(tool, "name"), st_json_get(tool, "parameters"), tool));
  }
  if (tools) put(root, root, "tools", list);
  if (parallel) put(root, root, "parallel_tool_calls", st_json_copy_of(root, parallel));
  const char *kind = st_json_string(st_json_get(wanted, "type"));
  if (kind && !strcmp(kind, "allowed_tools"))
    put(root, root, "tool_choice", allowed_value(root, wanted));
  else if (st_json_is_object(wanted) && st_json_is_string(st_json_get(wanted, "name")))
    put(root, root, "tool_choice", tool_value(root, st_json_get(wanted, "name"), NULL, NULL));
  else if (wanted)
    put(root, root, "tool_choice", st_json_copy_of(root, wanted));
  return true;
}

// text.format, whose members are those of chat's response_format one level up.
static bool add_format(st_json *root, const st_json *body, problem *p) {
  const st_json *text = st_json_get(body, "text"), *format = st_json_get(text, "format");
  if (text && !st_json_is_object(text)) return invalid(p, "text", "text: expected an object, found %s", kind_of(text));
  if (format) put(root, root, "response_format", st_json_copy_of(root, format));
  return true;
}

// The conversation in the form of /v1/chat/completions.
static bool convert(st_json *root, const st_json *body, problem *p) {
  const st_json *input = st_json_get(body, "input"), *instructions = st_json_get(body, "instructions");
  const st_json *kwargs = st_json_get(body, "chat_template_kwargs");
  const st_json *reasoning = st_json_get(body, "reasoning"), *effort = st_json_get(reasoning, "effort");
  st_json messages = st_json_make_array();
  if (reasoning && !st_json_is_object(reasoning))
    return invalid(p, "reasoning", "reasoning: expected an object, found %s", kind_of(reasoning));
  if (instructions && !st_json_is_string(instructions))
    return invalid(p, "instructions", "instructions: expected a string, found %s", kind_of(instructions));
  if (instructions) add_message(root, &messages, "system", st_json_copy_of(root, instructions));
  if (st_json_is_string(input)) {
    add_message(root, &messages, "user", st_json_copy_of(root, input));
  } else if (st_json_is_array(input) && st_json_size(input)) {
    for (size_t i = 0; i < st_json_size(input); i++) {
      char at[32];
      snprintf(at, sizeof at, "input[%zu]", i);
      if (!add_item(root, &messages, st_json_at(input, i), at, p)) return false;
    }
    if (!st_json_size(&messages)) return invalid(p, "input", "input: expected a message, found only reasoning");
  } else {
    return invalid(p, "input", "input: expected a string or items, found %s", kind_of(input));
  }
  put(root, root, "messages", messages);
  if (!add_tools(root, body, p) || !add_format(root, body, p)) return false;
  if (kwargs) put(root, root, "chat_template_kwargs", st_json_copy_of(root, kwargs));
  if (effort) put(root, root, "reasoning_effort", st_json_copy_of(root, effort));
  return true;
}

static bool read_response(job *j, const st_json *body, problem *p) {
  const st_json *rest = NULL;
  if (!read_generation(j->server, body, response_tables, &j->g, p)) return false;
  st_json *chat = st_json_new();
  bool fine = (chat || fail_memory(p)) && convert(chat, body, p) && read_tools(j, chat, p);
  st_json *context = fine ? conversation_of(chat, &rest, p) : NULL;
  fine = context && job_add_conversation(j, context, rest, p) && constrain_job(j, chat, p);
  st_json_free(chat);
  j->keep_asked = true;
  return fine;
}

void handle_responses(server *s, exchange *x) {
  start_job(s, x, &response_format, "resp_", read_response);
}
