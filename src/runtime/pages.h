// Who uses which page of a KV cache: the device owns the memory, this owns the numbers. A page has a count of users,
// and is free when it has none. Users that would give it up for others are counted apart.
#ifndef SETUN_RUNTIME_PAGES_H
#define SETUN_RUNTIME_PAGES_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct st_page_pool {
  uint32_t first; // its pages are [first, first + n_pages) of the cache
  uint32_t n_pages, n_free;
  uint32_t n_idle; // pages whose users would all give them up
  uint32_t *free;  // [n_pages], a stack of n_free
  uint32_t *users; // [n_pages]
  uint32_t *idle;  // [n_pages]: of `users`, those that would give it up
} st_page_pool;

// Bytes that a pool takes beside the struct.
uint64_t st_page_pool_size(uint32_t n_pages);
setun_status st_page_pool_new(st_page_pool *pool, uint32_t first, uint32_t n_pages, setun_error *err);
void st_page_pool_free(st_page_pool *pool);

// Pages with a user that would not give them up.
static inline uint32_t st_page_pool_used(const st_page_pool *pool) {
  return pool->n_pages - pool->n_free - pool->n_idle;
}
// Users of a page that would not give it up.
static inline uint32_t st_page_users(const st_page_pool *pool, uint32_t page) {
  return pool->users[page - pool->first] - pool->idle[page - pool->first];
}

// A free page, which then has one user; there must be one.
uint32_t st_page_acquire(st_page_pool *pool);
// One user more, or one less; `idle`: one that would give it up.
void st_page_share(st_page_pool *pool, uint32_t page, bool idle);
void st_page_release(st_page_pool *pool, uint32_t page, bool idle);
// A user begins, or ends, to be one that would give the page up.
void st_page_set_idle(st_page_pool *pool, uint32_t page, bool idle);

#endif
