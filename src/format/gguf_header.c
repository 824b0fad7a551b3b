// GGUF's header: the window over the file, and the key-value pairs.
#include "format/gguf_header.h"

#include "base/memory.h"
#include "format/builder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_WINDOW = 1 << 16 };

// A key-value pair takes at least its key's length, a type and one byte of value; an empty key has its own error.
enum { PAIR_LEAST = 8 + 4 + 1 };

// Makes `n` bytes at `at` available; on failure the error names `what` they belong to.
static setun_status need(st_gguf_header *h, uint64_t n, const char *what, setun_error *err) {
  if (n <= h->have - h->at) return SETUN_OK;
  uint64_t left = h->file->size - h->at;
  if (n > left) {
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "%s: expected %" PRIu64 " bytes at offset %zu, found the file's end after %" PRIu64, what, n, h->at,
                   left);
  }
  if (n > ST_GGUF_HEADER_MOST - h->at) {
    return st_fail(err, SETUN_ERROR_LIMIT, "%s: the header goes beyond %d bytes, with %" PRIu64 " more at offset %zu",
                   what, ST_GGUF_HEADER_MOST, n, h->at);
  }
  size_t want = h->at + (size_t)n, window = h->have ? 2 * h->have : FIRST_WINDOW;
  if (window < want) window = want;
  if (window > h->file->size) window = (size_t)h->file->size;
  char *data = st_realloc(h->data, window, 1);
  if (!data) return st_fail_memory(err, "the header");
  h->data = data;
  setun_status s = st_file_read(h->file, h->have, data + h->have, window - h->have, err);
  if (s == SETUN_OK) h->have = window;
  return s;
}

static setun_status take(st_gguf_header *h, const char *what, void *out, size_t n, setun_error *err) {
  setun_status s = need(h, n, what, err);
  if (s != SETUN_OK) return s;
  memcpy(out, h->data + h->at, n);
  h->at += n;
  return SETUN_OK;
}

setun_status st_gguf_u32(st_gguf_header *h, const char *what, uint32_t *out, setun_error *err) {
  return take(h, what, out, sizeof *out, err);
}

setun_status st_gguf_u64(st_gguf_header *h, const char *what, uint64_t *out, setun_error *err) {
  return take(h, what, out, sizeof *out, err);
}

setun_status st_gguf_string(st_gguf_header *h, const char *what, size_t *at, size_t *length, setun_error *err) {
  uint64_t n;
  setun_status s = st_gguf_u64(h, what, &n, err);
  if (s == SETUN_OK) s = need(h, n, what, err);
  if (s != SETUN_OK) return s;
  *at = h->at;
  *length = (size_t)n;
  h->at += (size_t)n;
  return SETUN_OK;
}

// A number or a boolean into the item.
static setun_status parse_number(st_gguf_header *h, st_meta *item, setun_error *err) {
  size_t n = st_meta_bytes(item->type);
  setun_status s = need(h, n, item->key, err);
  if (s != SETUN_OK) return s;
  st_meta view = {.type = ST_META_ARRAY, .element = item->type, .count = 1, .as.values = h->data + h->at};
  uint64_t bits = 0;
  memcpy(&bits, h->data + h->at, n);
  switch (item->type) {
  case ST_META_F32:
  case ST_META_F64: item->as.f = st_meta_number(&view, 0); break;
  case ST_META_I8: item->as.i = (int8_t)bits; break;
  case ST_META_I16: item->as.i = (int16_t)bits; break;
  case ST_META_I32: item->as.i = (int32_t)bits; break;
  default: item->as.u = bits;
  }
  if (item->type == ST_META_BOOL && bits > 1) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a bool of 0 or 1, found %" PRIu64, item->key, bits);
  }
  h->at += n;
  return SETUN_OK;
}

// Checks and skips an array. Its element type and count go to the item; pointers are set in `resolve`.
static setun_status parse_array(st_gguf_header *h, st_meta *item, setun_error *err) {
  uint32_t element;
  setun_status s = st_gguf_u32(h, item->key, &element, err);
  if (s == SETUN_OK) s = st_gguf_u64(h, item->key, &item->count, err);
  if (s != SETUN_OK) return s;
  if (element == ST_META_ARRAY) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: an array of arrays, which no known key has", item->key);
  }
  if (element >= ST_META_TYPE_COUNT) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected an element type from 0 to %d, found %" PRIu32, item->key,
                   ST_META_TYPE_COUNT - 1, element);
  }
  item->element = (st_meta_type)element;
  uint64_t least = element == ST_META_STRING ? 8 : st_meta_bytes(item->element), bytes;
  uint64_t left = h->file->size - h->at;
  if (!st_mul_u64(item->count, least, &bytes) || bytes > left) {
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "%s: an array of %" PRIu64 " elements of at least %" PRIu64 " bytes, but the file has only %" PRIu64
                   " bytes more",
                   item->key, item->count, least, left);
  }
  if (element != ST_META_STRING) {
    s = need(h, bytes, item->key, err);
    if (s == SETUN_OK) h->at += (size_t)bytes;
    return s;
  }
  for (uint64_t i = 0; s == SETUN_OK && i < item->count; i++) {
    size_t at, length;
    s = st_gguf_string(h, item->key, &at, &length, err);
  }
  return s;
}

