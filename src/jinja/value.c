// Strings with the taint of their bytes, string building, lists and dicts.
#include "base/utf8.h"
#include "jinja/run.h"

#include <math.h>
#include <string.h>

// ---- strings ----

bool st_jinja_new_string(st_jinja_run *run, const char *data, size_t length, st_jinja_taint taint,
                         st_jinja_value *out) {
  st_jinja_string *s = st_jinja_allocate(run, 1, sizeof *s);
  if (!s) return false;
  *s = (st_jinja_string){.data = data, .length = length, .chars = SIZE_MAX, .taint = (uint8_t)taint};
  *out = st_jinja_from_string(s);
  return true;
}

bool st_jinja_copy_text(st_jinja_run *run, const char *text, st_jinja_value *out) {
  size_t n = strlen(text);
  char *copy = st_jinja_allocate_bytes(run, n);
  if (!copy) return false;
  memcpy(copy, text, n);
  return st_jinja_new_string(run, copy, n, JINJA_CLEAN, out);
}

size_t st_jinja_count_characters(st_jinja_string *s) {
  if (s->chars == SIZE_MAX) {
    size_t n = 0;
    for (size_t i = 0; i < s->length; i++) n += ((unsigned char)s->data[i] & 0xC0) != 0x80;
    s->chars = n;
  }
  return s->chars;
}

size_t st_jinja_character_offset(st_jinja_string *s, size_t chars) {
  if (chars >= st_jinja_count_characters(s)) return s->length;
  if (s->chars == s->length) return chars;
  size_t i = 0;
  for (; i < s->length; i++) {
    if (((unsigned char)s->data[i] & 0xC0) != 0x80 && chars-- == 0) break;
  }
  return i;
}

