// Session files: the tokens and the KV cache of a sequence, whole or not at all.
#ifndef SETUN_RUNTIME_SESSION_FILE_H
#define SETUN_RUNTIME_SESSION_FILE_H

#include "runtime/sequences.h"

// Writes a sequence's tokens and their keys and values.
setun_status st_session_file_save(const st_sequences *all, const st_sequence *sequence, const char *path,
                                  setun_error *err);

// Replaces a sequence's tokens by what was saved. Checked first, so that nothing has changed after a failure: that the
// file is whole, that it is of this model and cache type, and that its tokens fit. Where a file changes after that, and
// cannot be read again, the sequence is empty.
setun_status st_session_file_load(st_sequences *all, st_sequence *sequence, const char *path, setun_error *err);

// The same in memory. Saving writes all or, where it is more than `capacity`, nothing, and gives the length.
setun_status st_session_file_save_memory(const st_sequences *all, const st_sequence *sequence, void *bytes,
                                         size_t capacity, size_t *length, setun_error *err);
setun_status st_session_file_load_memory(st_sequences *all, st_sequence *sequence, const void *bytes, size_t length,
                                         setun_error *err);

#endif
