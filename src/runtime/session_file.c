// Session files. Layout, little-endian: the header below; n int32 ids; for each layer and KV head the keys and then the
// values of n positions; the hash of all that as u64.
#include "runtime/session_file.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/output.h"

#include <string.h>

enum { VERSION = 1 };
static const char magic[8] = {'S', 'E', 'T', 'U', 'N', 'S', 'E', 'S'};

typedef struct {
  char magic[8];
  uint32_t version, n_tokens;
  uint64_t identity;
  uint32_t n_layer, n_head_kv, head_dim, half;
} header;

_Static_assert(sizeof(header) == 40, "the header has no padding");

static header header_of(const st_run *r, uint32_t n) {
  const st_hparams *h = &r->model->h;
  header out = {.version = VERSION,
                .n_tokens = n,
                .identity = r->model->identity,
                .n_layer = h->n_layer,
                .n_head_kv = h->n_head_kv,
                .head_dim = h->head_dim,
                .half = r->keys == SETUN_KV_F16};
  memcpy(out.magic, magic, sizeof magic);
  return out;
}

// Bytes of the keys (or values) of one layer and head, and of one position of these.
static size_t row_bytes(const header *h) {
  return (size_t)h->head_dim * (h->half ? 2 : 4);
}
static size_t piece_bytes(const header *h) {
  return h->n_tokens * row_bytes(h);
}

// The page of the positions from i on, and how many of them there are.
static uint32_t page_of(const st_run *r, uint32_t layer, uint32_t i) {
  return r->pages[layer * r->stride + i / ST_CACHE_POSITIONS];
}
static uint32_t positions_of(const header *h, uint32_t i) {
  return h->n_tokens - i < ST_CACHE_POSITIONS ? h->n_tokens - i : ST_CACHE_POSITIONS;
}

typedef struct {
  st_output out;
  uint64_t hash;
  setun_error *err;
} writer;

static setun_status put(writer *w, const void *bytes, size_t n) {
  w->hash = st_hash(w->hash, bytes, n);
  return st_output_write(&w->out, bytes, n, w->err);
}

// The keys and values of one layer and head, page by page.
static setun_status save_head(st_run *r, const header *h, uint32_t layer, uint32_t head, char *keys, char *values,
                              setun_error *err) {
  setun_status s = SETUN_OK;
  size_t row = row_bytes(h);
  for (uint32_t i = 0; i < h->n_tokens && s == SETUN_OK; i += ST_CACHE_POSITIONS) {
    s = r->model->backend->cache_save(r->queue, r->cache, page_of(r, layer, i), head, positions_of(h, i),
                                      keys + i * row, values + i * row, err);
  }
  return s;
}

static setun_status restore_head(st_run *r, const header *h, uint32_t layer, uint32_t head, const char *keys,
                                 const char *values, setun_error *err) {
  setun_status s = SETUN_OK;
  size_t row = row_bytes(h);
  for (uint32_t i = 0; i < h->n_tokens && s == SETUN_OK; i += ST_CACHE_POSITIONS) {
    s = r->model->backend->cache_restore(r->queue, r->cache, page_of(r, layer, i), head, positions_of(h, i),
                                         keys + i * row, values + i * row, err);
  }
  return s;
}

static setun_status put_cache(writer *w, st_run *r, const header *h) {
  size_t n = piece_bytes(h);
  char *keys = st_malloc(n, 2), *values = keys ? keys + n : NULL;
  setun_status s = keys ? SETUN_OK : st_fail_memory(w->err, "the session file");
  for (uint32_t layer = 0; layer < h->n_layer && s == SETUN_OK; layer++) {
    for (uint32_t head = 0; head < h->n_head_kv && s == SETUN_OK; head++) {
      s = save_head(r, h, layer, head, keys, values, w->err);
      if (s == SETUN_OK) s = put(w, keys, n);
      if (s == SETUN_OK) s = put(w, values, n);
    }
  }
  st_free(keys);
  return s;
}

setun_status st_session_file_save(st_run *r, const setun_token *ids, uint32_t n, const char *path, setun_error *err) {
  header h = header_of(r, n);
  writer w = {.hash = ST_HASH_START, .err = err};
  setun_status s = st_output_open(path, &w.out, err);
  if (s != SETUN_OK) return s;
  s = put(&w, &h, sizeof h);
  if (s == SETUN_OK) s = put(&w, ids, n * sizeof *ids);
  if (s == SETUN_OK) s = put_cache(&w, r, &h);
  uint64_t hash = w.hash;
  if (s == SETUN_OK) s = st_output_write(&w.out, &hash, sizeof hash, err);
  if (s == SETUN_OK) return st_output_commit(&w.out, err);
  st_output_discard(&w.out);
  return s;
}

