// Placing bound weights on the device according to the memory plan: vectors, resident matrices, and matrices whose
// codes are read for each pass.
#include "placement/loader.h"

#include "base/memory.h"
#include "model/rope.h"
#include "placement/copy.h"

#include <float.h>
#include <math.h>
#include <string.h>

// ---- vectors ------------------------------------------------------------------------------------------------------

// Normalized vectors have a mean square of 1, so that no element exceeds the root of their length.
static setun_status check_norm(const st_weight *w, const float *values, size_t n, setun_error *err) {
  for (size_t i = 0; i < n; i++) {
    if (fabs((double)values[i]) * sqrt((double)n) <= FLT_MAX) continue;
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "%s: element %zu: expected at most %g, beyond which normalized values overflow float32, found %g",
                   w->name, i, FLT_MAX / sqrt((double)n), (double)values[i]);
  }
  return SETUN_OK;
}

static size_t elements(const st_weight *w) {
  return (size_t)(w->shape.rows * w->shape.columns);
}

// The vector's floats, with 1 added to a norm's where the file stores norms minus one; freed with st_free.
static setun_status read_vector(st_loader *l, const st_weight *w, st_role_kind kind, float **out) {
  size_t n = elements(w);
  float *values = st_malloc(n, sizeof *values);
  if (!values) return st_fail_memory(l->err, w->name);
  st_row_reader r;
  setun_status s = st_row_reader_open(l->d, w, &r, l->err);
  if (s == SETUN_OK) {
    s = st_read_floats(&r, 0, w->shape.rows, values, l->err);
    st_row_reader_close(&r);
  }
  for (size_t i = 0; i < n && kind == ST_KIND_NORM && l->m->h.norm_plus_one; i++) values[i] += 1;
  if (s == SETUN_OK && (kind == ST_KIND_NORM || kind == ST_KIND_PLAIN_NORM)) s = check_norm(w, values, n, l->err);
  if (s == SETUN_OK) {
    *out = values;
  } else {
    st_free(values);
  }
  return s;
}

// Copies to the device; takes ownership of the floats.
static setun_status place_floats(st_loader *l, float *values, size_t n, st_dvector **out) {
  setun_status s = l->m->backend->vector_new(l->m->device, values, n, out, l->err);
  if (s == SETUN_OK) l->m->weight_bytes += n * sizeof(float);
  if (s == SETUN_OK) l->m->n_params += n;
  st_free(values);
  return s;
}

static setun_status place_vector(st_loader *l, const st_weight *w, st_role_kind kind, st_dvector **out) {
  float *values = NULL;
  setun_status s = read_vector(l, w, kind, &values);
  return s == SETUN_OK ? place_floats(l, values, elements(w), out) : s;
}

// Column by column.
static setun_status place_taps(st_loader *l, const st_weight *w, st_dvector **out) {
  size_t rows = (size_t)w->shape.rows, columns = (size_t)w->shape.columns;
  float *values = NULL, *turned = st_malloc(rows * columns, sizeof *turned);
  setun_status s = turned ? read_vector(l, w, ST_KIND_VECTOR, &values) : st_fail_memory(l->err, w->name);
  for (size_t i = 0; s == SETUN_OK && i < rows * columns; i++) turned[i % columns * rows + i / columns] = values[i];
  st_free(values);
  if (s == SETUN_OK) return place_floats(l, turned, rows * columns, out);
  st_free(turned);
  return s;
}

// The rate of a decay; positive.
static setun_status place_rate(st_loader *l, const st_weight *w, st_dvector **out) {
  float *values = NULL;
  setun_status s = read_vector(l, w, ST_KIND_VECTOR, &values);
  for (size_t i = 0; s == SETUN_OK && i < elements(w); i++) {
    values[i] = l->m->h.delta.log_rate ? (float)exp((double)values[i]) : -values[i];
    if (values[i] >= 0 && isfinite(values[i])) continue;
    s = st_fail(l->err, SETUN_ERROR_FORMAT, "%s: element %zu: expected %s, found a rate of %g", w->name, i,
                l->m->h.delta.log_rate ? "the logarithm of a float32 number" : "a number of at most 0",
                (double)values[i]);
  }
  if (s == SETUN_OK) return place_floats(l, values, elements(w), out);
  st_free(values);
  return s;
}

