// Older GGUF files hold each expert in tensors of its own (blk.0.ffn_gate.3.weight). The golden Mixtral with its stacks
// cut up must give the very same numbers.
#define _DEFAULT_SOURCE // mkdtemp
#include "models.h"

#include <unistd.h>

enum { N_IDS = 30 };

typedef struct {
  st_buffer infos, data;
  uint64_t count;
} parts;

static void put(st_buffer *b, const void *bytes, size_t n) {
  assert_true(st_buffer_append(b, bytes, n));
}
static void put_u64(st_buffer *b, uint64_t x) {
  put(b, &x, sizeof x);
}

// One F32 tensor's entry and bytes.
static void add(parts *p, const char *name, uint32_t n_dims, const uint64_t *dims, const char *bytes, size_t n) {
  static const char zeros[32] = {0};
  uint32_t type = 0;
  put_u64(&p->infos, strlen(name));
  put(&p->infos, name, strlen(name));
  put(&p->infos, &n_dims, sizeof n_dims);
  put(&p->infos, dims, n_dims * sizeof *dims);
  put(&p->infos, &type, sizeof type);
  put_u64(&p->infos, p->data.length);
  put(&p->data, bytes, n);
  put(&p->data, zeros, (32 - n % 32) % 32);
  p->count++;
}

static void cut_up(parts *p, const st_tensor *t, const char *bytes) {
  const char *stack = strstr(t->name, "_exps.weight");
  assert_ptr_equal(t->format, st_format_get(ST_F32));
  if (!stack) {
    add(p, t->name, t->n_dims, t->dims, bytes, t->bytes);
    return;
  }
  size_t each = t->bytes / t->dims[2];
  for (uint64_t e = 0; e < t->dims[2]; e++) {
    char name[128];
    snprintf(name, sizeof name, "%.*s.%u.weight", (int)(stack - t->name), t->name, (unsigned)e);
    add(p, name, 2, t->dims, bytes + e * each, each);
  }
}

static void write_old(const char *from, const char *to) {
  char *file = NULL;
  size_t length, infos = 24;
  setun_error err = {SETUN_OK, ""};
  golden g = golden_open(from);
  if (st_file_load(from, 1 << 26, &file, &length, &err) != SETUN_OK) fail_msg("%s", err.message);
  // The tensors' entries begin where the first one's name stands; the keys before them stay as they are.
  const char *first = g.directory->tensors[0].name;
  while (memcmp(file + infos + 8, first, strlen(first)) != 0) infos++;
  parts p = {0};
  for (size_t i = 0; i < g.directory->n_tensors; i++) {
    const st_tensor *t = &g.directory->tensors[i];
    cut_up(&p, t, file + t->offset);
  }
  memcpy(file + 8, &p.count, sizeof p.count);
  FILE *f = fopen(to, "wb");
  assert_non_null(f);
  static const char zeros[32] = {0};
  size_t header = infos + p.infos.length, padding = (32 - header % 32) % 32;
  assert_true(fwrite(file, infos, 1, f) == 1 && fwrite(p.infos.data, p.infos.length, 1, f) == 1);
  assert_true(fwrite(zeros, 1, padding, f) == padding && fwrite(p.data.data, p.data.length, 1, f) == 1);
  assert_int_equal(fclose(f), 0);
  st_buffer_free(&p.infos);
  st_buffer_free(&p.data);
  st_free(file);
  golden_close(&g);
}

static float *logits_of(const char *path, size_t *bytes) {
  setun_token ids[N_IDS];
  for (int i = 0; i < N_IDS; i++) ids[i] = (i * 41 + 5) % 300;
  setun_model *m = load(path, NULL);
  setun_session *s = session(m, 0, 2);
  eval(s, ids, N_IDS, NULL);
  *bytes = setun_model_n_vocab(m) * sizeof(float);
  float *out = st_malloc(*bytes, 1);
  memcpy(out, setun_session_logits(s), *bytes);
  setun_session_free(s);
  setun_model_free(m);
  return out;
}

static void same_numbers(void **state) {
  (void)state;
  char directory[] = "/tmp/setun-names-XXXXXX", path[128];
  size_t bytes, other;
  assert_non_null(mkdtemp(directory));
  snprintf(path, sizeof path, "%s/old.gguf", directory);
  write_old(GOLDEN "gguf/mixtral.gguf", path);
  float *stacked = logits_of(GOLDEN "gguf/mixtral.gguf", &bytes), *single = logits_of(path, &other);
  assert_int_equal(bytes, other);
  assert_memory_equal(stacked, single, bytes);
  st_free(stacked);
  st_free(single);
  unlink(path);
  rmdir(directory);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_numbers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
