// Hugging Face quantization configs: which method, which direction of scales, which modules.
#include "source/hf_quant.h"

#include <string.h>

static const st_json *quantization_of(const st_json *config) {
  const st_json *q = st_json_get(config, "quantization_config");
  if (!q) q = st_json_get(st_json_get(config, "text_config"), "quantization_config");
  return q ? q : st_json_get(config, "compression_config"); // compressed-tensors' older key
}

// Reads one of two words; any other is an error that names the key.
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
  // The weights themselves determine the mode: packed bytes, or latent floats.
  if (s == SETUN_OK) s = choice(q, "quantization_mode", "offline", "online", &online, err);
  quant->exempt = st_json_get(q, "modules_to_not_convert");
  if (s == SETUN_OK && quant->exempt && !st_json_is_array(quant->exempt)) {
    s = st_fail(err, SETUN_ERROR_FORMAT, "modules_to_not_convert: expected an array, found %s",
                st_json_kind(quant->exempt));
  }
  return s;
}

// 1bitLLM: weight_bits 1 and input_bits 8 are in config.json itself.
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

// ---- GPTQ and compressed-tensors ----------------------------------------------------------------------------------

// Members about how the weights were made or how other programs should run them, which do not affect their meaning.
static const char *const told_by_tensors[] = {"actorder", "block_structure", "observer", "observer_kwargs", "dynamic"};
static const char *const of_gptq[] = {
    "quant_method", "bits", "group_size", "desc_act", "sym", "checkpoint_format", "pack_dtype", "is_marlin_format",
    "dynamic", "lm_head",
    // how the weights were made
    "damp_percent", "damp_auto_increment", "static_groups", "true_sequential", "mse", "dataset", "tokenizer",
    "model_name_or_path", "model_file_base_name", "block_name_to_quantize", "module_name_preceding_first_block",
    "modules_in_block_to_quantize", "model_seqlen", "pad_token_id", "batch_size", "cache_block_outputs", "meta", "v2",
    "v2_alpha", "act_group_aware", "hyb_act", "rotation", "quantizer",
    // which kernels other programs use
    "use_cuda_fp16", "use_exllama", "disable_exllama", "exllama_config", "backend", "max_input_length"};
static const char *const of_compressed[] = {
    "quant_method",    "format",          "config_groups",       "ignore",
    "sparsity_config", "kv_cache_scheme", "quantization_status", "global_compression_ratio",
    "version",         "transform_config"};
static const char *const of_weights[] = {"num_bits", "type", "symmetric", "strategy", "group_size", "dynamic"};
static const char *const of_sparsity[] = {"format", "sparsity_structure",        "global_sparsity", "targets",
                                          "ignore", "registry_requires_subclass"};

static bool is_listed(const char *key, const char *const *list, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (!strcmp(list[i], key)) return true;
  }
  return false;
}

// Refuses unknown members. null and false are ignored.
static setun_status check_members(const st_json *object, const char *const *known, size_t n, const char *const *others,
                                  size_t n_others, setun_error *err) {
  for (size_t i = 0; i < st_json_members(object); i++) {
    const st_json_member *m = st_json_member_at(object, i);
    if (is_listed(m->key, known, n) || is_listed(m->key, others, n_others)) continue;
    if (st_json_is_null(&m->value) || st_json_is(&m->value, ST_JSON_FALSE)) continue;
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%.60s: a member that is not supported", m->key);
  }
  return SETUN_OK;
}
#define CHECK_MEMBERS(object, known, others, err)                                                                      \
  check_members(object, known, sizeof(known) / sizeof *(known), others, sizeof(others) / sizeof *(others), err)

// group_size: at least 1, or -1 for one group per row, which the tensors also determine.
static setun_status read_group(const st_json *q, uint32_t *group, setun_error *err) {
  const st_json *value = st_json_get(q, "group_size");
  if (value && st_json_is_number(value) && st_json_number(value) == -1) return SETUN_OK;
  return st_json_u32(q, "group_size", 1, UINT32_MAX, group, err);
}

