// The loader, instances, and the capabilities of physical devices.
#include "backend/vulkan/vk.h"

#include <dlfcn.h>
#include <string.h>

enum { VERSION = VK_API_VERSION_1_2 };

static const char *const names[] = {"libvulkan.so.1", "libvulkan.so", "libvulkan.1.dylib", "libMoltenVK.dylib"};

static setun_status fail_loader(setun_error *err) {
  return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                 "no Vulkan: its loader (libvulkan.so.1) is not installed; it comes with the driver of a GPU");
}

static setun_status make_instance(st_vk *vk, setun_error *err) {
  const VkApplicationInfo application = {
      .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .pApplicationName = "setun", .apiVersion = VERSION};
  const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application};
  uint32_t version = VK_API_VERSION_1_0;
  if (!vk->EnumerateInstanceVersion || vk->EnumerateInstanceVersion(&version) != VK_SUCCESS || version < VERSION) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "Vulkan: expected a loader for version 1.2, found %u.%u",
                   VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));
  }
  VkResult result = vk->CreateInstance(&info, NULL, &vk->instance);
  return result == VK_SUCCESS ? SETUN_OK : st_vk_fail(err, "vkCreateInstance", result);
}

setun_status st_vk_open(st_vk *vk, setun_error *err) {
  *vk = (st_vk){0};
  for (size_t i = 0; i < sizeof names / sizeof *names && !vk->library; i++) vk->library = dlopen(names[i], RTLD_NOW);
  if (!vk->library) return fail_loader(err);
  PFN_vkGetInstanceProcAddr get = NULL;
  void *symbol = dlsym(vk->library, "vkGetInstanceProcAddr");
  memcpy(&get, &symbol, sizeof get);
  setun_status s = get ? SETUN_OK : fail_loader(err);
  if (s == SETUN_OK) {
#define GLOBAL(name) vk->name = (PFN_vk##name)get(NULL, "vk" #name);
#define INSTANCE(name)
#define DEVICE(name)
#include "backend/vulkan/functions.def"
    s = make_instance(vk, err);
  }
  if (s != SETUN_OK) {
    st_vk_close(vk);
    return s;
  }
  bool whole = true;
#define GLOBAL(name)
#define INSTANCE(name)                                                                                                 \
  vk->name = (PFN_vk##name)get(vk->instance, "vk" #name);                                                              \
  whole = whole && vk->name;
#define DEVICE(name)
#include "backend/vulkan/functions.def"
  if (whole) return SETUN_OK;
  st_vk_close(vk);
  return fail_loader(err);
}

void st_vk_close(st_vk *vk) {
  if (vk->instance && vk->DestroyInstance) vk->DestroyInstance(vk->instance, NULL);
  if (vk->library) dlclose(vk->library);
  *vk = (st_vk){0};
}

bool st_vk_load_device(st_vk *vk, VkDevice device) {
  bool whole = true;
#define GLOBAL(name)
#define INSTANCE(name)
#define DEVICE(name)                                                                                                   \
  vk->name = (PFN_vk##name)vk->GetDeviceProcAddr(device, "vk" #name);                                                  \
  whole = whole && vk->name;
#include "backend/vulkan/functions.def"
  return whole;
}

uint32_t st_vk_devices(const st_vk *vk, VkPhysicalDevice devices[ST_VK_DEVICES]) {
  uint32_t n = ST_VK_DEVICES;
  VkResult result = vk->EnumeratePhysicalDevices(vk->instance, &n, devices);
  return result == VK_SUCCESS || result == VK_INCOMPLETE ? n : 0;
}

// ---- capabilities -------------------------------------------------------------------------------------------------

static bool has_extension(const st_vk *vk, VkPhysicalDevice device, const char *name) {
  enum { MOST = 512 };
  static _Thread_local VkExtensionProperties found[MOST];
  uint32_t n = MOST;
  VkResult result = vk->EnumerateDeviceExtensionProperties(device, NULL, &n, found);
  if (result != VK_SUCCESS && result != VK_INCOMPLETE) return false;
  for (uint32_t i = 0; i < n; i++) {
    if (!strcmp(found[i].extensionName, name)) return true;
  }
  return false;
}

// The first family with these flags and, apart from what does not matter, no others, except the family `but`;
// UINT32_MAX: there is none.
static uint32_t family_with(const VkQueueFamilyProperties *families, uint32_t n, VkQueueFlags has, VkQueueFlags ignored,
                            uint32_t but) {
  for (uint32_t i = 0; i < n; i++) {
    if (i != but && families[i].queueCount && (families[i].queueFlags & ~ignored) == has) return i;
  }
  return UINT32_MAX;
}

st_vk_places st_vk_choose_places(const VkQueueFamilyProperties *families, uint32_t n) {
  const VkQueueFlags any = ~(VkQueueFlags)0, bound = VK_QUEUE_SPARSE_BINDING_BIT | VK_QUEUE_PROTECTED_BIT;
  uint32_t family = family_with(families, n, VK_QUEUE_COMPUTE_BIT, any & ~VK_QUEUE_COMPUTE_BIT, UINT32_MAX);
  st_vk_places p = {{family, 0}, {family, 0}};
  if (family == UINT32_MAX) return p;
  // families of video decoders can copy too, which is not what these are good at
  uint32_t copy = family_with(families, n, VK_QUEUE_TRANSFER_BIT, bound, family);
  if (copy == UINT32_MAX)
    copy = family_with(families, n, VK_QUEUE_COMPUTE_BIT, any & ~VK_QUEUE_COMPUTE_BIT, family); // which can copy
  if (copy != UINT32_MAX)
    p.copy.family = copy;
  else if (families[family].queueCount > 1)
    p.copy.index = 1;
  return p;
}

static st_vk_places places_of(const st_vk *vk, VkPhysicalDevice device) {
  enum { MOST = 32 };
  VkQueueFamilyProperties families[MOST];
  uint32_t n = MOST;
  vk->GetPhysicalDeviceQueueFamilyProperties(device, &n, families);
  return st_vk_choose_places(families, n);
}

// Its largest heap of its own memory; UINT32_MAX: it has none.
static uint32_t largest_heap(const VkPhysicalDeviceMemoryProperties *p) {
  uint32_t found = UINT32_MAX;
  for (uint32_t i = 0; i < p->memoryHeapCount; i++) {
    bool own = p->memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT;
    if (own && (found == UINT32_MAX || p->memoryHeaps[i].size > p->memoryHeaps[found].size)) found = i;
  }
  return found;
}

static uint64_t memory_of(const st_vk *vk, VkPhysicalDevice device) {
  VkPhysicalDeviceMemoryProperties p;
  vk->GetPhysicalDeviceMemoryProperties(device, &p);
  uint32_t heap = largest_heap(&p);
  return heap == UINT32_MAX ? 0 : p.memoryHeaps[heap].size;
}

uint64_t st_vk_memory_free(const st_vk *vk, VkPhysicalDevice device) {
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
  VkPhysicalDeviceMemoryProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  bool says = has_extension(vk, device, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (says) p.pNext = &budget;
  vk->GetPhysicalDeviceMemoryProperties2(device, &p);
  uint32_t heap = largest_heap(&p.memoryProperties);
  if (heap == UINT32_MAX) return 0;
  if (!says || !budget.heapBudget[heap]) return p.memoryProperties.memoryHeaps[heap].size;
  return budget.heapBudget[heap] > budget.heapUsage[heap] ? budget.heapBudget[heap] - budget.heapUsage[heap] : 0;
}

static void refuse(st_vk_traits *t, const char *problem) {
  if (!t->problem[0]) memcpy(t->problem, problem, strlen(problem) + 1);
}

// What every shader needs.
static void check(st_vk_traits *t, uint32_t version, const VkPhysicalDeviceVulkan12Features *f12,
                  const VkPhysicalDeviceVulkan11Properties *p11) {
  const VkSubgroupFeatureFlags needed = VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
  if (version < VERSION) refuse(t, "its driver has no Vulkan 1.2");
  if (t->places.compute.family == UINT32_MAX) refuse(t, "it has no queue that computes");
  if (!f12->bufferDeviceAddress) refuse(t, "its driver has no buffer device addresses");
  if (!f12->timelineSemaphore) refuse(t, "its driver has no timeline semaphores");
  if ((p11->subgroupSupportedOperations & needed) != needed ||
      !(p11->subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT)) {
    refuse(t, "its driver has no arithmetic on subgroups");
  }
  if (t->subgroup < 4 || t->subgroup > 128) refuse(t, "its subgroups have fewer than 4 or more than 128 invocations");
}

st_vk_traits st_vk_traits_of(const st_vk *vk, VkPhysicalDevice device) {
  VkPhysicalDeviceSubgroupSizeControlProperties sizes = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
  VkPhysicalDeviceVulkan11Properties p11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES,
                                            .pNext = &sizes};
  VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &p11};
  VkPhysicalDeviceShaderIntegerDotProductFeatures dots = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES};
  VkPhysicalDeviceSubgroupSizeControlFeatures sized = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES, .pNext = &dots};
  VkPhysicalDeviceVulkan12Features f12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                          .pNext = &sized};
  VkPhysicalDeviceFeatures2 f = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &f12};
  vk->GetPhysicalDeviceProperties2(device, &p);
  vk->GetPhysicalDeviceFeatures2(device, &f);
  st_vk_traits t = {.memory = memory_of(vk, device), .places = places_of(vk, device), .subgroup = p11.subgroupSize};
  memcpy(t.name, p.properties.deviceName, sizeof t.name);
  t.sized = has_extension(vk, device, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME) && sized.subgroupSizeControl &&
            sized.computeFullSubgroups && sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT;
  t.dots = has_extension(vk, device, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME) && dots.shaderIntegerDotProduct;
  t.most_invocations = p.properties.limits.maxComputeWorkGroupInvocations;
  if (t.most_invocations > p.properties.limits.maxComputeWorkGroupSize[0])
    t.most_invocations = p.properties.limits.maxComputeWorkGroupSize[0];
  t.most_groups = p.properties.limits.maxComputeWorkGroupCount[0];
  t.most_allocation = p11.maxMemoryAllocationSize;
  const uint32_t versions[] = {p.properties.vendorID, p.properties.deviceID, p.properties.driverVersion};
  memcpy(t.identity, p.properties.pipelineCacheUUID, VK_UUID_SIZE);
  memcpy(t.identity + VK_UUID_SIZE, versions, sizeof versions);
  check(&t, p.properties.apiVersion, &f12, &p11);
  return t;
}

setun_status st_vk_fail(setun_error *err, const char *what, VkResult result) {
  if (result == VK_ERROR_DEVICE_LOST) {
    return st_fail(err, SETUN_ERROR_IO,
                   "%s: the device is lost: its driver has reset it; load the model again, or use the CPU", what);
  }
  bool memory = result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY;
  if (memory) {
    return st_fail(err, SETUN_ERROR_MEMORY, "%s: out of %s memory", what,
                   result == VK_ERROR_OUT_OF_DEVICE_MEMORY ? "device" : "host");
  }
  return st_fail(err, SETUN_ERROR_IO, "%s: the driver of the device failed (VkResult %d)", what, (int)result);
}
