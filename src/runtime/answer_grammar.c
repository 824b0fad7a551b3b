// Grammars of answers.
#include "runtime/answer_grammar.h"

#include "chat/channels.h"
#include "chat/tool_calls.h"
#include "constraint/frontends.h"
#include "constraint/schema.h"

#include <string.h>

// ---- marks and texts ----

static bool is_control(const st_tokenizer *t, const char *text, size_t n, int32_t *id) {
  *id = st_tokenizer_find(t, text, n);
  return *id >= 0 && st_tokenizer_is_control(t, *id);
}

static st_node text_node(st_grammar *g, const char *text, size_t n) {
  return n ? st_node_term(g, st_term_text(st_grammar_terms(g), text, n)) : ST_NODE_EPSILON;
}

static st_node seq2(st_grammar *g, st_node a, st_node b) {
  return st_node_seq(g, (st_node[]){a, b}, 2);
}

static st_node alt2(st_grammar *g, st_node a, st_node b) {
  return st_node_alt(g, (st_node[]){a, b}, 2);
}

// The control token that begins here: of the vocabulary, up to the bracket that closes it. 0: there is none.
static size_t control_at(const st_tokenizer *t, const char *text, int32_t *id) {
  const char *close = *text == '<' ? strchr(text, '>') : *text == '[' ? strchr(text, ']') : NULL;
  size_t n = close ? (size_t)(close - text) + 1 : 0;
  return n && is_control(t, text, n, id) ? n : 0;
}

// A text in which control tokens are tokens.
static st_node mark_node(st_grammar *g, const st_tokenizer *t, const char *text) {
  st_node node = ST_NODE_EPSILON;
  size_t begin = 0, i = 0;
  int32_t id;
  while (text && text[i]) {
    size_t n = control_at(t, text + i, &id);
    if (!n) {
      i++;
      continue;
    }
    node = seq2(g, node, text_node(g, text + begin, i - begin));
    node = seq2(g, node, st_node_tokens(g, &id, 1, false));
    begin = i += n;
  }
  return text ? seq2(g, node, text_node(g, text + begin, i - begin)) : node;
}

// Any text that does not have the mark in it, which ends it even where it is spelled by plain tokens.
static st_term text_without(st_grammar *g, const char *mark) {
  st_terms *terms = st_grammar_terms(g);
  st_term any = st_term_any_text(terms, ST_PLAIN);
  st_term with = st_term_seq(terms, any, st_term_seq(terms, st_term_text(terms, mark, strlen(mark)), any));
  return st_term_other_text(terms, with, ST_PLAIN);
}

// ---- schemas ----

static const st_json *function_of(const st_json *tool) {
  const st_json *function = st_json_get(tool, "function");
  return function ? function : tool;
}

static setun_status schema_node(st_grammar *g, const st_json *schema, const st_schema_style *style, st_node *out,
                                setun_error *err) {
  const st_schema_options options = {.objects = true, .style = style}; // arguments are an object
  st_buffer text = {0};
  setun_status s = st_json_append_shortest(schema, &text) ? SETUN_OK : st_fail_memory(err, "a schema");
  if (s == SETUN_OK) s = st_grammar_add_schema(g, text.data, text.length, &options, out, err);
  st_buffer_free(&text);
  return s;
}

// Whether only its properties describe the members of an object.
static bool is_open(const st_json *schema) {
  static const char *const others[] = {"additionalProperties",
                                       "patternProperties",
                                       "propertyNames",
                                       "allOf",
                                       "anyOf",
                                       "oneOf",
                                       "not",
                                       "if",
                                       "$ref",
                                       "$dynamicRef",
                                       "unevaluatedProperties",
                                       "dependentSchemas",
                                       "minProperties"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    if (st_json_find(schema, others[i])) return false;
  }
  return st_json_members(st_json_get(schema, "properties")) > 0;
}

// The node of a schema that was made here, and frees the schema.
static setun_status owned_node(st_grammar *g, st_json *root, const st_schema_style *style, st_node *out,
                               setun_error *err) {
  setun_status s = st_json_failed(root) ? st_fail_memory(err, "a schema") : schema_node(g, root, style, out, err);
  st_json_free(root);
  return s;
}

