// The states of recurrent layers: which slot of the pool holds what. A sequence has its state after the cached tokens;
// the one from before the last pass (while a pass runs, the one that it writes); and snapshots of earlier positions,
// from which tokens are computed again after a truncation. Slots are shared like pages: a slot with other users is not
// written to. A state is bit-identical however its tokens were split into passes, so that any snapshot of a position is
// valid. For models without such layers every function does nothing.
#ifndef SETUN_RUNTIME_STATES_H
#define SETUN_RUNTIME_STATES_H

#include "runtime/pages.h"

typedef struct st_sequence st_sequence;
typedef struct st_sequences st_sequences;

typedef struct st_snapshot {
  uint32_t position; // position: tokens before the state; above 0
  uint32_t slot;
} st_snapshot;

typedef struct st_sequence_states {
  uint32_t slot;      // after the cached tokens; ST_NO_STATE: none
  uint32_t next;      // written by the current pass; ST_NO_STATE: no pass
  st_snapshot before; // before the last pass; position 0: none
  uint32_t n_snapshots;
  st_snapshot *snapshots; // [slots of the pool], by position
} st_sequence_states;

// Bytes of a sequence's list, for a pool of this many slots.
uint64_t st_states_list_size(uint32_t n_slots);

// Provides slots for a pass: `slot` and `next` are what the sequence's pass reads and writes. Snapshots make room, the
// least valuable first, then dropped sequences.
void st_states_begin(st_sequences *all, st_sequence *sequence);
// Ends a pass: `n` more tokens are in the cache, which counts them already, and what the pass wrote is the state. After
// several tokens it is also kept as a snapshot.
void st_states_commit(st_sequences *all, st_sequence *sequence, uint32_t n);
// The pass was stopped or failed, or did not begin.
void st_states_abandon(st_sequences *all, st_sequence *sequence);
// The latest position up to n for which the sequence has a state.
uint32_t st_states_reach(const st_sequences *all, const st_sequence *sequence, uint32_t n);
// Removes states after position n (as returned by st_states_reach), as the sequence's cache is being truncated to n
// tokens.
void st_states_truncate(st_sequences *all, st_sequence *sequence, uint32_t n);
// Makes `to`, which has none, share the states of the first n tokens of `from` (n as above).
void st_states_share(st_sequences *all, const st_sequence *from, st_sequence *to, uint32_t n);
// The sequence was dropped, or reused.
void st_states_set_idle(st_sequences *all, st_sequence *sequence, bool idle);
// Provides slots for states read from a file, for a sequence without any: for its state and, with `position` above 0,
// for the state at that position. False: too few slots.
bool st_states_restore(st_sequences *all, st_sequence *sequence, uint32_t position);

#endif
