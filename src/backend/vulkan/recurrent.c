// Recurrent layers (gated DeltaNet): slots of states, laid out as on the CPU; the convolution; and the delta rule.
#include "backend/vulkan/device.h"

#include "base/memory.h"

#include <math.h>

enum { LOCAL = 128 };

struct st_states {
  st_device *device;
  st_state_shape shape;
  size_t layer, matrices; // floats of a layer in a slot, and of its matrices
  st_vk_buffer data;      // [n_slots][n_layers]: matrices, then the convolution's [n_taps - 1][channels]
  st_vk_use use;
};

// ---- slots --------------------------------------------------------------------------------------------------------

static size_t floats_of_matrices(const st_state_shape *s) {
  return (size_t)s->n_value_heads * s->key_dim * s->value_dim;
}

static size_t floats_of_layer(const st_state_shape *s) {
  size_t n = floats_of_matrices(s) + (size_t)(s->n_taps - 1) * st_state_channels(s);
  return (n + 15) / 16 * 16; // so that a file may hold it as the CPU wrote it
}

uint64_t st_vk_state_size(const st_state_shape *s) {
  return (uint64_t)s->n_layers * floats_of_layer(s) * sizeof(float);
}

uint64_t st_vk_states_size(const st_state_shape *s) {
  return s->n_slots * st_vk_state_size(s);
}

void st_vk_states_free(st_states *s) {
  if (!s) return;
  st_vk_buffer_free(s->device, &s->data);
  st_free(s);
}

setun_status st_vk_states_new(st_queue *q, const st_state_shape *shape, st_states **states, setun_error *err) {
  uint64_t bytes;
  setun_status status = st_vk_check_states(q->device, err);
  if (status != SETUN_OK) return status;
  st_states *s = st_calloc(1, sizeof *s);
  if (!s || !st_mul_u64(st_vk_state_size(shape), shape->n_slots, &bytes)) {
    st_free(s);
    return st_fail_memory(err, "the recurrent states");
  }
  *s = (st_states){
      .device = q->device, .shape = *shape, .layer = floats_of_layer(shape), .matrices = floats_of_matrices(shape)};
  status = st_vk_buffer_new(q->device, bytes, ST_VK_LOCAL, "the recurrent states", &s->data, err);
  if (status == SETUN_OK) {
    *states = s;
  } else {
    st_vk_states_free(s);
  }
  return status;
}

setun_status st_vk_state_save(st_queue *q, const st_states *s, uint32_t slot, void *bytes, setun_error *err) {
  uint64_t size = st_vk_state_size(&s->shape);
  const VkBufferCopy region = {.srcOffset = slot * size, .size = size};
  return st_vk_copy_out(q, s->data.buffer, &region, 1, size, bytes, err);
}

setun_status st_vk_state_restore(st_queue *q, st_states *s, uint32_t slot, const void *bytes, setun_error *err) {
  uint64_t size = st_vk_state_size(&s->shape);
  const VkBufferCopy region = {.dstOffset = slot * size, .size = size};
  return st_vk_copy_in(q, s->data.buffer, &region, 1, size, bytes, err);
}

// ---- operations ---------------------------------------------------------------------------------------------------

// As in shaders/recurrent.glsl.
typedef struct {
  VkDeviceAddress from, to;
  uint32_t first, n, fresh, unused;
} run;

static VkDeviceAddress part_of(const st_states *s, uint32_t slot, uint32_t layer) {
  return s->data.address + ((VkDeviceAddress)slot * s->shape.n_layers + layer) * s->layer * sizeof(float);
}

// 0: out of memory, latched.
static VkDeviceAddress upload_runs(st_queue *q, const st_states *s, uint32_t layer, const st_batch *batch) {
  VkDeviceAddress address = 0;
  run *runs = st_vk_upload_new(q, batch->n_runs * sizeof *runs, &address);
  uint32_t token = 0;
  for (uint32_t i = 0; runs && i < batch->n_runs; token += batch->runs[i++].n) {
    const st_token_run *r = &batch->runs[i];
    bool fresh = r->state_from == ST_NO_STATE;
    VkDeviceAddress to = part_of(s, r->state_to, layer);
    runs[i] = (run){fresh ? to : part_of(s, r->state_from, layer), to, token, r->n, fresh, 0};
  }
  return runs ? address : 0;
}

typedef struct {
  VkDeviceAddress x, taps, dst, runs;
  uint32_t x_stride, dst_stride, channels, inputs;
} convolve_push;

