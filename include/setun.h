/* Setun: language models with ternary and other very low-bit weights. The public header; setun_types.h, which it
 * includes, has statuses, errors and callbacks.
 *
 * Longer than other files: what a program needs is in this one. Sections: version; errors and logging; model; adapters;
 * plan; tokens; session; contexts; sampling; generating; chat; inspection; conversion; synthetic models; benchmarks;
 * output files.
 *
 * Conventions. Every function that can fail returns a setun_status and takes a `setun_error *` last, which may
 * be NULL; on failure it holds the status and one line that names what failed, what was expected and what was
 * found, and output parameters are left untouched (setun_model_plan and setun_model_plan_synthetic fill the plan also
 * where the budget is too small). Handles are opaque; the caller owns each handle that it was given and frees it with
 * the function named beside it, which accepts NULL. Text is UTF-8 and comes with its length in bytes unless it is a
 * path or a name, which end with a 0 byte. The library keeps no global state, reads no environment variables, prints
 * nothing and never ends the process.
 *
 * Arguments. NULL where something is expected, numbers out of range and unknown flags are SETUN_ERROR_ARGUMENT;
 * functions that return no status then give 0, false, -1 or NULL, as for an object that holds nothing. A text or an
 * array may be NULL where its length is 0.
 *
 * Structs that grow. Parameters (setun_X_params) and what getters fill in (setun_model_info, setun_plan, ...) begin
 * with `size`, the bytes that the caller's struct has, so that fields can be added behind the others while programs
 * built with an older header go on working. Parameters begin as setun_X_params_default() gives them, or as
 * setun_X_params_init leaves them; then members are set. Fields that the caller's struct does not have take their
 * defaults. A struct that is larger than the library's own is taken if the rest of it is zero. Before a getter is
 * called, `size` is set: setun_plan plan = {.size = sizeof plan}; it fills what fits, and members that it does not know
 * with zeros. Wherever parameters are taken by pointer, NULL means the defaults. Other structs never change.
 *
 * Callbacks. Where parameters have `log`, `progress` and `user`, each may be NULL, and `user` is what the other two
 * receive. They are called on the thread that called the function, and not after it has returned; a model's `log` is
 * called also by what computes with the model later, until the model is freed.
 *
 * Stability. Within one SOVERSION (the shared library's name, libsetun.so.N) functions, members and enumerators are
 * added at most: a program that was built against an older version runs with a newer one. Sections marked
 * "experimental" are not part of that promise.
 *
 * Threads. A setun_model and a setun_file are immutable once made: any number of threads may use one at once.
 * A setun_session, setun_context, setun_sampler or setun_decoder belongs to one thread at a time; only
 * setun_session_stop and setun_context_stop may be called from another thread or from a signal handler.
 *
 * Processes. What computes belongs to the process that made it. In a forked child, sessions, contexts and what needs a
 * model's weights (setun_model_measure_disk) give SETUN_ERROR_STATE; the text functions of a model (tokens,
 * chat) work, and so do samplers and decoders. Freeing an inherited object releases the child's memory and touches
 * nothing of the parent's. A child that computes loads the model itself.
 *
 * Floating point. What the application has set - rounding, flushing of denormals, traps - changes no result and is the
 * same afterwards: functions that compute, and the library's threads, round to nearest and keep denormals. Callbacks
 * run in those modes too. */
#ifndef SETUN_H
#define SETUN_H

#include "setun_types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SETUN_API __attribute__((visibility("default")))
#else
#define SETUN_API
#endif

/* Of each kind of parameters: X_init writes the defaults to a struct of `size` bytes, X_default returns one with them.
 */
#define SETUN_PARAMS(kind)                                                                                             \
  SETUN_API void kind##_init(kind *params, size_t size);                                                               \
  static inline kind kind##_default(void) {                                                                            \
    kind params;                                                                                                       \
    kind##_init(&params, sizeof params);                                                                               \
    return params;                                                                                                     \
  }

/* ---- version ----------------------------------------------------------------------------------------------- */

#define SETUN_VERSION_MAJOR 0
#define SETUN_VERSION_MINOR 1
#define SETUN_VERSION_PATCH 0
/* Of this header, to compare with: 100 for 0.1.0, 10203 for 1.2.3. */
#define SETUN_VERSION_NUMBER (SETUN_VERSION_MAJOR * 10000 + SETUN_VERSION_MINOR * 100 + SETUN_VERSION_PATCH)

/* Of the library that runs: "0.1.0", and as SETUN_VERSION_NUMBER. */
SETUN_API const char *setun_version(void);
SETUN_API int setun_version_number(void);

/* ---- errors and logging ------------------------------------------------------------------------------------ */

/* "ok", "memory", "io", "format", "unsupported", "argument", "limit", "canceled", "state"; NULL: no setun_status. */
SETUN_API const char *setun_status_name(setun_status status);

/* The instruction sets whose kernels this machine can run, best last, such as "scalar avx2 avx512". */
SETUN_API const char *setun_isa_available(void);

/* What is chosen by name. */
typedef enum setun_choice {
  SETUN_CHOICE_ISA,       /* setun_model_params.isa: all that there are kernels for, in rising order of preference */
  SETUN_CHOICE_ASSUME,    /* setun_model_params.assume */
  SETUN_CHOICE_LAYOUT,    /* setun_convert_params.to */
  SETUN_CHOICE_EMBEDDING, /* setun_convert_params.embedding and .head */
  SETUN_CHOICE_SYNTHETIC, /* setun_synthesis_params.format and .head */
  SETUN_CHOICE_SHAPE,     /* setun_synthesis_params.shape */
  SETUN_CHOICE_KV         /* setun_session_params.kv_keys and .kv_values: the index is the setun_kv_type */
} setun_choice;

/* The names of a choice, one an index; NULL beyond the last. Static text. */
SETUN_API const char *setun_choice_name(setun_choice choice, size_t index);

/* ---- model ------------------------------------------------------------------------------------------------- */

typedef struct setun_model setun_model;

/* A LoRA adapter to apply: a PEFT directory (adapter_config.json and adapter_model.safetensors) or a GGUF file. */
typedef struct setun_adapter {
  const char *path;
  float scale; /* of its effect; 1 as it was trained */
} setun_adapter;

typedef struct setun_session_params {
  size_t size;                      /* of this struct */
  uint32_t n_ctx;                   /* tokens that fit; 0: the model's trained length, at most 4096 */
  uint32_t n_batch;                 /* tokens that one pass of prefill takes; 0: 512, or less where memory is little */
  int threads;                      /* 0: as many as suit the machine */
  setun_kv_type kv_keys, kv_values; /* formats of keys and of values */
  bool all_logits;  /* on_logits will be used: where the output matrix streams, room for the logits of several tokens at
                       once, so that it is read less often; false: it is read for each of them */
  uint32_t n_draft; /* 0: none; at most SETUN_DRAFT_MOST. Where one token is evaluated, so many more may be computed
                       with it that are guessed from the text so far. A later call that brings the guessed token then
                       computes nothing. Neither logits nor positions change, and so no text; text that repeats
                       earlier text, quotes and edits, comes several times as fast. Guesses that fail are made less
                       often, and none for a while where passes with guesses took longer than others, as measured. */
  uint32_t window, sinks;   /* as those of setun_context_params (experimental) */
  const setun_model *draft; /* experimental: a smaller model of the same tokens that makes the n_draft guesses; it must
                               outlive the session. Its plan's cache and work belong in the model's `beside` */
} setun_session_params;

