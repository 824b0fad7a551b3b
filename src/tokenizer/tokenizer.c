// The tokenizer as an object: its arena, its tables by id, lookup, end-of-text ids, and the end of every constructor.
#include "tokenizer/tokenizer.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "tokenizer/internal.h"

#include <stdio.h>
#include <string.h>

// ---- arena ----

enum { BLOCK_SIZE = 256 << 10 };

struct st_block {
  st_block *next;
  size_t used, size;
  uint64_t data[];
};

char *st_arena_take(st_arena *a, size_t size) {
  size_t need;
  if (!st_add_size(size, 15, &need)) return NULL;
  need &= ~(size_t)7;
  st_block *b = a->blocks;
  if (!b || b->size - b->used < need) {
    size_t room = need > BLOCK_SIZE / 4 ? need : BLOCK_SIZE, total;
    if (!st_add_size(room, sizeof *b, &total) || !(b = st_malloc(total, 1))) return NULL;
    b->used = 0;
    b->size = room;
    if (room == need && a->blocks) { // a large separate block goes after the one that still has room
      b->next = a->blocks->next;
      a->blocks->next = b;
    } else {
      b->next = a->blocks;
      a->blocks = b;
    }
  }
  char *p = (char *)b->data + b->used;
  b->used += need;
  return p;
}

char *st_arena_copy(st_arena *a, const char *bytes, size_t length) {
  size_t size;
  char *p = st_add_size(length, 1, &size) ? st_arena_take(a, size) : NULL;
  if (!p) return NULL;
  if (length) memcpy(p, bytes, length);
  p[length] = '\0';
  return p;
}

static void free_arena(st_arena *a) {
  for (st_block *b = a->blocks, *next; b; b = next) {
    next = b->next;
    st_free(b);
  }
  a->blocks = NULL;
}

// ---- making ----

setun_status st_tokenizer_new(uint32_t size, st_tokenizer **out, setun_error *err) {
  if (!size) return st_fail(err, SETUN_ERROR_FORMAT, "the vocabulary holds no tokens");
  if (size > ST_MAX_TOKENS) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "a vocabulary of %u tokens, more than %d", size, ST_MAX_TOKENS);
  }
  st_tokenizer *t = st_calloc(1, sizeof *t);
  if (!t) return st_fail_memory(err, "the tokenizer");
  t->size = size;
  t->bos = t->eos = t->unk = t->text_unk = -1;
  for (int b = 0; b < 256; b++) t->byte_ids[b] = -1;
  t->texts = st_calloc(size, sizeof *t->texts);
  t->pieces = st_calloc(size, sizeof *t->pieces);
  t->types = st_calloc(size, 1);
  t->flags = st_calloc(size, 1);
  t->ends = st_calloc(size, 1);
  t->ids = st_map_new(size);
  if (!t->texts || !t->pieces || !t->types || !t->flags || !t->ends || !t->ids) {
    st_tokenizer_free(t);
    return st_fail_memory(err, "the vocabulary");
  }
  *out = t;
  return SETUN_OK;
}

void st_tokenizer_free(st_tokenizer *t) {
  if (!t) return;
  st_free(t->texts);
  st_free(t->pieces);
  st_free(t->types);
  st_free(t->flags);
  st_free(t->ends);
  st_free(t->outside);
  st_free(t->scores);
  st_free(t->ranks);
  st_map_free(t->ids);
  st_free(t->merges);
  st_free(t->merge_filter);
  st_free(t->byte_pairs);
  st_free(t->seams);
  st_trie_free(t->trie);
  st_free(t->log_probs);
  for (size_t i = 0; i < t->n_normalizers; i++) st_regex_free(t->normalizers[i].regex);
  for (size_t i = 0; i < t->n_stages; i++) st_regex_free(t->stages[i].regex);
  for (int i = 0; i < 2; i++) {
    st_trie_free(t->added_raw[i].trie);
    st_trie_free(t->added_normalized[i].trie);
  }
  st_trie_free(t->protected.trie);
  free_arena(&t->arena);
  st_free(t);
}

