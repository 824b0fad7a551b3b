// Failures of system calls: messages with the meaning of an errno.
#include "base/system_error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

setun_status st_fail_system(setun_error *err, int reason, const char *format, ...) {
  char what[SETUN_ERROR_SIZE];
  va_list args;
  va_start(args, format);
  if (vsnprintf(what, sizeof what, format, args) < 0) what[0] = '\0';
  va_end(args);
  if (reason == ENOMEM) return st_fail(err, SETUN_ERROR_MEMORY, "%s: out of memory", what);
  return st_fail(err, SETUN_ERROR_IO, "%s: %s", what, strerror(reason));
}
