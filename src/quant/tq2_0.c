// TQ2_0: 256 weights in 66 bytes: two planes of 32 bytes, then f16 d. Byte m of a plane holds its weights m + 32 l at
// bits 2 l; code = trit + 1.
#include "quant/rows.h"

static void tq2_0_unpack(const uint8_t *step, size_t n, int8_t *trits) {
  (void)n;
  for (int plane = 0; plane < 2; plane++) st_unpack_plane(step + 32 * plane, 32, trits + 128 * plane);
}

static void tq2_0_pack(const int8_t *trits, size_t n, uint8_t *step) {
  (void)n;
  for (int plane = 0; plane < 2; plane++) st_pack_plane(trits + 128 * plane, 32, step + 32 * plane);
}

static ptrdiff_t tq2_0_check(const uint8_t *step, size_t n) {
  (void)n;
  return st_find_code3(step, 64);
}

static const st_ternary_rows tq2_0 = {
    .step = 256, .step_bytes = 66, .scale_at = 64, .unpack = tq2_0_unpack, .pack = tq2_0_pack, .check = tq2_0_check};
static const st_code_layout tq2_0_codes = {.step = 256, .step_bytes = 66, .width = 32, .next = 2};
const st_format_ops st_ops_tq2_0 = ST_TERNARY_OPS(&tq2_0, &tq2_0_codes, false);
