// Shaders, which are embedded, and their pipelines, which are made when they are first used.
#include "backend/vulkan/device.h"

#include "base/memory.h"

#include <string.h>

struct st_vk_pipeline {
  st_vk_pipeline *next;
  st_vk_special special;
  VkPipeline pipeline;
};

setun_status st_vk_pipelines_open(st_device *d, setun_error *err) {
  const VkPushConstantRange push = {VK_SHADER_STAGE_COMPUTE_BIT, 0, ST_VK_PUSH_BYTES};
  const VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                             .pushConstantRangeCount = 1,
                                             .pPushConstantRanges = &push};
  const VkPipelineCacheCreateInfo cache = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
  VkResult result = d->vk.CreatePipelineLayout(d->device, &layout, NULL, &d->layout);
  if (result == VK_SUCCESS) result = d->vk.CreatePipelineCache(d->device, &cache, NULL, &d->cache);
  return result == VK_SUCCESS ? SETUN_OK : st_vk_fail(err, "the layout of pipelines", result);
}

void st_vk_pipelines_close(st_device *d) {
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
