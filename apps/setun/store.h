// The store: the folder of pulled models, and its contents.
#ifndef SETUN_APP_STORE_H
#define SETUN_APP_STORE_H

#include "model_files.h"

typedef struct stored_model {
  char *name;       // name for commands: "org/name" if it is the only one there, else "org/name:Q4_K_M"
  char *path;       // path of its GGUF file (for a split one, the first part), or of its directory
  char *folder;     // folder that contains its files
  char *repository; // "org/name"; "" for files directly in the store
  model_choice choice;
} stored_model;

// Zero-initialize.
typedef struct store {
  char *folder;
  stored_model *models; // by name
  size_t count;
  struct repository_files *repositories; // owns the files that choices refer to
  size_t n_repositories;
} store;

// The store's folder: `given`, else $XDG_DATA_HOME/setun/models, else ~/.local/share/setun/models. Freed with free.
// NULL after a report.
char *store_folder(const char *given);
// Reads a store; empty if its folder does not exist. False after a report.
bool store_open(const char *given, store *s);
void store_close(store *s);
// Moves the models that match `name` ("org/name", "org/name:Q4_K_M", "org/name:file.gguf") to the front, and returns
// their number. `all`: "org/name" matches every model of that repository.
size_t store_find(store *s, const char *name);
// Calls `each` with the paths of a model's files, the main file last. False if `each` returned false, or after a
// report.
bool store_each_file(const store *s, const stored_model *m, bool (*each)(const char *path, void *user), void *user);

// The path for a command's MODEL: unchanged if the file exists, or if it cannot be a model's name; else the path of the
// model in the store, valid until the program ends. NULL after a report.
const char *resolve_model(const char *word);

// "folder/name", freed with free. NULL after a report: out of memory.
char *join_path(const char *folder, const char *name);

#endif
