// The command `perplexity`: measure how well a model predicts a text.
#include "commands.h"
#include "input.h"
#include "interrupt.h"
#include "model.h"
#include "output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct perplexity_options {
  text_options text;
  model_options model;
  compute_options compute;
  const char *ids, *against;
  int64_t ctx, stride; // 0: the model's, at most 4096; half of ctx
  bool special, json;
} perplexity_options;

#define AT(member) offsetof(perplexity_options, member)
static const option rows[] = {
    {0, "ids", OPTION_FILE, AT(ids), "FILE", 0, 0, "token ids instead of a text: a JSON array; taken literally"},
    {0, "special", OPTION_FLAG, AT(special), NULL, 0, 0, "recognize control tokens in the text"},
    {'c', "ctx", OPTION_INTEGER, AT(ctx), "N", 2, INT32_MAX, "tokens in a window (default: the model's, at most 4096)"},
    {0, "stride", OPTION_INTEGER, AT(stride), "N", 1, INT32_MAX,
     "tokens between the starts of windows, less than --ctx (default: half of it)"},
    {0, "against", OPTION_FILE, AT(against), "MODEL", 0, 0,
     "compare with that model's predictions: the mean Kullback-Leibler divergence from them, and how often the most "
     "likely token is the same"},
    {0, "json", OPTION_FLAG, AT(json), NULL, 0, 0,
     "print JSON: perplexity, tokens, nll; with --against also against_perplexity, kl_divergence, same_top"},
};

enum { COMPARED = 32 }; // tokens whose logits are kept for the other model's

// The model to compare with, and sums over the tokens so far.
typedef struct comparison {
  setun_model *model;
  setun_session *session; // NULL: none
  float *logits;          // [COMPARED][n_vocab], of the positions from `first` on
  uint32_t first;
  double nll, divergence;
  uint64_t same;
} comparison;

// Sums over the tokens scored so far.
typedef struct score {
  const setun_token *window; // the ids in the session, from position 0 on
  uint32_t n_vocab;
  double nll; // sum of negative log-likelihoods, natural logarithm
  uint64_t tokens;
  comparison against;
} score;

static bool keep_logits(uint32_t position, const float *logits, void *user) {
  score *s = user;
  memcpy(s->against.logits + (size_t)(position - s->against.first) * s->n_vocab, logits, s->n_vocab * sizeof *logits);
  return true;
}

// The logarithm of the sum of exponentials, and the largest logit.
static double log_sum(const float *logits, uint32_t n, uint32_t *top) {
  double sum = 0;
  *top = 0;
  for (uint32_t i = 1; i < n; i++) {
    if (logits[i] > logits[*top]) *top = i;
  }
  for (uint32_t i = 0; i < n; i++) sum += exp((double)logits[i] - (double)logits[*top]);
  return (double)logits[*top] + log(sum);
}

// Adds the divergence from the other model's prediction of the token `target`.
static void compare(const float *logits, uint32_t n, setun_token target, const float *others, comparison *c) {
  uint32_t top, others_top;
  double sum = log_sum(logits, n, &top), others_sum = log_sum(others, n, &others_top), divergence = 0;
  for (uint32_t i = 0; i < n; i++) {
    double p = (double)others[i] - others_sum;
    divergence += exp(p) * (p - ((double)logits[i] - sum));
  }
  c->divergence += divergence > 0 ? divergence : 0; // below only by rounding
  c->nll -= (double)others[target] - others_sum;
  c->same += top == others_top;
}

static bool on_logits(uint32_t position, const float *logits, void *user) {
  score *s = user;
  double value;
  comparison *c = &s->against;
  setun_token target = s->window[position + 1];
  if (setun_logprobs(logits, s->n_vocab, target, &value, NULL, 0, NULL) != SETUN_OK) return false;
  s->nll -= value;
  s->tokens++;
  if (c->session) compare(logits, s->n_vocab, target, c->logits + (size_t)(position - c->first) * s->n_vocab, c);
  return true;
}

