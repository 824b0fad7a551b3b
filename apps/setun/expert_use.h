// The hit rate of a cache of experts, for two distributions of use.
#ifndef SETUN_APP_EXPERT_USE_H
#define SETUN_APP_EXPERT_USE_H

#include "setun.h"

// The fraction of the requested experts that the plan's cache has: if all experts of a layer are used equally, and if
// their use in each layer falls with the rank by Zipf's law (exponent 1) and the most used ones stay in the cache.
double hit_rate_uniform(const setun_plan *plan);
double hit_rate_zipf(const setun_plan *plan);

#endif
