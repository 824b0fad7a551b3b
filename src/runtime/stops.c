// Stop texts. The text is scanned byte by byte, so that the pieces do not matter: after each byte, does a stop text end
// here? The text held back is always shorter than the longest stop text.
#include "runtime/stops.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <string.h>

enum { LENGTH_MOST = 1 << 16, STOPS_MOST = 1 << 10 };

typedef struct stop_text {
  char *text;
  size_t length;
} stop_text;

struct st_stops {
  stop_text *items; // [n]
  size_t n;
  st_buffer pending; // held back, after `given` bytes that the last call returned
  size_t given;
  bool found;
};

static setun_status add(st_stops *s, const char *text, setun_error *err) {
  size_t length = text ? strlen(text) : 0;
  if (!length || length > LENGTH_MOST || !st_utf8_valid(text, length)) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "stop text %zu: expected 1 to %d bytes of UTF-8, found %s", s->n,
                   LENGTH_MOST,
                   !text                  ? "NULL"
                   : !length              ? "an empty text"
                   : length > LENGTH_MOST ? "more"
                                          : "others");
  }
  char *copy = st_strndup(text, length);
  if (!copy) return st_fail_memory(err, "stop texts");
  s->items[s->n++] = (stop_text){copy, length};
  return SETUN_OK;
}

setun_status st_stops_new(const char *const *texts, size_t n, st_stops **stops, setun_error *err) {
  if (n > STOPS_MOST) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "stop texts: expected at most %d, found %zu", STOPS_MOST, n);
  }
  st_stops *s = st_calloc(1, sizeof *s);
  if (s && n) s->items = st_calloc(n, sizeof *s->items);
  setun_status status = s && (s->items || !n) ? SETUN_OK : st_fail_memory(err, "stop texts");
  for (size_t i = 0; i < n && status == SETUN_OK; i++) status = add(s, texts[i], err);
  if (status == SETUN_OK) {
    *stops = s;
  } else {
    st_stops_free(s);
  }
  return status;
}

void st_stops_free(st_stops *s) {
  if (!s) return;
  for (size_t i = 0; i < s->n; i++) st_free(s->items[i].text);
  st_free(s->items);
  st_buffer_free(&s->pending);
  st_free(s);
}

// The length of the longest stop text that `bytes` end with; 0: none.
static size_t ending(const st_stops *s, const char *bytes, size_t n) {
  size_t longest = 0;
  for (size_t i = 0; i < s->n; i++) {
    const stop_text *t = &s->items[i];
    if (t->length > n || t->length <= longest || t->text[t->length - 1] != bytes[n - 1]) continue;
    if (!memcmp(bytes + n - t->length, t->text, t->length)) longest = t->length;
  }
  return longest;
}

// The length of the longest suffix of `bytes` that is a prefix of a stop text; none is complete.
static size_t beginning(const st_stops *s, const char *bytes, size_t n) {
  size_t longest = 0;
  for (size_t i = 0; i < s->n; i++) {
    const stop_text *t = &s->items[i];
    for (size_t k = t->length - 1 < n ? t->length - 1 : n; k > longest; k--) {
      if (!memcmp(bytes + n - k, t->text, k)) longest = k;
    }
  }
  return longest;
}

static void drop_given(st_stops *s) {
  size_t left = s->pending.length - s->given;
  if (s->given && left) memmove(s->pending.data, s->pending.data + s->given, left);
  s->pending.length = left;
  s->given = 0;
}

setun_status st_stops_push(st_stops *s, const char *piece, size_t piece_length, const char **text, size_t *length,
                           bool *found, setun_error *err) {
  drop_given(s);
  size_t from = s->pending.length;
  if (!s->found && piece_length) {
    if (!st_buffer_append(&s->pending, piece, piece_length)) return st_fail_memory(err, "text");
    for (size_t i = from; i < s->pending.length && !s->found; i++) {
      size_t stop = ending(s, s->pending.data, i + 1);
      if (!stop) continue;
      s->found = true;
      s->given = i + 1 - stop;
      s->pending.length = s->given;
    }
    if (!s->found) s->given = s->pending.length - beginning(s, s->pending.data, s->pending.length);
  }
  *text = s->given ? s->pending.data : "";
  *length = s->given;
  *found = s->found;
  return SETUN_OK;
}

void st_stops_finish(st_stops *s, const char **text, size_t *length) {
  drop_given(s);
  s->given = s->pending.length;
  s->found = false;
  *text = s->given ? s->pending.data : "";
  *length = s->given;
}
