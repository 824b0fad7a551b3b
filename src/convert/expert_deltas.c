// Differences between the experts of a layer as further tensors of the target: measured for each pair, and stored where
// they take less than an expert does.
#include "source/expert_deltas.h"
#include "base/bytes.h"
#include "base/memory.h"
#include "convert/conversion.h"

#include <stdio.h>
#include <string.h>

// A stored delta.
typedef struct delta_pair {
  uint32_t first, second;
  st_trit_delta matrices[ST_DELTA_MATRICES];
} delta_pair;

struct st_layer_deltas {
  uint32_t layer, n_expert;
  size_t *items;   // [n_expert][ST_DELTA_MATRICES] of the conversion: gate, up and down
  uint64_t record; // bytes of an expert
  delta_pair *pairs;
  size_t n_pairs, capacity;
};

void st_layer_deltas_free(st_layer_deltas *l) {
  if (!l) return;
  st_free(l->items);
  st_free(l->pairs);
  st_free(l);
}

static uint64_t bytes_of(const delta_pair *pair) {
  uint64_t bytes = ST_DELTA_HEADER;
  for (int i = 0; i < ST_DELTA_MATRICES; i++) bytes += pair->matrices[i].bytes;
  return bytes;
}

// ---- a layer's codes ----------------------------------------------------------------------------------------------

// The bytes of one matrix as it is written.
static setun_status load_matrix(const st_conversion *p, const st_item *item, uint8_t *codes, setun_error *err) {
  uint64_t k = item->shape.columns, chunk = st_item_chunk(item);
  st_item_reader r = {.d = p->d, .item = item, .round = p->o->round_scales};
  int8_t *trits = st_malloc((size_t)(chunk * k), 1);
  float *scales = st_malloc((size_t)chunk, sizeof *scales);
  setun_status s = trits && scales ? SETUN_OK : st_fail_memory(err, item->name);
  for (uint64_t row = 0; row < item->shape.rows && s == SETUN_OK;) {
    st_strip strip = st_format_locate(item->format, item->shape, row, chunk);
    s = st_item_trits(&r, row, strip.count, k, trits, scales, err);
    if (s == SETUN_OK) item->format->ops->pack(item->format, item->shape, &strip, trits, scales, codes + strip.offset);
    row += strip.count;
  }
  st_item_reader_close(&r);
  st_free(trits);
  st_free(scales);
  return s;
}

// All experts: [n_expert][record]; freed with st_free.
static setun_status load_layer(st_conversion *p, const st_layer_deltas *l, uint8_t **codes, setun_error *err) {
  size_t record = (size_t)l->record;
  setun_status s = SETUN_OK;
  *codes = st_calloc(l->n_expert, record);
  if (!*codes) return st_fail_memory(err, "a layer's experts");
  for (uint32_t e = 0; e < l->n_expert && s == SETUN_OK; e++) {
    uint8_t *to = *codes + e * record;
    for (int i = 0; i < ST_DELTA_MATRICES && s == SETUN_OK; i++) {
      const st_item *item = &p->items[l->items[e * ST_DELTA_MATRICES + (uint32_t)i]];
      s = load_matrix(p, item, to, err);
      to += item->bytes;
      if (s == SETUN_OK) s = st_conversion_progress(p, item->shape.rows * item->shape.columns, err);
    }
  }
  return s;
}

static uint64_t matrix_bytes(const st_conversion *p, const st_layer_deltas *l, int matrix) {
  return p->items[l->items[matrix]].bytes;
}

// ---- measuring ----------------------------------------------------------------------------------------------------

// The number of codes that are not 0, by which the expert differs from a matrix of zeros.
static uint64_t count_nonzero(const uint8_t *codes, size_t n) {
  uint8_t zeros[4096]; // code 1
  memset(zeros, 0x55, sizeof zeros);
  uint64_t sum = 0;
  for (size_t at = 0; at < n; at += sizeof zeros) {
    sum += st_trit_delta_count(codes + at, zeros, n - at < sizeof zeros ? n - at : sizeof zeros);
  }
  return sum;
}

