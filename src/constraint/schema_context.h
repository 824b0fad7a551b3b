// State of the compilation of one schema: memory that is freed as a whole, the first failure, and the tables of schema
// nodes, expressions and shapes.
//
// A schema is compiled in three steps. The document (schema_document.c) finds every subschema and what references mean.
// Each subschema becomes an expression (schema_keywords.c): a boolean formula over shapes and other subschemas. An
// expression expands to a union of shapes (schema_expand.c), each the values of one type, whose children are
// expressions again; so recursion ends, and allOf, not and oneOf are computed by intersecting and complementing shapes.
#ifndef SETUN_CONSTRAINT_SCHEMA_CONTEXT_H
#define SETUN_CONSTRAINT_SCHEMA_CONTEXT_H

#include "base/json.h"
#include "constraint/grammar.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Limits on the cost of a schema; a schema that exceeds them is refused with SETUN_ERROR_LIMIT.
enum {
  ST_SCHEMA_DEPTH_MOST = 192,    // of expressions within expressions while they expand
  ST_SCHEMA_NODES_MOST = 200000, // subschemas
  ST_SCHEMA_EXPRESSIONS_MOST = 400000,
  ST_SCHEMA_SHAPES_MOST = 4096,  // shapes that one expression expands to
  ST_SCHEMA_WORK_MOST = 4000000, // intersections of shapes
  ST_SCHEMA_STATES_MOST = 20000, // of a number's automaton
  ST_SCHEMA_PATTERNS_MOST = 8,   // different key patterns in one object
  ST_SCHEMA_NUMBERS_MOST = 32,   // kinds of numbers whose automata are stored
};

typedef enum { ST_DRAFT_4, ST_DRAFT_6, ST_DRAFT_7, ST_DRAFT_2019, ST_DRAFT_2020 } st_schema_draft;

typedef struct st_schema_chunk st_schema_chunk;

// A subschema.
typedef struct {
  const st_json *json;
  const char *path;  // a JSON pointer, for messages
  uint32_t resource; // the resource whose base URI its references are resolved against
  uint8_t draft;
} st_schema_node;

// A document, or a part of one that has its own identifier.
typedef struct {
  const char *uri; // absolute, without fragment; "" if there is none
  uint32_t node;
  bool dynamic; // it has a $dynamicAnchor
} st_schema_resource;

// An expression, by its number in the table; equal ones have equal numbers.
typedef uint32_t st_expr;
enum { ST_EXPR_FALSE = 0, ST_EXPR_TRUE = 1, ST_EXPR_ABSENT = UINT32_MAX }; // the last: an absent keyword

typedef struct st_shape st_shape;
typedef struct st_number_shape st_number_shape;

typedef enum {
  ST_EXPR_CONSTANT,
  ST_EXPR_SHAPE,       // shape
  ST_EXPR_NODE,        // a: the subschema; b: the dynamic scope
  ST_EXPR_NOT,         // a: an expression of kind NODE
  ST_EXPR_AND,         // list
  ST_EXPR_OR,          // list
  ST_EXPR_MUTE,        // a, with its evaluated members hidden from outside
  ST_EXPR_UNEVALUATED, // a, with b: unevaluatedProperties, and list[0]: unevaluatedItems; either may be absent
} st_expr_kind;

typedef struct {
  uint8_t kind;
  uint32_t a, b, n;
  const st_expr *list; // sorted, without duplicates
  const st_shape *shape;
  uint32_t node; // the subschema it was created for, for messages
} st_expr_entry;

// A union of shapes.
typedef struct {
  uint32_t n;
  const st_shape **items;
} st_shapes;

// The state of an expression's expansion, separately for both modes: plain, and with evaluated members tracked.
typedef struct {
  const st_shapes *shapes[2];
  uint8_t state[2]; // 0: not begun, 1: in progress, 2: done
  st_expr negated;  // plus 1; 0: not made
  st_expr formula;  // of a NODE, plus 1
  bool reading;     // its formula is being built
  uint8_t empty;    // 0: unknown, 1: in progress, 2: no, 3: yes
} st_expr_memo;

