// Choices: drawing tokens and turning them into text.
#include "calls.h"

#include "compiler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double least_logprob = -9999; // JSON has no -inf

// ---- log-probabilities ----

static bool add_entry(choice *c, token_entry **entry, setun_logprob **top, problem *p) {
  size_t width = c->job->g.top > 0 ? (size_t)c->job->g.top : 0;
  if (c->n_entries == c->entries_capacity) {
    size_t larger = c->entries_capacity * 2 + 64;
    token_entry *entries = realloc(c->entries, larger * sizeof *entries);
    if (entries) c->entries = entries;
    setun_logprob *tops = width && entries ? realloc(c->tops, larger * width * sizeof *tops) : NULL;
    if (tops) c->tops = tops;
    if (!entries || (width && !tops)) return fail_memory(p);
    c->entries_capacity = larger;
  }
  *top = width ? c->tops + c->n_entries * width : NULL;
  *entry = &c->entries[c->n_entries++];
  **entry = (token_entry){.begin = c->raw};
  for (size_t i = 0; i < width; i++) (*top)[i] = (setun_logprob){-1, 0};
  return true;
}

static double floored(double value) {
  return value > least_logprob ? value : least_logprob;
}

static bool fill_entry(choice *c, token_entry *entry, setun_logprob *top, const float *logits, problem *p) {
  size_t width = c->job->g.top > 0 ? (size_t)c->job->g.top : 0, n = setun_model_n_vocab(c->job->server->model);
  setun_error error;
  setun_status s = setun_logprobs(logits, n, entry->id, &entry->value, top, width, &error);
  if (s != SETUN_OK) return fail_with(p, NULL, &error);
  entry->value = floored(entry->value);
  for (size_t i = 0; i < width; i++) top[i].value = floored(top[i].value);
  return true;
}

// If a constraint allows no token, the error is the request's.
static bool fail_drawing(problem *p, const setun_error *error) {
  return error->code == SETUN_ERROR_STATE ? invalid(p, NULL, "%s", error->message) : fail_with(p, NULL, error);
}

// Draws, and records the sampler's probabilities as logarithms. They are read first: drawing advances the generator.
static bool draw_and_note(choice *c, const float *logits, size_t n, token_entry *entry, setun_logprob *top,
                          problem *p) {
  setun_candidate likely[TOP_MOST];
  size_t width = c->job->g.top > 0 ? (size_t)c->job->g.top : 0, found = 0;
  setun_error error;
  setun_status s = setun_sampler_probabilities(c->sampler, logits, n, likely, TOP_MOST, &found, &error);
  if (s == SETUN_OK) s = setun_sampler_sample(c->sampler, logits, n, &entry->id, &error);
  if (s != SETUN_OK) return fail_drawing(p, &error);
  if (found > TOP_MOST) found = TOP_MOST;
  entry->value = least_logprob;
  for (size_t i = 0; i < found; i++) {
    double value = floored(log(likely[i].probability));
    if (i < width) top[i] = (setun_logprob){likely[i].id, value};
    if (likely[i].id == entry->id) entry->value = value;
  }
  return true;
}

// A prompt's first token has no log-probability.
static bool add_first_entry(choice *c, problem *p) {
  token_entry *entry = NULL;
  setun_logprob *top = NULL;
  if (!add_entry(c, &entry, &top, p)) return false;
  entry->id = c->job->prompts[c->prompt].ids[0];
  entry->absent = true;
  return true;
}

bool choice_embed(choice *c, setun_context *context, problem *p) {
  setun_error error;
  uint32_t n = c->job->embedding.params.n_dimensions;
  c->vector = calloc(embedding_vectors(c) * (n ? n : c->job->server->embeddings.n_dimensions), sizeof *c->vector);
  if (!c->vector) return fail_memory(p);
  setun_status s = setun_context_get_embedding(context, c->sequence, &c->job->embedding.params, c->vector, &error);
  if (s != SETUN_OK) return fail_with(p, NULL, &error);
  c->end = END_TOKEN;
  return true;
}

