// tokenizer.json: the model's vocabulary with its merges or scores, and the added tokens.
#include "tokenizer/json.h"

#include "base/memory.h"

#include <string.h>

// Ids may leave gaps, but the number of tokens bounds them: with `count` tokens, ids are at most this.
static uint32_t id_limit(size_t count) {
  size_t limit = count * 4 + (1 << 16);
  return limit < ST_MAX_TOKENS ? (uint32_t)limit : ST_MAX_TOKENS;
}

static setun_status highest(const st_json *value, const char *what, uint32_t limit, uint32_t *size, setun_error *err) {
  uint32_t id;
  setun_status s = st_json_id(value, what, limit, &id, err);
  if (!s && id >= *size) *size = id + 1;
  return s;
}

// How many ids there are: one more than the highest.
static setun_status count_ids(const st_json *vocab, const st_json *added, uint32_t *size, setun_error *err) {
  size_t n_vocab = st_json_is_object(vocab) ? st_json_members(vocab) : st_json_size(vocab);
  uint32_t limit = id_limit(n_vocab + st_json_size(added));
  setun_status s = SETUN_OK;
  *size = 0;
  if (st_json_is_object(vocab)) {
    for (size_t i = 0; i < n_vocab; i++) {
      if ((s = highest(&st_json_member_at(vocab, i)->value, "model.vocab", limit, size, err))) return s;
    }
  } else {
    if (n_vocab > limit) return st_fail(err, SETUN_ERROR_UNSUPPORTED, "model.vocab holds %zu tokens", n_vocab);
    *size = (uint32_t)n_vocab;
  }
  for (size_t i = 0; i < st_json_size(added); i++) {
    if ((s = highest(st_json_find(st_json_at(added, i), "id"), "added_tokens: id", limit, size, err))) return s;
  }
  return SETUN_OK;
}

static setun_status read_object_vocab(st_tokenizer *t, const st_json *vocab, setun_error *err) {
  for (size_t i = 0; i < st_json_members(vocab); i++) {
    const st_json_member *m = st_json_member_at(vocab, i);
    uint32_t id;
    setun_status s = st_json_id(&m->value, "model.vocab", t->size, &id, err);
    if (!s) s = st_tokenizer_set(t, id, m->key, m->length, ST_TOKEN_NORMAL, err);
    if (s) return s;
  }
  return st_tokenizer_index(t, err);
}

static setun_status read_scored_vocab(st_tokenizer *t, const st_json *vocab, setun_error *err) {
  t->log_probs = st_calloc(t->size, sizeof *t->log_probs);
  if (!t->log_probs) return st_fail_memory(err, "the scores");
  for (size_t i = 0; i < st_json_size(vocab); i++) {
    const st_json *row = st_json_at(vocab, i), *text = st_json_at(row, 0), *score = st_json_at(row, 1);
    if (!st_json_is_string(text) || !st_json_is_number(score)) {
      return st_fail(err, SETUN_ERROR_FORMAT, "model.vocab: entry %zu is not a string with its score", i);
    }
    setun_status s = st_tokenizer_set(t, (uint32_t)i, st_json_string(text), st_json_length(text), ST_TOKEN_NORMAL, err);
    if (s) return s;
    t->log_probs[i] = st_json_number(score);
  }
  return st_tokenizer_index(t, err);
}

// A merge is "left right" in older files and ["left", "right"] in newer ones.
static setun_status read_merge(const st_json *m, size_t i, st_merge_row *row, setun_error *err) {
  const st_json *l = st_json_at(m, 0), *r = st_json_at(m, 1);
  if (st_json_is_string(m)) {
    const char *text = st_json_string(m), *space = strchr(text, ' ');
    if (!space || space == text || !space[1]) {
      return st_fail(err, SETUN_ERROR_FORMAT, "model.merges: merge %zu is not two strings separated by a space", i);
    }
    size_t left = (size_t)(space - text);
    *row = (st_merge_row){{text, left}, {space + 1, st_json_length(m) - left - 1}, i};
  } else if (st_json_size(m) == 2 && st_json_is_string(l) && st_json_is_string(r)) {
    *row = (st_merge_row){{st_json_string(l), st_json_length(l)}, {st_json_string(r), st_json_length(r)}, i};
  } else {
    return st_fail(err, SETUN_ERROR_FORMAT, "model.merges: merge %zu is not a pair of strings", i);
  }
  return SETUN_OK;
}

