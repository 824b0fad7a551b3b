// Stop texts, found in text that arrives in pieces: what may become one is held back.
#ifndef SETUN_RUNTIME_STOPS_H
#define SETUN_RUNTIME_STOPS_H

#include "base/error.h"

// The functions are those of setun.h, which documents them.
typedef struct st_stops st_stops;

setun_status st_stops_new(const char *const *texts, size_t n, st_stops **stops, setun_error *err);
void st_stops_free(st_stops *stops);
setun_status st_stops_push(st_stops *stops, const char *piece, size_t piece_length, const char **text, size_t *length,
                           bool *found, setun_error *err);
void st_stops_finish(st_stops *stops, const char **text, size_t *length);

#endif
