// Placing a model: binding its tensors, planning its memory, loading what is resident and streaming the rest.
#ifndef SETUN_PLACEMENT_PLACEMENT_H
#define SETUN_PLACEMENT_PLACEMENT_H

#include "model/forward.h"
#include "placement/binding.h"
#include "placement/memory_plan.h"
#include "placement/streamer.h"
#include "setun.h"

// The memory of a context, from the folder that owns contexts; arguments as for st_run_size_of.
typedef st_run_size (*st_context_size_fn)(const st_model *model, const st_run_options *options,
                                          const st_workload *workload);

typedef struct st_placement_options {
  const st_backend *backend;
  size_t device;                // of the backend
  const char *device_cache;     // see setun_model_params; NULL: none
  const char *isa, *activation; // see setun_model_params; NULL: the default
  bool precise;
  int threads;
  setun_progress_fn progress;
  void *user;
  const st_log *log;
  const setun_adapter *adapters;
  size_t n_adapters;
  uint32_t adapter_rank; // of adapters loaded later, see setun_model_params; 0: none
  uint64_t adapter_bytes;
  const setun_context_params *context; // the context to plan for; NULL: a default session
  st_context_size_fn context_size;
  uint64_t memory;        // the budget in bytes; 0: what is available, less a margin
  uint64_t device_memory; // the same of a device with memory of its own; 0: what it says is free
  uint64_t expected; // bytes that the process will take, in addition to its present memory, before weights are read
  const char *experts_state;      // a file of experts that a cache begins with; NULL: none
  st_prefetch_options prefetch;   // of experts in a cache
  bool mapped;                    // the file is mapped, not read, where the device can use its bytes directly
  const uint32_t *resident_parts; // for tests: number of resident attentions and MLPs, regardless of the budget; NULL:
                                  // by the budget
  const uint32_t *cached_experts; // for tests: the number in the cache, whatever the budget; NULL: by the budget
} st_placement_options;

// A model, with its plan and streamer.
typedef struct st_placement {
  st_model *model;
  st_memory_plan plan;
  st_streamer *streamer;      // NULL: everything is resident
  atomic_ullong adapter_room; // bytes of adapters that may still be loaded
} st_placement;

// Makes the memory plan that loading would follow: reads the directory, no weights. Errors: those of loading that do
// not depend on weights, and SETUN_ERROR_MEMORY where the budget is too small (*plan then has `least`). Freed with
// st_memory_plan_free, also after a failure.
setun_status st_placement_plan(const st_directory *directory, const st_placement_options *options, st_memory_plan *plan,
                               setun_error *err);

// Reads the parameters, binds every tensor to its role (errors name missing, unexpected and wrongly shaped ones), makes
// the memory plan and places the weights. With streamed weights (placement->streamer) the directory must outlive the
// placement. Freed with st_placement_free, which accepts NULL.
setun_status st_placement_load(const st_directory *directory, const st_placement_options *options,
                               st_placement **placement, setun_error *err);
void st_placement_free(st_placement *placement);

// Loads adapters in addition to those loaded with the model; `container` is that of the model's files.
setun_status st_placement_load_adapters(st_placement *placement, st_container container, const setun_adapter *list,
                                        size_t n, const st_log *log, st_lora **lora, setun_error *err);

#endif
