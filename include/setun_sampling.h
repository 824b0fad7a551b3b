/* From logits to a token. A part of setun.h, which states the conventions. */
#ifndef SETUN_SAMPLING_H
#define SETUN_SAMPLING_H

#include "setun_model.h"
#include "setun_tokens.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sampling ---------------------------------------------------------------------------------------------- */

/* Draws tokens, and remembers the text for the penalties. */
typedef struct setun_sampler setun_sampler;

/* The steps between the biases, which always come first, and the draw; the order here is the default one. */
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

/* Which steps there are, each at most once, and in which order. A step that is not among the first `n` is left out,
 * whatever its parameters are. */
typedef struct setun_sampler_order {
  uint8_t n;         /* 0 to 9 */
  uint8_t steps[15]; /* setun_sampler_step */
} setun_sampler_order;

/* "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature", as llama.cpp calls them;
 * NULL: no setun_sampler_step. */
SETUN_API const char *setun_sampler_step_name(setun_sampler_step step);
/* Reads such names, separated by ';'. Hyphens may replace underscores, or both be left out, and "temp", "typ",
 * "typical" and "nucleus" (top_p) are known too. An error names what is unknown or comes twice. */
SETUN_API setun_status setun_sampler_order_parse(const char *text, setun_sampler_order *order, setun_error *error);

/* The comments give the default and the value that switches a step off exactly. Numbers must be finite and in the
 * range given. */
typedef struct setun_sampler_params {
  size_t size; /* of this struct */
  /* A token that occurs among the last penalty_last_n has its logit divided by repeat_penalty if it is positive,
   * else multiplied; then presence_penalty is subtracted, and frequency_penalty once for each occurrence. */
  int32_t penalty_last_n;  /* 64; tokens; 0: off; -1: all */
  float repeat_penalty;    /* 1: off; above 0 */
  float presence_penalty;  /* 0: off */
  float frequency_penalty; /* 0: off */

  /* "Don't repeat yourself": where the last L >= dry_allowed_length tokens of the text occur earlier too, the token
   * that followed them there loses dry_multiplier * dry_base ^ (L - dry_allowed_length), for the longest such L.
   * See setun_sampler_add_breaker. */
  float dry_multiplier;       /* 0: off; 0 or more */
  float dry_base;             /* 1.75; 1 or more */
  int32_t dry_allowed_length; /* 2; 1 or more */
  int32_t dry_penalty_last_n; /* -1: all; tokens that are searched; 0: off */

  int32_t top_k;   /* 40; 0: off; the likeliest, of equally likely ones those with the lowest ids */
  float typical_p; /* 1: off; 0 to 1; those whose surprise is nearest to the entropy and which have this probability */
  float top_p;     /* 0.95; 1: off; 0 to 1; the likeliest which together have this probability */
  float min_p;     /* 0.05; 0: off; 0 to 1; those at least so likely, relative to the likeliest */

  /* "Exclude top choices": with probability xtc_probability, of the tokens that are at least xtc_threshold likely
   * only the least likely stays. */
  float xtc_probability; /* 0: off; 0 to 1 */
  float xtc_threshold;   /* 0.1; 0 to 1; above 0.5 nothing can happen */

  /* With dynatemp_range above 0 the temperature is low + (high - low) * E ^ dynatemp_exponent: low and high are
   * temperature -+ dynatemp_range (low not below 0), and E is the entropy of the tokens that are left divided by the
   * most that so many can have. */
  float temperature;       /* 0.8; 0 or more; 0: the likeliest after biases, penalties and DRY; nothing else applies,
                            * unless `order` leaves the temperature out */
  float dynatemp_range;    /* 0: off; 0 or more */
  float dynatemp_exponent; /* 1; 0 or more */

  uint64_t seed; /* 0; the same seed, parameters, text and logits give the same tokens */

  const setun_model *model; /* NULL: any token may be drawn; else never one that has no text in this model's vocabulary,
                               whatever its bias: models pad their embeddings. Read by setun_sampler_new alone */

  setun_sampler_order order; /* all, as setun_sampler_step has them */
  float top_n_sigma;         /* 0 or less: off; those whose logit is at most so many standard deviations (of the
                              * logits that are left) below the highest (Tang et al., 2024) */

  /* Mirostat (Basu et al., 2020) keeps the surprise of the text, -log2 of each probability, near mirostat_tau: it
   * replaces every step but penalties, DRY and temperature, and adapts with each draw. 1: leaves so many of the
   * likeliest as Zipf's law, fitted to the 100 likeliest, says; 2: those whose surprise is at most mu, which begins as
   * 2 * tau and falls by eta times the excess of what was drawn over tau. */
  int32_t mirostat;   /* 0: off; 1; 2 */
  float mirostat_tau; /* 5; 0 or more; the target, in bits */
  float mirostat_eta; /* 0.1; 0 or more; the learning rate */
} setun_sampler_params;