// Tokens whose predictions are scored: from position `first` of the window on.
static setun_status score_tokens(setun_session *session, size_t first, size_t n, score *s, setun_error *error) {
  comparison *c = &s->against;
  setun_eval_params params = setun_eval_params_default(), others = params;
  params.on_logits = on_logits;
  others.on_logits = keep_logits;
  params.user = others.user = s;
  size_t each = c->session ? COMPARED : n;
  setun_status status = SETUN_OK;
  for (size_t at = 0; at < n && status == SETUN_OK; at += each) {
    size_t count = n - at < each ? n - at : each;
    c->first = (uint32_t)(first + at);
    if (c->session) status = setun_session_eval(c->session, s->window + first + at, count, &others, error);
    if (status == SETUN_OK) status = setun_session_eval(session, s->window + first + at, count, &params, error);
  }
  return status;
}

static setun_status begin_window(setun_session *session, const setun_token *ids, size_t known, setun_error *error) {
  setun_status status = setun_session_truncate(session, 0, error);
  if (status == SETUN_OK && known > 1) status = setun_session_eval(session, ids, known - 1, NULL, error);
  return status;
}

// Scores one window of `n` ids, of which the first `known` (at least one) are context or were scored before. The last
// id is only a target and is not evaluated.
static setun_status score_window(setun_session *session, const setun_token *ids, size_t n, size_t known, score *s,
                                 setun_error *error) {
  s->window = ids;
  setun_status status = begin_window(session, ids, known, error);
  if (status == SETUN_OK && s->against.session) status = begin_window(s->against.session, ids, known, error);
  return status == SETUN_OK ? score_tokens(session, known - 1, n - known, s, error) : status;
}

// Windows of `ctx` tokens at intervals of `stride`; each scores the tokens that earlier ones did not. Returns the exit
// status.
static int score_all(setun_session *session, const id_list *list, size_t ctx, size_t stride, score *s) {
  setun_error error;
  progress_line progress;
  setun_status status = SETUN_OK;
  progress_begin(&progress, "perplexity");
  for (size_t start = 0, scored = 1; status == SETUN_OK && scored < list->count; start += stride) {
    size_t end = list->count - start < ctx ? list->count : start + ctx;
    if (interrupt_status()) return interrupt_status();
    status = score_window(session, list->ids + start, end - start, scored - start, s, &error);
    scored = end;
    progress_show(&progress, (double)scored / (double)list->count);
  }
  progress_end(&progress);
  if (status == SETUN_OK) return 0;
  return interrupt_status() && error.code == SETUN_ERROR_CANCELED ? interrupt_status() : report(&error);
}

static void print_comparison(const score *s, bool json) {
  const comparison *c = &s->against;
  double n = (double)s->tokens, perplexity = exp(c->nll / n), divergence = c->divergence / n,
         same = (double)c->same / n;
  if (!json) {
    print_text("against perplexity %.4f: divergence %.6f nats per token, the same most likely token %.2f%%\n",
               perplexity, divergence, 100 * same);
    return;
  }
  print_text(", \"against_perplexity\": ");
  print_json_number(perplexity);
  print_text(", \"kl_divergence\": ");
  print_json_number(divergence);
  print_text(", \"same_top\": ");
  print_json_number(same);
}

// The exit status.
static int print_result(const score *s, bool json) {
  double nll = s->nll / (double)s->tokens;
  if (!isfinite(exp(nll))) {
    return failure("the mean negative log-likelihood of %llu tokens is %g, and its exponential overflows",
                   (unsigned long long)s->tokens, nll);
  }
  if (json) {
    print_text("{\"perplexity\": ");
    print_json_number(exp(nll));
    print_text(", \"tokens\": %llu, \"nll\": ", (unsigned long long)s->tokens);
    print_json_number(nll);
    if (s->against.session) print_comparison(s, json);
    print_text("}\n");
  } else {
    print_text("perplexity %.4f over %llu tokens (mean negative log-likelihood %.6f)\n", exp(nll),
               (unsigned long long)s->tokens, nll);
    if (s->against.session) print_comparison(s, json);
  }
  return 0;
}

// Loads the other model, with a session of the same length. False after a report.
static bool open_comparison(const perplexity_options *o, uint32_t n_ctx, score *s) {
  comparison *c = &s->against;
  compute_options own = o->compute;
  own.adapters = (text_list){0}; // they apply only to the model itself
  own.context = NULL;
  if (!open_model(o->against, &o->model, &own, false, &c->model)) return false;
  uint32_t n = setun_model_n_vocab(c->model);
  if (n != s->n_vocab) {
    failure("%s: expected a vocabulary of %u tokens, as the model has, found %u", o->against, (unsigned)s->n_vocab,
            (unsigned)n);
    return false;
  }
  if (!(c->logits = malloc((size_t)COMPARED * n * sizeof *c->logits))) {
    failure("out of memory for the logits of %d tokens", COMPARED);
    return false;
  }
  return open_session(o->against, c->model, &own, n_ctx, &c->session);
}

