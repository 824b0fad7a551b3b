// A request for text, or for embeddings: its prompts, and the choices (OpenAI's word for answers) generated from them.
// A worker makes the job and submits it; the engine then owns it, and frees it.
#ifndef SETUN_SERVER_JOB_H
#define SETUN_SERVER_JOB_H

#include "params.h"

typedef struct job job;
typedef struct choice choice;
typedef struct compiled compiled; // a compiled constraint (compiler.h)

// Most forced tokens (the only ones that a constraint allows) that are computed in one pass with the token before them.
enum { FORCED_MOST = 31 };

typedef struct prompt {
  setun_token *ids; // with a 0 after the last
  size_t n;
  bool logprobs;  // of its own tokens, too
  bool added_bos; // its first token is not part of the text that was sent
} prompt;

// One token of a text, with the likeliest alternatives.
typedef struct token_entry {
  setun_token id;
  bool absent;  // its probability is not known: a prompt's first token
  double value; // log-probability
  size_t begin; // bytes of the choice's text before it
} token_entry;

// A tool call in an answer.
typedef struct tool_call {
  char id[64];
  char *name;
  st_buffer arguments; // JSON text of an object
  bool told;           // it was announced to the stream's client
  size_t sent;         // bytes of the arguments sent to it
  int64_t item;        // for the format: its index among the answer's parts
} tool_call;

typedef enum tool_choice {
  TOOLS_NONE,
  TOOLS_AUTO,
  TOOLS_REQUIRED // a call of the job's `tool_name`, or of any tool if that is NULL
} tool_choice;

typedef enum choice_state {
  CHOICE_WAITING, // for a slot of the batch
  CHOICE_PROMPT,  // the prompt is computed
  CHOICE_TEXT,    // tokens are drawn
  CHOICE_ENDED
} choice_state;

typedef enum choice_end {
  END_NONE,
  END_TOKEN, // the model drew a token that ends a text
  END_STOP,  // a stop text
  END_LENGTH,
  END_CONTEXT,
  END_TIME
} choice_end;

struct choice {
  job *job;
  uint32_t index, prompt; // of the job's choices; of its prompts
  choice_state state;
  choice_end end;
  int sequence;
  size_t done;                       // tokens of the prompt that are in the cache
  size_t cached;                     // of these, tokens that did not have to be computed
  setun_token next[1 + FORCED_MOST]; // the n_next tokens to compute next: the drawn one, and forced ones after it
  size_t n_next;
  setun_sampler *sampler;
  setun_decoder *decoder; // for texts
  setun_reply *reply;     // for conversations
  setun_stops *stops;
  const char *stop;                                    // the stop text that was found
  st_buffer text, reasoning;                           // the output so far that can no longer change
  st_buffer held;                                      // what follows it, and may begin with a stop text
  size_t sent, sent_reasoning, sent_entries, sent_ids; // how much of each was sent on the stream
  tool_call *calls;
  size_t n_calls, sent_calls; // sent_calls: calls that were sent completely
  size_t progress;            // tokens of the prompt in the last progress report
  bool told_progress, echoed;
  int stage;                // for the format: which part of the stream is open
  int64_t events;           // for the format: a counter of events, or of content blocks
  int64_t items, text_item; // for the format: parts of the answer, and the text's number among them, from 1; 0: none
  size_t characters;        // of the entries that were written, for text_offset
  size_t raw;               // bytes of all tokens, including text that may still become a stop text
  setun_token *ids;         // the drawn tokens, including one that ended the text
  size_t n_ids, ids_capacity;
  token_entry *entries;
  setun_logprob *tops; // [n_entries][top]
  size_t n_entries, entries_capacity;
  float *vector;                 // of a job that embeds: [embedding_vectors, n_dimensions]
  double began, prompted, ended; // seconds: got a slot, drew its first token, drew its last
};

// How embeddings are requested.
typedef struct embedding_request {
  setun_embedding_params params;
  bool base64, nested; // nested: the vectors of a text, of which there may be several, in a list
} embedding_request;

