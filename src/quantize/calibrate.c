// Calibration, layer by layer; see calibrate.h.
#include "quantize/calibrate.h"

#include "base/hash.h"
#include "base/memory.h"
#include "base/output.h"
#include "quantize/compensate.h"

#include <stdio.h>
#include <string.h>

enum { WIDTHS_MOST = 8 }; // different widths of inputs
// Sums of inputs that are in memory together: a layer with many experts takes several passes.
#define SUMS_MOST ((uint64_t)1 << 30)

// A matrix to be quantized.
typedef struct {
  const st_bound *bound;
  char *name; // in the target; owned
  const st_format *format;
  st_linear *linear;
  int32_t layer;
  uint64_t offset, bytes; // in the layer's file
  enum { WAITS, IS_SEEN, IS_DONE } state;
  size_t input; // of `inputs`, if seen
} matrix;

struct st_calibrated {
  char *target;
  uint64_t identity;
  matrix *items; // by layer
  size_t n;
  st_bound_list weights;
  st_hparams h;
  st_placement *placement;
};

// The layer that is being calibrated.
typedef struct {
  const st_calibration *o;
  st_calibrated *all;
  st_model *model;
  st_run *run;
  st_pool *pool;
  st_lapack lapack;
  float *hidden; // [n_windows][window][n_embd]
  float *seen;   // [window][columns]
  size_t seen_capacity;
  uint32_t *pages;
  matrix *first; // the layer's
  size_t n;
  st_hessian *inputs;
  size_t n_inputs, inputs_capacity;
  uint64_t sums;                // their bytes
  bool full;                    // some matrix's inputs had no room in this pass
  st_array *rooms[WIDTHS_MOST]; // one a width
  uint32_t widths[WIDTHS_MOST];
  int n_rooms;
  uint64_t done, total; // windows through layers
  setun_status status;  // of the tap
  setun_error *err;
} calibration;

// ---- which matrices -----------------------------------------------------------------------------------------------

static setun_status refuse(const st_bound *b, const char *why, setun_error *err) {
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: %s cannot be calibrated; give it a line \"keep\" in a recipe",
                 b->weight.data->name, why);
}

// The name in the target.
static char *target_name(const st_spec *spec, const st_bound *b) {
  char name[ST_NAME_SIZE];
  bool expert = b->expert >= 0 && st_gguf_target_name(spec, b->role, (uint32_t)b->layer, b->expert, name, sizeof name);
  return st_strdup(expert ? name : b->weight.data->name);
}

static setun_status add_matrix(st_calibrated *c, st_model *m, const st_bound *b, char *name, st_recipe *recipe,
                               uint64_t *offset, setun_error *err) {
  const st_format *f = st_recipe_format(recipe, name);
  const st_weight *w = &b->weight;
  matrix *x = &c->items[c->n++];
  *x = (matrix){.bound = b, .name = name, .format = f, .layer = b->layer, .offset = *offset};
  st_linear *linear = st_model_linear(m, b->role, b->layer, b->expert);
  if (linear->basis) return refuse(b, "a matrix with inputs in another basis", err);
  if (w->row_step > 1 || (b->expert < 0 && w->shape.rows != w->stored.rows))
    return refuse(b, "a part of a matrix", err);
  if (w->shape.columns % f->block) {
    char origin[300];
    setun_status s =
        st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: %s takes rows of a multiple of %u weights, these have %llu", name,
                f->name, (unsigned)f->block, (unsigned long long)w->shape.columns);
    return st_recipe_origin(recipe, name, origin, sizeof origin) ? st_fail_in(err, s, "%s", origin) : s;
  }
  x->linear = linear;
  x->bytes = w->shape.rows * st_codes_bytes(f, w->shape.columns);
  *offset += x->bytes;
  return SETUN_OK;
}

