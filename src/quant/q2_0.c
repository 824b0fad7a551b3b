// Q2_0 (64 weights a block) and its 128-weight kinds PQ2_0 and Q2_0-128: f16 d, then four consecutive weights a byte,
// the first in bits 0-1; w = (code - 1) * d. Code 3 is a value, +2 d.
#include "quant/rows.h"

static void q2_0_unpack(const uint8_t *step, size_t n, int8_t *trits) {
  step += 2;
  for (size_t i = 0; i < n; i++) trits[i] = (int8_t)((step[i / 4] >> 2 * (i % 4) & 3) - 1);
}

static void q2_0_pack(const int8_t *trits, size_t n, uint8_t *step) {
  step += 2;
  for (size_t i = 0; i < n; i += 4) {
    int byte = 0;
    for (int j = 0; j < 4; j++) byte |= (trits[i + (size_t)j] + 1) << 2 * j;
    step[i / 4] = (uint8_t)byte;
  }
}

static ptrdiff_t q2_0_check(const uint8_t *step, size_t n) {
  ptrdiff_t bad = st_find_code3(step + 2, n / 4);
  return bad < 0 ? bad : bad + 2;
}

static const st_ternary_rows q2_0 = {
    .step = 64, .step_bytes = 18, .unpack = q2_0_unpack, .pack = q2_0_pack, .check = q2_0_check};
static const st_ternary_rows q2_0_128 = {
    .step = 128, .step_bytes = 34, .unpack = q2_0_unpack, .pack = q2_0_pack, .check = q2_0_check};
static const st_code_layout q2_0_codes = {.step = 64, .step_bytes = 18, .lead = 2, .width = 1, .next = 2};
static const st_code_layout q2_0_128_codes = {.step = 128, .step_bytes = 34, .lead = 2, .width = 1, .next = 2};
const st_format_ops st_ops_q2_0 = {ST_TERNARY_FIELDS(&q2_0, &q2_0_codes), .two_is_valid = true, .scheme = "ternary-64"};
const st_format_ops st_ops_q2_0_128 = ST_TERNARY_OPS(&q2_0_128, &q2_0_128_codes, true);
