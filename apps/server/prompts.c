// Reading prompts in their various forms.
#include "prompts.h"

#include <stdlib.h>
#include <string.h>

enum { PROMPTS_MOST = 4096 };

typedef struct ids {
  setun_token *data;
  size_t n, capacity;
} ids;

static bool reserve(ids *list, size_t more, problem *p) {
  size_t wanted = list->n + more + 1;
  if (wanted <= list->capacity) return true;
  size_t larger = wanted + wanted / 2;
  setun_token *grown = realloc(list->data, larger * sizeof *grown);
  if (!grown) return fail_memory(p);
  list->data = grown;
  list->capacity = larger;
  return true;
}

static bool add_id(job *j, const st_json *v, const char *key, ids *list, problem *p) {
  double x = st_json_number(v);
  uint32_t n_vocab = setun_model_n_vocab(j->server->model);
  if (!(x >= 0 && x < n_vocab && x == (double)(uint32_t)x))
    return invalid(p, key, "%s: expected a token id below %u, found %.10g", key, (unsigned)n_vocab, x);
  if (!reserve(list, 1, p)) return false;
  list->data[list->n++] = (setun_token)x;
  return true;
}

// `last`: it ends the prompt.
static bool add_text(job *j, const char *text, size_t length, bool last, ids *list, problem *p) {
  size_t n = 0;
  int flags = SETUN_TOKENIZE_SPECIAL | (list->n ? 0 : SETUN_TOKENIZE_BOS) | (j->embed && last ? SETUN_TOKENIZE_EOS : 0);
  setun_token *more = prompt_tokens_of(j->server, text, length, flags, &n, p);
  bool fine = more && reserve(list, n, p);
  if (fine && n) memcpy(list->data + list->n, more, n * sizeof *more);
  if (fine) list->n += n;
  free(more);
  return fine;
}

static bool add_string(job *j, const st_json *v, bool last, ids *list, problem *p) {
  return add_text(j, st_json_string(v), st_json_length(v), last, list, p);
}

// Parts of a text that becomes a vector, in llama.cpp's form: {"type": "text", "text": ...}, joined unchanged.
static bool add_parts(job *j, const st_json *parts, const char *key, ids *list, problem *p) {
  st_buffer joined = {0};
  bool fine =
      st_json_size(parts) || invalid(p, key, "%s: content: expected an array of parts, found %s", key, kind_of(parts));
  for (size_t i = 0; fine && i < st_json_size(parts); i++) {
    const st_json *part = st_json_at(parts, i), *text = st_json_get(part, "text");
    const char *type = st_json_string(st_json_get(part, "type"));
    if (!type || strcmp(type, "text") || !st_json_is_string(text))
      fine = invalid(p, key, "%s: content: expected parts of type text, found %s", key, type ? type : kind_of(part));
    else
      fine = !st_json_length(text) || st_buffer_append(&joined, st_json_string(text), st_json_length(text)) ||
             fail_memory(p);
  }
  fine = fine && add_text(j, joined.data ? joined.data : "", joined.length, true, list, p);
  st_buffer_free(&joined);
  return fine;
}

// Whether a text already begins with BOS, spelled out.
static bool begins_with_bos(const job *j, const st_json *text) {
  const char *bytes = "";
  size_t n = 0;
  setun_token bos = setun_token_bos(j->server->model);
  if (bos < 0 || setun_token_get_text(j->server->model, bos, &bytes, &n, NULL) != SETUN_OK || !n) return false;
  return st_json_length(text) >= n && !memcmp(st_json_string(text), bytes, n);
}

// One prompt: a string, llama.cpp's object (with prompt_string or, for a vector, content), or an array of ids and
// strings.
static bool add_prompt(job *j, const st_json *v, const char *key, problem *p) {
  ids list = {0};
  bool fine = reserve(&list, 0, p);
  if (j->n_prompts == PROMPTS_MOST) fine = invalid(p, key, "%s: expected at most %d prompts", key, PROMPTS_MOST);
  const st_json *parts = j->embed && st_json_is_object(v) ? st_json_get(v, "content") : NULL;
  if (parts) {
    fine = fine && add_parts(j, parts, key, &list, p);
  } else if (st_json_is_object(v)) {
    if (st_json_get(v, "multimodal_data")) fine = invalid(p, key, "%s: multimodal_data is not supported", key);
    v = st_json_get(v, "prompt_string");
    if (fine && !v) fine = invalid(p, key, "%s: expected a string, an array, or an object with prompt_string", key);
  }
  if (parts) {
    v = NULL; // not a plain text
  } else if (fine && st_json_is_string(v)) {
    fine = add_string(j, v, true, &list, p);
  } else if (fine && st_json_is_array(v)) {
    for (size_t i = 0; fine && i < st_json_size(v); i++) {
      const st_json *one = st_json_at(v, i);
      if (st_json_is_number(one))
        fine = add_id(j, one, key, &list, p);
      else if (st_json_is_string(one))
        fine = add_string(j, one, i + 1 == st_json_size(v), &list, p);
      else
        fine = invalid(p, key, "%s: expected token ids and strings, found %s", key, kind_of(one));
    }
  } else if (fine) {
    fine = invalid(p, key, "%s: expected a string or an array, found %s", key, kind_of(v));
  }
  bool added = fine && st_json_is_string(v) && list.n && list.data[0] == setun_token_bos(j->server->model) &&
               !begins_with_bos(j, v);
  if (fine && !job_add_prompt(j, list.data, list.n, p)) return false;
  if (fine) {
    j->prompts[j->n_prompts - 1].added_bos = added;
    return true;
  }
  free(list.data);
  return false;
}

bool job_add_prompts(job *j, const st_json *value, const char *key, problem *p) {
  bool mixed = false;
  if (!value) return invalid(p, key, "%s: expected a string or an array, found nothing", key);
  if (!st_json_is_array(value)) return add_prompt(j, value, key, p);
  for (size_t i = 0; i < st_json_size(value); i++) mixed = mixed || st_json_is_number(st_json_at(value, i));
  // A list of strings alone is several prompts; with token ids between them it is one.
  bool nested = false;
  for (size_t i = 0; i < st_json_size(value); i++) {
    const st_json *one = st_json_at(value, i);
    nested = nested || st_json_is_array(one) || st_json_is_object(one);
  }
  if (mixed && !nested) return add_prompt(j, value, key, p);
  if (!st_json_size(value)) return invalid(p, key, "%s: expected a prompt, found an empty array", key);
  for (size_t i = 0; i < st_json_size(value); i++) {
    if (!add_prompt(j, st_json_at(value, i), key, p)) return false;
  }
  return true;
}
