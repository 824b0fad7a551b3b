// Facts: what every published name of a hyperparameter means for a family: used, neutral (always or at some values), or
// not supported. One table for both containers (facts.def, facts_config.def) and, before it, each family's own rows.
#ifndef SETUN_MODEL_FACTS_H
#define SETUN_MODEL_FACTS_H

#include "format/directory.h"

typedef struct st_spec st_spec;

typedef enum st_fact_use {
  ST_FACT_NONE,    // ends a family's rows
  ST_FACT_USED,    // read by the common readers or the family's own
  ST_FACT_AT,      // neutral at the values below, an error otherwise
  ST_FACT_NEUTRAL, // whatever the value
} st_fact_use;

typedef struct st_fact {
  const char *gguf;   // the key behind "ARCH."; NULL: none
  const char *config; // names in config.json, separated by blanks; members of RoPE's objects behind "rope:"; NULL: none
  st_fact_use use;
  // Values, separated by '|': of ST_FACT_AT the neutral ones ("" is an empty text, array or object; null always is
  // one; of an array each element must be), of ST_FACT_USED "null" where the official class has a default for that.
  const char *values;
  const char *source; // why it is neutral, or how it is read; "" where the values say it
} st_fact;

// What a family with experts reads, for its rows.
#define ST_FACTS_EXPERTS                                                                                               \
  {"expert_count", "num_experts num_local_experts", ST_FACT_USED, "", ""},                                             \
      {"expert_used_count", "num_experts_per_tok", ST_FACT_USED, "", ""},                                              \
      {"expert_feed_forward_length", "moe_intermediate_size", ST_FACT_USED, "", ""},                                   \
      {"expert_gating_func", NULL, ST_FACT_USED, "", ""}, {"expert_weights_scale", NULL, ST_FACT_USED, "", ""},        \
      {"expert_weights_norm", "norm_topk_prob", ST_FACT_USED, "", ""}, {                                               \
    NULL, "decoder_sparse_step mlp_only_layers", ST_FACT_USED, "null", ""                                              \
  }

// The row for a name as the container spells it (GGUF: behind "ARCH."); NULL: no list knows it.
const st_fact *st_fact_find(const st_spec *spec, st_container container, const char *name, size_t length);

// What a GGUF file is for: only models are; adapters, projectors and the like are refused by name.
setun_status st_facts_check_type(const st_metadata *metadata, setun_error *err);

// Holds a file's keys against the table. An error names the first that is not supported, with what was expected and
// found: a value that is not neutral, in GGUF a hyperparameter that no list knows, a key of another namespace that is
// known to change what the weights mean. Other namespaces become notices of the directory.
setun_status st_facts_check(const st_directory *directory, const st_spec *spec, setun_error *err);

#endif
