// Finding packed weights: which tensors a module has, whether their shapes agree, and which format they are read as.
#include "source/packed.h"

#include "base/bytes.h"
#include "base/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

// The weight being looked for; the shape's columns are 0 until they are known.
typedef struct {
  const st_directory *d;
  const st_hf_quant *quant;
  const char *module;
  uint64_t rows, columns; // of the stored matrix
  bool given;             // the caller knows them
  setun_error *err;
} search;

static setun_status sibling(const search *s, const char *suffix, const st_tensor **out) {
  st_buffer name = {0};
  if (!st_buffer_format(&name, "%s.%s", s->module, suffix)) return st_fail_memory(s->err, s->module);
  *out = st_directory_find(s->d, name.data);
  st_buffer_free(&name);
  return SETUN_OK;
}

static setun_status needed(const search *s, const char *suffix, const st_tensor **out) {
  setun_status status = sibling(s, suffix, out);
  if (status != SETUN_OK || *out) return status;
  return st_fail(s->err, SETUN_ERROR_FORMAT, "%s.%s: expected a tensor of that name, found none", s->module, suffix);
}

// A matrix of that dtype (NULL: floats) and shape, or with `columns` 0 of any width.
static setun_status check(const search *s, const st_tensor *t, const char *dtype, uint64_t rows, uint64_t columns) {
  bool right = dtype ? !strcmp(t->dtype, dtype) : t->format && st_format_is_number(t->format);
  right = right && t->dims[1] * t->dims[2] * t->dims[3] == rows && (!columns || t->dims[0] == columns);
  if (right) return SETUN_OK;
  char expected[96], found[96];
  st_tensor e = {.n_dims = 2, .dims = {columns ? columns : t->dims[0], rows, 1, 1}};
  return st_fail(s->err, SETUN_ERROR_FORMAT, "%s: expected %s %s, found %s %s", t->name, dtype ? dtype : "floats of",
                 st_tensor_dims_text(&e, expected), t->dtype, st_tensor_dims_text(t, found));
}

static setun_status check_shape(const search *s, const st_tensor *t, uint64_t rows, uint64_t columns) {
  if (!s->given || (rows == s->rows && columns == s->columns)) return SETUN_OK;
  return st_fail(s->err, SETUN_ERROR_FORMAT,
                 "%s: expected weights of [%" PRIu64 ", %" PRIu64 "], found [%" PRIu64 ", %" PRIu64 "]", t->name,
                 s->rows, s->columns, rows, columns);
}

setun_status st_packed_slice(const st_directory *d, const st_tensor *t, uint64_t row, uint64_t rows, uint64_t first,
                             uint64_t count, void *out, setun_error *err) {
  uint64_t size = t->bytes / st_tensor_elements(t), width = t->dims[0];
  uint64_t calls = count == width ? 1 : rows, each = count == width ? rows * count : count;
  for (uint64_t i = 0; i < calls; i++) {
    setun_status s = st_file_read(&d->parts[t->part], t->offset + ((row + i) * width + first) * size,
                                  (char *)out + i * each * size, (size_t)(each * size), err);
    if (s != SETUN_OK) return st_fail_in(err, s, "%s", t->name);
  }
  return SETUN_OK;
}

static void *read_all(const st_directory *d, const st_tensor *t, setun_error *err) {
  void *data = st_malloc((size_t)t->bytes, 1);
  uint64_t rows = st_tensor_shape(t).rows;
  if (!data) {
    st_fail_memory(err, t->name);
  } else if (st_packed_slice(d, t, 0, rows, 0, t->dims[0], data, err) != SETUN_OK) {
    st_free(data);
    data = NULL;
  }
  return data;
}

// ---- groups -------------------------------------------------------------------------------------------------------

