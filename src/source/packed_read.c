// Reading packed weights: reads the tensors for some rows, and converts each row's integers, scales and zero points to
// blocks of the weight's format, or to floats.
#include "source/packed.h"

#include "base/bytes.h"
#include "base/memory.h"
#include "source/scattered.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK = 64 }; // outputs that marlin-24 interleaves

// Some rows of a weight being assembled; all arrays are in reader->raw.
typedef struct {
  const st_directory *d;
  const st_weight *w;
  const st_packed *p;
  uint64_t row, count; // of the stored matrix
  uint64_t columns;
  uint32_t *words;    // of the data
  uint64_t row_words; // of a stored row of it
  uint8_t *scales;    // as stored
  uint32_t *zeros;
  uint64_t zero_words, first_zero; // of a row of zeros; the bit of a row, or the row, at which `zeros` begins
  uint16_t *marks;
  uint8_t *kept;  // [CHUNK][columns / 2] of marlin-24
  uint8_t *codes; // [columns] of one row, 0 to 2^bits - 1
  float *d_of;    // [groups]
  int32_t *zero_of;
  setun_error *err;
} assembly;

// ---- opening ------------------------------------------------------------------------------------------------------

setun_status st_packed_open(st_row_reader *r, setun_error *err) {
  const st_weight *w = r->weight;
  const st_packed *p = &w->packed;
  if (!p->g_idx || (p->group && !p->ordered)) return SETUN_OK;
  uint64_t columns = w->stored.columns;
  setun_status s = st_packed_groups(r->directory, p->g_idx, p->groups, &r->groups, err);
  if (s != SETUN_OK || !p->ordered) return s;
  r->order = st_malloc((size_t)columns, sizeof *r->order);
  r->row = st_malloc((size_t)columns, sizeof *r->row);
  uint64_t *next = st_malloc((size_t)p->groups, sizeof *next);
  if (r->order && r->row && next) {
    for (uint64_t g = 0; g < p->groups; g++) next[g] = g * p->group;
    for (uint64_t k = 0; k < columns; k++) r->order[next[r->groups[k]]++] = (uint32_t)k;
  } else {
    s = st_fail_memory(err, w->name);
  }
  st_free(next);
  st_free(r->groups);
  r->groups = NULL;
  return s;
}

// ---- memory -------------------------------------------------------------------------------------------------------

static uint64_t align8(uint64_t bytes) {
  return (bytes + 7) & ~(uint64_t)7;
}

static void *take(uint8_t *base, uint64_t *used, uint64_t bytes) {
  void *at = base ? base + *used : NULL;
  *used += align8(bytes);
  return at;
}

static uint64_t scale_size(const st_packed *p) {
  return p->scales->format->block_bytes;
}

// Lays out the arrays for a->count rows from `base`, which may be NULL; returns their size in bytes. All are small
// multiples of the size of these rows in the file.
static uint64_t lay_out(assembly *a, uint8_t *base) {
  const st_packed *p = a->p;
  uint64_t used = 0, k = a->columns, n = a->count;
  switch (p->kind) {
  case ST_PACKING_GPTQ:
    a->row_words = k * p->bits / 32;
    a->first_zero = a->row * p->bits / 96 * 96; // whole words of whole values, for any number of bits
    a->zero_words = ((a->row + n) * p->bits + 31) / 32 - a->first_zero / 32;
    a->words = take(base, &used, a->row_words * n * 4);
    a->zeros = take(base, &used, p->groups * a->zero_words * 4);
    break;
  case ST_PACKING_INTS:
    a->row_words = a->w->data->dims[0];
    a->first_zero = a->row / (32 / p->bits);
    a->words = take(base, &used, a->row_words * n * 4);
    a->zeros = take(base, &used, p->zeros ? (n * p->bits / 32 + 2) * p->groups * 4 : 0);
    break;
  case ST_PACKING_MARLIN_24:
    a->row_words = CHUNK * p->bits / 2;
    a->words = take(base, &used, k / 32 * a->row_words * 4);
    a->marks = take(base, &used, k / 32 * 2 * CHUNK * 2);
    a->kept = take(base, &used, CHUNK * k / 2);
    break;
  default:
    a->scales = take(base, &used, n * k / 2 * a->w->format->block_bytes); // the kept values
    a->marks = take(base, &used, n * ((k + 7) / 8));
    return used;
  }
  a->scales = take(base, &used, p->groups * (p->kind == ST_PACKING_MARLIN_24 ? CHUNK : n) * scale_size(p));
  a->codes = take(base, &used, k);
  a->d_of = take(base, &used, p->groups * sizeof *a->d_of);
  a->zero_of = take(base, &used, p->groups * sizeof *a->zero_of);
  return used;
}

