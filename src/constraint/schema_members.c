// The members of an object one after another, in the order of the schema, for formats that are not JSON.
#include "constraint/schema_emit.h"

// The values of a member: strings by their texts, apart from all others.
static st_node member_node(st_schema_emitter *e, const st_plan_property *property) {
  const st_schema_style *style = e->options.style;
  st_grammar *g = e->s.grammar;
  st_terms *terms = st_grammar_terms(g);
  st_term texts = ST_TERM_EMPTY;
  st_node others = ST_NODE_EMPTY;
  for (uint32_t i = 0; i < property->choices.n; i++) {
    const st_schema_target *t = st_schema_target_of(e, property->choices.items[i].of);
    if (!t->possible) continue;
    for (uint32_t k = 0; k < t->shapes->n; k++) {
      const st_shape *shape = t->shapes->items[k];
      if (shape->type == ST_STRING)
        texts = st_term_alt2(terms, texts, st_schema_texts(&e->s, &shape->as.string));
      else
        others = st_node_alt(g, (st_node[]){others, st_schema_shape_node(e, t, k)}, 2);
    }
  }
  if (texts == ST_TERM_EMPTY && others == ST_NODE_EMPTY) return ST_NODE_EMPTY;
  return style->member(style->user, property->key, texts, others);
}

// nodes[count]: what may follow, where `count` members have come, as far as the bounds need to know.
typedef struct {
  st_node *nodes;
  uint32_t last; // higher counts are treated alike
  bool bounded;  // and there may be no more members than that
} counts;

static void add_before(st_grammar *g, const counts *c, st_node member, bool required) {
  for (uint32_t n = 0; n <= c->last; n++) {
    st_node after = n < c->last ? c->nodes[n + 1] : c->bounded ? ST_NODE_EMPTY : c->nodes[n];
    st_node with = st_node_seq(g, (st_node[]){member, after}, 2);
    c->nodes[n] = required ? with : st_node_alt(g, (st_node[]){with, c->nodes[n]}, 2);
  }
}

static st_node object_node(st_schema_emitter *e, const st_object_shape *o, const st_shape_plan *p) {
  counts c = {.last = o->min, .bounded = o->max < p->n_properties};
  if (c.bounded) c.last = o->max;
  if (p->n_dependencies || p->n_counters) {
    st_schema_fail(&e->s, SETUN_ERROR_UNSUPPORTED, 0, NULL,
                   "conditions between members cannot be enforced in the model's format of calls");
    return ST_NODE_EMPTY;
  }
  if (o->min > p->n_properties) return ST_NODE_EMPTY;
  c.nodes = st_schema_alloc(&e->s, (size_t)c.last + 1, sizeof *c.nodes);
  if (!c.nodes) return ST_NODE_EMPTY;
  for (uint32_t n = 0; n <= c.last; n++) c.nodes[n] = n < o->min ? ST_NODE_EMPTY : ST_NODE_EPSILON;
  for (uint32_t i = p->n_properties; i-- && !e->s.status;) {
    add_before(e->s.grammar, &c, member_node(e, &p->properties[i]), p->properties[i].required);
  }
  return c.nodes[0];
}

st_node st_schema_members(st_schema_emitter *e, const st_schema_target *root) {
  st_node any = ST_NODE_EMPTY;
  for (uint32_t k = 0; k < root->shapes->n && !e->s.status; k++) {
    const st_shape *shape = root->shapes->items[k];
    if (shape->type != ST_OBJECT || !st_schema_object_possible(e, &shape->as.object, root->plans[k])) continue;
    any = st_node_alt(e->s.grammar, (st_node[]){any, object_node(e, &shape->as.object, root->plans[k])}, 2);
  }
  if (!e->s.status && any == ST_NODE_EMPTY)
    st_schema_fail(&e->s, SETUN_ERROR_UNSUPPORTED, 0, NULL,
                   "no value satisfies the schema that can be written in the model's format of calls");
  return any;
}
