// Converts a schema's expressions to the nodes of a grammar: each expression that may contain arrays or objects becomes
// a rule. Alternatives that no finite text matches are removed first, so that no text can enter them.
#include "constraint/schema_emit.h"

#include "base/memory.h"

#include <string.h>

// ---- collecting what is reachable ----

static void reach(st_schema_emitter *e, st_expr of) {
  st_schema *s = &e->s;
  if (s->status) return;
  if (of >= e->n_target_of) {
    size_t n = s->n_exprs * 2;
    uint32_t *grown = st_realloc(e->target_of, n, sizeof *grown);
    if (!grown) {
      st_schema_fail_memory(s);
      return;
    }
    memset(grown + e->n_target_of, 0, (n - e->n_target_of) * sizeof *grown);
    e->target_of = grown;
    e->n_target_of = n;
  }
  if (e->target_of[of]) return;
  if (!st_reserve(&e->targets, &e->capacity, e->n + 1, sizeof *e->targets)) {
    st_schema_fail_memory(s);
    return;
  }
  e->targets[e->n++] = (st_schema_target){.of = of};
  e->target_of[of] = (uint32_t)e->n;
}

static void reach_choices(st_schema_emitter *e, const st_plan_choices *c) {
  for (uint32_t i = 0; i < c->n; i++) reach(e, c->items[i].of);
}

st_term st_schema_texts(st_schema *s, const st_string_shape *string) {
  st_term term = st_string_term(s, string, ST_PLAIN);
  return string->listed ? term : st_term_decoded(st_grammar_terms(s->grammar), term);
}

// Whether strings and keys are not written as in JSON.
static bool is_styled(const st_schema_emitter *e) {
  return e->options.style && e->options.style->string;
}

static st_node styled_string(st_schema_emitter *e, const st_shape *shape) {
  const st_schema_style *style = e->options.style;
  return style->string(style->user, st_schema_texts(&e->s, &shape->as.string));
}

static st_node scalar(st_schema_emitter *e, const st_shape *shape) {
  st_schema *s = &e->s;
  st_terms *t = st_grammar_terms(s->grammar);
  st_term term = ST_TERM_EMPTY;
  switch (shape->type) {
  case ST_NULL: term = st_term_text(t, "null", 4); break;
  case ST_BOOLEAN:
    if (shape->as.boolean & 1) term = st_term_text(t, "false", 5);
    if (shape->as.boolean & 2) term = st_term_alt2(t, term, st_term_text(t, "true", 4));
    break;
  case ST_NUMBER: term = st_number_term(s, &shape->as.number); break;
  case ST_STRING:
    if (is_styled(e)) return styled_string(e, shape);
    term = st_string_term(s, &shape->as.string, ST_JSON_TIGHT);
    term = !shape->as.string.listed && st_term_is_empty(t, term) ? ST_TERM_EMPTY : st_term_quoted(t, term);
    break;
  default: break;
  }
  return term == ST_TERM_EMPTY ? ST_NODE_EMPTY : st_node_term(s->grammar, term);
}

// Whether a key can be written: some styles exclude keys.
static bool is_writable(const st_schema_emitter *e, size_t target, st_text key) {
  const st_schema_style *style = e->options.style;
  return !style || (!style->string && target) || style->is_key(style->user, key);
}

// Refuses what a style cannot express. Properties whose keys it cannot write are left out where they are not required.
static void check_style(st_schema_emitter *e, size_t target, const st_shape *shape, st_shape_plan *p) {
  if (is_styled(e) && shape->type == ST_ARRAY && shape->as.array.unique)
    st_schema_refuse(&e->s, e->s.at, "uniqueItems", "in the model's format of calls");
  for (uint32_t i = 0; i < p->n_properties; i++) {
    st_plan_property *one = &p->properties[i];
    if (is_writable(e, target, one->key)) continue;
    one->choices.n = 0;
    if (one->required)
      st_schema_fail(&e->s, SETUN_ERROR_UNSUPPORTED, e->s.at, "required",
                     "the key \"%.*s\" cannot be written in the model's format of calls",
                     (int)(one->key.length < 64 ? one->key.length : 64), one->key.data);
  }
}

