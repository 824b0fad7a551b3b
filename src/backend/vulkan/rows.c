// Operations on each number, and on rows of numbers.
#include "backend/vulkan/device.h"

enum { LOCAL = 128 };

static st_vk_groups groups_of(const st_queue *q, uint64_t width, uint32_t tokens) {
  uint32_t local = st_vk_local(q->device, LOCAL);
  return (st_vk_groups){(uint32_t)((width + local - 1) / local), tokens};
}

// ---- each number --------------------------------------------------------------------------------------------------

// As in shaders/each.comp.
enum { ADD, CLIP, CLEAR, SILU, RELU2, GELU_TANH, GPT_OSS, SIGMOID, SILU_CLAMPED };

typedef struct {
  VkDeviceAddress x, y, dst;
  uint32_t x_stride, y_stride, dst_stride, width;
  float value;
} each_push;

static void each(st_queue *q, uint32_t operation, const st_array *x, const st_array *y, st_array *dst, uint32_t n,
                 uint32_t width, float value) {
  const st_vk_special special = {{st_vk_local(q->device, LOCAL), operation}};
  const st_vk_access uses[] = {ST_VK_READS(x), ST_VK_READS(y), ST_VK_WRITES(dst)};
  if (!st_vk_begin(q, uses, 3)) return;
  const each_push push = {.x = x->data.address,
                          .y = y->data.address,
                          .dst = dst->data.address,
                          .x_stride = (uint32_t)x->width,
                          .y_stride = (uint32_t)y->width,
                          .dst_stride = (uint32_t)dst->width,
                          .width = width,
                          .value = value};
  st_vk_dispatch(q, ST_VK_EACH, &special, &push, sizeof push, groups_of(q, width, n));
}

void st_vk_add(st_queue *q, st_array *x, const st_array *y, uint32_t n, uint32_t width, float scale) {
  each(q, ADD, x, y, x, n, width, scale);
}

void st_vk_clip(st_queue *q, st_array *x, uint32_t n, uint32_t width, float limit) {
  each(q, CLIP, x, x, x, n, width, limit);
}

void st_vk_clear(st_queue *q, st_array *x, uint32_t n, uint32_t width) {
  each(q, CLEAR, x, x, x, n, width, 0);
}

void st_vk_glu(st_queue *q, st_activation_fn fn, const st_array *gate, const st_array *up, uint32_t n, uint32_t width,
               st_array *dst) {
  static const uint32_t operations[] = {
      [ST_FN_SILU] = SILU,       [ST_FN_RELU2] = RELU2,     [ST_FN_GELU_TANH] = GELU_TANH,
      [ST_FN_GPT_OSS] = GPT_OSS, [ST_FN_SIGMOID] = SIGMOID, [ST_FN_SILU_CLAMPED] = SILU_CLAMPED};
  each(q, operations[fn], gate, up, dst, n, width, 0);
}

// ---- rows ---------------------------------------------------------------------------------------------------------

enum { GATHER, SCATTER_ADD, COLUMNS };

typedef struct {
  VkDeviceAddress x, dst, tokens, weights;
  uint32_t x_stride, dst_stride, width, count;
  uint32_t from, from_step, to, to_step, pieces;
} rows_push;

static rows_push push_of(const st_array *x, const st_array *dst, uint32_t width) {
  return (rows_push){.x = x->data.address,
                     .dst = dst->data.address,
                     .x_stride = (uint32_t)x->width,
                     .dst_stride = (uint32_t)dst->width,
                     .width = width};
}

static void run_rows(st_queue *q, uint32_t operation, const rows_push *push, uint32_t rows) {
  const st_vk_special special = {{st_vk_local(q->device, LOCAL), operation}};
  st_vk_dispatch(q, ST_VK_ROWS, &special, push, sizeof *push, groups_of(q, push->width, rows));
}

void st_vk_gather(st_queue *q, const st_array *x, const uint32_t *tokens, uint32_t n, uint32_t width, st_array *dst) {
  const st_vk_access uses[] = {ST_VK_READS(x), ST_VK_WRITES(dst)};
  rows_push push = push_of(x, dst, width);
  if (!n || !st_vk_begin(q, uses, 2)) return;
  push.tokens = st_vk_upload_copy(q, tokens, n * sizeof *tokens);
  run_rows(q, GATHER, &push, n);
}

void st_vk_scatter_add(st_queue *q, st_array *x, const uint32_t *tokens, const float *weights, uint32_t n,
                       uint32_t width, const st_array *y) {
  const st_vk_access uses[] = {ST_VK_READS(y), ST_VK_READS(x), ST_VK_WRITES(x)};
  rows_push push = push_of(y, x, width);
  if (!n || !st_vk_begin(q, uses, 3)) return;
  push.tokens = st_vk_upload_copy(q, tokens, n * sizeof *tokens);
  push.weights = st_vk_upload_copy(q, weights, n * sizeof *weights);
  push.count = n;
  run_rows(q, SCATTER_ADD, &push, 1);
}

void st_vk_copy_columns(st_queue *q, const st_array *x, uint32_t n, const st_columns *c, st_array *dst) {
  const st_vk_access uses[] = {ST_VK_READS(x), ST_VK_WRITES(dst)};
  rows_push push = push_of(x, dst, c->n * c->count);
  if (!st_vk_begin(q, uses, 2)) return;
  push.count = c->n;
  push.from = c->from, push.from_step = c->from_step;
  push.to = c->to, push.to_step = c->to_step;
  push.pieces = c->count;
  run_rows(q, COLUMNS, &push, n);
}

// ---- rotation -----------------------------------------------------------------------------------------------------

typedef struct {
  VkDeviceAddress x, dst, table, positions;
  uint32_t x_stride, dst_stride, heads, head_dim, n_rot, rotates;
} rope_push;

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

void st_vk_rope(st_queue *q, const st_array *x, const st_batch *batch, const st_rope_args *a, st_array *dst) {
  const st_vk_access uses[] = {ST_VK_READS(x), ST_VK_WRITES(dst)};
  const st_vk_special special = {{st_vk_local(q->device, LOCAL), a->interleaved}};
  if (!a->table && dst == x) return;
  if (!st_vk_begin(q, uses, 2)) return;
  const rope_push push = {.x = x->data.address,
                          .dst = dst->data.address,
                          .table = a->table ? a->table->values.address : 0,
                          .positions = positions_of(q, batch, a),
                          .x_stride = (uint32_t)x->width,
                          .dst_stride = (uint32_t)dst->width,
                          .heads = a->heads,
                          .head_dim = a->head_dim,
                          .n_rot = a->n_rot,
                          .rotates = a->table != NULL};
  uint64_t each_head = a->head_dim - a->n_rot / 2;
  st_vk_dispatch(q, ST_VK_ROPE, &special, &push, sizeof push, groups_of(q, each_head * a->heads, batch->n_tokens));
}
