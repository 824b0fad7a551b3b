// A cache of experts: the same bits as with all experts resident, for every family and container with experts, for any
// capacity down to one token's experts of one layer, any number of threads, and any batch; errors of files that change;
// and the least memory that the plan names. Sessions that share a cache are in streaming_threads.c.
#define _XOPEN_SOURCE 700 // truncate
#include "models.h"

#include "backend/backend.h"
#include "base/random.h"
#include "placement/expert_policy.h"
#include "placement/expert_prefetch.h"
#include "placement/placement.h"
#include "runtime/session.h"

#include <math.h>
#include <unistd.h>

enum { TOKENS = 40, PROMPT = 31 };

typedef struct opened {
  st_directory *directory;
  st_placement *placement;
  st_model *model;
} opened;

// With so many experts in the cache (0: all of it is resident), and nothing else resident that need not be, or, where
// experts are read `ahead` layers before, all else of the n_layer layers.
static opened open_path(const char *path, uint32_t cached, uint32_t ahead, uint32_t n_layer) {
  opened o = {0};
  setun_error err = {SETUN_OK, ""};
  uint32_t parts = ahead ? 1 + 2 * n_layer : 0; // that are resident: the head, and halves of layers without experts
  st_placement_options options = {.backend = st_backend_find(NULL), .threads = 2, .context_size = st_context_size_of};
  options.prefetch = (st_prefetch_options){ahead ? ST_PREFETCH_ALWAYS : ST_PREFETCH_NEVER, ahead ? ahead : 1};
  if (cached) options.resident_parts = &parts, options.cached_experts = &cached;
  if (st_directory_open(path, &(st_open_options){0}, &o.directory, &err)) fail_msg("%s", err.message);
  if (st_placement_load(o.directory, &options, &o.placement, &err)) fail_msg("%s: %s", path, err.message);
  o.model = o.placement->model;
  return o;
}

static void close_model(opened *o) {
  st_placement_free(o->placement);
  st_directory_free(o->directory);
}

// Logits after a prompt in batches of `n_batch`, and after each token that follows: [1 + TOKENS - PROMPT, n_vocab].
static setun_status run(const st_model *m, uint32_t n_batch, int threads, float *logits, setun_error *err) {
  const setun_session_params p = {.size = sizeof p, .n_ctx = 64, .n_batch = n_batch, .threads = threads};
  setun_token ids[TOKENS];
  size_t n_vocab = m->h.n_vocab;
  st_session *s = NULL;
  for (int i = 0; i < TOKENS; i++) ids[i] = (i * 53 + i * i * 7 + 7) % (int)(n_vocab < 250 ? n_vocab : 250);
  setun_status status = st_session_new(m, &p, &s, err);
  if (status == SETUN_OK) status = st_session_eval(s, ids, PROMPT, NULL, err);
  for (int i = PROMPT; i <= TOKENS && status == SETUN_OK; i++) {
    memcpy(logits, st_session_logits(s), n_vocab * sizeof *logits);
    logits += n_vocab;
    if (i < TOKENS) status = st_session_eval(s, ids + i, 1, NULL, err);
  }
  st_session_free(s);
  return status;
}

static float *logits_of(const char *path, const st_model *m, uint32_t n_batch, int threads) {
  setun_error err = {SETUN_OK, ""};
  float *logits = st_malloc((size_t)(1 + TOKENS - PROMPT) * m->h.n_vocab, sizeof *logits);
  assert_non_null(logits);
  if (run(m, n_batch, threads, logits, &err)) fail_msg("%s: %s", path, err.message);
  return logits;
}

static void check_run(const char *path, const st_model *m, uint32_t n_batch, int threads, const float *expected) {
  float *logits = logits_of(path, m, n_batch, threads);
  if (memcmp(logits, expected, (size_t)(1 + TOKENS - PROMPT) * m->h.n_vocab * sizeof *logits)) {
    fail_msg("%s: batches of %u, %d threads: other logits than from resident experts", path, n_batch, threads);
  }
  st_free(logits);
}

