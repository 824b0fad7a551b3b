// setun.h: text to tokens and back.
#include "api/api.h"

#include "base/float_modes.h"

#include <string.h>

// Text that already begins with BOS (from a template, with --special) does not get a second one.
static bool wants_bos(const st_tokenizer *t, int flags, const st_token_list *list) {
  int32_t bos = st_tokenizer_bos(t);
  if (bos < 0 || (list->length && list->ids[0] == bos)) return false;
  return (flags & SETUN_TOKENIZE_BOS_ALWAYS) || ((flags & SETUN_TOKENIZE_BOS) && st_tokenizer_add_bos(t));
}

// The token that ends the text; -1: none.
static int32_t wanted_end(const st_tokenizer *t, int flags, const st_token_list *list) {
  int32_t end = flags & SETUN_TOKENIZE_EOS ? st_tokenizer_suffix(t) : -1;
  return list->length && list->ids[list->length - 1] == end ? -1 : end;
}

static setun_status fail_flags(int flags, setun_error *error) {
  return st_fail(error, SETUN_ERROR_ARGUMENT, "flags: expected those of setun.h, found 0x%x", (unsigned)flags);
}

setun_status setun_tokenize(const setun_model *model, const char *text, size_t length, int flags, setun_token *ids,
                            size_t capacity, size_t *count, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  const int known = SETUN_TOKENIZE_SPECIAL | SETUN_TOKENIZE_BOS | SETUN_TOKENIZE_BOS_ALWAYS | SETUN_TOKENIZE_EOS;
  st_token_list list = {0};
  ST_NEED(model);
  ST_NEED_ARRAY(text, length);
  ST_NEED_ARRAY(ids, capacity);
  ST_NEED(count);
  if (flags & ~known) return fail_flags(flags, error);
  setun_status s = st_tokenizer_encode(model->tokenizer, text, length, flags & SETUN_TOKENIZE_SPECIAL, &list, error);
  if (s == SETUN_OK) {
    bool bos = wants_bos(model->tokenizer, flags, &list);
    if (bos && capacity) ids[0] = st_tokenizer_bos(model->tokenizer);
    size_t room = capacity > bos ? capacity - bos : 0, n = list.length < room ? list.length : room;
    if (n) memcpy(ids + bos, list.ids, n * sizeof *ids);
    int32_t end = wanted_end(model->tokenizer, flags, &list);
    *count = list.length + bos + (end >= 0);
    if (end >= 0 && *count <= capacity) ids[*count - 1] = end;
  }
  st_token_list_free(&list);
  return s;
}

uint64_t setun_tokenize_memory(size_t length) {
  return st_tokenizer_memory(length) + (uint64_t)length * sizeof(setun_token);
}

bool setun_token_is_end(const setun_model *model, setun_token id) {
  return model && st_tokenizer_is_end(model->tokenizer, id);
}

setun_token setun_token_bos(const setun_model *model) {
  return model ? st_tokenizer_bos(model->tokenizer) : -1;
}

setun_token setun_token_eos(const setun_model *model) {
  return model ? st_tokenizer_eos(model->tokenizer) : -1;
}

setun_token setun_token_unknown(const setun_model *model) {
  return model ? st_tokenizer_unk(model->tokenizer) : -1;
}

// Checks that ids are in the vocabulary.
static setun_status check_id(const setun_model *model, setun_token id, setun_error *error) {
  uint32_t n = st_tokenizer_size(model->tokenizer);
  if (id >= 0 && (uint32_t)id < n) return SETUN_OK;
  return st_fail(error, SETUN_ERROR_ARGUMENT, "token: expected an id from 0 to %u, found %d", n - 1, id);
}

