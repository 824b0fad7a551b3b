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

char *state_file(const char *name) {
  const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
  bool own = state && *state == '/';
  if (!own && !(home && *home == '/')) return NULL;
  const char *root = own ? state : home, *folder = own ? "/setun/" : "/.local/state/setun/";
  size_t size = strlen(root) + strlen(folder) + strlen(name) + 1;
  char *path = malloc(size);
  if (!path) return NULL;
  snprintf(path, size, "%s%s%s", root, folder, name);
  if (make_folders(path, 0700)) return path;
  note("%s: cannot make its folder: %s", path, reason_of(errno));
  free(path);
  return NULL;
}
