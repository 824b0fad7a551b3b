// /v1/chat/completions, as in OpenAI's API, with llama.cpp's reasoning_content and timings.
#include "calls.h"
#include "constraints.h"
#include "messages.h"
#include "replies.h"
#include "routes.h"

#include <string.h>

static const field conversation_fields[] = {
    {"messages", FIELD_OTHER, 0, 1, 0, "the conversation", SCHEMA("Messages")},
    {"chat_template_kwargs", FIELD_OTHER, 0, 0, 0, "variables for the template", "{\"type\":\"object\"}"},
    {"reasoning_effort", FIELD_OTHER, 0, 0, 0, "a variable for the template", "{\"type\":\"string\"}"},
    {"add_generation_prompt", FIELD_OTHER, 0, 0, 0, "begin an answer (default true)", "{\"type\":\"boolean\"}"},
    {"continue_final_message", FIELD_OTHER, 0, 0, 0, "continue the last message", "{\"type\":\"boolean\"}"},
    {"tools", FIELD_OTHER, 0, 0, 0, "functions that the answer may call", SCHEMA("Tools")},
    {"tool_choice", FIELD_OTHER, 0, 0, 0, "whether it may, must, or must not; or which one it must call",
     SCHEMA("ToolChoice")},
    {"parallel_tool_calls", FIELD_OTHER, 0, 0, 0, "several calls in one answer (default true)",
     "{\"type\":\"boolean\"}"},
    {NULL, FIELD_BOOL, 0, 0, 0, NULL, NULL},
};
static const field chat_only[] = {
    {"functions", FIELD_REFUSED, 0, 0, 0, "this deprecated form of tools is not supported: see tools", NULL},
    {"modalities", FIELD_OTHER, 0, 0, 0, "the answer's modalities: only text",
     "{\"type\":\"array\",\"items\":{\"const\":\"text\"}}"},
    {"logprobs", FIELD_OTHER, 0, 0, 0, "log-probabilities of the tokens", "{\"type\":\"boolean\"}"},
    {"top_logprobs", FIELD_OTHER, 0, 0, 0, "and of this many of the likeliest tokens at each position",
     "{\"type\":\"integer\",\"minimum\":0,\"maximum\":20}"},
    {"response_format", FIELD_OTHER, 0, 0, 0, "the format of the answer", SCHEMA("Format")},
    {NULL, FIELD_BOOL, 0, 0, 0, NULL, NULL},
};
const field *const chat_tables[] = {conversation_fields, chat_only,         openai_fields,
                                    sampling_fields,     constraint_fields, NULL};
const field *const conversation_tables[] = {conversation_fields, NULL};

// ---- the reply ----

static void put_logprobs(st_json *root, st_json *choice_object, const choice *c, size_t first, size_t end) {
  st_json value = st_json_make_object(), list = st_json_make_array();
  if (c->job->g.top < 0) {
    put_null(root, choice_object, "logprobs");
    return;
  }
  for (size_t i = first; i < end; i++) push(root, &list, entry_value(root, c, i));
  put(root, &value, "content", list);
  put_null(root, &value, "refusal");
  put(root, choice_object, "logprobs", value);
}

// A call, or the part of one in a stream's chunk.
static st_json one_call(st_json *root, const tool_call *call, int64_t index, bool begins, const char *arguments,
                        size_t n) {
  st_json value = st_json_make_object(), function = st_json_make_object();
  if (index >= 0) put_integer(root, &value, "index", index);
  if (begins) {
    put_text(root, &value, "id", call->id);
    put_text(root, &value, "type", "function");
    put_text(root, &function, "name", call->name);
  }
  put_bytes(root, &function, "arguments", arguments, n);
  put(root, &value, "function", function);
  return value;
}

static st_json choice_value(st_json *root, const choice *c) {
  st_json value = st_json_make_object(), message = st_json_make_object(), calls = st_json_make_array();
  put_text(root, &message, "role", "assistant");
  if (c->text.length || !c->n_calls)
    put_bytes(root, &message, "content", c->text.data, c->text.length);
  else
    put_null(root, &message, "content");
  for (size_t i = 0; i < c->n_calls; i++) {
    const tool_call *call = &c->calls[i];
    push(root, &calls, one_call(root, call, -1, true, call->arguments.data, call->arguments.length));
  }
  if (c->n_calls) put(root, &message, "tool_calls", calls);
  if (c->reasoning.length) put_bytes(root, &message, "reasoning_content", c->reasoning.data, c->reasoning.length);
  put_integer(root, &value, "index", c->index);
  put(root, &value, "message", message);
  put_logprobs(root, &value, c, 0, count_entries(c));
  put_text(root, &value, "finish_reason", finish_reason(c));
  return value;
}

// For a stream: one choice's delta.
static void send_delta(job *j, const choice *c, st_json *root, st_json delta, const char *finish, const news *n) {
  st_json value = st_json_make_object(), list = st_json_make_array();
  put_integer(root, &value, "index", c->index);
  put(root, &value, "delta", delta);
  if (n)
    put_logprobs(root, &value, c, n->first_entry, n->end_entry);
  else
    put_null(root, &value, "logprobs");
  put_text(root, &value, "finish_reason", finish);
  push(root, &list, value);
  put(root, root, "choices", list);
  send_event(j->x, NULL, root);
}

static void begin(job *j) {
  for (size_t i = 0; i < j->n_choices; i++) {
    st_json *root = new_document(j, "chat.completion.chunk");
    st_json delta = st_json_make_object();
    put_text(root, &delta, "role", "assistant");
    put_null(root, &delta, "content");
    send_delta(j, &j->choices[i], root, delta, NULL, NULL);
  }
}

