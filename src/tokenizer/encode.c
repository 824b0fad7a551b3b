// One encoding from end to end: added tokens cut out, the rest normalized, cut into words, and given to the model.
#include "tokenizer/internal.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <string.h>

setun_status st_encoder_emit(st_encoder *e, int32_t id) {
  return st_token_list_append(e->out, id) ? SETUN_OK : st_fail_memory(e->err, "the tokens");
}

// Normalized text: the added tokens that are found there, and words between them.
static setun_status encode_normal(st_encoder *e, const char *text, size_t length, bool special, bool first) {
  const st_added *added = &e->t->added_normalized[special];
  size_t done = 0, start, end;
  int32_t id;
  setun_status s;
  while (st_added_next(added, text, length, done, &start, &end, &id)) {
    if ((s = st_pretokenize(e, text + done, start - done, first && !done))) return s;
    if ((s = st_encoder_emit(e, id))) return s;
    done = end;
  }
  return st_pretokenize(e, text + done, length - done, first && !done);
}

static setun_status encode_segment(st_encoder *e, const char *text, size_t length, bool special, bool first) {
  if (!length) return SETUN_OK;
  const char *normal;
  size_t normal_length;
  setun_status s = st_normalize(e, text, length, &normal, &normal_length);
  return s ? s : encode_normal(e, normal, normal_length, special, first && !e->shifted);
}

static setun_status encode(st_encoder *e, const char *text, size_t length, bool special) {
  const st_added *added = &e->t->added_raw[special];
  size_t done = 0, start, end;
  int32_t id;
  setun_status s;
  while (st_added_next(added, text, length, done, &start, &end, &id)) {
    if ((s = encode_segment(e, text + done, start - done, special, !done))) return s;
    if ((s = st_encoder_emit(e, id))) return s;
    done = end;
  }
  return encode_segment(e, text + done, length - done, special, !done);
}

// ---- with guarded parts ----

// Positions in the raw text are unknown in normalized text. So if control tokens are found there, the text is split at
// the edges of guarded parts, and each piece is either guarded or not.
static bool has_normalized_control(const st_tokenizer *t) {
  for (uint32_t id = 0; id < t->size; id++) {
    if ((t->flags[id] & ST_ADDED_NORMALIZED) && (t->types[id] == ST_TOKEN_CONTROL || t->flags[id] & ST_ADDED_GUARDED))
      return true;
  }
  return false;
}

// The bytes [begin, end) of the text, which hold no added token; guards[0] is the first guarded part that ends after
// `begin`.
static setun_status encode_mixed(st_encoder *e, const char *text, size_t begin, size_t end, const setun_span *guards,
                                 size_t n, bool cut) {
  if (!cut) return encode_segment(e, text + begin, end - begin, false, !begin);
  setun_status s = SETUN_OK;
  while (begin < end && !s) {
    while (n && guards->end <= begin) guards++, n--;
    bool guarded = n && guards->begin <= begin;
    size_t stop = !n ? end : guarded ? guards->end : guards->begin;
    if (stop > end) stop = end;
    s = encode_segment(e, text + begin, stop - begin, !guarded, !begin);
    begin = stop;
  }
  return s;
}

static setun_status encode_guarded(st_encoder *e, const char *text, size_t length, const setun_span *guards, size_t n) {
  const st_added *all = &e->t->added_raw[1], *plain = &e->t->added_raw[0];
  bool cut = has_normalized_control(e->t);
  size_t done = 0, start, end;
  int32_t id;
  setun_status s;
  while (st_added_next_guarded(all, plain, text, length, done, guards, n, &start, &end, &id)) {
    if ((s = encode_mixed(e, text, done, start, guards, n, cut))) return s;
    if ((s = st_encoder_emit(e, id))) return s;
    done = end;
    while (n && guards->end <= done) guards++, n--;
  }
  return encode_mixed(e, text, done, length, guards, n, cut);
}

void st_encoder_free(st_encoder *e) {
  st_pattern_matcher_free(&e->matcher);
  st_buffer_free(&e->normal[0]);
  st_buffer_free(&e->normal[1]);
  for (size_t i = 0; i < ST_MAX_STEPS; i++) st_buffer_free(&e->stage[i]);
  st_buffer_free(&e->print);
  st_buffer_free(&e->keys);
  st_free(e->cache);
  st_free(e->symbols);
  st_free(e->windows[0].tokens);
  st_free(e->windows[1].tokens);
  st_bpe_queue_free(&e->queue);
  st_free(e->lattice);
}

static setun_status check_text(const char *text, size_t length, setun_error *err) {
  if (length >= UINT32_MAX / 4) {
    return st_fail(err, SETUN_ERROR_LIMIT, "a text of %zu bytes, more than can be tokenized at once", length);
  }
  size_t span = st_utf8_span(text, length);
  if (span < length) return st_fail(err, SETUN_ERROR_ARGUMENT, "the text is not UTF-8 at byte %zu", span);
  return SETUN_OK;
}

setun_status st_tokenizer_encode(const st_tokenizer *t, const char *text, size_t length, bool special,
                                 st_token_list *out, setun_error *err) {
  setun_status s = check_text(text, length, err);
  if (s) return s;
  size_t before = out->length;
  st_encoder e = {.t = t, .out = out, .err = err};
  s = st_cache_make(&e, length);
  if (!s) s = encode(&e, text, length, special);
  st_encoder_free(&e);
  if (s) out->length = before;
  return s;
}

setun_status st_tokenizer_encode_guarded(const st_tokenizer *t, const char *text, size_t length,
                                         const setun_span *guards, size_t n, st_token_list *out, setun_error *err) {
  setun_status s = check_text(text, length, err);
  if (s) return s;
  for (size_t i = 0, last = 0; i < n; last = guards[i++].end) {
    if (guards[i].begin < last || guards[i].end < guards[i].begin || guards[i].end > length) {
      return st_fail(err, SETUN_ERROR_ARGUMENT, "guarded part %zu: expected parts in ascending order within %zu bytes",
                     i, length);
    }
  }
  size_t before = out->length;
  st_encoder e = {.t = t, .out = out, .err = err};
  s = st_cache_make(&e, length);
  if (!s) s = encode_guarded(&e, text, length, guards, n);
  st_encoder_free(&e);
  if (s) out->length = before;
  return s;
}
