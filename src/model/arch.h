// Architectures: a family is one spec and one table of names, in a file of its own under arch/, and a row in archs.def.
#ifndef SETUN_MODEL_ARCH_H
#define SETUN_MODEL_ARCH_H

#include "model/hparams.h"

// What a tensor does. Matrices may have a bias, stored as MODULE.bias.
typedef enum st_role {
  // of the model
  ST_TOKEN_EMBD,
  ST_OUTPUT_NORM,
  ST_OUTPUT,
  ST_ROPE_FREQS, // divisors of the frequencies [head_dim / 2]
  ST_ROPE_SHORT, // LongRoPE's divisors, likewise, where they are tensors
  ST_ROPE_LONG_FACTORS,
  ST_GLOBAL_ROLES,
  // of a layer
  ST_ATTN_NORM = ST_GLOBAL_ROLES,
  ST_ATTN_Q,
  ST_ATTN_K,
  ST_ATTN_V,
  ST_ATTN_Q_NORM, // per head, or over the full width: its length tells
  ST_ATTN_K_NORM,
  ST_ATTN_SINKS,    // a logit a head that takes part in the softmax only
  ST_ATTN_SUB_NORM, // on the attention's output, before the output matrix
  ST_ATTN_O,
  ST_ATTN_POST_NORM, // on the branch, before it is added
  ST_FFN_NORM,
  ST_FFN_GATE,
  ST_FFN_UP,
  ST_FFN_SUB_NORM, // on the gated product, before down
  ST_FFN_DOWN,
  ST_FFN_POST_NORM,
  // of a layer with experts, in place of gate, up and down
  ST_ROUTER,
  ST_EXPERT_GATE,
  ST_EXPERT_UP,
  ST_EXPERT_GATE_UP, // both of them in one matrix: gate in the even rows, up in the odd ones
  ST_EXPERT_DOWN,
  ST_SHARED_ROUTER, // one row: its sigmoid is the shared expert's weight
  ST_SHARED_GATE,
  ST_SHARED_UP,
  ST_SHARED_DOWN,
  ST_ROLE_COUNT
} st_role;

typedef enum st_need {
  ST_REQUIRED,
  ST_OPTIONAL,
  ST_UNTIED // required unless the head is the embedding
} st_need;

// One row of a table of names. %u is the layer; %e the expert, in the names of experts that are tensors of their own:
// without it all experts of a layer are stacked in one. Several rows of one role are alternatives: the first that is
// there counts.
typedef struct st_binding {
  st_role role;
  const char *gguf, *hf; // module names, without ".weight"; NULL: not in that container
  st_need need;
} st_binding;

struct st_spec {
  const char *name;
  const char *const *gguf_names;  // general.architecture, ended with NULL
  const char *const *model_types; // config.json, ended with NULL
  // What holds when a file does not say: config.json's defaults are those of the official configuration class.
  st_hparams defaults;
  bool gguf_interleaved;      // its GGUF files hold q and k rows for interleaved RoPE
  const char *gguf_pre;       // the split pattern of its GGUF files that name none; NULL: "default"
  bool gguf_defaults;         // its published GGUF files leave out keys, for which the defaults hold
  bool gguf_int8;             // its GGUF files prescribe int8 activations (FORMATS: the bitnet architectures)
  const st_binding *bindings; // ended with a NULL `gguf` and `hf`
  // Tensors that belong to other parts of a checkpoint (a vision tower) or are derived; prefixes, ended with NULL; may
  // be NULL.
  const char *const *ignored;
  // A prefix that all names may have ("language_model."); NULL: none.
  const char *hf_prefix;
  // The family's own keys, after the common ones were read; either may be NULL.
  setun_status (*read_hf)(const json_t *config, st_hparams *h, setun_error *err);
  setun_status (*read_gguf)(const st_metadata *m, const char *architecture, st_hparams *h, setun_error *err);
};

#define ARCH(spec) extern const st_spec spec;
#include "model/arch/archs.def"
#undef ARCH

// The names that Llama-like families share, for the head of a table.
#define ST_BIND_GLOBAL                                                                                                 \
  {ST_TOKEN_EMBD, "token_embd", "model.embed_tokens", ST_REQUIRED},                                                    \
      {ST_OUTPUT_NORM, "output_norm", "model.norm", ST_REQUIRED}, {                                                    \
    ST_OUTPUT, "output", "lm_head", ST_UNTIED                                                                          \
  }
#define ST_BIND_ATTENTION                                                                                              \
  {ST_ATTN_NORM, "blk.%u.attn_norm", "model.layers.%u.input_layernorm", ST_REQUIRED},                                  \
      {ST_ATTN_Q, "blk.%u.attn_q", "model.layers.%u.self_attn.q_proj", ST_REQUIRED},                                   \
      {ST_ATTN_K, "blk.%u.attn_k", "model.layers.%u.self_attn.k_proj", ST_REQUIRED},                                   \
      {ST_ATTN_V, "blk.%u.attn_v", "model.layers.%u.self_attn.v_proj", ST_REQUIRED}, {                                 \
    ST_ATTN_O, "blk.%u.attn_output", "model.layers.%u.self_attn.o_proj", ST_REQUIRED                                   \
  }
#define ST_BIND_MLP                                                                                                    \
  {ST_FFN_GATE, "blk.%u.ffn_gate", "model.layers.%u.mlp.gate_proj", ST_REQUIRED},                                      \
      {ST_FFN_UP, "blk.%u.ffn_up", "model.layers.%u.mlp.up_proj", ST_REQUIRED}, {                                      \
    ST_FFN_DOWN, "blk.%u.ffn_down", "model.layers.%u.mlp.down_proj", ST_REQUIRED                                       \
  }
// Experts: GGUF's two ways, stacked and (older) one by one, and HF's names as the family spells them.
#define ST_BIND_EXPERTS(router, expert, gate, up, down)                                                                \
  {ST_ROUTER, "blk.%u.ffn_gate_inp", router, ST_REQUIRED},                                                             \
      {ST_EXPERT_GATE, "blk.%u.ffn_gate_exps", NULL, ST_REQUIRED},                                                     \
      {ST_EXPERT_GATE, "blk.%u.ffn_gate.%e", expert gate, ST_REQUIRED},                                                \
      {ST_EXPERT_UP, "blk.%u.ffn_up_exps", NULL, ST_REQUIRED},                                                         \
      {ST_EXPERT_UP, "blk.%u.ffn_up.%e", expert up, ST_REQUIRED},                                                      \
      {ST_EXPERT_DOWN, "blk.%u.ffn_down_exps", NULL, ST_REQUIRED}, {                                                   \
    ST_EXPERT_DOWN, "blk.%u.ffn_down.%e", expert down, ST_REQUIRED                                                     \
  }
#define ST_BIND_MLP_EXPERTS                                                                                            \
  ST_BIND_EXPERTS("model.layers.%u.mlp.gate", "model.layers.%u.mlp.experts.%e.", "gate_proj", "up_proj", "down_proj")
#define ST_BIND_END                                                                                                    \
  { ST_ROLE_COUNT, NULL, NULL, ST_OPTIONAL }

#endif
