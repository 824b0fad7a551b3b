// JSON: members read with their type and range checked.
#include "base/json.h"

#include <math.h>
#include <string.h>

const char *st_json_kind(const st_json *value) {
  switch (value ? (st_json_type_id)value->type : ST_JSON_NULL) {
  case ST_JSON_OBJECT: return "an object";
  case ST_JSON_ARRAY: return "an array";
  case ST_JSON_STRING: return "a string";
  case ST_JSON_INTEGER:
  case ST_JSON_REAL: return "a number";
  case ST_JSON_TRUE:
  case ST_JSON_FALSE: return "a boolean";
  case ST_JSON_NULL: break;
  }
  return "null";
}

const st_json *st_json_find(const st_json *object, const char *key) {
  return st_json_find_n(object, key, strlen(key));
}

const st_json *st_json_get(const st_json *object, const char *key) {
  const st_json *value = st_json_find(object, key);
  return st_json_is_null(value) ? NULL : value;
}

static setun_status wrong_kind(const char *key, const char *expected, const st_json *value, setun_error *err) {
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected %s, found %s", key, expected, st_json_kind(value));
}

static setun_status read_u64(const st_json *object, const char *key, uint64_t low, uint64_t high, uint64_t *out,
                             setun_error *err) {
  const st_json *value = st_json_get(object, key);
  if (!value) return SETUN_OK;
  if (!st_json_is_number(value)) return wrong_kind(key, "an integer", value, err);
  double x = st_json_number(value);
  // Above 2^53 doubles skip integers; no size in a real file comes near.
  if (x != floor(x) || x < (double)low || x > (double)high || x > 9007199254740992.0) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected an integer from %llu to %llu, found %.17g", key,
                   (unsigned long long)low, (unsigned long long)high, x);
  }
  *out = (uint64_t)x;
  return SETUN_OK;
}

setun_status st_json_u32(const st_json *object, const char *key, uint32_t low, uint32_t high, uint32_t *out,
                         setun_error *err) {
  uint64_t wide = *out;
  setun_status s = read_u64(object, key, low, high, &wide, err);
  if (s == SETUN_OK) *out = (uint32_t)wide;
  return s;
}

setun_status st_json_f32(const st_json *object, const char *key, float *out, setun_error *err) {
  const st_json *value = st_json_get(object, key);
  if (!value) return SETUN_OK;
  if (!st_json_is_number(value)) return wrong_kind(key, "a number", value, err);
  double x = st_json_number(value);
  float narrow = (float)x;
  if (!isfinite(narrow) || (!narrow && x)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a number in the range of float32, found %g", key, x);
  }
  *out = narrow;
  return SETUN_OK;
}

setun_status st_json_bool(const st_json *object, const char *key, bool *out, setun_error *err) {
  const st_json *value = st_json_get(object, key);
  if (!value) return SETUN_OK;
  if (!st_json_is_bool(value)) return wrong_kind(key, "true or false", value, err);
  *out = st_json_is(value, ST_JSON_TRUE);
  return SETUN_OK;
}

setun_status st_json_text(const st_json *object, const char *key, const char **out, setun_error *err) {
  const st_json *value = st_json_get(object, key);
  if (!value) return SETUN_OK;
  if (!st_json_is_string(value)) return wrong_kind(key, "a string", value, err);
  *out = st_json_string(value);
  return SETUN_OK;
}
