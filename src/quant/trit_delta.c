// Counting, writing and applying differences of 2-bit codes.
#include "quant/trit_delta.h"

#include <math.h>
#include <string.h>

static const uint64_t LOW = 0x5555555555555555; // the low bit of each code

static uint64_t load(const uint8_t *p, size_t n) {
  uint64_t v = 0;
  for (size_t i = 0; i < n; i++) v |= (uint64_t)p[i] << 8 * i;
  return v;
}

// The low bit of each code that differs, in eight bytes.
static uint64_t differing(const uint8_t *a, const uint8_t *b, size_t n) {
  uint64_t x = n < 8 ? load(a, n) ^ load(b, n) : load(a, 8) ^ load(b, 8);
  return (x | x >> 1) & LOW;
}

uint64_t st_trit_delta_count(const uint8_t *a, const uint8_t *b, size_t n) {
  uint64_t sum = 0;
  for (size_t i = 0; i < n; i += 8) {
    uint64_t x = differing(a + i, b + i, n - i);
    x = (x & 0x3333333333333333) + (x >> 2 & 0x3333333333333333);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f;
    sum += x * 0x0101010101010101 >> 56;
  }
  return sum;
}

// The place of a walk through the differences.
typedef struct walk {
  const uint8_t *a, *b;
  size_t n, byte; // of the eight bytes that `bits` are of
  uint64_t bits;  // those not reached yet
} walk;

// The position of the next difference, in codes, and b - a modulo 3; false: there are no more.
static bool next_difference(walk *w, uint64_t *at, unsigned *difference) {
  while (!w->bits) {
    w->byte += 8;
    if (w->byte >= w->n) return false;
    w->bits = differing(w->a + w->byte, w->b + w->byte, w->n - w->byte);
  }
  unsigned bit = (unsigned)__builtin_ctzll(w->bits), shift = bit % 8;
  size_t byte = w->byte + bit / 8;
  w->bits &= w->bits - 1;
  *at = (uint64_t)4 * byte + shift / 2;
  *difference = ((w->b[byte] >> shift & 3u) + 3 - (w->a[byte] >> shift & 3u)) % 3;
  return true;
}

static walk walk_from(const uint8_t *a, const uint8_t *b, size_t n) {
  return (walk){.a = a, .b = b, .n = n, .bits = n ? differing(a, b, n) : 0};
}

st_trit_delta st_trit_delta_measure(const uint8_t *a, const uint8_t *b, size_t n) {
  uint64_t ones[ST_TRIT_DELTA_SHIFT_MOST + 1] = {0}, at, next = 0;
  st_trit_delta d = {0};
  unsigned difference;
  for (walk w = walk_from(a, b, n); next_difference(&w, &at, &difference); next = at + 1) {
    uint64_t gap = at - next;
    d.differences++;
    for (unsigned k = 0; k <= ST_TRIT_DELTA_SHIFT_MOST && gap; k++, gap >>= 1) ones[k] += gap;
  }
  uint64_t least = UINT64_MAX;
  for (unsigned k = 0; k <= ST_TRIT_DELTA_SHIFT_MOST; k++) {
    uint64_t bits = ones[k] + d.differences * (k + 2);
    if (bits >= least) continue;
    least = bits;
    d.shift = k;
  }
  d.bytes = least / 8 + (least % 8 != 0);
  return d;
}

void st_trit_delta_encode(const uint8_t *a, const uint8_t *b, size_t n, const st_trit_delta *d, uint8_t *out) {
  uint64_t bit = 0, at, next = 0;
  unsigned difference;
  memset(out, 0, (size_t)d->bytes);
  for (walk w = walk_from(a, b, n); next_difference(&w, &at, &difference); next = at + 1) {
    uint64_t gap = at - next;
    bit += gap >> d->shift;
    uint64_t low = (gap & ((UINT64_C(1) << d->shift) - 1)) << 2 | (difference == 2 ? 2u : 0u) | 1u;
    for (unsigned i = 0; i < d->shift + 2; i++, bit++) out[bit / 8] |= (uint8_t)((low >> i & 1) << bit % 8);
  }
}

double st_trit_delta_entropy(uint64_t codes, uint64_t differences) {
  if (!differences || !codes) return 0;
  double n = (double)codes, d = (double)differences, p = d / n;
  double positions = p < 1 ? -n * (p * log2(p) + (1 - p) * log2(1 - p)) : 0;
  return positions + d;
}

// ---- applying -----------------------------------------------------------------------------------------------------

typedef struct bits {
  const uint8_t *next, *end;
  uint64_t window;
  unsigned filled;
} bits;

// At least 57 bits, if the string has them.
static void refill(bits *b) {
  if (b->end - b->next >= 8 && b->filled < 64) {
    b->window |= load(b->next, 8) << b->filled;
    b->next += (63 - b->filled) / 8;
    b->filled |= 56;
    return;
  }
  while (b->filled <= 56 && b->next < b->end) {
    b->window |= (uint64_t)*b->next++ << b->filled;
    b->filled += 8;
  }
}

// Reads zeros and the one that ends them. False: it is missing, or there are more zeros than `most`.
static bool take_ones(bits *b, uint64_t most, uint64_t *zeros) {
  *zeros = 0;
  while (!b->window) {
    *zeros += b->filled;
    b->filled = 0;
    refill(b);
    if (*zeros > most || !b->filled) return false;
  }
  unsigned n = (unsigned)__builtin_ctzll(b->window);
  *zeros += n;
  b->window = b->window >> n >> 1;
  b->filled -= n + 1;
  return *zeros <= most;
}

bool st_trit_delta_apply(const st_trit_delta *d, const uint8_t *string, bool back, uint8_t *codes, size_t n) {
  if (d->shift > ST_TRIT_DELTA_SHIFT_MOST) return false;
  const uint64_t n_codes = (uint64_t)4 * n, mask = (UINT64_C(1) << d->shift) - 1;
  bits b = {.next = string, .end = string + d->bytes};
  uint64_t at = 0; // the first code that may differ
  for (uint64_t i = 0; i < d->differences; i++, at++) {
    uint64_t high;
    refill(&b);
    if (!take_ones(&b, n_codes >> d->shift, &high)) return false;
    refill(&b);
    if (b.filled < d->shift + 1) return false;
    unsigned twice = b.window & 1;
    at += high << d->shift | (b.window >> 1 & mask);
    b.window >>= d->shift + 1;
    b.filled -= d->shift + 1;
    if (at >= n_codes) return false;
    unsigned shift = at % 4 * 2, code = (codes[at / 4] >> shift & 3u) + (back ? 2 - twice : 1 + twice);
    if (code > 2) code -= 3;
    codes[at / 4] = (uint8_t)((codes[at / 4] & ~(3u << shift)) | code << shift);
  }
  return b.next == b.end && b.filled < 8 && !b.window;
}
