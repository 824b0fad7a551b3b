// How many tokens to draft for a pass: as many as are likely to be right, and none while that loses time.
//
// Drafts cost time: for making them, and because a pass over several tokens takes longer than over one. They save
// passes. Both are measured during generation; no result depends on it.
#ifndef SETUN_RUNTIME_DRAFT_PACE_H
#define SETUN_RUNTIME_DRAFT_PACE_H

#include <stdbool.h>
#include <stdint.h>

// Initialized by st_draft_pace_begin.
typedef struct st_draft_pace {
  uint32_t least, most;    // most drafted tokens in one pass
  uint32_t trust;          // expected number of consecutive right ones
  double plain;            // mean seconds of a pass without drafts; 0: not measured yet
  uint32_t age;            // passes with drafts since then
  double seconds, tokens;  // seconds of recent passes with drafts, and their tokens, with decaying weights
  uint32_t passes;         // number of these passes
  uint32_t pause, next;    // remaining passes without drafts, and the length of the next pause
  uint32_t guessed, taken; // of the last pass: drafted tokens, and those that were right
  double last;             // its seconds; 0: its drafts were counted, or it had none
  uint64_t all_passes, all_guessed, all_taken;
} st_draft_pace;

// `least`: the minimum after wrong drafts.
void st_draft_pace_begin(st_draft_pace *pace, uint32_t least, uint32_t most);
// How many tokens to draft for the next pass; 0: none.
uint32_t st_draft_pace_next(st_draft_pace *pace);
// Records a pass: its drafted tokens and its seconds, including drafting.
void st_draft_pace_pass(st_draft_pace *pace, uint32_t guessed, double seconds);
// Records that a drafted token was right, or wrong, which voids all after it: one of the last pass, or one that was not
// computed.
void st_draft_pace_judge(st_draft_pace *pace, bool right);

#endif
