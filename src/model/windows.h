// Which positions a layer sees: all before a token, a window of the last ones, or the window and the first ones
// (sinks).
//
// Where a context has a window of its own, each layer has one, and a sequence goes on for ever. Its positions are then
// counted within the cache: when it is two periods long, what lies a period further on takes the place of what came
// before the window, but for the sinks. Keys are stored with the rotation of their position in its period, which stays
// what it is when they move; the query is rotated for the distance instead: by its position where the key's period is
// the one before its own, and for sinks as if these stood right before the window.
#ifndef SETUN_MODEL_WINDOWS_H
#define SETUN_MODEL_WINDOWS_H

#include "backend/backend.h"
#include "model/hparams.h"

typedef struct st_windows {
  uint32_t window; // of layers to which the model gives none; 0: none
  uint32_t sinks;  // positions that these see beside it
  uint32_t period; // 0: a sequence ends where the context does; otherwise a multiple of ST_CACHE_PART
  uint32_t kept;   // positions behind the period from which on a sequence can lose one
} st_windows;

// What a layer keeps of a sequence: the keys and values of all positions, or only of those that a later token sees, or
// none, but a state of the sequence's (runtime/states.h).
typedef enum st_layer_kind { ST_LAYER_FULL, ST_LAYER_WINDOW, ST_LAYER_RECURRENT, ST_LAYER_KINDS } st_layer_kind;

// Pages of a layer that hold so many positions.
static inline uint32_t st_blocks(uint32_t positions) {
  return positions / ST_CACHE_POSITIONS + (positions % ST_CACHE_POSITIONS > 0);
}
// How many of the last positions a layer sees, a token's own included; 0: all.
static inline uint32_t st_layer_window(const st_hparams *h, const st_windows *w, uint32_t layer) {
  return h->sliding[layer] ? h->window : w->window;
}
// How many of the first positions it sees beside these.
static inline uint32_t st_layer_sinks(const st_hparams *h, const st_windows *w, uint32_t layer) {
  return h->sliding[layer] ? 0 : w->sinks;
}
static inline st_layer_kind st_layer_kind_of(const st_hparams *h, const st_windows *w, uint32_t layer) {
  if (h->recurrent[layer]) return ST_LAYER_RECURRENT;
  return st_layer_window(h, w, layer) ? ST_LAYER_WINDOW : ST_LAYER_FULL;
}

// The windows of a context of n_ctx tokens. Sinks without a window take the rest of the context as one. What does not
// go with the model is refused.
setun_status st_windows_of(const st_hparams *h, uint32_t n_ctx, uint32_t window, uint32_t sinks, st_windows *windows,
                           setun_error *err);
// The first block of positions that the token at a position sees, beside the sinks.
uint32_t st_layer_first(const st_hparams *h, const st_windows *w, uint32_t layer, uint32_t position);
// Pages of a layer that a sequence has at most: those of all positions, or of the sinks, the window and one pass.
uint32_t st_layer_blocks(const st_hparams *h, const st_windows *w, uint32_t layer, uint32_t n_ctx, uint32_t n_batch);
// How many tokens from a position on a run may have: those behind are seen, or rotated, otherwise.
uint32_t st_windows_run(const st_windows *w, uint32_t position, uint32_t n);

#endif