static setun_status need_word(const st_json *q, const char *key, const char *only, setun_error *err) {
  const char *text = only;
  setun_status s = st_json_text(q, key, &text, err);
  if (s != SETUN_OK || !strcmp(text, only)) return s;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected \"%s\", found \"%.40s\"", key, only, text);
}

static setun_status read_gptq(const st_json *q, st_hf_quant *quant, setun_error *err) {
  bool marlin = false, symmetric = true, second = false;
  quant->method = ST_HF_GPTQ;
  setun_status s = CHECK_MEMBERS(q, of_gptq, told_by_tensors, err);
  if (s == SETUN_OK) s = st_json_u32(q, "bits", 1, 8, &quant->bits, err);
  if (s == SETUN_OK) s = read_group(q, &quant->group, err);
  if (s == SETUN_OK) s = st_json_bool(q, "sym", &symmetric, err);
  if (s == SETUN_OK) s = choice(q, "checkpoint_format", "gptq", "gptq_v2", &second, err);
  if (s == SETUN_OK) s = st_json_bool(q, "is_marlin_format", &marlin, err);
  if (s == SETUN_OK) s = need_word(q, "pack_dtype", "int32", err);
  if (s == SETUN_OK && marlin) {
    s = st_fail(err, SETUN_ERROR_UNSUPPORTED,
                "is_marlin_format: weights in the order of one program's kernels are not "
                "read; use the checkpoint that they were made from");
  }
  quant->version = second ? 2 : 1;
  quant->asymmetric = !symmetric;
  quant->dynamic = st_json_get(q, "dynamic") != NULL;
  if (quant->dynamic) quant->group = 0;
  return s;
}

// Reads the weights' settings of one of config_groups. Activations stay floats.
static setun_status read_scheme(const st_json *g, st_hf_quant *quant, bool first, setun_error *err) {
  const st_json *w = st_json_get(g, "weights");
  uint32_t bits = 0, group = 0;
  if (st_json_get(g, "input_activations") || st_json_get(g, "output_activations")) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "input_activations: quantized activations are not supported");
  }
  if (!w) return SETUN_OK;
  setun_status s = CHECK_MEMBERS(w, of_weights, told_by_tensors, err);
  if (s == SETUN_OK) s = need_word(w, "type", "int", err);
  if (s == SETUN_OK) s = st_json_u32(w, "num_bits", 1, 16, &bits, err);
  if (s == SETUN_OK) s = read_group(w, &group, err);
  if (!first && (bits != quant->bits || group != quant->group)) bits = group = 0, quant->dynamic = true;
  quant->bits = bits;
  quant->group = group;
  return s;
}

static setun_status read_groups(const st_json *q, st_hf_quant *quant, setun_error *err) {
  const st_json *groups = st_json_get(q, "config_groups");
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < st_json_members(groups) && s == SETUN_OK; i++) {
    const st_json_member *m = st_json_member_at(groups, i);
    s = read_scheme(&m->value, quant, i == 0, err);
    if (s != SETUN_OK) s = st_fail_in(err, s, "config_groups: %.40s", m->key);
  }
  return s;
}

static bool is_packed_format(const char *format) {
  static const char *const known[] = {"dense", "pack-quantized", "marlin-24"};
  return !format || is_listed(format, known, sizeof known / sizeof *known);
}

