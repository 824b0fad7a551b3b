// Session files. Layout, little-endian: the header below; n int32 ids; the words below, and for each layer the first
// position that it kept, as u32; for each layer and KV head the keys and then the values of the sinks before that
// position, and of all positions from it on, each a row of the format (kernel/cache.h); the hash of all that as u64. A
// layer with a window keeps the pages that the last token sees. Version 4 is for models with recurrent layers: it has
// one more word, the position of an earlier state (0: none), no keys and values for these layers and, after all others,
// that state and the one after the last position with keys (absent if no position has keys). Version 2 had no words
// and first positions (each layer had all positions), and codes with other bits and scales, which are refused. Version
// 1 also had `half` in place of the formats: 1 for f16, 0 for f32, for both.
#include "runtime/session_file.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/output.h"

#include <stdio.h>
#include <string.h>

// The words: positions with keys and values; the context's window and sinks; forgotten tokens; the position of the
// earlier state.
enum { CACHED, WINDOW, SINKS, FORGOTTEN, BEFORE, WORDS };
enum { STATE_VERSION = 4, VERSION = 3, WHOLE_VERSION = 2, HALF_VERSION = 1, VALUES_SHIFT = 8 };
static const char magic[8] = {'S', 'E', 'T', 'U', 'N', 'S', 'E', 'S'};

typedef struct {
  char magic[8];
  uint32_t version, n_tokens;
  uint64_t identity;
  uint32_t n_layer, n_head_kv, head_dim;
  uint32_t formats; // setun_kv_type of keys, and of values << VALUES_SHIFT
} header;

_Static_assert(sizeof(header) == 40, "the header has no padding");

static header header_of(const st_sequences *all, const st_sequence *q, uint32_t n) {
  const st_run *r = all->run;
  const st_hparams *h = &r->model->h;
  header out = {.version = r->n_states ? STATE_VERSION : VERSION,
                .n_tokens = n,
                .identity = q->adapting.identity,
                .n_layer = h->n_layer,
                .n_head_kv = h->n_head_kv,
                .head_dim = h->head_dim,
                .formats = (uint32_t)r->keys | (uint32_t)r->values << VALUES_SHIFT};
  memcpy(out.magic, magic, sizeof magic);
  return out;
}

// Converts the header of an older version.
static header current_header(const header *h) {
  header out = *h;
  if (h->version != HALF_VERSION || h->formats > 1) return out;
  setun_kv_type kv = h->formats ? SETUN_KV_F16 : SETUN_KV_F32;
  out.version = VERSION, out.formats = (uint32_t)kv | (uint32_t)kv << VALUES_SHIFT;
  return out;
}

// A file's contents apart from its header and ids.
typedef struct extent {
  uint32_t words[WORDS];
  uint32_t firsts[ST_MAX_LAYERS]; // the first position of each layer, at the start of a page
} extent;

// The first block that a layer keeps: what the last token sees, since it may be removed to recompute its logits.
static uint32_t first_of(const st_sequences *all, uint32_t layer, uint32_t cached) {
  return st_sequence_visible(all, layer, cached ? cached - 1 : 0);
}

static extent extent_of(const st_sequences *all, const st_sequence *q) {
  const st_windows *w = &all->run->windows;
  extent e = {.words = {q->cached, w->window, w->sinks, q->forgotten, q->states.before.position}};
  for (uint32_t i = 0; i < all->run->model->h.n_layer; i++) {
    uint32_t first = first_of(all, i, q->cached);
    e.firsts[i] = (first > q->layers[i].first ? first : q->layers[i].first) * ST_CACHE_POSITIONS;
  }
  return e;
}

// Bytes of one position's key and value, and of all positions of a layer and head in a file.
typedef struct pieces {
  size_t key, value, keys, values;
} pieces;

// The sinks before a layer's first position.
static uint32_t sinks_of(const st_run *r, const extent *e, uint32_t layer) {
  uint32_t sinks = st_layer_sinks(&r->model->h, &r->windows, layer);
  return sinks < e->firsts[layer] ? sinks : e->firsts[layer];
}

