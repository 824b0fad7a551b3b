// The process that made an object.
#define _POSIX_C_SOURCE 200809L
#include "base/process.h"

#include <unistd.h>

int64_t st_process_current(void) {
  return (int64_t)getpid();
}

setun_status st_process_check(int64_t maker, const char *what, setun_error *err) {
  int64_t current = st_process_current();
  if (current == maker) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_STATE,
                 "%s: expected process %lld, which created it, found process %lld: after a fork it can only be freed",
                 what, (long long)maker, (long long)current);
}
