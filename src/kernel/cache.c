// Formats of the KV cache: sizes of blocks, and how numbers get into them and out.
#include "kernel/cache.h"

#include "base/float16.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const st_kv_format formats[] = {
#define KV_FORMAT(id, text, key, value, codes, turned)                                                                 \
  [SETUN_KV_##id] = {.name = text, .key_bits = key, .value_bits = value, .code_bits = codes, .rotated = turned},
#include "kernel/cache_formats.def"
};

const st_kv_format *st_kv_format_of(setun_kv_type type) {
  return (size_t)type < sizeof formats / sizeof *formats ? &formats[type] : NULL;
}

static size_t padded(size_t head_dim) {
  return st_round_up(head_dim, ST_STEP);
}

static uint32_t bits_of(setun_kv_type type, bool keys) {
  return keys ? formats[type].key_bits : formats[type].value_bits;
}

size_t st_kv_row_bytes(setun_kv_type type, bool keys, size_t head_dim) {
  uint32_t bits = bits_of(type, keys);
  return st_kv_is_codes(type) ? 2 + padded(head_dim) * bits / 8 : head_dim * bits / 8;
}

size_t st_kv_block_bytes(setun_kv_type type, bool keys, size_t head_dim) {
  return st_kv_row_bytes(type, keys, head_dim) * ST_KEYS;
}

void st_kv_rotate(const st_kernels *k, float *x, size_t head_dim) {
  k->hadamard(x, NULL, NULL, head_dim, head_dim & (~head_dim + 1), x);
}

// ---- numbers ------------------------------------------------------------------------------------------------------

// Number `column` of a position.
static uint8_t *place_of(const st_kv_place *p, size_t column) {
  size_t i = p->keys ? column * ST_KEYS + p->at : p->at * p->head_dim + column;
  return p->block + i * bits_of(p->type, p->keys) / 8;
}

// Numbers of 2 or 4 bytes at `from`: those of a key are stored ST_KEYS numbers apart, those of a value adjacent.
static void place_numbers(const st_kv_place *p, size_t column, const void *from, size_t n, size_t bytes) {
  uint8_t *to = place_of(p, column);
  const uint8_t *number = from;
  if (!p->keys) {
    memcpy(to, from, n * bytes);
    return;
  }
  for (size_t i = 0; i < n; i++, to += ST_KEYS * bytes, number += bytes) memcpy(to, number, bytes);
}

static void write_numbers(const st_kernels *k, const st_kv_place *p, const float *x) {
  enum { PIECE = 64 };
  uint16_t half[PIECE];
  if (p->type == SETUN_KV_F32) {
    place_numbers(p, 0, x, p->head_dim, sizeof *x);
    return;
  }
  for (size_t d = 0; d < p->head_dim; d += PIECE) {
    size_t n = p->head_dim - d < PIECE ? p->head_dim - d : PIECE;
    k->to_half(x + d, n, half);
    place_numbers(p, d, half, n, sizeof *half);
  }
}

enum { NO_NUMBER = 0x7E00 }; // a half-precision NaN

// ---- codes --------------------------------------------------------------------------------------------------------

// The nearest integer, ties to even, of |x| below 2^22.
static float nearest(float x) {
  const float rounder = 12582912.0f;
  return (x + rounder) - rounder;
}

static float code_of(float x, float inverse, float most) {
  x *= inverse;
  x = x < -most ? -most : x;
  return nearest(x > most - 1 ? most - 1 : x);
}

// The squared errors of codes in these steps, summed in 8 lanes, in loops that the compiler vectorizes.
static float squared_error(const float *x, size_t n, float scale, float most) {
  enum { LANES = 8, PIECE = 64 };
  float sums[LANES] = {0}, squares[PIECE], inverse = 1.0f / scale;
  for (size_t i = 0, count; i + LANES <= n; i += count) {
    count = n - i < PIECE ? (n - i) / LANES * LANES : PIECE;
    for (size_t j = 0; j < count; j++) {
      float off = x[i + j] - code_of(x[i + j], inverse, most) * scale;
      squares[j] = off * off;
    }
    for (size_t j = 0; j < count; j += LANES) {
      for (size_t l = 0; l < LANES; l++) sums[l] += squares[j + l];
    }
  }
  for (size_t i = n / LANES * LANES; i < n; i++) {
    float off = x[i] - code_of(x[i], inverse, most) * scale;
    sums[i % LANES] += off * off;
  }
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

// The scale, half precision, of n numbers: the one furthest from zero is the lowest code, so that all codes are used,
// or lies beyond it, where finer steps help the others more. NaN where a number, or the scale, is not finite.
static uint16_t choose_scale(uint32_t bits, const float *x, size_t n) {
  static const float beyond[] = {1.0f, 1.0625f, 1.125f, 1.25f, 1.375f};
  float most = (float)st_kv_offset(bits), far = 0, extreme = 0, least = INFINITY;
  bool finite = true;
  for (size_t i = 0; i < n; i++) {
    float a = fabsf(x[i]);
    finite = finite && a <= FLT_MAX;
    if (a > far) far = a, extreme = x[i];
  }
  uint16_t best = st_f16_from_f32(extreme / -most);
  float scale = st_f32_from_f16(best);
  if (!finite || !(fabsf(scale) <= FLT_MAX)) return NO_NUMBER;
  if (bits >= 8 || scale == 0) return best; // no step is much too wide
  for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
    uint16_t half = st_f16_from_f32(extreme / (-most * beyond[i]));
    scale = st_f32_from_f16(half);
    if (scale == 0) break;
    float error = squared_error(x, n, scale, most);
    if (error < least) least = error, best = half;
  }
  return best;
}

