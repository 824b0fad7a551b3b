// The folder of the command's own files.
#define _POSIX_C_SOURCE 200809L
#include "state.h"

#include "output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool make_folders(char *path, unsigned mode) {
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    bool made = mkdir(path, (mode_t)mode) == 0 || errno == EEXIST;
    *slash = '/';
    if (!made) return false;
  }
  return true;
}

// The path of a file in the folder that an environment variable names, or in one below the home directory.
static char *file_in(const char *variable, const char *below_home, const char *name) {
  const char *given = getenv(variable), *home = getenv("HOME");
  bool own = given && *given == '/';
  if (!own && !(home && *home == '/')) return NULL;
  const char *root = own ? given : home, *folder = own ? "" : below_home;
  size_t size = strlen(root) + strlen(folder) + strlen("/setun/") + strlen(name) + 1;
  char *path = malloc(size);
  if (!path) return NULL;
  snprintf(path, size, "%s%s/setun/%s", root, folder, name);
  struct stat st;
  if ((own || !stat(home, &st)) && make_folders(path, 0700)) return path; // a home that is not there is not made
  note("%s: cannot make its folder: %s", path, reason_of(errno));
  free(path);
  return NULL;
}

char *state_file(const char *name) {
  return file_in("XDG_STATE_HOME", "/.local/state", name);
}

char *cache_folder(void) {
  return file_in("XDG_CACHE_HOME", "/.cache", "");
}
