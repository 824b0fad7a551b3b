// Opening models and sessions, with the options that the commands share for it.
#ifndef SETUN_APP_MODEL_H
#define SETUN_APP_MODEL_H

#include "experts_trace.h"
#include "input.h"
#include "options.h"
#include "setun.h"

// --draft, of the struct's member `compute`.
#define DRAFT_ROW(options, default)                                                                                    \
  {                                                                                                                    \
    0, "draft", OPTION_MODEL, offsetof(options, compute.draft), "none|ngram|MODEL", 0, 0,                              \
        "compute several tokens at once that are guessed: ngram, where the text seems to repeat earlier text; MODEL, " \
        "by a smaller model with the same tokens; the new text is the same (default " default ")"                      \
  }

// --window and --kv-sinks, likewise.
#define WINDOW_ROWS(options)                                                                                           \
  {0,                                                                                                                  \
   "window",                                                                                                           \
   OPTION_INTEGER,                                                                                                     \
   offsetof(options, compute.window),                                                                                  \
   "N",                                                                                                                \
   1,                                                                                                                  \
   INT32_MAX,                                                                                                          \
   "layers that attend to the whole text attend to the last N tokens only, and text goes on for ever"},                \
  {                                                                                                                    \
    0, "kv-sinks", OPTION_INTEGER, offsetof(options, compute.sinks), "N", 1, 512,                                      \
        "keep the first N tokens beside the window, which without --window is the rest of the context"                 \
  }

// --ignore-key, of the struct's member `ignore_keys`.
#define IGNORE_KEY_ROW(options)                                                                                        \
  {                                                                                                                    \
    0, "ignore-key", OPTION_LIST, offsetof(options, ignore_keys), "NAME", 1, 0,                                        \
        "take this key of a GGUF file's metadata (NAMESPACE.*: all that begin so) or of config.json for absent, "      \
        "where the "                                                                                                   \
        "model is refused for it; may be given several times"                                                          \
  }

// How a model's files are read. Zero-initialize.
typedef struct model_options {
  const char *isa, *assume, *activation;
  text_list ignore_keys;
} model_options;

// How it computes. Begin with compute_defaults.
typedef struct compute_options {
  int64_t threads, batch; // 0: the library's choice
  const char *kv;         // "q8", or "q8,q4" of keys and values; NULL: f16, or f32 with `precise`
  bool precise;
  text_list adapters; // "FILE" or "FILE:SCALE"
  uint64_t memory;    // the budget; 0: what is available
  bool no_stream;
  int64_t window, sinks; // 0: none
  const char *draft;     // "ngram", or a model's path; NULL or "none": one token at a time
  bool all_logits;       // not only those after the last token are used; set by commands
  uint32_t n_ctx;        // that the memory plan leaves room for, set by commands; 0: the model's, at most 4096
  const setun_context_params *context; // the same for a context instead of a session; NULL: a session
  const setun_model *draft_model;      // that is loaded already, see open_draft
  uint64_t beside;                     // bytes that the plan counts beside the model's own
  experts_trace *trace;                // of the experts that tokens go to; NULL: none
} compute_options;

extern const option model_rows[4], compute_rows[7];
#define MODEL_GROUP(type)                                                                                              \
  { "model", model_rows, 4, offsetof(type, model) }
#define COMPUTE_GROUP(type)                                                                                            \
  { "computing", compute_rows, 7, offsetof(type, compute) }

// Warnings (and with `user` pointing to a true bool, notices) on stderr: a setun_log_fn.
void log_to_stderr(setun_log_level level, const char *message, void *user);

setun_model_params model_params(const model_options *o);
setun_session_params session_params(const compute_options *o);
// All that loading takes but adapters and callbacks. `session` is used where there is no context in `compute`.
setun_model_params loading_params(const model_options *o, const compute_options *compute,
                                  const setun_session_params *session);
