// setun.h: constraints, matchers, and the sampler's constraint.
#include "api/api.h"

#include "base/float_modes.h"
#include "base/hash.h"
#include "chat/channels.h"
#include "constraint/frontends.h"
#include "constraint/schema.h"
#include "runtime/answer_grammar.h"

#include <string.h>

enum { SPACE_MOST = 8 };

// The handles are the engine's objects.
static st_constraint *constraint_of(setun_constraint *c) {
  return (st_constraint *)(void *)c;
}

static st_matcher *matcher_of(setun_matcher *m) {
  return (st_matcher *)(void *)m;
}

static const st_matcher *const_matcher_of(const setun_matcher *m) {
  return (const st_matcher *)(const void *)m;
}

// The model's vocabulary as a trie, built when it is first needed.
static setun_status trie_of(const setun_model *model, const st_token_trie **out, setun_error *err) {
  st_token_trie *made = NULL, *found = atomic_load(model->trie);
  if (!found) {
    setun_status s = st_token_trie_new(model->tokenizer, &made, err);
    if (s != SETUN_OK) return s;
    if (!atomic_compare_exchange_strong(model->trie, &found, made))
      st_token_trie_free(made);
    else
      found = made;
  }
  *out = found;
  return SETUN_OK;
}

// ---- grammars ----

static setun_status check_params(const setun_constraint_params *p, setun_error *err) {
  if (!p->text && p->length) return st_fail_null("setun_constraint_params.text", err);
  if (!setun_grammar_name(p->grammar))
    return st_fail(err, SETUN_ERROR_ARGUMENT, "grammar: expected a setun_grammar, found %d", (int)p->grammar);
  if (p->space > SPACE_MOST)
    return st_fail(err, SETUN_ERROR_ARGUMENT, "space: expected at most %d, found %u", SPACE_MOST, p->space);
  if ((p->ordered || p->space) && p->grammar != SETUN_GRAMMAR_JSON_SCHEMA)
    return st_fail(err, SETUN_ERROR_ARGUMENT, "ordered, space: expected them with a JSON schema, found %s",
                   setun_grammar_name(p->grammar));
  return SETUN_OK;
}

// Without free white space a text has one space after colons and commas, as models were trained.
static void set_space(st_grammar *g, uint32_t space) {
  st_terms *t = st_grammar_terms(g);
  st_term any = st_term_json_space(t, space);
  st_grammar_set_space(g, space ? any : ST_TERM_EPSILON, space ? any : st_term_text(t, " ", 1));
}

// An error in the text, preceded by the text's name if the front end does not state it.
static setun_status named_error(setun_status s, const char *name, const setun_error *own, setun_error *err) {
  return name ? st_fail(err, s, "%.64s: %.400s", name, own->message) : st_fail(err, s, "%s", own->message);
}

static st_constraint_limits limits_of(uint64_t memory, uint32_t milliseconds) {
  return (st_constraint_limits){.max_bytes = memory < SIZE_MAX ? (size_t)memory : SIZE_MAX,
                                .max_milliseconds = milliseconds};
}

static setun_status read_grammar(const setun_model *model, const setun_constraint_params *p, st_grammar **out,
                                 setun_error *err) {
  const st_constraint_limits limits = limits_of(p->memory, p->milliseconds);
  const st_schema_options options = {.ordered = p->ordered};
  const char *text = p->text ? p->text : "", *name = p->name ? p->name : setun_grammar_name(p->grammar);
  setun_error own;
  setun_status s = SETUN_OK;
  switch (p->grammar) {
  case SETUN_GRAMMAR_GBNF: return st_grammar_from_gbnf(text, p->length, name, model->tokenizer, &limits, out, err);
  case SETUN_GRAMMAR_LARK: return st_grammar_from_lark(text, p->length, name, model->tokenizer, &limits, out, err);
  case SETUN_GRAMMAR_EXPRESSION: s = st_grammar_from_expression(text, p->length, &limits, out, &own); break;
  case SETUN_GRAMMAR_JSON_SCHEMA: s = st_grammar_from_schema(text, p->length, &options, &limits, out, &own); break;
  }
  if (s != SETUN_OK) return named_error(s, p->name, &own, err);
  if (p->grammar == SETUN_GRAMMAR_JSON_SCHEMA) set_space(*out, p->space);
  return SETUN_OK;
}

