// The KV cache and attention: the keys that each token sees are computed here, and uploaded as lists.
#include "backend/vulkan/device.h"

#include "base/memory.h"

#include <string.h>

enum { LOCAL = 64 };

// ---- the cache ----------------------------------------------------------------------------------------------------

// Bytes of the numbers that the device stores: half precision, two a word, or float32.
static const uint32_t number_bytes[] = {[SETUN_KV_F16] = 2, [SETUN_KV_F32] = 4};

const char *st_vk_cache_format_name(setun_kv_type type) {
  return (size_t)type < sizeof number_bytes / sizeof *number_bytes ? st_backend_at(0)->cache_format_name(type) : NULL;
}

size_t st_vk_cache_row_size(setun_kv_type type, bool keys, uint32_t head_dim) {
  (void)keys;
  return (size_t)head_dim * number_bytes[type];
}

// Words of a position.
static uint32_t words_of(setun_kv_type type, uint32_t head_dim) {
  return (uint32_t)(st_vk_cache_row_size(type, true, head_dim) + 3) / 4;
}

static uint32_t key_words(const st_cache_shape *s) {
  return ST_CACHE_POSITIONS * words_of(s->keys, s->head_dim);
}

static uint32_t head_words(const st_cache_shape *s) {
  return key_words(s) + ST_CACHE_POSITIONS * words_of(s->values, s->head_dim);
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
  st_cache *c = st_calloc(1, sizeof *c);
  if (!c) return st_fail_memory(err, "the KV cache");
  *c = (st_cache){.device = q->device,
                  .shape = *shape,
                  .page_words = shape->n_head_kv * head_words(shape),
                  .key_words = key_words(shape),
                  .head_words = head_words(shape)};
  setun_status s = st_vk_buffer_new(q->device, bytes, ST_VK_LOCAL, "the KV cache", &c->data, err);
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

// The first word of the page with a position.
static uint32_t page_of(const st_cache *c, const st_token_run *r, uint32_t layer, uint32_t position) {
  return r->pages[layer * r->stride + position / ST_CACHE_POSITIONS] * c->page_words;
}

typedef struct {
  VkDeviceAddress k, v, cache, places;
  uint32_t k_stride, v_stride, heads, head_dim, key_words, head_words;
} write_push;

static st_vk_special special_of(const st_queue *q, const st_cache *c, uint32_t local) {
  return (st_vk_special){
      {st_vk_local(q->device, local), c->shape.keys == SETUN_KV_F16, c->shape.values == SETUN_KV_F16}};
}

void st_vk_cache_write(st_queue *q, st_cache *c, uint32_t layer, const st_batch *batch, st_array *k, st_array *v) {
  const st_vk_access uses[] = {ST_VK_READS(k), ST_VK_READS(v), ST_VK_WRITES(c)};
  const st_vk_special special = special_of(q, c, LOCAL);
  VkDeviceAddress places = 0;
  if (!st_vk_begin(q, uses, 3)) return;
  uint32_t *to = st_vk_upload_new(q, 2 * batch->n_tokens * sizeof *to, &places);
  for (uint32_t i = 0; to && i < batch->n_runs; i++) {
    const st_token_run *r = &batch->runs[i];
    for (uint32_t p = r->position; p < r->position + r->n; p++) {
      *to++ = page_of(c, r, layer, p);
      *to++ = p % ST_CACHE_POSITIONS;
    }
  }
  const write_push push = {.k = k->data.address,
                           .v = v->data.address,
                           .cache = c->data.address,
                           .places = places,
                           .k_stride = (uint32_t)k->width,
                           .v_stride = (uint32_t)v->width,
                           .heads = c->shape.n_head_kv,
                           .head_dim = c->shape.head_dim,
                           .key_words = c->key_words,
                           .head_words = c->head_words};
  uint32_t words = c->page_words / ST_CACHE_POSITIONS, local = special.constants[0];
  st_vk_dispatch(q, ST_VK_CACHE_WRITE, &special, &push, sizeof push,
                 (st_vk_groups){(words + local - 1) / local, batch->n_tokens});
}

void st_vk_cache_copy_page(st_queue *q, st_cache *c, uint32_t from, uint32_t to) {
  const st_vk_access uses[] = {ST_VK_READS(c), ST_VK_WRITES(c)};
  uint64_t bytes = c->page_words * sizeof(uint32_t);
  const VkBufferCopy region = {from * bytes, to * bytes, bytes};
  if (from == to || !st_vk_begin(q, uses, 2)) return;
  q->device->vk.CmdCopyBuffer(q->commands, c->data.buffer, c->data.buffer, 1, &region);
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
    for (uint32_t j = 0; j < p.sinks; j++) pages[n++] = page_of(c, r, a->layer, j * ST_CACHE_POSITIONS);
    for (uint32_t j = 0; j < r->n; j++) {
      token_keys t = keys_of(a, r, r->position + j);
      uint32_t skipped = p.first * ST_CACHE_POSITIONS;
      t.pages = n;
      t.first -= skipped, t.last -= skipped;
      t.far = t.far > skipped ? t.far - skipped : 0;
      *tokens++ = t;
    }
    for (uint32_t j = p.first; j < p.last; j++) pages[n++] = page_of(c, r, a->layer, j * ST_CACHE_POSITIONS);
  }
}

