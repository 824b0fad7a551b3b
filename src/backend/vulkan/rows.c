// Operations on each number, and on rows of numbers.
#include "backend/vulkan/device.h"

#include <string.h>

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
  uint32_t pad;
} each_push;

static void each(st_queue *q, uint32_t operation, const st_array *x, const st_array *y, st_array *dst, uint32_t n,
                 uint32_t width, float value) {
  const st_vk_special special = {{st_vk_local(q->device, LOCAL), operation}};
  if (!st_vk_begin(q)) return;
  const each_push push = {.x = x->data.address,
                          .y = y->data.address,
                          .dst = dst->data.address,
                          .x_stride = (uint32_t)x->width,
                          .y_stride = (uint32_t)y->width,
                          .dst_stride = (uint32_t)dst->width,
                          .width = width,
                          .value = value};
  st_vk_op op = st_vk_op_of(ST_VK_EACH, &special, &push, sizeof push, groups_of(q, width, n));
  uint64_t bytes = (uint64_t)n * width * sizeof(float);
  st_vk_op_uses(&op, ST_VK_READS(x));
  st_vk_op_uses(&op, ST_VK_READS(y));
  st_vk_op_uses(&op, ST_VK_WRITES(dst));
  op.read = operation == CLEAR ? 0 : x == y ? bytes : 2 * bytes;
  op.written = bytes;
  if (operation < SILU) {
    st_vk_run(q, &op);
    return;
  }
  st_vk_hold(q, ST_VK_HELD_GATE, &op);
  q->held.dst = dst, q->held.n = n, q->held.width = width;
  q->held.gate = x, q->held.up = y, q->held.fn = operation;
}

enum { GATHER, SCATTER_ADD, COLUMNS, REORDER, CHOSEN };

typedef struct {
  VkDeviceAddress x, dst, tokens, weights, sum;
  uint32_t x_stride, dst_stride, width, count;
  uint32_t from, from_step, to, to_step, pieces;
  uint32_t sum_stride, summed;
  float factor;
} rows_push;

// Adds the sum of experts' outputs, where it is held and y, to x. False: it is another.
static bool add_sum(st_queue *q, st_array *x, const st_array *y, uint32_t n, uint32_t width, float scale) {
  st_vk_held *held = &q->held;
  rows_push push;
  if (held->kind != ST_VK_HELD_SUM || held->dst != y || held->n != n || held->width != width || x == y) return false;
  for (uint32_t i = 0; i < held->op.n_accesses; i++) {
    if (held->op.accesses[i].use == &x->use) return false; // one of the outputs
  }
  memcpy(&push, held->op.push, sizeof push);
  push.sum = x->data.address;
  push.sum_stride = (uint32_t)x->width;
  push.factor = scale;
  push.summed = 1;
  memcpy(held->op.push, &push, sizeof push);
  held->dst = NULL; // there is one sum
  uint64_t bytes = (uint64_t)n * width * sizeof(float);
  held->op.read += bytes, held->op.written += bytes;
  st_vk_op_uses(&held->op, ST_VK_READS(x));
  st_vk_op_uses(&held->op, ST_VK_WRITES(x));
  return true;
}

void st_vk_add(st_queue *q, st_array *x, const st_array *y, uint32_t n, uint32_t width, float scale) {
  if (st_vk_add_held(q, x, y, n, width, scale) || add_sum(q, x, y, n, width, scale)) return;
  each(q, ADD, x, y, x, n, width, scale);
}

void st_vk_clip(st_queue *q, st_array *x, uint32_t n, uint32_t width, float limit) {
  each(q, CLIP, x, x, x, n, width, limit);
}

void st_vk_clear(st_queue *q, st_array *x, uint32_t n, uint32_t width) {
  each(q, CLEAR, x, x, x, n, width, 0);
}

uint32_t st_vk_gate_of(st_activation_fn fn) {
  static const uint32_t operations[] = {
      [ST_FN_SILU] = SILU,       [ST_FN_RELU2] = RELU2,     [ST_FN_GELU_TANH] = GELU_TANH,
      [ST_FN_GPT_OSS] = GPT_OSS, [ST_FN_SIGMOID] = SIGMOID, [ST_FN_SILU_CLAMPED] = SILU_CLAMPED};
  return operations[fn];
}

void st_vk_glu(st_queue *q, st_activation_fn fn, const st_array *gate, const st_array *up, uint32_t n, uint32_t width,
               st_array *dst) {
  if (st_vk_gate_held(q, st_vk_gate_of(fn), gate, up, n, width, dst)) return;
  each(q, st_vk_gate_of(fn), gate, up, dst, n, width, 0);
}

// ---- rows ---------------------------------------------------------------------------------------------------------

static rows_push push_of(const st_array *x, const st_array *dst, uint32_t width) {
  return (rows_push){.x = x->data.address,
                     .dst = dst->data.address,
                     .x_stride = (uint32_t)x->width,
                     .dst_stride = (uint32_t)dst->width,
                     .width = width};
}

