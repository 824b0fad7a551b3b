// t2: rows of ceil(K/4) bytes, four consecutive weights per byte, the first in bits 0-1; code = trit + 1. A row's last
// byte is padded with code 1. Scales are a separate tensor.
#include "quant/rows.h"

static void t2_unpack(const uint8_t *step, size_t n, int8_t *trits) {
  for (size_t i = 0; i < n; i++) trits[i] = (int8_t)((step[i / 4] >> 2 * (i % 4) & 3) - 1);
}

static void t2_pack(const int8_t *trits, size_t n, uint8_t *step) {
  for (size_t i = 0; i < n; i += 4) {
    unsigned byte = 0;
    for (size_t j = 0; j < 4; j++) byte |= (unsigned)(i + j < n ? trits[i + j] + 1 : 1) << 2 * j;
    step[i / 4] = (uint8_t)byte;
  }
}

static ptrdiff_t t2_check(const uint8_t *step, size_t n) {
  return st_find_code3(step, (n + 3) / 4);
}

static const st_ternary_rows t2 = {
    .step = 256, .step_bytes = 64, .unpack = t2_unpack, .pack = t2_pack, .check = t2_check};
static const st_code_layout t2_codes = {.step = 64, .step_bytes = 16, .width = 1, .next = 2};
const st_format_ops st_ops_t2 = ST_TERNARY_OPS(&t2, &t2_codes, false);
