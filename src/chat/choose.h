// Which chat template a conversation is rendered with: one of the model's own, or its family's if the model has none,
// or one that is known to be wrong. There is no default, with which answers would silently be worse.
#ifndef SETUN_CHAT_CHOOSE_H
#define SETUN_CHAT_CHOOSE_H

#include "base/buffer.h"
#include "base/log.h"

// One template as a model's files hold it.
typedef struct st_named_template {
  char *name; // "default", "tool_use", ...
  char *text;
  size_t length;
  char *origin; // the key or the file, for messages
} st_named_template;

// All templates of a model. Zero-initialize; freed with st_templates_free.
typedef struct st_templates {
  st_named_template *items;
  size_t n, capacity;
} st_templates;

void st_templates_free(st_templates *t);
// Adds copies, unless the name exists already: the first one is used. False: out of memory.
bool st_templates_add(st_templates *t, st_text name, st_text text, const char *origin);

// Facts about the model.
typedef struct st_chat_model {
  const char *architecture;     // as the model's files spell it, for messages; NULL: unknown
  const char *const *templates; // names of its family's templates, ended with NULL; NULL: none
  // Whether the vocabulary has this control token.
  bool (*has_control)(const void *user, const char *text);
  const void *user;
} st_chat_model;

// Texts and origin live as long as the templates, or are constant.
typedef struct st_chosen_template {
  const char *text, *origin;
  size_t length;
  const char *replaces; // the origin of the model's own, which is known to be wrong; NULL: none is replaced
} st_chosen_template;

// `name` NULL: "tool_use" if there are `tools` and the model has such a template, otherwise "default". A
// replacement is logged as a warning. SETUN_ERROR_STATE: there is no template.
setun_status st_choose_template(const st_templates *templates, const st_chat_model *model, const char *name, bool tools,
                                const st_log *log, st_chosen_template *out, setun_error *err);

#endif
