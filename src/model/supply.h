// How a pass gets weights that are not resident. The placement gives a model a supply where some of its weights are
// read for each pass.
#ifndef SETUN_MODEL_SUPPLY_H
#define SETUN_MODEL_SUPPLY_H

#include "backend/backend.h"

typedef enum st_supply_part { ST_SUPPLY_LAYERS, ST_SUPPLY_HEAD } st_supply_part;

enum { ST_SUPPLY_ROWS = 64 }; // most embedding rows at once

// The experts of a layer that a pass wants.
typedef struct st_expert_demand {
  uint32_t layer;
  const uint32_t *experts; // [n], ascending; valid until the last of them was returned
  const uint32_t *tokens;  // [n] of the pass that go to each
  uint32_t n, n_tokens;    // n_tokens: of the pass
} st_expert_demand;

typedef struct st_supply {
  void *context; // the first argument of each function
  // Begins a pass through the layers, or through the head alone, which will then be read `heads` times, in this pass or
  // in those that follow. One pass at a time: `begin` waits until another has reached `end`.
  void (*begin)(void *context, st_supply_part part, uint32_t heads);
  // Waits for the weights of half a layer (its attention, or what follows) or, for units after the layers, of a piece
  // of the head. The unit's matrices have their codes until `release`.
  setun_status (*acquire)(void *context, uint32_t unit, bool attention, setun_error *err);
  void (*release)(void *context, uint32_t unit);
  void (*end)(void *context);
  // Checks for completed reads, so that the statistics are exact.
  void (*poll)(void *context);
  // Reads rows ids[0] to ids[n - 1], at most ST_SUPPLY_ROWS, of an embedding that is not resident, into rows 0 to n - 1
  // of *rows, valid until the next call.
  setun_status (*rows)(void *context, const int32_t *ids, uint32_t n, const st_dmatrix **rows, setun_error *err);
  // For experts that are not resident; all NULL: every expert is. `want` begins to read those that are missing. `next`
  // waits for at least one, and returns the indices in the demand of at most *n that are present; with `in_order` in
  // the order of the demand. Their matrices have codes until `done`, which applies to all that `next` returned, and is
  // called before the next `next`.
  setun_status (*want)(void *context, const st_expert_demand *demand, setun_error *err);
  setun_status (*next)(void *context, bool in_order, uint32_t *places, uint32_t *n, setun_error *err);
  void (*done)(void *context);
  // Called after `want`, and NULL if that is: whether a prediction of the experts of the layer that is `distance`
  // ahead, and whose router is resident, is useful now; and the predicted experts, [n].
  bool (*ahead)(void *context, uint32_t layer, uint32_t distance);
  void (*expect)(void *context, uint32_t layer, uint32_t distance, const uint32_t *experts, uint32_t n);
} st_supply;

#endif
