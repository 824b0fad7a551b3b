/* What is in a model's files, conversion between layouts, and files that appear whole or not at all. A part of setun.h,
 * which states the conventions. */
#ifndef SETUN_FILES_H
#define SETUN_FILES_H

#include "setun_api.h"

#ifdef __cplusplus
extern "C" {
#endif

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
  uint64_t n_params;        /* weights, packed ones counted one by one; scales and the like are not counted */
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
   * "q2_0-128", "pq2_0", "ptq1_0", "iq1_bn", "iq2_bn", "stq1_0" in a GGUF file; "hf-u8", "hf-u8-div" in a directory;
   * "f32", "f16", "bf16" in both, which quantized weights become too, where every value is exact in them, and the
   * matrices of a model that has floats alone. */
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
  bool unrotate; /* matrices in a rotated basis (prism.hadamard.*) become floats in their own, rounded once: with `to`
                    "f32", or "f16" and "bf16" where every value is exact in them. Otherwise the basis is kept */
} setun_convert_params;

SETUN_PARAMS(setun_convert_params)

/* Converts a model to another container or layout, exactly: the same trits, and scales of the same float32 value; what
 * cannot be is refused, naming the tensor, the reason and layouts that fit, before any output exists. `target` is a
 * GGUF file when its name ends in ".gguf", replacing one that is there, and otherwise a directory, which must not exist
 * or be empty. It appears when it is whole; on failure it is as it was. Takes some ten MiB whatever the model's size.
 */
SETUN_API setun_status setun_convert(const char *source, const char *target, const setun_convert_params *params,
                                     setun_error *error);

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
