// Placing weights: vectors and matrices on the device, or in the plan while that is made.
#include "model/load.h"

#include "base/memory.h"
#include "model/copy.h"
#include "model/streamer.h"

#include <stdio.h>

// Reads a vector of `n` floats, adding one to each where the file stores norms that way.
setun_status st_read_vector(st_loader *l, const st_weight *w, bool plus_one, float **out) {
  size_t n = (size_t)w->shape.columns;
  float *values = st_malloc(n, sizeof *values);
  if (!values) return st_fail_memory(l->err, w->name);
  st_row_reader r;
  setun_status s = st_row_reader_open(l->d, w, &r, l->err);
  if (s == SETUN_OK) {
    s = st_read_floats(&r, 0, 1, values, l->err);
    st_row_reader_close(&r);
  }
  for (size_t i = 0; i < n && plus_one; i++) values[i] += 1;
  if (s == SETUN_OK) {
    *out = values;
    l->m->n_params += n;
  } else {
    st_free(values);
  }
  return s;
}

// While the plan is made nothing is read.
setun_status st_count_floats(st_loader *l, size_t n) {
  l->m->weight_bytes += n * sizeof(float);
  l->plan->vectors += n * sizeof(float);
  return SETUN_OK;
}

setun_status st_place_floats(st_loader *l, const float *values, size_t n, st_dvector **out) {
  if (l->surveying) return st_count_floats(l, n);
  setun_status s = l->m->backend->vector_new(l->m->device, values, n, out, l->err);
  if (s == SETUN_OK) l->m->weight_bytes += n * sizeof(float);
  return s;
}

setun_status st_place_vector(st_loader *l, const st_weight *w, bool plus_one, st_dvector **out) {
  float *values = NULL;
  l->m->bytes_per_token += w->shape.columns * sizeof(float);
  if (l->surveying) return st_count_floats(l, (size_t)w->shape.columns);
  setun_status s = st_read_vector(l, w, plus_one, &values);
  if (s == SETUN_OK) s = st_place_floats(l, values, (size_t)w->shape.columns, out);
  st_free(values);
  return s;
}

static setun_status report(st_loader *l, const st_weight *w) {
  l->bytes_done += w->data->bytes / w->stored.rows * w->shape.rows; // of a stack, one expert's
  double fraction = l->bytes_total ? (double)l->bytes_done / (double)l->bytes_total : 1;
  if (l->o->progress && !l->o->progress(fraction < 1 ? fraction : 1, l->o->user)) {
    return st_fail(l->err, SETUN_ERROR_CANCELED, "loading was canceled");
  }
  return SETUN_OK;
}

uint64_t st_copying(const st_loader *l, const st_weight *w, const st_format *format) {
  const st_copy copy = {.backend = l->m->backend, .device = l->m->device, .weight = w, .format = format};
  return (uint64_t)l->threads * st_copy_bytes(&copy);
}

// The item of the plan that a matrix is: a new one while the plan is made, otherwise the one that was made then. The
// head's come last, see st_plan_head.
static setun_status plan_item(st_loader *l, const st_weight *w, const st_placing *how, st_plan_item *item) {
  const st_backend *b = l->m->backend;
  st_memory_plan *p = l->plan;
  st_matrix_size size = b->matrix_size(l->m->device, how->format, w->shape, how->precision);
  if (!l->surveying) {
    *item = p->items[l->is_head ? p->first_piece : l->item++]; // loading takes the same way
    item->codes = size.codes;
    item->own = size.own;
    item->beside = size.beside;
    return SETUN_OK;
  }
  bool direct = b->matrix_direct(l->m->device, how->format) && !w->latent && w->row_step == 1 && !w->block_scales &&
                !w->first_row && w->data->offset % 64 == 0;
  *item = (st_plan_item){.layer = l->layer,
                         .attention = l->attention,
                         .rows = l->is_embedding,
                         .tensors = {w->data, w->block_scales},
                         .codes = size.codes,
                         .own = size.own,
                         .beside = size.beside,
                         .copying = st_copying(l, w, how->format),
                         .direct = direct};
  p->vectors += size.beside;
  p->all += size.codes;
  if (w->shape.columns > l->columns[size.input]) l->columns[size.input] = (size_t)w->shape.columns;
  if (l->is_embedding) p->row_area = st_row_copy_bytes(b, l->m->device, w, how->format, how->precision);
  if (l->is_head) {
    l->head = *w;
    l->head_format = how->format;
    l->head_precision = how->precision;
    return SETUN_OK;
  }
  return st_memory_plan_add(p, item) ? SETUN_OK : st_fail_memory(l->err, "the plan");
}

