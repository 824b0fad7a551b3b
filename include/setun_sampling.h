/* Drawing tokens from logits. A part of setun.h, which states the conventions. */
#ifndef SETUN_SAMPLING_H
#define SETUN_SAMPLING_H

#include "setun_model.h"
#include "setun_tokens.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sampling ---------------------------------------------------------------------------------------------- */

/* Draws tokens and remembers the text for the penalties. */
typedef struct setun_sampler setun_sampler;

/* The steps between the biases, which always come first, and the draw, in the default order. */
typedef enum setun_sampler_step {
  SETUN_STEP_PENALTIES,
  SETUN_STEP_DRY,
  SETUN_STEP_TOP_N_SIGMA,
  SETUN_STEP_TOP_K,
  SETUN_STEP_TYPICAL,
  SETUN_STEP_TOP_P,
  SETUN_STEP_MIN_P,
  SETUN_STEP_XTC,
  SETUN_STEP_TEMPERATURE
} setun_sampler_step;

/* The steps to apply, each at most once, in order. A step that is not among the first `n` is skipped, regardless of its
 * parameters. */
typedef struct setun_sampler_order {
  uint8_t n;         /* 0 to 9 */
  uint8_t steps[15]; /* setun_sampler_step */
} setun_sampler_order;

/* "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature", as in llama.cpp; NULL:
 * not a setun_sampler_step. */
SETUN_API const char *setun_sampler_step_name(setun_sampler_step step);
/* Parses such names, separated by ';'. Underscores may be hyphens or omitted, and "temp", "typ", "typical" and
 * "nucleus" (top_p) are also accepted. An error names what is unknown or occurs twice. */
SETUN_API setun_status setun_sampler_order_parse(const char *text, setun_sampler_order *order, setun_error *error);

/* The comments give the default and the value that disables a step. Numbers must be finite and within the given
 * range. */
typedef struct setun_sampler_params {
  size_t size; /* of this struct */
  /* The logit of a token that occurs among the last penalty_last_n is divided by repeat_penalty if positive, else
   * multiplied; then presence_penalty is subtracted, and frequency_penalty once per occurrence. */
  int32_t penalty_last_n;  /* 64; tokens; 0: off; -1: all */
  float repeat_penalty;    /* 1: off; above 0 */
  float presence_penalty;  /* 0: off */
  float frequency_penalty; /* 0: off */

  /* "Don't repeat yourself": where the last L >= dry_allowed_length tokens of the text also occur earlier, the logit of
   * the token that followed them there is reduced by dry_multiplier * dry_base ^ (L - dry_allowed_length), for the
   * longest such L. See setun_sampler_add_breaker. */
  float dry_multiplier;       /* 0: off; 0 or more */
  float dry_base;             /* 1.75; 1 or more */
  int32_t dry_allowed_length; /* 2; 1 or more */
  int32_t dry_penalty_last_n; /* -1: all; number of tokens to search; 0: off */

  int32_t top_k;   /* 40; 0: off; the likeliest, lowest ids first among equals */
  float typical_p; /* 1: off; 0 to 1; those with a surprise nearest to the entropy, up to this total probability */
  float top_p;     /* 0.95; 1: off; 0 to 1; the likeliest, up to this total probability */
  float min_p;     /* 0.05; 0: off; 0 to 1; those at least this likely, relative to the likeliest */

  /* "Exclude top choices": with probability xtc_probability, only the least likely of the tokens with a probability of
   * at least xtc_threshold stays. */
  float xtc_probability; /* 0: off; 0 to 1 */
  float xtc_threshold;   /* 0.1; 0 to 1; no effect above 0.5 */

  /* With dynatemp_range above 0 the temperature is low + (high - low) * E ^ dynatemp_exponent: low and high are
   * temperature -+ dynatemp_range (low not below 0), and E is the entropy of the remaining tokens divided by the
   * maximum for their number. */
  float temperature;    /* 0.8; 0 or more; 0: the likeliest after biases, penalties and DRY, and no other step, unless
                           `order` omits the temperature */
  float dynatemp_range; /* 0: off; 0 or more */
  float dynatemp_exponent; /* 1; 0 or more */

  uint64_t seed; /* 0; the same seed, parameters, text and logits give the same tokens */

  const setun_model *model; /* NULL: any token may be drawn; else never one without text in this model's vocabulary,
                               regardless of its bias: models pad their embeddings. Read only by setun_sampler_new */

  setun_sampler_order order; /* all, in the order of setun_sampler_step */
  float top_n_sigma; /* 0 or less: off; those whose logit is at most this many standard deviations (of the remaining
                        logits) below the highest (Tang et al., 2024) */

  /* Mirostat (Basu et al., 2020) keeps the surprise of the text, -log2 of each probability, near mirostat_tau: it
   * replaces every step but penalties, DRY and temperature, and adapts with each draw. 1: keeps a number of the
   * likeliest given by Zipf's law, fitted to the 100 likeliest; 2: keeps those with a surprise of at most mu, which
   * starts at 2 * tau and decreases by eta times (the surprise of the drawn token - tau). */
  int32_t mirostat;   /* 0: off; 1; 2 */
  float mirostat_tau; /* 5; 0 or more; the target, in bits */
  float mirostat_eta; /* 0.1; 0 or more; the learning rate */
} setun_sampler_params;

