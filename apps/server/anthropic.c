// /v1/messages and /v1/messages/count_tokens, as in Anthropic's API.
#include "calls.h"
#include "constraints.h"
#include "messages.h"
#include "replies.h"
#include "routes.h"

#include <string.h>

static const field message_fields[] = {
    {"messages", FIELD_OTHER, 0, 1, 0, "the conversation",
     "{\"type\":\"array\",\"minItems\":1,\"items\":" SCHEMA("BlockMessage") "}"},
    {"system", FIELD_OTHER, 0, 0, 0, "the system prompt", SCHEMA("Content")},
    {"thinking", FIELD_OTHER, 0, 0, 0, "type enabled or disabled: the template's enable_thinking",
     "{\"type\":\"object\"}"},
    {"chat_template_kwargs", FIELD_OTHER, 0, 0, 0, "variables for the template", "{\"type\":\"object\"}"},
    {"output_config", FIELD_OTHER, 0, 0, 0, "the format of the answer",
     "{\"type\":\"object\",\"properties\":{\"format\":" SCHEMA("OutputFormat") "}}"},
    {"output_format", FIELD_OTHER, 0, 0, 0, "the same under its older name", SCHEMA("OutputFormat")},
    {"tools", FIELD_OTHER, 0, 0, 0, "tools that the answer may use",
     "{\"type\":\"array\",\"maxItems\":1024,\"items\":{\"type\":\"object\",\"required\":[\"name\"],\"properties\":{"
     "\"type\":{\"enum\":[\"custom\",null]},\"name\":" SCHEMA(
         "ToolName") ",\"description\":{\"type\":[\"string\",\"null\"]},\"strict\":{\"type\":[\"boolean\",\"null\"]},"
                     "\"input_schema\":{\"type\":[\"object\","
                     "\"null\"]}}}}"},
    {"tool_choice", FIELD_OTHER, 0, 0, 0, "whether it may, must, or must not use one; or which one it must use",
     "{\"type\":\"object\",\"required\":[\"type\"],\"properties\":{\"disable_parallel_tool_use\":{\"type\":["
     "\"boolean\","
     "\"null\"]}},\"anyOf\":[{\"properties\":{\"type\":{\"enum\":[\"auto\",\"any\",\"none\"]}}},{\"required\":["
     "\"name\"],"
     "\"properties\":{\"type\":{\"const\":\"tool\"},\"name\":" SCHEMA("ToolName") "}}]}"},
    {NULL, FIELD_BOOL, 0, 0, 0, NULL, NULL},
};
static const field answer_fields[] = {
    {"max_tokens", FIELD_NEEDED, offsetof(generation, max_tokens), 1, INT32_MAX - 1,
     "the most tokens that the answer may have", NULL},
    {"n", FIELD_INTEGER, offsetof(generation, n), 1, 1, "a message has one answer", NULL},
    {"stop_sequences", FIELD_OTHER, 0, 0, 0, "texts that end the answer and are not part of it", SCHEMA("Stop")},
    {NULL, FIELD_BOOL, 0, 0, 0, NULL, NULL},
};
const field *const message_tables[] = {message_fields, answer_fields, sampling_fields, NULL};
const field *const message_count_tables[] = {message_fields, NULL};

enum { STAGE_NONE, STAGE_THINKING, STAGE_TEXT, STAGE_TOOL };

// ---- the reply ----

static const char *stop_reason(const choice *c) {
  if (c->end == END_TOKEN && c->n_calls) return "tool_use";
  return c->end == END_TOKEN ? "end_turn" : c->end == END_STOP ? "stop_sequence" : "max_tokens";
}

// A tool use. Its input is an object, which is empty if the answer ended within it or has not reached it.
static st_json use_value(st_json *root, const tool_call *call, bool input) {
  st_json block = st_json_make_object(), value = st_json_make_object();
  st_json *arguments = NULL;
  put_text(root, &block, "type", "tool_use");
  put_text(root, &block, "id", call->id);
  put_text(root, &block, "name", call->name);
  if (root && input && call->arguments.length &&
      st_json_parse_lenient(call->arguments.data, call->arguments.length, "input", &arguments, NULL) == SETUN_OK)
    value = st_json_copy_of(root, arguments);
  st_json_free(arguments);
  put(root, &block, "input", value);
  return block;
}

static st_json block_value(st_json *root, const char *type, const char *member, const char *text, size_t n) {
  st_json block = st_json_make_object();
  put_text(root, &block, "type", type);
  put_bytes(root, &block, member, text, n);
  if (!strcmp(type, "thinking")) put_text(root, &block, "signature", "");
  return block;
}

