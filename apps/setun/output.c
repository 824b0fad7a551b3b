// Printing, and handling of failures to print.
#define _POSIX_C_SOURCE 200809L
#include "output.h"

#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { LINE_SIZE = 2048 };

// The length of the UTF-8 character at `s`, 1 to 4; 0 if invalid.
static size_t character_length(const char *s, size_t n) {
  uint32_t code;
  int length = st_utf8_decode(s, n, &code);
  return length > 0 ? (size_t)length : 0;
}

bool append_text(text_buffer *b, const char *bytes, size_t n) {
  if (b->capacity - b->length <= n) {
    size_t larger = (b->length + n) * 2 + 256;
    char *grown = realloc(b->data, larger);
    if (!grown) {
      failure("out of memory for more than %zu bytes of text", b->length);
      return false;
    }
    b->data = grown;
    b->capacity = larger;
  }
  if (n) memcpy(b->data + b->length, bytes, n);
  b->length += n;
  b->data[b->length] = 0;
  return true;
}

// A printable character's length; 0 for control characters. C1 ones are two bytes, C2 80 to C2 9F, which terminals also
// obey.
static size_t shown_length(const char *text, size_t n) {
  const unsigned char *s = (const unsigned char *)text;
  size_t length = character_length(text, n);
  bool control = s[0] < ' ' || s[0] == 127 || (length == 2 && s[0] == 0xC2 && s[1] < 0xA0);
  return control ? 0 : length;
}

// One write for one line, so that lines of several processes do not mix.
static void print_line(const char *prefix, const char *text, const char *suffix) {
  char line[LINE_SIZE + 256];
  int n = snprintf(line, sizeof line, "%s%s%s", prefix, text, suffix);
  size_t length = n < (int)sizeof line ? (size_t)n : sizeof line - 1;
  for (size_t i = 0; i < length;) {
    size_t shown = shown_length(line + i, length - i);
    if (!shown) line[i] = '?';
    i += shown ? shown : 1;
  }
  fprintf(stderr, "%.*s\n", (int)length, line);
}

static void print_formatted(const char *prefix, const char *format, va_list args, const char *suffix) {
  char text[LINE_SIZE];
  vsnprintf(text, sizeof text, format, args);
  print_line(prefix, text, suffix);
}

const char *reason_of(int error) {
  return error == ENOMEM ? "out of memory" : strerror(error);
}

const char *plural(uint64_t n) {
  return n == 1 ? "" : "s";
}

int failure(const char *format, ...) {
  va_list args;
  va_start(args, format);
  print_formatted("setun: error: ", format, args, "");
  va_end(args);
  return STATUS_FAILED;
}

const char *option_hint(const char *message) {
  static const struct {
    const char *words, *hint, *option; // only if the command has this option; NULL: always
  } hints[] = {{"round the scales", " (see --round-scales)", NULL},
               {"smaller context or batch", " (see --ctx and --batch-size)", "ctx"},
               {"smaller context or batch", " (see --batch-size)", "batch-size"},
               {"another format of the embedding", " (see --embedding)", NULL},
               {"another format of the head", " (see --head)", NULL},
               {"a template may be given", " (see --template)", NULL},
               {"using that of", " (see --template)", NULL},
               {"one to assume", " (see --assume)", NULL},
               {"one is assumed", " (see --assume)", NULL},
               {"which is not supported", " (see --ignore-key)", "ignore-key"}};
  for (size_t i = 0; i < sizeof hints / sizeof *hints; i++) {
    bool fits = !hints[i].option || is_option(hints[i].option);
    if (fits && strstr(message, hints[i].words)) return hints[i].hint;
  }
  return "";
}

int report(const setun_error *error) {
  return failure("%s%s", error->message, option_hint(error->message));
}

int usage_error(const command *self, const char *format, ...) {
  char suffix[128] = " (see 'setun help')";
  va_list args;
  if (self) snprintf(suffix, sizeof suffix, " (see 'setun %s --help')", self->name);
  va_start(args, format);
  print_formatted("setun: error: ", format, args, suffix);
  va_end(args);
  return STATUS_USAGE;
}

void note(const char *format, ...) {
  va_list args;
  va_start(args, format);
  print_formatted("setun: ", format, args, "");
  va_end(args);
}

static void output_failed(int reason) {
  if (reason == EPIPE) { // a parent that ignores SIGPIPE for us still sees the status of a program ended by it
    signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);
  }
  exit(failure("standard output: %s", reason_of(reason)));
}

void print_bytes(const char *text, size_t length) {
  if (length && fwrite(text, 1, length, stdout) != length) output_failed(errno);
}

void print_text(const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vprintf(format, args);
  va_end(args);
  if (n < 0) output_failed(errno);
}

void flush_output(void) {
  if (fflush(stdout)) output_failed(errno);
}

int finish_output(void) {
  flush_output();
  if (fclose(stdout)) output_failed(errno); // some file systems report a full disk only now
  return 0;
}

void print_json_string(const char *text, size_t length) {
  print_bytes("\"", 1);
  for (size_t i = 0; i < length;) {
    unsigned char c = (unsigned char)text[i];
    size_t n = character_length(text + i, length - i);
    const char *escape = c == '"' ? "\\\"" : c == '\\' ? "\\\\" : c == '\n' ? "\\n" : c == '\t' ? "\\t" : NULL;
    if (escape)
      print_text("%s", escape);
    else if (c < ' ' || c == 127)
      print_text("\\u%04x", c);
    else if (n)
      print_bytes(text + i, n);
    else
      print_text("\\ufffd");
    i += n ? n : 1;
  }
  print_bytes("\"", 1);
}

void print_json_number(double value) {
  if (isfinite(value))
    print_text("%.9g", value);
  else
    print_text("null");
}

void print_json_member(const char *key, double value) {
  print_text("\"%s\": ", key);
  print_json_number(value);
  print_text(", ");
}

void print_clean(const char *text) {
  size_t length = strlen(text);
  for (size_t i = 0; i < length;) {
    size_t n = shown_length(text + i, length - i);
    if (n)
      print_bytes(text + i, n);
    else
      print_bytes("?", 1);
    i += n ? n : 1;
  }
}

const char *format_bytes(uint64_t bytes, char text[32]) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double v = (double)bytes;
  size_t u = 0;
  while (v >= 1024 && u + 1 < sizeof units / sizeof *units) v /= 1024, u++;
  snprintf(text, 32, u ? "%.1f %s" : "%.0f %s", v, units[u]);
  return text;
}

double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double seconds_of(struct timeval t) {
  return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

processor_time processor_time_now(void) {
  struct rusage usage = {0};
  getrusage(RUSAGE_SELF, &usage);
  return (processor_time){seconds_of(usage.ru_utime), seconds_of(usage.ru_stime)};
}
