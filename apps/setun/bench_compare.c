// What `bench --compare-isa` finds, and how it is printed.
#include "bench_compare.h"

#include "bench_sequences.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>

#define SLOWER 0.95

bool isa_comparison_new(int64_t repeats, isa_comparison *c) {
  *c = (isa_comparison){.repeats = repeats};
  for (const char *at = setun_isa_available(); *at && c->n < ISAS_MOST;) {
    size_t length = strcspn(at, " ");
    isa_speed *s = &c->speeds[c->n];
    snprintf(s->name, sizeof s->name, "%.*s", (int)length, at);
    at += length + strspn(at + length, " ");
    if (!strcmp(s->name, "scalar")) continue;
    c->n++;
    s->prefill = calloc((size_t)repeats, sizeof *s->prefill);
    s->decode = calloc((size_t)repeats, sizeof *s->decode);
    if (!s->prefill || !s->decode) return false;
  }
  return true;
}

void isa_comparison_free(isa_comparison *c) {
  for (int i = 0; i < c->n; i++) {
    free(c->speeds[i].prefill);
    free(c->speeds[i].decode);
  }
}

// The median of the ratios of runs next to each other; 0: out of memory.
static double ratio_of(const isa_comparison *c, const double *later, const double *earlier) {
  double *ratios = calloc((size_t)c->repeats, sizeof *ratios), median = 0;
  for (int64_t i = 0; ratios && i < c->repeats; i++) ratios[i] = later[i] / earlier[i];
  if (ratios) median = median_of(ratios, c->repeats);
  free(ratios);
  return median;
}

static double middle(const isa_comparison *c, const double *values) {
  double *copy = calloc((size_t)c->repeats, sizeof *copy), median = 0;
  if (copy) memcpy(copy, values, (size_t)c->repeats * sizeof *copy);
  if (copy) median = median_of(copy, c->repeats);
  free(copy);
  return median;
}

typedef void found_pair(const char *work, const isa_speed *later, const isa_speed *earlier, double ratio, int index);

// Calls `found` for each pair of which the later set is slower; returns their number.
static int each_slower(const isa_comparison *c, found_pair *found) {
  int n = 0;
  for (int later = 1; later < c->n; later++) {
    for (int earlier = 0; earlier < later; earlier++) {
      const isa_speed *a = &c->speeds[later], *b = &c->speeds[earlier];
      double prefill = ratio_of(c, a->prefill, b->prefill), decode = ratio_of(c, a->decode, b->decode);
      if (prefill < SLOWER) found("prefill", a, b, prefill, n++);
      if (decode < SLOWER) found("decode", a, b, decode, n++);
    }
  }
  return n;
}

static void print_pair(const char *work, const isa_speed *later, const isa_speed *earlier, double ratio, int index) {
  (void)index;
  print_text("%s: %s is slower than %s, %.2f of its speed\n", work, later->name, earlier->name, ratio);
}

static void print_pair_json(const char *work, const isa_speed *later, const isa_speed *earlier, double ratio,
                            int index) {
  print_text("%s{\"work\": \"%s\", \"isa\": \"%s\", \"than\": \"%s\", \"ratio\": %.3f}", index ? ", " : "", work,
             later->name, earlier->name, ratio);
}

void print_isa_comparison(const isa_comparison *c, bool json) {
  if (json) print_text("{\"isas\": [");
  for (int i = 0; i < c->n; i++) {
    const isa_speed *s = &c->speeds[i];
    double prefill = middle(c, s->prefill), decode = middle(c, s->decode);
    if (json) {
      print_text("%s{\"isa\": \"%s\", \"prefill_tokens_per_s\": %.2f, \"decode_tokens_per_s\": %.2f}", i ? ", " : "",
                 s->name, prefill, decode);
    } else {
      print_text("%-8s prefill %10.2f tokens/s   decode %10.2f tokens/s\n", s->name, prefill, decode);
    }
  }
  if (json) print_text("], \"slower\": [");
  int slower = each_slower(c, json ? print_pair_json : print_pair);
  if (json)
    print_text("]}\n");
  else if (!slower)
    print_text("No instruction set is slower than one before it.\n");
}
