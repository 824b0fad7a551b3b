// A tokenizer from tokenizer.json, as the PyPI package `tokenizers` writes it. What is not supported is refused by
// name.
#include "tokenizer/json.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

setun_status st_json_type(const st_json *object, const char *what, const char **type, setun_error *err) {
  if (!st_json_is_object(object)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected an object, found %s", what, st_json_kind(object));
  }
  const st_json *value = st_json_get(object, "type");
  if (!st_json_is_string(value)) return st_fail(err, SETUN_ERROR_FORMAT, "%s: \"type\" is missing or not a string", what);
  *type = st_json_string(value);
  return SETUN_OK;
}

setun_status st_json_copy(st_tokenizer *t, const st_json *object, const char *key, const char *what, st_bytes *out,
                          setun_error *err) {
  const st_json *value = st_json_get(object, key);
  if (!st_json_is_string(value))
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: \"%s\" is missing or not a string", what, key);
  size_t n = st_json_length(value);
  if (n > ST_MAX_TOKEN_LENGTH) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: \"%s\" has %zu bytes", what, key, n);
  }
  char *copy = st_arena_copy(&t->arena, st_json_string(value), n);
  if (!copy) return st_fail_memory(err, what);
  *out = (st_bytes){copy, (uint32_t)n};
  return SETUN_OK;
}

setun_status st_json_id(const st_json *value, const char *what, uint32_t limit, uint32_t *id, setun_error *err) {
  double x = st_json_is_number(value) ? st_json_number(value) : -1;
  if (!(x >= 0) || x >= limit || x != floor(x)) {
    if (st_json_is_number(value)) {
      return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected an id from 0 to %u, found %.17g", what, limit - 1, x);
    }
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected an id from 0 to %u, found %s", what, limit - 1,
                   st_json_kind(value));
  }
  *id = (uint32_t)x;
  return SETUN_OK;
}

static setun_status read_steps(st_tokenizer *t, const st_json *root, setun_error *err) {
  setun_status s = st_json_read_normalizer(t, st_json_get(root, "normalizer"), err);
  if (!s) s = st_json_read_pretokenizer(t, st_json_get(root, "pre_tokenizer"), err);
  if (!s) s = st_json_read_postprocessor(t, st_json_get(root, "post_processor"), err);
  if (!s) s = st_json_read_decoder(t, st_json_get(root, "decoder"), err);
  if (!s) s = st_tokenizer_build_added(t, err);
  return s ? s : st_tokenizer_finish(t, err);
}

setun_status st_tokenizer_from_json(const char *text, size_t length, const char *name, st_tokenizer **out,
                                    setun_error *err) {
  st_json *root;
  setun_status s = st_json_parse(text, length, name, &root, err);
  if (s) return s;
  st_tokenizer *t = NULL;
  s = st_json_read_vocabulary(root, &t, err);
  if (!s) s = read_steps(t, root, err);
  st_json_free(root);
  if (s) {
    st_tokenizer_free(t);
    return st_fail_in(err, s, "%s", name);
  }
  *out = t;
  return SETUN_OK;
}
