// Strings with the taint of their bytes, string building, lists and dicts.
#include "base/utf8.h"
#include "jinja/run.h"

#include <math.h>
#include <string.h>

// ---- strings ----

bool st_j_string(st_jrun *run, const char *data, size_t length, st_jtaint taint, st_jval *out) {
  st_jstr *s = st_j_alloc(run, 1, sizeof *s);
  if (!s) return false;
  *s = (st_jstr){.data = data, .length = length, .chars = SIZE_MAX, .taint = (uint8_t)taint};
  *out = st_j_text(s);
  return true;
}

bool st_j_copy(st_jrun *run, const char *text, st_jval *out) {
  size_t n = strlen(text);
  char *copy = st_j_bytes(run, n);
  if (!copy) return false;
  memcpy(copy, text, n);
  return st_j_string(run, copy, n, J_CLEAN, out);
}

size_t st_j_chars(st_jstr *s) {
  if (s->chars == SIZE_MAX) {
    size_t n = 0;
    for (size_t i = 0; i < s->length; i++) n += ((unsigned char)s->data[i] & 0xC0) != 0x80;
    s->chars = n;
  }
  return s->chars;
}

size_t st_j_offset(st_jstr *s, size_t chars) {
  if (chars >= st_j_chars(s)) return s->length;
  if (s->chars == s->length) return chars;
  size_t i = 0;
  for (; i < s->length; i++) {
    if (((unsigned char)s->data[i] & 0xC0) != 0x80 && chars-- == 0) break;
  }
  return i;
}

