// Fuzz target: any text as an expression, GBNF or Lark; what compiles is followed for some tokens. The first byte
// chooses the kind, the second one begins the choice of tokens.
#include "constraint/constraint.h"
#include "base/memory.h"
#include "base/random.h"
#include "constraint/frontends.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static st_tokenizer *tokenizer;
static st_token_trie *trie;

static void open_vocabulary(void) {
  static char text[1 << 20];
  FILE *f = fopen(SETUN_SOURCE_DIR "/models/setun-tales-7m/tokenizer.json", "rb");
  size_t n = f ? fread(text, 1, sizeof text, f) : 0;
  setun_error err;
  if (!f || st_tokenizer_from_json(text, n, "tokenizer.json", &tokenizer, &err) ||
      st_token_trie_new(tokenizer, &trie, &err)) {
    abort();
  }
  fclose(f);
}

static const st_constraint_limits limits[] = {{16 << 20, 5000, 5000, 200, 200000, 2000}};

static setun_status read_grammar(uint8_t kind, const char *text, size_t n, st_grammar **g, setun_error *err) {
  if (kind % 4 == 0) return st_grammar_from_gbnf(text, n, "fuzz", tokenizer, limits, g, err);
  if (kind % 4 == 1) return st_grammar_from_lark(text, n, "fuzz", tokenizer, limits, g, err);
  if (kind % 4 == 2) return st_grammar_from_expression(text, n, limits, g, err);
  setun_status status = st_grammar_new(limits, g, err); // a string of JSON with a pattern, searched for
  st_term term;
  if (status) return status;
  status = st_expression_term(st_grammar_terms(*g), text, n, true, ST_JSON, &term, err);
  if (status) return st_grammar_free(*g), status;
  st_grammar_set_root(*g, st_node_term(*g, st_term_quoted(st_grammar_terms(*g), term)));
  return SETUN_OK;
}

// Some tokens from the masks; what a mask allows can be accepted, and what it does not cannot.
static void follow(st_constraint *c, uint64_t seed) {
  uint32_t n = st_token_trie_size(trie), bits[4096];
  st_random r;
  st_matcher *m;
  setun_error err;
  st_random_seed(&r, seed);
  if (n > 4096 * 32 || st_matcher_new(c, &m, &err)) abort();
  for (int step = 0; step < 6 && !st_matcher_mask(m, bits, st_mask_words(n), &err); step++) {
    int32_t chosen = -1;
    for (int i = 0; i < 64; i++) {
      int32_t token = (int32_t)(st_random_u64(&r) % n);
      bool allowed = bits[token / 32] >> token % 32 & 1;
      setun_error own = {0};
      setun_status status = st_matcher_accept(m, token, &own);
      if (status == SETUN_ERROR_LIMIT) break;
      if (allowed != !status) abort();
      if (allowed) chosen = token;
      if (!status && st_matcher_rollback(m, 1, &err)) abort();
    }
    for (uint32_t i = 0; chosen < 0 && i < n; i++) {
      if (bits[i / 32] >> i % 32 & 1) chosen = (int32_t)i;
    }
    if (chosen < 0 || st_matcher_accept(m, chosen, &err) || st_tokenizer_is_end(tokenizer, chosen)) break;
    st_token_list ids = {0};
    if (!st_matcher_forced_tokens(m, &ids, &err)) {
      for (size_t i = 0; i < ids.length; i++) {
        setun_status status = st_matcher_accept(m, ids.ids[i], &err);
        if (status == SETUN_ERROR_LIMIT) break;
        if (status) abort();
      }
    }
    st_token_list_free(&ids);
  }
  st_matcher_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!tokenizer) open_vocabulary();
  if (size < 2) return 0;
  setun_error err = {0};
  st_grammar *g = NULL;
  st_constraint *c = NULL;
  if (read_grammar(data[0], (const char *)data + 2, size - 2, &g, &err)) {
    if (!err.message[0] || strchr(err.message, '\n')) abort();
    return 0;
  }
  if (!st_constraint_compile(g, trie, &c, &err)) {
    follow(c, data[1]);
    st_constraint_release(c);
  } else if (!err.message[0]) {
    abort();
  }
  return 0;
}
