// Typed access to GGUF's metadata: lookups with type and range checked, and values as text.
#include "format/metadata.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const type_names[ST_META_TYPE_COUNT] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                           "bool", "string", "array", "u64", "i64", "f64"};

const char *st_meta_type_name(st_meta_type type) {
  return type_names[type];
}

void st_metadata_free(st_metadata *m) {
  for (size_t i = 0; i < m->count; i++) st_free(m->items[i].key);
  st_map_free(m->by_key);
  st_free(m->items);
  st_free(m->storage);
  st_free(m->texts);
  *m = (st_metadata){0};
}

const char *st_meta_kind(const st_meta *item, char text[32]) {
  if (item->type != ST_META_ARRAY) return type_names[item->type];
  snprintf(text, 32, "an array of %s", type_names[item->element]);
  return text;
}

size_t st_meta_bytes(st_meta_type type) {
  static const uint8_t bytes[ST_META_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return bytes[type];
}

const st_meta *st_metadata_find(const st_metadata *m, const char *key) {
  if (!m->by_key) return NULL;
  int64_t i = st_map_get(m->by_key, key, strlen(key));
  return i < 0 || m->items[i].ignored ? NULL : &m->items[i];
}

static setun_status wrong_type(const st_meta *item, const char *expected, setun_error *err) {
  char kind[32];
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected %s, found %s", item->key, expected, st_meta_kind(item, kind));
}

static bool is_unsigned(st_meta_type t) {
  return t == ST_META_U8 || t == ST_META_U16 || t == ST_META_U32 || t == ST_META_U64;
}

static bool is_signed(st_meta_type t) {
  return t == ST_META_I8 || t == ST_META_I16 || t == ST_META_I32 || t == ST_META_I64;
}

bool st_meta_is_integer(st_meta_type type) {
  return is_unsigned(type) || is_signed(type);
}

setun_status st_metadata_u64(const st_metadata *m, const char *key, uint64_t low, uint64_t high, uint64_t *out,
                             setun_error *err) {
  const st_meta *item = st_metadata_find(m, key);
  if (!item) return SETUN_OK;
  if (!st_meta_is_integer(item->type)) return wrong_type(item, "an integer", err);
  bool negative = is_signed(item->type) && item->as.i < 0;
  if (negative || item->as.u < low || item->as.u > high) {
    char found[24];
    if (negative)
      snprintf(found, sizeof found, "%" PRId64, item->as.i);
    else
      snprintf(found, sizeof found, "%" PRIu64, item->as.u);
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected an integer from %" PRIu64 " to %" PRIu64 ", found %s", key,
                   low, high, found);
  }
  *out = item->as.u;
  return SETUN_OK;
}

setun_status st_metadata_u32(const st_metadata *m, const char *key, uint32_t low, uint32_t high, uint32_t *out,
                             setun_error *err) {
  uint64_t wide = *out;
  setun_status s = st_metadata_u64(m, key, low, high, &wide, err);
  if (s == SETUN_OK) *out = (uint32_t)wide;
  return s;
}

setun_status st_metadata_f32(const st_metadata *m, const char *key, float *out, setun_error *err) {
  const st_meta *item = st_metadata_find(m, key);
  if (!item) return SETUN_OK;
  double x;
  if (item->type == ST_META_F32 || item->type == ST_META_F64)
    x = item->as.f;
  else if (is_unsigned(item->type))
    x = (double)item->as.u;
  else if (is_signed(item->type))
    x = (double)item->as.i;
  else
    return wrong_type(item, "a number", err);
  if (!isfinite((float)x)) return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a finite number, found %g", key, x);
  *out = (float)x;
  return SETUN_OK;
}

setun_status st_metadata_bool(const st_metadata *m, const char *key, bool *out, setun_error *err) {
  const st_meta *item = st_metadata_find(m, key);
  if (!item) return SETUN_OK;
  if (item->type != ST_META_BOOL) return wrong_type(item, "bool", err);
  *out = item->as.u != 0;
  return SETUN_OK;
}

setun_status st_metadata_text(const st_metadata *m, const char *key, st_text *out, setun_error *err) {
  const st_meta *item = st_metadata_find(m, key);
  if (!item) return SETUN_OK;
  if (item->type != ST_META_STRING) return wrong_type(item, "string", err);
  *out = item->as.text;
  return SETUN_OK;
}

double st_meta_number(const st_meta *array, uint64_t i) {
  const char *base = array->as.values;
#define ELEMENT(kind, type)                                                                                            \
  case kind: {                                                                                                         \
    type v;                                                                                                            \
    memcpy(&v, base + i * sizeof v, sizeof v);                                                                         \
    return (double)v;                                                                                                  \
  }
  switch (array->element) {
    ELEMENT(ST_META_U8, uint8_t)
    ELEMENT(ST_META_BOOL, uint8_t)
    ELEMENT(ST_META_I8, int8_t)
    ELEMENT(ST_META_U16, uint16_t)
    ELEMENT(ST_META_I16, int16_t)
    ELEMENT(ST_META_U32, uint32_t)
    ELEMENT(ST_META_I32, int32_t)
    ELEMENT(ST_META_F32, float)
    ELEMENT(ST_META_U64, uint64_t)
    ELEMENT(ST_META_I64, int64_t)
    ELEMENT(ST_META_F64, double)
  case ST_META_STRING:
  case ST_META_ARRAY:
  case ST_META_TYPE_COUNT: break;
  }
#undef ELEMENT
  return 0;
}

// ---- values as text -----------------------------------------------------------------------------------------------

enum { SHOWN_BYTES = 60, SHOWN_ELEMENTS = 8 };

