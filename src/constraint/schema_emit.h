// How a schema's expressions become nodes, for schema.c and schema_members.c.
#ifndef SETUN_CONSTRAINT_SCHEMA_EMIT_H
#define SETUN_CONSTRAINT_SCHEMA_EMIT_H

#include "constraint/schema.h"
#include "constraint/schema_plan.h"

// An expression whose values are written.
typedef struct st_schema_target {
  st_expr of;
  const st_shapes *shapes;
  st_shape_plan **plans; // of each shape; NULL for scalars
  st_node *scalars;      // for each shape; ST_NODE_EMPTY if there is none
  bool possible;         // a finite text matches
  st_rule rule;
} st_schema_target;

typedef struct st_schema_emitter {
  st_schema s;
  st_schema_options options;
  st_schema_target *targets;
  size_t n, capacity;
  uint32_t *target_of; // an expression -> its target plus 1
  size_t n_target_of;
} st_schema_emitter;

st_schema_target *st_schema_target_of(const st_schema_emitter *e, st_expr of);
bool st_schema_object_possible(const st_schema_emitter *e, const st_object_shape *o, const st_shape_plan *p);
// A node that matches the values of one shape of a target; ST_NODE_EMPTY: no finite text does.
st_node st_schema_shape_node(st_schema_emitter *e, const st_schema_target *t, uint32_t shape);
// The texts of a shape of strings, in UTF-8.
st_term st_schema_texts(st_schema *s, const st_string_shape *string);
// The members of the root's objects, one after another, by the style of the options.
st_node st_schema_members(st_schema_emitter *e, const st_schema_target *root);

#endif
