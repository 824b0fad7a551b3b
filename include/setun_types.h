/* Types used by all of the library: statuses, errors, callbacks, formats of the KV cache. Programs include setun.h,
 * which includes this file and states the conventions; the library's own files include only this one, so that a change
 * of setun.h recompiles only its implementation. */
#ifndef SETUN_TYPES_H
#define SETUN_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum setun_status {
  SETUN_OK = 0,
  SETUN_ERROR_MEMORY,      /* an allocation failed, or a memory budget is too small */
  SETUN_ERROR_IO,          /* the system refused to open, read or write */
  SETUN_ERROR_FORMAT,      /* a file or text is malformed */
  SETUN_ERROR_UNSUPPORTED, /* well-formed, but not supported by this build */
  SETUN_ERROR_ARGUMENT,    /* the caller passed an invalid argument */
  SETUN_ERROR_LIMIT,       /* a limit was reached, such as the context length */
  SETUN_ERROR_CANCELED,    /* a stop function or a callback requested it */
  SETUN_ERROR_STATE        /* the object is not in the required state */
} setun_status;

enum { SETUN_ERROR_SIZE = 512 };

typedef struct setun_error {
  setun_status code;
  char message[SETUN_ERROR_SIZE]; /* one line, no newline, always ended with a 0 byte */
} setun_error;

typedef enum setun_log_level { SETUN_LOG_INFO, SETUN_LOG_WARNING } setun_log_level;

/* Called with one line of text, valid only during the call. */
typedef void (*setun_log_fn)(setun_log_level level, const char *message, void *user);

/* Called from time to time during long operations with a fraction from 0 to 1; returning false requests
 * cancellation. */
typedef bool (*setun_progress_fn)(double fraction, void *user);

/* To which experts of a layer the tokens of a pass go: `experts` [n], ascending, and how many tokens go to each, of
 * `n_tokens`. Called on the thread that computes the pass: from several at once where several contexts compute. */
typedef void (*setun_experts_fn)(uint32_t layer, uint32_t n_tokens, const uint32_t *experts, const uint32_t *tokens,
                                 uint32_t n, void *user);

/* The format of numbers in the KV cache, named by SETUN_CHOICE_KV; see docs/cache.md. */
typedef enum setun_kv_type {
  SETUN_KV_F16,
  SETUN_KV_F32,
  SETUN_KV_Q8, /* keys 10 bits, values 8 */
  SETUN_KV_Q4  /* keys 6 bits, values 4 */
} setun_kv_type;

#endif
