// The states of recurrent layers: which slot of the pool holds what. A sequence has one state, that behind the tokens
// that are in the cache; a second one, which a pass writes while it goes on, and which then is the state from before
// the last pass; and snapshots of what it was at earlier positions, from which tokens are computed again where it is
// truncated. Slots are shared like pages: a slot
// that somebody else uses too is not written to.
//
// A state is the same to the bit however its tokens were cut into passes, so that any snapshot does for any of them.
// Models without such layers have none of this: each function then does nothing.
#ifndef SETUN_RUNTIME_STATES_H
#define SETUN_RUNTIME_STATES_H

#include "runtime/pages.h"

typedef struct st_sequence st_sequence;
typedef struct st_sequences st_sequences;

typedef struct st_snapshot {
  uint32_t position; // tokens that the state is behind; above 0
  uint32_t slot;
} st_snapshot;

typedef struct st_sequence_states {
  uint32_t slot;      // behind the cached tokens; ST_NO_STATE: there are none
  uint32_t next;      // that the pass that runs writes; ST_NO_STATE: none runs
  st_snapshot before; // the last pass; position 0: there is none
  uint32_t n_snapshots;
  st_snapshot *snapshots; // [slots of the pool], by position
} st_sequence_states;

// Bytes of a sequence's list, for a pool of so many slots.
uint64_t st_states_list_size(uint32_t n_slots);

// A slot for each pass of a call: what the pass of the sequence reads and writes is then in `slot` and `next`.
// Snapshots make room, the least useful first, and then sequences that were dropped.
void st_states_begin(st_sequences *all, st_sequence *sequence);
// The pass is over, and `n` tokens more are in the cache, which counts them already: what it wrote is the state. After
// several tokens it is kept as a snapshot.
void st_states_commit(st_sequences *all, st_sequence *sequence, uint32_t n);
// The pass that began was stopped, or failed; or none began.
void st_states_abandon(st_sequences *all, st_sequence *sequence);
// The most of the first n tokens that the sequence has the state behind.
uint32_t st_states_reach(const st_sequences *all, const st_sequence *sequence, uint32_t n);
// The sequence, whose cache is being cut to its first n tokens (a position that st_states_reach gave), has no later
// state.
void st_states_truncate(st_sequences *all, st_sequence *sequence, uint32_t n);
// `to`, which has none, shares those of the first n tokens of `from` (likewise).
void st_states_share(st_sequences *all, const st_sequence *from, st_sequence *to, uint32_t n);
// The sequence was dropped, or taken up again.
void st_states_set_idle(st_sequences *all, st_sequence *sequence, bool idle);
// Slots for what is read from a file, for a sequence that has none: for its state, and, with `position` above 0, for
// that behind so many tokens. False: there are too few.
bool st_states_restore(st_sequences *all, st_sequence *sequence, uint32_t position);

#endif
