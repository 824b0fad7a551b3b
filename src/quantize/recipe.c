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

static const st_format *scheme_by_name(const char *name) {
  for (int id = 0; id < ST_FORMAT_COUNT; id++) {
    const st_format *f = st_format_get((st_format_id)id);
    const char *other = f->ops->scheme;
    if (is_scheme(f) && (!strcmp(f->name, name) || (other && !strcmp(other, name)))) return f;
  }
  return NULL;
}

// A model's parts in formats of their own. Experts are the tensors with a number (blk.0.ffn_up.7.weight).
static const struct {
  const char *name, *lines;
} presets[] = {
    {"ternary-experts-32", "blk.*.ffn_*.*.weight = ternary\n* = zp2-32\n"},
    {"ternary-experts-64", "blk.*.ffn_*.*.weight = ternary\n* = zp2-64\n"},
    {"ternary-experts-128", "blk.*.ffn_*.*.weight = ternary\n* = zp2-128\n"},
};

enum { PRESETS = sizeof presets / sizeof *presets };

const st_format *st_recipe_embedding(const char *name) {
  bool preset = false;
  for (size_t i = 0; i < PRESETS; i++) preset = preset || !strcmp(presets[i].name, name);
  for (int id = 0; id < ST_FORMAT_COUNT && preset; id++) {
    const st_format *f = st_format_get((st_format_id)id);
    if (f->ops->row_head && f->ops->encode) return f;
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
  if (index < PRESETS) return presets[index].name;
  return NULL;
}

void st_recipe_free(st_recipe *r) {
  for (size_t i = 0; i < r->n; i++) st_free(r->lines[i].pattern);
  st_free(r->lines);
  st_free(r->path);
  *r = (st_recipe){0};
}

static setun_status add(st_recipe *r, const char *pattern, size_t length, const st_format *format, size_t number,
                        setun_error *err) {
  char *copy = st_strndup(pattern, length);
  if (!copy || !st_reserve(&r->lines, &r->capacity, r->n + 1, sizeof *r->lines)) {
    st_free(copy);
    return st_fail_memory(err, "the recipe");
  }
  r->lines[r->n++] = (st_recipe_line){copy, format, number, false};
  return SETUN_OK;
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

static setun_status read_line(st_recipe *r, const char *line, size_t n, size_t number, setun_error *err) {
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
  const st_format *f = keep ? NULL : scheme_by_name(word);
  if (!pattern) return st_fail(err, SETUN_ERROR_FORMAT, "expected a pattern before \"=\", found none");
  if (!f && !keep) {
    return st_fail(err, SETUN_ERROR_FORMAT, "expected keep or a format that is quantized to, found \"%s\"", word);
  }
  return add(r, line, pattern, f, number, err);
}

static setun_status read_lines(st_recipe *r, const char *text, size_t length, setun_error *err) {
  size_t number = 1;
  for (const char *p = text, *end = text + length; p < end; number++) {
    const char *next = memchr(p, '\n', (size_t)(end - p));
    setun_status s = read_line(r, p, (size_t)((next ? next : end) - p), number, err);
    if (s != SETUN_OK) return st_fail_in(err, s, "line %zu", number);
    p = next ? next + 1 : end;
  }
  return r->n ? SETUN_OK : st_fail(err, SETUN_ERROR_FORMAT, "expected PATTERN = FORMAT, found no line");
}

setun_status st_recipe_load(const char *path, st_recipe *r, setun_error *err) {
  char *text = NULL;
  size_t length = 0;
  setun_status s = st_file_load(path, RECIPE_MOST, &text, &length, err);
  if (s != SETUN_OK) return s;
  r->path = st_strdup(path);
  s = r->path ? read_lines(r, text, length, err) : st_fail_memory(err, "the recipe");
  st_free(text);
  return s == SETUN_OK ? s : st_fail_in(err, s, "%s", path);
}

setun_status st_recipe_named(const char *name, st_recipe *r, setun_error *err) {
  for (size_t i = 0; i < PRESETS; i++) {
    if (!strcmp(presets[i].name, name)) return read_lines(r, presets[i].lines, strlen(presets[i].lines), err);
  }
  const st_format *f = scheme_by_name(name);
  if (f) return add(r, "*", 1, f, 1, err);
  return st_fail(err, SETUN_ERROR_ARGUMENT,
                 "scheme: expected a format that is quantized to, such as q4_k or zp4-64, found \"%.40s\"", name);
}

static st_recipe_line *line_of(const st_recipe *r, const char *name) {
  for (size_t i = 0; i < r->n; i++) {
    if (!fnmatch(r->lines[i].pattern, name, 0)) return &r->lines[i];
  }
  return NULL;
}

const st_format *st_recipe_format(st_recipe *r, const char *name) {
  st_recipe_line *line = line_of(r, name);
  if (line) line->matched = true;
  return line ? line->format : NULL;
}

bool st_recipe_origin(const st_recipe *r, const char *name, char *text, size_t size) {
  const st_recipe_line *line = r->path ? line_of(r, name) : NULL;
  if (line) snprintf(text, size, "%s: line %zu", r->path, line->number);
  return line;
}

setun_status st_recipe_check(const st_recipe *r, setun_error *err) {
  for (size_t i = 0; i < r->n && r->path; i++) {
    if (r->lines[i].matched) continue;
    return st_fail(
        err, SETUN_ERROR_FORMAT,
        "%s: line %zu: \"%s\" is the pattern of no matrix of a layer, or of those that lines before it match", r->path,
        r->lines[i].number, r->lines[i].pattern);
  }
  return SETUN_OK;
}
