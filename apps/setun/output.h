// Output of commands: results on stdout, one-line reports on stderr, JSON strings, plain tables.
#ifndef SETUN_APP_OUTPUT_H
#define SETUN_APP_OUTPUT_H

#include "options.h"
#include "setun.h"

#if defined(__GNUC__)
#define APP_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define APP_PRINTF(fmt, first)
#endif

// The option for what a library's message suggests, such as " (see --assume)"; "": none.
const char *option_hint(const char *message);
// One line "setun: error: ..." on stderr, control characters and broken UTF-8 shown as '?'. Returns 1, the exit status
// of failed work.
int failure(const char *format, ...) APP_PRINTF(1, 2);
int report(const setun_error *error); // the same for the library's message
// The meaning of an errno: "out of memory", as in the library, or the system's words.
const char *reason_of(int error);
const char *plural(uint64_t n); // the plural suffix: "" or "s"
// Reports wrong usage of a command (NULL: setun itself): one line that ends with a pointer to help. Returns 2.
int usage_error(const command *self, const char *format, ...) APP_PRINTF(2, 3);
// "setun: ..." on stderr, for remarks.
void note(const char *format, ...) APP_PRINTF(1, 2);

// To stdout. A failed write ends the process: like SIGPIPE if the reader is gone, otherwise with an error.
void print_bytes(const char *text, size_t length);
void print_text(const char *format, ...) APP_PRINTF(1, 2);
void flush_output(void);
// Flushes and closes what a command printed; 0, the exit status of success.
int finish_output(void);

// A text buffer. Zero-initialize; `data` is freed with free.
typedef struct text_buffer {
  char *data;
  size_t length, capacity;
} text_buffer;
// Adds bytes and a terminating 0. False after a report: out of memory.
bool append_text(text_buffer *b, const char *bytes, size_t n);
// "..." with JSON's escapes; bytes that are not UTF-8 are printed as U+FFFD.
void print_json_string(const char *text, size_t length);
// A number in JSON: null if not finite.
void print_json_number(double value);
// `"key": 1.5, `: a member of a JSON object, followed by others.
void print_json_member(const char *key, double value);
// Text from a file for a terminal: control characters and invalid UTF-8 are shown as '?'.
void print_clean(const char *text);
// 1536 as "1.5 KiB".
const char *format_bytes(uint64_t bytes, char text[32]);

// Seconds of a monotonic clock.
double seconds_now(void);

// Processor seconds used by this process, in user and system mode.
typedef struct processor_time {
  double program, system;
} processor_time;
processor_time processor_time_now(void);

#endif
