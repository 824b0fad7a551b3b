/* Serves eight prompts at once, each with its own sampler: one pass computes a token of every unfinished text,
 * so that the weights are read once for all of them: eight_prompts MODEL [PROMPT...] */
#include <setun.h>
#include <stdio.h>
#include <string.h>

enum { TEXTS = 8, PROMPT_MOST = 192, NEW_TOKENS = 32, TEXT_MOST = 4096 };

typedef struct text {
  const char *prompt;
  int sequence;
  setun_token ids[PROMPT_MOST]; /* what is evaluated next: the prompt, then one token after the other */
  size_t n;
  setun_sampler *sampler;
  setun_decoder *decoder;
  int left; /* tokens to come */
  char written[TEXT_MOST];
  size_t length;
} text;

static void keep(text *t, const char *piece, size_t n) {
  if (n > TEXT_MOST - t->length) n = TEXT_MOST - t->length;
  memcpy(t->written + t->length, piece, n);
  t->length += n;
}

static setun_status begin(const setun_model *model, setun_context *context, uint64_t seed, text *t, setun_error *e) {
  setun_sampler_params sampling = setun_sampler_params_default();
  size_t n = 0;
  uint32_t reused = 0;
  sampling.model = model; /* tokens without text are never sampled */
  sampling.seed = seed;
  t->left = NEW_TOKENS;
  setun_status s = setun_tokenize(model, t->prompt, strlen(t->prompt), SETUN_TOKENIZE_BOS, t->ids, PROMPT_MOST, &n, e);
  if (s == SETUN_OK && (n == 0 || n > PROMPT_MOST)) {
    snprintf(e->message, sizeof e->message, "the prompt has %zu tokens: expected 1 to %d", n, PROMPT_MOST);
    return SETUN_ERROR_LIMIT;
  }
  if (s == SETUN_OK) s = setun_sampler_new(&sampling, &t->sampler, e);
  if (s == SETUN_OK) s = setun_decoder_new(model, SETUN_DECODE_CONTINUES, &t->decoder, e);
  /* The beginning that another text shares with the prompt need not be computed again. Here there is none yet. */
  if (s == SETUN_OK) s = setun_context_reuse(context, t->ids, n, &t->sequence, &reused, e);
  if (s != SETUN_OK) return s;
  t->n = n - reused;
  memmove(t->ids, t->ids + reused, t->n * sizeof *t->ids);
  return SETUN_OK;
}

/* Draws a text's next token; the text may end with it. */
static setun_status step(const setun_model *model, text *t, const float *logits, setun_error *e) {
  const char *piece = NULL;
  size_t length = 0;
  setun_status s = setun_sampler_sample(t->sampler, logits, setun_model_n_vocab(model), t->ids, e);
  t->n = 1;
  if (s != SETUN_OK) return s;
  if (setun_token_is_end(model, t->ids[0])) {
    t->left = 0;
    return SETUN_OK;
  }
  s = setun_sampler_accept(t->sampler, t->ids[0], e);
  if (s == SETUN_OK) s = setun_decoder_push(t->decoder, t->ids[0], &piece, &length, e);
  if (s == SETUN_OK) keep(t, piece, length);
  t->left--;
  return s;
}

/* One pass for all texts that continue; false in *more when none do. */
static setun_status pass(const setun_model *model, setun_context *context, text *texts, bool *more, setun_error *e) {
  setun_batch_entry entries[TEXTS];
  text *of[TEXTS];
  size_t n = 0;
  for (int i = 0; i < TEXTS; i++) {
    if (!texts[i].left) continue;
    setun_batch_entry entry = {texts[i].sequence, SETUN_LOGITS_LAST, texts[i].ids, texts[i].n};
    entries[n] = entry;
    of[n++] = &texts[i];
  }
  *more = n > 0;
  setun_status s = n ? setun_context_eval(context, entries, n, NULL, e) : SETUN_OK;
  for (size_t i = 0; i < n && s == SETUN_OK; i++) {
    s = step(model, of[i], setun_context_logits(context, i, 0), e);
    if (s == SETUN_OK && !of[i]->left)
      s = setun_context_drop(context, of[i]->sequence, e); /* frees its place in the context */
  }
  return s;
}

int main(int argc, char **argv) {
  static const char *const prompts[TEXTS] = {"Once upon a time",   "The fox",       "A little girl", "One day",
                                             "The old lighthouse", "In the garden", "Tom had a",     "It was raining"};
  static text texts[TEXTS];
  if (argc < 2 || argc > 2 + TEXTS) return fprintf(stderr, "usage: %s MODEL [PROMPT...]\n", argv[0]), 2;
  setun_error error;
  setun_model *model = NULL;
  setun_context *context = NULL;
  setun_context_params params = setun_context_params_default();
  params.n_seq_max = TEXTS;
  params.n_ctx = PROMPT_MOST + NEW_TOKENS;
  setun_model_params loading = setun_model_params_default();
  loading.context = &params; /* leaves room for it */
  bool more = true;
  setun_status s = setun_model_load(argv[1], &loading, &model, &error);
  if (s == SETUN_OK) s = setun_context_new(model, &params, &context, &error);
  for (int i = 0; i < TEXTS && s == SETUN_OK; i++) {
    texts[i].prompt = i + 2 < argc ? argv[i + 2] : prompts[i];
    s = begin(model, context, (uint64_t)i, &texts[i], &error);
  }
  while (s == SETUN_OK && more) s = pass(model, context, texts, &more, &error);
  if (s != SETUN_OK) fprintf(stderr, "%s\n", error.message);
  for (int i = 0; i < TEXTS; i++) {
    const char *piece = NULL;
    size_t length = 0;
    if (s == SETUN_OK && setun_decoder_finish(texts[i].decoder, &piece, &length, &error) == SETUN_OK) {
      keep(&texts[i], piece, length);
      printf("%s%.*s\n\n", texts[i].prompt, (int)texts[i].length, texts[i].written);
    }
    setun_decoder_free(texts[i].decoder);
    setun_sampler_free(texts[i].sampler);
  }
  setun_context_free(context);
  setun_model_free(model);
  return s != SETUN_OK;
}
