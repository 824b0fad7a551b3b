// Randomized checks that run for a time, so that a slow machine ends its run too: a program has classes of checks
// (kernels, shapes, tables), and each round does one check of every class. The first round is always done, with the
// extremes; later ones while there is time, and the seed of a check follows from the program's seed, the round and the
// class alone, so that what fails on one machine can be repeated on another.
#ifndef SETUN_TESTS_ROUNDS_H
#define SETUN_TESTS_ROUNDS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
  uint64_t seed;
  double seconds; // 0: the first round alone
  double start;
  uint64_t round; // of the check that runs
} timed_rounds;

static inline double rounds_clock(void) {
  struct timespec t;
  timespec_get(&t, TIME_UTC);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline timed_rounds rounds_begin(void) {
  return (timed_rounds){.seed = 1, .start = rounds_clock()};
}

// Takes "--seed N", "--seed random" or "--seconds S" from argv[*i] on, and moves *i to the value; false: another word.
static inline bool rounds_option(timed_rounds *r, int argc, char **argv, int *i) {
  const char *value = *i + 1 < argc ? argv[*i + 1] : NULL;
  bool seed = !strcmp(argv[*i], "--seed");
  if (!value || (!seed && strcmp(argv[*i], "--seconds"))) return false;
  ++*i;
  if (!seed)
    r->seconds = strtod(value, NULL);
  else
    r->seed = strcmp(value, "random") ? strtoull(value, NULL, 0) : (uint64_t)(r->start * 1e6);
  return true;
}

// For programs that have no other options.
static inline timed_rounds rounds_of_arguments(int argc, char **argv) {
  timed_rounds r = rounds_begin();
  for (int i = 1; i < argc; i++) {
    if (rounds_option(&r, argc, argv, &i)) continue;
    fprintf(stderr, "usage: %s [--seed N|random] [--seconds S]\n", argv[0]);
    exit(2);
  }
  return r;
}

// Whether the next check of this round is to be done.
static inline bool rounds_go_on(const timed_rounds *r) {
  return !r->round || rounds_clock() - r->start < r->seconds;
}

static inline uint64_t rounds_seed(const timed_rounds *r, uint64_t class_index) {
  return r->seed + r->round * 0x9E3779B97F4A7C15u + class_index * 0xD1B54A32D192ED03u;
}

// Ends what a program prints.
static inline void rounds_print(const timed_rounds *r) {
  printf("seed %llu, %llu rounds in %.0f s\n", (unsigned long long)r->seed, (unsigned long long)r->round,
         rounds_clock() - r->start);
}

#endif
