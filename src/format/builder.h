// For the containers' readers, which fill a directory. Private to src/format.
#ifndef SETUN_FORMAT_BUILDER_H
#define SETUN_FORMAT_BUILDER_H

#include "format/directory.h"

// Limits on what a file may state. Real files stay far below them.
enum {
  ST_NAME_MOST = 256,                     // bytes of a key or of a tensor's name
  ST_GGUF_HEADER_MOST = 1 << 28,          // bytes before a GGUF file's tensor data
  ST_SAFETENSORS_HEADER_MOST = 100000000, // the format's own bound
  ST_CONFIG_MOST = 8 << 20,               // config.json, generation_config.json
  ST_INDEX_MOST = 64 << 20                // model.safetensors.index.json
};

typedef struct st_builder {
  st_directory *directory;
  size_t tensor_capacity;
  uint32_t part_capacity;
  const st_open_options *options; // never NULL
  const char *prefix;             // index by name of the tensors read; NULL: none
} st_builder;

// Opens a file as the directory's next part, with its index in *part. Parts may move: do not keep pointers.
setun_status st_builder_part(st_builder *b, const char *path, uint32_t *part, setun_error *err);
// Adds a copy of *tensor, whose name is copied too (`length` bytes, checked here: see st_name_check).
setun_status st_builder_tensor(st_builder *b, const st_tensor *tensor, const char *name, size_t length,
                               setun_error *err);

// Checks a key or a tensor's name: 1 to ST_NAME_MOST bytes of valid UTF-8 without control characters, so that it can be
// used in messages. `what` identifies the owner of the name ("tensor 12").
setun_status st_name_check(const char *name, size_t length, const char *what, setun_error *err);

// Checks that n_dims is 1 to 4 and each of dims[0..n_dims) at least 1, sets the unused ones to 1, and checks that the
// number of elements fits 63 bits. `name` is for messages.
setun_status st_dims_check(const char *name, uint64_t n_dims, uint64_t dims[4], setun_error *err);

// A type of numbers in safetensors: one of a value format ("F16"), or one that is known only by its size ("I32"). Its
// name as a constant and the bytes of a number; NULL and 0 for an unknown one.
const char *st_dtype_find(const char *name, uint32_t *bytes);
uint32_t st_dtype_bytes(const char *dtype);

// Hides the keys named in the options: see st_open_options.
setun_status st_ignore_keys(st_builder *b, setun_error *err);

setun_status st_gguf_open(st_builder *b, const char *path, setun_error *err);
setun_status st_safetensors_open(st_builder *b, const char *path, setun_error *err);
setun_status st_huggingface_open(st_builder *b, const char *path, setun_error *err);

// Reads the header of part `part` and adds its tensors: all if `map` is NULL, else those for which map[tensor] is the
// string `file`.
setun_status st_safetensors_read(st_builder *b, uint32_t part, const st_json *map, const char *file, setun_error *err);

// Whether it is the name of a file or folder in the same folder, not a path out of it.
bool st_is_plain_name(const char *name);

// Reads a Hugging Face directory's modules for sentence-transformers, with the weights of dense ones, and its prompts;
// does nothing if the directory has no such files. sentence.c
setun_status st_sentence_open(st_builder *b, setun_error *err);
setun_status st_sentence_open_prompts(st_builder *b, setun_error *err);
void st_sentence_free(st_directory *d);

// The error for weights that contain pickled Python objects.
setun_status st_fail_pickled(const char *path, setun_error *err);

#endif
