// A session's commands: logged one after the other, with barriers only where one operation needs another's result, and
// submitted when the host needs a result.
#include "backend/vulkan/device.h"

#include "base/memory.h"

#include <string.h>

enum { UPLOAD_BYTES = 1 << 20 };

struct st_vk_upload {
  st_vk_upload *next;
  st_vk_buffer buffer;
  uint64_t used;
};

// ---- errors -------------------------------------------------------------------------------------------------------

void st_vk_latch(st_queue *q, setun_status status, const setun_error *error) {
  if (status == SETUN_OK || q->error.code != SETUN_OK) return;
  q->error = *error;
  q->error.code = status;
}

static void latch_result(st_queue *q, const char *what, VkResult result) {
  setun_error error = {SETUN_OK, ""};
  if (result != VK_SUCCESS) st_vk_latch(q, st_vk_fail(&error, what, result), &error);
}

// The first error since the last one was returned.
static setun_status take_error(st_queue *q, setun_error *err) {
  setun_status s = q->error.code;
  if (s == SETUN_OK) return st_host_finish(q, err);
  if (err) *err = q->error;
  q->error = (setun_error){SETUN_OK, ""};
  st_host_finish(q, NULL);
  return s;
}

// ---- recording ----------------------------------------------------------------------------------------------------

bool st_vk_record(st_queue *q) {
  if (q->error.code != SETUN_OK || q->host.error.code != SETUN_OK) return false;
  if (!q->recording) q->log.used = 0;
  return q->recording = true;
}

static void latch_log(st_queue *q, bool added) {
  setun_error error = {SETUN_OK, ""};
  if (!added) st_vk_latch(q, st_fail_memory(&error, "a session's commands"), &error);
}

static void barrier(st_queue *q, VkPipelineStageFlags to, VkAccessFlags access) {
  latch_log(q, st_vk_log_barrier(&q->log, to, access));
}

void st_vk_copy(st_queue *q, VkBuffer from, VkBuffer to, const VkBufferCopy *regions, uint32_t count) {
  latch_log(q, st_vk_log_copy(&q->log, from, to, regions, count));
}

// Whether one of the buffers was used since the last barrier, so that it must be waited for.
static bool depends(const st_queue *q, const st_vk_access *accesses, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    const st_vk_use *u = accesses[i].use;
    if (u->written == q->epoch || (accesses[i].writes && u->read == q->epoch)) return true;
  }
  return false;
}

// True where a barrier was needed.
static bool sync(st_queue *q, const st_vk_access *accesses, uint32_t count) {
  bool waits = depends(q, accesses, count);
  if (waits) {
    barrier(q, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
            VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_READ_BIT |
                VK_ACCESS_TRANSFER_WRITE_BIT);
    q->epoch++;
  }
  for (uint32_t i = 0; i < count; i++) {
    if (accesses[i].writes)
      accesses[i].use->written = q->epoch;
    else
      accesses[i].use->read = q->epoch;
  }
  return waits;
}

void st_vk_sync(st_queue *q, const st_vk_access *accesses, uint32_t count) {
  sync(q, accesses, count);
}

static st_vk_upload *upload_with_room(st_queue *q, uint64_t size) {
  for (st_vk_upload *u = q->uploads; u; u = u->next) {
    if (u->buffer.size - u->used >= size) return u;
  }
  setun_error error = {SETUN_OK, ""};
  st_vk_upload *u = st_calloc(1, sizeof *u);
  setun_status s = u ? st_vk_buffer_new(q->device, size > UPLOAD_BYTES ? size : UPLOAD_BYTES, ST_VK_UPLOAD,
                                        "a session's uploads", &u->buffer, &error)
                     : st_fail_memory(&error, "a session's uploads");
  if (s != SETUN_OK) {
    st_free(u);
    st_vk_latch(q, s, &error);
    return NULL;
  }
  u->next = q->uploads;
  return q->uploads = u;
}