static void expand_target(st_schema_emitter *e, size_t i) {
  st_schema *s = &e->s;
  const st_expr_entry *entry = &s->exprs[e->targets[i].of];
  s->at = entry->kind == ST_EXPR_NODE ? entry->a : entry->node;
  const st_shapes *shapes = st_expr_expand(s, e->targets[i].of, false);
  if (!shapes) return;
  st_shape_plan **plans = st_schema_alloc(s, shapes->n + 1, sizeof *plans);
  st_node *scalars = st_schema_alloc(s, shapes->n + 1, sizeof *scalars);
  if (!plans || !scalars) return;
  for (uint32_t k = 0; k < shapes->n && !s->status; k++) {
    const st_shape *shape = shapes->items[k];
    if (shape->type != ST_ARRAY && shape->type != ST_OBJECT) {
      scalars[k] = scalar(e, shape);
      continue;
    }
    st_shape_plan *p = plans[k] = st_schema_plan(s, shape);
    if (!p) return;
    check_style(e, i, shape, p);
    for (uint32_t m = 0; m < p->n_properties; m++) reach_choices(e, &p->properties[m].choices);
    for (uint32_t m = 0; m < p->n_classes; m++) reach_choices(e, &p->classes[m].choices);
    for (uint32_t m = 0; m < p->n_prefix; m++) reach_choices(e, &p->prefix[m]);
    reach_choices(e, &p->rest);
  }
  setun_error failure;
  setun_status limit = st_grammar_status(s->grammar, &failure); // terms are void after a failure
  if (limit) st_schema_fail(s, limit, s->at, NULL, "%s", failure.message);
  e->targets[i].shapes = shapes;
  e->targets[i].plans = plans;
  e->targets[i].scalars = scalars;
}

// ---- which targets a finite text matches ----

st_schema_target *st_schema_target_of(const st_schema_emitter *e, st_expr of) {
  return &e->targets[e->target_of[of] - 1];
}

static bool choices_possible(const st_schema_emitter *e, const st_plan_choices *c, uint32_t *counters) {
  bool possible = false;
  for (uint32_t i = 0; i < c->n; i++) {
    if (!st_schema_target_of(e, c->items[i].of)->possible) continue;
    possible = true;
    *counters |= c->items[i].counters;
  }
  return possible;
}

static bool counters_possible(const st_shape_plan *p, uint32_t counters) {
  for (uint32_t i = 0; i < p->n_counters; i++) {
    if (p->counters[i].min > 0 && !(counters >> i & 1)) return false;
  }
  return true;
}

static bool array_possible(const st_schema_emitter *e, const st_array_shape *a, const st_shape_plan *p) {
  uint32_t counters = 0;
  if (p->max < a->min) return false;
  for (uint32_t i = 0; i < p->n_prefix; i++) {
    if (!choices_possible(e, &p->prefix[i], &counters)) return i >= a->min && counters_possible(p, counters);
  }
  return (choices_possible(e, &p->rest, &counters) || a->min <= p->n_prefix) && counters_possible(p, counters);
}

bool st_schema_object_possible(const st_schema_emitter *e, const st_object_shape *o, const st_shape_plan *p) {
  uint32_t counters = 0, n = 0;
  bool more = false;
  for (uint32_t i = 0; i < p->n_properties; i++) {
    bool possible = choices_possible(e, &p->properties[i].choices, &counters);
    if (!possible && p->properties[i].required) return false;
    n += possible;
  }
  for (uint32_t i = 0; i < p->n_classes; i++) more |= choices_possible(e, &p->classes[i].choices, &counters);
  return (more || n >= o->min) && counters_possible(p, counters);
}

static bool target_possible(const st_schema_emitter *e, const st_schema_target *t) {
  for (uint32_t k = 0; k < t->shapes->n; k++) {
    const st_shape *shape = t->shapes->items[k];
    bool possible = shape->type == ST_ARRAY    ? array_possible(e, &shape->as.array, t->plans[k])
                    : shape->type == ST_OBJECT ? st_schema_object_possible(e, &shape->as.object, t->plans[k])
                                               : t->scalars[k] != ST_NODE_EMPTY;
    if (possible) return true;
  }
  return false;
}

