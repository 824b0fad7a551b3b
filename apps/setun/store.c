// The store's folder, its models, and the models that names match.
#define _POSIX_C_SOURCE 200809L
#include "store.h"

#include "commands.h"
#include "output.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// The files of one repository, whose folder may have others below it.
typedef struct repository_files {
  char *name, *folder;
  file_list files;
  model_choice *choices;
  size_t n_choices;
} repository_files;

enum { DEPTH_MOST = 3 }; // of folders below a repository's

char *join_path(const char *folder, const char *name) {
  size_t size = strlen(folder) + strlen(name) + 2;
  char *path = malloc(size);
  if (path)
    snprintf(path, size, "%s%s%s", folder, *folder && *name ? "/" : "", name);
  else
    failure("out of memory for a path");
  return path;
}

char *store_folder(const char *given) {
  const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
  if (given) return join_path(given, "");
  if (data && *data == '/') return join_path(data, "setun/models");
  if (home && *home == '/') return join_path(home, ".local/share/setun/models");
  failure("neither HOME nor XDG_DATA_HOME is set: use --models DIR");
  return NULL;
}

// ---- reading the folders ----

static bool add_repository(store *s, const char *name, const char *folder, repository_files **made) {
  size_t n = s->n_repositories;
  repository_files *grown = realloc(s->repositories, (n + 1) * sizeof *grown);
  if (grown) {
    s->repositories = grown;
    grown[n] = (repository_files){.name = strdup(name), .folder = strdup(folder)};
    s->n_repositories++;
    if (grown[n].name && grown[n].folder) {
      *made = &grown[n];
      return true;
    }
  }
  failure("out of memory for the models in %s", s->folder);
  return false;
}

// The next entry of a folder that is not hidden, with its type. False: no more entries.
static bool next_entry(DIR *entries, const char *folder, char **name, char **path, struct stat *st, bool *fine) {
  for (struct dirent *e; *fine && (e = readdir(entries));) {
    if (e->d_name[0] == '.') continue;
    *name = e->d_name;
    if (!(*path = join_path(folder, e->d_name)))
      *fine = false;
    else if (!stat(*path, st))
      return true;
    else
      free(*path); // removed, or a dangling link
  }
  return false;
}

static bool open_folder(const char *path, DIR **entries) {
  if ((*entries = opendir(path)) || errno == ENOENT || errno == ENOTDIR) return true;
  failure("%s: cannot be read: %s", path, reason_of(errno));
  return false;
}

// Adds the contents of `folder`, and of folders below it, to a repository's files; `inside` is the path from the
// repository's folder.
static bool read_files(repository_files *r, const char *folder, const char *inside, int depth) {
  DIR *entries;
  char *name, *path;
  struct stat st;
  bool fine = open_folder(folder, &entries);
  while (fine && entries && next_entry(entries, folder, &name, &path, &st, &fine)) {
    char *below = join_path(inside, name);
    fine = below != NULL;
    if (fine && S_ISREG(st.st_mode)) fine = add_file(&r->files, below, (uint64_t)st.st_size, st.st_mtime, "");
    if (fine && S_ISDIR(st.st_mode) && depth > 1) fine = read_files(r, path, below, depth - 1);
    free(below);
    free(path);
  }
  if (entries) closedir(entries);
  return fine;
}

// Walks the folders of a store down to repositories: level 0 is the store itself, 1 an organization.
static bool read_folders(store *s, const char *folder, const char *name, int level) {
  DIR *entries;
  char *word, *path;
  struct stat st;
  repository_files *r;
  bool fine = add_repository(s, name, folder, &r) && read_files(r, folder, "", level == 2 ? DEPTH_MOST : 1);
  if (!fine || level == 2) return fine;
  fine = open_folder(folder, &entries);
  while (fine && entries && next_entry(entries, folder, &word, &path, &st, &fine)) {
    char *below = join_path(name, word);
    fine = below && (!S_ISDIR(st.st_mode) || read_folders(s, path, below, level + 1));
    free(below);
    free(path);
  }
  if (entries) closedir(entries);
  return fine;
}

// ---- its models ----

static char *name_of(const repository_files *r, const model_choice *c) {
  if (!*r->name) { // a file directly in the store is named by its file name
    char *name = join_path("", c->first->path);
    size_t n = name ? strlen(name) : 0;
    if (n > 5 && strcmp(name + n - 5, ".gguf") == 0) name[n - 5] = 0;
    return name;
  }
  if (r->n_choices == 1) return join_path("", r->name);
  size_t size = strlen(r->name) + strlen(c->label) + 2;
  char *name = malloc(size);
  if (name)
    snprintf(name, size, "%s:%s", r->name, c->label);
  else
    failure("out of memory for a name");
  return name;
}