enum { SETUN_DRAFT_MOST = 32 };

typedef struct setun_context_params {
  size_t size;                      /* of this struct */
  uint32_t n_ctx;                   /* tokens that one sequence may have; 0: as setun_session_params.n_ctx */
  uint32_t n_seq_max;               /* sequences at once; 0: 8 */
  uint64_t n_cache;                 /* tokens that the KV cache holds, of all sequences together, in pages of 64; one
                                       that sequences share counts once. 0: n_ctx for each sequence */
  uint32_t n_batch;                 /* tokens that one pass takes; 0: as setun_session_params.n_batch */
  uint32_t n_logits;                /* tokens whose logits one call may ask for; 0: n_seq_max */
  int threads;                      /* 0: as many as suit the machine */
  setun_kv_type kv_keys, kv_values; /* formats of keys and of values */
  /* Experimental. With `window` layers to which the model gives none see the last so many tokens, and, with `sinks`, so
   * many of the first ones of the sequence beside them. Text then has no end: the cache holds the sinks, the window and
   * one pass, positions are counted within it, and tokens before it are forgotten, see setun_session_forgotten. Up to
   * window + sinks tokens nothing differs from a context without them. */
  uint32_t window; /* n_ctx must be 0; 0: with sinks what they leave of n_ctx, otherwise none */
  uint32_t sinks;  /* at most 512; 0: none */
} setun_context_params;

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
  const setun_session_params *session; /* of the session that room is left for; NULL: one with defaults */
  const setun_source *source; /* where the file's bytes are; `path` then only names it in messages. NULL: at `path` */
  bool no_stream; /* map the file and leave it to the system what of it is in memory, for weights that are stored in the
                     kernels' own order (t16); the budget then covers the rest */
  const setun_context_params *context; /* instead of `session`: the context that room is left for */
  /* Room for adapters that setun_adapters_load brings later, in the plan too; both 0: none come. */
  uint32_t adapter_rank;  /* the largest sum of ranks that adapts one matrix at once */
  uint64_t adapter_bytes; /* of all that are loaded at once: their numbers as float32, ranks as multiples of 16 */
  uint64_t beside;        /* bytes that the process will take beside: the plan counts them as `process` */
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
  uint64_t total;       /* what the process will have at most: the sum of the next eight, with a full context */
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
  uint64_t streamed;    /* bytes of these that are read for each pass, of one token or of a batch */
  uint64_t rearranged;  /* bytes of those that are stored in another order than the kernels', as these have them: put
                         * into it in each pass, which takes time beside the reading */
  uint64_t token_bytes; /* weights that the decoding of one token reads in memory, streamed ones among them */
  uint64_t token_macs;  /* its multiply-adds in weight matrices */
  uint32_t n_layer, n_ctx, n_batch;
  uint64_t cache_pages; /* of `cache`: keys and values alone, as setun_context_info has them */
} setun_plan;

/* Makes the plan that setun_model_load would follow, without reading weights; `params` may be NULL.
 * SETUN_ERROR_MEMORY where the budget is too small; *plan is then filled in all the same, as far as it goes. */
SETUN_API setun_status setun_model_plan(const char *path, const setun_model_params *params, setun_plan *plan,
                                        setun_error *error);
/* The plan that a loaded model followed. SETUN_ERROR_STATE for a vocabulary. */
SETUN_API setun_status setun_model_get_plan(const setun_model *model, setun_plan *plan, setun_error *error);

/* What was read of a model's weights since it was loaded, by all sessions. */
typedef struct setun_stream_stats {
  size_t size;     /* of this struct */
  uint64_t bytes;  /* read from the files */
  double read_s;   /* while a read was under way */
  double waited_s; /* that passes waited for one */
  double packed_s; /* that weights were put into the kernels' order */
  double passes_s; /* that passes took in all, so that computing took passes_s - waited_s */
  const char *how; /* such as "io_uring, O_DIRECT"; NULL: all weights are resident */
} setun_stream_stats;

/* Any thread may ask, also while others compute. Zeros where all weights are resident, and in a forked child. */
SETUN_API setun_status setun_model_get_stream_stats(const setun_model *model, setun_stream_stats *stats,
                                                    setun_error *error);
/* How fast the disk is by itself: about `total_bytes` of the weights that stream, read into the same buffers, and
 * nothing done with them. SETUN_ERROR_STATE where all weights are resident. */
SETUN_API setun_status setun_model_measure_disk(const setun_model *model, uint64_t total_bytes, double *bytes_per_s,
                                                setun_error *error);
/* Bytes that the process has had in memory at most so far, mapped files counted; 0: the system does not say. */
SETUN_API uint64_t setun_memory_peak(void);

/* ---- tokens ------------------------------------------------------------------------------------------------ */

typedef int32_t setun_token;

enum {
  SETUN_TOKENIZE_SPECIAL = 1,   /* recognize control tokens in the text; otherwise they stay plain text */
  SETUN_TOKENIZE_BOS = 2,       /* begin with BOS, once, if the model's tokenizer says that texts begin with it */
  SETUN_TOKENIZE_BOS_ALWAYS = 4 /* begin with BOS, once, if the model has one */
};

/* Writes the first `capacity` ids of the text to `ids` (which may be NULL when capacity is 0) and the number
 * that there are in all to *count. */
SETUN_API setun_status setun_tokenize(const setun_model *model, const char *text, size_t length, int flags,
                                      setun_token *ids, size_t capacity, size_t *count, setun_error *error);
/* Bytes that tokenizing a text of so many bytes takes at most, the caller's list of its ids included. The memory plan
 * does not count them: for texts longer than the context see to it that the budget has them beside the plan's total. */
SETUN_API uint64_t setun_tokenize_memory(size_t length);

/* Tokens with a meaning of their own; -1: the model has none. */
SETUN_API setun_token setun_token_bos(const setun_model *model);
SETUN_API setun_token setun_token_eos(const setun_model *model);
SETUN_API setun_token setun_token_unknown(const setun_model *model);
/* Does the token end a text or a turn (from every source in the model's files)? There may be several such tokens. */
SETUN_API bool setun_token_is_end(const setun_model *model, setun_token id);

typedef enum setun_token_kind {
  SETUN_TOKEN_NORMAL,
  SETUN_TOKEN_CONTROL,      /* found in text only with SETUN_TOKENIZE_SPECIAL, and shown with SETUN_DECODE_SPECIAL */
  SETUN_TOKEN_USER_DEFINED, /* found in any text, before it is split */
  SETUN_TOKEN_BYTE,         /* one byte of a character that the vocabulary lacks */
  SETUN_TOKEN_UNKNOWN,      /* used for text that the vocabulary lacks */
  SETUN_TOKEN_UNUSED
} setun_token_kind;

