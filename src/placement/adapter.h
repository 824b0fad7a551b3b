// LoRA adapters of a model: opened once, measured for the memory plan, then placed beside the matrices they adapt.
#ifndef SETUN_PLACEMENT_ADAPTER_H
#define SETUN_PLACEMENT_ADAPTER_H

#include "model/model.h"
#include "placement/memory_plan.h"
#include "setun.h"

typedef struct st_adapters st_adapters;

// Opens them for a model of the family whose own files are `base`. *adapters stays NULL where there are none. Freed
// with st_adapters_free, which accepts NULL.
setun_status st_adapters_open(const setun_adapter *list, size_t n, const st_directory *base, const st_spec *spec,
                              const st_log *log, st_adapters **adapters, setun_error *err);
void st_adapters_free(st_adapters *adapters);

// What they will take: in the plan's vectors, in the model's ranks and in the widest inputs. Nothing for NULL.
void st_adapters_measure(const st_adapters *adapters, st_model *model, st_memory_plan *plan, st_workload *workload);
// Reads them and puts them beside the matrices, which are placed already. An adapter with a tensor that fits nothing is
// an error. Nothing for NULL.
setun_status st_adapters_place(st_adapters *adapters, st_model *model, setun_error *err);

// Some bytes of each tensor of the directory, with its name and shape, go into the model's identity: it tells models
// apart whose tensors have the same names and shapes.
setun_status st_identify(st_model *model, const st_directory *directory, setun_error *err);

#endif
