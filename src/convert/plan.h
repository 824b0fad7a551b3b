// What will be written: every output tensor in the order of use, with all that could be refused looked at.
#ifndef SETUN_CONVERT_PLAN_H
#define SETUN_CONVERT_PLAN_H

#include "base/output.h"
#include "convert/convert.h"
#include "convert/pieces.h"
#include "placement/binding.h"

typedef struct st_plan {
  const st_directory *d;
  const st_convert_options *o;
  bool from_gguf, to_gguf;
  const st_spec *spec, *target_spec; // NULL: a family that is not known (GGUF to GGUF only)
  bool has_hparams;
  st_hparams h;
  st_bound_list weights; // with hparams; empty where the source's tensors are not those of the family
  bool int8;             // the model prescribes int8 activations
  st_item *items;
  size_t n_items, capacity;
  uint64_t alignment;             // of the target's tensors
  uint64_t data_bytes;            // of the tensors, each padded to that
  uint64_t work_done, work_total; // for progress: weights read
} st_plan;

// Makes the whole plan; freed with st_plan_free, also after a failure.
setun_status st_plan_make(const st_directory *d, bool to_gguf, const st_convert_options *o, st_plan *plan,
                          setun_error *err);
void st_plan_free(st_plan *plan);

// Adds an empty item at the end; NULL: out of memory.
st_item *st_plan_add(st_plan *plan);

// names of items from tensors: collect.c
setun_status st_plan_collect(st_plan *plan, setun_error *err);
// Divisors of RoPE frequencies that the target keeps in tensors; and back, from a tensor of them to the rule that gives
// them, which becomes the plan's: rope_freqs.c
setun_status st_plan_rope(st_plan *plan, setun_error *err);
setun_status st_plan_rope_rule(st_plan *plan, const st_weight *divisors, setun_error *err);
// A layer's experts in one tensor, where the target's directories have them so: experts_hf.c
bool st_plan_stacks(const st_plan *plan, const st_place *place);
setun_status st_plan_stack_experts(st_plan *plan, setun_error *err);
setun_status st_item_write_stack(st_plan *plan, const st_item *item, st_output *out, setun_error *err);
// Formats of items, and the reading of all weights that must fit them: validate.c
setun_status st_plan_decide(st_plan *plan, st_item *item, setun_error *err);
setun_status st_plan_validate(st_plan *plan, st_item *item, setun_error *err);
// Reports progress by `weights` more; an error when the caller cancels.
setun_status st_plan_progress(st_plan *plan, uint64_t weights, setun_error *err);

// Rows that are worked on at once, so that some MiB suffice: a multiple of 16 where the format mixes rows.
uint64_t st_item_chunk(const st_item *item);

// The dividing scale of a weight: a float32 whose float32 reciprocal is its scale, that of the original checkpoint
// where the source remembers it. False: there is none.
bool st_plan_divisor(const st_plan *plan, const st_item *item, float scale, float *divisor);

// Writes the bytes of one item at the output's end: write.c
setun_status st_item_write(st_plan *plan, const st_item *item, st_output *out, setun_error *err);

setun_status st_write_gguf(st_plan *plan, const char *path, setun_error *err);
setun_status st_write_huggingface(st_plan *plan, const char *path, setun_error *err);

#endif
