// The command `remove`: deletes a model from the store.
#define _POSIX_C_SOURCE 200809L
#include "commands.h"
#include "folder_lock.h"
#include "interrupt.h"
#include "output.h"
#include "store.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct remove_options {
  const char *folder;
  bool all;
} remove_options;

#define AT(member) offsetof(remove_options, member)
static const option rows[] = {
    {0, "models", OPTION_FILE, AT(folder), "DIR", 0, 0,
     "the folder of the models (default: setun/models in XDG_DATA_HOME, or in ~/.local/share)"},
    {0, "all", OPTION_FLAG, AT(all), NULL, 0, 0, "remove all models that NAME matches"},
};

static bool remove_file(const char *path, void *user) {
  (void)user;
  if (unlink(path) == 0 || errno == ENOENT) return true;
  failure("%s: cannot be removed: %s", path, reason_of(errno));
  return false;
}

static bool is_partial(const char *name) {
  size_t n = strlen(name);
  return name[0] == '.' && n > 8 && strcmp(name + n - 8, ".partial") == 0;
}

// Finds received parts of incomplete models, in a folder and those below it.
static size_t remove_partials(const char *folder, int depth) {
  size_t removed = 0;
  DIR *entries = depth ? opendir(folder) : NULL;
  for (struct dirent *e; entries && (e = readdir(entries));) {
    char *path = is_partial(e->d_name) || e->d_name[0] != '.' ? join_path(folder, e->d_name) : NULL;
    if (path && is_partial(e->d_name))
      removed += unlink(path) == 0;
    else if (path)
      removed += remove_partials(path, depth - 1);
    free(path);
  }
  if (entries) closedir(entries);
  return removed;
}

// Removes empty folders below `folder`, then itself.
static void remove_empty(const char *folder, int depth) {
  DIR *entries = depth ? opendir(folder) : NULL;
  for (struct dirent *e; entries && (e = readdir(entries));) {
    char *path = e->d_name[0] == '.' ? NULL : join_path(folder, e->d_name);
    if (path) remove_empty(path, depth - 1);
    free(path);
  }
  if (entries) closedir(entries);
  rmdir(folder);
}

// Removes a repository's and its organization's folders if empty.
static void remove_folders(const char *folder, const char *repository) {
  char *organization = strdup(folder);
  remove_empty(folder, 3);
  if (organization && strchr(repository, '/')) {
    *strrchr(organization, '/') = 0;
    rmdir(organization);
  }
  free(organization);
}

// `last`: its repository has no other models. Parts left by interrupted pulls are removed too, and empty folders.
static bool remove_model(const store *s, const stored_model *m, bool last) {
  folder_lock lock = {0};
  if (!*m->repository) return store_each_file(s, m, remove_file, NULL); // directly in the store's folder
  if (!lock_folder(m->folder, &lock)) return false;
  bool fine = store_each_file(s, m, remove_file, NULL);
  if (fine && last) remove_partials(m->folder, 3);
  unlock_folder(&lock, fine && last);
  if (!fine || !last) return fine;
  remove_folders(m->folder, m->repository);
  return true;
}

// The number of models of the same repository after the one at i.
static size_t left_beside(const store *s, size_t i) {
  size_t n = 0;
  for (size_t j = i + 1; j < s->count; j++) n += strcmp(s->models[i].repository, s->models[j].repository) == 0;
  return n;
}

// For a name without a model: removes what an interrupted pull has left. 0, or the exit status after a report.
static int remove_rest(const store *s, const char *name) {
  char repository[256];
  const char *selector;
  char *folder = parse_model_name(name, repository, &selector) ? join_path(s->folder, repository) : NULL;
  folder_lock lock = {0};
  struct stat st;
  size_t removed = 0;
  if (folder && !stat(folder, &st) && lock_folder(folder, &lock)) {
    removed = remove_partials(folder, 3);
    unlock_folder(&lock, removed > 0);
    if (removed) remove_folders(folder, repository);
  }
  free(folder);
  if (!removed) return failure("%s: not found in %s; 'setun list' lists them", name, s->folder);
  note("removed the received parts of %s", name);
  return 0;
}

static int report_several(const store *s, const char *name, size_t n) {
  failure("%s: expected one model, found %zu; name one of these, or give --all", name, n);
  for (size_t i = 0; i < n; i++) fprintf(stderr, "  setun remove %s\n", s->models[i].name);
  return STATUS_FAILED;
}

static int run(const command *self, int argc, char **argv) {
  remove_options o = {0};
  store s = {0};
  int status = 0;
  if (parse_options(self, argc, argv, &o, &status) < 0) return status;
  note_interrupts();
  bool fine = store_open(o.folder, &s);
  size_t n = fine ? store_find(&s, argv[1]) : 0;
  if (!fine)
    status = STATUS_FAILED;
  else if (!n)
    status = remove_rest(&s, argv[1]);
  else if (n > 1 && !o.all)
    status = report_several(&s, argv[1], n);
  for (size_t i = 0; !status && i < n; i++) {
    status = remove_model(&s, &s.models[i], left_beside(&s, i) == 0) ? 0 : failed_status();
    if (!status) note("removed %s", s.models[i].name);
  }
  store_close(&s);
  return status ? status : finish_output();
}

const command command_remove = {
    .name = "remove",
    .summary = "delete a pulled model",
    .arguments = "NAME",
    .min_arguments = 1,
    .max_arguments = 1,
    .details = "Deletes the files of a model in the store. NAME is one that `setun list` shows, or a shorter one that "
               "matches only one model.",
    .groups = {{"options", OPTION_ROWS(rows), 0}},
    .run = run,
};
