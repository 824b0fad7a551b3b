// Prompt lookup against a search that compares every place with every length.
#include "runtime/draft.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

enum { MOST = 24 };

// The text followed by `last`, searched with the longest ends first, and from the latest places.
static size_t search(const int32_t *text, size_t n, int32_t *next, size_t most) {
  for (size_t length = n - 1 < 16 ? n - 1 : 16; length >= ST_DRAFT_MATCH; length--) {
    for (size_t end = n - 1; end >= length; end--) {
      bool same = true;
      for (size_t i = 0; i < length; i++) same = same && text[end - length + i] == text[n - length + i];
      if (!same) continue;
      size_t count = 0;
      for (size_t i = end; i < n && count < most; i++) next[count++] = text[i];
      return count;
    }
  }
  return 0;
}

static void random_texts(void **state) {
  (void)state;
  uint32_t seed = 7;
  for (int round = 0; round < 20000; round++) {
    int32_t text[MOST], found[MOST], want[MOST];
    size_t n = 1 + (seed = seed * 1664525u + 1013904223u) % MOST, most = 1 + (seed >> 20) % 8;
    for (size_t i = 0; i < n; i++) text[i] = (int32_t)((seed = seed * 1664525u + 1013904223u) >> 30);
    size_t count = st_draft_lookup(text, n - 1, text[n - 1], found, most);
    assert_int_equal(count, search(text, n, want, most));
    for (size_t i = 0; i < count; i++) assert_int_equal(found[i], want[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_texts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
