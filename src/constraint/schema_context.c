// The memory of a compilation, and its first failure.
#include "constraint/schema_context.h"
#include "constraint/terms_table.h"

#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK_BYTES = 64 << 10 };

struct st_schema_chunk {
  st_schema_chunk *next;
  size_t used, size;
  max_align_t data[];
};

void st_schema_fail_memory(st_schema *s) {
  if (!s->status) s->status = st_fail_memory(s->err, "a schema");
}

static void fail_terms(st_schema *s) {
  setun_error failure;
  setun_status status = st_grammar_status(s->grammar, &failure);
  st_schema_fail(s, status, s->at, NULL, "%s", failure.message);
}

void *st_schema_alloc(st_schema *s, size_t count, size_t size) {
  size_t bytes;
  st_terms *t = st_grammar_terms(s->grammar);
  if (!st_mul_size(count, size, &bytes) || !st_add_size(bytes, sizeof(max_align_t) - 1, &bytes)) {
    st_schema_fail_memory(s);
    return NULL;
  }
  bytes -= bytes % sizeof(max_align_t);
  if (!st_terms_work(t, 1)) return fail_terms(s), NULL;
  st_schema_chunk *c = s->chunks;
  if (!c || c->size - c->used < bytes) {
    size_t room = bytes > CHUNK_BYTES / 4 ? bytes : CHUNK_BYTES;
    s->memory += room;
    if (!st_terms_charge(t, room)) return fail_terms(s), NULL;
    c = st_calloc(1, sizeof *c + room);
    if (!c) {
      st_schema_fail_memory(s);
      return NULL;
    }
    c->size = room;
    c->next = s->chunks;
    s->chunks = c;
  }
  void *p = (char *)c->data + c->used;
  c->used += bytes;
  return p;
}

char *st_schema_text(st_schema *s, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(NULL, 0, format, args);
  va_end(args);
  char *text = n < 0 ? NULL : st_schema_alloc(s, (size_t)n + 1, 1);
  if (!text) return NULL;
  va_start(args, format);
  vsnprintf(text, (size_t)n + 1, format, args);
  va_end(args);
  return text;
}

void st_schema_release(st_schema *s) {
  st_terms_discharge(st_grammar_terms(s->grammar), s->memory);
  for (st_schema_chunk *c = s->chunks, *next; c; c = next) {
    next = c->next;
    st_free(c);
  }
  st_json_free(s->root);
  st_free(s->nodes);
  st_free(s->resources);
  st_map_free(s->node_of);
  st_map_free(s->places);
  st_map_free(s->repeated);
  st_map_free(s->dynamics);
  st_free(s->scopes);
  st_free(s->exprs);
  st_free(s->memos);
  st_free(s->slots);
}

void st_schema_fail(st_schema *s, setun_status status, uint32_t node, const char *keyword, const char *format, ...) {
  if (s->status) return;
  char what[400];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  const char *path = node < s->n_nodes && s->nodes[node].path ? s->nodes[node].path : "";
  s->status = st_fail(s->err, status, "schema: #%s%s%s: %s", path, keyword ? "/" : "", keyword ? keyword : "", what);
}

void st_schema_refuse(st_schema *s, uint32_t node, const char *keyword, const char *why) {
  st_schema_fail(s, SETUN_ERROR_UNSUPPORTED, node, keyword, "%s", why);
}