static pieces pieces_of(const st_run *r, const extent *e, uint32_t layer) {
  const st_backend *b = r->model->backend;
  uint32_t n = sinks_of(r, e, layer) + e->words[CACHED] - e->firsts[layer], head_dim = r->model->h.head_dim;
  pieces p = {.key = b->cache_row_size(r->keys, true, head_dim),
              .value = b->cache_row_size(r->values, false, head_dim)};
  if (r->model->h.recurrent[layer]) n = 0;
  p.keys = n * p.key, p.values = n * p.value;
  return p;
}

// The number of states in a file.
static uint32_t states_of(const st_run *r, const extent *e) {
  return r->n_states ? (e->words[BEFORE] > 0) + (e->words[CACHED] > 0) : 0;
}

// Bytes of the largest piece: of keys and values, or a state.
static size_t largest_piece(const st_run *r, const extent *e) {
  size_t largest = 0;
  for (uint32_t i = 0; i < r->model->h.n_layer; i++) {
    pieces p = pieces_of(r, e, i);
    if (p.keys + p.values > largest) largest = p.keys + p.values;
  }
  return largest > r->state_bytes ? largest : r->state_bytes;
}

typedef struct {
  st_output out;
  unsigned char *memory; // destination of the next bytes; NULL: the file
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

// Copies a head's keys and values page by page: out of the cache, or into it where it has pages.
typedef struct copying {
  const st_sequences *all;
  const st_sequence *q;
  uint32_t layer, head;
  bool save;
  pieces p;
  char *keys, *values;
} copying;

// Those at positions [i, end).
static setun_status copy_positions(copying *c, uint32_t i, uint32_t end, setun_error *err) {
  st_run *r = c->all->run;
  const st_backend *b = r->model->backend;
  setun_status s = SETUN_OK;
  for (uint32_t n; i < end && s == SETUN_OK; i += n, c->keys += n * c->p.key, c->values += n * c->p.value) {
    n = end - i < ST_CACHE_POSITIONS ? end - i : ST_CACHE_POSITIONS;
    if (!st_sequence_has_page(c->all, c->q, c->layer, i / ST_CACHE_POSITIONS)) continue;
    uint32_t page = *st_sequence_page(c->all, c->q, c->layer, i / ST_CACHE_POSITIONS);
    s = c->save ? b->cache_save(r->queue, r->cache, page, c->head, n, c->keys, c->values, err)
                : b->cache_restore(r->queue, r->cache, page, c->head, n, c->keys, c->values, err);
  }
  return s;
}

static setun_status copy_head(const st_sequences *all, const st_sequence *q, const extent *e, uint32_t layer,
                              uint32_t head, bool save, char *bytes, setun_error *err) {
  copying c = {all, q, layer, head, save, pieces_of(all->run, e, layer), bytes, NULL};
  c.values = bytes + c.p.keys;
  setun_status s = copy_positions(&c, 0, sinks_of(all->run, e, layer), err);
  return s == SETUN_OK ? copy_positions(&c, e->firsts[layer], e->words[CACHED], err) : s;
}

static setun_status put_cache(writer *w, const st_sequences *all, const st_sequence *q, const extent *e) {
  char *keys = st_malloc(largest_piece(all->run, e), 1);
  const st_hparams *h = &all->run->model->h;
  setun_status s = keys ? SETUN_OK : st_fail_memory(w->err, "the session file");
  for (uint32_t layer = 0; layer < h->n_layer && s == SETUN_OK; layer++) {
    pieces p = pieces_of(all->run, e, layer);
    for (uint32_t head = 0; head < h->n_head_kv && s == SETUN_OK; head++) {
      s = copy_head(all, q, e, layer, head, true, keys, w->err);
      if (s == SETUN_OK) s = put(w, keys, p.keys);
      if (s == SETUN_OK) s = put(w, keys + p.keys, p.values);
    }
  }
  st_free(keys);
  return s;
}

static setun_status put_states(writer *w, const st_sequences *all, const st_sequence *q, const extent *e) {
  const st_run *r = all->run;
  const uint32_t slots[] = {e->words[BEFORE] ? q->states.before.slot : ST_NO_STATE, q->states.slot};
  size_t n = r->state_bytes;
  if (!states_of(r, e)) return SETUN_OK;
  char *bytes = st_malloc(n, 1);
  setun_status s = bytes ? SETUN_OK : st_fail_memory(w->err, "the session file");
  for (int i = 0; i < 2 && s == SETUN_OK; i++) {
    if (slots[i] == ST_NO_STATE) continue;
    s = r->model->backend->state_save(r->queue, r->states, slots[i], bytes, w->err);
    if (s == SETUN_OK) s = put(w, bytes, n);
  }
  st_free(bytes);
  return s;
}

// The number of words in a version.
static uint32_t words_of(const header *h) {
  return h->version == STATE_VERSION ? WORDS : h->version == VERSION ? BEFORE : 0;
}

static setun_status put_all(writer *w, const st_sequences *all, const st_sequence *q, const header *h) {
  extent e = extent_of(all, q);
  w->hash = ST_HASH_START;
  setun_status s = put(w, h, sizeof *h);
  if (s == SETUN_OK) s = put(w, q->ids, h->n_tokens * sizeof *q->ids);
  if (s == SETUN_OK) s = put(w, e.words, words_of(h) * sizeof *e.words);
  if (s == SETUN_OK) s = put(w, e.firsts, h->n_layer * sizeof *e.firsts);
  if (s == SETUN_OK) s = put_cache(w, all, q, &e);
  if (s == SETUN_OK) s = put_states(w, all, q, &e);
  uint64_t hash = w->hash;
  return s == SETUN_OK ? put(w, &hash, sizeof hash) : s;
}

setun_status st_session_file_save(const st_sequences *all, const st_sequence *q, const char *path, setun_error *err) {
  header h = header_of(all, q, q->position);
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

// Whether the cache's formats equal the file's.
static setun_status check_formats(const st_run *r, const st_file *f, const header *h, setun_error *err) {
  uint32_t formats = current_header(h).formats, mask = (1u << VALUES_SHIFT) - 1;
  uint32_t keys = formats & mask, values = formats >> VALUES_SHIFT;
  bool are_codes = keys >= SETUN_KV_Q8 || values >= SETUN_KV_Q8;
  if (h->version < VERSION && are_codes) {
    return st_fail(
        err, SETUN_ERROR_UNSUPPORTED,
        "%s: session version %u with a cache of keys in %s and values in %s: expected version %d, whose codes differ",
        f->path, h->version, format_name(r, keys), format_name(r, values), VERSION);
  }
  if (keys == (uint32_t)r->keys && values == (uint32_t)r->values) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expected a cache of keys in %s and values in %s, found %s and %s",
                 f->path, format_name(r, (uint32_t)r->keys), format_name(r, (uint32_t)r->values), format_name(r, keys),
                 format_name(r, values));
}

// Bytes before the keys and values, and in total.
static uint64_t begin_bytes(const header *h) {
  uint64_t words = words_of(h) ? words_of(h) + h->n_layer : 0;
  return sizeof *h + ((uint64_t)h->n_tokens + words) * 4;
}
static uint64_t file_bytes(const st_run *r, const header *h, const extent *e) {
  uint64_t bytes = begin_bytes(h) + 8 + (uint64_t)states_of(r, e) * r->state_bytes;
  for (uint32_t i = 0; i < h->n_layer; i++) {
    pieces p = pieces_of(r, e, i);
    bytes += (uint64_t)(p.keys + p.values) * h->n_head_kv;
  }
  return bytes;
}

setun_status st_session_file_save_memory(const st_sequences *all, const st_sequence *q, void *bytes, size_t capacity,
                                         size_t *length, setun_error *err) {
  header h = header_of(all, q, q->position);
  extent e = extent_of(all, q);
  writer w = {.memory = bytes, .err = err};
  uint64_t size = file_bytes(all->run, &h, &e);
  if (size > SIZE_MAX) return st_fail_memory(err, "the session");
  setun_status s = capacity >= size ? put_all(&w, all, q, &h) : SETUN_OK;
  if (s == SETUN_OK) *length = (size_t)size;
  return s;
}

static setun_status check_header(const st_sequences *all, const st_sequence *q, const st_file *f, header *h,
                                 setun_error *err) {
  const st_run *r = all->run;
  if (f->size < sizeof *h) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a session file, found %llu bytes", f->path,
                   (unsigned long long)f->size);
  }
  setun_status s = st_file_read(f, 0, h, sizeof *h, err);
  if (s != SETUN_OK) return s;
  header want = header_of(all, q, h->n_tokens);
  if (memcmp(h->magic, magic, sizeof magic)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a session file, found another kind", f->path);
  }
  if (h->version < HALF_VERSION || h->version > STATE_VERSION) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected session version %d to %d, found %u", f->path,
                   HALF_VERSION, STATE_VERSION, h->version);
  }
  if (h->identity != want.identity || h->n_layer != want.n_layer || h->n_head_kv != want.n_head_kv ||
      h->head_dim != want.head_dim || (h->version == STATE_VERSION) != (want.version == STATE_VERSION)) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: a session of a different model, or of other adapters", f->path);
  }
  setun_status same = check_formats(r, f, h, err);
  if (same != SETUN_OK) return same;
  if (h->n_tokens > r->n_ctx) {
    return st_fail(err, SETUN_ERROR_LIMIT, "%s: %u tokens do not fit into a context of %u", f->path, h->n_tokens,
                   r->n_ctx);
  }
  return SETUN_OK;
}

