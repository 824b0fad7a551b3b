// Every function of every table that this processor runs, against the scalar table bit for bit and against float64
// sums computed here; then, with --bench, how fast each is.
//
//   kernel_kernels [--seed N] [--isa NAME] [--only WORD] [--quick] [--bench]
#include "checks.h"

#include "bench.h"

int main(int argc, char **argv) {
  options o = {.seed = 1};
  bool bench = false;
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (!strcmp(argv[i], "--bench"))
      bench = true;
    else if (!strcmp(argv[i], "--quick"))
      o.quick = true;
    else if (!strcmp(argv[i], "--seed") && value)
      o.seed = strtoull(argv[++i], NULL, 0);
    else if (!strcmp(argv[i], "--isa") && value)
      o.isa = argv[++i];
    else if (!strcmp(argv[i], "--only") && value)
      o.only = argv[++i];
    else
      return fprintf(stderr, "usage: %s [--seed N] [--isa NAME] [--only WORD] [--quick] [--bench]\n", argv[0]), 2;
  }
  return bench ? run_bench(&o) : run_checks(&o);
}
