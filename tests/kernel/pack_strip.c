// Packing straight from a tensor's bytes gives, byte for byte, what packing from its trits or floats gives.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/random.h"
#include "kernel/kernel.h"
#include "kernel/layout.h"

static const char *const formats[] = {"i2_s", "i2_s-arm", "i2_s-x4", "tq2_0", "q2_0", "q2_0-128", "pq2_0", "iq2_bn",
                                      "t2",   "hf-u8",    "t16",     "t5",    "f16",  "bf16",     NULL};

static void *allocate(size_t n) {
  void *p = calloc(n ? n : 1, 1);
  assert_non_null(p);
  return p;
}

// Random bytes, in which every code occurs, including 3; scales are made finite.
static uint8_t *make_tensor(const st_format *f, st_shape shape, uint64_t bytes, st_random *r) {
  uint8_t *data = allocate((size_t)bytes);
  for (uint64_t i = 0; i < bytes; i++) data[i] = (uint8_t)st_random_u64(r);
  for (uint64_t at = 0; f->scales == ST_SCALE_BLOCK && at < bytes; at += f->block_bytes) {
    st_store_f16(data + at + (f->id == ST_TQ2_0 ? 64 : 0), (float)st_random_unit(r) - 0.5f);
  }
  for (uint64_t row = 0; f->scales == ST_SCALE_ROW && row < shape.rows; row++) {
    st_store_f32(data + row * st_format_row_bytes(f, shape.columns), (float)st_random_unit(r));
  }
  for (uint64_t i = 1; !st_format_is_ternary(f) && i < bytes; i += 2) data[i] &= 0xBB; // neither infinity nor NaN
  return data;
}

// The group in a form by way of trits or floats.
static void pack_slowly(st_form form, const st_format *f, st_shape shape, const st_strip *strip, const uint8_t *data,
                        float *scales, uint8_t *group) {
  size_t n = (size_t)(strip->count * shape.columns);
  void *rows = allocate(n * sizeof(float));
  if (st_format_is_ternary(f)) {
    bool inside = st_format_row_scales(f, shape.columns) != 0;
    f->ops->unpack(f, shape, strip, data + strip->offset, rows, inside ? scales : NULL);
  } else {
    f->ops->decode(f, shape, strip, data + strip->offset, rows);
  }
  st_form_pack(form, f, (size_t)shape.columns, f->block, rows, scales, 16, group);
  free(rows);
}

// Every group of a matrix, from strips of one group and of as many as a strip can hold.
static void check_form(st_form form, const st_format *f, st_shape shape, st_random *r) {
  uint64_t bytes;
  assert_true(st_form_takes_strips(f, shape));
  assert_int_equal(st_format_size(f, shape, &bytes, NULL), SETUN_OK);
  uint8_t *data = make_tensor(f, shape, bytes, r);
  size_t size = st_form_group_bytes(form, (size_t)shape.columns, f->block), blocks = shape.columns / 64 + 1;
  uint8_t *want = allocate(size), *found = allocate(size);
  float *scales = allocate(16 * blocks * sizeof *scales), *alone = allocate(16 * blocks * sizeof *alone);
  for (uint64_t row = 0; row < shape.rows; row += 16) {
    st_strip one = st_format_locate(f, shape, row, 16), all = st_format_locate(f, shape, row, shape.rows - row);
    assert_int_equal(one.count, 16);
    pack_slowly(form, f, shape, &one, data, scales, want);
    if (f->scales == ST_SCALE_BLOCK || f->scales == ST_SCALE_ROW) {
      st_format_strip_scales(f, shape, &one, data + one.offset, alone);
      assert_memory_equal(alone, scales, 16 * st_format_row_scales(f, shape.columns) * sizeof *scales);
    }
    for (int i = 0; i < 2; i++) {
      const st_strip *strip = i ? &all : &one;
      memset(found, 0xA5, size);
      st_form_pack_strip(form, f, shape, strip, data + strip->offset, scales, row, found);
      // The bytes that rounding the group's size up adds are undefined.
      size_t used = f->scales == ST_SCALE_BLOCK ? shape.columns / f->block * (32 + f->block * 4) : size;
      for (size_t b = 0; b < used; b++) {
        if (want[b] == found[b]) continue;
        fail_msg("%s, %d rows of %d, row %d: byte %zu is %02x instead of %02x", f->name, (int)shape.rows,
                 (int)shape.columns, (int)row, b, found[b], want[b]);
      }
    }
  }
  free(data);
  free(want);
  free(found);
  free(scales);
  free(alone);
}

