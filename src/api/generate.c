// setun.h: stop texts, and generating text.
#include "api/api.h"

#include "base/float_modes.h"
#include "runtime/stops.h"

// The handle is the runtime's object itself.
static st_stops *inner(setun_stops *s) {
  return (st_stops *)(void *)s;
}

setun_status setun_stops_new(const char *const *texts, size_t n, setun_stops **stops, setun_error *error) {
  st_stops *s = NULL;
  ST_NEED_ARRAY(texts, n);
  ST_NEED(stops);
  setun_status status = st_stops_new(texts, n, &s, error);
  if (status == SETUN_OK) *stops = (setun_stops *)(void *)s;
  return status;
}

void setun_stops_free(setun_stops *stops) {
  st_stops_free(inner(stops));
}

setun_status setun_stops_push(setun_stops *stops, const char *piece, size_t piece_length, const char **text,
                              size_t *length, bool *found, setun_error *error) {
  ST_NEED(stops);
  ST_NEED_ARRAY(piece, piece_length);
  ST_NEED(text);
  ST_NEED(length);
  ST_NEED(found);
  return st_stops_push(inner(stops), piece, piece_length, text, length, found, error);
}

setun_status setun_stops_finish(setun_stops *stops, const char **text, size_t *length, setun_error *error) {
  ST_NEED(stops);
  ST_NEED(text);
  ST_NEED(length);
  st_stops_finish(inner(stops), text, length);
  return SETUN_OK;
}

// ---- generating ---------------------------------------------------------------------------------------------------

typedef struct generation {
  st_session *session;
  const setun_model *model;
  st_sampler *sampler;
  const setun_generate_params *p;
  st_decoder *decoder;
  st_stops *stops;
  uint64_t n_tokens;
  st_token_list forced;  // tokens that must follow,
  size_t next_forced;    // the next one of them
  st_token_list waiting; // tokens of the text that are not evaluated yet
  bool stopped, refused; // by a stop text, by the caller
  setun_error *err;
} generation;

// Passes text of a token, or text held back, to the caller.
static void output_text(generation *g, const char *text, size_t length) {
  if (length && g->p->on_text && !g->refused) g->refused = !g->p->on_text(text, length, g->p->user);
}

static setun_status add_text(generation *g, const char *text, size_t length) {
  const char *safe = NULL;
  size_t n = 0;
  setun_status s = st_stops_push(g->stops, text, length, &safe, &n, &g->stopped, g->err);
  if (s == SETUN_OK) output_text(g, safe, n);
  return s;
}

static setun_status finish_text(generation *g) {
  const char *text = NULL;
  size_t length = 0;
  setun_status s = st_decoder_finish(g->decoder, &text, &length, g->err);
  if (s == SETUN_OK) s = add_text(g, text, length);
  if (s != SETUN_OK || g->refused) return s;
  st_stops_finish(g->stops, &text, &length);
  output_text(g, text, length);
  return SETUN_OK;
}

static setun_status evaluate_waiting(generation *g) {
  size_t n = g->waiting.length;
  g->waiting.length = 0;
  return n ? st_session_eval(g->session, g->waiting.ids, n, NULL, g->err) : SETUN_OK;
}

// Appends a token to the text. Tokens that must follow it under a constraint need no logits: they are evaluated
// together with it, before the next one is drawn.
static setun_status append(generation *g, setun_token id) {
  if (!st_token_list_append(&g->waiting, id)) return st_fail_memory(g->err, "the tokens of a text");
  setun_status s = st_sampler_accept(g->sampler, id, g->err);
  if (s == SETUN_OK && g->next_forced == g->forced.length) {
    g->next_forced = g->forced.length = 0;
    s = st_sampler_forced_tokens(g->sampler, &g->forced, g->err);
    if (s == SETUN_OK && !g->forced.length) s = evaluate_waiting(g);
  }
  return s;
}

