// Fuzz target: any text as a JSON schema, compiled to a constraint and asked for what may come first.
#include "constraint/schema.h"
#include "base/file.h"
#include "base/memory.h"
#include "constraint/constraint.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const st_token_trie *trie_of_tales(void) {
  static st_token_trie *trie;
  static const char path[] = SETUN_SOURCE_DIR "/models/setun-tales-7m/tokenizer.json";
  st_tokenizer *tokenizer = NULL;
  char *text;
  size_t length;
  if (trie) return trie;
  if (st_file_load(path, 1 << 26, &text, &length, NULL) ||
      st_tokenizer_from_json(text, length, path, &tokenizer, NULL) || st_token_trie_new(tokenizer, &trie, NULL)) {
    abort();
  }
  st_free(text);
  return trie;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const st_token_trie *trie = trie_of_tales();
  st_grammar *g;
  st_constraint *c = NULL;
  st_matcher *m = NULL;
  setun_error err = {0};
  const st_constraint_limits limits = {.max_steps = 2000000};
  if (size > 1 << 14 || st_grammar_from_schema((const char *)data, size, NULL, &limits, &g, &err)) return 0;
  size_t n = st_mask_words(st_token_trie_size(trie));
  uint32_t *mask = st_calloc(n, sizeof *mask);
  if (!mask) abort();
  if (!st_constraint_compile(g, trie, &c, &err) && !st_matcher_new(c, &m, &err)) {
    setun_status status = st_matcher_mask(m, mask, n, &err);
    if (status && status != SETUN_ERROR_LIMIT && status != SETUN_ERROR_STATE) abort();
  }
  st_free(mask);
  st_matcher_free(m);
  st_constraint_release(c);
  return 0;
}
