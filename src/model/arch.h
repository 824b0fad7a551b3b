// Architectures: a family is one spec and one table of names, in a file of its own under arch/, and a row in archs.def.
#ifndef SETUN_MODEL_ARCH_H
#define SETUN_MODEL_ARCH_H

#include "model/facts.h"
#include "model/roles.h"

// Which layers attend only to a window, where a file does not list them.
typedef enum st_window_layers {
  ST_WINDOW_ALL,
  ST_WINDOW_FROM, // those from config.json's max_window_layers on
  ST_WINDOW_BELOW // those before it
} st_window_layers;

typedef struct st_window_rule {
  uint32_t period; // every period-th layer attends to all positions; 0: none does
  st_window_layers layers;
  // For config.json: the official class has windows; it has them only with use_sliding_window; their width where
  // sliding_window is absent (0: defaults.window); layer_types overrides the rule instead of having to agree with it.
  bool config, with_switch;
  uint32_t config_window;
  bool config_lists;
  bool gguf; // GGUF files with a window and no pattern follow this rule; otherwise a pattern is required
} st_window_rule;

typedef struct st_named_number {
  const char *key;
  float value;
} st_named_number;
enum { ST_NAMED_NUMBERS = 4 };

struct st_spec {
  const char *name;
  const char *const *gguf_names;  // general.architecture, NULL-terminated
  const char *const *model_types; // config.json, NULL-terminated
  const char *hf_class;           // the official class of the first of these; NULL: none
  // For a family without a GGUF name of its own: the name that its files use, and whether a file with that name belongs
  // to this family.
  const char *gguf_as;
  bool (*is_it)(const st_hparams *h);
  // Values that hold where a file has none: the defaults of the official configuration class.
  st_hparams defaults;
  const st_fact *facts; // what it reads beyond facts.def's USED rows, and where it differs; ends with {0}; or NULL
  st_window_rule windows;
  bool partial_rope;     // RoPE may rotate only the first elements of each head
  bool gguf_longrope;    // its GGUF files with LongRoPE factor tensors use LongRoPE where no scaling is named
  bool gguf_factors;     // its GGUF files always have embedding_scale, residual_scale and logit_scale
  bool gguf_interleaved; // its GGUF files have q and k rows in the order of interleaved RoPE
  bool gguf_tiled;       // its GGUF files order the value heads of recurrent layers differently: st_delta_params
  bool gguf_sections;    // its GGUF files say how many RoPE pairs belong to each component of a position
  const char *gguf_pre;  // the pre-tokenizer of its GGUF files that name none; NULL: "default"
  const char *hf_pre;    // the one of its vocab.json with merges.txt; NULL: "gpt-2"
  bool gguf_defaults;    // its published GGUF files lack keys; the defaults hold then
  bool wide_norms;       // its q and k norms span all heads (a file's tensors decide)
  const char *gguf_bidirectional; // the GGUF name of its bidirectional models, whose window keys give
                                  // twice the reach; NULL: none
  bool gguf_int8;                 // its GGUF files prescribe int8 activations (FORMATS: the bitnet architectures)
  const st_binding *bindings;     // ends with ST_BIND_END
  // Prefixes of tensors that belong to other parts of a checkpoint (a vision tower) or are derived; NULL-terminated;
  // may be NULL.
  const char *const *ignored;
  // A prefix that all names may carry ("language_model."); NULL: none.
  const char *hf_prefix;
  // Names of the templates in src/chat for its models that ship without a chat template, or with a wrong one;
  // NULL-terminated; or NULL.
  const char *const *chat_templates;
  const char *hf_activation; // config.json's name for the activation function; NULL: "hidden_act"
  // Read the family's own keys, after the common ones; either may be NULL.
  setun_status (*read_hf)(const st_json *config, st_hparams *h, setun_error *err);
  setun_status (*read_gguf)(const st_metadata *m, const char *architecture, st_hparams *h, setun_error *err);
  // The inverse of read_hf, for writing config.json: fills in the family's own numbers and returns their count. May be
  // NULL.
  size_t (*write_hf)(const st_hparams *h, st_named_number out[ST_NAMED_NUMBERS]);
};