// Divisors of frequencies: the forward pass multiplies positions by their reciprocals.
static setun_status read_table(st_loader *l, const st_weight *w, float **out) {
  st_free(*out);
  *out = NULL;
  setun_status s = read_vector(l, w, ST_KIND_VECTOR, out);
  if (s == SETUN_OK) l->m->n_params += w->shape.columns;
  return s == SETUN_OK ? st_rope_check_divisors(w->name, *out, elements(w), l->err) : s;
}

static setun_status place_role_vector(st_loader *l, const st_bound *b) {
  st_model *m = l->m;
  const st_weight *w = &b->weight;
  st_dvector **to = st_model_vector(m, b->role, b->layer);
  if (b->layer >= 0) m->layers[b->layer].width[b->role] = (uint32_t)w->shape.columns;
  switch (st_role_get(b->role)->kind) {
  case ST_KIND_TABLE: return read_table(l, w, st_model_table(m, b->role));
  case ST_KIND_TAPS: return place_taps(l, w, to);
  case ST_KIND_RATE: return place_rate(l, w, to);
  default: return place_vector(l, w, st_role_get(b->role)->kind, to);
  }
}

// ---- matrices -----------------------------------------------------------------------------------------------------

static setun_status report(st_loader *l, const st_weight *w) {
  l->bytes_done += w->data->bytes / w->stored.rows * w->shape.rows; // one expert of a stack
  double fraction = l->bytes_total ? (double)l->bytes_done / (double)l->bytes_total : 1;
  if (l->o->progress && !l->o->progress(fraction < 1 ? fraction : 1, l->o->user)) {
    return st_fail(l->err, SETUN_ERROR_CANCELED, "loading was canceled");
  }
  return SETUN_OK;
}

static setun_status place_resident(st_loader *l, const st_weight *w, const st_placing *how, st_dmatrix **out) {
  const st_backend *b = l->m->backend;
  st_matrix_desc desc = st_placing_desc(how, w, ST_OWNED);
  setun_status s = b->matrix_new(l->m->device, &desc, out, l->err);
  if (s != SETUN_OK) return st_fail_in(l->err, s, "%s", w->name);
  s = st_copy_matrix(&(st_copy){b, l->m->device, l->d, w, how->format, *out}, l->pool, l->err);
  if (s == SETUN_OK) s = b->matrix_finalize(l->m->device, *out, l->pool, l->err);
  if (s != SETUN_OK) b->matrix_free(*out), *out = NULL;
  return s;
}

// A matrix with borrowed codes: read for each pass, or used in the mapped file.
static setun_status place_borrowed(st_loader *l, const st_weight *w, const st_placing *how, const st_memory_item *item,
                                   st_dmatrix **out) {
  const st_backend *b = l->m->backend;
  st_matrix_desc desc = st_placing_desc(how, w, item->resident ? ST_MAPPED : ST_BORROWED);
  setun_status s = b->matrix_new(l->m->device, &desc, out, l->err);
  if (s != SETUN_OK) return st_fail_in(l->err, s, "%s", w->name);
  s = st_streamer_add(l->streamer, item, w, how->format, *out, l->err);
  if (s != SETUN_OK) b->matrix_free(*out), *out = NULL;
  return s;
}

// The streamed head, in pieces.
static setun_status place_pieces(st_loader *l, const st_weight *w, const st_placing *how, const st_memory_item *items) {
  st_model *m = l->m;
  const st_memory_plan *p = l->plan;
  setun_status s = SETUN_OK;
  m->head = st_calloc(p->n_pieces, sizeof *m->head);
  if (!m->head) return st_fail_memory(l->err, w->name);
  for (uint32_t i = 0; i < p->n_pieces && s == SETUN_OK; i++) {
    st_linear *piece = &m->head[m->n_head++];
    st_weight part = st_head_piece(p, w, i);
    piece->first_row = (uint32_t)(i * p->piece_rows);
    piece->columns = (uint32_t)w->shape.columns;
    st_memory_item item = items[i];
    st_matrix_desc desc = st_placing_desc(how, &part, ST_BORROWED);
    item.codes = m->backend->matrix_info(m->device, &desc).codes;
    s = place_borrowed(l, &part, how, &item, &piece->matrix);
  }
  return s;
}

