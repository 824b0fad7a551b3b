// llama.cpp's own endpoints for texts: /completion and /infill.
#include "constraints.h"
#include "prompts.h"
#include "replies.h"
#include "routes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const field completion_only[] = {
    {"prompt", FIELD_OTHER, 0, 1, 0, "the text to continue: a text or token ids, or several of these",
     SCHEMA("Prompts")},
    {"response_fields", FIELD_OTHER, 0, 0, 0, "the members that the reply has; a/b is member b of a",
     "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}"},
    {NULL, FIELD_BOOL, 0, 0, 0, NULL, NULL},
};
static const field infill_only[] = {
    {"input_prefix", FIELD_OTHER, 0, 1, 0, "the text before the gap", "{\"type\":\"string\"}"},
    {"input_suffix", FIELD_OTHER, 0, 1, 0, "the text after it", "{\"type\":\"string\"}"},
    {"prompt", FIELD_OTHER, 0, 0, 0, "text after input_prefix", "{\"type\":\"string\"}"},
    {"input_extra", FIELD_OTHER, 0, 0, 0, "other files: text and filename",
     "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"text\"],\"properties\":{\"text\":{\"type\":"
     "\"string\"},\"filename\":{\"type\":[\"string\",\"null\"]}}}}"},
    {NULL, FIELD_BOOL, 0, 0, 0, NULL, NULL},
};
const field *const llama_tables[] = {completion_only, llama_fields, sampling_fields, constraint_fields, NULL};
const field *const infill_tables[] = {infill_only,     completion_only,   llama_fields,
                                      sampling_fields, constraint_fields, NULL};

// ---- the reply ----

static void put_biases(st_json *root, st_json *value, const job *j) {
  st_json list = st_json_make_array();
  for (size_t i = 0; i < j->g.n_biases; i++) {
    st_json one = st_json_make_object();
    put_integer(root, &one, "token", j->g.biases[i].id);
    put_real(root, &one, "bias", (double)j->g.biases[i].bias);
    push(root, &list, one);
  }
  for (size_t i = 0; j->g.ignore_end && i < j->server->n_ends; i++) {
    st_json one = st_json_make_object();
    put_integer(root, &one, "token", j->server->ends[i]);
    put_null(root, &one, "bias"); // JSON has no -inf
    push(root, &list, one);
  }
  put(root, value, "logit_bias", list);
}

st_json settings_value(st_json *root, const generation *g) {
  st_json value = st_json_make_object(), stops = st_json_make_array();
  const setun_sampler_params *s = &g->sampling;
  put_integer(root, &value, "n_predict", g->max_tokens);
  put_integer(root, &value, "max_tokens", g->max_tokens);
  put_integer(root, &value, "seed", (int64_t)s->seed);
  put_real(root, &value, "temperature", (double)s->temperature);
  put_real(root, &value, "dynatemp_range", (double)s->dynatemp_range);
  put_real(root, &value, "dynatemp_exponent", (double)s->dynatemp_exponent);
  put_integer(root, &value, "top_k", s->top_k);
  put_real(root, &value, "top_p", (double)s->top_p);
  put_real(root, &value, "min_p", (double)s->min_p);
  put_real(root, &value, "typical_p", (double)s->typical_p);
  put_real(root, &value, "xtc_probability", (double)s->xtc_probability);
  put_real(root, &value, "xtc_threshold", (double)s->xtc_threshold);
  put_integer(root, &value, "repeat_last_n", s->penalty_last_n);
  put_real(root, &value, "repeat_penalty", (double)s->repeat_penalty);
  put_real(root, &value, "presence_penalty", (double)s->presence_penalty);
  put_real(root, &value, "frequency_penalty", (double)s->frequency_penalty);
  put_real(root, &value, "dry_multiplier", (double)s->dry_multiplier);
  put_real(root, &value, "dry_base", (double)s->dry_base);
  put_integer(root, &value, "dry_allowed_length", s->dry_allowed_length);
  put_integer(root, &value, "dry_penalty_last_n", s->dry_penalty_last_n);
  put_integer(root, &value, "n_probs", g->top > 0 ? g->top : 0);
  put_bool(root, &value, "ignore_eos", g->ignore_end);
  put_bool(root, &value, "stream", g->stream);
  put_bool(root, &value, "post_sampling_probs", g->fresh_probabilities);
  put_bool(root, &value, "timings_per_token", g->timings);
  for (size_t i = 0; i < g->n_stops; i++) push(root, &stops, bytes_value(root, g->stops[i], strlen(g->stops[i])));
  put(root, &value, "stop", stops);
  return value;
}

