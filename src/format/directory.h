// The tensor directory: the result of every container's reader. It locates bytes; it does not read weights.
#ifndef SETUN_FORMAT_DIRECTORY_H
#define SETUN_FORMAT_DIRECTORY_H

#include "base/buffer.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "format/metadata.h"
#include "format/notices.h"
#include "quant/quant.h"

// One tensor as stored. dims[0] is the fastest dimension (K of a matrix), as in GGUF; unused ones are 1. Checked when
// read: every dim at least 1, n_dims 1 to 4 (0-dimensional safetensors become one element, and of those with more than
// 4 the slowest are merged), no product overflows, the bytes are inside the file and do not overlap another tensor's.
typedef struct st_tensor {
  char *name;
  const st_format *format; // NULL: a type known only by its size (integers, booleans), see `dtype`
  const char *dtype;       // as the container spells it: "BF16", "I32", "Q4_1"
  uint32_t n_dims;
  uint64_t dims[4];
  uint32_t part; // index of its file
  uint64_t offset, bytes;
} st_tensor;

typedef enum st_container { ST_GGUF, ST_SAFETENSORS, ST_HUGGINGFACE } st_container;

// The modules in sentence-transformers' modules.json, the steps from a text to an embedding.
typedef enum st_sentence_kind {
  ST_SENTENCE_TRANSFORMER, // the model itself
  ST_SENTENCE_POOLING,
  ST_SENTENCE_DENSE, // its tensors are in the directory, named "dense.N." and their own name
  ST_SENTENCE_NORMALIZE
} st_sentence_kind;

typedef struct st_sentence_module {
  st_sentence_kind kind;
  char *name;      // its folder, "" for the model's own
  st_json *config; // its config.json, for the model its sentence_bert_config.json; NULL: none
} st_sentence_module;

enum { ST_SENTENCE_MODULES = 8 };
#define ST_SENTENCE_CONFIG "config_sentence_transformers.json"

typedef struct st_directory {
  st_container container;
  char *path; // as the user gave it, for messages
  st_file *parts;
  uint32_t n_parts;
  st_tensor *tensors; // in the files' order
  size_t n_tensors;
  st_map *by_name;
  st_metadata metadata; // GGUF's keys; empty otherwise
  // How ambiguous types were read and why, and other notices; later readers of the files add to it.
  st_notices *notices;
  char **ignored; // keys treated as absent, as requested: "llama.logit_scale", "rope_scaling.factor"
  size_t n_ignored;
  // for Hugging Face directories; NULL otherwise or if the file is absent:
  st_json *config, *generation_config;
  st_json *sentence_config; // ST_SENTENCE_CONFIG
  st_sentence_module modules[ST_SENTENCE_MODULES];
  uint32_t n_modules; // 0: no modules.json
} st_directory;

typedef struct st_open_options {
  const char *assume; // how to read ambiguous types; NULL: by evidence
  const st_log *log;
  // Keys of GGUF's metadata or of config.json to treat as absent; "NAMESPACE.*" means all with this
  // prefix. Each is named in a notice, whether the file has it or not.
  const char *const *ignore_keys;
  size_t n_ignore_keys;
  // A GGUF file's bytes, instead of the file at the path, which is then only a name; NULL: none.
  const st_file_source *source;
  bool texts_only; // a Hugging Face directory needs neither config.json nor weights, and the path may be
                   // tokenizer.json itself
} st_open_options;

// Opens a GGUF file (for a split one, give the first part), a .safetensors file, or a directory with config.json and
// safetensors. The content decides, not the name. Freed with st_directory_free.
setun_status st_directory_open(const char *path, const st_open_options *options, st_directory **directory,
                               setun_error *err);
void st_directory_free(st_directory *directory);

// Removes a member of config.json or, with dots in the name, of an object in it, at the top level or in text_config;
// false: absent.
bool st_config_remove(st_json *config, const char *name);

// NULL when absent.
const st_tensor *st_directory_find(const st_directory *directory, const char *name);

static inline uint64_t st_tensor_elements(const st_tensor *t) {
  return t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
}

// The shape with all dimensions but the fastest as rows.
static inline st_shape st_tensor_shape(const st_tensor *t) {
  return (st_shape){.rows = t->dims[1] * t->dims[2] * t->dims[3], .columns = t->dims[0]};
}

// Whether some tensor's format is used only by models trained for int8 activations.
bool st_directory_has_int8_layouts(const st_directory *directory);

// "[2560, 6912]", slowest dimension first, for messages; written to `text`.
const char *st_tensor_dims_text(const st_tensor *tensor, char text[96]);

#endif
