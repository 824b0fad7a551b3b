// The modes of floating point that the application has set - rounding, and on x86 and ARM flushing of denormals -
// change no logits, whenever threads were made, and are the same afterwards.
#define _POSIX_C_SOURCE 200809L // strtok_r
#include "models.h"

#include "base/memory.h"

#include <fenv.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define MODEL SETUN_SOURCE_DIR "/models/setun-tales-7m"
#define FLOATS GOLDEN "hf/llama3"

enum { TOKENS = 20, PROMPT = 12 };

// ---- the modes ----------------------------------------------------------------------------------------------------

typedef struct modes {
  int rounding;
  bool flush; // denormal results become zero, and so do denormal inputs
} modes;

static unsigned long control(void) {
#if defined(__x86_64__)
  return _mm_getcsr() & ~0x3fu; // without the exception flags
#elif defined(__aarch64__)
  unsigned long value;
  __asm__ __volatile__("mrs %0, fpcr" : "=r"(value));
  return value;
#else
  return (unsigned long)fegetround();
#endif
}

static void set(modes m) {
  fesetenv(FE_DFL_ENV);
  fesetround(m.rounding);
#if defined(__x86_64__)
  if (m.flush) _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
  if (m.flush) __asm__ __volatile__("msr fpcr, %0" : : "r"(control() | 1ul << 24));
#endif
}

// Whether they have an effect here.
static bool take_effect(modes m) {
  volatile float one = 1, small = 1e-30f, tiny = 1e-38f, tenth = 0.1f;
  float sum = one + small, less = -one - small, product = tiny * tenth;
  bool rounds = m.rounding == FE_UPWARD ? sum > 1 : m.rounding == FE_DOWNWARD ? less < -1 : sum == 1 && less == -1;
#if !defined(__x86_64__) && !defined(__aarch64__)
  return rounds;
#endif
  return rounds && (product == 0) == m.flush;
}

static const modes all[] = {{FE_TONEAREST, true}, {FE_UPWARD, false},     {FE_UPWARD, true},    {FE_DOWNWARD, false},
                            {FE_DOWNWARD, true},  {FE_TOWARDZERO, false}, {FE_TOWARDZERO, true}};
enum { ALL = sizeof all / sizeof *all };

// ---- what is computed ---------------------------------------------------------------------------------------------

typedef struct result {
  float *logits; // [n_vocab]
  setun_token drawn;
  size_t n_tokens;
} result;

static void compute(const setun_model *m, setun_session *s, result *r) {
  setun_token ids[TOKENS], text[TOKENS];
  size_t n_vocab = setun_model_n_vocab(m);
  setun_sampler *sampler = NULL;
  for (int i = 0; i < TOKENS; i++) ids[i] = (i * 53 + 7) % 250;
  eval(s, ids, PROMPT, NULL);
  for (int i = PROMPT; i < TOKENS; i++) eval(s, ids + i, 1, NULL);
  assert_int_equal(setun_sampler_new(NULL, &sampler, NULL), SETUN_OK);
  assert_int_equal(setun_sampler_sample(sampler, setun_session_logits(s), n_vocab, &r->drawn, NULL), SETUN_OK);
  setun_sampler_free(sampler);
  assert_int_equal(setun_tokenize(m, "Once upon a time", 16, 0, text, TOKENS, &r->n_tokens, NULL), SETUN_OK);
  r->logits = st_malloc(n_vocab, sizeof *r->logits);
  memcpy(r->logits, setun_session_logits(s), n_vocab * sizeof *r->logits);
}

static void check(const setun_model *m, setun_session *s, const result *expected, modes now) {
  result found;
  unsigned long before = control();
  compute(m, s, &found);
  assert_true(control() == before);
  assert_true(take_effect(now));
  fesetenv(FE_DFL_ENV);
  assert_memory_equal(found.logits, expected->logits, setun_model_n_vocab(m) * sizeof *found.logits);
  assert_int_equal(found.drawn, expected->drawn);
  assert_int_equal(found.n_tokens, expected->n_tokens);
  st_free(found.logits);
}

static setun_model *load_with(const char *path, const char *isa, bool precise) {
  setun_model *m = NULL;
  setun_error err = {SETUN_OK, ""};
  setun_model_params p = {.size = sizeof p, .isa = isa, .precise = precise, .threads = 2};
  if (setun_model_load(path, &p, &m, &err)) fail_msg("%s", err.message);
  return m;
}

static setun_session *new_session(const setun_model *m) {
  setun_session *s = NULL;
  setun_error err = {SETUN_OK, ""};
  setun_session_params p = {.size = sizeof p, .threads = 3, .n_batch = 8};
  if (setun_session_new(m, &p, &s, &err)) fail_msg("%s", err.message);
  return s;
}

static void check_model(const char *path, const char *isa, bool precise) {
  setun_model *m = load_with(path, isa, precise);
  result expected;
  setun_session *s = new_session(m);
  compute(m, s, &expected);
  setun_session_free(s);
  for (int i = 0; i < ALL; i++) {
    // model and threads made before the modes were set
    s = new_session(m);
    set(all[i]);
    assert_true(take_effect(all[i]));
    check(m, s, &expected, all[i]);
    setun_session_free(s);
    // threads made after, used in those modes and in others
    for (int k = 0; k < 2; k++) {
      modes later = all[(i + 3 * k) % ALL];
      set(all[i]);
      s = new_session(m);
      assert_true(take_effect(all[i]));
      set(later);
      check(m, s, &expected, later);
      setun_session_free(s);
    }
    // weights and tables made after
    set(all[i]);
    setun_model *own = load_with(path, isa, precise);
    assert_true(take_effect(all[i]));
    s = new_session(own);
    check(own, s, &expected, all[i]);
    setun_session_free(s);
    setun_model_free(own);
  }
  st_free(expected.logits);
  setun_model_free(m);
}

static void each_instruction_set(void (*check_one)(const char *isa)) {
  char names[256];
  snprintf(names, sizeof names, "%s", setun_isa_available());
  for (char *rest = names, *isa; (isa = strtok_r(rest, " ", &rest));) check_one(isa);
}

static void ternary_with(const char *isa) {
  check_model(MODEL, isa, false);
}

static void floats_with(const char *isa) {
  check_model(FLOATS, isa, true);
}

static void ternary(void **state) {
  (void)state;
  each_instruction_set(ternary_with);
}

static void floats(void **state) {
  (void)state;
  each_instruction_set(floats_with);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(ternary), cmocka_unit_test(floats)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