static setun_status list_matrices(st_calibrated *c, st_model *m, const st_calibration *o, setun_error *err) {
  setun_status s = SETUN_OK;
  uint64_t offset = 0;
  int32_t layer = -1;
  c->items = st_calloc(c->weights.n, sizeof *c->items);
  if (!c->items) return st_fail_memory(err, "the list of matrices");
  for (size_t i = 0; i < c->weights.n && s == SETUN_OK; i++) {
    const st_bound *b = &c->weights.items[i];
    if (b->layer < 0 || st_role_get(b->role)->kind != ST_KIND_LINEAR) continue;
    char *name = target_name(m->spec, b);
    if (!name) return st_fail_memory(err, b->weight.data->name);
    const st_format *f = st_recipe_format(o->recipe, name);
    bool exact = f && (f == b->weight.format || (st_format_is_ternary(f) && st_weight_is_ternary(&b->weight)));
    if (!f || exact) {
      st_free(name);
      continue;
    }
    if (b->layer != layer) offset = 0, layer = b->layer;
    s = add_matrix(c, m, b, name, o->recipe, &offset, err);
  }
  if (s == SETUN_OK && !c->n) s = st_fail(err, SETUN_ERROR_UNSUPPORTED, "none of its matrices can be calibrated");
  return s == SETUN_OK ? st_recipe_check(o->recipe, err) : s;
}

// ---- ternary formats ----------------------------------------------------------------------------------------------

static setun_status measure_matrix(const st_calibrated *c, const matrix *m, st_ternary_loss *loss, setun_error *err) {
  const st_weight *w = &m->bound->weight;
  size_t k = (size_t)w->shape.columns;
  st_magnitude *room = st_malloc(k, sizeof *room);
  float *x = st_malloc(k, 2 * sizeof *x), *scales = x ? x + k : NULL;
  int8_t *trits = st_malloc(k, 1);
  st_row_reader r = {0};
  setun_status s =
      room && x && trits ? st_row_reader_open(c->weights.directory, w, &r, err) : st_fail_memory(err, m->name);
  for (uint64_t row = 0; row < w->shape.rows && s == SETUN_OK; row++) {
    s = st_read_floats(&r, row, 1, x, err);
    if (s != SETUN_OK) break;
    st_ternary_row(m->format, k, x, NULL, room, trits, scales);
    st_ternary_loss_add(loss, m->name, m->format, 1, k, x, trits, scales);
  }
  st_row_reader_close(&r);
  st_free(room);
  st_free(x);
  st_free(trits);
  return s;
}

// Before a long calibration: what ternary formats would lose by rounding.
static setun_status measure_ternary(const st_calibrated *c, const st_calibration *o, setun_error *err) {
  st_ternary_loss loss = {0};
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < c->n && s == SETUN_OK; i++) {
    if (st_format_is_ternary(c->items[i].format)) s = measure_matrix(c, &c->items[i], &loss, err);
  }
  return s == SETUN_OK ? st_ternary_loss_judge(&loss, o->force, o->placement.log, err) : s;
}

// A hash of everything that a layer's result depends on.
static uint64_t identity_of(const st_calibrated *c, const st_model *m, const st_calibration *o) {
  uint64_t hash = st_hash(m->identity, o->ids, (size_t)o->n_windows * o->window * sizeof *o->ids);
  for (size_t i = 0; i < c->n; i++) {
    hash = st_hash(hash, c->items[i].name, strlen(c->items[i].name));
    hash = st_hash(hash, c->items[i].format->name, strlen(c->items[i].format->name));
  }
  return st_hash(hash, &o->window, sizeof o->window);
}

// ---- a layer's file -----------------------------------------------------------------------------------------------

typedef struct {
  uint64_t identity, bytes, check;
} file_head;

static char *file_name(const st_calibrated *c, int32_t layer) {
  st_buffer name = {0};
  if (st_buffer_format(&name, "%s.layer-%d", c->target, layer)) return name.data;
  st_buffer_free(&name);
  return NULL;
}

static setun_status write_layer(const st_calibrated *c, int32_t layer, const uint8_t *bytes, uint64_t n,
                                setun_error *err) {
  const file_head head = {c->identity, n, st_hash(ST_HASH_START, bytes, (size_t)n)};
  char *path = file_name(c, layer);
  st_output out;
  if (!path) return st_fail_memory(err, "a layer's file");
  setun_status s = st_output_open(path, &out, err);
  if (s == SETUN_OK) {
    s = st_output_write(&out, &head, sizeof head, err);
    if (s == SETUN_OK) s = st_output_write(&out, bytes, (size_t)n, err);
    if (s == SETUN_OK) s = st_output_commit(&out, err);
    if (s != SETUN_OK) st_output_discard(&out);
  }
  st_free(path);
  return s;
}

