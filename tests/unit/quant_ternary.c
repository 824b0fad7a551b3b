// Every ternary layout against vectors that tools/make_quant_vectors.py computed from the layouts' definitions, and
// against bytes that ik_llama.cpp's quantizer wrote: unpacking and packing by strips of all kinds, with the bytes
// ending at an unreadable page; invalid codes; products.
#define _DEFAULT_SOURCE
#include "base/bytes.h"
#include "guard.h"
#include "kernel/kernel.h"
#include "quant/quant.h"
#include "quant_data.h"

static vectors data, peers;

typedef struct layout_case {
  const st_format *format;
  const char *name;
  st_shape shape;
  const int8_t *trits;
  vector bytes, scales; // scales.data NULL: none inside
} layout_case;

static layout_case get_case(const st_format *format, const char *name) {
  char key[128];
  snprintf(key, sizeof key, "%s.%s", format->name, name);
  vector trits = vectors_get(&data, name, "trits", 1);
  layout_case c = {.format = format, .name = name, .shape = {trits.rows, trits.columns}, .trits = trits.data};
  c.bytes = vectors_get(&data, key, "bytes", 1);
  c.scales = vectors_get(&data, key, "scales", 0);
  return c;
}

static float scale_of(const layout_case *c, size_t i) {
  return st_load_f32((const uint8_t *)c->scales.data + 4 * i);
}

static void check_strip(const layout_case *c, st_strip s) {
  const st_format *f = c->format;
  uint64_t columns = c->shape.columns, per_row = st_format_row_scales(f, columns);
  assert_true(s.count >= 1 && s.offset + s.bytes <= c->bytes.bytes);
  guarded bytes = guard_new((const uint8_t *)c->bytes.data + s.offset, s.bytes);
  guarded trits = guard_new(NULL, s.count * columns), scales = guard_new(NULL, s.count * per_row * 4);
  f->ops->unpack(f, c->shape, &s, bytes.data, (int8_t *)trits.data, (float *)(void *)scales.data);
  if (memcmp(trits.data, c->trits + s.row * columns, s.count * columns))
    fail_msg("%s %s: trits of rows from %zu differ", f->name, c->name, (size_t)s.row);
  for (size_t i = 0; i < s.count * per_row; i++)
    assert_true(st_load_f32(scales.data + 4 * i) == scale_of(c, s.row * per_row + i));
  f->ops->unpack(f, c->shape, &s, bytes.data, (int8_t *)trits.data, NULL);
  assert_int_equal(f->ops->check(f, c->shape, &s, bytes.data), -1);
  guard_free(&bytes);
  guard_free(&trits);
  guard_free(&scales);
}

// All strips that start at each row.
static void check_unpack(const layout_case *c) {
  uint64_t size = 0, rows = c->shape.rows;
  assert_int_equal(st_format_size(c->format, c->shape, &size, NULL), SETUN_OK);
  assert_int_equal(size, c->bytes.bytes);
  uint64_t wants[] = {1, 3, rows};
  for (uint64_t row = 0; row<rows; row += rows> 40 ? 17 : 1)
    for (int w = 0; w < 3; w++) {
      st_strip s = st_format_locate(c->format, c->shape, row, wants[w]);
      assert_true(s.row == row && s.count <= wants[w] && row + s.count <= rows);
      check_strip(c, s);
    }
  if (c->format->scales == ST_SCALE_TENSOR)
    assert_true(st_load_f32((const uint8_t *)c->bytes.data + c->format->ops->scale_offset(c->format, c->shape)) ==
                scale_of(c, 0));
}

static void check_pack(const layout_case *c) {
  const st_format *f = c->format;
  if (!f->ops->pack) return;
  uint64_t columns = c->shape.columns, per_row = st_format_row_scales(f, columns);
  for (uint64_t want = 1; want <= 5; want += 2) {
    guarded whole = guard_new(NULL, c->bytes.bytes);
    for (uint64_t row = 0; row < c->shape.rows;) {
      st_strip s = st_format_locate(f, c->shape, row, want);
      float scales[1024];
      for (size_t i = 0; i < s.count * per_row; i++) scales[i] = scale_of(c, row * per_row + i);
      f->ops->pack(f, c->shape, &s, c->trits + row * columns, scales, whole.data + s.offset);
      row += s.count;
    }
    if (f->scales == ST_SCALE_TENSOR) st_store_f32(whole.data + f->ops->scale_offset(f, c->shape), scale_of(c, 0));
    for (size_t i = 0; i < c->bytes.bytes; i++)
      if (whole.data[i] != ((const uint8_t *)c->bytes.data)[i])
        fail_msg("%s %s: byte %zu is packed as %02x, expected %02x", f->name, c->name, i, whole.data[i],
                 ((const uint8_t *)c->bytes.data)[i]);
    guard_free(&whole);
  }
}