uint64_t st_packed_bytes(const st_weight *w, uint64_t rows) {
  assembly a = {.w = w, .p = &w->packed, .row = w->stored.rows - 1, .count = rows, .columns = w->stored.columns};
  return lay_out(&a, NULL) + (w->packed.g_idx ? 3 * sizeof(uint32_t) * w->stored.columns : 0);
}

// ---- one row ------------------------------------------------------------------------------------------------------

static float load_scale(const assembly *a, uint64_t i) {
  const st_format *f = a->p->scales->format;
  float x;
  st_strip one = {.count = 1, .bytes = f->block_bytes};
  f->ops->decode(f, (st_shape){1, 1}, &one, a->scales + i * f->block_bytes, &x);
  return x;
}

// Corrects 32-bit words of zero points of GPTQ's version 1.
static void complete_zeros(const assembly *a) {
  for (uint64_t g = 0; g < a->p->groups; g++) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < a->zero_words; i++) {
      uint32_t *word = &a->zeros[g * a->zero_words + i];
      sum = (uint64_t)*word + a->p->plus[i % 3] + (a->p->carries && i % 3 ? sum >> 32 : 0);
      *word = (uint32_t)sum;
    }
  }
}

// Row `i` of the assembly.
static void take_gptq(const assembly *a, uint64_t i) {
  const st_packed *p = a->p;
  uint64_t n = a->count, left = 0, k = 0;
  uint64_t bits = 0; // of the stream, the next ones in the lowest bits
  for (uint64_t at = 0; at < a->row_words; at++) {
    bits |= (uint64_t)a->words[at * n + i] << left;
    for (left += 32; left >= p->bits; left -= p->bits, bits >>= p->bits) {
      a->codes[k++] = (uint8_t)(bits & ((1u << p->bits) - 1));
    }
  }
  uint64_t zero_at = (a->row + i) * p->bits - a->first_zero;
  for (uint64_t g = 0; g < p->groups; g++) {
    a->d_of[g] = load_scale(a, g * n + i);
    a->zero_of[g] = (int32_t)st_packed_bits(a->zeros + g * a->zero_words, p->bits, zero_at);
  }
}

static void take_ints(const assembly *a, uint64_t i) {
  const st_packed *p = a->p;
  const uint32_t *words = a->words + i * a->row_words;
  uint64_t a_word = 32 / p->bits, row = a->row + i;
  for (uint64_t k = 0; k < a->columns; k++) a->codes[k] = (uint8_t)st_packed_field(words, p->bits, p->stream, k);
  for (uint64_t g = 0; g < p->groups; g++) {
    a->d_of[g] = load_scale(a, i * p->groups + g);
    a->zero_of[g] = 1 << (p->bits - 1);
    if (!p->zeros) continue;
    const uint32_t *zero = a->zeros + (row / a_word - a->first_zero) * p->groups + g;
    a->zero_of[g] = (int32_t)st_packed_field(zero, p->bits, false, row % a_word);
  }
}

static setun_status fail_four(const assembly *a, uint64_t row, uint64_t column, const char *found) {
  return st_fail(a->err, SETUN_ERROR_FORMAT,
                 "%s: row %" PRIu64 ", columns %" PRIu64 " to %" PRIu64
                 ": expected exactly two of four weights, found %s",
                 a->p->marks->name, row, column, column + 3, found);
}

// The metadata word of 16 columns of output n of a chunk.
static unsigned marlin_mark(const assembly *a, uint64_t n, uint64_t c) {
  uint64_t r = n % 2 * 2 + n % 8 / 4 + n % 4 / 2 * 32 + n / 8 * 4;
  if (r % 2 == 0 && c % 2) {
    r++, c--;
  } else if (r % 2 && c % 2 == 0) {
    r--, c++;
  }
  return a->marks[c / 2 * 2 * CHUNK + 2 * r + c % 2];
}

