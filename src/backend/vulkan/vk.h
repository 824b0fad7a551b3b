// Vulkan's functions, from a loader that is opened when a device is asked for: a machine without one has no devices.
#ifndef SETUN_BACKEND_VULKAN_VK_H
#define SETUN_BACKEND_VULKAN_VK_H

#include "backend/backend.h"

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

// A loader, an instance, and of a device its own functions.
typedef struct st_vk {
  void *library;
  VkInstance instance;
#define GLOBAL(name) PFN_vk##name name;
#define INSTANCE(name) PFN_vk##name name;
#define DEVICE(name) PFN_vk##name name;
#include "backend/vulkan/functions.def"
} st_vk;

// Opens the loader and makes an instance. SETUN_ERROR_UNSUPPORTED: no loader, or none for Vulkan 1.2.
setun_status st_vk_open(st_vk *vk, setun_error *err);
void st_vk_close(st_vk *vk); // also one that is zero
bool st_vk_load_device(st_vk *vk, VkDevice device);

// The physical devices, at most ST_VK_DEVICES; their number.
enum { ST_VK_DEVICES = 16 };
uint32_t st_vk_devices(const st_vk *vk, VkPhysicalDevice devices[ST_VK_DEVICES]);

// Where a device's work is submitted: a queue that computes, and one that copies, which may be the same.
typedef struct st_vk_place {
  uint32_t family, index; // the queue's in its family
} st_vk_place;
typedef struct st_vk_places {
  st_vk_place compute, copy; // compute.family UINT32_MAX: none computes
} st_vk_places;
// Copies go, where there is such, to a family that does nothing else, to another one that computes, to a second queue
// of the same family, or to the one that computes.
st_vk_places st_vk_choose_places(const VkQueueFamilyProperties *families, uint32_t n);

enum { ST_VK_IDENTITY = VK_UUID_SIZE + 3 * sizeof(uint32_t) };
// The features of a physical device that shaders use.
typedef struct st_vk_traits {
  char name[VK_MAX_PHYSICAL_DEVICE_NAME_SIZE];
  char problem[256]; // why it cannot be used; "": it can
  uint64_t memory;   // of its largest heap of its own memory
  st_vk_places places;
  uint32_t subgroup;                      // invocations of a subgroup, a power of two
  bool sized;                             // pipelines can require that size
  bool dots;                              // sums of four products of bytes are one instruction
  uint32_t most_invocations, most_groups; // of a workgroup; of a dispatch, in its first dimension
  uint64_t most_allocation;
  uint8_t identity[ST_VK_IDENTITY]; // of the device and its driver's version
} st_vk_traits;
st_vk_traits st_vk_traits_of(const st_vk *vk, VkPhysicalDevice device);

// Bytes of its largest heap of its own memory that are free, or all of it where the driver does not say.
uint64_t st_vk_memory_free(const st_vk *vk, VkPhysicalDevice device);

// A failed call's name and reason; SETUN_ERROR_MEMORY or SETUN_ERROR_IO.
setun_status st_vk_fail(setun_error *err, const char *what, VkResult result);

#endif
