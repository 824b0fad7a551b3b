// tokenizer.json: the model's vocabulary with its merges or scores, and the added tokens.
#include "tokenizer/json.h"

#include "base/memory.h"

#include <string.h>

// Ids may leave gaps, but a file's size bounds how far they may run: `count` tokens justify no more than this.
static uint32_t id_limit(size_t count) {
  size_t limit = count * 4 + (1 << 16);
  return limit < ST_MAX_TOKENS ? (uint32_t)limit : ST_MAX_TOKENS;
}

static setun_status highest(const json_t *value, const char *what, uint32_t limit, uint32_t *size, setun_error *err) {
  uint32_t id;
  setun_status s = st_json_id(value, what, limit, &id, err);
  if (!s && id >= *size) *size = id + 1;
  return s;
}

// How many ids there are: one more than the highest.
static setun_status count_ids(const json_t *vocab, const json_t *added, uint32_t *size, setun_error *err) {
  size_t n_vocab = json_is_object(vocab) ? json_object_size(vocab) : json_array_size(vocab);
  uint32_t limit = id_limit(n_vocab + json_array_size(added));
  setun_status s = SETUN_OK;
  *size = 0;
  if (json_is_object(vocab)) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)vocab, key, value) {
      if ((s = highest(value, "model.vocab", limit, size, err))) return s;
    }
  } else {
    if (n_vocab > limit) return st_fail(err, SETUN_ERROR_UNSUPPORTED, "model.vocab holds %zu tokens", n_vocab);
    *size = (uint32_t)n_vocab;
  }
  for (size_t i = 0; i < json_array_size(added); i++) {
    if ((s = highest(json_object_get(json_array_get(added, i), "id"), "added_tokens: id", limit, size, err))) return s;
  }
  return SETUN_OK;
}

static setun_status read_object_vocab(st_tokenizer *t, const json_t *vocab, setun_error *err) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)vocab, key, value) {
    uint32_t id;
    setun_status s = st_json_id(value, "model.vocab", t->size, &id, err);
    if (!s) s = st_tokenizer_set(t, id, key, strlen(key), ST_TOKEN_NORMAL, err);
    if (s) return s;
  }
  return st_tokenizer_index(t, err);
}

static setun_status read_scored_vocab(st_tokenizer *t, const json_t *vocab, setun_error *err) {
  t->log_probs = st_calloc(t->size, sizeof *t->log_probs);
  if (!t->log_probs) return st_fail_memory(err, "the scores");
  for (size_t i = 0; i < json_array_size(vocab); i++) {
    const json_t *row = json_array_get(vocab, i), *text = json_array_get(row, 0), *score = json_array_get(row, 1);
    if (!json_is_string(text) || !json_is_number(score)) {
      return st_fail(err, SETUN_ERROR_FORMAT, "model.vocab: entry %zu is not a text with its score", i);
    }
    setun_status s =
        st_tokenizer_set(t, (uint32_t)i, json_string_value(text), json_string_length(text), ST_TOKEN_NORMAL, err);
    if (s) return s;
    t->log_probs[i] = json_number_value(score);
  }
  return st_tokenizer_index(t, err);
}

// A merge is "left right" in older files and ["left", "right"] in newer ones.
static setun_status read_merge(const json_t *m, size_t i, st_merge_row *row, setun_error *err) {
  const json_t *l = json_array_get(m, 0), *r = json_array_get(m, 1);
  if (json_is_string(m)) {
    const char *text = json_string_value(m), *space = strchr(text, ' ');
    if (!space || space == text || !space[1]) {
      return st_fail(err, SETUN_ERROR_FORMAT, "model.merges: merge %zu is not two texts with a space between", i);
    }
    size_t left = (size_t)(space - text);
    *row = (st_merge_row){{text, left}, {space + 1, json_string_length(m) - left - 1}, i};
  } else if (json_array_size(m) == 2 && json_is_string(l) && json_is_string(r)) {
    *row =
        (st_merge_row){{json_string_value(l), json_string_length(l)}, {json_string_value(r), json_string_length(r)}, i};
  } else {
    return st_fail(err, SETUN_ERROR_FORMAT, "model.merges: merge %zu is not a pair of texts", i);
  }
  return SETUN_OK;
}

