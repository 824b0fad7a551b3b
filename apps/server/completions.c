// /v1/completions, as in OpenAI's API.
#include "constraints.h"
#include "prompts.h"
#include "replies.h"
#include "routes.h"

#include <stdlib.h>
#include <string.h>

static const field completion_only[] = {
    {"prompt", FIELD_OTHER, 0, 1, 0, "the text to continue: a text or token ids, or several of these",
     SCHEMA("Prompts")},
    {"echo", FIELD_OTHER, 0, 0, 0, "the prompt is part of the text", "{\"type\":\"boolean\"}"},
    {"logprobs", FIELD_OTHER, 0, 0, 0,
     "log-probabilities, and those of this many of the likeliest tokens at each position",
     "{\"type\":[\"integer\",\"boolean\"],\"minimum\":0,\"maximum\":20}"},
    {"best_of", FIELD_OTHER, 0, 0, 0, "the same number as n", "{\"type\":\"integer\",\"minimum\":1,\"maximum\":128}"},
    {"response_format", FIELD_OTHER, 0, 0, 0, "the format of the text", SCHEMA("Format")},
    {"tools", FIELD_REFUSED, 0, 0, 0, "tools are for conversations: see /v1/chat/completions", NULL},
    {NULL, FIELD_BOOL, 0, 0, 0, NULL, NULL},
};
const field *const completion_tables[] = {completion_only, openai_fields, sampling_fields, constraint_fields, NULL};

// ---- the reply ----

// The likeliest tokens as an object. Tokens with the same text collide: the likelier one stays. The token itself is
// among them, so that none of these objects is empty.
static st_json top_object(st_json *root, const choice *c, size_t i) {
  const job *j = c->job;
  st_json value = st_json_make_object();
  for (int32_t k = 0; k <= j->g.top; k++) {
    const setun_logprob *t = k < j->g.top ? &c->tops[i * (size_t)j->g.top + (size_t)k] : NULL;
    setun_token id = t ? t->id : c->entries[i].id;
    double logprob = t ? t->value : c->entries[i].value;
    const char *bytes;
    size_t n;
    if (id < 0 || !root) continue;
    token_bytes(j->server, id, &bytes, &n);
    st_json text = bytes_value(root, bytes, n);
    const char *key = st_json_string(&text);
    if (!key || strlen(key) != st_json_length(&text)) continue; // a text with a zero byte cannot be a key
    const st_json *before = st_json_find_n(&value, key, st_json_length(&text));
    if (!before || st_json_number(before) < logprob) st_json_set(root, &value, key, real_value(root, logprob));
  }
  return value;
}

static void put_logprobs(st_json *root, st_json *object, choice *c, size_t first, size_t end) {
  st_json value = st_json_make_object(), tokens = st_json_make_array(), logprobs = st_json_make_array(),
          tops = st_json_make_array(), offsets = st_json_make_array();
  if (c->job->g.top < 0) {
    put_null(root, object, "logprobs");
    return;
  }
  for (size_t i = first; i < end; i++) {
    const token_entry *e = &c->entries[i];
    const char *bytes;
    size_t n;
    token_bytes(c->job->server, e->id, &bytes, &n);
    push(root, &tokens, bytes_value(root, bytes, n));
    push(root, &logprobs, e->absent ? st_json_make_null() : real_value(root, e->value));
    push(root, &tops, e->absent ? st_json_make_null() : top_object(root, c, i));
    push(root, &offsets, st_json_make_integer((int64_t)c->characters));
    if (i || !c->job->prompts[c->prompt].added_bos || !e->absent) c->characters += count_characters(bytes, n);
  }
  put(root, &value, "tokens", tokens);
  put(root, &value, "token_logprobs", logprobs);
  put(root, &value, "top_logprobs", tops);
  put(root, &value, "text_offset", offsets);
  put(root, object, "logprobs", value);
}

static st_json choice_value(st_json *root, const choice *c, st_json text, const char *finish) {
  st_json value = st_json_make_object();
  put(root, &value, "text", text);
  put_integer(root, &value, "index", c->index);
  put_text(root, &value, "finish_reason", finish);
  return value;
}

static st_json whole_text(st_json *root, const choice *c) {
  size_t n = 0;
  if (!c->job->echo) return bytes_value(root, c->text.data, c->text.length);
  char *before = prompt_text(c->job, &c->job->prompts[c->prompt], false, &n);
  st_buffer all = {0};
  st_json value = st_json_make_null();
  if (before && st_buffer_append(&all, before, n) &&
      st_buffer_append(&all, c->text.data ? c->text.data : "", c->text.length))
    value = bytes_value(root, all.data, all.length);
  free(before);
  st_buffer_free(&all);
  return value;
}

