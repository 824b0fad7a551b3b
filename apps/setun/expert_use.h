// How often a cache of experts has what a token wants, for two kinds of use.
#ifndef SETUN_APP_EXPERT_USE_H
#define SETUN_APP_EXPERT_USE_H

#include "setun.h"

// Of the experts that tokens go to, the fraction that the plan's cache has: where all experts of a layer are used
// alike, and where the use falls with the rank by Zipf's law (exponent 1), in each layer, and the most used stay.
double hit_rate_uniform(const setun_plan *plan);
double hit_rate_zipf(const setun_plan *plan);

#endif