static const char *describe_window(uint32_t window, uint32_t sinks, char out[64]) {
  if (!window && !sinks) return "no window";
  int n = snprintf(out, 64, "a window of %u tokens", window);
  if (sinks) snprintf(out + n, 64 - (size_t)n, " and %u sinks", sinks);
  return out;
}

// Whether the context's window and sinks equal the file's, and the number of forgotten tokens is possible.
static setun_status check_windows(const st_windows *w, const st_file *f, const header *h, const extent *e,
                                  setun_error *err) {
  const uint32_t *words = e->words;
  if (words[WINDOW] != w->window || words[SINKS] != w->sinks) {
    char expected[64], found[64];
    return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expected %s, found a session with %s", f->path,
                   describe_window(w->window, w->sinks, expected), describe_window(words[WINDOW], words[SINKS], found));
  }
  bool whole = w->period ? words[FORGOTTEN] % w->period == 0 : !words[FORGOTTEN];
  if (whole && (!words[FORGOTTEN] || (words[CACHED] == h->n_tokens && h->n_tokens >= w->kept))) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected whole periods of %u forgotten tokens, found %u", f->path,
                 w->period, words[FORGOTTEN]);
}

// Reads the file's words; older versions have all positions.
static setun_status read_extent(const st_sequences *all, const st_file *f, const header *h, extent *e,
                                setun_error *err) {
  *e = (extent){.words = {h->n_tokens}};
  uint64_t begin = begin_bytes(h), firsts = h->n_layer * sizeof *e->firsts;
  if (f->size < begin) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected at least %llu bytes, found %llu", f->path,
                   (unsigned long long)begin, (unsigned long long)f->size);
  }
  setun_status s = SETUN_OK;
  if (words_of(h)) {
    size_t words = words_of(h) * sizeof *e->words;
    s = st_file_read(f, begin - firsts - words, e->words, words, err);
    if (s == SETUN_OK) s = st_file_read(f, begin - firsts, e->firsts, (size_t)firsts, err);
  }
  if (s == SETUN_OK) s = check_windows(&all->run->windows, f, h, e, err);
  if (s == SETUN_OK && e->words[CACHED] > h->n_tokens) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected keys of at most %u tokens, found %u", f->path, h->n_tokens,
                   e->words[CACHED]);
  }
  if (s == SETUN_OK && e->words[BEFORE] && e->words[BEFORE] >= e->words[CACHED]) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected an earlier state after fewer than %u tokens, found %u",
                   f->path, e->words[CACHED], e->words[BEFORE]);
  }
  for (uint32_t i = 0; i < h->n_layer && s == SETUN_OK; i++) {
    uint32_t most = st_sequence_visible(all, i, e->words[CACHED]) * ST_CACHE_POSITIONS;
    if (e->firsts[i] <= most && e->firsts[i] % ST_CACHE_POSITIONS == 0) continue;
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: layer %u: expected keys from a multiple of %d up to %u on, found %u",
                   f->path, i, ST_CACHE_POSITIONS, most, e->firsts[i]);
  }
  uint64_t size = s == SETUN_OK ? file_bytes(all->run, h, e) : 0;
  if (s == SETUN_OK && size != f->size) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected %llu bytes, found %llu", f->path, (unsigned long long)size,
                   (unsigned long long)f->size);
  }
  return s;
}