static bool grow(void *array, uint32_t old, uint32_t size, size_t element) {
  void *block;
  memcpy(&block, array, sizeof block);
  if (!block) return true;
  block = st_realloc(block, size, element);
  if (!block) return false;
  memset((char *)block + old * element, 0, (size - old) * element);
  memcpy(array, &block, sizeof block);
  return true;
}

setun_status st_tokenizer_grow(st_tokenizer *t, uint32_t size, setun_error *err) {
  if (size <= t->size) return SETUN_OK;
  uint32_t old = t->size;
  bool ok = grow(&t->texts, old, size, sizeof *t->texts) && grow(&t->pieces, old, size, sizeof *t->pieces) &&
            grow(&t->types, old, size, 1) && grow(&t->flags, old, size, 1) && grow(&t->ends, old, size, 1) &&
            grow(&t->outside, old, size, 1) && grow(&t->scores, old, size, sizeof *t->scores) &&
            grow(&t->ranks, old, size, sizeof *t->ranks) && grow(&t->log_probs, old, size, sizeof *t->log_probs);
  if (!ok) return st_fail_memory(err, "the added tokens");
  t->size = size;
  return SETUN_OK;
}

// Text from a file, safe to show: truncated, and unprintable bytes as '?'.
const char *st_token_label(const st_tokenizer *t, uint32_t id, char out[64]) {
  st_bytes text = t->texts[id];
  size_t n = text.length < 32 ? text.length : 32;
  char shown[33];
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)text.data[i];
    shown[i] = c < 0x20 || c == 0x7F ? '?' : (char)c;
  }
  while (n && !st_utf8_valid(shown, n)) n--;
  shown[n] = '\0';
  snprintf(out, 64, "token %u (\"%s\")", id, shown);
  return out;
}

setun_status st_tokenizer_set(st_tokenizer *t, uint32_t id, const char *text, size_t length, st_token_type type,
                              setun_error *err) {
  if (id >= t->size) return st_fail(err, SETUN_ERROR_FORMAT, "token id %u in a vocabulary of %u", id, t->size);
  if (t->texts[id].data) {
    char label[64];
    return st_fail(err, SETUN_ERROR_FORMAT, "two tokens have the same id: %s and another",
                   st_token_label(t, id, label));
  }
  if (!length) return st_fail(err, SETUN_ERROR_FORMAT, "token %u is empty", id);
  if (length > ST_MAX_TOKEN_LENGTH) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "token %u has %zu bytes, more than %d", id, length,
                   ST_MAX_TOKEN_LENGTH);
  }
  char *copy = st_arena_copy(&t->arena, text, length);
  if (!copy) return st_fail_memory(err, "a token");
  t->texts[id] = (st_bytes){copy, (uint32_t)length};
  t->types[id] = (uint8_t)type;
  if (length > t->max_length) t->max_length = length;
  return SETUN_OK;
}

setun_status st_tokenizer_index(st_tokenizer *t, setun_error *err) {
  for (uint32_t id = 0; id < t->size; id++) {
    if (!t->texts[id].data) continue;
    int64_t previous;
    if (!st_map_add(t->ids, t->texts[id].data, t->texts[id].length, id, &previous)) {
      return st_fail_memory(err, "the vocabulary");
    }
    if (previous >= 0) {
      char label[64];
      return st_fail(err, SETUN_ERROR_FORMAT, "%s has the text of token %lld", st_token_label(t, id, label),
                     (long long)previous);
    }
  }
  return SETUN_OK;
}

