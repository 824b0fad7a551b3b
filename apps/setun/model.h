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
        "compute several drafted tokens at once: ngram, where the text seems to repeat earlier text; MODEL, "          \
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
   "layers that attend to the whole text attend only to the last N tokens, and the text's length is not limited"},     \
  {                                                                                                                    \
    0, "kv-sinks", OPTION_INTEGER, offsetof(options, compute.sinks), "N", 1, 512,                                      \
        "keep the first N tokens in addition to the window, which without --window is the rest of the context"         \
  }

// --ignore-key, of the struct's member `ignore_keys`.
#define IGNORE_KEY_ROW(options)                                                                                        \
  {                                                                                                                    \
    0, "ignore-key", OPTION_LIST, offsetof(options, ignore_keys), "NAME", 1, 0,                                        \
        "treat this key of a GGUF file's metadata (NAMESPACE.*: all with this prefix) or of config.json as absent, "   \
        "where the "                                                                                                   \
        "model is refused for it; may be given several times"                                                          \
  }

// --experts-state, of the struct's member `compute`.
#define EXPERTS_STATE_ROW(options)                                                                                     \
  {                                                                                                                    \
    0, "experts-state", OPTION_FILE, offsetof(options, compute.experts_state), "FILE", 0, 0,                           \
        "if experts do not fit into --memory: begin with those listed in this file, if it exists, and write to it "    \
        "those in the cache at the end"                                                                                \
  }

// --experts-ahead, of the struct's member `compute`.
#define EXPERTS_AHEAD_ROW(options)                                                                                     \
  {                                                                                                                    \
    0, "experts-ahead", OPTION_CHOICE, offsetof(options, compute.experts_ahead), "off|1|2|3|4", 0, 0,                  \
        "if experts do not fit into --memory: how many layers ahead to predict which ones will be used, to read them " \
        "while the disk is idle, as long as that is measured to be faster (default 1)"                                 \
  }

// Options for reading a model's files. Zero-initialize.
typedef struct model_options {
  const char *isa, *device, *assume, *activation;
  text_list ignore_keys;
} model_options;

// Options for computing. Begin with compute_defaults.
typedef struct compute_options {
  int64_t threads, batch; // 0: the library's choice
  const char *kv;         // "q8", or "q8,q4" for keys and values; NULL: f16, or f32 with `precise`
  bool precise;
  text_list adapters; // "FILE" or "FILE:SCALE"
  uint64_t memory;    // the budget; 0: what is available
  uint64_t device_memory;
  bool no_stream;
  int64_t window, sinks;               // 0: none
  const char *draft;                   // "ngram", or a model's path; NULL or "none": one token at a time
  bool all_logits;                     // logits after every token are used, not only the last; set by commands
  uint32_t n_ctx;                      // context for the memory plan, set by commands; 0: the model's, at most 4096
  const setun_context_params *context; // the same for a context instead of a session; NULL: a session
  const setun_model *draft_model;      // loaded already, see open_draft
  uint64_t beside;                     // additional bytes for the plan,
  uint64_t device_beside;              // of the device's memory: the draft model's
  experts_trace *trace;                // of the experts that tokens use; NULL: none
  const char *experts_state;           // --experts-state; NULL: none
  const char *experts_ahead;           // --experts-ahead; NULL: the library's choice
} compute_options;

extern const option model_rows[5], compute_rows[8];
#define MODEL_GROUP(type)                                                                                              \
  { "model", model_rows, 5, offsetof(type, model) }
#define COMPUTE_GROUP(type)                                                                                            \
  { "computing", compute_rows, 8, offsetof(type, compute) }

// A setun_log_fn: prints warnings, and with `user` pointing to a true bool also notices, on stderr.
void log_to_stderr(setun_log_level level, const char *message, void *user);

setun_model_params model_params(const model_options *o);
setun_session_params session_params(const compute_options *o);
// The parameters of loading, except adapters and callbacks. `session` is used unless `compute` has a context.
setun_model_params loading_params(const model_options *o, const compute_options *compute,
                                  const setun_session_params *session);
