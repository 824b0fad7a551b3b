/* A model: loading, adapters, and the memory plan. A part of setun.h, which states the conventions. */
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
  float scale; /* factor for its effect; 1: as trained */
} setun_adapter;

/* A model's single GGUF file that is not on disk: in memory, or read by `read`. Zero it, then set either `bytes` or
 * `read`. It must be valid until the function that takes it has returned. Its weights cannot be streamed: a budget that
 * is too small for them is SETUN_ERROR_UNSUPPORTED. */
typedef struct setun_source {
  uint64_t length;   /* of the file, in bytes */
  const void *bytes; /* the whole file */
  /* Reads `n` bytes at `offset`, within the length; false: they cannot be read. Called by several threads at once. */
  bool (*read)(void *user, uint64_t offset, void *to, size_t n);
  void *user;
} setun_source;

typedef struct setun_model_params {
  size_t size;            /* of this struct */
  const char *isa;        /* NULL: the best available; or one of SETUN_CHOICE_ISA, such as "scalar" */
  const char *assume;     /* how to read a tensor type whose id is ambiguous, such as "i2_s-arm"; NULL: by evidence */
  const char *activation; /* "int8" or "float": overrides the model's activations; NULL: no override */
  /* Keys to treat as absent, in GGUF's metadata ("llama.logit_scale"; "NAMESPACE.*": all with this prefix) or in
   * config.json ("logit_scale", "rope_scaling.factor"): for files that this library would otherwise refuse as
   * unsupported. Each is named in a warning. Read while loading. */
  const char *const *ignore_keys;
  size_t n_ignore_keys;
  bool precise; /* float32 activations, except where the model itself prescribes int8 */
  int threads;  /* for loading; 0: as many as suit the machine */
  setun_log_fn log;
  setun_progress_fn progress;
  void *user;
  /* Adapters, all applied together, computed in floats in addition to the model's own weights, which are unchanged.
   * Read while loading; the array need not live longer. */
  const setun_adapter *adapters;
  size_t n_adapters;
  /* The plan: which weights stay in memory, and which are read again for each pass. */
  uint64_t memory; /* total bytes that the process may take; 0: what the system and the process's memory cgroup have
                      available, less a margin */
  const struct setun_session_params *session; /* the session to plan for; NULL: one with defaults */
  const setun_source *source; /* the file's bytes; `path` is then only its name in messages. NULL: the file at `path` */
  bool no_stream; /* map the file and let the system decide which parts are in memory, for weights stored in the
                     kernels' own order (t16); the budget then covers the rest */
  const struct setun_context_params *context; /* instead of `session`: the context to plan for */
  /* Room for adapters loaded later by setun_adapters_load, part of the plan; both 0: none. */
  uint32_t adapter_rank;  /* the largest sum of ranks for one matrix at the same time */
  uint64_t adapter_bytes; /* for all loaded at the same time: their numbers as float32, ranks rounded up to multiples of
                             16 */
  uint64_t beside;        /* additional bytes that the process will take: the plan counts them as `process` */
  setun_experts_fn on_experts; /* called for each pass and layer with experts; NULL: not needed */
  void *experts_user;          /* passed to it instead of `user` */
  /* A file that setun_model_save_experts wrote: the cache of experts begins with those that it lists. Ignored if the
   * file does not exist or the experts are resident; SETUN_ERROR_FORMAT if it was written for another model. NULL: the
   * cache begins empty. */
  const char *experts_state;
  /* Experts in a cache (of matrices stored in the kernels' own order): how many layers ahead to predict which ones will
   * be used, 1 to 4, and to read them while the disk is idle, for as long as this is measured to be faster; 0: 1; -1:
   * not at all. Results are the same. */
  int experts_ahead;
  /* What computes: "cpu", or a device by its name (setun_get_device) or its kind alone ("vulkan", the first of them);
   * or several, separated by commas, of which the first is taken that can be used here. NULL: the CPU. */
  const char *device;
  /* A folder, for a device that is not the CPU: what its driver makes of the library's programs is kept there, a file
   * for each device and version of a driver, which is replaced when the model is freed, so that the next start is
   * faster. NULL: nothing is kept. */
  const char *device_cache;
  /* Bytes of the memory of a device that is not the CPU, for weights, cache and activations of this model; 0: what it
   * says is free. SETUN_ERROR_ARGUMENT where the CPU computes, which `memory` limits.
   * Weights beyond it are read again for each pass, as those beyond `memory` are, and copied to the device meanwhile. */
  uint64_t device_memory;
} setun_model_params;

SETUN_PARAMS(setun_model_params)

/* Loads a GGUF file (of a split one, its first part) or a Hugging Face directory into memory. On success the caller
 * frees *model with setun_model_free, after every session of it. `params` may be NULL. */
SETUN_API setun_status setun_model_load(const char *path, const setun_model_params *params, setun_model **model,
                                        setun_error *error);