static st_json entries_value(st_json *root, const choice *c, size_t first, size_t end) {
  st_json list = st_json_make_array();
  for (size_t i = first; i < end; i++) push(root, &list, entry_value(root, c, i));
  return list;
}

static st_json ids_value(st_json *root, const choice *c, size_t first, size_t end) {
  st_json list = st_json_make_array();
  for (size_t i = first; i < end; i++) push(root, &list, st_json_make_integer(c->ids[i]));
  return list;
}

static const char *stop_type(const choice *c) {
  return c->end == END_TOKEN ? "eos" : c->end == END_STOP ? "word" : "limit";
}

static void put_end(st_json *root, st_json *value, const choice *c) {
  const job *j = c->job;
  size_t n = 0;
  char *text = prompt_text(j, &j->prompts[c->prompt], true, &n);
  st_json settings = settings_value(root, &j->g);
  put_biases(root, &settings, j);
  put_text(root, value, "model", j->server->about->name);
  put_integer(root, value, "tokens_predicted", (int64_t)c->n_ids);
  put_integer(root, value, "tokens_evaluated", (int64_t)j->prompts[c->prompt].n);
  put(root, value, "generation_settings", settings);
  put_bytes(root, value, "prompt", text ? text : "", n);
  put_bool(root, value, "has_new_line", c->text.length && memchr(c->text.data, '\n', c->text.length));
  put_bool(root, value, "truncated", c->end == END_CONTEXT);
  put_text(root, value, "stop_type", stop_type(c));
  put_text(root, value, "stopping_word", c->stop ? c->stop : "");
  put_integer(root, value, "tokens_cached", (int64_t)(j->prompts[c->prompt].n + c->n_ids));
  put_timings(root, value, j);
  free(text);
}

static st_json choice_value(st_json *root, choice *c) {
  const job *j = c->job;
  st_json value = st_json_make_object();
  put_integer(root, &value, "index", c->index);
  put_bytes(root, &value, "content", c->text.data, c->text.length);
  put(root, &value, "tokens", j->g.tokens ? ids_value(root, c, 0, c->n_ids) : st_json_make_array());
  put_bool(root, &value, "stop", true);
  put_end(root, &value, c);
  if (j->g.top > 0) put(root, &value, "completion_probabilities", entries_value(root, c, 0, count_entries(c)));
  return value;
}

