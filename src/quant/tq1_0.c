// TQ1_0 and PTQ1_0: five trits per byte as a fraction (quant/base3.h), the first the most significant, then f16 d.
//   TQ1_0, 256 weights in 54 bytes: 32 bytes for w[m + 32 n], 16 for w[160 + m + 16 n], 4 for w[240 + m + 4 n]
//   PTQ1_0, 128 in 28 bytes:        16 bytes for w[m + 16 n],  8 for w[80 + m + 8 n],   2 for w[120 + m + 2 n]
// The last kind of byte has four trits, n = 0..3, and digit 0 for the fifth.
#include "quant/base3.h"
#include "quant/rows.h"

// `width` bytes with `digits` times `width` weights; both pointers advance.
static void unpack_run(const uint8_t **bytes, int width, int digits, int8_t **trits) {
  for (int n = 0; n < digits; n++, *trits += width)
    for (int m = 0; m < width; m++) (*trits)[m] = st_fraction_trit((*bytes)[m], n);
  *bytes += width;
}

static void pack_run(const int8_t **trits, int width, int digits, uint8_t **bytes) {
  for (int m = 0; m < width; m++) {
    unsigned q = 0;
    for (int n = 0; n < 5; n++) q = q * 3 + (n < digits ? (unsigned)((*trits)[m + n * width] + 1) : 0);
    (*bytes)[m] = st_fraction_byte(q);
  }
  *trits += digits * width;
  *bytes += width;
}

// A block: 2 unit and unit bytes of five trits, unit / 4 of four.
static void unpack(const uint8_t *step, int unit, int8_t *trits) {
  unpack_run(&step, 2 * unit, 5, &trits);
  unpack_run(&step, unit, 5, &trits);
  unpack_run(&step, unit / 4, 4, &trits);
}

static void pack(const int8_t *trits, int unit, uint8_t *step) {
  pack_run(&trits, 2 * unit, 5, &step);
  pack_run(&trits, unit, 5, &step);
  pack_run(&trits, unit / 4, 4, &step);
}

static ptrdiff_t check(const uint8_t *step, int unit) {
  for (int i = 0; i < 3 * unit; i++)
    if (!st_fraction_valid(step[i], 1, 243)) return i;
  for (int i = 3 * unit; i < 3 * unit + unit / 4; i++)
    if (!st_fraction_valid(step[i], 3, 81)) return i;
  return -1;
}

static void tq1_0_unpack(const uint8_t *step, size_t n, int8_t *trits) {
  (void)n;
  unpack(step, 16, trits);
}

static void tq1_0_pack(const int8_t *trits, size_t n, uint8_t *step) {
  (void)n;
  pack(trits, 16, step);
}

static ptrdiff_t tq1_0_check(const uint8_t *step, size_t n) {
  (void)n;
  return check(step, 16);
}

static void ptq1_0_unpack(const uint8_t *step, size_t n, int8_t *trits) {
  (void)n;
  unpack(step, 8, trits);
}

static void ptq1_0_pack(const int8_t *trits, size_t n, uint8_t *step) {
  (void)n;
  pack(trits, 8, step);
}

static ptrdiff_t ptq1_0_check(const uint8_t *step, size_t n) {
  (void)n;
  return check(step, 8);
}

static const st_ternary_rows tq1_0 = {
    .step = 256, .step_bytes = 54, .scale_at = 52, .unpack = tq1_0_unpack, .pack = tq1_0_pack, .check = tq1_0_check};
static const st_ternary_rows ptq1_0 = {
    .step = 128, .step_bytes = 28, .scale_at = 26, .unpack = ptq1_0_unpack, .pack = ptq1_0_pack, .check = ptq1_0_check};
const st_format_ops st_ops_tq1_0 = {ST_TERNARY_FIELDS(&tq1_0, NULL), .scheme = "ternary-256"};
const st_format_ops st_ops_ptq1_0 = {ST_TERNARY_FIELDS(&ptq1_0, NULL), .scheme = "ternary-128"};
