// The process that made an object. After fork the child has the object's memory, but neither its threads nor rings of
// its own: what needs these asks first.
#ifndef SETUN_BASE_PROCESS_H
#define SETUN_BASE_PROCESS_H

#include "base/error.h"

// The process that runs.
int64_t st_process_current(void);

// SETUN_ERROR_STATE unless the process `maker`, which made `what`, is the one that runs.
setun_status st_process_check(int64_t maker, const char *what, setun_error *err);

#endif
