// The ring: the units in its slots, their reads, and the handling of results.
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/system_error.h"
#include "source/stream_private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RETRIES_MOST = 1000, RETRIES_AT_ONCE = 16, FOLIO_MOST = 4 << 20, READ_AHEAD_MOST = 16 << 20 };

// ---- queues of pieces ---------------------------------------------------------------------------------------------

void st_piece_queue_init(st_piece_queue *q) {
  q->head = NULL;
  q->tail = &q->head;
}

void st_piece_queue_add(st_piece_queue *q, st_piece *pieces, size_t n) {
  for (size_t i = 0; i < n; i++) {
    pieces[i].next = NULL;
    *q->tail = &pieces[i];
    q->tail = &pieces[i].next;
  }
}

void st_piece_queue_return(st_piece_queue *q, st_piece *p) {
  p->next = q->head;
  q->head = p;
  if (!p->next) q->tail = &p->next;
}

st_piece *st_piece_queue_next(st_piece_queue *q) {
  st_piece *p = q->head;
  if (p && !(q->head = p->next)) q->tail = &q->head;
  return p;
}

size_t st_piece_queue_remove(st_piece_queue *q, const st_slot *slot) {
  size_t n = 0;
  st_piece **link = &q->head;
  while (*link) {
    if ((*link)->slot == slot) {
      *link = (*link)->next;
      n++;
    } else {
      link = &(*link)->next;
    }
  }
  q->tail = link;
  return n;
}

// ---- one piece ----------------------------------------------------------------------------------------------------

st_read st_piece_aim(st_piece *p) {
  p->direct = !p->buffered && atomic_load(&p->file->direct);
  size_t end = p->direct ? p->length : p->need; // buffered reads stop at the file's end
  return (st_read){p->direct ? p->file->fd : p->file->file->fd, p->to + p->got, end - p->got, p->offset + p->got};
}

static st_piece_state retry(st_piece *p, int error, setun_error *err) {
  if (error == EINVAL || error == EOPNOTSUPP) { // through the page cache from here on
    if (atomic_exchange(&p->file->direct, false)) atomic_store(&p->file->refused, error);
    return ST_PIECE_AGAIN;
  }
  if (++p->retries <= RETRIES_MOST) {
    if (p->retries > RETRIES_AT_ONCE) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return ST_PIECE_AGAIN;
  }
  st_fail(err, SETUN_ERROR_IO, "%s: reading %zu bytes at offset %llu: failed after %d attempts: %s",
          p->file->file->path, p->need, (unsigned long long)p->offset, p->retries, strerror(error));
  return ST_PIECE_FAILED;
}