// A piece as it was written; *at moves past it.
static setun_status hash_piece(const st_file *f, uint64_t *at, char *bytes, size_t n, uint64_t *hash,
                               setun_error *err) {
  setun_status s = st_file_read(f, *at, bytes, n, err);
  if (s == SETUN_OK) *hash = st_hash(*hash, bytes, n);
  *at += n;
  return s;
}

// Computes the hash over the same pieces as when the file was written.
static setun_status check_hash(const st_run *r, const st_file *f, const header *h, const extent *e, setun_error *err) {
  size_t begin = (size_t)begin_bytes(h), largest = largest_piece(r, e), ids = h->n_tokens * sizeof(setun_token);
  char *bytes = st_malloc(begin > largest ? begin : largest, 1);
  if (!bytes) return st_fail_memory(err, "the session file");
  uint64_t at = sizeof *h, hash = st_hash(ST_HASH_START, h, sizeof *h), stored = 0;
  setun_status s = hash_piece(f, &at, bytes, ids, &hash, err);
  if (s == SETUN_OK && words_of(h)) {
    s = hash_piece(f, &at, bytes, words_of(h) * sizeof *e->words, &hash, err);
    if (s == SETUN_OK) s = hash_piece(f, &at, bytes, begin - (size_t)at, &hash, err);
  }
  for (uint32_t i = 0; i < h->n_layer * h->n_head_kv && s == SETUN_OK; i++) {
    pieces p = pieces_of(r, e, i / h->n_head_kv);
    s = hash_piece(f, &at, bytes, p.keys, &hash, err);
    if (s == SETUN_OK) s = hash_piece(f, &at, bytes, p.values, &hash, err);
  }
  for (uint32_t i = 0; i < states_of(r, e) && s == SETUN_OK; i++) {
    s = hash_piece(f, &at, bytes, r->state_bytes, &hash, err);
  }
  if (s == SETUN_OK) s = st_file_read(f, at, &stored, sizeof stored, err);
  if (s == SETUN_OK && stored != hash) s = st_fail(err, SETUN_ERROR_FORMAT, "%s: the checksum does not match", f->path);
  st_free(bytes);
  return s;
}

