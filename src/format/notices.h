// What a user should know of how files were read: assumptions that were made, keys that were ignored. One list, which
// `inspect` shows; each line is logged when it is added.
#ifndef SETUN_FORMAT_NOTICES_H
#define SETUN_FORMAT_NOTICES_H

#include "base/log.h"

#include <stddef.h>

typedef struct st_notices {
  char **lines;
  size_t count, capacity;
  st_log log;
} st_notices;

// An empty list whose lines go to `log` (copied; may be NULL) as well; NULL when out of memory. The caller frees it.
st_notices *st_notices_new(const st_log *log);
void st_notices_free(st_notices *notices);
// Adds a line and logs it, unless the list has the same line already: what is read twice is said once. A NULL list
// takes none. Fails only without memory. Not to be called by two threads at once.
setun_status st_notices_add(st_notices *notices, setun_log_level level, setun_error *err, const char *format, ...)
    ST_PRINTF(4, 5);

#endif
