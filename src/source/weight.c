// Finding a module's weight: its tensors, format and scales, and checking its shape.
#include "source/weight.h"

#include "base/memory.h"
#include "source/packed.h"
#include "source/scattered.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// The caller's request; n_experts 0: no stack.
typedef struct {
  const char *module;
  st_shape shape;
  st_part part;
  uint64_t n_experts, expert;
} request;

// Finds the tensor "MODULE.suffix".
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

// The tensor with a scale for the module, and how its elements are shared.
static setun_status take_scale(const st_tensor *scale, uint64_t n_experts, uint64_t expert, st_weight *w,
                               setun_error *err) {
  uint64_t n = st_tensor_elements(scale), experts = n_experts ? n_experts : 1, all = w->stored.rows;
  if (!scale->format || st_format_is_ternary(scale->format)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a scale in floats, found %s", scale->name, scale->dtype);
  }
  if (n == 1 || n == experts) {
    w->n_scales = 1;
    w->first_scale = n == 1 ? 0 : expert;
  } else if (n == all && w->row_step == 1) {
    w->n_scales = w->shape.rows;
    w->first_scale = w->first_row;
  } else {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected 1 or %" PRIu64 " scales for %s, found %" PRIu64, scale->name,
                   all, w->name, n);
  }
  w->scale = scale;
  return SETUN_OK;
}

// Packed ternary bytes of Hugging Face's BitNet integration.
static setun_status take_packed(const st_directory *d, const char *module, const st_hf_quant *quant, st_shape shape,
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
                   "%s: packed weights, for which config.json should have a quantization_config with "
                   "quant_method " ST_HF_PACKED_METHOD,
                   t->name);
  }
  w->format = st_format_by_dtype(t->dtype);
  uint64_t found = t->dims[1], parts = w->format->ops->row_parts;
  if (!shape.rows) shape = (st_shape){found * parts, t->dims[0]};
  uint64_t expected = shape.rows / parts + (shape.rows % parts != 0);
  if (t->n_dims != 2 || t->dims[0] != shape.columns || found != expected) {
    return fail_shape(t, "packed rows", 2, (st_shape){expected, shape.columns}, 0, err);
  }
  w->shape = w->stored = shape;
  w->scale_divides = !quant->scale_multiplies;
  return take_scale(scale, 0, 0, w, err);
}

// The place of this weight's rows among the stored ones, `rows` per expert.
static void place_rows(const request *a, st_shape shape, uint64_t rows, st_weight *w) {
  w->shape = shape;
  w->stored = (st_shape){rows * (a->n_experts ? a->n_experts : 1), shape.columns};
  w->first_row = a->expert * rows + a->part.first;
  w->row_step = a->part.of ? a->part.step : 1;
}

static setun_status check_shape(const request *a, st_weight *w, setun_error *err) {
  const st_tensor *t = w->data;
  st_shape shape = a->shape.rows ? a->shape : st_tensor_shape(t);
  uint64_t rows = a->part.of ? a->part.of : shape.rows;
  bool right = t->dims[0] == shape.columns && t->dims[3] == 1;
  bool last = !a->n_experts && st_weight_is_channel_last(t) && t->dims[1] == shape.columns && t->dims[2] == rows;
  if (a->n_experts && rows == 1 && t->dims[2] == 1) {
    right = right && t->dims[1] == a->n_experts; // a vector per expert
  } else if (a->n_experts) {
    right = right && t->dims[1] == rows && t->dims[2] == a->n_experts;
  } else {
    right = last || (right && t->dims[1] * t->dims[2] == rows);
  }
  if (!right && a->n_experts && rows == 1) {
    return fail_shape(t, "the shape", 2, (st_shape){a->n_experts, shape.columns}, 0, err);
  }
  if (!right) {
    char what[64] = "the shape";
    // a vector, or a matrix of one row: both exist
    if (!a->n_experts && rows == 1) snprintf(what, sizeof what, "the shape [%" PRIu64 "] or", shape.columns);
    return fail_shape(t, what, a->n_experts ? 3 : 2, (st_shape){rows, shape.columns}, a->n_experts, err);
  }
  place_rows(a, shape, rows, w);
  if (st_weight_is_scattered(w) && !st_format_row_bytes(w->format, shape.columns)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: every second row of a %s tensor is not read", w->name,
                   w->format->name);
  }
  return SETUN_OK;
}

