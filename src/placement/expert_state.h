// A file that lists the experts in a cache, so that the next start begins with them.
//
// The file: "SETUNEXP", version 1, the number of experts that follow, the model's identity (two halves, the low one
// first), and for each expert layer * n_expert + expert, the one that would be replaced last first. Numbers of 32 bits,
// little-endian.
#ifndef SETUN_PLACEMENT_EXPERT_STATE_H
#define SETUN_PLACEMENT_EXPERT_STATE_H

#include "placement/expert_cache.h"

// Reads the experts that the file lists into the cache, as many as fit. Does nothing if the file does not exist.
// SETUN_ERROR_FORMAT for a file that is not one of this model. The cache is open, and no pass runs.
setun_status st_expert_state_load(st_expert_cache *cache, const st_model *model, const char *path, setun_error *err);
// Writes the file, whole or not at all.
setun_status st_expert_state_save(const st_expert_cache *cache, const st_model *model, const char *path,
                                  setun_error *err);

#endif
