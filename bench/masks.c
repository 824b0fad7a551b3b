// Measures constraints: the time to compile a grammar, and to compute a mask.
//
// usage: mask_speed VOCABULARY TOKENS GRAMMAR... VOCABULARY is a GGUF file or a model's directory; the suffix of a
// GRAMMAR tells its kind: .gbnf, .lark, or .regex. For each, TOKENS masks are computed along texts whose tokens are
// drawn from the masks. Prints a line for each: compile time, then mean, p99.9 and maximum of the masks' times. Times
// are those of the processor, of one thread.
#define _POSIX_C_SOURCE 200809L
#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "constraint/constraint.h"
#include "constraint/frontends.h"
#include "runtime/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RUN = 100 }; // tokens of a text at most

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static setun_status read_grammar(const char *path, const st_tokenizer *tokenizer, st_grammar **g, setun_error *err) {
  char *text;
  size_t n;
  setun_status status = st_file_load(path, (size_t)1 << 24, &text, &n, err);
  const char *end = strrchr(path, '.');
  if (status) return status;
  while (n && end && !strcmp(end, ".regex") && text[n - 1] == '\n') n--;
  if (end && !strcmp(end, ".regex"))
    status = st_grammar_from_expression(text, n, NULL, g, err);
  else if (end && !strcmp(end, ".lark"))
    status = st_grammar_from_lark(text, n, path, tokenizer, NULL, g, err);
  else
    status = st_grammar_from_gbnf(text, n, path, tokenizer, NULL, g, err);
  st_free(text);
  return status;
}

static int32_t pick(const uint32_t *bits, uint32_t size, st_random *r) {
  uint32_t count = 0, token = 0;
  for (size_t i = 0; i < st_mask_words(size); i++) count += (uint32_t)__builtin_popcount(bits[i]);
  for (uint64_t left = st_random_u64(r) % count;; token++) {
    if (bits[token / 32] >> token % 32 & 1 && !left--) return (int32_t)token;
  }
}

// One text; the masks' times are added to `times`.
static setun_status run(st_constraint *c, const st_tokenizer *tokenizer, st_random *r, uint32_t *bits, double *times,
                        int *n, int most, setun_error *err) {
  uint32_t size = st_tokenizer_size(tokenizer);
  st_matcher *m = NULL;
  setun_status status = st_matcher_new(c, &m, err);
  for (int i = 0; !status && i < RUN && *n < most; i++) {
    double start = now();
    status = st_matcher_mask(m, bits, st_mask_words(size), err);
    times[(*n)++] = now() - start;
    if (status) break;
    int32_t token = pick(bits, size, r);
    status = st_matcher_accept(m, token, err);
    if (st_tokenizer_is_end(tokenizer, token)) break;
  }
  st_matcher_free(m);
  return status;
}

static setun_status measure(const char *path, const st_tokenizer *tokenizer, const st_token_trie *trie, int most,
                            setun_error *err) {
  st_grammar *g;
  st_constraint *c;
  double start = now();
  setun_status status = read_grammar(path, tokenizer, &g, err);
  if (!status) status = st_constraint_compile(g, trie, &c, err);
  if (status) return status;
  double compiled = now() - start, sum = 0;
  double *times = st_malloc((size_t)most, sizeof *times);
  uint32_t *bits = st_malloc(st_mask_words(st_token_trie_size(trie)), sizeof *bits);
  st_random r;
  st_random_seed(&r, 1);
  int n = 0;
  if (!times || !bits) status = st_fail_memory(err, "measurements");
  while (!status && n < most) status = run(c, tokenizer, &r, bits, times, &n, most, err);
  if (!status) {
    for (int i = 0; i < n; i++) sum += times[i];
    qsort(times, (size_t)n, sizeof *times, compare);
    printf("%s: compile %.2f ms, %d masks: mean %.1f us, p99.9 %.0f us, max %.0f us; %zu KiB\n", path, 1e3 * compiled,
           n, 1e6 * sum / n, 1e6 * times[n - 1 - n / 1000], 1e6 * times[n - 1], st_constraint_bytes(c) >> 10);
  }
  st_free(times), st_free(bits);
  st_constraint_release(c);
  return status;
}

int main(int argc, char **argv) {
  setun_error err = {0};
  st_directory *d = NULL;
  st_tokenizer *tokenizer = NULL;
  st_token_trie *trie = NULL;
  int most = argc > 3 ? atoi(argv[2]) : 0;
  if (most < 1) return fprintf(stderr, "usage: mask_speed VOCABULARY TOKENS GRAMMAR...\n"), 2;
  setun_status status = st_directory_open(argv[1], NULL, &d, &err);
  if (!status) status = st_vocabulary_load(d, NULL, NULL, &tokenizer, &err);
  double start = now();
  if (!status) status = st_token_trie_new(tokenizer, &trie, &err);
  if (!status) printf("trie of %u tokens: %.0f ms\n", st_token_trie_size(trie), 1e3 * (now() - start));
  for (int i = 3; i < argc && !status; i++) status = measure(argv[i], tokenizer, trie, most, &err);
  if (status) fprintf(stderr, "%s\n", err.message);
  st_token_trie_free(trie);
  st_tokenizer_free(tokenizer);
  st_directory_free(d);
  return status ? 1 : 0;
}