// The schema, closed to members that it does not name: a function accepts only the arguments that it names.
static setun_status closed_node(st_grammar *g, const st_json *schema, const st_schema_style *style, st_node *out,
                                setun_error *err) {
  if (!is_open(schema)) return schema_node(g, schema, style, out, err);
  st_json *root = st_json_new();
  if (!root) return st_fail_memory(err, "a schema");
  *root = st_json_copy_of(root, schema);
  st_json_set(root, root, "additionalProperties", st_json_make_bool(false));
  return owned_node(g, root, style, out, err);
}

// Any values for the arguments that a schema names; where it names none, any object.
static setun_status any_arguments(st_grammar *g, const st_json *schema, const st_schema_style *style, st_node *out,
                                  setun_error *err) {
  const st_json *properties = st_json_get(schema, "properties");
  st_json *root = st_json_new();
  if (!root) return st_fail_memory(err, "a schema");
  st_json named = st_json_make_object();
  st_json_set(root, root, "type", st_json_make_text(root, "object"));
  for (size_t i = 0; style && style->member && i < st_json_members(properties); i++) {
    const st_json_member *m = st_json_member_at(properties, i);
    if (strlen(m->key) == m->length && style->is_key(style->user, (st_text){m->key, m->length}))
      st_json_set(root, &named, m->key, st_json_make_bool(true));
  }
  st_json_set(root, root, "properties", named);
  return owned_node(g, root, style, out, err);
}

// The arguments of a tool, in JSON or a style. A schema that cannot be enforced is refused where the tool is strict.
static setun_status arguments_node(st_grammar *g, const st_json *function, const st_schema_style *style, st_node *out,
                                   setun_error *err) {
  const st_json *parameters = st_json_get(function, "parameters");
  bool strict = st_json_is(st_json_get(function, "strict"), ST_JSON_TRUE);
  setun_error own;
  if (!parameters) return any_arguments(g, NULL, style, out, err);
  setun_status s = closed_node(g, parameters, style, out, &own);
  if (s == SETUN_OK) return s;
  if (!strict && (s == SETUN_ERROR_UNSUPPORTED || s == SETUN_ERROR_FORMAT))
    return any_arguments(g, parameters, style, out, err);
  return st_fail(err, s, "tool %.64s: %.380s", st_json_string(st_json_get(function, "name")), own.message);
}

// ---- calls, by their syntaxes ----

// {"name": NAME, "arguments": OBJECT}
static setun_status json_call(st_grammar *g, const st_tool_format *f, const st_json *function, st_node *out,
                              setun_error *err) {
  const st_json *name = st_json_get(function, "name");
  st_buffer text = {0};
  st_node arguments = ST_NODE_EMPTY;
  setun_status s = arguments_node(g, function, NULL, &arguments, err);
  bool whole = st_buffer_text(&text, "{\"name\": ") && st_json_append_shortest(name, &text) &&
               st_buffer_format(&text, ", \"%s\": ", f->arguments);
  if (s == SETUN_OK && !whole) s = st_fail_memory(err, "a tool");
  if (s == SETUN_OK)
    *out = st_node_seq(g, (st_node[]){text_node(g, text.data, text.length), arguments, text_node(g, "}", 1)}, 3);
  st_buffer_free(&text);
  return s;
}

static setun_status named_call(st_grammar *g, const st_answer_place *p, const st_json *function, st_node *out,
                               setun_error *err) {
  const st_tool_format *f = p->format;
  const st_json *name = st_json_get(function, "name");
  st_node arguments = ST_NODE_EMPTY;
  setun_status s = arguments_node(g, function, NULL, &arguments, err);
  if (s != SETUN_OK) return s;
  st_node parts[] = {mark_node(g, p->tokenizer, f->call_open),
                     mark_node(g, p->tokenizer, f->name_open),
                     text_node(g, st_json_string(name), st_json_length(name)),
                     mark_node(g, p->tokenizer, f->name_close),
                     arguments,
                     mark_node(g, p->tokenizer, f->after),
                     mark_node(g, p->tokenizer, f->call_close)};
  *out = st_node_seq(g, parts, sizeof parts / sizeof *parts);
  return SETUN_OK;
}