// Selects the requested members, each by its path.
static st_json chosen_fields(st_json *root, const st_json *value, const st_json *wanted) {
  st_json chosen = st_json_make_object();
  for (size_t i = 0; i < st_json_size(wanted); i++) {
    const char *path = st_json_string(st_json_at(wanted, i));
    const st_json *at = value;
    for (const char *part = path; part && at; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
      at = st_json_find_n(at, part, strcspn(part, "/"));
    if (path && at && root) st_json_set(root, &chosen, path, *at);
  }
  return chosen;
}

static void finish(job *j) {
  const st_json *wanted = st_json_get(j->asked, "response_fields");
  st_json *root = j->g.stream ? NULL : st_json_new();
  st_json list = st_json_make_array(), value;
  if (j->g.stream) return;
  for (size_t i = 0; i < j->n_choices; i++) {
    value = choice_value(root, &j->choices[i]);
    if (st_json_size(wanted)) value = chosen_fields(root, &value, wanted);
    push(root, &list, value);
  }
  if (root) *root = j->n_choices == 1 ? value : list;
  reply_json(j->x, root);
}

// Sends one event; `entry` is a token's entry, NULL: none.
static void send_piece(job *j, choice *c, const char *text, size_t n, size_t first_id, size_t end_id, size_t first,
                       size_t end) {
  st_json *root = st_json_new();
  put_integer(root, root, "index", c->index);
  put_bytes(root, root, "content", text, n);
  put(root, root, "tokens", root ? ids_value(root, c, first_id, end_id) : st_json_make_null());
  put_bool(root, root, "stop", false);
  put_integer(root, root, "tokens_predicted", (int64_t)c->n_ids);
  put_integer(root, root, "tokens_evaluated", (int64_t)j->prompts[c->prompt].n);
  if (j->g.timings) put_timings(root, root, j);
  if (j->g.top > 0) put(root, root, "completion_probabilities", entries_value(root, c, first, end));
  send_event(j->x, NULL, root);
}

static void send_progress(job *j, choice *c) {
  st_json *root = j->g.progress ? st_json_new() : NULL;
  if (!root) return;
  put_integer(root, root, "index", c->index);
  put_text(root, root, "content", "");
  put(root, root, "tokens", st_json_make_array());
  put_bool(root, root, "stop", false);
  if (j->g.timings) put_timings(root, root, j);
  if (progress_news(c, root, root))
    send_event(j->x, NULL, root);
  else
    st_json_free(root);
}

// Tokens with entries are sent one per event; the text goes with the last.
static void piece(job *j, choice *c) {
  send_progress(j, c);
  size_t ids = c->end == END_TOKEN && c->n_ids ? c->n_ids - 1 : c->n_ids;
  news n = take_news(c);
  if (!n.text_length && n.first_entry == n.end_entry) return;
  for (size_t i = n.first_entry; i + 1 < n.end_entry; i++, c->sent_ids++)
    send_piece(j, c, "", 0, c->sent_ids, c->sent_ids + 1, i, i + 1);
  size_t first = n.end_entry > n.first_entry ? n.end_entry - 1 : n.end_entry;
  if (c->sent_ids > ids) c->sent_ids = ids;
  send_piece(j, c, n.text, n.text_length, c->sent_ids, ids, first, n.end_entry);
  c->sent_ids = ids;
}

static void end(job *j, choice *c) {
  piece(j, c);
  st_json *root = st_json_new();
  put_integer(root, root, "index", c->index);
  put_text(root, root, "content", "");
  put(root, root, "tokens", st_json_make_array());
  put_bool(root, root, "stop", true);
  put_end(root, root, c);
  send_event(j->x, NULL, root);
}

static const job_format llama_format = {NULL, piece, end, finish, NULL, NULL};

// ---- /completion ----

static bool read_fields_wanted(job *j, const st_json *body, problem *p) {
  const st_json *wanted = st_json_get(body, "response_fields");
  if (wanted && !st_json_is_array(wanted))
    return invalid(p, "response_fields", "response_fields: expected an array, found %s", kind_of(wanted));
  for (size_t i = 0; i < st_json_size(wanted); i++) {
    if (!st_json_is_string(st_json_at(wanted, i)))
      return invalid(p, "response_fields", "response_fields: expected strings, found %s",
                     kind_of(st_json_at(wanted, i)));
  }
  j->keep_asked = st_json_size(wanted) > 0;
  return true;
}

static bool read_completion(job *j, const st_json *body, problem *p) {
  if (!read_generation(j->server, body, llama_tables, &j->g, p) || !read_fields_wanted(j, body, p)) return false;
  if (j->g.top == 0) j->g.top = -1;
  return job_add_prompts(j, st_json_get(body, "prompt"), "prompt", p) && constrain_job(j, body, p);
}

void handle_llama(server *s, exchange *x) {
  start_job(s, x, &llama_format, "cmpl-", read_completion);
}

// ---- /infill ----

// How vocabularies spell the control tokens for infilling: before the prefix, the suffix and the middle, and before a
// file and a repository's name.
typedef struct gap_tokens {
  const char *prefix, *suffix, *middle, *file, *repository;
} gap_tokens;

static const gap_tokens spellings[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>", "<|repo_name|>"}, // Qwen, Gemma
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<file_sep>", "<reponame>"},            // StarCoder 2
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", NULL, NULL},
    {"<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "begin\xEF\xBD\x9C>",
     "<\xEF\xBD\x9C"
     "fim\xE2\x96\x81hole\xEF\xBD\x9C>",
     "<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "end\xEF\xBD\x9C>",
     NULL, NULL},                                                                // DeepSeek
    {"\xE2\x96\x81<PRE>", "\xE2\x96\x81<SUF>", "\xE2\x96\x81<MID>", NULL, NULL}, // CodeLlama
    {"<PRE>", "<SUF>", "<MID>", NULL, NULL},
    {"[PREFIX]", "[SUFFIX]", "[MIDDLE]", NULL, NULL}, // Codestral
};

// The control token with this text; -1: none.
static setun_token find_control(const server *s, const char *text) {
  setun_token id = -1;
  setun_token_kind kind;
  size_t n = 0;
  bool one = text &&
             setun_tokenize(s->model, text, strlen(text), SETUN_TOKENIZE_SPECIAL, &id, 1, &n, NULL) == SETUN_OK &&
             n == 1;
  if (!one || setun_token_get_kind(s->model, id, &kind, NULL) != SETUN_OK) return -1;
  return kind == SETUN_TOKEN_CONTROL || kind == SETUN_TOKEN_USER_DEFINED ? id : -1;
}

typedef struct gap_ids {
  setun_token prefix, suffix, middle, file, repository;
} gap_ids;

static bool find_gap_tokens(const server *s, gap_ids *ids) {
  for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
    const gap_tokens *t = &spellings[i];
    *ids = (gap_ids){find_control(s, t->prefix), find_control(s, t->suffix), find_control(s, t->middle),
                     find_control(s, t->file), find_control(s, t->repository)};
    if (ids->prefix >= 0 && ids->suffix >= 0 && ids->middle >= 0) return true;
  }
  return false;
}