static setun_status place_held(st_loader *l, const st_weight *w, const st_placing *how, st_dmatrix **out) {
  const st_backend *b = l->m->backend;
  setun_status s = b->matrix_new(l->m->device, how->format, w->shape, how->precision, out, l->err);
  if (s != SETUN_OK) return st_fail_in(l->err, "%s", w->name), s;
  s = st_copy_matrix(&(st_copy){b, l->m->device, l->d, w, how->format, *out}, l->pool, l->err);
  if (s == SETUN_OK)
    b->matrix_settle(l->m->device, *out, l->pool);
  else
    b->matrix_free(*out), *out = NULL;
  return s;
}

static setun_status place_lent(st_loader *l, const st_weight *w, const st_placing *how, const st_plan_item *item,
                               st_dmatrix **out) {
  const st_backend *b = l->m->backend;
  setun_status s = b->matrix_new_lent(l->m->device, how->format, w->shape, how->precision, out, l->err);
  if (s != SETUN_OK) return st_fail_in(l->err, "%s", w->name), s;
  s = st_streamer_add(l->m->streamer, item, w, how->format, *out, l->err);
  if (s != SETUN_OK) b->matrix_free(*out), *out = NULL;
  return s;
}

static setun_status place_codes(st_loader *l, const st_weight *w, const st_placing *how, const st_plan_item *item,
                                st_dmatrix **out) {
  st_model *m = l->m;
  setun_status s = SETUN_OK;
  if (item->held && !(l->plan->mapped && item->direct)) return place_held(l, w, how, out);
  if (item->held || !(l->is_embedding || l->is_head)) return place_lent(l, w, how, item, out);
  if (l->is_embedding) {
    const st_copy copy = {m->backend, m->device, l->d, w, how->format, NULL};
    s = st_row_copy_new(&copy, m->device, how->precision, &m->rows, l->err);
  }
  return s == SETUN_OK && l->is_head ? st_place_head(l, w, how) : s;
}

setun_status st_place_matrix(st_loader *l, const st_weight *w, bool exact, st_dmatrix **out) {
  // Latent floats are ternary by the time they are read.
  st_placing how = {.format = w->latent ? st_format_get(ST_HF_U8) : w->format,
                    .precision = l->o->precise || exact ? ST_PRECISION_FLOAT : ST_PRECISION_FAST};
  if (l->m->h.int8 && !exact && st_format_is_ternary(how.format)) how.precision = ST_PRECISION_INT8;
  bool quantized = how.format->block > 1 || st_format_is_ternary(how.format);
  if (how.precision == ST_PRECISION_FAST && quantized) l->m->fast = true;
  st_plan_item item;
  setun_status s = plan_item(l, w, &how, &item);
  if (s == SETUN_OK && !l->surveying) s = place_codes(l, w, &how, &item, out);
  if (s != SETUN_OK) return s;
  bool made = !l->surveying && *out; // the pieces of a head are no matrix
  l->matrix_bytes = made ? l->m->backend->matrix_bytes(*out) : item.own + item.beside;
  l->m->n_params += w->shape.rows * w->shape.columns;
  l->m->weight_bytes += l->matrix_bytes;
  return l->surveying ? SETUN_OK : report(l, w);
}

// A vector that belongs to a module; nothing when there is none, but where config.json promises it.
static setun_status place_beside(st_loader *l, const char *module, const char *what, uint64_t n, bool promised,
                                 st_dvector **out) {
  char name[ST_NAME_SIZE + 24];
  st_weight w;
  bool found = false;
  snprintf(name, sizeof name, "%s.%s", module, what);
  if (!st_directory_find(l->d, name)) {
    if (!promised) return SETUN_OK;
    return st_fail(l->err, SETUN_ERROR_FORMAT,
                   "%s: expected, as use_rms_norm in config.json says, found no such tensor", name);
  }
  setun_status s = st_weight_find(l->d, name, (st_shape){1, n}, &found, &w, l->err);
  if (s != SETUN_OK || !found) return s;
  st_mark_used(l, &w);
  return st_place_vector(l, &w, false, out);
}

setun_status st_place_linear(st_loader *l, const char *module, const st_weight *w, bool exact, st_linear *out) {
  setun_status s = st_place_matrix(l, w, exact, &out->matrix);
  if (s == SETUN_OK) s = place_beside(l, module, "bias", w->shape.rows, false, &out->bias);
  bool normed = l->m->h.linear_norm && st_weight_is_ternary(w);
  if (s == SETUN_OK) s = place_beside(l, module, "rms_norm.weight", w->shape.columns, normed, &out->norm);
  out->columns = (uint32_t)w->shape.columns;
  if (out->norm && out->columns > l->m->max_normed_columns) l->m->max_normed_columns = out->columns;
  return s;
}