/* "normal", "control", "user-defined", "byte", "unknown", "unused"; NULL: no setun_token_kind. */
SETUN_API const char *setun_token_kind_name(setun_token_kind kind);
SETUN_API setun_status setun_token_get_kind(const setun_model *model, setun_token id, setun_token_kind *kind,
                                            setun_error *error);
/* The bytes of the token inside a text, a control token's own text included: *length bytes, which may
 * be a part of a character; they live as long as the model. For text, see setun_detokenize. */
SETUN_API setun_status setun_token_get_text(const setun_model *model, setun_token id, const char **text, size_t *length,
                                            setun_error *error);

/* A streaming detokenizer: ids in, whole UTF-8 characters out. */
typedef struct setun_decoder setun_decoder;

enum {
  SETUN_DECODE_SPECIAL = 1,  /* show control tokens as their text; otherwise they are left out */
  SETUN_DECODE_CONTINUES = 2 /* the text continues an earlier one: what is stripped from a text's beginning is kept */
};

SETUN_API setun_status setun_decoder_new(const setun_model *model, int flags, setun_decoder **decoder,
                                         setun_error *error);
SETUN_API void setun_decoder_free(setun_decoder *decoder);
/* Adds one id. *text and *length are what is complete now, possibly nothing; they are valid until the next call.
 * An id beyond the vocabulary is an error. */
SETUN_API setun_status setun_decoder_push(setun_decoder *decoder, setun_token id, const char **text, size_t *length,
                                          setun_error *error);
/* What was held back, as U+FFFD where it is not a character, at the end of the text; the decoder is then as new. */
SETUN_API setun_status setun_decoder_finish(setun_decoder *decoder, const char **text, size_t *length,
                                            setun_error *error);

/* The text of `n` ids in one call, as a decoder with these flags gives it: writes its first `capacity` bytes to `text`
 * (which may be NULL when capacity is 0), without a 0 byte, and the number that there are in all to *length. */
SETUN_API setun_status setun_detokenize(const setun_model *model, const setun_token *ids, size_t n, int flags,
                                        char *text, size_t capacity, size_t *length, setun_error *error);

/* A tokenizer by itself, without loading any weights: setun_tokenize and the like take a model; a model loaded by
 * this function has no weights and no sessions. `params` may be NULL. */
SETUN_API setun_status setun_model_load_vocabulary(const char *path, const setun_model_params *params,
                                                   setun_model **model, setun_error *error);

/* ---- session ----------------------------------------------------------------------------------------------- */

/* One timeline of tokens over a model, with its KV cache. The sessions of a model share its threads; each computes with
 * as many as its parameters say, whatever the others do meanwhile, and with the same results. */
typedef struct setun_session setun_session;

SETUN_PARAMS(setun_session_params)

/* `params` may be NULL. The caller frees *session with setun_session_free, before the model. */
SETUN_API setun_status setun_session_new(const setun_model *model, const setun_session_params *params,
                                         setun_session **session, setun_error *error);
SETUN_API void setun_session_free(setun_session *session);

/* From now on the session computes with these adapters, times `scale`, in place of those that it had; NULL: with those
 * that the model was loaded with, as a new session does. Its tokens stay, the logits do not: where anything changes,
 * the next evaluation computes all tokens anew. SETUN_ERROR_STATE from a callback of an evaluation, and where tokens
 * were forgotten. A saved session is loaded with the adapters and the scale that it was saved with. */
SETUN_API setun_status setun_session_use_adapters(setun_session *session, const setun_adapters *adapters, float scale,
                                                  setun_error *error);

SETUN_API uint32_t setun_session_context(const setun_session *session);  /* tokens that fit; UINT32_MAX: no limit */
SETUN_API uint32_t setun_session_position(const setun_session *session); /* tokens so far */
SETUN_API int setun_session_threads(const setun_session *session);
/* Bytes of the KV cache that decoding one token reads when `tokens` are in it. */
SETUN_API uint64_t setun_session_cache_bytes(const setun_session *session, uint32_t tokens);

/* Receives the logits after one token: `position` is that token's, `logits` has n_vocab floats, valid during the
 * call. Returning false ends the evaluation with SETUN_ERROR_CANCELED. */
typedef bool (*setun_logits_fn)(uint32_t position, const float *logits, void *user);
/* Receives hidden states: of `n` tokens from `position` on, `layer` 0 is the input of block 0 and l+1 the output
 * of block l, before the final norm; `hidden` is [n, n_embd]. */
typedef bool (*setun_hidden_fn)(uint32_t layer, uint32_t position, uint32_t n, const float *hidden, void *user);

typedef struct setun_eval_params {
  size_t size;                /* of this struct */
  setun_logits_fn on_logits;  /* NULL: only the last token's logits are computed, see setun_session_logits */
  setun_hidden_fn on_hidden;  /* NULL: not wanted */
  setun_progress_fn progress; /* called after each pass with the share of the `n` tokens that is done, and while one
                                 runs; false stops as setun_session_stop does */
  void *user;                 /* passed to all of them */
} setun_eval_params;

SETUN_PARAMS(setun_eval_params)

/* Appends `n` tokens and computes what follows them. `params` may be NULL. More tokens than fit are refused with
 * SETUN_ERROR_LIMIT before anything is computed. After a failure or a stop the session holds the passes that were
 * finished (see setun_session_position). */
SETUN_API setun_status setun_session_eval(setun_session *session, const setun_token *ids, size_t n,
                                          const setun_eval_params *params, setun_error *error);
/* The logits after the last token, n_vocab floats, owned by the session and valid until its next call; NULL before
 * the first token. */
SETUN_API const float *setun_session_logits(const setun_session *session);
/* Forgets all tokens from position `n` on. Where layers with a sliding window have no longer what position `n` sees,
 * the next evaluation computes the tokens that are left again, with the results of a fresh session. Where tokens among
 * these were forgotten, it is SETUN_ERROR_ARGUMENT instead. */
SETUN_API setun_status setun_session_truncate(setun_session *session, uint32_t n, setun_error *error);
/* The tokens so far, setun_session_position of them, owned by the session and valid until its next call. With a window:
 * less setun_session_forgotten of them, which stood behind the sinks. */
SETUN_API const setun_token *setun_session_tokens(const setun_session *session);
SETUN_API uint32_t setun_session_forgotten(const setun_session *session); /* (experimental) */
/* Writes the tokens and the KV cache to a file, whole or not at all: on failure an older file of that name is as it
 * was. */
SETUN_API setun_status setun_session_save(setun_session *session, const char *path, setun_error *error);
/* Replaces the session's tokens and KV cache by those in a file that setun_session_save wrote for the same model and
 * the same kv type. A damaged file, one of another model, or more tokens than fit are errors, after which the session
 * is as it was (but for a file that changes while it is read). Logits are not saved: see setun_session_logits. */