// Blocks whose codes and scales are tensors of their own, see st_weight_find_part.
static setun_status take_blocks(const st_directory *d, const request *a, st_weight *w, setun_error *err) {
  const st_tensor *t = w->data, *scales = NULL;
  st_buffer name = {0};
  if (!st_buffer_format(&name, "%s_scales", a->module)) return st_fail_memory(err, a->module);
  scales = st_directory_find(d, name.data);
  st_buffer_free(&name);
  if (!scales) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s_scales: expected the scales of %s, found none", a->module, t->name);
  }
  w->format = st_format_by_hf_method(NULL);
  uint64_t rows = a->part.of ? a->part.of : a->shape.rows, block = w->format->block;
  uint64_t blocks = a->shape.columns / block, codes = w->format->block_bytes - 1;
  const uint64_t wanted_dims[2][4] = {{codes, blocks, rows, a->n_experts}, {blocks, rows, a->n_experts, 1}};
  for (int i = 0; i < 2; i++) {
    const st_tensor *found = i ? scales : t;
    st_tensor expected = {.n_dims = i ? 3 : 4};
    memcpy(expected.dims, wanted_dims[i], sizeof expected.dims);
    char dims[96], found_dims[96];
    if (strcmp(found->dtype, "U8") || memcmp(found->dims, expected.dims, sizeof expected.dims) ||
        a->shape.columns % block) {
      return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected U8 %s (%s of %llu columns), found %s %s", found->name,
                     st_tensor_dims_text(&expected, dims), w->format->name, (unsigned long long)a->shape.columns,
                     found->dtype, st_tensor_dims_text(found, found_dims));
    }
  }
  w->block_scales = scales;
  place_rows(a, a->shape, rows, w);
  return SETUN_OK;
}

// ---- MLX ----------------------------------------------------------------------------------------------------------

// Checks that a tensor has these sizes (for each expert) and one of the types `dtypes`, which ends with NULL.
static setun_status check_mlx(const st_tensor *t, uint64_t columns, uint64_t rows, uint64_t n_experts,
                              const char *const *dtypes, setun_error *err) {
  st_tensor e = {.n_dims = n_experts ? 3 : 2, .dims = {columns, rows, n_experts ? n_experts : 1, 1}};
  const char *const *type = dtypes;
  while (*type && strcmp(t->dtype, *type)) type++;
  if (*type && t->n_dims == e.n_dims && !memcmp(t->dims, e.dims, sizeof e.dims)) return SETUN_OK;
  char wanted[96], dims[96];
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected %s%s%s %s, found %s %s", t->name, dtypes[0],
                 dtypes[1] ? " or " : "", dtypes[1] ? dtypes[1] : "", st_tensor_dims_text(&e, wanted), t->dtype,
                 st_tensor_dims_text(t, dims));
}

static setun_status need_sibling(const st_directory *d, const st_tensor *of, const char *module, const char *suffix,
                                 const st_tensor **out, setun_error *err) {
  setun_status s = find_sibling(d, module, suffix, out, err);
  if (s != SETUN_OK || *out) return s;
  return st_fail(err, SETUN_ERROR_FORMAT, "%s.%s: expected a tensor of that name next to %s, found none", module,
                 suffix, of->name);
}