// `input_tokens` does not include the prompt's tokens that came from the cache.
static st_json usage_value(st_json *root, const job *j) {
  st_json value = st_json_make_object();
  usage u = job_usage(j);
  put_integer(root, &value, "input_tokens", (int64_t)(u.prompt - u.cached));
  put_integer(root, &value, "cache_creation_input_tokens", 0);
  put_integer(root, &value, "cache_read_input_tokens", (int64_t)u.cached);
  put_integer(root, &value, "output_tokens", (int64_t)u.drawn);
  return value;
}

static st_json message_value(st_json *root, const job *j, bool done) {
  const choice *c = &j->choices[0];
  st_json value = st_json_make_object(), content = st_json_make_array();
  if (done && c->reasoning.length)
    push(root, &content, block_value(root, "thinking", "thinking", c->reasoning.data, c->reasoning.length));
  if (done && (c->text.length || !c->n_calls))
    push(root, &content, block_value(root, "text", "text", c->text.data, c->text.length));
  for (size_t i = 0; done && i < c->n_calls; i++) push(root, &content, use_value(root, &c->calls[i], true));
  put_text(root, &value, "id", j->id);
  put_text(root, &value, "type", "message");
  put_text(root, &value, "role", "assistant");
  put_text(root, &value, "model", j->server->about->name);
  put(root, &value, "content", content);
  put_text(root, &value, "stop_reason", done ? stop_reason(c) : NULL);
  put_text(root, &value, "stop_sequence", done ? c->stop : NULL);
  put(root, &value, "usage", usage_value(root, j));
  return value;
}

static st_json *new_event(const char *type) {
  st_json *root = st_json_new();
  put_text(root, root, "type", type);
  return root;
}

static void begin(job *j) {
  st_json *root = new_event("message_start");
  put(root, root, "message", message_value(root, j, false));
  send_event(j->x, "message_start", root);
}

static void close_block(job *j, choice *c) {
  if (c->stage == STAGE_NONE) return;
  st_json *root = new_event("content_block_stop");
  put_integer(root, root, "index", c->events++);
  send_event(j->x, "content_block_stop", root);
  c->stage = STAGE_NONE;
}

static void open_block(job *j, choice *c, int stage, const char *type, const char *member) {
  if (c->stage == stage) return;
  close_block(j, c);
  st_json *root = new_event("content_block_start");
  put_integer(root, root, "index", c->events);
  put(root, root, "content_block", block_value(root, type, member, "", 0));
  send_event(j->x, "content_block_start", root);
  c->stage = stage;
}

static void send_delta(job *j, choice *c, const char *type, const char *member, const char *text, size_t n) {
  st_json *root = new_event("content_block_delta");
  st_json delta = st_json_make_object();
  put_text(root, &delta, "type", type);
  put_bytes(root, &delta, member, text, n);
  put_integer(root, root, "index", c->events);
  put(root, root, "delta", delta);
  send_event(j->x, "content_block_delta", root);
}

static void send_calls(job *j, choice *c) {
  call_news n;
  while (next_call_news(c, &n)) {
    if (n.begins) {
      close_block(j, c);
      st_json *root = new_event("content_block_start");
      put_integer(root, root, "index", c->events);
      put(root, root, "content_block", use_value(root, n.call, false));
      send_event(j->x, "content_block_start", root);
      c->stage = STAGE_TOOL;
    }
    if (n.length) send_delta(j, c, "input_json_delta", "partial_json", n.arguments, n.length);
    if (n.ends) close_block(j, c);
  }
}

static void piece(job *j, choice *c) {
  news n = take_news(c);
  if (n.reasoning_length) {
    open_block(j, c, STAGE_THINKING, "thinking", "thinking");
    send_delta(j, c, "thinking_delta", "thinking", n.reasoning, n.reasoning_length);
  }
  if (n.text_length) {
    open_block(j, c, STAGE_TEXT, "text", "text");
    send_delta(j, c, "text_delta", "text", n.text, n.text_length);
  }
  send_calls(j, c);
}

static void end(job *j, choice *c) {
  piece(j, c);
  if (!c->text.length && !c->n_calls) open_block(j, c, STAGE_TEXT, "text", "text");
  close_block(j, c);
}

static void finish(job *j) {
  const choice *c = &j->choices[0];
  st_json *root = j->g.stream ? new_event("message_delta") : st_json_new();
  st_json delta = st_json_make_object();
  if (!j->g.stream) {
    if (root) *root = message_value(root, j, true);
    reply_json(j->x, root);
    return;
  }
  put_text(root, &delta, "stop_reason", stop_reason(c));
  put_text(root, &delta, "stop_sequence", c->stop);
  put(root, root, "delta", delta);
  put(root, root, "usage", usage_value(root, j));
  send_event(j->x, "message_delta", root);
  send_event(j->x, "message_stop", new_event("message_stop"));
}

