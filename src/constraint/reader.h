// Shared by the readers of expressions and grammars: sets of characters, places in a text, tokens by name.
#ifndef SETUN_CONSTRAINT_READER_H
#define SETUN_CONSTRAINT_READER_H

#include "constraint/grammar.h"
#include "tokenizer/tokenizer.h"

// A set of characters as ranges; st_ranges_normalize sorts and joins them.
typedef struct st_ranges {
  st_range *items;
  size_t n, capacity;
  bool failed; // out of memory
} st_ranges;

void st_ranges_add(st_ranges *r, uint32_t first, uint32_t last);
void st_ranges_normalize(st_ranges *r);
void st_ranges_complement(st_ranges *r);
// Adds the characters of \d, \D, \s, \S, \w or \W; false: the letter is none of these.
bool st_ranges_add_class(st_ranges *r, char letter);
// Adds the other case of its ASCII letters.
void st_ranges_ignore_case(st_ranges *r);

// A position in a text that is being read, which failures report.
typedef struct st_reader {
  const char *begin, *at, *end;
  const char *name; // of the text, or NULL: an expression
  setun_error *err;
} st_reader;

// SETUN_ERROR_FORMAT (or `code`) at the current position, with what was found there.
setun_status st_reader_fail(const st_reader *r, setun_status code, const char *expected);
// Reads one character of UTF-8; the text is valid. UINT32_MAX at the end.
uint32_t st_reader_next(st_reader *r);
// Does the text continue with this one? If so, `skip` moves the position past it.
bool st_reader_peek(const st_reader *r, const char *text);
bool st_reader_skip(st_reader *r, const char *text);
// Reads exactly n hexadecimal digits.
bool st_reader_hex(st_reader *r, int n, uint32_t *code);

// Reads a token, <[id]> or <text>, at its angle bracket; with `negated`, it means any token but this one. A token given
// by its text must be one token of the vocabulary.
setun_status st_reader_token(st_reader *r, st_grammar *g, const st_tokenizer *tokenizer, bool negated, st_node *node);

// Nodes of sequences and alternatives that are being read, a stack: nested lists come last.
typedef struct st_node_stack {
  st_node *items;
  size_t n, capacity;
} st_node_stack;

// False: out of memory.
bool st_node_stack_push(st_node_stack *stack, st_node node);
// Pops the nodes from `base` on and joins them, with st_node_seq or st_node_alt.
st_node st_node_stack_join(st_node_stack *stack, size_t base, st_grammar *g,
                           st_node (*join)(st_grammar *, const st_node *, size_t));

// A decimal number, at most ST_UNBOUNDED - 1, which larger ones become. False, and nothing is written, where no digit
// follows.
bool st_reader_number(st_reader *r, uint32_t *number);

#endif
