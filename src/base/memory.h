// Memory: the library's only way to allocate, with sizes checked for overflow.
#ifndef SETUN_BASE_MEMORY_H
#define SETUN_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// *out = a*b or a+b; false on overflow.
static inline bool st_mul_size(size_t a, size_t b, size_t *out) {
  return !__builtin_mul_overflow(a, b, out);
}
static inline bool st_add_size(size_t a, size_t b, size_t *out) {
  return !__builtin_add_overflow(a, b, out);
}
static inline bool st_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
  return !__builtin_mul_overflow(a, b, out);
}
static inline bool st_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
  return !__builtin_add_overflow(a, b, out);
}

// `count` elements of `size` bytes: zeroed, uninitialized, or resized. NULL on overflow or out of memory (an
// old block then stays valid). A count of zero gives a block that may be freed. Freed with st_free.
void *st_calloc(size_t count, size_t size);
void *st_malloc(size_t count, size_t size);
void *st_realloc(void *old, size_t count, size_t size);
void st_free(void *block);

char *st_strdup(const char *text);
char *st_strndup(const char *text, size_t length); // copies exactly `length` bytes and appends a 0

// `size` bytes aligned to 64, uninitialized. Freed with st_free.
void *st_aligned_alloc(size_t size);

// Zeroed pages, which the system provides on first access. With `huge`, aligned to 2 MiB and marked for huge pages if
// the system has them: for data that is read repeatedly as a whole, such as weights. Without, for memory that may stay
// mostly unused. ST_PAGES_SLACK readable bytes follow the end, so that prefetches may go past it.
enum { ST_PAGES_SLACK = 16384, ST_HUGE_PAGE = 2 << 20 };
void *st_pages_alloc(size_t size, bool huge);
void st_pages_free(void *block, size_t size);
// Excludes these pages from forked children: pages being read into from a disk must not become shared and copied on
// write. True if the system does that; the child must then not free them.
bool st_pages_no_fork(void *block, size_t size);
// These bytes of such pages are no longer needed: returns whole huge pages among them to the system.
void st_pages_drop(void *first, size_t size);
// The bytes that st_pages_alloc takes for `size` bytes, slack and rounding included; 0 on overflow.
size_t st_pages_size(size_t size);
// The resident bytes when all `size` bytes of huge pages are used.
static inline uint64_t st_huge_pages(uint64_t size) {
  return (size + ST_HUGE_PAGE - 1) / ST_HUGE_PAGE * ST_HUGE_PAGE;
}

// Grows `*items` (elements of `size` bytes) so that it holds at least `need`; false when out of memory, and
// then nothing changed.
bool st_reserve(void *items, size_t *capacity, size_t need, size_t size);

#endif
