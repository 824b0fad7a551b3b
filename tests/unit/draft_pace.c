// The pace of guesses, given synthetic times: they go on where they pay, pause where they lose, and are tried
// again later.
#include "runtime/draft_pace.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

enum { TOKENS = 4000, MOST = 16 };

// What a text costs and how good guesses are: `right` of each 100 are.
typedef struct world {
  double plain, guess, more; // seconds of a pass; of making a guess; of each further token in a pass
  unsigned right;
} world;

typedef struct outcome {
  double seconds;
  uint64_t passes, with_guesses;
} outcome;

static outcome make_text(st_draft_pace *p, const world *w, unsigned tokens) {
  outcome o = {0};
  uint32_t seed = 5, ahead = 0;
  for (unsigned i = 0; i < tokens; i++) {
    bool right = (seed = seed * 1664525u + 1013904223u) / 42949673u < w->right;
    if (ahead) st_draft_pace_judge(p, right);
    if (ahead && right) {
      ahead--;
      continue;
    }
    uint32_t n = st_draft_pace_next(p);
    double seconds = w->plain + n * (w->guess + w->more);
    assert_true(n <= MOST);
    st_draft_pace_pass(p, n, seconds);
    ahead = n;
    o.seconds += seconds;
    o.passes++;
    o.with_guesses += n > 0;
  }
  return o;
}

static void pays(void **state) {
  (void)state;
  st_draft_pace p;
  st_draft_pace_begin(&p, 1, MOST);
  const world w = {.plain = 10, .guess = 1, .more = 0.5, .right = 90};
  outcome o = make_text(&p, &w, TOKENS);
  assert_true(o.seconds < 0.5 * TOKENS * w.plain);
  assert_true(p.all_taken <= p.all_guessed && p.all_taken + o.passes == TOKENS);
}

static void loses(void **state) {
  (void)state;
  for (unsigned right = 0; right <= 100; right += 50) { // even right guesses lose where each costs more than a pass
    st_draft_pace p;
    st_draft_pace_begin(&p, 1, MOST);
    const world w = {.plain = 10, .guess = 12, .more = 1, .right = right};
    outcome o = make_text(&p, &w, TOKENS);
    assert_true(o.seconds < 1.1 * TOKENS * w.plain);
    assert_true(o.with_guesses > 0 && o.with_guesses < o.passes / 10);
  }
}

// A text that cannot be guessed, and then can.
static void pays_again(void **state) {
  (void)state;
  st_draft_pace p;
  st_draft_pace_begin(&p, 1, MOST);
  world w = {.plain = 10, .guess = 1, .more = 1, .right = 0};
  outcome bad = make_text(&p, &w, TOKENS);
  assert_true(bad.seconds < 1.1 * TOKENS * w.plain);
  w.right = 95;
  outcome good = make_text(&p, &w, TOKENS);
  assert_true(good.seconds < 0.6 * TOKENS * w.plain);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(pays), cmocka_unit_test(loses), cmocka_unit_test(pays_again)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
