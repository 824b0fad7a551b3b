// How the values of an expression are written: the possible members of objects and items of arrays, computed from its
// shapes before the grammar's nodes are made, so that parts that no finite text matches can be removed.
#ifndef SETUN_CONSTRAINT_SCHEMA_PLAN_H
#define SETUN_CONSTRAINT_SCHEMA_PLAN_H

#include "constraint/schema_shapes.h"

enum { ST_COUNTERS_MOST = 16, ST_CHOICES_MOST = 64 };

// A value, and a bit for each counter that it adds to.
typedef struct {
  st_expr of;
  uint32_t counters;
} st_plan_choice;

typedef struct {
  uint32_t n;
  st_plan_choice *items; // none: no value is allowed there
} st_plan_choices;

typedef struct {
  st_text key;
  bool required;
  st_plan_choices choices;
} st_plan_property;

typedef struct {
  st_term keys;
  st_plan_choices choices;
} st_plan_class;

typedef struct {
  uint32_t n_counters;
  st_counter counters[ST_COUNTERS_MOST];
  // objects
  uint32_t n_properties, n_classes, n_dependencies;
  st_plan_property *properties;
  st_plan_class *classes;
  st_dependency *dependencies;
  // arrays
  uint32_t n_prefix, max; // max: no array has more items
  st_plan_choices *prefix, rest;
} st_shape_plan;

// The plan of an array's or object's shape; NULL on failure.
st_shape_plan *st_schema_plan(st_schema *s, const st_shape *shape);

#endif
