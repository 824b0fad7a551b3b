// Reading small files of the system into memory on the stack.
#define _POSIX_C_SOURCE 200809L
#include "base/system_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

void st_system_file_open(st_system_file *f, const char *path) {
  f->at = f->count = 0;
  f->fd = open(path, O_RDONLY | O_CLOEXEC);
}

// -1 at the end, and after an error.
static int next_byte(st_system_file *f) {
  if (f->at == f->count) {
    ssize_t n;
    do {
      n = read(f->fd, f->buffer, sizeof f->buffer);
    } while (n < 0 && errno == EINTR);
    if (n <= 0) return -1;
    f->at = 0;
    f->count = (size_t)n;
  }
  return (unsigned char)f->buffer[f->at++];
}

bool st_system_file_line(st_system_file *f, char *line, size_t size) {
  while (f->fd >= 0) {
    size_t n = 0;
    int c;
    for (; (c = next_byte(f)) >= 0 && c != '\n'; n++) {
      if (n < size) line[n] = (char)c;
    }
    if (c < 0 && !n) return false;
    if (n >= size) continue;
    line[n] = 0;
    return true;
  }
  return false;
}

void st_system_file_close(st_system_file *f) {
  if (f->fd >= 0) close(f->fd);
  f->fd = -1;
}