static setun_status read_compressed(const st_json *q, st_hf_quant *quant, setun_error *err) {
  const char *format = NULL, *sparse = NULL;
  const st_json *sparsity = st_json_get(q, "sparsity_config");
  quant->method = ST_HF_COMPRESSED;
  setun_status s = CHECK_MEMBERS(q, of_compressed, told_by_tensors, err);
  if (s == SETUN_OK) s = st_json_text(q, "format", &format, err);
  if (s == SETUN_OK && !is_packed_format(format)) {
    s = st_fail(err, SETUN_ERROR_UNSUPPORTED, "format: \"%.40s\" is not read (pack-quantized and marlin-24 are)",
                format);
  }
  if (s == SETUN_OK && st_json_members(st_json_get(q, "kv_cache_scheme"))) {
    s = st_fail(err, SETUN_ERROR_UNSUPPORTED, "kv_cache_scheme: a quantized KV cache is not supported; see --kv");
  }
  if (s == SETUN_OK && st_json_members(st_json_get(q, "transform_config"))) {
    s = st_fail(err, SETUN_ERROR_UNSUPPORTED, "transform_config: transforms of activations are not supported");
  }
  if (s == SETUN_OK) s = CHECK_MEMBERS(sparsity, of_sparsity, told_by_tensors, err);
  if (s == SETUN_OK) s = st_json_text(sparsity, "format", &sparse, err);
  if (s == SETUN_OK && sparse && strcmp(sparse, "sparse-24-bitmask") && strcmp(sparse, "dense")) {
    s = st_fail(err, SETUN_ERROR_UNSUPPORTED, "sparsity_config: format: \"%.40s\" is not read (sparse-24-bitmask is)",
                sparse);
  }
  return s == SETUN_OK ? read_groups(q, quant, err) : s;
}

// ---- methods ------------------------------------------------------------------------------------------------------

static const struct {
  st_hf_method method;
  const char *name;
  setun_status (*read)(const st_json *q, st_hf_quant *quant, setun_error *err);
} methods[] = {
    {ST_HF_BITNET, ST_HF_PACKED_METHOD, read_bitnet},
    {ST_HF_GPTQ, "gptq", read_gptq},
    {ST_HF_COMPRESSED, "compressed-tensors", read_compressed},
};
enum { METHODS = sizeof methods / sizeof *methods };

const char *st_hf_method_name(st_hf_method method) {
  for (size_t i = 0; i < METHODS; i++) {
    if (methods[i].method == method) return methods[i].name;
  }
  return "none";
}

static setun_status read_method(const st_json *q, const char *method, st_hf_quant *quant, setun_error *err) {
  for (size_t i = 0; i < METHODS; i++) {
    if (!strcmp(methods[i].name, method)) return methods[i].read(q, quant, err);
  }
  if (st_format_by_hf_method(method)) {
    quant->method = ST_HF_BLOCKS;
    return SETUN_OK;
  }
  return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                 "quant_method: \"%.40s\" is not read (bitnet, gptq, compressed-tensors and mxfp4 are); use the "
                 "unquantized checkpoint",
                 method);
}

// ---- MLX ----------------------------------------------------------------------------------------------------------

// Is the key one of the settings of `quantization` or of a module?
static bool is_setting(const char *key) {
  return !strcmp(key, "bits") || !strcmp(key, "group_size") || !strcmp(key, "mode");
}

static setun_status read_settings(const st_json *object, st_mlx_module *out, setun_error *err) {
  const char *mode = "affine";
  setun_status s = st_json_u32(object, "bits", 1, 32, &out->bits, err);
  if (s == SETUN_OK) s = st_json_u32(object, "group_size", 1, 1u << 20, &out->group, err);
  if (s == SETUN_OK) s = st_json_text(object, "mode", &mode, err);
  if (s != SETUN_OK) return s;
  bool affine = !strcmp(mode, "affine");
  const st_format *blocks = affine ? NULL : st_format_by_hf_method(mode);
  if (!affine && !blocks) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "mode: expected affine or %s, found \"%.40s\"",
                   st_format_by_hf_method(NULL)->ops->hf_blocks->method, mode);
  }
  out->blocks = blocks;
  if (affine && st_format_of_affine(out->bits, out->group, false)) return SETUN_OK;
  if (blocks && out->group == blocks->block && out->bits * out->group == 8 * (blocks->block_bytes - 1)) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "bits, group_size: expected %s for mode %s, found %u and %u",
                 affine ? "2, 3, 4, 5, 6 or 8, and 32, 64 or 128" : "those of its blocks", mode, out->bits, out->group);
}