void st_vk_attend(st_queue *q, const st_cache *c, const st_batch *batch, const st_attend_args *a) {
  const st_array *far = a->period ? a->q_far : a->q, *sink = a->n_sinks ? a->q_sink : a->q;
  const st_vk_access uses[] = {ST_VK_READS(a->q), ST_VK_READS(far), ST_VK_READS(sink), ST_VK_READS(c),
                               ST_VK_WRITES(a->dst)};
  if (!st_vk_begin(q, uses, 5)) return;
  uint64_t n = 0;
  for (uint32_t i = 0; i < batch->n_runs; i++) {
    run_pages p = pages_of(a, &batch->runs[i]);
    n += p.sinks + p.last - p.first;
  }
  VkDeviceAddress pages_at = 0, tokens_at = 0;
  uint32_t *pages = st_vk_upload_new(q, n * sizeof *pages, &pages_at);
  token_keys *tokens = st_vk_upload_new(q, batch->n_tokens * sizeof *tokens, &tokens_at);
  if (!pages || !tokens) return;
  list_keys(c, batch, a, pages, tokens);
  st_vk_special special = special_of(q, c, LOCAL);
  uint32_t local = special.constants[0], words = words_of(c->shape.values, c->shape.head_dim);
  special.constants[3] = c->shape.head_dim;
  special.constants[4] = (words + local - 1) / local;
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
  st_vk_dispatch(q, ST_VK_ATTEND, &special, &push, sizeof push, (st_vk_groups){a->n_head, batch->n_tokens});
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

// Copies rows out of the stored order, or into it.
static void copy_rows(const saved_head *s, uint32_t n, uint8_t *keys, uint8_t *values, bool out) {
  const st_cache_shape *shape = &s->c->shape;
  uint32_t k_words = words_of(shape->keys, shape->head_dim), v_words = words_of(shape->values, shape->head_dim);
  size_t key_row = st_vk_cache_row_size(shape->keys, true, shape->head_dim),
         value_row = st_vk_cache_row_size(shape->values, false, shape->head_dim);
  for (uint32_t at = 0; at < n; at++) {
    for (uint32_t word = 0; word < k_words + v_words; word++) {
      bool key = word < k_words;
      uint32_t column = key ? word : word - k_words;
      size_t row = key ? key_row : value_row, left = row - 4 * (size_t)column, bytes = left < 4 ? left : 4;
      uint8_t *outside = (key ? keys : values) + at * row + 4 * (size_t)column;
      uint32_t *inside = s->words + (key ? column * ST_CACHE_POSITIONS + at : s->c->key_words + at * v_words + column);
      memcpy(out ? outside : (uint8_t *)inside, out ? (uint8_t *)inside : outside, bytes);
    }
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
