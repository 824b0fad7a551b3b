// The list of notices: lines in the order in which they were added, each once.
#include "format/notices.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

st_notices *st_notices_new(const st_log *log) {
  st_notices *n = st_calloc(1, sizeof *n);
  if (n && log) n->log = *log;
  return n;
}

void st_notices_free(st_notices *n) {
  if (!n) return;
  for (size_t i = 0; i < n->count; i++) st_free(n->lines[i]);
  st_free(n->lines);
  st_free(n);
}

setun_status st_notices_add(st_notices *n, setun_log_level level, setun_error *err, const char *format, ...) {
  char line[SETUN_ERROR_SIZE];
  va_list args;
  if (!n) return SETUN_OK;
  va_start(args, format);
  int length = vsnprintf(line, sizeof line, format, args);
  va_end(args);
  if (length < 0) line[0] = '\0';
  for (size_t i = 0; i < n->count; i++) {
    if (!strcmp(n->lines[i], line)) return SETUN_OK;
  }
  if (!st_reserve(&n->lines, &n->capacity, n->count + 1, sizeof *n->lines) || !(n->lines[n->count] = st_strdup(line))) {
    return st_fail_memory(err, "a notice");
  }
  n->count++;
  st_log_write(&n->log, level, "%s", line);
  return SETUN_OK;
}