static setun_status add_pair(const st_conversion *p, st_layer_deltas *l, const uint8_t *codes, uint32_t a, uint32_t b,
                             setun_error *err) {
  delta_pair pair = {.first = a, .second = b};
  const uint8_t *first = codes + a * l->record, *second = codes + b * l->record;
  for (int i = 0; i < ST_DELTA_MATRICES; i++) {
    size_t n = (size_t)matrix_bytes(p, l, i);
    pair.matrices[i] = st_trit_delta_measure(first, second, n);
    if (pair.matrices[i].bytes > UINT32_MAX || pair.matrices[i].differences > UINT32_MAX) return SETUN_OK;
    first += n;
    second += n;
  }
  if (bytes_of(&pair) >= l->record) return SETUN_OK;
  if (!st_reserve(&l->pairs, &l->capacity, l->n_pairs + 1, sizeof *l->pairs)) return st_fail_memory(err, "the deltas");
  l->pairs[l->n_pairs++] = pair;
  return SETUN_OK;
}

// The fewest, the most and the mean number of codes that two experts of the layer differ in.
typedef struct distances {
  uint64_t least, most;
  double sum;
} distances;

// A delta helps only where experts have something in common: it must also be shorter than what either expert would take
// by itself if its trits were written like differences from zeros.
static setun_status measure_pairs(st_conversion *p, st_layer_deltas *l, const uint8_t *codes, distances *found,
                                  setun_error *err) {
  size_t record = (size_t)l->record;
  double *alone = st_malloc(l->n_expert, sizeof *alone);
  setun_status s = alone ? SETUN_OK : st_fail_memory(err, "the deltas");
  *found = (distances){.least = UINT64_MAX};
  for (uint32_t e = 0; s == SETUN_OK && e < l->n_expert; e++) {
    alone[e] = st_trit_delta_entropy(4 * l->record, count_nonzero(codes + e * record, record));
  }
  for (uint32_t a = 0; s == SETUN_OK && a < l->n_expert; a++) {
    for (uint32_t b = a + 1; s == SETUN_OK && b < l->n_expert; b++) {
      uint64_t d = st_trit_delta_count(codes + a * record, codes + b * record, record);
      double bits = st_trit_delta_entropy(4 * l->record, d);
      if (d < found->least) found->least = d;
      if (d > found->most) found->most = d;
      found->sum += (double)d;
      if (bits < alone[a] && bits < alone[b]) s = add_pair(p, l, codes, a, b, err);
    }
    if (s == SETUN_OK) s = st_conversion_progress(p, 0, err);
  }
  st_free(alone);
  return s;
}

static void report(const st_conversion *p, const st_layer_deltas *l, const distances *found, uint64_t weights) {
  double n = (double)l->n_expert * (l->n_expert - 1) / 2, percent = 100 / (double)weights, bytes = 0;
  for (size_t i = 0; i < l->n_pairs; i++) bytes += (double)bytes_of(&l->pairs[i]);
  char text[96] = "no delta is shorter";
  if (l->n_pairs) {
    snprintf(text, sizeof text, "%zu deltas of %.1f %% of an expert in the mean", l->n_pairs,
             100 * bytes / (double)l->n_pairs / (double)l->record);
  }
  st_log_write(p->o->log, SETUN_LOG_INFO,
               "layer %u: %.0f pairs of experts differ in %.2f to %.2f %% of their trits, in the mean in %.2f %%: %s",
               (unsigned)l->layer, n, percent * (double)found->least, percent * (double)found->most,
               percent * found->sum / n, text);
}

// ---- items --------------------------------------------------------------------------------------------------------

// Whether the item is a matrix of one of the layer's experts.
static bool is_expert(const st_item *item, uint32_t layer) {
  return item->place.expert_of && item->place.layer == layer && !item->suffix && item->kind != ST_ITEM_SCALES;
}

static setun_status fail_number(const st_layer_deltas *l, uint32_t expert, uint32_t found, setun_error *err) {
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "layer %u: expert %u: expected %d matrices for deltas, found %u",
                 (unsigned)l->layer, (unsigned)expert, ST_DELTA_MATRICES, (unsigned)found);
}

