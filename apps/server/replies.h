// Shared by the replies of several endpoints.
#ifndef SETUN_SERVER_REPLIES_H
#define SETUN_SERVER_REPLIES_H

#include "job.h"

// A document with the members "id", "object", "created", "model" and "system_fingerprint", as in OpenAI's API.
st_json *new_document(const job *j, const char *object);
void put_usage(st_json *root, st_json *object, const job *j);   // "usage", as in OpenAI's API
void put_timings(st_json *root, st_json *object, const job *j); // "timings", as in llama.cpp, of the first choice
// A token's own text, which may be part of a character; "" if the id is not a token.
void token_bytes(const server *s, setun_token id, const char **bytes, size_t *n);
// {"id", "token", "bytes", "logprob" | "prob", "top_logprobs" | "top_probs"}: the choice's entry i.
st_json entry_value(st_json *root, const choice *c, size_t i);
// The new output of a stream's choice: text and reasoning from *text and *reasoning on, entries to *entries.
typedef struct news {
  const char *text, *reasoning;
  size_t text_length, reasoning_length;
  size_t first_entry, end_entry;
} news;
news take_news(choice *c);
// The text of a prompt, including control tokens; a BOS that the server added is left out unless `whole`. Freed with
// free; NULL: out of memory.
char *prompt_text(const job *j, const prompt *p, bool whole, size_t *length);
// The generation settings in llama.cpp's form (llama.c).
st_json settings_value(st_json *root, const generation *g);
// A member of the document: a token's text; null where `id` is negative (tokens.c).
void put_token_text(const server *s, st_json *root, const char *key, setun_token id);
// Sends the bytes of "[DONE]".
void send_done(exchange *x);
// Progress of a choice's prompt, if the stream requested it and it changed. False: nothing to report.
bool progress_news(choice *c, st_json *root, st_json *object);

#endif