static st_vk_upload *reserve(st_queue *q, uint64_t size, uint64_t *at) {
  uint64_t rounded = (size + 63) / 64 * 64;
  st_vk_upload *u = upload_with_room(q, rounded);
  if (!u) return NULL;
  *at = u->used;
  u->used += rounded;
  q->uploaded += size;
  return u;
}

void *st_vk_upload_new(st_queue *q, uint64_t size, VkDeviceAddress *address) {
  uint64_t at = 0;
  st_vk_upload *u = reserve(q, size, &at);
  if (!u) return NULL;
  *address = u->buffer.address + at;
  return u->buffer.mapped + at;
}

VkDeviceAddress st_vk_upload_copy(st_queue *q, const void *bytes, uint64_t size) {
  VkDeviceAddress address = 0;
  void *to = st_vk_upload_new(q, size, &address);
  if (to) memcpy(to, bytes, (size_t)size);
  return to ? address : 0;
}

// ---- operations ---------------------------------------------------------------------------------------------------

st_vk_op st_vk_op_of(st_vk_shader shader, const st_vk_special *special, const void *push, size_t bytes,
                     st_vk_groups groups) {
  st_vk_op op = {.shader = shader, .special = *special, .groups = groups, .push_bytes = (uint32_t)bytes};
  memcpy(op.push, push, bytes);
  return op;
}

void st_vk_op_uses(st_vk_op *op, st_vk_access access) {
  op->accesses[op->n_accesses++] = access;
}

void st_vk_run(st_queue *q, const st_vk_op *op) {
  st_vk_counts *counts = &q->counts[op->shader];
  VkPipeline pipeline;
  if (q->error.code != SETUN_OK || !op->groups.x || !op->groups.y) return;
  VkResult result = st_vk_pipeline_get(q->device, op->shader, &op->special, &pipeline);
  if (result != VK_SUCCESS) {
    latch_result(q, "the compilation of a shader", result);
    return;
  }
  counts->barriers += sync(q, op->accesses, op->n_accesses);
  latch_log(q, st_vk_log_dispatch(&q->log, pipeline, op->groups, op->push, op->push_bytes));
  counts->dispatches++;
  counts->read += op->read, counts->written += op->written;
}

// Records what is held.
static void settle(st_queue *q) {
  st_vk_holding kind = q->held.kind;
  q->held.kind = ST_VK_NOTHING;
  if (kind != ST_VK_NOTHING) st_vk_run(q, &q->held.op);
}

bool st_vk_begin(st_queue *q) {
  if (!st_vk_record(q)) return false;
  settle(q);
  return true;
}

void st_vk_hold(st_queue *q, st_vk_holding kind, const st_vk_op *op) {
  q->held = (st_vk_held){.kind = kind, .op = *op};
}

bool st_vk_counted(const st_queue *q, size_t index, st_op_counts *counts) {
  static const char *const names[] = {
#define SHADER(id, ...) #id,
#include "backend/vulkan/shaders.def"
  };
  if (index < ST_VK_SHADERS) {
    const st_vk_counts *c = &q->counts[index];
    *counts = (st_op_counts){names[index], c->dispatches, c->barriers, c->read, c->written};
    return true;
  }
  pthread_mutex_lock(&q->device->lock);
  uint64_t buffers = q->device->buffers;
  pthread_mutex_unlock(&q->device->lock);
  const st_op_counts others[] = {{"submissions", q->submissions, 0, 0, 0},
                                 {"recordings", q->recordings, 0, 0, 0},
                                 {"buffers made", buffers, 0, 0, 0},
                                 {"copies to the device", 0, 0, 0, q->uploaded},
                                 {"streamed weights", q->copies, 0, 0, q->streamed},
                                 {"copies from the device", 0, 0, q->downloaded, 0}};
  if ((index -= ST_VK_SHADERS) >= sizeof others / sizeof *others) return false;
  *counts = others[index];
  return true;
}

// ---- submission ---------------------------------------------------------------------------------------------------