static setun_status place_codes(st_loader *l, size_t index, const st_placing *how, st_matrix_info size,
                                st_dmatrix **out) {
  const st_weight *w = &l->weights->items[index].weight;
  const st_memory_item *items = &l->plan->items[l->plan->spans[index].first];
  bool is_head = index == l->weights->head, is_embedding = index == l->weights->embedding;
  if (items->resident && !(l->plan->mapped && items->direct)) return place_resident(l, w, how, out);
  if (items->resident || !(is_embedding || is_head)) {
    st_memory_item item = *items;
    item.codes = size.codes; // the plan may have assumed floats to be ternary
    return place_borrowed(l, w, how, &item, out);
  }
  setun_status s = SETUN_OK;
  if (is_embedding) s = st_streamer_add_rows(l->streamer, w, how->format, how->precision, l->err);
  return s == SETUN_OK && is_head ? place_pieces(l, w, how, items) : s;
}

static setun_status place_matrix(st_loader *l, size_t index, st_linear *out, uint64_t *bytes) {
  st_model *m = l->m;
  const st_bound *b = &l->weights->items[index];
  st_placing how = st_placing_of(l, b);
  st_matrix_desc desc = st_placing_desc(&how, &b->weight, ST_OWNED);
  st_matrix_info size = m->backend->matrix_info(m->device, &desc);
  setun_status s = place_codes(l, index, &how, size, &out->matrix);
  if (s != SETUN_OK) return s;
  if (st_placing_is_fast(&how)) m->fast = true;
  *bytes = out->matrix ? m->backend->matrix_bytes(out->matrix) : size.own + size.beside;
  m->n_params += b->weight.shape.rows * b->weight.shape.columns;
  m->weight_bytes += *bytes;
  out->columns = (uint32_t)b->weight.shape.columns;
  return report(l, &b->weight);
}

static st_basis *add_basis(st_loader *l, uint32_t width) {
  st_basis *made = st_calloc(1, sizeof *made);
  if (!made) return NULL;
  *made = (st_basis){.width = width, .next = l->m->bases};
  l->m->bases = made;
  return made;
}

// The basis for inputs as wide as the weight's rows, made for the first matrix that uses it.
static setun_status find_basis(st_loader *l, const st_bound *b, const st_basis **basis) {
  st_model *m = l->m;
  uint32_t width = (uint32_t)b->weight.shape.columns;
  const float *signs = st_rotation_signs(m->h.rotation, width);
  for (*basis = m->bases; *basis; *basis = (*basis)->next) {
    if ((*basis)->width == width && !(*basis)->order) return SETUN_OK;
  }
  st_basis *made = add_basis(l, width);
  if (!made) return st_fail_memory(l->err, b->weight.name);
  made->block = m->h.rotation->block;
  *basis = made;
  if (!signs) return SETUN_OK;
  m->weight_bytes += width * sizeof(float);
  return m->backend->vector_new(m->device, signs, width, &made->signs, l->err);
}

// The order of the weight's columns. Matrices with one input mostly share it, and are near one another.
static setun_status find_order(st_loader *l, const st_bound *b, const st_basis **basis) {
  enum { NEAR = 64 };
  if (b == &l->weights->items[l->weights->embedding]) {
    return st_fail(l->err, SETUN_ERROR_UNSUPPORTED, "%s: an embedding with columns in another order is not supported",
                   b->weight.name);
  }
  uint32_t width = (uint32_t)b->weight.shape.columns;
  st_row_reader r;
  setun_status s = st_row_reader_open(l->d, &b->weight, &r, l->err);
  if (s != SETUN_OK) return s;
  size_t bytes = width * sizeof *r.order;
  const st_basis *found = l->m->bases;
  for (int i = 0; found; found = i++ < NEAR ? found->next : NULL) {
    if (found->width == width && found->order && !memcmp(found->order, r.order, bytes)) break;
  }
  st_basis *made = found ? NULL : add_basis(l, width);
  if (made) {
    made->order = r.order;
    r.order = NULL;
    l->m->weight_bytes += bytes;
    found = made;
  }
  st_row_reader_close(&r);
  *basis = found;
  return found ? SETUN_OK : st_fail_memory(l->err, b->weight.name);
}

static setun_status place_beside(st_loader *l, const st_bound *b, st_linear *out) {
  const st_weight *beside = l->weights->beside;
  setun_status s = SETUN_OK;
  if (b->bias) s = place_vector(l, &beside[b->bias - 1], ST_KIND_VECTOR, &out->bias);
  if (s == SETUN_OK && b->norm) s = place_vector(l, &beside[b->norm - 1], ST_KIND_VECTOR, &out->norm);
  return s;
}

