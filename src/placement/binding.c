// The walk over a family's roles that binds them to tensors.
#include "placement/binding.h"

#include "base/memory.h"
#include "format/notices.h"
#include "model/rope.h"
#include "source/expert_deltas.h"

#include <stdio.h>
#include <string.h>

enum { GUESSED_ROWS = 32 }; // rows of a float matrix to check for trits

typedef struct {
  st_bound_list *list;
  const st_directory *d;
  const st_spec *spec;
  st_hparams *h;
  setun_error *err;
} binder;

static void mark_used(binder *b, const st_weight *w) {
  const st_packed *p = &w->packed;
  const st_tensor *tensors[] = {w->data,  w->scale, w->block_scales, w->block_minimums, p->scales,
                                p->zeros, p->g_idx, p->marks,        p->shape};
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
    if (tensors[i]) b->list->used[tensors[i] - b->d->tensors] = true;
  }
}

// Checkpoints without a head may omit "model." from all names.
static bool is_rootless(const st_directory *d) {
  return !st_directory_find(d, "model.embed_tokens.weight") && st_directory_find(d, "embed_tokens.weight");
}

// Checkpoints with more parts than the language model have a prefix before its names, or after "model.".
const char *st_bound_name(const st_directory *d, const st_spec *spec, const st_binding *row, uint32_t layer,
                          uint32_t expert, char out[ST_NAME_SIZE]) {
  static const char root[] = "model.";
  bool gguf = d->container == ST_GGUF;
  const char *pattern = st_binding_pattern(row, gguf), *prefix = gguf ? NULL : spec->hf_prefix;
  if (!pattern) return NULL;
  char first[ST_NAME_SIZE];
  size_t n = 0;
  out[0] = 0;
  if (!gguf && !strncmp(pattern, root, sizeof root - 1) && is_rootless(d)) {
    pattern += sizeof root - 1;
  } else if (prefix) {
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

// Every second element of a vector, as the rows of a column.
static setun_status take_half(binder *b, bool odd, st_weight *w) {
  uint64_t n = w->shape.columns;
  if (!st_format_row_bytes(w->format, 1)) {
    return st_fail(b->err, SETUN_ERROR_UNSUPPORTED, "%s: expected a bias in floats, found %s", w->name,
                   w->format->name);
  }
  w->stored = (st_shape){w->stored.rows * n, 1};
  w->shape = (st_shape){n / 2, 1};
  w->first_row = w->first_row * n + odd;
  w->row_step = 2;
  return SETUN_OK;
}

// Binds a vector that belongs to a module, by its own name; does nothing if absent.
static setun_status add_beside(binder *b, const char *name, uint64_t n, const st_bound *of, uint32_t *index) {
  st_bound_list *l = b->list;
  st_weight w;
  bool found = false;
  st_shape shape = {1, n};
  if (!st_directory_find(b->d, name)) return SETUN_OK;
  setun_status s;
  if (of->stacked) { // one tensor has the biases of all experts; those of gate and up alternate if these are one
                     // matrix
    bool half = of->weight.row_step == 2;
    shape.columns *= of->weight.row_step;
    s = st_weight_find_expert(b->d, name, shape, b->h->n_expert, (uint64_t)of->expert, &found, &w, b->err);
    if (s == SETUN_OK && found) mark_used(b, &w);
    if (s == SETUN_OK && found && half) s = take_half(b, of->weight.first_row % 2, &w);
  } else {
    s = st_weight_find(b->d, name, shape, &found, &w, b->err);
    if (s == SETUN_OK && found) mark_used(b, &w);
  }
  if (s != SETUN_OK || !found) return s;
  if (l->n_beside >= UINT32_MAX - 1 ||
      !st_reserve(&l->beside, &l->beside_capacity, l->n_beside + 1, sizeof *l->beside)) {
    return st_fail_memory(b->err, "the bound weights");
  }
  l->beside[l->n_beside++] = w;
  *index = (uint32_t)l->n_beside;
  return SETUN_OK;
}

// Models with int8 activations use them for ternary weights in any layout, including floats.
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

static setun_status fail_missing(binder *b, const char *name) {
  return st_fail(b->err, SETUN_ERROR_FORMAT, "%s: expected this tensor, found none", name);
}

// The suffix, after the module's name, of the norm of a matrix's input.
static const char *norm_ending(const binder *b) {
  if (!b->h->projection_norms) return ".rms_norm.weight";
  return b->d->container == ST_GGUF ? "_norm_in.weight" : ".norm.weight";
}

// A norm belongs to a ternary matrix. A file with floats that are not trits has the latent weights, or was converted by
// a program that is not aware of them.
static setun_status check_norm(binder *b, const char *norm, const st_bound *bound) {
  const st_weight *w = &bound->weight;
  if (!bound->norm && b->h->linear_norm && st_weight_is_ternary(w)) {
    return st_fail(b->err, SETUN_ERROR_FORMAT, "%s: expected this tensor%s, found none", norm,
                   b->h->projection_norms ? "" : ", since use_rms_norm is set in config.json");
  }
  if (!bound->norm || !b->h->projection_norms || st_weight_is_ternary(w)) return SETUN_OK;
  return st_fail(b->err, SETUN_ERROR_UNSUPPORTED, "%s: expected a ternary matrix, since it has %s, found %s", w->name,
                 norm, w->format->name);
}

// Binds the bias of a matrix and the norm of its input.
static setun_status bind_beside(binder *b, const st_binding *row, const char *module, st_bound *bound) {
  char bias[ST_NAME_SIZE + 24], norm[ST_NAME_SIZE + 24];
  const st_weight *w = &bound->weight;
  bool biased = row->bias || st_role_needs_bias(b->h, bound->role);
  snprintf(bias, sizeof bias, "%s.bias", module);
  snprintf(norm, sizeof norm, "%s%s", module, norm_ending(b));
  if (bound->stacked && b->d->container != ST_GGUF && !st_directory_find(b->d, bias)) {
    snprintf(bias, sizeof bias, "%s_bias", module);
  }
  setun_status s = add_beside(b, bias, w->shape.rows, bound, &bound->bias);
  if (s == SETUN_OK && !bound->stacked) s = add_beside(b, norm, w->shape.columns, bound, &bound->norm);
  if (s == SETUN_OK && !bound->stacked) s = check_norm(b, norm, bound);
  return s == SETUN_OK && !bound->bias && biased ? fail_missing(b, bias) : s;
}

// A q or k norm covers one head, or all of them: the tensor's length decides.
static st_shape shape_of(const binder *b, st_role role, const char *module) {
  st_shape shape = st_role_shape(b->h, role), wide = st_role_wide_shape(b->h, role);
  if (wide.columns == shape.columns) return shape;
  char name[ST_NAME_SIZE + 8];
  snprintf(name, sizeof name, "%s.weight", module);
  const st_tensor *t = st_directory_find(b->d, name);
  return t && t->dims[0] == wide.columns ? wide : shape;
}

// ---- roles --------------------------------------------------------------------------------------------------------

// Whether a separate head equals the embedding, which is bound already. If not, the head is used, as in transformers 5
// (modeling_utils, tie_weights: not tied if a checkpoint has both with different values); transformers 4 used the
// embedding.
static setun_status equals_embedding(binder *b, const st_weight *head, bool *equal) {
  const st_weight *w[2] = {&b->list->items[0].weight, head};
  st_row_reader readers[2] = {{0}};
  float *rows[2] = {NULL, NULL};
  size_t columns = (size_t)head->shape.columns;
  uint64_t run = (1 << 18) / (columns + 1) + 1;
  setun_status s = SETUN_OK;
  mark_used(b, head);
  for (int i = 0; i < 2 && s == SETUN_OK; i++) {
    rows[i] = st_malloc((size_t)run * columns, sizeof **rows);
    s = rows[i] ? st_row_reader_open(b->d, w[i], &readers[i], b->err) : st_fail_memory(b->err, head->name);
  }
  *equal = true;
  for (uint64_t row = 0; row < head->shape.rows && s == SETUN_OK && *equal; row += run) {
    uint64_t n = head->shape.rows - row < run ? head->shape.rows - row : run;
    for (int i = 0; i < 2 && s == SETUN_OK; i++) s = st_read_floats(&readers[i], row, n, rows[i], b->err);
    for (size_t k = 0; s == SETUN_OK && k < n * columns && *equal; k++) *equal = rows[0][k] == rows[1][k];
  }
  for (int i = 0; i < 2; i++) {
    st_row_reader_close(&readers[i]);
    st_free(rows[i]);
  }
  return s;
}

// Binds a role by one of its names; `found`: whether there is such a tensor.
static setun_status bind_name(binder *b, const st_binding *row, const char *module, st_bound *bound, bool *found) {
  bool gguf = b->d->container == ST_GGUF, expert = st_role_get(bound->role)->part == ST_OF_EXPERT;
  st_shape shape = shape_of(b, bound->role, module);
  setun_status s;
  bound->stacked = expert && !strstr(st_binding_pattern(row, gguf), "%e");
  st_role_rows rows = st_role_rows_in(b->h, row->role, bound->role);
  if (bound->stacked || rows.of) {
    st_part part = {rows.first, rows.step, rows.of};
    s = st_weight_find_part(b->d, module, shape, part, bound->stacked ? b->h->n_expert : 0,
                            bound->stacked ? (uint64_t)bound->expert : 0, found, &bound->weight, b->err);
  } else {
    s = st_weight_find(b->d, module, shape, found, &bound->weight, b->err);
  }
  if (s != SETUN_OK || !*found) return s;
  if (st_role_get(bound->role)->need == ST_UNTIED && b->h->tied) {
    bool equal = false;
    s = equals_embedding(b, &bound->weight, &equal);
    if (s != SETUN_OK || equal) return s; // a copy of the embedding: some checkpoints contain both
    s = st_notices_add(b->d->notices, SETUN_LOG_WARNING, b->err,
                       "%s: differs from the embedding although tie_word_embeddings is true: used as the head",
                       bound->weight.name);
    if (s != SETUN_OK) return s;
    b->h->tied = false;
  }
  if (!st_role_is_matrix(bound->role)) bound->weight.latent = false;
  // MLX's programs change the order of a convolution and add 1 to such norms, both or neither.
  bool taps = st_role_get(bound->role)->kind == ST_KIND_TAPS;
  if (taps && !gguf && st_weight_is_channel_last(bound->weight.data)) b->h->norm_plus_one = false;
  s = guess(b, expert ? 1 : GUESSED_ROWS, bound);
  if (s == SETUN_OK && st_role_is_matrix(bound->role)) s = bind_beside(b, row, module, bound);
  return s == SETUN_OK ? add(b, bound) : s;
}

// Binds the first of a role's names that exists.
static setun_status bind_role(binder *b, st_role role, int32_t layer, int32_t expert) {
  char name[ST_NAME_SIZE], wanted[ST_NAME_SIZE] = "";
  bool found = false, missing = false;
  setun_status s = SETUN_OK;
  for (const st_binding *row = b->spec->bindings; row->role != ST_ROLE_COUNT && !found && s == SETUN_OK; row++) {
    st_bound bound = {.role = role, .layer = layer, .expert = expert};
    uint32_t in_layer = layer < 0 ? 0 : (uint32_t)layer, of = expert < 0 ? 0 : (uint32_t)expert;
    if (st_role_place_in(row->role, role) < 0 || !st_bound_name(b->d, b->spec, row, in_layer, of, name)) continue;
    s = bind_name(b, row, name, &bound, &found);
    st_need need = st_binding_need(row);
    if (need == ST_REQUIRED || (need == ST_UNTIED && !b->h->tied)) {
      missing = true;
      if (!wanted[0]) snprintf(wanted, sizeof wanted, "%s", name);
    }
  }
  if (s != SETUN_OK || found || !missing) return s;
  return st_fail(b->err, SETUN_ERROR_FORMAT, "%s.weight: expected this tensor, found none", wanted);
}

static setun_status bind_experts(binder *b, int32_t layer) {
  setun_status s = SETUN_OK;
  for (uint32_t e = 0; e < b->h->n_expert && s == SETUN_OK; e++) { // at most ST_MAX_EXPERTS
    for (int role = 0; role < ST_ROLE_COUNT && s == SETUN_OK; role++) {
      bool of_expert = st_role_get((st_role)role)->part == ST_OF_EXPERT;
      if (of_expert && st_role_matrices((st_role)role) == 1) s = bind_role(b, (st_role)role, layer, (int32_t)e);
    }
  }
  return s;
}

// A role of layers that occurs once in each.
static bool is_of_whole_layers(st_role role) {
  return st_role_in_layer(role) && st_role_get(role)->part != ST_OF_EXPERT;
}

static setun_status bind_layer(binder *b, uint32_t layer) {
  setun_status s = SETUN_OK;
  for (int role = 0; role < ST_ROLE_COUNT && s == SETUN_OK; role++) {
    bool alone = st_role_matrices((st_role)role) == 1;
    if (alone && is_of_whole_layers((st_role)role) && st_role_applies(b->h, (st_role)role, layer)) {
      s = bind_role(b, (st_role)role, (int32_t)layer, -1);
    }
  }
  return s == SETUN_OK && b->h->sparse[layer] ? bind_experts(b, (int32_t)layer) : s;
}

// ---- what layers have in common -------------------------------------------------------------------------------------

typedef enum { PART_WEIGHT, PART_BIAS, PART_NORM, PARTS } part;

// The name of a bound weight's tensor, or of its bias or norm.
static void part_name(const binder *b, const st_bound *bound, part p, char name[ST_NAME_SIZE + 24]) {
  const char *const dotted[PARTS] = {".weight", ".bias", norm_ending(b)};
  static const char *const stacked[] = {".weight", "_blocks"}; // the suffix of a tensor's name, or empty
  size_t n = strlen(bound->weight.name);
  const char *end = "_bias";
  for (size_t i = 0; i < 2; i++) {
    size_t m = strlen(stacked[i]);
    if (n <= m || strcmp(bound->weight.name + n - m, stacked[i])) continue;
    n -= m;
    if (!i) end = dotted[p];
    break;
  }
  snprintf(name, ST_NAME_SIZE + 24, "%.*s%s", (int)(n < ST_NAME_SIZE ? n : ST_NAME_SIZE - 1), bound->weight.name, end);
}

static setun_status fail_part(binder *b, const char *name, int32_t other) {
  return st_fail(b->err, SETUN_ERROR_FORMAT, "%s: expected this tensor, as layer %d has one, found none", name,
                 (int)other);
}

// Either all of a role's matrices have a bias, or none; likewise norms.
static setun_status check_beside(binder *b, part p) {
  const st_bound *with[ST_ROLE_COUNT] = {NULL}, *without[ST_ROLE_COUNT] = {NULL};
  for (size_t i = 0; i < b->list->n; i++) {
    const st_bound *bound = &b->list->items[i];
    // Norms belong to ternary matrices; which ones are ternary is certain only after reading them.
    bool there = p == PART_BIAS ? bound->bias : bound->norm,
         counts = p == PART_BIAS || st_weight_is_ternary(&bound->weight);
    const st_bound **first = there ? &with[bound->role] : &without[bound->role];
    if (bound->layer >= 0 && counts && !*first) *first = bound;
  }
  for (int role = 0; role < ST_ROLE_COUNT; role++) {
    char name[ST_NAME_SIZE + 24];
    if (!with[role] || !without[role]) continue;
    part_name(b, without[role], p, name);
    return fail_part(b, name, with[role]->layer);
  }
  return SETUN_OK;
}

// Optional roles exist in every layer that has their part of the model, or in none.
static setun_status check_role(binder *b, st_role role, const int32_t *there) {
  int32_t with = -1, without = -1;
  char name[ST_NAME_SIZE], full[ST_NAME_SIZE + 8];
  for (uint32_t i = 0; i < b->h->n_layer; i++) {
    if (!st_role_applies(b->h, role, i)) continue;
    if (there[i] && with < 0) with = (int32_t)i;
    if (!there[i] && without < 0) without = (int32_t)i;
  }
  if (with < 0 || without < 0) return SETUN_OK;
  for (const st_binding *row = b->spec->bindings; row->role != ST_ROLE_COUNT; row++) {
    if (row->role != role || !st_bound_name(b->d, b->spec, row, (uint32_t)without, 0, name)) continue;
    snprintf(full, sizeof full, "%s.weight", name);
    return fail_part(b, full, with);
  }
  return SETUN_OK;
}

static setun_status check_layers(binder *b) {
  int32_t *there = st_malloc(b->h->n_layer, sizeof *there);
  setun_status s = there ? SETUN_OK : st_fail_memory(b->err, "the bound weights");
  for (int role = 0; role < ST_ROLE_COUNT && s == SETUN_OK; role++) {
    if (!is_of_whole_layers((st_role)role)) continue;
    memset(there, 0, b->h->n_layer * sizeof *there);
    for (size_t i = 0; i < b->list->n; i++) {
      if (b->list->items[i].role == (st_role)role) there[b->list->items[i].layer] = 1;
    }
    s = check_role(b, (st_role)role, there);
  }
  st_free(there);
  if (s == SETUN_OK) s = check_beside(b, PART_BIAS);
  return s == SETUN_OK ? check_beside(b, PART_NORM) : s;
}

// ---- what is left -------------------------------------------------------------------------------------------------

// The activation scale of a weight in NVFP4, for processors that take both in four bits.
static bool is_input_scale(const st_directory *d, const char *name) {
  static const char suffix[] = ".input_scale";
  char weight[ST_NAME_SIZE + 8];
  size_t n = strlen(name), end = sizeof suffix - 1;
  if (d->container != ST_GGUF || n <= end || n > ST_NAME_SIZE || strcmp(name + n - end, suffix)) return false;
  snprintf(weight, sizeof weight, "%.*s.weight", (int)(n - end), name);
  const st_tensor *t = st_directory_find(d, weight);
  return t && t->format && t->format->ops->has_input_scales;
}

// Whether a tensor belongs to a multi-token prediction layer after the last one.
static bool is_of_next(const binder *b, const char *name) {
  char prefix[32];
  for (uint32_t i = 0; i < b->h->n_layer_next; i++) {
    snprintf(prefix, sizeof prefix, "blk.%u.", b->h->n_layer + i);
    if (!strncmp(name, prefix, strlen(prefix))) return true;
  }
  return false;
}

static bool is_of_other_part(const binder *b, const char *name) {
  for (const char *const *p = b->spec->ignored; p && *p; p++) {
    if (!strncmp(name, *p, strlen(*p))) return true;
  }
  return is_of_next(b, name);
}

// An unused tensor would mean a model that computes something else.
static setun_status check_unexpected(binder *b) {
  size_t others = 0, first = 0; // tensors of other parts of the checkpoint
  for (size_t i = 0; i < b->d->n_tensors; i++) {
    const char *name = b->d->tensors[i].name;
    size_t n = strlen(name);
    bool expected = b->list->used[i] || (n > 20 && !strcmp(name + n - 20, ".rotary_emb.inv_freq"));
    expected = expected || is_input_scale(b->d, name);
    expected = expected || (b->h->n_expert && b->d->container == ST_GGUF && st_expert_deltas_is(name, b->h->n_layer));
    if (!expected && is_of_other_part(b, name)) {
      if (!others++) first = i;
      expected = true;
    }
    if (!expected) {
      return st_fail(b->err, SETUN_ERROR_UNSUPPORTED, "%s: models of the %s family do not have this tensor", name,
                     b->spec->name);
    }
  }
  if (!others) return SETUN_OK;
  return st_notices_add(b->d->notices, SETUN_LOG_INFO, b->err,
                        "tensors of other parts of the checkpoint are not used: %zu, the first is %s", others,
                        b->d->tensors[first].name);
}

static const st_bound *find(const st_bound_list *l, st_role role) {
  for (size_t i = 0; i < l->n && l->items[i].layer < 0; i++) {
    if (l->items[i].role == role) return &l->items[i];
  }
  return NULL;
}

// The matrix with a row per token; NULL: the part has none.
static const st_bound *find_embedding(const st_bound_list *l, st_role_part of) {
  for (size_t i = 0; i < l->n && l->items[i].layer < 0; i++) {
    const st_role_info *info = st_role_get(l->items[i].role);
    if (info->kind == ST_KIND_EMBEDDING && info->part == of) return &l->items[i];
  }
  return NULL;
}

static setun_status check_factors(const binder *b) {
  st_rope_params *r = &b->h->rope;
  const st_bound *stated = NULL; // the first of the tensors
  bool there = true;
  for (int role = 0; role < ST_ROLE_COUNT; role++) {
    float **factors = st_role_rope_factors(r, (st_role)role);
    const st_bound *bound = factors ? find(b->list, (st_role)role) : NULL;
    if (!stated) stated = bound;
    if (factors && !*factors && !bound) there = false;
  }
  if (stated && r->scaling != ST_ROPE_LONG) {
    return st_fail(b->err, SETUN_ERROR_UNSUPPORTED,
                   "%s: expected rope.scaling.type longrope with it, found another type", stated->weight.name);
  }
  if (r->scaling != ST_ROPE_LONG || there) return SETUN_OK;
  return st_fail(b->err, SETUN_ERROR_FORMAT, "longrope: expected its short and long factors, found none");
}

// ---- rotated bases ------------------------------------------------------------------------------------------------

// Marks the matrices whose inputs are rotated. Weights that read plain activations cannot be rotated.
static setun_status mark_rotated(binder *b) {
  const st_rotation *r = b->h->rotation;
  st_bound_list *l = b->list;
  if (!r) return SETUN_OK;
  setun_status s = st_rotation_check(r, b->d, b->err);
  for (size_t i = 0; i < l->n && s == SETUN_OK; i++) {
    st_bound *bound = &l->items[i];
    const st_role_info *role = st_role_get(bound->role);
    bool listed = st_rotation_has(r, bound->weight.data->name);
    bool embedding = role->kind == ST_KIND_EMBEDDING && role->part == ST_OF_MODEL;
    bool product = role->kind == ST_KIND_LINEAR || (role->kind == ST_KIND_EMBEDDING && !embedding);
    bound->rotated = listed;
    if (listed && !product && !(embedding && r->embedding)) {
      return st_fail(b->err, SETUN_ERROR_UNSUPPORTED, "%s: expected a plain matrix, found a rotated one",
                     bound->weight.name);
    }
    if (bound->rotated && bound->norm) {
      return st_fail(b->err, SETUN_ERROR_UNSUPPORTED,
                     "%s: expected no norm, as its inputs are rotated, "
                     "found one",
                     bound->weight.name);
    }
  }
  if (s != SETUN_OK) return s;
  return st_notices_add(b->d->notices, SETUN_LOG_INFO, b->err,
                        "%zu matrices%s are in a rotated basis: Hadamard matrices of %u%s", r->n_names,
                        r->embedding ? " and the embedding" : "", r->block, r->has_signs ? " after signs" : "");
}

setun_status st_bind(const st_directory *d, const st_spec *spec, st_hparams *h, st_bound_list *list, setun_error *err) {
  binder b = {.list = list, .d = d, .spec = spec, .h = h, .err = err};
  *list = (st_bound_list){.directory = d, .spec = spec, .h = h};
  list->used = st_calloc(d->n_tensors, sizeof *list->used);
  setun_status s = list->used ? st_hparams_check_layers(d, h, err) : st_fail_memory(err, "the bound weights");
  for (int role = 0; role < ST_ROLE_COUNT && s == SETUN_OK; role++) {
    bool of_model = !st_role_in_layer((st_role)role) && st_role_applies(h, (st_role)role, 0);
    if (of_model) s = bind_role(&b, (st_role)role, -1, -1);
  }
  for (uint32_t i = 0; i < h->n_layer && s == SETUN_OK; i++) s = bind_layer(&b, i);
  if (s == SETUN_OK) s = check_layers(&b);
  if (s == SETUN_OK) s = check_factors(&b);
  if (s == SETUN_OK) s = check_unexpected(&b);
  if (s == SETUN_OK) s = mark_rotated(&b);
  if (s != SETUN_OK) return s;
  list->embedding = (size_t)(find_embedding(list, ST_OF_MODEL) - list->items);
  list->head = h->tied ? list->embedding : (size_t)(find_embedding(list, ST_OF_HEAD) - list->items);
  return SETUN_OK;
}

void st_bound_list_free(st_bound_list *list) {
  st_free(list->items);
  st_free(list->beside);
  st_free(list->used);
  *list = (st_bound_list){0};
}
