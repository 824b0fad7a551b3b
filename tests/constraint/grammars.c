// Grammars and expressions for check_grammars.py: texts of random tokens, verdicts on given texts, and masks
// against each token tried by itself.
//
// usage: constraint_grammars VOCABULARY samples COUNT SEED GRAMMAR
//        constraint_grammars VOCABULARY masks COUNT SEED GRAMMAR
//        constraint_grammars VOCABULARY verdicts GRAMMAR < TEXTS
// The suffix of GRAMMAR tells its kind: .gbnf, .lark, or .regex. TEXTS are strings of JSON, one a line. The answers are
// lines: a string for a text, or "unfinished"; the number of masks, and of bits that differ; 1 or 0 for a text that is,
// or is not, in the language. A grammar that does not compile: status 1, and the message on standard error.
#define _POSIX_C_SOURCE 200809L
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/random.h"
#include "constraint/constraint.h"
#include "constraint/frontends.h"
#include "runtime/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROW = 40, STEPS = 400 }; // tokens after which a text ends where it may, and at most

typedef struct drive {
  st_tokenizer *tokenizer;
  st_token_trie *trie;
  st_constraint *constraint;
  uint32_t *bits;
  st_random random;
  setun_error err;
} drive;

static setun_status compile(drive *d, const char *path) {
  char *text;
  size_t n;
  st_grammar *g;
  const char *suffix = strrchr(path, '.');
  setun_status s = st_file_load(path, (size_t)1 << 24, &text, &n, &d->err);
  if (s) return s;
  if (suffix && !strcmp(suffix, ".regex"))
    s = st_grammar_from_expression(text, n, NULL, &g, &d->err);
  else if (suffix && !strcmp(suffix, ".lark"))
    s = st_grammar_from_lark(text, n, path, d->tokenizer, NULL, &g, &d->err);
  else
    s = st_grammar_from_gbnf(text, n, path, d->tokenizer, NULL, &g, &d->err);
  st_free(text);
  return s ? s : st_constraint_compile(g, d->trie, &d->constraint, &d->err);
}

static bool has(const drive *d, uint32_t i) {
  return d->bits[i / 32] >> i % 32 & 1;
}

// How much a token is wanted where a text is long: 2, it is closing characters; 1, it is one character.
static int closes(const drive *d, uint32_t token) {
  const char *text;
  size_t n;
  if (st_tokenizer_piece(d->tokenizer, (int32_t)token, true, &text, &n, NULL) || !n) return 0;
  return strspn(text, "]})\";\n.") == n ? 2 : n == 1;
}

// A token of the mask: an end token where one may come, at times; a closing one where the text is long.
static uint32_t pick(drive *d, int step) {
  uint32_t size = st_token_trie_size(d->trie), count = 0, token = 0;
  bool end = step >= GROW || st_random_u64(&d->random) % 8 == 0;
  for (uint32_t i = 0; i < size; i++) {
    if (has(d, i) && end && st_tokenizer_is_end(d->tokenizer, (int32_t)i)) return i;
    count += has(d, i);
  }
  for (int wanted = 2; step >= GROW && wanted; wanted--) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < size; i++) {
      if (has(d, i) && closes(d, i) == wanted && st_random_u64(&d->random) % ++found == 0) token = i;
    }
    if (found && st_random_u64(&d->random) % 4) return token;
    token = 0;
  }
  for (uint64_t left = st_random_u64(&d->random) % count; !has(d, token) || left--;) token++;
  return token;
}

// The bits of the mask that differ from what the matcher says of each token.
static uint32_t differing(const drive *d, st_matcher *m) {
  uint32_t size = st_token_trie_size(d->trie), wrong = 0;
  for (uint32_t i = 0; i < size; i++) wrong += has(d, i) != st_matcher_allows(m, (int32_t)i);
  return wrong;
}