static setun_status place_weight(st_loader *l, size_t index, st_decode_cost *cost) {
  st_bound *b = &l->weights->items[index];
  uint64_t before = l->m->weight_bytes, bytes = 0;
  setun_status s = st_bound_finalize(l->weights, b, l->err);
  if (s != SETUN_OK) return s;
  if (!st_role_is_matrix(b->role)) {
    s = place_role_vector(l, b);
  } else {
    st_linear *to = st_model_linear(l->m, b->role, b->layer, b->expert);
    s = place_matrix(l, index, to, &bytes);
    if (s == SETUN_OK && b->rotated) s = find_basis(l, b, &to->basis);
    if (s == SETUN_OK && b->weight.packed.ordered) s = find_order(l, b, &to->basis);
    if (s == SETUN_OK) s = place_beside(l, b, to);
  }
  if (s == SETUN_OK) st_count_decode(l, index, bytes, l->m->weight_bytes - before - bytes, cost);
  return s;
}

// Bias and norm of a head in pieces: shared by all pieces, except adapters, which the last piece has.
static void finish_pieces(st_model *m) {
  for (uint32_t i = 0; i < m->n_head; i++) {
    m->head[i].bias = m->output.bias;
    m->head[i].norm = m->output.norm;
    m->head[i].basis = m->output.basis;
  }
  if (!m->n_head) return;
  st_linear *last = &m->head[m->n_head - 1]; // whose product comes after all rows of the output
  last->number = m->output.number;
}

static setun_status make_layers(st_loader *l) {
  st_model *m = l->m;
  m->layers = st_calloc(m->h.n_layer, sizeof *m->layers);
  bool whole = m->layers != NULL;
  for (uint32_t i = 0; i < m->h.n_layer && whole; i++) {
    if (!m->h.sparse[i]) continue;
    m->layers[i].experts = st_calloc(m->h.n_expert, sizeof *m->layers[i].experts);
    whole = m->layers[i].experts != NULL;
  }
  return whole ? SETUN_OK : st_fail_memory(l->err, "the model's layers");
}

// Numbers the matrices that adapters may apply to. The head's matrix may be the embedding's, or in pieces.
static void number_matrices(st_model *m) {
  m->output.number = ST_LORA_HEAD;
  m->n_linear = ST_LORA_HEAD + 1;
  for (uint32_t i = 0; i < m->h.n_layer; i++) {
    st_layer *layer = &m->layers[i];
    for (int role = 0; role < ST_ROLE_COUNT; role++) {
      if (layer->linear[role].matrix) layer->linear[role].number = m->n_linear++;
    }
    for (uint32_t e = 0; layer->experts && e < m->h.n_expert; e++) {
      layer->experts[e].gate.number = m->n_linear++;
      layer->experts[e].up.number = m->n_linear++;
      layer->experts[e].down.number = m->n_linear++;
    }
  }
}

setun_status st_place_weights(st_loader *l) {
  st_model *m = l->m;
  st_decode_cost cost = {.layer = -1};
  setun_status s = make_layers(l);
  for (size_t i = 0; i < l->d->n_tensors; i++) l->bytes_total += l->d->tensors[i].bytes;
  for (size_t i = 0; i < l->weights->n && s == SETUN_OK; i++) s = place_weight(l, i, &cost);
  if (s != SETUN_OK) return s;
  st_count_decode_end(&m->h, &cost);
  m->bytes_per_token = cost.bytes;
  m->macs_per_token = cost.macs;
  m->float_macs = cost.float_macs;
  m->head_macs = (uint64_t)m->h.n_vocab * m->h.n_embd;
  if (m->h.tied) m->output = m->token_embd;
  number_matrices(m);
  finish_pieces(m);
  if (l->o->adapter_rank) s = st_adapters_reserve(l->weights, l->o->adapter_rank, m, l->err);
  if (s != SETUN_OK || !l->adapters) return s;
  s = st_adapters_place(l->adapters, m, NULL, &m->lora, l->err);
  if (s != SETUN_OK) return s;
  m->weight_bytes += m->lora->bytes;
  m->bytes_per_token += m->lora->bytes;
  m->macs_per_token += m->lora->macs;
  m->float_macs += m->lora->macs;
  return SETUN_OK;
}
