// Shared by the files with operations on shapes.
#ifndef SETUN_CONSTRAINT_SCHEMA_SHAPES_H
#define SETUN_CONSTRAINT_SCHEMA_SHAPES_H

#include "constraint/schema_shape.h"

// The concatenation of both lists of elements of `size` bytes, with room for one more.
void *st_schema_joined(st_schema *s, const void *a, size_t n_a, const void *b, size_t n_b, size_t size);

bool st_array_is_void(const st_array_shape *a);
st_array_shape st_array_intersect(st_schema *s, const st_array_shape *a, const st_array_shape *b);
st_expr st_array_complement(st_schema *s, const st_array_shape *a);

bool st_object_is_void(st_schema *s, const st_object_shape *o);
// Is there a required member with no possible value? Checks members with at least `least` bounds.
bool st_object_lacks_member(st_schema *s, const st_object_shape *o, uint32_t least);
st_object_shape st_object_intersect(st_schema *s, const st_object_shape *a, const st_object_shape *b);
st_expr st_object_complement(st_schema *s, const st_object_shape *o);

#endif