static void failed(job *j, const problem *p) {
  st_json *root = new_event("error");
  put(root, root, "error", root ? problem_value(root, p) : st_json_make_null());
  send_event(j->x, "error", root);
}

static const job_format message_format = {begin, piece, end, finish, failed, "toolu_"};

// ---- the request ----

static bool is_type(const st_json *block, const char *type) {
  const char *name = st_json_string(st_json_get(block, "type"));
  return name && !strcmp(name, type);
}

static bool add_call(st_json *root, st_json *calls, const st_json *block, problem *p) {
  const st_json *input = st_json_get(block, "input");
  if (!require_string(block, "messages", "id", p) || !require_string(block, "messages", "name", p)) return false;
  if (!st_json_is_object(input))
    return invalid(p, "messages", "messages: input: expected an object, found %s", kind_of(input));
  push(root, calls, call_value(root, st_json_get(block, "id"), st_json_get(block, "name"), input));
  return true;
}

static bool add_result(st_json *root, st_json *messages, const st_json *block, problem *p) {
  st_json text;
  if (!require_string(block, "messages", "tool_use_id", p)) return false;
  if (!content_text(root, st_json_get(block, "content"), "messages", &text, p)) return false;
  add_tool_message(root, messages, st_json_get(block, "tool_use_id"),
                   st_json_is_string(&text) ? text : bytes_value(root, "", 0));
  return true;
}

// A message of blocks: tool results become separate messages before the text; calls stay with the answer.
static bool add_blocks(st_json *root, st_json *messages, const char *role, const st_json *content, problem *p) {
  st_json texts = st_json_make_array(), calls = st_json_make_array(), text, message = st_json_make_object();
  size_t results = 0;
  for (size_t i = 0; i < st_json_size(content); i++) {
    const st_json *block = st_json_at(content, i);
    bool fine = true;
    if (is_type(block, "redacted_thinking")) continue;
    if (is_type(block, "thinking")) {
      fine = require_string(block, "messages", "thinking", p);
      if (root) st_json_set(root, &message, "reasoning_content", st_json_copy_of(root, st_json_get(block, "thinking")));
    } else if (is_type(block, "tool_use")) {
      fine = add_call(root, &calls, block, p);
    } else if (is_type(block, "tool_result")) {
      fine = add_result(root, messages, block, p);
      results++;
    } else {
      push(root, &texts, st_json_copy_of(root, block));
    }
    if (!fine) return false;
  }
  if (!content_text(root, &texts, "messages", &text, p)) return false;
  if (results && results == st_json_size(content)) return true;
  put_text(root, &message, "role", role);
  put(root, &message, "content", text);
  if (st_json_size(&calls)) put(root, &message, "tool_calls", calls);
  push(root, messages, message);
  return true;
}

static bool is_role(const st_json *role) {
  const char *name = st_json_string(role);
  return name && (!strcmp(name, "user") || !strcmp(name, "assistant") || !strcmp(name, "system"));
}

static bool add_all(st_json *root, st_json *messages, const st_json *body, problem *p) {
  const st_json *list = st_json_get(body, "messages"), *system = st_json_get(body, "system");
  st_json text;
  if (!content_text(root, system, "system", &text, p)) return false;
  if (st_json_is_string(&text)) add_message(root, messages, "system", text);
  if (!st_json_is_array(list)) return invalid(p, "messages", "messages: expected an array, found %s", kind_of(list));
  if (!st_json_size(list)) return invalid(p, "messages", "messages: expected at least one message, found none");
  for (size_t i = 0; i < st_json_size(list); i++) {
    const st_json *one = st_json_at(list, i), *role = st_json_get(one, "role"), *content = st_json_get(one, "content");
    if (!is_role(role))
      return invalid(p, "messages", "messages: role: expected user, assistant or system, found %.40s",
                     st_json_is_string(role) ? st_json_string(role) : kind_of(role));
    if (st_json_is_string(content))
      add_message(root, messages, st_json_string(role), st_json_copy_of(root, content));
    else if (!st_json_is_array(content))
      return invalid(p, "messages", "messages: content: expected a string or blocks, found %s", kind_of(content));
    else if (!add_blocks(root, messages, st_json_string(role), content, p))
      return false;
  }
  return true;
}

