// Formats of the KV cache: sizes of blocks, and how numbers get into them and out.
#include "kernel/cache.h"

#include "base/float16.h"
#include "kernel/layout.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const st_kv_format formats[] = {
#define KV_FORMAT(id, text, n, of, turned)                                                                             \
  [SETUN_KV_##id] = {.name = text, .bits = n, .form = ST_FORM_##of, .rotated = turned},
#include "kernel/cache_formats.def"
};

const st_kv_format *st_kv_format_of(setun_kv_type type) {
  return (size_t)type < sizeof formats / sizeof *formats ? &formats[type] : NULL;
}

static bool is_codes(setun_kv_type type) {
  return formats[type].form != ST_FORM_COUNT;
}

static size_t steps_of(size_t head_dim) {
  return (head_dim + ST_STEP - 1) / ST_STEP;
}

// Bytes of a step's codes of one position.
static size_t code_bytes(setun_kv_type type) {
  return ST_STEP * formats[type].bits / 8;
}

size_t st_kv_row_bytes(setun_kv_type type, size_t head_dim) {
  return is_codes(type) ? steps_of(head_dim) * (2 + code_bytes(type)) : head_dim * formats[type].bits / 8;
}

size_t st_kv_group_bytes(setun_kv_type type, size_t head_dim) {
  return st_form_group_bytes(formats[type].form, head_dim, ST_STEP);
}

size_t st_kv_block_bytes(setun_kv_type type, bool keys, size_t head_dim) {
  if (is_codes(type) && keys) return ST_KEYS / ST_GROUP * st_kv_group_bytes(type, head_dim);
  return st_kv_row_bytes(type, head_dim) * ST_KEYS;
}

void st_kv_rotate(float *x, size_t head_dim) {
  size_t n = head_dim & (~head_dim + 1);
  float scale = 1.0f / sqrtf((float)n);
  for (size_t from = 0; from < head_dim; from += n) {
    for (size_t half = n / 2; half; half /= 2) {
      for (size_t i = from; i < from + n; i += 2 * half) {
        for (size_t j = i; j < i + half; j++) {
          float a = x[j], b = x[j + half];
          x[j] = a + b, x[j + half] = a - b;
        }
      }
    }
  }
  for (size_t i = 0; i < head_dim; i++) x[i] *= scale;
}

// ---- numbers ------------------------------------------------------------------------------------------------------

// Number `column` of a position.
static uint8_t *place_of(const st_kv_place *p, size_t column) {
  size_t i = p->keys ? column * ST_KEYS + p->at : p->at * p->head_dim + column;
  return p->block + i * formats[p->type].bits / 8;
}

