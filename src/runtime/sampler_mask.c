// Masks of tokens for the sampler.
#include "runtime/sampler_mask.h"

#include "base/memory.h"

#include <string.h>

void st_sampler_mask_free(st_sampler_mask *m) {
  st_matcher_free(m->matcher);
  st_free(m->bits);
}

setun_status st_sampler_mask_set(st_sampler_mask *m, st_constraint *constraint, setun_error *err) {
  st_matcher *matcher = NULL;
  setun_status s = constraint ? st_matcher_new(constraint, &matcher, err) : SETUN_OK;
  if (s != SETUN_OK) return s;
  st_matcher_free(m->matcher);
  m->matcher = matcher;
  m->known = false;
  return SETUN_OK;
}

setun_status st_sampler_mask_accept(st_sampler_mask *m, int32_t id, setun_error *err) {
  if (!m->matcher) return SETUN_OK;
  setun_status s = st_matcher_accept(m->matcher, id, err);
  if (s == SETUN_OK) m->known = false;
  return s;
}

void st_sampler_mask_reset(st_sampler_mask *m) {
  if (m->matcher) st_matcher_reset(m->matcher);
  m->known = false;
}

static void clear_bits(uint32_t *bits, size_t from, size_t to) {
  for (; from < to && from % 32; from++) bits[from / 32] &= ~(UINT32_C(1) << from % 32);
  for (; from + 32 <= to; from += 32) bits[from / 32] = 0;
  for (; from < to; from++) bits[from / 32] &= ~(UINT32_C(1) << from % 32);
}

setun_status st_sampler_mask_find(st_sampler_mask *m, size_t n, const st_token_gaps *gaps, setun_error *err) {
  size_t words = st_mask_words((uint32_t)n);
  if (m->known && m->words == words) return SETUN_OK;
  if (!st_reserve(&m->bits, &m->capacity, words, sizeof *m->bits)) return st_fail_memory(err, "the sampler's mask");
  m->words = words;
  setun_status s = st_matcher_mask(m->matcher, m->bits, words, err);
  if (s != SETUN_OK) return s;
  for (size_t i = 0; i < gaps->count && gaps->items[i].begin < n; i++) {
    clear_bits(m->bits, gaps->items[i].begin, gaps->items[i].end < n ? gaps->items[i].end : n);
  }
  clear_bits(m->bits, n, words * 32);
  m->allowed = 0;
  for (size_t i = 0; i < words; i++) m->allowed += (size_t)__builtin_popcount(m->bits[i]);
  m->known = true;
  if (m->allowed) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_STATE,
                 "constraint: expected a token that may come after %zu tokens of the text, found only tokens without "
                 "text in the model's vocabulary",
                 st_matcher_accepted(m->matcher));
}

// The first bit from `from` on that is set, or with `flip` not set; `n` if there is none.
static size_t next_bit(const st_sampler_mask *m, size_t from, size_t n, uint32_t flip) {
  while (from < n) {
    uint32_t word = (m->bits[from / 32] ^ flip) >> from % 32;
    if (word) {
      from += (size_t)__builtin_ctz(word);
      return from < n ? from : n;
    }
    from += 32 - from % 32;
  }
  return n;
}

bool st_sampler_mask_run(const st_sampler_mask *m, size_t from, size_t n, size_t *begin, size_t *end) {
  *begin = next_bit(m, from, n, 0);
  *end = next_bit(m, *begin, n, UINT32_MAX);
  return *begin < n;
}
