// The KV cache and attention: the keys that each token sees are computed here, and uploaded as lists. The layout of
// pages is in shaders/cache.glsl.
#include "backend/vulkan/device.h"

#include "base/memory.h"

#include <string.h>

enum { LOCAL = 64 };

// ---- the cache ----------------------------------------------------------------------------------------------------

const char *st_vk_cache_format_name(setun_kv_type type) {
  return st_backend_at(0)->cache_format_name(type);
}

size_t st_vk_cache_row_size(setun_kv_type type, bool keys, uint32_t head_dim) {
  return st_backend_at(0)->cache_row_size(type, keys, head_dim);
}

// How many bits of a word a number takes, and keys' high bits of their own.
static uint32_t low_bits(setun_kv_type type) {
  static const uint32_t bits[] = {[SETUN_KV_F16] = 16, [SETUN_KV_F32] = 32, [SETUN_KV_Q8] = 8, [SETUN_KV_Q4] = 4};
  return bits[type];
}

static bool is_codes(setun_kv_type type) {
  return low_bits(type) < 16;
}

static uint32_t padded(uint32_t head_dim) {
  return (head_dim + 31) / 32 * 32;
}

static uint32_t low_words(setun_kv_type type, uint32_t head_dim) {
  return ((is_codes(type) ? padded(head_dim) : head_dim) * low_bits(type) + 31) / 32;
}

// Words of a position of a KV head: of its key, or of its value.
static uint32_t cache_words(setun_kv_type type, bool keys, uint32_t head_dim) {
  uint32_t low = low_words(type, head_dim);
  return is_codes(type) ? 1 + low + (keys ? padded(head_dim) / 16 : 0) : low;
}

static uint32_t key_words(const st_cache_shape *s) {
  return ST_CACHE_POSITIONS * cache_words(s->keys, true, s->head_dim);
}

static uint32_t head_words(const st_cache_shape *s) {
  return key_words(s) + ST_CACHE_POSITIONS * cache_words(s->values, false, s->head_dim);
}

uint64_t st_vk_cache_page_size(const st_cache_shape *s) {
  return (uint64_t)s->n_head_kv * head_words(s) * sizeof(uint32_t);
}

uint64_t st_vk_cache_size(const st_device *d, const st_cache_shape *shape, int threads) {
  (void)d, (void)threads;
  return shape->n_pages * st_vk_cache_page_size(shape);
}

setun_status st_vk_cache_new(st_queue *q, const st_cache_shape *shape, st_cache **cache, setun_error *err) {
  enum { MOST_HEAD_DIM = 1024 };
  uint64_t bytes = st_vk_cache_size(q->device, shape, 0);
  if (shape->head_dim > MOST_HEAD_DIM || bytes / sizeof(uint32_t) > INT32_MAX) {
    return st_fail(err, SETUN_ERROR_LIMIT,
                   "%s: a KV cache of %u pages of heads of %u numbers is too large for the device: expected at most "
                   "8 GiB and %d numbers",
                   q->device->traits.name, shape->n_pages, shape->head_dim, MOST_HEAD_DIM);
  }
  setun_status s = st_vk_check_cache(q->device, shape->keys, shape->values, err);
  st_cache *c = s == SETUN_OK ? st_calloc(1, sizeof *c) : NULL;
  if (!c) return s == SETUN_OK ? st_fail_memory(err, "the KV cache") : s;
  *c = (st_cache){.device = q->device,
                  .shape = *shape,
                  .page_words = shape->n_head_kv * head_words(shape),
                  .key_words = key_words(shape),
                  .head_words = head_words(shape)};
  s = st_vk_buffer_new(q->device, bytes, ST_VK_LOCAL, "the KV cache", &c->data, err);
  if (s == SETUN_OK) {
    *cache = c;
  } else {
    st_vk_cache_free(c);
  }
  return s;
}

void st_vk_cache_free(st_cache *c) {
  if (!c) return;
  st_vk_buffer_free(c->device, &c->data);
  st_free(c);
}

uint32_t st_vk_cache_page(const st_cache *c, const st_token_run *r, uint32_t layer, uint32_t position) {
  return r->pages[layer * r->stride + position / ST_CACHE_POSITIONS] * c->page_words;
}

