/* A model: loading, adapters, and the plan of what it takes. A part of setun.h, which states the conventions. */
#ifndef SETUN_MODEL_H
#define SETUN_MODEL_H

#include "setun_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- model ------------------------------------------------------------------------------------------------- */

typedef struct setun_model setun_model;

/* A LoRA adapter to apply: a PEFT directory (adapter_config.json and adapter_model.safetensors) or a GGUF file. */
typedef struct setun_adapter {
  const char *path;
  float scale; /* of its effect; 1 as it was trained */
} setun_adapter;

/* A model's one GGUF file that is not on disk: in memory, or whatever `read` reads. Zero it, then set either `bytes` or
 * `read`. It must last until the function that it was given to has returned. Weights of it do not stream: a budget that
 * they do not fit into is SETUN_ERROR_UNSUPPORTED. */
typedef struct setun_source {
  uint64_t length;   /* of the file, in bytes */
  const void *bytes; /* all of them */
  /* Reads `n` bytes that begin at `offset`, within the length; false: they cannot be read. Called by several threads at
   * once. */
  bool (*read)(void *user, uint64_t offset, void *to, size_t n);
  void *user;
} setun_source;

typedef struct setun_model_params {
  size_t size;            /* of this struct */
  const char *isa;        /* NULL: the best that the machine has; or one of SETUN_CHOICE_ISA, such as "scalar" */
  const char *assume;     /* how to read a tensor type whose id is ambiguous, such as "i2_s-arm"; NULL: by evidence */
  const char *activation; /* "int8" or "float": overrides what the model says its activations are; NULL: no */
  /* Keys to take for absent, of GGUF's metadata ("llama.logit_scale"; "NAMESPACE.*": all that begin so) or of
   * config.json ("logit_scale", "rope_scaling.factor"): for files that say what this library does not support and would
   * refuse. Each is named in a warning. Read while loading. */
  const char *const *ignore_keys;
  size_t n_ignore_keys;
  bool precise; /* float32 activations, except where the model itself prescribes int8 */
  int threads;  /* for loading; 0: as many as suit the machine */
  setun_log_fn log;
  setun_progress_fn progress;
  void *user;
  /* Adapters, all of them at once, computed in floats beside the model's own weights, which stay as they are. Read
   * while loading; the array need not live longer. */
  const setun_adapter *adapters;
  size_t n_adapters;
  /* The plan: what of the weights stays in memory, and what is read again for each pass. */
  uint64_t memory; /* bytes that the process may take in all; 0: what the system and the process's memory cgroup have
                      available, less a margin */
  const struct setun_session_params *session; /* of the session that room is left for; NULL: one with defaults */
  const setun_source *source; /* where the file's bytes are; `path` then only names it in messages. NULL: at `path` */
  bool no_stream; /* map the file and leave it to the system what of it is in memory, for weights that are stored in the
                     kernels' own order (t16); the budget then covers the rest */
  const struct setun_context_params *context; /* instead of `session`: the context that room is left for */
  /* Room for adapters that setun_adapters_load brings later, in the plan too; both 0: none come. */
  uint32_t adapter_rank;       /* the largest sum of ranks that adapts one matrix at once */
  uint64_t adapter_bytes;      /* of all that are loaded at once: their numbers as float32, ranks as multiples of 16 */
  uint64_t beside;             /* bytes that the process will take beside: the plan counts them as `process` */
  setun_experts_fn on_experts; /* called for each pass and layer with experts; NULL: not wanted */
  void *experts_user;          /* which it receives, not `user` */
} setun_model_params;

SETUN_PARAMS(setun_model_params)

/* Loads a GGUF file (of a split one, its first part) or a Hugging Face directory into memory. On success the
 * caller frees *model with setun_model_free, after every session of it. `params` may be NULL. */
SETUN_API setun_status setun_model_load(const char *path, const setun_model_params *params, setun_model **model,
                                        setun_error *error);
SETUN_API void setun_model_free(setun_model *model);

typedef struct setun_model_info {
  size_t size;              /* of this struct */
  const char *architecture; /* "llama", "bitnet-b1.58", ...; lives as long as the model */
  const char *container;    /* "gguf" or "huggingface" */
  const char *isa;          /* whose kernels run */
  const char *activation;   /* "int8": by token, as the model prescribes; "int8-block": of quantized weights; "float" */
  uint32_t n_layer, n_embd, n_head, n_head_kv, head_dim, n_ff, n_vocab;
  uint32_t n_ctx_train;     /* tokens */
  uint64_t n_params;        /* weights, with the embedding, a tied one once */
  uint64_t weight_bytes;    /* in memory */
  uint64_t bytes_per_token; /* weights that the decoding of one token reads */
  uint64_t macs_per_token;  /* multiply-adds in weight matrices for one token, with the head's */
  uint64_t head_macs;       /* those of the head alone, which a prompt needs for its last token only */
  uint64_t float_macs;      /* those of macs_per_token whose activations are float32; the others' are int8 */
} setun_model_info;

/* Of a vocabulary only `container` and `n_vocab` are known; the rest is 0 and NULL. */
SETUN_API setun_status setun_model_get_info(const setun_model *model, setun_model_info *info, setun_error *error);
/* The same as n_vocab: ids are below it, and logits have so many floats. 0: model is NULL. */
SETUN_API uint32_t setun_model_n_vocab(const setun_model *model);

/* ---- adapters ---------------------------------------------------------------------------------------------- */

/* LoRA adapters of a loaded model that come and go while it stays. A session or a context uses one such object at a
 * time, which may hold several adapters. Immutable: any number of threads may use one. */
typedef struct setun_adapters setun_adapters;

