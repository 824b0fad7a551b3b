// Hugging Face quantization configs: which method, which direction of scales, which modules.
#include "source/hf_quant.h"

#include <string.h>

static const st_json *quantization_of(const st_json *config) {
  const st_json *q = st_json_get(config, "quantization_config");
  if (!q) q = st_json_get(st_json_get(config, "text_config"), "quantization_config");
  return q ? q : st_json_get(config, "compression_config"); // compressed-tensors' older key
}

// One of two words; another is an error that names the key.
static setun_status choice(const st_json *q, const char *key, const char *usual, const char *other, bool *is_other,
                           setun_error *err) {
  const char *text = usual;
  setun_status s = st_json_text(q, key, &text, err);
  if (s != SETUN_OK) return s;
  *is_other = !strcmp(text, other);
  if (*is_other || !strcmp(text, usual)) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected \"%s\" or \"%s\", found \"%.40s\"", key, usual, other,
                 text);
}

static setun_status read_bitnet(const st_json *q, st_hf_quant *quant, setun_error *err) {
  bool online;
  quant->method = ST_HF_BITNET;
  setun_status s = choice(q, "linear_class", "bitlinear", "autobitlinear", &quant->scale_multiplies, err);
  // Either mode is told from the weights themselves: packed bytes, or latent floats.
  if (s == SETUN_OK) s = choice(q, "quantization_mode", "offline", "online", &online, err);
  quant->exempt = st_json_get(q, "modules_to_not_convert");
  if (s == SETUN_OK && quant->exempt && !st_json_is_array(quant->exempt)) {
    s = st_fail(err, SETUN_ERROR_FORMAT, "modules_to_not_convert: expected an array, found %s",
                st_json_kind(quant->exempt));
  }
  return s;
}

// 1bitLLM: weight_bits 1 and input_bits 8 stand in config.json itself.
static setun_status read_bits(const st_json *config, st_hf_quant *quant, setun_error *err) {
  uint32_t weight_bits = 0, input_bits = 0;
  setun_status s = st_json_u32(config, "weight_bits", 0, 64, &weight_bits, err);
  if (s == SETUN_OK) s = st_json_u32(config, "input_bits", 0, 64, &input_bits, err);
  if (s != SETUN_OK || !weight_bits) return s;
  if (weight_bits != 1 || input_bits != 8) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "weight_bits, input_bits: expected 1 and 8 (BitNet b1.58), found %u and %u", weight_bits,
                   input_bits);
  }
  quant->method = ST_HF_BITNET;
  quant->scale_multiplies = true;
  return SETUN_OK;
}

setun_status st_hf_quant_read(const st_json *config, st_hf_quant *quant, setun_error *err) {
  *quant = (st_hf_quant){0};
  if (st_json_get(config, "quantization")) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "config.json: quantization: MLX's packed weights are not read; use the unquantized checkpoint");
  }
  const st_json *q = quantization_of(config);
  if (!q) return read_bits(config, quant, err);
  setun_status s;
  if (!st_json_is_object(q)) {
    s = st_fail(err, SETUN_ERROR_FORMAT, "expected an object, found %s", st_json_kind(q));
    return st_fail_in(err, s, "config.json: quantization_config");
  }
  const char *method = NULL;
  s = st_json_text(q, "quant_method", &method, err);
  if (s == SETUN_OK && !method) {
    s = st_fail(err, SETUN_ERROR_FORMAT, "quant_method: expected a string, found none");
  } else if (s == SETUN_OK && !strcmp(method, ST_HF_PACKED_METHOD)) {
    s = read_bitnet(q, quant, err);
  } else if (s == SETUN_OK && st_format_by_hf_method(method)) {
    quant->method = ST_HF_BLOCKS;
  } else if (s == SETUN_OK) {
    s = st_fail(err, SETUN_ERROR_UNSUPPORTED,
                "quant_method: \"%.40s\" is not read (bitnet and mxfp4 are); use the unquantized checkpoint", method);
  }
  return s == SETUN_OK ? s : st_fail_in(err, s, "config.json: quantization_config");
}

// Is `part` one or more whole components at the module's beginning or end?
static bool names_module(const char *module, const char *part) {
  size_t n = strlen(module), m = strlen(part);
  if (!m || m > n) return false;
  if (!memcmp(module, part, m) && (m == n || module[m] == '.')) return true;
  return !memcmp(module + n - m, part, m) && module[n - m - 1] == '.';
}

bool st_hf_quant_is_latent(const st_hf_quant *quant, const char *module) {
  if (quant->method != ST_HF_BITNET) return false;
  // Linear layers are those in the blocks; the embedding is not one, and the head is never converted.
  if (!strstr(module, "layers.") || names_module(module, "lm_head")) return false;
  for (size_t i = 0; i < st_json_size(quant->exempt); i++) {
    const char *part = st_json_string(st_json_at(quant->exempt, i));
    if (part && names_module(module, part)) return false;
  }
  return true;
}
