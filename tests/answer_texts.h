// Random answers that a constraint allows, and the calls of tools that are read out of them.
#ifndef SETUN_TESTS_ANSWER_TEXTS_H
#define SETUN_TESTS_ANSWER_TEXTS_H

#include "base/random.h"
#include "chat/channels.h"
#include "chat/tool_calls.h"
#include "constraint/constraint.h"
#include "runtime/answer_grammar.h"

#include <stdlib.h>
#include <string.h>

// One piece of an answer: a control token's text, or plain text.
typedef struct answer_piece {
  char *text;
  size_t length;
  bool control;
} answer_piece;

enum { ANSWER_PIECES = 2000 };

typedef struct answer_text {
  answer_piece pieces[ANSWER_PIECES];
  size_t n;
} answer_text;

static inline void answer_clear(answer_text *a) {
  for (size_t i = 0; i < a->n; i++) free(a->pieces[i].text);
  a->n = 0;
}

static inline bool answer_add_text(answer_text *a, const char *text, size_t length) {
  answer_piece *last = a->n ? &a->pieces[a->n - 1] : NULL;
  if (!last || last->control) {
    if (a->n == ANSWER_PIECES) return false;
    last = &a->pieces[a->n++];
    *last = (answer_piece){0};
  }
  last->text = realloc(last->text, last->length + length + 1);
  memcpy(last->text + last->length, text, length);
  last->length += length;
  last->text[last->length] = 0;
  return true;
}

// The bytes of a token as an answer has them.
static inline bool answer_add(answer_text *a, const st_tokenizer *t, int32_t id) {
  const char *bytes = "";
  st_text text = {0};
  bool control = st_tokenizer_is_control(t, id);
  if (control ? st_tokenizer_text(t, id, &text, NULL) : st_tokenizer_piece(t, id, false, &bytes, &text.length, NULL))
    return false;
  if (!control) return answer_add_text(a, bytes, text.length);
  if (a->n == ANSWER_PIECES) return false;
  answer_piece *last = &a->pieces[a->n++];
  *last = (answer_piece){malloc(text.length + 1), text.length, true};
  memcpy(last->text, text.data, text.length);
  last->text[text.length] = 0;
  return true;
}

// Any token of the mask, each as likely as another, as for a model that knows nothing.
static inline int32_t answer_choose(const uint32_t *mask, uint32_t n, st_random *random) {
  uint64_t count = 0;
  int32_t chosen = -1;
  for (uint32_t id = 0; id < n; id++) {
    if (mask[id / 32] >> id % 32 & 1 && st_random_u64(random) % ++count == 0) chosen = (int32_t)id;
  }
  return chosen;
}

// Writes one of the texts (or control tokens), the last of which is NULL, that close something: the first that may
// come from a random one on.
static inline bool answer_close(st_matcher *m, const st_tokenizer *t, const char *const *closers, st_random *random,
                                answer_text *a) {
  size_t count = 0;
  while (closers[count]) count++;
  size_t from = st_random_u64(random) % count;
  for (size_t i = 0; i < count; i++) {
    const char *text = closers[(from + i) % count];
    size_t n = strlen(text);
    int32_t id = st_tokenizer_find(t, text, n);
    if (id >= 0 && st_tokenizer_is_control(t, id)) {
      if (st_matcher_accept(m, id, NULL) == SETUN_OK) return answer_add(a, t, id);
    } else if (st_matcher_accept_bytes(m, text, n, NULL) == SETUN_OK) {
      return answer_add_text(a, text, n);
    }
  }
  return false;
}

// An answer of random tokens, which after a while closes what it can close. False: it did not end in time, or failed
// with *err.
static inline bool answer_sample(st_constraint *c, const st_tokenizer *t, const char *const *closers, st_random *random,
                                 answer_text *a, setun_error *err) {
  enum { BEFORE_ENDING = 40, TOKENS = 1000 };
  uint32_t n = st_tokenizer_size(t);
  size_t words = st_mask_words(n);
  uint32_t *mask = malloc(words * sizeof *mask);
  st_matcher *m = NULL;
  bool ended = false, fine = mask && st_matcher_new(c, &m, err) == SETUN_OK;
  answer_clear(a);
  *err = (setun_error){0};
  for (int i = 0; fine && !ended && i < TOKENS; i++) {
    if (i >= BEFORE_ENDING && (st_matcher_may_end(m) || answer_close(m, t, closers, random, a))) {
      ended = st_matcher_may_end(m);
      continue;
    }
    if (st_matcher_mask(m, mask, words, err)) break;
    int32_t id = answer_choose(mask, n, random);
    ended = id >= 0 && st_tokenizer_is_end(t, id);
    if (!ended) fine = id >= 0 && answer_add(a, t, id) && st_matcher_accept(m, id, err) == SETUN_OK;
  }
  st_matcher_free(m);
  free(mask);
  return ended;
}