SETUN_API void setun_model_free(setun_model *model);

typedef struct setun_model_info {
  size_t size;              /* of this struct */
  const char *architecture; /* "llama", "bitnet-b1.58", ...; lives as long as the model */
  const char *container;    /* "gguf" or "huggingface" */
  const char *isa;          /* the instruction set of the kernels */
  const char *activation; /* "int8": per token, as the model prescribes; "int8-block": for quantized weights; "float" */
  uint32_t n_layer, n_embd, n_head, n_head_kv, head_dim, n_ff, n_vocab;
  uint32_t n_ctx_train;     /* tokens */
  uint64_t n_params;        /* weights, including the embedding; tied ones count once */
  uint64_t weight_bytes;    /* in memory */
  uint64_t bytes_per_token; /* bytes of weights read for decoding one token */
  uint64_t macs_per_token;  /* multiply-adds in weight matrices for one token, including the head */
  uint64_t head_macs;       /* those of the head, which a prompt needs only for its last token */
  uint64_t float_macs;      /* the part of macs_per_token with float32 activations; the rest is int8 */
} setun_model_info;

/* For a vocabulary only `container` and `n_vocab` are known; the rest is 0 and NULL. */
SETUN_API setun_status setun_model_get_info(const setun_model *model, setun_model_info *info, setun_error *error);
/* The same as n_vocab: ids are below it, and logits have this many floats. 0: model is NULL. */
SETUN_API uint32_t setun_model_n_vocab(const setun_model *model);

/* ---- adapters ---------------------------------------------------------------------------------------------- */

/* LoRA adapters that are loaded and freed independently of their model. A session or a context uses one such object at
 * a time, which may hold several adapters. Immutable: any number of threads may use one. */
typedef struct setun_adapters setun_adapters;

/* Reads `n` adapters; 0: an empty object. The model must have been loaded with room for them (adapter_rank and
 * adapter_bytes): SETUN_ERROR_LIMIT if their ranks need more, SETUN_ERROR_MEMORY if their bytes do. The caller frees
 * *loaded with setun_adapters_free, before the model; sessions that use them keep them. */
SETUN_API setun_status setun_adapters_load(const setun_model *model, const setun_adapter *list, size_t n,
                                           setun_adapters **loaded, setun_error *error);
SETUN_API void setun_adapters_free(setun_adapters *adapters);
SETUN_API uint64_t setun_adapters_bytes(const setun_adapters *adapters); /* bytes used of the model's adapter_bytes */

/* ---- plan -------------------------------------------------------------------------------------------------- */

/* The memory that a model will take, in bytes, and the cost of a token. */
typedef struct setun_plan {
  size_t size;       /* of this struct */
  uint64_t budget;   /* the budget of the plan; 0: the system does not report available memory */
  uint64_t least;    /* the smallest sufficient budget, also for another start of the process: whole MiB */
  uint64_t total;    /* the process's peak: the sum of the next eight, with a full context, and of
                      * expert_cache */
  uint64_t process;  /* its memory when the plan was made: code, vocabulary */
  uint64_t vectors;  /* norms, biases, scales, adapters */
  uint64_t resident; /* weight matrices that stay in memory */
  uint64_t rounding; /* unused parts of their huge pages */
  uint64_t ring;     /* buffers for the other matrices */
  uint64_t packed;  /* for converting these to the kernels' order if stored in another, and rows of an embedding that is
                       not resident */
  uint64_t cache;   /* keys and values of a session or a context, and attention's scratch */
  uint64_t work;    /* its activations, or what loading needs if more */
  uint64_t reserve; /* part of the budget in addition to `total`: for what the system counts, such as page tables */
  uint64_t weights; /* all weight matrices, resident or not, in the kernels' order */
  uint64_t stored;  /* all weight matrices as stored in the files */
  uint64_t streamed;    /* bytes of these read for each pass, of one token or a batch; of experts that are
                         * not resident those of one token, as if the cache had none of them */
  uint64_t rearranged;  /* bytes, in the kernels' order, of those stored in another order: converted in each pass, which
                           takes time in addition to reading */
  uint64_t token_bytes; /* bytes of weights read in memory for decoding one token, including streamed ones */
  uint64_t token_macs;  /* multiply-adds in weight matrices for it */
  uint32_t n_layer, n_ctx, n_batch;
  uint64_t cache_pages;  /* part of `cache`: keys and values, as in setun_context_info */
  uint64_t cache_states; /* part of `cache`: states of recurrent layers */
  /* Experts that are not resident: they are read when a token needs them, into a cache of recently used ones. */
  uint64_t expert_cache;       /* the cache's bytes; 0: experts are resident, or there are none */
  uint64_t expert_token_bytes; /* part of `streamed`: one token's experts */
  uint32_t n_experts_cached;   /* experts that fit into the cache, from any layers */
  uint32_t n_experts;          /* experts of all layers together */
  uint32_t n_expert_layers;    /* layers that have experts */
  uint32_t n_experts_of_token; /* experts that one token uses in each such layer */
  uint64_t n_expert_deltas;    /* differences between experts that the file has and that are used, */
  uint64_t expert_delta_bytes; /* and their bytes */
  uint32_t n_ctx_most;         /* the longest context that the model can have */
  /* Of a device with memory of its own, otherwise 0. */
  uint64_t device_budget;   /* setun_model_params.device_memory, or what is free; 0: the device does not report it */
  uint64_t device_least;    /* the smallest sufficient one */
  uint64_t device_whole;    /* the smallest one with which all weights stay on the device */
  uint64_t device_total;    /* what is taken of it: `resident`, `vectors`, `cache` and the next three */
  uint64_t device_rounding; /* unused parts of what weights are in */
  uint64_t device_buffers;  /* two, for weights that are copied to the device for each pass */
  uint64_t device_work;     /* activations */
} setun_plan;

