// Grammars of answers.
#include "runtime/answer_grammar.h"

#include "chat/channels.h"
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

// Any text that does not have the mark in it. A control token is in no text.
static st_term text_without(st_grammar *g, const st_tokenizer *t, const char *mark) {
  st_terms *terms = st_grammar_terms(g);
  int32_t id;
  st_term any = st_term_any_text(terms, ST_PLAIN);
  if (is_control(t, mark, strlen(mark), &id)) return any;
  st_term with = st_term_seq(terms, any, st_term_seq(terms, st_term_text(terms, mark, strlen(mark)), any));
  return st_term_other_text(terms, with, ST_PLAIN);
}

// ---- schemas ----

static const st_json *function_of(const st_json *tool) {
  const st_json *function = st_json_get(tool, "function");
  return function ? function : tool;
}

static setun_status schema_node(st_grammar *g, const st_json *schema, st_node *out, setun_error *err) {
  static const st_schema_options options = {.ordered = false};
  st_buffer text = {0};
  setun_status s = st_json_append_shortest(schema, &text) ? SETUN_OK : st_fail_memory(err, "a schema");
  if (s == SETUN_OK) s = st_grammar_add_schema(g, text.data, text.length, &options, out, err);
  st_buffer_free(&text);
  return s;
}

static setun_status any_object(st_grammar *g, st_node *out, setun_error *err) {
  static const char schema[] = "{\"type\":\"object\"}";
  static const st_schema_options options = {.ordered = false};
  return st_grammar_add_schema(g, schema, sizeof schema - 1, &options, out, err);
}

// Whether an object says only by its properties what it holds.
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

// The schema without members that it does not name: a function takes only the arguments that it names.
static setun_status closed_node(st_grammar *g, const st_json *schema, st_node *out, setun_error *err) {
  if (!is_open(schema)) return schema_node(g, schema, out, err);
  st_json *root = st_json_new();
  if (!root) return st_fail_memory(err, "a schema");
  *root = st_json_copy_of(root, schema);
  st_json_set(root, root, "additionalProperties", st_json_make_bool(false));
  setun_status s = st_json_failed(root) ? st_fail_memory(err, "a schema") : schema_node(g, root, out, err);
  st_json_free(root);
  return s;
}

// The arguments of a tool as JSON. A schema that cannot be enforced is refused where the tool is strict.
static setun_status arguments_node(st_grammar *g, const st_json *function, st_node *out, setun_error *err) {
  const st_json *parameters = st_json_get(function, "parameters");
  bool strict = st_json_is(st_json_get(function, "strict"), ST_JSON_TRUE);
  setun_error own;
  if (!parameters) return any_object(g, out, err);
  setun_status s = closed_node(g, parameters, out, &own);
  if (s == SETUN_OK) return s;
  if (!strict && (s == SETUN_ERROR_UNSUPPORTED || s == SETUN_ERROR_FORMAT)) return any_object(g, out, err);
  return st_fail(err, s, "tool %.64s: %.380s", st_json_string(st_json_get(function, "name")), own.message);
}

// ---- calls, by their syntaxes ----

// {"name": NAME, "arguments": OBJECT}
static setun_status json_call(st_grammar *g, const st_tool_format *f, const st_json *function, st_node *out,
                              setun_error *err) {
  const st_json *name = st_json_get(function, "name");
  st_buffer text = {0};
  st_node arguments = ST_NODE_EMPTY;
  setun_status s = arguments_node(g, function, &arguments, err);
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
  setun_status s = arguments_node(g, function, &arguments, err);
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
  setun_status s = arguments_node(g, function, &arguments, err);
  st_node parts[] = {mark_node(g, p->tokenizer, "<|channel|>commentary to=functions."),
                     text_node(g, st_json_string(name), st_json_length(name)),
                     mark_node(g, p->tokenizer, " <|constrain|>json<|message|>"), arguments};
  *out = st_node_seq(g, parts, sizeof parts / sizeof *parts);
  return s;
}

