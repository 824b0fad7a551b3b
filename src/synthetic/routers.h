// Routers of synthetic mixtures of experts: which experts tokens use is spread as in real models, so that caches of
// experts can be measured.
//
// A token takes k of a layer's E experts as if they were drawn one after the other with chances proportional to 1 / r,
// r being the expert's rank in its layer (Zipf's law with s = 1): the expert of rank r is then taken with a probability
// of about p = 1 - exp(-a / r), with a such that all p add up to k. A router is a matrix without a bias, so some of the
// embedding's columns are the same for all tokens; they become the bias, and the other columns what differs between
// tokens. With noise of standard deviation 1, a bias of the normal distribution's quantile of p makes a logit positive
// with probability p.
#ifndef SETUN_SYNTHETIC_ROUTERS_H
#define SETUN_SYNTHETIC_ROUTERS_H

#include "model/hparams.h"

typedef struct st_synthetic_routers {
  uint32_t n_bias; // columns that are the same for all tokens, the first ones; 0: no experts, ordinary weights
  float *biases;   // [n_expert] by rank, from 0
  uint32_t *ranks; // [n_layer, n_expert] another permutation in each layer
  uint32_t n_expert;
} st_synthetic_routers;

// Of models with experts and an embedding that is not the head; does nothing for others. Freed with
// st_synthetic_routers_free.
setun_status st_synthetic_routers_make(const st_hparams *h, uint64_t seed, st_synthetic_routers *routers,
                                       setun_error *err);
void st_synthetic_routers_free(st_synthetic_routers *routers);

// The value of the embedding's columns that are the same for all tokens, and about the standard deviation of the
// others: a power of two, which all formats hold.
float st_synthetic_embedding_scale(void);

// The row of a layer's router for an expert. `row` has random numbers of standard deviation 1; [n_embd].
void st_synthetic_router_row(const st_synthetic_routers *routers, uint32_t layer, uint32_t expert, size_t n_embd,
                             float *row);

#endif