SETUN_PARAMS(setun_sampler_params)
/* The defaults with `model` set, overridden by the model's own files: generation_config.json, or a GGUF file's
 * general.sampling keys. Whether generation_config.json asks for sampling at all is not considered. */
SETUN_API setun_status setun_model_get_sampler_params(const setun_model *model, setun_sampler_params *params,
                                                      setun_error *error);

/* `params` may be NULL for the defaults. */
SETUN_API setun_status setun_sampler_new(const setun_sampler_params *params, setun_sampler **sampler,
                                         setun_error *error);
SETUN_API void setun_sampler_free(setun_sampler *sampler);

/* Adds `bias` to the token's logit from now on; several biases of a token add up. -inf: the token is never drawn. */
SETUN_API setun_status setun_sampler_add_bias(setun_sampler *sampler, setun_token id, float bias, setun_error *error);
/* Adds a sequence breaker for DRY: 1 to 64 tokens, which are copied. Only tokens after the last breaker in the text
 * count as a repetition. A token that is itself a breaker is never penalized by DRY. Initially there are none. */
SETUN_API setun_status setun_sampler_add_breaker(setun_sampler *sampler, const setun_token *ids, size_t n,
                                                 setun_error *error);

/* Adds a breaker by its text of 1 to 256 bytes, which are copied, however the text's tokens cut it. The model must be
 * the same each time and outlive the sampler. Usual ones are "\n", ":", "\"" and "*". */
SETUN_API setun_status setun_sampler_add_breaker_text(setun_sampler *sampler, const setun_model *model,
                                                      const char *text, size_t length, setun_error *error);

/* Appends a token to the sampler's text: call it for every token of the prompt, and for every drawn token that is used.
 * Drawing does not append. */
SETUN_API setun_status setun_sampler_accept(setun_sampler *sampler, setun_token id, setun_error *error);
/* Clears the text and restarts from the seed, including Mirostat; biases and breakers stay. */
SETUN_API void setun_sampler_reset(setun_sampler *sampler);

/* Draws a token from `n` logits, which are not changed. Errors: NaN and +inf, with the token; no token above -inf; a
 * biased token that is not among the `n`. */
SETUN_API setun_status setun_sampler_sample(setun_sampler *sampler, const float *logits, size_t n, setun_token *id,
                                            setun_error *error);

typedef struct setun_candidate {
  setun_token id;
  double probability;
} setun_candidate;

/* The candidates of the next setun_sampler_sample with these logits: writes the `capacity` likeliest to `candidates`
 * (which may be NULL when capacity is 0), likeliest first, and their total number to *count. Their probabilities add up
 * to 1. Changes nothing: XTC applies exactly if it will in that next call. */
SETUN_API setun_status setun_sampler_probabilities(setun_sampler *sampler, const float *logits, size_t n,
                                                   setun_candidate *candidates, size_t capacity, size_t *count,
                                                   setun_error *error);

/* A token's log-probability: the natural logarithm; -inf if its logit is -inf. */
typedef struct setun_logprob {
  setun_token id;
  double value;
} setun_logprob;

/* Experimental. Log-probabilities of `n` logits, before biases, penalties and temperature: *value is that of token
 * `id`, and the `capacity` likeliest tokens, at most n, are written to `top` (which may be NULL when capacity is 0),
 * likeliest first, lowest ids first among equals. */
SETUN_API setun_status setun_logprobs(const float *logits, size_t n, setun_token id, double *value, setun_logprob *top,
                                      size_t capacity, setun_error *error);

#ifdef __cplusplus
}
#endif

#endif
