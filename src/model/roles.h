// Roles: what tensors do in a model, and the rows of families' tables that say which names have which role.
#ifndef SETUN_MODEL_ROLES_H
#define SETUN_MODEL_ROLES_H

#include "model/hparams.h"

typedef enum st_role {
#define ROLE(name, part, kind, need, gguf, hf, rows, columns) ST_##name,
#include "model/roles.def"
#undef ROLE
  ST_ROLE_COUNT
} st_role;

// Which part of a model has the role: those of the model itself, before its layers and behind them, those of
// embeddings, then parts of layers.
typedef enum st_role_part {
  ST_OF_MODEL,
  ST_OF_HEAD,
  ST_OF_POOLED, // of embeddings
  ST_OF_MIXER,  // attention or another
  ST_OF_ATTENTION,
  ST_OF_DELTA,        // gated DeltaNet
  ST_OF_FEED_FORWARD, // dense or with experts
  ST_OF_MLP,
  ST_OF_EXPERTS, // all of a layer's together
  ST_OF_EXPERT,
  ST_OF_SHARED
} st_role_part;

typedef enum st_role_kind {
  ST_KIND_EMBEDDING,  // a matrix of rows of the vocabulary
  ST_KIND_LINEAR,     // a matrix that BitNet training makes ternary
  ST_KIND_ROUTER,     // a matrix whose products take floats: which experts run is decided in them
  ST_KIND_NORM,       // a vector that some containers store less one
  ST_KIND_PLAIN_NORM, // one that none does
  ST_KIND_VECTOR,     // directories name the tensor as the module, without ".weight"
  ST_KIND_BARE,       // a vector that both containers name so
  ST_KIND_RATE,       // likewise; files hold its logarithm, or its negative
  ST_KIND_TAPS,       // a small matrix of floats, of which the device has one column after the other
  ST_KIND_TABLE       // a vector that no device sees
} st_role_kind;

typedef enum st_need {
  ST_NEED_OF_ROLE, // in a family's row: what the role's row says
  ST_REQUIRED,
  ST_OPTIONAL, // of a layer: there in every layer that has the part, or in none
  ST_UNTIED    // required unless the head is the embedding
} st_need;

typedef struct st_role_info {
  st_role_part part;
  st_role_kind kind;
  st_need need;
  const char *gguf, *hf;
} st_role_info;

const st_role_info *st_role_get(st_role role);
// The shape that the parameters demand; of one expert. A q or k norm may also be as wide as all heads.
st_shape st_role_shape(const st_hparams *h, st_role role);
// The shape of a norm of q or k that is as wide as all heads; for other roles, that of st_role_shape.
st_shape st_role_wide_shape(const st_hparams *h, st_role role);
// Whether a layer of the model has the role's part (any, for those of the model).
bool st_role_applies(const st_hparams *h, st_role role, uint32_t layer);
// Whether the parameters say that the role's matrix has a bias.
bool st_role_needs_bias(const st_hparams *h, st_role role);

static inline bool st_role_is_matrix(st_role role) {
  st_role_kind kind = st_role_get(role)->kind;
  return kind == ST_KIND_EMBEDDING || kind == ST_KIND_LINEAR || kind == ST_KIND_ROUTER;
}

// Whether the module's name is the tensor's own, in GGUF.
static inline bool st_role_is_bare(st_role role) {
  st_role_kind kind = st_role_get(role)->kind;
  return kind == ST_KIND_BARE || kind == ST_KIND_RATE;
}

// Of a layer's first half: its matrices are used before those of the feed-forward part.
static inline bool st_role_is_first_half(st_role role) {
  st_role_part part = st_role_get(role)->part;
  return part == ST_OF_MIXER || part == ST_OF_ATTENTION || part == ST_OF_DELTA;
}

static inline bool st_role_in_layer(st_role role) {
  st_role_part part = st_role_get(role)->part;
  return part != ST_OF_MODEL && part != ST_OF_HEAD && part != ST_OF_POOLED;
}

// Whether the rows of a head are in another order where RoPE turns neighbors (st_spec.gguf_interleaved).
bool st_role_is_rotated(st_role role);

// A tensor of one role may hold the matrices of several: how many (1: it is that role's alone); and which of them
// `role` is in a tensor of the role `tensor`, -1 if it is not in there.
uint32_t st_role_matrices(st_role tensor);
int st_role_place_in(st_role tensor, st_role role);
// Which rows of such a tensor that is: every step-th of all `of` from the first on; `of` 0: all of them.
typedef struct st_role_rows {
  uint64_t first, step, of;
} st_role_rows;
st_role_rows st_role_rows_in(const st_hparams *h, st_role tensor, st_role role);

// One row of a family's table. Several rows of one role are alternatives: the first that is there counts.
typedef struct st_binding {
  st_role role;
  const char *gguf, *hf; // NULL: as the role's row says; ST_NO_NAME: not in that container
  st_need need;
  bool bias; // cannot be without one, whatever the parameters say
} st_binding;

#define ST_NO_NAME ""
// A row whose names and need are the role's.
#define ST_BIND(name)                                                                                                  \
  { .role = name }
#define ST_BIND_END                                                                                                    \
  { .role = ST_ROLE_COUNT }

// The row's name in a container; NULL: it has none there.
const char *st_binding_pattern(const st_binding *row, bool gguf);
st_need st_binding_need(const st_binding *row);

enum { ST_NAME_SIZE = 192 }; // of modules' names; those of the tables are far shorter
// `pattern` with its %u and %e replaced.
void st_fill_name(const char *pattern, uint32_t layer, uint32_t expert, char *out, size_t size);

#endif
