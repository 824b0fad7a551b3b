// Formats of the KV cache: sizes of blocks, and how numbers get into them and out.
#include "kernel/cache.h"

#include "kernel/layout.h"

#include <string.h>

static const st_kv_format formats[] = {
#define KV_FORMAT(id, text, n) [SETUN_KV_##id] = {.name = text, .bits = n},
#include "kernel/cache_formats.def"
};

const st_kv_format *st_kv_format_of(setun_kv_type type) {
  return (size_t)type < sizeof formats / sizeof *formats ? &formats[type] : NULL;
}

size_t st_kv_row_bytes(setun_kv_type type, size_t head_dim) {
  return head_dim * formats[type].bits / 8;
}

size_t st_kv_block_bytes(setun_kv_type type, size_t head_dim) {
  return st_kv_row_bytes(type, head_dim) * ST_KEYS;
}

// Number `column` of a position.
static uint8_t *place_of(const st_kv_place *p, size_t column) {
  size_t i = p->keys ? column * ST_KEYS + p->at : p->at * p->head_dim + column;
  return p->block + i * formats[p->type].bits / 8;
}

void st_kv_store(const st_kv_place *p, const uint8_t *row) {
  size_t bytes = formats[p->type].bits / 8;
  if (!p->keys) {
    memcpy(place_of(p, 0), row, p->head_dim * bytes);
    return;
  }
  for (size_t d = 0; d < p->head_dim; d++) memcpy(place_of(p, d), row + d * bytes, bytes);
}

void st_kv_load(const st_kv_place *p, uint8_t *row) {
  size_t bytes = formats[p->type].bits / 8;
  for (size_t d = 0; d < p->head_dim; d++) memcpy(row + d * bytes, place_of(p, d), bytes);
}

void st_kv_write(const st_kernels *k, const st_kv_place *p, const float *x) {
  enum { PIECE = 64 };
  uint16_t half[PIECE];
  for (size_t d = 0; d < p->head_dim; d += PIECE) {
    size_t n = p->head_dim - d < PIECE ? p->head_dim - d : PIECE;
    if (p->type == SETUN_KV_F16) k->to_half(x + d, n, half);
    for (size_t i = 0; i < n; i++) {
      if (p->type == SETUN_KV_F16)
        memcpy(place_of(p, d + i), &half[i], sizeof *half);
      else
        memcpy(place_of(p, d + i), &x[d + i], sizeof *x);
    }
  }
}