static setun_status harmony_call(st_grammar *g, const st_answer_place *p, const st_json *function, st_node *out,
                                 setun_error *err) {
  const st_json *name = st_json_get(function, "name");
  st_node arguments = ST_NODE_EMPTY;
  setun_status s = arguments_node(g, function, NULL, &arguments, err);
  st_node parts[] = {mark_node(g, p->tokenizer, "<|channel|>commentary to=functions."),
                     text_node(g, st_json_string(name), st_json_length(name)),
                     mark_node(g, p->tokenizer, " <|constrain|>json<|message|>"), arguments};
  *out = st_node_seq(g, parts, sizeof parts / sizeof *parts);
  return s;
}

// ---- formats that are not JSON ----

// What the functions of a style know.
typedef struct call_style {
  st_grammar *g;
  const st_answer_place *place;
  const st_json *tools;
  st_text tool;
} call_style;

// Texts that are read as other values of one of the types; some more, so that it is a simple expression.
static st_term read_as_values(st_grammar *g, unsigned types) {
  static const struct {
    unsigned type;
    const char *expression;
  } rows[] = {{ST_TYPE_NULL, "\\s*(?:null|None)\\s*"},
              {ST_TYPE_BOOLEAN, "\\s*(?:[Tt]rue|[Ff]alse)\\s*"},
              {ST_TYPE_NUMBER, "\\s*-?[0-9][-+.0-9eE]*\\s*"},
              {ST_TYPE_ARRAY, "\\s*\\[[^]*"},
              {ST_TYPE_OBJECT, "\\s*\\{[^]*"}};
  st_terms *t = st_grammar_terms(g);
  st_term all = ST_TERM_EMPTY, one;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const char *text = rows[i].expression;
    if (!(types & rows[i].type)) continue;
    if (st_expression_term(t, text, strlen(text), false, ST_PLAIN, &one, NULL) == SETUN_OK)
      all = st_term_alt2(t, all, one);
  }
  return all;
}

static bool has_text(st_text text, const char *part) {
  size_t n = strlen(part);
  for (size_t i = 0; i + n <= text.length; i++) {
    if (!memcmp(text.data + i, part, n)) return true;
  }
  return false;
}

static bool is_field_key(void *user, st_text key) {
  enum { KEY_MOST = 512 };
  const call_style *x = user;
  return key.length && key.length <= KEY_MOST && !memchr(key.data, '<', key.length) &&
         !has_text(key, x->place->format->key_close);
}

// An argument between marks: a string as it is, another value in JSON.
static st_node field_node(void *user, st_text key, st_term texts, st_node others) {
  const call_style *x = user;
  const st_tool_format *f = x->place->format;
  const st_tokenizer *t = x->place->tokenizer;
  st_grammar *g = x->g;
  st_terms *terms = st_grammar_terms(g);
  st_term plain = st_term_and2(terms, texts, text_without(g, f->value_close));
  st_term values = read_as_values(g, st_tool_types(x->tools, x->tool, key));
  if (!f->typed && values != ST_TERM_EMPTY) plain = st_term_and2(terms, plain, st_term_not(terms, values));
  if (st_term_is_empty(terms, plain)) plain = ST_TERM_EMPTY;
  st_node open = mark_node(g, t, f->value_open), wrap = f->wraps_values ? text_node(g, "\n", 1) : ST_NODE_EPSILON;
  st_node string = seq2(g, open, st_node_seq(g, (st_node[]){wrap, st_node_term(g, plain), wrap}, 3));
  st_node other = seq2(g, open, st_node_seq(g, (st_node[]){wrap, others, wrap}, 3));
  if (f->typed) {
    string = seq2(g, seq2(g, mark_node(g, t, f->typed), text_node(g, "true", 4)), string);
    other = seq2(g, seq2(g, mark_node(g, t, f->typed), text_node(g, "false", 5)), other);
  }
  bool apart = !f->typed && f->value_open; // on a line of its own
  st_node parts[] = {mark_node(g, t, f->key_open),
                     text_node(g, key.data, key.length),
                     mark_node(g, t, f->key_close),
                     apart ? text_node(g, f->spacer, strlen(f->spacer)) : ST_NODE_EPSILON,
                     alt2(g, string, other),
                     mark_node(g, t, f->value_close),
                     text_node(g, f->spacer, strlen(f->spacer))};
  return st_node_seq(g, parts, sizeof parts / sizeof *parts);
}

