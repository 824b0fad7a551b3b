// The bytes of a synthetic model's tensors, 16 rows at a time for the formats that mix rows.
#include "synthetic/synthesis.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/random.h"
#include "model/roles.h"

#include <math.h>
#include <string.h>

enum { UNIT_ROWS = 16 };

// One scale for a tensor. It keeps a product's variance about that of its input: of K weights 6 of 10 are not 0.
static float trit_scale(uint64_t columns) {
  return exp2f(roundf(-0.5f * log2f(0.6f * (float)columns)));
}

// Each row has its own random sequence, independent of other rows and of the format.
static void seed_row(const st_synthesis *y, const st_synthetic_tensor *t, uint64_t row, st_random *r) {
  const uint64_t id[] = {y->seed, t->role, t->layer, row};
  st_random_seed(r, st_hash(ST_HASH_START, id, sizeof id));
}

// Trits from `n` random bytes (a multiple of 8) by their values: 77 of 256 are -1, 77 are +1.
static void random_trits(st_random *r, int8_t *trits, size_t n) {
  for (size_t i = 0; i < n; i += 8) {
    uint64_t bits = st_random_u64(r);
    memcpy(trits + i, &bits, 8);
  }
  for (size_t i = 0; i < n; i++) {
    uint8_t byte = (uint8_t)trits[i];
    trits[i] = (int8_t)((byte > 178) - (byte < 77));
  }
}

// Uniform, with this standard deviation.
static void random_floats(st_random *r, float deviation, float *x, size_t n) {
  float step = deviation * sqrtf(3) / 32768;
  for (size_t i = 0; i < n; i += 4) {
    uint64_t bits = st_random_u64(r);
    for (size_t j = 0; j < 4; j++) x[i + j] = step * (float)(int16_t)(bits >> 16 * j);
  }
}

static bool is_biased_embedding(const st_synthesis *y, const st_synthetic_tensor *t) {
  return y->routers.n_bias && st_role_get(t->role)->part == ST_OF_MODEL && t->fill == ST_FILL_RANDOM;
}

static bool is_router(st_role role) {
  return st_role_get(role)->kind == ST_KIND_ROUTER && st_role_get(role)->part == ST_OF_EXPERTS;
}

static float scale_of(const st_synthesis *y, const st_synthetic_tensor *t) {
  return is_biased_embedding(y, t) ? st_synthetic_embedding_scale() : trit_scale(t->shape.columns);
}

// A row of an embedding, a head or a router.
static void random_row(const st_synthesis *y, const st_synthetic_tensor *t, uint64_t row, st_random *r, float *x) {
  size_t k = (size_t)t->shape.columns;
  if (is_biased_embedding(y, t)) {
    random_floats(r, st_synthetic_embedding_scale(), x, k);
    for (size_t i = 0; i < y->routers.n_bias; i++) x[i] = st_synthetic_embedding_scale();
  } else if (y->routers.n_bias && is_router(t->role)) {
    random_floats(r, 1, x, k);
    st_synthetic_router_row(&y->routers, t->layer, (uint32_t)row, k, x);
  } else {
    random_floats(r, 3 / sqrtf((float)k), x, k); // products have a standard deviation of about 3
  }
}

// What the rows of one unit need, allocated once a call.
typedef struct {
  int8_t *trits;
  float *floats, *scales;
  uint8_t *bytes;
} scratch;

static void free_scratch(scratch *w) {
  st_free(w->trits);
  st_free(w->floats);
  st_free(w->scales);
  st_free(w->bytes);
}

static setun_status make_scratch(const st_output_tensor *out, st_shape shape, uint64_t unit_bytes, scratch *w,
                                 setun_error *err) {
  size_t weights = (size_t)(UNIT_ROWS * shape.columns);
  bool floats = !st_format_is_ternary(out->format);
  *w = (scratch){.trits = st_malloc(weights, 1), .bytes = st_malloc((size_t)unit_bytes, 1)};
  if (floats) w->floats = st_malloc(weights, sizeof(float));
  w->scales = st_malloc(weights / 32 + UNIT_ROWS, sizeof(float)); // no block is shorter
  if (w->trits && w->bytes && w->scales && (w->floats || !floats)) return SETUN_OK;
  free_scratch(w);
  return st_fail_memory(err, out->name);
}

