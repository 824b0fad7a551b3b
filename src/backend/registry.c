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

// ---- devices by name ------------------------------------------------------------------------------------------------

// "NAME" or "NAME:INDEX", `length` bytes. NULL: it is neither.
static const st_backend *backend_of(const char *name, size_t length, size_t *index) {
  const st_backend *b;
  *index = 0;
  for (size_t i = 0; (b = st_backend_at(i)); i++) {
    size_t n = strlen(b->name);
    if (length < n || memcmp(name, b->name, n)) continue;
    if (length == n) return b;
    if (name[n] != ':' || length == n + 1 || length > n + 3) continue;
    for (size_t at = n + 1; at < length; at++) {
      if (name[at] < '0' || name[at] > '9') return NULL;
      *index = 10 * *index + (size_t)(name[at] - '0');
    }
    return b;
  }
  return NULL;
}

static setun_status fail_name(const char *name, size_t length, setun_error *err) {
  bool all = st_backend_at(1) != NULL;
  return st_fail(err, SETUN_ERROR_ARGUMENT, "device: expected %s%s%s, found \"%.*s\"%s", st_backend_at(0)->name,
                 all ? " or " : "", all ? st_backend_at(1)->name : "", (int)(length < 64 ? length : 64), name,
                 all ? "" : ": this build has no other");
}

// Whether a device can be used.
static setun_status check_device(const st_backend *b, size_t index, setun_error *err) {
  st_device_facts facts;
  if (!b->device_at(index, &facts)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "device: %s:%zu is not on this machine; `setun devices` lists what is",
                   b->name, index);
  }
  if (!facts.problem[0]) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "device: %s:%zu, %s, cannot be used: %s", b->name, index, facts.name,
                 facts.problem);
}

setun_status st_backend_choose(const char *device, const st_backend **backend, size_t *index, setun_error *err) {
  setun_status s;
  *backend = st_backend_at(0);
  *index = 0;
  if (!device) return SETUN_OK;
  for (const char *name = device;; name++) { // a misspelled one is an error also where it is not reached
    size_t length = strcspn(name, ",");
    if (!backend_of(name, length, index)) return fail_name(name, length, err);
    name += length;
    if (!*name) break;
  }
  for (const char *name = device;; name++) {
    size_t length = strcspn(name, ",");
    *backend = backend_of(name, length, index);
    s = check_device(*backend, *index, err);
    name += length;
    if (s == SETUN_OK || !*name) return s;
  }
}
