// The experts of a layer: finding each one's matrices, stacked in one tensor or in tensors of their own, and placing
// them.
#include "model/load.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

// One matrix of an expert, and where its bias would be.
typedef struct {
  st_weight weight;
  char module[ST_NAME_SIZE];
  bool stacked;
  st_part part;
} expert_matrix;

static setun_status try_row(st_loader *l, const st_binding *b, uint32_t expert, st_shape shape, bool *found,
                            expert_matrix *x) {
  const char *pattern = l->d->container == ST_GGUF ? b->gguf : b->hf;
  x->stacked = !strstr(pattern, "%e");
  setun_status s = x->stacked ? st_weight_find_part(l->d, x->module, shape, x->part, l->m->h.n_expert, expert, found,
                                                    &x->weight, l->err)
                              : st_weight_find(l->d, x->module, shape, found, &x->weight, l->err);
  if (s != SETUN_OK || !*found) return s;
  st_mark_used(l, &x->weight);
  if (l->m->h.int8) s = st_weight_recognize(l->d, &x->weight, l->surveying ? 1 : 0, l->err);
  return s == SETUN_OK && !l->surveying ? st_weight_measure(l->d, &x->weight, l->err) : s;
}

static setun_status find_matrix(st_loader *l, st_role role, uint32_t layer, uint32_t expert, expert_matrix *x) {
  char wanted[ST_NAME_SIZE] = "";
  bool found = false;
  setun_status s = SETUN_OK;
  for (const st_binding *b = l->m->spec->bindings; (b->gguf || b->hf) && !found && s == SETUN_OK; b++) {
    bool both = b->role == ST_EXPERT_GATE_UP && (role == ST_EXPERT_GATE || role == ST_EXPERT_UP);
    if ((b->role != role && !both) || !st_binding_name(l, b, layer, expert, x->module)) continue;
    if (!wanted[0]) snprintf(wanted, sizeof wanted, "%s", x->module);
    x->part = !both ? ST_WHOLE : role == ST_EXPERT_GATE ? ST_EVEN_ROWS : ST_ODD_ROWS;
    s = try_row(l, b, expert, st_role_shape(&l->m->h, role), &found, x);
  }
  if (s != SETUN_OK || found) return s;
  return st_fail(l->err, SETUN_ERROR_FORMAT, "%s.weight: expected a tensor of that name, found none", wanted);
}

// The bias of one expert out of those of all: [n_expert, rows], named MODULE.bias or MODULE_bias.
static setun_status place_bias(st_loader *l, uint32_t expert, const expert_matrix *x, st_linear *out) {
  uint64_t rows = x->weight.shape.rows, step = x->part == ST_WHOLE ? 1 : 2;
  char name[ST_NAME_SIZE + 8];
  snprintf(name, sizeof name, "%s.bias", x->module);
  if (!st_directory_find(l->d, name)) snprintf(name, sizeof name, "%s_bias", x->module);
  if (!st_directory_find(l->d, name)) return SETUN_OK;
  st_weight bias;
  bool found = false;
  float *values = NULL;
  setun_status s =
      st_weight_find_expert(l->d, name, (st_shape){1, rows * step}, l->m->h.n_expert, expert, &found, &bias, l->err);
  if (s != SETUN_OK || !found) return s;
  st_mark_used(l, &bias);
  if (l->surveying) return st_count_floats(l, (size_t)rows);
  s = st_read_vector(l, &bias, false, &values);
  if (s != SETUN_OK) return s;
  for (uint64_t i = 0; i < rows && step == 2; i++) values[i] = values[2 * i + (x->part == ST_ODD_ROWS)];
  s = st_place_floats(l, values, (size_t)rows, &out->bias);
  st_free(values);
  return s;
}

static setun_status load_matrix(st_loader *l, st_role role, uint32_t layer, uint32_t expert, st_linear *out) {
  expert_matrix x;
  setun_status s = find_matrix(l, role, layer, expert, &x);
  if (s == SETUN_OK && !x.stacked) return st_place_linear(l, x.module, &x.weight, false, out);
  if (s == SETUN_OK) s = st_place_matrix(l, &x.weight, false, &out->matrix);
  return s == SETUN_OK ? place_bias(l, expert, &x, out) : s;
}

// A token reads n_expert_used of the layer's experts.
static void count(st_model *m, uint64_t bytes) {
  m->bytes_per_token += bytes / m->h.n_expert * m->h.n_expert_used;
  m->macs_per_token += (uint64_t)3 * m->h.n_expert_used * m->h.n_ff_expert * m->h.n_embd;
}

setun_status st_load_experts(st_loader *l, uint32_t layer) {
  st_layer *to = &l->m->layers[layer];
  setun_status s = SETUN_OK;
  uint64_t before = l->m->weight_bytes;
  l->attention = false;
  to->experts = st_calloc(l->m->h.n_expert, sizeof *to->experts); // at most ST_MAX_EXPERTS
  if (!to->experts) return st_fail_memory(l->err, "a layer's experts");
  for (uint32_t e = 0; e < l->m->h.n_expert && s == SETUN_OK; e++) {
    s = load_matrix(l, ST_EXPERT_GATE, layer, e, &to->experts[e].gate);
    if (s == SETUN_OK) s = load_matrix(l, ST_EXPERT_UP, layer, e, &to->experts[e].up);
    if (s == SETUN_OK) s = load_matrix(l, ST_EXPERT_DOWN, layer, e, &to->experts[e].down);
  }
  if (s == SETUN_OK) count(l->m, l->m->weight_bytes - before);
  return s;
}