// The exit status where --window is given with --ctx.
int check_window(const command *self, const compute_options *o, int64_t ctx);
// --pooling, of the struct's member `pooling`; and what it means, NULL: the model's own.
#define POOLING_ROW(options)                                                                                           \
  {                                                                                                                    \
    0, "pooling", OPTION_CHOICE, offsetof(options, pooling), "mean|cls|last", 0, 0,                                    \
        "how the states of a text's tokens become one vector (default: as the model says, otherwise last)"             \
  }
setun_pooling pooling_named(const char *name);
// What the library's getters give.
setun_model_info model_info(const setun_model *model);
setun_plan model_plan_of(const setun_model *model);
setun_stream_stats stream_stats(const setun_model *model);
// "FILE:SCALE", or a file whose name may hold colons: its path, freed by the caller with free; NULL: out of memory.
char *parse_adapter(const char *text, float *scale);

// Loads a model; progress is shown on a terminal when it takes longer than a second. False after a report, or after a
// signal (see failed_status), which it watches for from then on; *model is the caller's to free also then.
bool open_model(const char *path, const model_options *o, const compute_options *compute, bool verbose,
                setun_model **model);
// The model that --draft names, if it names one: loaded, and set in `compute` with what its context takes; to be opened
// before the model whose drafts it makes, and freed after its sessions. False after a report or a signal.
bool open_draft(const model_options *o, compute_options *compute, bool verbose, setun_model **draft);
// What that takes in all, into compute->beside.
bool plan_draft(const model_options *o, compute_options *compute);
// What loading it would take. False after a report.
bool plan_model(const char *path, const model_options *o, const compute_options *compute, setun_plan *plan);
bool plan_synthetic(const setun_synthesis_params *synthesis, const model_options *o, const compute_options *compute,
                    setun_plan *plan);
// The same for a synthetic model.
bool open_synthetic_model(const setun_synthesis_params *synthesis, const model_options *o,
                          const compute_options *compute, setun_model **model);
// The tokenizer alone. False after a report.
bool open_vocabulary(const char *path, const model_options *o, setun_model **model);
// The ids of a text for a model that is yet to be loaded, so that its plan counts them; frees the text. False after a
// report, such as that the budget does not do for any session, or for so long a text.
bool tokenize_beforehand(const char *path, const model_options *o, const compute_options *compute, int flags,
                         input_text *text, id_list *list);
// The bytes that the budget leaves to measure the reading of memory with, and how many of those to take: `wanted`, or,
// with a note where that is little, fewer.
uint64_t measuring_room(const setun_plan *plan);
uint64_t measuring_buffer(const setun_plan *plan, uint64_t wanted);
// The least to name for so many bytes, in MiB, with room: what the process has by itself differs from start to start.
static inline unsigned long long least_mib(uint64_t bytes) {
  return (unsigned long long)((bytes + (3 << 20) - 1) >> 20);
}
// A chat template: that of a file (with its text), or one of the model's by name (NULL: the model's choice, `tools` as
// in setun_chat_params). False after a report.
typedef struct template_options {
  const char *file, *name;
  const input_text *text; // of `file`
  bool tools;
} template_options;
bool open_template(const setun_model *model, const template_options *o, setun_chat **chat);
// n_ctx 0: the model's, at most 4096. False after a report, which calls the model by that name.
bool open_session(const char *name, const setun_model *model, const compute_options *compute, uint32_t n_ctx,
                  setun_session **session);

// One line on a terminal's stderr that is written over again, from a second after `start` on; `fraction` 1 clears it.
typedef struct progress_line {
  const char *what;
  double start, last;
  bool shown;
} progress_line;
void progress_begin(progress_line *p, const char *what);
void progress_show(progress_line *p, double fraction);
void progress_end(progress_line *p);

// Loading and converting: what the library's callbacks receive as `user`. Lines of the log end the progress line first;
// an interrupt cancels.
typedef struct long_work {
  progress_line progress;
  bool verbose; // show notices, not warnings alone
} long_work;
void log_beside_progress(setun_log_level level, const char *message, void *work);
bool progress_until_interrupt(double fraction, void *work);

// Evaluates a prompt, with such a line where `shown`.
setun_status evaluate_prompt(setun_session *session, const setun_token *ids, size_t n, bool shown, setun_error *error);

#endif
