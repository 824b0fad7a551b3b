// The quantization in a Hugging Face config. For src/source, and for src/convert, which writes such configs.
#ifndef SETUN_SOURCE_HF_QUANT_H
#define SETUN_SOURCE_HF_QUANT_H

#include "format/directory.h"

typedef enum st_hf_method {
  ST_HF_NONE,
  ST_HF_BITNET,
  ST_HF_BLOCKS,
  ST_HF_GPTQ,
  ST_HF_COMPRESSED,
  ST_HF_MLX
} st_hf_method;

#define ST_HF_PACKED_METHOD "bitnet" // the quant_method of ST_HF_BITNET

typedef struct st_hf_quant {
  st_hf_method method;
  bool scale_multiplies; // linear_class autobitlinear
  const st_json *exempt; // modules_to_not_convert; NULL: none
  const st_json *mlx;    // ST_HF_MLX: the object, with members for single modules
  // GPTQ and compressed-tensors; 0: not specified, or not the same for all modules
  uint32_t bits, group;
  int version;     // of GPTQ's zero points: 1 or 2
  bool asymmetric; // zero points differ
  bool dynamic;    // modules may have other bits
} st_hf_quant;

// Reads quantization_config (also within text_config), or 1bitLLM's weight_bits and input_bits, or MLX's quantization.
// Methods other than bitnet, gptq, compressed-tensors and those of formats (st_hf_blocks) are refused by name, and so
// are members that would change the numbers and are not supported.
setun_status st_hf_quant_read(const st_json *config, st_hf_quant *quant, setun_error *err);

// The value of quant_method.
const char *st_hf_method_name(st_hf_method method);

// How a module's weights are packed in an MLX directory: in mode affine, the bits of a code and the number of columns
// that share a scale; otherwise as blocks of a format. An error if `quantization` says that the module is not
// quantized.
typedef struct st_mlx_module {
  uint32_t bits, group;
  const st_format *blocks; // NULL: mode affine
} st_mlx_module;
setun_status st_hf_quant_mlx(const st_hf_quant *quant, const char *module, st_mlx_module *out, setun_error *err);

// Whether the floats of this module's weight are latent, that is, to be quantized when they are read.
bool st_hf_quant_is_latent(const st_hf_quant *quant, const char *module);

#endif
