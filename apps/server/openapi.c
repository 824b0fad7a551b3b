// /openapi.json: the table of endpoints and their fields, as an OpenAPI 3.1 description.
#include "embedded.h"
#include "json_out.h"
#include "models.h"
#include "params.h"
#include "routes.h"

#include <stdio.h>
#include <string.h>

// The parts of schemas that depend on the model, if there is only one; otherwise values that hold for all models.
typedef struct model_facts {
  int64_t last_token;
  setun_embedding_info embeddings;
  bool empty_prompt, empty_input; // whether an empty text has tokens
} model_facts;

// A schema, parsed from JSON.
static st_json parsed(st_json *root, const char *text) {
  st_json *document = NULL;
  if (!root || st_json_parse_any(text, strlen(text), "schema", &document, NULL) != SETUN_OK)
    return st_json_make_object();
  st_json value = st_json_copy_of(root, document);
  st_json_free(document);
  return value;
}

static st_json text_value(st_json *root, const char *text) {
  return bytes_value(root, text, strlen(text));
}

// A bound, written as an integer if it is one.
static void put_bound(st_json *root, st_json *schema, const char *key, double x) {
  if (x == (double)(int64_t)x)
    put_integer(root, schema, key, (int64_t)x);
  else
    put_real(root, schema, key, x);
}

static st_json field_schema(st_json *root, const field *f) {
  st_json schema = st_json_make_object(), kinds = st_json_make_array(), either = st_json_make_array(),
          null = st_json_make_object();
  const char *type = f->kind == FIELD_BOOL                                                          ? "boolean"
                     : f->kind == FIELD_INTEGER || f->kind == FIELD_NEEDED || f->kind == FIELD_SEED ? "integer"
                                                                                                    : "number";
  put_text(root, &null, "type", "null");
  if (f->kind == FIELD_OTHER && f->low > 0) {
    schema = parsed(root, f->schema);
  } else if (f->kind == FIELD_OTHER) {
    push(root, &either, parsed(root, f->schema));
    push(root, &either, null);
    put(root, &schema, "anyOf", either);
  } else if (f->kind == FIELD_REFUSED) {
    put(root, &schema, "enum", parsed(root, "[null,false,0,\"\",[],{}]")); // values that request nothing
  } else {
    push(root, &kinds, text_value(root, type));
    if (f->kind != FIELD_NEEDED) push(root, &kinds, text_value(root, "null"));
    put(root, &schema, "type", kinds);
  }
  if (f->kind == FIELD_INTEGER || f->kind == FIELD_NEEDED || f->kind == FIELD_FLOAT || f->kind == FIELD_DOUBLE) {
    put_bound(root, &schema, "minimum", f->low);
    put_bound(root, &schema, "maximum", f->high);
  }
  if (f->kind == FIELD_SEED) {
    put_integer(root, &schema, "minimum", INT64_MIN);
    put_integer(root, &schema, "maximum", INT64_MAX);
  }
  put_text(root, &schema, "description", f->help);
  return schema;
}

static const char model_schema[] =
    "{\"type\":[\"string\",\"null\"],\"description\":\"the name of the model that answers\"}";

static st_json body_schema(st_json *root, const field *const *tables) {
  st_json schema = st_json_make_object(), properties = st_json_make_object(), required = st_json_make_array();
  for (; *tables; tables++) {
    for (const field *f = *tables; f->name; f++) {
      if (st_json_find(&properties, f->name)) continue;
      put(root, &properties, f->name, field_schema(root, f));
      if (f->kind == FIELD_NEEDED || (f->kind == FIELD_OTHER && f->low > 0))
        push(root, &required, text_value(root, f->name));
    }
  }
  if (!st_json_find(&properties, "model")) put(root, &properties, "model", parsed(root, model_schema));
  put_text(root, &schema, "type", "object");
  put(root, &schema, "properties", properties);
  if (st_json_size(&required)) put(root, &schema, "required", required);
  return schema;
}

static st_json content_value(st_json *root, const char *type, st_json schema) {
  st_json content = st_json_make_object(), media = st_json_make_object();
  put(root, &media, "schema", schema);
  put(root, &content, type, media);
  return content;
}

