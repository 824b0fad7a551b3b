// How many tokens a pass takes ahead of the text: as many as are likely to be right, and none while that loses time.
//
// Guesses cost time: that of making them, and what a pass over several tokens takes more than one over a single token.
// What they save are passes. Both are measured while the text is made, and no result depends on it.
#ifndef SETUN_RUNTIME_DRAFT_PACE_H
#define SETUN_RUNTIME_DRAFT_PACE_H

#include <stdbool.h>
#include <stdint.h>

// Made by st_draft_pace_begin.
typedef struct st_draft_pace {
  uint32_t least, most;    // guesses of one pass
  uint32_t trust;          // that are likely to be right in a row
  double plain;            // seconds of a pass without guesses, a mean; 0: none was measured
  uint32_t age;            // passes with guesses since then
  double seconds, tokens;  // of recent passes with guesses, and what they gave; old ones count less and less
  uint32_t passes;         // of these
  uint32_t pause, next;    // passes without guesses that are left, and how many there will be the next time
  uint32_t guessed, taken; // of the last pass: guesses, and those that were right
  double last;             // its seconds; 0: its guesses were counted, or it had none
  uint64_t all_passes, all_guessed, all_taken;
} st_draft_pace;

// `least`: what wrong guesses alone do not go below.
void st_draft_pace_begin(st_draft_pace *pace, uint32_t least, uint32_t most);
// How many guesses the next pass should have; 0: none.
uint32_t st_draft_pace_next(st_draft_pace *pace);
// A pass was done with so many guesses in so many seconds, which the guesses took as well.
void st_draft_pace_pass(st_draft_pace *pace, uint32_t guessed, double seconds);
// A guess was right, or wrong, which makes all after it void: one of the last pass's, or one that nothing was computed
// for.
void st_draft_pace_judge(st_draft_pace *pace, bool right);

#endif