// A string within quotes, on one line: control bytes and invalid UTF-8 as \xNN, cut with its length in bytes.
static bool print_text(st_text text, size_t most, st_buffer *out) {
  bool ok = st_buffer_text(out, "\"");
  size_t i = 0;
  while (ok && i < text.length && i < most) {
    uint32_t code;
    int n = st_utf8_decode(text.data + i, text.length - i, &code);
    unsigned char c = (unsigned char)text.data[i];
    if (c == '\n')
      ok = st_buffer_text(out, "\\n");
    else if (c == '"' || c == '\\')
      ok = st_buffer_format(out, "\\%c", c);
    else if (n <= 0 || c < 0x20 || c == 0x7F)
      ok = st_buffer_format(out, "\\x%02X", c);
    else
      ok = st_buffer_append(out, text.data + i, (size_t)n);
    i += n > 0 ? (size_t)n : 1;
  }
  ok = ok && st_buffer_text(out, "\"");
  if (ok && i < text.length) ok = st_buffer_format(out, "... (%zu bytes)", text.length);
  return ok;
}

static bool print_number(double x, st_meta_type type, st_buffer *out) {
  if (type == ST_META_BOOL) return st_buffer_text(out, x != 0 ? "true" : "false");
  return st_buffer_format(out, type == ST_META_F32 ? "%.9g" : "%.17g", x);
}

static bool print_array(const st_meta *item, st_buffer *out) {
  bool ok = st_buffer_text(out, "[");
  uint64_t shown = item->count < SHOWN_ELEMENTS ? item->count : SHOWN_ELEMENTS;
  for (uint64_t i = 0; ok && i < shown; i++) {
    if (i) ok = st_buffer_text(out, ", ");
    if (!ok) break;
    ok = item->element == ST_META_STRING ? print_text(item->as.texts[i], SHOWN_BYTES / 2, out)
                                         : print_number(st_meta_number(item, i), item->element, out);
  }
  if (ok && shown < item->count) ok = st_buffer_format(out, ", ... (%" PRIu64 " elements)", item->count);
  return ok && st_buffer_text(out, "]");
}

setun_status st_meta_print(const st_meta *item, st_buffer *out, setun_error *err) {
  bool ok;
  if (item->type == ST_META_STRING)
    ok = print_text(item->as.text, SHOWN_BYTES, out);
  else if (item->type == ST_META_ARRAY)
    ok = print_array(item, out);
  else if (item->type == ST_META_BOOL)
    ok = st_buffer_text(out, item->as.u ? "true" : "false");
  else if (is_unsigned(item->type))
    ok = st_buffer_format(out, "%" PRIu64, item->as.u);
  else if (is_signed(item->type))
    ok = st_buffer_format(out, "%" PRId64, item->as.i);
  else
    ok = print_number(item->as.f, item->type, out);
  return ok ? SETUN_OK : st_fail_memory(err, item->key);
}

// ---- values as JSON -----------------------------------------------------------------------------------------------

static bool json_text(st_text text, st_buffer *out) {
  bool ok = st_buffer_text(out, "\"");
  for (size_t i = 0; ok && i < text.length;) {
    uint32_t code;
    int n = st_utf8_decode(text.data + i, text.length - i, &code);
    unsigned char c = (unsigned char)text.data[i];
    if (c == '"' || c == '\\')
      ok = st_buffer_format(out, "\\%c", c);
    else if (c < 0x20 || c == 0x7F)
      ok = st_buffer_format(out, "\\u%04x", c);
    else
      ok = n > 0 ? st_buffer_append(out, text.data + i, (size_t)n) : st_buffer_text(out, "\\ufffd");
    i += n > 0 ? (size_t)n : 1;
  }
  return ok && st_buffer_text(out, "\"");
}

static bool json_real(double x, st_meta_type type, st_buffer *out) {
  if (type == ST_META_F32 || type == ST_META_F64) {
    if (!isfinite(x)) return st_buffer_text(out, "null");
    size_t before = out->length;
    if (!print_number(x, type, out)) return false;
    bool whole = strspn(out->data + before, "-0123456789") == out->length - before;
    return !whole || st_buffer_text(out, ".0"); // keeps it a real for readers that distinguish integers
  }
  return print_number(x, type, out);
}

// 64-bit integers are not converted to double.
static bool json_element(const st_meta *array, uint64_t i, st_buffer *out) {
  const char *at = (const char *)array->as.values + i * st_meta_bytes(array->element);
  uint64_t u;
  int64_t v;
  switch (array->element) {
  case ST_META_STRING: return json_text(array->as.texts[i], out);
  case ST_META_U64: memcpy(&u, at, sizeof u); return st_buffer_format(out, "%" PRIu64, u);
  case ST_META_I64: memcpy(&v, at, sizeof v); return st_buffer_format(out, "%" PRId64, v);
  default: return json_real(st_meta_number(array, i), array->element, out);
  }
}

setun_status st_meta_json(const st_meta *item, st_buffer *out, setun_error *err) {
  bool ok = true;
  if (item->type == ST_META_ARRAY) {
    ok = st_buffer_text(out, "[");
    for (uint64_t i = 0; ok && i < item->count; i++) {
      ok = (!i || st_buffer_text(out, ", ")) && json_element(item, i, out);
    }
    ok = ok && st_buffer_text(out, "]");
  } else if (item->type == ST_META_STRING) {
    ok = json_text(item->as.text, out);
  } else if (item->type == ST_META_F32 || item->type == ST_META_F64) {
    ok = json_real(item->as.f, item->type, out);
  } else {
    return st_meta_print(item, out, err);
  }
  return ok ? SETUN_OK : st_fail_memory(err, item->key);
}