static void close_comparison(comparison *c) {
  setun_session_free(c->session);
  setun_model_free(c->model);
  free(c->logits);
}

static int compute(const command *self, const char *name, const setun_model *model, const perplexity_options *o,
                   const id_list *list) {
  uint32_t n_vocab = setun_model_n_vocab(model);
  setun_session *session = NULL;
  score s = {.n_vocab = n_vocab};
  if (list->count < 2) return failure("expected at least 2 tokens, found %zu", list->count);
  for (size_t i = 0; i < list->count; i++) {
    if ((uint32_t)list->ids[i] < n_vocab) continue;
    return failure("token id %d is outside the vocabulary of %u", (int)list->ids[i], (unsigned)n_vocab);
  }
  if (!open_session(name, model, &o->compute, (uint32_t)o->ctx, &session)) return STATUS_FAILED;
  size_t ctx = setun_session_context(session), stride = o->stride ? (size_t)o->stride : ctx / 2;
  int status = 0;
  if (stride < 1 || stride >= ctx) {
    status = usage_error(self, "--stride: expected less than the window's %zu tokens, found %zu", stride, ctx);
  } else if (o->against && !open_comparison(o, (uint32_t)ctx, &s)) {
    status = STATUS_FAILED;
  } else {
    watch_interrupts(session);
    status = score_all(session, list, ctx, stride, &s);
    watch_interrupts(NULL);
    if (status == 0) status = print_result(&s, o->json);
  }
  close_comparison(&s.against);
  setun_session_free(session);
  return status;
}

// The text, or the ids of --ids. 0, or the exit status after a report.
static int read_input(const command *self, const perplexity_options *o, input_text *text, id_list *list) {
  char why[128];
  if (!o->ids) return read_text(self, &o->text, text_limit(o->compute.memory), text);
  if (o->text.prompt || o->text.file) return usage_error(self, "--ids and a text exclude each other");
  int status = read_file(o->ids, text_limit(o->compute.memory), text);
  if (status) return status;
  if (parse_ids(text->data, text->length, list, why)) return 0;
  return *why ? failure("%s: %s", o->ids, why) : STATUS_FAILED;
}

static int run(const command *self, int argc, char **argv) {
  perplexity_options o = {.compute = {.all_logits = true}};
  setun_model *model = NULL;
  input_text text = {0};
  id_list list = {0};
  int status = 0, flags = SETUN_TOKENIZE_BOS;
  if (parse_options(self, argc, argv, &o, &status) < 0) return status;
  if (o.ctx && o.stride >= o.ctx) return usage_error(self, "--stride must be less than --ctx");
  status = read_input(self, &o, &text, &list);
  if (status == 0) {
    if (o.special) flags |= SETUN_TOKENIZE_SPECIAL;
    o.compute.n_ctx = (uint32_t)o.ctx;
    bool ready = (o.ids || tokenize_beforehand(argv[1], &o.model, &o.compute, flags, &text, &list)) &&
                 open_model(argv[1], &o.model, &o.compute, false, &model);
    status = ready ? compute(self, argv[1], model, &o, &list) : failed_status();
  }
  free(list.ids);
  free(text.data);
  setun_model_free(model);
  return status ? status : finish_output();
}

const command command_perplexity = {
    .name = "perplexity",
    .summary = "measure how well a model predicts a text",
    .arguments = "MODEL",
    .min_arguments = 1,
    .max_arguments = 1,
    .details =
        "Prints exp of the mean negative log-likelihood of a text's tokens. The text is read in windows of --ctx "
        "tokens at intervals of --stride; every token is scored once, in the first window that contains it, and in the "
        "first window from the second token on. The text begins with BOS if the model's tokenizer specifies it.",
    .groups = {TEXT_GROUP(perplexity_options),
               {"options", OPTION_ROWS(rows), 0},
               COMPUTE_GROUP(perplexity_options),
               MODEL_GROUP(perplexity_options)},
    .run = run,
};
