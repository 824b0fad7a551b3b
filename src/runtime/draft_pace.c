// The number of drafted tokens follows their success; a balance over recent passes decides whether they pay off.
#include "runtime/draft_pace.h"

enum {
  FIRST_TRUST = 2,
  PLAIN_FIRST = 2,  // passes without drafts before the first with one
  PLAIN_AGAIN = 64, // passes with drafts before one without is measured again
  JUDGED = 6,       // passes with drafts before they may count as a loss
  FIRST_PAUSE = 16,
  LONGEST_PAUSE = 512
};

// The weight of a pass relative to the next one.
static const double fading = 0.9;

void st_draft_pace_begin(st_draft_pace *p, uint32_t least, uint32_t most) {
  *p = (st_draft_pace){.least = least, .most = most, .trust = FIRST_TRUST, .pause = PLAIN_FIRST, .next = FIRST_PAUSE};
}

// Adds the last pass to the balance, and begins a pause if that shows a loss.
static void enter_last_pass(st_draft_pace *p) {
  if (p->last <= 0) return;
  p->seconds = p->seconds * fading + p->last;
  p->tokens = p->tokens * fading + 1 + p->taken;
  p->passes++;
  p->last = 0;
  if (p->passes < JUDGED) return;
  if (p->tokens * p->plain < p->seconds) {
    p->pause = p->next;
    p->next = p->next < LONGEST_PAUSE ? 2 * p->next : LONGEST_PAUSE;
    p->seconds = p->tokens = 0;
    p->passes = 0;
    p->trust = FIRST_TRUST;
  } else if (p->passes >= 4 * JUDGED) {
    p->next = FIRST_PAUSE;
  }
}

uint32_t st_draft_pace_next(st_draft_pace *p) {
  enter_last_pass(p);
  if (p->pause || p->age >= PLAIN_AGAIN) return 0;
  return p->trust < p->most ? p->trust : p->most;
}

void st_draft_pace_pass(st_draft_pace *p, uint32_t guessed, double seconds) {
  enter_last_pass(p);
  p->guessed = guessed;
  p->taken = 0;
  if (!guessed) {
    p->plain = p->plain > 0 ? 0.75 * p->plain + 0.25 * seconds : seconds;
    p->age = 0;
    if (p->pause) p->pause--;
    return;
  }
  p->last = seconds;
  p->age++;
  p->all_passes++;
  p->all_guessed += guessed;
}

void st_draft_pace_judge(st_draft_pace *p, bool right) {
  p->trust = !right ? p->trust / 2 : p->trust + 1;
  if (p->trust > p->most) p->trust = p->most;
  if (p->trust < p->least) p->trust = p->least;
  if (!right || p->taken == p->guessed) return;
  p->taken++;
  p->all_taken++;
}
