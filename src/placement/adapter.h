// LoRA adapters of a model: opened once, measured for the memory plan, then made into pairs of factors of its matrices.
#ifndef SETUN_PLACEMENT_ADAPTER_H
#define SETUN_PLACEMENT_ADAPTER_H

#include "model/model.h"
#include "placement/memory_plan.h"
#include "setun.h"

typedef struct st_adapters st_adapters;

// Opens them for a model of the family whose own files are in such a container. Freed with st_adapters_free, which
// accepts NULL.
setun_status st_adapters_open(const setun_adapter *list, size_t n, st_container base, const st_spec *spec,
                              const st_log *log, st_adapters **adapters, setun_error *err);
void st_adapters_free(st_adapters *adapters);

// What they will take: in the plan's vectors, in the model's ranks and in the widest inputs.
void st_adapters_measure(const st_adapters *adapters, st_model *model, st_memory_plan *plan, st_workload *workload);
// The same of any adapters with ranks of at most `rank` together, which come later.
void st_adapters_measure_rank(const st_bound_list *weights, uint32_t rank, st_model *model, st_workload *workload);
// Queues that are made from now on have room for them.
setun_status st_adapters_reserve(const st_bound_list *weights, uint32_t rank, const st_model *model, setun_error *err);

// Reads them for the model, whose matrices have numbers already. An adapter with a tensor that fits nothing is an
// error; so are ranks above the model's max_rank, and more bytes than `room` has, unless that is NULL. Released with
// st_lora_release.
setun_status st_adapters_place(st_adapters *adapters, st_model *model, atomic_ullong *room, st_lora **lora,
                               setun_error *err);

// Some bytes of each tensor of the directory, with its name and shape, go into an identity: it tells models apart whose
// tensors have the same names and shapes.
setun_status st_identify(const st_directory *directory, uint64_t *identity, setun_error *err);

#endif