// The checked parameters, and the grammar of their text.
static setun_status take_grammar(const setun_model *model, const setun_constraint_params *given,
                                 setun_constraint_params *p, st_grammar **g, setun_error *err) {
  setun_status s = st_take_constraint_params(p, given, err);
  if (s == SETUN_OK) s = check_params(p, err);
  return s == SETUN_OK ? read_grammar(model, p, g, err) : s;
}

// Takes the grammar; `name` NULL: messages need none.
static setun_status compile(const setun_model *model, st_grammar *g, const char *name, setun_constraint **out,
                            setun_error *err) {
  const st_token_trie *trie = NULL;
  st_constraint *c = NULL;
  setun_status s = trie_of(model, &trie, err);
  if (s != SETUN_OK) {
    st_grammar_free(g);
    return s;
  }
  setun_error own;
  s = st_constraint_compile(g, trie, &c, &own);
  if (s != SETUN_OK) return named_error(s, name, &own, err);
  *out = (setun_constraint *)(void *)c;
  return SETUN_OK;
}

setun_status setun_constraint_new(const setun_model *model, const setun_constraint_params *params,
                                  setun_constraint **constraint, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  setun_constraint_params p;
  st_grammar *g = NULL;
  ST_NEED(model);
  ST_NEED(constraint);
  setun_status s = take_grammar(model, params, &p, &g, error);
  return s == SETUN_OK ? compile(model, g, p.name, constraint, error) : s;
}

void setun_constraint_free(setun_constraint *constraint) {
  st_constraint_release(constraint_of(constraint));
}

// ---- answers ----

// The root of a text's grammar becomes the answer's body: a schema is added to the answer's grammar; other kinds are
// grammars of their own, of which the root is used.
static setun_status text_grammar(const setun_model *model, const setun_constraint_params *given, st_grammar **g,
                                 st_node *body, setun_error *err) {
  setun_constraint_params p;
  setun_status s = take_grammar(model, given, &p, g, err);
  if (s == SETUN_OK) *body = st_grammar_root(*g);
  return s;
}

// Adds calls to the grammar, which is created if there is none.
static setun_status calls_grammar(const setun_rendering *prompt, const st_answer_place *place,
                                  const setun_answer_params *p, st_grammar **g, st_node *body, setun_error *err) {
  st_json *tools = NULL;
  size_t n = 0;
  const char *text = st_rendering_tools(prompt, &n);
  st_node calls_node = ST_NODE_EMPTY;
  if (!text) return st_fail(err, SETUN_ERROR_STATE, "calls: expected a conversation with tools, found none");
  setun_status s = st_json_parse_any(text, n, "tools", &tools, err);
  if (s == SETUN_OK && !*g) {
    const st_constraint_limits limits = limits_of(p->memory, p->milliseconds);
    s = st_grammar_new(&limits, g, err);
    if (s == SETUN_OK) set_space(*g, p->space);
  }
  st_answer_calls calls = {.tools = tools, .only = p->tool, .one = p->one_call};
  if (s == SETUN_OK) s = st_answer_calls_node(*g, place, &calls, &calls_node, err);
  if (s == SETUN_OK) *body = st_node_alt(*g, (st_node[]){*body, calls_node}, 2);
  st_json_free(tools);
  return s;
}

static setun_status check_answer(const setun_rendering *prompt, const setun_answer_params *p, setun_error *err) {
  if (!st_rendering_model(prompt))
    return st_fail(err, SETUN_ERROR_STATE, "chat: the template was given without a model");
  if (!p->text && !p->calls)
    return st_fail(err, SETUN_ERROR_ARGUMENT, "setun_answer_params: expected text or calls, found neither");
  if (p->space > SPACE_MOST)
    return st_fail(err, SETUN_ERROR_ARGUMENT, "space: expected at most %d, found %u", SPACE_MOST, p->space);
  return SETUN_OK;
}

