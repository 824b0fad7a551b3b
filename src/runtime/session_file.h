// Session files: the tokens and the KV cache of a session, whole or not at all.
#ifndef SETUN_RUNTIME_SESSION_FILE_H
#define SETUN_RUNTIME_SESSION_FILE_H

#include "model/forward.h"

// Writes the first `n` tokens (`ids`) and their keys and values.
setun_status st_session_file_save(st_run *run, const setun_token *ids, uint32_t n, const char *path, setun_error *err);

// Reads what was saved into the cache and `ids` (room for n_ctx). Checked first, so that nothing has changed after a
// failure: that the file is whole, that it is of this model and cache type, and that its tokens fit.
setun_status st_session_file_load(st_run *run, setun_token *ids, uint32_t *n, const char *path, setun_error *err);

// The same in memory. Saving writes all or, where it is more than `capacity`, nothing, and gives the length.
setun_status st_session_file_save_memory(st_run *run, const setun_token *ids, uint32_t n, void *bytes, size_t capacity,
                                         size_t *length, setun_error *err);
setun_status st_session_file_load_memory(st_run *run, setun_token *ids, uint32_t *n, const void *bytes, size_t length,
                                         setun_error *err);

#endif
