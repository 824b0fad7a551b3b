// Chances by rank, their biases, and the rows of routers.
#include "synthetic/routers.h"

#include "base/hash.h"
#include "base/memory.h"
#include "base/random.h"

#include <math.h>

enum { BIAS_PART = 16 };                        // of the columns, one in so many is the same for all tokens
static const float EMBEDDING = 4, NOISE = 1.5f; // standard deviations, of the embedding and of logits
// By how much the layers' outputs, of variance GROWTH each, reduce the bias's part of the normalized state.
static const float GROWTH = 0.1f;

float st_synthetic_embedding_scale(void) {
  return EMBEDDING;
}

// The probability that the expert of rank r, from 1, is taken; see the header.
static double chance(double a, uint32_t r) {
  return 1 - exp(-a / r);
}

static double find_pace(uint32_t n, uint32_t used) {
  double low = 0, high = 64.0 * n;
  for (int i = 0; i < 100; i++) {
    double middle = (low + high) / 2, sum = 0;
    for (uint32_t r = 1; r <= n; r++) sum += chance(middle, r);
    *(sum < used ? &low : &high) = middle;
  }
  return low;
}

// x at which the normal distribution's function is p.
static double quantile(double p) {
  double low = -8, high = 8;
  for (int i = 0; i < 60; i++) {
    double middle = (low + high) / 2;
    *(erfc(-middle / sqrt(2)) / 2 < p ? &low : &high) = middle;
  }
  return low;
}

static void permute(uint32_t *ranks, uint32_t n, uint64_t seed, uint32_t layer) {
  const uint64_t id[] = {seed, layer};
  st_random r;
  st_random_seed(&r, st_hash(ST_HASH_START, id, sizeof id));
  for (uint32_t i = 0; i < n; i++) {
    uint32_t at = (uint32_t)(st_random_u64(&r) % (i + 1));
    ranks[i] = ranks[at];
    ranks[at] = i;
  }
}

setun_status st_synthetic_routers_make(const st_hparams *h, uint64_t seed, st_synthetic_routers *routers,
                                       setun_error *err) {
  *routers = (st_synthetic_routers){0};
  if (!h->n_expert || h->tied) return SETUN_OK;
  st_synthetic_routers r = {.n_bias = h->n_embd / BIAS_PART, .n_expert = h->n_expert};
  r.biases = st_malloc(h->n_expert, sizeof *r.biases);
  r.ranks = st_malloc((size_t)h->n_layer * h->n_expert, sizeof *r.ranks);
  if (!r.biases || !r.ranks) {
    st_synthetic_routers_free(&r);
    return st_fail_memory(err, "a synthetic model's routers");
  }
  double a = find_pace(h->n_expert, h->n_expert_used);
  for (uint32_t i = 0; i < h->n_expert; i++) r.biases[i] = (float)quantile(chance(a, i + 1));
  for (uint32_t layer = 0; layer < h->n_layer; layer++) {
    permute(r.ranks + (size_t)layer * h->n_expert, h->n_expert, seed, layer);
  }
  *routers = r;
  return SETUN_OK;
}

void st_synthetic_routers_free(st_synthetic_routers *r) {
  st_free(r->biases);
  st_free(r->ranks);
}

void st_synthetic_router_row(const st_synthetic_routers *r, uint32_t layer, uint32_t expert, size_t n_embd,
                             float *row) {
  float bias = NOISE * r->biases[r->ranks[(size_t)layer * r->n_expert + expert]];
  // A bias column of the normalized state is EMBEDDING / its root mean square.
  float column = EMBEDDING / sqrtf(EMBEDDING * EMBEDDING + GROWTH * (float)layer);
  float noise = NOISE / sqrtf((float)(n_embd - r->n_bias));
  for (size_t i = 0; i < r->n_bias; i++) row[i] = bias / ((float)r->n_bias * column);
  for (size_t i = r->n_bias; i < n_embd; i++) row[i] *= noise;
}
