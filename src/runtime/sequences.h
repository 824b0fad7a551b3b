// The sequences of a context: their tokens, and tables of the pages that hold their keys and values. Pages are shared
// until one of their users writes to them. Layers with a window keep the pages that a later token sees; recurrent ones
// have states instead (states.h). Dropped sequences are kept until their pages are needed.
#ifndef SETUN_RUNTIME_SEQUENCES_H
#define SETUN_RUNTIME_SEQUENCES_H

#include "model/forward.h"
#include "runtime/states.h"

// A layer's part of a sequence, in addition to its pages.
typedef struct st_layer_cache {
  uint32_t first; // the first block with a page; 0 except in layers with a window
} st_layer_cache;

struct st_sequence {
  bool used;
  uint32_t position;      // tokens, excluding forgotten ones
  uint32_t forgotten;     // tokens after the sinks without a position: whole periods (model/windows.h)
  uint32_t cached;        // leading tokens whose keys and values are in the cache, as far as a later token
                          // sees them; the others are recomputed before the sequence continues
  uint32_t n_blocks;      // blocks with pages, in each layer from its first one on
  st_layer_cache *layers; // [n_layer]
  uint32_t *pages;        // [n_layer][stride]
  setun_token *ids;       // [n_ctx]
  uint64_t last_use;      // when it was dropped
  st_adapting adapting;   // adapters of its keys and values; a dropped sequence releases them, but keeps
                          // their identity
  st_sequence_states states;
};

struct st_sequences {
  st_run *run;
  st_page_pool pools[ST_LAYER_KINDS]; // recurrent layers have no pages
  st_page_pool states;                // slots
  uint32_t n_max, stride;             // maximum number of sequences; blocks of the longest
  uint64_t clock;                     // counts uses
  st_adapting adapting;               // of future sequences
  st_sequence *all;                   // [2 * n_max]: n_max sequences, then as many dropped ones
};

// The bytes that all of them will take.
uint64_t st_sequences_size(const st_model *model, const st_run_options *options);
setun_status st_sequences_new(st_sequences *all, st_run *run, uint32_t n_max, setun_error *err);
void st_sequences_free(st_sequences *all);

// The sequence with a number; an error if there is none.
setun_status st_sequence_get(const st_sequences *all, int number, st_sequence **sequence, setun_error *err);
// The page for a layer and a block of positions.
static inline uint32_t *st_sequence_page(const st_sequences *all, const st_sequence *s, uint32_t layer,
                                         uint32_t block) {
  return &s->pages[(size_t)layer * all->stride + block];
}
// Whether there is one, for a block not after the last one.
bool st_sequence_has_page(const st_sequences *all, const st_sequence *s, uint32_t layer, uint32_t block);
static inline int st_sequence_number(const st_sequences *all, const st_sequence *sequence) {
  return (int)(sequence - all->all);
}

setun_status st_sequence_add(st_sequences *all, st_sequence **sequence, setun_error *err);
// Changes its adapters: if they differ, its tokens are recomputed. Acquires the adapters.
void st_sequence_adapt(st_sequences *all, st_sequence *sequence, const st_adapting *adapting);
// Sets the adapters of future sequences.
void st_sequences_adapt(st_sequences *all, const st_adapting *adapting);
void st_sequence_drop(st_sequences *all, st_sequence *sequence);
// Removes the least recently used dropped sequence; false: none.
bool st_sequences_forget(st_sequences *all);
// Where layers with a window have released what the token at position n sees, the sequence's tokens are computed again,
// from the first one on, before it continues: no later position is complete. Recurrent layers compute again from the
// last state before n. n counts those forgotten; where some of these would have to be computed again, it is an error.
setun_status st_sequence_truncate(st_sequences *all, st_sequence *sequence, uint32_t n, setun_error *err);
// If a sequence is long enough, moves its window forward by a period and forgets what is before it.
void st_sequence_wrap(st_sequences *all, st_sequence *sequence);
// Makes `to`, which is empty, a copy of the first n tokens of `from`.
void st_sequence_copy(st_sequences *all, const st_sequence *from, st_sequence *to, uint32_t n);
// A new sequence with the longest prefix of the ids in the cache, of those computed with the current adapters: at most
// n - 1 tokens.
setun_status st_sequence_reuse(st_sequences *all, const setun_token *ids, size_t n, st_sequence **sequence,
                               setun_error *err);

// A sequence that continues after its cached tokens, and by how many tokens.
typedef struct st_growth {
  st_sequence *sequence;
  uint32_t n;
} st_growth;

// Checks that there are pages for all tokens of a call, which may take several passes; no sequence twice.
// SETUN_ERROR_LIMIT, with nothing changed, if there are too few.
setun_status st_sequences_begin(st_sequences *all, const st_growth *growths, size_t n, setun_error *err);
// Provides unshared pages for all tokens of a pass. Layers release what none of these tokens sees, but not what only
// later ones do not see, so that a sequence may be truncated to where its last pass began.
setun_status st_sequences_reserve(st_sequences *all, const st_growth *growths, size_t n, setun_error *err);
// Like st_layer_first.
uint32_t st_sequence_visible(const st_sequences *all, uint32_t layer, uint32_t position);
// Replaces a sequence's tokens: provides pages for `n` new ones, in each layer from block firsts[layer] on;
// SETUN_ERROR_LIMIT, with nothing changed, if there are too few.
setun_status st_sequence_replace(st_sequences *all, st_sequence *sequence, uint32_t n, const uint32_t *firsts,
                                 setun_error *err);
// Releases the pages after a sequence's cached tokens.
void st_sequence_trim(st_sequences *all, st_sequence *sequence);

#endif
