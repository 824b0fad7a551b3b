// Buffers: each with memory of its own, and weights, which share large ones.
#include "backend/vulkan/device.h"

#include "base/memory.h"

#include <string.h>

enum { CHUNK_LEAST = 1 << 20, CHUNK_MOST = 64 << 20, ALIGNMENT = 256 };
enum { CHUNK_PART = 16 }; // larger pieces than this part of a chunk are chunks of their own

struct st_vk_chunk {
  st_vk_chunk *next;
  st_vk_buffer buffer;
  uint64_t used;
};

// A piece that was freed.
struct st_vk_spare {
  st_vk_spare *next;
  st_vk_piece piece;
};

// What memory of a kind has; what it should have too and should lack, where there is such.
typedef struct {
  VkMemoryPropertyFlags has, better, lacks;
} properties;

// The type to try first, or the one after it; UINT32_MAX: there is none.
static uint32_t type_for(const st_device *d, uint32_t allowed, st_vk_kind kind, int attempt) {
  enum {
    OWN = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
    SHARED = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
  };
  static const properties of[] = {[ST_VK_LOCAL] = {0, OWN, 0},
                                  [ST_VK_UPLOAD] = {SHARED, OWN, 0},
                                  [ST_VK_READBACK] = {SHARED, VK_MEMORY_PROPERTY_HOST_CACHED_BIT, 0},
                                  [ST_VK_DIRECT] = {SHARED | OWN, 0, 0},
                                  [ST_VK_STAGED] = {SHARED, 0, OWN},
                                  [ST_VK_COPIED] = {0, OWN, 0}};
  const properties *p = &of[kind];
  VkMemoryPropertyFlags has = p->has | (attempt ? 0 : p->better), lacks = attempt ? 0 : p->lacks;
  for (uint32_t i = 0; i < d->memory.memoryTypeCount; i++) {
    VkMemoryPropertyFlags flags = d->memory.memoryTypes[i].propertyFlags;
    if (allowed >> i & 1 && (flags & has) == has && !(flags & lacks)) return i;
  }
  return UINT32_MAX;
}

static bool is_mapped(st_vk_kind kind) {
  return kind != ST_VK_LOCAL && kind != ST_VK_COPIED;
}

static setun_status fail_size(const st_device *d, const char *what, uint64_t size, setun_error *err) {
  return st_fail(
      err, SETUN_ERROR_MEMORY,
      "%s: out of memory for %s: expected %.1f MiB, found less, of %.1f MiB on the device, of which %.1f MiB "
      "are this model's",
      d->traits.name, what, (double)size / (1 << 20), (double)d->traits.memory / (1 << 20),
      (double)d->allocated / (1 << 20));
}

// Memory for a buffer, bound, and mapped unless the device alone uses it.
static VkResult bind_memory(st_device *d, st_vk_kind kind, st_vk_buffer *b) {
  VkMemoryRequirements needs;
  d->vk.GetBufferMemoryRequirements(d->device, b->buffer, &needs);
  const VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                           .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
  VkMemoryAllocateInfo info = {
      .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .pNext = &flags, .allocationSize = needs.size};
  VkResult result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
  for (int i = 0; i < 2 && result != VK_SUCCESS && needs.size <= d->traits.most_allocation; i++) {
    info.memoryTypeIndex = type_for(d, needs.memoryTypeBits, kind, i);
    if (info.memoryTypeIndex != UINT32_MAX) result = d->vk.AllocateMemory(d->device, &info, NULL, &b->memory);
  }
  if (result == VK_SUCCESS) result = d->vk.BindBufferMemory(d->device, b->buffer, b->memory, 0);
  void *mapped = NULL;
  if (result == VK_SUCCESS && is_mapped(kind))
    result = d->vk.MapMemory(d->device, b->memory, 0, VK_WHOLE_SIZE, 0, &mapped);
  b->mapped = mapped;
  return result;
}

setun_status st_vk_buffer_new(st_device *d, uint64_t size, st_vk_kind kind, const char *what, st_vk_buffer *b,
                              setun_error *err) {
  *b = (st_vk_buffer){.size = size ? (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : ALIGNMENT};
  const uint32_t families[] = {d->traits.places.compute.family, d->traits.places.copy.family};
  bool both = (kind == ST_VK_STAGED || kind == ST_VK_COPIED) && families[0] != families[1];
  const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                   .size = b->size,
                                   .sharingMode = both ? VK_SHARING_MODE_CONCURRENT : VK_SHARING_MODE_EXCLUSIVE,
                                   .queueFamilyIndexCount = both ? 2 : 0,
                                   .pQueueFamilyIndices = families,
                                   .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                            VK_BUFFER_USAGE_TRANSFER_DST_BIT |
                                            VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT};
  VkResult result = d->vk.CreateBuffer(d->device, &info, NULL, &b->buffer);
  if (result == VK_SUCCESS) result = bind_memory(d, kind, b);
  if (result != VK_SUCCESS) {
    st_vk_buffer_free(d, b);
    bool memory = result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY;
    return memory ? fail_size(d, what, size, err) : st_vk_fail(err, what, result);
  }
  const VkBufferDeviceAddressInfo address = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                             .buffer = b->buffer};
  b->address = d->vk.GetBufferDeviceAddress(d->device, &address);
  pthread_mutex_lock(&d->lock);
  d->allocated += b->size;
  d->buffers++;
  pthread_mutex_unlock(&d->lock);
  return SETUN_OK;
}

