// From a model's files to its tokenizer: the file or keys with the vocabulary, and those that list ends of text.
#ifndef SETUN_RUNTIME_VOCABULARY_H
#define SETUN_RUNTIME_VOCABULARY_H

#include "format/directory.h"
#include "tokenizer/tokenizer.h"

// GGUF: the tokenizer.ggml keys. A Hugging Face directory: tokenizer.json, else tokenizer.model, else vocab.json with
// merges.txt; then tokenizer_config.json or special_tokens_map.json, and the ids in config.json and
// generation_config.json. `default_pre` is the split pattern of a GGUF file that names none (NULL: "default"), and of a
// vocab.json with merges.txt (NULL: an error). Assumptions are reported to `log`, which may be NULL. The caller frees
// *tokenizer.
setun_status st_vocabulary_load(const st_directory *directory, const char *default_pre, const st_log *log,
                                st_tokenizer **tokenizer, setun_error *err);

// The memory that loading the vocabulary will take in addition to the directory, from the number of a GGUF file's
// tokens or the size of a directory's files: bytes that it takes at least, and bytes that suffice.
typedef struct st_vocabulary_size {
  uint64_t least, enough;
} st_vocabulary_size;
st_vocabulary_size st_vocabulary_measure(const st_directory *directory);

// The same from a Hugging Face directory's tokenizer.model, whatever other files there are; *tokenizer is unchanged
// when there is none.
setun_status st_vocabulary_load_sentencepiece(const st_directory *directory, st_tokenizer **tokenizer,
                                              setun_error *err);

#endif
