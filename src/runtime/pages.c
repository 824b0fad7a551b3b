// The pool of page numbers.
#include "runtime/pages.h"

#include "base/memory.h"

uint64_t st_page_pool_size(uint32_t n_pages) {
  return (uint64_t)n_pages * 3 * sizeof(uint32_t);
}

setun_status st_page_pool_new(st_page_pool *p, uint32_t first, uint32_t n_pages, setun_error *err) {
  *p = (st_page_pool){.first = first, .n_pages = n_pages, .n_free = n_pages};
  p->free = st_malloc(n_pages, sizeof *p->free);
  p->users = st_calloc(n_pages, sizeof *p->users);
  p->idle = st_calloc(n_pages, sizeof *p->idle);
  if (!p->free || !p->users || !p->idle) {
    st_page_pool_free(p);
    return st_fail_memory(err, "the pages of the KV cache");
  }
  for (uint32_t i = 0; i < n_pages; i++) p->free[i] = first + n_pages - 1 - i; // the lowest first
  return SETUN_OK;
}

void st_page_pool_free(st_page_pool *p) {
  st_free(p->free);
  st_free(p->users);
  st_free(p->idle);
  *p = (st_page_pool){0};
}

static bool is_idle(const st_page_pool *p, uint32_t i) {
  return p->users[i] && p->users[i] == p->idle[i];
}

// Changes one page's counts, and the pool's with them.
static void change(st_page_pool *p, uint32_t page, int users, int idle) {
  uint32_t i = page - p->first;
  p->n_idle -= is_idle(p, i);
  p->users[i] += (uint32_t)users;
  p->idle[i] += (uint32_t)idle;
  p->n_idle += is_idle(p, i);
}

uint32_t st_page_acquire(st_page_pool *p) {
  uint32_t page = p->free[--p->n_free];
  change(p, page, 1, 0);
  return page;
}

void st_page_share(st_page_pool *p, uint32_t page, bool idle) {
  change(p, page, 1, idle);
}

void st_page_release(st_page_pool *p, uint32_t page, bool idle) {
  change(p, page, -1, -(int)idle);
  if (!p->users[page - p->first]) p->free[p->n_free++] = page;
}

void st_page_set_idle(st_page_pool *p, uint32_t page, bool idle) {
  change(p, page, 0, idle ? 1 : -1);
}
