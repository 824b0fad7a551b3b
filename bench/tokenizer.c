// Measures a tokenizer: the time to load it, and its speed in encoding texts on one thread.
//
// usage: tokenizer_speed TOKENIZER [RUNS [FILE ...]]
// TOKENIZER is a GGUF file, a model's directory, tokenizer.json or tokenizer.model. Prints one line for loading
// (seconds, tokens) and one for each file (MB/s, tokens); the best of RUNS (5) counts. Times are those of
// the processor, which other programs disturb less.
#define _POSIX_C_SOURCE 200809L
#include "tokenizer/tokenizer.h"
#include "base/file.h"
#include "base/memory.h"
#include "runtime/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && !strcmp(text + n - m, end);
}

static setun_status load_file(const char *path, st_tokenizer **t, setun_error *err) {
  char *text;
  size_t length;
  setun_status s = st_file_load(path, (size_t)1 << 30, &text, &length, err);
  if (s) return s;
  s = ends_with(path, ".model") ? st_tokenizer_from_sentencepiece(text, length, path, t, err)
                                : st_tokenizer_from_json(text, length, path, t, err);
  st_free(text);
  return s;
}

static setun_status load(const char *path, st_tokenizer **t, setun_error *err) {
  if (ends_with(path, ".json") || ends_with(path, ".model")) return load_file(path, t, err);
  st_directory *d = NULL;
  setun_status s = st_directory_open(path, NULL, &d, err);
  if (!s) s = st_vocabulary_load(d, NULL, NULL, t, err);
  st_directory_free(d);
  return s;
}

static setun_status measure_load(const char *path, int runs, st_tokenizer **t, setun_error *err) {
  double best = 0;
  for (int i = 0; i < runs; i++) {
    st_tokenizer_free(*t);
    *t = NULL;
    double start = now();
    setun_status s = load(path, t, err);
    if (s) return s;
    double took = now() - start;
    if (!i || took < best) best = took;
  }
  printf("load %.4f %u\n", best, st_tokenizer_size(*t));
  return SETUN_OK;
}

static setun_status measure(const st_tokenizer *t, const char *path, int runs, setun_error *err) {
  char *text;
  size_t length;
  setun_status s = st_file_load(path, (size_t)1 << 30, &text, &length, err);
  double best = 0;
  st_token_list ids = {0};
  for (int i = 0; !s && i < runs; i++) {
    ids.length = 0;
    double start = now();
    s = st_tokenizer_encode(t, text, length, false, &ids, err);
    double took = now() - start;
    if (!i || took < best) best = took;
  }
  if (!s) printf("%s %.2f %zu\n", path, (double)length / best * 1e-6, ids.length);
  st_token_list_free(&ids);
  st_free(text);
  return s;
}

int main(int argc, char **argv) {
  setun_error err = {0};
  st_tokenizer *t = NULL;
  int runs = argc > 2 ? atoi(argv[2]) : 5;
  if (argc < 2 || runs < 1) {
    fprintf(stderr, "usage: tokenizer_speed TOKENIZER [RUNS [FILE ...]]\n");
    return 2;
  }
  setun_status s = measure_load(argv[1], runs, &t, &err);
  for (int i = 3; !s && i < argc; i++) s = measure(t, argv[i], runs, &err);
  st_tokenizer_free(t);
  if (s) fprintf(stderr, "tokenizer_speed: %s\n", err.message);
  return s != SETUN_OK;
}
