// Session files: the tokens and the KV cache of a sequence, written completely or not at all.
#ifndef SETUN_RUNTIME_SESSION_FILE_H
#define SETUN_RUNTIME_SESSION_FILE_H

#include "runtime/sequences.h"

// Writes a sequence's tokens and their keys and values.
setun_status st_session_file_save(const st_sequences *all, const st_sequence *sequence, const char *path,
                                  setun_error *err);

// Replaces a sequence's tokens by the saved ones. Checks first that the file is complete, belongs to this model and
// cache type, and that its tokens fit, so that nothing is changed on failure. If the file changes after that and can no
// longer be read, the sequence is empty.
setun_status st_session_file_load(st_sequences *all, st_sequence *sequence, const char *path, setun_error *err);

// The same in memory. Saving writes everything or, if longer than `capacity`, nothing, and returns the length.
setun_status st_session_file_save_memory(const st_sequences *all, const st_sequence *sequence, void *bytes,
                                         size_t capacity, size_t *length, setun_error *err);
setun_status st_session_file_load_memory(st_sequences *all, st_sequence *sequence, const void *bytes, size_t length,
                                         setun_error *err);

#endif
