// Preloaded into a program (LD_PRELOAD), it makes system calls fail for paths that end with $FAULT_PATH: $FAULT_ERRNO
// is the error, $FAULT_CALLS names the calls, of "stat", "open", "fstat", "pread", "pwrite", "fsync", "close",
// "rename".
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static bool fails_path(const char *call, const char *path) {
  const char *calls = getenv("FAULT_CALLS"), *end = getenv("FAULT_PATH"), *number = getenv("FAULT_ERRNO");
  size_t n = path ? strlen(path) : 0, m = end ? strlen(end) : 0;
  const char *at = calls ? strstr(calls, call) : NULL;
  bool named = at && (at == calls || at[-1] == ',') && strchr(",", at[strlen(call)]); // its end counts as a comma
  if (!named || !m || n < m || strcmp(path + n - m, end)) return false;
  errno = number ? atoi(number) : EIO;
  return true;
}

static bool fails_file(const char *call, int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  path[n > 0 ? n : 0] = 0;
  return fails_path(call, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int stat(const char *restrict path, struct stat *restrict st) {
  return fails_path("stat", path) ? -1 : REAL(stat)(path, st);
}

int fstat(int fd, struct stat *st) {
  return fails_file("fstat", fd) ? -1 : REAL(fstat)(fd, st);
}

int open(const char *path, int flags, ...) {
  mode_t mode = 0;
  if (flags & O_CREAT) {
    va_list args;
    va_start(args, flags);
    mode = va_arg(args, mode_t);
    va_end(args);
  }
  return fails_path("open", path) ? -1 : REAL(open)(path, flags, mode);
}

ssize_t pread(int fd, void *to, size_t n, off_t offset) {
  return fails_file("pread", fd) ? -1 : REAL(pread)(fd, to, n, offset);
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t offset) {
  return fails_file("pwrite", fd) ? -1 : REAL(pwrite)(fd, from, n, offset);
}

int fsync(int fd) {
  return fails_file("fsync", fd) ? -1 : REAL(fsync)(fd);
}

int close(int fd) {
  bool fails = fails_file("close", fd);
  int error = errno, result = REAL(close)(fd);
  if (fails) errno = error;
  return fails ? -1 : result;
}

int rename(const char *from, const char *to) {
  return fails_path("rename", to) ? -1 : REAL(rename)(from, to);
}