// The schema of one argument by itself: with the definitions of the whole, to which it may refer.
static setun_status argument_schema(st_grammar *g, const st_json *parameters, const st_json *schema, st_node *out,
                                    setun_error *err) {
  static const char *const shared[] = {"$defs", "definitions"};
  if (!st_json_is_object(schema)) return schema_node(g, schema, out, err);
  st_json *root = st_json_new();
  if (!root) return st_fail_memory(err, "a schema");
  *root = st_json_copy_of(root, schema);
  for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
    const st_json *definitions = st_json_get(parameters, shared[i]);
    if (definitions && !st_json_find(root, shared[i]))
      st_json_set(root, root, shared[i], st_json_copy_of(root, definitions));
  }
  setun_status s = schema_node(g, root, out, err);
  st_json_free(root);
  return s;
}

// A string as it is, one of the schema's where that lists them.
static st_node string_node(st_grammar *g, const st_tokenizer *t, const st_json *schema, const char *close) {
  const st_json *values = st_json_get(schema, "enum");
  st_node node = ST_NODE_EMPTY;
  for (size_t i = 0; i < st_json_size(values); i++) {
    const st_json *value = st_json_at(values, i);
    if (st_json_is_string(value)) node = alt2(g, node, text_node(g, st_json_string(value), st_json_length(value)));
  }
  return node != ST_NODE_EMPTY ? node : st_node_term(g, text_without(g, t, close));
}

// Whether an argument is written as plain text: its type is a string, or is not said.
static bool is_text(const st_json *schema) {
  const st_json *type = st_json_get(schema, "type");
  const char *name = st_json_string(type);
  if (name) return !strcmp(name, "string");
  for (size_t i = 0; i < st_json_size(type); i++) {
    const char *one = st_json_string(st_json_at(type, i));
    if (one && !strcmp(one, "string")) return true;
  }
  return !st_json_is_object(schema) || (!st_json_size(type) && !st_json_get(schema, "$ref"));
}

static setun_status field_node(st_grammar *g, const st_answer_place *p, const st_json *parameters,
                               const st_json_member *m, st_node *out, setun_error *err) {
  const st_tool_format *f = p->format;
  const st_tokenizer *t = p->tokenizer;
  bool text = is_text(&m->value);
  st_node value = ST_NODE_EMPTY, wrap = f->wraps_values ? text_node(g, "\n", 1) : ST_NODE_EPSILON;
  if (text) {
    value = string_node(g, t, &m->value, f->value_close);
  } else {
    setun_status s = argument_schema(g, parameters, &m->value, &value, err);
    if (s != SETUN_OK) return s;
  }
  st_node kind =
      f->typed ? seq2(g, mark_node(g, t, f->typed), mark_node(g, t, text ? "true" : "false")) : ST_NODE_EPSILON;
  bool apart = !f->typed && f->value_open; // on a line of its own
  st_node parts[] = {mark_node(g, t, f->key_open),
                     text_node(g, m->key, m->length),
                     mark_node(g, t, f->key_close),
                     kind,
                     apart ? text_node(g, f->spacer, strlen(f->spacer)) : ST_NODE_EPSILON,
                     mark_node(g, t, f->value_open),
                     wrap,
                     value,
                     wrap,
                     mark_node(g, t, f->value_close),
                     text_node(g, f->spacer, strlen(f->spacer))};
  *out = st_node_seq(g, parts, sizeof parts / sizeof *parts);
  return SETUN_OK;
}

static bool is_required(const st_json *parameters, const st_json_member *m) {
  const st_json *required = st_json_get(parameters, "required");
  for (size_t i = 0; i < st_json_size(required); i++) {
    const char *name = st_json_string(st_json_at(required, i));
    if (name && !strcmp(name, m->key)) return true;
  }
  return false;
}

