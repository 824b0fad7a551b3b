// Expectations by layer, their recall, and the comparison of passes with and without.
#include "placement/expert_prefetch.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

// Passes: before the first trial, of a block of a trial, and between trials at first and at most.
enum { WARM = 80, BLOCK = 4, BLOCKS = 8, PAUSE_LEAST = 128, PAUSE_MOST = 2048, QUEUE = 32 };
static const double GAIN = 0.98; // passes with prefetching must take at most this part of the others' time

struct st_expert_prefetch {
  uint32_t n_layer, n_expert;
  st_prefetch_options options;
  uint8_t *expected; // [ST_PREFETCH_DISTANCES, n_layer, n_expert] whether it was predicted from so far away
  uint64_t predicted[ST_PREFETCH_DISTANCES], recalled[ST_PREFETCH_DISTANCES]; // used experts of layers with predictions
  uint32_t queue[QUEUE];                                                      // records to read
  uint32_t n_queue;
  // The comparison.
  bool on, counts; // this pass: prefetches; is part of the comparison
  bool winner;     // what passes outside of trials do
  uint32_t left;   // passes before the next trial, or of the trial
  uint32_t pause;
  bool in_trial;
  double began, seconds[2]; // of the trial's passes: without, with
  double all_seconds[2];    // of all trials that have ended
  uint32_t n_trials;
};

setun_status st_expert_prefetch_new(uint32_t n_layer, uint32_t n_expert, const st_prefetch_options *o,
                                    st_expert_prefetch **prefetch, setun_error *err) {
  st_expert_prefetch *p = st_calloc(1, sizeof *p);
  if (!p) return st_fail_memory(err, "expected experts");
  *p =
      (st_expert_prefetch){.n_layer = n_layer, .n_expert = n_expert, .options = *o, .left = WARM, .pause = PAUSE_LEAST};
  p->expected = st_calloc((size_t)ST_PREFETCH_DISTANCES * n_layer, n_expert);
  if (!p->expected) {
    st_free(p);
    return st_fail_memory(err, "expected experts");
  }
  *prefetch = p;
  return SETUN_OK;
}

void st_expert_prefetch_free(st_expert_prefetch *p) {
  if (!p) return;
  st_free(p->expected);
  st_free(p);
}

// ---- whether it helps ---------------------------------------------------------------------------------------------

void st_expert_prefetch_begin(st_expert_prefetch *p, uint32_t n_tokens, double now) {
  p->n_queue = 0;
  p->began = now;
  p->counts = p->options.mode == ST_PREFETCH_MEASURED && n_tokens == 1;
  p->on = p->options.mode == ST_PREFETCH_ALWAYS || (p->counts && p->winner);
  if (!p->counts || !p->in_trial) return;
  uint32_t block = (BLOCKS * BLOCK - p->left) / BLOCK;
  p->on = (block ^ block >> 1 ^ block >> 2) % 2 == 0;
}

// The trial's result; trials that confirm the present choice become rarer.
static void decide(st_expert_prefetch *p) {
  bool winner = p->seconds[1] < GAIN * p->seconds[0];
  p->pause = winner != p->winner ? PAUSE_LEAST : p->pause < PAUSE_MOST ? 2 * p->pause : PAUSE_MOST;
  p->winner = winner;
  p->n_trials++;
  for (int i = 0; i < 2; i++) p->all_seconds[i] += p->seconds[i];
  p->in_trial = false;
  p->left = p->pause;
}

void st_expert_prefetch_end(st_expert_prefetch *p, double now) {
  if (!p->counts) return;
  p->counts = false;
  if (p->in_trial) p->seconds[p->on] += now - p->began;
  p->left--;
  bool half = p->in_trial && p->left == BLOCKS * BLOCK / 2; // as many passes with as without: a loss ends the trial
  if (p->left && !(half && p->seconds[1] >= p->seconds[0])) return;
  if (p->in_trial) {
    decide(p);
    return;
  }
  p->in_trial = true;
  p->left = BLOCKS * BLOCK;
  p->seconds[0] = p->seconds[1] = 0;
}

uint32_t st_expert_prefetch_distance(const st_expert_prefetch *p) {
  return p->on ? p->options.distance : 0;
}

// ---- what is expected ---------------------------------------------------------------------------------------------

static uint8_t *expected_of(const st_expert_prefetch *p, uint32_t distance, uint32_t layer) {
  return p->expected + ((size_t)(distance - 1) * p->n_layer + layer) * p->n_expert;
}

void st_expert_prefetch_expect(st_expert_prefetch *p, uint32_t layer, uint32_t distance, const uint32_t *experts,
                               uint32_t n) {
  uint8_t *expected = expected_of(p, distance, layer);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t record = layer * p->n_expert + experts[i], at = 0;
    expected[experts[i]] = 1;
    while (at < p->n_queue && p->queue[at] != record) at++;
    if (at < p->n_queue || p->n_queue == QUEUE) continue;
    at = p->n_queue++;
    for (; at && p->queue[at - 1] / p->n_expert > layer; at--) p->queue[at] = p->queue[at - 1];
    p->queue[at] = record;
  }
}

uint32_t st_expert_prefetch_next(st_expert_prefetch *p, bool (*wanted)(void *context, uint32_t record), void *context) {
  uint32_t at = 0, record = UINT32_MAX;
  while (at < p->n_queue && record == UINT32_MAX) {
    if (wanted(context, p->queue[at])) record = p->queue[at];
    at++;
  }
  p->n_queue -= at;
  memmove(p->queue, p->queue + at, p->n_queue * sizeof *p->queue);
  return record;
}

void st_expert_prefetch_used(st_expert_prefetch *p, uint32_t layer, const uint32_t *experts, uint32_t n) {
  for (uint32_t d = 1; d <= ST_PREFETCH_DISTANCES; d++) {
    uint8_t *expected = expected_of(p, d, layer);
    if (!memchr(expected, 1, p->n_expert)) continue;
    for (uint32_t i = 0; i < n; i++) p->recalled[d - 1] += expected[experts[i]];
    p->predicted[d - 1] += n;
    memset(expected, 0, p->n_expert);
  }
  uint32_t at = 0;
  while (at < p->n_queue && p->queue[at] / p->n_expert <= layer) at++;
  p->n_queue -= at;
  memmove(p->queue, p->queue + at, p->n_queue * sizeof *p->queue);
}

double st_expert_prefetch_recall(const st_expert_prefetch *p, uint32_t distance) {
  uint64_t n = distance && distance <= ST_PREFETCH_DISTANCES ? p->predicted[distance - 1] : 0;
  return n ? (double)p->recalled[distance - 1] / (double)n : (double)NAN;
}

st_prefetch_effect st_expert_prefetch_effect(const st_expert_prefetch *p) {
  bool on = p->options.mode == ST_PREFETCH_ALWAYS || p->winner;
  return (st_prefetch_effect){p->n_trials, p->n_trials ? p->all_seconds[1] / p->all_seconds[0] : (double)NAN, on};
}
