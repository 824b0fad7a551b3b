// Prefetching of experts, before a layer requests them: which ones are expected, how well they were predicted, and
// whether reading them makes passes faster. The reading itself is in expert_cache.h.
//
// A prediction comes from the routers of the next layers, applied to the hidden state of this one.
// Whether it helps depends on the disk and the text, so it is measured: eight blocks of passes with (1) and without (0)
// it alternate as 1 0 0 1 0 1 1 0, so that a change of speed affects both equally if it is steady, or fades like that
// of a cache that fills; a trial that is lost after four of them ends there. Prefetching continues only while it is
// clearly faster; otherwise trials become rarer. The first begins after 80 passes: then even one that is 20% slower has
// cost less than 2% of the time when it ends, however short the text.
#ifndef SETUN_PLACEMENT_EXPERT_PREFETCH_H
#define SETUN_PLACEMENT_EXPERT_PREFETCH_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum { ST_PREFETCH_DISTANCES = 4 }; // most layers ahead

typedef enum st_prefetch_mode {
  ST_PREFETCH_MEASURED,
  ST_PREFETCH_NEVER,
  ST_PREFETCH_ALWAYS // for tests
} st_prefetch_mode;

typedef struct st_prefetch_options {
  st_prefetch_mode mode;
  uint32_t distance; // layers ahead, 1 to ST_PREFETCH_DISTANCES
} st_prefetch_options;

typedef struct st_expert_prefetch st_expert_prefetch;

// Freed with st_expert_prefetch_free, which accepts NULL.
setun_status st_expert_prefetch_new(uint32_t n_layer, uint32_t n_expert, const st_prefetch_options *options,
                                    st_expert_prefetch **prefetch, setun_error *err);
void st_expert_prefetch_free(st_expert_prefetch *p);

// A pass begins and ends; `now` in seconds. Only passes of 1 token are counted.
void st_expert_prefetch_begin(st_expert_prefetch *p, uint32_t n_tokens, double now);
void st_expert_prefetch_end(st_expert_prefetch *p, double now);
// How many layers ahead to predict in this pass; 0: not at all.
uint32_t st_expert_prefetch_distance(const st_expert_prefetch *p);

// `expect`: a layer `distance` before `layer` predicts these experts [n] of it. `next`: the next expert to read for
// which `wanted` returns true, nearest layers first; UINT32_MAX: none. Each is returned at most once.
void st_expert_prefetch_expect(st_expert_prefetch *p, uint32_t layer, uint32_t distance, const uint32_t *experts,
                               uint32_t n);
uint32_t st_expert_prefetch_next(st_expert_prefetch *p, bool (*wanted)(void *context, uint32_t record), void *context);
// The experts that the layer used: counts how many of them were predicted, and drops its expectations.
void st_expert_prefetch_used(st_expert_prefetch *p, uint32_t layer, const uint32_t *experts, uint32_t n);

// The fraction of used experts that were predicted that many layers before; NAN: not known.
double st_expert_prefetch_recall(const st_expert_prefetch *p, uint32_t distance);

// What trials have found so far.
typedef struct st_prefetch_effect {
  uint32_t trials; // that have ended
  double time;     // of their passes with prefetching, relative to those without; NAN: there were none
  bool on;         // passes prefetch now, outside of trials
} st_prefetch_effect;
st_prefetch_effect st_expert_prefetch_effect(const st_expert_prefetch *p);

#endif
