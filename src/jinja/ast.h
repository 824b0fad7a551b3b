// The syntax tree of a template, and its compilation.
#ifndef SETUN_JINJA_AST_H
#define SETUN_JINJA_AST_H

#include "jinja/value.h"

// How deeply a template may nest its expressions and blocks. Each level takes some 600 bytes of stack while it is
// parsed (twice that with sanitizers); published templates nest less than 30 deep.
enum { JINJA_MAX_NESTING = 64 };

// A place in the template, both counted from 1; columns count characters.
typedef struct {
  int line, column;
} st_jinja_place;

typedef enum {
  JINJA_ADD,
  JINJA_SUB,
  JINJA_MUL,
  JINJA_MOD,
  JINJA_NEG,
  JINJA_POS,
  JINJA_EQ,
  JINJA_NE,
  JINJA_LT,
  JINJA_LE,
  JINJA_GT,
  JINJA_GE,
  JINJA_IN,
  JINJA_NOT_IN
} st_jinja_operator;

typedef enum {
  // Expressions.
  NODE_CONSTANT,         // value
  NODE_NAME,             // value: the name; slot and up
  NODE_ATTRIBUTE_TARGET, // a target: value, the name (slot, up), and text, the attribute
  NODE_TUPLE,            // list
  NODE_LIST,             // list
  NODE_DICT,             // list: key, value, key, value, ...
  NODE_BINARY,           // a; list of the right sides, each wrapped in NODE_OPERAND: from left to right
  NODE_UNARY,            // op, a
  NODE_AND,              // list
  NODE_OR,               // list
  NODE_NOT,              // a
  NODE_COMPARE,          // a; list of the right sides, each wrapped in NODE_OPERAND
  NODE_OPERAND,          // op, a; or a keyword argument: text, a
  NODE_CONCAT,           // list
  NODE_CONDITION,        // a if b else c (c may be NULL)
  NODE_ATTRIBUTE,        // a, text
  NODE_ITEM,             // a, b
  NODE_SLICE,            // a:b:c within an item, each may be NULL
  NODE_CALL,             // a, arguments
  NODE_FILTER,           // a (NULL in a filter block), text, arguments
  NODE_TEST,             // a, text, arguments
  // Statements.
  NODE_DATA,         // value
  NODE_OUTPUT,       // list
  NODE_IF,           // a, list; more: the elifs (NODE_IF without else); other: the else part
  NODE_FOR,          // target a, iterable b, test c (or NULL; params: the target for it); list; other
  NODE_SET,          // target a, value b
  NODE_SET_BLOCK,    // target a, filter b (or NULL); list
  NODE_MACRO,        // value: the name; params, defaults; list
  NODE_FILTER_BLOCK, // filter a; list
  NODE_GENERATION,   // list
  NODE_BREAK,
  NODE_CONTINUE
} st_jinja_node_kind;

typedef struct st_jinja_node st_jinja_node;

typedef struct {
  st_jinja_node **items;
  size_t n, capacity;
} st_jinja_nodes;

// The treatment of a variable on entry to a scope.
typedef enum { JINJA_LOAD_PARAMETER, JINJA_LOAD_RESOLVE, JINJA_LOAD_ALIAS, JINJA_LOAD_UNDEFINED } st_jinja_load_action;

typedef struct {
  st_jinja_load_action action;
  uint32_t slot;     // of the function that the scope is in
  uint32_t from, up; // of JINJA_LOAD_ALIAS: the outer variable
  const st_jinja_string *name;
} st_jinja_load;

// A scope: the variables that it has of its own.
typedef struct {
  st_jinja_load *loads;
  size_t n, capacity;
} st_jinja_scope;

struct st_jinja_node {
  uint8_t kind, op;
  uint16_t depth; // of the tree below
  st_jinja_place place;
  st_jinja_node *a, *b, *c;
  st_jinja_nodes list, other, more;
  st_jinja_nodes params, defaults; // a macro's parameters (NODE_NAME) and the defaults of the last ones
  st_jinja_nodes args;             // a call's positional arguments
  st_jinja_nodes keywords;         // NODE_NAME with a: the value
  st_jinja_string *text;
  st_jinja_value value;
  uint32_t slot, up;          // a variable: `up` functions out
  st_jinja_scope *scope;      // of the body
  st_jinja_scope *scope_else; // of a for's else part
  st_jinja_scope *scope_test; // of a for's test, which is a function of its own
  size_t n_slots;             // of a macro or generation: its function's variables
  size_t n_test_slots;
  uint32_t loop_slot; // of a for
};

typedef struct st_jinja_compiler st_jinja_compiler;

struct st_template {
  st_jinja_arena arena;
  const char *name;
  st_jinja_nodes body;
  st_jinja_scope *scope;
  size_t n_slots;
};