static setun_status take_marlin(const assembly *a, uint64_t i) {
  static const uint8_t stored[8] = {0, 2, 4, 6, 1, 3, 5, 7}; // the position of the scale of column b of 8
  const st_packed *p = a->p;
  uint64_t n = (a->row + i) % CHUNK;
  const uint8_t *kept = a->kept + n * a->columns / 2;
  bool permuted = p->groups > 1 && p->group < a->columns / 2;
  memset(a->codes, 1 << (p->bits - 1), (size_t)a->columns);
  for (uint64_t k = 0; k < a->columns; k += 4, kept += 2) {
    unsigned nibble = marlin_mark(a, n, k / 16) >> k % 16 & 15, low = nibble & 3, high = nibble >> 2;
    if (low >= high) {
      char found[16];
      snprintf(found, sizeof found, "code %u", nibble);
      return fail_four(a, a->row + i, k, found);
    }
    a->codes[k + low] = kept[0];
    a->codes[k + high] = kept[1];
  }
  for (uint64_t g = 0; g < p->groups; g++) {
    a->d_of[g] = load_scale(a, g * CHUNK + (permuted ? n / 8 * 8 + stored[n % 8] : n));
    a->zero_of[g] = 1 << (p->bits - 1);
  }
  return SETUN_OK;
}

// The row's blocks, or floats.
static void emit(const assembly *a, const st_row_reader *r, uint8_t *out) {
  const st_format *f = a->w->format;
  uint8_t codes[128]; // no integer format has longer blocks
  if (!f->ops->zero_points) {
    for (uint64_t k = 0; k < a->columns; k++) {
      uint64_t g = r->groups ? r->groups[k] : k / a->p->group;
      st_store_f32(out + 4 * k, (float)(a->codes[k] - a->zero_of[g]) * a->d_of[g]);
    }
    return;
  }
  for (uint64_t k = 0; k < a->columns; k += f->block, out += f->block_bytes) {
    uint64_t g = k / a->p->group;
    for (uint32_t j = 0; j < f->block; j++) codes[j] = a->codes[r->order ? r->order[k + j] : k + j];
    st_zp_store(f, st_f16_from_f32(a->d_of[g]), a->zero_of[g], codes, out);
  }
}

// ---- reading ------------------------------------------------------------------------------------------------------

static setun_status read_gptq(assembly *a) {
  const st_packed *p = a->p;
  setun_status s = st_packed_slice(a->d, a->w->data, 0, a->row_words, a->row, a->count, a->words, a->err);
  if (s == SETUN_OK) s = st_packed_slice(a->d, p->scales, 0, p->groups, a->row, a->count, a->scales, a->err);
  if (s == SETUN_OK) {
    s = st_packed_slice(a->d, p->zeros, 0, p->groups, a->first_zero / 32, a->zero_words, a->zeros, a->err);
  }
  if (s == SETUN_OK) complete_zeros(a);
  return s;
}

static setun_status read_ints(assembly *a) {
  const st_packed *p = a->p;
  uint64_t last_zero = (a->row + a->count - 1) / (32 / p->bits);
  setun_status s = st_packed_slice(a->d, a->w->data, a->row, a->count, 0, a->row_words, a->words, a->err);
  if (s == SETUN_OK) s = st_packed_slice(a->d, p->scales, a->row, a->count, 0, p->groups, a->scales, a->err);
  if (s != SETUN_OK || !p->zeros) return s;
  return st_packed_slice(a->d, p->zeros, a->first_zero, last_zero - a->first_zero + 1, 0, p->groups, a->zeros, a->err);
}

// The kept values of a chunk of outputs, by output.
static setun_status read_chunk(assembly *a, uint64_t chunk) {
  static const uint8_t orders[2][8] = {{0, 2, 4, 6, 1, 3, 5, 7}, {0, 2, 1, 3}};
  const st_packed *p = a->p;
  uint64_t parts = a->columns / 32, a_word = 32 / p->bits;
  const uint8_t *order = orders[p->bits == 8];
  setun_status s = st_packed_slice(a->d, a->w->data, 0, parts, chunk * a->row_words, a->row_words, a->words, a->err);
  if (s == SETUN_OK) s = st_packed_slice(a->d, p->marks, 0, parts, chunk * 2 * CHUNK, 2 * CHUNK, a->marks, a->err);
  if (s == SETUN_OK) s = st_packed_slice(a->d, p->scales, 0, p->groups, chunk * CHUNK, CHUNK, a->scales, a->err);
  for (uint64_t t = 0; s == SETUN_OK && t < parts; t++) {
    for (uint64_t at = 0; at < 16 * CHUNK; at++) {
      uint64_t e = at % 32 / a_word * a_word + order[at % a_word], i = at / 32, j = e / 8;
      e %= 8;
      uint64_t value = 16 * t + 2 * (i % 4) + e % 2 + 8 * (e % 4 / 2);
      uint64_t n = 16 * (i / 8) + 8 * (i / 4 % 2) + 4 * (e / 4) + j;
      a->kept[n * a->columns / 2 + value] = (uint8_t)st_packed_field(a->words + t * a->row_words, p->bits, false, at);
    }
  }
  return s;
}