static bool add_model(store *s, const repository_files *r, const model_choice *c) {
  stored_model *grown = realloc(s->models, (s->count + 1) * sizeof *grown);
  if (!grown) {
    failure("out of memory for the models in %s", s->folder);
    return false;
  }
  s->models = grown;
  grown[s->count] = (stored_model){.name = name_of(r, c),
                                   .path = join_path(r->folder, c->parts ? c->first->path : ""),
                                   .folder = r->folder,
                                   .repository = r->name,
                                   .choice = *c};
  stored_model *m = &grown[s->count++];
  return m->name && m->path;
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const stored_model *)a)->name, ((const stored_model *)b)->name);
}

bool store_open(const char *given, store *s) {
  if (!(s->folder = store_folder(given)) || !read_folders(s, s->folder, "", 0)) return false;
  for (size_t i = 0; i < s->n_repositories; i++) {
    repository_files *r = &s->repositories[i];
    if (!find_choices(&r->files, &r->choices, &r->n_choices)) return false;
    for (size_t j = 0; j < r->n_choices; j++) {
      if (!add_model(s, r, &r->choices[j])) return false;
    }
  }
  if (s->count) qsort(s->models, s->count, sizeof *s->models, by_name);
  return true;
}

void store_close(store *s) {
  for (size_t i = 0; i < s->count; i++) {
    free(s->models[i].name);
    free(s->models[i].path);
  }
  for (size_t i = 0; i < s->n_repositories; i++) {
    repository_files *r = &s->repositories[i];
    free_files(&r->files);
    free(r->choices);
    free(r->name);
    free(r->folder);
  }
  free(s->repositories);
  free(s->models);
  free(s->folder);
  *s = (store){0};
}

bool store_each_file(const store *s, const stored_model *m, bool (*each)(const char *path, void *user), void *user) {
  for (int last = 0; last < 2; last++) {
    for (size_t i = 0; i < s->n_repositories; i++) {
      const repository_files *r = &s->repositories[i];
      for (size_t j = 0; strcmp(r->name, m->repository) == 0 && j < r->files.count; j++) {
        const model_file *file = &r->files.items[j];
        if ((file == m->choice.first) != last || !is_file_of(&m->choice, file)) continue;
        char *path = join_path(r->folder, file->path);
        bool fine = path && each(path, user);
        free(path);
        if (!fine) return false;
      }
    }
  }
  return true;
}

// ---- names ----

// Moves the models, from `from` on, of a repository that match `selector` to the front; returns their number.
static size_t select_models(store *s, const char *repository, const char *selector) {
  size_t count = 0, kept = 0;
  for (size_t i = 0; i < s->count; i++) {
    if (strcmp(s->models[i].repository, repository)) continue;
    stored_model m = s->models[count];
    s->models[count++] = s->models[i];
    s->models[i] = m;
  }
  model_choice *choices = malloc((count + 1) * sizeof *choices);
  for (size_t i = 0; choices && i < count; i++) choices[i] = s->models[i].choice;
  size_t n = choices ? select_choices(choices, count, selector) : 0;
  for (size_t i = 0; i < count; i++) {
    bool means = false;
    for (size_t j = 0; j < n; j++) means = means || choices[j].first == s->models[i].choice.first;
    if (!means) continue;
    stored_model m = s->models[kept];
    s->models[kept++] = s->models[i];
    s->models[i] = m;
  }
  free(choices);
  return kept;
}

size_t store_find(store *s, const char *name) {
  char repository[256];
  const char *selector;
  for (size_t i = 0; i < s->count; i++) {
    if (strcmp(s->models[i].name, name)) continue;
    stored_model m = s->models[0];
    s->models[0] = s->models[i];
    s->models[i] = m;
    return 1;
  }
  return parse_model_name(name, repository, &selector) ? select_models(s, repository, selector) : 0;
}

// Whether a word can only be a path: a model's file name, or one with directories.
static bool is_path(const char *word) {
  static const char *const ends[] = {".gguf", ".safetensors", ".json"};
  size_t n = strlen(word);
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    size_t m = strlen(ends[i]);
    if (!strchr(word, ':') && n > m && strcmp(word + n - m, ends[i]) == 0) return true;
  }
  return false;
}

static void report_unknown(const char *word) {
#ifdef SETUN_PULL
  failure("%s: neither a file nor a pulled model; 'setun pull %s' fetches it", word, word);
#else
  failure("%s: neither a file nor a model in the store", word);
#endif
}

const char *resolve_model(const char *word) {
  static store s;
  struct stat st;
  char repository[256];
  const char *selector;
  if (stat(word, &st) == 0 || is_path(word) || !parse_model_name(word, repository, &selector)) return word;
  if (!s.folder && !store_open(NULL, &s)) return NULL;
  size_t n = store_find(&s, word);
  if (n == 1) return s.models[0].path;
  if (!n) {
    report_unknown(word);
    return NULL;
  }
  text_buffer names = {0};
  for (size_t i = 0; i < n; i++) {
    if (i && !append_text(&names, ", ", 2)) break;
    if (!append_text(&names, s.models[i].name, strlen(s.models[i].name))) break;
  }
  failure("%s: expected the name of one model, found %zu: %s", word, n, names.data ? names.data : "");
  free(names.data);
  return NULL;
}