// One text; with `compare`, at some places each token is tried.
static setun_status run(drive *d, bool compare, size_t *masks, uint32_t *wrong) {
  st_matcher *m = NULL;
  st_buffer text = {0};
  bool over = false;
  setun_status s = st_matcher_new(d->constraint, &m, &d->err);
  for (int step = 0; !s && !over && step < STEPS; step++) {
    const char *piece;
    size_t n;
    s = st_matcher_mask(m, d->bits, st_mask_words(st_token_trie_size(d->trie)), &d->err);
    if (s) break;
    if (compare && st_random_u64(&d->random) % 6 == 0) ++*masks, *wrong += differing(d, m);
    int32_t token = (int32_t)pick(d, step);
    s = st_matcher_accept(m, token, &d->err);
    over = st_tokenizer_is_end(d->tokenizer, token);
    if (!s && !over) s = st_tokenizer_piece(d->tokenizer, token, true, &piece, &n, &d->err);
    if (!s && !over) st_buffer_append(&text, piece, n);
  }
  if (!s && !compare && over) {
    st_json *root = st_json_new();
    st_buffer line = {0};
    *root = st_json_make_string(root, text.data ? text.data : "", text.length);
    st_json_append_exact(root, &line);
    puts(line.data);
    st_buffer_free(&line);
    st_json_free(root);
  } else if (!s && !compare) {
    puts("unfinished");
  }
  st_buffer_free(&text);
  st_matcher_free(m);
  return s;
}

static setun_status judge(drive *d) {
  char *line = NULL;
  size_t capacity = 0;
  ssize_t n;
  setun_status s = SETUN_OK;
  while (!s && (n = getline(&line, &capacity, stdin)) > 0) {
    st_json *text = NULL;
    st_matcher *m = NULL;
    s = st_json_parse_any(line, (size_t)n, "text", &text, &d->err);
    if (!s) s = st_matcher_new(d->constraint, &m, &d->err);
    if (!s) {
      bool fits = !st_matcher_accept_bytes(m, st_json_string(text), st_json_length(text), NULL);
      puts(fits && st_matcher_may_end(m) ? "1" : "0");
    }
    st_matcher_free(m);
    st_json_free(text);
  }
  free(line);
  return s;
}

int main(int argc, char **argv) {
  drive d = {0};
  st_directory *directory = NULL;
  size_t masks = 0;
  uint32_t wrong = 0;
  bool verdicts = argc == 4 && !strcmp(argv[2], "verdicts"), compare = argc == 6 && !strcmp(argv[2], "masks");
  if (!verdicts && !compare && (argc != 6 || strcmp(argv[2], "samples") != 0))
    return fprintf(stderr, "usage: constraint_grammars VOCABULARY samples|masks|verdicts ... GRAMMAR\n"), 2;
  setun_status s = st_directory_open(argv[1], NULL, &directory, &d.err);
  if (!s) s = st_vocabulary_load(directory, NULL, NULL, &d.tokenizer, &d.err);
  if (!s) s = st_token_trie_new(d.tokenizer, &d.trie, &d.err);
  if (!s) s = compile(&d, argv[argc - 1]);
  if (!s) d.bits = st_malloc(st_mask_words(st_token_trie_size(d.trie)), sizeof *d.bits);
  if (!s && verdicts) s = judge(&d);
  if (!s && !verdicts) st_random_seed(&d.random, strtoull(argv[4], NULL, 10));
  for (long i = verdicts ? 0 : atol(argv[3]); !s && i > 0; i--) s = run(&d, compare, &masks, &wrong);
  if (!s && compare) printf("%zu %u\n", masks, wrong);
  if (s) fprintf(stderr, "%s\n", d.err.message);
  st_free(d.bits);
  if (d.constraint) st_constraint_release(d.constraint);
  st_token_trie_free(d.trie);
  st_tokenizer_free(d.tokenizer);
  st_directory_free(directory);
  return s ? 1 : 0;
}
