// Every function of every table that this processor runs, against the scalar table bit for bit and against float64
// sums computed here; then, with --bench, how fast each is.
//
//   kernel_kernels [--seed N|random] [--seconds S] [--isa NAME] [--only NAME] [--bench]
#include "checks.h"

#include "bench.h"

int main(int argc, char **argv) {
  options o = {.rounds = rounds_begin()};
  bool bench = false;
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (rounds_option(&o.rounds, argc, argv, &i)) continue;
    if (!strcmp(argv[i], "--bench"))
      bench = true;
    else if (!strcmp(argv[i], "--isa") && value)
      o.isa = value, i++;
    else if (!strcmp(argv[i], "--only") && value)
      o.only = value, i++;
    else
      return fprintf(stderr, "usage: %s [--seed N|random] [--seconds S] [--isa NAME] [--only NAME] [--bench]\n",
                     argv[0]),
             2;
  }
  return bench ? run_bench(&o) : run_checks(&o);
}
