// Choosing a chat template, and the templates of families whose models are published without one.
#include "chat/choose.h"

#include "base/memory.h"

#include <string.h>

void st_templates_free(st_templates *t) {
  for (size_t i = 0; i < t->n; i++) {
    st_free(t->items[i].name);
    st_free(t->items[i].text);
    st_free(t->items[i].origin);
  }
  st_free(t->items);
  *t = (st_templates){0};
}

bool st_templates_add(st_templates *t, st_text name, st_text text, const char *origin) {
  for (size_t i = 0; i < t->n; i++) {
    if (strlen(t->items[i].name) == name.length && !memcmp(t->items[i].name, name.data, name.length)) return true;
  }
  if (!st_reserve(&t->items, &t->capacity, t->n + 1, sizeof *t->items)) return false;
  st_named_template item = {st_strndup(name.data, name.length), st_strndup(text.data, text.length), text.length,
                            st_strdup(origin)};
  if (!item.name || !item.text || !item.origin) {
    st_free(item.name);
    st_free(item.text);
    st_free(item.origin);
    return false;
  }
  t->items[t->n++] = item;
  return true;
}

static const st_named_template *find_template(const st_templates *t, const char *name) {
  for (size_t i = 0; i < t->n; i++) {
    if (!strcmp(t->items[i].name, name)) return &t->items[i];
  }
  return NULL;
}

// ---- families ----

// How models of some families write a conversation: recognized by control tokens that only their chat models use. The
// families' specs name them (st_spec.chat_templates).
typedef struct family {
  const char *name;
  const char *tokens[2];
  const char *text;
  // A model's own template without this text is wrong; NULL: the model's own is right.
  const char *needs;
} family;

static const family families[] = {
    // The published GGUF file of BitNet b1.58 2B4T has turns "Human: ...\n\nBITNETAssistant: ", which the model was not
    // trained on; the tokenizer_config.json of the same model has these.
    {"BitNet b1.58 2B4T",
     {"<|eot_id|>", "<|begin_of_text|>"},
     "{%- for message in messages %}"
     "{%- if loop.first %}{{ bos_token }}{% endif %}"
     "{{ message['role'] | capitalize + ': ' + message['content'] | trim + '<|eot_id|>' }}"
     "{%- endfor %}"
     "{%- if add_generation_prompt %}{{ 'Assistant: ' }}{% endif %}",
     "<|eot_id|>"},
    {"Llama 3",
     {"<|start_header_id|>", "<|eot_id|>"},
     "{%- for message in messages %}"
     "{%- if loop.first %}{{ bos_token }}{% endif %}"
     "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + "
     "'<|eot_id|>' }}"
     "{%- endfor %}"
     "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
     NULL},
    {"Gemma",
     {"<start_of_turn>", "<end_of_turn>"},
     "{{ bos_token }}"
     "{%- set prefix = '' %}{%- set turns = messages %}"
     "{%- if messages[0]['role'] == 'system' %}"
     "{%- set prefix = messages[0]['content'] + '\\n\\n' %}{%- set turns = messages[1:] %}"
     "{%- endif %}"
     "{%- for message in turns %}"
     "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\\n' + "
     "(prefix if loop.first else '') + message['content'] | trim + '<end_of_turn>\\n' }}"
     "{%- endfor %}"
     "{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
     NULL},
    {"ChatML",
     {"<|im_start|>", "<|im_end|>"},
     "{%- for message in messages %}"
     "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
     "{%- endfor %}"
     "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
     NULL},
};

static bool is_family(const family *f, const st_chat_model *model) {
  bool known = false;
  for (const char *const *name = model->templates; name && *name; name++) known |= !strcmp(f->name, *name);
  for (size_t i = 0; known && i < sizeof f->tokens / sizeof *f->tokens; i++) {
    known = model->has_control(model->user, f->tokens[i]);
  }
  return known;
}

static const family *find_family(const st_chat_model *model) {
  for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
    if (is_family(&families[i], model)) return &families[i];
  }
  return NULL;
}

// ---- the choice ----

static setun_status no_such(const st_templates *templates, const char *name, setun_error *err) {
  char list[256] = "";
  size_t used = 0;
  for (size_t i = 0; i < templates->n; i++) {
    const char *item = templates->items[i].name;
    size_t length = strlen(item);
    if (used + length + 3 > sizeof list) break;
    if (used) list[used++] = ',', list[used++] = ' ';
    memcpy(list + used, item, length + 1);
    used += length;
  }
  return st_fail(err, SETUN_ERROR_STATE,
                 "chat template: expected one named \"%.64s\", found %s; a template may be given", name,
                 *list ? list : "none");
}

setun_status st_choose_template(const st_templates *templates, const st_chat_model *model, const char *name, bool tools,
                                const st_log *log, st_chosen_template *out, setun_error *err) {
  const st_named_template *own = name ? find_template(templates, name) : NULL;
  if (!name && tools) own = find_template(templates, "tool_use");
  if (!name && !own) own = find_template(templates, "default");
  if (name && !own) return no_such(templates, name, err);
  if (!own && templates->n) return no_such(templates, "default", err);
  const family *f = find_family(model);
  bool wrong = own && f && f->needs && !strstr(own->text, f->needs);
  if (own && !wrong) {
    *out = (st_chosen_template){.text = own->text, .origin = own->origin, .length = own->length};
    return SETUN_OK;
  }
  if (!f) {
    return st_fail(
        err, SETUN_ERROR_STATE,
        "the model has no chat template, and none is known for it (architecture %.64s); a template may be given",
        model->architecture ? model->architecture : "not given");
  }
  if (wrong) {
    st_log_write(log, SETUN_LOG_WARNING, "%s is not what the model was trained with: using that of %s", own->origin,
                 f->name);
  } else {
    st_log_write(log, SETUN_LOG_WARNING, "the model has no chat template: using that of %s", f->name);
  }
  *out = (st_chosen_template){.text = f->text, .origin = f->name, .length = strlen(f->text)};
  if (wrong) out->replaces = own->origin;
  return SETUN_OK;
}