static void send_choice(job *j, st_json *root, st_json value) {
  st_json list = st_json_make_array();
  push(root, &list, value);
  put(root, root, "choices", list);
  send_event(j->x, NULL, root);
}

static void send_piece(job *j, choice *c, const char *text, size_t length, size_t first, size_t end,
                       const char *finish) {
  st_json *root = new_document(j, "text_completion");
  st_json value = choice_value(root, c, bytes_value(root, text, length), finish);
  put_logprobs(root, &value, c, first, end);
  if (j->g.timings || (finish && j->open == 1)) put_timings(root, root, j);
  send_choice(j, root, value);
}

// Sends the prompt before a stream's text.
static void send_echo(job *j, choice *c) {
  const prompt *p = &j->prompts[c->prompt];
  size_t n = 0, entries = p->logprobs ? p->n : 0;
  if (!j->echo || c->echoed || (p->logprobs && c->n_entries < entries)) return;
  c->echoed = true;
  char *text = prompt_text(j, p, false, &n);
  send_piece(j, c, text ? text : "", n, 0, entries, NULL);
  c->sent_entries = entries;
  free(text);
}

static void piece(job *j, choice *c) {
  if (c->state == CHOICE_PROMPT) return;
  send_echo(j, c);
  news n = take_news(c);
  if (n.text_length || n.first_entry < n.end_entry)
    send_piece(j, c, n.text, n.text_length, n.first_entry, n.end_entry, NULL);
}

static void end(job *j, choice *c) {
  piece(j, c);
  send_piece(j, c, "", 0, c->sent_entries, c->sent_entries, finish_reason(c));
}

static void finish(job *j) {
  st_json *root = NULL;
  st_json list = st_json_make_array();
  if (!j->g.stream || j->g.include_usage) root = new_document(j, "text_completion");
  if (!j->g.stream) {
    for (size_t i = 0; i < j->n_choices; i++) {
      choice *c = &j->choices[i];
      st_json value = choice_value(root, c, whole_text(root, c), finish_reason(c));
      put_logprobs(root, &value, c, 0, count_entries(c));
      push(root, &list, value);
    }
  }
  if (root) {
    put(root, root, "choices", list);
    put_usage(root, root, j);
    put_timings(root, root, j);
  }
  if (!j->g.stream) {
    reply_json(j->x, root);
    return;
  }
  if (root) send_event(j->x, NULL, root);
  send_done(j->x);
}

static const job_format completion_format = {NULL, piece, end, finish, NULL, NULL};

// ---- the request ----

static bool read_count(const st_json *body, const char *key, double low, double high, double *out, problem *p) {
  const st_json *v = st_json_get(body, key);
  double x = st_json_number(v);
  char text[32];
  if (!v) return true;
  if (!st_json_is_number(v) || !(x >= low && x <= high) || x != (double)(int64_t)x)
    return invalid(p, key, "%s: expected an integer from %.10g to %.10g, found %s", key, low, high,
                   shown_value(v, text));
  *out = x;
  return true;
}

static bool read_own(job *j, const st_json *body, problem *p) {
  const st_json *echo = st_json_get(body, "echo");
  double top = -1, best = j->g.n;
  if (echo && !st_json_is_bool(echo))
    return invalid(p, "echo", "echo: expected true or false, found %s", kind_of(echo));
  j->echo = st_json_is(echo, ST_JSON_TRUE);
  if (st_json_is_bool(st_json_get(body, "logprobs"))) {
    top = st_json_is(st_json_get(body, "logprobs"), ST_JSON_TRUE) ? 0 : -1;
  } else if (!read_count(body, "logprobs", 0, TOP_OPENAI_MOST, &top, p)) {
    return false;
  }
  if (!read_count(body, "best_of", 1, CHOICES_MOST, &best, p)) return false;
  if ((int32_t)best != j->g.n) return invalid(p, "best_of", "best_of: only the same number as n is supported");
  j->g.top = (int32_t)top;
  return true;
}

static bool read_completion(job *j, const st_json *body, problem *p) {
  static const int32_t usual_length = 16;
  j->g.max_tokens = usual_length;
  bool fine = read_generation(j->server, body, completion_tables, &j->g, p) && read_stream_options(body, &j->g, p) &&
              read_own(j, body, p) && job_add_prompts(j, st_json_get(body, "prompt"), "prompt", p) &&
              constrain_job(j, body, p);
  for (size_t i = 0; fine && i < j->n_prompts; i++) j->prompts[i].logprobs = j->echo && j->g.top >= 0;
  j->bare_ends = true;
  return fine;
}

void handle_completions(server *s, exchange *x) {
  start_job(s, x, &completion_format, "cmpl-", read_completion);
}