// How an endpoint writes the output of its jobs. All functions except `begin` run on the engine's thread.
typedef struct job_format {
  void (*begin)(job *j);                    // sends a stream's first events; NULL: there are none
  void (*piece)(job *j, choice *c);         // sends a choice's new text, reasoning and entries, if there are any
  void (*end)(job *j, choice *c);           // a stream's choice has ended: sends everything that was not sent yet
  void (*finish)(job *j);                   // all choices have ended: sends the whole reply, or a stream's last events
  void (*failed)(job *j, const problem *p); // sends the error that ends a stream; NULL: {"error": ...}
  const char *call_prefix;                  // the beginning of tool calls' ids
} job_format;

struct job {
  job *next;
  server *server;
  exchange *x;
  const job_format *format;
  generation g;
  prompt *prompts;
  size_t n_prompts;
  choice *choices;        // the choices of one prompt are adjacent
  size_t n_choices, open; // open: choices that have not ended
  bool chat;              // answers are split into channels, as `rendering` says
  bool bare_ends;         // tokens that end a text have entries
  bool echo;              // the text begins with the prompt
  bool embed;             // no text is generated: each prompt becomes a vector
  embedding_request embedding;
  setun_rendering *rendering;
  tool_choice tool_choice;
  char *tool_name;                    // NULL: any
  bool one_call;                      // an answer ends with its first call
  struct constraint_request *request; // what answers must match; NULL: nothing
  compiled *compiled;                 // the compiler's entry for its constraint
  setun_constraint *constraint;       // the constraint itself; NULL: any text
  bool slow;                          // the constraint takes long to compile
  bool sure_calls;                    // the constraint ensures that calls are complete
  bool keep_asked;
  st_json *asked; // with keep_asked: the request's body, for members that a reply repeats
  char id[40];
  int64_t created; // seconds since 1970
  double submitted;
};

// `x` and `format` may be NULL where the job is not submitted. NULL: out of memory.
job *job_new(server *s, exchange *x, const job_format *format, const char *id_prefix);
void job_free(job *j);
// Adds a prompt. Takes ownership of `ids`, allocated with malloc, also on failure.
bool job_add_prompt(job *j, setun_token *ids, size_t n, problem *p);
// Tokenizes a text for job_add_prompt; `flags` as for setun_tokenize.
setun_token *prompt_tokens_of(const server *s, const char *text, size_t length, int flags, size_t *n, problem *p);

// Reads a body into a job. False: `p` has the reason.
typedef bool (*read_fn)(job *j, const st_json *body, problem *p);
// Handles a request for text: reads the body and submits the job, or answers with the problem. A job with `keep_asked`
// becomes the owner of the body.
void start_job(server *s, exchange *x, const job_format *format, const char *id_prefix, read_fn read);
// The same for a request that only counts the prompt's tokens: {"input_tokens": n}.
void reply_count(server *s, exchange *x, read_fn read);
// Passes a complete job to the engine, or answers the exchange with the problem. Takes ownership of the job.
void job_submit(job *j);

// ---- for the engine ----

// Makes what a choice needs to draw tokens, when it gets a slot; frees it when the choice ends.
bool choice_open(choice *c, problem *p);
void choice_close(choice *c);
// Adds the entry of the prompt's next token from the logits after its token `at`.
bool choice_take_prompt(choice *c, size_t at, const float *logits, problem *p);
// Draws a token. Sets `end` if the text ends with it, otherwise `next`.
bool choice_draw(choice *c, const float *logits, problem *p);
// Vectors of a prompt: one, or one for each token where the server does not pool.
size_t embedding_vectors(const choice *c);
// Copies the vectors of a computed prompt, and ends the choice.
bool choice_embed(choice *c, setun_context *context, problem *p);
void choice_finish(choice *c);
// Sends the reply, or the problem, of a job whose choices no longer have slots, and frees the job.
void job_finish(job *j);
void job_fail(job *j, const problem *p);

// ---- for formats ----

// "stop", "tool_calls" or "length".
const char *finish_reason(const choice *c);
// Tokens of the prompts, each prompt counted once; those of them taken from the cache; drawn tokens.
typedef struct usage {
  size_t prompt, cached, drawn;
} usage;
usage job_usage(const job *j);
size_t count_entries(const choice *c); // entries whose text is part of the choice's text

#endif
