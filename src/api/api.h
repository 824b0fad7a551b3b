// The handles behind setun.h.
#ifndef SETUN_API_API_H
#define SETUN_API_API_H

#include "model/hparams_read.h"
#include "placement/placement.h"
#include "runtime/answer_grammar.h"
#include "runtime/context.h"
#include "runtime/prompts.h"
#include "runtime/sampler.h"
#include "runtime/session.h"
#include "runtime/templates.h"
#include "runtime/vocabulary.h"

#include <stdatomic.h>

struct setun_model {
  st_placement *placement; // NULL: only the vocabulary is loaded
  st_model *model;         // its model
  int64_t maker;           // the process that made it
  st_tokenizer *tokenizer;
  st_token_gaps gaps; // ids of logits without text in the tokenizer; none without weights
  st_container container;
  setun_sampler_params sampling;
  st_templates templates;
  st_prompts prompts;
  const st_spec *spec; // its family; NULL: unknown, as it may be for a vocabulary
  char *architecture;  // as the files spell it; NULL: unspecified
  st_log log;
  st_directory *directory;        // source of streamed weights; NULL: none are streamed
  _Atomic(st_token_trie *) *trie; // of the vocabulary, for constraints; what it points to is NULL until one needs it
};

struct setun_session {
  st_session *inner;
  const setun_model *model;
};

// The handle of a context is the runtime's object itself.
static inline st_context *st_context_of(setun_context *c) {
  return (st_context *)(void *)c;
}

// Adds the tokens that must follow under the sampler's constraint, and the end token if nothing else may follow.
setun_status st_sampler_forced_tokens(st_sampler *sampler, st_token_list *out, setun_error *err);
// The handle of a sampler is the runtime's object itself.
static inline st_sampler *st_sampler_of(setun_sampler *s) {
  return (st_sampler *)(void *)s;
}

// The family of a model's files; NULL if unknown or none.
const st_spec *st_spec_of(const st_directory *directory);
// The family's pre-tokenizer, where the files name none; NULL: unknown.
const char *st_default_pre(const st_directory *directory);
// Adds a notice that a GGUF file names no pre-tokenizer for byte-level BPE, and which one is used.
setun_status st_notice_default_pre(const st_directory *directory, setun_error *err);
// Adds a notice that the model's own chat template is known to be wrong, and which one is used.
setun_status st_notice_template(const st_directory *directory, const st_templates *templates, const char *architecture,
                                const st_tokenizer *tokenizer, setun_error *err);

// ---- arguments ----

setun_status st_fail_null(const char *what, setun_error *err);

// Arguments that must not be NULL, in functions with a setun_error *error: for an array, unless it has no elements.
#define ST_NEED(argument)                                                                                              \
  do {                                                                                                                 \
    if (!(argument)) return st_fail_null(#argument, error);                                                            \
  } while (0)
#define ST_NEED_ARRAY(argument, n)                                                                                     \
  do {                                                                                                                 \
    if ((n) && !(argument)) return st_fail_null(#argument, error);                                                     \
  } while (0)

// Parameters in this library's size, from a caller's, which may be NULL.
setun_status st_take_session_params(setun_session_params *own, const setun_session_params *given, setun_error *err);
setun_status st_take_context_params(setun_context_params *own, const setun_context_params *given, setun_error *err);
setun_status st_take_model_params(setun_model_params *own, const setun_model_params *given, setun_error *err);
setun_status st_take_eval_params(setun_eval_params *own, const setun_eval_params *given, setun_error *err);
setun_status st_take_sampler_params(setun_sampler_params *own, const setun_sampler_params *given, setun_error *err);
setun_status st_take_generate_params(setun_generate_params *own, const setun_generate_params *given, setun_error *err);
setun_status st_take_embedding_params(setun_embedding_params *own, const setun_embedding_params *given,
                                      setun_error *err);
setun_status st_take_constraint_params(setun_constraint_params *own, const setun_constraint_params *given,
                                       setun_error *err);
setun_status st_take_answer_params(setun_answer_params *own, const setun_answer_params *given, setun_error *err);
setun_status st_take_chat_params(setun_chat_params *own, const setun_chat_params *given, setun_error *err);
setun_status st_take_file_params(setun_file_params *own, const setun_file_params *given, setun_error *err);
setun_status st_take_quantize_params(setun_quantize_params *own, const setun_quantize_params *given, setun_error *err);
setun_status st_take_convert_params(setun_convert_params *own, const setun_convert_params *given, setun_error *err);
setun_status st_take_synthesis_params(setun_synthesis_params *own, const setun_synthesis_params *given,
                                      setun_error *err);

// Fills a caller's struct, which states its size, from one of `own` bytes; and checks that its size is valid.
setun_status st_check_struct(const void *to, size_t own, const char *name, setun_error *err);
setun_status st_fill(void *to, const void *from, size_t own, const char *name, setun_error *err);
#define ST_FILL(to, from) st_fill(to, from, sizeof *(from), #to, error)

// ---- adapters ----

// The adapters of a session or context of the model: these, or the model's own for NULL.
setun_status st_take_adapters(const st_model *model, const setun_adapters *adapters, float scale, st_adapting *adapting,
                              setun_error *error);

// ---- conversations ----

// Its model, NULL if the template was given without one; its tools as JSON text, NULL if there are none; and where its
// answer begins.
const setun_model *st_rendering_model(const setun_rendering *rendering);
const char *st_rendering_tools(const setun_rendering *rendering, size_t *length);
st_answer_place st_rendering_place(const setun_rendering *rendering);

// ---- models ----

// An error unless `assume` is NULL or a format with an ambiguous type, and the keys are texts.
setun_status st_check_reading(const char *assume, const char *const *ignore_keys, size_t n, setun_error *err);
st_placement_options st_placement_options_of(const setun_model_params *params, const st_log *log);

// Opens a model's files (or `source`, unless that is NULL: a GGUF file's bytes, which `path` then only names; else
// params->source) and reads everything except weights; then calls `next`, unless NULL, with the model and the
// directory. The directory lives until `next` returns or, with streamed weights, as long as the model.
// With a `next`, a budget that is too small is refused before the vocabulary takes memory; `plan`, unless NULL, then
// has the refused plan.
typedef setun_status (*st_next_fn)(setun_model *model, const st_directory *directory, const setun_model_params *params,
                                   void *context, setun_error *err);
setun_status st_api_open(const char *path, const setun_model_params *params, const st_file_source *source,
                         st_next_fn next, void *context, st_memory_plan *plan, setun_model **model, setun_error *err);
// The same for a synthetic model.
setun_status st_api_open_synthetic(const setun_synthesis_params *params, const setun_model_params *model_params,
                                   st_next_fn next, void *context, st_memory_plan *plan, setun_model **model,
                                   setun_error *err);
// A `next` that loads the weights.
setun_status st_api_load_weights(setun_model *model, const st_directory *directory, const setun_model_params *params,
                                 void *context, setun_error *err);

struct st_convert_options;
// Converts a model with its tokenizer, between any containers.
setun_status st_convert_whole(const char *source, const char *target, const st_open_options *open,
                              struct st_convert_options *options, setun_error *err);
// The format of the embedding or the head by its name.
setun_status st_find_end_format(const char *what, const char *name, const st_format **format, bool *kept,
                                setun_error *err);

#endif
