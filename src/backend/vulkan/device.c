// Devices: found, opened, and closed; and the table of the backend's functions.
#include "backend/vulkan/device.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

extern const st_backend st_backend_vulkan; // listed in backends.def

static bool device_at(size_t index, st_device_facts *facts) {
  st_vk vk;
  VkPhysicalDevice found[ST_VK_DEVICES];
  if (st_vk_open(&vk, NULL) != SETUN_OK) return false;
  bool there = index < st_vk_devices(&vk, found);
  if (there) {
    st_vk_traits t = st_vk_traits_of(&vk, found[index]);
    *facts = (st_device_facts){.memory = t.memory};
    memcpy(facts->name, t.name, sizeof facts->name);
    memcpy(facts->problem, t.problem, sizeof facts->problem);
  }
  st_vk_close(&vk);
  return there;
}

// The physical device with that index, which can be used.
static setun_status choose(st_device *d, size_t index, setun_error *err) {
  VkPhysicalDevice found[ST_VK_DEVICES];
  uint32_t n = st_vk_devices(&d->vk, found);
  if (index >= n) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "Vulkan: expected a device with index %zu, found %u device%s", index,
                   n, n == 1 ? "" : "s");
  }
  d->physical = found[index];
  d->traits = st_vk_traits_of(&d->vk, d->physical);
  if (!d->traits.problem[0]) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s cannot be used: %s", d->traits.name, d->traits.problem);
}

static setun_status make_device(st_device *d, setun_error *err) {
  const float priorities[] = {1, 1};
  const char *extensions[2];
  uint32_t n = 0;
  if (d->traits.sized) extensions[n++] = VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME;
  if (d->traits.dots) extensions[n++] = VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME;
  VkPhysicalDeviceShaderIntegerDotProductFeatures dots = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES,
      .shaderIntegerDotProduct = VK_TRUE};
  VkPhysicalDeviceSubgroupSizeControlFeatures sized = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES,
      .pNext = d->traits.dots ? &dots : NULL,
      .subgroupSizeControl = VK_TRUE,
      .computeFullSubgroups = VK_TRUE};
  VkPhysicalDeviceVulkan12Features features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                               .pNext = d->traits.sized ? &sized : sized.pNext,
                                               .timelineSemaphore = VK_TRUE,
                                               .bufferDeviceAddress = VK_TRUE};
  const st_vk_place *compute = &d->traits.places.compute, *copy = &d->traits.places.copy;
  const VkDeviceQueueCreateInfo queues[] = {{.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                             .queueFamilyIndex = compute->family,
                                             .queueCount = copy->family == compute->family ? copy->index + 1 : 1,
                                             .pQueuePriorities = priorities},
                                            {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                             .queueFamilyIndex = copy->family,
                                             .queueCount = 1,
                                             .pQueuePriorities = priorities}};
  const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                   .pNext = &features,
                                   .queueCreateInfoCount = copy->family == compute->family ? 1 : 2,
                                   .pQueueCreateInfos = queues,
                                   .enabledExtensionCount = n,
                                   .ppEnabledExtensionNames = extensions};
  VkResult result = d->vk.CreateDevice(d->physical, &info, NULL, &d->device);
  if (result != VK_SUCCESS) return st_vk_fail(err, d->traits.name, result);
  if (!st_vk_load_device(&d->vk, d->device)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: its driver lacks functions of Vulkan 1.2", d->traits.name);
  }
  d->vk.GetDeviceQueue(d->device, compute->family, compute->index, &d->queue);
  d->vk.GetDeviceQueue(d->device, copy->family, copy->index, &d->copy_queue);
  d->vk.GetPhysicalDeviceMemoryProperties(d->physical, &d->memory);
  return SETUN_OK;
}

static void device_free(st_device *d) {
  if (!d) return;
  st_vk_queue_free(d->transfer);
  if (d->device && d->vk.DestroyDevice) {
    st_vk_pieces_free(d);
    st_vk_pipelines_close(d);
    d->vk.DestroyDevice(d->device, NULL);
  }
  st_vk_close(&d->vk);
  st_host_device_close(&d->host);
  pthread_mutex_destroy(&d->lock);
  pthread_mutex_destroy(&d->transfer_lock);
  st_free(d);
}