static void check_model(const char *path) {
  opened resident = open_path(path, 0, 0, 0);
  const st_hparams *h = &resident.model->h;
  float *expected = logits_of(path, resident.model, 0, 2);
  const uint32_t capacities[] = {h->n_expert_used, h->n_expert_used + 1, h->n_expert + 1, h->n_expert * h->n_layer};
  const uint32_t batches[] = {0, 1, 3, 16};
  assert_null(resident.placement->streamer);
  for (size_t i = 0; i < sizeof capacities / sizeof *capacities; i++) {
    opened o = open_path(path, capacities[i], (uint32_t)i, h->n_layer);
    assert_int_equal(o.placement->plan.experts.capacity, capacities[i]);
    for (size_t k = i % 2; k < sizeof batches / sizeof *batches; k += 2) {
      check_run(path, o.model, batches[k], 1 + (int)(i + k) % 3, expected);
    }
    st_streamer_stats stats = st_streamer_get_stats(o.placement->streamer);
    assert_true(stats.expert_misses > 0);
    // With room for all, each is read once.
    if (capacities[i] == h->n_expert * h->n_layer) assert_true(stats.expert_misses <= capacities[i]);
    if (capacities[i] == h->n_expert * h->n_layer) assert_true(stats.expert_hits > stats.expert_misses);
    assert_true(stats.prefetch_hits <= stats.prefetched);
    assert_true(!stats.prefetched || (i && o.placement->plan.experts.direct));
    close_model(&o);
  }
  st_free(expected);
  close_model(&resident);
}

static void families(void **state) {
  (void)state;
  static const char *const names[] = {"hf/mixtral",           "hf/olmoe",
                                      "hf/olmoe-plain",       "hf/qwen2-moe",
                                      "hf/qwen3-moe",         "hf/qwen3-next",
                                      "hf/gpt-oss",           "hf/qwen35-moe",
                                      "gguf/mixtral.gguf",    "gguf/olmoe-plain.gguf",
                                      "gguf/qwen2-moe.gguf",  "gguf/gpt-oss.gguf",
                                      "gguf/qwen3-next.gguf", "gguf/qwen35-moe.gguf"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[512];
    snprintf(path, sizeof path, GOLDEN "%s", names[i]);
    check_model(path);
  }
}

// ---- synthetic models----------------------------------------------------------------------------------------------

// A ternary mixture in a layout, its experts in tensors of their own or in stacks. The caller removes it.
static void make_model(const char *layout, const char *experts, char *path, size_t size) {
  setun_error err = {SETUN_OK, ""};
  char made[512];
  setun_synthesis_params s = setun_synthesis_params_default();
  setun_convert_params p = setun_convert_params_default();
  snprintf(made, sizeof made, "setun-experts-made-%d.gguf", (int)getpid());
  snprintf(path, size, "setun-experts-%s-%s-%d.gguf", layout, experts, (int)getpid());
  s.shape = "tiny-moe";
  s.format = "t16";
  if (setun_synthesize(made, &s, &err)) fail_msg("%s", err.message);
  p.to = layout;
  p.experts = experts;
  if (setun_convert(made, path, &p, &err)) fail_msg("%s", err.message);
  unlink(made);
}

// With room for all experts, what was predicted is read ahead; what is predicted of the next layer from this one is
// mostly right for a layer whose input differs little.
static void check_ahead(const char *path) {
  opened o = open_path(path, 16, 1, 2);
  st_free(logits_of(path, o.model, 1, 1));
  st_streamer_stats stats = st_streamer_get_stats(o.placement->streamer);
  assert_true(stats.recall[0] > 0.3 && stats.recall[0] <= 1);
  assert_true(isnan(stats.recall[1])); // was not asked for
  assert_true(stats.prefetched <= 8);  // of the second layer
  close_model(&o);
}

// A prompt that uses all experts of the first layer reads those of the second in turn, before that layer's router has
// chosen; one token at a time does not.
static void check_in_turn(const char *path) {
  for (uint32_t batch = 1; batch < 64; batch += 62) {
    opened o = open_path(path, 16, 0, 2);
    st_free(logits_of(path, o.model, batch, 1));
    st_streamer_stats stats = st_streamer_get_stats(o.placement->streamer);
    assert_int_equal(stats.experts_in_turn, batch == 1 ? 0 : 8);
    assert_int_equal(stats.prefetched, 0);
    assert_int_equal(stats.expert_misses, 16); // none was there before it was wanted
    close_model(&o);
  }
}

static void layouts(void **state) {
  (void)state;
  static const char *const names[][2] = {
      {"t16", "split"}, {"t16", "stacked"}, {"i2_s", "stacked"}, {"tq1_0", "stacked"}, {"tq2_0", "split"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[512];
    make_model(names[i][0], names[i][1], path, sizeof path);
    check_model(path);
    opened o = open_path(path, 8, 0, 0);
    assert_int_equal(o.placement->plan.experts.direct, i < 2); // t16 is used without a copy
    if (i < 2) check_ahead(path);
    if (i < 2) check_in_turn(path);
    close_model(&o);
    unlink(path);
  }
}

// ---- files that change, memory ------------------------------------------------------------------------------------

// A file that was shortened: an error that names it, and the same in the next pass.
static void changing(void **state) {
  (void)state;
  char path[512];
  setun_error err = {SETUN_OK, ""};
  make_model("t16", "split", path, sizeof path);
  opened o = open_path(path, 8, 0, 0);
  float *logits = logits_of(path, o.model, 0, 1);
  assert_int_equal(truncate(path, 1 << 16), 0);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(run(o.model, 0, 1, logits, &err), SETUN_ERROR_IO);
    assert_non_null(strstr(err.message, path));
  }
  st_free(logits);
  close_model(&o);
  unlink(path);
}