VkResult st_vk_submit(st_queue *q, VkFence fence) {
  st_device *d = q->device;
  VkCommandBuffer commands = NULL;
  bool waits = false;
  VkResult result = st_vk_commands(q, &commands);
  q->recording = false;
  if (result == VK_SUCCESS) result = st_vk_stream_send(q, &waits);
  if (result != VK_SUCCESS) return result;
  const VkPipelineStageFlags stages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
  const VkTimelineSemaphoreSubmitInfo values = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                                .waitSemaphoreValueCount = 1,
                                                .pWaitSemaphoreValues = &q->copies};
  const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                             .pNext = waits ? &values : NULL,
                             .waitSemaphoreCount = waits,
                             .pWaitSemaphores = &q->copied,
                             .pWaitDstStageMask = &stages,
                             .commandBufferCount = 1,
                             .pCommandBuffers = &commands};
  q->submissions++;
  pthread_mutex_lock(&d->lock);
  if (d->lose_after && !--d->lose_after) d->lost = true;
  result = d->lost ? VK_ERROR_DEVICE_LOST : d->vk.QueueSubmit(d->queue, 1, &info, fence);
  pthread_mutex_unlock(&d->lock);
  return result;
}

VkResult st_vk_wait(const st_queue *q, const VkFence *fence) {
  const st_device *d = q->device;
  VkResult result = d->vk.WaitForFences(d->device, 1, fence, VK_TRUE, UINT64_MAX);
  return result == VK_SUCCESS ? d->vk.ResetFences(d->device, 1, fence) : result;
}

void st_vk_latch_device(st_queue *q, VkResult result) {
  if (result == VK_ERROR_DEVICE_LOST) {
    pthread_mutex_lock(&q->device->lock);
    q->device->lost = true;
    pthread_mutex_unlock(&q->device->lock);
  }
  latch_result(q, q->device->traits.name, result);
}

// Submits what was recorded and waits for all that was submitted, also where that is only an arena's.
static void flush(st_queue *q) {
  if (!q->recording && !st_vk_stream_used(q)) return;
  VkResult result = VK_SUCCESS;
  if (q->recording) {
    settle(q);
    result = st_vk_submit(q, q->fence);
    if (result == VK_SUCCESS) result = st_vk_wait(q, &q->fence);
  }
  VkResult emptied = st_vk_stream_empty(q);
  if (result == VK_SUCCESS) result = emptied;
  st_vk_latch_device(q, result);
  q->epoch++;
  for (st_vk_upload *u = q->uploads; u; u = u->next) u->used = 0;
}

setun_status st_vk_finish(st_queue *q, setun_error *err) {
  flush(q);
  return take_error(q, err);
}

// ---- copies -------------------------------------------------------------------------------------------------------

bool st_vk_grow(st_queue *q, st_vk_buffer *b, uint64_t size) {
  if (b->size >= size) return true;
  flush(q); // which may use it
  st_vk_buffer_free(q->device, b);
  setun_error error = {SETUN_OK, ""};
  setun_status s = st_vk_buffer_new(q->device, size, ST_VK_LOCAL, "the inputs of products", b, &error);
  st_vk_latch(q, s, &error);
  return s == SETUN_OK;
}

static bool grow_readback(st_queue *q, uint64_t size) {
  if (q->readback.size >= size) return true;
  st_vk_buffer_free(q->device, &q->readback);
  setun_error error = {SETUN_OK, ""};
  setun_status s = st_vk_buffer_new(q->device, size, ST_VK_READBACK, "a session's downloads", &q->readback, &error);
  st_vk_latch(q, s, &error);
  return s == SETUN_OK;
}

