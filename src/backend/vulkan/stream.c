// Weights that are not resident: the host's codes come through two buffers, of which the host writes one while the
// device reads the other. Where the host can write memory of the device's own (cards with a resizable BAR,
// integrated ones) shaders read what it wrote; elsewhere a queue of its own copies a full buffer to such memory, and
// what reads it waits for a semaphore.
#include "backend/vulkan/device.h"

#include <string.h>

// Until all copies have ended.
static VkResult wait_for_copies(const st_queue *q) {
  const VkSemaphoreWaitInfo all = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                   .semaphoreCount = 1,
                                   .pSemaphores = &q->copied,
                                   .pValues = &q->copies};
  return q->copies ? q->device->vk.WaitSemaphores(q->device->device, &all, UINT64_MAX) : VK_SUCCESS;
}

// Until the device has read the arena. Where a submission that would have waited for a copy failed, the copy may still
// run.
static VkResult empty(const st_queue *q, st_vk_arena *a) {
  VkResult result = a->pending ? st_vk_wait(q, &a->fence) : a->used ? wait_for_copies(q) : VK_SUCCESS;
  a->pending = false;
  a->used = 0;
  return result;
}

bool st_vk_stream_used(const st_queue *q) {
  bool used = false;
  for (int i = 0; i < ST_VK_ARENAS; i++) used |= q->arenas[i].used > 0;
  return used;
}

VkResult st_vk_stream_empty(st_queue *q) {
  VkResult result = VK_SUCCESS;
  for (int i = 0; i < ST_VK_ARENAS; i++) {
    VkResult emptied = empty(q, &q->arenas[i]);
    if (result == VK_SUCCESS) result = emptied;
  }
  return result;
}

// ---- buffers ------------------------------------------------------------------------------------------------------

static VkResult make_copying(st_queue *q) {
  const st_device *d = q->device;
  const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                        .queueFamilyIndex = d->traits.places.copy.family};
  const VkSemaphoreTypeCreateInfo timeline = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                              .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
  const VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &timeline};
  VkResult result = VK_SUCCESS;
  if (!q->copy_pool) result = d->vk.CreateCommandPool(d->device, &pool, NULL, &q->copy_pool);
  if (result == VK_SUCCESS && !q->copied) result = d->vk.CreateSemaphore(d->device, &semaphore, NULL, &q->copied);
  const VkCommandBufferAllocateInfo commands = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                                .commandPool = q->copy_pool,
                                                .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                                .commandBufferCount = ST_VK_ARENAS};
  VkCommandBuffer made[ST_VK_ARENAS];
  if (result == VK_SUCCESS) result = d->vk.AllocateCommandBuffers(d->device, &commands, made);
  for (int i = 0; i < ST_VK_ARENAS && result == VK_SUCCESS; i++) q->arenas[i].copy = made[i];
  return result;
}

static void free_buffers(st_queue *q, st_vk_arena *a) {
  st_vk_buffer_free(q->device, &a->host);
  st_vk_buffer_free(q->device, &a->local);
}

// The buffers of an arena that is empty: one that both sides use, or a pair.
static setun_status make_buffers(st_queue *q, st_vk_arena *a, uint64_t size, setun_error *err) {
  static const char what[] = "weights that are copied for each pass";
  st_device *d = q->device;
  const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  VkResult result = a->fence ? VK_SUCCESS : d->vk.CreateFence(d->device, &fence, NULL, &a->fence);
  free_buffers(q, a);
  if (result == VK_SUCCESS && !d->copies && st_vk_buffer_new(d, size, ST_VK_DIRECT, what, &a->host, NULL) == SETUN_OK)
    return SETUN_OK;
  if (result == VK_SUCCESS && !a->copy) result = make_copying(q);
  if (result != VK_SUCCESS) return st_vk_fail(err, what, result);
  setun_status s = st_vk_buffer_new(d, size, ST_VK_STAGED, what, &a->host, err);
  if (s == SETUN_OK) s = st_vk_buffer_new(d, size, ST_VK_COPIED, what, &a->local, err);
  if (s != SETUN_OK) free_buffers(q, a);
  return s;
}

