// Failure reporting: every fallible function returns a setun_status and fills a caller's setun_error.
#ifndef SETUN_BASE_ERROR_H
#define SETUN_BASE_ERROR_H

#include "setun_types.h"

#if defined(__GNUC__)
#define ST_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define ST_PRINTF(fmt, first)
#endif

// Stores `code` and the formatted message in `*err` (which may be NULL) and returns `code`, so that a
// failing function can end in `return st_fail(err, SETUN_ERROR_FORMAT, "...")`.
setun_status st_fail(setun_error *err, setun_status code, const char *format, ...) ST_PRINTF(3, 4);

// Prepends "context: " (such as a file's name) to the message already in `*err`, which may be NULL; returns `code`, the
// status that came with the message.
setun_status st_fail_in(setun_error *err, setun_status code, const char *format, ...) ST_PRINTF(3, 4);

// The message for a failed allocation of `what`.
setun_status st_fail_memory(setun_error *err, const char *what);

#endif
