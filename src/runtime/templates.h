// From a model's files to its chat templates.
#ifndef SETUN_RUNTIME_TEMPLATES_H
#define SETUN_RUNTIME_TEMPLATES_H

#include "chat/choose.h"
#include "format/directory.h"

// GGUF: the keys tokenizer.chat_template and tokenizer.chat_template.NAME. A Hugging Face directory, the first that has
// a name counting: chat_template.jinja, additional_chat_templates/NAME.jinja, chat_template of tokenizer_config.json (a
// string, or a list of {"name", "template"}), chat_template of chat_template.json. What is of another type is left out:
// a model must not be refused for it. That, and that there is none, become notices of the directory. `templates` is
// empty before, and freed by the caller, also on failure.
setun_status st_templates_load(const st_directory *directory, st_templates *templates, setun_error *err);

// How the files spell the model's architecture: GGUF's general.architecture, or config.json's model_type. *out is NULL
// where they do not say; freed with st_free.
setun_status st_architecture_name(const st_directory *directory, char **out, setun_error *err);

#endif