static setun_status check_header(const st_run *r, const st_file *f, header *h, setun_error *err) {
  if (f->size < sizeof *h) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a session file, found %llu bytes", f->path,
                   (unsigned long long)f->size);
  }
  setun_status s = st_file_read(f, 0, h, sizeof *h, err);
  if (s != SETUN_OK) return s;
  header want = header_of(r, h->n_tokens);
  if (memcmp(h->magic, magic, sizeof magic)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a session file, found another kind", f->path);
  }
  if (h->version != VERSION) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected session version %d, found %u", f->path, VERSION,
                   h->version);
  }
  if (h->identity != want.identity || h->n_layer != want.n_layer || h->n_head_kv != want.n_head_kv ||
      h->head_dim != want.head_dim) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: a session of another model", f->path);
  }
  if (h->half != want.half) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expected a cache in %s, found %s", f->path,
                   want.half ? "f16" : "f32", h->half ? "f16" : "f32");
  }
  if (h->n_tokens > r->n_ctx) {
    return st_fail(err, SETUN_ERROR_LIMIT, "%s: %u tokens do not fit into a context of %u", f->path, h->n_tokens,
                   r->n_ctx);
  }
  uint64_t size = sizeof *h + (uint64_t)h->n_tokens * 4 + 2 * (uint64_t)piece_bytes(h) * h->n_layer * h->n_head_kv + 8;
  if (size != f->size) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected %llu bytes, found %llu", f->path, (unsigned long long)size,
                   (unsigned long long)f->size);
  }
  return SETUN_OK;
}

// The hash over the same pieces in which the file was written.
static setun_status check_hash(const st_file *f, const header *h, setun_error *err) {
  size_t piece = piece_bytes(h), ids = h->n_tokens * sizeof(setun_token), most = piece > ids ? piece : ids;
  char *bytes = st_malloc(most, 1);
  if (!bytes) return st_fail_memory(err, "the session file");
  uint64_t at = sizeof *h, hash = st_hash(ST_HASH_START, h, sizeof *h), stored = 0;
  uint64_t pieces = 1 + 2 * (uint64_t)h->n_layer * h->n_head_kv;
  setun_status s = SETUN_OK;
  for (uint64_t i = 0; i < pieces && s == SETUN_OK; i++) {
    size_t n = i ? piece : ids;
    s = st_file_read(f, at, bytes, n, err);
    hash = s == SETUN_OK ? st_hash(hash, bytes, n) : hash;
    at += n;
  }
  if (s == SETUN_OK) s = st_file_read(f, at, &stored, sizeof stored, err);
  if (s == SETUN_OK && stored != hash) s = st_fail(err, SETUN_ERROR_FORMAT, "%s: the checksum does not match", f->path);
  st_free(bytes);
  return s;
}

static setun_status read_cache(st_run *r, const st_file *f, const header *h, setun_error *err) {
  size_t n = piece_bytes(h);
  char *keys = st_malloc(n, 2), *values = keys ? keys + n : NULL;
  uint64_t at = sizeof *h + h->n_tokens * sizeof(setun_token);
  setun_status s = keys ? SETUN_OK : st_fail_memory(err, "the session file");
  for (uint32_t layer = 0; layer < h->n_layer && s == SETUN_OK; layer++) {
    for (uint32_t head = 0; head < h->n_head_kv && s == SETUN_OK; head++) {
      s = st_file_read(f, at, keys, 2 * n, err);
      if (s == SETUN_OK) s = restore_head(r, h, layer, head, keys, values, err);
      at += 2 * n;
    }
  }
  st_free(keys);
  return s;
}

static setun_status check_ids(const st_run *r, const setun_token *ids, uint32_t n, const char *path, setun_error *err) {
  for (uint32_t i = 0; i < n; i++) {
    if (ids[i] < 0 || (uint32_t)ids[i] >= r->model->h.n_vocab) {
      return st_fail(err, SETUN_ERROR_FORMAT, "%s: token %u: expected an id below %u, found %d", path, i,
                     r->model->h.n_vocab, ids[i]);
    }
  }
  return SETUN_OK;
}

setun_status st_session_file_load(st_run *r, setun_token *ids, uint32_t *n, const char *path, setun_error *err) {
  st_file f;
  header h;
  setun_status s = st_file_open(path, &f, err);
  if (s != SETUN_OK) return s;
  s = check_header(r, &f, &h, err);
  if (s == SETUN_OK) s = check_hash(&f, &h, err);
  setun_token *read = s == SETUN_OK ? st_malloc(h.n_tokens, sizeof *read) : NULL;
  if (s == SETUN_OK && !read) s = st_fail_memory(err, "the session file");
  if (s == SETUN_OK) s = st_file_read(&f, sizeof h, read, h.n_tokens * sizeof *read, err);
  if (s == SETUN_OK) s = check_ids(r, read, h.n_tokens, path, err);
  if (s == SETUN_OK) s = read_cache(r, &f, &h, err);
  if (s == SETUN_OK) {
    if (h.n_tokens) memcpy(ids, read, h.n_tokens * sizeof *ids);
    *n = h.n_tokens;
  }
  st_free(read);
  st_file_close(&f);
  return s;
}
