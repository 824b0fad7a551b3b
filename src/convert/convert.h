// Conversion from any container and layout to any other, exactly: a plan that refuses what cannot be done before any
// output exists, then the header, then the weights, strip by strip.
#ifndef SETUN_CONVERT_CONVERT_H
#define SETUN_CONVERT_CONVERT_H

#include "base/log.h"
#include "format/directory.h"
#include "format/gguf_keys.h"

typedef struct st_convert_options {
  const st_format *to;               // of ternary matrices; or f32, f16, bf16
  bool divides;                      // hf-u8 with scales that divide
  const st_format *embedding, *head; // NULL: kept
  bool stacked;                      // experts in one 3-D tensor, instead of one by one
  bool round_scales;
  const st_log *log;
  setun_progress_fn progress; // may be NULL
  void *user;
  // Of the source's tokenizer, for the container that does not take it over as it is: keys for GGUF, the texts of
  // tokenizer.json and tokenizer_config.json for a directory; NULL: nothing (GGUF to GGUF keeps its keys, a directory
  // its files).
  const st_keys *tokenizer_keys;
  const st_buffer *tokenizer_json, *tokenizer_config;
} st_convert_options;

// Writes `target`: a GGUF file when its name ends in .gguf, otherwise a directory, which must not exist or be empty. It
// appears when it is whole; on failure it is as it was.
setun_status st_convert(const st_directory *source, const char *target, const st_convert_options *options,
                        setun_error *err);

#endif