#define ARCH(spec) extern const st_spec spec;
#include "model/arch/archs.def"
#undef ARCH

// Rows that Llama-like families share, for the beginning of a table.
#define ST_BIND_GLOBAL                                                                                                 \
  ST_BIND(ST_TOKEN_EMBD), ST_BIND(ST_OUTPUT_NORM), ST_BIND(ST_OUTPUT), ST_BIND(ST_DENSE_1), ST_BIND(ST_DENSE_2)
#define ST_BIND_ATTENTION                                                                                              \
  ST_BIND(ST_ATTN_NORM), ST_BIND(ST_ATTN_Q), ST_BIND(ST_ATTN_K), ST_BIND(ST_ATTN_V), ST_BIND(ST_ATTN_O)
#define ST_BIND_MLP ST_BIND(ST_FFN_GATE), ST_BIND(ST_FFN_UP), ST_BIND(ST_FFN_DOWN)
#define ST_BIND_QK_NORMS ST_BIND(ST_ATTN_Q_NORM), ST_BIND(ST_ATTN_K_NORM)
// The complete plain block.
#define ST_BIND_LLAMA ST_BIND_GLOBAL, ST_BIND_ATTENTION, ST_BIND(ST_FFN_NORM), ST_BIND_MLP
// Experts: both GGUF forms, stacked and (older) one by one, and the HF names as the family spells them.
#define ST_BIND_EXPERTS(hf_gate, hf_up, hf_down)                                                                       \
  {.role = ST_EXPERT_GATE, .hf = ST_NO_NAME}, {.role = ST_EXPERT_GATE, .gguf = "blk.%u.ffn_gate.%e", .hf = hf_gate},   \
      {.role = ST_EXPERT_UP, .hf = ST_NO_NAME}, {.role = ST_EXPERT_UP, .gguf = "blk.%u.ffn_up.%e", .hf = hf_up},       \
      {.role = ST_EXPERT_DOWN, .hf = ST_NO_NAME}, {                                                                    \
    .role = ST_EXPERT_DOWN, .gguf = "blk.%u.ffn_down.%e", .hf = hf_down                                                \
  }
// MLX's directories: one tensor for all experts of a layer.
#define ST_BIND_STACKED_EXPERTS(of)                                                                                    \
  {.role = ST_EXPERT_GATE, .gguf = ST_NO_NAME, .hf = of ".gate_proj"},                                                 \
      {.role = ST_EXPERT_UP, .gguf = ST_NO_NAME, .hf = of ".up_proj"}, {                                               \
    .role = ST_EXPERT_DOWN, .gguf = ST_NO_NAME, .hf = of ".down_proj"                                                  \
  }
// With the names in the table of roles.
#define ST_BIND_MLP_EXPERTS                                                                                            \
  ST_BIND(ST_ROUTER), ST_BIND_EXPERTS(NULL, NULL, NULL), ST_BIND_STACKED_EXPERTS("model.layers.%u.mlp.switch_mlp")

// Defaults of LlamaConfig and MistralConfig that the classes of other families share, for the beginning of `defaults`.
#define ST_LLAMA_CONFIG                                                                                                \
  .n_layer = 32, .n_embd = 4096, .n_head = 32, .n_ff = 11008, .n_ctx_train = 2048, .fn = ST_FN_SILU
#define ST_MISTRAL_CONFIG                                                                                              \
  .n_layer = 32, .n_embd = 4096, .n_head = 32, .n_head_kv = 8, .n_ff = 14336, .n_vocab = 32000, .n_ctx_train = 131072, \
  .fn = ST_FN_SILU

#endif
