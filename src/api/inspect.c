// setun.h: the contents of a model's files, without loading them.
#include "api/api.h"

#include "base/float_modes.h"
#include "base/memory.h"
#include "base/suffix.h"
#include "convert/convert.h"
#include "model/roles.h"
#include "model/rope.h"
#include "placement/binding.h"
#include "source/weight.h"

#include <math.h>
#include <string.h>

typedef struct {
  char *key, *value;
} meta_line;

struct setun_file {
  st_directory *directory;
  meta_line *meta; // metadata as text
  size_t n_meta, meta_capacity;
  char *architecture; // NULL: unspecified
  uint64_t n_params;
};

static setun_status add_meta(setun_file *f, const char *key, const char *value, setun_error *err) {
  if (!st_reserve(&f->meta, &f->meta_capacity, f->n_meta + 1, sizeof *f->meta)) return st_fail_memory(err, "metadata");
  meta_line line = {st_strdup(key), st_strdup(value)};
  if (!line.key || !line.value) {
    st_free(line.key);
    st_free(line.value);
    return st_fail_memory(err, "metadata");
  }
  f->meta[f->n_meta++] = line;
  return SETUN_OK;
}

static setun_status print_gguf(setun_file *f, setun_error *err) {
  const st_metadata *m = &f->directory->metadata;
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < m->count && s == SETUN_OK; i++) {
    st_buffer text = {0};
    s = st_meta_print(&m->items[i], &text, err);
    if (s == SETUN_OK) s = add_meta(f, m->items[i].key, text.data ? text.data : "", err);
    st_buffer_free(&text);
  }
  return s;
}

// config.json's members, one line each.
static setun_status print_config(setun_file *f, setun_error *err) {
  setun_status s = SETUN_OK;
  for (size_t i = 0; s == SETUN_OK && i < st_json_members(f->directory->config); i++) {
    const st_json_member *m = st_json_member_at(f->directory->config, i);
    // Integers were read as reals (see base/json.h); they are printed as integers.
    double x = st_json_number(&m->value);
    bool whole = st_json_is_number(&m->value) && fabs(x) < 1e15 && x == (double)(long long)x;
    st_json shown = whole ? st_json_make_integer((int64_t)x) : m->value;
    st_buffer text = {0};
    s = st_json_append(&shown, &text) ? add_meta(f, m->key, text.data, err) : st_fail_memory(err, m->key);
    st_buffer_free(&text);
  }
  return s;
}

// The file's name for its family, supported or not.
static setun_status copy_architecture(setun_file *f, setun_error *err) {
  const st_directory *d = f->directory;
  st_text name = {0};
  const char *type = d->config ? st_json_string(st_json_get(d->config, "model_type")) : NULL;
  if (type) name = (st_text){type, strlen(type)};
  setun_status s =
      d->container == ST_GGUF ? st_metadata_text(&d->metadata, "general.architecture", &name, err) : SETUN_OK;
  if (s == SETUN_OK && name.data && !(f->architecture = st_strndup(name.data, name.length))) {
    s = st_fail_memory(err, "the architecture's name");
  }
  return s;
}

// Notices about ids that are never drawn, and those of binding tensors. Faults of the files are reported elsewhere:
// without an embedding the number of ids is unknown.
static setun_status note_weights(const st_directory *d, const st_tokenizer *t, setun_error *err) {
  const st_spec *spec = NULL;
  st_hparams h = {0};
  st_token_gaps gaps = {0};
  st_bound_list weights = {0};
  setun_status s = st_hparams_read(d, NULL, &spec, &h, NULL);
  if (s == SETUN_OK) s = st_bind(d, spec, &h, &weights, NULL);
  bool enough = s != SETUN_ERROR_MEMORY;
  if (s == SETUN_OK && t) {
    s = st_token_gaps_find(t, h.n_vocab, &gaps, NULL);
    if (s == SETUN_OK) s = st_token_gaps_notice(&gaps, h.n_vocab, d, NULL);
    enough = s != SETUN_ERROR_MEMORY;
  }
  st_token_gaps_free(&gaps);
  st_bound_list_free(&weights);
  st_hparams_free(&h);
  return enough ? SETUN_OK : st_fail_memory(err, "the model");
}