// Data read through the page cache must not stay there: it is larger than memory.
static void drop_cached(const st_stream_file *file, uint64_t offset, uint64_t bytes) {
#ifdef POSIX_FADV_DONTNEED
  posix_fadvise(file->file->fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
#else
  (void)file, (void)offset, (void)bytes;
#endif
}

// The same for a whole unit: pages come in groups (large folios), and a group that spans two pieces, or the end of the
// previous unit, was dropped with neither. `after`: this much of the system's read-ahead after the unit is dropped as
// well.
static void drop_cached_unit(st_stream *s, size_t unit, uint64_t after) {
  for (size_t i = s->plan.first_extent[unit]; i < s->plan.first_extent[unit + 1]; i++) {
    const st_extent *e = &s->plan.extents[i];
    uint64_t before = e->offset < FOLIO_MOST ? e->offset : FOLIO_MOST;
    if (atomic_load(&s->files[e->file].direct)) continue;
    drop_cached(&s->files[e->file], e->offset - before, before + e->bytes + after);
  }
}

st_piece_state st_piece_result(const st_stream *s, st_piece *p, int64_t result, setun_error *err) {
  const st_stream_faults *faults = s->options.faults;
  const char *path = p->file->file->path;
  unsigned long long offset = p->offset;
  if (faults && faults->result) {
    st_read asked = {.to = p->to + p->got, .n = (p->direct ? p->length : p->need) - p->got};
    result = faults->result(faults->user, p->direct, asked.to, asked.n, result);
  }
  if (result < 0) {
    int error = (int)-result;
    bool passes = error == EINTR || error == EAGAIN || error == ECANCELED; // canceled: when a submitting thread ends
    if (passes || (p->direct && (error == EINVAL || error == EOPNOTSUPP))) return retry(p, error, err);
    st_fail_system(err, error, "%s: reading %zu bytes at offset %llu", path, p->need, offset);
    return ST_PIECE_FAILED;
  }
  size_t got = p->got + (size_t)result, whole_blocks = got & ~(p->file->alignment - 1);
  if (got >= p->need) {
    p->got = p->need;
    if (!p->direct) drop_cached(p->file, p->offset, p->need);
    return ST_PIECE_WHOLE;
  }
  if (p->direct && whole_blocks > p->got) {
    p->got = whole_blocks; // the next direct read must begin at a block
  } else if (p->direct) {
    p->got = got; // inside a block, or at an unexpected end: a buffered read shows which
    p->buffered = true;
  } else if (!result) {
    st_fail(err, SETUN_ERROR_IO, "%s: ends early: expected %zu bytes at offset %llu, found %zu", path, p->need, offset,
            got);
    return ST_PIECE_FAILED;
  } else {
    p->got = got;
  }
  return ST_PIECE_AGAIN;
}

void st_stream_read_begins(st_stream *s) {
  if (!s->in_flight++) s->busy_since = st_clock_seconds();
}

void st_stream_read_ends(st_stream *s, int64_t result) {
  if (!--s->in_flight) s->stats.busy_s += st_clock_seconds() - s->busy_since;
  s->stats.reads++;
  if (result > 0) s->stats.bytes += (uint64_t)result;
}

void st_piece_ends(st_piece *p, st_piece_state state, const setun_error *err) {
  if (state == ST_PIECE_FAILED && p->slot->error.code == SETUN_OK) p->slot->error = *err;
  p->slot->pending--;
}

// ---- making and freeing -------------------------------------------------------------------------------------------

// A second descriptor of the same file that bypasses the page cache; -1 with errno if unsupported.
static int open_direct(const st_file *file, const st_stream_faults *faults) {
  struct stat ours, opened;
  int refused = faults && faults->refuse ? faults->refuse(faults->user, ST_STREAM_OPEN_DIRECT) : 0;
  if (refused) {
    errno = refused;
    return -1;
  }
#if defined(O_DIRECT)
  int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
#else
  int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
#endif
  if (fd < 0) return -1;
  bool same = !fstat(fd, &opened) && !fstat(file->fd, &ours) && ours.st_dev == opened.st_dev &&
              ours.st_ino == opened.st_ino && (uint64_t)opened.st_size == file->size;
  errno = ESTALE; // another file has this name now
#if !defined(O_DIRECT) && defined(F_NOCACHE)
  if (same) same = !fcntl(fd, F_NOCACHE, 1);
#elif !defined(O_DIRECT)
  same = false;
  errno = EOPNOTSUPP;
#endif
  if (same) return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

static void open_files(st_stream *s) {
  for (size_t i = 0; i < s->plan.n_files; i++) {
    st_stream_file *f = &s->files[i];
    size_t alignment = s->plan.files[i].alignment;
    f->file = s->plan.files[i].file;
    f->alignment = alignment ? alignment : 1;
    if (!s->options.direct) continue;
    errno = EOPNOTSUPP;
    f->fd = alignment ? open_direct(f->file, s->options.faults) : -1;
    if (f->fd < 0) atomic_store(&f->refused, errno);
    atomic_store(&f->direct, f->fd >= 0);
  }
}

// Logs each file for which direct reading was refused, once.
static void log_refused(st_stream *s) {
  for (size_t i = 0; i < s->plan.n_files; i++) {
    int error = atomic_exchange(&s->files[i].refused, 0);
    if (error) {
      st_log_write(s->options.log, SETUN_LOG_WARNING,
                   "%s: cannot bypass the page cache (%s): reading through the cache, which is dropped after each read",
                   s->files[i].file->path, strerror(error));
    }
  }
}

static bool is_direct(const st_stream *s) {
  bool direct = true;
  for (size_t i = 0; i < s->plan.n_files; i++) direct = direct && atomic_load(&s->files[i].direct);
  return direct;
}

static setun_status choose_engine(st_stream *s, setun_error *err) {
  if (s->options.uring && is_direct(s)) {
    int error = st_stream_uring_new(s);
    if (!error) return SETUN_OK;
    st_log_write(s->options.log, SETUN_LOG_INFO, "io_uring is not available (%s): reading with threads",
                 strerror(error));
  }
  return st_stream_pread_new(s, err);
}

// The largest number of pieces in a unit.
static size_t most_pieces(const st_stream *s) {
  size_t most = 0;
  for (size_t u = 0; u < s->plan.n_units; u++) {
    size_t n = 0;
    for (size_t i = s->plan.first_extent[u]; i < s->plan.first_extent[u + 1]; i++) {
      n += (s->plan.extents[i].bytes + s->piece_bytes - 1) / s->piece_bytes;
    }
    if (n > most) most = n;
  }
  return most;
}

// Allocates the ring's memory before the engine, which may register it.
static setun_status make_slots(st_stream *s, setun_error *err) {
  s->n_slots = (size_t)s->options.slots;
  s->area_bytes = s->n_slots * s->plan.slot_bytes;
  s->slots = st_calloc(s->n_slots, sizeof *s->slots);
  s->files = st_calloc(s->plan.n_files, sizeof *s->files);
  for (size_t i = 0; s->files && i < s->plan.n_files; i++) s->files[i].fd = -1;
  s->area = st_pages_alloc(s->area_bytes, true);
  s->area_withheld = st_pages_no_fork(s->area, s->area_bytes);
  if (!s->slots || !s->files || !s->area) {
    return st_fail(err, SETUN_ERROR_MEMORY, "out of memory: %zu buffers of %zu bytes to read ahead", s->n_slots,
                   s->plan.slot_bytes);
  }
  if (s->options.touching) st_pool_touch(s->options.touching, s->area, s->area_bytes);
  for (size_t i = 0; i < s->n_slots; i++) s->slots[i].base = s->area + i * s->plan.slot_bytes;
  return SETUN_OK;
}

static setun_status make_pieces(st_stream *s, setun_error *err) {
  size_t most = most_pieces(s), all;
  if (!st_mul_size(most, s->n_slots, &all) || !(s->pieces = st_calloc(all, sizeof *s->pieces))) {
    return st_fail_memory(err, "the ring's reads");
  }
  for (size_t i = 0; i < s->n_slots; i++) s->slots[i].pieces = s->pieces + i * most;
  return SETUN_OK;
}

setun_status st_stream_new(const st_stream_unit *units, size_t n_units, const st_stream_options *options,
                           st_stream **stream, setun_error *err) {
  st_stream *s = st_calloc(1, sizeof *s);
  if (!s) return st_fail_memory(err, "the ring");
  pthread_mutex_init(&s->lock, NULL);
  s->maker = st_process_current();
  s->options = *options;
  setun_status status = st_read_plan_make(units, n_units, options, &s->plan, err);
  if (status == SETUN_OK) status = make_slots(s, err);
  if (status == SETUN_OK) {
    open_files(s);
    log_refused(s);
    status = choose_engine(s, err);
  }
  if (status == SETUN_OK) status = make_pieces(s, err);
  if (status != SETUN_OK) {
    st_stream_free(s);
    return status;
  }
  *stream = s;
  return SETUN_OK;
}

// Discards the contents of the ring's `n` slots from the `first` oldest on. The youngest first, so that none of them is
// started meanwhile.
static void drop(st_stream *s, size_t first, size_t n) {
  for (size_t i = first + n; i-- > first;) s->engine->drop(s, &s->slots[(s->head + i) % s->n_slots]);
  for (size_t i = first; i < first + n; i++) {
    drop_cached_unit(s, s->slots[(s->head + i) % s->n_slots].unit, READ_AHEAD_MOST);
  }
  s->queued -= n;
  if (!first) s->head = (s->head + n) % s->n_slots;
}

void st_stream_free(st_stream *s) {
  if (!s) return;
  bool child = s->maker != st_process_current();
  if (s->engine && child) s->engine->abandon(s);
  if (s->engine && !child) {
    drop(s, 0, s->queued);
    for (size_t i = 0; s->options.on_demand && s->pieces && i < s->n_slots; i++) st_stream_discard(s, i);
    s->engine->free(s);
  }
  for (size_t i = 0; s->files && i < s->plan.n_files; i++) {
    if (s->files[i].fd >= 0) close(s->files[i].fd);
  }
  if (!(child && s->area_withheld)) st_pages_free(s->area, s->area_bytes);
  st_free(s->pieces);
  st_free(s->slots);
  st_free(s->files);
  st_read_plan_free(&s->plan);
  if (!child) pthread_mutex_destroy(&s->lock);
  st_free(s);
}

// ---- passes -------------------------------------------------------------------------------------------------------

static void cut_extent(st_stream *s, st_slot *slot, const st_extent *e) {
  st_stream_file *file = &s->files[e->file];
  for (size_t done = 0; done < e->bytes;) {
    uint64_t offset = e->offset + done, left = file->file->size - offset;
    size_t length = e->bytes - done < s->piece_bytes ? e->bytes - done : s->piece_bytes;
    slot->pieces[slot->n_pieces++] = (st_piece){.slot = slot,
                                                .file = file,
                                                .offset = offset,
                                                .to = slot->base + e->at + done,
                                                .length = length,
                                                .need = left < length ? (size_t)left : length};
    done += length;
  }
}

// Advances to the next unit: the tail's first again, or the first of another pass that is not known yet.
static void step(const st_stream *s, st_cursor *c) {
  size_t n = s->plan.n_units, tail = n - s->options.n_tail;
  c->unit++;
  if (c->unit == n && c->unit > tail && c->tails > 1) {
    c->unit = tail;
    c->tails--;
  } else if (c->unit == n || (c->unit == tail && !c->tails)) {
    *c = (st_cursor){0, 1};
  }
}

static void queue_unit(st_stream *s, st_slot *slot, size_t unit) {
  slot->unit = unit;
  slot->error.code = SETUN_OK;
  slot->n_pieces = 0;
  for (size_t i = s->plan.first_extent[unit]; i < s->plan.first_extent[unit + 1]; i++) {
    cut_extent(s, slot, &s->plan.extents[i]);
  }
  slot->pending = slot->n_pieces;
  s->engine->queue(s, slot);
}

// Queues units for all empty slots.
static void fill(st_stream *s) {
  while (s->queued < s->n_slots) {
    st_slot *slot = &s->slots[(s->head + s->queued++) % s->n_slots];
    size_t unit = s->next.unit;
    step(s, &s->next);
    queue_unit(s, slot, unit);
  }
}

static bool has_failed(st_stream *s) {
  bool failed = false;
  pthread_mutex_lock(&s->lock);
  for (size_t i = 0; i < s->queued; i++) {
    failed = failed || s->slots[(s->head + i) % s->n_slots].error.code != SETUN_OK;
  }
  pthread_mutex_unlock(&s->lock);
  return failed;
}

void st_stream_start(st_stream *s, bool at_tail, unsigned tails) {
  size_t tail = s->plan.n_units - s->options.n_tail, first = at_tail && s->options.n_tail ? tail : 0;
  size_t stale = 0, ahead = 0;
  if (first == tail && !tails) tails = 1; // reading ahead for the next pass
  s->next = (st_cursor){first, tails};
  while (stale < s->queued && s->slots[(s->head + stale) % s->n_slots].unit != first) stale++;
  drop(s, 0, has_failed(s) ? s->queued : stale);
  for (; ahead < s->queued && s->slots[(s->head + ahead) % s->n_slots].unit == s->next.unit; ahead++) step(s, &s->next);
  drop(s, ahead, s->queued - ahead);
  s->taken = 0;
  fill(s);
}

// Waits until the slot's unit is complete, and returns where its ranges are.
static setun_status wait_for_slot(st_stream *s, st_slot *slot, const uint8_t **ranges, setun_error *err) {
  double begin = st_clock_seconds();
  s->engine->wait(s, slot);
  double waited = st_clock_seconds() - begin;
  pthread_mutex_lock(&s->lock);
  s->stats.waited_s += waited;
  pthread_mutex_unlock(&s->lock);
  log_refused(s);
  if (slot->error.code != SETUN_OK) return st_fail(err, slot->error.code, "%s", slot->error.message);
  drop_cached_unit(s, slot->unit, 0);
  size_t first = s->plan.first_range[slot->unit], n = s->plan.first_range[slot->unit + 1] - first;
  for (size_t i = 0; i < n; i++) ranges[i] = slot->base + s->plan.places[first + i];
  return SETUN_OK;
}

setun_status st_stream_acquire(st_stream *s, size_t unit, const uint8_t **ranges, setun_error *err) {
  if (s->taken == s->queued) {
    return st_fail(err, SETUN_ERROR_STATE, s->queued ? "streaming: all buffers are taken" : "streaming: not started");
  }
  st_slot *slot = &s->slots[(s->head + s->taken) % s->n_slots];
  if (slot->unit != unit) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "streaming: expected unit %zu to be taken, found %zu", slot->unit, unit);
  }
  setun_status status = wait_for_slot(s, slot, ranges, err);
  if (status == SETUN_OK) s->taken++;
  return status;
}

