// Allocators that fail when they are told to. The linker puts them in place of those that the library calls; see
// CMakeLists.txt. For the one source file of a test program.
#ifndef SETUN_TESTS_ALLOCATORS_H
#define SETUN_TESTS_ALLOCATORS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>

static atomic_bool armed, lasting; // lasting: all later ones fail as well
static atomic_long left;           // allocations until the one that fails

static bool fails(void) {
  if (!atomic_load(&armed)) return false;
  long n = atomic_fetch_sub(&left, 1);
  return atomic_load(&lasting) ? n <= 0 : n == 0;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__real_mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset);

void *__wrap_malloc(size_t size) {
  return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
  return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size) {
  return fails() ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size) {
  return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

void *__wrap_mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset) {
  return fails() ? MAP_FAILED : __real_mmap(at, length, protection, flags, fd, offset);
}

#endif