setun_status st_vk_copy_out(st_queue *q, VkBuffer from, const VkBufferCopy *regions, uint32_t count, uint64_t bytes,
                            void *to, setun_error *err) {
  if (grow_readback(q, bytes) && st_vk_begin(q)) {
    barrier(q, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_READ_BIT);
    st_vk_copy(q, from, q->readback.buffer, regions, count);
    barrier(q, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
    q->downloaded += bytes;
  }
  setun_status s = st_vk_finish(q, err);
  if (s == SETUN_OK) memcpy(to, q->readback.mapped, (size_t)bytes);
  return s;
}

setun_status st_vk_copy_in(st_queue *q, VkBuffer to, const VkBufferCopy *regions, uint32_t count, uint64_t bytes,
                           const void *from, setun_error *err) {
  enum { PIECE = 64 };
  uint64_t at = 0;
  st_vk_upload *u = st_vk_begin(q) ? reserve(q, bytes, &at) : NULL;
  if (u) {
    memcpy(u->buffer.mapped + at, from, (size_t)bytes);
    barrier(q, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT);
    for (uint32_t i = 0; i < count; i += PIECE) {
      VkBufferCopy some[PIECE];
      uint32_t n = count - i < PIECE ? count - i : PIECE;
      for (uint32_t j = 0; j < n; j++) some[j] = regions[i + j], some[j].srcOffset += at;
      st_vk_copy(q, u->buffer.buffer, to, some, n);
    }
  }
  return st_vk_finish(q, err);
}

setun_status st_vk_read(st_queue *q, const st_array *a, uint32_t token, size_t n, float *out, setun_error *err) {
  if (!n) return st_vk_finish(q, err);
  const VkBufferCopy region = {.srcOffset = token * a->width * sizeof(float), .size = n * sizeof(float)};
  return st_vk_copy_out(q, a->data.buffer, &region, 1, region.size, out, err);
}

setun_status st_vk_write(st_queue *q, st_array *a, uint32_t token, size_t n, const float *in, setun_error *err) {
  const VkBufferCopy region = {.dstOffset = token * a->width * sizeof(float), .size = n * sizeof(float)};
  return n ? st_vk_copy_in(q, a->data.buffer, &region, 1, region.size, in, err) : st_vk_finish(q, err);
}

// ---- the largest number -------------------------------------------------------------------------------------------

void st_vk_clear_buffer(st_queue *q, st_vk_buffer *b) {
  bool added = st_vk_log_clear(&q->log, b->buffer);
  latch_log(q, added);
  if (!added) st_vk_buffer_free(q->device, b);
}

VkDeviceAddress st_vk_ended(st_queue *q) {
  if (q->ended.size) return q->ended.address;
  setun_error error = {SETUN_OK, ""};
  setun_status s = st_vk_buffer_new(q->device, (2 + 2 * ST_VK_ENDED_GROUPS) * sizeof(uint32_t), ST_VK_LOCAL,
                                    "a session's counts", &q->ended, &error);
  st_vk_latch(q, s, &error);
  if (s != SETUN_OK || !st_vk_record(q)) return 0;
  const st_vk_access uses[] = {ST_VK_WRITES_TO(q->ended_use)};
  st_vk_sync(q, uses, 1);
  st_vk_clear_buffer(q, &q->ended);
  return q->ended.address;
}

setun_status st_vk_argmax(st_queue *q, const st_array *x, uint32_t n, uint32_t width, int32_t *ids, setun_error *err) {
  enum { LOCAL = 128, LEAST = 1024 };
  const st_vk_special special = {{st_vk_local(q->device, LOCAL)}};
  uint32_t each = (width + ST_VK_ENDED_GROUPS - 1) / ST_VK_ENDED_GROUPS;
  if (each < LEAST) each = LEAST;
  uint32_t groups = (width + each - 1) / each;
  setun_status s = SETUN_OK;
  for (uint32_t t = 0; t < n && s == SETUN_OK; t++) {
    struct {
      VkDeviceAddress x, parts;
      uint32_t width, each;
    } push = {x->data.address + (VkDeviceAddress)t * x->width * sizeof(float), 0, width, each};
    if (st_vk_begin(q) && (push.parts = st_vk_ended(q))) {
      st_vk_op op = st_vk_op_of(ST_VK_ARGMAX, &special, &push, sizeof push, (st_vk_groups){groups, 1});
      st_vk_op_uses(&op, ST_VK_READS(x));
      st_vk_op_uses(&op, ST_VK_WRITES_TO(q->ended_use));
      op.read = width * sizeof(float), op.written = sizeof(uint32_t);
      st_vk_run(q, &op);
    }
    const VkBufferCopy region = {.srcOffset = sizeof(uint32_t), .size = sizeof *ids};
    s = st_vk_copy_out(q, q->ended.buffer, &region, 1, sizeof *ids, &ids[t], err);
  }
  return s;
}

// ---- queues and arrays --------------------------------------------------------------------------------------------

static VkResult make_commands(st_queue *q) {
  const st_device *d = q->device;
  const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                        .queueFamilyIndex = d->traits.places.compute.family};
  const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  VkResult result = d->vk.CreateCommandPool(d->device, &pool, NULL, &q->pool);
  if (result != VK_SUCCESS) return result;
  const VkCommandBufferAllocateInfo commands = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                                .commandPool = q->pool,
                                                .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                                .commandBufferCount = ST_VK_RECORDED};
  VkCommandBuffer made[ST_VK_RECORDED];
  result = d->vk.AllocateCommandBuffers(d->device, &commands, made);
  for (int i = 0; i < ST_VK_RECORDED && result == VK_SUCCESS; i++) q->recorded[i].commands = made[i];
  if (result == VK_SUCCESS) result = d->vk.CreateFence(d->device, &fence, NULL, &q->fence);
  return result;
}

