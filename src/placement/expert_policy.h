// Which expert a cache replaces first: the least recently used one (LRU), the one with the lowest score, its share of
// recent tokens: score = 0.999 score + 0.001 selected, for each token, or the one whose next use is
// expected last by its score and the order of layers: an expert that a part p of the tokens use is expected after the
// layers until its own comes, and 1 / p - 1 times all layers.
//
// Which of them is best depends on the text. All are simulated with tables of what a cache of this capacity would hold
// (no weights), and the one with the most recent hits decides.
#ifndef SETUN_PLACEMENT_EXPERT_POLICY_H
#define SETUN_PLACEMENT_EXPERT_POLICY_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum st_expert_rule {
  ST_EXPERTS_BY_LRU,
  ST_EXPERTS_BY_SCORE,
  ST_EXPERTS_BY_NEXT_USE,
  ST_EXPERT_RULES
} st_expert_rule;

typedef struct st_expert_policy st_expert_policy;

// For experts numbered layer * n_expert + expert, of which `capacity` fit; a token uses n_used of a layer. Freed with
// st_expert_policy_free, which accepts NULL.
setun_status st_expert_policy_new(uint32_t n_layer, uint32_t n_expert, uint32_t n_used, uint32_t capacity,
                                  st_expert_policy **policy, setun_error *err);
void st_expert_policy_free(st_expert_policy *policy);

// A pass of `tokens` tokens begins.
void st_expert_policy_pass(st_expert_policy *policy, uint32_t tokens);
// A layer wants these of its experts at the same time: none of them is evicted for another until the next call.
void st_expert_policy_want(st_expert_policy *policy, const uint32_t *experts, uint32_t n);
// `selected` of the pass's tokens go to the expert.
void st_expert_policy_use(st_expert_policy *policy, uint32_t expert, uint32_t selected);

// Whether the cache may evict the expert: it is there, and no pass needs it.
void st_expert_policy_offer(st_expert_policy *policy, uint32_t expert, bool may_go);
// The one of these that is replaced first, which is not of the layer (UINT32_MAX: any); UINT32_MAX: there is none.
uint32_t st_expert_policy_first(st_expert_policy *policy, uint32_t kept_layer);
// Whether `a` is replaced before `b`.
bool st_expert_policy_before(const st_expert_policy *policy, uint32_t a, uint32_t b);

// The rule that decides now.
st_expert_rule st_expert_policy_rule(const st_expert_policy *policy);
const char *st_expert_rule_name(st_expert_rule rule);

#endif
