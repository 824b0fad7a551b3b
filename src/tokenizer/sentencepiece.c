// A tokenizer from tokenizer.model, SentencePiece's ModelProto.
#include "tokenizer/internal.h"
setun_status st_tokenizer_from_sentencepiece(const void *bytes, size_t length, const char *name, st_tokenizer **t,
                                             setun_error *err) {
  (void)bytes;
  (void)length;
  (void)t;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: tokenizer.model is not read yet", name);
}
