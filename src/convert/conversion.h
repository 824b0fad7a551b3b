// What will be written: every output tensor in the order of use, with all that could be refused looked at.
#ifndef SETUN_CONVERT_CONVERSION_H
#define SETUN_CONVERT_CONVERSION_H

#include "base/output.h"
#include "convert/convert.h"
#include "convert/pieces.h"
#include "placement/binding.h"

typedef struct st_conversion {
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
} st_conversion;

// Makes the whole plan; freed with st_conversion_free, also after a failure.
setun_status st_conversion_make(const st_directory *d, bool to_gguf, const st_convert_options *o, st_conversion *plan,
                                setun_error *err);
void st_conversion_free(st_conversion *plan);

// Adds an empty item at the end; NULL: out of memory.
st_item *st_conversion_add(st_conversion *plan);

// names of items from tensors: collect.c
setun_status st_conversion_collect(st_conversion *plan, setun_error *err);
// Divisors of RoPE frequencies that the target keeps in tensors; and back, from a tensor of them to the rule that gives
// them, which becomes the plan's: rope_freqs.c
setun_status st_conversion_rope(st_conversion *plan, setun_error *err);
setun_status st_conversion_rope_rule(st_conversion *plan, const st_weight *divisors, setun_error *err);
// A layer's experts in one tensor, where the target's directories have them so: experts_hf.c
bool st_conversion_stacks(const st_conversion *plan, const st_tensor_use *place);
setun_status st_conversion_stack_experts(st_conversion *plan, setun_error *err);
setun_status st_item_write_stack(st_conversion *plan, const st_item *item, st_output *out, setun_error *err);
// Formats of items, and the reading of all weights that must fit them: validate.c
setun_status st_conversion_decide(st_conversion *plan, st_item *item, setun_error *err);
setun_status st_conversion_validate(st_conversion *plan, st_item *item, setun_error *err);
// Reports progress by `weights` more; an error when the caller cancels.
setun_status st_conversion_progress(st_conversion *plan, uint64_t weights, setun_error *err);

// Rows that are worked on at once, so that some MiB suffice: a multiple of 16 where the format mixes rows.
uint64_t st_item_chunk(const st_item *item);

// The dividing scale of a weight: a float32 whose float32 reciprocal is its scale, that of the original checkpoint
// where the source remembers it. False: there is none.
bool st_conversion_divisor(const st_conversion *plan, const st_item *item, float scale, float *divisor);

// Writes the bytes of one item at the output's end: write.c
setun_status st_item_write(st_conversion *plan, const st_item *item, st_output *out, setun_error *err);

setun_status st_write_gguf(st_conversion *plan, const char *path, setun_error *err);
setun_status st_write_huggingface(st_conversion *plan, const char *path, setun_error *err);

#endif
