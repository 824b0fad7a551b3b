// Recipes: which tensor gets which format.
#define _POSIX_C_SOURCE 200809L
#include "base/file.h"
#include "base/memory.h"
#include "quant/fit.h"
#include "quantize/calibrate.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RECIPE_MOST = 1 << 20 };

bool st_format_is_scheme(const st_format *f) {
  return !st_format_is_ternary(f) && f->block > 1 && f->ops->encode && f->gguf_type >= 0;
}

const st_format *st_scheme_by_name(const char *name) {
  const st_format *f = st_format_by_name(name);
  return f && st_format_is_scheme(f) ? f : NULL;
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

// ---- rounding -----------------------------------------------------------------------------------------------------

const st_format *st_recipe_format(const st_recipe *r, const char *name) {
  for (size_t i = 0; i < r->n; i++) {
    if (!fnmatch(r->lines[i].pattern, name, 0)) return r->lines[i].format;
  }
  return NULL;
}

static const st_format *format_of(void *context, const char *name, st_shape shape) {
  (void)shape;
  return st_recipe_format(((const st_rounding *)context)->recipe, name);
}

typedef struct {
  const st_format *format;
  uint64_t rows, columns, row_bytes;
  const float *x;
  uint8_t *bytes;
} encode_job;

static void encode_part(void *context, int index, int threads) {
  const encode_job *j = context;
  size_t first, last;
  st_pool_share((size_t)j->rows, 1, index, threads, &first, &last);
  if (first == last) return;
  st_fit_rows(j->format, last - first, j->columns, j->x + first * j->columns, NULL, j->bytes + first * j->row_bytes);
}

static setun_status encode(void *context, const char *name, st_shape shape, const st_format *format, uint64_t row,
                           uint64_t count, const float *x, void *bytes, setun_error *err) {
  const st_rounding *r = context;
  bool found = false;
  setun_status s = SETUN_OK;
  if (r->calibrated) s = st_calibrated_rows(r->calibrated, name, row, count, bytes, &found, err);
  if (s != SETUN_OK || found) return s;
  encode_job j = {format, count, shape.columns, st_format_row_bytes(format, shape.columns), x, bytes};
  st_pool_run(r->pool, encode_part, &j);
  return SETUN_OK;
}

st_quantizer st_rounding_quantizer(st_rounding *rounding) {
  return (st_quantizer){.context = rounding, .format = format_of, .encode = encode};
}
