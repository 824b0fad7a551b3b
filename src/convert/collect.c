// From the source's tensors to output tensors: each one's role, the weight that it holds, and its name in the target.
#include "convert/conversion.h"

#include "base/memory.h"
#include "base/suffix.h"
#include "source/expert_deltas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The suffix of a tensor's name.
typedef enum {
  NAMED_WEIGHT,
  NAMED_SCALE,
  NAMED_BIAS,
  NAMED_MODULE,
  NAMED_NORM
} ending; // NORM: the norm of a matrix's input

typedef struct {
  const st_tensor *tensor;
  char module[ST_USE_NAME]; // without the suffix
  ending named;
  st_tensor_use place;
  bool of_stack; // the tensor has all experts of a layer
} unit;

static bool cut(char *name, const char *end) {
  size_t n = strlen(name), m = strlen(end);
  if (n <= m || strcmp(name + n - m, end)) return false;
  name[n - m] = 0;
  return true;
}

static unit unit_of(const st_conversion *p, const st_tensor *t) {
  unit u = {.tensor = t, .named = NAMED_MODULE};
  snprintf(u.module, sizeof u.module, "%s", t->name); // names have at most ST_NAME_MOST bytes
  if (p->has_hparams && p->h.projection_norms && cut(u.module, p->from_gguf ? "_norm_in.weight" : ".norm.weight"))
    u.named = NAMED_NORM;
  else if (cut(u.module, ".weight"))
    u.named = NAMED_WEIGHT;
  else if (cut(u.module, ".bias"))
    u.named = NAMED_BIAS;
  else if (cut(u.module, p->from_gguf ? ".scale" : ".weight_scale"))
    u.named = NAMED_SCALE;
  u.place = st_use_of(p->spec, p->from_gguf, u.module);
  u.of_stack = u.place.stacked;
  return u;
}

// Tensors of a checkpoint that belong to other parts of it, or are derived.
static bool is_ignored(const st_conversion *p, const unit *u) {
  const char *name = u->tensor->name;
  if (!p->spec) return false;
  if (p->from_gguf && p->h.n_expert && st_expert_deltas_is(name, p->h.n_layer)) {
    st_log_write(p->o->log, SETUN_LOG_INFO, "%s: deltas between experts are not carried over, only made again", name);
    return true;
  }
  if (p->from_gguf) return !p->to_gguf && u->place.in_layer && u->place.layer >= p->h.n_layer && p->h.n_layer_next;
  if (st_has_suffix(name, ".rotary_emb.inv_freq")) return true;
  for (const char *const *i = p->spec->ignored; i && *i; i++) {
    if (!strncmp(name, *i, strlen(*i))) return true;
  }
  return false;
}

// Scales belong to the ternary weight beside them.
static bool is_taken_along(const st_conversion *p, const unit *u) {
  if (u->named != NAMED_SCALE) return false;
  char name[ST_USE_NAME + 8];
  snprintf(name, sizeof name, "%s.weight", u->module);
  const st_tensor *weight = st_directory_find(p->d, name);
  if (!weight) return false;
  return !p->from_gguf || (weight->format && st_format_is_ternary(weight->format));
}

st_item *st_conversion_add(st_conversion *plan) {
  if (!st_reserve(&plan->items, &plan->capacity, plan->n_items + 1, sizeof *plan->items)) return NULL;
  st_item *item = &plan->items[plan->n_items++];
  *item = (st_item){0};
  return item;
}

static setun_status fail_unnamed(const st_conversion *p, const st_tensor *t, setun_error *err) {
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: no name for this tensor in a %s", t->name,
                 p->to_gguf ? "GGUF file" : "Hugging Face directory of this family; convert to GGUF");
}

// The target's name of the unit's tensor, or of one expert of it.
static setun_status name_item(const st_conversion *p, const unit *u, st_item *item, setun_error *err) {
  char name[ST_USE_NAME], full[ST_USE_NAME + 8];
  bool same = p->from_gguf == p->to_gguf && !(u->place.expert_of && (p->to_gguf || u->of_stack));
  same = same || st_conversion_stacks(p, &u->place); // named with its stack
  const char *const endings[] = {".weight", ".scale", ".bias", "", p->to_gguf ? "_norm_in.weight" : ".norm.weight"};
  const char *end = endings[u->named];
  if (same) {
    item->name = st_strdup(u->tensor->name);
    return item->name ? SETUN_OK : st_fail_memory(err, u->tensor->name);
  }
  if (!u->place.known || !st_use_name(p->target_spec, p->to_gguf, &item->place, name)) {
    return fail_unnamed(p, u->tensor, err);
  }
  if (p->to_gguf && u->named == NAMED_MODULE) end = ".weight";
  if (!p->to_gguf && st_role_get(u->place.role)->kind == ST_KIND_VECTOR) end = "";
  if (st_role_is_bare(u->place.role)) end = "";
  snprintf(full, sizeof full, "%s%s", name, end);
  item->name = st_strdup(full);
  return item->name ? SETUN_OK : st_fail_memory(err, full);
}

