// Estimating the use of experts.
#include "expert_use.h"

#include <math.h>

double hit_rate_uniform(const setun_plan *p) {
  return p->n_experts_cached ? (double)p->n_experts_cached / p->n_experts : 1;
}

// The probability that a token uses the expert of rank r (from 1) of its layer, if it takes several distinct ones with
// chances proportional to 1 / r: close to 1 - exp(-pace / r), where pace is chosen for the sum to be right.
static double chance(double pace, uint32_t rank) {
  return 1 - exp(-pace / rank);
}

static double sum_of(double pace, uint32_t n) {
  double sum = 0;
  for (uint32_t r = 1; r <= n; r++) sum += chance(pace, r);
  return sum;
}

double hit_rate_zipf(const setun_plan *p) {
  if (!p->n_experts_cached) return 1;
  uint32_t each = p->n_experts / p->n_expert_layers;
  double low = 0, high = 1, kept = (double)p->n_experts_cached / p->n_expert_layers, hits = 0;
  if (p->n_experts_of_token >= each) return hit_rate_uniform(p);
  while (sum_of(high, each) < p->n_experts_of_token) high *= 2;
  for (int i = 0; i < 50; i++) {
    double middle = (low + high) / 2;
    *(sum_of(middle, each) < p->n_experts_of_token ? &low : &high) = middle;
  }
  for (uint32_t r = 1; r <= each && kept > 0; r++, kept--) hits += chance(high, r) * (kept < 1 ? kept : 1);
  return hits / p->n_experts_of_token;
}
