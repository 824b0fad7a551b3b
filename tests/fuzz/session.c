// Fuzz target: a session file, read into a session of a golden model. The first byte says which cache (bit 0) and
// whether the checksum is made right first (bit 1), without which nothing behind it would ever be reached.
#define _GNU_SOURCE
#include "fuzz/fuzz.h"

#include "base/hash.h"
#include "setun.h"

enum { HEADER = 40, LAYERS = 3, HEADS = 2, HEAD_DIM = 16, CONTEXT = 32 };

static setun_session *session(bool half) {
  static setun_model *m;
  static setun_session *made[2];
  setun_model_params p = setun_model_params_default();
  p.threads = 1;
  if (!m && setun_model_load(SETUN_TEST_DATA "/golden/hf/llama3", &p, &m, NULL) != SETUN_OK) abort();
  const setun_kv_type kv = half ? SETUN_KV_F16 : SETUN_KV_F32;
  setun_session_params sp = {.size = sizeof sp, .n_ctx = CONTEXT, .threads = 1, .kv_keys = kv, .kv_values = kv};
  if (!made[half] && setun_session_new(m, &sp, &made[half], NULL) != SETUN_OK) abort();
  return made[half];
}

// Puts the right checksum at the end of a file whose size is right for its number of tokens.
static void mend(uint8_t *file, size_t size, bool half) {
  uint32_t n;
  if (size < HEADER + 8) return;
  memcpy(&n, file + 12, 4);
  size_t piece = (size_t)n * HEAD_DIM * (half ? 2 : 4), at = HEADER;
  if (n > CONTEXT || size != HEADER + (size_t)n * 4 + piece * 2 * LAYERS * HEADS + 8) return;
  uint64_t hash = st_hash(ST_HASH_START, file, HEADER);
  for (size_t i = 0; i <= 2 * LAYERS * HEADS; i++) {
    size_t bytes = i ? piece : (size_t)n * 4;
    hash = st_hash(hash, file + at, bytes);
    at += bytes;
  }
  memcpy(file + at, &hash, 8);
}

static void use(setun_session *s, const uint8_t *file, size_t size) {
  char again[128], *text = NULL;
  size_t length = 0;
  setun_token id = 5;
  // saved again, it is the same file, unless it was of an older version
  snprintf(again, sizeof again, "%s/again", fuzz_folder());
  if (setun_session_save(s, again, NULL) != SETUN_OK || st_file_load(again, 1 << 20, &text, &length, NULL) != SETUN_OK)
    abort();
  uint32_t version;
  memcpy(&version, file + 8, sizeof version);
  if (length != size || (version != 1 && memcmp(text, file, size))) abort();
  st_free(text);
  // refused where the context is full or the cache holds no sound numbers
  setun_error err = {SETUN_OK, ""};
  if (setun_session_eval(s, &id, 1, NULL, &err) != SETUN_OK && !err.message[0]) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  bool half = data[0] & 1;
  setun_session *s = session(half);
  char path[128];
  setun_error err = {SETUN_OK, ""};
  uint8_t *file = malloc(size);
  if (!file) abort();
  memcpy(file, data + 1, size - 1);
  if (data[0] & 2) mend(file, size - 1, half);
  snprintf(path, sizeof path, "%s/session", fuzz_folder());
  fuzz_write(path, file, size - 1);
  uint32_t before = setun_session_position(s);
  if (setun_session_load(s, path, &err) == SETUN_OK)
    use(s, file, size - 1);
  else if (!err.message[0] || setun_session_position(s) != before)
    abort();
  if (setun_session_truncate(s, 0, NULL) != SETUN_OK) abort();
  free(file);
  return 0;
}
