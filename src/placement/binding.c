// The walk over a family's roles that binds them to tensors.
#include "placement/binding.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { GUESSED_ROWS = 32 }; // of a matrix of floats, to tell whether they are trits

typedef struct {
  st_bound_list *list;
  const st_directory *d;
  const st_spec *spec;
  const st_hparams *h;
  setun_error *err;
} binder;

static void mark_used(binder *b, const st_weight *w) {
  const st_tensor *tensors[] = {w->data, w->scale, w->block_scales};
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
    if (tensors[i]) b->list->used[tensors[i] - b->d->tensors] = true;
  }
}

// Checkpoints with more parts than the language model put a prefix before its names, or behind their "model.".
const char *st_bound_name(const st_directory *d, const st_spec *spec, const st_binding *row, uint32_t layer,
                          uint32_t expert, char out[ST_NAME_SIZE]) {
  static const char root[] = "model.";
  bool gguf = d->container == ST_GGUF;
  const char *pattern = st_binding_pattern(row, gguf), *prefix = gguf ? NULL : spec->hf_prefix;
  if (!pattern) return NULL;
  char first[ST_NAME_SIZE];
  size_t n = 0;
  out[0] = 0;
  if (prefix) {
    snprintf(first, sizeof first, "%s%s", prefix, "model.embed_tokens.weight");
    bool before = st_directory_find(d, first) != NULL;
    snprintf(first, sizeof first, "%s%s%s", root, prefix, "embed_tokens.weight");
    bool behind = !before && st_directory_find(d, first) && !strncmp(pattern, root, sizeof root - 1);
    if (behind) pattern += sizeof root - 1;
    n = (size_t)snprintf(out, ST_NAME_SIZE, "%s%s", behind ? root : "", before || behind ? prefix : "");
  }
  st_fill_name(pattern, layer, expert, out + n, ST_NAME_SIZE - n);
  return out;
}

// ---- one module ---------------------------------------------------------------------------------------------------

static setun_status add(binder *b, const st_bound *bound) {
  st_bound_list *l = b->list;
  if (l->n >= UINT32_MAX || !st_reserve(&l->items, &l->capacity, l->n + 1, sizeof *l->items)) {
    return st_fail_memory(b->err, "the bound weights");
  }
  mark_used(b, &bound->weight);
  l->items[l->n++] = *bound;
  return SETUN_OK;
}

// A vector that belongs to a module, found under its own name.
static setun_status add_beside(binder *b, const char *name, uint64_t n, uint64_t n_experts, uint64_t expert,
                               uint32_t *index) {
  st_bound_list *l = b->list;
  st_weight w;
  bool found = false;
  if (!st_directory_find(b->d, name)) return SETUN_OK;
  setun_status s = n_experts
                       ? st_weight_find_expert(b->d, name, (st_shape){1, n}, n_experts, expert, &found, &w, b->err)
                       : st_weight_find(b->d, name, (st_shape){1, n}, &found, &w, b->err);
  if (s != SETUN_OK || !found) return s;
  mark_used(b, &w);
  if (l->n_beside >= UINT32_MAX - 1 ||
      !st_reserve(&l->beside, &l->beside_capacity, l->n_beside + 1, sizeof *l->beside)) {
    return st_fail_memory(b->err, "the bound weights");
  }
  l->beside[l->n_beside++] = w;
  *index = (uint32_t)l->n_beside;
  return SETUN_OK;
}

// Models with int8 activations have them for ternary weights in any layout, floats among them.
static setun_status guess(binder *b, uint64_t rows, st_bound *bound) {
  if (!b->h->int8 || st_role_get(bound->role)->kind != ST_KIND_LINEAR) return SETUN_OK;
  bool latent = bound->weight.latent;
  setun_status s = st_weight_recognize(b->d, &bound->weight, rows, b->err);
  bound->guessed = !latent && bound->weight.latent;
  return s;
}

setun_status st_bound_finalize(const st_bound_list *list, st_bound *bound, setun_error *err) {
  st_weight *w = &bound->weight;
  if (!bound->guessed) return st_weight_measure(list->directory, w, err);
  bound->guessed = false;
  w->latent = false;
  w->latent_scale = 0;
  return st_weight_recognize(list->directory, w, 0, err);
}

static bool needs_bias(const st_hparams *h, st_role role) {
  switch (role) {
  case ST_ATTN_Q:
  case ST_ATTN_K:
  case ST_ATTN_V: return h->qkv_bias;
  case ST_ATTN_O: return h->o_bias;
  case ST_FFN_GATE:
  case ST_FFN_UP:
  case ST_FFN_DOWN: return h->mlp_bias;
  default: return false;
  }
}

