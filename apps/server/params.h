// The parameters of requests for generated text. Each field is one row of a table, from which the reader, its errors
// and the OpenAPI description are made.
#ifndef SETUN_SERVER_PARAMS_H
#define SETUN_SERVER_PARAMS_H

#include "json_out.h"
#include "state.h"

enum {
  STOPS_MOST = 64,
  STOP_CHARACTERS_MOST = 4096,
  BIASES_MOST = 1024,
  BREAKERS_MOST = 64,
  BREAKER_CHARACTERS_MOST = 64,
  CHOICES_MOST = 128,
  TOP_MOST = 100,      // of llama.cpp's n_probs
  TOP_OPENAI_MOST = 20 // of OpenAI's logprobs and top_logprobs
};

typedef struct token_bias {
  setun_token id;
  float bias;
} token_bias;

// How an answer is generated. Freed with generation_free.
typedef struct generation {
  setun_sampler_params sampling;
  bool seeded;        // sampling.seed is the request's; otherwise each answer gets one of its own
  int32_t max_tokens; // -1: as many as fit
  int32_t n;          // answers to each prompt
  int32_t top;        // log-probabilities of this many tokens in addition to the drawn one; -1: none
  double time_limit;  // milliseconds for an answer after its first token; 0: no limit
  bool stream, include_usage, ignore_end, use_cache, fresh_probabilities, timings, tokens, progress;
  char **stops; // n_stops texts
  size_t n_stops;
  token_bias *biases;
  size_t n_biases;
  char **breakers;
  size_t n_breakers;
  bool breakers_given;
} generation;

void generation_free(generation *g);

typedef enum field_kind {
  FIELD_BOOL,    // bool
  FIELD_INTEGER, // int32_t in [low, high]; values below 0, where low is -1, mean `off`
  FIELD_NEEDED,  // the same, required
  FIELD_SEED,    // uint64_t, and generation.seeded
  FIELD_FLOAT,   // float in [low, high]
  FIELD_DOUBLE,  // double in [low, high]
  FIELD_OTHER,   // read by the endpoint itself; `schema` describes it; `low` 1: required
  FIELD_REFUSED  // status 400 with `help` as message, unless it is null, false, 0, "", [] or {}
} field_kind;

// A schema shared by several fields: one of the components in openapi.c.
#define SCHEMA(name) "{\"$ref\":\"#/components/schemas/" name "\"}"

typedef struct field {
  const char *name;
  field_kind kind;
  size_t offset; // in generation
  double low, high;
  const char *help;
  const char *schema; // JSON, for FIELD_OTHER
} field;

// Tables of fields, each ended by a row without a name.
extern const field sampling_fields[], openai_fields[], llama_fields[], constraint_fields[];

// The server's defaults.
void generation_default(const server *s, generation *g);
// Reads stop texts: a string or an array of strings, from one or several members.
bool read_stops(const st_json *body, const char *key, generation *g, problem *p);

// Reads the fields of NULL-terminated tables, and those of several forms: stop, logit_bias, dry_sequence_breakers.
bool read_generation(const server *s, const st_json *body, const field *const *tables, generation *g, problem *p);
bool read_stream_options(const st_json *body, generation *g, problem *p);

// "an array", "a string", "nothing": for messages.
const char *kind_of(const st_json *value);
// The same, but a number's value, written to `text`.
const char *shown_value(const st_json *value, char text[32]);
// Whether the object's member `key` is a string. `param` is the member of the request that contains the object; NULL:
// the object is the request.
bool require_string(const st_json *object, const char *param, const char *key, problem *p);
// Whether the request's member `key` is a string or absent.
bool optional_string(const st_json *request, const char *key, problem *p);
// The number of UTF-8 characters that begin in the text.
size_t count_characters(const char *text, size_t n);
// Reads a request's body, an object. NULL: `p` has the reason.
st_json *read_body(exchange *x, problem *p);

#endif