static setun_status parse_value(st_gguf_header *h, st_meta *item, setun_error *err) {
  if (item->type == ST_META_ARRAY) return parse_array(h, item, err);
  if (item->type != ST_META_STRING) return parse_number(h, item, err);
  size_t at, length;
  return st_gguf_string(h, item->key, &at, &length, err);
}

// Reads the key and the type of one pair into a new last item.
static setun_status parse_key(st_gguf_header *h, st_metadata *m, st_meta **out, setun_error *err) {
  char what[48];
  snprintf(what, sizeof what, "key %zu", m->count);
  size_t at, length;
  setun_status s = st_gguf_string(h, what, &at, &length, err);
  if (s == SETUN_OK) s = st_name_check(h->data + at, length, what, err);
  if (s != SETUN_OK) return s;
  st_meta *item = &m->items[m->count];
  *item = (st_meta){.key = st_strndup(h->data + at, length)};
  if (!item->key) return st_fail_memory(err, "the metadata");
  m->count++;
  int64_t previous;
  if (!st_map_add(m->by_key, item->key, length, (int64_t)m->count - 1, &previous)) {
    return st_fail_memory(err, "the metadata");
  }
  if (previous >= 0) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: duplicate key, pairs %" PRId64 " and as pair %zu", item->key, previous,
                   m->count - 1);
  }
  uint32_t type;
  if ((s = st_gguf_u32(h, item->key, &type, err)) != SETUN_OK) return s;
  if (type >= ST_META_TYPE_COUNT) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a value type from 0 to %d, found %" PRIu32, item->key,
                   ST_META_TYPE_COUNT - 1, type);
  }
  item->type = (st_meta_type)type;
  *out = item;
  return SETUN_OK;
}

setun_status st_gguf_pairs(st_gguf_header *h, uint64_t count, st_metadata *m, setun_error *err) {
  uint64_t left = h->file->size - h->at;
  if (count > left / PAIR_LEAST) {
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "metadata: %" PRIu64 " key-value pairs claimed, but the file has only %" PRIu64 " bytes more", count,
                   left);
  }
  if (!(m->by_key = st_map_new(0))) return st_fail_memory(err, "the metadata");
  size_t capacity = 0;
  for (uint64_t i = 0; i < count; i++) {
    if (!st_reserve(&m->items, &capacity, m->count + 1, sizeof *m->items)) return st_fail_memory(err, "the metadata");
    st_meta *item = NULL;
    setun_status s = parse_key(h, m, &item, err);
    if (s != SETUN_OK) return s;
    // Records the value's place until the window is final; numbers are read at once.
    size_t at = h->at;
    if ((s = parse_value(h, item, err)) != SETUN_OK) return s;
    if (item->type == ST_META_STRING || item->type == ST_META_ARRAY) item->as.u = at;
  }
  return SETUN_OK;
}

// The string at *at in the checked window; *at moves past it.
static st_text string_at(const char *data, size_t *at) {
  uint64_t n;
  memcpy(&n, data + *at, sizeof n);
  st_text text = {data + *at + sizeof n, (size_t)n};
  *at += sizeof n + (size_t)n;
  return text;
}

setun_status st_gguf_adopt(st_gguf_header *h, st_metadata *m, setun_error *err) {
  size_t texts = 0; // no overflow: each takes 8 bytes of the window
  for (size_t i = 0; i < m->count; i++) {
    if (m->items[i].type == ST_META_ARRAY && m->items[i].element == ST_META_STRING) texts += (size_t)m->items[i].count;
  }
  if (!(m->texts = st_malloc(texts, sizeof *m->texts))) return st_fail_memory(err, "the metadata");
  m->storage = h->data;
  h->data = NULL;
  st_text *next = m->texts;
  for (size_t i = 0; i < m->count; i++) {
    st_meta *item = &m->items[i];
    size_t at = (size_t)item->as.u;
    if (item->type == ST_META_STRING) item->as.text = string_at(m->storage, &at);
    if (item->type != ST_META_ARRAY) continue;
    at += 4 + 8; // element type and count
    if (item->element != ST_META_STRING) {
      item->as.values = (const char *)m->storage + at;
      continue;
    }
    item->as.texts = next;
    for (uint64_t k = 0; k < item->count; k++) *next++ = string_at(m->storage, &at);
  }
  return SETUN_OK;
}