// Whether rows of q and k are reordered between the containers.
static void set_permutation(const st_conversion *p, st_item *item) {
  st_role role = item->place.role;
  if (p->from_gguf == p->to_gguf || role == ST_ROLE_COUNT || !st_role_is_rotated(role)) return;
  if (item->suffix == NAMED_NORM) return;
  const st_spec *gguf = p->to_gguf ? p->target_spec : p->spec;
  if (!gguf->gguf_interleaved) return;
  item->permute = p->to_gguf ? ST_PERMUTE_INTERLEAVE : ST_PERMUTE_SPLIT;
  item->head_dim = p->h.head_dim;
}

// Norms that Hugging Face files store minus one.
static void set_offset(const st_conversion *p, st_item *item) {
  if (!p->has_hparams) return;
  bool from = p->h.norm_plus_one, to = !p->to_gguf && p->target_spec->defaults.norm_plus_one;
  if (from == to || !item->place.known) return;
  if (st_role_get(item->place.role)->kind != ST_KIND_NORM || item->suffix == NAMED_BIAS) return;
  item->add = from ? 1 : -1;
}

static setun_status find_weight(const st_conversion *p, const unit *u, uint64_t experts, uint64_t expert, st_weight *w,
                                setun_error *err) {
  const st_tensor *t = u->tensor;
  const char *module = u->named == NAMED_WEIGHT ? u->module : t->name;
  st_shape shape = {0};
  bool found = false;
  setun_status s;
  if (experts) {
    bool vector = t->n_dims < 3;
    shape = (st_shape){vector ? 1 : t->dims[1], t->dims[0]};
    s = st_weight_find_expert(p->d, module, shape, experts, expert, &found, w, err);
  } else {
    s = st_weight_find(p->d, module, shape, &found, w, err);
  }
  if (s == SETUN_OK && !found) s = st_fail(err, SETUN_ERROR_STATE, "%s: the tensor is missing now", t->name);
  return s == SETUN_OK ? st_weight_measure(p->d, w, err) : s;
}

// An item for one weight: the unit's tensor or a part of it.
static setun_status add_weight(st_conversion *p, const unit *u, const st_weight *w, setun_error *err) {
  const st_tensor *t = u->tensor;
  st_item *item = st_conversion_add(p);
  if (!item || !(item->pieces = st_calloc(1, sizeof *item->pieces))) return st_fail_memory(err, t->name);
  item->n_pieces = 1;
  item->pieces[0].weight = *w;
  item->place = u->place;
  item->place.stacked = false; // merged later where requested
  item->place.role = st_conversion_joined_role(p, item->place.role);
  item->suffix = u->named;
  setun_status s = name_item(p, u, item, err);
  if (s != SETUN_OK) return s;
  item->shape = w->shape;
  bool column = w->row_step > 1 && w->shape.columns == 1; // a vector whose elements are not contiguous
  if (w->shape.rows == st_tensor_shape(t).rows && w->shape.columns == t->dims[0]) {
    item->n_dims = t->n_dims;
    memcpy(item->dims, t->dims, sizeof item->dims);
  } else {
    item->n_dims = w->shape.rows == 1 || column ? 1 : 2;
    memcpy(item->dims, (uint64_t[4]){column ? w->shape.rows : w->shape.columns, column ? 1 : w->shape.rows, 1, 1},
           sizeof item->dims);
  }
  if (item->place.known && st_role_get(item->place.role)->kind == ST_KIND_TAPS && p->from_gguf != p->to_gguf) {
    item->n_dims = p->to_gguf ? 2 : 3; // directories store them as a convolution with one channel each
    memcpy(item->dims,
           (uint64_t[4]){w->shape.columns, p->to_gguf ? w->shape.rows : 1, p->to_gguf ? 1 : w->shape.rows, 1},
           sizeof item->dims);
  }
  set_permutation(p, item);
  set_offset(p, item);
  return SETUN_OK;
}

static setun_status add_item(st_conversion *p, const unit *u, uint64_t experts, uint64_t expert, setun_error *err) {
  st_weight w;
  unit one = *u;
  setun_status s = find_weight(p, u, experts, expert, &w, err);
  if (u->place.stacked) one.place.expert = (uint32_t)expert;
  return s == SETUN_OK ? add_weight(p, &one, &w, err) : s;
}

