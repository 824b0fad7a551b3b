// Constraints on answers.
#include "constraints.h"

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

// Compiles it; in a conversation, calls and thoughts may precede it.
static bool compile(job *j, const setun_constraint_params *text, const char *param, problem *p) {
  setun_answer_params answer = setun_answer_params_default();
  setun_error error;
  // A grammar describes the whole answer; with a JSON schema the answer may still be a call.
  bool own = text && text->grammar != SETUN_GRAMMAR_JSON_SCHEMA;
  answer.text = text;
  answer.calls = j->chat && !own && (text ? j->tool_choice == TOOLS_AUTO : j->tool_choice == TOOLS_REQUIRED);
  answer.tool = j->tool_name;
  answer.one_call = j->one_call || j->tool_name;
  j->sure_calls = answer.calls;
  setun_status s = j->chat ? setun_constraint_new_answer(j->rendering, &answer, &j->constraint, &error)
                           : setun_constraint_new(j->server->model, text, &j->constraint, &error);
  if (s == SETUN_ERROR_STATE) return invalid(p, param, "%s", error.message);
  return s == SETUN_OK || fail_with(p, param, &error);
}

static bool compile_text(job *j, const wanted *w, problem *p) {
  static const char any_object[] = "{\"type\":\"object\"}";
  setun_constraint_params params = setun_constraint_params_default();
  st_buffer schema = {0};
  bool fine = !w->schema || st_json_append_shortest(w->schema, &schema) || fail_memory(p);
  params.name = w->param;
  if (w->grammar) {
    params.grammar = strstr(st_json_string(w->grammar), "::=") ? SETUN_GRAMMAR_GBNF : SETUN_GRAMMAR_LARK;
    params.text = st_json_string(w->grammar);
    params.length = st_json_length(w->grammar);
  } else {
    params.text = w->schema ? schema.data : any_object;
    params.length = w->schema ? schema.length : sizeof any_object - 1;
  }
  fine = fine && compile(j, &params, w->param, p);
  st_buffer_free(&schema);
  return fine;
}

bool constrain_job(job *j, const st_json *body, problem *p) {
  wanted w = {0};
  if (!read_response_format(body, &w, p) || !read_llama(body, &w, p)) return false;
  bool calls = j->tool_choice == TOOLS_REQUIRED;
  if (!w.param && !calls) return true;
  if (w.grammar && calls)
    return invalid(p, "grammar", "grammar and a tool_choice that requires calls exclude each other");
  if (j->g.ignore_end)
    return invalid(p, "ignore_eos", "ignore_eos does not go with %s", calls ? "tool_choice" : w.param);
  return calls ? compile(j, NULL, "tools", p) : compile_text(j, &w, p);
}
