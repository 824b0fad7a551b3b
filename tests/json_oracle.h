// The library's reader of JSON beside jansson: whether both take a text, and whether they then hold the same values.
#ifndef SETUN_TESTS_JSON_ORACLE_H
#define SETUN_TESTS_JSON_ORACLE_H

#include "base/json.h"

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

static bool same_value(const st_json *ours, json_t *theirs) {
  const char *key;
  json_t *value;
  size_t i = 0;
  switch (json_typeof(theirs)) {
  case JSON_NULL: return st_json_is_null(ours);
  case JSON_TRUE: return st_json_is(ours, ST_JSON_TRUE);
  case JSON_FALSE: return st_json_is(ours, ST_JSON_FALSE);
  case JSON_INTEGER: return st_json_is(ours, ST_JSON_INTEGER) && ours->as.integer == json_integer_value(theirs);
  case JSON_REAL: {
    double x = json_real_value(theirs);
    return st_json_is(ours, ST_JSON_REAL) && !memcmp(&ours->as.real, &x, sizeof x);
  }
  case JSON_STRING:
    return st_json_is_string(ours) && st_json_length(ours) == json_string_length(theirs) &&
           !memcmp(st_json_string(ours), json_string_value(theirs), st_json_length(ours) + 1);
  case JSON_ARRAY:
    if (!st_json_is_array(ours) || st_json_size(ours) != json_array_size(theirs)) return false;
    for (; i < st_json_size(ours); i++) {
      if (!same_value(st_json_at(ours, i), json_array_get(theirs, i))) return false;
    }
    return true;
  case JSON_OBJECT: break;
  }
  if (!st_json_is_object(ours) || st_json_members(ours) != json_object_size(theirs)) return false;
  json_object_foreach(theirs, key, value) {
    const st_json_member *m = st_json_member_at(ours, i++);
    if (strcmp(m->key, key) != 0 || m->length != strlen(key) || st_json_find(ours, key) != &m->value) return false;
    if (!same_value(&m->value, value)) return false;
  }
  return true;
}

// One way of reading, by both. `*taken`: they took the text. False: they differ.
static bool same_reading(const char *text, size_t length, bool config, bool *taken) {
  size_t flags = JSON_ALLOW_NUL | (config ? JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL : JSON_DECODE_ANY);
  st_json *ours = NULL;
  setun_error err = {SETUN_OK, ""};
  json_t *theirs = json_loadb(text, length, flags, NULL);
  if (config && !json_is_object(theirs)) {
    json_decref(theirs);
    theirs = NULL;
  }
  setun_status s =
      config ? st_json_parse(text, length, "text", &ours, &err) : st_json_parse_lenient(text, length, "text", &ours, &err);
  *taken = s == SETUN_OK;
  bool same = *taken == (theirs != NULL) && (*taken ? same_value(ours, theirs) : s == SETUN_ERROR_FORMAT && !ours);
  st_json_free(ours);
  json_decref(theirs);
  return same;
}

// What is written is what jansson writes of the same values: compact, exact, and over lines.
static bool same_writing(const char *text, size_t length) {
  static const size_t flags[] = {JSON_COMPACT | JSON_REAL_PRECISION(9), JSON_COMPACT | JSON_REAL_PRECISION(17),
                                 JSON_INDENT(2) | JSON_REAL_PRECISION(17)};
  bool (*const write[])(const st_json *, st_buffer *) = {st_json_append, st_json_append_exact, st_json_append_lines};
  json_t *theirs = json_loadb(text, length, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
  st_json *ours = NULL;
  bool same = true;
  if (!theirs || st_json_parse_lenient(text, length, "text", &ours, NULL) != SETUN_OK) same = false;
  for (size_t i = 0; i < 3 && same; i++) {
    st_buffer out = {0};
    char *expected = json_dumps(theirs, flags[i] | JSON_ENCODE_ANY);
    same = expected && write[i](ours, &out) && !strcmp(expected, out.data);
    free(expected);
    st_buffer_free(&out);
  }
  st_json_free(ours);
  json_decref(theirs);
  return same;
}

#endif