// A tensor whose type is known only by its size, copied unchanged.
static setun_status add_copy(st_conversion *p, const unit *u, setun_error *err) {
  const st_tensor *t = u->tensor;
  if (p->from_gguf != p->to_gguf) return fail_unnamed(p, t, err);
  st_item *item = st_conversion_add(p);
  if (!item || !(item->name = st_strdup(t->name))) return st_fail_memory(err, t->name);
  item->place = u->place;
  item->suffix = u->named;
  item->kind = ST_ITEM_COPY;
  item->copied = t;
  item->dtype = t->dtype;
  item->format = t->format;
  item->n_dims = t->n_dims;
  memcpy(item->dims, t->dims, sizeof item->dims);
  item->bytes = t->bytes;
  return SETUN_OK;
}

static setun_status collect_tensor(st_conversion *p, const st_tensor *t, setun_error *err) {
  unit u = unit_of(p, t);
  if (is_ignored(p, &u) || is_taken_along(p, &u)) return SETUN_OK;
  const st_format *dtype = st_format_by_dtype(t->dtype);
  bool packed = !p->from_gguf && u.named == NAMED_WEIGHT && dtype && st_format_is_ternary(dtype);
  if ((!t->format && !packed) || u.named == NAMED_SCALE) return add_copy(p, &u, err);
  if (!u.place.stacked) return add_item(p, &u, 0, 0, err);
  uint64_t experts = t->n_dims == 3 ? t->dims[2] : t->dims[1];
  if (experts > ST_MAX_EXPERTS) {
    return st_fail(err, SETUN_ERROR_LIMIT, "%s: expected at most %d experts, found %llu", t->name, ST_MAX_EXPERTS,
                   (unsigned long long)experts);
  }
  for (uint64_t e = 0; e < experts; e++) {
    setun_status s = add_item(p, &u, experts, e, err);
    if (s != SETUN_OK) return s;
  }
  return SETUN_OK;
}

// ---- bound weights ------------------------------------------------------------------------------------------------

static setun_status add_bound_tensor(st_conversion *p, const st_bound *b, const st_weight *stored, bool bias,
                                     setun_error *err) {
  unit u = unit_of(p, stored->data);
  st_weight w = *stored;
  u.named = bias ? NAMED_BIAS : NAMED_WEIGHT;
  u.place = (st_tensor_use){.known = true,
                            .role = b->role,
                            .in_layer = b->layer >= 0,
                            .layer = b->layer < 0 ? 0 : (uint32_t)b->layer,
                            .expert_of = b->expert >= 0,
                            .expert = b->expert < 0 ? 0 : (uint32_t)b->expert};
  setun_status s = st_weight_measure(p->d, &w, err);
  return s == SETUN_OK ? add_weight(p, &u, &w, err) : s;
}

// A layer's tensor that holds the matrices of several roles.
static bool is_joined(st_role role) {
  return st_role_matrices(role) > 1 && st_role_get(role)->part != ST_OF_EXPERT;
}

static setun_status collect_bound(st_conversion *p, setun_error *err) {
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < p->weights.n && s == SETUN_OK; i++) {
    const st_bound *b = &p->weights.items[i];
    st_weight w = st_bound_stored(b);
    if (b->expert < 0 && w.shape.rows != w.stored.rows) continue; // part of a joined tensor, see is_bound
    if (st_conversion_is_rope_rule(p, b)) {
      s = st_conversion_rope_rule(p, b->role, &w, err);
      continue;
    }
    s = add_bound_tensor(p, b, &w, false, err);
    if (s == SETUN_OK && b->bias) s = add_bound_tensor(p, b, &p->weights.beside[b->bias - 1], true, err);
  }
  return s;
}

// Whether the tensor was collected with the weights: neither their norms, nor scales that stay tensors.
static bool is_bound(const st_conversion *p, const st_tensor *t) {
  if (!p->weights.n || !p->weights.used[t - p->d->tensors]) return false;
  unit u = unit_of(p, t);
  if (u.place.known && is_joined(u.place.role)) return false; // copied whole, by its own name
  return u.named != NAMED_SCALE && u.named != NAMED_NORM && !st_has_suffix(t->name, ".rms_norm.weight");
}

// ---- order and stacks ---------------------------------------------------------------------------------------------

typedef struct {
  const st_item *item;
  size_t index;
} ranked;

static int by_use(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  int c = st_use_compare(&x->item->place, &y->item->place);
  if (!c && x->item->place.known) c = (x->item->suffix > y->item->suffix) - (x->item->suffix < y->item->suffix);
  return c ? c : x->index < y->index ? -1 : x->index > y->index;
}

