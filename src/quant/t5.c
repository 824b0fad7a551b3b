// t5: rows of ceil(K/5) bytes, five consecutive trits per byte in base 3, the first the least significant digit: bytes
// 0 to 242. Digits 0, 1, 2 mean -1, 0, +1; in files that declare it 0, +1, -1, which are read only. A row's last byte
// is padded with trit 0. Scales are a separate tensor.
#include "quant/base3.h"
#include "quant/rows.h"

static const int8_t minus_zero_plus[3] = {-1, 0, 1}, zero_plus_minus[3] = {0, 1, -1};

// Bytes above 242 lose the part above their five digits.
static void unpack(const uint8_t *step, size_t n, const int8_t digits[3], int8_t *trits) {
  for (size_t i = 0; i < n; i += 5) {
    unsigned byte = step[i / 5];
    for (size_t j = i; j < i + 5 && j < n; j++, byte /= 3) trits[j] = digits[byte % 3];
  }
}

static void t5_unpack(const uint8_t *step, size_t n, int8_t *trits) {
  unpack(step, n, minus_zero_plus, trits);
}
static void t5_zpm_unpack(const uint8_t *step, size_t n, int8_t *trits) {
  unpack(step, n, zero_plus_minus, trits);
}

static void t5_pack(const int8_t *trits, size_t n, uint8_t *step) {
  for (size_t i = 0; i < n; i += 5) {
    int byte = 0;
    for (size_t j = 0; j < 5; j++) byte += (i + j < n ? trits[i + j] + 1 : 1) * st_pow3[j];
    step[i / 5] = (uint8_t)byte;
  }
}

static ptrdiff_t t5_check(const uint8_t *step, size_t n) {
  for (size_t i = 0; i < (n + 4) / 5; i++)
    if (step[i] > 242) return (ptrdiff_t)i;
  return -1;
}

static const st_ternary_rows t5 = {
    .step = 320, .step_bytes = 64, .unpack = t5_unpack, .pack = t5_pack, .check = t5_check};
static const st_ternary_rows t5_zpm = {.step = 320, .step_bytes = 64, .unpack = t5_zpm_unpack, .check = t5_check};
static const st_code_layout t5_codes = {.order = ST_CODES_DIGITS, .step = 1};
const st_format_ops st_ops_t5 = {ST_TERNARY_FIELDS(&t5, &t5_codes), .digits = "minus-zero-plus", .scheme = "ternary"};
const st_format_ops st_ops_t5_zpm = {
    .rows = &t5_zpm, .unpack = st_rows_unpack, .check = st_rows_check, .dot = st_rows_dot, .digits = "zero-plus-minus"};