setun_status st_packed_groups(const st_directory *d, const st_tensor *t, uint64_t groups, uint32_t **out,
                              setun_error *err) {
  setun_error own;
  if (!err) err = &own;
  uint32_t *g = read_all(d, t, err);
  if (!g) return err->code;
  for (uint64_t k = 0; k < t->dims[0]; k++) {
    if (g[k] < groups) continue;
    setun_status s = st_fail(err, SETUN_ERROR_FORMAT,
                             "%s: element %" PRIu64 ": expected a group from 0 to %" PRIu64 ", found %" PRId32, t->name,
                             k, groups - 1, (int32_t)g[k]);
    st_free(g);
    return s;
  }
  *out = g;
  return SETUN_OK;
}

// Checks whether all groups have the same length, and whether their columns are adjacent.
static setun_status judge_groups(const search *s, st_packed *p) {
  uint32_t *g = NULL;
  setun_status status = st_packed_groups(s->d, p->g_idx, p->groups, &g, s->err);
  if (status != SETUN_OK) return status;
  uint64_t *counts = st_calloc((size_t)p->groups, sizeof *counts);
  if (!counts) status = st_fail_memory(s->err, s->module);
  bool together = true, equal = true;
  for (uint64_t k = 0; counts && k < s->columns; k++) {
    counts[g[k]]++;
    together = together && (!k || g[k] >= g[k - 1]);
  }
  for (uint64_t i = 0; counts && i < p->groups; i++) equal = equal && counts[i] == counts[0];
  if (counts) p->group = equal ? counts[0] : 0;
  p->ordered = equal && !together;
  st_free(counts);
  st_free(g);
  return status;
}

// The group of each column without g_idx: consecutive columns.
static setun_status regular_groups(const search *s, const st_tensor *t, st_packed *p) {
  uint64_t group = s->quant->group;
  if (p->groups == 1) group = s->columns;
  if (!group) group = s->columns % p->groups ? 0 : s->columns / p->groups;
  if (group && (s->columns + group - 1) / group == p->groups) {
    p->group = group;
    return SETUN_OK;
  }
  return st_fail(s->err, SETUN_ERROR_FORMAT,
                 "%s: expected scales of groups that divide %" PRIu64 " columns%s, found %" PRIu64 " groups", t->name,
                 s->columns, s->quant->group ? " as group_size says" : "", p->groups);
}

static setun_status find_groups(const search *s, const st_tensor *scales, st_packed *p) {
  if (!p->g_idx) return regular_groups(s, scales, p);
  setun_status status = check(s, p->g_idx, "I32", 1, s->columns);
  return status == SETUN_OK ? judge_groups(s, p) : status;
}

enum { HALF_EXPONENT = 0x7C00 }; // of half precision, see st_format_ops

// Whether half precision represents all of them exactly.
static setun_status are_halves(const search *s, const st_tensor *t, bool *halves) {
  uint64_t n = st_tensor_elements(t);
  st_shape shape = {1, n};
  st_strip all = {.count = 1, .bytes = t->bytes};
  *halves = true;
  if (t->format->ops->exponent == HALF_EXPONENT) return SETUN_OK;
  setun_error own;
  setun_error *err = s->err ? s->err : &own;
  void *data = read_all(s->d, t, err);
  if (!data) return err->code;
  float *x = st_malloc((size_t)n, sizeof *x);
  if (x) t->format->ops->decode(t->format, shape, &all, data, x);
  for (uint64_t i = 0; x && i < n && *halves; i++) *halves = st_f32_from_f16(st_f16_from_f32(x[i])) == x[i];
  setun_status status = x ? SETUN_OK : st_fail_memory(s->err, t->name);
  st_free(x);
  st_free(data);
  return status;
}

// The format with such blocks, or floats if there is none.
static setun_status choose_format(const search *s, st_weight *w) {
  st_packed *p = &w->packed;
  bool halves = true;
  setun_status status = are_halves(s, p->scales, &halves);
  bool whole = halves && p->group && s->columns % p->group == 0;
  w->format = whole ? st_zp_format(p->bits, p->group) : NULL;
  if (w->format && s->columns % w->format->block == 0) return status;
  w->format = st_format_of_floats();
  if (p->ordered) p->ordered = false, p->group = 0;
  return status;
}

