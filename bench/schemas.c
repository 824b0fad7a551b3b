// Judges and measures JSON schemas as constraints.
//
// usage: bench_schemas TOKENIZER check|masks < LINES
//        bench_schemas TOKENIZER sample SEED COUNT < LINES
//        bench_schemas TOKENIZER encode < LINES
//        bench_schemas TOKENIZER vocabulary
//
// TOKENIZER is a GGUF file, a model's directory or tokenizer.json. A line is a schema and, after tabs, texts; each
// gives one line of output:
//
//   check   "ok VERDICTS": one digit per text, 1 if it is a value of the schema; or "no STATUS MESSAGE"
//   masks   the same, then microseconds: of the compilation, and of the mask before each token of the texts that fit
//   sample  "ok" and, after tabs, COUNT texts of random tokens that the masks allow; a text that has not ended in time
//           ends with the character 0x1A; one that an error interrupts, and with it the line, ends with 0x18 and
//           "no STATUS MESSAGE"
//   encode  the tokens of each text, after tabs
//   vocabulary  one line per token: "text", "end" or "control", and its bytes in hexadecimal
//
// Times are those of the processor.
#define _POSIX_C_SOURCE 200809L
#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "constraint/constraint.h"
#include "constraint/schema.h"
#include "runtime/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SPACE_MOST = 8, TOKENS_BEFORE_ENDING = 60, TOKENS_MOST = 2000 };

typedef struct {
  st_tokenizer *tokenizer;
  st_token_trie *trie;
  uint32_t *mask;
  size_t n_words;
  bool time_masks;
  long samples;
  st_random random;
} session;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static setun_status load(const char *path, st_tokenizer **t, setun_error *err) {
  size_t n = strlen(path);
  if (n > 5 && !strcmp(path + n - 5, ".json")) {
    char *text;
    size_t length;
    setun_status s = st_file_load(path, (size_t)1 << 30, &text, &length, err);
    if (!s) s = st_tokenizer_from_json(text, length, path, t, err);
    st_free(text);
    return s;
  }
  st_directory *d = NULL;
  setun_status s = st_directory_open(path, NULL, &d, err);
  if (!s) s = st_vocabulary_load(d, NULL, NULL, t, err);
  st_directory_free(d);
  return s;
}

static setun_status compile(session *x, const char *schema, st_constraint **out, setun_error *err) {
  st_grammar *g = NULL;
  setun_status s = st_grammar_from_schema(schema, strlen(schema), NULL, NULL, &g, err);
  if (s) return s;
  if (!x->samples)
    st_grammar_set_space(g, st_term_json_space(st_grammar_terms(g), SPACE_MOST),
                         st_term_json_space(st_grammar_terms(g), SPACE_MOST));
  return st_constraint_compile(g, x->trie, out, err);
}

// ---- texts ----

static char judge(st_matcher *m, const char *text) {
  setun_error err = {0};
  st_matcher_reset(m);
  setun_status s = st_matcher_accept_bytes(m, text, strlen(text), &err);
  if (s && s != SETUN_ERROR_ARGUMENT) fprintf(stderr, "%s\n", err.message);
  return !s && st_matcher_may_end(m) ? '1' : s && s != SETUN_ERROR_ARGUMENT ? 'E' : '0';
}

// The time of the mask before each token of a text that fits; false: a token that a mask forbids.
static bool time_masks(session *x, st_matcher *m, const char *text) {
  setun_error err = {0};
  st_token_list ids = {0};
  bool fine = !st_tokenizer_encode(x->tokenizer, text, strlen(text), false, &ids, &err);
  st_matcher_reset(m);
  for (size_t i = 0; fine && i < ids.length; i++) {
    double start = now();
    fine = !st_matcher_mask(m, x->mask, x->n_words, &err);
    printf(" %.1f", now() - start);
    fine = fine && (x->mask[ids.ids[i] / 32] >> ids.ids[i] % 32 & 1) && !st_matcher_accept(m, ids.ids[i], &err);
  }
  st_token_list_free(&ids);
  return fine;
}

static setun_status check(session *x, char *texts, const char *schema, setun_error *err) {
  st_constraint *c = NULL;
  st_matcher *m = NULL;
  double start = now();
  setun_status s = compile(x, schema, &c, err);
  double took = now() - start;
  if (!s) s = st_matcher_new(c, &m, err);
  char *verdicts = st_malloc(strlen(texts ? texts : "") + 2, 1);
  size_t n = 0;
  char *save = NULL;
  for (char *at = texts ? strtok_r(texts, "	", &save) : NULL; at && !s && verdicts;
       at = strtok_r(NULL, "	", &save)) {
    verdicts[n++] = judge(m, at);
  }
  if (!s) printf("ok %.*s", (int)n, verdicts);
  if (!s && x->time_masks) printf(" %.1f", took);
  st_free(verdicts);
  st_matcher_free(m);
  st_constraint_release(c);
  return s;
}

static setun_status measure(session *x, char *texts, const char *schema, setun_error *err) {
  char *copy = st_strdup(texts ? texts : "");
  setun_status s = copy ? check(x, texts, schema, err) : st_fail_memory(err, "texts");
  st_constraint *c = NULL;
  st_matcher *m = NULL;
  if (!s) s = compile(x, schema, &c, err);
  if (!s) s = st_matcher_new(c, &m, err);
  char *save = NULL;
  for (char *at = copy ? strtok_r(copy, "	", &save) : NULL; at && !s; at = strtok_r(NULL, "	", &save)) {
    if (judge(m, at) == '1' && !time_masks(x, m, at)) printf(" forbidden");
  }
  st_free(copy);
  st_matcher_free(m);
  st_constraint_release(c);
  return s;
}

