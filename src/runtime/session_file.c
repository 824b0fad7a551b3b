// Session files. Layout, little-endian: the header below; n int32 ids; for each layer and KV head the keys and then the
// values of n positions, a row of the format (kernel/cache.h) each; the hash of all that as u64. Version 1 had `half`
// where the formats are: 1 for f16, 0 for f32, of both.
#include "runtime/session_file.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/output.h"

#include <string.h>

enum { VERSION = 2, HALF_VERSION = 1, VALUES_SHIFT = 8 };
static const char magic[8] = {'S', 'E', 'T', 'U', 'N', 'S', 'E', 'S'};

typedef struct {
  char magic[8];
  uint32_t version, n_tokens;
  uint64_t identity;
  uint32_t n_layer, n_head_kv, head_dim;
  uint32_t formats; // setun_kv_type of keys, and of values << VALUES_SHIFT
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
                .formats = (uint32_t)r->keys | (uint32_t)r->values << VALUES_SHIFT};
  memcpy(out.magic, magic, sizeof magic);
  return out;
}

// The header of an older version as this one has it.
static header current_header(const header *h) {
  header out = *h;
  if (h->version != HALF_VERSION || h->formats > 1) return out;
  setun_kv_type kv = h->formats ? SETUN_KV_F16 : SETUN_KV_F32;
  out.version = VERSION, out.formats = (uint32_t)kv | (uint32_t)kv << VALUES_SHIFT;
  return out;
}

// Bytes of one position's key, and value; and of the keys, then the values, of one layer and head.
typedef struct pieces {
  size_t key, value, keys, values;
} pieces;

static pieces pieces_of(const st_run *r, const header *h) {
  const st_backend *b = r->model->backend;
  pieces p = {.key = b->cache_row_size(r->keys, h->head_dim), .value = b->cache_row_size(r->values, h->head_dim)};
  p.keys = h->n_tokens * p.key, p.values = h->n_tokens * p.value;
  return p;
}

// The page of the positions from i on, and how many of them there are.
static uint32_t page_of(const st_sequences *all, const st_sequence *q, uint32_t layer, uint32_t i) {
  return *st_sequence_page(all, q, layer, i / ST_CACHE_POSITIONS);
}
static uint32_t positions_of(const header *h, uint32_t i) {
  return h->n_tokens - i < ST_CACHE_POSITIONS ? h->n_tokens - i : ST_CACHE_POSITIONS;
}

typedef struct {
  st_output out;
  unsigned char *memory; // where the next bytes go instead; NULL: to the file
  uint64_t hash;
  setun_error *err;
} writer;

static setun_status put(writer *w, const void *bytes, size_t n) {
  w->hash = st_hash(w->hash, bytes, n);
  if (!w->memory) return st_output_write(&w->out, bytes, n, w->err);
  if (n) memcpy(w->memory, bytes, n);
  w->memory += n;
  return SETUN_OK;
}

// The keys and values of one layer and head, page by page.
static setun_status save_head(const st_sequences *all, const st_sequence *q, uint32_t layer, uint32_t head, char *keys,
                              char *values, setun_error *err) {
  setun_status s = SETUN_OK;
  st_run *r = all->run;
  header h = header_of(r, q->position);
  pieces p = pieces_of(r, &h);
  for (uint32_t i = 0; i < h.n_tokens && s == SETUN_OK; i += ST_CACHE_POSITIONS) {
    s = r->model->backend->cache_save(r->queue, r->cache, page_of(all, q, layer, i), head, positions_of(&h, i),
                                      keys + i * p.key, values + i * p.value, err);
  }
  return s;
}

static setun_status restore_head(const st_sequences *all, const st_sequence *q, const header *h, uint32_t layer,
                                 uint32_t head, const char *keys, const char *values, setun_error *err) {
  setun_status s = SETUN_OK;
  st_run *r = all->run;
  pieces p = pieces_of(r, h);
  for (uint32_t i = 0; i < h->n_tokens && s == SETUN_OK; i += ST_CACHE_POSITIONS) {
    s = r->model->backend->cache_restore(r->queue, r->cache, page_of(all, q, layer, i), head, positions_of(h, i),
                                         keys + i * p.key, values + i * p.value, err);
  }
  return s;
}

