// Fuzz target: a tokenizer's file, and a text through what it makes. The first byte says which kind of file the rest
// is; seeds: tests/tok/*.json and *.model with that byte in front.
#include "tokenizer/tokenizer.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char text[] = "Hello, w\xC3\xB6rld! 123 <s> \xE6\x97\xA5\xE6\x9C\xAC\n\n  \xF0\x9F\x98\x80 it's";
  static const char vocab[] = "{\"a\":0,\"b\":1,\"ab\":2,\"H\":3,\"e\":4,\"l\":5,\"o\":6}";
  if (!size) return 0;
  setun_error err;
  st_tokenizer *t = NULL;
  const char *bytes = (const char *)data + 1;
  switch (data[0] % 4) {
  case 0: st_tokenizer_from_json(bytes, size - 1, "fuzz", &t, &err); break;
  case 1: st_tokenizer_from_sentencepiece(bytes, size - 1, "fuzz", &t, &err); break;
  case 2: st_tokenizer_from_vocab_merges(vocab, strlen(vocab), bytes, size - 1, "gpt-2", &t, &err); break;
  default:
    if (!st_tokenizer_from_vocab_merges(vocab, strlen(vocab), "a b\n", 4, "llama-bpe", &t, &err)) {
      st_tokenizer_apply_config(t, bytes, size - 1, "fuzz", &err);
    }
  }
  if (!t) return 0;
  st_token_list ids = {0};
  st_decoder *d = NULL;
  const char *out;
  size_t n;
  if (!st_tokenizer_encode(t, text, strlen(text), data[0] & 4, &ids, &err) &&
      !st_decoder_new(t, true, false, &d, &err)) {
    for (size_t i = 0; i < ids.length; i++) st_decoder_push(d, ids.ids[i], &out, &n, &err);
    st_decoder_finish(d, &out, &n, &err);
  }
  st_decoder_free(d);
  st_token_list_free(&ids);
  st_tokenizer_free(t);
  return 0;
}
