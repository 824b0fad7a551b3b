// Formats notices for the caller's log callback.
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void st_log_write(const st_log *log, setun_log_level level, const char *format, ...) {
  if (!log || !log->fn) return;
  char line[SETUN_ERROR_SIZE];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(line, sizeof line, format, args);
  va_end(args);
  if (n >= 0) log->fn(level, line, log->user);
}