static setun_status note_templates(const st_directory *d, const char *architecture, const st_tokenizer *t,
                                   setun_error *err) {
  st_templates templates = {0};
  setun_status s = st_templates_load(d, &templates, err);
  if (s == SETUN_OK && t) s = st_notice_template(d, &templates, architecture, t, err);
  st_templates_free(&templates);
  return s;
}

// Notices and refusals, by keys, of loading the model.
static setun_status note_assumptions(const st_directory *d, const char *architecture, setun_error *err) {
  setun_error why = {SETUN_OK, ""};
  setun_status s = st_notice_default_pre(d, err);
  const st_spec *spec = s == SETUN_OK ? st_spec_of(d) : NULL;
  if (s == SETUN_OK && !spec && d->container == ST_GGUF && st_gguf_spec(d, &spec, &why) != SETUN_OK) {
    return st_notices_add(d->notices, SETUN_LOG_INFO, err, "cannot be loaded as it is: %s", why.message);
  }
  if (!spec) return s;
  st_tokenizer *t = NULL; // stays so if the vocabulary cannot be read
  s = st_vocabulary_load(d, st_default_pre(d), NULL, &t, &why);
  if (s != SETUN_ERROR_MEMORY) s = note_templates(d, architecture, t, &why);
  if (s == SETUN_OK) s = st_facts_check(d, spec, &why);
  if (s == SETUN_OK) s = note_weights(d, t, &why);
  st_tokenizer_free(t);
  if (s == SETUN_OK) return s;
  if (s == SETUN_ERROR_MEMORY) return st_fail(err, s, "%s", why.message);
  return st_notices_add(d->notices, SETUN_LOG_INFO, err, "cannot be loaded as it is: %s", why.message);
}

// The module that a tensor's name belongs to: the name without ".weight".
static char *module_of(const char *name) {
  size_t n = strlen(name), suffix = strlen(".weight");
  bool weight = n > suffix && !strcmp(name + n - suffix, ".weight");
  return st_strndup(name, weight ? n - suffix : n);
}

// Whether a tensor of bytes or of words is packed weights, by its module's other tensors and config.json. Fails only
// without memory.
static setun_status find_packed(const st_directory *d, const st_tensor *t, bool *found, st_weight *w,
                                setun_error *err) {
  *found = false;
  if (t->format || (strcmp(t->dtype, "U8") && strcmp(t->dtype, "U32"))) return SETUN_OK;
  char *module = module_of(t->name);
  if (!module) return st_fail_memory(err, t->name);
  setun_status s = st_weight_find(d, module, (st_shape){0, 0}, found, w, err);
  st_free(module);
  if (s == SETUN_OK || s == SETUN_ERROR_MEMORY) return s;
  *found = false; // other bytes
  return SETUN_OK;
}

// Whether it is a tensor of scales, which are not weights.
static bool is_scale(const st_directory *d, const char *name) {
  bool mlx =
      st_json_get(d->config, "quantization") && (st_has_suffix(name, ".scales") || st_has_suffix(name, ".biases"));
  return mlx || st_has_suffix(name, ".scale") || st_has_suffix(name, "_scale");
}

// The number of weights that the stored tensors hold.
static setun_status count_weights(const st_directory *d, uint64_t *n, setun_error *err) {
  setun_status s = SETUN_OK;
  *n = 0;
  for (size_t i = 0; i < d->n_tensors && s == SETUN_OK; i++) {
    const st_tensor *t = &d->tensors[i];
    st_weight w;
    bool packed = false;
    if (is_scale(d, t->name)) continue;
    if (t->format)
      *n += st_tensor_elements(t);
    else if ((s = find_packed(d, t, &packed, &w, err)) == SETUN_OK && packed)
      *n += w.shape.rows * w.shape.columns;
  }
  return s;
}

