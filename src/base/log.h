// The caller's log callback.
#ifndef SETUN_BASE_LOG_H
#define SETUN_BASE_LOG_H

#include "base/error.h"

typedef struct st_log {
  setun_log_fn fn; // NULL: discarded
  void *user;
} st_log;

void st_log_write(const st_log *log, setun_log_level level, const char *format, ...) ST_PRINTF(3, 4);

#endif