void st_vk_cache_copy_page(st_queue *q, st_cache *c, uint32_t from, uint32_t to) {
  const st_vk_access uses[] = {ST_VK_READS(c), ST_VK_WRITES(c)};
  uint64_t bytes = c->page_words * sizeof(uint32_t);
  const VkBufferCopy region = {from * bytes, to * bytes, bytes};
  if (from == to || !st_vk_begin(q)) return;
  st_vk_sync(q, uses, 2);
  st_vk_copy(q, c->data.buffer, c->data.buffer, &region, 1);
}

// ---- attention ----------------------------------------------------------------------------------------------------

// The layout of `Token` in shaders/attend.comp.
typedef struct {
  uint32_t pages, first, last, far, sinks, pad[3];
} token_keys;

typedef struct {
  VkDeviceAddress q, q_far, q_sink, dst, cache, pages, tokens, sinks;
  uint32_t q_stride, dst_stride, group, key_words, head_words, has_sinks;
  float scale;
  uint32_t pad;
} attend_push;

// The keys that a token of a run sees: [first, last), and those of the sinks where they are separate.
static token_keys keys_of(const st_attend_args *a, const st_token_run *r, uint32_t position) {
  bool sinks = a->n_sinks && position >= a->n_sinks + a->window;
  uint32_t window = a->n_sinks && !sinks ? 0 : a->window;
  token_keys t = {.last = position + 1, .sinks = sinks ? a->n_sinks : 0};
  if (a->bidirectional) {
    uint32_t end = r->position + r->n;
    t.last = window && end - position > window ? position + window : end;
  }
  if (window && position >= window) t.first = position - window + 1;
  if (a->period && position >= a->period) t.far = a->period;
  return t;
}

static uint32_t pages_until(uint32_t position) {
  return (position + ST_CACHE_POSITIONS - 1) / ST_CACHE_POSITIONS;
}

// A run's part of the list: the sinks' pages, then all pages from `first` on that any of its tokens sees.
typedef struct {
  uint32_t sinks, first, last; // in pages
} run_pages;

static run_pages pages_of(const st_attend_args *a, const st_token_run *r) {
  token_keys begin = keys_of(a, r, r->position), end = keys_of(a, r, r->position + r->n - 1);
  return (run_pages){pages_until(end.sinks), begin.first / ST_CACHE_POSITIONS, pages_until(end.last)};
}

// Fills in the list of pages and that of tokens.
static void list_keys(const st_cache *c, const st_batch *batch, const st_attend_args *a, uint32_t *pages,
                      token_keys *tokens) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < batch->n_runs; i++) {
    const st_token_run *r = &batch->runs[i];
    run_pages p = pages_of(a, r);
    for (uint32_t j = 0; j < p.sinks; j++) pages[n++] = st_vk_cache_page(c, r, a->layer, j * ST_CACHE_POSITIONS);
    for (uint32_t j = 0; j < r->n; j++) {
      token_keys t = keys_of(a, r, r->position + j);
      uint32_t skipped = p.first * ST_CACHE_POSITIONS;
      t.pages = n;
      t.first -= skipped, t.last -= skipped;
      t.far = t.far > skipped ? t.far - skipped : 0;
      *tokens++ = t;
    }
    for (uint32_t j = p.first; j < p.last; j++) pages[n++] = st_vk_cache_page(c, r, a->layer, j * ST_CACHE_POSITIONS);
  }
}

// The bytes of the keys and values that the tokens see.
static uint64_t seen_bytes(const st_cache *c, const st_batch *batch, const token_keys *tokens) {
  uint64_t keys = 0;
  for (uint32_t i = 0; i < batch->n_tokens; i++) keys += tokens[i].last - tokens[i].first + tokens[i].sinks;
  return keys * c->page_words / ST_CACHE_POSITIONS * sizeof(uint32_t);
}