// ---- GPTQ ---------------------------------------------------------------------------------------------------------

static setun_status note_label(const search *s, bool second) {
  return st_notices_add(
      s->d->notices, SETUN_LOG_WARNING, s->err,
      "%s: quantization_config: checkpoint_format says %s, but the symmetric zero points are those of "
      "%s: read as such",
      s->d->path, second ? "gptq" : "gptq_v2", second ? "gptq_v2" : "gptq");
}

// Symmetric zero points are 2^(bits-1), and version 1 stores them less 1. The version according to the numbers; 0: they
// are not symmetric.
static int version_of(const uint32_t *words, uint64_t row_words, uint64_t rows, unsigned bits, uint64_t fields) {
  uint32_t half = 1u << (bits - 1), first = st_packed_field(words, bits, true, 0);
  if (first != half && first != half - 1) return 0;
  for (uint64_t r = 0; r < rows; r++, words += row_words) {
    for (uint64_t i = 0; i < fields; i++) {
      if (st_packed_field(words, bits, true, i) != first) return 0;
    }
  }
  return first == half ? 2 : 1;
}

// Symmetric zero points of 3 bits as written by programs that converted to version 1 by subtracting a constant from
// each word separately, which lost the borrow of values that span two words; for a time, the constants of the first and
// the third of three words were swapped.
static const uint32_t by_words[3] = {0xDB6DB6DB, 0xB6DB6DB7, 0x6DB6DB6E};
static const uint32_t swapped_words[3] = {0, 0xB6DB6DB7, 0x49249249};

static bool repeats(const uint32_t *words, uint64_t n, const uint32_t three[3]) {
  for (uint64_t i = 0; i < n; i++) {
    if (words[i] != three[i % 3]) return false;
  }
  return n % 3 == 0;
}

// In a file without a config, only the end of a module's name indicates the version, by convention.
static int version_by_name(const char *module) {
  size_t n = strlen(module);
  if (n < 3 || memcmp(module + n - 3, "_v", 2)) return 0;
  return module[n - 1] == '1' || module[n - 1] == '2' ? module[n - 1] - '0' : 0;
}

// Determines the constants to add to the words of zero points.
static setun_status judge_zeros(const search *s, st_packed *p) {
  static const uint32_t ones[5][3] = {[2] = {0x55555555, 0x55555555, 0x55555555},
                                      [3] = {0x49249249, 0x92492492, 0x24924924},
                                      [4] = {0x11111111, 0x11111111, 0x11111111}};
  static const uint32_t bytes[3] = {0x01010101, 0x01010101, 0x01010101};
  setun_error own;
  setun_error *err = s->err ? s->err : &own;
  uint32_t *words = read_all(s->d, p->zeros, err);
  if (!words) return err->code;
  uint64_t n = st_tensor_elements(p->zeros);
  int label = s->quant->version, version = label ? label : version_by_name(s->module);
  bool first = p->bits == 3 && version != 2, swapped = first && repeats(words, n, swapped_words);
  p->carries = first && !swapped && !repeats(words, n, by_words);
  int seen = s->quant->asymmetric ? 0 : version_of(words, p->zeros->dims[0], p->groups, p->bits, s->rows);
  st_free(words);
  setun_status status = SETUN_OK;
  if (swapped) {
    status = st_notices_add(s->d->notices, SETUN_LOG_INFO, s->err,
                            "%s: zero points of 3 bits as AutoGPTQ wrote them by mistake: corrected", s->d->path);
  } else if (seen && version && seen != version) {
    status = note_label(s, seen == 2);
  }
  if (seen) version = seen;
  if (version == 2) return status;
  memcpy(p->plus, p->bits == 8 ? bytes : ones[p->bits], sizeof p->plus);
  if (swapped) p->plus[0] = ones[3][2], p->plus[2] = ones[3][0];
  return status;
}