// Compiling.
struct st_jinja_compiler {
  st_jinja_arena *arena;
  const char *name;
  setun_error *err;
  setun_status status;
  uint64_t steps_left;
};

bool st_jinja_syntax_error(st_jinja_compiler *c, st_jinja_place place, const char *format, ...) ST_PRINTF(3, 4);
bool st_jinja_unsupported_syntax(st_jinja_compiler *c, st_jinja_place place, const char *format, ...) ST_PRINTF(3, 4);
void *st_jinja_compile_allocate(st_jinja_compiler *c, size_t count, size_t size);
// Makes room for one more item in a list of `n` items of `size` bytes, initially for `first` of them. Returns the
// items, which may have moved; NULL on failure.
void *st_jinja_compile_room(st_jinja_compiler *c, void *items, size_t n, size_t *capacity, size_t size, size_t first);
bool st_jinja_add_node(st_jinja_compiler *c, st_jinja_nodes *list, st_jinja_node *node);

// lex.c. Token types other than single characters.
typedef enum {
  TOKEN_END,
  TOKEN_DATA,
  TOKEN_VARIABLE_BEGIN,
  TOKEN_VARIABLE_END,
  TOKEN_BLOCK_BEGIN,
  TOKEN_BLOCK_END,
  TOKEN_NAME,
  TOKEN_STRING,
  TOKEN_INTEGER,
  TOKEN_FLOAT,
  TOKEN_ADD,
  TOKEN_SUB,
  TOKEN_MUL,
  TOKEN_DIV,
  TOKEN_FLOORDIV,
  TOKEN_MOD,
  TOKEN_POW,
  TOKEN_TILDE,
  TOKEN_LBRACKET,
  TOKEN_RBRACKET,
  TOKEN_LPAREN,
  TOKEN_RPAREN,
  TOKEN_LBRACE,
  TOKEN_RBRACE,
  TOKEN_EQ,
  TOKEN_NE,
  TOKEN_GT,
  TOKEN_GE,
  TOKEN_LT,
  TOKEN_LE,
  TOKEN_ASSIGN,
  TOKEN_DOT,
  TOKEN_COLON,
  TOKEN_PIPE,
  TOKEN_COMMA,
  TOKEN_SEMICOLON
} st_jinja_token_type;

typedef struct {
  st_jinja_token_type type;
  st_jinja_place place;
  st_jinja_string *text; // of data, names and strings
  int64_t i;
  double f;
} st_jinja_token;

typedef struct {
  st_jinja_token *items;
  size_t n, capacity;
} st_jinja_tokens;

bool st_jinja_tokenize(st_jinja_compiler *c, const char *text, size_t length, st_jinja_tokens *out);
bool st_jinja_new_literal(st_jinja_compiler *c, const char *data, size_t length,
                          st_jinja_string **out); // copies the bytes
const char *st_jinja_token_name(const st_jinja_token *t, char buffer[64]);

// parse.c (statements) and parse_expr.c (expressions)
typedef struct {
  st_jinja_compiler *c;
  const st_jinja_token *t; // the current token; the last is TOKEN_END
  int depth;
  int n_loops; // for loops around, within the same function
  int n_for;   // for loops around at all
} st_jinja_parser;

bool st_jinja_parse(st_jinja_compiler *c, const st_jinja_tokens *tokens, st_jinja_nodes *body);
st_jinja_node *st_jinja_new_node(st_jinja_parser *p, st_jinja_node_kind kind, st_jinja_place place);
bool st_jinja_unexpected(st_jinja_parser *p, const char *expected);
bool st_jinja_accept_token(st_jinja_parser *p, st_jinja_token_type type);
bool st_jinja_expect_token(st_jinja_parser *p, st_jinja_token_type type, const char *what);
bool st_jinja_at_name(const st_jinja_token *t, const char *name);
bool st_jinja_accept_name(st_jinja_parser *p, const char *name);
st_jinja_node *st_jinja_parse_expression(st_jinja_parser *p, bool with_condition);
typedef enum {
  JINJA_TUPLE_PLAIN,
  JINJA_TUPLE_NO_CONDITION,
  JINJA_TUPLE_PARENTHESES,
  JINJA_TUPLE_TARGET,
  JINJA_TUPLE_SET_TARGET
} st_jinja_tuple_kind;
st_jinja_node *st_jinja_parse_tuple(st_jinja_parser *p, st_jinja_tuple_kind how, const char *end);
st_jinja_node *st_jinja_parse_filters(st_jinja_parser *p, st_jinja_node *node, bool inline_start);
bool st_jinja_nest_parser(st_jinja_parser *p); // one more level, which p->depth-- ends
bool st_jinja_deepen(st_jinja_parser *p, st_jinja_node *node,
                     const st_jinja_node *child); // node gets at least child's depth + 1

// resolve.c: gives each variable its place.
bool st_jinja_resolve(st_jinja_compiler *c, struct st_template *t);

#endif