void st_vk_attend(st_queue *q, const st_cache *c, const st_batch *batch, const st_attend_args *a) {
  const st_array *far = a->period ? a->q_far : a->q, *sink = a->n_sinks ? a->q_sink : a->q;
  uint64_t n = 0;
  if (!st_vk_begin(q)) return;
  for (uint32_t i = 0; i < batch->n_runs; i++) {
    run_pages p = pages_of(a, &batch->runs[i]);
    n += p.sinks + p.last - p.first;
  }
  VkDeviceAddress pages_at = 0, tokens_at = 0;
  uint32_t *pages = st_vk_upload_new(q, n * sizeof *pages, &pages_at);
  token_keys *tokens = st_vk_upload_new(q, batch->n_tokens * sizeof *tokens, &tokens_at);
  if (!pages || !tokens) return;
  list_keys(c, batch, a, pages, tokens);
  uint32_t local = st_vk_local(q->device, LOCAL), words = low_words(c->shape.values, c->shape.head_dim);
  const st_vk_special special = {
      {local, c->shape.keys, c->shape.values, c->shape.head_dim, (words + local - 1) / local}};
  const attend_push push = {.q = a->q->data.address,
                            .q_far = far->data.address,
                            .q_sink = sink->data.address,
                            .dst = a->dst->data.address,
                            .cache = c->data.address,
                            .pages = pages_at,
                            .tokens = tokens_at,
                            .sinks = a->sinks ? a->sinks->values.address : 0,
                            .q_stride = (uint32_t)a->q->width,
                            .dst_stride = (uint32_t)a->dst->width,
                            .group = a->n_head / c->shape.n_head_kv,
                            .key_words = c->key_words,
                            .head_words = c->head_words,
                            .has_sinks = a->sinks != NULL,
                            .scale = a->scale};
  st_vk_op op = st_vk_op_of(ST_VK_ATTEND, &special, &push, sizeof push, (st_vk_groups){a->n_head, batch->n_tokens});
  const st_vk_access uses[] = {ST_VK_READS(a->q), ST_VK_READS(far), ST_VK_READS(sink), ST_VK_READS(c),
                               ST_VK_WRITES(a->dst)};
  for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) st_vk_op_uses(&op, uses[i]);
  op.written = (uint64_t)batch->n_tokens * a->n_head * c->shape.head_dim * sizeof(float);
  op.read = op.written + seen_bytes(c, batch, tokens);
  st_vk_run(q, &op);
}

// ---- saving -------------------------------------------------------------------------------------------------------

// A head's keys and values of a page, as stored, while they are copied.
typedef struct {
  const st_cache *c;
  VkBufferCopy region;
  uint32_t *words;
} saved_head;

static setun_status open_head(const st_cache *c, uint32_t page, uint32_t head, saved_head *s, setun_error *err) {
  uint64_t bytes = c->head_words * sizeof(uint32_t);
  *s = (saved_head){c, {.size = bytes}, st_malloc(1, bytes)};
  s->region.srcOffset = ((uint64_t)page * c->page_words + head * c->head_words) * sizeof(uint32_t);
  return s->words ? SETUN_OK : st_fail_memory(err, "a page of the KV cache");
}

// A word of a position, keys being stored column by column.
static uint32_t *word_of(const saved_head *s, bool keys, uint32_t at, uint32_t word) {
  uint32_t each = cache_words(s->c->shape.values, false, s->c->shape.head_dim);
  return s->words + (keys ? word * ST_CACHE_POSITIONS + at : s->c->key_words + at * each + word);
}

// A number's code in a row as it is saved: where 8 or 4 low bits of it are, and of keys where 2 high ones are; 32
// columns are a step. See docs/cache.md.
typedef struct {
  uint8_t *low, *high;
  uint32_t low_shift, high_shift;
} saved_code;

static saved_code saved_code_of(uint8_t *row, uint32_t bits, bool keys, uint32_t column) {
  enum { STEP = 32 };
  uint32_t in = column % STEP, low_bytes = STEP * bits / 8;
  uint8_t *step = row + sizeof(uint16_t) + column / STEP * (low_bytes + (keys ? STEP / 4 : 0));
  return (saved_code){.low = step + (bits == 8 ? in : in % 16),
                      .low_shift = bits == 8 || in < 16 ? 0 : 4,
                      .high = step + low_bytes + in % 8,
                      .high_shift = in / 8 * 2};
}

static uint32_t get_bits(uint32_t from, uint32_t shift, uint32_t bits) {
  return from >> shift & ((1u << bits) - 1);
}

