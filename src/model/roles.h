// Roles: the purposes of a model's tensors, and the rows of families' tables that map names to roles.
#ifndef SETUN_MODEL_ROLES_H
#define SETUN_MODEL_ROLES_H

#include "model/hparams.h"

typedef enum st_role {
#define ROLE(name, part, kind, need, gguf, hf, rows, columns) ST_##name,
#include "model/roles.def"
#undef ROLE
  ST_ROLE_COUNT
} st_role;

// The part of a model that has the role: the model itself, before and after its layers, the parts for embeddings, then
// parts of layers.
typedef enum st_role_part {
  ST_OF_MODEL,
  ST_OF_HEAD,
  ST_OF_POOLED, // for embeddings
  ST_OF_MIXER,  // attention or another
  ST_OF_ATTENTION,
  ST_OF_DELTA,        // gated DeltaNet
  ST_OF_FEED_FORWARD, // dense or with experts
  ST_OF_MLP,
  ST_OF_EXPERTS, // all experts of a layer together
  ST_OF_EXPERT,
  ST_OF_SHARED
} st_role_part;

typedef enum st_role_kind {
  ST_KIND_EMBEDDING,  // a matrix with a row for each token
  ST_KIND_LINEAR,     // a matrix that BitNet training makes ternary
  ST_KIND_ROUTER,     // a matrix whose products take floats, since they choose experts
  ST_KIND_NORM,       // a vector that some containers store minus one
  ST_KIND_PLAIN_NORM, // one that is always stored as it is
  ST_KIND_VECTOR,     // a vector; in directories the tensor has the module's name, without ".weight"
  ST_KIND_BARE,       // a vector named so in both containers
  ST_KIND_RATE,       // the same; files store its logarithm, or its negative
  ST_KIND_TAPS,       // a small matrix of floats, which the device stores column by column
  ST_KIND_TABLE       // a vector that only the host uses
} st_role_kind;

typedef enum st_need {
  ST_NEED_OF_ROLE, // in a family's row: as in the role's row
  ST_REQUIRED,
  ST_OPTIONAL, // present in every layer that has the part, or in none
  ST_UNTIED    // required unless the head is the embedding
} st_need;

typedef struct st_role_info {
  st_role_part part;
  st_role_kind kind;
  st_need need;
  const char *gguf, *hf;
} st_role_info;

const st_role_info *st_role_get(st_role role);
// The shape that the parameters require; for experts, of one. A q or k norm may also span all heads.
st_shape st_role_shape(const st_hparams *h, st_role role);
// The shape of a q or k norm that spans all heads; for other roles, that of st_role_shape.
// The role of a recurrent layer's matrix that has, key head by key head, the rows of this role's and of others; the
// role itself: none. And whether it is such a matrix.
st_role st_role_joined(st_role role);
bool st_role_joins(st_role role);

st_shape st_role_wide_shape(const st_hparams *h, st_role role);
// Whether a layer of the model has the role's part (true for roles of the model itself).
bool st_role_applies(const st_hparams *h, st_role role, uint32_t layer);
// Whether the parameters require a bias for the role's matrix.
bool st_role_needs_bias(const st_hparams *h, st_role role);

static inline bool st_role_is_matrix(st_role role) {
  st_role_kind kind = st_role_get(role)->kind;
  return kind == ST_KIND_EMBEDDING || kind == ST_KIND_LINEAR || kind == ST_KIND_ROUTER;
}

// Whether the tensor in GGUF has the module's name, without ".weight".
static inline bool st_role_is_bare(st_role role) {
  st_role_kind kind = st_role_get(role)->kind;
  return kind == ST_KIND_BARE || kind == ST_KIND_RATE;
}

// Whether the role belongs to a layer's first half, which is used before the feed-forward part.
static inline bool st_role_is_first_half(st_role role) {
  st_role_part part = st_role_get(role)->part;
  return part == ST_OF_MIXER || part == ST_OF_ATTENTION || part == ST_OF_DELTA;
}

static inline bool st_role_in_layer(st_role role) {
  st_role_part part = st_role_get(role)->part;
  return part != ST_OF_MODEL && part != ST_OF_HEAD && part != ST_OF_POOLED;
}

// Whether the rows of a head are reordered for interleaved RoPE (st_spec.gguf_interleaved).
bool st_role_is_rotated(st_role role);

// A tensor may hold the matrices of several roles: their number (1: only its own); and the index of `role` in a tensor
// of the role `tensor`, -1 if absent.
uint32_t st_role_matrices(st_role tensor);
int st_role_place_in(st_role tensor, st_role role);
// The rows of one role in such a tensor: every step-th of `of` rows, starting at `first`; `of` 0: all of them.
typedef struct st_role_rows {
  uint64_t first, step, of;
} st_role_rows;
st_role_rows st_role_rows_in(const st_hparams *h, st_role tensor, st_role role);

// The rows, or columns, of a role's matrix that are the value heads of recurrent layers: `size` for each head, starting
// at `first`. size 0: none are.
typedef struct st_role_heads {
  uint64_t first, size;
  bool columns;
} st_role_heads;
st_role_heads st_role_value_heads(const st_hparams *h, st_role role);

// The member for LongRoPE's divisors with this role, one of kind ST_KIND_TABLE; NULL: the role is not one of them.
float **st_role_rope_factors(st_rope_params *params, st_role role);

// One row of a family's table. Several rows of one role are alternatives: the first one found is used.
typedef struct st_binding {
  st_role role;
  const char *gguf, *hf; // NULL: as in the role's row; ST_NO_NAME: not in that container
  st_need need;
  bool bias; // requires a bias, whatever the parameters say
} st_binding;

#define ST_NO_NAME ""
// A row with the names and the need of the role.
#define ST_BIND(name)                                                                                                  \
  { .role = name }
#define ST_BIND_END                                                                                                    \
  { .role = ST_ROLE_COUNT }

// The row's name in a container; NULL: none.
const char *st_binding_pattern(const st_binding *row, bool gguf);
st_need st_binding_need(const st_binding *row);

enum { ST_NAME_SIZE = 192 }; // bytes of a module's name; the tables' names are far shorter
// `pattern` with its %u and %e replaced.
void st_fill_name(const char *pattern, uint32_t layer, uint32_t expert, char *out, size_t size);

#endif
