/* Generating text from a session, and stop texts. A part of setun.h, which states the conventions. */
#ifndef SETUN_GENERATE_H
#define SETUN_GENERATE_H

#include "setun_sampling.h"
#include "setun_session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- generating -------------------------------------------------------------------------------------------- */

/* Stop texts: finds the first of them in text that arrives in pieces, and holds back what may become one, so that no
 * part of a stop text is ever output. It belongs to one thread at a time. */
typedef struct setun_stops setun_stops;

/* `n` UTF-8 texts of 1 byte or more, ended with a 0 byte; they are copied. With n 0, all text passes. */
SETUN_API setun_status setun_stops_new(const char *const *texts, size_t n, setun_stops **stops, setun_error *error);
SETUN_API void setun_stops_free(setun_stops *stops);
/* Adds a piece of complete UTF-8 characters. *text and *length are the text that cannot belong to a stop text, possibly
 * empty; they are valid until the next call. *found: whether one is complete; then no more text is returned until
 * setun_stops_finish. Among several the one completed first is used, among those the longest. */
SETUN_API setun_status setun_stops_push(setun_stops *stops, const char *piece, size_t piece_length, const char **text,
                                        size_t *length, bool *found, setun_error *error);
/* At the end of the text: returns what was held back, nothing if a stop text was found. Resets the object. */
SETUN_API setun_status setun_stops_finish(setun_stops *stops, const char **text, size_t *length, setun_error *error);

typedef enum setun_end {
  SETUN_END_TOKEN,   /* a token that ends a text was drawn */
  SETUN_END_STOP,    /* a stop text was found */
  SETUN_END_LENGTH,  /* max_tokens were drawn */
  SETUN_END_CONTEXT, /* the context is full */
  SETUN_END_CALLER   /* on_text returned false */
} setun_end;

/* "token", "stop", "length", "context", "caller"; NULL: not a setun_end. */
SETUN_API const char *setun_end_name(setun_end end);

/* Receives new text, complete UTF-8 characters, valid during the call; returning false ends the text. */
typedef bool (*setun_text_fn)(const char *text, size_t length, void *user);

typedef struct setun_generate_params {
  size_t size;              /* of this struct */
  uint64_t max_tokens;      /* 0: as many as fit into the context */
  const char *const *stops; /* n_stops texts, as in setun_stops_new */
  size_t n_stops;
  bool ignore_end;       /* ignore tokens that end a text */
  int decode_flags;      /* as in setun_decoder_new; the default is SETUN_DECODE_CONTINUES */
  setun_text_fn on_text; /* NULL: no text is needed */
  void *user;
} setun_generate_params;

SETUN_PARAMS(setun_generate_params)

typedef struct setun_generate_result {
  size_t size; /* of this struct */
  setun_end end;
  uint64_t n_tokens; /* tokens drawn or forced, including one that ended the text */
} setun_generate_result;

/* Continues the session's text: draws tokens and evaluates them until one of the ends above. The session must have
 * logits (see setun_session_logits): evaluate the prompt first, and pass it to setun_sampler_accept if penalties should
 * apply to it. Afterwards the session and the sampler have all drawn tokens except one that ended the text, and the
 * session has logits unless its context is full. setun_session_stop makes it fail with SETUN_ERROR_CANCELED; the
 * session then has the tokens whose evaluation was finished. `result` may be NULL. Tokens that must follow under the
 * sampler's constraint are not drawn: several are evaluated in one pass, together with the one before them. */
SETUN_API setun_status setun_generate(setun_session *session, setun_sampler *sampler,
                                      const setun_generate_params *params, setun_generate_result *result,
                                      setun_error *error);

#ifdef __cplusplus
}
#endif

#endif
