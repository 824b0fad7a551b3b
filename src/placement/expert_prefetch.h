// Experts that are read before a layer asks for them: which ones are expected, how well that was predicted, and whether
// reading them makes passes faster. No reading happens here (expert_cache.h).
//
// A prediction comes from the routers of the next layers, applied to the hidden state of this one (requirement R1.9).
// Whether it helps depends on the disk and the text, so it is measured: eight blocks of passes with (1) and without (0)
// it take turns as 1 0 0 1 0 1 1 0, so that a change of speed counts for both alike if it is steady, or fades as that
// of a cache that fills. Prefetching goes on only while it is clearly faster; otherwise trials become rarer.
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

// A pass begins and ends; `now` in seconds. Passes of another number of tokens than 1 are not counted.
void st_expert_prefetch_begin(st_expert_prefetch *p, uint32_t n_tokens, double now);
void st_expert_prefetch_end(st_expert_prefetch *p, double now);
// How many layers ahead to predict in this pass; 0: not at all.
uint32_t st_expert_prefetch_distance(const st_expert_prefetch *p);

// The experts [n] of `layer` are expected by a layer `distance` before it. The next one to read, of the nearest layer
// first, for which `wanted` says yes; UINT32_MAX: none. Each is given at most once.
void st_expert_prefetch_expect(st_expert_prefetch *p, uint32_t layer, uint32_t distance, const uint32_t *experts,
                               uint32_t n);
uint32_t st_expert_prefetch_next(st_expert_prefetch *p, bool (*wanted)(void *context, uint32_t record), void *context);
// What the layer did use: counts what was predicted of it, and forgets what was expected.
void st_expert_prefetch_used(st_expert_prefetch *p, uint32_t layer, const uint32_t *experts, uint32_t n);

// The fraction of used experts that were predicted that many layers before; NAN: not known.
double st_expert_prefetch_recall(const st_expert_prefetch *p, uint32_t distance);

#endif