// Writes the rows of a strip as bytes to `to`, which has room for them.
static void make_unit(const st_synthesis *y, const st_synthetic_tensor *t, const st_format *f, const st_strip *strip,
                      const scratch *w, uint8_t *to) {
  size_t k = (size_t)t->shape.columns;
  bool random = t->fill == ST_FILL_RANDOM, ternary = st_format_is_ternary(f);
  float scale = scale_of(y, t);
  for (size_t i = 0; i < strip->count; i++) {
    st_random r;
    seed_row(y, t, strip->row + i, &r);
    if (random && !ternary) {
      random_row(y, t, strip->row + i, &r, w->floats + i * k);
      continue;
    }
    random_trits(&r, w->trits + i * k, k);
    if (is_biased_embedding(y, t)) memset(w->trits + i * k, 1, y->routers.n_bias);
    for (size_t j = 0; j < k && !ternary; j++) w->floats[i * k + j] = scale * (float)w->trits[i * k + j];
  }
  if (!ternary) {
    f->ops->encode(f, t->shape, strip, w->floats, to);
    return;
  }
  uint64_t per_row = st_format_row_scales(f, k);
  for (size_t i = 0; i < strip->count * (per_row ? per_row : 1); i++) w->scales[i] = scale;
  memset(to, 0, (size_t)strip->bytes);
  f->ops->pack(f, t->shape, strip, w->trits, w->scales, to);
}

static setun_status fill_matrix(const st_synthesis *y, size_t index, uint64_t from, size_t n, uint8_t *to,
                                setun_error *err) {
  const st_synthetic_tensor *t = &y->made[index];
  const st_format *f = y->tensors[index].format;
  scratch w;
  uint64_t unit_bytes = st_format_locate(f, t->shape, 0, UNIT_ROWS).bytes;
  setun_status s = make_scratch(&y->tensors[index], t->shape, unit_bytes, &w, err);
  if (s != SETUN_OK) return s;
  uint64_t end = from + n;
  for (uint64_t row = from / unit_bytes * UNIT_ROWS; row < t->shape.rows; row += UNIT_ROWS) {
    st_strip strip = st_format_locate(f, t->shape, row, UNIT_ROWS);
    if (strip.offset >= end) break;
    bool whole = strip.offset >= from && strip.offset + strip.bytes <= end;
    make_unit(y, t, f, &strip, &w, whole ? to + (strip.offset - from) : w.bytes);
    if (whole) continue;
    uint64_t first = strip.offset > from ? strip.offset : from;
    uint64_t last = strip.offset + strip.bytes < end ? strip.offset + strip.bytes : end;
    if (first < last) memcpy(to + (first - from), w.bytes + (first - strip.offset), (size_t)(last - first));
  }
  free_scratch(&w);
  return SETUN_OK;
}

// Bytes of a short pattern at `at`, followed by zeros.
static void put_at(const uint8_t *pattern, size_t size, uint64_t at, uint64_t from, size_t n, uint8_t *to) {
  for (size_t i = 0; i < size; i++) {
    if (at + i >= from && at + i < from + n) to[at + i - from] = pattern[i];
  }
}

setun_status st_synthesis_fill(const st_synthesis *y, size_t index, uint64_t from, size_t n, uint8_t *to,
                               setun_error *err) {
  const st_synthetic_tensor *t = &y->made[index];
  const st_format *f = y->tensors[index].format;
  uint8_t number[4];
  if (t->shape.rows > 1) {
    memset(to, 0, n);
    setun_status s = fill_matrix(y, index, from, n, to, err);
    st_store_f32(number, scale_of(y, t));
    if (f->scales == ST_SCALE_TENSOR) put_at(number, 4, f->ops->scale_offset(f, t->shape), from, n, to);
    return s;
  }
  float value = t->fill == ST_FILL_MINUS_ONES ? -1 : 1;
  st_store_f32(number, t->fill == ST_FILL_SCALE ? scale_of(y, &y->made[t->of]) : value);
  for (size_t i = 0; i < n; i++) to[i] = number[(from + i) % 4];
  return SETUN_OK;
}