static void find_possible(st_schema_emitter *e) {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = e->n; i-- > 0;) { // the contents of an expression come after it
      st_schema_target *t = &e->targets[i];
      if (!t->possible && target_possible(e, t)) t->possible = changed = true;
    }
  }
}

// ---- nodes ----

static bool is_scalar(const st_schema_target *t) {
  for (uint32_t k = 0; k < t->shapes->n; k++) {
    if (t->plans[k]) return false;
  }
  return true;
}

static st_node scalars_of(st_schema_emitter *e, const st_schema_target *t) {
  return st_node_alt(e->s.grammar, t->scalars, t->shapes->n);
}

// A node that matches the values; scalars need no rule.
static st_node node_of(st_schema_emitter *e, st_expr of) {
  st_schema_target *t = st_schema_target_of(e, of);
  return is_scalar(t) ? scalars_of(e, t) : st_node_rule(e->s.grammar, t->rule);
}

static uint32_t make_choices(st_schema_emitter *e, const st_plan_choices *c, const st_value_choice **out) {
  st_value_choice *list = st_schema_alloc(&e->s, c->n + 1, sizeof *list);
  uint32_t n = 0;
  *out = list;
  for (uint32_t i = 0; list && i < c->n; i++) {
    if (!st_schema_target_of(e, c->items[i].of)->possible) continue;
    list[n++] = (st_value_choice){.node = node_of(e, c->items[i].of), .counters = c->items[i].counters};
  }
  return n;
}

static st_grammar_item make_item(st_schema_emitter *e, const st_plan_choices *c) {
  st_grammar_item item = {0};
  item.n_choices = make_choices(e, c, &item.choices);
  return item;
}

static st_node make_array(st_schema_emitter *e, const st_array_shape *a, const st_shape_plan *p) {
  st_grammar_item *prefix = st_schema_alloc(&e->s, (size_t)p->n_prefix + 1, sizeof *prefix);
  if (!prefix) return ST_NODE_EMPTY;
  for (uint32_t i = 0; i < p->n_prefix; i++) prefix[i] = make_item(e, &p->prefix[i]);
  return st_node_array(e->s.grammar, &(st_grammar_array){.prefix = prefix,
                                                         .n_prefix = p->n_prefix,
                                                         .rest = make_item(e, &p->rest),
                                                         .counters = p->counters,
                                                         .n_counters = p->n_counters,
                                                         .min = a->min,
                                                         .max = p->max,
                                                         .unique = a->unique,
                                                         .bare = is_styled(e)});
}

static st_node make_object(st_schema_emitter *e, const st_object_shape *o, const st_shape_plan *p) {
  st_property *properties = st_schema_alloc(&e->s, (size_t)p->n_properties + 1, sizeof *properties);
  st_key_class *classes = st_schema_alloc(&e->s, (size_t)p->n_classes + 1, sizeof *classes);
  if (!properties || !classes) return ST_NODE_EMPTY;
  for (uint32_t i = 0; i < p->n_properties; i++) {
    const st_plan_property *from = &p->properties[i];
    properties[i] = (st_property){.key = from->key, .required = from->required};
    properties[i].n_choices = make_choices(e, &from->choices, &properties[i].choices);
  }
  uint32_t n_classes = 0;
  for (uint32_t i = 0; i < p->n_classes; i++) {
    st_key_class one = {.keys = p->classes[i].keys};
    one.n_choices = make_choices(e, &p->classes[i].choices, &one.choices);
    if (one.n_choices) classes[n_classes++] = one;
  }
  return st_node_object(e->s.grammar, &(st_grammar_object){.properties = properties,
                                                           .n_properties = p->n_properties,
                                                           .classes = classes,
                                                           .n_classes = n_classes,
                                                           .dependencies = p->dependencies,
                                                           .n_dependencies = p->n_dependencies,
                                                           .counters = p->counters,
                                                           .n_counters = p->n_counters,
                                                           .min = o->min,
                                                           .max = o->max,
                                                           .ordered = e->options.ordered,
                                                           .bare = is_styled(e)});
}