// ---- reading ----

enum { ANSWER_CALLS = 256 };

// What a reader of calls gave: the calls, and any text beside them.
typedef struct answer_calls {
  st_buffer names[ANSWER_CALLS], arguments[ANSWER_CALLS], content;
  size_t n;
} answer_calls;

static inline void answer_calls_free(answer_calls *r) {
  for (size_t i = 0; i < r->n; i++) st_buffer_free(&r->names[i]), st_buffer_free(&r->arguments[i]);
  st_buffer_free(&r->content);
  r->n = 0;
}

static inline bool answer_take(setun_channel channel, const char *text, size_t length, void *user) {
  answer_calls *r = user;
  if (channel == SETUN_CHANNEL_CALL_NAME)
    return r->n < ANSWER_CALLS && (r->n++, st_buffer_append(&r->names[r->n - 1], text, length)) &&
           st_buffer_append(&r->arguments[r->n - 1], "", 0);
  if (channel == SETUN_CHANNEL_CALL) return r->n && st_buffer_append(&r->arguments[r->n - 1], text, length);
  return st_buffer_append(&r->content, text, length);
}

typedef struct answer_reader {
  st_channels channels; // Harmony's messages
  st_calls *calls;
  answer_calls *out;
} answer_reader;

static inline bool answer_route(setun_channel channel, const char *text, size_t length, void *user) {
  answer_reader *r = user;
  st_calls *c = r->calls;
  setun_status s = SETUN_OK;
  if (channel != SETUN_CHANNEL_CALL && c->open) s = st_calls_message_end(c, answer_take, r->out, NULL);
  if (s != SETUN_OK) return false;
  if (channel == SETUN_CHANNEL_CALL_NAME) return !st_calls_message(c, text, length, answer_take, r->out, NULL);
  if (channel == SETUN_CHANNEL_CALL) return !st_calls_message_text(c, text, length, answer_take, r->out, NULL);
  return !st_calls_text(c, text, length, answer_take, r->out, NULL);
}

static inline bool answer_push(answer_reader *r, const char *text, size_t length, bool control) {
  if (r->calls->format->syntax == ST_TOOLS_HARMONY)
    return !(control ? st_channels_control : st_channels_text)(&r->channels, text, length, answer_route, r, NULL);
  if (!control) return !st_calls_text(r->calls, text, length, answer_take, r->out, NULL);
  return !st_calls_takes(r->calls, text, length) ||
         !st_calls_control(r->calls, text, length, answer_take, r->out, NULL);
}

// Reads an answer whose text is cut at byte `cut`, or everywhere with SIZE_MAX.
static inline bool answer_read(const answer_text *a, st_calls *c, size_t cut, answer_calls *out) {
  static const char header[] = "<|start|>assistant";
  answer_reader r = {.calls = c, .out = out};
  size_t at = 0;
  bool fine = true;
  st_channels_begin(&r.channels, header, sizeof header - 1);
  for (size_t i = 0; fine && i < a->n; i++) {
    const answer_piece *p = &a->pieces[i];
    if (p->control) fine = answer_push(&r, p->text, p->length, true);
    for (size_t k = 0; fine && !p->control && k < p->length;) {
      size_t n = cut == SIZE_MAX ? 1 : at + k < cut && cut < at + p->length ? cut - at - k : p->length - k;
      fine = answer_push(&r, p->text + k, n, false);
      k += n;
    }
    at += p->control ? 0 : p->length;
  }
  if (c->format->syntax == ST_TOOLS_HARMONY) fine = fine && !st_channels_finish(&r.channels, answer_route, &r, NULL);
  st_channels_free(&r.channels);
  return fine && st_calls_finish(c, answer_take, out, NULL) == SETUN_OK;
}

#endif