static setun_status device_new(const st_device_options *options, st_device **device, setun_error *err) {
  st_device *d = st_calloc(1, sizeof *d);
  if (!d) return st_fail_memory(err, "the device");
  pthread_mutex_init(&d->lock, NULL);
  pthread_mutex_init(&d->transfer_lock, NULL);
  if (options->log) d->log = *options->log;
  d->tails = true;
  d->distrusted = options->distrusted;
  d->lose_after = options->lose_after;
  d->copies = options->copies;
  setun_status s = st_host_device_open(&d->host, options, err);
  if (s == SETUN_OK) s = st_vk_open(&d->vk, err);
  if (s == SETUN_OK) s = choose(d, options->index, err);
  if (s == SETUN_OK) s = make_device(d, err);
  if (s == SETUN_OK) s = st_vk_pipelines_open(d, options->cache, err);
  if (s == SETUN_OK) s = st_vk_queue_new(d, &(st_queue_options){.threads = 1, .n_batch = 1}, &d->transfer, err);
  if (s == SETUN_OK) s = st_vk_check(d, err);
  if (s == SETUN_OK) {
    *device = d;
  } else {
    device_free(d);
  }
  return s;
}

static const char *device_isa(const st_device *d) {
  return d->traits.name;
}

static bool own_memory(const st_device *d, uint64_t *left) {
  if (left) *left = st_vk_memory_free(&d->vk, d->physical);
  return true;
}

const st_backend st_backend_vulkan = {
    .name = "vulkan",
    .device_at = device_at,
    .device_new = device_new,
    .device_free = device_free,
    .device_isa = device_isa,
    .own_memory = own_memory,
    .matrix_info = st_vk_matrix_info,
    .matrix_new = st_vk_matrix_new,
    .matrix_write = st_vk_matrix_write,
    .matrix_borrow = st_vk_matrix_borrow,
    .matrix_free = st_vk_matrix_free,
    .matrix_bytes = st_vk_matrix_bytes,
    .vector_new = st_vk_vector_new,
    .vector_free = st_vk_vector_free,
    .queue_new = st_vk_queue_new,
    .queue_free = st_vk_queue_free,
    .cache_size = st_vk_cache_size,
    .cache_page_size = st_vk_cache_page_size,
    .cache_row_size = st_vk_cache_row_size,
    .cache_format_name = st_vk_cache_format_name,
    .array_new = st_vk_array_new,
    .array_free = st_vk_array_free,
    .cache_new = st_vk_cache_new,
    .cache_free = st_vk_cache_free,
    .embed = st_vk_embed,
    .linear = st_vk_linear,
    .rmsnorm = st_vk_rmsnorm,
    .norm_into = st_vk_norm_into,
    .rope = st_vk_rope,
    .clip = st_vk_clip,
    .cache_write = st_vk_cache_write,
    .cache_copy_page = st_vk_cache_copy_page,
    .attend = st_vk_attend,
    .cache_save = st_vk_cache_save,
    .cache_restore = st_vk_cache_restore,
    .hadamard = st_vk_hadamard,
    .reorder = st_vk_reorder,
    .state_size = st_vk_state_size,
    .states_size = st_vk_states_size,
    .states_new = st_vk_states_new,
    .states_free = st_vk_states_free,
    .convolve = st_vk_convolve,
    .delta = st_vk_delta,
    .state_save = st_vk_state_save,
    .state_restore = st_vk_state_restore,
    .copy_columns = st_vk_copy_columns,
    .glu = st_vk_glu,
    .gather = st_vk_gather,
    .scatter_add = st_vk_scatter_add,
    .route = st_vk_route,
    .add_chosen = st_vk_add_chosen,
    .experts_new = st_vk_experts_new,
    .experts_free = st_vk_experts_free,
    .experts = st_vk_experts,
    .clear = st_vk_clear,
    .add = st_vk_add,
    .finish = st_vk_finish,
    .read = st_vk_read,
    .argmax = st_vk_argmax,
    .top = st_vk_top,
    .counted = st_vk_counted,
    .write = st_vk_write,
};