// The bias of a matrix and the norm of its input.
static setun_status bind_beside(binder *b, const char *module, st_bound *bound) {
  char bias[ST_NAME_SIZE + 24], norm[ST_NAME_SIZE + 24];
  const st_weight *w = &bound->weight;
  snprintf(bias, sizeof bias, "%s.bias", module);
  snprintf(norm, sizeof norm, "%s.rms_norm.weight", module);
  if (bound->stacked) { // one tensor has the biases of all experts: [n_expert, rows], named MODULE.bias or MODULE_bias
    if (!st_directory_find(b->d, bias)) snprintf(bias, sizeof bias, "%s_bias", module);
    return add_beside(b, bias, w->shape.rows * w->row_step, b->h->n_expert, (uint64_t)bound->expert, &bound->bias);
  }
  setun_status s = add_beside(b, bias, w->shape.rows, 0, 0, &bound->bias);
  if (s == SETUN_OK) s = add_beside(b, norm, w->shape.columns, 0, 0, &bound->norm);
  if (s == SETUN_OK && !bound->norm && b->h->linear_norm && st_weight_is_ternary(w)) {
    return st_fail(b->err, SETUN_ERROR_FORMAT,
                   "%s: expected, as use_rms_norm in config.json says, found no such tensor", norm);
  }
  if (s == SETUN_OK && !bound->bias && needs_bias(b->h, bound->role)) {
    return st_fail(b->err, SETUN_ERROR_FORMAT, "%s: expected a tensor of that name, found none", bias);
  }
  return s;
}

// A q or k norm covers one head, or all of them at once: the tensor's length tells.
static st_shape shape_of(const binder *b, st_role role, const char *module) {
  st_shape shape = st_role_shape(b->h, role);
  if (role != ST_ATTN_Q_NORM && role != ST_ATTN_K_NORM) return shape;
  char name[ST_NAME_SIZE + 8];
  snprintf(name, sizeof name, "%s.weight", module);
  const st_tensor *t = st_directory_find(b->d, name);
  uint64_t all = st_role_shape(b->h, role == ST_ATTN_Q_NORM ? ST_ATTN_Q : ST_ATTN_K).rows;
  if (t && t->dims[0] == all) shape.columns = all;
  return shape;
}

// ---- roles --------------------------------------------------------------------------------------------------------

// A role under one of its names; `found` tells whether there is such a tensor.
static setun_status bind_name(binder *b, const st_binding *row, const char *module, st_bound *bound, bool *found) {
  bool gguf = b->d->container == ST_GGUF, expert = st_role_get(bound->role)->part == ST_OF_EXPERT;
  st_shape shape = shape_of(b, bound->role, module);
  setun_status s;
  bound->stacked = expert && !strstr(st_binding_pattern(row, gguf), "%e");
  if (bound->stacked) {
    bool both = row->role == ST_EXPERT_GATE_UP;
    st_part part = !both ? ST_WHOLE : bound->role == ST_EXPERT_GATE ? ST_EVEN_ROWS : ST_ODD_ROWS;
    s = st_weight_find_part(b->d, module, shape, part, b->h->n_expert, (uint64_t)bound->expert, found, &bound->weight,
                            b->err);
  } else {
    s = st_weight_find(b->d, module, shape, found, &bound->weight, b->err);
  }
  if (s != SETUN_OK || !*found) return s;
  if (bound->role == ST_OUTPUT && b->h->tied) { // a copy of the embedding: some checkpoints ship both
    mark_used(b, &bound->weight);
    return SETUN_OK;
  }
  s = guess(b, expert ? 1 : GUESSED_ROWS, bound);
  if (s == SETUN_OK && st_role_is_matrix(bound->role)) s = bind_beside(b, module, bound);
  return s == SETUN_OK ? add(b, bound) : s;
}

// Gate and up may be one tensor.
static bool may_hold(const st_binding *row, st_role role) {
  return row->role == role || (row->role == ST_EXPERT_GATE_UP && (role == ST_EXPERT_GATE || role == ST_EXPERT_UP));
}

// The first of a role's names that is there.
static setun_status bind_role(binder *b, st_role role, int32_t layer, int32_t expert) {
  char name[ST_NAME_SIZE], wanted[ST_NAME_SIZE] = "";
  bool found = false, missing = false;
  setun_status s = SETUN_OK;
  for (const st_binding *row = b->spec->bindings; row->role != ST_ROLE_COUNT && !found && s == SETUN_OK; row++) {
    st_bound bound = {.role = role, .layer = layer, .expert = expert};
    uint32_t in_layer = layer < 0 ? 0 : (uint32_t)layer, of = expert < 0 ? 0 : (uint32_t)expert;
    if (!may_hold(row, role) || !st_bound_name(b->d, b->spec, row, in_layer, of, name)) continue;
    s = bind_name(b, row, name, &bound, &found);
    st_need need = st_binding_need(row);
    if (need == ST_REQUIRED || (need == ST_UNTIED && !b->h->tied)) {
      missing = true;
      if (!wanted[0]) snprintf(wanted, sizeof wanted, "%s", name);
    }
  }
  if (s != SETUN_OK || found || !missing) return s;
  return st_fail(b->err, SETUN_ERROR_FORMAT, "%s.weight: expected a tensor of that name, found none", wanted);
}

