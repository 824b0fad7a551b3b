// Differences between experts: their coding, what they save on a model whose experts differ in 1% of their trits and on
// one whose experts have nothing in common, the same bits as with whole experts, and files that lie about them.
#include "models.h"

#include "base/bytes.h"
#include "placement/placement.h"
#include "quant/trit_delta.h"
#include "runtime/session.h"
#include "source/expert_deltas.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { EXPERTS = 8, LAYERS = 2, USED = 2, MATRIX = 256 * 256 / 4, TOKENS = 40, PROMPT = 9 };

// ---- the coding ---------------------------------------------------------------------------------------------------

static uint32_t next_random(uint32_t *state) {
  *state = *state * 1664525 + 1013904223;
  return *state >> 8;
}

static unsigned code_at(const uint8_t *codes, uint64_t at) {
  return codes[at / 4] >> at % 4 * 2 & 3;
}

static void set_code(uint8_t *codes, uint64_t at, unsigned code) {
  codes[at / 4] = (uint8_t)((codes[at / 4] & ~(3u << at % 4 * 2)) | code << at % 4 * 2);
}

// A copy whose codes differ with this chance; returns how many do.
static uint64_t change(const uint8_t *from, uint8_t *to, size_t n, double chance, uint32_t *state) {
  uint64_t changed = 0;
  memcpy(to, from, n);
  for (uint64_t i = 0; i < 4 * n; i++) {
    if (next_random(state) >= chance * (1 << 24)) continue;
    set_code(to, i, (code_at(to, i) + 1 + next_random(state) % 2) % 3);
    changed++;
  }
  return changed;
}

// Both directions, the string's length beside its entropy, and lengths and positions that do not fit.
static void coding(void **state) {
  (void)state;
  static const double chances[] = {0, 0.0003, 0.005, 0.01, 0.05, 0.2, 0.6, 1};
  static const size_t sizes[] = {1, 3, 8, 13, 4096, 50001};
  uint32_t random = 1;
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    for (size_t c = 0; c < sizeof chances / sizeof *chances; c++) {
      size_t n = sizes[s];
      uint8_t *a = malloc(n), *b = malloc(n), *made = malloc(n);
      assert_true(a && b && made);
      for (uint64_t i = 0; i < 4 * n; i++) set_code(a, i, next_random(&random) % 3);
      uint64_t changed = change(a, b, n, chances[c], &random);
      assert_int_equal(st_trit_delta_count(a, b, n), changed);
      st_trit_delta d = st_trit_delta_measure(a, b, n);
      assert_int_equal(d.differences, changed);
      double p = (double)changed / (4 * (double)n), bits = 0;
      if (changed) bits = (double)changed - 4 * (double)n * (p * log2(p) + (p < 1 ? (1 - p) * log2(1 - p) : 0));
      assert_true(fabs(st_trit_delta_entropy(4 * n, changed) - bits) <= 1e-9 * bits);
      if (changed > 1000) assert_true((double)d.bytes <= (p < 0.7 ? 1.05 : 2) * bits / 8 + 1);
      uint8_t *string = malloc(d.bytes + 1); // exactly as long as said: sanitizers notice reads beyond it
      assert_non_null(string);
      st_trit_delta_encode(a, b, n, &d, string);
      memcpy(made, a, n);
      assert_true(st_trit_delta_apply(&d, string, false, made, n));
      assert_memory_equal(made, b, n);
      assert_true(st_trit_delta_apply(&d, string, true, made, n));
      assert_memory_equal(made, a, n);
      st_trit_delta other = d;
      other.differences++;
      assert_false(st_trit_delta_apply(&other, string, false, made, n));
      other = d;
      other.shift = ST_TRIT_DELTA_SHIFT_MOST + 1;
      assert_false(st_trit_delta_apply(&other, string, false, made, n));
      if (d.bytes) {
        other = d;
        other.bytes--;
        assert_false(st_trit_delta_apply(&other, string, false, made, n));
        if (n > 1)
          assert_false(st_trit_delta_apply(&d, string, false, made, code_at(a, 0) == code_at(b, 0) ? 0 : n / 9));
      }
      free(string), free(a), free(b), free(made);
    }
  }
}

