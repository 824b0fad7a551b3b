// From products to attention: rotated queries and keys, and what is stored in the cache. The three calls of a layer
// become one dispatch where they follow each other.
#include "backend/vulkan/device.h"

#include <string.h>

enum { LOCAL = 64 };

// Of shaders/heads.comp.
typedef struct {
  VkDeviceAddress q, q_dst, k, v, cache, table, positions, places;
  uint32_t q_stride, q_dst_stride, k_stride, v_stride, n_q, n_k, stores, n_rot, rotates_k, key_words, head_words, pad;
} heads_push;

static st_vk_special special_of(const st_queue *q, uint32_t head_dim, bool interleaved) {
  return (st_vk_special){{st_vk_local(q->device, LOCAL), SETUN_KV_F16, SETUN_KV_F16, head_dim, interleaved}};
}

// The tokens' positions in the table, one after the other. 0: out of memory, latched.
static VkDeviceAddress positions_of(st_queue *q, const st_batch *batch, const st_rope_args *a) {
  VkDeviceAddress address = 0;
  uint32_t *to = st_vk_upload_new(q, batch->n_tokens * sizeof *to, &address), at = 0;
  for (uint32_t i = 0; to && i < batch->n_runs; i++) {
    for (uint32_t j = 0; j < batch->runs[i].n; j++) {
      uint32_t position = batch->runs[i].position + j;
      if (a->period) position %= a->period;
      to[at++] = position < a->most ? position : a->most;
    }
  }
  return to ? address : 0;
}

static uint64_t bytes_of(const st_batch *batch, uint32_t heads, uint32_t head_dim) {
  return (uint64_t)batch->n_tokens * heads * head_dim * sizeof(float);
}

static bool same_batch(const st_batch *a, const st_batch *b) {
  return a->runs == b->runs && a->n_runs == b->n_runs && a->n_tokens == b->n_tokens;
}

// Keys join the queries that are held, whose rotation is the same. False: they cannot.
static bool join_keys(st_queue *q, st_array *x, const st_batch *batch, const st_rope_args *a) {
  st_vk_held *held = &q->held;
  const st_rope_args *r = &held->rope;
  heads_push push;
  if (held->kind != ST_VK_HELD_HEADS || held->dst || !same_batch(&held->batch, batch)) return false;
  if (r->table != a->table || r->head_dim != a->head_dim || r->n_rot != a->n_rot || r->period != a->period ||
      r->most != a->most || r->interleaved != a->interleaved) {
    return false;
  }
  for (uint32_t i = 0; i < held->op.n_accesses; i++) {
    if (held->op.accesses[i].use == &x->use) return false;
  }
  memcpy(&push, held->op.push, sizeof push);
  push.k = x->data.address;
  push.k_stride = (uint32_t)x->width;
  push.n_k = a->heads;
  push.rotates_k = 1;
  memcpy(held->op.push, &push, sizeof push);
  held->dst = x;
  held->op.groups.x += a->heads;
  held->op.read += bytes_of(batch, a->heads, a->head_dim), held->op.written += bytes_of(batch, a->heads, a->head_dim);
  st_vk_op_uses(&held->op, ST_VK_READS(x));
  st_vk_op_uses(&held->op, ST_VK_WRITES(x));
  return true;
}

void st_vk_rope(st_queue *q, const st_array *x, const st_batch *batch, const st_rope_args *a, st_array *dst) {
  const st_vk_special special = special_of(q, a->head_dim, a->interleaved);
  if (!a->table && dst == x) return;
  if (dst == x && join_keys(q, dst, batch, a)) return;
  if (!st_vk_begin(q)) return;
  const heads_push push = {.q = x->data.address,
                           .q_dst = dst->data.address,
                           .table = a->table ? a->table->values.address : 0,
                           .positions = positions_of(q, batch, a),
                           .q_stride = (uint32_t)x->width,
                           .q_dst_stride = (uint32_t)dst->width,
                           .n_q = a->heads,
                           .n_rot = a->table ? a->n_rot : 0};
  st_vk_op op = st_vk_op_of(ST_VK_HEADS, &special, &push, sizeof push, (st_vk_groups){a->heads, batch->n_tokens});
  st_vk_op_uses(&op, ST_VK_READS(x));
  st_vk_op_uses(&op, ST_VK_WRITES(dst));
  op.read = op.written = bytes_of(batch, a->heads, a->head_dim);
  st_vk_hold(q, ST_VK_HELD_HEADS, &op);
  q->held.rope = *a;
  q->held.batch = *batch;
}

// Where the tokens are stored: the page's first word, and the position in it. 0: out of memory, latched.
static VkDeviceAddress places_of(st_queue *q, const st_cache *c, uint32_t layer, const st_batch *batch) {
  VkDeviceAddress places = 0;
  uint32_t *to = st_vk_upload_new(q, 2 * batch->n_tokens * sizeof *to, &places);
  for (uint32_t i = 0; to && i < batch->n_runs; i++) {
    const st_token_run *r = &batch->runs[i];
    for (uint32_t p = r->position; p < r->position + r->n; p++) {
      *to++ = st_vk_cache_page(c, r, layer, p);
      *to++ = p % ST_CACHE_POSITIONS;
    }
  }
  return places;
}

static bool held_are(const st_vk_held *held, const st_array *k, const st_array *v, const st_batch *batch) {
  bool keys = held->kind == ST_VK_HELD_HEADS && held->dst == k && same_batch(&held->batch, batch);
  for (uint32_t i = 0; keys && i < held->op.n_accesses; i++) keys = held->op.accesses[i].use != &v->use;
  return keys;
}

// The keys that are held are stored too, or these alone.
void st_vk_cache_write(st_queue *q, st_cache *c, uint32_t layer, const st_batch *batch, st_array *k, st_array *v) {
  uint32_t head_dim = c->shape.head_dim, heads = c->shape.n_head_kv;
  st_vk_op op;
  heads_push push = {.k = k->data.address, .k_stride = (uint32_t)k->width, .n_k = heads};
  if (held_are(&q->held, k, v, batch)) {
    op = q->held.op;
    memcpy(&push, op.push, sizeof push);
    q->held.kind = ST_VK_NOTHING;
  } else if (st_vk_begin(q)) {
    const st_vk_special special = special_of(q, head_dim, false);
    op = st_vk_op_of(ST_VK_HEADS, &special, &push, sizeof push, (st_vk_groups){heads, batch->n_tokens});
    op.read = bytes_of(batch, heads, head_dim);
    st_vk_op_uses(&op, ST_VK_READS(k));
  } else {
    return;
  }
  push.v = v->data.address;
  push.v_stride = (uint32_t)v->width;
  push.cache = c->data.address;
  push.places = places_of(q, c, layer, batch);
  push.stores = 1;
  push.key_words = c->key_words;
  push.head_words = c->head_words;
  op.special.constants[1] = c->shape.keys;
  op.special.constants[2] = c->shape.values;
  op.groups.x += heads;
  op.read += bytes_of(batch, heads, head_dim);
  op.written += (uint64_t)batch->n_tokens * c->page_words / ST_CACHE_POSITIONS * sizeof(uint32_t);
  st_vk_op_uses(&op, ST_VK_READS(v));
  st_vk_op_uses(&op, ST_VK_WRITES(c));
  memcpy(op.push, &push, sizeof push);
  if (push.places) st_vk_run(q, &op);
}