setun_status st_hf_quant_mlx(const st_hf_quant *quant, const char *module, st_mlx_module *out, setun_error *err) {
  static const char where[] = "config.json: quantization";
  const st_json *own = st_json_get(quant->mlx, module);
  *out = (st_mlx_module){0};
  setun_status s = read_settings(quant->mlx, out, err);
  if (s != SETUN_OK) return st_fail_in(err, s, "%s", where);
  if (!own || st_json_is(own, ST_JSON_TRUE)) return SETUN_OK;
  if (st_json_is_object(own)) {
    s = read_settings(own, out, err);
  } else {
    s = st_fail(err, SETUN_ERROR_FORMAT,
                "expected bits and group_size of this module, whose weights are packed, found %s",
                st_json_is(own, ST_JSON_FALSE) ? "false" : st_json_kind(own));
  }
  return s == SETUN_OK ? s : st_fail_in(err, s, "%s: %s", where, module);
}

// Its members are settings, and objects or booleans for modules. MLX's own program writes a second copy of it as
// quantization_config.
static setun_status read_mlx(const st_json *config, const st_json *q, st_hf_quant *quant, setun_error *err) {
  const st_json *other = quantization_of(config);
  st_mlx_module settings;
  setun_status s = SETUN_OK;
  if (other && st_json_get(other, "quant_method")) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "config.json: expected quantization or quantization_config with a quant_method, found both");
  }
  for (size_t i = 0; i < st_json_members(q) && s == SETUN_OK; i++) {
    const st_json_member *m = st_json_member_at(q, i);
    bool of_module = strchr(m->key, '.') || st_json_is_object(&m->value) || st_json_is_bool(&m->value);
    if (is_setting(m->key)) continue;
    if (!of_module) {
      s = st_fail(err, SETUN_ERROR_UNSUPPORTED,
                  "config.json: quantization: %.64s: expected bits, group_size, mode, or a "
                  "module's own settings, found %s",
                  m->key, st_json_kind(&m->value));
    }
    for (size_t k = 0; s == SETUN_OK && k < st_json_members(&m->value); k++) {
      const char *key = st_json_member_at(&m->value, k)->key;
      if (!is_setting(key)) {
        s = st_fail(err, SETUN_ERROR_UNSUPPORTED,
                    "config.json: quantization: %.64s: expected bits, group_size or mode, "
                    "found %.64s",
                    m->key, key);
      }
    }
  }
  quant->method = ST_HF_MLX;
  quant->mlx = q;
  return s == SETUN_OK ? st_hf_quant_mlx(quant, "", &settings, err) : s;
}

setun_status st_hf_quant_read(const st_json *config, st_hf_quant *quant, setun_error *err) {
  *quant = (st_hf_quant){0};
  const st_json *mlx = st_json_get(config, "quantization");
  if (mlx && !st_json_is_object(mlx)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "config.json: quantization: expected an object, found %s",
                   st_json_kind(mlx));
  }
  if (mlx) return read_mlx(config, mlx, quant, err);
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
  } else if (s == SETUN_OK) {
    s = read_method(q, method, quant, err);
  }
  return s == SETUN_OK ? s : st_fail_in(err, s, "config.json: quantization_config");
}

// Whether `part` is one or more complete components at the beginning or end of the module's name.
static bool names_module(const char *module, const char *part) {
  size_t n = strlen(module), m = strlen(part);
  if (!m || m > n) return false;
  if (!memcmp(module, part, m) && (m == n || module[m] == '.')) return true;
  return !memcmp(module + n - m, part, m) && module[n - m - 1] == '.';
}

bool st_hf_quant_is_latent(const st_hf_quant *quant, const char *module) {
  if (quant->method != ST_HF_BITNET) return false;
  // Linear layers are those in the blocks; the embedding is not one, and the head is never quantized.
  if (!strstr(module, "layers.") || names_module(module, "lm_head")) return false;
  for (size_t i = 0; i < st_json_size(quant->exempt); i++) {
    const char *part = st_json_string(st_json_at(quant->exempt, i));
    if (part && names_module(module, part)) return false;
  }
  return true;
}