bool choice_take_prompt(choice *c, size_t at, const float *logits, problem *p) {
  const prompt *text = &c->job->prompts[c->prompt];
  token_entry *entry = NULL;
  setun_logprob *top = NULL;
  if (!add_entry(c, &entry, &top, p)) return false;
  entry->id = text->ids[at + 1];
  return fill_entry(c, entry, top, logits, p);
}

// ---- the sampler ----

static setun_status add_breakers(choice *c, setun_error *error) {
  static const char *const usual[] = {"\n", ":", "\"", "*"};
  const generation *g = &c->job->g;
  size_t n = g->breakers_given ? g->n_breakers : sizeof usual / sizeof *usual;
  setun_status s = SETUN_OK;
  if (!(g->sampling.dry_multiplier > 0)) return s;
  for (size_t i = 0; i < n && s == SETUN_OK; i++) {
    const char *text = g->breakers_given ? g->breakers[i] : usual[i];
    s = setun_sampler_add_breaker_text(c->sampler, c->job->server->model, text, strlen(text), error);
  }
  return s;
}

// Feeds the prompt to the sampler, for the penalties.
static setun_status open_sampler(choice *c, setun_error *error) {
  const job *j = c->job;
  const prompt *text = &j->prompts[c->prompt];
  setun_sampler_params params = j->g.sampling;
  params.seed += c->index % (uint32_t)j->g.n;
  setun_status s = setun_sampler_new(&params, &c->sampler, error);
  if (s == SETUN_OK) s = add_breakers(c, error);
  for (size_t i = 0; i < j->g.n_biases && s == SETUN_OK; i++)
    s = setun_sampler_add_bias(c->sampler, j->g.biases[i].id, j->g.biases[i].bias, error);
  for (size_t i = 0; j->g.ignore_end && i < j->server->n_ends && s == SETUN_OK; i++)
    s = setun_sampler_add_bias(c->sampler, j->server->ends[i], -INFINITY, error);
  for (size_t i = 0; i < text->n && s == SETUN_OK; i++) s = setun_sampler_accept(c->sampler, text->ids[i], error);
  return s == SETUN_OK && j->constraint ? setun_sampler_constrain(c->sampler, j->constraint, error) : s;
}

bool choice_open(choice *c, problem *p) {
  const job *j = c->job;
  setun_error error;
  setun_status s = open_sampler(c, &error);
  if (s == SETUN_OK)
    s = j->chat ? setun_reply_new(j->rendering, &c->reply, &error)
                : setun_decoder_new(j->server->model, SETUN_DECODE_CONTINUES, &c->decoder, &error);
  if (s == SETUN_OK && j->g.n_stops)
    s = setun_stops_new((const char *const *)j->g.stops, j->g.n_stops, &c->stops, &error);
  if (s != SETUN_OK) return fail_with(p, NULL, &error);
  if (j->sure_calls) setun_reply_stream_calls(c->reply);
  return !j->prompts[c->prompt].logprobs || add_first_entry(c, p);
}

void choice_close(choice *c) {
  setun_sampler_free(c->sampler);
  setun_decoder_free(c->decoder);
  setun_reply_free(c->reply);
  setun_stops_free(c->stops);
  c->sampler = NULL;
  c->decoder = NULL;
  c->reply = NULL;
  c->stops = NULL;
}

// ---- text ----

static bool append(st_buffer *to, const char *text, size_t n) {
  return !n || st_buffer_append(to, text, n);
}

// Adds to the answer's own text, which may end with a stop text.
static bool take_text(choice *c, const char *text, size_t n, setun_error *error) {
  bool found = false;
  c->raw += n;
  if (!c->stops) return append(&c->text, text, n);
  if (!append(&c->held, text, n)) return false;
  if (setun_stops_push(c->stops, text, n, &text, &n, &found, error) != SETUN_OK) return false;
  if (found) c->end = END_STOP;
  c->held.length -= n;
  if (n) memmove(c->held.data, c->held.data + n, c->held.length);
  return append(&c->text, text, n);
}