// False: there is no complete file that was made from the same model, text and formats.
static bool read_layer(const st_calibrated *c, int32_t layer, uint8_t *bytes, uint64_t n) {
  file_head head = {0};
  char *path = file_name(c, layer);
  st_file file;
  bool good = path && st_file_open(path, &file, NULL) == SETUN_OK;
  if (good) {
    good = file.size == sizeof head + n && st_file_read(&file, 0, &head, sizeof head, NULL) == SETUN_OK &&
           head.identity == c->identity && head.bytes == n &&
           st_file_read(&file, sizeof head, bytes, (size_t)n, NULL) == SETUN_OK &&
           head.check == st_hash(ST_HASH_START, bytes, (size_t)n);
    st_file_close(&file);
  }
  st_free(path);
  return good;
}

// ---- inputs -------------------------------------------------------------------------------------------------------

static st_array *room(void *context, uint32_t columns) {
  calibration *c = context;
  for (int i = 0; i < c->n_rooms; i++) {
    if (c->widths[i] == columns) return c->rooms[i];
  }
  st_array *made = NULL;
  if (c->n_rooms == WIDTHS_MOST || c->status != SETUN_OK) return NULL;
  c->status = c->model->backend->array_new(c->run->queue, c->o->window, columns, &made, c->err);
  if (c->status != SETUN_OK) return NULL;
  c->widths[c->n_rooms] = columns;
  return c->rooms[c->n_rooms++] = made;
}

static matrix *find_matrix(const calibration *c, const st_linear *linear) {
  for (size_t i = 0; i < c->n; i++) {
    if (c->first[i].linear == linear) return &c->first[i];
  }
  return NULL;
}

static void free_inputs(calibration *c) {
  while (c->n_inputs) st_hessian_free(&c->inputs[--c->n_inputs]);
  c->sums = 0;
}

// Begins the sums of a matrix's inputs. They wait for another pass if they do not fit.
static bool begin_input(calibration *c, matrix *m, uint32_t columns) {
  uint64_t bytes = (uint64_t)columns * columns * sizeof(float), most = c->o->sums ? c->o->sums : SUMS_MOST;
  if (c->n_inputs && bytes + c->sums > most) {
    c->full = true;
    return false;
  }
  if (!st_reserve(&c->inputs, &c->inputs_capacity, c->n_inputs + 1, sizeof *c->inputs)) {
    c->status = st_fail_memory(c->err, m->name);
    return false;
  }
  c->status = st_hessian_new(&c->inputs[c->n_inputs], columns, c->err);
  if (c->status != SETUN_OK) return false;
  c->sums += bytes;
  m->state = IS_SEEN;
  m->input = c->n_inputs++;
  return true;
}

static void see(void *context, const st_linear *const *linears, int count, st_array *input, uint32_t n) {
  calibration *c = context;
  uint32_t columns = linears[0]->columns;
  const matrix *first = NULL;
  for (int i = 0; i < count && c->status == SETUN_OK; i++) {
    matrix *m = find_matrix(c, linears[i]);
    if (!m || m->state == IS_DONE) continue;
    if (m->state == WAITS && first) m->state = IS_SEEN, m->input = first->input;
    if (m->state == WAITS && !begin_input(c, m, columns)) return;
    first = m;
  }
  if (!first || c->status != SETUN_OK) return;
  if (!st_reserve(&c->seen, &c->seen_capacity, (size_t)n * columns, sizeof *c->seen)) {
    c->status = st_fail_memory(c->err, "a window's inputs");
    return;
  }
  c->status = c->model->backend->read(c->run->queue, input, 0, (size_t)n * columns, c->seen, c->err);
  if (c->status == SETUN_OK) st_hessian_add(&c->inputs[first->input], &c->lapack, c->seen, n);
}

// ---- a layer ------------------------------------------------------------------------------------------------------

static setun_status report(calibration *c) {
  const st_placement_options *p = &c->o->placement;
  double fraction = (double)++c->done / (double)c->total;
  if (!p->progress || p->progress(fraction < 1 ? fraction : 1, p->user)) return SETUN_OK;
  return st_fail(c->err, SETUN_ERROR_CANCELED, "calibration was canceled; the same command continues it");
}

