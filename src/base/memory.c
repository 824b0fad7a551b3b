// Memory: checked allocation, aligned blocks, and page arenas.
#define _DEFAULT_SOURCE
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *st_calloc(size_t count, size_t size) {
  return calloc(count ? count : 1, size ? size : 1);
}

void *st_malloc(size_t count, size_t size) {
  size_t bytes;
  if (!st_mul_size(count, size, &bytes)) return NULL;
  return malloc(bytes ? bytes : 1);
}

void *st_realloc(void *old, size_t count, size_t size) {
  size_t bytes;
  if (!st_mul_size(count, size, &bytes)) return NULL;
  return realloc(old, bytes ? bytes : 1);
}

void st_free(void *block) {
  free(block);
}

char *st_strndup(const char *text, size_t length) {
  size_t bytes;
  if (!st_add_size(length, 1, &bytes)) return NULL;
  char *copy = malloc(bytes);
  if (!copy) return NULL;
  if (length) memcpy(copy, text, length);
  copy[length] = '\0';
  return copy;
}

char *st_strdup(const char *text) {
  return st_strndup(text, strlen(text));
}

void *st_aligned_alloc(size_t size) {
  size_t rounded;
  if (!st_add_size(size, 63, &rounded)) return NULL;
  rounded &= ~(size_t)63;
  return aligned_alloc(64, rounded ? rounded : 64);
}

// The mapping that st_pages_alloc makes for `size` bytes; false on overflow.
static bool pages_length(size_t size, size_t *length) {
  size_t n;
  if (!st_add_size(size, ST_PAGES_SLACK + ST_HUGE_PAGE - 1, &n)) return false;
  *length = n & ~(size_t)(ST_HUGE_PAGE - 1);
  return true;
}

void *st_pages_alloc(size_t size, bool huge) {
  size_t length, padded;
  if (!pages_length(size, &length) || !st_add_size(length, ST_HUGE_PAGE, &padded)) return NULL;
  char *p = mmap(NULL, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return NULL;
  // Maps one huge page too many and unmaps the ends, so that the block starts on a huge page.
  size_t head = (ST_HUGE_PAGE - (uintptr_t)p % ST_HUGE_PAGE) % ST_HUGE_PAGE;
  if (head) munmap(p, head);
  if (ST_HUGE_PAGE - head) munmap(p + head + length, ST_HUGE_PAGE - head);
  p += head;
#ifdef MADV_HUGEPAGE
  if (huge) madvise(p, length, MADV_HUGEPAGE); // a hint; if it is refused, small pages are used
#else
  (void)huge;
#endif
  return p;
}

void st_pages_free(void *block, size_t size) {
  size_t length;
  if (block && pages_length(size, &length)) munmap(block, length);
}

bool st_pages_no_fork(void *block, size_t size) {
#ifdef MADV_DONTFORK
  size_t length;
  return block && pages_length(size, &length) && !madvise(block, length, MADV_DONTFORK);
#else
  (void)block, (void)size;
  return false;
#endif
}

void st_pages_drop(void *first, size_t size) {
  size_t head = (ST_HUGE_PAGE - (uintptr_t)first % ST_HUGE_PAGE) % ST_HUGE_PAGE;
  if (size >= head + ST_HUGE_PAGE)
    madvise((char *)first + head, (size - head) / ST_HUGE_PAGE * ST_HUGE_PAGE, MADV_DONTNEED);
}

size_t st_pages_size(size_t size) {
  size_t length;
  return pages_length(size, &length) ? length : 0;
}

bool st_reserve(void *items, size_t *capacity, size_t need, size_t size) {
  if (need <= *capacity) return true;
  size_t wanted = *capacity < 8 ? 8 : *capacity;
  while (wanted < need) {
    if (!st_mul_size(wanted, 2, &wanted)) return false;
  }
  void *old;
  memcpy(&old, items, sizeof old);
  void *grown = st_realloc(old, wanted, size);
  if (!grown) return false;
  memcpy(items, &grown, sizeof grown);
  *capacity = wanted;
  return true;
}