// Which byte of a lane a number of 4 neighbours is: see the header.
static size_t byte_of(setun_kv_type type, size_t number) {
  return formats[type].code_bits == 8 ? number : (number & 1) << 1 | (number >> 1 & 1);
}

st_kv_code st_kv_code_of(setun_kv_type type, bool keys, size_t head_dim, size_t at, size_t column) {
  uint32_t bits = bits_of(type, keys);
  size_t step = column / ST_STEP, in = column % ST_STEP;
  if (!keys) {
    size_t piece = at / 4 * 64 + 4 * (in % ST_GROUP) + byte_of(type, at % 4), half = in / ST_GROUP;
    if (bits == 4) return (st_kv_code){.at = ST_KV_SCALES + step * ST_VALUE_BYTES + piece, .shift = half ? 4 : 0};
    return (st_kv_code){.at = ST_KV_SCALES + (2 * step + half) * ST_VALUE_BYTES + piece};
  }
  size_t from = ST_KV_SCALES + (at / ST_GROUP * (padded(head_dim) / ST_STEP) + step) * st_kv_step_bytes(bits);
  size_t piece = in / 4, byte = 4 * (at % ST_GROUP) + byte_of(type, in % 4), shared = bits < 8 ? 2 : 1;
  return (st_kv_code){.at = from + piece / shared * 64 + byte,
                      .shift = piece % shared ? 4 : 0,
                      .high = from + st_kv_low_bytes(bits) + piece / 4 * 64 + byte,
                      .high_shift = (unsigned)(piece % 4 * 2)};
}

// Of the codes of a step in a row.
static st_kv_code row_code_of(uint32_t bits, size_t column) {
  if (bits >= 8)
    return (st_kv_code){.at = column, .high = ST_STEP + column % 8, .high_shift = (unsigned)column / 8 * 2};
  return (st_kv_code){.at = column % 16,
                      .shift = column < 16 ? 0 : 4,
                      .high = ST_STEP / 2 + column % 8,
                      .high_shift = (unsigned)column / 8 * 2};
}

static void put_bits(uint8_t *at, unsigned shift, unsigned mask, unsigned code) {
  *at = (uint8_t)((*at & ~(mask << shift)) | (code & mask) << shift);
}

static void put_code(uint32_t bits, uint8_t *block, st_kv_code to, int code) {
  unsigned stored = (unsigned)(code + st_kv_offset(bits)), low = bits < 8 ? 4 : 8;
  put_bits(block + to.at, to.shift, (1u << low) - 1, stored);
  if (bits > low) put_bits(block + to.high, to.high_shift, 3, stored >> low);
}

int st_kv_get(uint32_t bits, const uint8_t *block, st_kv_code from) {
  unsigned low = bits < 8 ? 4 : 8, stored = block[from.at] >> from.shift & ((1u << low) - 1);
  if (bits > low) stored |= (block[from.high] >> from.high_shift & 3u) << low;
  return (int)stored - st_kv_offset(bits);
}

// ---- both ---------------------------------------------------------------------------------------------------------

void st_kv_write(const st_kernels *k, const st_kv_place *p, float *x) {
  if (!st_kv_is_codes(p->type)) {
    write_numbers(k, p, x);
    return;
  }
  uint32_t bits = bits_of(p->type, p->keys);
  if (formats[p->type].rotated) st_kv_rotate(k, x, p->head_dim);
  uint16_t half = choose_scale(bits, x, p->head_dim);
  float scale = st_f32_from_f16(half), most = (float)st_kv_offset(bits);
  float inverse = scale != 0 && half != NO_NUMBER ? 1.0f / scale : 0;
  memcpy(p->block + 2 * p->at, &half, sizeof half);
  for (size_t i = 0; i < padded(p->head_dim); i++) {
    float code = inverse != 0 && i < p->head_dim ? code_of(x[i], inverse, most) : 0;
    put_code(bits, p->block, st_kv_code_of(p->type, p->keys, p->head_dim, p->at, i), (int)code);
  }
}

// Stores a row (which is then only read), or loads it.
static void copy_codes(const st_kv_place *p, uint8_t *row, bool store) {
  uint32_t bits = bits_of(p->type, p->keys);
  uint8_t *scale = p->block + 2 * p->at;
  memcpy(store ? scale : row, store ? row : scale, 2);
  row += 2;
  for (size_t i = 0; i < padded(p->head_dim); i++) {
    st_kv_code in_block = st_kv_code_of(p->type, p->keys, p->head_dim, p->at, i),
               in_row = row_code_of(bits, i % ST_STEP);
    uint8_t *step = row + i / ST_STEP * (ST_STEP * bits / 8);
    if (store)
      put_code(bits, p->block, in_block, st_kv_get(bits, step, in_row));
    else
      put_code(bits, step, in_row, st_kv_get(bits, p->block, in_block));
  }
}

void st_kv_store(const st_kv_place *p, const uint8_t *row) {
  if (st_kv_is_codes(p->type)) {
    copy_codes(p, (uint8_t *)row, true);
    return;
  }
  size_t bytes = bits_of(p->type, p->keys) / 8;
  for (size_t d = 0; d < p->head_dim; d++) memcpy(place_of(p, d), row + d * bytes, bytes);
}

void st_kv_load(const st_kv_place *p, uint8_t *row) {
  if (st_kv_is_codes(p->type)) {
    copy_codes(p, row, false);
    return;
  }
  size_t bytes = bits_of(p->type, p->keys) / 8;
  for (size_t d = 0; d < p->head_dim; d++) memcpy(row + d * bytes, place_of(p, d), bytes);
}
