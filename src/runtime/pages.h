// The users of a KV cache's pages: the device owns the memory, this owns the numbering. A page counts its users and is
// free when it has none. Users that would release it for others (idle ones) are counted separately.
#ifndef SETUN_RUNTIME_PAGES_H
#define SETUN_RUNTIME_PAGES_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct st_page_pool {
  uint32_t first; // its pages are [first, first + n_pages) of the cache
  uint32_t n_pages, n_free;
  uint32_t n_idle; // pages with only idle users
  uint32_t *free;  // [n_pages], a stack of n_free
  uint32_t *users; // [n_pages]
  uint32_t *idle;  // [n_pages]: the idle ones among `users`
} st_page_pool;

// Bytes that a pool takes in addition to the struct.
uint64_t st_page_pool_size(uint32_t n_pages);
setun_status st_page_pool_new(st_page_pool *pool, uint32_t first, uint32_t n_pages, setun_error *err);
void st_page_pool_free(st_page_pool *pool);

// Pages with a user that is not idle.
static inline uint32_t st_page_pool_used(const st_page_pool *pool) {
  return pool->n_pages - pool->n_free - pool->n_idle;
}
// Users of a page that are not idle.
static inline uint32_t st_page_users(const st_page_pool *pool, uint32_t page) {
  return pool->users[page - pool->first] - pool->idle[page - pool->first];
}

// Takes a free page, which then has one user; there must be a free one.
uint32_t st_page_acquire(st_page_pool *pool);
// Adds or removes a user; `idle`: one that would release the page for others.
void st_page_share(st_page_pool *pool, uint32_t page, bool idle);
void st_page_release(st_page_pool *pool, uint32_t page, bool idle);
// A user becomes idle, or stops being idle.
void st_page_set_idle(st_page_pool *pool, uint32_t page, bool idle);

#endif
