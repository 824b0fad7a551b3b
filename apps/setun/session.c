// Session files: loaded and saved by `run`.
#define _POSIX_C_SOURCE 200809L
#include "session.h"

#include "output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Reported before generating rather than after.
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
  if (lstat(path, &status) && errno == ENOENT) return can_be_made(path); // loading reports a dangling link
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

static setun_draft_stats draft_stats(const setun_session *session) {
  setun_draft_stats stats = {.size = sizeof stats};
  setun_session_get_draft_stats(session, &stats, NULL);
  return stats;
}

void print_draft_report(const setun_session *session) {
  setun_draft_stats s = draft_stats(session);
  if (!s.guessed) return;
  fprintf(stderr, "draft    %llu of %llu drafted tokens accepted (%.0f %%), %llu pass%s with drafts\n",
          (unsigned long long)s.taken, (unsigned long long)s.guessed, 100 * (double)s.taken / (double)s.guessed,
          (unsigned long long)s.passes, s.passes == 1 ? "" : "es");
}

void print_draft_json(const setun_session *session) {
  setun_draft_stats s = draft_stats(session);
  print_text(", \"draft_passes\": %llu, \"draft_tokens\": %llu, \"draft_accepted\": %llu", (unsigned long long)s.passes,
             (unsigned long long)s.guessed, (unsigned long long)s.taken);
}
