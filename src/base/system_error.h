// Failures of system calls.
#ifndef SETUN_BASE_SYSTEM_ERROR_H
#define SETUN_BASE_SYSTEM_ERROR_H

#include "base/error.h"

// Reports a failed call: the message ends with the meaning of `reason`, an errno. SETUN_ERROR_IO, or SETUN_ERROR_MEMORY
// if the system was out of memory.
setun_status st_fail_system(setun_error *err, int reason, const char *format, ...) ST_PRINTF(3, 4);

#endif
