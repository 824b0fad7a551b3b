// The largest numbers of a row, of which only these leave the device.
#include "backend/vulkan/device.h"

#include <string.h>

// As in shaders/top.comp, before the lists.
enum { WAS_NOT_FINITE = 2, HEAD = 3 };
enum { LOCAL = 128, LEAST = 1024 };

// Memory for lists, whose counts are zero at first. False: out of memory, latched.
static bool grow_lists(st_queue *q, uint64_t bytes) {
  const st_vk_access uses[] = {ST_VK_WRITES_TO(q->lists_use)};
  if (!st_vk_begin(q) || q->lists.size >= bytes) return q->error.code == SETUN_OK;
  if (!st_vk_grow(q, &q->lists, bytes)) return false;
  if (!st_vk_begin(q)) return st_vk_buffer_free(q->device, &q->lists), false;
  st_vk_sync(q, uses, 1);
  st_vk_clear_buffer(q, &q->lists);
  return q->lists.size >= bytes;
}

setun_status st_vk_top(st_queue *q, const st_array *x, uint32_t width, uint32_t k, int32_t *ids, float *values,
                       setun_error *err) {
  uint32_t found[2 * ST_TOP_MOST + 1];
  uint32_t each = (width + ST_VK_ENDED_GROUPS - 1) / ST_VK_ENDED_GROUPS;
  if (each < LEAST) each = LEAST;
  uint32_t groups = (width + each - 1) / each;
  uint64_t words = HEAD + 2 * (uint64_t)k * (groups + 1);
  const st_vk_special special = {{st_vk_local(q->device, LOCAL), k}};
  if (grow_lists(q, words * sizeof(uint32_t))) {
    const struct {
      VkDeviceAddress x, lists;
      uint32_t width, each;
    } push = {x->data.address, q->lists.address, width, each};
    st_vk_op op = st_vk_op_of(ST_VK_TOP, &special, &push, sizeof push, (st_vk_groups){groups, 1});
    st_vk_op_uses(&op, ST_VK_READS(x));
    st_vk_op_uses(&op, ST_VK_WRITES_TO(q->lists_use));
    op.read = width * sizeof(float);
    op.written = words * sizeof(uint32_t);
    st_vk_run(q, &op);
  }
  const VkBufferCopy region = {.srcOffset = WAS_NOT_FINITE * sizeof(uint32_t), .size = (2 * k + 1) * sizeof(uint32_t)};
  setun_status s = st_vk_copy_out(q, q->lists.buffer, &region, 1, region.size, found, err);
  for (uint32_t i = 0; i < k && s == SETUN_OK; i++) {
    memcpy(&values[i], &found[1 + 2 * i], sizeof *values);
    ids[i] = found[0] || found[2 + 2 * i] >= width ? -1 : (int32_t)found[2 + 2 * i];
  }
  return s;
}