// Runs a layer on all windows. With `keep`, its outputs replace its inputs.
static setun_status run_windows(calibration *c, uint32_t layer, bool keep) {
  const st_backend *b = c->model->backend;
  uint32_t n = c->o->window, stride = st_blocks(n);
  size_t floats = (size_t)n * c->model->h.n_embd;
  st_token_run all = {.n = n, .pages = c->pages, .stride = stride, .state_from = ST_NO_STATE};
  const st_batch batch = {&all, 1, n};
  setun_status s = SETUN_OK;
  for (uint32_t i = 0; i < c->o->n_windows && s == SETUN_OK; i++) {
    float *x = c->hidden + i * floats;
    s = b->write(c->run->queue, c->run->x, 0, floats, x, c->err);
    if (s == SETUN_OK) s = st_run_layer(c->run, layer, &batch, c->err);
    if (s == SETUN_OK && keep) s = b->read(c->run->queue, c->run->x, 0, floats, x, c->err);
    if (s == SETUN_OK) s = b->finish(c->run->queue, c->err);
    if (s == SETUN_OK) s = c->status;
    if (s == SETUN_OK) s = report(c);
  }
  return s;
}

static setun_status read_floats(calibration *c, const st_weight *w, float *out) {
  st_row_reader r;
  setun_status s = st_row_reader_open(c->all->weights.directory, w, &r, c->err);
  if (s != SETUN_OK) return s;
  s = st_read_floats(&r, 0, w->shape.rows, out, c->err);
  st_row_reader_close(&r);
  return s;
}

static setun_status quantize_matrix(calibration *c, const matrix *m, const st_compensation *shared, uint8_t *bytes) {
  const st_weight *w = &m->bound->weight;
  float *x = st_malloc((size_t)(w->shape.rows * w->shape.columns), sizeof *x);
  setun_status s = x ? read_floats(c, w, x) : st_fail_memory(c->err, m->name);
  if (s == SETUN_OK) s = st_compensate(shared, m->format, w->shape.rows, x, c->pool, bytes + m->offset, c->err);
  if (s == SETUN_OK && !st_format_is_ternary(m->format)) {
    int64_t bad = st_format_check_scales(m->format, w->shape.columns, bytes + m->offset, m->bytes);
    if (bad >= 0)
      s = st_fail(c->err, SETUN_ERROR_UNSUPPORTED, "%s: weights too large for %s", m->name, m->format->name);
  }
  st_free(x);
  return s;
}

// Experts to which few tokens were routed, less than a quarter of the columns, are rounded: the errors that their
// inputs show are not those of other tokens.
static bool has_few(const calibration *c, const matrix *m) {
  if (m->bound->expert < 0 || m->state == IS_DONE) return false;
  return m->state == WAITS ? !c->full : c->inputs[m->input].tokens < m->bound->weight.shape.columns / 4;
}

// Quantizes the matrices with the same input, first those whose columns are ordered.
static setun_status quantize_input(calibration *c, size_t input, uint8_t *bytes) {
  setun_status s = SETUN_OK;
  for (int ordered = 1; ordered >= 0; ordered--) {
    st_compensation shared = {0};
    for (size_t i = 0; i < c->n && s == SETUN_OK; i++) {
      matrix *m = &c->first[i];
      if (m->state != IS_SEEN || m->input != input || st_is_ordered(m->format) != ordered || has_few(c, m)) continue;
      if (!shared.n) s = st_compensation_new(&c->inputs[input], &c->lapack, ordered, &shared, c->err);
      if (s == SETUN_OK) s = quantize_matrix(c, m, &shared, bytes);
      if (s != SETUN_OK) st_fail_in(c->err, s, "%s", m->name);
      m->state = IS_DONE;
    }
    st_compensation_free(&shared);
  }
  return s;
}

