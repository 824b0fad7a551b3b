// Prompt lookup: texts repeat themselves, especially where they quote or edit their input.
#include "runtime/draft.h"

// The number of tokens before position `end` that equal those at the end of the text, where `last` follows ids[n - 1];
// at most `most`.
static size_t common_end(const int32_t *ids, size_t n, int32_t last, size_t end, size_t most) {
  if (ids[end - 1] != last) return 0;
  size_t length = 1;
  while (length < most && length < end && ids[end - 1 - length] == ids[n - length]) length++;
  return length;
}

size_t st_draft_lookup(const int32_t *ids, size_t n, int32_t last, int32_t *next, size_t most) {
  enum { LONGEST = 16 }; // enough to distinguish places
  size_t best = ST_DRAFT_MATCH - 1, found = 0, count = 0;
  for (size_t end = n; end >= ST_DRAFT_MATCH && best < LONGEST; end--) {
    size_t length = common_end(ids, n, last, end, LONGEST);
    if (length <= best) continue;
    best = length;
    found = end;
  }
  if (!found) return 0;
  for (size_t i = found; i <= n && count < most; i++) next[count++] = i < n ? ids[i] : last;
  return count;
}