static setun_status bind_experts(binder *b, int32_t layer) {
  static const st_role roles[] = {ST_EXPERT_GATE, ST_EXPERT_UP, ST_EXPERT_DOWN};
  setun_status s = SETUN_OK;
  for (uint32_t e = 0; e < b->h->n_expert && s == SETUN_OK; e++) { // at most ST_MAX_EXPERTS
    for (size_t i = 0; i < sizeof roles / sizeof *roles && s == SETUN_OK; i++) {
      s = bind_role(b, roles[i], layer, (int32_t)e);
    }
  }
  return s;
}

static setun_status bind_layer(binder *b, uint32_t layer) {
  setun_status s = SETUN_OK;
  for (int role = 0; role < ST_ROLE_COUNT && s == SETUN_OK; role++) {
    st_role_part part = st_role_get((st_role)role)->part;
    if (part == ST_OF_MODEL || part == ST_OF_EXPERT || !st_role_applies(b->h, (st_role)role, layer)) continue;
    s = bind_role(b, (st_role)role, (int32_t)layer, -1);
  }
  return s == SETUN_OK && b->h->sparse[layer] ? bind_experts(b, (int32_t)layer) : s;
}

// ---- what is left -------------------------------------------------------------------------------------------------

// The scale of activations that belongs to a weight in NVFP4: for processors that take both in four bits.
static bool is_input_scale(const st_directory *d, const char *name) {
  static const char suffix[] = ".input_scale";
  char weight[ST_NAME_SIZE + 8];
  size_t n = strlen(name), end = sizeof suffix - 1;
  if (d->container != ST_GGUF || n <= end || n > ST_NAME_SIZE || strcmp(name + n - end, suffix)) return false;
  snprintf(weight, sizeof weight, "%.*s.weight", (int)(n - end), name);
  const st_tensor *t = st_directory_find(d, weight);
  return t && t->format && t->format->id == ST_NVFP4;
}

// A tensor that nothing uses would mean a model that computes something else than this one.
static setun_status check_unexpected(binder *b) {
  for (size_t i = 0; i < b->d->n_tensors; i++) {
    const char *name = b->d->tensors[i].name;
    size_t n = strlen(name);
    bool expected = b->list->used[i] || (n > 20 && !strcmp(name + n - 20, ".rotary_emb.inv_freq"));
    expected = expected || is_input_scale(b->d, name);
    for (const char *const *p = b->spec->ignored; p && *p && !expected; p++) {
      expected = !strncmp(name, *p, strlen(*p));
    }
    if (!expected) {
      return st_fail(b->err, SETUN_ERROR_UNSUPPORTED, "%s: a tensor that a model of the %s family does not have", name,
                     b->spec->name);
    }
  }
  return SETUN_OK;
}

static const st_bound *find(const st_bound_list *l, st_role role) {
  for (size_t i = 0; i < l->n && l->items[i].layer < 0; i++) {
    if (l->items[i].role == role) return &l->items[i];
  }
  return NULL;
}

static setun_status check_factors(const binder *b) {
  const st_rope_params *r = &b->h->rope;
  bool there =
      (r->short_factor || find(b->list, ST_ROPE_SHORT)) && (r->long_factor || find(b->list, ST_ROPE_LONG_FACTORS));
  if (r->scaling != ST_ROPE_LONG || there) return SETUN_OK;
  return st_fail(b->err, SETUN_ERROR_FORMAT, "longrope: expected its short and long factors, found none");
}

setun_status st_bind(const st_directory *d, const st_spec *spec, const st_hparams *h, st_bound_list *list,
                     setun_error *err) {
  binder b = {.list = list, .d = d, .spec = spec, .h = h, .err = err};
  *list = (st_bound_list){.directory = d, .spec = spec, .h = h};
  list->used = st_calloc(d->n_tensors, sizeof *list->used);
  setun_status s = list->used ? st_hparams_check_layers(d, h, err) : st_fail_memory(err, "the bound weights");
  for (int role = 0; role < ST_ROLE_COUNT && s == SETUN_OK; role++) {
    if (st_role_get((st_role)role)->part == ST_OF_MODEL) s = bind_role(&b, (st_role)role, -1, -1);
  }
  for (uint32_t i = 0; i < h->n_layer && s == SETUN_OK; i++) s = bind_layer(&b, i);
  if (s == SETUN_OK) s = check_factors(&b);
  if (s == SETUN_OK) s = check_unexpected(&b);
  if (s != SETUN_OK) return s;
  list->embedding = (size_t)(find(list, ST_TOKEN_EMBD) - list->items);
  list->head = h->tied ? list->embedding : (size_t)(find(list, ST_OUTPUT) - list->items);
  return SETUN_OK;
}

void st_bound_list_free(st_bound_list *list) {
  st_free(list->items);
  st_free(list->beside);
  st_free(list->used);
  *list = (st_bound_list){0};
}
