// The registry of backends. Its rows are completed once, with the host's replacements for missing functions.
#include "backend/host.h"

#include <pthread.h>
#include <string.h>

#define BACKEND(name) extern const st_backend st_backend_##name;
#include "backend/backends.def"
#undef BACKEND

static const st_backend *const rows[] = {
#define BACKEND(name) &st_backend_##name,
#include "backend/backends.def"
#undef BACKEND
};
enum { ROWS = sizeof rows / sizeof *rows };

static st_backend backends[ROWS];

static void complete_rows(void) {
  for (size_t i = 0; i < ROWS; i++) {
    backends[i] = *rows[i];
    st_host_complete(&backends[i]);
  }
}

const st_backend *st_backend_at(size_t index) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, complete_rows);
  return index < ROWS ? &backends[index] : NULL;
}

const st_backend *st_backend_find(const char *name) {
  const st_backend *b;
  if (!name) return st_backend_at(0);
  for (size_t i = 0; (b = st_backend_at(i)); i++) {
    if (!strcmp(b->name, name)) return b;
  }
  return NULL;
}