int32_t st_tokenizer_plain(const st_tokenizer *t, const char *text, size_t length) {
  if (length > t->max_length) return -1;
  int64_t id = st_map_get(t->ids, text, length);
  if (id < 0 || (t->outside && t->outside[id])) return -1;
  uint8_t type = t->types[id];
  if (t->flags[id] & ST_ADDED_GUARDED || (t->sentencepiece && type == ST_TOKEN_UNUSED)) return -1;
  // A Unigram model's byte tokens are plain tokens in the reference; in other models no plain text matches one.
  if (type == ST_TOKEN_BYTE) return t->model == ST_MODEL_UNIGRAM && !t->sentencepiece ? (int32_t)id : -1;
  return type == ST_TOKEN_CONTROL || type == ST_TOKEN_UNKNOWN ? -1 : (int32_t)id;
}

// The published texts of control tokens that end a text or a turn.
static const char *const end_texts[] = {
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end_of_turn|>",
    "<|eot|>",
    "<|eom|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<turn|>",
    "<end_of_utterance>",
    "<eos>",
    "</s>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|END_OF_TURN_TOKEN|>",
    "<\xEF\xBD\234end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
};

void st_tokenizer_find_ends(st_tokenizer *t) {
  if (t->eos >= 0) t->ends[t->eos] = 1;
  for (size_t i = 0; i < sizeof end_texts / sizeof *end_texts; i++) {
    int32_t id = st_tokenizer_find(t, end_texts[i], strlen(end_texts[i]));
    if (id >= 0 && t->types[id] == ST_TOKEN_CONTROL) t->ends[id] = 1;
  }
  // In the Harmony format of gpt-oss <|end|> ends one message of several, and <|return|> or <|call|> the turn.
  int32_t end = st_tokenizer_find(t, "<|end|>", 7);
  bool harmony = st_tokenizer_find(t, "<|return|>", 10) >= 0 && st_tokenizer_find(t, "<|channel|>", 11) >= 0;
  if (end >= 0 && harmony && end != t->eos) t->ends[end] = 0;
}

// Some files have end tokens with the wrong type. "</s>" also ends struck-out text in HTML, and Gemma has it as a token
// for that: there it does not end a text, but plain text does not match it either.
void st_tokenizer_guard_ends(st_tokenizer *t) {
  for (size_t i = 0; i < sizeof end_texts / sizeof *end_texts; i++) {
    int32_t id = st_tokenizer_find(t, end_texts[i], strlen(end_texts[i]));
    if (id < 0 || (t->types[id] != ST_TOKEN_USER_DEFINED && t->types[id] != ST_TOKEN_NORMAL)) continue;
    if (!strcmp(end_texts[i], "</s>") && id != t->eos) {
      t->flags[id] |= ST_ADDED_GUARDED;
      t->types[id] = ST_TOKEN_USER_DEFINED;
    } else {
      t->types[id] = ST_TOKEN_CONTROL;
    }
  }
}

// The tokens for single bytes.
static setun_status find_bytes(st_tokenizer *t, setun_error *err) {
  for (uint32_t id = 0; id < t->size; id++) {
    if (t->types[id] != ST_TOKEN_BYTE) continue;
    int byte = st_byte_token(t->texts[id].data, t->texts[id].length);
    char label[64];
    if (byte < 0) {
      return st_fail(err, SETUN_ERROR_FORMAT, "%s is a byte token, expected <0x00> to <0xFF>",
                     st_token_label(t, id, label));
    }
    t->byte_ids[byte] = (int32_t)id;
  }
  if (!t->byte_level) return SETUN_OK;
  for (int byte = 0; byte < 256; byte++) {
    char c = (char)byte, text[2];
    size_t n = st_bytes_print(&c, 1, text);
    t->byte_ids[byte] = st_tokenizer_plain(t, text, n);
  }
  return SETUN_OK;
}

setun_status st_tokenizer_finish(st_tokenizer *t, setun_error *err) {
  setun_status s = find_bytes(t, err);
  if (!s) s = st_tokenizer_build_pieces(t, 0, err);
  if (!s) s = t->model == ST_MODEL_UNIGRAM ? st_unigram_prepare(t, err) : st_bpe_prepare(t, err);
  if (!s) st_tokenizer_find_ends(t);
  st_pretokenize_prepare(t);
  return s;
}