setun_status setun_constraint_new_answer(const setun_rendering *prompt, const setun_answer_params *params,
                                         setun_constraint **constraint, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  setun_answer_params p;
  st_grammar *g = NULL;
  st_node body = ST_NODE_EMPTY;
  ST_NEED(prompt);
  ST_NEED(constraint);
  setun_status s = st_take_answer_params(&p, params, error);
  if (s == SETUN_OK) s = check_answer(prompt, &p, error);
  if (s != SETUN_OK) return s;
  const setun_model *model = st_rendering_model(prompt);
  st_answer_place place = st_rendering_place(prompt);
  if (p.text) s = text_grammar(model, p.text, &g, &body, error);
  if (s == SETUN_OK && p.text) body = st_answer_text_node(g, &place, body);
  if (s == SETUN_OK && p.calls) s = calls_grammar(prompt, &place, &p, &g, &body, error);
  if (s != SETUN_OK) {
    st_grammar_free(g);
    return s;
  }
  st_grammar_set_root(g, st_answer_node(g, &place, body));
  return compile(model, g, p.text ? p.text->name : NULL, constraint, error);
}

// ---- keys and information ----

static bool add_part(st_buffer *b, const void *bytes, size_t n) {
  return st_buffer_append(b, (const char *)&n, sizeof n) && st_buffer_append(b, bytes, n);
}

static bool add_word(st_buffer *b, const char *text) {
  return add_part(b, text ? text : "", text ? strlen(text) + 1 : 0);
}

static bool add_text_key(st_buffer *b, const setun_constraint_params *p) {
  const uint64_t numbers[] = {p->grammar, p->space, p->ordered, p->memory, p->milliseconds};
  return add_part(b, numbers, sizeof numbers) && add_word(b, p->name) && add_part(b, p->text ? p->text : "", p->length);
}

// The template is a part of the place by its hash: a program uses few templates, and chooses them itself.
static bool add_answer_key(st_buffer *b, const setun_rendering *prompt, const setun_answer_params *p) {
  const st_answer_place place = st_rendering_place(prompt);
  const st_text t = place.template_text;
  const uint64_t numbers[] = {p->calls,
                              p->one_call,
                              p->space,
                              p->memory,
                              p->milliseconds,
                              t.length,
                              t.length ? st_hash(ST_HASH_START, t.data, t.length) : 0};
  size_t n = 0;
  const char *tools = p->calls ? st_rendering_tools(prompt, &n) : NULL;
  return add_part(b, numbers, sizeof numbers) && add_word(b, p->tool) &&
         add_part(b, tools ? tools : "", tools ? n : 0) &&
         add_part(b, place.tail.length ? place.tail.data : "", place.tail.length);
}

setun_status setun_answer_key(const setun_rendering *conversation, const setun_answer_params *params, void *bytes,
                              size_t capacity, size_t *length, setun_error *error) {
  setun_answer_params p;
  setun_constraint_params text;
  st_buffer b = {0};
  ST_NEED_ARRAY(bytes, capacity);
  ST_NEED(length);
  setun_status s = st_take_answer_params(&p, params, error);
  if (s == SETUN_OK && p.text) s = st_take_constraint_params(&text, p.text, error);
  if (s == SETUN_OK && p.text && !text.text && text.length) s = st_fail_null("setun_constraint_params.text", error);
  if (s != SETUN_OK) return s;
  if ((p.text && !add_text_key(&b, &text)) || (conversation && !add_answer_key(&b, conversation, &p)))
    s = st_fail_memory(error, "a constraint's key");
  if (s == SETUN_OK) {
    size_t n = b.length < capacity ? b.length : capacity;
    if (n) memcpy(bytes, b.data, n);
    *length = b.length;
  }
  st_buffer_free(&b);
  return s;
}

setun_status setun_constraint_get_info(const setun_constraint *constraint, setun_constraint_info *info,
                                       setun_error *error) {
  ST_NEED(constraint);
  const st_constraint *c = (const st_constraint *)(const void *)constraint;
  setun_constraint_info found = {
      .size = sizeof found, .bytes = st_constraint_bytes(c), .failed = st_constraint_failed(c)};
  return ST_FILL(info, &found);
}

// ---- matchers ----

