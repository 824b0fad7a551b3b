// What a queue submits: a log of its commands first. Where the log is the same as an earlier one, the commands recorded
// then are submitted again. A decoded token's log is that of the token before: what differs between them (ids,
// positions, pages) is in memory that the host writes. A longer list of pages or another batch makes another log.
#include "backend/vulkan/device.h"

#include "base/memory.h"

#include <string.h>

typedef enum { DISPATCH, BARRIER, COPY, FILL } kind;

// An entry of the log; push constants or regions follow it.
typedef struct {
  kind kind;
  uint32_t count; // bytes of push constants, or regions
  union {
    struct {
      VkPipeline pipeline;
      st_vk_groups groups;
    } dispatch;
    struct {
      VkPipelineStageFlags to;
      VkAccessFlags access;
    } barrier;
    struct {
      VkBuffer from, to;
    } copy; // FILL: `to` alone
  } of;
} entry;

static size_t padded(size_t bytes) {
  return (bytes + 7) / 8 * 8;
}

static bool add(st_vk_log *log, const entry *e, const void *rest, size_t bytes) {
  size_t size = sizeof *e + padded(bytes);
  if (!st_reserve(&log->bytes, &log->capacity, log->used + size, 1)) return false;
  uint8_t *to = log->bytes + log->used;
  memset(to, 0, size);
  memcpy(to, e, sizeof *e);
  if (bytes) memcpy(to + sizeof *e, rest, bytes);
  log->used += size;
  return true;
}

// Entries are compared by their bytes: those between members are zero.
static entry entry_of(kind what, uint32_t count) {
  entry e;
  memset(&e, 0, sizeof e);
  e.kind = what;
  e.count = count;
  return e;
}

bool st_vk_log_dispatch(st_vk_log *log, VkPipeline pipeline, st_vk_groups groups, const void *push, uint32_t bytes) {
  entry e = entry_of(DISPATCH, bytes);
  e.of.dispatch.pipeline = pipeline;
  e.of.dispatch.groups = groups;
  return add(log, &e, push, bytes);
}

bool st_vk_log_barrier(st_vk_log *log, VkPipelineStageFlags to, VkAccessFlags access) {
  entry e = entry_of(BARRIER, 0);
  e.of.barrier.to = to;
  e.of.barrier.access = access;
  return add(log, &e, NULL, 0);
}

bool st_vk_log_copy(st_vk_log *log, VkBuffer from, VkBuffer to, const VkBufferCopy *regions, uint32_t count) {
  entry e = entry_of(COPY, count);
  e.of.copy.from = from;
  e.of.copy.to = to;
  return add(log, &e, regions, count * sizeof *regions);
}

bool st_vk_log_clear(st_vk_log *log, VkBuffer buffer) {
  entry e = entry_of(FILL, 0);
  e.of.copy.to = buffer;
  return add(log, &e, NULL, 0);
}

// ---- recording ----------------------------------------------------------------------------------------------------

static void record_barrier(const st_vk *vk, VkCommandBuffer commands, const entry *e) {
  const VkMemoryBarrier all = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                               .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                               .dstAccessMask = e->of.barrier.access};
  vk->CmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
                         e->of.barrier.to, 0, 1, &all, 0, NULL, 0, NULL);
}

// Returns the bytes that follow the entry.
static size_t record_entry(const st_device *d, VkCommandBuffer commands, const entry *e, const uint8_t *rest) {
  const st_vk *vk = &d->vk;
  VkBufferCopy region;
  switch (e->kind) {
  case DISPATCH:
    vk->CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, e->of.dispatch.pipeline);
    vk->CmdPushConstants(commands, d->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, e->count, rest);
    vk->CmdDispatch(commands, e->of.dispatch.groups.x, e->of.dispatch.groups.y, 1);
    return padded(e->count);
  case BARRIER: record_barrier(vk, commands, e); break;
  case COPY:
    for (uint32_t i = 0; i < e->count; i++) {
      memcpy(&region, rest + i * sizeof region, sizeof region);
      vk->CmdCopyBuffer(commands, e->of.copy.from, e->of.copy.to, 1, &region);
    }
    return padded(e->count * sizeof region);
  case FILL: vk->CmdFillBuffer(commands, e->of.copy.to, 0, VK_WHOLE_SIZE, 0); break;
  }
  return 0;
}

static VkResult record(const st_device *d, const st_vk_log *log, VkCommandBuffer commands) {
  const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                          .flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT};
  VkResult result = d->vk.BeginCommandBuffer(commands, &begin);
  for (size_t at = 0; at < log->used && result == VK_SUCCESS;) {
    entry e;
    memcpy(&e, log->bytes + at, sizeof e);
    at += sizeof e;
    at += record_entry(d, commands, &e, log->bytes + at);
  }
  return result == VK_SUCCESS ? d->vk.EndCommandBuffer(commands) : result;
}

static uint64_t freed_buffers(st_device *d) {
  pthread_mutex_lock(&d->lock);
  uint64_t n = d->freed;
  pthread_mutex_unlock(&d->lock);
  return n;
}

VkResult st_vk_commands(st_queue *q, VkCommandBuffer *commands) {
  uint64_t freed = freed_buffers(q->device);
  st_vk_recorded *oldest = &q->recorded[0];
  for (int i = 0; i < ST_VK_RECORDED; i++) {
    st_vk_recorded *r = &q->recorded[i];
    if (r->used < oldest->used) oldest = r;
    // a buffer's handle may be another one's by now where one was freed
    if (!r->used || r->freed != freed || r->log.used != q->log.used) continue;
    if (q->log.used && memcmp(r->log.bytes, q->log.bytes, q->log.used)) continue;
    r->used = q->submissions + 1;
    *commands = r->commands;
    return VK_SUCCESS;
  }
  q->recordings++;
  st_vk_log log = oldest->log;
  oldest->used = 0;
  oldest->log = q->log;
  q->log = log;
  q->log.used = 0;
  *commands = oldest->commands;
  VkResult result = record(q->device, &oldest->log, oldest->commands);
  if (result != VK_SUCCESS) return result;
  oldest->freed = freed;
  oldest->used = q->submissions + 1;
  return VK_SUCCESS;
}