// A setun_reply_fn.
static bool take_channel(setun_channel channel, const char *text, size_t n, void *user) {
  choice *c = user;
  setun_error error;
  st_buffer *to = channel == SETUN_CHANNEL_REASONING ? &c->reasoning : &c->text;
  if (c->end == END_STOP) return true;
  if (channel == SETUN_CHANNEL_CALL_NAME) return call_begin(c, text, n);
  if (channel == SETUN_CHANNEL_CALL) return call_append(c, text, n);
  // An answer of calls alone has no text: this is a call's syntax, cut off by a limit.
  if (channel == SETUN_CHANNEL_CONTENT && c->job->tool_choice == TOOLS_REQUIRED) return true;
  // Templates add the white space around reasoning, or trim it.
  bool trim = to == &c->reasoning ? !c->reasoning.length : c->reasoning.length && !c->raw;
  while (trim && n && strchr(" \t\n\r", *text)) text++, n--;
  if (!n) return true;
  return to == &c->text ? take_text(c, text, n, &error) : append(to, text, n);
}

// Adds a token's text. False: `p` has the reason.
static bool push_token(choice *c, setun_token id, problem *p) {
  setun_error error = {.code = SETUN_ERROR_MEMORY, .message = "out of memory for the text"};
  const char *text = NULL;
  size_t n = 0;
  if (c->reply)
    return setun_reply_push(c->reply, id, take_channel, c, &error) == SETUN_OK ||
           (error.code == SETUN_ERROR_CANCELED ? fail_memory(p) : fail_with(p, NULL, &error));
  if (setun_decoder_push(c->decoder, id, &text, &n, &error) != SETUN_OK) return fail_with(p, NULL, &error);
  return take_text(c, text, n, &error) || fail_with(p, NULL, &error);
}

static void flush_text(choice *c) {
  const char *text = NULL;
  size_t n = 0;
  setun_error error;
  if (c->end != END_STOP) {
    if (c->reply) setun_reply_finish(c->reply, take_channel, c, &error);
    if (c->decoder && setun_decoder_finish(c->decoder, &text, &n, &error) == SETUN_OK) take_text(c, text, n, &error);
  }
  if (c->stops && setun_stops_finish(c->stops, &text, &n, &error) == SETUN_OK) append(&c->text, text, n);
}

// Which stop text was found: of those that `held` begins with, the shortest was complete first.
static void name_stop(choice *c) {
  const generation *g = &c->job->g;
  size_t best = SIZE_MAX;
  if (c->end != END_STOP) return;
  c->stop = g->stops[0];
  for (size_t i = 0; i < g->n_stops; i++) {
    size_t n = strlen(g->stops[i]);
    if (n < best && n <= c->held.length && !memcmp(c->held.data, g->stops[i], n)) c->stop = g->stops[i], best = n;
  }
}

// ---- drawing ----

static bool keep_id(choice *c, setun_token id, problem *p) {
  if (c->n_ids == c->ids_capacity) {
    size_t larger = c->ids_capacity * 2 + 64;
    setun_token *grown = realloc(c->ids, larger * sizeof *grown);
    if (!grown) return fail_memory(p);
    c->ids = grown;
    c->ids_capacity = larger;
  }
  c->ids[c->n_ids++] = id;
  return true;
}

static void see_limits(choice *c) {
  const generation *g = &c->job->g;
  const prompt *text = &c->job->prompts[c->prompt];
  if (c->end) return;
  if (g->max_tokens >= 0 && c->n_ids >= (size_t)g->max_tokens)
    c->end = END_LENGTH;
  else if (text->n + c->n_ids >= c->job->server->n_ctx)
    c->end = END_CONTEXT;
  else if (g->time_limit > 0 && (now_seconds() - c->prompted) * 1000 > g->time_limit)
    c->end = END_TIME;
}

