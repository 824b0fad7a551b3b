// The positions that a layer sees: all up to a token, a window of the last ones, or the window and the first ones
// (sinks).
//
// Where a context has its own window, every layer has one, and the length of a sequence is not limited. Its positions
// are then counted within the cache: when it is two periods long, positions move back by one period, over those that
// came before the window, except the sinks. Keys are stored with the rotation of their position within its period,
// which does not change when they move; the query is rotated for the distance instead: one period further for keys of
// the previous period, and for sinks as if these were right before the window.
#ifndef SETUN_MODEL_WINDOWS_H
#define SETUN_MODEL_WINDOWS_H

#include "backend/backend.h"
#include "model/hparams.h"

typedef struct st_windows {
  uint32_t window; // of layers without one in the model; 0: none
  uint32_t sinks;  // first positions that these also see
  uint32_t period; // 0: a sequence ends where the context does; otherwise a multiple of ST_CACHE_PART
  uint32_t kept;   // positions after the period from which on a sequence can drop one
} st_windows;

// What a layer keeps of a sequence: keys and values of all positions, or only of those that a later token sees, or
// instead of them a state (runtime/states.h).
typedef enum st_layer_kind { ST_LAYER_FULL, ST_LAYER_WINDOW, ST_LAYER_RECURRENT, ST_LAYER_KINDS } st_layer_kind;

// Pages of a layer for this many positions.
static inline uint32_t st_blocks(uint32_t positions) {
  return positions / ST_CACHE_POSITIONS + (positions % ST_CACHE_POSITIONS > 0);
}
// How many of the last positions a layer sees, including the token's own; 0: all.
static inline uint32_t st_layer_window(const st_hparams *h, const st_windows *w, uint32_t layer) {
  return h->sliding[layer] ? h->window : w->window;
}
// How many of the first positions it sees in addition.
static inline uint32_t st_layer_sinks(const st_hparams *h, const st_windows *w, uint32_t layer) {
  return h->sliding[layer] ? 0 : w->sinks;
}
static inline st_layer_kind st_layer_kind_of(const st_hparams *h, const st_windows *w, uint32_t layer) {
  if (h->recurrent[layer]) return ST_LAYER_RECURRENT;
  return st_layer_window(h, w, layer) ? ST_LAYER_WINDOW : ST_LAYER_FULL;
}

// The windows of a context of n_ctx tokens. With sinks and no window, the rest of the context is the window. What the
// model does not allow is refused.
setun_status st_windows_of(const st_hparams *h, uint32_t n_ctx, uint32_t window, uint32_t sinks, st_windows *windows,
                           setun_error *err);
// The first block of positions that the token at a position sees, apart from the sinks.
uint32_t st_layer_first(const st_hparams *h, const st_windows *w, uint32_t layer, uint32_t position);
// The most pages of a layer that a sequence has: for all positions, or for the sinks, the window and one pass.
uint32_t st_layer_blocks(const st_hparams *h, const st_windows *w, uint32_t layer, uint32_t n_ctx, uint32_t n_batch);
// How many tokens a run may have from a position on: later ones see, or rotate, differently.
uint32_t st_windows_run(const st_windows *w, uint32_t position, uint32_t n);

#endif
