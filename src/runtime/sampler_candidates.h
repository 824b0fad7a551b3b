// The tokens that a sampler may still draw, and the steps that exclude some of them. Each step keeps at least one.
#ifndef SETUN_RUNTIME_SAMPLER_CANDIDATES_H
#define SETUN_RUNTIME_SAMPLER_CANDIDATES_H

#include "base/error.h"
#include "setun.h"

typedef struct st_candidate {
  double rank;   // sort key, descending, then ascending id: the logit, except during typical sampling
  double logit;  // finite
  double weight; // after st_candidates_weigh
  setun_token id;
} st_candidate;

// Zero-initialize; freed with st_candidates_free. The first `sorted` are in order and before all the others.
typedef struct st_candidates {
  st_candidate *items;
  size_t count, capacity;
  size_t sorted;
  bool heaped;        // the others form a heap, whose root is the last
  double sum;         // of the weights
  double temperature; // divisor of the logits from here on; initially 1

  // While gathering: at most `keep` are needed, none at or below `threshold`.
  size_t keep;
  double threshold;
  float threshold_below; // the largest float not above it
} st_candidates;

void st_candidates_free(st_candidates *c);

// Empties the list; of the tokens offered next, the `keep` (at least 1) likeliest will stay, the first among equals.
void st_candidates_begin(st_candidates *c, size_t keep);
// Offers one token; -inf is skipped, NaN and +inf are errors that name the token.
setun_status st_candidates_offer(st_candidates *c, setun_token id, double logit, setun_error *err);
// Offers the tokens [from, to).
setun_status st_candidates_offer_range(st_candidates *c, const float *logits, size_t from, size_t to, setun_error *err);
// Ends gathering: the list is then ready for the steps below, unless it is empty.
void st_candidates_end(st_candidates *c);

// Sorts the first `n`.
void st_candidates_order(st_candidates *c, size_t n);
// After changing logits: makes them the sort key again.
void st_candidates_changed(st_candidates *c);
// Divides the logits themselves by the temperature, which becomes 1.
void st_candidates_scale(st_candidates *c);
// Sets the weights, which are proportional to the probabilities, and their sum.
void st_candidates_weigh(st_candidates *c);
// The entropy of the weights, in nats, once they are set.
double st_candidates_entropy(const st_candidates *c);

// Keeps the `k` (at least 1) likeliest.
void st_candidates_top_k(st_candidates *c, size_t k);
// Top-n-sigma (Tang et al., 2024): those whose logit is at most `n` standard deviations below the highest.
void st_candidates_top_n_sigma(st_candidates *c, double n);
// Locally typical sampling (Meister et al., 2023): the fewest, those first whose surprise -ln p is nearest to the
// entropy, whose probabilities add up to at least `p`.
void st_candidates_typical(st_candidates *c, double p);
// Nucleus sampling (Holtzman et al., 2020): the fewest, likeliest first, whose probabilities add up to at least `p`.
void st_candidates_top_p(st_candidates *c, double p);
// Min-p sampling (Nguyen et al., 2024): those at least `p` times as likely as the likeliest; p above 0.
void st_candidates_min_p(st_candidates *c, double p);
// Exclude top choices (P. E. Weidmann, text-generation-webui pull request 6335): of those whose probability is at least
// `threshold`, keeps only the least likely.
void st_candidates_xtc(st_candidates *c, double threshold);
// Mirostat (Basu et al., 2020): as many of the likeliest as should have a surprise of at most `mu` bits, if
// probabilities follow Zipf's law with the exponent of the 100 likeliest and n_vocab tokens.
void st_candidates_mirostat(st_candidates *c, double mu, size_t n_vocab);
// Mirostat 2.0: those whose surprise is at most `mu`, and the likeliest.
void st_candidates_surprise(st_candidates *c, double mu);

#endif
