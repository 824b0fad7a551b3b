// From a model's files to its chat templates.
#ifndef SETUN_RUNTIME_TEMPLATES_H
#define SETUN_RUNTIME_TEMPLATES_H

#include "chat/choose.h"
#include "format/directory.h"

// GGUF: the keys tokenizer.chat_template and tokenizer.chat_template.NAME. A Hugging Face directory, where the first
// occurrence of a name is used: chat_template.jinja, additional_chat_templates/NAME.jinja, chat_template of
// tokenizer_config.json (a string, or a list of {"name", "template"}), chat_template of chat_template.json. Values of
// other types are ignored: they are no reason to refuse a model. That, and the absence of templates, become notices of
// the directory. `templates` must be empty and is freed by the caller, also on failure.
setun_status st_templates_load(const st_directory *directory, st_templates *templates, setun_error *err);

// How the files spell the model's architecture: GGUF's general.architecture, or config.json's model_type. *out is NULL
// if absent; freed with st_free.
setun_status st_architecture_name(const st_directory *directory, char **out, setun_error *err);

#endif
