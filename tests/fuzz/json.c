// Fuzz target: the reader and the writer of JSON, compared with jansson's.
#include "json_oracle.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  bool taken = false, ignored;
  const char *text = (const char *)data;
  if (size && memchr(data, 0, size)) return 0; // jansson skips a 0 byte after some tokens
  if (!same_reading(text, size, true, &ignored) || !same_reading(text, size, false, &taken)) abort();
  if (taken && !same_writing(text, size)) abort();
  return 0;
}
