// Whether a file belongs to a model.
#define _POSIX_C_SOURCE 200809L
#include "own_files.h"

#include "model.h"
#include "output.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_file(const struct stat *st, const char *path) {
  struct stat other;
  return !stat(path, &other) && other.st_dev == st->st_dev && other.st_ino == st->st_ino;
}

// Whether it is another part of a split file: "name-00001-of-00003.gguf" and the like, which differ only in the first
// number.
static bool is_sibling(const char *name, const char *first) {
  enum { NUMBER = 5, TAIL = sizeof "-of-00003.gguf" - 1 };
  size_t n = strlen(first);
  if (n <= NUMBER + TAIL || strlen(name) != n) return false;
  const char *tail = first + n - TAIL;
  return strncmp(tail, "-of-", 4) == 0 && strcmp(tail, name + n - TAIL) == 0 &&
         memcmp(name, first, n - TAIL - NUMBER) == 0;
}

// The last part of a path, and its folder in `folder`.
static const char *split(const char *path, char folder[PATH_MAX]) {
  const char *slash = strrchr(path, '/');
  snprintf(folder, PATH_MAX, "%.*s", slash ? (int)(slash + 1 - path) : 1, slash ? path : ".");
  return slash ? slash + 1 : path;
}

// The file itself; for a directory, every file; for a split GGUF file, its other parts in the same folder. False after
// a report: out of memory.
static bool is_part_of(const struct stat *st, const char *path, bool *is_part) {
  char name[PATH_MAX], folder[PATH_MAX];
  if ((*is_part = is_file(st, path))) return true;
  errno = 0;
  snprintf(folder, sizeof folder, "%s", path);
  DIR *entries = opendir(folder);
  const char *slash = strrchr(path, '/'), *first = entries ? NULL : slash ? slash + 1 : path;
  if (!entries && errno != ENOMEM) {
    split(path, folder);
    entries = opendir(folder);
  }
  if (!entries && errno == ENOMEM) {
    failure("out of memory for the files in %s", folder);
    return false;
  }
  bool found = false;
  for (struct dirent *entry; entries && !found && (entry = readdir(entries));) {
    if (first && !is_sibling(entry->d_name, first)) continue;
    int length = snprintf(name, sizeof name, "%s/%s", folder, entry->d_name);
    found = length > 0 && (size_t)length < sizeof name && is_file(st, name);
  }
  if (entries) closedir(entries);
  *is_part = found;
  return true;
}

bool is_same_file(const char *a, const char *b) {
  struct stat st;
  char folder[PATH_MAX], other[PATH_MAX];
  if (!stat(a, &st)) return is_file(&st, b);
  bool same_name = !strcmp(split(a, folder), split(b, other));
  return same_name && !stat(folder, &st) && is_file(&st, other);
}

int check_distinct(const command *self, const named_file *files, size_t n) {
  for (size_t i = 1; i < n; i++) {
    for (size_t k = 0; files[i].path && k < i; k++) {
      if (!files[k].path || !is_same_file(files[k].path, files[i].path)) continue;
      return usage_error(self, "%s and %s name one file: %s", files[k].option, files[i].option, files[i].path);
    }
  }
  return 0;
}

int check_output(const command *self, const char *name, const char *output, const char *path,
                 const text_list *adapters) {
  struct stat st;
  bool found = false;
  if (stat(output, &st)) return 0;
  if (!is_part_of(&st, path, &found)) return STATUS_FAILED;
  if (found) return usage_error(self, "%s %s is one of the model's own files", name, output);
  for (size_t i = 0; adapters && i < adapters->count; i++) {
    float scale;
    char *adapter = parse_adapter(adapters->items[i], &scale);
    if (!adapter) return failure("out of memory for a path");
    bool fine = is_part_of(&st, adapter, &found);
    free(adapter);
    if (!fine) return STATUS_FAILED;
    if (found) return usage_error(self, "%s %s is one of an adapter's files", name, output);
  }
  return 0;
}
