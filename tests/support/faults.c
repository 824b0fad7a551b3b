// Preloaded into a program (LD_PRELOAD), it makes system calls fail for paths that end with $FAULT_PATH: $FAULT_ERRNO
// is the error, $FAULT_CALLS names the calls, of "stat", "open", "fstat", "pread", "pwrite", "fsync", "close",
// "rename". And it counts all allocations of the process from main on, those of every library included: the
// $FAULT_ALLOCATION-th fails ("17"), or all from it on do ("17+"); the file $FAULT_COUNT is given their number at the
// end.
#ifndef __linux__
#error "the tests need Linux (LD_PRELOAD, /proc, --wrap): configure with -DSETUN_TESTS=OFF"
#endif
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

// ---- allocations ----

#if defined(__GLIBC__) && !defined(SANITIZED) // sanitizers have allocators of their own, which must not be replaced

// The C library's own functions under their second names: dlsym allocates itself.
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static bool counting, from_there_on;
static unsigned long fails_at;
static atomic_ulong allocations;

__attribute__((constructor)) static void begin(void) {
  const char *at = getenv("FAULT_ALLOCATION");
  char *end = NULL;
  fails_at = at ? strtoul(at, &end, 10) : 0;
  from_there_on = end && *end == '+';
  counting = at || getenv("FAULT_COUNT");
}

__attribute__((destructor)) static void finish(void) {
  const char *path = getenv("FAULT_COUNT");
  char text[32];
  int fd = path ? REAL(open)(path, O_WRONLY | O_CREAT | O_TRUNC, 0644) : -1;
  if (fd < 0) return;
  int n = snprintf(text, sizeof text, "%lu\n", atomic_load(&allocations));
  if (write(fd, text, (size_t)n) != n) abort();
  REAL(close)(fd);
}

static bool fails_allocation(void) {
  if (!counting) return false;
  unsigned long n = atomic_fetch_add(&allocations, 1) + 1;
  bool fails = fails_at && (from_there_on ? n >= fails_at : n == fails_at);
  if (fails) errno = ENOMEM;
  return fails;
}

void *malloc(size_t size) {
  return fails_allocation() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
  return fails_allocation() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
  return fails_allocation() ? NULL : __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
  return fails_allocation() ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **block, size_t alignment, size_t size) {
  void *p = fails_allocation() ? NULL : __libc_memalign(alignment, size);
  if (p) *block = p;
  return p ? 0 : ENOMEM;
}

void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset) {
  if (fails_allocation()) return MAP_FAILED;
  return (void *)syscall(SYS_mmap, at, length, protection, flags, fd, offset); // NOLINT: a result that is an address
}

#endif
