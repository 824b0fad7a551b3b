// Fuzz target: a tokenizer's file, and a text through what it makes. The first byte says which kind of file the rest
// is; seeds: tests/tok/*.json and *.model with that byte in front. A GGUF file's arrays: the character map of a small
// Unigram vocabulary ("t5") is what is fuzzed.
#include "tokenizer/tokenizer.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static setun_status from_charsmap(const char *bytes, size_t n, st_tokenizer **t, setun_error *err) {
  static const st_text tokens[] = {{"<unk>", 5}, {"</s>", 4}, {"e", 1}, {"l", 1}, {"o", 1}, {"\xE2\x96\x81", 3}};
  static const float scores[] = {0, 0, -2, -3, -3, -1};
  static const int32_t types[] = {ST_TOKEN_UNKNOWN, ST_TOKEN_CONTROL, 1, 1, 1, 1};
  st_vocabulary v;
  st_vocabulary_init(&v);
  v.model = "t5", v.n = 6, v.tokens = tokens, v.scores = scores, v.types = types;
  v.charsmap = bytes, v.charsmap_length = n;
  v.add_space_prefix = v.remove_extra_whitespaces = 1;
  return st_tokenizer_from_vocabulary(&v, t, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char text[] = "Hello, w\xC3\xB6rld! 123 <s> \xE6\x97\xA5\xE6\x9C\xAC\n\n  \xF0\x9F\x98\x80 it's";
  static const char vocab[] = "{\"a\":0,\"b\":1,\"ab\":2,\"H\":3,\"e\":4,\"l\":5,\"o\":6}";
  if (!size) return 0;
  setun_error err;
  st_tokenizer *t = NULL;
  const char *bytes = (const char *)data + 1;
  switch (data[0] & 8 ? 4 : data[0] % 4) {
  case 0: st_tokenizer_from_json(bytes, size - 1, "fuzz", &t, &err); break;
  case 1: st_tokenizer_from_sentencepiece(bytes, size - 1, "fuzz", &t, &err); break;
  case 2: st_tokenizer_from_vocab_merges(vocab, strlen(vocab), bytes, size - 1, "gpt-2", &t, &err); break;
  case 4: from_charsmap(bytes, size - 1, &t, &err); break;
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