SETUN_API setun_status setun_session_load(setun_session *session, const char *path, setun_error *error);
/* The same in memory: writes the session to `bytes` (which may be NULL when capacity is 0) if its *length bytes fit
 * into the capacity, and nothing otherwise. */
SETUN_API setun_status setun_session_save_memory(setun_session *session, void *bytes, size_t capacity, size_t *length,
                                                 setun_error *error);
SETUN_API setun_status setun_session_load_memory(setun_session *session, const void *bytes, size_t length,
                                                 setun_error *error);
/* Experimental: what came of a session's guesses. */
typedef struct setun_draft_stats {
  size_t size;      /* of this struct */
  uint64_t passes;  /* with guesses */
  uint64_t guessed; /* tokens that were computed ahead */
  uint64_t taken;   /* of these: that the text then went on with */
} setun_draft_stats;
SETUN_API setun_status setun_session_get_draft_stats(const setun_session *session, setun_draft_stats *stats,
                                                     setun_error *error);
/* Makes the evaluation that is running end soon with SETUN_ERROR_CANCELED; nothing when none is running.
 * Async-signal-safe. */
SETUN_API void setun_session_stop(setun_session *session);

/* ---- contexts ---------------------------------------------------------------------------------------------- */

/* Several sequences of tokens over one model: one pass computes tokens of any of them and reads each weight once for
 * all. A sequence's results are the same to the bit alone and among others, however its tokens are cut into calls. Keys
 * and values are kept in pages of 64 positions, which sequences share as long as they are the same; none is allocated
 * after the context was made. A session is a context with one sequence. */
typedef struct setun_context setun_context;

SETUN_PARAMS(setun_context_params)

/* `params` may be NULL. The caller frees *context with setun_context_free, before the model. */
SETUN_API setun_status setun_context_new(const setun_model *model, const setun_context_params *params,
                                         setun_context **context, setun_error *error);
SETUN_API void setun_context_free(setun_context *context);

/* Sequences that are made from now on (setun_context_add, setun_context_reuse) are computed with these adapters, times
 * `scale`; NULL: with those that the model was loaded with, as in a new context. Sequences that there are keep theirs,
 * and copies have those of their original. What was computed with other adapters is not reused. One pass computes
 * sequences with the same adapters: others wait for the next one. SETUN_ERROR_STATE from a callback of an evaluation.
 */
SETUN_API setun_status setun_context_use_adapters(setun_context *context, const setun_adapters *adapters, float scale,
                                                  setun_error *error);

typedef struct setun_context_info {
  size_t size;         /* of this struct */
  uint32_t n_ctx;      /* tokens that one sequence may have; UINT32_MAX: no limit */
  uint32_t n_seq_max;  /* sequences at once */
  uint32_t n_seq;      /* that there are */
  uint32_t n_batch;    /* tokens that one pass takes */
  uint32_t n_logits;   /* tokens whose logits one call may ask for */
  int threads;         /* that compute */
  uint64_t page_bytes; /* of a page: keys and values of 64 positions of one layer */
  uint64_t pages;      /* in all */
  uint64_t pages_used; /* by sequences that there are; a page that several share counts once */
  uint64_t pages_kept; /* by dropped sequences alone: used again when others need them */
} setun_context_info;

SETUN_API setun_status setun_context_get_info(const setun_context *context, setun_context_info *info,
                                              setun_error *error);

/* An empty sequence: *sequence is a number below n_seq_max that is in use until setun_context_drop.
 * SETUN_ERROR_LIMIT when there are n_seq_max already. */
SETUN_API setun_status setun_context_add(setun_context *context, int *sequence, setun_error *error);
/* Ends a sequence. What it holds stays for setun_context_reuse until its pages are needed, the least recently used
 * one's first, or until more than n_seq_max were dropped. */
SETUN_API setun_status setun_context_drop(setun_context *context, int sequence, setun_error *error);
/* A new sequence with the same tokens, which shares the pages: nothing is copied before one of the two goes on. */
SETUN_API setun_status setun_context_fork(setun_context *context, int sequence, int *copy, setun_error *error);
/* Forgets all tokens of a sequence from position `n` on; see setun_session_truncate. */
SETUN_API setun_status setun_context_truncate(setun_context *context, int sequence, uint32_t n, setun_error *error);
/* A new sequence with the longest beginning of `ids` that is in the cache, of dropped sequences included: *position
 * tokens, at most n - 1, so that evaluating the rest gives logits; possibly none. Tokens are compared, no hashes. */
SETUN_API setun_status setun_context_reuse(setun_context *context, const setun_token *ids, size_t n, int *sequence,
                                           uint32_t *position, setun_error *error);

/* Tokens that a sequence has; 0: there is none of that number. */
SETUN_API uint32_t setun_context_position(const setun_context *context, int sequence);
/* These tokens, owned by the context and valid until its next call; NULL: no sequence of that number. With a window:
 * less those forgotten, as setun_session_tokens. */
SETUN_API const setun_token *setun_context_tokens(const setun_context *context, int sequence);
SETUN_API uint32_t setun_context_forgotten(const setun_context *context, int sequence); /* (experimental) */

/* As setun_session_save and the others, for a sequence; their files are those of sessions. Loading replaces the
 * sequence's tokens; pages that others share stay theirs. SETUN_ERROR_LIMIT when the cache has no room for them. */
SETUN_API setun_status setun_context_save(setun_context *context, int sequence, const char *path, setun_error *error);
SETUN_API setun_status setun_context_load(setun_context *context, int sequence, const char *path, setun_error *error);
SETUN_API setun_status setun_context_save_memory(setun_context *context, int sequence, void *bytes, size_t capacity,
                                                 size_t *length, setun_error *error);
SETUN_API setun_status setun_context_load_memory(setun_context *context, int sequence, const void *bytes, size_t length,
                                                 setun_error *error);

typedef enum setun_logits {
  SETUN_LOGITS_NONE,
  SETUN_LOGITS_LAST, /* those after the entry's last token */
  SETUN_LOGITS_ALL   /* those after each of them */
} setun_logits;

/* Tokens that a sequence goes on with. */
typedef struct setun_batch_entry {
  int sequence;
  setun_logits logits; /* that are wanted */
  const setun_token *ids;
  size_t n;
} setun_batch_entry;

/* Appends each entry's tokens to its sequence, no sequence twice, and computes what follows them. More tokens than a
 * pass takes are cut into several; entries with one token are in the first ones, of those with the same adapters. Of
 * `params`, which may be NULL, on_logits and on_hidden must be NULL.
 *
 * SETUN_ERROR_LIMIT, before anything is computed, where a sequence would have more than n_ctx tokens, where more than
 * n_logits logits are wanted, and where the KV cache has no room: the message names a sequence whose end would free
 * pages. After any other failure or a stop each sequence has the tokens of the passes that were finished. */
SETUN_API setun_status setun_context_eval(setun_context *context, const setun_batch_entry *entries, size_t n,
                                          const setun_eval_params *params, setun_error *error);
