// LoRA adapters of a model: opened once, measured for the memory plan, then made into pairs of factors of its matrices.
#ifndef SETUN_PLACEMENT_ADAPTER_H
#define SETUN_PLACEMENT_ADAPTER_H

#include "model/model.h"
#include "placement/memory_plan.h"
#include "setun.h"

typedef struct st_adapters st_adapters;

// Opens them for a model of this family whose own files are in the given container. Freed with st_adapters_free, which
// accepts NULL.
setun_status st_adapters_open(const setun_adapter *list, size_t n, st_container base, const st_spec *spec,
                              const st_log *log, st_adapters **adapters, setun_error *err);
void st_adapters_free(st_adapters *adapters);

// Adds what they will take: to the plan's vectors, the model's ranks and the widest inputs.
void st_adapters_measure(const st_adapters *adapters, st_model *model, st_memory_plan *plan, st_workload *workload);
// The same for adapters loaded later, whose ranks add up to at most `rank`.
void st_adapters_measure_rank(const st_bound_list *weights, uint32_t rank, st_model *model, st_workload *workload);
// Queues made from now on have room for them.
setun_status st_adapters_reserve(const st_bound_list *weights, uint32_t rank, const st_model *model, setun_error *err);

// Reads them for the model, whose matrices are numbered already. An adapter tensor without a matching matrix is an
// error; so are ranks above the model's max_rank, and more bytes than `room` has, unless `room` is NULL. Released with
// st_lora_release.
setun_status st_adapters_place(st_adapters *adapters, st_model *model, atomic_ullong *room, st_lora **lora,
                               setun_error *err);

// A hash of the name, the shape and some bytes of each tensor in the directory: it distinguishes models whose tensors
// have the same names and shapes.
setun_status st_identify(const st_directory *directory, uint64_t *identity, setun_error *err);

#endif
