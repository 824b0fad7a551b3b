// The sequences of a context: their tokens, and tables of the pages that hold their keys and values. Pages are shared
// until one of their users writes to them. Layers with a window keep the pages that a later token sees, recurrent ones
// have states instead (states.h). Sequences that were dropped are remembered while nobody needs their pages.
#ifndef SETUN_RUNTIME_SEQUENCES_H
#define SETUN_RUNTIME_SEQUENCES_H

#include "model/forward.h"
#include "runtime/states.h"

// What a layer keeps of a sequence beside its pages.
typedef struct st_layer_cache {
  uint32_t first; // the first block of positions that it has a page for; 0 but in layers with a window
} st_layer_cache;

struct st_sequence {
  bool used;
  uint32_t position;      // tokens, those forgotten not among them
  uint32_t forgotten;     // tokens behind the sinks that have no position any more: whole periods (model/windows.h)
  uint32_t cached;        // of these, the first ones whose keys and values are in the cache, as far as a later token
                          // sees them; the others are computed again before the sequence goes on
  uint32_t n_blocks;      // blocks of positions that have pages, in each layer from its first one on
  st_layer_cache *layers; // [n_layer]
  uint32_t *pages;        // [n_layer][stride]
  setun_token *ids;       // [n_ctx]
  uint64_t last_use;      // of one that was dropped
  st_adapting adapting; // what its keys and values are computed with; one that was dropped uses no adapters, but keeps
                        // their identity
  st_sequence_states states;
};

struct st_sequences {
  st_run *run;
  st_page_pool pools[ST_LAYER_KINDS]; // that of recurrent layers has no page
  st_page_pool states;                // slots
  uint32_t n_max, stride;             // sequences that there can be; blocks of the longest
  uint64_t clock;                     // counts uses
  st_adapting adapting;               // of sequences to come
  st_sequence *all;                   // [2 * n_max]: n_max sequences, then as many that were dropped
};

// Bytes of all, before there are any.
uint64_t st_sequences_size(const st_model *model, const st_run_options *options);
setun_status st_sequences_new(st_sequences *all, st_run *run, uint32_t n_max, setun_error *err);
void st_sequences_free(st_sequences *all);

// The sequence of a number; an error that says so where there is none.
setun_status st_sequence_get(const st_sequences *all, int number, st_sequence **sequence, setun_error *err);
// The page of a layer and a block of positions.
static inline uint32_t *st_sequence_page(const st_sequences *all, const st_sequence *s, uint32_t layer,
                                         uint32_t block) {
  return &s->pages[(size_t)layer * all->stride + block];
}
// Whether there is one, for a block that is not behind the last one.
bool st_sequence_has_page(const st_sequences *all, const st_sequence *s, uint32_t layer, uint32_t block);
static inline int st_sequence_number(const st_sequences *all, const st_sequence *sequence) {
  return (int)(sequence - all->all);
}

setun_status st_sequence_add(st_sequences *all, st_sequence **sequence, setun_error *err);
// It goes on with these: where they are others than before, its tokens are computed again. Uses the adapters.
void st_sequence_adapt(st_sequences *all, st_sequence *sequence, const st_adapting *adapting);
// Sequences to come begin with these.
void st_sequences_adapt(st_sequences *all, const st_adapting *adapting);
void st_sequence_drop(st_sequences *all, st_sequence *sequence);
// Forgets the sequence among those dropped that was used least recently; false: there is none.
bool st_sequences_forget(st_sequences *all);
// Where layers with a window have released what the token at position n sees, the sequence's tokens are computed again,
// from the first one on, before it goes on: no later position is whole. Recurrent layers compute again from the last
// state before n. n counts those forgotten; where some of these
// would have to be computed again, it is an error.
setun_status st_sequence_truncate(st_sequences *all, st_sequence *sequence, uint32_t n, setun_error *err);
// Where a sequence is long enough, its window moves a period forward, and what is before it is forgotten.
void st_sequence_wrap(st_sequences *all, st_sequence *sequence);
// `to`, which is empty, becomes the first n tokens of `from`.
void st_sequence_copy(st_sequences *all, const st_sequence *from, st_sequence *to, uint32_t n);
// A new sequence with the longest beginning of the ids that is in the cache, computed with what sequences begin with
// now: at most n - 1 tokens.
setun_status st_sequence_reuse(st_sequences *all, const setun_token *ids, size_t n, st_sequence **sequence,
                               setun_error *err);

// A sequence that goes on behind what it has in the cache, and by how many tokens.
typedef struct st_growth {
  st_sequence *sequence;
  uint32_t n;
} st_growth;

// Whether there are pages for all tokens of a call, which may take several passes; no sequence twice.
// SETUN_ERROR_LIMIT, and nothing has changed, where there are too few.
setun_status st_sequences_begin(st_sequences *all, const st_growth *growths, size_t n, setun_error *err);
// Pages of its own for all tokens of a pass. Layers release what none of these sees: not what later ones do not see, so
// that a sequence may be truncated to where its last pass began.
setun_status st_sequences_reserve(st_sequences *all, const st_growth *growths, size_t n, setun_error *err);
// As st_layer_first.
uint32_t st_sequence_visible(const st_sequences *all, uint32_t layer, uint32_t position);
// A sequence loses its tokens, and gets pages for `n` others, in each layer from block firsts[layer] on;
// SETUN_ERROR_LIMIT, and nothing has changed, where there are too few.
setun_status st_sequence_replace(st_sequences *all, st_sequence *sequence, uint32_t n, const uint32_t *firsts,
                                 setun_error *err);
// Gives back the pages behind what a sequence has in the cache.
void st_sequence_trim(st_sequences *all, st_sequence *sequence);

#endif