static setun_status check_bits(const search *s, const st_tensor *t, uint64_t bits) {
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8) {
    return st_fail(s->err, SETUN_ERROR_UNSUPPORTED, "%s: expected weights of 2, 3, 4 or 8 bits, found %" PRIu64,
                   t->name, bits);
  }
  if (!s->quant->bits || s->quant->bits == bits || s->quant->dynamic) return SETUN_OK;
  return st_fail(s->err, SETUN_ERROR_FORMAT,
                 "%s: expected weights of %u bits, as quantization_config says, found %" PRIu64, t->name,
                 s->quant->bits, bits);
}

static setun_status find_gptq(search *s, st_weight *w) {
  st_packed *p = &w->packed;
  const st_tensor *t = w->data;
  p->kind = ST_PACKING_GPTQ;
  p->stream = true;
  setun_status status = needed(s, "scales", &p->scales);
  if (status == SETUN_OK) status = needed(s, "qzeros", &p->zeros);
  if (status == SETUN_OK) status = sibling(s, "g_idx", &p->g_idx);
  if (status != SETUN_OK) return status;
  uint64_t rows = t->dims[0], words = st_tensor_shape(t).rows, bits = 32 * p->zeros->dims[0] / rows;
  if (rows > UINT32_MAX / 8) return st_fail(s->err, SETUN_ERROR_FORMAT, "%s: too many outputs", t->name);
  p->groups = st_tensor_shape(p->scales).rows;
  if ((status = check_bits(s, p->zeros, bits)) != SETUN_OK) return status;
  p->bits = (uint8_t)bits;
  if (words * 32 % bits || words > UINT64_MAX / 64) {
    return st_fail(s->err, SETUN_ERROR_FORMAT, "%s: expected rows of whole weights of %" PRIu64 " bits, found %" PRIu64,
                   t->name, bits, words);
  }
  status = check_shape(s, t, rows, words * 32 / bits);
  s->rows = rows, s->columns = words * 32 / bits;
  if (status == SETUN_OK) status = check(s, t, "I32", words, rows);
  if (status == SETUN_OK) status = check(s, p->scales, NULL, p->groups, rows);
  if (status == SETUN_OK) status = check(s, p->zeros, "I32", p->groups, (rows * bits + 31) / 32);
  if (status == SETUN_OK) status = find_groups(s, p->scales, p);
  if (status == SETUN_OK) status = judge_zeros(s, p);
  return status == SETUN_OK ? choose_format(s, w) : status;
}

// ---- compressed-tensors -------------------------------------------------------------------------------------------

// MODULE.weight_shape or MODULE.shape: two numbers, the rows and the columns.
static setun_status read_shape(const search *s, const st_tensor *t, uint64_t *rows, uint64_t *columns) {
  int64_t n[2] = {0};
  bool wide = !strcmp(t->dtype, "I64");
  if (st_tensor_elements(t) != 2 || (!wide && strcmp(t->dtype, "I32"))) {
    return st_fail(s->err, SETUN_ERROR_FORMAT, "%s: expected two integers, found %" PRIu64 " of %s", t->name,
                   st_tensor_elements(t), t->dtype);
  }
  int32_t narrow[2];
  setun_status status = st_file_read(&s->d->parts[t->part], t->offset, wide ? (void *)n : (void *)narrow,
                                     wide ? sizeof n : sizeof narrow, s->err);
  if (status != SETUN_OK) return st_fail_in(s->err, status, "%s", t->name);
  for (int i = 0; i < 2 && !wide; i++) n[i] = narrow[i];
  if (n[0] < 1 || n[1] < 1 || n[0] > UINT32_MAX || n[1] > UINT32_MAX) {
    return st_fail(s->err, SETUN_ERROR_FORMAT,
                   "%s: expected rows and columns from 1 to 2^32, found %" PRId64 " and %" PRId64, t->name, n[0], n[1]);
  }
  *rows = (uint64_t)n[0], *columns = (uint64_t)n[1];
  return SETUN_OK;
}

