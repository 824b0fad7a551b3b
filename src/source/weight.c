// Finding a module's weight: which tensors hold it, in which format, with which scales, and whether its shape is right.
#include "source/weight.h"

#include "base/memory.h"
#include "source/hf_quant.h"

#include <inttypes.h>
#include <string.h>

// "MODULE.suffix" among the tensors.
static setun_status find_sibling(const st_directory *d, const char *module, const char *suffix, const st_tensor **out,
                                 setun_error *err) {
  st_buffer name = {0};
  if (!st_buffer_format(&name, "%s.%s", module, suffix)) return st_fail_memory(err, module);
  *out = st_directory_find(d, name.data);
  st_buffer_free(&name);
  return SETUN_OK;
}

static setun_status fail_shape(const st_tensor *t, const char *what, uint32_t n_dims, st_shape expected,
                               uint64_t n_experts, setun_error *err) {
  char wanted[96], dims[96];
  st_tensor e = {.n_dims = n_dims, .dims = {expected.columns, expected.rows, n_experts, 1}};
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected %s %s, found %s", t->name, what,
                 st_tensor_dims_text(&e, wanted), st_tensor_dims_text(t, dims));
}

// The tensor that holds a scale for the module, and how its elements are shared.
static setun_status take_scale(const st_tensor *scale, uint64_t n_experts, uint64_t expert, st_weight *w,
                               setun_error *err) {
  uint64_t n = st_tensor_elements(scale), experts = n_experts ? n_experts : 1, all = w->shape.rows * experts;
  if (!scale->format || st_format_is_ternary(scale->format)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a scale in floats, found %s", scale->name, scale->dtype);
  }
  if (n == 1 || n == experts) {
    w->n_scales = 1;
    w->first_scale = n == 1 ? 0 : expert;
  } else if (n == all) {
    w->n_scales = w->shape.rows;
    w->first_scale = expert * w->shape.rows;
  } else {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected 1 or %" PRIu64 " scales for %s, found %" PRIu64, scale->name,
                   all, w->name, n);
  }
  w->scale = scale;
  return SETUN_OK;
}

// Packed ternary bytes of Hugging Face's BitNet integration.
static setun_status take_hf_u8(const st_directory *d, const char *module, const st_hf_quant *quant, st_shape shape,
                               st_weight *w, setun_error *err) {
  const st_tensor *t = w->data, *scale = NULL;
  setun_status s = find_sibling(d, module, "weight_scale", &scale, err);
  if (s != SETUN_OK) return s;
  if (!scale) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected floats, or packed weights with %s.weight_scale, found U8",
                   t->name, module);
  }
  if (d->config && quant->method != ST_HF_BITNET) {
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "%s: packed weights, for which config.json should have a quantization_config with quant_method "
                   "bitnet",
                   t->name);
  }
  uint64_t quarters = t->dims[1];
  if (!shape.rows) shape = (st_shape){quarters * 4, t->dims[0]};
  if (t->n_dims != 2 || t->dims[0] != shape.columns || quarters != shape.rows / 4 + (shape.rows % 4 != 0)) {
    return fail_shape(t, "packed rows", 2, (st_shape){shape.rows / 4 + (shape.rows % 4 != 0), shape.columns}, 0, err);
  }
  w->format = st_format_get(ST_HF_U8);
  w->shape = w->stored = shape;
  w->scale_divides = !quant->scale_multiplies;
  return take_scale(scale, 0, 0, w, err);
}

static setun_status check_shape(st_shape shape, uint64_t n_experts, uint64_t expert, st_weight *w, setun_error *err) {
  const st_tensor *t = w->data;
  if (!shape.rows) shape = st_tensor_shape(t);
  uint64_t experts = n_experts ? n_experts : 1;
  bool right = t->dims[0] == shape.columns && t->dims[3] == 1;
  if (n_experts)
    right = right && t->dims[1] == shape.rows && t->dims[2] == n_experts;
  else
    right = right && t->dims[1] * t->dims[2] == shape.rows;
  if (!right) return fail_shape(t, "the shape", n_experts ? 3 : shape.rows == 1 ? 1 : 2, shape, n_experts, err);
  w->shape = shape;
  w->stored = (st_shape){shape.rows * experts, shape.columns};
  w->first_row = expert * shape.rows;
  return SETUN_OK;
}

