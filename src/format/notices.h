// Notices about how files were read: assumptions, ignored keys. One list, which `inspect` shows; each line is logged
// when it is added.
#ifndef SETUN_FORMAT_NOTICES_H
#define SETUN_FORMAT_NOTICES_H

#include "base/log.h"

#include <stddef.h>

typedef struct st_notices {
  char **lines;
  size_t count, capacity;
  st_log log;
} st_notices;

// An empty list whose lines also go to `log` (copied; may be NULL); NULL when out of memory. The caller frees it.
st_notices *st_notices_new(const st_log *log);
void st_notices_free(st_notices *notices);
// Adds a line and logs it, unless the list has it already. Does nothing for a NULL list. Fails only when out of memory.
// Not thread-safe.
setun_status st_notices_add(st_notices *notices, setun_log_level level, setun_error *err, const char *format, ...)
    ST_PRINTF(4, 5);

#endif
