// Reading and writing the file.
#include "placement/expert_state.h"

#include "base/bytes.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/output.h"

#include <string.h>

static const char MAGIC[] = "SETUNEXP";
enum { VERSION = 1, HEADER = 24, NUMBER = 4 };

static setun_status fail(const char *path, const char *expected, uint64_t found, setun_error *err) {
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected %s, found %llu", path, expected, (unsigned long long)found);
}

static setun_status check_header(const uint8_t *bytes, size_t length, const st_model *m, const char *path,
                                 setun_error *err) {
  if (length < HEADER || memcmp(bytes, MAGIC, sizeof MAGIC - 1)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a file of cached experts, found another kind of file", path);
  }
  uint32_t version = st_load_u32(bytes + 8), n = st_load_u32(bytes + 12);
  uint64_t identity = st_load_u32(bytes + 16) | (uint64_t)st_load_u32(bytes + 20) << 32;
  if (version != VERSION) return fail(path, "version 1 of a file of experts", version, err);
  if (identity != m->identity) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected the experts of this model, found those of another", path);
  }
  if (length != HEADER + (uint64_t)n * NUMBER) return fail(path, "as many bytes as its experts take", length, err);
  return SETUN_OK;
}

setun_status st_expert_state_load(st_expert_cache *c, const st_model *m, const char *path, setun_error *err) {
  bool exists = false;
  char *text = NULL;
  size_t length = 0, all = (size_t)m->h.n_expert * m->h.n_layer;
  setun_status s = st_path_exists(path, &exists, err);
  if (s != SETUN_OK || !exists) return s;
  s = st_file_load(path, HEADER + all * NUMBER, &text, &length, err);
  if (s != SETUN_OK) return s;
  const uint8_t *bytes = (const uint8_t *)text;
  s = check_header(bytes, length, m, path, err);
  size_t n = s == SETUN_OK ? (length - HEADER) / NUMBER : 0;
  uint32_t *experts = st_malloc(n, sizeof *experts);
  if (s == SETUN_OK && !experts) s = st_fail_memory(err, path);
  for (size_t i = 0; s == SETUN_OK && i < n; i++) {
    experts[i] = st_load_u32(bytes + HEADER + i * NUMBER);
    if (experts[i] >= all) s = fail(path, "experts that the model has", experts[i], err);
  }
  if (s == SETUN_OK) s = st_expert_cache_warm(c, experts, n, err);
  st_free(experts);
  st_free(text);
  return s;
}

setun_status st_expert_state_save(const st_expert_cache *c, const st_model *m, const char *path, setun_error *err) {
  size_t n = 0, all = (size_t)m->h.n_expert * m->h.n_layer;
  uint32_t *experts = st_malloc(all, sizeof *experts);
  uint8_t *bytes = st_malloc(HEADER + all * NUMBER, 1);
  setun_status s = experts && bytes ? SETUN_OK : st_fail_memory(err, path);
  st_output out = {0};
  if (s == SETUN_OK) n = st_expert_cache_list(c, experts);
  if (s == SETUN_OK) s = st_output_open(path, &out, err);
  if (s == SETUN_OK) {
    memcpy(bytes, MAGIC, sizeof MAGIC - 1);
    st_store_u32(bytes + 8, VERSION);
    st_store_u32(bytes + 12, (uint32_t)n);
    st_store_u32(bytes + 16, (uint32_t)m->identity);
    st_store_u32(bytes + 20, (uint32_t)(m->identity >> 32));
    for (size_t i = 0; i < n; i++) st_store_u32(bytes + HEADER + i * NUMBER, experts[i]);
    s = st_output_write(&out, bytes, HEADER + n * NUMBER, err);
    if (s == SETUN_OK) s = st_output_commit(&out, err);
    if (s != SETUN_OK) st_output_discard(&out);
  }
  st_free(experts);
  st_free(bytes);
  return s;
}