/* Of the last setun_context_eval, which was successful: logits of an entry, n_vocab floats, after its last token (i is
 * 0) or, for SETUN_LOGITS_ALL, after its token i. Owned by the context and valid until the next one; NULL: none. */
SETUN_API const float *setun_context_logits(const setun_context *context, size_t entry, size_t i);
/* As setun_session_stop. */
SETUN_API void setun_context_stop(setun_context *context);

/* ---- sampling ---------------------------------------------------------------------------------------------- */

/* Draws tokens, and remembers the text for the penalties. */
typedef struct setun_sampler setun_sampler;

/* The steps between the biases, which always come first, and the draw; the order here is the default one. */
typedef enum setun_sampler_step {
  SETUN_STEP_PENALTIES,
  SETUN_STEP_DRY,
  SETUN_STEP_TOP_N_SIGMA,
  SETUN_STEP_TOP_K,
  SETUN_STEP_TYPICAL,
  SETUN_STEP_TOP_P,
  SETUN_STEP_MIN_P,
  SETUN_STEP_XTC,
  SETUN_STEP_TEMPERATURE
} setun_sampler_step;

/* Which steps there are, each at most once, and in which order. A step that is not among the first `n` is left out,
 * whatever its parameters are. */
typedef struct setun_sampler_order {
  uint8_t n;         /* 0 to 9 */
  uint8_t steps[15]; /* setun_sampler_step */
} setun_sampler_order;

/* "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature", as llama.cpp calls them;
 * NULL: no setun_sampler_step. */
SETUN_API const char *setun_sampler_step_name(setun_sampler_step step);
/* Reads such names, separated by ';'. Hyphens may stand for underscores or both be left out, and "temp", "typ",
 * "typical" and "nucleus" (top_p) are known too. An error names what is unknown or comes twice. */
SETUN_API setun_status setun_sampler_order_parse(const char *text, setun_sampler_order *order, setun_error *error);

/* The comments give the default and the value that switches a step off exactly. Numbers must be finite and in the
 * range given. */
typedef struct setun_sampler_params {
  size_t size; /* of this struct */
  /* A token that occurs among the last penalty_last_n has its logit divided by repeat_penalty if it is positive,
   * else multiplied; then presence_penalty is subtracted, and frequency_penalty once for each occurrence. */
  int32_t penalty_last_n;  /* 64; tokens; 0: off; -1: all */
  float repeat_penalty;    /* 1: off; above 0 */
  float presence_penalty;  /* 0: off */
  float frequency_penalty; /* 0: off */

  /* "Don't repeat yourself": where the last L >= dry_allowed_length tokens of the text stand earlier too, the token
   * that followed them there loses dry_multiplier * dry_base ^ (L - dry_allowed_length), for the longest such L.
   * See setun_sampler_add_breaker. */
  float dry_multiplier;       /* 0: off; 0 or more */
  float dry_base;             /* 1.75; 1 or more */
  int32_t dry_allowed_length; /* 2; 1 or more */
  int32_t dry_penalty_last_n; /* -1: all; tokens that are searched; 0: off */

  int32_t top_k;   /* 40; 0: off; the likeliest, of equally likely ones those with the lowest ids */
  float typical_p; /* 1: off; 0 to 1; those whose surprise is nearest to the entropy and which have this probability */
  float top_p;     /* 0.95; 1: off; 0 to 1; the likeliest which together have this probability */
  float min_p;     /* 0.05; 0: off; 0 to 1; those at least so likely, relative to the likeliest */

  /* "Exclude top choices": with probability xtc_probability, of the tokens that are at least xtc_threshold likely
   * only the least likely stays. */
  float xtc_probability; /* 0: off; 0 to 1 */
  float xtc_threshold;   /* 0.1; 0 to 1; above 0.5 nothing can happen */

  /* With dynatemp_range above 0 the temperature is low + (high - low) * E ^ dynatemp_exponent: low and high are
   * temperature -+ dynatemp_range (low not below 0), and E is the entropy of the tokens that are left divided by the
   * most that so many can have. */
  float temperature;       /* 0.8; 0 or more; 0: the likeliest after biases, penalties and DRY; nothing else applies,
                            * unless `order` leaves the temperature out */
  float dynatemp_range;    /* 0: off; 0 or more */
  float dynatemp_exponent; /* 1; 0 or more */

  uint64_t seed; /* 0; the same seed, parameters, text and logits give the same tokens */

  const setun_model *model; /* NULL: any token may be drawn; else never one that has no text in this model's vocabulary,
                               whatever its bias: models pad their embeddings. Read by setun_sampler_new alone */

  setun_sampler_order order; /* all, as setun_sampler_step has them */
  float top_n_sigma;         /* 0 or less: off; those whose logit is at most so many standard deviations (of the
                              * logits that are left) below the highest (Tang et al., 2024) */

  /* Mirostat (Basu et al., 2020) keeps the surprise of the text, -log2 of each probability, near mirostat_tau: it
   * replaces every step but penalties, DRY and temperature, and adapts with each draw. 1: leaves so many of the
   * likeliest as Zipf's law, fitted to the 100 likeliest, says; 2: those whose surprise is at most mu, which begins as
   * 2 * tau and falls by eta times the excess of what was drawn over tau. */
  int32_t mirostat;   /* 0: off; 1; 2 */
  float mirostat_tau; /* 5; 0 or more; the target, in bits */
  float mirostat_eta; /* 0.1; 0 or more; the learning rate */
} setun_sampler_params;

SETUN_PARAMS(setun_sampler_params)
/* The defaults with `model` set, and with what the model's own files say in their place: generation_config.json, or a
 * GGUF file's general.sampling keys. Whether generation_config.json asks for sampling at all is not considered. */
SETUN_API setun_status setun_model_get_sampler_params(const setun_model *model, setun_sampler_params *params,
                                                      setun_error *error);

/* `params` may be NULL for the defaults. */
SETUN_API setun_status setun_sampler_new(const setun_sampler_params *params, setun_sampler **sampler,
                                         setun_error *error);
SETUN_API void setun_sampler_free(setun_sampler *sampler);

/* Adds `bias` to the token's logit from now on; several for one token add up. -inf: the token is never drawn. */
SETUN_API setun_status setun_sampler_add_bias(setun_sampler *sampler, setun_token id, float bias, setun_error *error);
/* Adds a sequence breaker for DRY: 1 to 64 tokens, which are copied. Only tokens after the last breaker in the text
 * count as a repetition. A token that is a breaker by itself is never penalized by DRY. There are none at first. */
SETUN_API setun_status setun_sampler_add_breaker(setun_sampler *sampler, const setun_token *ids, size_t n,
                                                 setun_error *error);

/* Adds a breaker by its text of 1 to 64 bytes, which are copied, however the text's tokens cut it. The model must be
 * the same each time and outlive the sampler. Usual ones are "\n", ":", "\"" and "*". */
SETUN_API setun_status setun_sampler_add_breaker_text(setun_sampler *sampler, const setun_model *model,
                                                      const char *text, size_t length, setun_error *error);

