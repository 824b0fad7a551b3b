// What a Hugging Face config says about how weights are quantized. For src/source, and for src/convert, which
// writes such configs.
#ifndef SETUN_SOURCE_HF_QUANT_H
#define SETUN_SOURCE_HF_QUANT_H

#include "format/directory.h"

typedef enum st_hf_method { ST_HF_NONE, ST_HF_BITNET, ST_HF_BLOCKS } st_hf_method;

#define ST_HF_PACKED_METHOD "bitnet" // the quant_method of ST_HF_BITNET

typedef struct st_hf_quant {
  st_hf_method method;
  bool scale_multiplies; // linear_class autobitlinear
  const st_json *exempt; // modules_to_not_convert; NULL: none
} st_hf_quant;

// Reads quantization_config (also within text_config), or 1bitLLM's weight_bits and input_bits. Another method than
// bitnet and those of formats (st_hf_blocks) is refused by its name.
setun_status st_hf_quant_read(const st_json *config, st_hf_quant *quant, setun_error *err);

// Are the floats of this module's weight latent, that is, to be quantized when they are read?
bool st_hf_quant_is_latent(const st_hf_quant *quant, const char *module);

#endif
