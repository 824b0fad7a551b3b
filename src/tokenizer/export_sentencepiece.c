// From a tokenizer to the bytes of a tokenizer.model: SentencePiece's ModelProto (sentencepiece_model.proto), whose
// fields sentencepiece.c reads.
#include "tokenizer/export.h"

#include "tokenizer/internal.h"

#include <string.h>

enum { VARINT = 0, BYTES = 2, FIXED32 = 5, MODEL_BPE = 2 };

// ---- protocol buffers: false when out of memory ----

static bool put_varint(st_buffer *out, uint64_t value) {
  unsigned char bytes[10];
  size_t n = 0;
  do {
    bytes[n] = (unsigned char)((value & 0x7F) | (value > 0x7F ? 0x80 : 0));
    value >>= 7;
    n++;
  } while (value);
  return st_buffer_append(out, bytes, n);
}

// A negative integer is sign-extended to 64 bits.
static bool put_integer(st_buffer *out, uint32_t field, int64_t value) {
  return put_varint(out, field << 3 | VARINT) && put_varint(out, (uint64_t)value);
}

static bool put_bytes(st_buffer *out, uint32_t field, const char *data, size_t length) {
  return put_varint(out, field << 3 | BYTES) && put_varint(out, length) && st_buffer_append(out, data, length);
}

static bool put_float(st_buffer *out, uint32_t field, float value) {
  unsigned char bytes[4];
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  for (int i = 0; i < 4; i++) bytes[i] = (unsigned char)(bits >> (8 * i));
  return put_varint(out, field << 3 | FIXED32) && st_buffer_append(out, bytes, sizeof bytes);
}

// Appends a message and empties it.
static bool put_message(st_buffer *out, uint32_t field, st_buffer *message) {
  bool ok = put_bytes(out, field, message->data ? message->data : "", message->length);
  message->length = 0;
  return ok;
}

// ---- the model ----

// User-defined tokens are found in the text as it is in a GGUF file, and in the normalized one here, whose spaces are
// marks.
static bool put_text(st_buffer *out, st_buffer *scratch, st_text text, bool marks) {
  for (size_t i = 0; i < text.length; i++) {
    bool ok = marks && text.data[i] == ' ' ? st_buffer_text(scratch, ST_SPACE_MARK)
                                           : st_buffer_append(scratch, text.data + i, 1);
    if (!ok) return false;
  }
  return put_message(out, 1, scratch);
}

static bool put_piece(st_buffer *out, st_buffer *message, st_buffer *scratch, st_text text, float score, int32_t type) {
  bool ok = put_text(message, scratch, text, type == ST_TOKEN_USER_DEFINED) && put_float(message, 2, score) &&
            (type == ST_TOKEN_NORMAL || put_integer(message, 3, type));
  return ok && put_message(out, 1, message);
}

// The id of a special token and, where there is one, its text.
static bool put_special(st_buffer *out, const st_tokenizer *t, uint32_t id_field, uint32_t text_field, int32_t id) {
  if (!put_integer(out, id_field, id)) return false;
  return id < 0 || put_bytes(out, text_field, t->texts[id].data, t->texts[id].length);
}

static bool put_trainer(st_buffer *out, st_buffer *message, const st_tokenizer *t, size_t n) {
  return put_integer(message, 3, MODEL_BPE) && put_integer(message, 4, (int64_t)n) &&
         put_integer(message, 35, t->byte_fallback) && put_special(message, t, 40, 45, t->unk) &&
         put_special(message, t, 41, 46, t->bos) && put_special(message, t, 42, 47, t->eos) &&
         put_integer(message, 43, -1) && put_message(out, 2, message);
}

static bool put_normalizer(st_buffer *out, st_buffer *message, bool dummy_prefix) {
  return put_bytes(message, 1, "identity", strlen("identity")) && put_integer(message, 3, dummy_prefix) &&
         put_integer(message, 4, false) && put_integer(message, 5, true) && put_message(out, 3, message);
}

bool st_tokenizer_has_scores(const st_tokenizer *t) {
  return t->model == ST_MODEL_SCORES;
}

setun_status st_tokenizer_export_sentencepiece(const st_tokenizer *t, st_buffer *out, setun_error *err) {
  st_vocabulary_export e = {0};
  st_buffer message = {0}, scratch = {0};
  if (!st_tokenizer_has_scores(t)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "the tokenizer: tokenizer.model holds pieces with scores, found merges");
  }
  if (t->unk < 0) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "the tokenizer: tokenizer.model needs an unknown token, and there is none; convert to GGUF instead");
  }
  setun_status s = st_tokenizer_export(t, t->size, &e, err);
  if (s != SETUN_OK) return s;
  const st_vocabulary *v = &e.vocabulary;
  bool ok = true;
  for (size_t i = 0; i < v->n && ok; i++) { // some GGUF files have the unknown token among the control tokens
    int32_t type = i == (size_t)t->unk ? ST_TOKEN_UNKNOWN : v->types[i];
    ok = put_piece(out, &message, &scratch, v->tokens[i], v->scores[i], type);
  }
  ok = ok && put_trainer(out, &message, t, v->n) && put_normalizer(out, &message, v->add_space_prefix != 0);
  st_buffer_free(&message);
  st_buffer_free(&scratch);
  st_vocabulary_export_free(&e);
  return ok ? SETUN_OK : st_fail_memory(err, "tokenizer.model");
}
