// Failure reporting: formatting of messages into a caller's setun_error.
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// A message may quote text from a file or a path: control bytes must not break its line.
static void one_line(char *message) {
  for (unsigned char *p = (unsigned char *)message; *p; p++) {
    if (*p < 0x20 || *p == 0x7F) *p = ' ';
  }
}

setun_status st_fail(setun_error *err, setun_status code, const char *format, ...) {
  if (err) {
    va_list args;
    va_start(args, format);
    err->code = code;
    if (vsnprintf(err->message, sizeof err->message, format, args) < 0) err->message[0] = '\0';
    one_line(err->message);
    va_end(args);
  }
  return code;
}

// Some messages already name the file, or a file or tensor in this directory.
static bool names(const char *message, const char *context) {
  size_t n = strlen(context);
  const char *at = n ? strstr(message, context) : NULL;
  bool begins = at && (at == message || (at - message >= 2 && memcmp(at - 2, ": ", 2) == 0));
  return begins && (at[n] == ':' || at[n] == '/');
}

setun_status st_fail_in(setun_error *err, setun_status code, const char *format, ...) {
  if (!err) return code;
  char context[SETUN_ERROR_SIZE], old[SETUN_ERROR_SIZE];
  va_list args;
  va_start(args, format);
  if (vsnprintf(context, sizeof context, format, args) < 0) context[0] = '\0';
  va_end(args);
  memcpy(old, err->message, sizeof old);
  if (names(old, context)) return code;
  // Messages have a fixed size and are truncated.
  size_t n = strlen(context), room = sizeof err->message - 1, m = strlen(old);
  n = n > room - 2 ? room - 2 : n;
  memcpy(err->message, context, n);
  memcpy(err->message + n, ": ", 2);
  m = m > room - n - 2 ? room - n - 2 : m;
  memcpy(err->message + n + 2, old, m);
  err->message[n + 2 + m] = '\0';
  one_line(err->message);
  return code;
}

setun_status st_fail_memory(setun_error *err, const char *what) {
  return st_fail(err, SETUN_ERROR_MEMORY, "out of memory for %s", what);
}