/* Appends a token to the text that the sampler knows: for every token of the prompt, and for every token that was
 * drawn and used. Drawing alone does not append. */
SETUN_API setun_status setun_sampler_accept(setun_sampler *sampler, setun_token id, setun_error *error);
/* Forgets the text and starts again from the seed, Mirostat as well; biases and breakers stay. */
SETUN_API void setun_sampler_reset(setun_sampler *sampler);

/* Draws a token from `n` logits, which are not changed. NaN and +inf are an error that names the token; so is it when
 * no token is above -inf, or when a biased token is not among the `n`. */
SETUN_API setun_status setun_sampler_sample(setun_sampler *sampler, const float *logits, size_t n, setun_token *id,
                                            setun_error *error);

typedef struct setun_candidate {
  setun_token id;
  double probability;
} setun_candidate;

/* What the next setun_sampler_sample would draw from, with these logits: writes the `capacity` likeliest to
 * `candidates` (which may be NULL when capacity is 0), likeliest first, and the number that there are in all to
 * *count. Their probabilities add up to 1. Changes nothing: whether XTC applies is what that next call will find. */
SETUN_API setun_status setun_sampler_probabilities(setun_sampler *sampler, const float *logits, size_t n,
                                                   setun_candidate *candidates, size_t capacity, size_t *count,
                                                   setun_error *error);

/* A token's log-probability: the natural logarithm; -inf where its logit is. */
typedef struct setun_logprob {
  setun_token id;
  double value;
} setun_logprob;

/* Experimental. What `n` logits say by themselves, before biases, penalties and temperature: *value is of token `id`,
 * and the `capacity` likeliest tokens, at most n, go to `top` (which may be NULL when capacity is 0), the likeliest
 * first, of equally likely ones those with the lowest ids. */
SETUN_API setun_status setun_logprobs(const float *logits, size_t n, setun_token id, double *value, setun_logprob *top,
                                      size_t capacity, setun_error *error);

/* ---- generating -------------------------------------------------------------------------------------------- */

/* Texts that end a text: finds the first of them in text that comes in pieces, whatever the pieces, and holds back what
 * may become one, so that nothing of it is ever shown. It belongs to one thread at a time. */
typedef struct setun_stops setun_stops;

/* `n` texts of UTF-8, 1 byte or more each, with a 0 byte at their end; they are copied. Without any, text passes. */
SETUN_API setun_status setun_stops_new(const char *const *texts, size_t n, setun_stops **stops, setun_error *error);
SETUN_API void setun_stops_free(setun_stops *stops);
/* Adds a piece of whole UTF-8 characters. *text and *length are what is certain not to belong to a stop text, possibly
 * nothing; they are valid until the next call. *found is whether one is complete: then no more text comes out until
 * setun_stops_finish. Of several the one that is complete first counts, of those the longest. */
SETUN_API setun_status setun_stops_push(setun_stops *stops, const char *piece, size_t piece_length, const char **text,
                                        size_t *length, bool *found, setun_error *error);
/* What was held back, at the end of the text: nothing where a stop text was found. The object is then as new. */
SETUN_API setun_status setun_stops_finish(setun_stops *stops, const char **text, size_t *length, setun_error *error);

typedef enum setun_end {
  SETUN_END_TOKEN,   /* the model drew a token that ends a text */
  SETUN_END_STOP,    /* a stop text was found */
  SETUN_END_LENGTH,  /* max_tokens were drawn */
  SETUN_END_CONTEXT, /* the context is full */
  SETUN_END_CALLER   /* on_text returned false */
} setun_end;

/* "token", "stop", "length", "context", "caller"; NULL: no setun_end. */
SETUN_API const char *setun_end_name(setun_end end);

/* Receives new text, whole UTF-8 characters, valid during the call; false ends the text. */
typedef bool (*setun_text_fn)(const char *text, size_t length, void *user);

typedef struct setun_generate_params {
  size_t size;              /* of this struct */
  uint64_t max_tokens;      /* 0: as many as fit into the context */
  const char *const *stops; /* n_stops texts, as for setun_stops_new */
  size_t n_stops;
  bool ignore_end;       /* tokens that end a text do not */
  int decode_flags;      /* as for setun_decoder_new; the default is SETUN_DECODE_CONTINUES */
  setun_text_fn on_text; /* NULL: the text is not wanted */
  void *user;
} setun_generate_params;

SETUN_PARAMS(setun_generate_params)

typedef struct setun_generate_result {
  size_t size; /* of this struct */
  setun_end end;
  uint64_t n_tokens; /* that were drawn, one that ended the text included */
} setun_generate_result;

/* Text that continues the session's: draws tokens and evaluates them until one of the ends above. The session must have
 * logits (see setun_session_logits): evaluate the prompt first, and let the sampler accept it where penalties are to
 * see it. Afterwards the session and the sampler have every token drawn but one that ended the text, and the session
 * has logits where its context is not full. setun_session_stop makes it fail with SETUN_ERROR_CANCELED; the session
 * then has the tokens whose evaluation was finished. `result` may be NULL. */
SETUN_API setun_status setun_generate(setun_session *session, setun_sampler *sampler,
                                      const setun_generate_params *params, setun_generate_result *result,
                                      setun_error *error);

/* ---- chat -------------------------------------------------------------------------------------------------- */

/* The bytes [begin, end) of a text. */
typedef struct setun_span {
  size_t begin, end;
} setun_span;

/* A chat template, compiled: what turns a conversation into the text that a model was trained on. Immutable: any
 * number of threads may render it at once. */
typedef struct setun_chat setun_chat;

typedef struct setun_chat_params {
  size_t size;      /* of this struct */
  const char *text; /* a template to use instead of the model's own; NULL: the model's */
  size_t length;
  const char *name; /* with `text`: what messages call it. Without: which of the model's named templates, NULL: the
                     * one for conversations with tools where `tools` says so and there is one, else the default */
  bool tools;
  setun_log_fn log; /* told when the model's own template is missing or known to be wrong, and what stands in for it */
  void *user;
} setun_chat_params;

SETUN_PARAMS(setun_chat_params)

/* Takes the template from the model's files: the GGUF keys tokenizer.chat_template and tokenizer.chat_template.NAME;
 * or chat_template.jinja, additional_chat_templates/NAME.jinja, tokenizer_config.json, chat_template.json. One that is
 * missing, or known not to be what the model was trained with, is replaced by its family's where that is known, which
 * the log is told; otherwise it is an error. `model` may be NULL where `text` is given; it must outlive the chat.
 * `params` may be NULL. The caller frees *chat with setun_chat_free. */
SETUN_API setun_status setun_chat_new(const setun_model *model, const setun_chat_params *params, setun_chat **chat,
                                      setun_error *error);
