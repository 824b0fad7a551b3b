// The small JSON files that accompany a tokenizer: tokenizer_config.json and special_tokens_map.json.
#include "tokenizer/json.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

// The id of the token that `key` names, as a string or as an object with "content"; -1 when it names none.
static setun_status named_token(const st_tokenizer *t, const st_json *root, const char *key, int32_t *id,
                                setun_error *err) {
  const st_json *value = st_json_get(root, key);
  *id = -1;
  if (!value) return SETUN_OK;
  if (st_json_is_object(value)) value = st_json_find(value, "content");
  if (!st_json_is_string(value)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a token's text, found %s", key, st_json_kind(value));
  }
  *id = st_tokenizer_find(t, st_json_string(value), st_json_length(value));
  if (*id >= 0) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: \"%.40s\" is not a token", key, st_json_string(value));
}

// The id that a member's name spells; an out-of-range value if it is not a number.
static uint32_t id_of_key(const char *key) {
  size_t n = strspn(key, "0123456789");
  return n && n < 9 && !key[n] ? (uint32_t)strtoul(key, NULL, 10) : UINT32_MAX;
}

static setun_status add_token(st_tokenizer *t, uint32_t id, const st_json *content, setun_error *err) {
  const char *text = st_json_string(content);
  size_t length = st_json_length(content);
  if (id < t->size && t->texts[id].data) {
    if (t->texts[id].length == length && !memcmp(t->texts[id].data, text, length)) return SETUN_OK;
    char label[64];
    return st_fail(err, SETUN_ERROR_FORMAT, "added_tokens_decoder: \"%.40s\" has the id of %s", text,
                   st_token_label(t, id, label));
  }
  setun_status s = st_tokenizer_grow(t, id + 1, err);
  if (s || (s = st_tokenizer_set(t, id, text, length, ST_TOKEN_USER_DEFINED, err))) return s;
  if (!t->outside && !(t->outside = st_calloc(t->size, 1))) return st_fail_memory(err, "the added tokens");
  t->outside[id] = 1;
  int64_t previous;
  if (!st_map_add(t->ids, t->texts[id].data, length, id, &previous)) return st_fail_memory(err, "the added tokens");
  if (previous < 0) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_FORMAT, "added_tokens_decoder: \"%.40s\" is token %lld already", text,
                 (long long)previous);
}

static setun_status read_added(st_tokenizer *t, const st_json *decoder, setun_error *err) {
  if (!st_json_is_object(decoder)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "added_tokens_decoder: expected an object, found %s",
                   st_json_kind(decoder));
  }
  size_t limit = (size_t)t->size + 4 * st_json_members(decoder) + 1024;
  for (size_t i = 0; i < st_json_members(decoder); i++) {
    const char *key = st_json_member_at(decoder, i)->key;
    const st_json *value = &st_json_member_at(decoder, i)->value;
    uint32_t id = id_of_key(key);
    const st_json *content = st_json_get(value, "content");
    if (id >= limit || id >= ST_MAX_TOKENS) {
      return st_fail(err, SETUN_ERROR_FORMAT, "added_tokens_decoder: \"%.40s\" is not an id of a vocabulary of %u", key,
                     t->size);
    }
    if (!st_json_is_string(content)) {
      return st_fail(err, SETUN_ERROR_FORMAT, "added_tokens_decoder: token %u has no content", id);
    }
    setun_status s = add_token(t, id, content, err);
    if (!s && (s = st_json_read_added(t, value, id, err))) s = st_fail_in(err, s, "added_tokens_decoder: token %u", id);
    if (s) return s;
  }
  setun_status s = st_tokenizer_build_pieces(t, 0, err);
  if (!s) s = st_tokenizer_build_added(t, err);
  if (!s) st_tokenizer_find_ends(t);
  return s;
}

static setun_status apply(st_tokenizer *t, const st_json *root, setun_error *err) {
  const st_json *added = st_json_get(root, "added_tokens_decoder");
  int32_t bos, eos, unk;
  setun_status s = added ? read_added(t, added, err) : SETUN_OK;
  if (!s) s = named_token(t, root, "bos_token", &bos, err);
  if (!s) s = named_token(t, root, "eos_token", &eos, err);
  if (s) return s;
  if (bos >= 0) t->bos = bos;
  if (eos >= 0) {
    t->eos = eos;
    t->ends[eos] = 1;
  }
  // An unknown token that the vocabulary lacks is harmless; the model's own setting stays.
  if (t->unk < 0 && !named_token(t, root, "unk_token", &unk, NULL) && !t->byte_level) t->unk = t->text_unk = unk;
  s = st_json_bool(root, "add_bos_token", &t->add_bos, err);
  return s ? s : st_json_bool(root, "add_eos_token", &t->add_eos, err);
}

setun_status st_tokenizer_apply_config(st_tokenizer *t, const char *text, size_t length, const char *name,
                                       setun_error *err) {
  st_json *root;
  setun_status s = st_json_parse(text, length, name, &root, err);
  if (s) return s;
  s = apply(t, root, err);
  st_json_free(root);
  return s ? st_fail_in(err, s, "%s", name) : SETUN_OK;
}