// Words of codes, with scales and, in mode affine, minimums in tensors beside them.
static setun_status take_mlx(const st_directory *d, const request *a, const st_hf_quant *quant, st_weight *w,
                             setun_error *err) {
  static const char *const words[] = {"U32", NULL}, *const bytes[] = {"U8", NULL};
  static const char *const numbers[] = {"F16", "BF16", NULL};
  const st_tensor *t = w->data;
  st_mlx_module m;
  setun_status s = st_hf_quant_mlx(quant, a->module, &m, err);
  if (s == SETUN_OK) s = need_sibling(d, t, a->module, "scales", &w->block_scales, err);
  if (s == SETUN_OK && !m.blocks) s = need_sibling(d, t, a->module, "biases", &w->block_minimums, err);
  if (s != SETUN_OK) return s;
  request all = *a; // of a tensor that is taken as it is, a stack's experts are rows
  if (!all.shape.rows) {
    all = (request){.shape = {t->dims[1], t->dims[0] * 32 / m.bits}, .n_experts = t->n_dims == 3 ? t->dims[2] : 0};
  }
  st_shape shape = all.shape;
  uint64_t rows = all.part.of ? all.part.of : shape.rows;
  if (shape.columns % m.group) {
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "%s: expected rows of a multiple of %u weights, which share a scale, found "
                   "%" PRIu64,
                   t->name, m.group, shape.columns);
  }
  const st_tensor *beside[] = {w->block_scales, w->block_minimums};
  s = check_mlx(t, shape.columns / 32 * m.bits, rows, all.n_experts, words, err);
  for (int i = 0; i < 2 && s == SETUN_OK; i++) {
    if (!beside[i]) continue;
    const char *const *types = m.blocks ? bytes : numbers, *const own[] = {w->block_scales->dtype, NULL};
    s = check_mlx(beside[i], shape.columns / m.group, rows, all.n_experts, i ? own : types, err);
  }
  if (s != SETUN_OK) return s;
  w->format = m.blocks ? m.blocks : st_format_of_affine(m.bits, m.group, w->block_scales->dtype[0] == 'B');
  place_rows(&all, shape, rows, w);
  if (!a->shape.rows) w->shape = w->stored;
  return SETUN_OK;
}

// Checks that the bytes match the format and the shape; readers rely on it.
static setun_status check_bytes(const st_weight *w, setun_error *err) {
  uint64_t bytes;
  setun_status s = st_format_size(w->format, w->stored, &bytes, err);
  if (s != SETUN_OK) return st_fail_in(err, s, "%s", w->name);
  uint64_t found = w->data->bytes + (w->block_scales ? w->block_scales->bytes : 0);
  if (w->block_minimums) found += w->block_minimums->bytes;
  if (bytes == found) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: %s of this shape takes %" PRIu64 " bytes, found %" PRIu64, w->name,
                 w->format->name, bytes, found);
}

typedef enum { NAMED_WEIGHT, NAMED_MODULE, NAMED_BLOCKS } naming;

static setun_status find_data(const st_directory *d, const request *a, const st_tensor **data, naming *named,
                              setun_error *err) {
  setun_status s = find_sibling(d, a->module, "weight", data, err);
  *named = NAMED_WEIGHT;
  if (s != SETUN_OK || *data) return s;
  *named = NAMED_MODULE;
  *data = st_directory_find(d, a->module);
  if (*data || !a->n_experts || d->container == ST_GGUF) return SETUN_OK;
  *named = NAMED_BLOCKS;
  st_buffer name = {0};
  if (!st_buffer_format(&name, "%s_blocks", a->module)) return st_fail_memory(err, a->module);
  *data = st_directory_find(d, name.data);
  st_buffer_free(&name);
  return SETUN_OK;
}

static bool is_packed(const st_tensor *t) {
  const st_format *f = st_format_by_dtype(t->dtype);
  return f && f->ops->row_parts;
}

// Whether the module's floats are latent: by config.json or, in BitNet's embedding models, by the norm of the matrix's
// input, as their config.json does not say.
static setun_status find_latent(const st_directory *d, const st_hf_quant *quant, const char *module, bool *latent,
                                setun_error *err) {
  const st_tensor *norm = NULL;
  setun_status s = SETUN_OK;
  *latent = st_hf_quant_is_latent(quant, module);
  if (!*latent && d->container == ST_HUGGINGFACE) s = find_sibling(d, module, "norm.weight", &norm, err);
  if (norm) *latent = true;
  return s;
}

