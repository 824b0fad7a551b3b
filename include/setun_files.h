/* The contents of a model's files, conversion between layouts, and files that are written completely or not at all. A
 * part of setun.h, which states the conventions. */
#ifndef SETUN_FILES_H
#define SETUN_FILES_H

#include "setun_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- inspection -------------------------------------------------------------------------------------------- */

/* The contents of a model's files, without loading them. Also for a bare .gguf or .safetensors without a known
 * architecture. */
typedef struct setun_file setun_file;

typedef struct setun_tensor_info {
  size_t size;               /* of this struct */
  const char *name, *format; /* name in the file; "q4_1", "hf-u8", ...; live as long as the file */
  int n_dims;
  uint64_t dims[4]; /* the stored tensor's, slowest first, as rows by columns */
  uint64_t offset, bytes;
  uint32_t part; /* index of the file */
} setun_tensor_info;

typedef struct setun_file_params {
  size_t size;                    /* of this struct */
  const char *assume;             /* how to read a tensor type whose id is ambiguous, as in setun_model_params */
  const char *const *ignore_keys; /* keys to treat as absent, as in setun_model_params */
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
  const char *architecture; /* as the file spells it, "llama"; NULL: unspecified; lives as long as the file */
  const char *container;    /* "gguf", "huggingface" or "safetensors" */
  uint64_t n_params;        /* number of weights, including each packed one; scales and the like are excluded */
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
/* The complete value as JSON text: writes its first `capacity` bytes to `text` (which may be NULL when capacity is 0),
 * without a 0 byte, and the total number of bytes to *length. */
SETUN_API setun_status setun_file_meta_json(const setun_file *file, size_t index, char *text, size_t capacity,
                                            size_t *length, setun_error *error);
/* Reads `name` (a tensor, or a module whose quantized weight is stored in several tensors) as float32. Writes its
 * shape, slowest dimension first, to dims[0..*n_dims-1]; `data` may be NULL to request only the shape, otherwise it has
 * room for `capacity` floats. Rows are in the model's order. */
SETUN_API setun_status setun_file_read(const setun_file *file, const char *name, int *n_dims, uint64_t dims[4],
                                       float *data, size_t capacity, setun_error *error);

/* Notices about how the file was read, one line each: such as the layout assumed for an ambiguous type id, and why.
 * They live as long as the file. */
SETUN_API size_t setun_file_notice_count(const setun_file *file);
SETUN_API const char *setun_file_notice(const setun_file *file, size_t index); /* NULL past the last */

/* Reads a whole tensor and looks for bytes with an invalid code, and for scales and floats that are not finite. *offset
 * is the offset in the tensor of the first such byte, or -1. Tensors of integers: -1. */
SETUN_API setun_status setun_file_check(const setun_file *file, size_t index, int64_t *offset, setun_error *error);

typedef struct setun_tensor_zeros {
  size_t size;                    /* of this struct */
  uint64_t weights, zeros;        /* weights 0: the tensor is not ternary */
  uint64_t columns, zero_columns; /* zero_columns: columns that are zero in every row */
} setun_tensor_zeros;

/* Counts the zeros of a ternary tensor (for latent weights: after quantization). */
SETUN_API setun_status setun_file_zeros(const setun_file *file, size_t index, setun_tensor_zeros *zeros,
                                        setun_error *error);

/* ---- conversion --------------------------------------------------------------------------------------------- */

typedef struct setun_convert_params {
  size_t size; /* of this struct */
  /* The layout of the ternary weights: "t2", "t5", "t16", "i2_s", "i2_s-arm", "i2_s-x4", "tq1_0", "tq2_0", "q2_0",
   * "q2_0-128", "pq2_0", "ptq1_0", "iq1_bn", "iq2_bn", "stq1_0" in a GGUF file; "hf-u8", "hf-u8-div" in a directory;
   * "f32", "f16", "bf16" in both, which also apply to quantized weights if every value is exact, and to the matrices of
   * a model with only floats. */
  const char *to;
  /* The embedding's and the head's format: "keep", "f32", "f16", "bf16", "q8_0", "q6_k"; NULL: floats if `to` is a
   * float format and they are quantized, else as "keep". All except "keep" may lose information. A tied head and its
   * embedding are one tensor, for which either applies (`embedding` first). */
  const char *embedding, *head;
  const char *experts; /* "split" or NULL: one tensor per expert and matrix; "stacked": one 3-D tensor per matrix */
  const char *assume;  /* how to read a tensor type whose id is ambiguous, as in setun_model_params */
  const char *const *ignore_keys; /* keys to treat as absent, as in setun_model_params */
  size_t n_ignore_keys;
  bool round_scales; /* replace scales that the layout cannot hold by the nearest, or the mean, instead of failing */
  setun_log_fn log;
  setun_progress_fn progress;
  void *user;
  bool unrotate; /* transform matrices in a rotated basis (prism.hadamard.*) to floats in the original one, rounded
                    once: with `to` "f32", or "f16" and "bf16" if every value is exact. Otherwise the basis is kept */
  bool deltas;   /* with `to` "t16" and split experts: differences between experts of a layer beside them, where they
                    take less than an expert; they save reading where experts do not fit into memory. Takes the memory
                    of a layer's experts */
} setun_convert_params;

SETUN_PARAMS(setun_convert_params)

/* Converts a model to another container or layout, exactly: the same trits, and scales of the same float32 value; what
 * cannot be converted is refused before any output exists, with the tensor, the reason and suitable layouts. `target`
 * is a GGUF file when its name ends in ".gguf", replacing an existing one, and otherwise a directory, which must not
 * exist or be empty. It appears when it is complete; on failure it is unchanged. Takes about ten MiB of memory, for any
 * model size. */
SETUN_API setun_status setun_convert(const char *source, const char *target, const setun_convert_params *params,
                                     setun_error *error);

/* ---- output files ------------------------------------------------------------------------------------------ */

/* A file that is written completely or not at all, like everything that this library writes: it is written next to its
 * target and then renamed. The target's permissions are kept; if it is a symbolic link, the link is kept and the file
 * that it points to is replaced. Temporary files of killed processes next to the target are removed. It belongs to one
 * thread at a time. */
typedef struct setun_output setun_output;

/* `path` is a regular file or does not exist yet. End with setun_output_commit or setun_output_discard; both free
 * it. */
SETUN_API setun_status setun_output_open(const char *path, setun_output **output, setun_error *error);
/* Writes `size` bytes at `offset` from the file's start; gaps are zeros. */
SETUN_API setun_status setun_output_write(setun_output *output, uint64_t offset, const void *bytes, size_t size,
                                          setun_error *error);
/* Syncs the file and renames it. On failure the target is unchanged. */
SETUN_API setun_status setun_output_commit(setun_output *output, setun_error *error);
/* Removes what was written; does nothing if `output` is NULL. */
SETUN_API void setun_output_discard(setun_output *output);

#ifdef __cplusplus
}
#endif

#endif
