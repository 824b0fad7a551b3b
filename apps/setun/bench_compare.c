// What `bench --compare-isa` and `--compare-threads` find, and how it is printed.
#include "bench_compare.h"

#include "bench_sequences.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOWER 0.95

static bool add_speed(comparison *c, int threads, const char *name) {
  compared_speed *s = &c->speeds[c->n++];
  snprintf(s->name, sizeof s->name, "%s", name);
  s->threads = threads;
  s->prefill = calloc((size_t)c->repeats, sizeof *s->prefill);
  s->decode = calloc((size_t)c->repeats, sizeof *s->decode);
  return s->prefill && s->decode;
}

bool comparison_of_isas(int64_t repeats, comparison *c) {
  const char *portable = setun_choice_name(SETUN_CHOICE_ISA, 0); // far slower than all others
  *c = (comparison){.repeats = repeats};
  for (const char *at = setun_isa_available(); *at && c->n < SPEEDS_MOST;) {
    char name[SPEED_NAME];
    size_t length = strcspn(at, " ");
    snprintf(name, sizeof name, "%.*s", (int)length, at);
    at += length + strspn(at + length, " ");
    if (strcmp(name, portable) && !add_speed(c, 0, name)) return false;
  }
  return true;
}

bool comparison_of_threads(int64_t repeats, comparison *c) {
  int processors = (int)sysconf(_SC_NPROCESSORS_ONLN);
  *c = (comparison){.repeats = repeats};
  for (int n = 1; c->n < SPEEDS_MOST; n = 2 * n < processors ? 2 * n : processors) {
    char name[SPEED_NAME];
    snprintf(name, sizeof name, "%d thread%s", n, n == 1 ? "" : "s");
    if (!add_speed(c, n, name)) return false;
    if (n >= processors) break;
  }
  return true;
}

void comparison_free(comparison *c) {
  for (int i = 0; i < c->n; i++) {
    free(c->speeds[i].prefill);
    free(c->speeds[i].decode);
  }
}

// The median of the ratios of runs next to each other; 0: out of memory.
static double ratio_of(const comparison *c, const double *later, const double *earlier) {
  double *ratios = calloc((size_t)c->repeats, sizeof *ratios), median = 0;
  for (int64_t i = 0; ratios && i < c->repeats; i++) ratios[i] = later[i] / earlier[i];
  if (ratios) median = median_of(ratios, c->repeats);
  free(ratios);
  return median;
}

static double middle(const comparison *c, const double *values) {
  double *copy = calloc((size_t)c->repeats, sizeof *copy), median = 0;
  if (copy) memcpy(copy, values, (size_t)c->repeats * sizeof *copy);
  if (copy) median = median_of(copy, c->repeats);
  free(copy);
  return median;
}

typedef void found_pair(const char *work, const compared_speed *later, const compared_speed *earlier, double ratio,
                        int index);

// Calls `found` for each pair of which the later one is slower; returns their number.
static int each_slower(const comparison *c, found_pair *found) {
  int n = 0;
  for (int later = 1; later < c->n; later++) {
    for (int earlier = 0; earlier < later; earlier++) {
      const compared_speed *a = &c->speeds[later], *b = &c->speeds[earlier];
      double prefill = ratio_of(c, a->prefill, b->prefill), decode = ratio_of(c, a->decode, b->decode);
      if (prefill < SLOWER) found("prefill", a, b, prefill, n++);
      if (decode < SLOWER) found("decode", a, b, decode, n++);
    }
  }
  return n;
}

static void print_pair(const char *work, const compared_speed *later, const compared_speed *earlier, double ratio,
                       int index) {
  (void)index;
  print_text("%s: %s %s slower than %s, %.2f of the speed\n", work, later->name, later->threads > 1 ? "are" : "is",
             earlier->name, ratio);
}

// A key and its value: the name of an instruction set, or a number of threads.
static void print_key(const char *key, const compared_speed *s) {
  if (s->threads)
    print_text("\"%s\": %d", key, s->threads);
  else
    print_text("\"%s\": \"%s\"", key, s->name);
}

static const char *key_of(const compared_speed *s) {
  return s->threads ? "threads" : "isa";
}

static void print_pair_json(const char *work, const compared_speed *later, const compared_speed *earlier, double ratio,
                            int index) {
  print_text("%s{\"work\": \"%s\", ", index ? ", " : "", work);
  print_key(key_of(later), later);
  print_text(", ");
  print_key("than", earlier);
  print_text(", \"ratio\": %.3f}", ratio);
}

void print_comparison(const comparison *c, bool json) {
  const bool threads = c->speeds[0].threads;
  if (json) print_text("{\"%s\": [", threads ? "threads" : "isas");
  for (int i = 0; i < c->n; i++) {
    const compared_speed *s = &c->speeds[i];
    double prefill = middle(c, s->prefill), decode = middle(c, s->decode);
    if (json) {
      print_text("%s{", i ? ", " : "");
      print_key(key_of(s), s);
      print_text(", \"prefill_tokens_per_s\": %.2f, \"decode_tokens_per_s\": %.2f}", prefill, decode);
    } else {
      print_text("%-10s prefill %10.2f tokens/s   decode %10.2f tokens/s\n", s->name, prefill, decode);
    }
  }
  if (json) print_text("], \"slower\": [");
  int slower = each_slower(c, json ? print_pair_json : print_pair);
  if (json)
    print_text("]}\n");
  else if (!slower)
    print_text(threads ? "No number of threads is slower than a smaller one.\n"
                       : "No instruction set is slower than one before it.\n");
}