static setun_status fields_call(st_grammar *g, call_style *x, const st_json *function, st_node *out, setun_error *err) {
  const st_answer_place *p = x->place;
  const st_tool_format *f = p->format;
  const st_schema_style style = {.user = x, .member = field_node, .is_key = is_field_key};
  st_node arguments = ST_NODE_EMPTY;
  setun_status s = arguments_node(g, function, &style, &arguments, err);
  st_node parts[] = {mark_node(g, p->tokenizer, f->name_open),
                     text_node(g, x->tool.data, x->tool.length),
                     mark_node(g, p->tokenizer, f->name_close),
                     text_node(g, f->spacer, strlen(f->spacer)),
                     arguments,
                     mark_node(g, p->tokenizer, f->call_close)};
  *out = st_node_seq(g, parts, sizeof parts / sizeof *parts);
  return s;
}

// Gemma's strings between quotes of its own, in which nothing is escaped.
static st_node gemma_string(void *user, st_term texts) {
  const call_style *x = user;
  const char *mark = x->place->format->quote;
  st_terms *terms = st_grammar_terms(x->g);
  st_term plain = st_term_and2(terms, texts, text_without(x->g, mark));
  st_node quote = mark_node(x->g, x->place->tokenizer, mark);
  if (st_term_is_empty(terms, plain)) return ST_NODE_EMPTY;
  return st_node_seq(x->g, (st_node[]){quote, st_node_term(x->g, plain), quote}, 3);
}

static bool is_gemma_key(void *user, st_text key) {
  const call_style *x = user;
  st_terms *terms = st_grammar_terms(x->g);
  return st_term_matches(terms, st_term_bare_key(terms), key.data, key.length);
}

static setun_status gemma_call(st_grammar *g, call_style *x, const st_json *function, st_node *out, setun_error *err) {
  const st_schema_style style = {.user = x, .string = gemma_string, .is_key = is_gemma_key};
  st_node arguments = ST_NODE_EMPTY;
  setun_status s = arguments_node(g, function, &style, &arguments, err);
  st_node parts[] = {text_node(g, "call:", 5), text_node(g, x->tool.data, x->tool.length), arguments};
  *out = st_node_seq(g, parts, sizeof parts / sizeof *parts);
  return s;
}

// ---- all calls ----

static setun_status call_node(st_grammar *g, const st_answer_place *p, const st_json *tools, const st_json *function,
                              st_node *out, setun_error *err) {
  const st_json *name = st_json_get(function, "name");
  call_style x = {g, p, tools, {st_json_string(name), st_json_length(name)}};
  switch (p->format->syntax) {
  case ST_TOOLS_JSON: return json_call(g, p->format, function, out, err);
  case ST_TOOLS_NAMED: return named_call(g, p, function, out, err);
  case ST_TOOLS_FIELDS: return fields_call(g, &x, function, out, err);
  case ST_TOOLS_GEMMA: return gemma_call(g, &x, function, out, err);
  case ST_TOOLS_HARMONY: return harmony_call(g, p, function, out, err);
  }
  return SETUN_OK;
}

// Repetitions of `call`, separated by `between`.
static st_node repeated(st_grammar *g, st_node call, const char *between, bool one) {
  if (one) return call;
  st_node more = seq2(g, text_node(g, between, strlen(between)), call);
  return seq2(g, call, st_node_repeat(g, more, 0, ST_UNBOUNDED));
}