setun_status setun_token_get_kind(const setun_model *model, setun_token id, setun_token_kind *kind,
                                  setun_error *error) {
  static const setun_token_kind kinds[] = {
      [ST_TOKEN_NORMAL] = SETUN_TOKEN_NORMAL,   [ST_TOKEN_UNKNOWN] = SETUN_TOKEN_UNKNOWN,
      [ST_TOKEN_CONTROL] = SETUN_TOKEN_CONTROL, [ST_TOKEN_USER_DEFINED] = SETUN_TOKEN_USER_DEFINED,
      [ST_TOKEN_UNUSED] = SETUN_TOKEN_UNUSED,   [ST_TOKEN_BYTE] = SETUN_TOKEN_BYTE};
  ST_NEED(model);
  ST_NEED(kind);
  setun_status s = check_id(model, id, error);
  if (s != SETUN_OK) return s;
  *kind = kinds[st_tokenizer_type(model->tokenizer, id)];
  return SETUN_OK;
}

setun_status setun_token_get_text(const setun_model *model, setun_token id, const char **text, size_t *length,
                                  setun_error *error) {
  ST_NEED(model);
  ST_NEED(text);
  ST_NEED(length);
  setun_status s = check_id(model, id, error);
  return s == SETUN_OK ? st_tokenizer_piece(model->tokenizer, id, true, text, length, error) : s;
}

// The handle of a decoder is the tokenizer's object itself.
static st_decoder *inner(setun_decoder *d) {
  return (st_decoder *)(void *)d;
}

setun_status setun_decoder_new(const setun_model *model, int flags, setun_decoder **decoder, setun_error *error) {
  st_decoder *d = NULL;
  ST_NEED(model);
  ST_NEED(decoder);
  if (flags & ~(SETUN_DECODE_SPECIAL | SETUN_DECODE_CONTINUES)) return fail_flags(flags, error);
  setun_status s =
      st_decoder_new(model->tokenizer, flags & SETUN_DECODE_SPECIAL, flags & SETUN_DECODE_CONTINUES, &d, error);
  if (s == SETUN_OK) *decoder = (setun_decoder *)(void *)d;
  return s;
}

void setun_decoder_free(setun_decoder *decoder) {
  st_decoder_free(inner(decoder));
}

setun_status setun_decoder_push(setun_decoder *decoder, setun_token id, const char **text, size_t *length,
                                setun_error *error) {
  ST_NEED(decoder);
  ST_NEED(text);
  ST_NEED(length);
  return st_decoder_push(inner(decoder), id, text, length, error);
}

setun_status setun_decoder_finish(setun_decoder *decoder, const char **text, size_t *length, setun_error *error) {
  ST_NEED(decoder);
  ST_NEED(text);
  ST_NEED(length);
  return st_decoder_finish(inner(decoder), text, length, error);
}

// Output that keeps the first `capacity` bytes of a text.
typedef struct detokenized {
  char *text;
  size_t capacity, length;
} detokenized;

static void add_text(detokenized *d, const char *text, size_t n) {
  size_t room = d->capacity > d->length ? d->capacity - d->length : 0;
  if (room && n) memcpy(d->text + d->length, text, n < room ? n : room);
  d->length += n;
}

setun_status setun_detokenize(const setun_model *model, const setun_token *ids, size_t n, int flags, char *text,
                              size_t capacity, size_t *length, setun_error *error) {
  detokenized all = {text, capacity, 0};
  setun_decoder *decoder = NULL;
  const char *piece = NULL;
  size_t bytes = 0;
  ST_NEED(model);
  ST_NEED_ARRAY(ids, n);
  ST_NEED_ARRAY(text, capacity);
  ST_NEED(length);
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < n && s == SETUN_OK; i++) s = check_id(model, ids[i], error); // before the text is read
  if (s == SETUN_OK) s = setun_decoder_new(model, flags, &decoder, error);
  for (size_t i = 0; i < n && s == SETUN_OK; i++) {
    s = setun_decoder_push(decoder, ids[i], &piece, &bytes, error);
    if (s == SETUN_OK) add_text(&all, piece, bytes);
  }
  if (s == SETUN_OK) s = setun_decoder_finish(decoder, &piece, &bytes, error);
  if (s == SETUN_OK) add_text(&all, piece, bytes);
  setun_decoder_free(decoder);
  if (s == SETUN_OK) *length = all.length;
  return s;
}