static void copy_codes(const saved_head *s, bool keys, uint32_t at, uint8_t *row, bool out) {
  setun_kv_type type = keys ? s->c->shape.keys : s->c->shape.values;
  uint32_t bits = low_bits(type), each = 32 / bits, low = low_words(type, s->c->shape.head_dim);
  uint32_t words = cache_words(type, keys, s->c->shape.head_dim);
  uint32_t *scale = word_of(s, keys, at, 0);
  memcpy(out ? (void *)row : scale, out ? (const void *)scale : row, sizeof(uint16_t)); // little-endian, as all devices
  for (uint32_t i = 1; i < words && !out; i++) *word_of(s, keys, at, i) = 0;
  for (uint32_t i = 0; i < padded(s->c->shape.head_dim); i++) {
    saved_code c = saved_code_of(row, bits, keys, i);
    uint32_t *l = word_of(s, keys, at, 1 + i / each), shift = i % each * bits;
    if (out)
      *c.low = (uint8_t)((*c.low & ~(((1u << bits) - 1) << c.low_shift)) | get_bits(*l, shift, bits) << c.low_shift);
    else
      *l |= get_bits(*c.low, c.low_shift, bits) << shift;
    if (!keys) continue;
    uint32_t *h = word_of(s, keys, at, 1 + low + i / 16), high_shift = i % 16 * 2;
    if (out)
      *c.high = (uint8_t)((*c.high & ~(3u << c.high_shift)) | get_bits(*h, high_shift, 2) << c.high_shift);
    else
      *h |= get_bits(*c.high, c.high_shift, 2) << high_shift;
  }
}

// Copies a row out of the stored order, or into it.
static void copy_row(const saved_head *s, bool keys, uint32_t at, uint8_t *row, bool out) {
  setun_kv_type type = keys ? s->c->shape.keys : s->c->shape.values;
  size_t bytes = st_vk_cache_row_size(type, keys, s->c->shape.head_dim);
  if (is_codes(type)) {
    copy_codes(s, keys, at, row, out);
    return;
  }
  for (uint32_t word = 0; 4 * (size_t)word < bytes; word++) {
    size_t left = bytes - 4 * (size_t)word, n = left < 4 ? left : 4;
    uint8_t *outside = row + 4 * (size_t)word;
    uint32_t *inside = word_of(s, keys, at, word);
    memcpy(out ? (void *)outside : inside, out ? (const void *)inside : outside, n);
  }
}

static void copy_rows(const saved_head *s, uint32_t n, uint8_t *keys, uint8_t *values, bool out) {
  const st_cache_shape *shape = &s->c->shape;
  size_t key_row = st_vk_cache_row_size(shape->keys, true, shape->head_dim),
         value_row = st_vk_cache_row_size(shape->values, false, shape->head_dim);
  for (uint32_t at = 0; at < n; at++) {
    copy_row(s, true, at, keys + at * key_row, out);
    copy_row(s, false, at, values + at * value_row, out);
  }
}

setun_status st_vk_cache_save(st_queue *q, const st_cache *c, uint32_t page, uint32_t head, uint32_t n, void *keys,
                              void *values, setun_error *err) {
  saved_head s;
  setun_status status = open_head(c, page, head, &s, err);
  if (status == SETUN_OK) status = st_vk_copy_out(q, c->data.buffer, &s.region, 1, s.region.size, s.words, err);
  if (status == SETUN_OK) copy_rows(&s, n, keys, values, true);
  st_free(s.words);
  return status;
}

setun_status st_vk_cache_restore(st_queue *q, st_cache *c, uint32_t page, uint32_t head, uint32_t n, const void *keys,
                                 const void *values, setun_error *err) {
  saved_head s;
  setun_status status = open_head(c, page, head, &s, err);
  if (status == SETUN_OK) status = st_vk_copy_out(q, c->data.buffer, &s.region, 1, s.region.size, s.words, err);
  if (status == SETUN_OK) {
    copy_rows(&s, n, (uint8_t *)keys, (uint8_t *)values, false);
    const VkBufferCopy back = {0, s.region.srcOffset, s.region.size};
    status = st_vk_copy_in(q, c->data.buffer, &back, 1, back.size, s.words, err);
  }
  st_free(s.words);
  return status;
}
