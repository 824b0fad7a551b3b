// Fuzz target: a safetensors file, opened and read.
#define _GNU_SOURCE
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_file("m.safetensors", data, size);
  return 0;
}