static setun_status put_cache(writer *w, const st_sequences *all, const st_sequence *q, const header *h) {
  pieces p = pieces_of(all->run, h);
  char *keys = st_malloc(p.keys + p.values, 1), *values = keys ? keys + p.keys : NULL;
  setun_status s = keys ? SETUN_OK : st_fail_memory(w->err, "the session file");
  for (uint32_t layer = 0; layer < h->n_layer && s == SETUN_OK; layer++) {
    for (uint32_t head = 0; head < h->n_head_kv && s == SETUN_OK; head++) {
      s = save_head(all, q, layer, head, keys, values, w->err);
      if (s == SETUN_OK) s = put(w, keys, p.keys);
      if (s == SETUN_OK) s = put(w, values, p.values);
    }
  }
  st_free(keys);
  return s;
}

static setun_status put_all(writer *w, const st_sequences *all, const st_sequence *q, const header *h) {
  w->hash = ST_HASH_START;
  setun_status s = put(w, h, sizeof *h);
  if (s == SETUN_OK) s = put(w, q->ids, h->n_tokens * sizeof *q->ids);
  if (s == SETUN_OK) s = put_cache(w, all, q, h);
  uint64_t hash = w->hash;
  return s == SETUN_OK ? put(w, &hash, sizeof hash) : s;
}

setun_status st_session_file_save(const st_sequences *all, const st_sequence *q, const char *path, setun_error *err) {
  header h = header_of(all->run, q->position);
  writer w = {.err = err};
  setun_status s = st_output_open(path, &w.out, err);
  if (s != SETUN_OK) return s;
  s = put_all(&w, all, q, &h);
  if (s == SETUN_OK) return st_output_commit(&w.out, err);
  st_output_discard(&w.out);
  return s;
}

static const char *format_name(const st_run *r, uint32_t type) {
  const char *name = r->model->backend->cache_format_name((setun_kv_type)type);
  return name ? name : "an unknown format";
}

// Whether the cache's formats are the file's.
static setun_status check_formats(const st_run *r, const st_file *f, const header *h, setun_error *err) {
  uint32_t formats = current_header(h).formats, mask = (1u << VALUES_SHIFT) - 1;
  uint32_t keys = formats & mask, values = formats >> VALUES_SHIFT;
  if (keys == (uint32_t)r->keys && values == (uint32_t)r->values) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expected a cache of keys in %s and values in %s, found %s and %s",
                 f->path, format_name(r, (uint32_t)r->keys), format_name(r, (uint32_t)r->values), format_name(r, keys),
                 format_name(r, values));
}

// Bytes of all.
static uint64_t file_bytes(const st_run *r, const header *h) {
  pieces p = pieces_of(r, h);
  return sizeof *h + (uint64_t)h->n_tokens * 4 + (uint64_t)(p.keys + p.values) * h->n_layer * h->n_head_kv + 8;
}

setun_status st_session_file_save_memory(const st_sequences *all, const st_sequence *q, void *bytes, size_t capacity,
                                         size_t *length, setun_error *err) {
  header h = header_of(all->run, q->position);
  writer w = {.memory = bytes, .err = err};
  uint64_t size = file_bytes(all->run, &h);
  if (size > SIZE_MAX) return st_fail_memory(err, "the session");
  setun_status s = capacity >= size ? put_all(&w, all, q, &h) : SETUN_OK;
  if (s == SETUN_OK) *length = (size_t)size;
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
  if (h->version != VERSION && h->version != HALF_VERSION) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected session version %d or %d, found %u", f->path,
                   HALF_VERSION, VERSION, h->version);
  }
  if (h->identity != want.identity || h->n_layer != want.n_layer || h->n_head_kv != want.n_head_kv ||
      h->head_dim != want.head_dim) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: a session of another model", f->path);
  }
  setun_status same = check_formats(r, f, h, err);
  if (same != SETUN_OK) return same;
  if (h->n_tokens > r->n_ctx) {
    return st_fail(err, SETUN_ERROR_LIMIT, "%s: %u tokens do not fit into a context of %u", f->path, h->n_tokens,
                   r->n_ctx);
  }
  uint64_t size = file_bytes(r, h);
  if (size != f->size) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected %llu bytes, found %llu", f->path, (unsigned long long)size,
                   (unsigned long long)f->size);
  }
  return SETUN_OK;
}

