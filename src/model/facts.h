// Facts: how each published hyperparameter name is treated for a family: used, neutral (always or at some values), or
// not supported. One table serves both containers (facts.def, facts_config.def); a family's own rows take precedence.
#ifndef SETUN_MODEL_FACTS_H
#define SETUN_MODEL_FACTS_H

#include "format/directory.h"

typedef struct st_spec st_spec;

typedef enum st_fact_use {
  ST_FACT_NONE,    // ends a family's rows
  ST_FACT_USED,    // read by the common readers or the family's own
  ST_FACT_AT,      // neutral at the values below, an error otherwise
  ST_FACT_NEUTRAL, // with any value
} st_fact_use;

typedef struct st_fact {
  const char *gguf;   // the key after "ARCH."; NULL: none
  const char *config; // names in config.json, separated by blanks; members of RoPE's objects after "rope:"; NULL: none
  st_fact_use use;
  // Values, separated by '|': for ST_FACT_AT the neutral ones ("" is an empty text, array or object; null is always
  // one; in an array every element must be one), for ST_FACT_USED "null" where the official class has a default for
  // null.
  const char *values;
  const char *source; // why it is neutral, or how it is read; "" where the values suffice
} st_fact;

// Rows for a family with experts.
#define ST_FACTS_EXPERTS                                                                                               \
  {"expert_count", "num_experts num_local_experts", ST_FACT_USED, "", ""},                                             \
      {"expert_used_count", "num_experts_per_tok", ST_FACT_USED, "", ""},                                              \
      {"expert_feed_forward_length", "moe_intermediate_size", ST_FACT_USED, "", ""},                                   \
      {"expert_gating_func", NULL, ST_FACT_USED, "", ""}, {"expert_weights_scale", NULL, ST_FACT_USED, "", ""},        \
      {"expert_weights_norm", "norm_topk_prob", ST_FACT_USED, "", ""}, {                                               \
    NULL, "decoder_sparse_step mlp_only_layers", ST_FACT_USED, "null", ""                                              \
  }

// The row for a name as the container spells it (GGUF: after "ARCH."); NULL: in no table.
const st_fact *st_fact_find(const st_spec *spec, st_container container, const char *name, size_t length);

// Refuses by name GGUF files that are not models: adapters, projectors and the like.
setun_status st_facts_check_type(const st_metadata *metadata, setun_error *err);

// Checks a file's keys against the table. An error names the first that is not supported, with what was expected and
// found: a value that is not neutral, a GGUF hyperparameter that is in no table, a key of another namespace that is
// known to change what the weights mean. Other namespaces become notices of the directory.
setun_status st_facts_check(const st_directory *directory, const st_spec *spec, setun_error *err);

#endif