static void check_matrix(const st_format *f, st_shape shape, st_random *r) {
  check_form(st_form_of(f), f, shape, r);
  for (int form = 0; form < ST_FORM_COUNT; form++) {
    if (st_form_is_direct((st_form)form, f)) check_form((st_form)form, f, shape, r);
  }
}

static void same_bytes(void **state) {
  (void)state;
  static const uint64_t rows[] = {64, 128, 192}, columns[] = {256, 512, 1280};
  st_random r;
  st_random_seed(&r, 1);
  for (const char *const *name = formats; *name; name++) {
    const st_format *f = st_format_by_name(*name);
    assert_non_null(f);
    for (int i = 0; i < 3; i++) {
      for (int k = 0; k < 3; k++) check_matrix(f, (st_shape){rows[i], columns[k]}, &r);
    }
  }
  // Steps that are shorter than 256, and rows that are not made of steps.
  static const struct {
    const char *name;
    uint64_t columns;
  } odd[] = {{"i2_s", 384},   {"i2_s-arm", 320}, {"q2_0", 192}, {"iq2_bn", 64}, {"t2", 64},    {"hf-u8", 96},
             {"i2_s-x4", 32}, {"t16", 32},       {"f16", 1},    {"f16", 7},     {"bf16", 130}, {"bf16", 33},
             {"t5", 32},      {"t5", 64},        {"t5", 96},    {"t5", 160},    {"t5", 6912}};
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
    check_matrix(st_format_by_name(odd[i].name), (st_shape){64, odd[i].columns}, &r);
  }
}

