// Shaders, which are embedded, and their pipelines, which are made when they are first used. What drivers make of them
// is kept in a file for the next start.
#include "backend/vulkan/device.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/output.h"

#include <stdio.h>
#include <string.h>

struct st_vk_pipeline {
  st_vk_pipeline *next;
  st_vk_special special;
  VkPipeline pipeline;
};

// ---- the file -----------------------------------------------------------------------------------------------------

// Before the driver's own data, which it checks too, but not for damage.
typedef struct {
  char magic[20];
  uint8_t identity[ST_VK_IDENTITY];
  uint64_t bytes, hash; // of the data
} file_head;
_Static_assert(sizeof(file_head) == 20 + ST_VK_IDENTITY + 16, "bytes between members would have any value");

static file_head head_of(const st_device *d, const void *data, size_t bytes) {
  file_head h = {.magic = "setun shaders 1", .bytes = bytes, .hash = st_hash(ST_HASH_START, data, bytes)};
  memcpy(h.identity, d->traits.identity, sizeof h.identity);
  return h;
}

static setun_status name_file(st_device *d, const char *folder, setun_error *err) {
  char name[64];
  uint64_t identity = st_hash(ST_HASH_START, d->traits.identity, sizeof d->traits.identity);
  snprintf(name, sizeof name, "vulkan-%016llx.shaders", (unsigned long long)identity);
  d->cache_path = st_path_join(folder, name);
  return d->cache_path ? SETUN_OK : st_fail_memory(err, "the name of the file of shaders");
}

// The file's bytes, freed with st_free, of which the data follow the head; NULL: there is none, or it is not used,
// which is logged.
static char *load_file(const st_device *d, size_t *bytes) {
  enum { MOST = 256 << 20 };
  char *text = NULL;
  bool exists = false;
  size_t length = 0;
  if (!d->cache_path || st_path_exists(d->cache_path, &exists, NULL) != SETUN_OK || !exists) return NULL;
  setun_error error = {SETUN_OK, ""};
  if (st_file_load(d->cache_path, MOST, &text, &length, &error) != SETUN_OK) {
    st_log_write(&d->log, SETUN_LOG_WARNING, "%s", error.message);
    return NULL;
  }
  *bytes = length > sizeof(file_head) ? length - sizeof(file_head) : 0;
  file_head expected = head_of(d, text + (*bytes ? sizeof expected : 0), *bytes);
  if (*bytes && !memcmp(text, &expected, sizeof expected)) return text;
  st_log_write(&d->log, SETUN_LOG_WARNING, "%s: expected shaders of %s, found damage; it is written again",
               d->cache_path, d->traits.name);
  st_free(text);
  return NULL;
}

static setun_status write_file(st_device *d, const void *data, size_t bytes, setun_error *err) {
  const file_head head = head_of(d, data, bytes);
  st_output out;
  setun_status s = st_output_open(d->cache_path, &out, err);
  if (s != SETUN_OK) return s;
  s = st_output_write(&out, &head, sizeof head, err);
  if (s == SETUN_OK) s = st_output_write(&out, data, bytes, err);
  if (s == SETUN_OK) s = st_output_commit(&out, err);
  st_output_discard(&out);
  return s;
}

// Keeps what was compiled since the file was read. A failure is logged: only the next start takes longer.
static void save_file(st_device *d) {
  size_t bytes = 0;
  setun_error error = {SETUN_OK, ""};
  if (!d->cache_path || !d->cache || !d->n_pipelines || d->lost) return;
  if (d->vk.GetPipelineCacheData(d->device, d->cache, &bytes, NULL) != VK_SUCCESS || !bytes) return;
  void *data = st_malloc(1, bytes);
  if (!data) return;
  if (d->vk.GetPipelineCacheData(d->device, d->cache, &bytes, data) == VK_SUCCESS &&
      write_file(d, data, bytes, &error) != SETUN_OK) {
    st_log_write(&d->log, SETUN_LOG_WARNING, "%s", error.message);
  }
  st_free(data);
}

// ---- pipelines ----------------------------------------------------------------------------------------------------