static setun_status read_merges(st_tokenizer *t, const json_t *merges, setun_error *err) {
  if (!json_is_array(merges)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "model.merges: expected an array, found %s", st_json_kind(merges));
  }
  st_merge_row rows[ST_MERGE_ROWS];
  size_t total = json_array_size(merges);
  setun_status s = st_merges_reserve(t, total, err);
  for (size_t i = 0, n = 0; !s && i < total; i++) {
    if ((s = read_merge(json_array_get(merges, i), i, &rows[n++], err))) return s;
    if (n < ST_MERGE_ROWS && i + 1 < total) continue;
    s = st_merges_add(t, rows, n, true, err);
    n = 0;
  }
  return s ? st_fail_in(err, "model.merges") : SETUN_OK;
}

static setun_status refuse_text(const json_t *model, const char *key, setun_error *err) {
  const char *text = NULL;
  setun_status s = st_json_text(model, key, &text, err);
  if (s) return s;
  if (!text || !*text) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "model.%s \"%.40s\" is not supported", key, text);
}

static setun_status read_bpe(st_tokenizer *t, const json_t *model, setun_error *err) {
  float dropout = 0;
  const char *unk = NULL;
  setun_status s = st_json_f32(model, "dropout", &dropout, err);
  if (!s && dropout != 0)
    s = st_fail(err, SETUN_ERROR_UNSUPPORTED, "model.dropout %g is not supported", (double)dropout);
  if (!s) s = refuse_text(model, "continuing_subword_prefix", err);
  if (!s) s = refuse_text(model, "end_of_word_suffix", err);
  if (!s) s = st_json_bool(model, "fuse_unk", &t->fuse_unk, err);
  if (!s) s = st_json_bool(model, "byte_fallback", &t->byte_fallback, err);
  if (!s) s = st_json_bool(model, "ignore_merges", &t->ignore_merges, err);
  if (!s) s = st_json_text(model, "unk_token", &unk, err);
  if (!s) s = read_merges(t, st_json_get(model, "merges"), err);
  if (s || !unk) return s;
  t->unk = st_tokenizer_find(t, unk, strlen(unk));
  if (t->unk >= 0) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_FORMAT, "model.unk_token \"%.40s\" is no token", unk);
}

static setun_status read_unigram(st_tokenizer *t, const json_t *model, setun_error *err) {
  uint32_t unk;
  setun_status s = st_json_bool(model, "byte_fallback", &t->byte_fallback, err);
  if (s) return s;
  json_t *value = st_json_get(model, "unk_id");
  if (!value)
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "model.unk_id: a Unigram model without one is not supported");
  if ((s = st_json_id(value, "model.unk_id", t->size, &unk, err))) return s;
  t->unk = (int32_t)unk;
  t->fuse_unk = true;
  t->model = ST_MODEL_UNIGRAM;
  return SETUN_OK;
}

static void mark_bytes(st_tokenizer *t) {
  for (uint32_t id = 0; id < t->size; id++) {
    bool byte = t->texts[id].data && st_byte_token(t->texts[id].data, t->texts[id].length) >= 0;
    if (byte && t->types[id] == ST_TOKEN_NORMAL) t->types[id] = ST_TOKEN_BYTE;
  }
}

static setun_status place_added(st_tokenizer *t, const json_t *token, uint32_t *at, setun_error *err) {
  uint32_t id;
  setun_status s = st_json_id(json_object_get(token, "id"), "added_tokens: id", t->size, &id, err);
  const json_t *content = st_json_get(token, "content");
  if (s) return s;
  if (!json_is_string(content)) return st_fail(err, SETUN_ERROR_FORMAT, "added_tokens: token %u has no content", id);
  const char *text = json_string_value(content);
  size_t length = json_string_length(content);
  int64_t known = st_map_get(t->ids, text, length);
  if (known >= 0 && known != id && t->outside[known]) {
    return st_fail(err, SETUN_ERROR_FORMAT, "added_tokens: token %u has the text of token %lld", id, (long long)known);
  }
  if (known >= 0) { // the model's id counts, as in the reference
    *at = (uint32_t)known;
    return SETUN_OK;
  }
  if ((s = st_tokenizer_set(t, id, text, length, ST_TOKEN_USER_DEFINED, err))) return s;
  t->outside[id] = 1;
  *at = id;
  return st_map_add(t->ids, t->texts[id].data, length, id, NULL) ? SETUN_OK : st_fail_memory(err, "the vocabulary");
}