setun_status setun_file_open(const char *path, const setun_file_params *params, setun_file **file, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  setun_file_params p;
  ST_NEED(path);
  ST_NEED(file);
  setun_status s = st_take_file_params(&p, params, error);
  if (s == SETUN_OK) s = st_check_reading(p.assume, p.ignore_keys, p.n_ignore_keys, error);
  if (s != SETUN_OK) return s;
  st_log log = {p.log, p.user};
  st_open_options options = {
      .assume = p.assume, .ignore_keys = p.ignore_keys, .n_ignore_keys = p.n_ignore_keys, .log = &log};
  setun_file *f = st_calloc(1, sizeof *f);
  if (!f) return st_fail_memory(error, path);
  s = st_directory_open(path, &options, &f->directory, error);
  if (s == SETUN_OK) s = f->directory->container == ST_GGUF ? print_gguf(f, error) : print_config(f, error);
  if (s == SETUN_OK) s = copy_architecture(f, error);
  if (s == SETUN_OK) s = note_assumptions(f->directory, f->architecture, error);
  if (s == SETUN_OK) s = count_weights(f->directory, &f->n_params, error);
  if (s == SETUN_OK) {
    *file = f;
  } else {
    setun_file_close(f);
  }
  return s;
}

void setun_file_close(setun_file *f) {
  if (!f) return;
  for (size_t i = 0; i < f->n_meta; i++) {
    st_free(f->meta[i].key);
    st_free(f->meta[i].value);
  }
  st_free(f->meta);
  st_free(f->architecture);
  st_directory_free(f->directory);
  st_free(f);
}

setun_status setun_file_get_info(const setun_file *file, setun_file_info *info, setun_error *error) {
  ST_NEED(file);
  const st_directory *d = file->directory;
  const char *const containers[] = {
      [ST_GGUF] = "gguf", [ST_SAFETENSORS] = "safetensors", [ST_HUGGINGFACE] = "huggingface"};
  setun_file_info found = {.container = containers[d->container],
                           .n_parts = d->n_parts,
                           .architecture = file->architecture,
                           .n_params = file->n_params};
  for (size_t i = 0; i < d->n_tensors; i++) found.bytes += d->tensors[i].bytes;
  return ST_FILL(info, &found);
}

size_t setun_file_tensor_count(const setun_file *file) {
  return file ? file->directory->n_tensors : 0;
}

setun_status setun_file_tensor(const setun_file *file, size_t index, setun_tensor_info *info, setun_error *error) {
  ST_NEED(file);
  const st_directory *d = file->directory;
  if (index >= d->n_tensors) {
    return st_fail(error, SETUN_ERROR_ARGUMENT, "tensor index: expected below %zu, found %zu", d->n_tensors, index);
  }
  const st_tensor *t = &d->tensors[index];
  st_weight w;
  bool packed = false;
  setun_status s = find_packed(d, t, &packed, &w, error);
  if (s != SETUN_OK) return s;
  const st_format *format = packed ? w.format : t->format;
  setun_tensor_info found = {.name = t->name,
                             .format = format ? format->name : t->dtype,
                             .n_dims = (int)t->n_dims,
                             .offset = t->offset,
                             .bytes = t->bytes,
                             .part = t->part};
  for (uint32_t i = 0; i < t->n_dims; i++) found.dims[i] = t->dims[t->n_dims - 1 - i];
  return ST_FILL(info, &found);
}

size_t setun_file_meta_count(const setun_file *file) {
  return file ? file->n_meta : 0;
}

setun_status setun_file_meta(const setun_file *file, size_t index, const char **key, const char **value,
                             setun_error *error) {
  ST_NEED(file);
  ST_NEED(key);
  ST_NEED(value);
  if (index >= file->n_meta) {
    return st_fail(error, SETUN_ERROR_ARGUMENT, "metadata index: expected below %zu, found %zu", file->n_meta, index);
  }
  *key = file->meta[index].key;
  *value = file->meta[index].value;
  return SETUN_OK;
}

// Integers were read as reals, see base/json.h: shown as integers, at every depth that the parser allows.
static void show_whole(st_json *v) {
  double x = st_json_number(v);
  if (st_json_is_number(v) && fabs(x) < 1e15 && x == (double)(long long)x) *v = st_json_make_integer((int64_t)x);
  for (size_t i = 0; st_json_is_array(v) && i < v->count; i++) show_whole(&v->as.items[i]);
  for (size_t i = 0; st_json_is_object(v) && i < v->count; i++) show_whole(&v->as.members[i].value);
}

