// The config.json of a Hugging Face directory that is written.
#ifndef SETUN_CONVERT_HF_CONFIG_H
#define SETUN_CONVERT_HF_CONFIG_H

#include "convert/conversion.h"

// A directory's own config.json with the quantization that is written, or one made from a GGUF file's hyperparameters;
// appended to `out`.
setun_status st_hf_config(const st_conversion *plan, st_buffer *out, setun_error *err);

#endif
