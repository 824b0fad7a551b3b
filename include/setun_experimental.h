/* Experimental: devices, synthetic models and benchmarks, which the promise of stability does not cover. A part of
 * setun.h, which states the conventions. */
#ifndef SETUN_EXPERIMENTAL_H
#define SETUN_EXPERIMENTAL_H

#include "setun_model.h"
#include "setun_session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- devices (experimental) ------------------------------------------------------------------------------- */

typedef struct setun_device_info {
  size_t size;           /* of this struct */
  uint64_t memory;       /* bytes that it can use; 0: unknown */
  char name[32];         /* "cpu", "vulkan:0": as in setun_model_params.device */
  char description[256]; /* as its driver calls it; of the CPU its instruction sets */
  char problem[256];     /* why it cannot be used; "": it can */
} setun_device_info;

/* A device of this machine, by index from 0 on: the CPU, then GPUs. SETUN_ERROR_LIMIT: past the last. */
SETUN_API setun_status setun_get_device(size_t index, setun_device_info *device_info, setun_error *error);

/* What a device did for one kind of operation since a session was made, counted by the library: how often it began one,
 * how often it waited for others first, and the bytes that it read and wrote, of each buffer once. */
typedef struct setun_device_work {
  size_t size; /* of this struct */
  uint64_t dispatches, barriers, read, written;
  char name[32];
} setun_device_work;

/* By index from 0 on; also what was submitted, and copied between the host and the device. SETUN_ERROR_LIMIT: past the
 * last; the CPU counts nothing. */
SETUN_API setun_status setun_session_get_device_work(const setun_session *session, size_t index,
                                                     setun_device_work *device_work, setun_error *error);
/* setun_session_eval for at least one token, then setun_sampler_sample with its logits. Of these only what the
 * sampler needs leaves a GPU: 4 bytes for the largest, or the top_k largest (at most 127) and one more, with their
 * indices, where nothing but these decides. Where only these left it, setun_session_logits is NULL afterwards. On an
 * error of the sampler the tokens remain evaluated. */
SETUN_API setun_status setun_session_eval_sample(setun_session *session, const setun_token *ids, size_t n,
                                                 setun_sampler *sampler, setun_token *id, setun_error *error);

/* ---- synthetic models (experimental) ---------------------------------------------------------------------- */

/* A model of a well-known shape with random weights and a placeholder vocabulary: as large and as fast as the real one,
 * for measurements. Its text is meaningless. */
typedef struct setun_synthesis_params {
  size_t size;       /* of this struct */
  const char *shape; /* one of SETUN_CHOICE_SHAPE: "2b4t" is BitNet b1.58 2B-4T, "8b" is Llama 3 8B */
  /* Format of the layers' matrices: a layout that setun_convert writes to GGUF, or "q8_0", "q6_k", "q5_0", "q5_1",
   * "q4_0", "q4_1". All hold the same trits times one scale per tensor, value formats as closely as they can. NULL: the
   * published "i2_s"; in setun_model_plan_synthetic "t16", which is streamed without a conversion. */
  const char *format;
  const char *head; /* format of the embedding and the head; NULL: "f16" */
  uint64_t seed;    /* the same seed gives the same weights in every format */
  int threads;      /* for writing; 0: as many as suit the machine */
  setun_progress_fn progress;
  void *user;
} setun_synthesis_params;

SETUN_PARAMS(setun_synthesis_params)
/* Writes a GGUF file, completely or not at all. Takes a few MiB of memory, for any model size. */
SETUN_API setun_status setun_synthesize(const char *path, const setun_synthesis_params *params, setun_error *error);
/* Equivalent to writing the file and loading it with `model_params` (which may be NULL), without the file: weights are
 * generated while loading, and all stay in memory. Progress is reported to `model_params`. */
SETUN_API setun_status setun_model_load_synthetic(const setun_synthesis_params *params,
                                                  const setun_model_params *model_params, setun_model **model,
                                                  setun_error *error);