setun_status setun_matcher_new(setun_constraint *constraint, setun_matcher **matcher, setun_error *error) {
  st_matcher *m = NULL;
  ST_NEED(constraint);
  ST_NEED(matcher);
  setun_status s = st_matcher_new(constraint_of(constraint), &m, error);
  if (s == SETUN_OK) *matcher = (setun_matcher *)(void *)m;
  return s;
}

setun_status setun_matcher_copy(const setun_matcher *matcher, setun_matcher **copy, setun_error *error) {
  st_matcher *m = NULL;
  ST_NEED(matcher);
  ST_NEED(copy);
  setun_status s = st_matcher_copy(const_matcher_of(matcher), &m, error);
  if (s == SETUN_OK) *copy = (setun_matcher *)(void *)m;
  return s;
}

void setun_matcher_free(setun_matcher *matcher) {
  st_matcher_free(matcher_of(matcher));
}

void setun_matcher_reset(setun_matcher *matcher) {
  if (matcher) st_matcher_reset(matcher_of(matcher));
}

setun_status setun_matcher_mask(setun_matcher *matcher, uint32_t *bits, size_t n, setun_error *error) {
  ST_NEED(matcher);
  ST_NEED_ARRAY(bits, n);
  return st_matcher_mask(matcher_of(matcher), bits, n, error);
}

bool setun_matcher_allows(setun_matcher *matcher, setun_token id) {
  return matcher && st_matcher_allows(matcher_of(matcher), id);
}

setun_status setun_matcher_accept(setun_matcher *matcher, setun_token id, setun_error *error) {
  ST_NEED(matcher);
  return st_matcher_accept(matcher_of(matcher), id, error);
}

setun_status setun_matcher_rollback(setun_matcher *matcher, size_t n, setun_error *error) {
  ST_NEED(matcher);
  return st_matcher_rollback(matcher_of(matcher), n, error);
}

bool setun_matcher_may_end(const setun_matcher *matcher) {
  return matcher && st_matcher_may_end(const_matcher_of(matcher));
}

bool setun_matcher_must_end(setun_matcher *matcher) {
  return matcher && st_matcher_must_end(matcher_of(matcher));
}

// Copies a list to the caller, and frees it.
static setun_status list_out(st_token_list *list, setun_status s, setun_token *ids, size_t capacity, size_t *count) {
  if (s == SETUN_OK) {
    size_t n = list->length < capacity ? list->length : capacity;
    if (n) memcpy(ids, list->ids, n * sizeof *ids);
    *count = list->length;
  }
  st_token_list_free(list);
  return s;
}

setun_status setun_matcher_forced(setun_matcher *matcher, setun_token *ids, size_t capacity, size_t *count,
                                  setun_error *error) {
  ST_NEED(matcher);
  ST_NEED_ARRAY(ids, capacity);
  ST_NEED(count);
  st_token_list list = {0};
  setun_status s = st_matcher_forced_tokens(matcher_of(matcher), &list, error);
  return list_out(&list, s, ids, capacity, count);
}

// ---- samplers ----

setun_status setun_sampler_constrain(setun_sampler *sampler, setun_constraint *allowed, setun_error *error) {
  ST_NEED(sampler);
  return st_sampler_constrain(st_sampler_of(sampler), constraint_of(allowed), error);
}

setun_status st_sampler_forced_tokens(st_sampler *sampler, st_token_list *out, setun_error *err) {
  st_matcher *m = st_sampler_matcher(sampler);
  setun_status s = m ? st_matcher_forced_tokens(m, out, err) : SETUN_OK;
  if (s != SETUN_OK || !m || out->length || !st_matcher_must_end(m)) return s;
  int32_t end = st_matcher_end_token(m);
  return end < 0 || st_token_list_append(out, end) ? SETUN_OK : st_fail_memory(err, "forced tokens");
}

setun_status setun_sampler_forced(setun_sampler *sampler, setun_token *ids, size_t capacity, size_t *count,
                                  setun_error *error) {
  ST_NEED(sampler);
  ST_NEED_ARRAY(ids, capacity);
  ST_NEED(count);
  st_token_list list = {0};
  setun_status s = st_sampler_forced_tokens(st_sampler_of(sampler), &list, error);
  return list_out(&list, s, ids, capacity, count);
}
