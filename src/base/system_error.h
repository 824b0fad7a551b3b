// Failures of the system's calls.
#ifndef SETUN_BASE_SYSTEM_ERROR_H
#define SETUN_BASE_SYSTEM_ERROR_H

#include "base/error.h"

// A call failed: the message ends in what `reason`, an errno, means. SETUN_ERROR_IO, or SETUN_ERROR_MEMORY where the
// system had no memory for it.
setun_status st_fail_system(setun_error *err, int reason, const char *format, ...) ST_PRINTF(3, 4);

#endif