// The layer's matrices; those of an expert are in the order of use.
static setun_status enter_items(const st_conversion *p, st_layer_deltas *l, uint32_t *found, setun_error *err) {
  for (size_t i = 0; i < p->n_items; i++) {
    const st_item *item = &p->items[i];
    uint32_t e = item->place.expert;
    if (!is_expert(item, l->layer)) continue;
    if (item->kind != ST_ITEM_TRITS || item->n_pieces != 1 || e >= p->h.n_expert) {
      return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: deltas are made for experts that are ternary and not stacked",
                     item->name);
    }
    if (found[e] == ST_DELTA_MATRICES) return fail_number(l, e, found[e] + 1, err);
    l->items[e * ST_DELTA_MATRICES + found[e]] = i;
    const st_item *first = &p->items[l->items[found[e]]]; // of expert 0, which comes before the others
    if (found[0] <= found[e] && e) return fail_number(l, e, found[e] + 1, err);
    found[e]++;
    if (item->bytes == first->bytes) continue;
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected %llu bytes, as %s has, for deltas, found %llu",
                   item->name, (unsigned long long)first->bytes, first->name, (unsigned long long)item->bytes);
  }
  return SETUN_OK;
}

// n_expert stays 0 where the layer has no experts.
static setun_status find_items(const st_conversion *p, st_layer_deltas *l, setun_error *err) {
  uint32_t n = p->h.n_expert, *found = st_calloc(n, sizeof *found);
  l->items = st_calloc((size_t)n * ST_DELTA_MATRICES, sizeof *l->items);
  setun_status s = found && l->items ? enter_items(p, l, found, err) : st_fail_memory(err, "the deltas");
  bool any = s == SETUN_OK && found[0];
  for (uint32_t e = 0; any && s == SETUN_OK && e < n; e++) {
    if (found[e] != ST_DELTA_MATRICES) s = fail_number(l, e, found[e], err);
  }
  st_free(found);
  if (s != SETUN_OK || !any) return s;
  l->n_expert = n;
  for (int i = 0; i < ST_DELTA_MATRICES; i++) l->record += matrix_bytes(p, l, i);
  return SETUN_OK;
}

static setun_status add_item(st_conversion *p, st_layer_deltas *l, setun_error *err) {
  char name[ST_DELTAS_NAME];
  st_expert_deltas_name(l->layer, name);
  st_item *item = st_conversion_add(p);
  if (!item || !(item->name = st_strdup(name))) return st_fail_memory(err, name);
  item->kind = ST_ITEM_DELTAS;
  item->dtype = "I8";
  item->bytes = ST_DELTAS_HEADER + ST_DELTAS_ENTRY * (uint64_t)l->n_pairs;
  for (size_t i = 0; i < l->n_pairs; i++) item->bytes += bytes_of(&l->pairs[i]);
  item->n_dims = 1;
  memcpy(item->dims, (uint64_t[4]){item->bytes, 1, 1, 1}, sizeof item->dims);
  item->shape = (st_shape){1, item->bytes};
  item->deltas = l;
  return SETUN_OK;
}

static setun_status plan_layer(st_conversion *p, st_layer_deltas *l, uint64_t *n_pairs, double *closest,
                               setun_error *err) {
  uint8_t *codes = NULL;
  distances found;
  uint64_t weights = 0;
  for (int i = 0; i < ST_DELTA_MATRICES; i++) {
    const st_item *item = &p->items[l->items[i]];
    weights += item->shape.rows * item->shape.columns;
  }
  setun_status s = load_layer(p, l, &codes, err);
  if (s == SETUN_OK) s = measure_pairs(p, l, codes, &found, err);
  st_free(codes);
  if (s != SETUN_OK) return s;
  report(p, l, &found, weights);
  *n_pairs += l->n_pairs;
  if ((double)found.least / (double)weights < *closest) *closest = (double)found.least / (double)weights;
  return SETUN_OK;
}