static setun_status load_marlin(assembly *a, const st_row_reader *r, uint8_t *out, uint64_t row_bytes) {
  setun_status s = SETUN_OK;
  for (uint64_t i = 0; i < a->count && s == SETUN_OK; i++, out += row_bytes) {
    if (!i || (a->row + i) % CHUNK == 0) s = read_chunk(a, (a->row + i) / CHUNK);
    if (s == SETUN_OK) s = take_marlin(a, i);
    if (s == SETUN_OK) emit(a, r, out);
  }
  return s;
}

static setun_status load_ints(assembly *a, const st_row_reader *r, uint8_t *out, uint64_t row_bytes) {
  bool gptq = a->p->kind == ST_PACKING_GPTQ;
  setun_status s = gptq ? read_gptq(a) : read_ints(a);
  for (uint64_t i = 0; i < a->count && s == SETUN_OK; i++, out += row_bytes) {
    if (gptq)
      take_gptq(a, i);
    else
      take_ints(a, i);
    emit(a, r, out);
  }
  return s;
}

static setun_status load_bitmask(assembly *a, uint8_t *out, uint64_t row_bytes) {
  const st_packed *p = a->p;
  uint64_t size = a->w->format->block_bytes, mask_bytes = (a->columns + 7) / 8;
  setun_status s = st_packed_slice(a->d, a->w->data, a->row, a->count, 0, a->columns / 2, a->scales, a->err);
  if (s == SETUN_OK) s = st_packed_slice(a->d, p->marks, a->row, a->count, 0, mask_bytes, a->marks, a->err);
  if (s != SETUN_OK) return s;
  const uint8_t *kept = a->scales, *mask = (const uint8_t *)a->marks;
  memset(out, 0, (size_t)(a->count * row_bytes));
  for (uint64_t i = 0; i < a->count; i++, mask += mask_bytes, out += row_bytes) {
    for (uint64_t k = 0; k < a->columns; k++) {
      unsigned four = mask[k / 8] >> (k % 8 & 4) & 15;
      unsigned n = (four & 1) + (four >> 1 & 1) + (four >> 2 & 1) + (four >> 3);
      char found[8];
      snprintf(found, sizeof found, "%u", n);
      if (n != 2) return fail_four(a, a->row + i, k / 4 * 4, found);
      if (!(mask[k / 8] >> k % 8 & 1)) continue;
      memcpy(out + k * size, kept, (size_t)size);
      kept += size;
    }
  }
  return SETUN_OK;
}

setun_status st_packed_load(st_row_reader *r, uint64_t row, uint64_t want, st_strip *strip, setun_error *err) {
  const st_weight *w = r->weight;
  assembly a = {.d = r->directory,
                .w = w,
                .p = &w->packed,
                .row = w->first_row + row,
                .count = want,
                .columns = w->stored.columns,
                .err = err};
  uint64_t row_bytes = st_format_row_bytes(w->format, a.columns), raw = lay_out(&a, NULL);
  if (!st_reserve(&r->raw, &r->raw_capacity, (size_t)raw, 1) ||
      !st_reserve(&r->bytes, &r->capacity, (size_t)(want * row_bytes), 1)) {
    return st_fail_memory(err, w->name);
  }
  lay_out(&a, r->raw);
  setun_status s;
  switch (w->packed.kind) {
  case ST_PACKING_MARLIN_24: s = load_marlin(&a, r, r->bytes, row_bytes); break;
  case ST_PACKING_BITMASK_24: s = load_bitmask(&a, r->bytes, row_bytes); break;
  default: s = load_ints(&a, r, r->bytes, row_bytes); break;
  }
  *strip = (st_strip){.row = w->first_row + row, .count = want, .offset = 0, .bytes = want * row_bytes};
  return s;
}