static setun_status config_json(const st_json_member *m, st_buffer *text, setun_error *err) {
  st_json *root = st_json_new();
  st_json copy = root ? st_json_copy_of(root, &m->value) : st_json_make_null();
  show_whole(&copy);
  bool ok = root && !st_json_failed(root) && st_json_append_exact(&copy, text);
  st_json_free(root);
  return ok ? SETUN_OK : st_fail_memory(err, m->key);
}

setun_status setun_file_meta_json(const setun_file *file, size_t index, char *text, size_t capacity, size_t *length,
                                  setun_error *error) {
  ST_NEED(file);
  ST_NEED_ARRAY(text, capacity);
  ST_NEED(length);
  if (index >= file->n_meta) {
    return st_fail(error, SETUN_ERROR_ARGUMENT, "metadata index: expected below %zu, found %zu", file->n_meta, index);
  }
  st_buffer out = {0};
  const st_metadata *m = &file->directory->metadata; // these come first, see print_gguf
  setun_status s = index < m->count
                       ? st_meta_json(&m->items[index], &out, error)
                       : config_json(st_json_member_at(file->directory->config, index - m->count), &out, error);
  if (s == SETUN_OK) {
    if (capacity) memcpy(text, out.data, capacity < out.length ? capacity : out.length);
    *length = out.length;
  }
  st_buffer_free(&out);
  return s;
}

static setun_status read_rows(const st_directory *d, const st_weight *w, float *data, size_t capacity,
                              setun_error *err) {
  uint64_t n;
  if (!st_mul_u64(w->shape.rows, w->shape.columns, &n) || n > capacity) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expected room for %llu x %llu floats, found %zu", w->name,
                   (unsigned long long)w->shape.rows, (unsigned long long)w->shape.columns, capacity);
  }
  st_row_reader r;
  setun_status s = st_row_reader_open(d, w, &r, err);
  if (s != SETUN_OK) return s;
  s = st_read_floats(&r, 0, w->shape.rows, data, err);
  st_row_reader_close(&r);
  return s;
}

setun_status setun_file_read(const setun_file *file, const char *name, int *n_dims, uint64_t dims[4], float *data,
                             size_t capacity, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  ST_NEED(file);
  ST_NEED(name);
  ST_NEED(n_dims);
  ST_NEED(dims);
  char *module = module_of(name);
  if (!module) return st_fail_memory(error, name);
  st_weight w;
  bool found = false;
  setun_status s = st_weight_find(file->directory, module, (st_shape){0, 0}, &found, &w, error);
  st_free(module);
  if (s != SETUN_OK) return s;
  if (!found) return st_fail(error, SETUN_ERROR_ARGUMENT, "%s: the tensor is not in %s", name, file->directory->path);
  if (data) s = read_rows(file->directory, &w, data, capacity, error);
  if (s != SETUN_OK) return s;
  if (w.shape.rows == st_tensor_shape(w.data).rows && !w.packed.kind && !w.block_scales) {
    *n_dims = (int)w.data->n_dims;
    for (uint32_t i = 0; i < w.data->n_dims; i++) dims[i] = w.data->dims[w.data->n_dims - 1 - i];
  } else { // several stored tensors, or packed rows
    *n_dims = 2;
    dims[0] = w.shape.rows;
    dims[1] = w.shape.columns;
  }
  return SETUN_OK;
}

// ---- scans --------------------------------------------------------------------------------------------------------

size_t setun_file_notice_count(const setun_file *file) {
  return file ? file->directory->notices->count : 0;
}

const char *setun_file_notice(const setun_file *file, size_t index) {
  return file && index < file->directory->notices->count ? file->directory->notices->lines[index] : NULL;
}