static setun_status check(const st_conversion *p, setun_error *err) {
  bool t16 = p->o->to->ops->codes && p->o->to->ops->codes->order == ST_CODES_GROUPS;
  if (!p->to_gguf || !t16 || p->o->stacked) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "deltas are made for experts in one tensor each of a GGUF file in t16, which is used as it is read");
  }
  if (p->has_hparams && p->h.n_expert > 1) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected several experts, between which deltas are made, found %u",
                 p->d->path, p->has_hparams ? (unsigned)p->h.n_expert : 0);
}

setun_status st_conversion_expert_deltas(st_conversion *p, setun_error *err) {
  if (!p->o->deltas) return SETUN_OK;
  uint64_t n_pairs = 0;
  double closest = 1;
  setun_status s = check(p, err);
  for (uint32_t i = 0; s == SETUN_OK && i < p->h.n_layer; i++) {
    st_layer_deltas *l = st_calloc(1, sizeof *l);
    if (!l) return st_fail_memory(err, "the deltas");
    l->layer = i;
    s = find_items(p, l, err);
    if (s == SETUN_OK && l->n_expert) s = plan_layer(p, l, &n_pairs, &closest, err);
    if (s == SETUN_OK && l->n_pairs) {
      s = add_item(p, l, err);
      if (s == SETUN_OK) continue; // the item owns it
    }
    st_layer_deltas_free(l);
  }
  if (s == SETUN_OK && !n_pairs) {
    st_log_write(p->o->log, SETUN_LOG_INFO,
                 "deltas save nothing here: no two experts of a layer have enough in common (the closest two differ in "
                 "%.2f %% of their trits), so none is stored",
                 100 * closest);
  }
  return s;
}

// ---- writing ------------------------------------------------------------------------------------------------------

static void store_u64(uint8_t *p, uint64_t v) {
  st_store_u32(p, (uint32_t)v);
  st_store_u32(p + 4, (uint32_t)(v >> 32));
}

static setun_status write_table(const st_layer_deltas *l, st_output *out, setun_error *err) {
  uint8_t bytes[ST_DELTAS_ENTRY];
  st_store_u32(bytes, ST_DELTAS_VERSION);
  st_store_u32(bytes + 4, (uint32_t)l->n_pairs);
  setun_status s = st_output_write(out, bytes, ST_DELTAS_HEADER, err);
  for (size_t i = 0; i < l->n_pairs && s == SETUN_OK; i++) {
    st_store_u32(bytes, l->pairs[i].first);
    st_store_u32(bytes + 4, l->pairs[i].second);
    store_u64(bytes + 8, bytes_of(&l->pairs[i]));
    s = st_output_write(out, bytes, sizeof bytes, err);
  }
  return s;
}

static setun_status write_pair(const st_conversion *p, const st_layer_deltas *l, const delta_pair *pair,
                               const uint8_t *codes, st_output *out, setun_error *err) {
  size_t bytes = (size_t)bytes_of(pair);
  const uint8_t *first = codes + pair->first * l->record, *second = codes + pair->second * l->record;
  uint8_t *all = st_malloc(bytes, 1);
  if (!all) return st_fail_memory(err, "the deltas");
  uint8_t *string = all + ST_DELTA_HEADER;
  for (int i = 0; i < ST_DELTA_MATRICES; i++) {
    const st_trit_delta *d = &pair->matrices[i];
    size_t n = (size_t)matrix_bytes(p, l, i);
    st_store_u32(all + 12 * i, (uint32_t)d->bytes);
    st_store_u32(all + 12 * i + 4, (uint32_t)d->differences);
    st_store_u32(all + 12 * i + 8, d->shift);
    st_trit_delta_encode(first, second, n, d, string);
    first += n;
    second += n;
    string += d->bytes;
  }
  setun_status s = st_output_write(out, all, bytes, err);
  st_free(all);
  return s;
}

setun_status st_item_write_deltas(st_conversion *p, const st_item *item, st_output *out, setun_error *err) {
  const st_layer_deltas *l = item->deltas;
  uint8_t *codes = NULL;
  setun_status s = load_layer(p, l, &codes, err);
  if (s == SETUN_OK) s = write_table(l, out, err);
  for (size_t i = 0; i < l->n_pairs && s == SETUN_OK; i++) s = write_pair(p, l, &l->pairs[i], codes, out, err);
  st_free(codes);
  return s;
}