// ---- asking ----

uint32_t st_tokenizer_size(const st_tokenizer *t) {
  return t->size;
}
int32_t st_tokenizer_bos(const st_tokenizer *t) {
  return t->bos;
}
int32_t st_tokenizer_eos(const st_tokenizer *t) {
  return t->eos;
}
int32_t st_tokenizer_unk(const st_tokenizer *t) {
  return t->unk;
}
int32_t st_tokenizer_suffix(const st_tokenizer *t) {
  if (!t->add_eos) return -1;
  return t->suffix > 0 ? t->suffix - 1 : t->eos;
}

bool st_tokenizer_add_bos(const st_tokenizer *t) {
  return t->add_bos && t->bos >= 0;
}
bool st_tokenizer_has_text(const st_tokenizer *t, int32_t id) {
  return id >= 0 && (uint32_t)id < t->size && t->texts[id].data;
}

static setun_status check_id(const st_tokenizer *t, int64_t id, const char *what, setun_error *err) {
  if (id >= 0 && id < t->size && st_tokenizer_has_text(t, (int32_t)id)) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: token %lld is not in the vocabulary of %u", what, (long long)id,
                 t->size);
}

setun_status st_tokenizer_set_bos(st_tokenizer *t, int64_t id, setun_error *err) {
  setun_status s = id == -1 ? SETUN_OK : check_id(t, id, "bos_token_id", err);
  if (!s) t->bos = (int32_t)id;
  return s;
}

setun_status st_tokenizer_add_end(st_tokenizer *t, int64_t id, setun_error *err) {
  setun_status s = check_id(t, id, "eos_token_id", err);
  if (!s) t->ends[id] = 1;
  return s;
}

bool st_tokenizer_is_end(const st_tokenizer *t, int32_t id) {
  return st_tokenizer_has_text(t, id) && t->ends[id];
}

st_token_type st_tokenizer_type(const st_tokenizer *t, int32_t id) {
  return st_tokenizer_has_text(t, id) ? (st_token_type)t->types[id] : ST_TOKEN_NORMAL;
}

bool st_tokenizer_is_control(const st_tokenizer *t, int32_t id) {
  return st_tokenizer_has_text(t, id) && t->types[id] == ST_TOKEN_CONTROL;
}

int32_t st_tokenizer_find(const st_tokenizer *t, const char *text, size_t length) {
  return (int32_t)st_map_get(t->ids, text, length);
}

setun_status st_tokenizer_text(const st_tokenizer *t, int32_t id, st_text *text, setun_error *err) {
  setun_status s = check_id(t, id, "a token's text", err);
  if (!s) *text = (st_text){t->texts[id].data, t->texts[id].length};
  return s;
}

setun_status st_tokenizer_piece(const st_tokenizer *t, int32_t id, bool special, const char **bytes, size_t *length,
                                setun_error *err) {
  if (id < 0 || (uint32_t)id >= t->size) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "token %d is not in the vocabulary of %u", id, t->size);
  }
  uint8_t type = t->types[id];
  bool hidden = !special && (type == ST_TOKEN_CONTROL || (type == ST_TOKEN_UNKNOWN && !t->sentencepiece));
  *bytes = hidden || !t->pieces[id].data ? "" : t->pieces[id].data;
  *length = hidden ? 0 : t->pieces[id].length;
  return SETUN_OK;
}

// ---- lists of ids ----

void st_token_list_free(st_token_list *list) {
  st_free(list->ids);
  *list = (st_token_list){0};
}

bool st_token_list_append(st_token_list *list, int32_t id) {
  if (list->length == list->capacity && !st_reserve(&list->ids, &list->capacity, list->length + 1, sizeof *list->ids)) {
    return false;
  }
  list->ids[list->length++] = id;
  return true;
}