// The weight in a stored tensor, with all experts of a stack as one and without separate scales. Its format is NULL if
// the tensor is not a weight.
static setun_status weight_of(const st_directory *d, size_t index, st_weight *w, setun_error *err) {
  if (index >= d->n_tensors) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "tensor index: expected below %zu, found %zu", d->n_tensors, index);
  }
  const st_tensor *t = &d->tensors[index];
  st_shape shape = st_tensor_shape(t);
  *w = (st_weight){.name = t->name, .format = t->format, .shape = shape, .stored = shape, .row_step = 1, .data = t};
  bool found = false;
  st_weight other;
  setun_status s = SETUN_OK;
  if (!t->format) {
    s = find_packed(d, t, &found, &other, err);
  } else if (d->config && t->n_dims == 2) { // floats may be latent
    char *module = module_of(t->name);
    if (!module) return st_fail_memory(err, t->name);
    s = st_weight_find(d, module, (st_shape){0, 0}, &found, &other, err);
    st_free(module);
    found = found && s == SETUN_OK;
    if (s != SETUN_ERROR_MEMORY) s = SETUN_OK; // floats outside modules are used as they are
  }
  if (s == SETUN_OK && found) *w = other;
  return s;
}

// Divisors of RoPE frequencies, which cannot be zero.
static bool is_table(const st_directory *d, const char *name) {
  size_t n = strlen(name), end = strlen(".weight");
  for (int role = 0; role < ST_ROLE_COUNT && d->container == ST_GGUF && n > end; role++) {
    const st_role_info *r = st_role_get((st_role)role);
    if (r->kind != ST_KIND_TABLE || strncmp(name, r->gguf, n - end) || strlen(r->gguf) != n - end) continue;
    return !strcmp(name + n - end, ".weight");
  }
  return false;
}

static setun_status check_table(const st_directory *d, const st_weight *w, setun_error *err) {
  size_t n = (size_t)(w->shape.rows * w->shape.columns);
  float *values = st_malloc(n, sizeof *values);
  if (!values) return st_fail_memory(err, w->name);
  setun_status s = read_rows(d, w, values, n, err);
  if (s == SETUN_OK) s = st_rope_check_divisors(w->name, values, n, err);
  st_free(values);
  return s;
}

// Weights in several tensors: their rows as products would have them, whose scales the reader checks.
static setun_status check_joined(const st_directory *d, const st_weight *w, setun_error *err) {
  enum { RUN = 64 };
  st_row_reader r;
  void *bytes = st_malloc(RUN, (size_t)st_format_row_bytes(w->format, w->shape.columns));
  if (!bytes) return st_fail_memory(err, w->name);
  setun_status s = st_row_reader_open(d, w, &r, err);
  for (uint64_t row = 0; s == SETUN_OK && row < w->shape.rows; row += RUN) {
    uint64_t left = w->shape.rows - row;
    s = st_read_bytes(&r, row, left < RUN ? left : RUN, bytes, err);
  }
  st_row_reader_close(&r);
  st_free(bytes);
  return s;
}

setun_status setun_file_check(const setun_file *file, size_t index, int64_t *offset, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  st_weight w;
  int64_t found = -1;
  ST_NEED(file);
  ST_NEED(offset);
  setun_status s = weight_of(file->directory, index, &w, error);
  if (s == SETUN_OK && (!w.format || w.block_scales)) *offset = -1;
  if (s != SETUN_OK || !w.format) return s;
  if (w.block_scales) return check_joined(file->directory, &w, error);
  s = st_check_tensor(file->directory, w.data, w.format, w.stored, false, &found, error);
  st_zeros zeros;
  bool ternary = st_format_is_ternary(w.format);
  if (s == SETUN_OK && found < 0 && ternary) s = st_count_zeros(file->directory, &w, &zeros, error); // the scales
  if (s == SETUN_OK && found < 0 && is_table(file->directory, w.name)) s = check_table(file->directory, &w, error);
  if (s == SETUN_OK) *offset = found;
  return s;
}

setun_status setun_file_zeros(const setun_file *file, size_t index, setun_tensor_zeros *zeros, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  st_weight w;
  st_zeros z = {0};
  ST_NEED(file);
  setun_status s = weight_of(file->directory, index, &w, error);
  if (s == SETUN_OK && w.format && st_weight_is_ternary(&w)) s = st_count_zeros(file->directory, &w, &z, error);
  const setun_tensor_zeros found = {sizeof found, z.weights, z.zeros, z.columns, z.zero_columns};
  return s == SETUN_OK ? ST_FILL(zeros, &found) : s;
}
