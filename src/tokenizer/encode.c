// One encoding from end to end: added tokens cut out, the rest normalized, cut into words, and given to the model.
#include "tokenizer/internal.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <string.h>

enum { MAX_CACHED = 1 << 15 };

setun_status st_encoder_emit(st_encoder *e, int32_t id) {
  return st_token_list_append(e->out, id) ? SETUN_OK : st_fail_memory(e->err, "the tokens");
}

// Normalized text: the added tokens that are looked for there, and words between them.
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
  return s ? s : encode_normal(e, normal, normal_length, special, first);
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

void st_encoder_free(st_encoder *e) {
  st_matcher_free(&e->matcher);
  st_buffer_free(&e->normal[0]);
  st_buffer_free(&e->normal[1]);
  for (size_t i = 0; i < ST_MAX_STEPS; i++) st_buffer_free(&e->stage[i]);
  st_buffer_free(&e->print);
  st_buffer_free(&e->keys);
  st_free(e->cache);
  st_free(e->symbols);
  st_queue_free(&e->queue);
  st_free(e->lattice);
}

// Words come back: the ids of one that was seen are looked up. The cache grows with the text, up to a bound.
static setun_status make_cache(st_encoder *e, size_t length) {
  size_t size = 64;
  while (size < length / 4 && size < MAX_CACHED) size *= 2;
  e->cache = st_calloc(size, sizeof *e->cache);
  e->cache_mask = size - 1;
  return e->cache ? SETUN_OK : st_fail_memory(e->err, "the word cache");
}

setun_status st_tokenizer_encode(const st_tokenizer *t, const char *text, size_t length, bool special,
                                 st_token_list *out, setun_error *err) {
  if (length >= UINT32_MAX / 4) {
    return st_fail(err, SETUN_ERROR_LIMIT, "a text of %zu bytes, more than can be tokenized at once", length);
  }
  for (size_t i = 0; i < length;) {
    uint32_t code;
    if ((unsigned char)text[i] < 0x80) {
      i++;
      continue;
    }
    int used = st_utf8_decode(text + i, length - i, &code);
    if (used <= 0) return st_fail(err, SETUN_ERROR_ARGUMENT, "the text is not UTF-8 at byte %zu", i);
    i += (size_t)used;
  }
  size_t before = out->length;
  st_encoder e = {.t = t, .out = out, .err = err};
  setun_status s = make_cache(&e, length);
  if (!s) s = encode(&e, text, length, special);
  st_encoder_free(&e);
  if (s) out->length = before;
  return s;
}