SETUN_API void setun_chat_free(setun_chat *chat);
/* Where the template came from: "tokenizer.chat_template", "chat_template.jinja", ...; lives as long as the chat. */
SETUN_API const char *setun_chat_origin(const setun_chat *chat);
/* Experimental. The template itself, *length bytes and a 0 byte; lives as long as the chat. */
SETUN_API const char *setun_chat_text(const setun_chat *chat, size_t *length);

/* The clock on the wall that a template may ask for. */
typedef struct setun_clock {
  int year, month, day, hour, minute, second; /* 2026, 1..12, 1..31, 0..23, 0..59, 0..60 */
} setun_clock;

/* A conversation as text. It belongs to one thread at a time; its chat and that one's model must outlive it. */
typedef struct setun_rendering setun_rendering;

/* Renders a JSON object of the template's variables: "messages", "tools", "add_generation_prompt", ... The tokenizer's
 * bos_token, eos_token and unk_token are added where the object has none. `now` NULL: the local time. What the template
 * itself refuses (raise_exception) is SETUN_ERROR_ARGUMENT with its words. The caller frees *rendering with
 * setun_rendering_free. */
SETUN_API setun_status setun_chat_render(const setun_chat *chat, const char *context, size_t length,
                                         const setun_clock *now, setun_rendering **rendering, setun_error *error);
SETUN_API void setun_rendering_free(setun_rendering *rendering);
/* The text, *length bytes and a 0 byte; lives as long as the rendering. */
SETUN_API const char *setun_rendering_text(const setun_rendering *rendering, size_t *length);
/* Its parts that came out of the context rather than out of the template, in rising order. */
SETUN_API const setun_span *setun_rendering_spans(const setun_rendering *rendering, size_t *count);
/* Its tokens, as setun_tokenize gives them: the template's own control tokens are recognized, and what looks like one
 * in a part that came out of the context stays text. BOS stands in front, once, where the tokenizer or the template
 * wants it. */
SETUN_API setun_status setun_rendering_tokenize(const setun_rendering *rendering, setun_token *ids, size_t capacity,
                                                size_t *count, setun_error *error);

/* What a part of a model's answer is for. */
typedef enum setun_channel {
  SETUN_CHANNEL_CONTENT,    /* the answer */
  SETUN_CHANNEL_REASONING,  /* thoughts that lead to it, left out of later turns */
  SETUN_CHANNEL_COMMENTARY, /* what a Harmony model tells the user between calls of tools */
  SETUN_CHANNEL_CALL        /* the arguments of a call of a tool in a Harmony model */
} setun_channel;

/* "content", "reasoning", "commentary", "call"; NULL: no setun_channel. */
SETUN_API const char *setun_channel_name(setun_channel channel);

/* Tells the channels of an answer apart while its tokens come: <think> blocks and their like, and the channels of the
 * Harmony format (gpt-oss). It belongs to one thread at a time. */
typedef struct setun_reply setun_reply;

/* Receives text of a channel, whole UTF-8 characters, valid during the call; false asks to stop. */
typedef bool (*setun_reply_fn)(setun_channel channel, const char *text, size_t length, void *user);

/* For the answer to a rendered conversation, which says whether the answer begins inside of a block. */
SETUN_API setun_status setun_reply_new(const setun_rendering *prompt, setun_reply **reply, setun_error *error);
SETUN_API void setun_reply_free(setun_reply *reply);
/* Takes the next token. Control tokens are never part of the text. After `fn` returned false: SETUN_ERROR_CANCELED. */
SETUN_API setun_status setun_reply_push(setun_reply *reply, setun_token id, setun_reply_fn fn, void *user,
                                        setun_error *error);
/* Gives what was held back, at the end of the answer. */
SETUN_API setun_status setun_reply_finish(setun_reply *reply, setun_reply_fn fn, void *user, setun_error *error);

/* ---- inspection -------------------------------------------------------------------------------------------- */

/* What is in a model's files, without loading them. Also a bare .gguf or .safetensors without a known architecture. */
typedef struct setun_file setun_file;

typedef struct setun_tensor_info {
  size_t size;               /* of this struct */
  const char *name, *format; /* as in the file; "q4_1", "hf-u8", ... ; live as long as the file */
  int n_dims;
  uint64_t dims[4]; /* of the stored tensor, slowest first, as rows by columns */
  uint64_t offset, bytes;
  uint32_t part; /* which of the files */
} setun_tensor_info;

typedef struct setun_file_params {
  size_t size;                    /* of this struct */
  const char *assume;             /* how to read a tensor type whose id is ambiguous, as in setun_model_params */
  const char *const *ignore_keys; /* keys to take for absent, as in setun_model_params */
  size_t n_ignore_keys;
  setun_log_fn log;
  void *user;
} setun_file_params;

SETUN_PARAMS(setun_file_params)

/* The caller frees *file with setun_file_close. */
SETUN_API setun_status setun_file_open(const char *path, const setun_file_params *params, setun_file **file,
                                       setun_error *error);
SETUN_API void setun_file_close(setun_file *file);

typedef struct setun_file_info {
  size_t size;              /* of this struct */
  const char *architecture; /* as the file spells it, "llama"; NULL: it does not say; lives as long as the file */
  const char *container;    /* "gguf", "huggingface" or "safetensors" */
  uint64_t n_params;        /* weights: packed ones as many as they stand for, scales and the like not counted */
  uint64_t bytes;           /* of all tensors, as stored */
  uint32_t n_parts;         /* files that hold tensors */
} setun_file_info;

SETUN_API setun_status setun_file_get_info(const setun_file *file, setun_file_info *info, setun_error *error);
SETUN_API size_t setun_file_tensor_count(const setun_file *file);
SETUN_API setun_status setun_file_tensor(const setun_file *file, size_t index, setun_tensor_info *info,
                                         setun_error *error);
/* The metadata: *key and *value (as text, long arrays shortened) live as long as the file. */
SETUN_API size_t setun_file_meta_count(const setun_file *file);
SETUN_API setun_status setun_file_meta(const setun_file *file, size_t index, const char **key, const char **value,
                                       setun_error *error);
/* The same value whole as JSON text, numbers as numbers: writes its first `capacity` bytes to `text` (which may be NULL
 * when capacity is 0), without a 0 byte, and the number that there are in all to *length. */
SETUN_API setun_status setun_file_meta_json(const setun_file *file, size_t index, char *text, size_t capacity,
                                            size_t *length, setun_error *error);
/* Reads `name` (a tensor, or a module whose quantized weight is stored in several tensors) as float32: its shape,
 * slowest dimension first, goes to dims[0..*n_dims-1]; `data` may be NULL to ask for the shape alone, otherwise
 * holds `capacity` floats. Rows are in the model's order. */
SETUN_API setun_status setun_file_read(const setun_file *file, const char *name, int *n_dims, uint64_t dims[4],
                                       float *data, size_t capacity, setun_error *error);

/* What a user should know of how the file was read, one line each: which layout an ambiguous type id was taken for, and
 * why. They live as long as the file. */
SETUN_API size_t setun_file_notice_count(const setun_file *file);
SETUN_API const char *setun_file_notice(const setun_file *file, size_t index); /* NULL beyond the last */

