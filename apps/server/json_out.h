// Making JSON replies: short names for what base/json.h offers, errors in OpenAI's shape, and events of a stream.
#ifndef SETUN_SERVER_JSON_OUT_H
#define SETUN_SERVER_JSON_OUT_H

#include "exchange.h"

#if defined(__GNUC__)
#define SERVER_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define SERVER_PRINTF(fmt, first)
#endif

// Members of an object that is not yet in its container; `root` is the document, NULL if out of memory, which its reply
// then reports. They are appended: the caller ensures that keys are unique.
void put(st_json *root, st_json *object, const char *key, st_json value);
void put_text(st_json *root, st_json *object, const char *key, const char *text); // NULL: null
// Bytes that may be invalid UTF-8: invalid parts are written as U+FFFD.
void put_bytes(st_json *root, st_json *object, const char *key, const char *bytes, size_t n);
void put_integer(st_json *root, st_json *object, const char *key, int64_t value);
void put_real(st_json *root, st_json *object, const char *key, double value); // not finite: null
void put_bool(st_json *root, st_json *object, const char *key, bool value);
void put_null(st_json *root, st_json *object, const char *key);
void push(st_json *root, st_json *array, st_json value);
st_json bytes_value(st_json *root, const char *bytes, size_t n);
st_json real_value(st_json *root, double value);

// A request's error. Zero-initialize: status 0 means success.
typedef struct problem {
  unsigned status;
  const char *type, *code; // static text; code NULL: none
  char param[64];          // the request's member; "": none
  char message[SETUN_ERROR_SIZE + 96];
  int64_t n_prompt_tokens, n_ctx; // if the prompt is too long; else 0
  unsigned retry_after;           // seconds; 0: none
} problem;

// Sets it; always false, so that a function may return it. `param` may be NULL.
bool fail(problem *p, unsigned status, const char *type, const char *param, const char *format, ...)
    SERVER_PRINTF(5, 6);
// A 400 of type invalid_request_error.
bool invalid(problem *p, const char *param, const char *format, ...) SERVER_PRINTF(3, 4);
// Converts the library's error to one of the request or of the server.
bool fail_with(problem *p, const char *param, const setun_error *error);
bool fail_memory(problem *p);

// {"error": {...}} as a value of the document.
st_json problem_value(st_json *root, const problem *p);
// The reply: the problem with its status; a document, which is freed, with status 200.
void reply_problem(exchange *x, const problem *p);
void reply_json(exchange *x, st_json *root);
// Appends "event: name" (if it is not NULL) and "data: ..." to a stream; frees the document. False: out of memory,
// or the reader has disconnected.
bool send_event(exchange *x, const char *event, st_json *root);

#endif
