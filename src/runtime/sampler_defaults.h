// How a model's own files would have its text sampled.
#ifndef SETUN_RUNTIME_SAMPLER_DEFAULTS_H
#define SETUN_RUNTIME_SAMPLER_DEFAULTS_H

#include "base/log.h"
#include "format/directory.h"
#include "setun.h"

// The library's defaults with what the model's files say in their place: generation_config.json of a Hugging Face
// directory (temperature, top_k, top_p, min_p, typical_p, repetition_penalty, as the Transformers documentation of
// GenerationConfig defines them), the general.sampling keys of a GGUF file. Whether generation_config.json asks for
// sampling at all (do_sample) is not considered. A value that no sampler takes is left out with a warning: a model must
// not be refused for it.
setun_sampler_params st_sampler_defaults(const st_directory *directory, const st_log *log);

#endif