static void put_response(st_json *root, st_json *responses, const char *code, const char *what, bool error) {
  st_json response = st_json_make_object(), reference = st_json_make_object();
  put_text(root, &response, "description", what);
  put_text(root, &reference, "$ref", "#/components/schemas/Error");
  if (error) put(root, &response, "content", content_value(root, "application/json", reference));
  put(root, responses, code, response);
}

static st_json operation_value(st_json *root, const route *r) {
  st_json value = st_json_make_object(), responses = st_json_make_object(), body = st_json_make_object(),
          parameters = st_json_make_array(), parameter = st_json_make_object(), schema = st_json_make_object();
  put_text(root, &value, "summary", r->summary);
  if (r->flags & ROUTE_PREFIX) {
    put_text(root, &schema, "type", "string");
    put_text(root, &parameter, "name", "name");
    put_text(root, &parameter, "in", "path");
    put_bool(root, &parameter, "required", true);
    put(root, &parameter, "schema", schema);
    push(root, &parameters, parameter);
    put(root, &value, "parameters", parameters);
  }
  if (r->fields) {
    put_bool(root, &body, "required", true);
    put(root, &body, "content", content_value(root, "application/json", body_schema(root, r->fields)));
    put(root, &value, "requestBody", body);
  }
  put_response(root, &responses, "200", "The answer", false);
  put_response(root, &responses, "400", "The request is invalid", true);
  if (!(r->flags & ROUTE_PUBLIC)) put_response(root, &responses, "401", "An API key is needed", true);
  put_response(root, &responses, "403", "The Host or Origin header is not allowed", true);
  put_response(root, &responses, "404", "Not found", true);
  put_response(root, &responses, "413", "The body is too large", true);
  put_response(root, &responses, "500", "The server failed", true);
  put_response(root, &responses, "501", "The model cannot do this", true);
  put_response(root, &responses, "503", "The model is loading, or the queue is full", true);
  put(root, &value, "responses", responses);
  return value;
}

// A models_each function.
static void see_model(const server_model *about, bool loading, server *s, void *user) {
  model_facts *facts = user;
  size_t n = 0;
  (void)about;
  (void)loading;
  if (!s || models_are_chosen(s->models)) return;
  facts->last_token = (int64_t)s->info.n_vocab - 1;
  facts->embeddings = s->embeddings;
  facts->empty_prompt = setun_tokenize(s->model, "", 0, SETUN_TOKENIZE_BOS, NULL, 0, &n, NULL) == SETUN_OK && n;
  facts->empty_input =
      setun_tokenize(s->model, "", 0, SETUN_TOKENIZE_BOS | SETUN_TOKENIZE_EOS, NULL, 0, &n, NULL) == SETUN_OK && n;
}

static st_json text_schema(st_json *root, bool empty) {
  st_json schema = st_json_make_object();
  put_text(root, &schema, "type", "string");
  if (!empty) put_integer(root, &schema, "minLength", 1);
  return schema;
}

// Appends a pattern of the decimal numbers up to `last`: shorter ones, and for each digit those that agree with `last`
// before it and have a smaller digit there.
static bool put_numbers(st_buffer *text, int64_t last) {
  char digits[24];
  int n = snprintf(digits, sizeof digits, "%lld", (long long)last);
  bool fine = st_buffer_format(text, "^0*(%s", digits);
  for (int i = 0; fine && i < n; i++) {
    if (digits[i] == '0') continue;
    fine = st_buffer_format(text, "|%.*s[0-%c]", i, digits, digits[i] - 1) &&
           (i + 1 == n || st_buffer_format(text, "[0-9]{%d}", n - i - 1));
  }
  if (fine && n > 1) fine = st_buffer_format(text, "|[0-9]{1,%d}", n - 1);
  return fine && st_buffer_text(text, ")$");
}