// The first span that ends after `offset`.
static size_t span_after(const st_jspan *spans, size_t n, size_t offset) {
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

bool st_j_tainted(const st_jstr *s, size_t offset) {
  if (s->taint != J_MIXED) return s->taint == J_TAINTED;
  size_t i = span_after(s->spans, s->n_spans, offset);
  return i < s->n_spans && s->spans[i].begin <= offset;
}

bool st_j_substring(st_jrun *run, const st_jstr *s, size_t begin, size_t end, st_jval *out) {
  if (!st_j_string(run, s->data + begin, end - begin, s->taint, out)) return false;
  st_jstr *part = out->s;
  part->safe = s->safe;
  if (s->chars == s->length) part->chars = part->length;
  if (s->taint != J_MIXED) return true;
  size_t first = span_after(s->spans, s->n_spans, begin), n = 0;
  while (first + n < s->n_spans && s->spans[first + n].begin < end) n++;
  part->taint = J_CLEAN;
  if (!n) return true;
  st_jspan *spans = st_j_alloc(run, n, sizeof *spans);
  if (!spans) return false;
  for (size_t i = 0; i < n; i++) {
    st_jspan from = s->spans[first + i];
    spans[i].begin = from.begin < begin ? 0 : from.begin - begin;
    spans[i].end = (from.end > end ? end : from.end) - begin;
  }
  bool all = n == 1 && spans[0].begin == 0 && spans[0].end == part->length;
  part->taint = all ? J_TAINTED : J_MIXED;
  part->spans = spans;
  part->n_spans = n;
  return true;
}

bool st_j_concat(st_jrun *run, const st_jstr *a, const st_jstr *b, st_jval *out) {
  st_jbuild build = {0};
  size_t length = a->length + b->length;
  // What was appended to last is likely to be appended to again: its bytes are extended where they are.
  if (a->length && a->taint == b->taint && a->taint != J_MIXED && b->length <= SIZE_MAX - a->length &&
      st_j_arena_extend(&run->bytes, a->data, a->length, length)) {
    char *end;
    memcpy(&end, &(const char *){a->data + a->length}, sizeof end);
    memcpy(end, b->data, b->length);
    return st_j_charge(run, b->length / 64) && st_j_string(run, a->data, length, a->taint, out);
  }
  return st_j_put_all(run, &build, a) && st_j_put_all(run, &build, b) && st_j_built(run, &build, false, out);
}

bool st_j_same_text(const st_jstr *a, const st_jstr *b) {
  return a->length == b->length && (!a->length || !memcmp(a->data, b->data, a->length));
}

bool st_j_is(const st_jstr *s, const char *text) {
  size_t n = strlen(text);
  return s->length == n && !memcmp(s->data, text, n);
}

int st_j_order(const st_jstr *a, const st_jstr *b) {
  size_t n = a->length < b->length ? a->length : b->length;
  int order = n ? memcmp(a->data, b->data, n) : 0; // UTF-8 sorts as its code points do
  if (order) return order > 0 ? 1 : -1;
  return (a->length > b->length) - (a->length < b->length);
}

size_t st_j_find(st_jrun *run, const st_jstr *s, const st_jstr *needle, size_t from) {
  if (from > s->length || needle->length > s->length - from) return SIZE_MAX;
  if (!needle->length) return from;
  const char *p = s->data + from, *last = s->data + s->length - needle->length;
  while (p <= last) {
    const char *hit = memchr(p, needle->data[0], (size_t)(last - p) + 1);
    if (!st_j_charge(run, (size_t)((hit ? hit : last) - p) / 64 + needle->length / 256)) return SIZE_MAX;
    if (!hit) return SIZE_MAX;
    if (!memcmp(hit, needle->data, needle->length)) return (size_t)(hit - s->data);
    p = hit + 1;
  }
  return SIZE_MAX;
}

// ---- building ----

static bool reserve(st_jrun *run, st_jbuild *b, size_t n) {
  if (b->capacity - b->length >= n) return true;
  if (n > run->max_output || b->length + n > run->max_output) {
    return st_j_fail(run, SETUN_ERROR_LIMIT, "a text grew beyond %zu bytes", run->max_output);
  }
  size_t need = b->length + n;
  size_t wanted = b->capacity < 32 ? 64 : b->capacity * 2;
  if (wanted < need) wanted = need;
  if (b->data && st_j_arena_extend(&run->bytes, b->data, b->capacity, wanted)) {
    b->capacity = wanted;
    return true;
  }
  char *grown = st_j_bytes(run, wanted);
  if (!grown) return false;
  if (b->length) memcpy(grown, b->data, b->length);
  b->data = grown;
  b->capacity = wanted;
  return true;
}

static bool mark(st_jrun *run, st_jbuild *b, size_t begin, size_t end) {
  if (begin == end) return true;
  if (b->n_spans && b->spans[b->n_spans - 1].end == begin) {
    b->spans[b->n_spans - 1].end = end;
    return true;
  }
  if (b->n_spans == b->spans_capacity) {
    size_t wanted = b->spans_capacity ? b->spans_capacity * 2 : 2;
    st_jspan *grown = st_j_alloc(run, wanted, sizeof *grown);
    if (!grown) return false;
    if (b->n_spans) memcpy(grown, b->spans, b->n_spans * sizeof *grown);
    b->spans = grown;
    b->spans_capacity = wanted;
  }
  b->spans[b->n_spans++] = (st_jspan){begin, end};
  return true;
}

bool st_j_put(st_jrun *run, st_jbuild *b, const char *data, size_t n, bool tainted) {
  if (!n) return true;
  if (!st_j_charge(run, n / 64) || !reserve(run, b, n)) return false;
  memcpy(b->data + b->length, data, n);
  b->length += n;
  return !tainted || mark(run, b, b->length - n, b->length);
}

bool st_j_put_c(st_jrun *run, st_jbuild *b, const char *text) {
  return st_j_put(run, b, text, strlen(text), false);
}

bool st_j_put_char(st_jrun *run, st_jbuild *b, uint32_t code, bool tainted) {
  char bytes[4];
  return st_j_put(run, b, bytes, (size_t)st_utf8_encode(code, bytes), tainted);
}

bool st_j_put_part(st_jrun *run, st_jbuild *b, const st_jstr *s, size_t begin, size_t end) {
  size_t base = b->length;
  if (!st_j_put(run, b, s->data + begin, end - begin, s->taint == J_TAINTED)) return false;
  if (s->taint != J_MIXED) return true;
  for (size_t i = span_after(s->spans, s->n_spans, begin); i < s->n_spans && s->spans[i].begin < end; i++) {
    size_t from = s->spans[i].begin < begin ? begin : s->spans[i].begin;
    size_t to = s->spans[i].end > end ? end : s->spans[i].end;
    if (!mark(run, b, base + from - begin, base + to - begin)) return false;
  }
  return true;
}

bool st_j_put_all(st_jrun *run, st_jbuild *b, const st_jstr *s) {
  return st_j_put_part(run, b, s, 0, s->length);
}

bool st_j_built(st_jrun *run, st_jbuild *b, bool safe, st_jval *out) {
  // So that what is appended to this text next can extend it.
  st_j_arena_shrink(&run->bytes, b->data, b->capacity, b->length);
  b->capacity = b->length;
  bool all = b->n_spans == 1 && b->spans[0].begin == 0 && b->spans[0].end == b->length;
  st_jtaint taint = !b->n_spans ? J_CLEAN : all ? J_TAINTED : J_MIXED;
  if (!st_j_string(run, b->data ? b->data : "", b->length, taint, out)) return false;
  out->s->spans = b->spans;
  out->s->n_spans = b->n_spans;
  out->s->safe = safe;
  return true;
}

// ---- lists ----

bool st_j_list(st_jrun *run, st_jkind kind, size_t capacity, st_jval *out) {
  st_jlist *l = st_j_alloc(run, 1, sizeof *l);
  if (!l) return false;
  if (capacity) {
    l->items = st_j_alloc(run, capacity, sizeof *l->items);
    if (!l->items) return false;
    l->capacity = capacity;
  }
  *out = (st_jval){.kind = (uint8_t)kind, .l = l};
  return true;
}

bool st_j_append(st_jrun *run, st_jlist *list, st_jval item) {
  if (list->n == list->capacity) {
    size_t wanted = list->capacity ? list->capacity * 2 : 4;
    st_jval *grown = st_j_alloc(run, wanted, sizeof *grown);
    if (!grown) return false;
    if (list->n) memcpy(grown, list->items, list->n * sizeof *grown);
    list->items = grown;
    list->capacity = wanted;
  }
  list->items[list->n++] = item;
  return true;
}

bool st_j_pair(st_jrun *run, st_jval a, st_jval b, st_jval *out) {
  return st_j_list(run, J_TUPLE, 2, out) && st_j_append(run, out->l, a) && st_j_append(run, out->l, b);
}

// ---- dicts ----

enum { INDEX_FROM = 12 };

static uint64_t hash_bytes(const char *data, size_t n) {
  uint64_t h = 0xCBF29CE484222325u;
  for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)data[i]) * 0x100000001B3u;
  return h ^ h >> 29;
}

