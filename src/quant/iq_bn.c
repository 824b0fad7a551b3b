// IQ1_BN and IQ2_BN: a scale at the start of each row, then blocks of 64 weights.
//   IQ2_BN: f32 scale; 16 bytes a block, byte j = code of w[j] | w[16 + j] << 2 | w[32 + j] << 4 | w[48 + j] << 6
//   IQ1_BN: f16 scale; 13 bytes a block. Of each 16 weights 15 are in three bytes of five consecutive trits, a
//   fraction
//           (quant/base3.h) with the first trit the least significant digit; every 16th weight is in the 13th byte,
//           whose number has four digits.
#include "quant/base3.h"
#include "quant/rows.h"

static void iq2_bn_unpack(const uint8_t *step, size_t n, int8_t *trits) {
  (void)n;
  st_unpack_plane(step, 16, trits);
}

static void iq2_bn_pack(const int8_t *trits, size_t n, uint8_t *step) {
  (void)n;
  st_pack_plane(trits, 16, step);
}

static ptrdiff_t iq2_bn_check(const uint8_t *step, size_t n) {
  (void)n;
  return st_find_code3(step, 16);
}

static void iq1_bn_unpack(const uint8_t *step, size_t n, int8_t *trits) {
  (void)n;
  for (int i = 0; i < 4; i++) {
    for (int b = 0; b < 3; b++)
      for (int j = 0; j < 5; j++) *trits++ = st_fraction_trit(step[3 * i + b], 4 - j);
    *trits++ = st_fraction_trit(step[12], 4 - i);
  }
}

static void iq1_bn_pack(const int8_t *trits, size_t n, uint8_t *step) {
  (void)n;
  unsigned extra = 0;
  for (int i = 0; i < 4; i++) {
    for (int b = 0; b < 3; b++) {
      unsigned q = 0;
      for (int j = 0; j < 5; j++) q += (unsigned)(*trits++ + 1) * st_pow3[j];
      step[3 * i + b] = st_fraction_byte(q);
    }
    extra += (unsigned)(*trits++ + 1) * st_pow3[i];
  }
  step[12] = st_fraction_byte(extra);
}

static ptrdiff_t iq1_bn_check(const uint8_t *step, size_t n) {
  (void)n;
  for (int i = 0; i < 13; i++)
    if (!st_fraction_valid(step[i], 1, i < 12 ? 243 : 81)) return i;
  return -1;
}

static const st_ternary_rows iq2_bn = {.step = 64,
                                       .step_bytes = 16,
                                       .head = 4,
                                       .scale_type = ST_SCALE_F32,
                                       .unpack = iq2_bn_unpack,
                                       .pack = iq2_bn_pack,
                                       .check = iq2_bn_check};
static const st_ternary_rows iq1_bn = {
    .step = 64, .step_bytes = 13, .head = 2, .unpack = iq1_bn_unpack, .pack = iq1_bn_pack, .check = iq1_bn_check};
static const st_code_layout iq2_bn_codes = {.step = 64, .step_bytes = 16, .head = 4, .width = 16, .next = 2};
const st_format_ops st_ops_iq2_bn = {ST_TERNARY_FIELDS(&iq2_bn, &iq2_bn_codes), .of_int8_models = true};
const st_format_ops st_ops_iq1_bn = {ST_TERNARY_FIELDS(&iq1_bn, NULL), .of_int8_models = true};