// One token: drawn or forced, output, and appended to the text. *ended: whether it is the last one.
static setun_status step(generation *g, bool *ended, setun_end *end) {
  const char *text = NULL;
  size_t length = 0;
  setun_token id = 0;
  setun_status s = SETUN_OK;
  if (g->next_forced < g->forced.length)
    id = g->forced.ids[g->next_forced++];
  else
    s = st_sampler_sample(g->sampler, st_session_logits(g->session), g->model->model->h.n_vocab, &id, g->err);
  if (s != SETUN_OK) return s;
  g->n_tokens++;
  *ended = !g->p->ignore_end && st_tokenizer_is_end(g->model->tokenizer, id);
  if (*ended) {
    *end = SETUN_END_TOKEN;
    return SETUN_OK;
  }
  s = append(g, id);
  if (s == SETUN_OK) s = st_decoder_push(g->decoder, id, &text, &length, g->err);
  if (s == SETUN_OK) s = add_text(g, text, length);
  bool full = g->p->max_tokens && g->n_tokens >= g->p->max_tokens;
  *ended = g->stopped || g->refused || full;
  *end = g->stopped ? SETUN_END_STOP : g->refused ? SETUN_END_CALLER : SETUN_END_LENGTH;
  return s;
}

static setun_status generate(generation *g, setun_end *end) {
  bool ended = false;
  setun_status s = st_sampler_forced_tokens(g->sampler, &g->forced, g->err);
  while (s == SETUN_OK && !ended) {
    if (st_session_position(g->session) + g->waiting.length == st_session_context(g->session)) {
      *end = SETUN_END_CONTEXT;
      break;
    }
    s = step(g, &ended, end);
  }
  if (s == SETUN_OK) s = evaluate_waiting(g);
  if (s == SETUN_OK && !g->refused) s = finish_text(g);
  // Text held back may still complete a stop text, or make the caller stop.
  if (s == SETUN_OK && g->stopped) *end = SETUN_END_STOP;
  if (s == SETUN_OK && g->refused) *end = SETUN_END_CALLER;
  return s;
}

setun_status setun_generate(setun_session *session, setun_sampler *sampler, const setun_generate_params *params,
                            setun_generate_result *result, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  setun_generate_params p;
  setun_generate_result found = {0};
  const int flags = SETUN_DECODE_SPECIAL | SETUN_DECODE_CONTINUES;
  ST_NEED(session);
  ST_NEED(sampler);
  setun_status s = st_take_generate_params(&p, params, error);
  if (s == SETUN_OK && result) s = st_check_struct(result, sizeof found, "result", error);
  if (s != SETUN_OK) return s;
  ST_NEED_ARRAY(p.stops, p.n_stops);
  if (p.decode_flags & ~flags) {
    return st_fail(error, SETUN_ERROR_ARGUMENT, "decode_flags: expected those of setun.h, found 0x%x",
                   (unsigned)p.decode_flags);
  }
  if (!st_session_logits(session->inner)) {
    return st_fail(error, SETUN_ERROR_STATE, "generate: expected a session with logits: evaluate a prompt first");
  }
  generation g = {
      .session = session->inner, .model = session->model, .sampler = st_sampler_of(sampler), .p = &p, .err = error};
  s = st_stops_new(p.stops, p.n_stops, &g.stops, error);
  if (s == SETUN_OK) {
    bool special = p.decode_flags & SETUN_DECODE_SPECIAL, continues = p.decode_flags & SETUN_DECODE_CONTINUES;
    s = st_decoder_new(g.model->tokenizer, special, continues, &g.decoder, error);
  }
  if (s == SETUN_OK) s = generate(&g, &found.end);
  found.n_tokens = g.n_tokens;
  st_decoder_free(g.decoder);
  st_stops_free(g.stops);
  st_token_list_free(&g.forced), st_token_list_free(&g.waiting);
  return s == SETUN_OK && result ? ST_FILL(result, &found) : s;
}