/* Reads a whole tensor and looks for bytes that hold an invalid code, and for scales and floats that are not finite.
 * *offset is the first such byte's place in the tensor, -1: there is none. Tensors of integers give -1. */
SETUN_API setun_status setun_file_check(const setun_file *file, size_t index, int64_t *offset, setun_error *error);

typedef struct setun_tensor_zeros {
  size_t size;                    /* of this struct */
  uint64_t weights, zeros;        /* weights 0: the tensor is not ternary */
  uint64_t columns, zero_columns; /* zero_columns: those that are zero in every row */
} setun_tensor_zeros;

/* Counts the zeros of a ternary tensor (of latent weights: once quantized). */
SETUN_API setun_status setun_file_zeros(const setun_file *file, size_t index, setun_tensor_zeros *zeros,
                                        setun_error *error);

/* ---- conversion --------------------------------------------------------------------------------------------- */

typedef struct setun_convert_params {
  size_t size; /* of this struct */
  /* The layout of the ternary weights: "t2", "t5", "t16", "i2_s", "i2_s-arm", "i2_s-x4", "tq1_0", "tq2_0", "q2_0",
   * "q2_0-128", "pq2_0", "ptq1_0", "iq1_bn", "iq2_bn" in a GGUF file; "hf-u8", "hf-u8-div" in a directory; "f32",
   * "f16", "bf16" in both, which quantized weights become too, where every value is exact in them, and the matrices of
   * a model that has floats alone. */
  const char *to;
  /* The embedding's and the head's format: "keep", "f32", "f16", "bf16", "q8_0", "q6_k"; NULL: floats where `to` is
   * such and they are quantized, else as "keep". All but "keep" may lose information. A head that is the embedding is
   * one tensor, which either names (`embedding` first). */
  const char *embedding, *head;
  const char *experts; /* "split" or NULL: a tensor an expert and matrix; "stacked": one 3-D tensor a matrix */
  const char *assume;  /* how to read a tensor type whose id is ambiguous, as in setun_model_params */
  const char *const *ignore_keys; /* keys to take for absent, as in setun_model_params */
  size_t n_ignore_keys;
  bool round_scales; /* scales that the layout cannot hold become the nearest, or the mean, instead of an error */
  setun_log_fn log;
  setun_progress_fn progress;
  void *user;
} setun_convert_params;

SETUN_PARAMS(setun_convert_params)

/* Converts a model to another container or layout, exactly: the same trits, and scales of the same float32 value; what
 * cannot be is refused, naming the tensor, the reason and layouts that fit, before any output exists. `target` is a
 * GGUF file when its name ends in ".gguf", replacing one that is there, and otherwise a directory, which must not exist
 * or be empty. It appears when it is whole; on failure it is as it was. Takes some ten MiB whatever the model's size.
 */
SETUN_API setun_status setun_convert(const char *source, const char *target, const setun_convert_params *params,
                                     setun_error *error);

/* ---- synthetic models (experimental) ---------------------------------------------------------------------- */

/* A model of a well-known shape with random weights and a placeholder vocabulary: as large and as fast as the
 * real one, to measure with. Its text means nothing. */
typedef struct setun_synthesis_params {
  size_t size;       /* of this struct */
  const char *shape; /* one of SETUN_CHOICE_SHAPE: "2b4t" is BitNet b1.58 2B-4T, "8b" is Llama 3 8B */
  /* Of the layers' matrices: a layout that setun_convert writes to GGUF, or "q8_0", "q6_k", "q5_0", "q5_1", "q4_0",
   * "q4_1". All hold the same trits times one scale a tensor, value formats as near as they can. */
  const char *format;
  const char *head; /* of the embedding and the head, likewise; NULL: "f16" */
  uint64_t seed;    /* the same seed gives the same weights in every format */
  int threads;      /* for writing; 0: as many as suit the machine */
  setun_progress_fn progress;
  void *user;
} setun_synthesis_params;

SETUN_PARAMS(setun_synthesis_params)
/* Writes a GGUF file, whole or not at all. Takes some MiB whatever the model's size. */
SETUN_API setun_status setun_synthesize(const char *path, const setun_synthesis_params *params, setun_error *error);
/* The same as writing the file and loading it with `model_params` (which may be NULL), without the file: weights are
 * made while they go to their place, and all stay in memory. Progress is that of `model_params`. */
SETUN_API setun_status setun_model_load_synthetic(const setun_synthesis_params *params,
                                                  const setun_model_params *model_params, setun_model **model,
                                                  setun_error *error);
/* The plan of such a model, as setun_model_plan's. */
SETUN_API setun_status setun_model_plan_synthetic(const setun_synthesis_params *params,
                                                  const setun_model_params *model_params, setun_plan *plan,
                                                  setun_error *error);

/* ---- benchmarks (experimental) ---------------------------------------------------------------------------- */

/* This machine's own ceilings, all `threads` at once. Takes some seconds. */
typedef struct setun_ceilings {
  size_t size;             /* of this struct */
  double read_bytes_per_s; /* the fastest plain read of a buffer far larger than the caches */
  double int8_macs_per_s;  /* int8 multiply-adds from registers, with the instruction set's best instruction */
  double float_macs_per_s; /* float32 likewise */
} setun_ceilings;

/* `isa` as in setun_model_params; `buffer_bytes` 0: enough; fewer where the system has no more available. */
SETUN_API setun_status setun_measure_ceilings(const char *isa, int threads, uint64_t buffer_bytes,
                                              setun_ceilings *ceilings, setun_error *error);
/* How fast the disk that holds a model's files reads past the page cache: about `total_bytes` of the largest file, into
 * buffers of `ring_bytes`. Read twice to know what a cache below the system holds. */
SETUN_API setun_status setun_measure_disk(const char *path, uint64_t ring_bytes, uint64_t total_bytes,
                                          double *bytes_per_s, setun_error *error);

/* ---- output files ------------------------------------------------------------------------------------------ */

/* A file that appears whole or not at all, as everything that this library writes: it is written beside its target and
 * renamed over it. The target's permissions stay; where it is a symbolic link, the link stays, and the file that it
 * leads to is replaced. Temporary files that killed processes left beside the target are removed. It belongs to one
 * thread at a time. */
typedef struct setun_output setun_output;

/* `path` leads to a regular file or to nothing yet. Then one of setun_output_commit and setun_output_discard ends it,
 * and frees it. */
SETUN_API setun_status setun_output_open(const char *path, setun_output **output, setun_error *error);
/* Writes `size` bytes that begin `offset` bytes after the file's start; what was never written is zeros. */
SETUN_API setun_status setun_output_write(setun_output *output, uint64_t offset, const void *bytes, size_t size,
                                          setun_error *error);
/* Syncs the file and renames it. On failure the target is as it was. */
SETUN_API setun_status setun_output_commit(setun_output *output, setun_error *error);
/* Removes what was written; nothing where `output` is NULL. */
SETUN_API void setun_output_discard(setun_output *output);

#ifdef __cplusplus
}
#endif

#endif
