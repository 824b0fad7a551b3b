// Exact conversion from any container and layout to any other. What cannot be converted is refused before any output
// exists; then the header is written, then the weights, strip by strip.
#ifndef SETUN_CONVERT_CONVERT_H
#define SETUN_CONVERT_CONVERT_H

#include "base/log.h"
#include "format/directory.h"
#include "format/gguf_keys.h"
#include "model/arch.h"
#include "source/weight.h"

// A lossy step of a conversion: chooses formats for the layers' matrices, and encodes their rows. `name` is that of the
// target's tensor, and lives as long as the conversion. Matrices that are ternary already are not encoded as ternary
// ones again: they are converted exactly.
typedef struct st_quantizer {
  void *context;
  const st_format *(*format)(void *context, const char *name, st_shape shape); // NULL: the matrix is kept as it is
  // Where a matrix's format is specified, to begin an error about it with; false: in no file.
  bool (*origin)(void *context, const char *name, char *text, size_t size);
  setun_status (*encode)(void *context, const char *name, st_shape shape, const st_format *format, uint64_t row,
                         uint64_t count, const float *x, void *bytes, setun_error *err);
  // Ternary formats: int8 [count, columns], and a scale for each block of a row, or each row. Called twice for each
  // row: when everything is read to validate it, and when it is written.
  setun_status (*ternary)(void *context, const char *name, st_shape shape, const st_format *format, uint64_t row,
                          uint64_t count, const float *x, int8_t *trits, float *scales, setun_error *err);
  // Called when all formats are chosen; and when everything was validated and nothing is written yet.
  setun_status (*chosen)(void *context, setun_error *err);
  setun_status (*judge)(void *context, setun_error *err);
} st_quantizer;

typedef struct st_convert_options {
  const st_quantizer *quantizer;     // NULL: the conversion is exact; otherwise `to` is float32 and names no layout
  const st_format *to;               // for ternary matrices; or f32, f16, bf16, also for quantized ones
  bool divides;                      // hf-u8 with dividing scales
  const st_format *embedding, *head; // NULL: not specified, or they keep their formats
  bool keep_embedding, keep_head;
  bool stacked; // experts in one 3-D tensor instead of separate tensors
  bool round_scales;
  bool integers; // in a directory, zpB-G stay integers, as GPTQ's tensors; all with the same bits and groups
  bool deltas;   // differences between experts, where they are shorter than an expert, beside them
  bool unrotate; // matrices in a rotated basis become floats in the original one
  const st_log *log;
  setun_progress_fn progress; // may be NULL
  void *user;
  // The source's tokenizer, for a container that cannot copy it: keys for GGUF; for a directory a file (tokenizer.json
  // or tokenizer.model) and the text of tokenizer_config.json. NULL: nothing (GGUF to GGUF keeps its keys, a directory
  // its files).
  const st_keys *tokenizer_keys;
  const char *tokenizer_name;
  const st_buffer *tokenizer, *tokenizer_config;
} st_convert_options;

// Writes `target`: a GGUF file when its name ends in .gguf, otherwise a directory, which must not exist or be empty. It
// appears when it is complete; on failure it is unchanged.
setun_status st_convert(const st_directory *source, const char *target, const st_convert_options *options,
                        setun_error *err);

// The name of a matrix of a layer in a GGUF target, where each expert's is a tensor of its own; expert -1: of none.
// False: the family has none.
bool st_gguf_target_name(const st_spec *spec, st_role role, uint32_t layer, int32_t expert, char *name, size_t size);

// Whether a target with this name is a GGUF file.
bool st_is_gguf_name(const char *path);

// ---- scans of stored weights, also for inspection ---------------------------------------------------------

// Reads a whole stored tensor and looks for the first byte with an invalid code, or one that no writer produces:
// *offset is its offset in the tensor, or -1. Code 3 of the Q2_0 kinds counts as invalid only with `strict`. In value
// formats: half-precision scales that are not finite, and, unless `strict`, floats that are not.
setun_status st_check_tensor(const st_directory *d, const st_tensor *tensor, const st_format *format, st_shape stored,
                             bool strict, int64_t *offset, setun_error *err);

typedef struct st_zeros {
  uint64_t weights, zeros;
  uint64_t columns, zero_columns; // columns with only zeros
} st_zeros;

// Counts the zeros of a ternary weight.
setun_status st_count_zeros(const st_directory *d, const st_weight *weight, st_zeros *zeros, setun_error *err);

#endif
