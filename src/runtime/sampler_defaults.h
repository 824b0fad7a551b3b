// The sampling parameters in a model's own files.
#ifndef SETUN_RUNTIME_SAMPLER_DEFAULTS_H
#define SETUN_RUNTIME_SAMPLER_DEFAULTS_H

#include "base/log.h"
#include "format/directory.h"
#include "setun.h"

// The library's defaults, overridden by the model's files: generation_config.json of a Hugging Face directory
// (temperature, top_k, top_p, min_p, typical_p, repetition_penalty, as the Transformers documentation of
// GenerationConfig defines them), the general.sampling keys of a GGUF file. Whether generation_config.json asks for
// sampling at all (do_sample) is not considered. Invalid values are ignored with a warning: they are no reason to
// refuse a model.
setun_sampler_params st_sampler_defaults(const st_directory *directory, const st_log *log);

#endif
