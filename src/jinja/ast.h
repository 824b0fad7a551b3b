// The syntax tree of a template, and what compiling it means.
#ifndef SETUN_JINJA_AST_H
#define SETUN_JINJA_AST_H

#include "jinja/value.h"

typedef enum {
  J_ADD,
  J_SUB,
  J_MUL,
  J_DIV,
  J_FLOORDIV,
  J_MOD,
  J_POW,
  J_NEG,
  J_POS,
  J_EQ,
  J_NE,
  J_LT,
  J_LE,
  J_GT,
  J_GE,
  J_IN,
  J_NOTIN
} st_jop;

typedef enum {
  // Expressions.
  N_CONST,   // value
  N_NAME,    // name; slot and up
  N_NSREF,   // a target: name (slot, up) and text, the attribute
  N_TUPLE,   // list
  N_LIST,    // list
  N_DICT,    // list: key, value, key, value, ...
  N_BINARY,  // op, a, b
  N_UNARY,   // op, a
  N_AND,     // a, b
  N_OR,      // a, b
  N_NOT,     // a
  N_COMPARE, // a; list of the right sides, each wrapped in N_OPERAND
  N_OPERAND, // op, a
  N_CONCAT,  // list
  N_COND,    // a if b else c (c may be NULL)
  N_GETATTR, // a, text
  N_GETITEM, // a, b
  N_SLICE,   // a[list[0]:list[1]:list[2]], each may be NULL
  N_CALL,    // a, arguments
  N_FILTER,  // a (NULL in a filter block), text, arguments
  N_TEST,    // a, text, arguments
  // Statements.
  N_DATA,         // value
  N_OUTPUT,       // list
  N_IF,           // a, list; more: pairs of elif (N_IF without else); other: the else part
  N_FOR,          // target a, iterable b, test c (or NULL; params: the target for it); list; other; flag: recursive
  N_SET,          // target a, value b
  N_SET_BLOCK,    // target a, filter b (or NULL); list
  N_MACRO,        // name; params, defaults; list
  N_CALL_BLOCK,   // a call; params, defaults; list
  N_FILTER_BLOCK, // filter a; list
  N_WITH,         // targets in params, values in defaults; list
  N_GENERATION,   // list
  N_BREAK,
  N_CONTINUE,
  N_FAIL // text: why it fails when it is reached
} st_jnode_kind;

typedef struct st_jnode st_jnode;

typedef struct {
  st_jnode **items;
  size_t n, capacity;
} st_jnodes;

// What happens to a variable on entry to a scope.
typedef enum { J_LOAD_PARAMETER, J_LOAD_RESOLVE, J_LOAD_ALIAS, J_LOAD_UNDEFINED } st_jload_action;

typedef struct {
  st_jload_action action;
  uint32_t slot;     // of the function that the scope is in
  uint32_t from, up; // of J_LOAD_ALIAS: the outer variable
  const st_jstr *name;
} st_jload;

// A scope: the variables that it has of its own.
typedef struct {
  st_jload *loads;
  size_t n, capacity;
} st_jframe;

struct st_jnode {
  uint8_t kind, op;
  bool flag;
  uint16_t depth; // of the tree below
  int line;
  st_jnode *a, *b, *c;
  st_jnodes list, other, more;
  st_jnodes params, defaults;        // a macro's parameters (N_NAME) and the defaults of the last ones
  st_jnodes args;                    // a call's positional arguments
  st_jnodes keywords;                // N_NAME with a: the value
  st_jnode *dyn_args, *dyn_keywords; // *x and **x
  st_jstr *text;
  st_jval value;
  uint32_t slot, up;     // a variable: `up` functions out
  st_jframe *frame;      // of the body
  st_jframe *frame_else; // of a for's else part
  st_jframe *frame_test; // of a for's test, which is a function of its own
  size_t n_slots;        // of a macro, call block, generation or recursive for: its function's variables
  size_t n_test_slots;
  uint32_t loop_slot;                              // of a for
  uint32_t caller_slot, kwargs_slot, varargs_slot; // of a macro; UINT32_MAX: it does not use it
};

