// SentencePiece's compiled character map (normalizer_spec.precompiled_charsmap): which sequences of bytes become which
// texts.
//
// The layout, from SentencePiece's src/normalizer.cc and its Darts double array: the byte length of the array as a
// little-endian u32, the array's units of 32 bits, then replacement texts that each end with a 0 byte. A unit holds its
// label (bits 0-7), whether a value hangs below it (bit 8), and the distance to its children (bits 10-30, shifted left
// by 8 where bit 9 is set); a value is a unit with bit 31 set, whose other bits are a place among the texts.
#include "tokenizer/internal.h"

#include "base/memory.h"

#include <string.h>

enum { MAX_CHARSMAP = 64 << 20 }; // bytes; published ones have 240 thousand

static uint32_t unit_label(uint32_t u) {
  return u & (1u << 31 | 0xFF);
}
static uint32_t unit_offset(uint32_t u) {
  return (u >> 10) << ((u & 1u << 9) >> 6);
}
static bool unit_has_value(uint32_t u) {
  return u >> 8 & 1;
}
static uint32_t unit_value(uint32_t u) {
  return u & ((1u << 31) - 1);
}

static uint32_t read_u32(const unsigned char *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

// ---- validation ----

typedef struct {
  const st_charsmap *map;
  uint8_t *seen;   // by unit, 1: reached already
  uint32_t *bases; // of the units whose children are still to be looked at
  size_t n, capacity;
} walk;

static setun_status check_value(const st_charsmap *map, uint32_t node, uint32_t unit, setun_error *err) {
  if (node >= map->n_units) {
    return st_fail(err, SETUN_ERROR_FORMAT, "unit %u: expected its value among %u units, found it at %u", unit,
                   map->n_units, node);
  }
  uint32_t at = unit_value(map->units[node]);
  if (at < map->replacements.length) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_FORMAT, "unit %u: expected a place below %u, where the replacements end, found %u",
                 node, map->replacements.length, at);
}

// Checks the units that a text can reach from this base. A unit reached twice has been checked already.
static setun_status visit(walk *w, uint32_t base, setun_error *err) {
  const st_charsmap *map = w->map;
  for (uint32_t c = 1; c < 256; c++) {
    uint32_t node = base ^ c;
    if (node >= map->n_units || unit_label(map->units[node]) != c || w->seen[node]) continue;
    w->seen[node] = 1;
    uint32_t u = map->units[node], below = node ^ unit_offset(u);
    setun_status s = unit_has_value(u) ? check_value(map, below, node, err) : SETUN_OK;
    if (s) return s;
    if (!st_reserve(&w->bases, &w->capacity, w->n + 1, sizeof *w->bases)) {
      return st_fail_memory(err, "the character map");
    }
    w->bases[w->n++] = below;
  }
  return SETUN_OK;
}

static setun_status validate(const st_charsmap *map, setun_error *err) {
  walk w = {.map = map, .seen = st_calloc(map->n_units, 1)};
  if (!w.seen) return st_fail_memory(err, "the character map");
  setun_status s = visit(&w, unit_offset(map->units[0]), err);
  while (!s && w.n) s = visit(&w, w.bases[--w.n], err);
  st_free(w.seen);
  st_free(w.bases);
  return s;
}

setun_status st_charsmap_read(st_tokenizer *t, const char *bytes, size_t length, st_charsmap *map, setun_error *err) {
  const unsigned char *b = (const unsigned char *)bytes;
  if (length < 8 || length > MAX_CHARSMAP) {
    return st_fail(err, SETUN_ERROR_FORMAT, "expected 8 to %d bytes, found %zu", MAX_CHARSMAP, length);
  }
  uint32_t size = read_u32(b);
  if (size % 4 || size < 4 || size > length - 4) {
    return st_fail(err, SETUN_ERROR_FORMAT, "expected a double array of 4 to %zu bytes, in units of 4, found one of %u",
                   length - 4, size);
  }
  uint32_t n = size / 4, rest = (uint32_t)(length - 4 - size);
  if (rest && bytes[length - 1]) {
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "expected replacement texts that end with a 0 byte, found 0x%02X at the end", b[length - 1]);
  }
  uint32_t *units = (uint32_t *)(void *)st_arena_take(&t->arena, size);
  char *texts = st_arena_copy(&t->arena, bytes + 4 + size, rest);
  if (!units || !texts) return st_fail_memory(err, "the character map");
  for (uint32_t i = 0; i < n; i++) units[i] = read_u32(b + 4 + 4 * (size_t)i);
  *map = (st_charsmap){units, n, {texts, rest}};
  return validate(map, err);
}

bool st_charsmap_find(const st_charsmap *map, bool longest, const char *text, size_t n, size_t *covered, st_bytes *to) {
  if (!map->n_units) return false;
  bool found = false;
  uint32_t node = unit_offset(map->units[0]);
  for (size_t i = 0; i < n && text[i]; i++) {
    unsigned char c = (unsigned char)text[i];
    node ^= c;
    if (node >= map->n_units || unit_label(map->units[node]) != c) break;
    uint32_t u = map->units[node];
    node ^= unit_offset(u);
    if (!unit_has_value(u)) continue;
    const char *p = map->replacements.data + unit_value(map->units[node]); // validated
    *to = (st_bytes){p, (uint32_t)strlen(p)};
    *covered = i + 1;
    found = true;
    if (!longest) break;
  }
  return found;
}