// Barriers and epochs go on over submissions, which a queue carries out in their order.
bool st_vk_stream_room(st_queue *q, uint64_t bytes) {
  enum { CODES = 4 }; // an arena has room for so many of the largest
  st_vk_arena *a = &q->arenas[q->arena];
  setun_error error = {SETUN_OK, ""};
  if (a->host.size - a->used >= bytes) return true;
  if (a->used) {
    VkResult result = st_vk_submit(q, a->fence);
    a->pending = result == VK_SUCCESS;
    a = &q->arenas[q->arena = (q->arena + 1) % ST_VK_ARENAS];
    if (result == VK_SUCCESS) result = empty(q, a);
    st_vk_latch_device(q, result);
    if (result != VK_SUCCESS || !st_vk_record(q)) return false;
  }
  if (a->host.size >= bytes) return true;
  pthread_mutex_lock(&q->device->lock);
  uint64_t size = CODES * q->device->borrowed;
  pthread_mutex_unlock(&q->device->lock);
  setun_status s = make_buffers(q, a, size > bytes ? size : bytes, &error);
  st_vk_latch(q, s, &error);
  return s == SETUN_OK;
}

VkDeviceAddress st_vk_stream_copy(st_queue *q, const void *codes, uint64_t bytes) {
  st_vk_arena *a = &q->arenas[q->arena];
  VkDeviceAddress address = (a->local.size ? a->local.address : a->host.address) + a->used;
  memcpy(a->host.mapped + a->used, codes, (size_t)bytes);
  a->used += st_vk_aligned(bytes);
  q->streamed += bytes;
  return address;
}

// ---- copies -------------------------------------------------------------------------------------------------------

static VkResult record_copy(const st_vk *vk, const st_vk_arena *a) {
  const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                          .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
  const VkBufferCopy all = {.size = a->used};
  VkResult result = vk->BeginCommandBuffer(a->copy, &begin);
  if (result != VK_SUCCESS) return result;
  vk->CmdCopyBuffer(a->copy, a->host.buffer, a->local.buffer, 1, &all);
  return vk->EndCommandBuffer(a->copy);
}

// Nothing reads the arena's memory of the device's own now: the submission that did was waited for, see `empty`.
VkResult st_vk_stream_send(st_queue *q, bool *waits) {
  st_device *d = q->device;
  const st_vk_arena *a = &q->arenas[q->arena];
  *waits = a->used && a->local.size;
  if (!*waits) return VK_SUCCESS;
  uint64_t value = q->copies + 1;
  const VkTimelineSemaphoreSubmitInfo values = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                                .signalSemaphoreValueCount = 1,
                                                .pSignalSemaphoreValues = &value};
  const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                             .pNext = &values,
                             .commandBufferCount = 1,
                             .pCommandBuffers = &a->copy,
                             .signalSemaphoreCount = 1,
                             .pSignalSemaphores = &q->copied};
  VkResult result = record_copy(&d->vk, a);
  if (result != VK_SUCCESS) return result;
  pthread_mutex_lock(&d->lock);
  result = d->lost ? VK_ERROR_DEVICE_LOST : d->vk.QueueSubmit(d->copy_queue, 1, &info, VK_NULL_HANDLE);
  pthread_mutex_unlock(&d->lock);
  if (result == VK_SUCCESS) q->copies = value;
  return result;
}

// After a pass that failed something may still run.
void st_vk_stream_free(st_queue *q) {
  const st_device *d = q->device;
  wait_for_copies(q);
  for (int i = 0; i < ST_VK_ARENAS; i++) {
    st_vk_arena *a = &q->arenas[i];
    empty(q, a);
    free_buffers(q, a);
    if (a->fence) d->vk.DestroyFence(d->device, a->fence, NULL);
  }
  if (q->copied) d->vk.DestroySemaphore(d->device, q->copied, NULL);
  if (q->copy_pool) d->vk.DestroyCommandPool(d->device, q->copy_pool, NULL);
}