void st_vk_buffer_free(st_device *d, st_vk_buffer *b) {
  if (b->address) {
    pthread_mutex_lock(&d->lock);
    d->allocated -= b->size;
    d->freed++;
    pthread_mutex_unlock(&d->lock);
  }
  if (b->buffer) d->vk.DestroyBuffer(d->device, b->buffer, NULL);
  if (b->memory) d->vk.FreeMemory(d->device, b->memory, NULL);
  *b = (st_vk_buffer){0};
}

// A chunk with room for so many bytes: the first, or a new one, before the others, or behind the first and of this size
// where it is not much smaller than a chunk, so that little of a chunk stays unused. NULL: out of memory, and *err
// names what is missing.
static st_vk_chunk *chunk_for(st_device *d, uint64_t size, const char *what, setun_error *err) {
  if (d->chunks && d->chunks->buffer.size - d->chunks->used >= size) return d->chunks;
  st_vk_chunk *c = st_calloc(1, sizeof *c);
  if (!c) return st_fail_memory(err, what), NULL;
  uint64_t chunk = d->chunk_bytes / 8; // what may stay unused is in the plan, see st_memory_plan_device
  chunk = chunk < CHUNK_LEAST ? CHUNK_LEAST : chunk > CHUNK_MOST ? CHUNK_MOST : chunk;
  bool alone = size >= chunk / CHUNK_PART;
  if (st_vk_buffer_new(d, alone ? size : chunk, ST_VK_LOCAL, what, &c->buffer, err) != SETUN_OK) {
    st_free(c);
    return NULL;
  }
  d->chunk_bytes += c->buffer.size;
  st_vk_chunk **at = alone && d->chunks ? &d->chunks->next : &d->chunks;
  c->next = *at;
  return *at = c;
}

uint64_t st_vk_aligned(uint64_t size) {
  return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

// A spare piece of that size; false: there is none.
static bool take_spare(st_device *d, uint64_t size, st_vk_piece *piece) {
  for (st_vk_spare **at = &d->spares; *at; at = &(*at)->next) {
    st_vk_spare *spare = *at;
    if (st_vk_aligned(spare->piece.size) != st_vk_aligned(size)) continue;
    *piece = spare->piece;
    piece->size = size;
    *at = spare->next;
    st_free(spare);
    return true;
  }
  return false;
}

setun_status st_vk_piece_new(st_device *d, uint64_t size, const char *what, st_vk_piece *piece, setun_error *err) {
  setun_error local = {SETUN_OK, ""};
  pthread_mutex_lock(&d->transfer_lock);
  if (!take_spare(d, size, piece)) {
    st_vk_chunk *c = chunk_for(d, st_vk_aligned(size), what, &local);
    if (c) {
      *piece = (st_vk_piece){c->buffer.buffer, c->used, size, c->buffer.address + c->used};
      c->used += st_vk_aligned(size);
    }
  }
  pthread_mutex_unlock(&d->transfer_lock);
  if (local.code != SETUN_OK && err) *err = local;
  return local.code;
}

// Without memory for the list the piece stays unused until the device is freed.
void st_vk_piece_free(st_device *d, const st_vk_piece *piece) {
  st_vk_spare *spare = piece->size ? st_malloc(1, sizeof *spare) : NULL;
  if (!spare) return;
  pthread_mutex_lock(&d->transfer_lock);
  *spare = (st_vk_spare){d->spares, *piece};
  d->spares = spare;
  pthread_mutex_unlock(&d->transfer_lock);
}

void st_vk_note_borrowed(st_device *d, uint64_t bytes) {
  pthread_mutex_lock(&d->lock);
  if (st_vk_aligned(bytes) > d->borrowed) d->borrowed = st_vk_aligned(bytes);
  pthread_mutex_unlock(&d->lock);
}

void st_vk_pieces_free(st_device *d) {
  for (st_vk_chunk *c = d->chunks, *next; c; c = next) {
    next = c->next;
    st_vk_buffer_free(d, &c->buffer);
    st_free(c);
  }
  d->chunks = NULL;
  for (st_vk_spare *s = d->spares, *next; s; s = next) {
    next = s->next;
    st_free(s);
  }
  d->spares = NULL;
}

setun_status st_vk_piece_write(st_device *d, const st_vk_piece *piece, uint64_t offset, const void *bytes,
                               uint64_t size, setun_error *err) {
  const VkBufferCopy region = {.dstOffset = piece->offset + offset, .size = size};
  pthread_mutex_lock(&d->transfer_lock);
  setun_status s = st_vk_copy_in(d->transfer, piece->buffer, &region, 1, size, bytes, err);
  pthread_mutex_unlock(&d->transfer_lock);
  return s;
}