// The first span that ends after `offset`.
static size_t span_after(const st_jinja_span *spans, size_t n, size_t offset) {
  size_t low = 0, high = n;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (spans[middle].end > offset)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

bool st_jinja_is_tainted(const st_jinja_string *s, size_t offset) {
  if (s->taint != JINJA_MIXED) return s->taint == JINJA_TAINTED;
  size_t i = span_after(s->spans, s->n_spans, offset);
  return i < s->n_spans && s->spans[i].begin <= offset;
}

bool st_jinja_substring(st_jinja_run *run, const st_jinja_string *s, size_t begin, size_t end, st_jinja_value *out) {
  if (!st_jinja_new_string(run, s->data + begin, end - begin, s->taint, out)) return false;
  st_jinja_string *part = out->s;
  part->safe = s->safe;
  if (s->chars == s->length) part->chars = part->length;
  if (s->taint != JINJA_MIXED) return true;
  size_t first = span_after(s->spans, s->n_spans, begin), n = 0;
  while (first + n < s->n_spans && s->spans[first + n].begin < end) n++;
  part->taint = JINJA_CLEAN;
  if (!n) return true;
  st_jinja_span *spans = st_jinja_allocate(run, n, sizeof *spans);
  if (!spans) return false;
  for (size_t i = 0; i < n; i++) {
    st_jinja_span from = s->spans[first + i];
    spans[i].begin = from.begin < begin ? 0 : from.begin - begin;
    spans[i].end = (from.end > end ? end : from.end) - begin;
  }
  bool all = n == 1 && spans[0].begin == 0 && spans[0].end == part->length;
  part->taint = all ? JINJA_TAINTED : JINJA_MIXED;
  part->spans = spans;
  part->n_spans = n;
  return true;
}

bool st_jinja_concat(st_jinja_run *run, const st_jinja_string *a, const st_jinja_string *b, st_jinja_value *out) {
  st_jinja_builder build = {0};
  size_t length = a->length + b->length;
  // The last string appended to is likely to be appended to again: its bytes are extended in place.
  if (a->length && a->taint == b->taint && a->taint != JINJA_MIXED && b->length <= SIZE_MAX - a->length &&
      st_jinja_arena_extend(&run->bytes, a->data, a->length, length)) {
    char *end;
    memcpy(&end, &(const char *){a->data + a->length}, sizeof end);
    memcpy(end, b->data, b->length);
    return st_jinja_charge(run, b->length / 64) && st_jinja_new_string(run, a->data, length, a->taint, out);
  }
  return st_jinja_put_all(run, &build, a) && st_jinja_put_all(run, &build, b) &&
         st_jinja_finish(run, &build, false, out);
}

bool st_jinja_same_text(const st_jinja_string *a, const st_jinja_string *b) {
  return a->length == b->length && (!a->length || !memcmp(a->data, b->data, a->length));
}

bool st_jinja_string_is(const st_jinja_string *s, const char *text) {
  size_t n = strlen(text);
  return s->length == n && !memcmp(s->data, text, n);
}

int st_jinja_order_strings(const st_jinja_string *a, const st_jinja_string *b) {
  size_t n = a->length < b->length ? a->length : b->length;
  int order = n ? memcmp(a->data, b->data, n) : 0; // UTF-8 sorts as its code points do
  if (order) return order > 0 ? 1 : -1;
  return (a->length > b->length) - (a->length < b->length);
}

size_t st_jinja_find_text(st_jinja_run *run, const st_jinja_string *s, const st_jinja_string *needle, size_t from) {
  if (from > s->length || needle->length > s->length - from) return SIZE_MAX;
  if (!needle->length) return from;
  const char *p = s->data + from, *last = s->data + s->length - needle->length;
  while (p <= last) {
    const char *hit = memchr(p, needle->data[0], (size_t)(last - p) + 1);
    if (!st_jinja_charge(run, (size_t)((hit ? hit : last) - p) / 64 + needle->length / 256)) return SIZE_MAX;
    if (!hit) return SIZE_MAX;
    if (!memcmp(hit, needle->data, needle->length)) return (size_t)(hit - s->data);
    p = hit + 1;
  }
  return SIZE_MAX;
}

// ---- building ----

static bool reserve(st_jinja_run *run, st_jinja_builder *b, size_t n) {
  if (b->capacity - b->length >= n) return true;
  if (n > run->max_output || b->length + n > run->max_output) {
    return st_jinja_fail(run, SETUN_ERROR_LIMIT, "a string longer than %zu bytes", run->max_output);
  }
  size_t need = b->length + n;
  size_t wanted = b->capacity < 32 ? 64 : b->capacity * 2;
  if (wanted < need) wanted = need;
  if (b->data && st_jinja_arena_extend(&run->bytes, b->data, b->capacity, wanted)) {
    b->capacity = wanted;
    return true;
  }
  char *grown = st_jinja_allocate_bytes(run, wanted);
  if (!grown) return false;
  if (b->length) memcpy(grown, b->data, b->length);
  b->data = grown;
  b->capacity = wanted;
  return true;
}

// The array with room for one more of its `n` elements: itself, or a copy of twice the capacity. NULL: out of memory.
static void *with_room(st_jinja_run *run, void *items, size_t n, size_t *capacity, size_t first, size_t size) {
  if (n < *capacity) return items;
  size_t wanted = *capacity ? *capacity * 2 : first;
  void *grown = st_jinja_allocate(run, wanted, size);
  if (!grown) return NULL;
  if (n) memcpy(grown, items, n * size);
  *capacity = wanted;
  return grown;
}

static bool mark(st_jinja_run *run, st_jinja_builder *b, size_t begin, size_t end) {
  if (begin == end) return true;
  if (b->n_spans && b->spans[b->n_spans - 1].end == begin) {
    b->spans[b->n_spans - 1].end = end;
    return true;
  }
  st_jinja_span *spans = with_room(run, b->spans, b->n_spans, &b->spans_capacity, 2, sizeof *spans);
  if (!spans) return false;
  b->spans = spans;
  b->spans[b->n_spans++] = (st_jinja_span){begin, end};
  return true;
}

bool st_jinja_put(st_jinja_run *run, st_jinja_builder *b, const char *data, size_t n, bool tainted) {
  if (!n) return true;
  if (!st_jinja_charge(run, n / 64) || !reserve(run, b, n)) return false;
  memcpy(b->data + b->length, data, n);
  b->length += n;
  return !tainted || mark(run, b, b->length - n, b->length);
}

bool st_jinja_put_text(st_jinja_run *run, st_jinja_builder *b, const char *text) {
  return st_jinja_put(run, b, text, strlen(text), false);
}

bool st_jinja_put_char(st_jinja_run *run, st_jinja_builder *b, uint32_t code, bool tainted) {
  char bytes[4];
  return st_jinja_put(run, b, bytes, (size_t)st_utf8_encode(code, bytes), tainted);
}

bool st_jinja_put_part(st_jinja_run *run, st_jinja_builder *b, const st_jinja_string *s, size_t begin, size_t end) {
  size_t base = b->length;
  if (!st_jinja_put(run, b, s->data + begin, end - begin, s->taint == JINJA_TAINTED)) return false;
  if (s->taint != JINJA_MIXED) return true;
  for (size_t i = span_after(s->spans, s->n_spans, begin); i < s->n_spans && s->spans[i].begin < end; i++) {
    size_t from = s->spans[i].begin < begin ? begin : s->spans[i].begin;
    size_t to = s->spans[i].end > end ? end : s->spans[i].end;
    if (!mark(run, b, base + from - begin, base + to - begin)) return false;
  }
  return true;
}

bool st_jinja_put_all(st_jinja_run *run, st_jinja_builder *b, const st_jinja_string *s) {
  return st_jinja_put_part(run, b, s, 0, s->length);
}

bool st_jinja_finish(st_jinja_run *run, st_jinja_builder *b, bool safe, st_jinja_value *out) {
  // So that the next append to this text can extend it.
  st_jinja_arena_shrink(&run->bytes, b->data, b->capacity, b->length);
  b->capacity = b->length;
  bool all = b->n_spans == 1 && b->spans[0].begin == 0 && b->spans[0].end == b->length;
  st_jinja_taint taint = !b->n_spans ? JINJA_CLEAN : all ? JINJA_TAINTED : JINJA_MIXED;
  if (!st_jinja_new_string(run, b->data ? b->data : "", b->length, taint, out)) return false;
  out->s->spans = b->spans;
  out->s->n_spans = b->n_spans;
  out->s->safe = safe;
  return true;
}

// ---- lists ----

bool st_jinja_new_list(st_jinja_run *run, st_jinja_kind kind, size_t capacity, st_jinja_value *out) {
  st_jinja_list *l = st_jinja_allocate(run, 1, sizeof *l);
  if (!l) return false;
  if (capacity) {
    l->items = st_jinja_allocate(run, capacity, sizeof *l->items);
    if (!l->items) return false;
    l->capacity = capacity;
  }
  *out = (st_jinja_value){.kind = (uint8_t)kind, .l = l};
  return true;
}

bool st_jinja_list_append(st_jinja_run *run, st_jinja_list *list, st_jinja_value item) {
  st_jinja_value *items = with_room(run, list->items, list->n, &list->capacity, 4, sizeof *items);
  if (!items) return false;
  list->items = items;
  list->items[list->n++] = item;
  return true;
}

bool st_jinja_new_pair(st_jinja_run *run, st_jinja_value a, st_jinja_value b, st_jinja_value *out) {
  return st_jinja_new_list(run, JINJA_TUPLE, 2, out) && st_jinja_list_append(run, out->l, a) &&
         st_jinja_list_append(run, out->l, b);
}

// ---- dicts ----

enum { INDEX_FROM = 12 };

static uint64_t hash_bytes(const char *data, size_t n) {
  uint64_t h = 0xCBF29CE484222325u;
  for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)data[i]) * 0x100000001B3u;
  return h ^ h >> 29;
}