// ---- samples ----

static bool may_come(const session *x, uint32_t id) {
  return x->mask[id / 32] >> id % 32 & 1;
}

// A token that the mask allows, at random; when the text is long, one that ends something, if there is any.
static int32_t choose(session *x, bool ending) {
  uint32_t n = st_tokenizer_size(x->tokenizer), count = 0, chosen = 0;
  for (int pass = ending ? 0 : 1; pass < 2 && !count; pass++) {
    for (uint32_t id = 0; id < n; id++) {
      if (!may_come(x, id)) continue;
      const char *bytes = "";
      size_t length = 0;
      st_tokenizer_piece(x->tokenizer, (int32_t)id, false, &bytes, &length, NULL);
      bool ends = !length || (length == 1 && strchr("\"}]", bytes[0]));
      if (pass == 0 && !ends) continue;
      if (st_random_u64(&x->random) % ++count == 0) chosen = id;
    }
  }
  return (int32_t)chosen;
}

static setun_status sample(session *x, st_matcher *m, setun_error *err) {
  st_matcher_reset(m);
  putchar('\t');
  for (int i = 0; i < TOKENS_MOST; i++) {
    setun_status s = st_matcher_mask(m, x->mask, x->n_words, err);
    if (s) return s;
    int32_t id = choose(x, i >= TOKENS_BEFORE_ENDING);
    if (st_tokenizer_is_end(x->tokenizer, id)) return SETUN_OK;
    const char *bytes = "";
    size_t length = 0;
    st_tokenizer_piece(x->tokenizer, id, false, &bytes, &length, NULL);
    fwrite(bytes, 1, length, stdout);
    s = st_matcher_accept(m, id, err);
    if (s) return s;
    if (st_matcher_must_end(m)) return SETUN_OK;
  }
  putchar('\x1A');
  return SETUN_OK;
}

static setun_status samples(session *x, const char *schema, setun_error *err) {
  st_constraint *c = NULL;
  st_matcher *m = NULL;
  setun_status s = compile(x, schema, &c, err);
  if (!s) s = st_matcher_new(c, &m, err);
  if (!s) printf("ok");
  for (long i = 0; !s && i < x->samples; i++) s = sample(x, m, err);
  if (m && s) putchar('\x18');
  st_matcher_free(m);
  st_constraint_release(c);
  return s;
}

// ---- for other engines ----

static setun_status encode(session *x, char *texts, setun_error *err) {
  char *save = NULL;
  setun_status s = SETUN_OK;
  for (char *at = texts ? strtok_r(texts, "\t", &save) : NULL; at && !s; at = strtok_r(NULL, "\t", &save)) {
    st_token_list ids = {0};
    s = st_tokenizer_encode(x->tokenizer, at, strlen(at), false, &ids, err);
    for (size_t i = 0; i < ids.length; i++) printf("%s%d", i ? " " : at == texts ? "" : "\t", (int)ids.ids[i]);
    st_token_list_free(&ids);
  }
  return s;
}

static void list_vocabulary(const session *x) {
  for (uint32_t id = 0; id < st_token_trie_size(x->trie); id++) {
    const char *bytes = "";
    size_t n = 0;
    st_tokenizer_piece(x->tokenizer, (int32_t)id, false, &bytes, &n, NULL);
    printf("%s ", st_tokenizer_is_end(x->tokenizer, (int32_t)id) ? "end" : n ? "text" : "control");
    for (size_t i = 0; i < n; i++) printf("%02x", (unsigned char)bytes[i]);
    printf("\n");
  }
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: bench_schemas TOKENIZER check|masks|sample|encode|vocabulary [SEED COUNT] < LINES\n");
    return 2;
  }
  setun_error err = {0};
  session x = {.time_masks = !strcmp(argv[2], "masks")};
  if (!strcmp(argv[2], "sample")) {
    st_random_seed(&x.random, strtoull(argc > 3 ? argv[3] : "1", NULL, 10));
    x.samples = strtol(argc > 4 ? argv[4] : "1", NULL, 10);
  }
  if (load(argv[1], &x.tokenizer, &err) || st_token_trie_new(x.tokenizer, &x.trie, &err)) {
    return fprintf(stderr, "%s\n", err.message), 1;
  }
  x.n_words = st_mask_words(st_token_trie_size(x.trie));
  x.mask = st_calloc(x.n_words, sizeof *x.mask);
  bool encodes = !strcmp(argv[2], "encode");
  if (!strcmp(argv[2], "vocabulary")) list_vocabulary(&x);
  char *line = NULL;
  size_t capacity = 0;
  for (ssize_t n; x.mask && (n = getline(&line, &capacity, stdin)) > 0;) {
    if (line[n - 1] == '\n') line[n - 1] = '\0';
    char *texts = strchr(line, '\t');
    if (texts) *texts++ = '\0';
    setun_status s = encodes        ? encode(&x, texts, &err)
                     : x.samples    ? samples(&x, line, &err)
                     : x.time_masks ? measure(&x, texts, line, &err)
                                    : check(&x, texts, line, &err);
    if (s) printf("no %d %s", (int)s, err.message);
    printf("\n");
    fflush(stdout);
  }
  free(line);
  st_free(x.mask);
  st_token_trie_free(x.trie);
  st_tokenizer_free(x.tokenizer);
  return 0;
}