// Strings of any bits stay within the codes.
static void any_string(void **state) {
  (void)state;
  uint32_t random = 7;
  for (int i = 0; i < 5000; i++) {
    st_trit_delta d = {next_random(&random) % 40, next_random(&random) % 60, next_random(&random) % 34};
    size_t n = next_random(&random) % 50;
    uint8_t *string = malloc(d.bytes + 1), *codes = malloc(n + 1);
    assert_true(string && codes);
    bool zeros = next_random(&random) % 4 == 0;
    for (size_t k = 0; k < d.bytes; k++) string[k] = zeros ? 0 : (uint8_t)next_random(&random);
    memset(codes, 0x55, n + 1);
    st_trit_delta_apply(&d, string, i % 2, codes, n);
    assert_int_equal(codes[n], 0x55);
    free(string), free(codes);
  }
}

// ---- models -------------------------------------------------------------------------------------------------------

static void convert(const char *from, const char *to, const char *layout, const char *experts, bool deltas) {
  setun_error err = {SETUN_OK, ""};
  setun_convert_params p = setun_convert_params_default();
  p.to = layout;
  p.experts = experts;
  p.deltas = deltas;
  if (setun_convert(from, to, &p, &err)) fail_msg("%s", err.message);
}

static st_directory *open_directory(const char *path) {
  st_directory *d = NULL;
  setun_error err = {SETUN_OK, ""};
  if (st_directory_open(path, &(st_open_options){0}, &d, &err)) fail_msg("%s", err.message);
  return d;
}

static void write_at(const char *path, uint64_t offset, const void *bytes, size_t n) {
  FILE *f = fopen(path, "r+b");
  assert_non_null(f);
  assert_int_equal(fseek(f, (long)offset, SEEK_SET), 0);
  assert_int_equal(fwrite(bytes, 1, n, f), n);
  assert_int_equal(fclose(f), 0);
}

static const st_tensor *matrix_of(const st_directory *d, int layer, int matrix, int expert) {
  static const char *const names[] = {"gate", "up", "down"};
  char name[64];
  snprintf(name, sizeof name, "blk.%d.ffn_%s.%d.weight", layer, names[matrix], expert);
  const st_tensor *t = st_directory_find(d, name);
  assert_non_null(t);
  assert_int_equal(t->bytes, MATRIX);
  return t;
}

// A mixture whose experts, all but the first of each layer, are the first with 1 in 100 trits changed.
static void make_similar(const char *path) {
  char made[512];
  setun_error err = {SETUN_OK, ""};
  setun_synthesis_params s = setun_synthesis_params_default();
  uint32_t random = 3;
  uint8_t base[MATRIX], codes[MATRIX];
  snprintf(made, sizeof made, "setun-deltas-made-%d.gguf", (int)getpid());
  s.shape = "tiny-moe";
  s.format = "t16";
  if (setun_synthesize(made, &s, &err)) fail_msg("%s", err.message);
  convert(made, path, "t16", "split", false);
  unlink(made);
  st_directory *d = open_directory(path);
  for (int i = 0; i < LAYERS * 3; i++) {
    const st_tensor *t = matrix_of(d, i / 3, i % 3, 0);
    if (st_file_read(&d->parts[0], t->offset, base, MATRIX, &err)) fail_msg("%s", err.message);
    for (int e = 1; e < EXPERTS; e++) {
      memcpy(codes, base, MATRIX);
      for (uint64_t n = 0; n < 4 * MATRIX / 100;) {
        uint64_t at = next_random(&random) % (4 * MATRIX);
        if (code_at(codes, at) != code_at(base, at)) continue;
        set_code(codes, at, (code_at(base, at) + 1 + next_random(&random) % 2) % 3);
        n++;
      }
      write_at(path, matrix_of(d, i / 3, i % 3, e)->offset, codes, MATRIX);
    }
  }
  st_directory_free(d);
}

typedef struct opened {
  st_directory *directory;
  st_placement *placement;
} opened;

