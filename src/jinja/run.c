// Used by every part of a rendering: failures, work counting, memory, and the binding of arguments to parameters.
#include "jinja/run.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool st_jinja_fail(st_jinja_run *run, setun_status status, const char *format, ...) {
  if (run->status != SETUN_OK) return false;
  run->status = status;
  char text[SETUN_ERROR_SIZE];
  va_list args;
  va_start(args, format);
  if (vsnprintf(text, sizeof text, format, args) < 0) text[0] = '\0';
  va_end(args);
  for (char *p = text; *p; p++) {
    if (*p == '\n' || *p == '\r') *p = ' '; // one line
  }
  st_fail(run->err, status, "%s: line %d, column %d: %s", run->name, run->place.line, run->place.column, text);
  return false;
}

bool st_jinja_charge(st_jinja_run *run, uint64_t n) {
  if (run->status != SETUN_OK) return false;
  if (n < run->steps_left) {
    run->steps_left -= n;
    return true;
  }
  run->steps_left = 0;
  return st_jinja_fail(run, SETUN_ERROR_LIMIT, "the template takes too many steps");
}

static void *no_memory(st_jinja_run *run, const st_jinja_arena *arena) {
  if (arena->refused)
    st_jinja_fail(run, SETUN_ERROR_LIMIT, "the template takes more memory than it may");
  else
    st_jinja_fail(run, SETUN_ERROR_MEMORY, "out of memory");
  return NULL;
}

void *st_jinja_allocate(st_jinja_run *run, size_t count, size_t size) {
  size_t bytes;
  if (run->status != SETUN_OK) return NULL;
  void *block = st_mul_size(count, size, &bytes) ? st_jinja_arena_alloc(&run->objects, bytes) : NULL;
  return block ? block : no_memory(run, &run->objects);
}

char *st_jinja_allocate_bytes(st_jinja_run *run, size_t size) {
  if (run->status != SETUN_OK) return NULL;
  char *block = st_jinja_arena_bytes(&run->bytes, size);
  return block ? block : no_memory(run, &run->bytes);
}

bool st_jinja_nest(st_jinja_run *run) {
  if (++run->depth <= JINJA_MAX_DEPTH) return true;
  return st_jinja_fail(run, SETUN_ERROR_LIMIT, "values, expressions and macros nested deeper than %d levels",
                       JINJA_MAX_DEPTH);
}

const char *st_jinja_type_name(st_jinja_value v) {
  switch ((st_jinja_kind)v.kind) {
  case JINJA_MISSING:
  case JINJA_UNDEFINED: return "Undefined";
  case JINJA_NONE: return "NoneType";
  case JINJA_BOOLEAN: return "bool";
  case JINJA_INTEGER: return "int";
  case JINJA_FLOAT: return "float";
  case JINJA_STRING: return v.s->safe ? "Markup" : "str";
  case JINJA_LIST: return "list";
  case JINJA_TUPLE: return "tuple";
  case JINJA_DICT: return "dict";
  case JINJA_NAMESPACE: return "Namespace";
  case JINJA_RANGE: return "range";
  case JINJA_VIEW:
    return v.o->id == JINJA_VIEW_KEYS ? "dict_keys" : v.o->id == JINJA_VIEW_ITEMS ? "dict_items" : "dict_values";
  case JINJA_ITERATOR: return "generator";
  case JINJA_MACRO: return "Macro";
  case JINJA_BUILTIN: return "function";
  case JINJA_METHOD: return "builtin_function_or_method";
  case JINJA_LOOP: return "LoopContext";
  }
  return "object";
}

const char *st_jinja_shorten(const st_jinja_string *s, char buffer[64]) {
  size_t n = s->length;
  if (n > 60) {
    n = 57;
    while (n && ((unsigned char)s->data[n] & 0xC0) == 0x80) n--;
  }
  memcpy(buffer, s->data, n);
  memcpy(buffer + n, s->length > 60 ? "..." : "", s->length > 60 ? 4 : 1);
  return buffer;
}

// The place of `name` among `names`; -1 when it is not one of them.
static int parameter(const char *names, const st_jinja_string *name) {
  for (int i = 0;; i++) {
    size_t n = strcspn(names, ",");
    if (n == name->length && !memcmp(names, name->data, n)) return i;
    if (!names[n]) return -1;
    names += n + 1;
  }
}

bool st_jinja_bind_arguments(st_jinja_run *run, const char *what, const st_jinja_arguments *args, const char *names,
                             size_t required, st_jinja_value *out) {
  size_t count = names[0] ? 1 : 0;
  for (const char *p = names; *p; p++) count += *p == ',';
  for (size_t i = 0; i < count; i++) out[i] = (st_jinja_value){.kind = JINJA_MISSING};
  if (args->n > count)
    return st_jinja_fail_format(run, "%s takes at most %zu arguments, found %zu", what, count, args->n);
  for (size_t i = 0; i < args->n; i++) out[i] = args->items[i];
  for (size_t i = 0; i < args->n_keywords; i++) {
    char shown[64];
    int at = count ? parameter(names, args->keywords[i].name) : -1;
    if (at < 0) {
      return st_jinja_fail_format(run, "%s has no parameter '%s'", what,
                                  st_jinja_shorten(args->keywords[i].name, shown));
    }
    if (out[at].kind != JINJA_MISSING) {
      return st_jinja_fail_format(run, "%s got '%s' twice", what, st_jinja_shorten(args->keywords[i].name, shown));
    }
    out[at] = args->keywords[i].value;
  }
  for (size_t i = 0; i < required; i++) {
    if (out[i].kind == JINJA_MISSING)
      return st_jinja_fail_format(run, "%s needs at least %zu arguments", what, required);
  }
  return true;
}

// ---- names of filters and tests -----------------------------------------------------------------------------------

static const char *name_at(const st_jinja_names *names, size_t i) {
  return *(const char *const *)(const void *)((const char *)names->rows + i * names->row);
}

st_jinja_support st_jinja_find_name(const st_jinja_names *names, const st_jinja_string *name) {
  for (size_t i = 0; i < names->n_rows; i++) {
    if (st_jinja_string_is(name, name_at(names, i))) return JINJA_SUPPORTED;
  }
  for (size_t i = 0; i < names->n_others; i++) {
    if (st_jinja_string_is(name, names->others[i])) return JINJA_UNSUPPORTED;
  }
  return JINJA_UNKNOWN;
}

bool st_jinja_fail_name(st_jinja_run *run, const st_jinja_names *names, const st_jinja_string *name) {
  char shown[64], known[320] = "";
  st_jinja_shorten(name, shown);
  for (size_t i = 0; i < names->n_rows; i++) {
    size_t at = strlen(known);
    snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", name_at(names, i));
  }
  if (st_jinja_find_name(names, name) == JINJA_UNKNOWN) {
    return st_jinja_fail_format(run, "there is no %s '%s'; expected one of %s", names->what, shown, known);
  }
  return st_jinja_fail_unsupported(run, "the %s '%s' is not supported; expected one of %s", names->what, shown, known);
}