setun_status st_json_read_added(st_tokenizer *t, const json_t *token, uint32_t id, setun_error *err) {
  bool special = false, lstrip = false, rstrip = false, single = false;
  setun_status s = st_json_bool(token, "special", &special, err);
  bool normal = !special;
  if (!s) s = st_json_bool(token, "lstrip", &lstrip, err);
  if (!s) s = st_json_bool(token, "rstrip", &rstrip, err);
  if (!s) s = st_json_bool(token, "single_word", &single, err);
  if (!s) s = st_json_bool(token, "normalized", &normal, err);
  if (s) return s;
  t->types[id] = special ? ST_TOKEN_CONTROL : ST_TOKEN_USER_DEFINED;
  t->flags[id] = (uint8_t)((lstrip ? ST_ADDED_LSTRIP : 0) | (rstrip ? ST_ADDED_RSTRIP : 0) |
                           (single ? ST_ADDED_SINGLE_WORD : 0) | (normal ? ST_ADDED_NORMALIZED : 0));
  return SETUN_OK;
}

static setun_status read_added_token(st_tokenizer *t, const json_t *token, setun_error *err) {
  uint32_t id = 0;
  setun_status s = place_added(t, token, &id, err);
  if (s) return s;
  return st_json_read_added(t, token, id, err) ? st_fail_in(err, "added_tokens: token %u", id) : SETUN_OK;
}

static setun_status read_model(st_tokenizer *t, const json_t *model, const json_t *vocab, setun_error *err) {
  if (json_is_object(vocab)) {
    setun_status s = read_object_vocab(t, vocab, err);
    return s ? s : read_bpe(t, model, err);
  }
  setun_status s = read_scored_vocab(t, vocab, err);
  return s ? s : read_unigram(t, model, err);
}

static setun_status check_type(const json_t *model, const json_t *vocab, setun_error *err) {
  const char *type = NULL;
  if (!json_is_object(model)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "model: expected an object, found %s", st_json_kind(model));
  }
  setun_status s = st_json_text(model, "type", &type, err);
  if (s) return s;
  if (!type) type = json_is_object(vocab) ? "BPE" : "Unigram"; // files of early versions leave it out
  bool bpe = !strcmp(type, "BPE"), unigram = !strcmp(type, "Unigram");
  if (!bpe && !unigram) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "model.type \"%.40s\" is not supported (BPE and Unigram are)", type);
  }
  if (bpe ? json_is_object(vocab) : json_is_array(vocab)) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_FORMAT, "model.vocab: expected an %s, found %s", bpe ? "object" : "array",
                 st_json_kind(vocab));
}

setun_status st_json_read_vocabulary(const json_t *root, st_tokenizer **out, setun_error *err) {
  const json_t *model = st_json_get(root, "model"), *vocab = st_json_get(model, "vocab");
  const json_t *added = st_json_get(root, "added_tokens");
  if (added && !json_is_array(added)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "added_tokens: expected an array, found %s", st_json_kind(added));
  }
  uint32_t size = 0;
  setun_status s = check_type(model, vocab, err);
  if (!s) s = count_ids(vocab, added, &size, err);
  if (!s) s = st_tokenizer_new(size, out, err);
  if (s) return s;
  st_tokenizer *t = *out;
  t->outside = st_calloc(size, 1);
  if (!t->outside) return st_fail_memory(err, "the added tokens");
  if ((s = read_model(t, model, vocab, err))) return s;
  for (size_t i = 0; !s && i < json_array_size(added); i++) {
    s = read_added_token(t, json_array_get(added, i), err);
  }
  if (!s && t->byte_fallback) mark_bytes(t);
  return s;
}

setun_status st_json_object_vocab(const json_t *vocab, const json_t *added, st_tokenizer **t, setun_error *err) {
  uint32_t size = 0;
  setun_status s = count_ids(vocab, added, &size, err);
  if (!s) s = st_tokenizer_new(size, t, err);
  return s ? s : read_object_vocab(*t, vocab, err);
}