typedef struct id_list {
  setun_token *data;
  size_t n;
} id_list;

static bool add_id(id_list *list, setun_token id, problem *p) {
  setun_token *grown = realloc(list->data, (list->n + 2) * sizeof *grown);
  if (!grown) return fail_memory(p);
  list->data = grown;
  grown[list->n++] = id;
  return true;
}

static bool add_text(const server *s, id_list *list, const st_json *text, problem *p) {
  size_t n = 0;
  if (!st_json_length(text)) return true;
  setun_token *ids = prompt_tokens_of(s, st_json_string(text), st_json_length(text), 0, &n, p);
  setun_token *grown = ids ? realloc(list->data, (list->n + n + 1) * sizeof *grown) : NULL;
  if (grown) list->data = grown;
  if (grown && n) memcpy(grown + list->n, ids, n * sizeof *ids);
  if (grown) list->n += n;
  free(ids);
  return grown || (p->status ? false : fail_memory(p));
}

static bool check_extra(const st_json *extra, problem *p) {
  const char *key = "input_extra";
  if (extra && !st_json_is_array(extra)) return invalid(p, key, "%s: expected an array, found %s", key, kind_of(extra));
  for (size_t i = 0; i < st_json_size(extra); i++) {
    const st_json *one = st_json_at(extra, i), *name = st_json_get(one, "filename"), *text = st_json_get(one, "text");
    if (!st_json_is_object(one)) return invalid(p, key, "%s: expected objects, found %s", key, kind_of(one));
    if (!st_json_is_string(text)) return invalid(p, key, "%s.text: expected a string, found %s", key, kind_of(text));
    if (name && !st_json_is_string(name))
      return invalid(p, key, "%s.filename: expected a string, found %s", key, kind_of(name));
  }
  return true;
}

static bool add_extra(job *j, id_list *list, const st_json *extra, const gap_ids *ids, problem *p) {
  bool fine = true;
  if (st_json_size(extra) && ids->file < 0)
    return invalid(p, "input_extra", "input_extra: the model has no token for other files");
  for (size_t i = 0; fine && i < st_json_size(extra); i++) {
    const st_json *one = st_json_at(extra, i);
    st_json newline = {.type = ST_JSON_STRING, .count = 1, .as.text = "\n"};
    fine = add_id(list, ids->file, p) && add_text(j->server, list, st_json_get(one, "filename"), p) &&
           add_text(j->server, list, &newline, p) && add_text(j->server, list, st_json_get(one, "text"), p);
  }
  return fine && (!st_json_size(extra) || add_id(list, ids->file, p));
}

static bool read_infill(job *j, const st_json *body, problem *p) {
  const server *s = j->server;
  gap_ids ids;
  id_list list = {0};
  const st_json *extra = st_json_get(body, "input_extra");
  if (!read_generation(s, body, infill_tables, &j->g, p) || !read_fields_wanted(j, body, p) || !check_extra(extra, p) ||
      !require_string(body, NULL, "input_prefix", p) || !require_string(body, NULL, "input_suffix", p) ||
      !optional_string(body, "prompt", p)) {
    return false;
  }
  if (j->g.top == 0) j->g.top = -1;
  if (!find_gap_tokens(s, &ids))
    return fail(p, MHD_HTTP_NOT_IMPLEMENTED, "not_supported_error", NULL,
                "the model has no tokens to fill a gap in a text");
  setun_token bos = setun_token_bos(s->model);
  size_t with_bos = 0;
  setun_tokenize(s->model, "", 0, SETUN_TOKENIZE_BOS, NULL, 0, &with_bos, NULL);
  bool fine = (!with_bos || add_id(&list, bos, p)) && add_extra(j, &list, extra, &ids, p) &&
              add_id(&list, ids.prefix, p) && add_text(s, &list, st_json_get(body, "input_prefix"), p) &&
              add_text(s, &list, st_json_get(body, "prompt"), p) && add_id(&list, ids.suffix, p) &&
              add_text(s, &list, st_json_get(body, "input_suffix"), p) && add_id(&list, ids.middle, p);
  if (fine) return job_add_prompt(j, list.data, list.n, p) && constrain_job(j, body, p);
  free(list.data);
  return false;
}

void handle_infill(server *s, exchange *x) {
  start_job(s, x, &llama_format, "cmpl-", read_infill);
}
