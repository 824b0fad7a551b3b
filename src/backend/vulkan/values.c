// Matrices of value formats in the formats' own bits. A block's codes are those of its bytes that are whole words and
// read by many; a row has the codes of all its blocks, and then what else these have, their heads, so that both are
// read in words that follow each other. No bit changes: a row is as long as in the file, but for a word's rest.
#include "backend/vulkan/device.h"

#include "quant/quant.h"

#include <string.h>

enum {
#define CODEC(id, number, first, bytes, bits) id = (number),
#define SHARED(id, number) id = (number),
#include "backend/vulkan/codecs.def"
};

enum { UNIT = 8 }; // columns that a shader takes at once

// Formats that are a codec of their own: their codes' first byte in a block, and how many there are.
static const struct {
  st_format_id id;
  uint32_t codec, first, bytes, bits;
} single[] = {
#define CODEC(id, number, first, bytes, bits) {ST_##id, number, first, bytes, bits},
#define SHARED(id, number)
#include "backend/vulkan/codecs.def"
};

// Strings of codes after `head` bytes.
static st_vk_values string_of(const st_format *f, uint32_t codec, uint32_t head) {
  uint32_t bytes = f->block_bytes - head;
  return (st_vk_values){codec, bytes * 8 / f->block, f->block, head, bytes, head};
}

bool st_vk_values_of(const st_format *f, st_vk_values *v) {
  enum { ZP_HEAD = 3, AFFINE_HEAD = 4, SCALE = 2 };
  const st_format_ops *ops = f->ops;
  for (size_t i = 0; i < sizeof single / sizeof *single; i++) {
    uint32_t bytes = single[i].bytes, block = bytes ? f->block : 0,
             head = bytes ? f->block_bytes - bytes : ops->row_head;
    if (single[i].id != f->id) continue;
    *v = (st_vk_values){single[i].codec, single[i].bits, block, single[i].first, bytes, head};
    return true;
  }
  if (!ops->sparse && !ops->zero_points && !ops->affine_bits) return false;
  if (ops->sparse)
    *v = (st_vk_values){ops->halved ? S24_F4 : S24_I4, 0, f->block, 0, f->block_bytes - SCALE, SCALE};
  else if (ops->zero_points)
    *v = string_of(f, ZP, ZP_HEAD);
  else
    *v = string_of(f, ops->bfloat ? AFFINE_BF16 : AFFINE, AFFINE_HEAD);
  return true;
}

static uint64_t code_words(const st_vk_values *v, uint64_t columns) {
  return v->block ? columns / v->block * v->bytes / sizeof(uint32_t) : (columns + UNIT - 1) / UNIT * 2;
}

uint64_t st_vk_values_words(const st_vk_values *v, uint64_t columns) {
  uint64_t heads = (v->block ? columns / v->block : 1) * v->head;
  return code_words(v, columns) + (heads + 3) / sizeof(uint32_t);
}

void st_vk_values_special(const st_vk_values *v, st_vk_special *s) {
  s->constants[3] = v->codec;
  s->constants[4] = v->bits;
  s->constants[5] = v->block;
  s->constants[6] = v->bytes / (uint32_t)sizeof(uint32_t);
  s->constants[7] = v->head;
}

void st_vk_values_pack(const st_vk_values *v, uint32_t columns, const uint8_t *row, uint32_t *out) {
  uint32_t blocks = v->block ? columns / v->block : 1, bytes = v->block ? v->bytes : columns;
  uint8_t *codes = (uint8_t *)out, *heads = (uint8_t *)(out + code_words(v, columns));
  memset(out, 0, st_vk_values_words(v, columns) * sizeof *out);
  for (uint32_t b = 0; b < blocks; b++, codes += bytes, row += bytes + v->head) {
    memcpy(codes, row + v->first, bytes);
    memcpy(heads, row, v->first);
    heads += v->first;
    memcpy(heads, row + v->first + bytes, v->head - v->first); // what follows the codes
    heads += v->head - v->first;
  }
}
