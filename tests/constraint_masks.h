// Masks against each token tried by itself, for any vocabulary.
#ifndef SETUN_TESTS_CONSTRAINT_MASKS_H
#define SETUN_TESTS_CONSTRAINT_MASKS_H

#include "base/random.h"
#include "constraint/constraint.h"
#include "constraint/frontends.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static inline st_constraint *masks_compile(st_grammar *g, const st_token_trie *trie) {
  setun_error err;
  st_constraint *c = NULL;
  if (st_constraint_compile(g, trie, &c, &err)) fail_msg("%s", err.message);
  return c;
}
static inline st_constraint *masks_gbnf(const char *text, const st_tokenizer *tokenizer, const st_token_trie *trie) {
  setun_error err;
  st_grammar *g;
  if (st_grammar_from_gbnf(text, strlen(text), "test", tokenizer, NULL, &g, &err)) fail_msg("%s", err.message);
  return masks_compile(g, trie);
}
static inline st_constraint *masks_lark(const char *text, const st_tokenizer *tokenizer, const st_token_trie *trie) {
  setun_error err;
  st_grammar *g;
  if (st_grammar_from_lark(text, strlen(text), "test", tokenizer, NULL, &g, &err)) fail_msg("%s", err.message);
  return masks_compile(g, trie);
}
static inline st_constraint *masks_expression(const char *text, const st_token_trie *trie) {
  setun_error err;
  st_grammar *g;
  if (st_grammar_from_expression(text, strlen(text), NULL, &g, &err)) fail_msg("%s", err.message);
  return masks_compile(g, trie);
}

static bool has(const uint32_t *bits, uint32_t i) {
  return bits[i / 32] >> i % 32 & 1;
}

// Texts of random tokens from the masks; at some places each token of the vocabulary is tried by itself.
static void check_masks(st_constraint *c, const st_tokenizer *tokenizer, const st_token_trie *trie, int runs, int steps,
                        int every) {
  setun_error err;
  uint32_t size = st_token_trie_size(trie);
  size_t words = st_mask_words(size);
  uint32_t *bits = malloc(words * sizeof *bits);
  st_random r;
  st_random_seed(&r, 7);
  for (int run = 0; run < runs; run++) {
    st_matcher *m;
    assert_int_equal(st_matcher_new(c, &m, &err), SETUN_OK);
    for (int step = 0; step < steps; step++) {
      if (st_matcher_mask(m, bits, words, &err)) fail_msg("%s", err.message);
      uint32_t count = 0, token = 0;
      for (uint32_t i = 0; i < size; i++) {
        count += has(bits, i);
        if ((step + run) % every == 0) assert_int_equal(has(bits, i), st_matcher_allows(m, (int32_t)i));
      }
      for (uint64_t pick = st_random_u64(&r) % count; !has(bits, token) || pick--;) token++;
      assert_int_equal(st_matcher_accept(m, (int32_t)token, &err), SETUN_OK);
      if (st_tokenizer_is_end(tokenizer, (int32_t)token)) break;
    }
    st_matcher_free(m);
  }
  free(bits);
  st_constraint_release(c);
}

static const char ARITHMETIC[] = "root ::= expr \"=\"\n"
                                 "expr ::= expr [-+] term | term\n" // left-recursive
                                 "term ::= term [*/] factor | factor\n"
                                 "factor ::= [0-9]+ | \"(\" ws expr ws \")\"\n"
                                 "ws ::= [ \\n]{0,2}\n";
static const char LIST[] = "# items\nroot ::= (\"- \" item)+\nitem ::= [^\\n\\r\\x0b]+ \"\\n\"\n";
static const char C_SUBSET[] = "root ::= declaration*\n"
                               "declaration ::= type ident \"(\" parameter? \")\" \"{\" statement* \"}\"\n"
                               "type ::= (\"int\" | \"float\" | \"char\") ws1\n"
                               "ident ::= [a-zA-Z_] [a-zA-Z_0-9]*\n"
                               "parameter ::= type ident | parameter \", \" type ident\n"
                               "statement ::= type ident \" = \" expression \";\" | ident \" = \" expression \";\" | "
                               "\"return \" expression \";\" |\n"
                               "  \"while (\" expression \") {\" statement* \"}\"\n"
                               "expression ::= expression (\" + \" | \" < \" | \" * \") expression | ident | [0-9]+ | "
                               "\"(\" expression \")\" | call\n"
                               "call ::= ident \"(\" (expression (\", \" expression)*)? \")\"\n"
                               "ws1 ::= \" \"+\n";
static const char JSON[] =
    "root ::= object\nvalue ::= object | array | string | number | \"true\" | \"null\"\n"
    "object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? \"}\" ws\n"
    "array ::= \"[\" ws (value (\",\" ws value)*)? \"]\" ws\n"
    "string ::= \"\\\"\" ([^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}))* \"\\\"\" ws\n"
    "number ::= \"-\"? ([0-9] | [1-9] [0-9]{0,15}) (\".\" [0-9]+)? ws\nws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n";

// Grammars of several kinds; `rarely`: how many times fewer places are tried.
static void check_all_masks(const st_tokenizer *tokenizer, const st_token_trie *trie, int rarely) {
  check_masks(masks_gbnf(ARITHMETIC, tokenizer, trie), tokenizer, trie, 6, 40, 5 * rarely);
  check_masks(masks_gbnf(LIST, tokenizer, trie), tokenizer, trie, 3, 30, 5 * rarely);
  check_masks(masks_gbnf(C_SUBSET, tokenizer, trie), tokenizer, trie, 6, 60, 6 * rarely);
  check_masks(masks_gbnf(JSON, tokenizer, trie), tokenizer, trie, 6, 40, 5 * rarely);
  check_masks(masks_gbnf("root ::= root root | \"a\" | [b-z]* \"!\"\n", tokenizer, trie), tokenizer, trie, 2, 12,
              3 * rarely);
  check_masks(masks_gbnf("root ::= x\nx ::= y \"a\" | \"b\"\ny ::= ws x \"c\" | z\nz ::= y? [d-f]\nws ::= \" \"*\n",
                         tokenizer, trie),
              tokenizer, trie, 3, 20, 4 * rarely);
  check_masks(masks_expression("\\S+@\\S+\\.(com|org)|[^a-z]{3,9}|(the|a) .{0,40}", trie), tokenizer, trie, 6, 20,
              4 * rarely);
  check_masks(
      masks_lark("start: greeting+\ngreeting: \"hi\" NAME \"!\"\nNAME: /[A-Z][a-z]*/ & ~\"Bob\"\n%ignore / +/\n",
                 tokenizer, trie),
      tokenizer, trie, 4, 30, 4 * rarely);
}

#endif
