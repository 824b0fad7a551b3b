// The loops that measure ceilings: multiply-adds whose operands stay in registers, and the fastest plain read.
#ifndef SETUN_KERNEL_LANES_PEAK_H
#define SETUN_KERNEL_LANES_PEAK_H

#include "kernel/layout.h"

// Sums at once: as many as registers allow in addition to the operands.
enum { LANES_CHAINS = LANES_TILE == 6 ? 6 : 12 };

// *_opaque(v) makes the compiler assume that v has changed, so that nothing is computed once for all rounds.
#ifdef LANES_MATRICES
static uint64_t lanes_peak_int8(uint64_t n) {
  enum { CHAINS = 2, EACH = 2 * 128 }; // sums of two tokens with 16 rows and 8 columns
  const st_form form = (st_form)ST_FORM_OF_PEAKS;
  vp sums[CHAINS];
  static const int8_t x[16] = {1, 2, 3, 4};
  static const uint8_t codes[128] = {0x21, 0x12, 0x21, 0x12};
  vb w = vb_codes(form, codes, 0), next = vb_codes(form, codes, 1);
  for (int i = 0; i < CHAINS; i++) sums[i] = vp_zero();
  uint64_t rounds = n / (EACH * CHAINS) + 1;
  for (uint64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 2
    for (int i = 0; i < CHAINS; i++) {
      sums[i] = vp_dot(sums[i], w, next, x, x + 8);
      vp_opaque(&sums[i]);
    }
  }
  return rounds * EACH * CHAINS;
}
#else
static uint64_t lanes_peak_int8(uint64_t n) {
  const st_form form = (st_form)ST_FORM_OF_PEAKS;
  vd sums[LANES_CHAINS];
  static const int8_t x[4] = {1, 2, 3, 4};
  static const uint8_t codes[128] = {0x21, 0x12, 0x21, 0x12};
  vb w = vb_codes(form, codes, 0);
#pragma GCC unroll 12
  for (int i = 0; i < LANES_CHAINS; i++) sums[i] = vd_zero();
  uint64_t rounds = n / (64 * LANES_CHAINS) + 1;
  for (uint64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
    for (int i = 0; i < LANES_CHAINS; i++) {
      sums[i] = vd_dot(form, sums[i], w, x);
      vd_opaque(&sums[i]);
    }
  }
  return rounds * 64 * LANES_CHAINS;
}
#endif

static uint64_t lanes_peak_float(uint64_t n) {
  vi sums[LANES_CHAINS];
  vf w = vf_set(0.5f), x = vf_set(0.25f);
#pragma GCC unroll 12
  for (int i = 0; i < LANES_CHAINS; i++) sums[i] = vi_zero();
  uint64_t rounds = n / (16 * LANES_CHAINS) + 1;
  for (uint64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
    for (int i = 0; i < LANES_CHAINS; i++) {
      sums[i] = vf_bits(vf_fma(w, x, vi_as_floats(sums[i])));
      vi_opaque(&sums[i]);
    }
  }
  return rounds * 16 * LANES_CHAINS;
}

// Whole 256 bytes of the buffer. The result merely depends on all of them: 27 bits of each lane, so that their sum is
// an int32_t.
static uint64_t lanes_read(const void *buffer, size_t bytes) {
  const uint8_t *p = buffer, *end = p + bytes / 256 * 256;
  vi a = vi_zero(), b = a, c = a, d = a;
  for (; p < end; p += 256) {
    for (int line = 0; line < 4; line++) { // reading alone is fastest with two; products are not, see lanes_prefetch
      __builtin_prefetch(p + 64 * line + 2560, 0, 3);
      __builtin_prefetch(p + 64 * line + 7168, 0, 2);
    }
    a = vi_add(a, vi_load(p)), b = vi_add(b, vi_load(p + 64));
    c = vi_add(c, vi_load(p + 128)), d = vi_add(d, vi_load(p + 192));
  }
  return (uint64_t)(uint32_t)vi_sum(vi_right(vi_add(vi_add(a, b), vi_add(c, d)), 5));
}

#endif
