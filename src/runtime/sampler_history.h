// What a sampler remembers of the text: counts of tokens, and repetitions for DRY.
#ifndef SETUN_RUNTIME_SAMPLER_HISTORY_H
#define SETUN_RUNTIME_SAMPLER_HISTORY_H

#include "base/error.h"
#include "setun.h"

// A number for each of some tokens, by ascending id.
typedef struct st_tally_entry {
  setun_token id;
  uint32_t n;
} st_tally_entry;

typedef struct st_tally {
  st_tally_entry *entries;
  size_t count, capacity;
} st_tally;

// NULL: none for that token.
const st_tally_entry *st_tally_find(const st_tally *tally, setun_token id);

// A sequence of tokens that repetitions do not reach across: `length` ids from `offset` on in the history's
// breaker_ids. They are kept sorted by their last id and then by length.
typedef struct st_breaker {
  setun_token last;
  size_t offset, length;
} st_breaker;

enum { ST_BREAKER_LENGTH_LIMIT = 64, ST_BREAKER_BYTES_LIMIT = 256 };

// A token's text inside a text: *length bytes at *bytes, which live as long as `user`; none for tokens without text, or
// that do not exist.
typedef void (*st_piece_fn)(const void *user, setun_token id, const char **bytes, size_t *length);

// A text that repetitions do not reach across, however it is tokenized.
typedef struct st_breaker_text {
  char bytes[ST_BREAKER_BYTES_LIMIT];
  size_t length;
} st_breaker_text;

// Zero-initialize, then set the windows; freed with st_history_free.
typedef struct st_history {
  size_t window;       // how many of the last tokens must be known; SIZE_MAX: all
  size_t count_window; // how many of the last tokens are counted, at most `window`
  setun_token *ids;    // oldest first; sometimes more than `window`
  size_t count, capacity;
  st_tally counts; // of the tokens in the window of counts
  size_t counted;  // tokens in it so far

  st_breaker *breakers;
  size_t n_breakers, breakers_capacity;
  setun_token *breaker_ids;
  size_t n_breaker_ids, breaker_ids_capacity;

  st_breaker_text *texts;
  size_t n_texts, texts_capacity;
  st_piece_fn piece; // of the tokens, for the texts
  const void *piece_user;

  size_t *lengths; // scratch for st_history_repetitions
  size_t lengths_capacity;
} st_history;

void st_history_free(st_history *h);
// Forgets the text; the breakers stay.
void st_history_clear(st_history *h);
// Adds a token, which must not be negative. On failure nothing is changed.
setun_status st_history_add(st_history *h, setun_token id, setun_error *err);
// Adds a breaker of 1 to ST_BREAKER_LENGTH_LIMIT ids, which are copied.
setun_status st_history_add_breaker(st_history *h, const setun_token *ids, size_t n, setun_error *err);
// Adds one of 1 to ST_BREAKER_BYTES_LIMIT bytes, which are copied. `piece` and `user` replace earlier ones.
setun_status st_history_add_breaker_text(st_history *h, st_piece_fn piece, const void *user, const char *text,
                                         size_t length, setun_error *err);

// Which tokens would continue a repetition, and how long it already is. Over the last `window` tokens: whenever the end
// of the text, of at least `allowed` tokens without a breaker, also occurs earlier, the token after that earlier place
// is tallied with the longest such length. Tokens that are or contain a breaker are excluded. *out is overwritten; the
// caller owns its memory. (DRY: P. E. Weidmann, text-generation-webui pull request
// 5677.)
setun_status st_history_repetitions(st_history *h, size_t window, size_t allowed, st_tally *out, setun_error *err);

#endif
