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

uint32_t st_role_matrices(st_role tensor) {
  return tensor == ST_EXPERT_GATE_UP ? 2 : 1;
}

int st_role_place_in(st_role tensor, st_role role) {
  if (tensor != ST_EXPERT_GATE_UP || role == tensor) return role == tensor ? 0 : -1;
  return role == ST_EXPERT_GATE ? 0 : role == ST_EXPERT_UP ? 1 : -1;
}

st_shape st_role_wide_shape(const st_hparams *h, st_role role) {
  switch (role) {
  case ST_ATTN_Q_NORM: return (st_shape){1, q_width(h)};
  case ST_ATTN_K_NORM: return (st_shape){1, kv_width(h)};
  default: return st_role_shape(h, role);
  }
}

bool st_role_applies(const st_hparams *h, st_role role, uint32_t layer) {
  if (h->no_sub_norms && (role == ST_ATTN_SUB_NORM || role == ST_FFN_SUB_NORM)) return false;
  switch (roles[role].part) {
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