// A dynamic scope: a resource that was entered from the scope `outer`.
typedef struct {
  uint32_t outer, resource;
} st_schema_scope;

typedef struct {
  const char *text; // the schema's, for the digits of numbers
  setun_error *err;
  setun_status status; // the first failure's
  st_schema_chunk *chunks;
  size_t memory; // bytes of the chunks, counted with the terms
  st_json *root;
  st_grammar *grammar;

  st_schema_node *nodes;
  size_t n_nodes, nodes_capacity;
  st_schema_resource *resources;
  size_t n_resources, resources_capacity;
  st_map *node_of;                    // a value's address (its bytes) -> its node
  st_map *places;                     // "uri", "uri#anchor" -> node
  st_map *repeated;                   // the keys of `places` that identify several subschemas -> the second one
  st_map *dynamics;                   // "uri#anchor" of a $dynamicAnchor -> node
  bool has_dynamics, has_unevaluated; // $dynamicAnchor; unevaluatedItems or unevaluatedProperties
  st_schema_scope *scopes;
  size_t n_scopes, scopes_capacity;

  st_expr_entry *exprs;
  st_expr_memo *memos;
  size_t n_exprs, exprs_capacity, memos_capacity;
  uint32_t *slots; // a hash table of expressions
  size_t n_slots;
  uint32_t depth;
  size_t work;
  // While checking whether an expression is void, reaching one whose expansion is in progress is not a failure: the
  // check then has no result, `blocked` is set, and no intermediate result is stored.
  uint32_t asking;
  bool blocked;
  uint32_t at;     // the subschema that is being compiled, for messages
  st_expr full[6]; // the shape of all values of each type
  struct {
    const st_number_shape *shape;
    st_term term;
  } numbers[ST_SCHEMA_NUMBERS_MOST];
  uint32_t n_numbers;
} st_schema;

// Memory that lives as long as the context, zeroed. NULL: out of memory, which is a failure.
void *st_schema_alloc(st_schema *s, size_t count, size_t size);
char *st_schema_text(st_schema *s, const char *format, ...) ST_PRINTF(2, 3);
void st_schema_release(st_schema *s);

// Stores the first failure. The message begins with the path of the subschema `node` and the keyword (may be NULL).
void st_schema_fail(st_schema *s, setun_status status, uint32_t node, const char *keyword, const char *format, ...)
    ST_PRINTF(5, 6);
// The failure for a keyword that cannot be enforced.
void st_schema_refuse(st_schema *s, uint32_t node, const char *keyword, const char *why);
void st_schema_fail_memory(st_schema *s);

// ---- documents (schema_document.c) ----

// Finds all subschemas below the root, which becomes node 0.
void st_schema_index(st_schema *s);
// Resolves a reference in a subschema to `*node`, or fails.
bool st_schema_resolve(st_schema *s, uint32_t from, const char *keyword, const char *reference, uint32_t *node);
// The subschema at a value; UINT32_MAX: the value is not known to be a subschema.
uint32_t st_schema_node_at(const st_schema *s, const st_json *value);
// The dynamic scope after a subschema's resource was entered in `scope`.
uint32_t st_schema_enter(st_schema *s, uint32_t scope, uint32_t node);
// The target within `scope` of a $dynamicRef that resolved to `node`.
uint32_t st_schema_resolve_dynamic(st_schema *s, uint32_t scope, const char *reference, uint32_t node);

// ---- URIs (schema_uri.c): RFC 3986, section 5.2 ----

// The absolute URI of a reference without its fragment, and the fragment, percent-decoded ("" if there is none).
bool st_schema_uri(st_schema *s, const char *base, const char *reference, const char **uri, const char **fragment);

#endif