// Rounds the matrices of experts with few tokens, and names the experts.
static setun_status round_few(calibration *c, uint32_t layer, uint8_t *bytes) {
  st_buffer names = {0};
  int32_t last = -1;
  uint64_t n = 0;
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < c->n && s == SETUN_OK; i++) {
    matrix *m = &c->first[i];
    if (!has_few(c, m)) continue;
    const st_compensation none = {.n = (uint32_t)m->bound->weight.shape.columns};
    s = quantize_matrix(c, m, &none, bytes);
    m->state = IS_DONE;
    if (m->bound->expert != last) st_buffer_format(&names, "%s%d", n++ ? ", " : "", m->bound->expert);
    last = m->bound->expert;
  }
  if (n) {
    st_log_write(c->o->placement.log, SETUN_LOG_WARNING,
                 "layer %u: too few tokens were routed to %llu of the experts, whose matrices are rounded: %s", layer,
                 (unsigned long long)n, names.data ? names.data : "");
  }
  st_buffer_free(&names);
  return s;
}

// One pass over the windows, and the matrices whose inputs it had room for.
static setun_status make_pass(calibration *c, uint32_t layer, uint8_t *bytes) {
  const st_tap tap = {c, room, see};
  c->full = false;
  c->run->tap = &tap;
  setun_status s = run_windows(c, layer, false);
  c->run->tap = NULL;
  for (size_t i = 0; i < c->n && s == SETUN_OK && !c->full; i++) {
    const st_bound *b = c->first[i].bound;
    if (c->first[i].state == WAITS && b->expert < 0) s = refuse(b, "a matrix whose inputs are not observed", c->err);
  }
  for (size_t i = 0; i < c->n_inputs && s == SETUN_OK; i++) s = quantize_input(c, i, bytes);
  if (s == SETUN_OK) s = round_few(c, layer, bytes);
  free_inputs(c);
  return s;
}

static setun_status make_layer(calibration *c, uint32_t layer, uint8_t *bytes) {
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < c->n; i++) c->first[i].state = WAITS;
  do s = make_pass(c, layer, bytes);
  while (s == SETUN_OK && c->full);
  return s;
}

// Rows of codes of a ternary format.
static void split(const st_format *f, uint64_t rows, uint64_t columns, const uint8_t *codes, int8_t *trits,
                  float *scales) {
  size_t groups = (size_t)(columns / st_ternary_group(f, columns));
  for (uint64_t row = 0; row < rows; row++) {
    memcpy(scales, codes, groups * sizeof *scales);
    codes += groups * sizeof *scales, scales += groups;
    memcpy(trits, codes, (size_t)columns);
    codes += columns, trits += columns;
  }
}

static void decode(const matrix *m, const uint8_t *codes, float *x) {
  st_shape shape = m->bound->weight.shape;
  const st_strip all = {.count = shape.rows, .bytes = m->bytes};
  if (!st_format_is_ternary(m->format)) {
    m->format->ops->decode(m->format, shape, &all, codes, x);
    return;
  }
  uint64_t group = st_ternary_group(m->format, shape.columns), bytes = m->bytes / shape.rows;
  for (uint64_t row = 0; row < shape.rows; row++, codes += bytes) {
    const uint8_t *trits = codes + shape.columns / group * sizeof(float);
    for (uint64_t k = 0; k < shape.columns; k++) {
      float d;
      memcpy(&d, codes + k / group * sizeof d, sizeof d);
      *x++ = (float)(int8_t)trits[k] * d;
    }
  }
}

// Replaces the original matrix in the model by the quantized one.
static setun_status replace(calibration *c, const matrix *m, const uint8_t *bytes) {
  const st_backend *b = c->model->backend;
  const st_matrix_desc desc = {
      .format = m->format, .shape = m->bound->weight.shape, .precision = ST_PRECISION_FAST, .ownership = ST_OWNED};
  st_matrix_info info = b->matrix_info(c->model->device, &desc);
  uint64_t n = desc.shape.rows, k = desc.shape.columns;
  st_matrix_rows rows = {.count = n, .data = bytes + m->offset};
  float *x = NULL;
  st_dmatrix *made = NULL;
  setun_status s = b->matrix_new(c->model->device, &desc, &made, c->err);
  if (s == SETUN_OK && info.rows != ST_ROWS_BYTES) {
    x = st_malloc((size_t)(n * k), 2 * sizeof *x); // floats, or scales and trits
    if (!x) s = st_fail_memory(c->err, m->name);
  }
  if (x && info.rows == ST_ROWS_FLOAT) {
    decode(m, rows.data, x);
    rows.data = x;
  } else if (x && info.rows == ST_ROWS_TRITS) {
    int8_t *trits = (int8_t *)(x + n * k);
    split(m->format, n, k, rows.data, trits, x);
    rows.data = trits, rows.scales = x;
  }
  if (s == SETUN_OK) s = b->matrix_write(made, &rows, c->err);
  if (s == SETUN_OK && b->matrix_finalize) s = b->matrix_finalize(c->model->device, made, c->pool, c->err);
  st_free(x);
  if (s != SETUN_OK) {
    if (made) b->matrix_free(made);
    return s;
  }
  b->matrix_free(m->linear->matrix);
  m->linear->matrix = made;
  return SETUN_OK;
}

