// Session files: what `run` continues, and leaves for the next run.
#define _POSIX_C_SOURCE 200809L
#include "session.h"

#include "output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Better said before the text is made than after.
static bool can_be_made(const char *path) {
  const char *slash = strrchr(path, '/');
  char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
  if (!folder) {
    failure("out of memory for a path");
    return false;
  }
  bool fine = access(folder, W_OK | X_OK) == 0;
  if (!fine) failure("%s: cannot write the session there: %s", path, reason_of(errno));
  free(folder);
  return fine;
}

bool load_session(setun_session *session, const char *path) {
  setun_error error;
  struct stat status;
  if (lstat(path, &status) && errno == ENOENT) return can_be_made(path); // a link to nothing is an error of the load
  if (!can_be_made(path)) return false;
  if (setun_session_load(session, path, &error) == SETUN_OK) return true;
  report(&error);
  return false;
}

bool save_session(setun_session *session, const char *path) {
  setun_error error;
  if (setun_session_save(session, path, &error) == SETUN_OK) return true;
  report(&error);
  return false;
}