static void check_dot(const layout_case *c) {
  const st_format *f = c->format;
  char key[16] = "dot";
  if (f->scales == ST_SCALE_BLOCK) snprintf(key, sizeof key, "dot%u", f->block);
  vector x = vectors_get(&data, c->name, "x", 1), dot = vectors_get(&data, c->name, key, 1);
  size_t sums_a_row = f->scales == ST_SCALE_BLOCK ? c->shape.columns / f->block : 1;
  assert_int_equal(dot.bytes, 8 * sums_a_row * c->shape.rows);
  guarded input = guard_new(x.data, x.bytes), sums = guard_new(NULL, 4 * sums_a_row);
  for (uint64_t row = 0; row < c->shape.rows; row++) {
    st_strip s = st_format_locate(f, c->shape, row ? row - row % 2 : 0, 2);
    if (row >= s.row + s.count) s = st_format_locate(f, c->shape, row, 1);
    guarded bytes = guard_new((const uint8_t *)c->bytes.data + s.offset, s.bytes);
    f->ops->dot(f, c->shape, &s, bytes.data, row, (const int8_t *)input.data, (int32_t *)(void *)sums.data);
    for (size_t i = 0; i < sums_a_row; i++) {
      int64_t want;
      memcpy(&want, (const uint8_t *)dot.data + 8 * (row * sums_a_row + i), 8);
      int32_t got = (int32_t)st_load_u32(sums.data + 4 * i);
      if (got != want) fail_msg("%s %s: row %zu gives %d", f->name, c->name, (size_t)row, got);
    }
    guard_free(&bytes);
  }
  guard_free(&input);
  guard_free(&sums);
}

static int64_t first_bad(const layout_case *c, const uint8_t *tensor, uint64_t want) {
  for (uint64_t row = 0; row < c->shape.rows;) {
    st_strip s = st_format_locate(c->format, c->shape, row, want);
    int64_t at = c->format->ops->check(c->format, c->shape, &s, tensor + s.offset);
    if (at >= 0) return at;
    row += s.count;
  }
  return -1;
}

// Each invalid byte alone, in several strips; then all at once, of which the strip of the whole tensor finds the first.
// Unpacking and products must also survive an invalid code.
static void check_invalid(const layout_case *c) {
  char key[128];
  snprintf(key, sizeof key, "%s.%s", c->format->name, c->name);
  vector bad = vectors_get(&data, key, "bad", 0);
  if (!bad.data) return;
  assert_true(bad.rows >= 5);
  guarded tensor = guard_new(c->bytes.data, c->bytes.bytes);
  int8_t *trits = malloc(c->shape.rows * c->shape.columns);
  for (size_t i = 0; i < bad.rows; i++) {
    int64_t entry[2];
    memcpy(entry, (const uint8_t *)bad.data + 16 * i, 16);
    uint8_t *byte = tensor.data + entry[0], good = *byte;
    *byte = (uint8_t)entry[1];
    for (uint64_t want = 1; want < 9; want += 3)
      if (first_bad(c, tensor.data, want) != entry[0])
        fail_msg("%s: byte %d at %d is found at %d", key, (int)entry[1], (int)entry[0],
                 (int)first_bad(c, tensor.data, want));
    for (uint64_t row = 0; row < c->shape.rows;) {
      st_strip s = st_format_locate(c->format, c->shape, row, c->shape.rows);
      c->format->ops->unpack(c->format, c->shape, &s, tensor.data + s.offset, trits, NULL);
      for (size_t k = 0; k < s.count * c->shape.columns; k++) assert_in_range(trits[k] + 1, 0, 3);
      row += s.count;
    }
    *byte = good;
  }
  int64_t first = INT64_MAX;
  for (size_t i = 0; i < bad.rows; i++) {
    int64_t entry[2];
    memcpy(entry, (const uint8_t *)bad.data + 16 * i, 16);
    tensor.data[entry[0]] = (uint8_t)entry[1];
    if (entry[0] < first) first = entry[0];
  }
  st_strip all = st_format_locate(c->format, c->shape, 0, c->shape.rows);
  if (all.count == c->shape.rows)
    assert_int_equal(c->format->ops->check(c->format, c->shape, &all, tensor.data), first);
  free(trits);
  guard_free(&tensor);
}