st_node st_schema_shape_node(st_schema_emitter *e, const st_schema_target *t, uint32_t shape) {
  const st_shape *of = t->shapes->items[shape];
  const st_shape_plan *p = t->plans[shape];
  switch (of->type) {
  case ST_ARRAY: return array_possible(e, &of->as.array, p) ? make_array(e, &of->as.array, p) : ST_NODE_EMPTY;
  case ST_OBJECT:
    return st_schema_object_possible(e, &of->as.object, p) ? make_object(e, &of->as.object, p) : ST_NODE_EMPTY;
  default: return t->scalars[shape];
  }
}

static void define(st_schema_emitter *e, st_schema_target *t) {
  st_node *list = st_schema_alloc(&e->s, t->shapes->n + 1, sizeof *list);
  if (!list) return;
  list[0] = scalars_of(e, t);
  uint32_t n = 1;
  for (uint32_t k = 0; k < t->shapes->n && !e->s.status; k++) {
    if (t->plans[k]) list[n++] = st_schema_shape_node(e, t, k);
  }
  st_grammar_define(e->s.grammar, t->rule, st_node_alt(e->s.grammar, list, n));
}

static void declare(st_schema_emitter *e, st_schema_target *t) {
  const st_expr_entry *entry = &e->s.exprs[t->of];
  uint32_t node = entry->kind == ST_EXPR_NODE ? entry->a : entry->node;
  const char *name = st_schema_text(&e->s, "#%s", node < e->s.n_nodes ? e->s.nodes[node].path : "");
  if (name) t->rule = st_grammar_rule(e->s.grammar, name, strlen(name));
}

static st_node emit(st_schema_emitter *e, st_expr root) {
  reach(e, root);
  for (size_t i = 0; i < e->n && !e->s.status; i++) expand_target(e, i);
  if (e->s.status) return ST_NODE_EMPTY;
  find_possible(e);
  if (!e->targets[0].possible) {
    st_schema_fail(&e->s, SETUN_ERROR_FORMAT, 0, NULL, "no value satisfies the schema");
    return ST_NODE_EMPTY;
  }
  for (size_t i = 0; i < e->n; i++) {
    if (e->targets[i].possible && !is_scalar(&e->targets[i])) declare(e, &e->targets[i]);
  }
  for (size_t i = 0; i < e->n && !e->s.status; i++) {
    if (e->targets[i].possible && !is_scalar(&e->targets[i])) define(e, &e->targets[i]);
  }
  if (e->s.status) return ST_NODE_EMPTY;
  bool members = e->options.style && e->options.style->member;
  return members ? st_schema_members(e, &e->targets[0]) : node_of(e, root);
}

// ---- the whole schema ----

setun_status st_grammar_add_schema(st_grammar *g, const char *text, size_t length, const st_schema_options *options,
                                   st_node *out, setun_error *err) {
  st_schema_emitter e = {.s = {.text = text, .err = err, .grammar = g}};
  st_schema *s = &e.s;
  if (options) e.options = *options;
  *out = ST_NODE_EMPTY;
  s->status = st_json_parse_decimals(text, length, "schema", &s->root, err);
  if (!s->status) st_schema_index(s);
  if (!s->status) {
    st_expr root = st_expr_node(s, 0, st_schema_enter(s, 0, 0));
    const st_shape object = st_shape_all(s, ST_OBJECT);
    *out = emit(&e, e.options.objects ? st_expr_and2(s, root, st_expr_shape(s, &object)) : root);
  }
  setun_status status = s->status;
  if (!status) status = st_grammar_status(g, err);
  st_schema_release(s);
  st_free(e.targets);
  st_free(e.target_of);
  return status;
}

setun_status st_grammar_from_schema(const char *text, size_t length, const st_schema_options *options,
                                    const st_constraint_limits *limits, st_grammar **out, setun_error *err) {
  st_grammar *g = NULL;
  st_node root;
  setun_status status = st_grammar_new(limits, &g, err);
  if (!status) status = st_grammar_add_schema(g, text, length, options, &root, err);
  if (!status) {
    st_grammar_set_root(g, root);
  } else {
    st_grammar_free(g);
    g = NULL;
  }
  *out = g;
  return status;
}
