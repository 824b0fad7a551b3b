/* Text that continues a session's, and texts that end it. A part of setun.h, which states the conventions. */
#ifndef SETUN_GENERATE_H
#define SETUN_GENERATE_H

#include "setun_sampling.h"
#include "setun_session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- generating -------------------------------------------------------------------------------------------- */

/* Texts that end a text: finds the first of them in text that comes in pieces, whatever the pieces, and holds back what
 * may become one, so that nothing of it is ever shown. It belongs to one thread at a time. */
typedef struct setun_stops setun_stops;

/* `n` texts of UTF-8, 1 byte or more each, with a 0 byte at their end; they are copied. Without any, text passes. */
SETUN_API setun_status setun_stops_new(const char *const *texts, size_t n, setun_stops **stops, setun_error *error);
SETUN_API void setun_stops_free(setun_stops *stops);
/* Adds a piece of whole UTF-8 characters. *text and *length are what is certain not to belong to a stop text, possibly
 * nothing; they are valid until the next call. *found is whether one is complete: then no more text comes out until
 * setun_stops_finish. Of several the one that is complete first counts, of those the longest. */
SETUN_API setun_status setun_stops_push(setun_stops *stops, const char *piece, size_t piece_length, const char **text,
                                        size_t *length, bool *found, setun_error *error);
/* What was held back, at the end of the text: nothing where a stop text was found. The object is then as new. */
SETUN_API setun_status setun_stops_finish(setun_stops *stops, const char **text, size_t *length, setun_error *error);

typedef enum setun_end {
  SETUN_END_TOKEN,   /* the model drew a token that ends a text */
  SETUN_END_STOP,    /* a stop text was found */
  SETUN_END_LENGTH,  /* max_tokens were drawn */
  SETUN_END_CONTEXT, /* the context is full */
  SETUN_END_CALLER   /* on_text returned false */
} setun_end;

/* "token", "stop", "length", "context", "caller"; NULL: no setun_end. */
SETUN_API const char *setun_end_name(setun_end end);

/* Receives new text, whole UTF-8 characters, valid during the call; false ends the text. */
typedef bool (*setun_text_fn)(const char *text, size_t length, void *user);

typedef struct setun_generate_params {
  size_t size;              /* of this struct */
  uint64_t max_tokens;      /* 0: as many as fit into the context */
  const char *const *stops; /* n_stops texts, as for setun_stops_new */
  size_t n_stops;
  bool ignore_end;       /* tokens that end a text do not */
  int decode_flags;      /* as for setun_decoder_new; the default is SETUN_DECODE_CONTINUES */
  setun_text_fn on_text; /* NULL: the text is not wanted */
  void *user;
} setun_generate_params;

SETUN_PARAMS(setun_generate_params)

typedef struct setun_generate_result {
  size_t size; /* of this struct */
  setun_end end;
  uint64_t n_tokens; /* that were drawn, one that ended the text included */
} setun_generate_result;

/* Text that continues the session's: draws tokens and evaluates them until one of the ends above. The session must have
 * logits (see setun_session_logits): evaluate the prompt first, and let the sampler accept it where penalties are to
 * see it. Afterwards the session and the sampler have every token drawn but one that ended the text, and the session
 * has logits where its context is not full. setun_session_stop makes it fail with SETUN_ERROR_CANCELED; the session
 * then has the tokens whose evaluation was finished. `result` may be NULL. */
SETUN_API setun_status setun_generate(setun_session *session, setun_sampler *sampler,
                                      const setun_generate_params *params, setun_generate_result *result,
                                      setun_error *error);

#ifdef __cplusplus
}
#endif

#endif
