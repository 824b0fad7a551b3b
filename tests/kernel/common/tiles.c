// AMX's tile instructions, emulated.
#include "common/tiles.h"

#include "base/float16.h"

#include <math.h>
#include <string.h>

typedef struct {
  size_t rows, bytes;
  uint8_t data[16][64];
} tile;

static tile tile_registers[8];

size_t tile_products, tile_loads, tile_stores;

// What the processor accepts: palette 1, no row to begin at, nothing in reserved places or in tiles that do not exist.
void tile_configure(const void *config) {
  const uint8_t *bytes = config;
  bool valid = bytes[0] == 1;
  for (int i = 1; i < 64; i++) {
    if ((i < 16 || (i >= 32 && i < 48) || i >= 56) && bytes[i]) valid = false;
  }
  for (int i = 0; i < 8; i++) {
    tile *t = &tile_registers[i];
    *t = (tile){.rows = bytes[48 + i], .bytes = bytes[16 + 2 * i] + 256u * bytes[17 + 2 * i]};
    if (!t->rows || t->rows > 16 || !t->bytes || t->bytes > 64 || t->bytes % 4) valid = false;
  }
  if (!valid) FAIL("an invalid configuration of tiles");
}

void tiles_release(void) {
  memset(tile_registers, 0, sizeof tile_registers);
}

bool tiles_configured(void) {
  return tile_registers[0].rows;
}

static tile *tile_of(int t) {
  if (!tile_registers[t].rows) FAIL("tile %d is used where it is not configured", t);
  return &tile_registers[t];
}

void tile_clear(int t) {
  tile *to = tile_of(t);
  memset(to->data, 0, sizeof to->data);
}

void tile_load(int t, const void *p, size_t stride) {
  tile *to = tile_of(t);
  tile_loads++;
  memset(to->data, 0, sizeof to->data);
  for (size_t r = 0; r < to->rows; r++) memcpy(to->data[r], (const uint8_t *)p + r * stride, to->bytes);
}

void tile_store(int t, void *p, size_t stride) {
  const tile *from = tile_of(t);
  tile_stores++;
  for (size_t r = 0; r < from->rows; r++) memcpy((uint8_t *)p + r * stride, from->data[r], from->bytes);
}

// Whether three tiles have shapes that can be multiplied; counts the product.
static bool tiles_match(int c, int a, int b) {
  const tile *sums = tile_of(c), *x = tile_of(a), *y = tile_of(b);
  bool match =
      c != a && c != b && a != b && x->rows == sums->rows && x->bytes == 4 * y->rows && y->bytes == sums->bytes;
  tile_products++;
  if (!match) FAIL("tiles %d, %d and %d, of shapes that cannot be multiplied", c, a, b);
  return match;
}

// TDPBSUD and TDPBSSD: row m, column n of c += sum over k and j of signed a[m][4k + j] times b[k][4n + j], whose
// bytes above `largest` mean 2 * bias less.
void tile_multiply(int c, int a, int b, int largest, int bias) {
  tile *sums = tile_of(c);
  const tile *x = tile_of(a), *y = tile_of(b);
  if (!tiles_match(c, a, b)) return;
  for (size_t m = 0; m < sums->rows; m++) {
    int32_t row[16];
    memcpy(row, sums->data[m], 64);
    for (size_t k = 0; k < x->bytes; k++) {
      for (size_t n = 0; n < sums->bytes / 4; n++) {
        int value = y->data[k / 4][4 * n + k % 4];
        row[n] += (int8_t)x->data[m][k] * (value > largest ? value - 2 * bias : value);
      }
    }
    memcpy(sums->data[m], row, 64);
  }
}

// Subnormal numbers are zero, with their sign.
static inline float tile_flush(float x) {
  return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static inline float tile_bf16(const uint8_t *p) {
  return tile_flush(st_float_from_bits((uint32_t)p[0] << 16 | (uint32_t)p[1] << 24));
}

// TDPBF16PS: the sums over even and over odd k begin at zero, one fused multiply-add after the other; both together are
// then added to row m, column n of c.
void tile_multiply_bf16(int c, int a, int b) {
  tile *sums = tile_of(c);
  const tile *x = tile_of(a), *y = tile_of(b);
  if (!tiles_match(c, a, b)) return;
  for (size_t m = 0; m < sums->rows; m++) {
    for (size_t n = 0; n < sums->bytes / 4; n++) {
      float part[2] = {0, 0}, sum;
      for (size_t k = 0; k < x->bytes / 2; k++) {
        const uint8_t *left = x->data[m] + 2 * k, *right = y->data[k / 2] + 4 * n + k % 2 * 2;
        part[k % 2] = tile_flush(fmaf(tile_bf16(left), tile_bf16(right), part[k % 2]));
      }
      memcpy(&sum, sums->data[m] + 4 * n, sizeof sum);
      sum = tile_flush(tile_flush(sum) + tile_flush(part[0] + part[1]));
      memcpy(sums->data[m] + 4 * n, &sum, sizeof sum);
    }
  }
}