// The cache takes what is left of the budget, and no more; the plan counts what its slots take.
static void budgets(void **state) {
  (void)state;
  char path[512];
  setun_error err = {SETUN_OK, ""};
  make_model("t16", "split", path, sizeof path);
  setun_session_params session = {.size = sizeof session, .n_ctx = 64, .n_batch = 8, .threads = 1};
  setun_model_params p = setun_model_params_default();
  setun_plan plan = {.size = sizeof plan};
  p.session = &session;
  p.threads = 1;
  if (setun_model_plan(path, &p, &plan, &err)) fail_msg("%s", err.message);
  assert_int_equal(plan.n_experts_cached, 0);
  assert_int_equal(plan.n_experts, 16);
  unlink(path);
  for (uint32_t cached = 2; cached <= 16; cached += 7) {
    make_model("t16", cached % 2 ? "split" : "stacked", path, sizeof path);
    opened o = open_path(path, cached, 0, 0);
    const st_memory_plan *made = &o.placement->plan;
    // 3 matrices of 256 x 256 at 2 bits, whole blocks of the file wherever they begin
    assert_true(made->experts.record >= 3 * 16384 && made->experts.record <= 3 * (16384 + 4096));
    assert_int_equal(made->expert_area % ST_HUGE_PAGE, 0);
    assert_true(made->expert_area >= cached * made->experts.record);
    assert_null(made->experts.unequal);
    close_model(&o);
    unlink(path);
  }
}

// A cache of two of a layer's experts: by score where what was used last is used rarely, and by use where text changes.
static void policy(void **state) {
  (void)state;
  st_expert_policy *p = NULL;
  setun_error err;
  assert_int_equal(st_expert_policy_new(1, 16, 1, 2, &p, &err), SETUN_OK);
  st_expert_policy_pass(p, 1);
  st_expert_policy_use(p, 0, 1);
  st_expert_policy_use(p, 1, 1);
  assert_true(st_expert_policy_before(p, 0, 1));
  assert_true(st_expert_policy_before(p, 2, 0)); // never used
  st_expert_policy_use(p, 0, 1);
  assert_true(st_expert_policy_before(p, 1, 0));
  // Two experts for 20 tokens each: LRU has them after the first two, and the score keeps what was used for long.
  for (int i = 0; i < 3000; i++) {
    st_expert_policy_pass(p, 1);
    st_expert_policy_use(p, (uint32_t)(i / 20 % 8 * 2 + i % 2), 1);
  }
  assert_int_equal(st_expert_policy_rule(p), ST_EXPERTS_BY_LRU);
  // 0 every fourth time, and the others in turn: LRU misses all, the score keeps 0 and hits it.
  for (int i = 0; i < 30000; i++) {
    st_expert_policy_pass(p, 1);
    st_expert_policy_use(p, i % 4 == 0 ? 0 : (uint32_t)(1 + i % 15), 1);
  }
  assert_int_equal(st_expert_policy_rule(p), ST_EXPERTS_BY_SCORE);
  assert_true(st_expert_policy_before(p, 1, 0) || st_expert_policy_before(p, 2, 0));
  // Scores stay finite for a very long text, and very long passes.
  for (int i = 0; i < 2000; i++) {
    st_expert_policy_pass(p, UINT32_MAX);
    st_expert_policy_use(p, 3, UINT32_MAX);
  }
  assert_true(st_expert_policy_before(p, 0, 3) && !st_expert_policy_before(p, 3, 0));
  st_expert_policy_free(p);
}

// How the passes of a text take longer: all of them at first, by a factor of 1 + `fading`; and each by chance, by a
// factor of 1 - `chance` to 1 + `chance`.
typedef struct variation {
  double fading, chance;
  uint64_t seed;
} variation;