static setun_status do_layer(calibration *c, uint32_t layer) {
  st_calibrated *all = c->all;
  uint64_t bytes = 0;
  c->first = NULL, c->n = 0;
  for (size_t i = 0; i < all->n; i++) {
    if (all->items[i].layer != (int32_t)layer) continue;
    if (!c->n++) c->first = &all->items[i];
    bytes += all->items[i].bytes;
  }
  uint8_t *codes = bytes ? st_malloc((size_t)bytes, 1) : NULL;
  setun_status s = codes || !bytes ? SETUN_OK : st_fail_memory(c->err, "a layer's codes");
  if (s == SETUN_OK && c->n) {
    if (read_layer(all, (int32_t)layer, codes, bytes)) {
      c->done += c->o->n_windows;
    } else {
      s = make_layer(c, layer, codes);
      if (s == SETUN_OK) s = write_layer(all, (int32_t)layer, codes, bytes, c->err);
    }
  }
  for (size_t i = 0; i < c->n && s == SETUN_OK; i++) s = replace(c, &c->first[i], codes);
  st_free(codes);
  return s == SETUN_OK && layer + 1 < c->model->h.n_layer ? run_windows(c, layer, true) : s;
}

// ---- all ----------------------------------------------------------------------------------------------------------

static setun_status embed(calibration *c) {
  size_t floats = (size_t)c->o->window * c->model->h.n_embd;
  setun_status s = SETUN_OK;
  for (uint32_t i = 0; i < c->o->n_windows && s == SETUN_OK; i++) {
    s = st_run_embed(c->run, c->o->ids + (size_t)i * c->o->window, c->o->window, c->err);
    if (s == SETUN_OK) s = c->model->backend->read(c->run->queue, c->run->x, 0, floats, c->hidden + i * floats, c->err);
  }
  return s;
}

static setun_status new_run(calibration *c) {
  setun_context_params p = {.n_ctx = c->o->window, .n_batch = c->o->window, .n_seq_max = 1};
  st_run_options options;
  uint32_t stride = st_blocks(c->o->window), n_layer = c->model->h.n_layer;
  setun_status s = st_run_options_of(c->model, &p, &options, c->err);
  if (s == SETUN_OK) s = st_run_new(c->model, &options, &c->run, c->err);
  if (s == SETUN_OK) s = st_pool_new(NULL, options.threads, &c->pool, c->err);
  if (s != SETUN_OK) return s;
  c->pages = st_malloc((size_t)n_layer * stride, sizeof *c->pages); // layers are not at work together and share pages
  size_t floats = (size_t)c->o->n_windows * c->o->window;
  bool fits = st_mul_size(floats, c->model->h.n_embd, &floats);
  c->hidden = fits ? st_malloc(floats, sizeof *c->hidden) : NULL;
  if (!c->pages || !c->hidden) return st_fail_memory(c->err, "the windows' hidden states");
  for (uint32_t i = 0; i < n_layer * stride; i++) c->pages[i] = i % stride;
  return SETUN_OK;
}

static void close_run(calibration *c) {
  for (int i = 0; i < c->n_rooms; i++) c->model->backend->array_free(c->rooms[i]);
  free_inputs(c);
  st_free(c->inputs);
  st_run_free(c->run);
  st_pool_free(c->pool);
  st_free(c->pages);
  st_free(c->hidden);
  st_free(c->seen);
}