// Adds a token, with its entry if entries are wanted.
static bool draw(choice *c, const float *logits, setun_token *id, problem *p) {
  const generation *g = &c->job->g;
  size_t n = setun_model_n_vocab(c->job->server->model);
  setun_error error;
  token_entry *entry = NULL;
  setun_logprob *top = NULL;
  if (g->top >= 0 && !add_entry(c, &entry, &top, p)) return false;
  if (entry && g->fresh_probabilities) {
    if (!draw_and_note(c, logits, n, entry, top, p)) return false;
    *id = entry->id;
    return true;
  }
  if (setun_sampler_sample(c->sampler, logits, n, id, &error) != SETUN_OK) return fail_drawing(p, &error);
  if (entry) entry->id = *id;
  return !entry || fill_entry(c, entry, top, logits, p);
}

// Accepts a token that was drawn or that must follow. Sets `end` if the text ends with it.
static bool take_token(choice *c, setun_token id, problem *p) {
  const job *j = c->job;
  setun_error error;
  if (!keep_id(c, id, p)) return false;
  if (setun_token_is_end(j->server->model, id)) {
    c->end = END_TOKEN;
    if (j->g.top >= 0 && !j->bare_ends) c->n_entries--;
    return true;
  }
  if (setun_sampler_accept(c->sampler, id, &error) != SETUN_OK) return fail_with(p, NULL, &error);
  if (!push_token(c, id, p)) return false;
  if (!c->end && (setun_reply_is_over(c->reply) || (j->one_call && !j->sure_calls && c->n_calls))) c->end = END_TOKEN;
  see_limits(c);
  c->next[c->n_next++] = id;
  return true;
}

// Accepts the tokens that must follow, if their log-probabilities are not wanted.
static bool take_forced(choice *c, problem *p) {
  setun_token ids[FORCED_MOST];
  setun_error error;
  size_t n = 0;
  if (!c->job->constraint || c->job->g.top >= 0 || c->end) return true;
  if (setun_sampler_forced(c->sampler, ids, FORCED_MOST, &n, &error) != SETUN_OK) return fail_with(p, NULL, &error);
  for (size_t i = 0; i < n && i < c->job->server->n_forced && !c->end; i++) {
    if (!take_token(c, ids[i], p)) return false;
  }
  return true;
}

// Constraints grow as texts are matched, and all share one limit.
static bool grant_growth(const choice *c, uint64_t *bytes, problem *p) {
  const server *s = c->job->server;
  if (!c->job->constraint || compiler_grant(s->compiler, c->job->compiled, bytes)) return true;
  fail(p, MHD_HTTP_SERVICE_UNAVAILABLE, "unavailable_error", NULL,
       "the constraints of the running answers need more memory than --constraint-memory allows: %llu bytes",
       (unsigned long long)s->options.constraint_memory);
  p->retry_after = 1;
  return false;
}

bool choice_draw(choice *c, const float *logits, problem *p) {
  setun_token id = 0;
  uint64_t growth = 0;
  if (!c->n_ids) c->prompted = now_seconds();
  c->n_next = 0;
  if (c->job->g.max_tokens == 0) {
    c->end = END_LENGTH;
    return true;
  }
  if (!grant_growth(c, &growth, p)) return false;
  bool fine = draw(c, logits, &id, p) && take_token(c, id, p) && take_forced(c, p);
  if (c->job->constraint) compiler_take_back(c->job->server->compiler, growth);
  return fine;
}

void choice_finish(choice *c) {
  flush_text(c);
  name_stop(c);
  c->ended = now_seconds();
  c->state = CHOICE_ENDED;
  choice_close(c);
}

size_t count_entries(const choice *c) {
  size_t n = c->n_entries, asked = c->job->prompts[c->prompt].logprobs ? c->job->prompts[c->prompt].n : 0;
  if (c->end != END_STOP) return n;
  while (n > asked && c->entries[n - 1].begin >= c->text.length && c->raw > c->text.length) n--;
  return n;
}
