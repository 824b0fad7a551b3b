// From ids to text: the bytes of each token, computed once, and a decoder that outputs complete characters.
#include "tokenizer/internal.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <string.h>

// ---- the bytes of a token ----

static bool replace_all(st_buffer *b, st_bytes from, st_bytes to, st_buffer *scratch) {
  scratch->length = 0;
  size_t done = 0;
  for (size_t i = 0; i + from.length <= b->length;) {
    if (memcmp(b->data + i, from.data, from.length) != 0) {
      i++;
      continue;
    }
    if (!st_buffer_append(scratch, b->data + done, i - done)) return false;
    if (!st_buffer_append(scratch, to.data, to.length)) return false;
    i += from.length;
    done = i;
  }
  if (!done) return true;
  if (!st_buffer_append(scratch, b->data + done, b->length - done)) return false;
  st_buffer swap = *b;
  *b = *scratch;
  *scratch = swap;
  return true;
}

static void strip_token(st_buffer *b, const st_decode_step *d) {
  size_t start = 0, end = b->length;
  for (uint32_t k = 0; k < d->count && end - start >= d->from.length; k++) {
    if (memcmp(b->data + start, d->from.data, d->from.length) != 0) break;
    start += d->from.length;
  }
  for (uint32_t k = 0; k < d->stop && end - start >= d->from.length; k++) {
    if (memcmp(b->data + end - d->from.length, d->from.data, d->from.length) != 0) break;
    end -= d->from.length;
  }
  if (start) memmove(b->data, b->data + start, end - start);
  b->length = end - start;
}

// One token through the decoder's steps, in `b`.
static bool apply(const st_tokenizer *t, st_buffer *b, st_buffer *scratch) {
  for (size_t i = 0; i < t->n_decoders; i++) {
    const st_decode_step *d = &t->decoders[i];
    int byte;
    size_t n;
    switch (d->kind) {
    case ST_DECODE_REPLACE:
      if (!replace_all(b, d->from, d->text, scratch)) return false;
      break;
    case ST_DECODE_STRIP_TOKEN: strip_token(b, d); break;
    case ST_DECODE_BYTE_LEVEL: // a token with characters beyond the alphabet is unchanged
      scratch->length = 0;
      if (!st_buffer_append(scratch, b->data, b->length)) return false;
      n = st_bytes_read(b->data, b->length, scratch->data);
      if (n != SIZE_MAX) memcpy(b->data, scratch->data, n), b->length = n;
      break;
    case ST_DECODE_BYTE_FALLBACK:
      byte = st_byte_token(b->data, b->length);
      if (byte >= 0) b->data[0] = (char)byte, b->length = 1;
      break;
    }
  }
  return true;
}

// The text from which a token's bytes are made: its own, or for an added token that is found in normalized text, the
// normalized one. *plain: the decoder's steps do not apply.
static setun_status source(st_encoder *e, uint32_t id, st_bytes *text, bool *plain) {
  st_tokenizer *t = (st_tokenizer *)e->t;
  *text = t->texts[id];
  uint8_t type = t->types[id];
  bool added = type == ST_TOKEN_CONTROL || type == ST_TOKEN_UNKNOWN || type == ST_TOKEN_USER_DEFINED;
  *plain = added && t->plain_added && (!t->outside || t->outside[id]);
  if (!added || !(t->flags[id] & ST_ADDED_NORMALIZED) || t->sentencepiece) return SETUN_OK;
  const char *normal;
  size_t length;
  setun_status s = st_normalize(e, text->data, text->length, &normal, &length);
  if (!s) *text = (st_bytes){normal, (uint32_t)length};
  return s;
}

static setun_status build_piece(st_encoder *e, st_tokenizer *t, uint32_t id, st_buffer *b, st_buffer *scratch) {
  st_bytes text;
  bool plain;
  setun_status s = source(e, id, &text, &plain);
  if (s) return s;
  st_bytes mark = t->mark;
  if (t->strip_marked && text.length >= mark.length && !memcmp(text.data, mark.data, mark.length)) {
    t->flags[id] |= ST_PIECE_MARKED;
  }
  b->length = 0;
  if (!st_buffer_append(b, text.data, text.length)) return st_fail_memory(e->err, "the tokens' texts");
  if (!plain && !apply(t, b, scratch)) return st_fail_memory(e->err, "the tokens' texts");
  st_bytes own = t->texts[id];
  if (b->length == own.length && !memcmp(b->data, own.data, own.length)) {
    t->pieces[id] = own;
    return SETUN_OK;
  }
  char *copy = st_arena_copy(&t->arena, b->data, b->length);
  if (!copy) return st_fail_memory(e->err, "the tokens' texts");
  t->pieces[id] = (st_bytes){copy, (uint32_t)b->length};
  return SETUN_OK;
}