void st_vk_convolve(st_queue *q, st_states *s, uint32_t layer, const st_batch *batch, const st_array *x,
                    const st_dvector *taps, st_array *dst) {
  uint32_t channels = st_state_channels(&s->shape), local = st_vk_local(q->device, LOCAL);
  const st_vk_special special = {{local, s->shape.n_taps}};
  if (!st_vk_begin(q)) return;
  const convolve_push push = {.x = x->data.address,
                              .taps = taps->values.address,
                              .dst = dst->data.address,
                              .runs = upload_runs(q, s, layer, batch),
                              .x_stride = (uint32_t)x->width,
                              .dst_stride = (uint32_t)dst->width,
                              .channels = channels,
                              .inputs = (uint32_t)s->matrices};
  uint64_t states = (uint64_t)batch->n_runs * (s->shape.n_taps - 1) * channels * sizeof(float);
  st_vk_op op = st_vk_op_of(ST_VK_CONVOLVE, &special, &push, sizeof push,
                            (st_vk_groups){(channels + local - 1) / local, batch->n_runs});
  st_vk_op_uses(&op, ST_VK_READS(x));
  st_vk_op_uses(&op, ST_VK_WRITES(s));
  st_vk_op_uses(&op, ST_VK_WRITES(dst));
  op.written = (uint64_t)batch->n_tokens * channels * sizeof(float) + states;
  op.read = op.written + (uint64_t)s->shape.n_taps * channels * sizeof(float);
  st_vk_run(q, &op);
}

typedef struct {
  VkDeviceAddress mixed, alpha, beta, rate, bias, dst, runs;
  uint32_t mixed_stride, alpha_stride, beta_stride, dst_stride, value_dim, key_heads, heads_each;
  float eps;
} delta_push;

void st_vk_delta(st_queue *q, st_states *s, const st_batch *batch, const st_delta_args *a) {
  static const float eps = 1e-6f; // of the L2 norms of queries and keys, as on the CPU
  const st_state_shape *shape = &s->shape;
  uint32_t local = st_vk_local(q->device, LOCAL), pieces = (shape->value_dim + local - 1) / local;
  const st_vk_special special = {{local, shape->key_dim}};
  if (!st_vk_begin(q)) return;
  const delta_push push = {.mixed = a->mixed->data.address,
                           .alpha = a->alpha->data.address,
                           .beta = a->beta->data.address,
                           .rate = a->rate->values.address,
                           .bias = a->bias->values.address,
                           .dst = a->dst->data.address,
                           .runs = upload_runs(q, s, a->layer, batch),
                           .mixed_stride = (uint32_t)a->mixed->width,
                           .alpha_stride = (uint32_t)a->alpha->width,
                           .beta_stride = (uint32_t)a->beta->width,
                           .dst_stride = (uint32_t)a->dst->width,
                           .value_dim = shape->value_dim,
                           .key_heads = shape->n_key_heads,
                           .heads_each = shape->tiled ? 0 : shape->n_value_heads / shape->n_key_heads,
                           .eps = eps / (float)shape->key_dim};
  st_vk_op op = st_vk_op_of(ST_VK_DELTA, &special, &push, sizeof push,
                            (st_vk_groups){shape->n_value_heads * pieces, batch->n_runs});
  st_vk_op_uses(&op, ST_VK_READS(a->mixed));
  st_vk_op_uses(&op, ST_VK_READS(a->alpha));
  st_vk_op_uses(&op, ST_VK_READS(a->beta));
  st_vk_op_uses(&op, ST_VK_WRITES(s));
  st_vk_op_uses(&op, ST_VK_WRITES(a->dst));
  uint64_t states = (uint64_t)batch->n_runs * s->matrices;
  uint64_t inputs = (uint64_t)batch->n_tokens * (st_state_channels(shape) + 2 * shape->n_value_heads);
  op.read = (states + inputs) * sizeof(float);
  op.written = (states + (uint64_t)batch->n_tokens * shape->n_value_heads * shape->value_dim) * sizeof(float);
  st_vk_run(q, &op);
}

// ---- rotated bases ------------------------------------------------------------------------------------------------

typedef struct {
  VkDeviceAddress x, norm, before, after, dst;
  uint32_t x_stride, dst_stride, width, block, factors;
  float eps, scale;
  uint32_t pad;
} hadamard_push;

void st_vk_hadamard(st_queue *q, const st_array *x, uint32_t first, uint32_t n, const st_hadamard_args *a,
                    st_array *dst) {
  enum { NORMED = 1, BEFORE = 2, AFTER = 4 };
  const st_vk_special special = {{st_vk_local(q->device, LOCAL)}};
  if (!n || !st_vk_begin(q)) return;
  const hadamard_push push = {.x = x->data.address + (VkDeviceAddress)first * x->width * sizeof(float),
                              .norm = a->norm ? a->norm->values.address : 0,
                              .before = a->before ? a->before->values.address : 0,
                              .after = a->after ? a->after->values.address : 0,
                              .dst = dst->data.address,
                              .x_stride = (uint32_t)x->width,
                              .dst_stride = (uint32_t)dst->width,
                              .width = a->width,
                              .block = a->block,
                              .factors = (a->norm ? NORMED : 0) | (a->before ? BEFORE : 0) | (a->after ? AFTER : 0),
                              .eps = a->eps,
                              .scale = 1.0f / sqrtf((float)a->block)};
  st_vk_op op = st_vk_op_of(ST_VK_HADAMARD, &special, &push, sizeof push, (st_vk_groups){n, 1});
  st_vk_op_uses(&op, ST_VK_READS(x));
  st_vk_op_uses(&op, ST_VK_WRITES(dst));
  uint64_t vectors = (a->norm != NULL) + (a->before != NULL) + (a->after != NULL);
  op.written = (uint64_t)n * a->width * sizeof(float);
  op.read = op.written + vectors * a->width * sizeof(float);
  st_vk_run(q, &op);
}