// Equal values have equal hashes: 1, 1.0 and True too. False where Python says that the type cannot be hashed.
static bool hash_value(st_jrun *run, st_jval v, int depth, uint64_t *out) {
  switch (v.kind) {
  case J_STRING: *out = hash_bytes(v.s->data, v.s->length); return st_j_charge(run, v.s->length / 64);
  case J_BOOL: *out = (uint64_t)v.b * 0x9E3779B97F4A7C15u; return true;
  case J_INT: *out = (uint64_t)v.i * 0x9E3779B97F4A7C15u; return true;
  case J_FLOAT:
    if (v.f == floor(v.f) && fabs(v.f) < 9e18)
      *out = (uint64_t)(int64_t)v.f * 0x9E3779B97F4A7C15u;
    else
      *out = hash_bytes((const char *)&v.f, sizeof v.f);
    return true;
  case J_TUPLE:
    if (depth > 50) return st_j_fail(run, SETUN_ERROR_LIMIT, "tuples nested too deep");
    *out = 77;
    for (size_t i = 0; i < v.l->n; i++) {
      uint64_t h;
      if (!hash_value(run, v.l->items[i], depth + 1, &h)) return false;
      *out = (*out ^ h) * 0xD6E8FEB86659FD93u;
    }
    return true;
  case J_LIST:
  case J_DICT:
  case J_VIEW: return st_j_wrong(run, "a value of type %s cannot be a key", st_j_type(v));
  default: *out = v.kind; return true; // few, and told apart by st_j_equal
  }
}

