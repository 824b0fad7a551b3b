// The process that made an object. After a fork the child has the object's memory, but neither its threads nor its own
// rings: functions that need these check first.
#ifndef SETUN_BASE_PROCESS_H
#define SETUN_BASE_PROCESS_H

#include "base/error.h"

// The current process.
int64_t st_process_current(void);

// SETUN_ERROR_STATE unless the current process is `maker`, which made `what`.
setun_status st_process_check(int64_t maker, const char *what, setun_error *err);

#endif
