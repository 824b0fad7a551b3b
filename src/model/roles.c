// The table of roles.
#include "model/roles.h"

#include <stdio.h>

static const st_role_info roles[ST_ROLE_COUNT] = {
#define ROLE(name, part, kind, need, gguf, hf, rows, columns) {ST_OF_##part, ST_KIND_##kind, ST_##need, gguf, hf},
#include "model/roles.def"
#undef ROLE
};

const st_role_info *st_role_get(st_role role) {
  return &roles[role];
}

static uint64_t q_width(const st_hparams *h) {
  return (uint64_t)h->n_head * h->head_dim;
}

static uint64_t kv_width(const st_hparams *h) {
  return (uint64_t)h->n_head_kv * h->head_dim;
}

static uint64_t delta_width(const st_hparams *h) {
  return (uint64_t)h->delta.n_value_heads * h->delta.value_dim;
}

static uint64_t delta_channels(const st_hparams *h) {
  return 2 * (uint64_t)h->delta.n_key_heads * h->delta.key_dim + delta_width(h);
}

st_shape st_role_shape(const st_hparams *h, st_role role) {
  switch (role) {
#define ROLE(name, part, kind, need, gguf, hf, rows, columns)                                                          \
  case ST_##name:                                                                                                      \
    return (st_shape){rows, columns};
#include "model/roles.def"
#undef ROLE
  default: return (st_shape){0, 0};
  }
}

bool st_role_needs_bias(const st_hparams *h, st_role role) {
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

bool st_role_is_rotated(st_role role) {
  return role == ST_ATTN_Q || role == ST_ATTN_K;
}

// Tensors that hold the matrices of several roles: which ones, and whether their rows alternate.
static const struct {
  st_role tensor;
  uint32_t n;
  st_role parts[3];
  bool alternate;
} joined[] = {{ST_ATTN_QKV, 3, {ST_ATTN_Q, ST_ATTN_K, ST_ATTN_V}, false},
              {ST_FFN_GATE_UP, 2, {ST_FFN_GATE, ST_FFN_UP}, false},
              {ST_EXPERT_GATE_UP, 2, {ST_EXPERT_GATE, ST_EXPERT_UP}, true},
              {ST_EXPERT_GATE_THEN_UP, 2, {ST_EXPERT_GATE, ST_EXPERT_UP}, false}};
enum { JOINED = sizeof joined / sizeof *joined };

uint32_t st_role_matrices(st_role tensor) {
  for (int i = 0; i < JOINED; i++) {
    if (joined[i].tensor == tensor) return joined[i].n;
  }
  return 1;
}

int st_role_place_in(st_role tensor, st_role role) {
  if (tensor == role) return 0;
  for (int i = 0; i < JOINED; i++) {
    for (uint32_t k = 0; k < joined[i].n && joined[i].tensor == tensor; k++) {
      if (joined[i].parts[k] == role) return (int)k;
    }
  }
  return -1;
}

st_role_rows st_role_rows_in(const st_hparams *h, st_role tensor, st_role role) {
  st_role_rows rows = {0, 1, 0};
  for (int i = 0; i < JOINED && tensor != role; i++) {
    if (joined[i].tensor != tensor) continue;
    int place = st_role_place_in(tensor, role);
    rows.of = st_role_shape(h, tensor).rows;
    rows.step = joined[i].alternate ? joined[i].n : 1;
    if (joined[i].alternate) rows.first = (uint64_t)place;
    for (int k = 0; k < place && !joined[i].alternate; k++) rows.first += st_role_shape(h, joined[i].parts[k]).rows;
  }
  return rows;
}

st_role_heads st_role_value_heads(const st_hparams *h, st_role role) {
  const st_delta_params *d = &h->delta;
  switch (role) {
  case ST_DELTA_QKV:
  case ST_DELTA_TAPS: return (st_role_heads){2 * (uint64_t)d->n_key_heads * d->key_dim, d->value_dim, false};
  case ST_DELTA_Z: return (st_role_heads){0, d->value_dim, false};
  case ST_DELTA_ALPHA:
  case ST_DELTA_BETA:
  case ST_DELTA_RATE:
  case ST_DELTA_BIAS: return (st_role_heads){0, 1, false};
  case ST_DELTA_OUT: return (st_role_heads){0, d->value_dim, true};
  default: return (st_role_heads){0, 0, false};
  }
}

float **st_role_rope_factors(st_rope_params *params, st_role role) {
  return role == ST_ROPE_SHORT ? &params->short_factor : role == ST_ROPE_LONG_FACTORS ? &params->long_factor : NULL;
}

st_shape st_role_wide_shape(const st_hparams *h, st_role role) {
  switch (role) {
  case ST_ATTN_Q_NORM: return (st_shape){1, q_width(h)};
  case ST_ATTN_K_NORM: return (st_shape){1, kv_width(h)};
  default: return st_role_shape(h, role);
  }
}

st_role st_role_joined(st_role role) {
  return role == ST_DELTA_QKV || role == ST_DELTA_Z ? ST_DELTA_QKVZ : role;
}

bool st_role_joins(st_role role) {
  return role == st_role_joined(ST_DELTA_QKV);
}

bool st_role_applies(const st_hparams *h, st_role role, uint32_t layer) {
  if (h->no_sub_norms && (role == ST_ATTN_SUB_NORM || role == ST_FFN_SUB_NORM)) return false;
  switch (role) {
  case ST_DELTA_QKV:
  case ST_DELTA_Z: return h->recurrent[layer] && !h->delta.joined_mixed;
  case ST_DELTA_QKVZ: return h->recurrent[layer] && h->delta.joined_mixed;
  case ST_DELTA_ALPHA:
  case ST_DELTA_BETA: return h->recurrent[layer] && !h->delta.joined_switches;
  case ST_DELTA_SWITCHES: return h->recurrent[layer] && h->delta.joined_switches;
  default: break;
  }
  switch (roles[role].part) {
  case ST_OF_ATTENTION: return !h->recurrent[layer];
  case ST_OF_DELTA: return h->recurrent[layer];
  case ST_OF_POOLED: return (uint32_t)(role - ST_DENSE_1) < h->embedding.n_dense;
  case ST_OF_MLP: return !h->sparse[layer];
  case ST_OF_EXPERTS:
  case ST_OF_EXPERT: return h->sparse[layer];
  case ST_OF_SHARED: return h->sparse[layer] && h->n_ff_shared;
  default: return true;
  }
}

const char *st_binding_pattern(const st_binding *row, bool gguf) {
  const char *own = gguf ? row->gguf : row->hf, *shared = gguf ? roles[row->role].gguf : roles[row->role].hf;
  if (!own) return shared;
  return *own ? own : NULL;
}

st_need st_binding_need(const st_binding *row) {
  return row->need == ST_NEED_OF_ROLE ? roles[row->role].need : row->need;
}

void st_fill_name(const char *pattern, uint32_t layer, uint32_t expert, char *out, size_t size) {
  size_t n = 0;
  for (const char *p = pattern; *p && n + 1 < size; p++) {
    bool mark = p[0] == '%' && (p[1] == 'u' || p[1] == 'e');
    if (mark) {
      int digits = snprintf(out + n, size - n, "%u", p[1] == 'u' ? layer : expert);
      n += (size_t)digits < size - n ? (size_t)digits : size - n - 1;
      p++;
    } else {
      out[n++] = *p;
    }
  }
  out[n] = 0;
}