static setun_status read_cache(const st_sequences *all, const st_sequence *q, const st_file *f, const header *h,
                               const extent *e, setun_error *err) {
  char *keys = st_malloc(largest_piece(all->run, e), 1);
  uint64_t at = begin_bytes(h);
  setun_status s = keys ? SETUN_OK : st_fail_memory(err, "the session file");
  for (uint32_t layer = 0; layer < h->n_layer && s == SETUN_OK; layer++) {
    pieces p = pieces_of(all->run, e, layer);
    for (uint32_t head = 0; head < h->n_head_kv && s == SETUN_OK; head++) {
      s = st_file_read(f, at, keys, p.keys + p.values, err);
      if (s == SETUN_OK) s = copy_head(all, q, e, layer, head, false, keys, err);
      at += p.keys + p.values;
    }
  }
  st_free(keys);
  return s;
}

// After all keys and values, and before the hash.
static setun_status read_states(st_sequences *all, st_sequence *q, const st_file *f, const extent *e,
                                setun_error *err) {
  const st_run *r = all->run;
  uint32_t n = states_of(r, e);
  size_t size = r->state_bytes;
  if (!n) return SETUN_OK;
  if (!st_states_restore(all, q, e->words[BEFORE])) {
    return st_fail(err, SETUN_ERROR_LIMIT, "%s: no room for its recurrent state", f->path);
  }
  const uint32_t slots[] = {q->states.before.slot, q->states.slot};
  char *bytes = st_malloc(size, 1);
  setun_status s = bytes ? SETUN_OK : st_fail_memory(err, "the session file");
  for (uint32_t i = 0; i < n && s == SETUN_OK; i++) {
    s = st_file_read(f, f->size - sizeof(uint64_t) - (n - i) * (uint64_t)size, bytes, size, err);
    if (s == SETUN_OK) s = r->model->backend->state_restore(r->queue, r->states, slots[2 - n + i], bytes, err);
  }
  st_free(bytes);
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

// Replaces the sequence by the file's contents, which were checked.
static setun_status replace(st_sequences *all, st_sequence *q, const st_file *f, const header *h, const extent *e,
                            const setun_token *ids, setun_error *err) {
  uint32_t firsts[ST_MAX_LAYERS]; // blocks
  for (uint32_t i = 0; i < h->n_layer; i++) {
    uint32_t first = first_of(all, i, e->words[CACHED]), own = e->firsts[i] / ST_CACHE_POSITIONS;
    firsts[i] = first > own ? first : own;
  }
  setun_status s = st_sequence_replace(all, q, e->words[CACHED], firsts, err);
  if (s != SETUN_OK) return s;
  s = read_cache(all, q, f, h, e, err);
  if (s == SETUN_OK) s = read_states(all, q, f, e, err);
  if (s == SETUN_OK) {
    if (h->n_tokens) memcpy(q->ids, ids, h->n_tokens * sizeof *ids);
    q->position = h->n_tokens;
    q->cached = e->words[CACHED];
    q->forgotten = e->words[FORGOTTEN];
  }
  st_sequence_trim(all, q);
  return s;
}

// Loads from a file or from memory; closes *f.
static setun_status load(st_sequences *all, st_sequence *q, st_file *f, setun_error *err) {
  header h;
  extent e;
  const st_run *r = all->run;
  setun_status s = check_header(all, q, f, &h, err);
  if (s == SETUN_OK) s = read_extent(all, f, &h, &e, err);
  if (s == SETUN_OK) s = check_hash(r, f, &h, &e, err);
  setun_token *ids = s == SETUN_OK ? st_malloc(h.n_tokens, sizeof *ids) : NULL;
  if (s == SETUN_OK && !ids) s = st_fail_memory(err, "the session file");
  if (s == SETUN_OK) s = st_file_read(f, sizeof h, ids, h.n_tokens * sizeof *ids, err);
  if (s == SETUN_OK) s = check_ids(r, ids, h.n_tokens, f->path, err);
  if (s == SETUN_OK) s = replace(all, q, f, &h, &e, ids, err);
  st_free(ids);
  st_file_close(f);
  return s;
}

setun_status st_session_file_load(st_sequences *all, st_sequence *q, const char *path, setun_error *err) {
  st_file f;
  setun_status s = st_file_open(path, &f, err);
  return s == SETUN_OK ? load(all, q, &f, err) : s;
}

// The `read` of an st_file_source; the header's byte count was checked.
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