// Every layout has cases, and every case of the file belongs to a layout: a row that is lost fails here.
static void for_all(void (*check)(const layout_case *)) {
  int cases = 0, all = 0;
  const char *key;
  json_t *value;
  json_object_foreach(data.header, key, value) {
    const char *dot = strrchr(key, '.');
    all += dot && !strcmp(dot, ".bytes") && !strstr(key, ".two.");
  }
  for (int id = 0; id < ST_FORMAT_COUNT; id++) {
    const st_format *f = st_format_get((st_format_id)id);
    if (!st_format_is_ternary(f)) continue;
    int before = cases;
    json_object_foreach(data.header, key, value) {
      size_t prefix = strlen(f->name);
      const char *dot = strrchr(key, '.');
      if (strncmp(key, f->name, prefix) || key[prefix] != '.' || strcmp(dot, ".bytes")) continue;
      char name[64];
      snprintf(name, sizeof name, "%.*s", (int)(dot - key - (ptrdiff_t)prefix - 1), key + prefix + 1);
      layout_case c = get_case(f, name);
      if (!strcmp(name, "two")) continue;
      check(&c);
      cases++;
    }
    if (cases == before) fail_msg("%s has no vectors", f->name);
  }
  assert_true(cases > 0);
  assert_int_equal(cases, all);
}

static void test_unpack(void **state) {
  (void)state;
  for_all(check_unpack);
}

static void test_pack(void **state) {
  (void)state;
  for_all(check_pack);
}

static void test_dot(void **state) {
  (void)state;
  for_all(check_dot);
}

static void test_invalid(void **state) {
  (void)state;
  for_all(check_invalid);
}

// The Q2_0 formats have a fourth value: it is read, written and multiplied, and still reported as not ternary.
static void test_two(void **state) {
  (void)state;
  int kinds = 0;
  for (int id = 0; id < ST_FORMAT_COUNT; id++) {
    const st_format *f = st_format_get((st_format_id)id);
    if (!f->ops->two_is_valid) continue;
    layout_case c = get_case(f, "two");
    st_strip all = st_format_locate(f, c.shape, 0, c.shape.rows);
    int8_t trits[768];
    float scales[12];
    f->ops->unpack(f, c.shape, &all, c.bytes.data, trits, scales);
    assert_memory_equal(trits, c.trits, sizeof trits);
    assert_true(f->ops->check(f, c.shape, &all, c.bytes.data) >= 0);
    check_pack(&c);
    check_dot(&c);
    kinds++;
  }
  assert_int_equal(kinds, 3);
}

// One byte worked out by hand, and the padding of tails.
static void test_examples(void **state) {
  (void)state;
  const st_format *t2 = st_format_get(ST_T2), *t16 = st_format_get(ST_T16), *t5 = st_format_get(ST_T5);
  const int8_t four[4] = {-1, 0, 1, 0};
  uint8_t byte = 0xFF;
  st_shape shape = {1, 4};
  st_strip strip = st_format_locate(t2, shape, 0, 1);
  t2->ops->pack(t2, shape, &strip, four, NULL, &byte);
  assert_int_equal(byte, 0x64);
  shape.columns = 1;
  t2->ops->pack(t2, shape, &strip, four, NULL, &byte);
  assert_int_equal(byte, 0x54); // 0 | 1 << 2 | 1 << 4 | 1 << 6
  t5->ops->pack(t5, shape, &strip, four, NULL, &byte);
  assert_int_equal(byte, 3 + 9 + 27 + 81);
  uint8_t block[128] = {0};
  strip = st_format_locate(t16, shape, 0, 1);
  assert_int_equal(strip.bytes, 128);
  t16->ops->pack(t16, shape, &strip, four, NULL, block);
  assert_int_equal(block[0], 0x54);
  for (int i = 1; i < 128; i++) assert_int_equal(block[i], 0x55);
  assert_int_equal(t16->ops->check(t16, shape, &strip, block), -1);
  block[1] = 0x54; // a padding column of row 0 that is not zero
  assert_int_equal(t16->ops->check(t16, shape, &strip, block), 1);
}