extern const st_backend st_backend_vulkan;

setun_status st_vk_queue_new(st_device *d, const st_queue_options *options, st_queue **queue, setun_error *err) {
  st_queue *q = st_calloc(1, sizeof *q);
  if (!q) return st_fail_memory(err, "the session's queue");
  q->device = d;
  q->epoch = 1;
  setun_status s = st_host_queue_open(&q->host, &st_backend_vulkan, d, options, err);
  if (s == SETUN_OK) {
    VkResult result = make_commands(q);
    if (result != VK_SUCCESS) s = st_vk_fail(err, "a session's commands", result);
  }
  if (s == SETUN_OK) {
    *queue = q;
  } else {
    st_vk_queue_free(q);
  }
  return s;
}

void st_vk_queue_free(st_queue *q) {
  if (!q) return;
  st_device *d = q->device;
  for (st_vk_upload *u = q->uploads, *next; u; u = next) {
    next = u->next;
    st_vk_buffer_free(d, &u->buffer);
    st_free(u);
  }
  st_vk_stream_free(q);
  st_vk_buffer_free(d, &q->readback);
  st_vk_buffer_free(d, &q->codes);
  st_vk_buffer_free(d, &q->floats);
  st_vk_buffer_free(d, &q->ended);
  st_vk_buffer_free(d, &q->lists);
  st_vk_buffer_free(d, &q->plan);
  if (q->fence) d->vk.DestroyFence(d->device, q->fence, NULL);
  if (q->pool) d->vk.DestroyCommandPool(d->device, q->pool, NULL);
  for (int i = 0; i < ST_VK_RECORDED; i++) st_free(q->recorded[i].log.bytes);
  st_free(q->log.bytes);
  st_host_queue_close(&q->host);
  st_free(q);
}

setun_status st_vk_array_new(st_queue *q, size_t tokens, size_t width, st_array **array, setun_error *err) {
  size_t n, bytes;
  st_array *a = st_calloc(1, sizeof *a);
  if (!a || !st_mul_size(tokens, width, &n) || !st_mul_size(n, sizeof(float), &bytes)) {
    st_free(a);
    return st_fail_memory(err, "activations");
  }
  a->device = q->device;
  a->tokens = tokens;
  a->width = width;
  setun_status s = st_host_array_open(&a->host, q, tokens, width, err);
  if (s == SETUN_OK) s = st_vk_buffer_new(q->device, bytes, ST_VK_LOCAL, "activations", &a->data, err);
  if (s == SETUN_OK) {
    *array = a;
  } else {
    st_vk_array_free(a);
  }
  return s;
}

void st_vk_array_free(st_array *a) {
  if (!a) return;
  st_host_array_close(&a->host);
  st_vk_buffer_free(a->device, &a->data);
  st_free(a);
}
