// The parameters of a sampler. The functions are those of setun.h, which documents them.
#ifndef SETUN_RUNTIME_SAMPLER_PARAMS_H
#define SETUN_RUNTIME_SAMPLER_PARAMS_H

#include "base/error.h"
#include "setun.h"

enum { ST_SAMPLER_STEPS = SETUN_STEP_TEMPERATURE + 1 };

setun_sampler_params st_sampler_params_default(void);
// Checks the parameters; an error names the first one out of range.
setun_status st_sampler_params_check(const setun_sampler_params *params, setun_error *err);
const char *st_sampler_step_name(setun_sampler_step step);
setun_status st_sampler_order_parse(const char *text, size_t length, setun_sampler_order *order, setun_error *err);

#endif