SETUN_PARAMS(setun_sampler_params)
/* The defaults with `model` set, and with what the model's own files say in their place: generation_config.json, or a
 * GGUF file's general.sampling keys. Whether generation_config.json asks for sampling at all is not considered. */
SETUN_API setun_status setun_model_get_sampler_params(const setun_model *model, setun_sampler_params *params,
                                                      setun_error *error);

/* `params` may be NULL for the defaults. */
SETUN_API setun_status setun_sampler_new(const setun_sampler_params *params, setun_sampler **sampler,
                                         setun_error *error);
SETUN_API void setun_sampler_free(setun_sampler *sampler);

/* Adds `bias` to the token's logit from now on; several for one token add up. -inf: the token is never drawn. */
SETUN_API setun_status setun_sampler_add_bias(setun_sampler *sampler, setun_token id, float bias, setun_error *error);
/* Adds a sequence breaker for DRY: 1 to 64 tokens, which are copied. Only tokens after the last breaker in the text
 * count as a repetition. A token that is a breaker by itself is never penalized by DRY. There are none at first. */
SETUN_API setun_status setun_sampler_add_breaker(setun_sampler *sampler, const setun_token *ids, size_t n,
                                                 setun_error *error);

/* Adds a breaker by its text of 1 to 256 bytes, which are copied, however the text's tokens cut it. The model must be
 * the same each time and outlive the sampler. Usual ones are "\n", ":", "\"" and "*". */
SETUN_API setun_status setun_sampler_add_breaker_text(setun_sampler *sampler, const setun_model *model,
                                                      const char *text, size_t length, setun_error *error);

/* Appends a token to the text that the sampler knows: for every token of the prompt, and for every token that was
 * drawn and used. Drawing alone does not append. */
SETUN_API setun_status setun_sampler_accept(setun_sampler *sampler, setun_token id, setun_error *error);
/* Forgets the text and starts again from the seed, Mirostat as well; biases and breakers stay. */
SETUN_API void setun_sampler_reset(setun_sampler *sampler);

/* Draws a token from `n` logits, which are not changed. NaN and +inf are an error that names the token; so is it when
 * no token is above -inf, or when a biased token is not among the `n`. */
SETUN_API setun_status setun_sampler_sample(setun_sampler *sampler, const float *logits, size_t n, setun_token *id,
                                            setun_error *error);

typedef struct setun_candidate {
  setun_token id;
  double probability;
} setun_candidate;

/* What the next setun_sampler_sample would draw from, with these logits: writes the `capacity` likeliest to
 * `candidates` (which may be NULL when capacity is 0), likeliest first, and the number that there are in all to
 * *count. Their probabilities add up to 1. Changes nothing: whether XTC applies is what that next call will find. */
SETUN_API setun_status setun_sampler_probabilities(setun_sampler *sampler, const float *logits, size_t n,
                                                   setun_candidate *candidates, size_t capacity, size_t *count,
                                                   setun_error *error);

/* A token's log-probability: the natural logarithm; -inf where its logit is. */
typedef struct setun_logprob {
  setun_token id;
  double value;
} setun_logprob;

/* Experimental. What `n` logits say by themselves, before biases, penalties and temperature: *value is of token `id`,
 * and the `capacity` likeliest tokens, at most n, go to `top` (which may be NULL when capacity is 0), the likeliest
 * first, of equally likely ones those with the lowest ids. */
SETUN_API setun_status setun_logprobs(const float *logits, size_t n, setun_token id, double *value, setun_logprob *top,
                                      size_t capacity, setun_error *error);

#ifdef __cplusplus
}
#endif

#endif