static setun_status open_model(const char *path, uint32_t cached, uint32_t ahead, opened *o, setun_error *err) {
  const uint32_t parts = ahead ? 1 + 2 * LAYERS : 0;
  st_placement_options options = {.backend = st_backend_find(NULL), .threads = 2, .context_size = st_context_size_of};
  options.prefetch = (st_prefetch_options){ahead ? ST_PREFETCH_ALWAYS : ST_PREFETCH_NEVER, ahead ? ahead : 1};
  if (cached) options.resident_parts = &parts, options.cached_experts = &cached;
  *o = (opened){.directory = open_directory(path)};
  return st_placement_load(o->directory, &options, &o->placement, err);
}

static void close_model(opened *o) {
  st_placement_free(o->placement);
  st_directory_free(o->directory);
}

static setun_status run(const st_model *m, uint32_t n_batch, int threads, float *logits, setun_error *err) {
  const setun_session_params p = {.size = sizeof p, .n_ctx = 64, .n_batch = n_batch, .threads = threads};
  setun_token ids[TOKENS];
  st_session *s = NULL;
  for (int i = 0; i < TOKENS; i++) ids[i] = (i * 53 + i * i * 7 + 7) % 250;
  setun_status status = st_session_new(m, &p, &s, err);
  if (status == SETUN_OK) status = st_session_eval(s, ids, PROMPT, NULL, err);
  for (int i = PROMPT; i < TOKENS && status == SETUN_OK; i++) status = st_session_eval(s, ids + i, 1, NULL, err);
  if (status == SETUN_OK) memcpy(logits, st_session_logits(s), m->h.n_vocab * sizeof *logits);
  st_session_free(s);
  return status;
}

// Any capacity, batch, number of threads and reading ahead: the bits of resident experts, and fewer bytes than without
// deltas.
static void check_runs(const char *path, bool used) {
  setun_error err = {SETUN_OK, ""};
  opened resident;
  if (open_model(path, 0, 0, &resident, &err)) fail_msg("%s", err.message);
  size_t n = resident.placement->model->h.n_vocab;
  float *expected = malloc(n * sizeof *expected), *found = malloc(n * sizeof *found);
  assert_true(expected && found);
  if (run(resident.placement->model, 0, 2, expected, &err)) fail_msg("%s", err.message);
  static const uint32_t capacities[] = {USED, USED + 1, EXPERTS + 1, EXPERTS * LAYERS};
  for (uint32_t i = 0; i < 4; i++) {
    opened o;
    if (open_model(path, capacities[i], i, &o, &err)) fail_msg("%s", err.message);
    for (uint32_t batch = 1; batch <= 9; batch += 4) {
      if (run(o.placement->model, batch, (int)(1 + i % 3), found, &err)) fail_msg("%s", err.message);
      assert_memory_equal(found, expected, n * sizeof *found);
    }
    st_streamer_stats stats = st_streamer_get_stats(o.placement->streamer);
    if (i > 1 || !used) assert_int_equal(stats.deltas > 0, used); // two slots have no other one of the layer
    assert_true(stats.deltas <= stats.expert_misses + stats.prefetched);
    assert_int_equal(o.placement->plan.experts.with_deltas, used);
    // With room for all, each expert is read once, and made from another one of its layer if there is any.
    if (used && capacities[i] == EXPERTS * LAYERS) assert_true(stats.deltas > EXPERTS);
    close_model(&o);
  }
  close_model(&resident);
  free(expected), free(found);
}

// ---- what is saved ------------------------------------------------------------------------------------------------

static double entropy_bytes(double n, double p) {
  return n * (p - p * log2(p) - (1 - p) * log2(1 - p)) / 8;
}