// Checks that --window is not given with --ctx: 0, or the exit status after a report.
int check_window(const command *self, const compute_options *o, int64_t ctx);
// --pooling, of the struct's member `pooling`; and its value, NULL: the model's own.
#define POOLING_ROW(options)                                                                                           \
  {                                                                                                                    \
    0, "pooling", OPTION_CHOICE, offsetof(options, pooling), "mean|cls|last|none", 0, 0,                               \
        "how the states of a text's tokens become one vector; none: a vector for each token (default: the model's "    \
        "own, "                                                                                                        \
        "otherwise last)"                                                                                              \
  }
setun_pooling pooling_named(const char *name);
// Wrappers of the library's getters.
setun_model_info model_info(const setun_model *model);
setun_plan model_plan_of(const setun_model *model);
setun_stream_stats stream_stats(const setun_model *model);
// "FILE:SCALE", or a file whose name may hold colons: its path, freed by the caller with free; NULL: out of memory.
char *parse_adapter(const char *text, float *scale);

// Loads a model; progress is shown on a terminal if it takes longer than a second. Signals are caught from then on.
// False after a report or a signal (see failed_status); the caller frees *model also then.
bool open_model(const char *path, const model_options *o, const compute_options *compute, bool verbose,
                setun_model **model);
// Writes --experts-state's file, if there is a cache of experts. False after a report.
bool save_experts_state(const setun_model *model, const compute_options *compute);
// Loads the model of --draft, if it names one, and sets it in `compute` with the memory of its context; to be called
// before loading the model itself. Free it after the model's sessions. False after a report or a signal.
bool open_draft(const model_options *o, compute_options *compute, bool verbose, setun_model **draft);
// Adds its total memory to compute->beside.
bool plan_draft(const model_options *o, compute_options *compute);
// The plan for loading it. False after a report.
bool plan_model(const char *path, const model_options *o, const compute_options *compute, setun_plan *plan);
bool plan_synthetic(const setun_synthesis_params *synthesis, const model_options *o, const compute_options *compute,
                    setun_plan *plan);
// The same for a synthetic model.
bool open_synthetic_model(const setun_synthesis_params *synthesis, const model_options *o,
                          const compute_options *compute, setun_model **model);
// Loads only the tokenizer; `log`: with its warnings, which loading the model would repeat. False after a report.
bool open_vocabulary(const char *path, const model_options *o, bool log, setun_model **model);
// Tokenizes a text before the model is loaded, so that its plan counts the ids; frees the text. False after a report,
// such as that the budget is too small for any session, or for a text of this length.
bool tokenize_beforehand(const char *path, const model_options *o, const compute_options *compute, int flags,
                         input_text *text, id_list *list);
// The bytes that the budget leaves for measuring memory reads, and how many of them to use: `wanted` or, with a note if
// that is little, fewer.
uint64_t measuring_room(const setun_plan *plan);
uint64_t measuring_buffer(const setun_plan *plan, uint64_t wanted);
// The least budget in MiB to report for this many bytes, with a margin: the process's own memory varies between starts.
static inline unsigned long long least_mib(uint64_t bytes) {
  return (unsigned long long)((bytes + (3 << 20) - 1) >> 20);
}
// A chat template: from a file (with its text), or one of the model's by name (NULL: the model's choice, `tools` as in
// setun_chat_params). False after a report.
typedef struct template_options {
  const char *file, *name;
  const input_text *text; // of `file`
  bool tools;
} template_options;
bool open_template(const setun_model *model, const template_options *o, setun_chat **chat);
// n_ctx 0: the model's, at most 4096. False after a report, with the model's name.
bool open_session(const char *name, const setun_model *model, const compute_options *compute, uint32_t n_ctx,
                  setun_session **session);

// A progress line on a terminal's stderr that is overwritten, shown from a second after `start` on; `fraction` 1 clears
// it.
typedef struct progress_line {
  const char *what;
  double start, last;
  bool shown;
} progress_line;
void progress_begin(progress_line *p, const char *what);
void progress_show(progress_line *p, double fraction);
void progress_end(progress_line *p);

// Loading and converting: the `user` of the library's callbacks. Log lines end the progress line first; an interrupt
// cancels.
typedef struct long_work {
  progress_line progress;
  bool verbose; // show notices, not only warnings
} long_work;
void log_beside_progress(setun_log_level level, const char *message, void *work);
bool progress_until_interrupt(double fraction, void *work);

// Evaluates a prompt, with a progress line if `shown`.
setun_status evaluate_prompt(setun_session *session, const setun_token *ids, size_t n, bool shown, setun_error *error);

#endif
