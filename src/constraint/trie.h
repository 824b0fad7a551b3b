// A vocabulary as a trie, for the files of this directory.
#ifndef SETUN_CONSTRAINT_TRIE_H
#define SETUN_CONSTRAINT_TRIE_H

#include "constraint/constraint.h"

// One byte of one or more tokens. Nodes are in depth-first order: a node's children follow it, `size` counts the
// node and all its descendants.
typedef struct st_trie_node {
  uint32_t token_byte; // token << 8 | byte; token ST_TRIE_NONE: none ends here
  uint32_t size_depth; // size << 8 | depth, the first byte's being 1
} st_trie_node;
enum { ST_TRIE_NONE = 0xFFFFFF, ST_TRIE_DEPTH = 255 };

static inline uint32_t st_trie_token(st_trie_node n) {
  return n.token_byte >> 8;
}
static inline uint8_t st_trie_byte(st_trie_node n) {
  return (uint8_t)n.token_byte;
}
static inline uint32_t st_trie_size(st_trie_node n) {
  return n.size_depth >> 8;
}
static inline uint32_t st_trie_depth(st_trie_node n) {
  return n.size_depth & 255;
}

typedef struct st_trie_part {
  st_trie_node *nodes;
  size_t n;
} st_trie_part;

// Tokens of at most that many characters, all of them plain inside a JSON string: complete characters that are not
// quotes, backslashes or control characters.
enum { ST_SLICES = 3, ST_SLICE_SHORT = 10, ST_SLICE_MIDDLE = 30 };

typedef struct st_same {
  int32_t first, other; // tokens with the same bytes: the trie has the first
} st_same;

struct st_token_trie {
  const st_tokenizer *tokenizer;
  uint32_t size;            // tokens
  uint32_t most_characters; // the most in any plain token
  st_trie_part all;
  st_trie_part without[ST_SLICES]; // all tokens not in the slice
  uint32_t *slices[ST_SLICES];     // the slice's tokens, one bit each
  st_same *same;
  size_t n_same, same_capacity;
  int32_t *ends, *lengthy; // end tokens; tokens too long for the trie
  size_t n_ends, ends_capacity, n_lengthy, lengthy_capacity;
};

// The bytes that the token adds to a text; empty for tokens that are not matched by text.
setun_status st_token_bytes(const st_token_trie *t, int32_t token, const char **bytes, size_t *n, setun_error *err);

#endif
