// From a model's files to its tokenizer: which file or keys hold the vocabulary, and where ends of text are listed.
#ifndef SETUN_RUNTIME_VOCABULARY_H
#define SETUN_RUNTIME_VOCABULARY_H

#include "format/directory.h"
#include "tokenizer/tokenizer.h"

// GGUF: the tokenizer.ggml keys. A Hugging Face directory: tokenizer.json, else tokenizer.model, else vocab.json with
// merges.txt; then tokenizer_config.json or special_tokens_map.json, and the ids that config.json and
// generation_config.json list. `default_pre` is the split pattern of a GGUF file that names none (NULL: "default"), and
// of a vocab.json with merges.txt (NULL: an error). What is assumed goes to `log`, which may be NULL. The caller frees
// *tokenizer.
setun_status st_vocabulary_load(const st_directory *directory, const char *default_pre, const st_log *log,
                                st_tokenizer **tokenizer, setun_error *err);

// What loading the vocabulary will take in memory beside the directory, known from the count of a GGUF file's tokens or
// from the size of a directory's files: bytes that it takes in any case, and bytes that do.
typedef struct st_vocabulary_size {
  uint64_t least, enough;
} st_vocabulary_size;
st_vocabulary_size st_vocabulary_measure(const st_directory *directory);

// The same from a Hugging Face directory's tokenizer.model, whatever other files there are; *tokenizer stays as it is
// when there is none.
setun_status st_vocabulary_load_sentencepiece(const st_directory *directory, st_tokenizer **tokenizer,
                                              setun_error *err);

#endif
