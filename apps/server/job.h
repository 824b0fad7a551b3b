// A request for text, or for vectors: its prompts, and the choices (OpenAI's word for answers) that are made of them. A
// worker makes the job and submits it; from then on it is the engine's, which frees it.
#ifndef SETUN_SERVER_JOB_H
#define SETUN_SERVER_JOB_H

#include "params.h"

typedef struct job job;
typedef struct choice choice;
typedef struct compiled compiled; // a compiled constraint (compiler.h)

// Tokens that a constraint leaves no choice of, and that are computed in one pass with the one before them.
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
  bool absent;  // nothing is known of how likely it was: a prompt's first token
  double value; // log-probability
  size_t begin; // bytes of the choice's text before it
} token_entry;

// A call of a tool that an answer has.
typedef struct tool_call {
  char id[64];
  char *name;
  st_buffer arguments; // JSON text of an object
  bool told;           // a stream's client knows of it
  size_t sent;         // bytes of the arguments that it has
  int64_t item;        // for the format: its place among the answer's parts
} tool_call;

typedef enum tool_choice {
  TOOLS_NONE,
  TOOLS_AUTO,
  TOOLS_REQUIRED // of the job's `tool_name`, or of any where that is NULL
} tool_choice;

typedef enum choice_state {
  CHOICE_WAITING, // for a place in the batch
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
  size_t done;                       // tokens of the prompt that are computed
  size_t cached;                     // of these, tokens that need not be
  setun_token next[1 + FORCED_MOST]; // drawn, and what must follow: the n_next tokens that are not yet computed
  size_t n_next;
  setun_sampler *sampler;
  setun_decoder *decoder; // of texts
  setun_reply *reply;     // of conversations
  setun_stops *stops;
  const char *stop;                                    // the stop text that was found
  st_buffer text, reasoning;                           // what is certain
  size_t sent, sent_reasoning, sent_entries, sent_ids; // of a stream
  tool_call *calls;
  size_t n_calls, sent_calls; // sent_calls: those of which nothing is to be sent any more
  size_t progress;            // tokens of the prompt that the client was told of
  bool told_progress, echoed;
  int stage;                // for the format: what of a stream is open
  int64_t events;           // and how many parts of it there were
  int64_t items, text_item; // and the place of the text among the answer's parts; 0: none yet, else from 1
  size_t characters;        // of the entries that were written, for text_offset
  size_t raw;               // bytes that the tokens gave, with what is held back
  setun_token *ids;         // that were drawn, one that ended the text included
  size_t n_ids, ids_capacity;
  token_entry *entries;
  setun_logprob *tops; // [n_entries][top]
  size_t n_entries, entries_capacity;
  float *vector;                 // of a job that embeds
  double began, prompted, ended; // seconds: it got a place, its first token was drawn, its last
};

// How vectors are asked for.
typedef struct embedding_request {
  setun_embedding_params params;
  bool base64, nested; // nested: each in a list of its own
} embedding_request;

// How an endpoint writes what its jobs make. All run on the engine's thread, but for `begin`.
typedef struct job_format {
  void (*begin)(job *j);            // a stream begins; NULL: nothing is to be said
  void (*piece)(job *j, choice *c); // a stream's choice has more text, reasoning or entries, possibly nothing new
  void (*end)(job *j, choice *c);   // a stream's choice has ended; what was not sent yet is to be
  void (*finish)(job *j);           // all have ended: the whole reply, or a stream's last events
  void (*failed)(job *j, const problem *p); // tells a stream that it ends here; NULL: {"error": ...}
  const char *call_prefix;                  // of calls' ids
} job_format;

struct job {
  job *next;
  server *server;
  exchange *x;
  const job_format *format;
  generation g;
  prompt *prompts;
  size_t n_prompts;
  choice *choices;        // those of one prompt side by side
  size_t n_choices, open; // open: not ended
  bool chat;              // answers are told apart by channels, as `rendering` says
  bool bare_ends;         // tokens that end a text have entries
  bool echo;              // the prompt is part of the text
  bool embed;             // no text is made: each prompt becomes a vector
  embedding_request embedding;
  setun_rendering *rendering;
  tool_choice tool_choice;
  char *tool_name;                    // NULL: any
  bool one_call;                      // an answer ends with its first call
  struct constraint_request *request; // what answers must match; NULL: nothing
  compiled *compiled;                 // the constraint made of it, in the compiler's list
  setun_constraint *constraint;       // itself; NULL: any text
  bool sure_calls;                    // which makes calls whole
  bool keep_asked;
  st_json *asked; // with keep_asked: the request's body, for members that a reply repeats
  char id[40];
  int64_t created; // seconds since 1970
  double submitted;
};

// `x` and `format` may be NULL where the job is not submitted. NULL: out of memory.
job *job_new(server *s, exchange *x, const job_format *format, const char *id_prefix);
void job_free(job *j);
// Adds a prompt; takes `ids`, which were allocated with malloc.
bool job_add_prompt(job *j, setun_token *ids, size_t n, problem *p);
// Tokenizes a text for job_add_prompt; `flags` as for setun_tokenize.
setun_token *prompt_tokens_of(const server *s, const char *text, size_t length, int flags, size_t *n, problem *p);

// Reads a body into a job. False: `p` says why.
typedef bool (*read_fn)(job *j, const st_json *body, problem *p);
// The whole way of a request for text: reads the body, and submits the job; or answers with what is wrong. A job that
// keeps `asked` is given the body.
void start_job(server *s, exchange *x, const job_format *format, const char *id_prefix, read_fn read);
// The same for a question how many tokens the prompt would have: {"input_tokens": n}.
void reply_count(server *s, exchange *x, read_fn read);
// Passes a job that is complete to the engine, or answers the exchange with what is wrong. Takes ownership of the job.
void job_submit(job *j);

// ---- for the engine ----

// What a choice needs to draw: made when it gets a place, freed when it ends.
bool choice_open(choice *c, problem *p);
void choice_close(choice *c);
// Takes the logits after the prompt's token `at`, with which the prompt continues.
bool choice_take_prompt(choice *c, size_t at, const float *logits, problem *p);
// Draws a token. Sets `end` where the text ends with it, else `next`.
bool choice_draw(choice *c, const float *logits, problem *p);
// Takes the vector of a prompt that is computed, and ends.
bool choice_embed(choice *c, setun_context *context, problem *p);
void choice_finish(choice *c);
// Ends the job, whose choices have no places any more: with its reply, or with a problem. Frees it.
void job_finish(job *j);
void job_fail(job *j, const problem *p);

// ---- for formats ----

// "stop", "tool_calls" or "length".
const char *finish_reason(const choice *c);
// Tokens of the prompts, each once; of these, tokens from the cache; drawn tokens.
typedef struct usage {
  size_t prompt, cached, drawn;
} usage;
usage job_usage(const job *j);
size_t count_entries(const choice *c); // those whose text is part of the choice's

#endif