setun_status st_tokenizer_build_pieces(st_tokenizer *t, uint32_t from, setun_error *err) {
  st_buffer b = {0}, scratch = {0};
  st_encoder e = {.t = t, .err = err};
  setun_status s = SETUN_OK;
  for (uint32_t id = from; !s && id < t->size; id++) {
    if (t->texts[id].data) s = build_piece(&e, t, id, &b, &scratch);
  }
  st_encoder_free(&e);
  st_buffer_free(&b);
  st_buffer_free(&scratch);
  return s;
}

// ---- the streaming decoder ----

struct st_decoder {
  const st_tokenizer *t;
  bool special, continues;
  uint32_t strip;  // characters that may still be taken from the text's beginning
  char partial[4]; // the beginning of a character
  uint32_t n_partial;
  st_buffer out;
};

setun_status st_decoder_new(const st_tokenizer *t, bool special, bool continues, st_decoder **out, setun_error *err) {
  st_decoder *d = st_calloc(1, sizeof *d);
  if (!d || !st_buffer_append(&d->out, "", 0)) {
    st_decoder_free(d);
    return st_fail_memory(err, "a decoder");
  }
  d->t = t;
  d->special = special;
  d->continues = continues;
  d->strip = continues ? 0 : t->strip_count;
  *out = d;
  return SETUN_OK;
}

void st_decoder_free(st_decoder *d) {
  if (!d) return;
  st_buffer_free(&d->out);
  st_free(d);
}

// How many bytes of an ill-formed sequence become one U+FFFD: the longest prefix of any character, at least 1.
// st_utf8_decode returns 0 for `n` bytes that are not a character; the maximal part is the longest prefix that it
// reports as cut off.
static size_t ill_formed(const char *s, size_t n) {
  uint32_t code;
  size_t part = 1;
  while (part < n && part < 4 && st_utf8_decode(s, part + 1, &code) < 0) part++;
  return part;
}

// Appends `n` bytes, as complete characters; what may still become one is held back.
static bool add_bytes(st_decoder *d, const char *bytes, size_t n) {
  while (n) {
    if (!d->n_partial) { // a run of complete characters is output unchanged
      size_t run = 0;
      uint32_t code;
      for (int used; run < n && (used = st_utf8_decode(bytes + run, n - run, &code)) > 0;) run += (size_t)used;
      if (run && !st_buffer_append(&d->out, bytes, run)) return false;
      bytes += run;
      n -= run;
      if (!n) break;
    }
    d->partial[d->n_partial++] = *bytes++;
    n--;
    uint32_t code;
    for (;;) {
      int used = st_utf8_decode(d->partial, d->n_partial, &code);
      if (used < 0) break;
      size_t gone = used > 0 ? (size_t)used : ill_formed(d->partial, d->n_partial);
      if (!(used > 0 ? st_buffer_append(&d->out, d->partial, gone) : st_buffer_append(&d->out, "\xEF\xBF\xBD", 3))) {
        return false;
      }
      d->n_partial -= (uint32_t)gone;
      memmove(d->partial, d->partial + gone, d->n_partial);
      if (!d->n_partial) break;
    }
  }
  return true;
}

setun_status st_decoder_push(st_decoder *d, int32_t id, const char **text, size_t *length, setun_error *err) {
  const char *bytes;
  size_t n;
  setun_status s = st_tokenizer_piece(d->t, id, d->special, &bytes, &n, err);
  if (s) return s;
  d->out.length = 0;
  size_t mark = strlen(d->t->strip);
  if (d->t->strip_marked && !(d->t->flags[id] & ST_PIECE_MARKED) && n) d->strip = 0;
  // SentencePiece removes one mark from each token until there is other text.
  uint32_t most = d->t->sentencepiece ? 1 : d->strip;
  for (uint32_t k = 0; k < most && d->strip && n >= mark && !memcmp(bytes, d->t->strip, mark); k++) {
    bytes += mark, n -= mark, d->strip--;
  }
  if (n) d->strip = 0;
  if (!add_bytes(d, bytes, n)) return st_fail_memory(err, "decoded text");
  d->out.data[d->out.length] = '\0';
  *text = d->out.data;
  *length = d->out.length;
  return SETUN_OK;
}

setun_status st_decoder_finish(st_decoder *d, const char **text, size_t *length, setun_error *err) {
  d->out.length = 0;
  if (d->n_partial && !st_buffer_append(&d->out, "\xEF\xBF\xBD", 3)) return st_fail_memory(err, "decoded text");
  d->n_partial = 0;
  d->strip = d->continues ? 0 : d->t->strip_count;
  d->out.data[d->out.length] = '\0';
  *text = d->out.data;
  *length = d->out.length;
  return SETUN_OK;
}
