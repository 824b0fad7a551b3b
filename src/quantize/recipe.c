// Recipes: which tensor gets which format.
#define _POSIX_C_SOURCE 200809L
#include "base/file.h"
#include "base/memory.h"
#include "quantize/quantize.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

enum { RECIPE_MOST = 1 << 20 };

static bool is_scheme(const st_format *f) {
  if (f->gguf_type < 0) return false;
  if (st_format_is_ternary(f)) return f->ops->pack && st_format_holds_all(f) && !f->ops->of_int8_models;
  return f->block > 1 && f->ops->encode && !f->ops->row_head;
}

const st_format *st_scheme_by_name(const char *name) {
  for (int id = 0; id < ST_FORMAT_COUNT; id++) {
    const st_format *f = st_format_get((st_format_id)id);
    const char *other = f->ops->scheme;
    if (is_scheme(f) && (!strcmp(f->name, name) || (other && !strcmp(other, name)))) return f;
  }
  return NULL;
}

const char *st_scheme_name(size_t index) {
  for (int id = 0; id < ST_FORMAT_COUNT; id++) {
    const st_format *f = st_format_get((st_format_id)id);
    if (!is_scheme(f)) continue;
    if (index-- == 0) return f->name;
    if (f->ops->scheme && index-- == 0) return f->ops->scheme;
  }
  return NULL;
}

void st_recipe_free(st_recipe *r) {
  for (size_t i = 0; i < r->n; i++) st_free(r->lines[i].pattern);
  st_free(r->lines);
  *r = (st_recipe){0};
}

static setun_status add(st_recipe *r, const char *pattern, size_t length, const st_format *format, setun_error *err) {
  char *copy = st_strndup(pattern, length);
  if (!copy || !st_reserve(&r->lines, &r->capacity, r->n + 1, sizeof *r->lines)) {
    st_free(copy);
    return st_fail_memory(err, "the recipe");
  }
  r->lines[r->n++] = (st_recipe_line){copy, format};
  return SETUN_OK;
}

setun_status st_recipe_single(const st_format *format, st_recipe *r, setun_error *err) {
  return add(r, "*", 1, format, err);
}

static bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

// Removes the blanks around a text.
static size_t trim(const char **text, size_t n) {
  while (n && is_blank(**text)) ++*text, n--;
  while (n && is_blank((*text)[n - 1])) n--;
  return n;
}

static setun_status read_line(st_recipe *r, const char *line, size_t n, setun_error *err) {
  char word[32];
  const char *comment = memchr(line, '#', n);
  if (comment) n = (size_t)(comment - line);
  n = trim(&line, n);
  if (!n) return SETUN_OK;
  const char *equals = memchr(line, '=', n);
  if (!equals) return st_fail(err, SETUN_ERROR_FORMAT, "expected PATTERN = FORMAT, found no \"=\"");
  const char *value = equals + 1;
  size_t pattern = trim(&line, (size_t)(equals - line)), length = trim(&value, n - (size_t)(value - line));
  snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), value);
  bool keep = !strcmp(word, "keep");
  const st_format *f = keep ? NULL : st_scheme_by_name(word);
  if (!pattern) return st_fail(err, SETUN_ERROR_FORMAT, "expected a pattern before \"=\", found none");
  if (!f && !keep) {
    return st_fail(err, SETUN_ERROR_FORMAT, "expected keep or a format that is quantized to, found \"%s\"", word);
  }
  return add(r, line, pattern, f, err);
}

setun_status st_recipe_load(const char *path, st_recipe *r, setun_error *err) {
  char *text = NULL;
  size_t length = 0, number = 1;
  setun_status s = st_file_load(path, RECIPE_MOST, &text, &length, err);
  if (s != SETUN_OK) return s;
  for (const char *p = text, *end = text + length; p < end && s == SETUN_OK; number++) {
    const char *next = memchr(p, '\n', (size_t)(end - p));
    s = read_line(r, p, (size_t)((next ? next : end) - p), err);
    if (s != SETUN_OK) st_fail_in(err, s, "%s: line %zu", path, number);
    p = next ? next + 1 : end;
  }
  st_free(text);
  if (s == SETUN_OK && !r->n)
    s = st_fail(err, SETUN_ERROR_FORMAT, "%s: expected PATTERN = FORMAT, found no line", path);
  return s;
}

const st_format *st_recipe_format(const st_recipe *r, const char *name) {
  for (size_t i = 0; i < r->n; i++) {
    if (!fnmatch(r->lines[i].pattern, name, 0)) return r->lines[i].format;
  }
  return NULL;
}