// Equal values have equal hashes: 1, 1.0 and True too. False where Python says that the type cannot be hashed.
static bool hash_value(st_jinja_run *run, st_jinja_value v, uint64_t *out) {
  switch (v.kind) {
  case JINJA_STRING: *out = hash_bytes(v.s->data, v.s->length); return st_jinja_charge(run, v.s->length / 64);
  case JINJA_BOOLEAN: *out = (uint64_t)v.b * 0x9E3779B97F4A7C15u; return true;
  case JINJA_INTEGER: *out = (uint64_t)v.i * 0x9E3779B97F4A7C15u; return true;
  case JINJA_FLOAT:
    if (v.f == floor(v.f) && fabs(v.f) < 9e18)
      *out = (uint64_t)(int64_t)v.f * 0x9E3779B97F4A7C15u;
    else
      *out = hash_bytes((const char *)&v.f, sizeof v.f);
    return true;
  case JINJA_TUPLE:
    if (!st_jinja_nest(run)) return false;
    *out = 77;
    for (size_t i = 0; i < v.l->n; i++) {
      uint64_t h;
      if (!hash_value(run, v.l->items[i], &h)) return false;
      *out = (*out ^ h) * 0xD6E8FEB86659FD93u;
    }
    run->depth--;
    return true;
  case JINJA_LIST:
  case JINJA_DICT:
  case JINJA_VIEW: return st_jinja_fail_format(run, "a value of type %s cannot be a key", st_jinja_type_name(v));
  default: *out = v.kind; return true; // few, and distinguished by st_jinja_equal
  }
}

