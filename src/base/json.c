// JSON: strict parsing with positions, and members read with their type and range checked.
#include "base/json.h"

#include <math.h>

static json_t *parse(const char *text, size_t length, size_t flags, const char *name, setun_error *err) {
  json_error_t where;
  json_t *root = json_loadb(text, length, flags, &where);
  if (!root) {
    st_fail(err, SETUN_ERROR_FORMAT, "%s: line %d, column %d: %s", name, where.line, where.column, where.text);
    return NULL;
  }
  if (!json_is_object(root)) {
    st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a JSON object, found %s", name, st_json_kind(root));
    json_decref(root);
    return NULL;
  }
  return root;
}

json_t *st_json_parse(const char *text, size_t length, const char *name, setun_error *err) {
  return parse(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, name, err);
}

json_t *st_json_parse_values(const char *text, size_t length, const char *name, setun_error *err) {
  return parse(text, length, JSON_ALLOW_NUL, name, err);
}

const char *st_json_kind(const json_t *value) {
  switch (value ? json_typeof(value) : JSON_NULL) {
  case JSON_OBJECT: return "an object";
  case JSON_ARRAY: return "an array";
  case JSON_STRING: return "a string";
  case JSON_INTEGER:
  case JSON_REAL: return "a number";
  case JSON_TRUE:
  case JSON_FALSE: return "a boolean";
  case JSON_NULL: break;
  }
  return "null";
}

json_t *st_json_get(const json_t *object, const char *key) {
  json_t *value = json_object_get(object, key);
  return json_is_null(value) ? NULL : value;
}

static setun_status wrong_kind(const char *key, const char *expected, const json_t *value, setun_error *err) {
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected %s, found %s", key, expected, st_json_kind(value));
}

setun_status st_json_u64(const json_t *object, const char *key, uint64_t low, uint64_t high, uint64_t *out,
                         setun_error *err) {
  const json_t *value = st_json_get(object, key);
  if (!value) return SETUN_OK;
  if (!json_is_number(value)) return wrong_kind(key, "an integer", value, err);
  double x = json_number_value(value);
  // Above 2^53 doubles skip integers; no size in a real file comes near.
  if (x != floor(x) || x < (double)low || x > (double)high || x > 9007199254740992.0) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected an integer from %llu to %llu, found %.17g", key,
                   (unsigned long long)low, (unsigned long long)high, x);
  }
  *out = (uint64_t)x;
  return SETUN_OK;
}

setun_status st_json_u32(const json_t *object, const char *key, uint32_t low, uint32_t high, uint32_t *out,
                         setun_error *err) {
  uint64_t wide = *out;
  setun_status s = st_json_u64(object, key, low, high, &wide, err);
  if (s == SETUN_OK) *out = (uint32_t)wide;
  return s;
}

setun_status st_json_f32(const json_t *object, const char *key, float *out, setun_error *err) {
  const json_t *value = st_json_get(object, key);
  if (!value) return SETUN_OK;
  if (!json_is_number(value)) return wrong_kind(key, "a number", value, err);
  double x = json_number_value(value);
  float narrow = (float)x;
  if (!isfinite(narrow) || (!narrow && x)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a number that float32 holds, found %g", key, x);
  }
  *out = narrow;
  return SETUN_OK;
}

setun_status st_json_bool(const json_t *object, const char *key, bool *out, setun_error *err) {
  const json_t *value = st_json_get(object, key);
  if (!value) return SETUN_OK;
  if (!json_is_boolean(value)) return wrong_kind(key, "true or false", value, err);
  *out = json_is_true(value);
  return SETUN_OK;
}

setun_status st_json_text(const json_t *object, const char *key, const char **out, setun_error *err) {
  const json_t *value = st_json_get(object, key);
  if (!value) return SETUN_OK;
  if (!json_is_string(value)) return wrong_kind(key, "a string", value, err);
  *out = json_string_value(value);
  return SETUN_OK;
}

// jansson goes on after some failures of its callback, so that they are remembered here.
typedef struct dump_target {
  st_buffer *out;
  bool failed;
} dump_target;

static int append_dump(const char *text, size_t n, void *user) {
  dump_target *to = user;
  to->failed = to->failed || !st_buffer_append(to->out, text, n);
  return to->failed ? -1 : 0;
}

static bool dump(const json_t *value, st_buffer *out, size_t flags) {
  dump_target to = {out, false};
  return json_dump_callback(value, append_dump, &to, flags) == 0 && !to.failed;
}

bool st_json_append(const json_t *value, st_buffer *out) {
  return dump(value, out, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
}

bool st_json_append_lines(const json_t *value, st_buffer *out) {
  return dump(value, out, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
}
