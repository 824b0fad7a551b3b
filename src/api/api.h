// The handles behind setun.h.
#ifndef SETUN_API_API_H
#define SETUN_API_API_H

#include "model/hparams_read.h"
#include "model/model.h"
#include "runtime/sampler.h"
#include "runtime/session.h"
#include "runtime/templates.h"
#include "runtime/vocabulary.h"

struct setun_model {
  st_model *model; // NULL: only the vocabulary was loaded
  st_tokenizer *tokenizer;
  st_container container;
  setun_sampler_params sampling;
  st_templates templates;
  char *architecture; // as the files spell it; NULL: they do not say
};

// A session is the runtime's own; the handle is that object.
static inline st_session *st_session_of(setun_session *s) { return (st_session *)(void *)s; }
static inline const st_session *st_const_session_of(const setun_session *s) { return (const st_session *)(const void *)s; }

// setun_model_load and setun_model_load_vocabulary; `source` NULL or a GGUF file's bytes, which `path` then only names.
setun_status st_load_model(const char *path, const st_file_source *source, const setun_model_params *params,
                           bool weights, setun_model **model, setun_error *err);

// An error when an option of the parameters cannot be meant.
setun_status st_check_model_params(const setun_model_params *params, setun_error *err);
st_open_options st_open_options_of(const setun_model_params *params, st_log *log);

#endif