void st_stream_release(st_stream *s, size_t unit) {
  if (!s->taken || s->slots[s->head].unit != unit) return;
  s->head = (s->head + 1) % s->n_slots;
  s->queued--;
  s->taken--;
  fill(s);
}

// ---- on demand ------------------------------------------------------------------------------------------------------

void st_stream_fetch(st_stream *s, size_t slot, size_t unit) {
  queue_unit(s, &s->slots[slot], unit);
}

static bool is_pending(st_stream *s, const st_slot *slot) {
  pthread_mutex_lock(&s->lock);
  bool pending = slot->pending != 0;
  pthread_mutex_unlock(&s->lock);
  return pending;
}

bool st_stream_arrived(st_stream *s, size_t slot) {
  s->engine->poll(s);
  return !is_pending(s, &s->slots[slot]);
}

setun_status st_stream_wait(st_stream *s, size_t slot, const uint8_t **ranges, setun_error *err) {
  return wait_for_slot(s, &s->slots[slot], ranges, err);
}

void st_stream_locate(const st_stream *s, size_t slot, size_t unit, uint8_t **ranges) {
  size_t first = s->plan.first_range[unit], n = s->plan.first_range[unit + 1] - first;
  for (size_t i = 0; i < n; i++) ranges[i] = s->slots[slot].base + s->plan.places[first + i];
}

void st_stream_discard(st_stream *s, size_t slot) {
  if (!is_pending(s, &s->slots[slot])) return;
  s->engine->drop(s, &s->slots[slot]);
  drop_cached_unit(s, s->slots[slot].unit, READ_AHEAD_MOST);
}

void st_stream_poll(st_stream *s) {
  s->engine->poll(s);
}

st_stream_stats st_stream_get_stats(const st_stream *s) {
  pthread_mutex_t *lock = (pthread_mutex_t *)&s->lock; // streams come from st_stream_new and are not constant
  pthread_mutex_lock(lock);
  st_stream_stats stats = s->stats;
  if (s->in_flight) stats.busy_s += st_clock_seconds() - s->busy_since;
  pthread_mutex_unlock(lock);
  stats.how = s->names[!is_direct(s)];
  return stats;
}