/* Reads `n` adapters; 0: an object that adapts nothing. The model was loaded with room for them (adapter_rank and
 * adapter_bytes of its parameters): SETUN_ERROR_LIMIT where their ranks need more, SETUN_ERROR_MEMORY where their bytes
 * do. The caller frees *loaded with setun_adapters_free, before the model; what uses them by then goes on with them.
 */
SETUN_API setun_status setun_adapters_load(const setun_model *model, const setun_adapter *list, size_t n,
                                           setun_adapters **loaded, setun_error *error);
SETUN_API void setun_adapters_free(setun_adapters *adapters);
SETUN_API uint64_t setun_adapters_bytes(const setun_adapters *adapters); /* of the model's adapter_bytes */

/* ---- plan -------------------------------------------------------------------------------------------------- */

/* What a model will take, in bytes, and what a token costs. */
typedef struct setun_plan {
  size_t size;          /* of this struct */
  uint64_t budget;      /* that the plan was made for; 0: the system does not say what there is */
  uint64_t least;       /* the smallest budget that would do, in another start of the process too: whole MiB */
  uint64_t total;       /* what the process will have at most: the sum of the next eight, with a full context, and of
                         * expert_cache */
  uint64_t process;     /* what it had when the plan was made: code, vocabulary */
  uint64_t vectors;     /* norms, biases, scales, adapters */
  uint64_t resident;    /* weight matrices that stay in memory */
  uint64_t rounding;    /* huge pages that these do not fill */
  uint64_t ring;        /* buffers that the others are read into */
  uint64_t packed;      /* where these are put into the kernels' order, if they are stored in another, and rows of an
                         * embedding that is not resident */
  uint64_t cache;       /* keys and values of a session or a context, and attention's scratch */
  uint64_t work;        /* its activations, or what loading needs where that is more */
  uint64_t reserve;     /* of the budget, beside `total`: for what the system counts, such as page tables */
  uint64_t weights;     /* all weight matrices, resident or not, as the kernels have them */
  uint64_t stored;      /* all weight matrices as the files have them */
  uint64_t streamed;    /* bytes of these that are read for each pass, of one token or of a batch; of experts that are
                         * not resident those of one token, as if the cache had none of them */
  uint64_t rearranged;  /* bytes of those that are stored in another order than the kernels', as these have them: put
                         * into it in each pass, which takes time beside the reading */
  uint64_t token_bytes; /* weights that the decoding of one token reads in memory, streamed ones among them */
  uint64_t token_macs;  /* its multiply-adds in weight matrices */
  uint32_t n_layer, n_ctx, n_batch;
  uint64_t cache_pages;  /* of `cache`: keys and values alone, as setun_context_info has them */
  uint64_t cache_states; /* of `cache`: states of recurrent layers */
  /* Experts that are not resident, but read when tokens go to them, into a cache of those used before. */
  uint64_t expert_cache;       /* bytes of it; 0: experts are resident, or there are none */
  uint64_t expert_token_bytes; /* of `streamed`: experts of one token */
  uint32_t n_experts_cached;   /* that fit into the cache, of any layers */
  uint32_t n_experts;          /* of all layers together */
  uint32_t n_expert_layers;    /* layers that have experts */
  uint32_t n_experts_of_token; /* that a token goes to, in each such layer */
} setun_plan;

/* Makes the plan that setun_model_load would follow, without reading weights; `params` may be NULL.
 * SETUN_ERROR_MEMORY where the budget is too small; *plan is then filled in all the same, as far as it goes. */
SETUN_API setun_status setun_model_plan(const char *path, const setun_model_params *params, setun_plan *plan,
                                        setun_error *error);
/* The plan that a loaded model followed. SETUN_ERROR_STATE for a vocabulary. */
SETUN_API setun_status setun_model_get_plan(const setun_model *model, setun_plan *plan, setun_error *error);

/* What was read of a model's weights since it was loaded, by all sessions. */
typedef struct setun_stream_stats {
  size_t size;             /* of this struct */
  uint64_t bytes;          /* read from the files */
  double read_s;           /* while a read was under way */
  double waited_s;         /* that passes waited for one */
  double packed_s;         /* that weights were put into the kernels' order */
  double passes_s;         /* that passes took in all, so that computing took passes_s - waited_s */
  const char *how;         /* such as "io_uring, O_DIRECT"; NULL: all weights are resident */
  uint64_t expert_hits;    /* experts that a pass wanted of a layer and the cache had, */
  uint64_t expert_misses;  /* and that it had not */
  const char *expert_rule; /* which of them makes room for others: "lru", the one that was used longest ago, or "score",
                              the one that the fewest tokens of late went to; NULL: there is no cache */
} setun_stream_stats;

/* Any thread may ask, also while others compute. Zeros where all weights are resident, and in a forked child. */
SETUN_API setun_status setun_model_get_stream_stats(const setun_model *model, setun_stream_stats *stats,
                                                    setun_error *error);
/* The expert_hits and expert_misses of one layer; zeros where it has no experts, or they are resident.
 * SETUN_ERROR_ARGUMENT for a layer that the model does not have. */
SETUN_API setun_status setun_model_count_experts(const setun_model *model, uint32_t layer, uint64_t *hits,
                                                 uint64_t *misses, setun_error *error);
/* How fast the disk is by itself: about `total_bytes` of the weights that stream, read into the same buffers, and
 * nothing done with them. SETUN_ERROR_STATE where all weights are resident. */
SETUN_API setun_status setun_model_measure_disk(const setun_model *model, uint64_t total_bytes, double *bytes_per_s,
                                                setun_error *error);
/* Bytes that the process has had in memory at most so far, mapped files counted; 0: the system does not say. */
SETUN_API uint64_t setun_memory_peak(void);

#ifdef __cplusplus
}
#endif

#endif
