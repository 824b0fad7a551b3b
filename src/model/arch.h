// Architectures: a family is one spec and one table of names, in a file of its own under arch/, and a row in archs.def.
#ifndef SETUN_MODEL_ARCH_H
#define SETUN_MODEL_ARCH_H

#include "model/facts.h"
#include "model/roles.h"

// Which layers attend to a window only, where a file does not list them.
typedef enum st_window_layers {
  ST_WINDOW_ALL,
  ST_WINDOW_FROM, // those from config.json's max_window_layers on
  ST_WINDOW_BELOW // those before it
} st_window_layers;

typedef struct st_window_rule {
  uint32_t period; // each period-th layer attends to all; 0: none does
  st_window_layers layers;
  // Of config.json: the official class has windows; only with use_sliding_window; of so many tokens where
  // sliding_window is absent (0: defaults.window); layer_types goes before the rule, instead of having to agree with
  // it.
  bool config, with_switch;
  uint32_t config_window;
  bool config_lists;
  bool gguf; // GGUF files that state a window and no pattern mean this rule; otherwise they must state one
} st_window_rule;

typedef struct st_named_number {
  const char *key;
  float value;
} st_named_number;
enum { ST_NAMED_NUMBERS = 4 };

struct st_spec {
  const char *name;
  const char *const *gguf_names;  // general.architecture, ended with NULL
  const char *const *model_types; // config.json, ended with NULL
  const char *hf_class;           // the official class of the first of these; NULL: the family has none
  // A family without GGUF names: how its files call themselves there, and whether what does so is of this family.
  const char *gguf_as;
  bool (*is_it)(const st_hparams *h);
  // What holds when a file does not say: config.json's defaults are those of the official configuration class.
  st_hparams defaults;
  const st_fact *facts; // what it reads beyond facts.def's USED rows, and where it differs; ended with {0}; or NULL
  st_window_rule windows;
  bool partial_rope;     // RoPE may turn the first elements of each head only
  bool gguf_longrope;    // its GGUF files with tensors of LongRoPE's factors mean it where they name no scaling
  bool gguf_factors;     // its GGUF files state embedding_scale, residual_scale and logit_scale, whatever they are
  bool gguf_interleaved; // its GGUF files hold q and k rows for interleaved RoPE
  bool gguf_tiled;       // its GGUF files have recurrent layers' value heads in an order of their own: st_delta_params
  bool gguf_sections;    // its GGUF files state how many of RoPE's pairs belong to each part of a position
  const char *gguf_pre;  // the split pattern of its GGUF files that name none; NULL: "default"
  const char *hf_pre;    // that of its vocab.json with merges.txt; NULL: "gpt-2"
  bool gguf_defaults;    // its published GGUF files leave out keys, for which the defaults hold
  bool wide_norms;       // its norms of q and k are as wide as all heads (a file's own tensors tell)
  const char *gguf_bidirectional; // which of its GGUF names is that of models whose tokens see those behind them, with
                                  // windows twice as wide as they reach; NULL: none
  bool gguf_int8;                 // its GGUF files prescribe int8 activations (FORMATS: the bitnet architectures)
  const st_binding *bindings;     // ended with ST_BIND_END
  // Tensors that belong to other parts of a checkpoint (a vision tower) or are derived; prefixes, ended with NULL; may
  // be NULL.
  const char *const *ignored;
  // A prefix that all names may have ("language_model."); NULL: none.
  const char *hf_prefix;
  // What src/chat has for its models that come without a chat template (or with a wrong one), ended with NULL; or NULL.
  const char *const *chat_templates;
  const char *hf_activation; // config.json's name for the activation function; NULL: "hidden_act"
  // The family's own keys, after the common ones were read; either may be NULL.
  setun_status (*read_hf)(const st_json *config, st_hparams *h, setun_error *err);
  setun_status (*read_gguf)(const st_metadata *m, const char *architecture, st_hparams *h, setun_error *err);
  // The inverse of read_hf, for config.json's that are written: the numbers of the family's own; their count. May be
  // NULL.
  size_t (*write_hf)(const st_hparams *h, st_named_number out[ST_NAMED_NUMBERS]);
};

#define ARCH(spec) extern const st_spec spec;
#include "model/arch/archs.def"
#undef ARCH

// What Llama-like families share, for the head of a table.
#define ST_BIND_GLOBAL                                                                                                 \
  ST_BIND(ST_TOKEN_EMBD), ST_BIND(ST_OUTPUT_NORM), ST_BIND(ST_OUTPUT), ST_BIND(ST_DENSE_1), ST_BIND(ST_DENSE_2)
#define ST_BIND_ATTENTION                                                                                              \
  ST_BIND(ST_ATTN_NORM), ST_BIND(ST_ATTN_Q), ST_BIND(ST_ATTN_K), ST_BIND(ST_ATTN_V), ST_BIND(ST_ATTN_O)
#define ST_BIND_MLP ST_BIND(ST_FFN_GATE), ST_BIND(ST_FFN_UP), ST_BIND(ST_FFN_DOWN)
#define ST_BIND_QK_NORMS ST_BIND(ST_ATTN_Q_NORM), ST_BIND(ST_ATTN_K_NORM)
// The plain block, all of it.
#define ST_BIND_LLAMA ST_BIND_GLOBAL, ST_BIND_ATTENTION, ST_BIND(ST_FFN_NORM), ST_BIND_MLP
// Experts: GGUF's two ways, stacked and (older) one by one, and HF's names as the family spells them.
#define ST_BIND_EXPERTS(hf_gate, hf_up, hf_down)                                                                       \
  {.role = ST_EXPERT_GATE, .hf = ST_NO_NAME}, {.role = ST_EXPERT_GATE, .gguf = "blk.%u.ffn_gate.%e", .hf = hf_gate},   \
      {.role = ST_EXPERT_UP, .hf = ST_NO_NAME}, {.role = ST_EXPERT_UP, .gguf = "blk.%u.ffn_up.%e", .hf = hf_up},       \
      {.role = ST_EXPERT_DOWN, .hf = ST_NO_NAME}, {                                                                    \
    .role = ST_EXPERT_DOWN, .gguf = "blk.%u.ffn_down.%e", .hf = hf_down                                                \
  }
// With the names that the roles' table has.
#define ST_BIND_MLP_EXPERTS ST_BIND(ST_ROUTER), ST_BIND_EXPERTS(NULL, NULL, NULL)

// Defaults of LlamaConfig and of MistralConfig that classes of other families have too, for the head of `defaults`.
#define ST_LLAMA_CONFIG                                                                                                \
  .n_layer = 32, .n_embd = 4096, .n_head = 32, .n_ff = 11008, .n_ctx_train = 2048, .fn = ST_FN_SILU
#define ST_MISTRAL_CONFIG                                                                                              \
  .n_layer = 32, .n_embd = 4096, .n_head = 32, .n_head_kv = 8, .n_ff = 14336, .n_vocab = 32000, .n_ctx_train = 131072, \
  .fn = ST_FN_SILU

#endif