/* The plan of such a model, like setun_model_plan. */
SETUN_API setun_status setun_model_plan_synthetic(const setun_synthesis_params *params,
                                                  const setun_model_params *model_params, setun_plan *plan,
                                                  setun_error *error);

/* ---- quantization (experimental) --------------------------------------------------------------------------- */

typedef struct setun_quantize_params {
  size_t size; /* of this struct */
  /* The format of the layers' matrices: one of SETUN_CHOICE_SCHEME; or NULL with `recipe`, the path of a text file of
   * lines "PATTERN = SCHEME" (names of GGUF tensors with * and ?; the first match applies; "keep" is a scheme).
   */
  const char *scheme, *recipe;
  const char *embedding, *head; /* as in setun_convert_params; NULL: kept */
  const char *assume;           /* as in setun_model_params, like the next two */
  const char *const *ignore_keys;
  size_t n_ignore_keys;
  setun_log_fn log;
  setun_progress_fn progress;
  void *user;
  /* A text file; NULL: none. The model reads windows of it, layer by layer, and each matrix is quantized for the inputs
   * that it gets: zpB-G and 2:4 formats by GPTQ, which takes from later columns what earlier ones miss, others with the
   * inputs' squares as importances. Needs the system's LAPACK and the model in memory. Each finished layer is written to
   * TARGET.layer-N, so that the same call goes on after an interruption; these files are removed at the end. */
  const char *calibration;
  uint32_t windows, window; /* how many, of how many tokens; 0: 128, and 2048 or the model's context if that is less */
  /* Ternary formats are for latent or ternary floats. Others are refused, with what they would lose, unless this is set. */
  bool force;
} setun_quantize_params;

SETUN_PARAMS(setun_quantize_params)
/* Writes a GGUF file of the model with fewer bits per weight or, where the target's name does not end in .gguf, a
 * Hugging Face directory with the tensors of GPTQ checkpoints (zpB-G, all with the same B and G): each weight becomes the nearest code, with the scales
 * that minimize the squared error; latent and ternary weights become ternary formats exactly. Norms, biases and routers are kept. A matrix whose rows are not a multiple of the
 * scheme's blocks is refused by name. The target appears when it is complete; on failure it is left unchanged. */
SETUN_API setun_status setun_quantize(const char *source, const char *target, const setun_quantize_params *params,
                                      setun_error *error);

/* ---- benchmarks (experimental) ---------------------------------------------------------------------------- */

/* This machine's ceilings, with all `threads` at once. Takes some seconds. */
typedef struct setun_ceilings {
  size_t size;             /* of this struct */
  double read_bytes_per_s; /* the fastest plain read of a buffer far larger than the caches */
  double int8_macs_per_s;  /* int8 multiply-adds from registers, with the instruction set's best instruction */
  double float_macs_per_s; /* the same for float32 */
} setun_ceilings;

/* `isa` as in setun_model_params; `buffer_bytes` 0: automatic; less if the system has less available. */
SETUN_API setun_status setun_measure_ceilings(const char *isa, int threads, uint64_t buffer_bytes,
                                              setun_ceilings *ceilings, setun_error *error);
/* The fastest plain read alone, in a fraction of a second: the speed of some machines changes within seconds, so a
 * measurement to compare with it is best taken between two of these. Arguments as above. */
SETUN_API setun_status setun_measure_read(const char *isa, int threads, uint64_t buffer_bytes, double *bytes_per_s,
                                          setun_error *error);
/* How fast the disk with a model's files reads past the page cache: about `total_bytes` of the largest file, into
 * buffers of `ring_bytes`. Call it twice to see the effect of a cache below the system. */
SETUN_API setun_status setun_measure_disk(const char *path, uint64_t ring_bytes, uint64_t total_bytes,
                                          double *bytes_per_s, setun_error *error);

#ifdef __cplusplus
}
#endif

#endif
