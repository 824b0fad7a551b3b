// Compiling a template's text and rendering it with a context.
#define _POSIX_C_SOURCE 200809L
#include "jinja/template.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "jinja/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
  MAX_TEXT = 4 << 20,
};

// ---- compiling ----

static bool report(st_jinja_compiler *c, setun_status status, st_jinja_place place, const char *format, va_list args) {
  char text[SETUN_ERROR_SIZE];
  if (c->status != SETUN_OK) return false;
  if (vsnprintf(text, sizeof text, format, args) < 0) text[0] = '\0';
  for (char *p = text; *p; p++) {
    if (*p == '\n' || *p == '\r') *p = ' ';
  }
  c->status = st_fail(c->err, status, "%s: line %d, column %d: %s", c->name, place.line, place.column, text);
  return false;
}

bool st_jinja_syntax_error(st_jinja_compiler *c, st_jinja_place place, const char *format, ...) {
  va_list args;
  va_start(args, format);
  report(c, SETUN_ERROR_FORMAT, place, format, args);
  va_end(args);
  return false;
}

bool st_jinja_unsupported_syntax(st_jinja_compiler *c, st_jinja_place place, const char *format, ...) {
  va_list args;
  va_start(args, format);
  report(c, SETUN_ERROR_UNSUPPORTED, place, format, args);
  va_end(args);
  return false;
}

void *st_jinja_compile_allocate(st_jinja_compiler *c, size_t count, size_t size) {
  size_t bytes;
  if (c->status != SETUN_OK) return NULL;
  void *block = st_mul_size(count, size, &bytes) ? st_jinja_arena_alloc(c->arena, bytes) : NULL;
  if (!block) c->status = st_fail_memory(c->err, "a compiled template");
  return block;
}

void *st_jinja_compile_room(st_jinja_compiler *c, void *items, size_t n, size_t *capacity, size_t size, size_t first) {
  if (n < *capacity) return items;
  size_t wanted = *capacity ? *capacity * 2 : first;
  void *grown = st_jinja_compile_allocate(c, wanted, size);
  if (!grown) return NULL;
  if (n) memcpy(grown, items, n * size);
  *capacity = wanted;
  return grown;
}

bool st_jinja_add_node(st_jinja_compiler *c, st_jinja_nodes *list, st_jinja_node *node) {
  st_jinja_node **items = st_jinja_compile_room(c, list->items, list->n, &list->capacity, sizeof *items, 2);
  if (!items) return false;
  list->items = items;
  list->items[list->n++] = node;
  return true;
}

setun_status st_template_compile(const char *text, size_t length, const char *name, st_template **out,
                                 setun_error *err) {
  if (length > MAX_TEXT) {
    return st_fail(err, SETUN_ERROR_LIMIT, "%s: a template of %zu bytes, at most %d are read", name, length, MAX_TEXT);
  }
  if (!st_utf8_valid(text, length)) return st_fail(err, SETUN_ERROR_FORMAT, "%s: the template is not UTF-8", name);
  st_template *t = st_calloc(1, sizeof *t);
  if (!t) return st_fail_memory(err, "a template");
  // A node takes about 600 bytes, but only a few bytes of the template.
  t->arena.limit = (size_t)1 << 30;
  st_jinja_compiler c = {.arena = &t->arena, .name = name, .err = err, .steps_left = 20000000};
  st_jinja_tokens tokens = {0};
  st_jinja_string *copy;
  bool ok = st_jinja_new_literal(&c, name, strlen(name), &copy) && st_jinja_tokenize(&c, text, length, &tokens) &&
            st_jinja_parse(&c, &tokens, &t->body) && st_jinja_resolve(&c, t);
  if (!ok) {
    setun_status status = c.status != SETUN_OK ? c.status : st_fail(err, SETUN_ERROR_STATE, "%s: not compiled", name);
    st_template_free(t);
    return status;
  }
  t->name = copy->data;
  *out = t;
  return SETUN_OK;
}

void st_template_free(st_template *t) {
  if (!t) return;
  st_jinja_arena_free(&t->arena);
  st_free(t);
}

// ---- the context ----

static bool convert(st_jinja_run *run, const st_json *json, bool trusted, st_jinja_value *out);

static bool convert_array(st_jinja_run *run, const st_json *json, bool trusted, st_jinja_value *out) {
  st_jinja_value item;
  if (!st_jinja_new_list(run, JINJA_LIST, st_json_size(json), out)) return false;
  for (size_t i = 0; i < st_json_size(json); i++) {
    if (!convert(run, st_json_at(json, i), trusted, &item) || !st_jinja_list_append(run, out->l, item)) return false;
  }
  return true;
}

static bool convert_object(st_jinja_run *run, const st_json *json, bool trusted, st_jinja_value *out) {
  st_jinja_value item, key;
  st_jinja_taint taint = trusted ? JINJA_CLEAN : JINJA_TAINTED;
  if (!st_jinja_new_dict(run, JINJA_DICT, out)) return false;
  for (size_t i = 0; i < st_json_members(json); i++) {
    const st_json_member *m = st_json_member_at(json, i);
    if (!st_jinja_new_string(run, m->key, m->length, taint, &key) || !convert(run, &m->value, trusted, &item) ||
        !st_jinja_dict_set(run, out->d, key, item))
      return false;
  }
  return true;
}

