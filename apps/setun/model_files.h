// Which of many files are models, their names, and which of them a word selects: shared by the hub and the store.
#ifndef SETUN_APP_MODEL_FILES_H
#define SETUN_APP_MODEL_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LABEL_SIZE = 256, CHECKSUM_SIZE = 65 };

typedef struct model_file {
  char *path; // path in the repository, with slashes
  uint64_t size;
  int64_t modified;             // seconds since 1970; 0: unknown
  char checksum[CHECKSUM_SIZE]; // see digest.h; "": unknown
} model_file;

// Zero-initialize.
typedef struct file_list {
  model_file *items;
  size_t count;
} file_list;

// Adds a file, whose path is copied. False after a report: out of memory.
bool add_file(file_list *list, const char *path, uint64_t size, int64_t modified, const char *checksum);
void free_files(file_list *list);

// Whether a name from outside is safe: components of letters, digits and ._-+=,@()~, none of which begins with a dot or
// a dash.
bool is_plain_path(const char *path, size_t components_most);

// The repository and the word after its colon (NULL: none) in "org/name:word". False: another form.
bool parse_model_name(const char *name, char repository[256], const char **selector);

// A model among files: a GGUF file, with its further parts, or config.json with safetensors.
typedef struct model_choice {
  const model_file *first; // the GGUF file (of a split one, its first part), or config.json
  uint32_t parts;          // number of parts of a GGUF file; 0: a directory
  uint64_t bytes;          // total of its files
  int64_t modified;        // the latest time of its files
  char label[LABEL_SIZE];  // "Q4_K_M", "safetensors", or the path if others have the same label
} model_choice;

// All complete models, in the order of the files; *choices is freed with free. False after a report: out of memory.
bool find_choices(const file_list *list, model_choice **choices, size_t *count);
// Whether a file belongs to a model.
bool is_file_of(const model_choice *c, const model_file *file);
// Moves those that `selector` selects (NULL: all) to the front: a file's path or name; else a label, case-insensitive;
// else the end of a name, or a folder. Returns their number.
size_t select_choices(model_choice *choices, size_t count, const char *selector);

#endif