typedef struct st_jcompiler st_jcompiler;

struct st_template {
  st_jarena arena;
  const char *name;
  st_jnodes body;
  st_jframe *frame;
  size_t n_slots;
};

// Compiling.
struct st_jcompiler {
  st_jarena *arena;
  const char *name;
  setun_error *err;
  setun_status status;
  uint64_t steps_left;
};

bool st_j_syntax(st_jcompiler *c, int line, const char *format, ...) ST_PRINTF(3, 4);
bool st_j_unsupported(st_jcompiler *c, int line, const char *format, ...) ST_PRINTF(3, 4);
void *st_j_make(st_jcompiler *c, size_t count, size_t size);
bool st_j_push(st_jcompiler *c, st_jnodes *list, st_jnode *node);

// lex.c. Token types beside single characters.
typedef enum {
  T_EOF,
  T_DATA,
  T_VARIABLE_BEGIN,
  T_VARIABLE_END,
  T_BLOCK_BEGIN,
  T_BLOCK_END,
  T_NAME,
  T_STRING,
  T_INTEGER,
  T_FLOAT,
  T_ADD,
  T_SUB,
  T_MUL,
  T_DIV,
  T_FLOORDIV,
  T_MOD,
  T_POW,
  T_TILDE,
  T_LBRACKET,
  T_RBRACKET,
  T_LPAREN,
  T_RPAREN,
  T_LBRACE,
  T_RBRACE,
  T_EQ,
  T_NE,
  T_GT,
  T_GE,
  T_LT,
  T_LE,
  T_ASSIGN,
  T_DOT,
  T_COLON,
  T_PIPE,
  T_COMMA,
  T_SEMICOLON
} st_jtoken_type;

typedef struct {
  st_jtoken_type type;
  int line;
  st_jstr *text; // of data, names and strings
  int64_t i;
  double f;
} st_jtoken;

typedef struct {
  st_jtoken *items;
  size_t n, capacity;
} st_jtokens;

bool st_j_lex(st_jcompiler *c, const char *text, size_t length, st_jtokens *out);
bool st_j_literal(st_jcompiler *c, const char *data, size_t length, st_jstr **out); // copies the bytes
const char *st_j_token_name(const st_jtoken *t, char buffer[64]);

// parse.c (statements) and parse_expr.c (expressions)
typedef struct {
  st_jcompiler *c;
  const st_jtoken *t; // the current token; the last is T_EOF
  int depth;
  int n_loops; // for loops around, within the same function
  int n_for;   // for loops around at all
} st_jparser;

bool st_j_parse(st_jcompiler *c, const st_jtokens *tokens, st_jnodes *body);
st_jnode *st_j_node(st_jparser *p, st_jnode_kind kind, int line);
bool st_j_unexpected(st_jparser *p, const char *expected);
bool st_j_accept(st_jparser *p, st_jtoken_type type);
bool st_j_expect(st_jparser *p, st_jtoken_type type, const char *what);
bool st_j_at_name(const st_jtoken *t, const char *name);
bool st_j_accept_name(st_jparser *p, const char *name);
st_jnode *st_j_parse_expression(st_jparser *p, bool with_condition);
typedef enum { J_TUPLE_PLAIN, J_TUPLE_NO_CONDITION, J_TUPLE_PARENTHESES, J_TUPLE_TARGET, J_TUPLE_SET_TARGET } st_jtuple;
st_jnode *st_j_parse_tuple(st_jparser *p, st_jtuple how, const char *end);
st_jnode *st_j_parse_filters(st_jparser *p, st_jnode *node, bool inline_start);
bool st_j_sink(st_jparser *p, st_jnode *node, const st_jnode *child); // node gets at least child's depth + 1

// resolve.c: gives each variable its place.
bool st_j_resolve(st_jcompiler *c, struct st_template *t);

#endif
