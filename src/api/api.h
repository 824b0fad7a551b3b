// The handles behind setun.h.
#ifndef SETUN_API_API_H
#define SETUN_API_API_H

#include "model/hparams_read.h"
#include "placement/placement.h"
#include "runtime/sampler.h"
#include "runtime/session.h"
#include "runtime/templates.h"
#include "runtime/vocabulary.h"

struct setun_model {
  st_placement *placement; // NULL: only the vocabulary was loaded
  st_model *model;         // its model
  int64_t maker;           // the process that computes with it
  st_tokenizer *tokenizer;
  st_container container;
  setun_sampler_params sampling;
  st_templates templates;
  char *architecture; // as the files spell it; NULL: they do not say
  st_log log;
  st_directory *directory; // that weights are streamed from; NULL: none are
};

// A session is the runtime's own; the handle is that object.
static inline st_session *st_session_of(setun_session *s) {
  return (st_session *)(void *)s;
}
static inline const st_session *st_const_session_of(const setun_session *s) {
  return (const st_session *)(const void *)s;
}

// Notes that a GGUF file does not say how texts are split before byte-level BPE, and what is taken.
setun_status st_note_default_pre(const st_directory *directory, setun_error *err);

// An error when an option of the parameters cannot be meant.
setun_status st_check_model_params(const setun_model_params *params, setun_error *err);
st_open_options st_open_options_of(const setun_model_params *params, st_log *log);

st_placement_options st_placement_options_of(const setun_model_params *params, const st_log *log);

// Opens a model's files (or `source`, unless that is NULL: a GGUF file's bytes, which `path` then only names) and reads
// everything but weights; then `next`, unless that is NULL, does what it likes with
// them. The directory lives until then, or with the model where weights stream from it.
// With a `next`, a budget that cannot do is refused before the vocabulary takes memory; `plan`, unless that is NULL,
// then has the plan that was refused.
typedef setun_status (*st_next_fn)(setun_model *model, const st_directory *directory, const setun_model_params *params,
                                   void *context, setun_error *err);
setun_status st_api_open(const char *path, const st_file_source *source, const setun_model_params *params,
                         st_next_fn next, void *context, st_memory_plan *plan, setun_model **model, setun_error *err);
// A `next` that loads the weights.
setun_status st_api_load_weights(setun_model *model, const st_directory *directory, const setun_model_params *params,
                                 void *context, setun_error *err);
// A `next` that makes the plan, an st_memory_plan, which is `context`.
setun_status st_api_make_plan(setun_model *model, const st_directory *directory, const setun_model_params *params,
                              void *context, setun_error *err);
setun_plan st_api_plan_of(const st_memory_plan *plan);

#endif