static setun_status run_layers(st_calibrated *all, const st_calibration *o, setun_error *err) {
  calibration c = {.o = o, .all = all, .model = all->placement->model, .err = err};
  c.total = (uint64_t)o->n_windows * (2 * c.model->h.n_layer - 1);
  setun_status s = st_lapack_load(&c.lapack, err);
  if (s == SETUN_OK) s = new_run(&c);
  if (s == SETUN_OK) s = embed(&c);
  for (uint32_t layer = 0; layer < c.model->h.n_layer && s == SETUN_OK; layer++) s = do_layer(&c, layer);
  close_run(&c);
  return s;
}

static setun_status load(st_calibrated *c, const st_directory *d, const st_calibration *o, setun_error *err) {
  st_placement_options p = o->placement;
  setun_context_params context = {.n_ctx = o->window, .n_batch = o->window, .n_seq_max = 1};
  p.context = &context;
  p.progress = NULL;
  setun_status s = st_placement_load(d, &p, &c->placement, err);
  if (s != SETUN_OK) return s;
  if (c->placement->streamer) {
    return st_fail(err, SETUN_ERROR_MEMORY, "calibration needs the whole model in memory, in its own format");
  }
  c->h = c->placement->model->h;
  return st_bind(d, c->placement->model->spec, &c->h, &c->weights, err);
}

setun_status st_calibrate(const st_directory *d, const st_calibration *o, st_calibrated **calibrated,
                          setun_error *err) {
  setun_error own;
  if (!err) err = &own;
  st_calibrated *c = st_calloc(1, sizeof *c);
  if (!c || !(c->target = st_strdup(o->target))) {
    st_free(c);
    return st_fail_memory(err, "the calibration");
  }
  setun_status s = load(c, d, o, err);
  if (s == SETUN_OK) s = list_matrices(c, c->placement->model, o, err);
  if (s == SETUN_OK) s = measure_ternary(c, o, err);
  if (s == SETUN_OK) {
    c->identity = identity_of(c, c->placement->model, o);
    s = run_layers(c, o, err);
  }
  st_placement_free(c->placement);
  c->placement = NULL;
  if (s == SETUN_OK) {
    *calibrated = c;
  } else {
    st_calibrated_free(c, false);
  }
  return s;
}

static const matrix *calibrated_matrix(const st_calibrated *c, const char *name) {
  for (size_t i = 0; i < c->n; i++) {
    if (!strcmp(c->items[i].name, name)) return &c->items[i];
  }
  return NULL;
}

setun_status st_calibrated_rows(const st_calibrated *c, const char *name, uint64_t row, uint64_t count, void *bytes,
                                bool *found, setun_error *err) {
  const matrix *m = calibrated_matrix(c, name);
  *found = m != NULL;
  if (!m) return SETUN_OK;
  uint64_t row_bytes = m->bytes / m->bound->weight.shape.rows;
  char *path = file_name(c, m->layer);
  st_file file;
  setun_status s = path ? st_file_open(path, &file, err) : st_fail_memory(err, name);
  if (s == SETUN_OK) {
    s = st_file_read(&file, sizeof(file_head) + m->offset + row * row_bytes, bytes, (size_t)(count * row_bytes), err);
    st_file_close(&file);
  }
  st_free(path);
  return s;
}

setun_status st_calibrated_trits(const st_calibrated *c, const char *name, uint64_t row, uint64_t count, int8_t *trits,
                                 float *scales, bool *found, setun_error *err) {
  const matrix *m = calibrated_matrix(c, name);
  *found = m != NULL;
  if (!m) return SETUN_OK;
  uint8_t *codes = st_malloc((size_t)count, (size_t)(m->bytes / m->bound->weight.shape.rows));
  setun_status s = codes ? st_calibrated_rows(c, name, row, count, codes, found, err) : st_fail_memory(err, name);
  if (s == SETUN_OK) split(m->format, count, m->bound->weight.shape.columns, codes, trits, scales);
  st_free(codes);
  return s;
}

void st_calibrated_free(st_calibrated *c, bool finished) {
  if (!c) return;
  for (uint32_t layer = 0; layer < c->h.n_layer && finished; layer++) {
    char *path = file_name(c, (int32_t)layer);
    if (path) remove(path);
    st_free(path);
  }
  for (size_t i = 0; i < c->n; i++) st_free(c->items[i].name);
  st_bound_list_free(&c->weights);
  st_free(c->items);
  st_free(c->target);
  st_free(c);
}