setun_status st_vk_pipelines_open(st_device *d, const char *folder, setun_error *err) {
  const VkPushConstantRange push = {VK_SHADER_STAGE_COMPUTE_BIT, 0, ST_VK_PUSH_BYTES};
  const VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                             .pushConstantRangeCount = 1,
                                             .pPushConstantRanges = &push};
  VkPipelineCacheCreateInfo cache = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
  setun_status s = folder ? name_file(d, folder, err) : SETUN_OK;
  if (s != SETUN_OK) return s;
  size_t bytes = 0;
  char *text = load_file(d, &bytes);
  if (text) cache.initialDataSize = bytes, cache.pInitialData = text + sizeof(file_head);
  VkResult result = d->vk.CreatePipelineLayout(d->device, &layout, NULL, &d->layout);
  if (result == VK_SUCCESS) result = d->vk.CreatePipelineCache(d->device, &cache, NULL, &d->cache);
  st_free(text);
  return result == VK_SUCCESS ? SETUN_OK : st_vk_fail(err, "the layout of pipelines", result);
}

void st_vk_pipelines_close(st_device *d) {
  save_file(d);
  st_free(d->cache_path);
  for (int i = 0; i < ST_VK_SHADERS; i++) {
    for (st_vk_pipeline *p = d->pipelines[i], *next; p; p = next) {
      next = p->next;
      d->vk.DestroyPipeline(d->device, p->pipeline, NULL);
      st_free(p);
    }
    d->pipelines[i] = NULL;
  }
  if (d->cache) d->vk.DestroyPipelineCache(d->device, d->cache, NULL);
  if (d->layout) d->vk.DestroyPipelineLayout(d->device, d->layout, NULL);
}

static VkResult make(st_device *d, st_vk_shader shader, const st_vk_special *special, VkPipeline *pipeline) {
  VkSpecializationMapEntry entries[ST_VK_CONSTANTS];
  for (uint32_t i = 0; i < ST_VK_CONSTANTS; i++)
    entries[i] = (VkSpecializationMapEntry){i, i * (uint32_t)sizeof(uint32_t), sizeof(uint32_t)};
  const VkSpecializationInfo constants = {ST_VK_CONSTANTS, entries, sizeof special->constants, special->constants};
  const VkShaderModuleCreateInfo code = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                         .codeSize = st_vk_codes[shader].bytes,
                                         .pCode = st_vk_codes[shader].words};
  const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size = {
      .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
      .requiredSubgroupSize = d->traits.subgroup};
  VkComputePipelineCreateInfo info = {
      .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
      .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                .pNext = d->traits.sized ? &size : NULL,
                .flags = d->traits.sized ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT : 0,
                .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                .pName = "main",
                .pSpecializationInfo = &constants},
      .layout = d->layout};
  VkResult result = d->vk.CreateShaderModule(d->device, &code, NULL, &info.stage.module);
  if (result != VK_SUCCESS) return result;
  result = d->vk.CreateComputePipelines(d->device, d->cache, 1, &info, NULL, pipeline);
  d->vk.DestroyShaderModule(d->device, info.stage.module, NULL);
  return result;
}

// The lock is held.
static VkResult find(st_device *d, st_vk_shader shader, const st_vk_special *special, VkPipeline *pipeline) {
  for (st_vk_pipeline *p = d->pipelines[shader]; p; p = p->next) {
    if (memcmp(&p->special, special, sizeof *special)) continue;
    *pipeline = p->pipeline;
    return VK_SUCCESS;
  }
  st_vk_pipeline *p = st_malloc(1, sizeof *p);
  if (!p) return VK_ERROR_OUT_OF_HOST_MEMORY;
  VkResult result = make(d, shader, special, &p->pipeline);
  if (result != VK_SUCCESS) {
    st_free(p);
    return result;
  }
  d->n_pipelines++;
  p->special = *special;
  p->next = d->pipelines[shader];
  d->pipelines[shader] = p;
  *pipeline = p->pipeline;
  return VK_SUCCESS;
}

VkResult st_vk_pipeline_get(st_device *d, st_vk_shader shader, const st_vk_special *special, VkPipeline *pipeline) {
  pthread_mutex_lock(&d->lock);
  VkResult result = find(d, shader, special, pipeline);
  pthread_mutex_unlock(&d->lock);
  return result;
}

uint32_t st_vk_local(const st_device *d, uint32_t wanted) {
  return wanted > d->traits.subgroup ? wanted : d->traits.subgroup;
}
