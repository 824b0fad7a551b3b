// Prompts from config_sentence_transformers.json.
#include "runtime/prompts.h"

#include "base/memory.h"

#include <string.h>

void st_prompts_free(st_prompts *p) {
  for (size_t i = 0; i < p->n; i++) {
    st_free(p->names[i]);
    st_free(p->texts[i]);
  }
  st_free(p->names);
  st_free(p->texts);
  *p = (st_prompts){0};
}

static setun_status read_prompts(const st_json *list, st_prompts *p, setun_error *err) {
  size_t n = st_json_members(list);
  if (list && !st_json_is_object(list)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "prompts: expected an object, found %s", st_json_kind(list));
  }
  p->names = st_calloc(n ? n : 1, sizeof *p->names);
  p->texts = st_calloc(n ? n : 1, sizeof *p->texts);
  if (!p->names || !p->texts) return st_fail_memory(err, "prompts");
  for (; p->n < n; p->n++) {
    const st_json_member *m = st_json_member_at(list, p->n);
    const char *text = st_json_string(&m->value);
    if (!text || strlen(text) != st_json_length(&m->value)) {
      return st_fail(err, SETUN_ERROR_FORMAT, "prompts: %.64s: expected a string without a 0 byte, found %s", m->key,
                     st_json_kind(&m->value));
    }
    p->names[p->n] = st_strdup(m->key);
    p->texts[p->n] = st_strdup(text);
    if (!p->names[p->n] || !p->texts[p->n]) {
      st_free(p->names[p->n]);
      st_free(p->texts[p->n]);
      return st_fail_memory(err, "prompts");
    }
  }
  return SETUN_OK;
}

static setun_status choose(const st_json *config, st_prompts *p, setun_error *err) {
  static const char key[] = "default_prompt_name";
  const char *name = NULL;
  setun_status s = st_json_text(config, key, &name, err);
  for (size_t i = 0; i < p->n && name; i++) {
    if (!strcmp(p->names[i], name)) p->chosen = p->names[i];
  }
  if (s != SETUN_OK || !name || p->chosen) return s;
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected the name of one of prompts, found \"%.64s\"", key, name);
}

// Members that do not affect embeddings: versions, and how embeddings should be compared.
static setun_status note_others(const st_directory *d, setun_error *err) {
  static const char *const known[] = {"prompts", "default_prompt_name", "__version__", "similarity_fn_name",
                                      "model_type", "truncate_dim"}; // the last is read in model/embedding.c
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < st_json_members(d->sentence_config) && s == SETUN_OK; i++) {
    const st_json_member *m = st_json_member_at(d->sentence_config, i);
    size_t k = 0;
    while (k < sizeof known / sizeof *known && strcmp(known[k], m->key)) k++;
    if (k < sizeof known / sizeof *known || st_json_is_null(&m->value)) continue;
    s = st_notices_add(d->notices, SETUN_LOG_WARNING, err, "%s: %.64s: not read", ST_SENTENCE_CONFIG, m->key);
  }
  return s;
}

setun_status st_prompts_load(const st_directory *d, st_prompts *prompts, setun_error *err) {
  *prompts = (st_prompts){0};
  if (!d->sentence_config) return SETUN_OK;
  setun_status s = read_prompts(st_json_get(d->sentence_config, "prompts"), prompts, err);
  if (s == SETUN_OK) s = choose(d->sentence_config, prompts, err);
  if (s == SETUN_OK) s = note_others(d, err);
  return s == SETUN_OK ? s : st_fail_in(err, s, "%s", ST_SENTENCE_CONFIG);
}
