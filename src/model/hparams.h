// Hyperparameters: everything that shapes a model, read from GGUF keys or config.json and checked. Tensors are not
// read.
#ifndef SETUN_MODEL_HPARAMS_H
#define SETUN_MODEL_HPARAMS_H

#include "backend/backend.h"
#include "format/directory.h"
#include "model/rotation.h"
#include "setun.h"

enum { ST_MAX_LAYERS = 1024 };

typedef enum st_rope_scaling {
  ST_ROPE_PLAIN,
  ST_ROPE_LINEAR,
  ST_ROPE_LLAMA3,
  ST_ROPE_YARN,
  ST_ROPE_LONG
} st_rope_scaling;

// How positions become angles. Fields are named as in config.json.
typedef struct st_rope_params {
  float theta;
  st_rope_scaling scaling;
  float factor;
  uint32_t original_max_position_embeddings;
  float low_freq_factor, high_freq_factor; // llama3
  float beta_fast, beta_slow;              // yarn
  float extrapolation;    // yarn: how much of the original frequencies of fast pairs is kept (ext_factor)
  float attention_factor; // yarn, longrope; 0: from the factor
  bool truncate;          // yarn: round the ends of the ramp to whole pairs
  // longrope: [n_rot / 2] divisors for short and long contexts, owned by the hparams; NULL otherwise
  float *short_factor, *long_factor;
} st_rope_params;

// Layers with a recurrent state instead of keys and values: gated DeltaNet. n_taps 0: the model has none.
typedef struct st_delta_params {
  uint32_t n_key_heads, n_value_heads, key_dim, value_dim;
  uint32_t n_taps;      // of the causal convolution
  bool tiled;           // value head h takes key head h % n_key_heads (Qwen 3.5's GGUF files), not h / (values / keys)
  bool log_rate;        // the decay's rate is stored as its logarithm (directories), not negated (GGUF)
  bool joined_mixed;    // q, k, v and z are one matrix, key head by key head (Qwen3-Next)
  bool joined_switches; // the same for alpha and beta
} st_delta_params;

// How hidden states become an embedding; see embedding.h.
enum { ST_DENSE_MOST = 2, ST_LENGTHS_MOST = 32 };
typedef struct st_embedding {
  setun_pooling
      pooling; // from the files; SETUN_POOLING_MODEL: not specified; SETUN_POOLING_OFF: whole texts are not pooled
  const char *source; // the file or key that says so; NULL: none
  uint32_t n_ctx;     // most tokens of a text; 0: as many as the model takes
  bool skips_prompt;  // tokens of a prompt are excluded from the pooling
  bool nested;        // the first elements of an embedding are an embedding themselves
  bool unscaled;      // by default embeddings are not divided by their length: modules.json has no Normalize
  uint32_t truncated; // by default embeddings end after so many elements; 0: they do not
  uint32_t n_lengths; // the only numbers of elements for which they are; 0: any
  uint32_t lengths[ST_LENGTHS_MOST];
  uint32_t n_dense; // matrices applied after the pooling
  st_shape dense[ST_DENSE_MOST];
} st_embedding;

typedef struct st_hparams {
  uint32_t n_layer, n_embd, n_head, n_head_kv, head_dim, n_ff, n_vocab, n_ctx_train;
  uint32_t n_rot;                   // the first elements of each head, which RoPE rotates; 0 while reading: all
  uint32_t n_ctx_most;              // n_ctx_train, or the length to which a RoPE scaling extends the original one
  uint32_t n_expert, n_expert_used; // 0: no experts
  uint32_t n_ff_expert;             // 0 while reading: n_ff
  uint32_t n_ff_shared;             // the shared expert's; 0: none
  st_router router;
  bool router_renormalize;    // ST_ROUTER_ALL: the chosen weights are divided by their sum
  bool sparse[ST_MAX_LAYERS]; // layers whose feed-forward part has experts
  float norm_eps;
  bool linear_norm;      // each ternary matrix normalizes its input (BitNet's use_rms_norm)
  bool projection_norms; // the same in BitNet's embedding models, where only the presence of the norms shows it
  float linear_norm_eps; // epsilon of norms that belong to one matrix
  bool tied;             // the head is the embedding
  bool headless;         // there is none, and it is not declared tied: no logits; `tied` is set
  bool qkv_bias, o_bias, mlp_bias; // matrices that require a bias; others may have one
  bool no_sub_norms;               // the model lacks them, unlike its family (BitNet's use_sub_norms: false)
  st_activation_fn fn;
  float embed_scale, residual_scale, logit_scale; // factors for embeddings, residual branches, logits
  float attn_scale;                               // for scores; 0 while reading: head_dim^-0.5
  float logit_softcap;                            // c: logits become c tanh(logits / c), after their factor; 0: none
  float clip_qkv;                                 // 0: none
  uint32_t window;                                // width in the sliding layers
  bool sliding[ST_MAX_LAYERS];
  st_rope_params rope, rope_local; // rope_local: for sliding layers, if has_rope_local
  bool has_rope_local;
  bool no_rope[ST_MAX_LAYERS]; // layers without RoPE
  bool norm_after_rope;        // q and k are normalized after RoPE, not before
  bool interleaved;            // RoPE rotates pairs (2i, 2i+1), as the rows of Llama's GGUF files are ordered
  bool norm_plus_one;          // norm weights are stored minus one (Gemma's HF files)
  st_rotation *rotation;       // the basis that matrices are stored in; NULL: not rotated. Owned
  bool gated_attention; // in q's matrix each head's q rows are followed by its gate's; sigmoid(gate) scales the output
  st_delta_params delta;
  bool recurrent[ST_MAX_LAYERS]; // layers with a recurrent state
  uint32_t n_layer_next;         // multi-token prediction layers after the last one; not used
  bool int8;                     // the model prescribes int8 activations for its ternary weights
  // Attention is bidirectional, in sliding layers as far forward as backward: such a model only makes embeddings of
  // whole texts.
  bool bidirectional;
  const char *direction_key; // the key that sets it
  st_embedding embedding;
} st_hparams;

typedef struct st_spec st_spec;

// Finds the family and reads the parameters: for GGUF from general.architecture, otherwise from config.json's
// model_type. An unknown family is an error that lists the known ones. `activation` overrides ("int8", "float") unless
// NULL. On success st_hparams_free frees what *h owns.
setun_status st_hparams_read(const st_directory *directory, const char *activation, const st_spec **spec, st_hparams *h,
                             setun_error *err);
// A file cannot have more layers than tensors, whatever it claims.
setun_status st_hparams_check_layers(const st_directory *directory, const st_hparams *h, setun_error *err);
void st_hparams_free(st_hparams *h);

#endif