// Shapes whose rows begin within a step, or whose groups would be cut, are packed by way of trits.
static void other_shapes(void **state) {
  (void)state;
  static const struct {
    const char *name;
    st_shape shape;
  } cases[] = {{"i2_s", {16, 64}},   {"i2_s-arm", {16, 32}}, {"t2", {16, 48}},      {"t16", {16, 48}},
               {"hf-u8", {16, 256}}, {"hf-u8", {100, 256}},  {"i2_s-x4", {16, 16}}, {"tq1_0", {16, 256}},
               {"t5", {16, 48}},     {"t5-zpm", {16, 320}},  {"iq1_bn", {16, 64}},  {"ptq1_0", {16, 128}},
               {"f32", {16, 32}},    {"q8_0", {16, 32}},     {"q6_k", {16, 256}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (st_form_takes_strips(st_format_by_name(cases[i].name), cases[i].shape)) fail_msg("%s, %zu", cases[i].name, i);
  }
}

static void make_patterns(size_t n, int8_t *trits, st_random *r) {
  for (size_t k = 0; k < n; k++) {
    if (k % 64 >= 16) continue;
    size_t zero = st_random_u64(r) % 4;
    for (size_t p = 0; p < 4; p++) trits[k + 16 * p] = p == zero ? 0 : st_random_u64(r) % 2 ? 1 : -1;
  }
}

// A group of a dense form made of a T16 or T16B one, in place or before it, equals the one made of the trits, and reads
// as those.
static void check_squeeze(const st_kernels *k, st_form from, st_form to, size_t columns, uint32_t block, st_random *r) {
  const st_format *f = st_format_get(ST_HF_U8);
  size_t larger = st_form_group_bytes(from, columns, block), smaller = st_form_group_bytes(to, columns, block);
  size_t blocks = block ? (columns + block - 1) / block : 1;
  int8_t *trits = allocate(16 * columns);
  uint8_t *want = allocate(smaller), *room = allocate(larger + 64);
  float *scales = allocate(16 * blocks * sizeof *scales), *row = allocate(columns * sizeof *row);
  for (size_t i = 0; i < 16 * columns; i++) trits[i] = (int8_t)(st_random_u64(r) % 3) - 1;
  if (st_form_is(to, ST_KIND_PATTERNS)) make_patterns(16 * columns, trits, r);
  for (size_t i = 0; i < 16 * blocks; i++) scales[i] = (float)(1 + i % 7);
  assert_true(smaller <= larger);
  st_form_pack(to, f, columns, block, trits, scales, 16, want);
  for (size_t before = 0; before <= 64; before += 64) {
    memset(room, 0, larger + 64);
    st_form_pack(from, f, columns, block, trits, scales, 16, room + before);
    assert_true(st_form_can_squeeze(to, columns, block, room + before));
    st_form_squeeze(to, columns, block, room + before, room);
    size_t used = block ? blocks * st_fives_of(to, columns, block).bytes : smaller;
    assert_memory_equal(room, want, st_form_is(to, ST_KIND_PATTERNS) ? blocks * st_pattern_block_bytes(block) : used);
  }
  st_matrix m = {.form = to, .rows = 16, .columns = columns, .block = block, .group_bytes = smaller, .data = want};
  if (!block) m.scales = scales;
  for (size_t i = 0; i < 16; i++) {
    k->row[to](&m, i, row);
    for (size_t c = 0; c < columns; c++) {
      float scale = block ? scales[i * blocks + c / block] : scales[i];
      assert_int_equal((int)row[c], trits[i * columns + c] * (int)scale);
    }
  }
  trits[st_random_u64(r) % (16 * columns)] = 2;
  st_form_pack(from, f, columns, block, trits, scales, 16, room);
  assert_false(st_form_can_squeeze(to, columns, block, room));
  free(trits);
  free(want);
  free(room);
  free(scales);
  free(row);
}

static void squeezed(void **state) {
  (void)state;
  st_random r;
  st_kernels scalar;
  st_random_seed(&r, 2);
  assert_int_equal(st_kernels_get("scalar", &scalar, NULL), SETUN_OK);
  for (size_t columns = 1; columns <= 300; columns++) {
    check_squeeze(&scalar, ST_FORM_T16, ST_FORM_T5, columns, 0, &r);
    check_squeeze(&scalar, ST_FORM_T16B, ST_FORM_T5B, columns, 512, &r);
    check_squeeze(&scalar, ST_FORM_T16B, ST_FORM_T5B, columns, 256, &r);
  }
  check_squeeze(&scalar, ST_FORM_T16, ST_FORM_T5, 6912, 0, &r);
  check_squeeze(&scalar, ST_FORM_T16B, ST_FORM_T5B, 2560, 256, &r);
  check_squeeze(&scalar, ST_FORM_T16B, ST_FORM_SHERRY, 256, 256, &r);
  check_squeeze(&scalar, ST_FORM_T16B, ST_FORM_SHERRY, 2560, 256, &r);
  check_squeeze(&scalar, ST_FORM_T16B, ST_FORM_SHERRY, 1024, 512, &r);
  assert_true(st_form_is_denser(ST_FORM_T5, st_format_get(ST_T16)));
  assert_true(st_form_is_denser(ST_FORM_T5B, st_format_get(ST_TQ1_0)));
  assert_true(st_form_is_denser(ST_FORM_SHERRY, st_format_get(ST_STQ1_0_42)));
  assert_false(st_form_is_denser(ST_FORM_SHERRY, st_format_get(ST_TQ1_0)));
  assert_false(st_form_is_denser(ST_FORM_T5B, st_format_get(ST_Q2_0)));
  assert_false(st_form_is_denser(ST_FORM_T5B, st_format_get(ST_PQ2_0)));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_bytes), cmocka_unit_test(other_shapes),
                                     cmocka_unit_test(squeezed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
