// Serialization of GGUF key-value pairs.
#include "format/gguf_keys.h"

#include "base/float16.h"

#include <string.h>

void st_keys_free(st_keys *k) {
  st_buffer_free(&k->bytes);
  *k = (st_keys){0};
}

static void put(st_keys *k, const void *bytes, size_t n) {
  if (n && !k->failed && !st_buffer_append(&k->bytes, bytes, n)) k->failed = true;
}

// The lower `n` bytes of a number. Like the readers, this requires a little-endian machine.
static void put_number(st_keys *k, uint64_t value, size_t n) {
  put(k, &value, n);
}

static void put_text(st_keys *k, const char *data, size_t length) {
  put_number(k, length, 8);
  put(k, data, length);
}

static void begin(st_keys *k, const char *key, st_meta_type type) {
  put_text(k, key, strlen(key));
  put_number(k, type, 4);
  k->count++;
}

static void begin_array(st_keys *k, const char *key, st_meta_type element, uint64_t count) {
  begin(k, key, ST_META_ARRAY);
  put_number(k, element, 4);
  put_number(k, count, 8);
}

bool st_keys_u32(st_keys *k, const char *key, uint32_t value) {
  begin(k, key, ST_META_U32);
  put_number(k, value, 4);
  return !k->failed;
}

bool st_keys_f32(st_keys *k, const char *key, float value) {
  begin(k, key, ST_META_F32);
  put(k, &value, sizeof value);
  return !k->failed;
}

bool st_keys_bool(st_keys *k, const char *key, bool value) {
  begin(k, key, ST_META_BOOL);
  put_number(k, value, 1);
  return !k->failed;
}

bool st_keys_text(st_keys *k, const char *key, const char *value) {
  begin(k, key, ST_META_STRING);
  put_text(k, value, strlen(value));
  return !k->failed;
}

bool st_keys_texts(st_keys *k, const char *key, const st_text *values, uint64_t count) {
  begin_array(k, key, ST_META_STRING, count);
  for (uint64_t i = 0; i < count; i++) put_text(k, values[i].data, values[i].length);
  return !k->failed;
}

bool st_keys_bools(st_keys *k, const char *key, const bool *values, uint64_t count) {
  begin_array(k, key, ST_META_BOOL, count);
  for (uint64_t i = 0; i < count; i++) put_number(k, values[i], 1);
  return !k->failed;
}

bool st_keys_i32s(st_keys *k, const char *key, const int32_t *values, uint64_t count) {
  begin_array(k, key, ST_META_I32, count);
  put(k, values, (size_t)count * sizeof *values);
  return !k->failed;
}

bool st_keys_f32s(st_keys *k, const char *key, const float *values, uint64_t count) {
  begin_array(k, key, ST_META_F32, count);
  put(k, values, (size_t)count * sizeof *values);
  return !k->failed;
}

static void put_array(st_keys *k, const st_meta *item) {
  begin_array(k, item->key, item->element, item->count);
  if (item->element != ST_META_STRING) {
    put(k, item->as.values, (size_t)item->count * st_meta_bytes(item->element));
    return;
  }
  for (uint64_t i = 0; i < item->count; i++) put_text(k, item->as.texts[i].data, item->as.texts[i].length);
}

bool st_keys_meta(st_keys *k, const st_meta *item) {
  if (item->type == ST_META_ARRAY) {
    put_array(k, item);
    return !k->failed;
  }
  begin(k, item->key, item->type);
  if (item->type == ST_META_STRING) {
    put_text(k, item->as.text.data, item->as.text.length);
  } else if (item->type == ST_META_F32) {
    put_number(k, st_float_bits((float)item->as.f), 4);
  } else {
    put_number(k, item->as.u, st_meta_bytes(item->type)); // also the bits of a double
  }
  return !k->failed;
}

bool st_keys_append(st_keys *k, const st_keys *other) {
  put(k, other->bytes.data, other->bytes.length);
  k->count += other->count;
  k->failed = k->failed || other->failed;
  return !k->failed;
}