/* Makes the plan that setun_model_load would follow, without reading weights; `params` may be NULL. SETUN_ERROR_MEMORY
 * if the budget is too small; *plan is then filled in as far as possible. */
SETUN_API setun_status setun_model_plan(const char *path, const setun_model_params *params, setun_plan *plan,
                                        setun_error *error);
/* The plan that a loaded model followed. SETUN_ERROR_STATE for a vocabulary. */
SETUN_API setun_status setun_model_get_plan(const setun_model *model, setun_plan *plan, setun_error *error);

/* Statistics of reading a model's streamed weights since it was loaded, by all sessions. */
typedef struct setun_stream_stats {
  size_t size;             /* of this struct */
  uint64_t bytes;          /* bytes read from the files */
  double read_s;           /* time with a read in progress */
  double waited_s;         /* time that passes waited for reads */
  double packed_s;         /* time for converting weights to the kernels' order */
  double passes_s;         /* total time of passes, a running one included; computing took passes_s - waited_s */
  const char *how;         /* such as "io_uring, O_DIRECT"; NULL: all weights are resident */
  uint64_t expert_hits;    /* experts that a pass needed in a layer: those in the cache, */
  uint64_t expert_misses;  /* and those that had to be read */
  const char *expert_rule; /* which expert is replaced: "lru", the one that was used least recently; "score", the one
                              that the fewest recent tokens used; "next", the one whose next use is expected last by
                              its score and the order of layers; NULL: experts are not cached */
  uint64_t experts_prefetched; /* experts that were read before a layer wanted them, see experts_ahead */
  uint64_t prefetch_hits;      /* of expert_hits: those that had been read so */
  double prefetch_recall[4];   /* the fraction of used experts that were predicted 1, 2, 3, 4 layers ahead; NAN: not
                                  known */
  uint64_t expert_deltas;      /* of the experts read: those made from another one with a delta, */
  uint64_t expert_delta_bytes; /* and the bytes of these deltas */
  uint64_t experts_in_turn;    /* experts that were read before their layer's router had chosen, in passes over many
                                  tokens that used nearly all experts of the layer before; those used count as misses */
  uint32_t prefetch_trials;    /* trials of reading ahead that have ended: blocks of passes with it and without */
  int prefetch_on;             /* whether passes read ahead now, as they do where trials found them faster */
  double prefetch_time;        /* time of the trials' passes with it, relative to that without; 0: none has ended */
} setun_stream_stats;

/* Any thread may call it, also while others compute. Zeros where all weights are resident, and in a forked child. */
SETUN_API setun_status setun_model_get_stream_stats(const setun_model *model, setun_stream_stats *stats,
                                                    setun_error *error);
/* The expert_hits and expert_misses of one layer; zeros where it has no experts, or they are resident.
 * SETUN_ERROR_ARGUMENT for a layer that the model does not have. */
SETUN_API setun_status setun_model_count_experts(const setun_model *model, uint32_t layer, uint64_t *hits,
                                                 uint64_t *misses, setun_error *error);
/* Writes a list of the experts in the cache to a file, for the next start. SETUN_ERROR_STATE if the experts are
 * resident. Waits for a running pass. */
SETUN_API setun_status setun_model_save_experts(const setun_model *model, const char *path, setun_error *error);
/* The disk's own speed: reads about `total_bytes` of the streamed weights into the same buffers and does nothing with
 * them. SETUN_ERROR_STATE if all weights are resident. */
SETUN_API setun_status setun_model_measure_disk(const setun_model *model, uint64_t total_bytes, double *bytes_per_s,
                                                setun_error *error);
/* The process's peak memory so far, in bytes, including mapped files; 0: unknown. */
SETUN_API uint64_t setun_memory_peak(void);

#ifdef __cplusplus
}
#endif

#endif