// The bytes are those that the format and the shape ask for; readers rely on it.
static setun_status check_bytes(const st_weight *w, setun_error *err) {
  uint64_t bytes;
  setun_status s = st_format_size(w->format, w->stored, &bytes, err);
  if (s != SETUN_OK) return st_fail_in(err, "%s", w->name), s;
  if (bytes == w->data->bytes) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: %s of this shape takes %" PRIu64 " bytes, found %" PRIu64, w->name,
                 w->format->name, bytes, w->data->bytes);
}

static setun_status find_data(const st_directory *d, const char *module, const st_tensor **data, bool *is_weight,
                              setun_error *err) {
  setun_status s = find_sibling(d, module, "weight", data, err);
  *is_weight = *data != NULL;
  if (s == SETUN_OK && !*data) *data = st_directory_find(d, module);
  return s;
}

// What Hugging Face's config adds to a weight: packed bytes, or latent floats.
static setun_status fill(const st_directory *d, const char *module, st_shape shape, uint64_t n_experts, uint64_t expert,
                         bool is_weight, st_weight *w, setun_error *err) {
  st_hf_quant quant = {0};
  setun_status s = d->config ? st_hf_quant_read(d->config, &quant, err) : SETUN_OK;
  if (s != SETUN_OK) return s;
  if (is_weight && d->container != ST_GGUF && !n_experts && !strcmp(w->data->dtype, "U8")) {
    return take_hf_u8(d, module, &quant, shape, w, err);
  }
  if (!w->format) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected weights, found %s", w->name, w->data->dtype);
  }
  if ((s = check_shape(shape, n_experts, expert, w, err)) != SETUN_OK) return s;
  w->latent = is_weight && w->data->n_dims >= 2 && w->shape.rows > 1 && st_hf_quant_is_latent(&quant, module);
  const st_tensor *scale = NULL;
  if (is_weight && d->container == ST_GGUF) s = find_sibling(d, module, "scale", &scale, err);
  if (s == SETUN_OK && scale) s = take_scale(scale, n_experts, expert, w, err);
  if (s == SETUN_OK && !w->scale && w->format->scales == ST_SCALE_OUTER) {
    s = st_fail(err, SETUN_ERROR_FORMAT, "%s: a tensor of %s needs the tensor %s.scale, which is missing", w->name,
                w->format->name, module);
  }
  return s;
}

static setun_status find(const st_directory *d, const char *module, st_shape shape, uint64_t n_experts, uint64_t expert,
                         bool *found, st_weight *weight, setun_error *err) {
  const st_tensor *data = NULL;
  bool is_weight;
  setun_status s = find_data(d, module, &data, &is_weight, err);
  if (s != SETUN_OK) return s;
  if (!data) {
    *found = false;
    return SETUN_OK;
  }
  st_weight w = {.name = data->name, .format = data->format, .data = data};
  s = fill(d, module, shape, n_experts, expert, is_weight, &w, err);
  if (s == SETUN_OK) s = check_bytes(&w, err);
  if (s != SETUN_OK) return s;
  *weight = w;
  *found = true;
  return SETUN_OK;
}

setun_status st_weight_find(const st_directory *directory, const char *module, st_shape shape, bool *found,
                            st_weight *weight, setun_error *err) {
  return find(directory, module, shape, 0, 0, found, weight, err);
}

setun_status st_weight_find_expert(const st_directory *directory, const char *module, st_shape shape,
                                   uint64_t n_experts, uint64_t expert, bool *found, st_weight *weight,
                                   setun_error *err) {
  if (expert >= n_experts) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expert %" PRIu64 " of %" PRIu64, module, expert, n_experts);
  }
  return find(directory, module, shape, n_experts, expert, found, weight, err);
}
