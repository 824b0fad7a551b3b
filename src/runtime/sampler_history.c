// The sampler's memory of the text: the last tokens, how often each occurs, and which would continue a repetition.
#include "runtime/sampler_history.h"

#include "base/memory.h"

#include <string.h>

// The index of the id in the tally, or where to insert it.
static size_t tally_place(const st_tally *t, setun_token id) {
  size_t low = 0, high = t->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (t->entries[middle].id < id) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

const st_tally_entry *st_tally_find(const st_tally *t, setun_token id) {
  size_t i = tally_place(t, id);
  return i < t->count && t->entries[i].id == id ? &t->entries[i] : NULL;
}

static bool tally_reserve(st_tally *t) {
  return st_reserve(&t->entries, &t->capacity, t->count + 1, sizeof *t->entries);
}

// The id's count, initially 0; room for it is reserved.
static uint32_t *tally_at(st_tally *t, setun_token id) {
  size_t i = tally_place(t, id);
  if (i == t->count || t->entries[i].id != id) {
    memmove(t->entries + i + 1, t->entries + i, (t->count++ - i) * sizeof *t->entries);
    t->entries[i] = (st_tally_entry){id, 0};
  }
  return &t->entries[i].n;
}

static void tally_decrement(st_tally *t, setun_token id) {
  size_t i = tally_place(t, id);
  if (--t->entries[i].n == 0) memmove(t->entries + i, t->entries + i + 1, (--t->count - i) * sizeof *t->entries);
}

void st_history_free(st_history *h) {
  st_free(h->ids);
  st_free(h->counts.entries);
  st_free(h->breakers);
  st_free(h->breaker_ids);
  st_free(h->texts);
  st_free(h->lengths);
}

void st_history_clear(st_history *h) {
  h->count = h->counts.count = h->counted = 0;
}

// Makes room for one more token. The oldest tokens are dropped in large batches, to amortize the cost.
static bool reserve_token(st_history *h) {
  if (h->count == h->capacity && h->count / 2 >= h->window) {
    memmove(h->ids, h->ids + h->count - h->window, h->window * sizeof *h->ids);
    h->count = h->window;
  }
  return st_reserve(&h->ids, &h->capacity, h->count + 1, sizeof *h->ids);
}

setun_status st_history_add(st_history *h, setun_token id, setun_error *err) {
  if (!h->window) return SETUN_OK;
  if (!reserve_token(h) || !tally_reserve(&h->counts)) return st_fail_memory(err, "the sampler's history");
  h->ids[h->count++] = id;
  if (!h->count_window) return SETUN_OK;
  ++*tally_at(&h->counts, id);
  if (h->counted < h->count_window) {
    h->counted++;
  } else {
    tally_decrement(&h->counts, h->ids[h->count - 1 - h->count_window]);
  }
  return SETUN_OK;
}

// The first breaker that does not sort before this last id and length.
static size_t breaker_place(const st_history *h, setun_token last, size_t length) {
  size_t low = 0, high = h->n_breakers;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    const st_breaker *b = &h->breakers[middle];
    if (b->last < last || (b->last == last && b->length < length)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

setun_status st_history_add_breaker(st_history *h, const setun_token *ids, size_t n, setun_error *err) {
  if (n < 1 || n > ST_BREAKER_LENGTH_LIMIT) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "sequence breaker: expected 1 to %d tokens, found %zu",
                   ST_BREAKER_LENGTH_LIMIT, n);
  }
  for (size_t i = 0; i < n; i++) {
    if (ids[i] < 0) {
      return st_fail(err, SETUN_ERROR_ARGUMENT, "sequence breaker: expected token ids >= 0, found %d", (int)ids[i]);
    }
  }
  if (!st_reserve(&h->breakers, &h->breakers_capacity, h->n_breakers + 1, sizeof *h->breakers) ||
      !st_reserve(&h->breaker_ids, &h->breaker_ids_capacity, h->n_breaker_ids + n, sizeof *h->breaker_ids)) {
    return st_fail_memory(err, "a sequence breaker");
  }
  size_t i = breaker_place(h, ids[n - 1], n);
  memmove(h->breakers + i + 1, h->breakers + i, (h->n_breakers++ - i) * sizeof *h->breakers);
  h->breakers[i] = (st_breaker){ids[n - 1], h->n_breaker_ids, n};
  memcpy(h->breaker_ids + h->n_breaker_ids, ids, n * sizeof *ids);
  h->n_breaker_ids += n;
  return SETUN_OK;
}

setun_status st_history_add_breaker_text(st_history *h, st_piece_fn piece, const void *user, const char *text,
                                         size_t length, setun_error *err) {
  if (length < 1 || length > ST_BREAKER_BYTES_LIMIT) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "sequence breaker: expected 1 to %d bytes, found %zu",
                   ST_BREAKER_BYTES_LIMIT, length);
  }
  if (!st_reserve(&h->texts, &h->texts_capacity, h->n_texts + 1, sizeof *h->texts)) {
    return st_fail_memory(err, "a sequence breaker");
  }
  st_breaker_text *t = &h->texts[h->n_texts++];
  memcpy(t->bytes, text, length);
  t->length = length;
  h->piece = piece;
  h->piece_user = user;
  return SETUN_OK;
}

