// Fuzz target: the reader and the writer of JSON, beside jansson's.
#include "json_oracle.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  bool taken = false, ignored;
  const char *text = (const char *)data;
  if (size && memchr(data, 0, size)) return 0; // jansson passes over a 0 byte behind some tokens
  if (!same_reading(text, size, true, &ignored) || !same_reading(text, size, false, &taken)) abort();
  if (taken && !same_writing(text, size)) abort();
  return 0;
}