// The number of bits per value in a row of `words`: packed without gaps, or 32 / bits values per word.
static unsigned bits_in(uint64_t words, uint64_t values, unsigned known, bool *stream) {
  static const uint8_t widths[] = {8, 4, 3, 2};
  for (size_t i = 0; i < sizeof widths; i++) {
    uint64_t bits = widths[i], a_word = 32 / bits;
    if (known && known != bits) continue;
    *stream = words != (values + a_word - 1) / a_word;
    if (!*stream || words == (values * bits + 31) / 32) return (unsigned)bits;
  }
  return 0;
}

static setun_status check_zeros(const search *s, st_packed *p) {
  if (!p->zeros) return SETUN_OK;
  if (32 % p->bits) {
    return st_fail(s->err, SETUN_ERROR_UNSUPPORTED, "%s: zero points of %u bits are not read", p->zeros->name, p->bits);
  }
  uint64_t a_word = 32 / p->bits;
  return check(s, p->zeros, "I32", (s->rows + a_word - 1) / a_word, p->groups);
}

static setun_status find_ints(search *s, st_weight *w) {
  st_packed *p = &w->packed;
  const st_tensor *t = w->data;
  uint64_t rows = 0, columns = 0;
  p->kind = ST_PACKING_INTS;
  setun_status status = needed(s, "weight_shape", &p->shape);
  if (status == SETUN_OK) status = needed(s, "weight_scale", &p->scales);
  if (status == SETUN_OK) status = sibling(s, "weight_zero_point", &p->zeros);
  if (status == SETUN_OK) status = sibling(s, "weight_g_idx", &p->g_idx);
  if (status == SETUN_OK) status = read_shape(s, p->shape, &rows, &columns);
  if (status == SETUN_OK) status = check_shape(s, t, rows, columns);
  if (status != SETUN_OK) return status;
  s->rows = rows, s->columns = columns;
  p->bits = (uint8_t)bits_in(t->dims[0], columns, s->quant->bits, &p->stream);
  if (s->quant->bits) status = check_bits(s, t, s->quant->bits);
  if (status == SETUN_OK && !p->bits) {
    status = check(s, t, "I32", rows, (columns * (s->quant->bits ? s->quant->bits : 4) + 31) / 32);
  }
  if (status == SETUN_OK) status = check(s, t, "I32", rows, 0);
  p->groups = p->scales->dims[0];
  if (status == SETUN_OK) status = check(s, p->scales, NULL, rows, 0);
  if (status == SETUN_OK) status = check_zeros(s, p);
  if (status == SETUN_OK) status = find_groups(s, p->scales, p);
  return status == SETUN_OK ? choose_format(s, w) : status;
}

static setun_status find_marlin(search *s, st_weight *w) {
  st_packed *p = &w->packed;
  const st_tensor *t = w->data;
  p->kind = ST_PACKING_MARLIN_24;
  setun_status status = needed(s, "scale_packed", &p->scales);
  if (status != SETUN_OK) return status;
  uint64_t rows = p->scales->dims[0], columns = 32 * st_tensor_shape(t).rows, bits = 2 * t->dims[0] / rows;
  p->groups = st_tensor_shape(p->scales).rows;
  if (rows % 64 || (bits != 4 && bits != 8) || st_tensor_shape(t).rows > UINT32_MAX) {
    char dims[96];
    return st_fail(s->err, SETUN_ERROR_FORMAT,
                   "%s: expected [columns / 32, rows * bits / 2] with rows a multiple of 64 and 4 or 8 bits, found %s",
                   t->name, st_tensor_dims_text(t, dims));
  }
  p->bits = (uint8_t)bits;
  status = check_shape(s, t, rows, columns);
  s->rows = rows, s->columns = columns;
  if (status == SETUN_OK) status = check_bits(s, t, bits);
  if (status == SETUN_OK) status = check(s, t, "I32", columns / 32, rows * bits / 2);
  if (status == SETUN_OK) status = check(s, p->scales, NULL, p->groups, rows);
  if (status == SETUN_OK) status = check(s, p->marks, "I16", columns / 32, 2 * rows);
  if (status == SETUN_OK) status = regular_groups(s, p->scales, p);
  return status == SETUN_OK ? choose_format(s, w) : status;
}

