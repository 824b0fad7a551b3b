// Log-probabilities, in float64. The highest logit and the sum are kept separate: in one number a large logit would
// drop the sum's last bits.
#include "runtime/logprobs.h"

#include <math.h>

// Inserts a token into the ordered list of the likeliest; among equals the lowest id is first.
static void put_likely(setun_logprob *top, size_t *count, size_t most, setun_logprob t) {
  size_t i = *count;
  if (i == most && (!i || t.value <= top[i - 1].value)) return;
  if (i < most)
    ++*count;
  else
    i--;
  for (; i > 0 && top[i - 1].value < t.value; i--) top[i] = top[i - 1];
  top[i] = t;
}

void st_logprobs(const float *logits, size_t n, setun_token id, double *value, setun_logprob *top, size_t capacity) {
  double highest = -INFINITY, sum = 0;
  size_t found = 0;
  for (size_t i = 0; i < n; i++) highest = (double)logits[i] > highest ? (double)logits[i] : highest;
  for (size_t i = 0; i < n; i++) sum += exp((double)logits[i] - highest);
  double log_sum = log(sum);
  *value = (double)logits[id] - highest - log_sum;
  for (size_t i = 0; i < n && capacity; i++) {
    put_likely(top, &found, capacity, (setun_logprob){(setun_token)i, (double)logits[i] - highest - log_sum});
  }
}