bool st_jinja_new_dict(st_jinja_run *run, st_jinja_kind kind, st_jinja_value *out) {
  st_jinja_dict *d = st_jinja_allocate(run, 1, sizeof *d);
  if (!d) return false;
  *out = (st_jinja_value){.kind = (uint8_t)kind, .d = d};
  return true;
}

static bool build_index(st_jinja_run *run, st_jinja_dict *dict) {
  size_t size = 32;
  while (size < dict->capacity * 2) size *= 2;
  dict->index = st_jinja_allocate(run, size, sizeof *dict->index);
  if (!dict->index) return false;
  dict->mask = size - 1;
  for (size_t i = 0; i < dict->n; i++) {
    uint64_t h;
    if (!hash_value(run, dict->pairs[i].key, &h)) return false;
    size_t at = h & dict->mask;
    while (dict->index[at]) at = (at + 1) & dict->mask;
    dict->index[at] = (uint32_t)i + 1;
  }
  return true;
}

bool st_jinja_dict_get(st_jinja_run *run, const st_jinja_dict *dict, st_jinja_value key, st_jinja_value **out) {
  uint64_t h;
  *out = NULL;
  if (!hash_value(run, key, &h)) return false; // refuses unhashable keys even in an empty dict
  if (!dict->index) {
    for (size_t i = 0; i < dict->n; i++) {
      bool same;
      if (!st_jinja_equal(run, dict->pairs[i].key, key, &same)) return false;
      if (same) *out = &dict->pairs[i].value;
      if (same) return true;
    }
    return true;
  }
  for (size_t at = h & dict->mask; dict->index[at]; at = (at + 1) & dict->mask) {
    st_jinja_pair *pair = &dict->pairs[dict->index[at] - 1];
    bool same;
    if (!st_jinja_charge(run, 1) || !st_jinja_equal(run, pair->key, key, &same)) return false;
    if (same) *out = &pair->value;
    if (same) return true;
  }
  return true;
}

st_jinja_value *st_jinja_dict_find(const st_jinja_dict *dict, const st_jinja_string *key) {
  if (!dict->index) {
    for (size_t i = 0; i < dict->n; i++) {
      st_jinja_value k = dict->pairs[i].key;
      if (k.kind == JINJA_STRING && st_jinja_same_text(k.s, key)) return &dict->pairs[i].value;
    }
    return NULL;
  }
  for (size_t at = hash_bytes(key->data, key->length) & dict->mask; dict->index[at]; at = (at + 1) & dict->mask) {
    st_jinja_pair *pair = &dict->pairs[dict->index[at] - 1];
    if (pair->key.kind == JINJA_STRING && st_jinja_same_text(pair->key.s, key)) return &pair->value;
  }
  return NULL;
}

bool st_jinja_dict_set(st_jinja_run *run, st_jinja_dict *dict, st_jinja_value key, st_jinja_value value) {
  st_jinja_value *old;
  if (!st_jinja_dict_get(run, dict, key, &old)) return false;
  if (old) {
    *old = value;
    return true;
  }
  if (dict->n == dict->capacity) {
    if (dict->capacity > UINT32_MAX / 4)
      return st_jinja_fail(run, SETUN_ERROR_LIMIT, "a dict with more than %zu keys", dict->n);
    st_jinja_pair *pairs = with_room(run, dict->pairs, dict->n, &dict->capacity, 4, sizeof *pairs);
    if (!pairs) return false;
    dict->pairs = pairs;
    dict->index = NULL;
  }
  dict->pairs[dict->n++] = (st_jinja_pair){key, value};
  if (dict->n < INDEX_FROM) return true;
  if (!dict->index) return build_index(run, dict);
  uint64_t h;
  if (!hash_value(run, key, &h)) return false;
  size_t at = h & dict->mask;
  while (dict->index[at]) at = (at + 1) & dict->mask;
  dict->index[at] = (uint32_t)dict->n;
  return true;
}
