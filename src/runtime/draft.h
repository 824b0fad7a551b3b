// Guessing the next tokens of a text from the text itself.
#ifndef SETUN_RUNTIME_DRAFT_H
#define SETUN_RUNTIME_DRAFT_H

#include <stddef.h>
#include <stdint.h>

enum { ST_DRAFT_MATCH = 2 };

// For the text of `n` tokens followed by `last`: finds the earlier place whose preceding tokens have the longest match,
// at least ST_DRAFT_MATCH, with the end of the text (the latest of equals), and writes up to `most` tokens that
// followed it to `next`. Returns their number; 0: no such place.
size_t st_draft_lookup(const int32_t *ids, size_t n, int32_t last, int32_t *next, size_t most);

#endif