static void write_numbers(const st_kernels *k, const st_kv_place *p, const float *x) {
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

// ---- codes --------------------------------------------------------------------------------------------------------

// A step of one position: what its numbers are, divided by the scale.
typedef struct step_codes {
  uint16_t scale; // half precision
  int8_t codes[ST_STEP];
} step_codes;

// The nearest integer, ties to even, of |x| below 2^22.
static float nearest(float x) {
  const float rounder = 12582912.0f;
  return (x + rounder) - rounder;
}

// 8 bits: the largest is 127. 4 bits: the one that is furthest from zero is -8, so that all 16 codes are used.
static step_codes quantize(uint32_t bits, const float *x, size_t n) {
  step_codes out = {0};
  float most = 0, extreme = 0;
  bool finite = true;
  for (size_t i = 0; i < n; i++) {
    float a = fabsf(x[i]);
    finite = finite && a <= FLT_MAX;
    if (a > most) most = a, extreme = x[i];
  }
  float lowest = bits == 8 ? -127 : -8, highest = bits == 8 ? 127 : 7;
  out.scale = finite ? st_f16_from_f32(bits == 8 ? most / 127 : extreme / -8) : 0x7E00;
  float scale = st_f32_from_f16(out.scale), inverse = scale != 0 ? 1.0f / scale : 0;
  if (!(fabsf(scale) <= FLT_MAX)) return (step_codes){.scale = 0x7E00};
  for (size_t i = 0; i < n; i++) {
    float code = x[i] * inverse;
    code = nearest(code < lowest ? lowest : code > highest ? highest : code);
    out.codes[i] = (int8_t)code;
  }
  return out;
}

// Codes of 4 bits are stored plus 8.
static void put_nibble(uint8_t *at, unsigned shift, int code) {
  *at = (uint8_t)((*at & ~(15u << shift)) | (unsigned)(code + 8) << shift);
}
static int8_t get_nibble(uint8_t byte, unsigned shift) {
  return (int8_t)((byte >> shift & 15) - 8);
}

// Byte of a key's code of a step, and the bits that it is shifted by; see layout.h.
static uint8_t *key_at(const st_kv_place *p, size_t step, size_t column, unsigned *shift) {
  uint32_t bits = formats[p->type].bits;
  uint8_t *codes = p->block + p->at / ST_GROUP * st_kv_group_bytes(p->type, p->head_dim) +
                   step * st_step_bytes(formats[p->type].form) + ST_SCALES;
  size_t part = column / 4, each = 8 / bits;
  *shift = (unsigned)(part % each * bits);
  return codes + 64 * (part / each) + 4 * (p->at % ST_GROUP) + column % 4;
}

static uint8_t *scale_at(const st_kv_place *p, size_t step) {
  if (!p->keys) return p->block + st_kv_scale_at(formats[p->type].bits, p->head_dim, p->at, step * ST_STEP);
  return p->block + p->at / ST_GROUP * st_kv_group_bytes(p->type, p->head_dim) +
         step * st_step_bytes(formats[p->type].form) + 2 * (p->at % ST_GROUP);
}

static uint8_t *code_at(const st_kv_place *p, size_t step, size_t column, unsigned *shift) {
  if (p->keys) return key_at(p, step, column, shift);
  uint32_t bits = formats[p->type].bits;
  *shift = bits == 4 && column >= 16 ? 4 : 0;
  return p->block + st_kv_code_at(bits, p->head_dim, p->at, step * ST_STEP + column);
}

static void put_step(const st_kv_place *p, size_t step, const step_codes *s) {
  unsigned shift;
  memcpy(scale_at(p, step), &s->scale, sizeof s->scale);
  for (size_t i = 0; i < ST_STEP; i++) {
    uint8_t *at = code_at(p, step, i, &shift);
    if (formats[p->type].bits == 8)
      *at = (uint8_t)s->codes[i];
    else
      put_nibble(at, shift, s->codes[i]);
  }
}

static step_codes get_step(const st_kv_place *p, size_t step) {
  step_codes s;
  unsigned shift;
  memcpy(&s.scale, scale_at(p, step), sizeof s.scale);
  for (size_t i = 0; i < ST_STEP; i++) {
    const uint8_t *at = code_at(p, step, i, &shift);
    s.codes[i] = formats[p->type].bits == 8 ? (int8_t)*at : get_nibble(*at, shift);
  }
  return s;
}

// ---- both ---------------------------------------------------------------------------------------------------------

void st_kv_write(const st_kernels *k, const st_kv_place *p, float *x) {
  if (!is_codes(p->type)) {
    write_numbers(k, p, x);
    return;
  }
  if (formats[p->type].rotated) st_kv_rotate(x, p->head_dim);
  for (size_t step = 0; step < steps_of(p->head_dim); step++) {
    size_t from = step * ST_STEP, n = p->head_dim - from < ST_STEP ? p->head_dim - from : ST_STEP;
    step_codes s = quantize(formats[p->type].bits, x + from, n);
    put_step(p, step, &s);
  }
}

void st_kv_store(const st_kv_place *p, const uint8_t *row) {
  if (!is_codes(p->type)) {
    size_t bytes = formats[p->type].bits / 8;
    for (size_t d = 0; d < p->head_dim; d++) memcpy(place_of(p, d), row + d * bytes, bytes);
    return;
  }
  for (size_t step = 0; step < steps_of(p->head_dim); step++, row += 2 + code_bytes(p->type)) {
    step_codes s;
    memcpy(&s.scale, row, 2);
    for (size_t i = 0; i < ST_STEP; i++) {
      s.codes[i] = formats[p->type].bits == 8 ? (int8_t)row[2 + i] : get_nibble(row[2 + i % 16], i < 16 ? 0 : 4);
    }
    put_step(p, step, &s);
  }
}

void st_kv_load(const st_kv_place *p, uint8_t *row) {
  if (!is_codes(p->type)) {
    size_t bytes = formats[p->type].bits / 8;
    for (size_t d = 0; d < p->head_dim; d++) memcpy(row + d * bytes, place_of(p, d), bytes);
    return;
  }
  for (size_t step = 0; step < steps_of(p->head_dim); step++, row += 2 + code_bytes(p->type)) {
    step_codes s = get_step(p, step);
    memcpy(row, &s.scale, 2);
    for (size_t i = 0; i < ST_STEP; i++) {
      if (formats[p->type].bits == 8)
        row[2 + i] = (uint8_t)s.codes[i];
      else
        put_nibble(&row[2 + i % 16], i < 16 ? 0 : 4, s.codes[i]);
    }
  }
}
