// Fuzz target: a GGUF file, opened and read.
#define _GNU_SOURCE
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_file("m.gguf", data, size);
  return 0;
}