static void send_progress(job *j, choice *c) {
  st_json *root = j->g.progress ? new_document(j, "chat.completion.chunk") : NULL;
  if (!root) return;
  if (progress_news(c, root, root))
    send_delta(j, c, root, st_json_make_object(), NULL, NULL);
  else
    st_json_free(root);
}

// The first part of a call has its id and name and no arguments, as clients expect it.
static void send_call(job *j, choice *c, const call_news *n, bool begins) {
  st_json *root = new_document(j, "chat.completion.chunk");
  st_json delta = st_json_make_object(), list = st_json_make_array();
  push(root, &list,
       one_call(root, n->call, (int64_t)n->index, begins, begins ? "" : n->arguments, begins ? 0 : n->length));
  put(root, &delta, "tool_calls", list);
  send_delta(j, c, root, delta, NULL, NULL);
}

static void send_calls(job *j, choice *c) {
  call_news n;
  while (next_call_news(c, &n)) {
    if (n.begins) send_call(j, c, &n, true);
    if (n.length) send_call(j, c, &n, false);
  }
}

static void send_text(job *j, choice *c) {
  news n = take_news(c);
  if (!n.text_length && !n.reasoning_length && n.first_entry == n.end_entry) return;
  st_json *root = new_document(j, "chat.completion.chunk");
  st_json delta = st_json_make_object();
  if (n.reasoning_length) put_bytes(root, &delta, "reasoning_content", n.reasoning, n.reasoning_length);
  if (n.text_length) put_bytes(root, &delta, "content", n.text, n.text_length);
  if (j->g.timings) put_timings(root, root, j);
  send_delta(j, c, root, delta, NULL, &n);
}

static void piece(job *j, choice *c) {
  send_progress(j, c);
  send_text(j, c);
  send_calls(j, c);
}

static void end(job *j, choice *c) {
  piece(j, c);
  st_json *root = new_document(j, "chat.completion.chunk");
  if (j->open == 1 && !j->g.include_usage) put_timings(root, root, j);
  send_delta(j, c, root, st_json_make_object(), finish_reason(c), NULL);
}

static void finish(job *j) {
  st_json *root = NULL;
  st_json list = st_json_make_array();
  if (!j->g.stream) {
    root = new_document(j, "chat.completion");
    for (size_t i = 0; i < j->n_choices; i++) push(root, &list, choice_value(root, &j->choices[i]));
    put(root, root, "choices", list);
    put_usage(root, root, j);
    put_timings(root, root, j);
    reply_json(j->x, root);
    return;
  }
  if (j->g.include_usage) {
    root = new_document(j, "chat.completion.chunk");
    put(root, root, "choices", list);
    put_usage(root, root, j);
    put_timings(root, root, j);
    send_event(j->x, NULL, root);
  }
  send_done(j->x);
}

static const job_format chat_format = {begin, piece, end, finish, NULL, "call_"};

// ---- the request ----

static bool read_modalities(const st_json *body, problem *p) {
  const st_json *list = st_json_get(body, "modalities");
  if (list && !st_json_is_array(list))
    return invalid(p, "modalities", "modalities: expected an array, found %s", kind_of(list));
  for (size_t i = 0; i < st_json_size(list); i++) {
    const char *name = st_json_string(st_json_at(list, i));
    if (!name || strcmp(name, "text") != 0)
      return invalid(p, "modalities", "modalities: expected only text, found %.40s",
                     name ? name : kind_of(st_json_at(list, i)));
  }
  return true;
}

static bool read_logprobs(const st_json *body, generation *g, problem *p) {
  const st_json *wanted = st_json_get(body, "logprobs"), *top = st_json_get(body, "top_logprobs");
  double n = st_json_number(top);
  if (wanted && !st_json_is_bool(wanted))
    return invalid(p, "logprobs", "logprobs: expected true or false, found %s", kind_of(wanted));
  if (top && !st_json_is_number(top))
    return invalid(p, "top_logprobs", "top_logprobs: expected an integer, found %s", kind_of(top));
  if (!(n >= 0 && n <= TOP_OPENAI_MOST && n == (int)n))
    return invalid(p, "top_logprobs", "top_logprobs: expected 0 to %d, found %.10g", TOP_OPENAI_MOST, n);
  if (top && n > 0 && !st_json_is(wanted, ST_JSON_TRUE))
    return invalid(p, "top_logprobs", "top_logprobs: expected logprobs to be true as well");
  if (st_json_is(wanted, ST_JSON_TRUE)) g->top = (int32_t)n;
  return true;
}

static bool read_chat(job *j, const st_json *body, problem *p) {
  const st_json *rest = NULL;
  if (!read_generation(j->server, body, chat_tables, &j->g, p) || !read_stream_options(body, &j->g, p) ||
      !read_logprobs(body, &j->g, p) || !read_modalities(body, p) || !read_tools(j, body, p)) {
    return false;
  }
  st_json *context = conversation_of(body, &rest, p);
  return context && job_add_conversation(j, context, rest, p) && constrain_job(j, body, p);
}

void handle_chat(server *s, exchange *x) {
  start_job(s, x, &chat_format, "chatcmpl-", read_chat);
}

static bool count_tokens(job *j, const st_json *body, problem *p) {
  const st_json *rest = NULL;
  if (!read_tools(j, body, p)) return false;
  st_json *context = conversation_of(body, &rest, p);
  return context && job_add_conversation(j, context, rest, p);
}

void handle_chat_count(server *s, exchange *x) {
  reply_count(s, x, count_tokens);
}