static setun_status sort_items(st_conversion *p, setun_error *err) {
  ranked *order = st_malloc(p->n_items, sizeof *order);
  st_item *sorted = st_malloc(p->n_items, sizeof *sorted);
  if (order && sorted) {
    for (size_t i = 0; i < p->n_items; i++) order[i] = (ranked){&p->items[i], i};
    qsort(order, p->n_items, sizeof *order, by_use);
    for (size_t i = 0; i < p->n_items; i++) sorted[i] = *order[i].item;
    if (p->n_items) memcpy(p->items, sorted, p->n_items * sizeof *sorted);
  }
  bool ok = order && sorted;
  st_free(order);
  st_free(sorted);
  return ok ? SETUN_OK : st_fail_memory(err, "the conversion");
}

// The stack among those kept so far that an expert's item belongs to.
static st_item *find_stack(st_conversion *p, size_t kept, const st_item *item) {
  while (kept-- > 0) {
    st_item *s = &p->items[kept];
    if (s->place.layer != item->place.layer) break;
    if (s->place.expert_of && s->place.role == item->place.role && s->suffix == item->suffix) return s;
  }
  return NULL;
}

static setun_status start_stack(const st_conversion *p, st_item *item, setun_error *err) {
  char name[ST_USE_NAME], full[ST_USE_NAME + 8];
  item->place.stacked = true;
  if (!st_use_name(p->target_spec, true, &item->place, name)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: no name for its experts in one tensor", item->name);
  }
  snprintf(full, sizeof full, "%s%s", name, item->suffix == NAMED_BIAS ? ".bias" : ".weight");
  st_free(item->name);
  item->name = st_strdup(full);
  return item->name ? SETUN_OK : st_fail_memory(err, full);
}

static setun_status push_piece(st_item *stack, st_item *item, setun_error *err) {
  const st_item_source *first = &stack->pieces[0], *next = &item->pieces[0];
  if (item->place.expert != stack->n_pieces || first->weight.shape.rows != next->weight.shape.rows ||
      first->weight.shape.columns != next->weight.shape.columns || first->weight.format != next->weight.format) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s: expected expert %zu with the shape and format of the others, so that they can be stacked",
                   item->name, stack->n_pieces);
  }
  st_item_source *pieces = st_realloc(stack->pieces, stack->n_pieces + 1, sizeof *pieces);
  if (!pieces) return st_fail_memory(err, item->name);
  stack->pieces = pieces;
  pieces[stack->n_pieces++] = *next;
  return SETUN_OK;
}

static void finish_stack(st_item *item) {
  if (!item->place.stacked) return;
  uint64_t rows = item->shape.rows, n = item->n_pieces;
  uint64_t columns = item->shape.columns;
  bool vectors = rows == 1 || item->suffix == NAMED_BIAS;
  item->n_dims = vectors ? 2 : 3;
  memcpy(item->dims, (uint64_t[4]){vectors ? rows * columns : columns, vectors ? n : rows, vectors ? 1 : n, 1},
         sizeof item->dims);
  item->shape.rows = rows * n;
}

static setun_status fold_experts(st_conversion *p, setun_error *err) {
  size_t kept = 0;
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < p->n_items; i++) {
    st_item item = p->items[i];
    p->items[i] = (st_item){0};
    st_item *stack = s == SETUN_OK && item.place.expert_of ? find_stack(p, kept, &item) : NULL;
    if (stack) {
      s = push_piece(stack, &item, err);
      st_item_free(&item);
      continue;
    }
    if (s == SETUN_OK && item.place.expert_of) s = start_stack(p, &item, err);
    p->items[kept++] = item;
  }
  p->n_items = kept;
  for (size_t i = 0; i < kept; i++) finish_stack(&p->items[i]);
  return s;
}

setun_status st_conversion_collect(st_conversion *p, setun_error *err) {
  setun_status s = collect_bound(p, err);
  for (size_t i = 0; i < p->d->n_tensors && s == SETUN_OK; i++) {
    if (!is_bound(p, &p->d->tensors[i])) s = collect_tensor(p, &p->d->tensors[i], err);
  }
  if (s == SETUN_OK) s = st_conversion_rope(p, err);
  if (s == SETUN_OK) s = sort_items(p, err);
  if (s == SETUN_OK) s = st_conversion_join_mixed(p, err);
  if (s == SETUN_OK && p->o->stacked && p->to_gguf) s = fold_experts(p, err);
  if (s == SETUN_OK && p->from_gguf && !p->to_gguf) s = st_conversion_stack_experts(p, err);
  return s;
}