// A t16 tensor is the kernels' form of the matrix, byte for byte, so that it can be used where it was read.
static void test_kernel_order(void **state) {
  (void)state;
  const char *names[] = {"k1_n1", "k5_n17", "k127_n8", "k129_n17", "k640_n17", "k8640_n4", "minus_k256_n20"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    layout_case c = get_case(st_format_get(ST_T16), names[i]);
    uint64_t rows = c.shape.rows, columns = c.shape.columns, at = 0;
    assert_int_equal(st_form_of(c.format), ST_FORM_T16);
    size_t group = st_form_group_bytes(ST_FORM_T16, columns, 0);
    uint8_t *packed = malloc(group);
    for (uint64_t row = 0; row < rows; row += 16, at += group) {
      st_form_pack(ST_FORM_T16, c.format, columns, 0, c.trits + row * columns, NULL, rows - row < 16 ? rows - row : 16,
                   packed);
      assert_true(at + group <= c.bytes.bytes);
      assert_memory_equal(packed, (const uint8_t *)c.bytes.data + at, group);
    }
    assert_int_equal(at, c.bytes.bytes);
    free(packed);
  }
}

static void check_peer(const char *format, const char *key, float scale) {
  const st_format *f = st_format_by_name(format);
  vector bytes = vectors_get(&peers, key, "bytes", 1);
  const json_t *shape_of = json_object_get(json_object_get(peers.header, "trits"), "data_offsets");
  const int8_t *want = (const int8_t *)peers.data + json_integer_value(json_array_get(shape_of, 0));
  const json_t *scales_of = json_object_get(json_object_get(peers.header, "row_scales"), "data_offsets");
  const uint8_t *want_scales = peers.data + json_integer_value(json_array_get(scales_of, 0));
  st_shape shape = {20, 256};
  int8_t trits[20 * 256];
  float scales[20];
  st_strip all = st_format_locate(f, shape, 0, 20);
  f->ops->unpack(f, shape, &all, bytes.data, trits, scales);
  assert_memory_equal(trits, want, sizeof trits);
  assert_int_equal(f->ops->check(f, shape, &all, bytes.data), -1);
  if (f->scales == ST_SCALE_TENSOR) {
    assert_true(st_load_f32((const uint8_t *)bytes.data + f->ops->scale_offset(f, shape)) == scale);
    return;
  }
  for (size_t r = 0; r < 20; r++) assert_true(scales[r] == (scale != 0 ? scale : st_load_f32(want_scales + 4 * r)));
  uint8_t packed[20 * 70];
  assert_true(all.bytes <= sizeof packed && all.bytes == bytes.bytes);
  f->ops->pack(f, shape, &all, trits, scales, packed);
  assert_memory_equal(packed, bytes.data, bytes.bytes);
}

// What ik_llama.cpp's quantizer made of f16 weights, and of an i2_s tensor, whose order it reads as Setun does.
static void test_peers(void **state) {
  (void)state;
  const json_t *scale_of_file = json_object_get(json_object_get(peers.header, "scale"), "data_offsets");
  float scale = st_load_f32(peers.data + json_integer_value(json_array_get(scale_of_file, 0)));
  check_peer("iq1_bn", "iq1_bn", 0);
  check_peer("iq2_bn", "iq2_bn", 0);
  check_peer("iq2_bn", "iq2_bn_of_i2_s", scale);
  check_peer("i2_s", "i2_s", scale);
}

int main(void) {
  vectors_open(&data, "ternary.safetensors");
  vectors_open(&peers, "peers.safetensors");
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_unpack),       cmocka_unit_test(test_pack),
                                     cmocka_unit_test(test_dot),          cmocka_unit_test(test_invalid),
                                     cmocka_unit_test(test_two),          cmocka_unit_test(test_examples),
                                     cmocka_unit_test(test_kernel_order), cmocka_unit_test(test_peers)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  vectors_close(&data);
  vectors_close(&peers);
  return failed;
}
