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

// What is below a node: the classes of the characters there, a bit each, with ST_TRIE_BETWEEN if the node itself ends a
// character; the longest way down in bytes; and the tokens that begin with its bytes: tokens[first, first + n) of the
// part.
typedef struct st_trie_below {
  uint64_t classes;
  uint32_t first, n_height; // n << 8 | height
} st_trie_below;
static const uint64_t ST_TRIE_BETWEEN = (uint64_t)1 << 63;
static inline uint32_t st_trie_count(st_trie_below b) {
  return b.n_height >> 8;
}
static inline uint32_t st_trie_height(st_trie_below b) {
  return b.n_height & 255;
}

// Classes of characters: ranges of ASCII that expressions often distinguish, each other ASCII character alone, the
// others by their first bytes (the last one of a token may be incomplete), and bytes that are not UTF-8.
enum { ST_ASCII_CLASSES = 45, ST_CLASSES = 56, ST_CLASS_BROKEN = 56, ST_ANY_LENGTH = 255 };
typedef struct st_byte_range {
  uint8_t first, last;
} st_byte_range;
extern const st_byte_range ST_CLASS_BYTES[ST_CLASSES];
static inline uint64_t st_class_bit(int class) {
  return (uint64_t)1 << class;
}

// UTF-8 as moves between states, 0 being the state between characters.
typedef struct st_utf8_move {
  uint8_t from, first, last, to;
} st_utf8_move;
enum { ST_UTF8_MOVES = 15 }; // those of characters outside ASCII
extern const st_utf8_move ST_UTF8_WIDE[ST_UTF8_MOVES];

typedef struct st_trie_part {
  st_trie_node *nodes;
  st_trie_below *below; // of each node
  int32_t *tokens;      // in the nodes' order
  size_t n, n_tokens;
} st_trie_part;

// Tokens of at most that many characters, all of them plain inside a JSON string: not quotes, backslashes or control
// characters. The last one may be incomplete.
enum { ST_SLICES = 3, ST_SLICE_SHORT = 10, ST_SLICE_MIDDLE = 30, ST_READY_ALL = ST_SLICE_MIDDLE + 1 };

typedef struct st_same {
  int32_t first, other; // tokens with the same bytes: the trie has the first
} st_same;

struct st_token_trie {
  const st_tokenizer *tokenizer;
  uint32_t size;            // tokens
  uint32_t most_characters; // the most in any plain token
  uint32_t most_bytes;      // the most in any token of the trie
  st_trie_part all;
  st_trie_part without[ST_SLICES];   // all tokens not in the slice
  uint32_t *ready[ST_READY_ALL + 1]; // the plain tokens of at most i characters, one bit each; ST_READY_ALL: all
  uint64_t plain;                    // the classes of their characters
  uint8_t classes[256];              // of each first byte of a character, or ST_CLASS_BROKEN
  st_same *same;
  size_t n_same, same_capacity;
  int32_t *ends, *lengthy; // end tokens; tokens too long for the trie
  size_t n_ends, ends_capacity, n_lengthy, lengthy_capacity;
};

static inline void st_set_bit(uint32_t *bits, int32_t token) {
  bits[(uint32_t)token / 32] |= 1u << (uint32_t)token % 32;
}

// The bytes that the token adds to a text; empty for tokens that are not matched by text.
setun_status st_token_bytes(const st_token_trie *t, int32_t token, const char **bytes, size_t *n, setun_error *err);

#endif