static setun_status find_bitmask(search *s, st_weight *w) {
  st_packed *p = &w->packed;
  uint64_t rows = 0, columns = 0;
  p->kind = ST_PACKING_BITMASK_24;
  setun_status status = needed(s, "bitmask", &p->marks);
  if (status == SETUN_OK) status = needed(s, "shape", &p->shape);
  if (status == SETUN_OK) status = read_shape(s, p->shape, &rows, &columns);
  if (status == SETUN_OK) status = check_shape(s, w->data, rows, columns);
  if (status != SETUN_OK) return status;
  if (columns % 4) {
    return st_fail(s->err, SETUN_ERROR_FORMAT, "%s: expected a multiple of 4 columns, found %" PRIu64, p->shape->name,
                   columns);
  }
  s->rows = rows, s->columns = columns;
  if (status == SETUN_OK) status = check(s, w->data, NULL, rows, columns / 2);
  if (status == SETUN_OK) status = check(s, p->marks, "U8", rows, (columns + 7) / 8);
  w->format = w->data->format;
  return status;
}

// ---- all ----------------------------------------------------------------------------------------------------------

typedef struct {
  const char *data, *beside; // suffixes of the module's name; beside: NULL, or another suffix that must exist
  setun_status (*find)(search *s, st_weight *w);
  st_hf_method method; // the quant_method that config.json then states
} packing;

static const packing packings[] = {
    {"qweight", NULL, find_gptq, ST_HF_GPTQ},
    {"weight_packed", "meta", find_marlin, ST_HF_COMPRESSED},
    {"weight_packed", NULL, find_ints, ST_HF_COMPRESSED},
    {"compressed", NULL, find_bitmask, ST_HF_COMPRESSED},
};

static setun_status check_method(const search *s, const packing *k, const st_tensor *t) {
  if (!s->d->config || s->quant->method == k->method) return SETUN_OK;
  return st_fail(s->err, SETUN_ERROR_FORMAT,
                 "%s: packed weights, for which config.json should have a quantization_config with quant_method %s",
                 t->name, st_hf_method_name(k->method));
}

setun_status st_packed_find(const st_directory *d, const st_hf_quant *quant, const char *module, st_shape shape,
                            st_part part, bool *found, st_weight *weight, setun_error *err) {
  search s = {.d = d, .quant = quant, .module = module, .given = shape.rows != 0, .err = err};
  *found = false;
  for (size_t i = 0; i < sizeof packings / sizeof *packings; i++) {
    const packing *k = &packings[i];
    st_weight w = {.row_step = 1};
    s.rows = part.of ? part.of : shape.rows, s.columns = shape.columns;
    setun_status status = sibling(&s, k->data, &w.data);
    if (status == SETUN_OK && w.data && k->beside) status = sibling(&s, k->beside, &w.packed.marks);
    if (status != SETUN_OK) return status;
    if (!w.data || (k->beside && !w.packed.marks)) continue;
    w.name = w.data->name;
    if ((status = check_method(&s, k, w.data)) != SETUN_OK || (status = k->find(&s, &w)) != SETUN_OK) return status;
    w.stored = (st_shape){s.rows, s.columns};
    w.shape = part.of ? shape : w.stored;
    w.first_row = part.of ? part.first : 0;
    w.row_step = part.of ? part.step : 1;
    *weight = w;
    *found = true;
    return SETUN_OK;
  }
  return SETUN_OK;
}
