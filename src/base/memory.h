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
char *st_strndup(const char *text, size_t length); // copies exactly `length` bytes and ends them with 0

// `size` bytes aligned to 64, uninitialized. Freed with st_free.
void *st_aligned_alloc(size_t size);

// Whole zeroed pages, of which the system provides each when it is first touched. With `huge`, aligned to 2 MiB and
// marked for huge pages where the system has them: for what is read again and again as a whole, such as weights.
// Without, for what may stay mostly untouched. ST_PAGES_SLACK readable bytes follow the end, so that prefetches may run
// past it.
enum { ST_PAGES_SLACK = 16384, ST_HUGE_PAGE = 2 << 20 };
void *st_pages_alloc(size_t size, bool huge);
void st_pages_free(void *block, size_t size);
// A forked child shall not have these pages: what is being read into them from a disk must not find them shared, and
// copied when they are written. True where the system does that; the child must then not free them.
bool st_pages_withhold(void *block, size_t size);
// Nobody wants these bytes of such pages any more: the system may have those of them back that are whole huge pages.
void st_pages_drop(void *first, size_t size);
// The bytes that st_pages_alloc takes for `size` bytes, slack and rounding included; 0 on overflow.
size_t st_pages_size(size_t size);
// What the use of all of `size` bytes of huge pages makes resident.
static inline uint64_t st_huge_pages(uint64_t size) {
  return (size + ST_HUGE_PAGE - 1) / ST_HUGE_PAGE * ST_HUGE_PAGE;
}

// Grows `*items` (elements of `size` bytes) so that it holds at least `need`; false when out of memory, and
// then nothing changed.
bool st_reserve(void *items, size_t *capacity, size_t need, size_t size);

#endif