// Puts the format's marks around calls.
static st_node envelope(st_grammar *g, const st_answer_place *p, st_node call, bool one) {
  const st_tool_format *f = p->format;
  const st_tokenizer *t = p->tokenizer;
  st_node open = f->bare ? ST_NODE_EPSILON : mark_node(g, t, f->opens[0]), close = mark_node(g, t, f->close);
  one = one || f->one_call;
  bool lines = f->syntax == ST_TOOLS_JSON ? f->close && !f->list : f->syntax == ST_TOOLS_FIELDS && f->name_open;
  st_node line = lines ? text_node(g, "\n", 1) : ST_NODE_EPSILON;
  if (f->syntax == ST_TOOLS_HARMONY) return call;
  if (f->list) {
    st_node list[] = {open, text_node(g, "[", 1), repeated(g, call, ", ", one), text_node(g, "]", 1), close};
    return st_node_seq(g, list, sizeof list / sizeof *list);
  }
  if (f->call_open || f->typed) // several inside of one pair of marks
    return st_node_seq(g, (st_node[]){open, line, repeated(g, call, lines ? "\n" : "", one), line, close}, 5);
  st_node each = st_node_seq(g, (st_node[]){open, line, call, line, close}, 5);
  bool apart = f->close && f->syntax != ST_TOOLS_GEMMA;
  return repeated(g, each, apart ? "\n" : "", one);
}

setun_status st_answer_calls_node(st_grammar *g, const st_answer_place *place, const st_answer_calls *calls,
                                  st_node *out, setun_error *err) {
  st_node any = ST_NODE_EMPTY;
  for (size_t i = 0; i < st_json_size(calls->tools); i++) {
    const st_json *function = function_of(st_json_at(calls->tools, i));
    const char *name = st_json_string(st_json_get(function, "name"));
    st_node call = ST_NODE_EMPTY;
    if (!name || (calls->only && strcmp(name, calls->only) != 0)) continue;
    setun_status s = call_node(g, place, calls->tools, function, &call, err);
    if (s != SETUN_OK) return s;
    any = alt2(g, any, call);
  }
  if (any == ST_NODE_EMPTY)
    return st_fail(err, SETUN_ERROR_ARGUMENT, "tools: expected one named %.64s, found none",
                   calls->only ? calls->only : "");
  *out = envelope(g, place, any, calls->one);
  return SETUN_OK;
}

// ---- what comes before ----

// Whether the answer begins in the header of a Harmony message.
static bool is_harmony(const st_answer_place *place) {
  st_channels channels;
  st_channels_begin(&channels, place->tail.data, place->tail.length);
  return channels.state == ST_CHANNELS_HEADER;
}

st_node st_answer_text_node(st_grammar *g, const st_answer_place *place, st_node text) {
  return is_harmony(place) ? seq2(g, mark_node(g, place->tokenizer, "<|channel|>final<|message|>"), text) : text;
}

// Harmony: reasoning in a separate message, then the message of the answer.
static st_node harmony_answer(st_grammar *g, const st_tokenizer *t, st_node body) {
  st_node thoughts[] = {mark_node(g, t, "<|channel|>analysis<|message|>"), st_node_term(g, text_without(g, "<|end|>")),
                        mark_node(g, t, "<|end|><|start|>assistant")};
  return seq2(g, alt2(g, st_node_seq(g, thoughts, 3), ST_NODE_EPSILON), body);
}

// Reasoning, from after its opening mark to the white space after its closing mark.
static st_node block_node(st_grammar *g, const st_tokenizer *t, const char *close) {
  enum { SPACE_MOST = 2 };
  st_node parts[] = {st_node_term(g, text_without(g, close)), mark_node(g, t, close),
                     st_node_term(g, st_term_json_space(st_grammar_terms(g), SPACE_MOST))};
  return st_node_seq(g, parts, sizeof parts / sizeof *parts);
}

st_node st_answer_node(st_grammar *g, const st_answer_place *place, st_node body) {
  st_channels channels;
  const char *open, *close;
  st_channels_begin(&channels, place->tail.data, place->tail.length);
  if (channels.state == ST_CHANNELS_HEADER) return harmony_answer(g, place->tokenizer, body);
  if (channels.state == ST_CHANNELS_BLOCK) {
    st_channels_marks(channels.block, &open, &close);
    return seq2(g, block_node(g, place->tokenizer, close), body);
  }
  for (size_t i = 0; st_channels_marks(i, &open, &close); i++) {
    if (!has_text(place->template_text, open) || has_text(place->tail, close)) continue;
    st_node thoughts = seq2(g, mark_node(g, place->tokenizer, open), block_node(g, place->tokenizer, close));
    return seq2(g, alt2(g, thoughts, ST_NODE_EPSILON), body);
  }
  return body;
}
