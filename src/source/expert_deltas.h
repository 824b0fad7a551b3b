// The differences between experts that a file has beside them: with one expert in memory, another
// one of its layer can be made from fewer bytes than it takes itself. Written by `convert --deltas`, for experts in
// t16.
//
// A layer's tensor, blk.N.expert_deltas, has bytes (I8): version 1, the number of deltas (32 bits each, little-endian);
// for each the two experts, the lower one first, and its bytes (32, 32, 64 bits), in ascending order; then the deltas,
// one after the other. A delta begins with the bytes, differences and shift (32 bits each) of the strings for gate, up
// and down, which follow in this order (quant/trit_delta.h). Every expert is also in the file as a whole.
#ifndef SETUN_SOURCE_EXPERT_DELTAS_H
#define SETUN_SOURCE_EXPERT_DELTAS_H

#include "format/directory.h"
#include "quant/trit_delta.h"

enum {
  ST_DELTA_MATRICES = 3,                    // of an expert
  ST_DELTA_HEADER = ST_DELTA_MATRICES * 12, // bytes before a delta's strings
  ST_DELTAS_VERSION = 1,
  ST_DELTAS_HEADER = 8, // bytes before the table
  ST_DELTAS_ENTRY = 16, // of the table
  ST_DELTAS_NAME = 32   // bytes of a name
};

// The name of a layer's tensor.
void st_expert_deltas_name(uint32_t layer, char name[ST_DELTAS_NAME]);
// Whether a tensor of a file has this name, of any layer below n_layer.
bool st_expert_deltas_is(const char *name, uint32_t n_layer);

typedef struct st_expert_delta {
  uint32_t layer, first, second; // experts of the layer, first < second
  uint64_t offset, bytes;        // in the file
} st_expert_delta;

// Those of all layers.
typedef struct st_expert_deltas {
  const st_tensor **tensors; // [n_layer] NULL: the layer has none
  st_expert_delta *items;    // layer by layer, in the table's order
  size_t n;
  uint64_t longest, bytes; // of the longest, and of all
} st_expert_deltas;

// Reads the tables; n is 0 where the file has none. SETUN_ERROR_FORMAT for one that lies about its experts or its
// bytes, which the message names. Freed with st_expert_deltas_free, also after a failure.
setun_status st_expert_deltas_read(const st_directory *directory, uint32_t n_layer, uint32_t n_expert,
                                   st_expert_deltas *deltas, setun_error *err);
void st_expert_deltas_free(st_expert_deltas *deltas);

// Takes apart a delta's bytes: the string of each matrix. SETUN_ERROR_FORMAT if these do not fill it.
setun_status st_expert_delta_open(const st_expert_deltas *deltas, const st_expert_delta *delta, const uint8_t *bytes,
                                  st_trit_delta matrices[ST_DELTA_MATRICES], const uint8_t *strings[ST_DELTA_MATRICES],
                                  setun_error *err);
// The error for a delta that does not fit the matrices of its experts.
setun_status st_expert_delta_fail(const st_expert_deltas *deltas, const st_expert_delta *delta, setun_error *err);

#endif