static void run_rows(st_queue *q, uint32_t operation, const rows_push *push, uint32_t rows, const st_array *x,
                     st_array *dst) {
  const st_vk_special special = {{st_vk_local(q->device, LOCAL), operation}};
  st_vk_op op = st_vk_op_of(ST_VK_ROWS, &special, push, sizeof *push, groups_of(q, push->width, rows));
  bool adds = operation == SCATTER_ADD;
  uint64_t bytes = (uint64_t)push->width * sizeof(float) * (adds ? push->count : rows);
  st_vk_op_uses(&op, ST_VK_READS(x));
  if (adds) st_vk_op_uses(&op, ST_VK_READS(dst));
  st_vk_op_uses(&op, ST_VK_WRITES(dst));
  op.read = adds ? 2 * bytes : bytes;
  op.written = bytes;
  st_vk_run(q, &op);
}

void st_vk_gather(st_queue *q, const st_array *x, const uint32_t *tokens, uint32_t n, uint32_t width, st_array *dst) {
  rows_push push = push_of(x, dst, width);
  if (!n || !st_vk_begin(q)) return;
  push.tokens = st_vk_upload_copy(q, tokens, n * sizeof *tokens);
  run_rows(q, GATHER, &push, n, x, dst);
}

void st_vk_scatter_add(st_queue *q, st_array *x, const uint32_t *tokens, const float *weights, uint32_t n,
                       uint32_t width, const st_array *y) {
  rows_push push = push_of(y, x, width);
  if (!n || !st_vk_begin(q)) return;
  push.tokens = st_vk_upload_copy(q, tokens, n * sizeof *tokens);
  push.weights = st_vk_upload_copy(q, weights, n * sizeof *weights);
  push.count = n;
  run_rows(q, SCATTER_ADD, &push, 1, y, x);
}

void st_vk_sum_chosen(st_queue *q, const st_vk_sum *s) {
  rows_push push = push_of(s->y, s->x, s->width);
  const st_vk_special special = {{st_vk_local(q->device, LOCAL), CHOSEN}};
  uint64_t bytes = (uint64_t)s->n * s->width * sizeof(float);
  if (!st_vk_begin(q)) return;
  push.dst += (VkDeviceAddress)s->first * s->x->width * sizeof(float);
  push.weights = s->chosen->data.address + (VkDeviceAddress)s->first * s->chosen->width * sizeof(float);
  push.from_step = (uint32_t)s->chosen->width;
  push.tokens = s->rows, push.from = s->rows != 0;
  push.count = s->used;
  push.to = s->alone;
  st_vk_op op = st_vk_op_of(ST_VK_ROWS, &special, &push, sizeof push, groups_of(q, s->width, s->n));
  st_vk_op_uses(&op, ST_VK_READS(s->y));
  st_vk_op_uses(&op, ST_VK_READS(s->chosen));
  if (s->rows) st_vk_op_uses(&op, (st_vk_access){&q->plan_use, false});
  if (!s->alone) st_vk_op_uses(&op, ST_VK_READS(s->x));
  st_vk_op_uses(&op, ST_VK_WRITES(s->x));
  op.read = bytes * (s->used + !s->alone);
  op.written = bytes;
  st_vk_hold(q, ST_VK_HELD_SUM, &op);
  if (!s->first) q->held.dst = s->x, q->held.n = s->n, q->held.width = s->width;
}

void st_vk_gather_planned(st_queue *q, const st_array *x, uint32_t first, VkDeviceAddress tokens, uint32_t n,
                          uint32_t width, st_array *dst) {
  rows_push push = push_of(x, dst, width);
  const st_vk_special special = {{st_vk_local(q->device, LOCAL), GATHER}};
  if (!st_vk_begin(q)) return;
  push.x += (VkDeviceAddress)first * x->width * sizeof(float);
  push.tokens = tokens;
  st_vk_op op = st_vk_op_of(ST_VK_ROWS, &special, &push, sizeof push, groups_of(q, width, n));
  st_vk_op_uses(&op, ST_VK_READS(x));
  st_vk_op_uses(&op, (st_vk_access){&q->plan_use, false});
  st_vk_op_uses(&op, ST_VK_WRITES(dst));
  op.read = op.written = (uint64_t)n * width * sizeof(float);
  st_vk_run(q, &op);
}

void st_vk_reorder(st_queue *q, const st_array *x, uint32_t first, uint32_t n, uint32_t width, const uint32_t *order,
                   st_array *dst) {
  rows_push push = push_of(x, dst, width);
  if (!n || !st_vk_begin(q)) return;
  push.x += (VkDeviceAddress)first * x->width * sizeof(float);
  push.tokens = st_vk_upload_copy(q, order, width * sizeof *order);
  run_rows(q, REORDER, &push, n, x, dst);
}

void st_vk_copy_columns(st_queue *q, const st_array *x, uint32_t n, const st_columns *c, st_array *dst) {
  rows_push push = push_of(x, dst, c->n * c->count);
  if (!st_vk_begin(q)) return;
  push.count = c->n;
  push.from = c->from, push.from_step = c->from_step;
  push.to = c->to, push.to_step = c->to_step;
  push.pieces = c->count;
  run_rows(q, COLUMNS, &push, n, x, dst);
}