static setun_status read_merges(st_tokenizer *t, const st_json *merges, setun_error *err) {
  if (!st_json_is_array(merges)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "model.merges: expected an array, found %s", st_json_kind(merges));
  }
  st_merge_row rows[ST_MERGE_ROWS];
  size_t total = st_json_size(merges);
  setun_status s = st_merges_reserve(t, total, err);
  for (size_t i = 0, n = 0; !s && i < total; i++) {
    if ((s = read_merge(st_json_at(merges, i), i, &rows[n++], err))) return s;
    if (n < ST_MERGE_ROWS && i + 1 < total) continue;
    s = st_merges_add(t, rows, n, true, err);
    n = 0;
  }
  return s ? st_fail_in(err, s, "model.merges") : SETUN_OK;
}

static setun_status refuse_text(const st_json *model, const char *key, setun_error *err) {
  const char *text = NULL;
  setun_status s = st_json_text(model, key, &text, err);
  if (s) return s;
  if (!text || !*text) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "model.%s \"%.40s\" is not supported", key, text);
}

static setun_status read_bpe(st_tokenizer *t, const st_json *model, setun_error *err) {
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
  t->unk = t->text_unk = st_tokenizer_find(t, unk, strlen(unk));
  if (t->unk >= 0) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_FORMAT, "model.unk_token \"%.40s\" is not a token", unk);
}

static setun_status read_unigram(st_tokenizer *t, const st_json *model, setun_error *err) {
  uint32_t unk;
  setun_status s = st_json_bool(model, "byte_fallback", &t->byte_fallback, err);
  if (s) return s;
  const st_json *value = st_json_get(model, "unk_id");
  if (!value)
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "model.unk_id: a Unigram model without one is not supported");
  if ((s = st_json_id(value, "model.unk_id", t->size, &unk, err))) return s;
  t->unk = t->text_unk = (int32_t)unk;
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

static setun_status place_added(st_tokenizer *t, const st_json *token, uint32_t *at, setun_error *err) {
  uint32_t id;
  setun_status s = st_json_id(st_json_find(token, "id"), "added_tokens: id", t->size, &id, err);
  const st_json *content = st_json_get(token, "content");
  if (s) return s;
  if (!st_json_is_string(content)) return st_fail(err, SETUN_ERROR_FORMAT, "added_tokens: token %u has no content", id);
  const char *text = st_json_string(content);
  size_t length = st_json_length(content);
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

setun_status st_json_read_added(st_tokenizer *t, const st_json *token, uint32_t id, setun_error *err) {
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

static setun_status read_added_token(st_tokenizer *t, const st_json *token, setun_error *err) {
  uint32_t id = 0;
  setun_status s = place_added(t, token, &id, err);
  if (s) return s;
  s = st_json_read_added(t, token, id, err);
  return s ? st_fail_in(err, s, "added_tokens: token %u", id) : SETUN_OK;
}

static setun_status read_model(st_tokenizer *t, const st_json *model, const st_json *vocab, setun_error *err) {
  if (st_json_is_object(vocab)) {
    setun_status s = read_object_vocab(t, vocab, err);
    return s ? s : read_bpe(t, model, err);
  }
  setun_status s = read_scored_vocab(t, vocab, err);
  return s ? s : read_unigram(t, model, err);
}

static setun_status check_type(const st_json *model, const st_json *vocab, setun_error *err) {
  const char *type = NULL;
  if (!st_json_is_object(model)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "model: expected an object, found %s", st_json_kind(model));
  }
  setun_status s = st_json_text(model, "type", &type, err);
  if (s) return s;
  if (!type) type = st_json_is_object(vocab) ? "BPE" : "Unigram"; // files of early versions leave it out
  bool bpe = !strcmp(type, "BPE"), unigram = !strcmp(type, "Unigram");
  if (!bpe && !unigram) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "model.type \"%.40s\" is not supported (BPE and Unigram are)", type);
  }
  if (bpe ? st_json_is_object(vocab) : st_json_is_array(vocab)) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_FORMAT, "model.vocab: expected an %s, found %s", bpe ? "object" : "array",
                 st_json_kind(vocab));
}

setun_status st_json_read_vocabulary(const st_json *root, st_tokenizer **out, setun_error *err) {
  const st_json *model = st_json_get(root, "model"), *vocab = st_json_get(model, "vocab");
  const st_json *added = st_json_get(root, "added_tokens");
  if (added && !st_json_is_array(added)) {
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
  for (size_t i = 0; !s && i < st_json_size(added); i++) {
    s = read_added_token(t, st_json_at(added, i), err);
  }
  if (!s && t->byte_fallback) mark_bytes(t);
  return s;
}

setun_status st_json_object_vocab(const st_json *vocab, const st_json *added, st_tokenizer **t, setun_error *err) {
  uint32_t size = 0;
  setun_status s = count_ids(vocab, added, &size, err);
  if (!s) s = st_tokenizer_new(size, t, err);
  return s ? s : read_object_vocab(*t, vocab, err);
}
