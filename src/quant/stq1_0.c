// STQ1_0 (Sherry): 256 weights in 42 bytes; every group of four has exactly one zero. 32 bytes of nibbles, 8 of signs,
// f16 d. Group g of 64 holds the weights 64 (g / 16) + g % 16 + 16 p, p = 0..3, as one of 32 patterns: nibble g (low
// halves first) says which is zero and how two of the others differ, sign bit g (low bits first) negates all.
#include "quant/rows.h"

enum { GROUPS = 64, SIGNS = 32, SCALE = 40 };

// Codes, trit + 1, of the patterns, those with sign 1 last: two bits each, p = 0 in the lowest.
const uint8_t st_sherry_patterns[32] = {0xA9, 0x89, 0x29, 0x09, 0xA6, 0x86, 0x26, 0x06, 0x9A, 0x92, 0x1A,
                                        0x12, 0x6A, 0x62, 0x4A, 0x42, 0x01, 0x21, 0x81, 0xA1, 0x04, 0x24,
                                        0x84, 0xA4, 0x10, 0x18, 0x90, 0x98, 0x40, 0x48, 0x60, 0x68};

static size_t place_of(int group, int p) {
  return (size_t)(64 * (group / 16) + group % 16 + 16 * p);
}

static int trit_of(int pattern, int p) {
  return (st_sherry_patterns[pattern] >> 2 * p & 3) - 1;
}

static void stq1_0_unpack(const uint8_t *step, size_t n, int8_t *trits) {
  (void)n;
  for (int g = 0; g < GROUPS; g++) {
    int pattern = (step[g / 2] >> 4 * (g % 2) & 15) | (step[SIGNS + g / 8] >> g % 8 & 1) << 4;
    for (int p = 0; p < 4; p++) trits[place_of(g, p)] = (int8_t)trit_of(pattern, p);
  }
}

// The pattern of a group, plus 16 if negated: the first of those with the most weights in common; *same is their
// number.
static int pattern_of(const int8_t *trits, int group, int *same) {
  int best = 0;
  *same = -1;
  for (int i = 0; i < 32 && *same < 4; i++) {
    int n = 0;
    for (int p = 0; p < 4; p++) n += trits[place_of(group, p)] == trit_of(i, p);
    if (n > *same) best = i, *same = n;
  }
  return best;
}

// Other groups become the nearest pattern, for synthetic models: see `holds`.
static void stq1_0_pack(const int8_t *trits, size_t n, uint8_t *step) {
  (void)n;
  for (int i = 0; i < SCALE; i++) step[i] = 0;
  for (int g = 0; g < GROUPS; g++) {
    int same, pattern = pattern_of(trits, g, &same);
    step[g / 2] |= (uint8_t)((pattern & 15) << 4 * (g % 2));
    step[SIGNS + g / 8] |= (uint8_t)(pattern >> 4 << g % 8);
  }
}

static bool stq1_0_holds(const int8_t *trits) {
  int same = 4;
  for (int g = 0; g < GROUPS && same == 4; g++) pattern_of(trits, g, &same);
  return same == 4;
}

// All bytes are valid.
static ptrdiff_t stq1_0_check(const uint8_t *step, size_t n) {
  (void)step, (void)n;
  return -1;
}

static const st_ternary_rows stq1_0 = {.step = 256,
                                       .step_bytes = 42,
                                       .scale_at = SCALE,
                                       .unpack = stq1_0_unpack,
                                       .pack = stq1_0_pack,
                                       .check = stq1_0_check,
                                       .holds = stq1_0_holds};
const st_format_ops st_ops_stq1_0 = ST_TERNARY_OPS(&stq1_0, NULL, false);
