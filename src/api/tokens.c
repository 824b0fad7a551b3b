// setun.h: text to tokens and back.
#include "api/api.h"

#include "base/float_modes.h"

#include <string.h>

// Text that already begins with BOS (a template's, with --special) gets no second one.
static bool wants_bos(const st_tokenizer *t, int flags, const st_token_list *list) {
  int32_t bos = st_tokenizer_bos(t);
  if (bos < 0 || (list->length && list->ids[0] == bos)) return false;
  return (flags & SETUN_TOKENIZE_BOS_ALWAYS) || ((flags & SETUN_TOKENIZE_BOS) && st_tokenizer_add_bos(t));
}

setun_status setun_tokenize(const setun_model *model, const char *text, size_t length, int flags, setun_token *ids,
                            size_t capacity, size_t *count, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  st_token_list list = {0};
  setun_status s = st_tokenizer_encode(model->tokenizer, text, length, flags & SETUN_TOKENIZE_SPECIAL, &list, error);
  if (s == SETUN_OK) {
    bool bos = wants_bos(model->tokenizer, flags, &list);
    if (bos && capacity) ids[0] = st_tokenizer_bos(model->tokenizer);
    size_t room = capacity > bos ? capacity - bos : 0, n = list.length < room ? list.length : room;
    if (n) memcpy(ids + bos, list.ids, n * sizeof *ids);
    *count = list.length + bos;
  }
  st_token_list_free(&list);
  return s;
}

uint64_t setun_tokenize_memory(size_t length) {
  return st_tokenizer_memory(length) + (uint64_t)length * sizeof(setun_token);
}

bool setun_token_is_end(const setun_model *model, setun_token id) {
  return st_tokenizer_is_end(model->tokenizer, id);
}

// A decoder is the tokenizer's own; the handle is that object.
static st_decoder *inner(setun_decoder *d) {
  return (st_decoder *)(void *)d;
}

setun_status setun_decoder_new(const setun_model *model, int flags, setun_decoder **decoder, setun_error *error) {
  st_decoder *d = NULL;
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
  return st_decoder_push(inner(decoder), id, text, length, error);
}

setun_status setun_decoder_finish(setun_decoder *decoder, const char **text, size_t *length, setun_error *error) {
  return st_decoder_finish(inner(decoder), text, length, error);
}