// Tools in the form of OpenAI's chat.
static bool add_tools(st_json *root, const st_json *body, problem *p) {
  const st_json *tools = st_json_get(body, "tools");
  st_json list = st_json_make_array();
  if (tools && !st_json_is_array(tools))
    return invalid(p, "tools", "tools: expected an array, found %s", kind_of(tools));
  for (size_t i = 0; i < st_json_size(tools); i++) {
    const st_json *tool = st_json_at(tools, i), *type = st_json_get(tool, "type");
    if (!st_json_is_object(tool))
      return invalid(p, "tools", "tools[%zu]: expected an object, found %s", i, kind_of(tool));
    if (type && !is_type(tool, "custom"))
      return invalid(p, "tools", "tools[%zu].type: only custom tools are supported, found %.40s", i,
                     st_json_is_string(type) ? st_json_string(type) : kind_of(type));
    push(root, &list, tool_value(root, st_json_get(tool, "name"), st_json_get(tool, "input_schema"), tool));
  }
  if (tools) put(root, root, "tools", list);
  return true;
}

static bool add_tool_choice(st_json *root, const st_json *body, problem *p) {
  const st_json *wanted = st_json_get(body, "tool_choice"), *one = st_json_get(wanted, "disable_parallel_tool_use");
  const st_json *name = st_json_get(wanted, "name");
  if (!wanted) return true;
  if (one && !st_json_is_bool(one))
    return invalid(p, "tool_choice", "tool_choice.disable_parallel_tool_use: expected true or false, found %s",
                   kind_of(one));
  if (one) put_bool(root, root, "parallel_tool_calls", !st_json_is(one, ST_JSON_TRUE));
  if (is_type(wanted, "auto") || is_type(wanted, "none")) {
    put_text(root, root, "tool_choice", st_json_string(st_json_get(wanted, "type")));
  } else if (is_type(wanted, "any")) {
    put_text(root, root, "tool_choice", "required");
  } else if (is_type(wanted, "tool") && st_json_is_string(name)) {
    put(root, root, "tool_choice", tool_value(root, name, NULL, NULL));
  } else {
    return invalid(p, "tool_choice", "tool_choice: expected type auto, any, none, or tool with a name");
  }
  return true;
}

// output_config.format, and output_format as it was called before: their schema is one of chat's response_format.
static bool add_format(st_json *root, const st_json *body, problem *p) {
  const st_json *config = st_json_get(body, "output_config"), *older = st_json_get(body, "output_format");
  const st_json *format = st_json_get(config, "format");
  const char *key = format ? "output_config" : "output_format";
  if (config && !st_json_is_object(config))
    return invalid(p, "output_config", "output_config: expected an object, found %s", kind_of(config));
  if (format && older) return invalid(p, key, "output_config.format and output_format exclude each other");
  if (!format) format = older;
  if (!format) return true;
  if (!is_type(format, "json_schema") || !st_json_get(format, "schema"))
    return invalid(p, key, "%s: expected type json_schema with a schema", key);
  put(root, root, "response_format", st_json_copy_of(root, format));
  return true;
}

static bool convert(st_json *root, const st_json *body, problem *p) {
  const st_json *kwargs = st_json_get(body, "chat_template_kwargs"), *thinking = st_json_get(body, "thinking");
  st_json messages = st_json_make_array(), variables = st_json_make_object();
  if (thinking && !st_json_is_object(thinking))
    return invalid(p, "thinking", "thinking: expected an object, found %s", kind_of(thinking));
  if (!add_all(root, &messages, body, p) || !add_tools(root, body, p) || !add_tool_choice(root, body, p) ||
      !add_format(root, body, p))
    return false;
  if (st_json_is_object(kwargs)) variables = st_json_copy_of(root, kwargs);
  if (thinking && !st_json_find(&variables, "enable_thinking"))
    st_json_set(root, &variables, "enable_thinking", st_json_make_bool(!is_type(thinking, "disabled")));
  put(root, root, "messages", messages);
  put(root, root, "chat_template_kwargs",
      kwargs && !st_json_is_object(kwargs) ? st_json_copy_of(root, kwargs) : variables);
  return true;
}

static bool read_prompt(job *j, const st_json *body, problem *p) {
  const st_json *rest = NULL;
  st_json *chat = st_json_new();
  bool fine = (chat || fail_memory(p)) && convert(chat, body, p) && read_tools(j, chat, p);
  st_json *context = fine ? conversation_of(chat, &rest, p) : NULL;
  fine = context && job_add_conversation(j, context, rest, p) && constrain_job(j, chat, p);
  st_json_free(chat);
  return fine;
}

static bool read_message(job *j, const st_json *body, problem *p) {
  if (!read_generation(j->server, body, message_tables, &j->g, p) || !read_stops(body, "stop_sequences", &j->g, p))
    return false;
  return read_prompt(j, body, p);
}

void handle_messages(server *s, exchange *x) {
  start_job(s, x, &message_format, "msg_", read_message);
}

static bool count_tokens(job *j, const st_json *body, problem *p) {
  return read_generation(j->server, body, message_count_tables, &j->g, p) && read_prompt(j, body, p);
}

void handle_messages_count(server *s, exchange *x) {
  reply_count(s, x, count_tokens);
}
