// Operations of Python's strings: stripping, splitting, replacing, joining, indenting.
#include "base/utf8.h"
#include "jinja/run.h"

#include <string.h>

bool st_jinja_is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// The character at byte `at`; returns its length.
static size_t char_at(const st_jinja_string *s, size_t at, uint32_t *code) {
  int n = st_utf8_decode(s->data + at, s->length - at, code);
  return n > 0 ? (size_t)n : 1;
}

static size_t char_before(const st_jinja_string *s, size_t end, uint32_t *code) {
  size_t p = end - 1;
  while (p > 0 && ((unsigned char)s->data[p] & 0xC0) == 0x80) p--;
  char_at(s, p, code);
  return end - p;
}

// ---- strip ----

static bool in_set(const st_jinja_string *set, uint32_t code) {
  if (!set) return st_jinja_is_space(code);
  for (size_t i = 0; i < set->length;) {
    uint32_t c;
    i += char_at(set, i, &c);
    if (c == code) return true;
  }
  return false;
}

bool st_jinja_strip_text(st_jinja_run *run, st_jinja_string *s, const st_jinja_string *set, int sides,
                         st_jinja_value *out) {
  size_t begin = 0, end = s->length;
  uint32_t code;
  uint64_t cost = set ? set->length / 16 + 1 : 1;
  while ((sides & JINJA_STRIP_LEFT) && begin < end) {
    size_t n = char_at(s, begin, &code);
    if (!in_set(set, code)) break;
    if (!st_jinja_charge(run, cost)) return false;
    begin += n;
  }
  while ((sides & JINJA_STRIP_RIGHT) && begin < end) {
    size_t n = char_before(s, end, &code);
    if (!in_set(set, code)) break;
    if (!st_jinja_charge(run, cost)) return false;
    end -= n;
  }
  return st_jinja_substring(run, s, begin, end, out);
}

// ---- replace ----

bool st_jinja_replace_text(st_jinja_run *run, const st_jinja_string *s, const st_jinja_string *old,
                           const st_jinja_string *with, int64_t count, st_jinja_value *out) {
  st_jinja_builder b = {0};
  size_t at = 0;
  if (!old->length) { // before every character and at the end
    uint32_t code;
    for (; count != 0; count -= count > 0) {
      if (!st_jinja_charge(run, 1) || !st_jinja_put_all(run, &b, with)) return false;
      if (at >= s->length) break;
      size_t n = char_at(s, at, &code);
      if (!st_jinja_put_part(run, &b, s, at, at + n)) return false;
      at += n;
    }
  } else {
    for (; count != 0; count -= count > 0) {
      size_t hit = st_jinja_find_text(run, s, old, at);
      if (hit == SIZE_MAX) break;
      if (!st_jinja_charge(run, 1) || !st_jinja_put_part(run, &b, s, at, hit) || !st_jinja_put_all(run, &b, with))
        return false;
      at = hit + old->length;
    }
  }
  return st_jinja_put_part(run, &b, s, at, s->length) && st_jinja_finish(run, &b, false, out);
}

// ---- split ----

static bool append_part(st_jinja_run *run, st_jinja_list *list, const st_jinja_string *s, size_t begin, size_t end) {
  st_jinja_value part;
  return st_jinja_charge(run, 2) && st_jinja_substring(run, s, begin, end, &part) &&
         st_jinja_list_append(run, list, part);
}

static bool split_space(st_jinja_run *run, const st_jinja_string *s, int64_t most, st_jinja_list *list) {
  size_t p = 0;
  uint32_t code;
  for (;;) {
    while (p < s->length) {
      size_t n = char_at(s, p, &code);
      if (!st_jinja_is_space(code)) break;
      p += n;
    }
    if (p >= s->length) return st_jinja_charge(run, s->length / 64);
    size_t begin = p;
    if (most == 0) { // the rest is one part; trailing white space is removed
      st_jinja_value rest;
      if (!st_jinja_substring(run, s, begin, s->length, &rest)) return false;
      return st_jinja_strip_text(run, rest.s, NULL, JINJA_STRIP_RIGHT, &rest) && st_jinja_list_append(run, list, rest);
    }
    while (p < s->length) {
      size_t n = char_at(s, p, &code);
      if (st_jinja_is_space(code)) break;
      p += n;
    }
    if (!append_part(run, list, s, begin, p)) return false;
    most -= most > 0;
  }
}

bool st_jinja_split_text(st_jinja_run *run, st_jinja_string *s, const st_jinja_string *by, int64_t most,
                         st_jinja_value *out) {
  if (!st_jinja_new_list(run, JINJA_LIST, 0, out)) return false;
  st_jinja_list *list = out->l;
  if (by && !by->length) return st_jinja_fail_format(run, "split with an empty separator");
  if (!by) return split_space(run, s, most, list);
  size_t at = 0;
  for (; most != 0; most -= most > 0) {
    size_t hit = st_jinja_find_text(run, s, by, at);
    if (hit == SIZE_MAX) break;
    if (!append_part(run, list, s, at, hit)) return false;
    at = hit + by->length;
  }
  return append_part(run, list, s, at, s->length);
}

static bool ends_line(uint32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

static bool splitlines(st_jinja_run *run, st_jinja_string *s, st_jinja_value *out) {
  if (!st_jinja_new_list(run, JINJA_LIST, 0, out)) return false;
  size_t begin = 0;
  for (size_t p = 0; p < s->length;) {
    uint32_t code;
    size_t n = char_at(s, p, &code), end = p;
    p += n;
    if (!ends_line(code)) continue;
    if (code == '\r' && p < s->length && s->data[p] == '\n') p++;
    if (!append_part(run, out->l, s, begin, end)) return false;
    begin = p;
  }
  return st_jinja_charge(run, s->length / 64) && (begin == s->length || append_part(run, out->l, s, begin, s->length));
}

// ---- join, indent ----

bool st_jinja_join_items(st_jinja_run *run, const st_jinja_string *by, st_jinja_value items, st_jinja_value *out) {
  st_jinja_iterator *it;
  st_jinja_builder b = {0};
  st_jinja_value item;
  st_jinja_step next;
  if (!st_jinja_iterate(run, items, &it)) return false;
  for (size_t i = 0; (next = st_jinja_next(run, it, &item)) == JINJA_ITEM; i++) {
    if ((i && !st_jinja_put_all(run, &b, by)) || !st_jinja_put_value(run, &b, item)) return false;
  }
  return next == JINJA_END && st_jinja_finish(run, &b, false, out);
}

bool st_jinja_indent_text(st_jinja_run *run, st_jinja_string *s, const st_jinja_string *by, bool first, bool blank,
                          st_jinja_value *out) {
  // Jinja adds a newline before it splits, so that a last empty line counts.
  st_jinja_builder more = {0}, b = {0};
  st_jinja_value text, lines;
  if (!st_jinja_put_all(run, &more, s) || !st_jinja_put_text(run, &more, "\n") ||
      !st_jinja_finish(run, &more, false, &text))
    return false;
  if (!splitlines(run, text.s, &lines)) return false;
  if (first && !st_jinja_put_all(run, &b, by)) return false;
  for (size_t i = 0; i < lines.l->n; i++) {
    const st_jinja_string *line = lines.l->items[i].s;
    if (i && !st_jinja_put_text(run, &b, "\n")) return false;
    if (i && (blank || line->length) && !st_jinja_put_all(run, &b, by)) return false;
    if (!st_jinja_put_all(run, &b, line)) return false;
  }
  return st_jinja_finish(run, &b, s->safe, out);
}