static bool convert(st_jinja_run *run, const st_json *json, bool trusted, st_jinja_value *out) {
  st_jinja_taint taint = trusted ? JINJA_CLEAN : JINJA_TAINTED;
  switch ((st_json_type_id)json->type) {
  case ST_JSON_NULL: *out = st_jinja_none(); return true;
  case ST_JSON_TRUE:
  case ST_JSON_FALSE: *out = st_jinja_from_bool(st_json_is(json, ST_JSON_TRUE)); return true;
  case ST_JSON_INTEGER: *out = st_jinja_from_int(json->as.integer); return true;
  case ST_JSON_REAL: *out = st_jinja_from_float(json->as.real); return true;
  case ST_JSON_STRING: return st_jinja_new_string(run, st_json_string(json), st_json_length(json), taint, out);
  case ST_JSON_ARRAY:
  case ST_JSON_OBJECT: break;
  }
  if (!st_jinja_nest(run)) return false;
  bool ok = st_json_is_array(json) ? convert_array(run, json, trusted, out) : convert_object(run, json, trusted, out);
  run->depth--;
  return ok;
}

static bool is_trusted(const st_template_options *options, const char *name) {
  static const char *const usual[] = {"bos_token", "eos_token", "unk_token",  "pad_token",
                                      "sep_token", "cls_token", "mask_token", NULL};
  for (const char *const *p = options->trusted ? options->trusted : usual; *p; p++) {
    if (!strcmp(*p, name)) return true;
  }
  return false;
}

static bool convert_context(st_jinja_run *run, const st_json *json, const st_template_options *options) {
  st_jinja_value context, key, item;
  if (!st_jinja_new_dict(run, JINJA_DICT, &context)) return false;
  run->context = context.d;
  for (size_t i = 0; i < st_json_members(json); i++) {
    const st_json_member *m = st_json_member_at(json, i);
    if (!st_jinja_new_string(run, m->key, m->length, JINJA_CLEAN, &key) ||
        !convert(run, &m->value, is_trusted(options, m->key), &item) || !st_jinja_dict_set(run, context.d, key, item))
      return false;
  }
  return true;
}

// ---- rendering ----

static st_template_time local_time(void) {
  struct timespec now = {0};
  struct tm tm = {.tm_year = 70, .tm_mday = 1};
  clock_gettime(CLOCK_REALTIME, &now);
  localtime_r(&now.tv_sec, &tm);
  return (st_template_time){tm.tm_year + 1900,        tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                            (int)(now.tv_nsec / 1000)};
}

void st_template_spans_free(st_template_spans *spans) {
  st_free(spans->items);
  *spans = (st_template_spans){0};
}

static bool hand_over(st_jinja_run *run, const st_jinja_builder *text, st_buffer *out, st_template_spans *spans) {
  st_template_span *items = NULL;
  if (spans && text->n_spans) {
    items = st_malloc(text->n_spans, sizeof *items);
    if (!items) return st_jinja_fail(run, SETUN_ERROR_MEMORY, "out of memory for the text");
    for (size_t i = 0; i < text->n_spans; i++) items[i] = (st_template_span){text->spans[i].begin, text->spans[i].end};
  }
  if (!st_buffer_append(out, text->data ? text->data : "", text->length)) {
    st_free(items);
    return st_jinja_fail(run, SETUN_ERROR_MEMORY, "out of memory for the text");
  }
  if (spans) *spans = (st_template_spans){items, text->n_spans};
  return true;
}

setun_status st_template_render(const st_template *t, const st_json *context, const st_template_options *options,
                                st_buffer *out, st_template_spans *spans, setun_error *err) {
  static const st_template_options defaults = {0};
  if (!options) options = &defaults;
  if (!st_json_is_object(context))
    return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: the context is not an object", t->name);
  size_t memory = options->max_memory ? options->max_memory : (size_t)512 << 20;
  st_jinja_builder text = {0};
  st_jinja_run run = {.objects.limit = memory / 2,
                      .bytes.limit = memory / 2,
                      .steps_left = options->max_steps ? options->max_steps : 50000000,
                      .max_output = options->max_output ? options->max_output : (size_t)64 << 20,
                      .place = {1, 1},
                      .name = t->name,
                      .err = err,
                      .out = &text,
                      .now = options->now ? *options->now : local_time()};
  if (convert_context(&run, context, options)) {
    st_jinja_variables *env = st_jinja_new_variables(&run, NULL, t->n_slots);
    if (env) {
      st_jinja_enter_scope(&run, env, t->scope);
      st_jinja_execute(&run, env, &t->body);
    }
  }
  if (run.status == SETUN_OK) hand_over(&run, &text, out, spans);
  st_jinja_arena_free(&run.objects);
  st_jinja_arena_free(&run.bytes);
  return run.status;
}
