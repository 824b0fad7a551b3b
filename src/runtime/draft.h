// Guessing the next tokens of a text from the text itself.
#ifndef SETUN_RUNTIME_DRAFT_H
#define SETUN_RUNTIME_DRAFT_H

#include <stddef.h>
#include <stdint.h>

enum { ST_DRAFT_MATCH = 2 };

// Of the text of `n` tokens and `last` behind them: writes up to `most` tokens to `next` that followed the earlier
// place which has most of the tokens before it in common with the text's end, at least ST_DRAFT_MATCH (the latest of
// such places), and returns how many. 0: there is no such place.
size_t st_draft_lookup(const int32_t *ids, size_t n, int32_t last, int32_t *next, size_t most);

#endif
