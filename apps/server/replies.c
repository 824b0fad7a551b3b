// Parts shared by replies.
#include "replies.h"

#include <math.h>
#include <stdlib.h>

st_json *new_document(const job *j, const char *object) {
  st_json *root = st_json_new();
  put_text(root, root, "id", j->id);
  put_text(root, root, "object", object);
  put_integer(root, root, "created", j->created);
  put_text(root, root, "model", j->server->about->name);
  put_text(root, root, "system_fingerprint", j->server->fingerprint);
  return root;
}

void put_usage(st_json *root, st_json *object, const job *j) {
  st_json value = st_json_make_object(), details = st_json_make_object();
  usage u = job_usage(j);
  put_integer(root, &value, "prompt_tokens", (int64_t)u.prompt);
  put_integer(root, &value, "completion_tokens", (int64_t)u.drawn);
  put_integer(root, &value, "total_tokens", (int64_t)(u.prompt + u.drawn));
  put_integer(root, &details, "cached_tokens", (int64_t)u.cached);
  put(root, &value, "prompt_tokens_details", details);
  put(root, object, "usage", value);
}

// The number of tokens, and the time that `steps` of them took.
static void put_rates(st_json *root, st_json *value, const char *const names[4], size_t n, size_t steps,
                      double seconds) {
  put_integer(root, value, names[0], (int64_t)n);
  put_real(root, value, names[1], seconds * 1000);
  put_real(root, value, names[2], steps ? seconds * 1000 / (double)steps : 0);
  put_real(root, value, names[3], steps && seconds > 0 ? (double)steps / seconds : 0);
}

void put_timings(st_json *root, st_json *object, const job *j) {
  static const char *const prompt_names[] = {"prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second"};
  static const char *const drawn_names[] = {"predicted_n", "predicted_ms", "predicted_per_token_ms",
                                            "predicted_per_second"};
  const choice *c = &j->choices[0];
  st_json value = st_json_make_object();
  size_t computed = c->done - c->cached;
  double end = c->ended > 0 ? c->ended : now_seconds(), prompted = c->prompted > 0 ? c->prompted : end;
  put_integer(root, &value, "cache_n", (int64_t)c->cached);
  put_rates(root, &value, prompt_names, computed, computed, computed ? prompted - c->began : 0);
  // The first token comes with the prompt's last pass.
  put_rates(root, &value, drawn_names, c->n_ids, c->n_ids ? c->n_ids - 1 : 0, c->n_ids ? end - prompted : 0);
  put(root, object, "timings", value);
}

void token_bytes(const server *s, setun_token id, const char **bytes, size_t *n) {
  if (setun_token_get_text(s->model, id, bytes, n, NULL) == SETUN_OK) return;
  *bytes = "";
  *n = 0;
}

// ---- log-probabilities ----

static void put_token(st_json *root, st_json *value, const server *s, setun_token id, bool probabilities,
                      double logprob) {
  const char *bytes;
  size_t n;
  st_json list = st_json_make_array();
  token_bytes(s, id, &bytes, &n);
  put_integer(root, value, "id", id);
  put_bytes(root, value, "token", bytes, n);
  for (size_t i = 0; i < n; i++) push(root, &list, st_json_make_integer((unsigned char)bytes[i]));
  put(root, value, "bytes", list);
  if (probabilities)
    put_real(root, value, "prob", exp(logprob));
  else
    put_real(root, value, "logprob", logprob);
}

st_json entry_value(st_json *root, const choice *c, size_t i) {
  const job *j = c->job;
  st_json value = st_json_make_object(), list = st_json_make_array();
  size_t width = j->g.top > 0 ? (size_t)j->g.top : 0;
  put_token(root, &value, j->server, c->entries[i].id, j->g.fresh_probabilities, c->entries[i].value);
  for (size_t k = 0; k < width; k++) {
    const setun_logprob *t = &c->tops[i * width + k];
    st_json one = st_json_make_object();
    if (t->id < 0) break;
    put_token(root, &one, j->server, t->id, j->g.fresh_probabilities, t->value);
    push(root, &list, one);
  }
  put(root, &value, j->g.fresh_probabilities ? "top_probs" : "top_logprobs", list);
  return value;
}

news take_news(choice *c) {
  news n = {.text = c->text.data ? c->text.data + c->sent : "",
            .text_length = c->text.length - c->sent,
            .reasoning = c->reasoning.data ? c->reasoning.data + c->sent_reasoning : "",
            .reasoning_length = c->reasoning.length - c->sent_reasoning,
            .first_entry = c->sent_entries};
  // A token whose text is held back may become a part of a stop text.
  bool all = c->state == CHOICE_ENDED || c->raw == c->text.length;
  size_t end = c->state == CHOICE_ENDED ? count_entries(c) : c->n_entries;
  while (!all && end > c->sent_entries && c->entries[end - 1].begin >= c->text.length) end--;
  n.end_entry = end > c->sent_entries ? end : c->sent_entries;
  c->sent = c->text.length;
  c->sent_reasoning = c->reasoning.length;
  c->sent_entries = n.end_entry;
  return n;
}

char *prompt_text(const job *j, const prompt *p, bool whole, size_t *length) {
  const setun_model *model = j->server->model;
  size_t left_out = p->added_bos && !whole, n = 0, count = p->n - left_out;
  const setun_token *ids = p->ids + left_out;
  *length = 0;
  if (setun_detokenize(model, ids, count, SETUN_DECODE_SPECIAL, NULL, 0, &n, NULL) != SETUN_OK) return NULL;
  char *text = malloc(n + 1);
  if (text && setun_detokenize(model, ids, count, SETUN_DECODE_SPECIAL, text, n, length, NULL) == SETUN_OK) {
    text[*length] = 0;
    return text;
  }
  free(text);
  return NULL;
}

void send_done(exchange *x) {
  static const char done[] = "data: [DONE]\n\n";
  exchange_write(x, done, sizeof done - 1);
}

bool progress_news(choice *c, st_json *root, st_json *object) {
  const job *j = c->job;
  st_json value = st_json_make_object();
  if (!j->g.progress || (c->told_progress && c->progress == c->done)) return false;
  c->told_progress = true;
  c->progress = c->done;
  put_integer(root, &value, "total", (int64_t)j->prompts[c->prompt].n);
  put_integer(root, &value, "cache", (int64_t)c->cached);
  put_integer(root, &value, "processed", (int64_t)c->done);
  put_integer(root, &value, "time_ms", (int64_t)((now_seconds() - c->began) * 1000));
  put(root, object, "prompt_progress", value);
  return true;
}