// All pairs: those with the first expert differ in 1%, the others in 1.98% less what changed to the same in both, of
// which there are 0.01^2 / 2; stored within 5% of the entropy (FORMATS allows 25%).
static void similar(void **state) {
  (void)state;
  char path[64], target[64];
  st_expert_deltas deltas;
  setun_error err = {SETUN_OK, ""};
  snprintf(path, sizeof path, "setun-deltas-%d.gguf", (int)getpid());
  snprintf(target, sizeof target, "setun-deltas-t-%d.gguf", (int)getpid());
  make_similar(path);
  convert(path, target, "t16", NULL, true);
  st_directory *d = open_directory(target);
  if (st_expert_deltas_read(d, LAYERS, EXPERTS, &deltas, &err)) fail_msg("%s", err.message);
  assert_int_equal(deltas.n, LAYERS * EXPERTS * (EXPERTS - 1) / 2);
  const double trits = 12.0 * MATRIX, first = entropy_bytes(trits, 0.01), other = entropy_bytes(trits, 0.01985);
  for (size_t i = 0; i < deltas.n; i++) {
    double bytes = (double)deltas.items[i].bytes - ST_DELTA_HEADER;
    double expected = deltas.items[i].first ? other : first;
    if (bytes < 0.95 * expected || bytes > 1.05 * expected) {
      fail_msg("experts %u and %u: %g bytes, expected %g", (unsigned)deltas.items[i].first,
               (unsigned)deltas.items[i].second, bytes, expected);
    }
  }
  // An expert takes 49,152 bytes, its delta from the first 22 times less, and from another one 12 times.
  assert_in_range((int)(3 * MATRIX / first), 21, 23);
  assert_in_range((int)(3 * MATRIX / other), 12, 13);
  st_expert_deltas_free(&deltas);
  st_directory_free(d);
  check_runs(target, true);
  convert(target, path, "tq2_0", NULL, false); // to a layout that has no use for them
  d = open_directory(path);
  assert_null(st_directory_find(d, "blk.0.expert_deltas"));
  st_directory_free(d);
  check_runs(path, false);
  unlink(path);
  unlink(target);
}

static void on_log(setun_log_level level, const char *message, void *user) {
  (void)level;
  if (strstr(message, "deltas save nothing here")) ++*(int *)user;
}

// Experts with nothing in common: nothing is stored, and the conversion says so. And what is refused.
static void ordinary(void **state) {
  (void)state;
  char path[64], target[64];
  int said = 0;
  setun_error err = {SETUN_OK, ""};
  setun_synthesis_params s = setun_synthesis_params_default();
  setun_convert_params p = setun_convert_params_default();
  snprintf(path, sizeof path, "setun-deltas-%d.gguf", (int)getpid());
  snprintf(target, sizeof target, "setun-deltas-t-%d.gguf", (int)getpid());
  s.shape = "tiny-moe";
  s.format = "t16";
  if (setun_synthesize(path, &s, &err)) fail_msg("%s", err.message);
  p.to = "t16";
  p.deltas = true;
  p.log = on_log;
  p.user = &said;
  if (setun_convert(path, target, &p, &err)) fail_msg("%s", err.message);
  assert_int_equal(said, 1);
  st_directory *d = open_directory(target);
  assert_null(st_directory_find(d, "blk.0.expert_deltas"));
  st_directory_free(d);
  unlink(target);
  p.experts = "stacked";
  assert_int_equal(setun_convert(path, target, &p, &err), SETUN_ERROR_UNSUPPORTED);
  p.experts = NULL;
  p.to = "t2";
  assert_int_equal(setun_convert(path, target, &p, &err), SETUN_ERROR_UNSUPPORTED);
  p.to = "t16";
  assert_int_equal(setun_convert(SETUN_SOURCE_DIR "/models/setun-tales-7m", target, &p, &err), SETUN_ERROR_UNSUPPORTED);
  assert_non_null(strstr(err.message, "experts"));
  assert_int_not_equal(access(target, F_OK), 0);
  unlink(path);
}

// ---- files that lie -----------------------------------------------------------------------------------------------

typedef struct lie {
  uint64_t at; // in the tensor
  uint32_t value;
  const char *mention;
} lie;

// Overwrites four bytes at each of these places, and keeps what was there.
static void put(const char *path, const st_directory *d, const uint64_t *places, size_t n, const uint32_t *values,
                uint32_t *before) {
  setun_error err = {SETUN_OK, ""};
  for (size_t i = 0; i < n; i++) {
    uint8_t bytes[4];
    if (before && st_file_read(&d->parts[0], places[i], bytes, 4, &err)) fail_msg("%s", err.message);
    if (before) before[i] = st_load_u32(bytes);
    st_store_u32(bytes, values[i]);
    write_at(path, places[i], bytes, 4);
  }
}

