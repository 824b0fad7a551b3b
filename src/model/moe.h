// Mixtures of experts: the feed-forward part of a layer.
#ifndef SETUN_MODEL_MOE_H
#define SETUN_MODEL_MOE_H

#include "model/forward.h"

// What a session needs in addition to its st_run for layers with experts.
typedef struct st_moe st_moe;
setun_status st_moe_new(const st_run *run, st_moe **moe, setun_error *err);
void st_moe_free(const st_run *run, st_moe *moe);

// The feed-forward part of a layer with experts, from run->x to run->branch, for the first n tokens. Every token's sum
// is in the order of its experts' indices, the shared expert last, for any number of tokens.
setun_status st_moe_forward(st_run *run, uint32_t layer, uint32_t n, setun_error *err);

#endif
