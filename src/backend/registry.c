// The registry of backends.
#include "backend/backend.h"

#include <string.h>

#define BACKEND(name) extern const st_backend st_backend_##name;
#include "backend/backends.def"
#undef BACKEND

static const st_backend *const backends[] = {
#define BACKEND(name) &st_backend_##name,
#include "backend/backends.def"
#undef BACKEND
};

const st_backend *st_backend_at(size_t index) {
  return index < sizeof backends / sizeof *backends ? backends[index] : NULL;
}

const st_backend *st_backend_find(const char *name) {
  const st_backend *b;
  if (!name) return backends[0];
  for (size_t i = 0; (b = st_backend_at(i)); i++) {
    if (!strcmp(b->name, name)) return b;
  }
  return NULL;
}