// How much longer `passes` passes take than without prefetching, whose passes take 1 second, where those with it take
// `with` seconds, and the choice at the end.
static double follow_trials(double with, variation v, int passes, bool *on) {
  st_expert_prefetch *p = NULL;
  st_random random;
  setun_error err;
  double now = 0, without = 0;
  const st_prefetch_options options = {ST_PREFETCH_MEASURED, 2};
  assert_int_equal(st_expert_prefetch_new(2, 4, &options, &p, &err), SETUN_OK);
  st_random_seed(&random, v.seed);
  for (int i = 0; i < passes; i++) {
    double time = (1 + v.fading * exp(-i / 20.0)) * (1 + v.chance * (2 * st_random_unit(&random) - 1));
    st_expert_prefetch_begin(p, 1, now);
    *on = st_expert_prefetch_distance(p) > 0;
    now += *on ? with * time : time;
    without += time;
    st_expert_prefetch_end(p, now);
  }
  st_prefetch_effect effect = st_expert_prefetch_effect(p);
  assert_true(effect.trials ? passes >= 96 : passes < 112);
  if (effect.trials && !v.fading) assert_true(fabs(effect.time - with) < (v.chance ? 0.5 : 1e-9));
  if (!effect.trials) assert_true(isnan(effect.time) && !effect.on);
  st_expert_prefetch_free(p);
  return now / without - 1;
}

static bool is_even(void *context, uint32_t record) {
  (void)context;
  return record % 2 == 0;
}

// The mean of texts whose passes differ by chance as measured (a standard deviation of 17%).
static double follow_many(double with, int passes) {
  enum { TEXTS = 100 };
  double sum = 0;
  bool on;
  for (uint64_t seed = 1; seed <= TEXTS; seed++) sum += follow_trials(with, (variation){0, 0.3, seed}, passes, &on);
  return sum / TEXTS;
}

// Prefetching goes on only where it wins, and trials cost less than 2% where it is 20% slower, for a text of any
// length.
static void trials(void **state) {
  (void)state;
  bool on;
  const variation even = {0}, fading = {.fading = 1};
  for (int passes = 4; passes <= 1000; passes += 4) assert_true(follow_trials(1.2, even, passes, &on) < 0.02);
  assert_true(!on);
  assert_true(follow_trials(1, even, 1000, &on) < 0.02 && !on); // no gain: not worth it
  assert_true(follow_trials(0.7, even, 2000, &on) < -0.27 && on);
  follow_trials(0.94, fading, 120, &on); // chosen in the first trial
  assert_true(on);
  follow_trials(1.01, fading, 120, &on);
  assert_true(!on);
  for (int passes = 80; passes <= 640; passes += 16) {
    for (int with = 102; with <= 120; with += 3) assert_true(follow_many(0.01 * with, passes) < 0.02);
  }
  assert_true(follow_many(0.9, 160) < -0.02 && follow_many(0.9, 1000) < -0.06);
}

// What is expected comes nearest first and once; recall by distance.
static void prefetch(void **state) {
  (void)state;
  st_expert_prefetch *p = NULL;
  setun_error err;
  const st_prefetch_options options = {ST_PREFETCH_ALWAYS, 2};
  assert_int_equal(st_expert_prefetch_new(3, 4, &options, &p, &err), SETUN_OK);
  st_expert_prefetch_begin(p, 1, 0);
  assert_int_equal(st_expert_prefetch_distance(p), 2);
  st_expert_prefetch_expect(p, 2, 2, (const uint32_t[]){0, 3}, 2);
  st_expert_prefetch_expect(p, 1, 1, (const uint32_t[]){1, 2}, 2);
  st_expert_prefetch_expect(p, 2, 1, (const uint32_t[]){2, 3}, 2);
  assert_int_equal(st_expert_prefetch_next(p, is_even, NULL), 1 * 4 + 2); // 5 is odd
  st_expert_prefetch_used(p, 1, (const uint32_t[]){0, 2}, 2);
  assert_int_equal(st_expert_prefetch_next(p, is_even, NULL), 2 * 4 + 0);
  assert_int_equal(st_expert_prefetch_next(p, is_even, NULL), 2 * 4 + 2);
  assert_int_equal(st_expert_prefetch_next(p, is_even, NULL), UINT32_MAX);
  st_expert_prefetch_used(p, 2, (const uint32_t[]){2, 3}, 2);
  assert_true(fabs(st_expert_prefetch_recall(p, 1) - 0.75) < 1e-9); // one of two, two of two
  assert_true(fabs(st_expert_prefetch_recall(p, 2) - 0.5) < 1e-9);
  assert_true(isnan(st_expert_prefetch_recall(p, 3)));
  st_expert_prefetch_free(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(families), cmocka_unit_test(layouts), cmocka_unit_test(changing),
                                     cmocka_unit_test(budgets),  cmocka_unit_test(policy),  cmocka_unit_test(prefetch),
                                     cmocka_unit_test(trials)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