// Applies the Hugging Face config to a weight: packed bytes, or latent floats.
static setun_status fill(const st_directory *d, const request *a, naming named, st_weight *w, setun_error *err) {
  st_hf_quant quant = {0};
  bool is_weight = named == NAMED_WEIGHT;
  setun_status s = d->config ? st_hf_quant_read(d->config, &quant, err) : SETUN_OK;
  if (s != SETUN_OK) return s;
  if (named == NAMED_BLOCKS) return take_blocks(d, a, w, err);
  if (is_weight && quant.method == ST_HF_MLX && !strcmp(w->data->dtype, "U32")) return take_mlx(d, a, &quant, w, err);
  bool latent = false;
  if ((s = find_latent(d, &quant, a->module, &latent, err)) != SETUN_OK) return s;
  bool packed = is_weight && d->container != ST_GGUF && !a->n_experts && is_packed(w->data);
  if (a->part.of && !a->n_experts && (packed || latent)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s: expected floats in a matrix that holds several, found BitNet weights", w->name);
  }
  if (packed) {
    return take_packed(d, a->module, &quant, a->shape, w, err);
  }
  if (!w->format) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected weights, found %s", w->name, w->data->dtype);
  }
  if ((s = check_shape(a, w, err)) != SETUN_OK) return s;
  w->latent = is_weight && w->data->n_dims >= 2 && w->shape.rows > 1 && latent;
  const st_tensor *scale = NULL;
  if (is_weight && d->container == ST_GGUF) s = find_sibling(d, a->module, "scale", &scale, err);
  if (s == SETUN_OK && scale) s = take_scale(scale, a->n_experts, a->expert, w, err);
  if (s == SETUN_OK && !w->scale && w->format->scales == ST_SCALE_OUTER) {
    s = st_fail(err, SETUN_ERROR_FORMAT, "%s: a tensor of %s needs the tensor %s.scale, which is missing", w->name,
                w->format->name, a->module);
  }
  return s;
}

static setun_status find(const st_directory *d, const request *a, bool *found, st_weight *weight, setun_error *err) {
  const st_tensor *data = NULL;
  naming named;
  setun_status s = find_data(d, a, &data, &named, err);
  if (s != SETUN_OK) return s;
  if (!data && d->container != ST_GGUF && !a->n_experts) {
    st_hf_quant quant = {0};
    if (d->config && (s = st_hf_quant_read(d->config, &quant, err)) != SETUN_OK) return s;
    return st_packed_find(d, &quant, a->module, a->shape, a->part, found, weight, err);
  }
  *found = data != NULL;
  if (!data) return SETUN_OK;
  st_weight w = {.name = data->name, .format = data->format, .data = data, .row_step = 1};
  s = fill(d, a, named, &w, err);
  if (s == SETUN_OK) s = check_bytes(&w, err);
  if (s != SETUN_OK) return s;
  *weight = w;
  *found = true;
  return SETUN_OK;
}

setun_status st_weight_find(const st_directory *directory, const char *module, st_shape shape, bool *found,
                            st_weight *weight, setun_error *err) {
  return find(directory, &(request){.module = module, .shape = shape}, found, weight, err);
}

setun_status st_weight_find_expert(const st_directory *directory, const char *module, st_shape shape,
                                   uint64_t n_experts, uint64_t expert, bool *found, st_weight *weight,
                                   setun_error *err) {
  return st_weight_find_part(directory, module, shape, (st_part){0}, n_experts, expert, found, weight, err);
}

setun_status st_weight_find_part(const st_directory *directory, const char *module, st_shape shape, st_part part,
                                 uint64_t n_experts, uint64_t expert, bool *found, st_weight *weight,
                                 setun_error *err) {
  if (n_experts ? expert >= n_experts : expert > 0) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expert %" PRIu64 " of %" PRIu64, module, expert, n_experts);
  }
  request a = {.module = module, .shape = shape, .part = part, .n_experts = n_experts, .expert = expert};
  return find(directory, &a, found, weight, err);
}