bool st_j_dict(st_jrun *run, st_jkind kind, st_jval *out) {
  st_jdict *d = st_j_alloc(run, 1, sizeof *d);
  if (!d) return false;
  *out = (st_jval){.kind = (uint8_t)kind, .d = d};
  return true;
}

static bool build_index(st_jrun *run, st_jdict *dict) {
  size_t size = 32;
  while (size < dict->capacity * 2) size *= 2;
  dict->index = st_j_alloc(run, size, sizeof *dict->index);
  if (!dict->index) return false;
  dict->mask = size - 1;
  for (size_t i = 0; i < dict->n; i++) {
    uint64_t h;
    if (!hash_value(run, dict->pairs[i].key, 0, &h)) return false;
    size_t at = h & dict->mask;
    while (dict->index[at]) at = (at + 1) & dict->mask;
    dict->index[at] = (uint32_t)i + 1;
  }
  return true;
}

bool st_j_get(st_jrun *run, const st_jdict *dict, st_jval key, st_jval **out) {
  uint64_t h;
  *out = NULL;
  if (!hash_value(run, key, 0, &h)) return false; // refuses unhashable keys even in an empty dict
  if (!dict->index) {
    for (size_t i = 0; i < dict->n; i++) {
      bool same;
      if (!st_j_equal(run, dict->pairs[i].key, key, &same)) return false;
      if (same) *out = &dict->pairs[i].value;
      if (same) return true;
    }
    return true;
  }
  for (size_t at = h & dict->mask; dict->index[at]; at = (at + 1) & dict->mask) {
    st_jpair *pair = &dict->pairs[dict->index[at] - 1];
    bool same;
    if (!st_j_charge(run, 1) || !st_j_equal(run, pair->key, key, &same)) return false;
    if (same) *out = &pair->value;
    if (same) return true;
  }
  return true;
}

st_jval *st_j_get_text(const st_jdict *dict, const st_jstr *key) {
  if (!dict->index) {
    for (size_t i = 0; i < dict->n; i++) {
      st_jval k = dict->pairs[i].key;
      if (k.kind == J_STRING && st_j_same_text(k.s, key)) return &dict->pairs[i].value;
    }
    return NULL;
  }
  for (size_t at = hash_bytes(key->data, key->length) & dict->mask; dict->index[at]; at = (at + 1) & dict->mask) {
    st_jpair *pair = &dict->pairs[dict->index[at] - 1];
    if (pair->key.kind == J_STRING && st_j_same_text(pair->key.s, key)) return &pair->value;
  }
  return NULL;
}

bool st_j_set(st_jrun *run, st_jdict *dict, st_jval key, st_jval value) {
  st_jval *old;
  if (!st_j_get(run, dict, key, &old)) return false;
  if (old) {
    *old = value;
    return true;
  }
  if (dict->n == dict->capacity) {
    size_t wanted = dict->capacity ? dict->capacity * 2 : 4;
    if (wanted > UINT32_MAX / 2) return st_j_fail(run, SETUN_ERROR_LIMIT, "a dict with more than %zu keys", dict->n);
    st_jpair *grown = st_j_alloc(run, wanted, sizeof *grown);
    if (!grown) return false;
    if (dict->n) memcpy(grown, dict->pairs, dict->n * sizeof *grown);
    dict->pairs = grown;
    dict->capacity = wanted;
    dict->index = NULL;
  }
  dict->pairs[dict->n++] = (st_jpair){key, value};
  if (dict->n < INDEX_FROM) return true;
  if (!dict->index) return build_index(run, dict);
  uint64_t h;
  if (!hash_value(run, key, 0, &h)) return false;
  size_t at = h & dict->mask;
  while (dict->index[at]) at = (at + 1) & dict->mask;
  dict->index[at] = (uint32_t)dict->n;
  return true;
}