// The schemas shared by several fields (apps/server/schemas), by the names used with SCHEMA in params.h.
static void add_members(st_json *root, st_json *schemas, const embedded_file *f) {
  st_json *document = NULL;
  if (!root || st_json_parse_any((const char *)f->bytes, f->n, f->name, &document, NULL) != SETUN_OK) return;
  for (size_t i = 0; i < st_json_members(document); i++) {
    const st_json_member *m = st_json_member_at(document, i);
    put(root, schemas, m->key, st_json_copy_of(root, &m->value));
  }
  st_json_free(document);
}

static st_json integer_schema(st_json *root, int64_t least, int64_t most) {
  st_json schema = st_json_make_object();
  put_text(root, &schema, "type", "integer");
  put_integer(root, &schema, "minimum", least);
  put_integer(root, &schema, "maximum", most);
  return schema;
}

static st_json dimensions_schema(st_json *root, const setun_embedding_info *e) {
  st_json schema = integer_schema(root, e->nested ? 1 : e->n_dimensions, e->n_dimensions),
          lengths = st_json_make_array();
  if (!e->n_lengths) return schema;
  st_json_push(root, &lengths, st_json_make_integer(e->n_dimensions));
  for (size_t i = 0; i < e->n_lengths; i++) {
    if (e->lengths[i] != e->n_dimensions) st_json_push(root, &lengths, st_json_make_integer(e->lengths[i]));
  }
  put(root, &schema, "enum", lengths);
  return schema;
}

static st_json token_text_schema(st_json *root, const model_facts *facts) {
  st_json schema = st_json_make_object();
  st_buffer pattern = {0};
  if (put_numbers(&pattern, facts->last_token)) put_text(root, &schema, "pattern", pattern.data);
  put_text(root, &schema, "description", "a token id in digits");
  st_buffer_free(&pattern);
  return schema;
}

static st_json components_value(st_json *root, server *s) {
  st_json value = st_json_make_object(), schemas = st_json_make_object(), schemes = st_json_make_object();
  model_facts facts = {INT32_MAX, {.n_dimensions = INT32_MAX, .nested = true}, true, true};
  models_each(s->models, see_model, &facts);
  for (const embedded_file *f = schema_files; f->name; f++) add_members(root, &schemas, f);
  put(root, &schemas, "Token", integer_schema(root, 0, facts.last_token));
  put(root, &schemas, "TokenText", token_text_schema(root, &facts));
  put(root, &schemas, "Dimensions", dimensions_schema(root, &facts.embeddings));
  put(root, &schemas, "PromptText", text_schema(root, facts.empty_prompt));
  put(root, &schemas, "InputText", text_schema(root, facts.empty_input));
  put(root, &schemes, "key", parsed(root, "{\"type\":\"http\",\"scheme\":\"bearer\"}"));
  put(root, &value, "schemas", schemas);
  put(root, &value, "securitySchemes", schemes);
  return value;
}

static void add_operation(st_json *root, st_json *paths, const route *r) {
  char path[128], method[8] = "";
  snprintf(path, sizeof path, "%s%s", r->path, r->flags & ROUTE_PREFIX ? "{name}" : "");
  for (size_t i = 0; r->method[i] && i + 1 < sizeof method; i++) method[i] = (char)(r->method[i] | 0x20);
  st_json *there = st_json_edit(paths, path);
  st_json operations = there ? *there : st_json_make_object();
  put(root, &operations, method, operation_value(root, r));
  st_json_set(root, paths, path, operations);
}

void handle_openapi(server *s, exchange *x) {
  st_json *root = st_json_new();
  st_json info = st_json_make_object(), paths = st_json_make_object(), security = st_json_make_array(),
          need = st_json_make_object();
  put_text(root, root, "openapi", "3.1.0");
  put_text(root, &info, "title", "Setun");
  put_text(root, &info, "version", setun_version());
  put(root, root, "info", info);
  for (const route *r = all_routes; root && r->path; r++) add_operation(root, &paths, r);
  put(root, root, "paths", paths);
  put(root, root, "components", root ? components_value(root, s) : st_json_make_null());
  if (s->options.n_keys) {
    put(root, &need, "key", st_json_make_array());
    push(root, &security, need);
    put(root, root, "security", security);
  }
  reply_json(x, root);
}
