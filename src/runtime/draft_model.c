// The draft model's context follows the text: where the two differ, it is truncated and computed again.
#include "runtime/draft_model.h"

#include "base/memory.h"

#include <string.h>

struct st_draft_model {
  st_context *context;
  int sequence;
  uint32_t n_ctx, n_vocab;
};

static st_text text_of(const st_tokenizer *t, int32_t id) {
  st_text text = {0};
  if (st_tokenizer_has_text(t, id)) st_tokenizer_text(t, id, &text, NULL);
  return text;
}

setun_status st_draft_model_check(const st_tokenizer *own, const st_tokenizer *draft, setun_error *err) {
  uint32_t n = st_tokenizer_size(own), n_draft = st_tokenizer_size(draft);
  for (uint32_t id = 0; id < (n > n_draft ? n : n_draft); id++) {
    st_text a = text_of(own, (int32_t)id), b = text_of(draft, (int32_t)id);
    if (a.length == b.length && (!a.length || !memcmp(a.data, b.data, a.length))) continue;
    enum { SHOWN = 40 };
    int first = (int)(a.length < SHOWN ? a.length : SHOWN), second = (int)(b.length < SHOWN ? b.length : SHOWN);
    return st_fail(err, SETUN_ERROR_ARGUMENT,
                   "draft model: expected the model's own tokens, token %u is \"%.*s\", found \"%.*s\"", id, first,
                   first ? a.data : "", second, second ? b.data : "");
  }
  return SETUN_OK;
}

setun_status st_draft_model_new(const st_model *m, const setun_context_params *params, st_draft_model **draft,
                                setun_error *err) {
  setun_context_params p = *params;
  st_draft_model *d = st_calloc(1, sizeof *d);
  if (!d) return st_fail_memory(err, "the draft model's context");
  if (p.n_ctx > m->h.n_ctx_most) p.n_ctx = m->h.n_ctx_most;
  p.n_seq_max = p.n_logits = 1;
  setun_status s = st_context_new(m, &p, "draft model", &d->context, err);
  if (s == SETUN_OK) s = st_context_add(d->context, &d->sequence, err);
  if (s != SETUN_OK) {
    st_draft_model_free(d);
    return st_fail_in(err, s, "draft model");
  }
  setun_context_info info;
  st_context_info(d->context, &info);
  d->n_ctx = info.n_ctx;
  d->n_vocab = m->h.n_vocab;
  *draft = d;
  return SETUN_OK;
}

void st_draft_model_free(st_draft_model *d) {
  if (!d) return;
  st_context_free(d->context);
  st_free(d);
}

// The number of tokens that the sequence shares with the text, excluding `last`, whose logits are needed.
static size_t common_tokens(const st_draft_model *d, const setun_token *ids, size_t n) {
  const setun_token *own = st_context_tokens(d->context, d->sequence);
  size_t most = st_context_position(d->context, d->sequence), common = 0;
  if (most > n) most = n;
  while (common < most && own[common] == ids[common]) common++;
  return common;
}

static setun_status append(st_draft_model *d, const setun_token *ids, size_t n, setun_logits logits, setun_error *err) {
  const setun_batch_entry entry = {.sequence = d->sequence, .logits = logits, .ids = ids, .n = n};
  const setun_eval_params params = {.size = sizeof params};
  return st_context_eval(d->context, &entry, 1, &params, err);
}

static setun_token likeliest(const st_draft_model *d, uint32_t n_vocab) {
  const float *logits = st_context_logits(d->context, 0, 0);
  uint32_t n = d->n_vocab < n_vocab ? d->n_vocab : n_vocab, best = 0;
  for (uint32_t i = 1; i < n; i++) {
    if (logits[i] > logits[best]) best = i;
  }
  return (setun_token)best;
}

setun_status st_draft_model_propose(st_draft_model *d, const setun_token *ids, size_t n, setun_token last,
                                    uint32_t n_vocab, setun_token *next, uint32_t most, uint32_t *count,
                                    setun_error *err) {
  *count = 0;
  if (n + most > d->n_ctx || (uint32_t)last >= d->n_vocab) return SETUN_OK;
  size_t common = common_tokens(d, ids, n);
  setun_status s = st_context_truncate(d->context, d->sequence, (uint32_t)common, err);
  setun_token behind[SETUN_DRAFT_MOST + 2]; // usually few: one pass for all
  size_t few = n - common < SETUN_DRAFT_MOST + 1 ? n - common : 0;
  if (s == SETUN_OK) s = append(d, ids + common, n - common - few, SETUN_LOGITS_NONE, err);
  if (few) memcpy(behind, ids + n - few, few * sizeof *ids);
  behind[few] = last;
  if (s == SETUN_OK) s = append(d, behind, few + 1, SETUN_LOGITS_LAST, err);
  while (s == SETUN_OK) {
    next[*count] = likeliest(d, n_vocab);
    if (++*count == most) break;
    s = append(d, &next[*count - 1], 1, SETUN_LOGITS_LAST, err);
  }
  return s;
}

void st_draft_model_stop(st_draft_model *d) {
  st_context_stop(d->context);
}
