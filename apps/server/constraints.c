// Constraints on answers.
#include "constraints.h"

#include <stdlib.h>
#include <string.h>

// The requested constraint. Zero-initialize.
typedef struct wanted {
  const char *param;     // the member that requests it; NULL: none
  const st_json *schema; // NULL with `object`: any object
  bool object;
  const st_json *grammar;
} wanted;

static bool read_response_format(const st_json *body, wanted *w, problem *p) {
  const char *key = "response_format";
  const st_json *format = st_json_get(body, key), *type = st_json_get(format, "type");
  const st_json *inside = st_json_get(format, "json_schema"), *schema = st_json_get(format, "schema");
  if (!format) return true;
  if (!st_json_is_object(format)) return invalid(p, key, "%s: expected an object, found %s", key, kind_of(format));
  if (!st_json_is_string(type)) return invalid(p, key, "%s.type: expected a string, found %s", key, kind_of(type));
  const char *name = st_json_string(type);
  if (!strcmp(name, "text")) return true;
  bool object = !strcmp(name, "json_object");
  if (!object && strcmp(name, "json_schema") != 0)
    return invalid(p, key, "%s.type: expected text, json_object or json_schema, found %.40s", key, name);
  if (inside && !st_json_is_object(inside))
    return invalid(p, key, "%s.json_schema: expected an object, found %s", key, kind_of(inside));
  if (!schema) schema = st_json_get(inside, "schema");
  if (!object && !schema) return invalid(p, key, "%s.json_schema.schema: expected a schema, found nothing", key);
  *w = (wanted){.param = key, .schema = schema, .object = true};
  return true;
}

static bool read_llama(const st_json *body, wanted *w, problem *p) {
  const st_json *grammar = st_json_get(body, "grammar"), *schema = st_json_get(body, "json_schema");
  if (grammar && !st_json_is_string(grammar))
    return invalid(p, "grammar", "grammar: expected a string, found %s", kind_of(grammar));
  if (grammar && !st_json_length(grammar)) grammar = NULL; // llama.cpp's clients send an empty text to mean none
  if (schema && !st_json_is_object(schema) && !st_json_is_bool(schema))
    return invalid(p, "json_schema", "json_schema: expected an object, found %s", kind_of(schema));
  if ((grammar != NULL) + (schema != NULL) + (w->param != NULL) > 1)
    return invalid(p, grammar ? "grammar" : "json_schema",
                   "response_format, grammar and json_schema exclude each other");
  if (grammar) *w = (wanted){.param = "grammar", .grammar = grammar};
  if (schema) *w = (wanted){.param = "json_schema", .schema = schema, .object = true};
  return true;
}

// The library's parameters for a request; `text` is for what they point to.
static setun_answer_params params_of(const job *j, setun_constraint_params *text) {
  const constraint_request *r = j->request;
  setun_answer_params answer = setun_answer_params_default();
  *text = setun_constraint_params_default();
  text->grammar = r->grammar;
  text->text = r->text.data;
  text->length = r->text.length;
  text->name = r->param;
  if (r->has_text) answer.text = text;
  answer.calls = r->calls;
  answer.tool = j->tool_name;
  answer.one_call = j->one_call || j->tool_name;
  return answer;
}

static bool make_key(const job *j, problem *p) {
  constraint_request *r = j->request;
  setun_constraint_params text;
  setun_answer_params answer = params_of(j, &text);
  const setun_rendering *conversation = j->chat ? j->rendering : NULL;
  setun_error error;
  size_t n = 0;
  setun_status s = setun_answer_key(conversation, &answer, NULL, 0, &n, &error);
  if (s == SETUN_OK && !(r->key = malloc(n + 1))) return fail_memory(p);
  if (s == SETUN_OK) s = setun_answer_key(conversation, &answer, r->key, n, &r->key_length, &error);
  return s == SETUN_OK || fail_with(p, r->param, &error);
}

setun_status constraint_compile(const job *j, const constraint_limits *limits, setun_constraint **out, problem *p) {
  setun_constraint_params text;
  setun_answer_params answer = params_of(j, &text);
  setun_error error;
  text.memory = answer.memory = limits->bytes;
  text.milliseconds = answer.milliseconds = limits->milliseconds;
  setun_status s = j->chat ? setun_constraint_new_answer(j->rendering, &answer, out, &error)
                           : setun_constraint_new(j->server->model, &text, out, &error);
  if (s == SETUN_ERROR_STATE)
    invalid(p, j->request->param, "%s", error.message);
  else if (s != SETUN_OK)
    fail_with(p, j->request->param, &error);
  return s;
}

void constraint_request_free(constraint_request *r) {
  if (!r) return;
  st_buffer_free(&r->text);
  free(r->key);
  free(r);
}

// Copies the text of what is wanted into the request.
static bool copy_text(constraint_request *r, const wanted *w) {
  static const char any_object[] = "{\"type\":\"object\"}";
  r->has_text = true;
  r->param = w->param;
  if (!w->grammar)
    return w->schema ? st_json_append_shortest(w->schema, &r->text) : st_buffer_text(&r->text, any_object);
  const char *text = st_json_string(w->grammar);
  r->grammar = strstr(text, "::=") ? SETUN_GRAMMAR_GBNF : SETUN_GRAMMAR_LARK;
  return st_buffer_append(&r->text, text, st_json_length(w->grammar));
}

static bool request(job *j, const wanted *w, problem *p) {
  constraint_request *r = j->request = calloc(1, sizeof *r);
  if (!r) return fail_memory(p);
  r->param = "tools";
  if (w->param && !copy_text(r, w)) return fail_memory(p);
  // A grammar describes the whole answer; with a JSON schema the answer may still be a call.
  bool schema = w->param && !w->grammar;
  r->calls = j->chat && (w->param ? schema && j->tool_choice == TOOLS_AUTO : true);
  j->sure_calls = r->calls;
  return make_key(j, p);
}

bool constrain_job(job *j, const st_json *body, problem *p) {
  wanted w = {0};
  if (!read_response_format(body, &w, p) || !read_llama(body, &w, p)) return false;
  bool calls = j->tool_choice == TOOLS_REQUIRED;
  if (!w.param && !calls) return true;
  if (w.grammar && calls)
    return invalid(p, "grammar", "grammar and a tool_choice that requires calls exclude each other");
  if (j->g.ignore_end)
    return invalid(p, "ignore_eos", "ignore_eos and %s exclude each other", calls ? "tool_choice" : w.param);
  return request(j, calls ? &(wanted){0} : &w, p);
}