// The arguments in the order of the schema, those that are not required or not at all.
static setun_status fields_call(st_grammar *g, const st_answer_place *p, const st_json *function, st_node *out,
                                setun_error *err) {
  const st_tool_format *f = p->format;
  const st_json *name = st_json_get(function, "name"), *parameters = st_json_get(function, "parameters");
  const st_json *properties = st_json_get(parameters, "properties");
  st_node node =
      seq2(g, mark_node(g, p->tokenizer, f->name_open), text_node(g, st_json_string(name), st_json_length(name)));
  node = seq2(g, node, mark_node(g, p->tokenizer, f->name_close));
  node = seq2(g, node, text_node(g, f->spacer, strlen(f->spacer)));
  for (size_t i = 0; i < st_json_members(properties); i++) {
    const st_json_member *m = st_json_member_at(properties, i);
    st_node field = ST_NODE_EMPTY;
    setun_status s = field_node(g, p, parameters, m, &field, err);
    if (s != SETUN_OK) return s;
    node = seq2(g, node, is_required(parameters, m) ? field : alt2(g, field, ST_NODE_EPSILON));
  }
  *out = seq2(g, node, mark_node(g, p->tokenizer, f->call_close));
  return SETUN_OK;
}

// ---- Gemma ----

// Any value in its words: strings between quotes, numbers, words, lists and dictionaries with bare keys.
static st_node gemma_value(st_grammar *g, const st_answer_place *p) {
  st_terms *terms = st_grammar_terms(g);
  static const st_range letters[] = {{'-', '.'}, {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  st_rule rule = st_grammar_rule(g, "value", 5);
  st_node value = st_node_rule(g, rule), comma = text_node(g, ",", 1);
  st_node quote = mark_node(g, p->tokenizer, p->format->quote);
  st_term word =
      st_term_repeat(terms, st_term_ranges(terms, letters, sizeof letters / sizeof *letters, ST_PLAIN), 1, 64);
  st_node key = seq2(g, st_node_term(g, word), text_node(g, ":", 1)), member = seq2(g, key, value);
  st_node members = seq2(g, member, st_node_repeat(g, seq2(g, comma, member), 0, ST_UNBOUNDED));
  st_node items = seq2(g, value, st_node_repeat(g, seq2(g, comma, value), 0, ST_UNBOUNDED));
  st_node text = st_node_term(g, text_without(g, p->tokenizer, p->format->quote));
  st_node any[] = {
      st_node_seq(g, (st_node[]){quote, text, quote}, 3), st_node_term(g, word),
      st_node_seq(g, (st_node[]){text_node(g, "{", 1), alt2(g, members, ST_NODE_EPSILON), text_node(g, "}", 1)}, 3),
      st_node_seq(g, (st_node[]){text_node(g, "[", 1), alt2(g, items, ST_NODE_EPSILON), text_node(g, "]", 1)}, 3)};
  st_grammar_define(g, rule, st_node_alt(g, any, sizeof any / sizeof *any));
  return value;
}

// A value of a schema: strings, numbers and words by it; lists and dictionaries of any content.
static setun_status gemma_argument(st_grammar *g, const st_answer_place *p, const st_json *parameters,
                                   const st_json *schema, st_node any, st_node *out, setun_error *err) {
  const char *type = st_json_string(st_json_get(schema, "type"));
  st_node quote = mark_node(g, p->tokenizer, p->format->quote);
  if (!type || !strcmp(type, "object") || !strcmp(type, "array")) {
    *out = any;
    return SETUN_OK;
  }
  if (strcmp(type, "string") != 0) return argument_schema(g, parameters, schema, out, err);
  *out = st_node_seq(g, (st_node[]){quote, string_node(g, p->tokenizer, schema, p->format->quote), quote}, 3);
  return SETUN_OK;
}

// The members from `i` on, the first of which has a comma before it where `comma` says so.
static setun_status gemma_members(st_grammar *g, const st_answer_place *p, const st_json *parameters, st_node *first,
                                  st_node *later, setun_error *err) {
  const st_json *properties = st_json_get(parameters, "properties");
  st_node any = gemma_value(g, p), comma = text_node(g, ",", 1);
  *first = *later = ST_NODE_EPSILON; // of what follows the present member: it is the first one, or is not
  for (size_t i = st_json_members(properties); i--;) {
    const st_json_member *m = st_json_member_at(properties, i);
    st_node value = ST_NODE_EMPTY;
    setun_status s = gemma_argument(g, p, parameters, &m->value, any, &value, err);
    if (s != SETUN_OK) return s;
    st_node here = st_node_seq(g, (st_node[]){text_node(g, m->key, m->length), text_node(g, ":", 1), value, *later}, 4);
    bool required = is_required(parameters, m);
    *first = required ? here : alt2(g, here, *first);
    here = seq2(g, comma, here);
    *later = required ? here : alt2(g, here, *later);
  }
  return SETUN_OK;
}

static setun_status gemma_call(st_grammar *g, const st_answer_place *p, const st_json *function, st_node *out,
                               setun_error *err) {
  const st_json *name = st_json_get(function, "name");
  st_node members = ST_NODE_EPSILON, later;
  setun_status s = gemma_members(g, p, st_json_get(function, "parameters"), &members, &later, err);
  st_node parts[] = {text_node(g, "call:", 5), text_node(g, st_json_string(name), st_json_length(name)),
                     text_node(g, "{", 1), members, text_node(g, "}", 1)};
  *out = st_node_seq(g, parts, sizeof parts / sizeof *parts);
  return s;
}

// ---- all calls ----

static setun_status call_node(st_grammar *g, const st_answer_place *p, const st_json *function, st_node *out,
                              setun_error *err) {
  switch (p->format->syntax) {
  case ST_TOOLS_JSON: return json_call(g, p->format, function, out, err);
  case ST_TOOLS_NAMED: return named_call(g, p, function, out, err);
  case ST_TOOLS_FIELDS: return fields_call(g, p, function, out, err);
  case ST_TOOLS_GEMMA: return gemma_call(g, p, function, out, err);
  case ST_TOOLS_HARMONY: return harmony_call(g, p, function, out, err);
  }
  return SETUN_OK;
}

// How often `call` comes, with `between` between two.
static st_node repeated(st_grammar *g, st_node call, const char *between, bool one) {
  if (one) return call;
  st_node more = seq2(g, text_node(g, between, strlen(between)), call);
  return seq2(g, call, st_node_repeat(g, more, 0, ST_UNBOUNDED));
}

// Around calls what their format has around them.
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
    setun_status s = call_node(g, place, function, &call, err);
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

// Harmony: thoughts in a message of their own, then the message of the answer.
static st_node harmony_answer(st_grammar *g, const st_tokenizer *t, st_node body) {
  st_node thoughts[] = {mark_node(g, t, "<|channel|>analysis<|message|>"),
                        st_node_term(g, text_without(g, t, "<|end|>")), mark_node(g, t, "<|end|><|start|>assistant")};
  return seq2(g, alt2(g, st_node_seq(g, thoughts, 3), ST_NODE_EPSILON), body);
}

static bool contains(st_text text, const char *word) {
  size_t n = strlen(word);
  for (size_t i = 0; i + n <= text.length; i++) {
    if (!memcmp(text.data + i, word, n)) return true;
  }
  return false;
}

// Thoughts from behind the mark that opens them to the white space behind the one that closes them.
static st_node block_node(st_grammar *g, const st_tokenizer *t, const char *close) {
  enum { SPACE_MOST = 2 };
  st_node parts[] = {st_node_term(g, text_without(g, t, close)), mark_node(g, t, close),
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
    if (!contains(place->template_text, open) || contains(place->tail, close)) continue;
    st_node thoughts = seq2(g, mark_node(g, place->tokenizer, open), block_node(g, place->tokenizer, close));
    return seq2(g, alt2(g, thoughts, ST_NODE_EPSILON), body);
  }
  return body;
}
