// The store: the folder where pulled models lie, and what is in it.
#ifndef SETUN_APP_STORE_H
#define SETUN_APP_STORE_H

#include "model_files.h"

typedef struct stored_model {
  char *name;       // by which commands find it: "org/name" where it is the only one there, else "org/name:Q4_K_M"
  char *path;       // of its GGUF file (of a split one, its first part), or of its directory
  char *folder;     // that its files lie in or below
  char *repository; // "org/name"; "" of files that lie in the store itself
  model_choice choice;
} stored_model;

// Zero-initialize.
typedef struct store {
  char *folder;
  stored_model *models; // by name
  size_t count;
  struct repository_files *repositories; // own the files that choices name
  size_t n_repositories;
} store;

// The store's folder: `given`, else $XDG_DATA_HOME/setun/models, else ~/.local/share/setun/models. Freed with free.
// NULL after a report.
char *store_folder(const char *given);
// What is in a store; nothing where its folder does not exist. False after a report.
bool store_open(const char *given, store *s);
void store_close(store *s);
// Moves the models that `name` means ("org/name", "org/name:Q4_K_M", "org/name:file.gguf") to the front, and returns
// how many these are. `all`: with "org/name" every model of that repository.
size_t store_find(store *s, const char *name);
// The files of a model: calls `each` with their paths, the one that makes it a model last. False where that was said by
// `each`, or after a report.
bool store_each_file(const store *s, const stored_model *m, bool (*each)(const char *path, void *user), void *user);

// The path that a command's MODEL means: itself where there is such a file, or where it is not the name of a model;
// else that of the model in the store, valid until the program ends. NULL after a report.
const char *resolve_model(const char *word);

// "folder/name", freed with free. NULL after a report: out of memory.
char *join_path(const char *folder, const char *name);

#endif