static bool holds(const char *bytes, size_t n, const st_breaker_text *text) {
  const char *at = bytes;
  for (size_t left = n; left >= text->length; left = n - (size_t)(++at - bytes)) {
    at = memchr(at, text->bytes[0], left - text->length + 1);
    if (!at) return false;
    if (!memcmp(at, text->bytes, text->length)) return true;
  }
  return false;
}

static bool holds_text(const st_history *h, setun_token id) {
  const char *bytes;
  size_t length;
  if (!h->n_texts) return false;
  h->piece(h->piece_user, id, &bytes, &length);
  for (size_t i = 0; i < h->n_texts; i++) {
    if (holds(bytes, length, &h->texts[i])) return true;
  }
  return false;
}

static bool is_breaker(const st_history *h, setun_token id) {
  size_t i = breaker_place(h, id, 1);
  return (i < h->n_breakers && h->breakers[i].last == id && h->breakers[i].length == 1) || holds_text(h, id);
}

// Copies up to `n` bytes that precede the last of the tokens to the end of a buffer of `n`, and returns their number. A
// token without text ends them: its two sides are not one text.
static size_t bytes_before_last(const st_history *h, const setun_token *ids, size_t n_ids, char *buffer, size_t n) {
  size_t got = 0;
  for (size_t i = n_ids - 1; i-- > 0 && got < n;) {
    const char *bytes;
    size_t length;
    h->piece(h->piece_user, ids[i], &bytes, &length);
    if (!length) break;
    size_t some = length < n - got ? length : n - got;
    memcpy(buffer + n - got - some, bytes + length - some, some);
    got += some;
  }
  return got;
}

// Whether a breaker text that begins in an earlier one of these tokens ends in the last one.
static bool text_reaches_last(const st_history *h, const setun_token *ids, size_t n, const st_breaker_text *text) {
  char buffer[2 * ST_BREAKER_BYTES_LIMIT];
  const char *bytes;
  size_t length, most = text->length - 1;
  if (!most) return false;
  h->piece(h->piece_user, ids[n - 1], &bytes, &length);
  if (!length) return false;
  size_t after = length < most ? length : most;
  memcpy(buffer + most, bytes, after);
  size_t earlier = bytes_before_last(h, ids, n, buffer, most);
  return holds(buffer + most - earlier, earlier + after, text);
}

// Whether a breaker ends in the last of these `n` tokens.
static bool breaker_ends(const st_history *h, const setun_token *ids, size_t n) {
  setun_token last = ids[n - 1];
  for (size_t i = breaker_place(h, last, 1); i < h->n_breakers && h->breakers[i].last == last; i++) {
    const st_breaker *b = &h->breakers[i];
    if (b->length > n) break;
    if (!memcmp(h->breaker_ids + b->offset, ids + n - b->length, b->length * sizeof *ids)) return true;
  }
  if (holds_text(h, last)) return true;
  for (size_t i = 0; i < h->n_texts; i++) {
    if (text_reaches_last(h, ids, n, &h->texts[i])) return true;
  }
  return false;
}

// How many of the last of `n` tokens come after all breakers.
static size_t since_breaker(const st_history *h, const setun_token *ids, size_t n) {
  size_t since = 0;
  while (since < n && !breaker_ends(h, ids, n - since)) since++;
  return since;
}

// lengths[k], k from 1 to n-1, becomes the number of last tokens that also occur k places earlier: the Z function of
// the reversed text (D. Gusfield, Algorithms on Strings, Trees, and Sequences, 1997), in linear time.
static void repeated_lengths(const setun_token *ids, size_t n, size_t *lengths) {
  const setun_token *last = ids + n - 1;
  size_t left = 0, right = 0; // the match [left, right) that reaches furthest back
  for (size_t k = 1; k < n; k++) {
    size_t length = 0;
    if (k < right) length = lengths[k - left] < right - k ? lengths[k - left] : right - k;
    while (k + length < n && last[-(ptrdiff_t)length] == last[-(ptrdiff_t)(k + length)]) length++;
    lengths[k] = length;
    if (k + length > right) {
      left = k;
      right = k + length;
    }
  }
}

setun_status st_history_repetitions(st_history *h, size_t window, size_t allowed, st_tally *out, setun_error *err) {
  size_t n = h->count < window ? h->count : window;
  out->count = 0;
  if (n <= allowed) return SETUN_OK;
  const setun_token *ids = h->ids + h->count - n;
  size_t limit = since_breaker(h, ids, n);
  if (limit < allowed) return SETUN_OK;
  if (!st_reserve(&h->lengths, &h->lengths_capacity, n, sizeof *h->lengths)) {
    return st_fail_memory(err, "the search for repetitions");
  }
  repeated_lengths(ids, n, h->lengths);
  for (size_t k = 1; k < n; k++) {
    size_t length = h->lengths[k] < limit ? h->lengths[k] : limit;
    if (length < allowed || is_breaker(h, ids[n - k])) continue;
    if (!tally_reserve(out)) return st_fail_memory(err, "the search for repetitions");
    uint32_t *longest = tally_at(out, ids[n - k]);
    if (length > *longest) *longest = length < UINT32_MAX ? (uint32_t)length : UINT32_MAX;
  }
  return SETUN_OK;
}