// The hash over the same pieces in which the file was written.
static setun_status check_hash(const st_run *r, const st_file *f, const header *h, setun_error *err) {
  pieces p = pieces_of(r, h);
  size_t ids = h->n_tokens * sizeof(setun_token);
  char *bytes = st_malloc(p.keys + p.values + ids, 1);
  if (!bytes) return st_fail_memory(err, "the session file");
  uint64_t at = sizeof *h, hash = st_hash(ST_HASH_START, h, sizeof *h), stored = 0;
  uint64_t count = 1 + 2 * (uint64_t)h->n_layer * h->n_head_kv;
  setun_status s = SETUN_OK;
  for (uint64_t i = 0; i < count && s == SETUN_OK; i++) {
    size_t n = !i ? ids : i % 2 ? p.keys : p.values;
    s = st_file_read(f, at, bytes, n, err);
    hash = s == SETUN_OK ? st_hash(hash, bytes, n) : hash;
    at += n;
  }
  if (s == SETUN_OK) s = st_file_read(f, at, &stored, sizeof stored, err);
  if (s == SETUN_OK && stored != hash) s = st_fail(err, SETUN_ERROR_FORMAT, "%s: the checksum does not match", f->path);
  st_free(bytes);
  return s;
}

static setun_status read_cache(const st_sequences *all, const st_sequence *q, const st_file *f, const header *h,
                               setun_error *err) {
  pieces p = pieces_of(all->run, h);
  char *keys = st_malloc(p.keys + p.values, 1), *values = keys ? keys + p.keys : NULL;
  uint64_t at = sizeof *h + h->n_tokens * sizeof(setun_token);
  setun_status s = keys ? SETUN_OK : st_fail_memory(err, "the session file");
  for (uint32_t layer = 0; layer < h->n_layer && s == SETUN_OK; layer++) {
    for (uint32_t head = 0; head < h->n_head_kv && s == SETUN_OK; head++) {
      s = st_file_read(f, at, keys, p.keys + p.values, err);
      if (s == SETUN_OK) s = restore_head(all, q, h, layer, head, keys, values, err);
      at += p.keys + p.values;
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

// The sequence becomes what is in the file, of which everything was checked.
static setun_status replace(st_sequences *all, st_sequence *q, const st_file *f, const header *h,
                            const setun_token *ids, setun_error *err) {
  setun_status s = st_sequence_replace(all, q, h->n_tokens, err);
  if (s != SETUN_OK) return s;
  s = read_cache(all, q, f, h, err);
  if (s == SETUN_OK) {
    if (h->n_tokens) memcpy(q->ids, ids, h->n_tokens * sizeof *ids);
    q->position = h->n_tokens;
  }
  st_sequence_trim(all, q);
  return s;
}

// From a file or from memory; *f is closed.
static setun_status load(st_sequences *all, st_sequence *q, st_file *f, setun_error *err) {
  header h;
  const st_run *r = all->run;
  setun_status s = check_header(r, f, &h, err);
  if (s == SETUN_OK) s = check_hash(r, f, &h, err);
  setun_token *ids = s == SETUN_OK ? st_malloc(h.n_tokens, sizeof *ids) : NULL;
  if (s == SETUN_OK && !ids) s = st_fail_memory(err, "the session file");
  if (s == SETUN_OK) s = st_file_read(f, sizeof h, ids, h.n_tokens * sizeof *ids, err);
  if (s == SETUN_OK) s = check_ids(r, ids, h.n_tokens, f->path, err);
  if (s == SETUN_OK) s = replace(all, q, f, &h, ids, err);
  st_free(ids);
  st_file_close(f);
  return s;
}

setun_status st_session_file_load(st_sequences *all, st_sequence *q, const char *path, setun_error *err) {
  st_file f;
  setun_status s = st_file_open(path, &f, err);
  return s == SETUN_OK ? load(all, q, &f, err) : s;
}

// An st_file_source's; the header was found to say how many bytes there are.
static setun_status read_memory(const void *context, uint64_t offset, void *to, size_t n, setun_error *err) {
  (void)err;
  if (n) memcpy(to, (const char *)context + offset, n);
  return SETUN_OK;
}

setun_status st_session_file_load_memory(st_sequences *all, st_sequence *q, const void *bytes, size_t length,
                                         setun_error *err) {
  const st_file_source source = {.read = read_memory, .context = bytes, .size = length};
  st_file f;
  setun_status s = st_file_open_source("the saved session", &source, &f, err);
  return s == SETUN_OK ? load(all, q, &f, err) : s;
}