static void check_error(setun_status s, setun_status expected, const setun_error *err, const char *mention) {
  if (s == expected && strstr(err->message, mention) && strstr(err->message, "blk.0.expert_deltas")) return;
  fail_msg("expected %s, found status %d: %s", mention, (int)s, err->message);
}

// Tables: refused when the model is opened, resident or not.
static void lying_tables(const char *path, const st_directory *d) {
  enum { PAIRS = EXPERTS * (EXPERTS - 1) / 2, TABLE = ST_DELTAS_HEADER };
  static const lie tables[] = {
      {0, 2, "version 1"},
      {4, PAIRS + 1, "at most 28 deltas"},
      {4, PAIRS - 1, ""},
      {TABLE, 1, "found 1 and 1"},           // of itself
      {TABLE + 4, EXPERTS, "found 0 and 8"}, // beyond the last
      {TABLE + 4, UINT32_MAX, "of 8 experts"},
      {TABLE + ST_DELTAS_ENTRY + 4, 1, "in ascending order"}, // a second time
      {TABLE, 5, "found 5 and 1"},
      {TABLE + 8, 7, "found 7"},
      {TABLE + 8, 100, "blk"},
      {TABLE + 12, 1, "found 4294"}, // beyond the tensor
  };
  setun_error err = {SETUN_OK, ""};
  uint64_t offset = st_directory_find(d, "blk.0.expert_deltas")->offset;
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
    const uint64_t place = offset + tables[i].at;
    uint32_t before;
    opened o;
    put(path, d, &place, 1, &tables[i].value, &before);
    setun_status s = open_model(path, i % 2 ? 0 : EXPERTS * LAYERS, 0, &o, &err);
    check_error(s, i ? SETUN_ERROR_FORMAT : SETUN_ERROR_UNSUPPORTED, &err, tables[i].mention);
    close_model(&o);
    put(path, d, &place, 1, &before, NULL);
  }
}

// Deltas themselves: when an expert is made with one. All of the layer's, so that it does not matter which is used.
static void lying_deltas(const char *path, const st_directory *d) {
  static const lie deltas[] = {{0, 0, ""}, {4, 5, ""}, {4, UINT32_MAX, ""}, {8, 31, ""}, {8, 99, ""}};
  setun_error err = {SETUN_OK, ""};
  st_expert_deltas found;
  uint64_t places[EXPERTS * EXPERTS];
  uint32_t values[EXPERTS * EXPERTS], before[EXPERTS * EXPERTS];
  float logits[512];
  if (st_expert_deltas_read(d, LAYERS, EXPERTS, &found, &err)) fail_msg("%s", err.message);
  for (size_t i = 0; i < sizeof deltas / sizeof *deltas; i++) {
    size_t n = 0;
    opened o;
    for (; found.items[n].layer == 0; n++) {
      places[n] = found.items[n].offset + deltas[i].at;
      values[n] = deltas[i].value;
    }
    put(path, d, places, n, values, before);
    if (open_model(path, EXPERTS * LAYERS, 0, &o, &err)) fail_msg("%s", err.message);
    for (int k = 0; k < 2; k++) {
      check_error(run(o.placement->model, 1, 2, logits, &err), SETUN_ERROR_FORMAT, &err, "fits their matrices");
    }
    close_model(&o);
    put(path, d, places, n, before, NULL);
  }
  st_expert_deltas_free(&found);
}

static void lies(void **state) {
  (void)state;
  char path[64], target[64];
  snprintf(path, sizeof path, "setun-deltas-%d.gguf", (int)getpid());
  snprintf(target, sizeof target, "setun-deltas-t-%d.gguf", (int)getpid());
  make_similar(path);
  convert(path, target, "t16", NULL, true);
  unlink(path);
  st_directory *d = open_directory(target);
  lying_tables(target, d);
  lying_deltas(target, d);
  st_directory_free(d);
  unlink(target);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(coding), cmocka_unit_test(any_string), cmocka_unit_test(similar),
                                     cmocka_unit_test(ordinary), cmocka_unit_test(lies)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
