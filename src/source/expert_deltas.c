// Reading the tables, and taking deltas apart.
#include "source/expert_deltas.h"

#include "base/bytes.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

void st_expert_deltas_name(uint32_t layer, char name[ST_DELTAS_NAME]) {
  snprintf(name, ST_DELTAS_NAME, "blk.%u.expert_deltas", (unsigned)layer);
}

bool st_expert_deltas_is(const char *name, uint32_t n_layer) {
  char other[ST_DELTAS_NAME];
  unsigned layer;
  if (sscanf(name, "blk.%4u.", &layer) != 1 || layer >= n_layer) return false;
  st_expert_deltas_name(layer, other);
  return !strcmp(name, other);
}

static uint64_t load_u64(const uint8_t *p) {
  return st_load_u32(p) | (uint64_t)st_load_u32(p + 4) << 32;
}

// One entry of a table; `end`: where the delta before it ends in the tensor.
static setun_status read_entry(const st_tensor *t, const uint8_t *entry, uint32_t n_expert, uint64_t end,
                               const st_expert_delta *before, st_expert_delta *delta, setun_error *err) {
  unsigned first = st_load_u32(entry), second = st_load_u32(entry + 4);
  unsigned long long bytes = load_u64(entry + 8), left = t->bytes - end;
  if (first >= second || second >= n_expert) {
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "%s: expected a delta between two of %u experts, the lower one first, found %u and %u", t->name,
                   (unsigned)n_expert, first, second);
  }
  if (before && (first < before->first || (first == before->first && second <= before->second))) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected deltas in ascending order, found %u and %u after %u and %u",
                   t->name, first, second, (unsigned)before->first, (unsigned)before->second);
  }
  if (bytes < ST_DELTA_HEADER || bytes > left) {
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "%s: expected %d to %llu bytes for the delta of experts %u and %u, found %llu", t->name,
                   ST_DELTA_HEADER, left, first, second, bytes);
  }
  *delta = (st_expert_delta){.first = first, .second = second, .offset = t->offset + end, .bytes = bytes};
  return SETUN_OK;
}

static setun_status read_table(const st_directory *d, const st_tensor *t, uint32_t layer, uint32_t n_expert,
                               st_expert_deltas *deltas, setun_error *err) {
  uint8_t header[ST_DELTAS_HEADER];
  const st_file *file = &d->parts[t->part];
  bool bytes = t->n_dims == 1 && t->dtype && !strcmp(t->dtype, "I8") && t->bytes >= sizeof header;
  if (!bytes) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected at least %zu bytes of type I8, found %llu of type %s",
                   t->name, sizeof header, (unsigned long long)t->bytes, t->dtype ? t->dtype : "another");
  }
  setun_status s = st_file_read(file, t->offset, header, sizeof header, err);
  if (s != SETUN_OK) return s;
  uint32_t version = st_load_u32(header);
  uint64_t n = st_load_u32(header + 4), most = (uint64_t)n_expert * (n_expert - 1) / 2;
  if (version != ST_DELTAS_VERSION) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected version %d, found %u", t->name, ST_DELTAS_VERSION,
                   (unsigned)version);
  }
  uint64_t end = sizeof header + n * ST_DELTAS_ENTRY;
  if (n > most || end > t->bytes) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected at most %llu deltas within %llu bytes, found %llu", t->name,
                   (unsigned long long)most, (unsigned long long)t->bytes, (unsigned long long)n);
  }
  st_expert_delta *items = st_realloc(deltas->items, deltas->n + (size_t)n + 1, sizeof *items);
  if (!items) return st_fail_memory(err, t->name);
  deltas->items = items;
  items += deltas->n;
  uint8_t *table = st_malloc((size_t)n + 1, ST_DELTAS_ENTRY);
  s = table ? st_file_read(file, t->offset + sizeof header, table, (size_t)n * ST_DELTAS_ENTRY, err)
            : st_fail_memory(err, t->name);
  for (size_t i = 0; s == SETUN_OK && i < n; i++) {
    s = read_entry(t, table + i * ST_DELTAS_ENTRY, n_expert, end, i ? &items[i - 1] : NULL, &items[i], err);
    if (s != SETUN_OK) break;
    items[i].layer = layer;
    end += items[i].bytes;
    deltas->bytes += items[i].bytes;
    if (items[i].bytes > deltas->longest) deltas->longest = items[i].bytes;
  }
  st_free(table);
  if (s != SETUN_OK) return s;
  deltas->n += (size_t)n;
  if (end == t->bytes) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected %llu bytes, which its deltas take, found %llu", t->name,
                 (unsigned long long)end, (unsigned long long)t->bytes);
}

setun_status st_expert_deltas_read(const st_directory *d, uint32_t n_layer, uint32_t n_expert, st_expert_deltas *deltas,
                                   setun_error *err) {
  *deltas = (st_expert_deltas){0};
  if (d->container != ST_GGUF || !n_expert) return SETUN_OK;
  deltas->tensors = st_calloc(n_layer, sizeof *deltas->tensors);
  setun_status s = deltas->tensors ? SETUN_OK : st_fail_memory(err, "the experts' deltas");
  for (uint32_t i = 0; s == SETUN_OK && i < n_layer; i++) {
    char name[ST_DELTAS_NAME];
    st_expert_deltas_name(i, name);
    const st_tensor *t = deltas->tensors[i] = st_directory_find(d, name);
    if (t) s = read_table(d, t, i, n_expert, deltas, err);
  }
  return s;
}

void st_expert_deltas_free(st_expert_deltas *deltas) {
  st_free(deltas->tensors);
  st_free(deltas->items);
  *deltas = (st_expert_deltas){0};
}

setun_status st_expert_delta_fail(const st_expert_deltas *deltas, const st_expert_delta *delta, setun_error *err) {
  return st_fail(err, SETUN_ERROR_FORMAT,
                 "%s: expected a delta of experts %u and %u that fits their matrices, found one of other lengths or "
                 "positions",
                 deltas->tensors[delta->layer]->name, (unsigned)delta->first, (unsigned)delta->second);
}

setun_status st_expert_delta_open(const st_expert_deltas *deltas, const st_expert_delta *delta, const uint8_t *bytes,
                                  st_trit_delta matrices[ST_DELTA_MATRICES], const uint8_t *strings[ST_DELTA_MATRICES],
                                  setun_error *err) {
  uint64_t at = ST_DELTA_HEADER;
  for (int i = 0; i < ST_DELTA_MATRICES; i++) {
    const uint8_t *header = bytes + 12 * i;
    matrices[i] = (st_trit_delta){
        .bytes = st_load_u32(header), .differences = st_load_u32(header + 4), .shift = st_load_u32(header + 8)};
    if (matrices[i].bytes > delta->bytes - at) return st_expert_delta_fail(deltas, delta, err);
    strings[i] = bytes + at;
    at += matrices[i].bytes;
  }
  return at == delta->bytes ? SETUN_OK : st_expert_delta_fail(deltas, delta, err);
}
