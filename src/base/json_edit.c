// Making JSON documents and editing them.
#include "base/json_document.h"

#include "base/utf8.h"

#include <math.h>
#include <string.h>

static st_json_document *document_of(st_json *root) {
  return (st_json_document *)root;
}

st_json *st_json_new(void) {
  st_json_document *d = st_json_document_new(0);
  if (!d) return NULL;
  d->root = st_json_make_object();
  return &d->root;
}

bool st_json_failed(st_json *root) {
  bool failed = document_of(root)->failed;
  document_of(root)->failed = false;
  return failed;
}

// ---- values ----

st_json st_json_make_null(void) {
  return (st_json){.type = ST_JSON_NULL};
}

st_json st_json_make_bool(bool value) {
  return (st_json){.type = value ? ST_JSON_TRUE : ST_JSON_FALSE};
}

st_json st_json_make_integer(int64_t value) {
  return (st_json){.type = ST_JSON_INTEGER, .as.integer = value};
}

st_json st_json_make_real(st_json *root, double value) {
  if (!isfinite(value)) document_of(root)->failed = true;
  return (st_json){.type = ST_JSON_REAL, .as.real = value};
}

static const char *copy_text(st_json_document *d, const char *text, size_t length) {
  char *copy = length < UINT32_MAX && st_utf8_valid(text, length) ? st_json_take(d, length + 1, false) : NULL;
  if (!copy) {
    d->failed = true;
    return NULL;
  }
  if (length) memcpy(copy, text, length);
  copy[length] = '\0';
  return copy;
}

st_json st_json_make_string(st_json *root, const char *text, size_t length) {
  const char *copy = copy_text(document_of(root), text, length);
  return copy ? (st_json){.type = ST_JSON_STRING, .count = (uint32_t)length, .as.text = copy} : (st_json){0};
}

st_json st_json_make_text(st_json *root, const char *text) {
  return st_json_make_string(root, text, strlen(text));
}

st_json st_json_make_array(void) {
  return (st_json){.type = ST_JSON_ARRAY};
}

st_json st_json_make_object(void) {
  return (st_json){.type = ST_JSON_OBJECT};
}

st_json st_json_copy_of(st_json *root, const st_json *value) {
  if (!value) return (st_json){0};
  st_json copy = *value;
  if (st_json_is_string(value)) return st_json_make_string(root, value->as.text, value->count);
  if (st_json_is_array(value)) {
    copy = st_json_make_array();
    for (size_t i = 0; i < value->count; i++) {
      st_json_push(root, &copy, st_json_copy_of(root, &value->as.items[i]));
    }
  } else if (st_json_is_object(value)) {
    copy = st_json_make_object();
    for (size_t i = 0; i < value->count; i++) {
      const st_json_member *m = &value->as.members[i];
      st_json_add(root, &copy, m->key, m->length, st_json_copy_of(root, &m->value));
    }
  }
  return copy;
}

// ---- containers ----

// Makes room for one more element of `size` bytes; false: out of memory.
static bool make_room(st_json_document *d, st_json *container, size_t size) {
  uint32_t n = container->count;
  void *old = st_json_is_object(container) ? (void *)container->as.members : (void *)container->as.items;
  if (container->room && n < (uint32_t)1 << container->room) return true;
  uint8_t room = 2;
  while (room < 31 && n >= (uint32_t)1 << room) room++;
  void *grown = n < (uint32_t)1 << room ? st_json_take(d, size << room, true) : NULL;
  if (!grown) {
    d->failed = true;
    return false;
  }
  if (n) memcpy(grown, old, n * size);
  if (st_json_is_object(container)) {
    container->as.members = grown;
  } else {
    container->as.items = grown;
  }
  container->room = room;
  return true;
}

void st_json_add(st_json *root, st_json *object, const char *key, size_t length, st_json value) {
  st_json_document *d = document_of(root);
  const char *copy = copy_text(d, key, length);
  if (!copy || !make_room(d, object, sizeof *object->as.members)) return;
  object->indexed = false;
  object->as.members[object->count++] = (st_json_member){.key = copy, .length = (uint32_t)length, .value = value};
}

st_json *st_json_edit(st_json *object, const char *key) {
  // The object is mutable for the caller, and so are its values.
  union {
    const st_json *found;
    st_json *value;
  } u = {st_json_find(object, key)};
  return u.value;
}

void st_json_set(st_json *root, st_json *object, const char *key, st_json value) {
  st_json *found = st_json_edit(object, key);
  if (found) {
    *found = value;
  } else {
    st_json_add(root, object, key, strlen(key), value);
  }
}

void st_json_delete(st_json *object, const char *key) {
  size_t length = strlen(key);
  for (uint32_t i = 0; i < st_json_members(object); i++) {
    st_json_member *m = &object->as.members[i];
    if (m->length != length || memcmp(m->key, key, length) != 0) continue;
    memmove(m, m + 1, (object->count - i - 1) * sizeof *m);
    object->count--;
    object->indexed = false;
    return;
  }
}

void st_json_insert(st_json *root, st_json *array, size_t i, st_json value) {
  if (!make_room(document_of(root), array, sizeof *array->as.items)) return;
  st_json *at = &array->as.items[i];
  memmove(at + 1, at, (array->count - i) * sizeof *at);
  *at = value;
  array->count++;
}

void st_json_push(st_json *root, st_json *array, st_json value) {
  st_json_insert(root, array, array->count, value);
}

void st_json_remove(st_json *array, size_t first, size_t n) {
  if (!n) return;
  st_json *at = array->as.items + first;
  memmove(at, at + n, (array->count - first - n) * sizeof *at);
  array->count -= (uint32_t)n;
}
