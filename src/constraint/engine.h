// The parser of a constraint, for the files of this directory.
//
// A position in a text is a set of configurations. Each has a term, which is the state of the automaton that is
// reading, and a stack of frames that describes what follows. Stacks are hash-consed lists: stacks with equal ids are
// equal, so that copying a matcher or going back only copies ids. The parser runs only where a term may end; every
// other byte is a lookup in the term's row.
#ifndef SETUN_CONSTRAINT_ENGINE_H
#define SETUN_CONSTRAINT_ENGINE_H

#include "constraint/constraint.h"
#include "constraint/grammar_nodes.h"
#include "constraint/terms_table.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct st_config {
  st_term term;   // ST_TERM_OF_TOKENS: waits for the special token that the top frame names
  uint32_t stack; // id of its top frame
} st_config;
enum { ST_TERM_OF_TOKENS = UINT32_MAX, ST_STACK_ROOT = 0, ST_MARK_NONE = UINT32_MAX };
enum { ST_STACK_END = UINT32_MAX }; // with ST_TERM_EPSILON: the text may end

typedef enum st_frame_op {
  ST_FRAME_ROOT,
  ST_FRAME_NODES,     // b members from members[a] follow
  ST_FRAME_REPEAT,    // repeat of node a, b times so far
  ST_FRAME_CORNER,    // rule a was begun at its left corner, on the way to rule b
  ST_FRAME_PROGRESS,  // at least one byte must have been read since position a
  ST_FRAME_TOKENS,    // one of token set a
  ST_FRAME_MEMBER,    // object a in state b: a key, or the end; the object begins at position c
  ST_FRAME_VALUE,     // object a in state b
  ST_FRAME_SEPARATOR, // array a in state b: a separator of items, or the end
  ST_FRAME_ITEM,      // array a in state b, which begins at position c
  ST_FRAME_FREE,      // a: the next free one
} st_frame_op;

typedef struct st_frame {
  uint32_t op, a, b, c, parent;
} st_frame;

// What can follow a frame, computed once: configurations pool[offset, offset + n).
typedef struct st_memo {
  uint32_t stack, mark, position; // position: 0 where it does not matter
  uint32_t n;
  size_t offset;
} st_memo;

typedef struct st_state { // of an object or an array: words[offset, offset + n); without words: free, offset is the
                          // next
  uint32_t offset, n;
  st_term term; // what may follow a value or an item in this state
  bool has_term;
} st_state;

typedef struct st_work {
  uint32_t what, a, stack;
} st_work;

// A growing list of configurations.
typedef struct st_configs {
  st_config *items;
  size_t n, capacity;
} st_configs;

// For rules that begin with each other: an alternative, from the end of another such rule (its left corner) on, or from
// its own beginning. None of these is empty: empty rules are handled separately.
typedef struct st_production {
  st_rule rule;   // the rule with this alternative
  st_rule corner; // the rule that comes first, or ST_RULE_NONE
  st_node first;  // without a corner: the first node
  bool guarded;   // `first` can match the empty text, but must not do so here
  uint32_t rest;  // index into members: the nodes that follow
} st_production;
enum { ST_RULE_NONE = UINT32_MAX };

typedef struct st_rule_facts {
  bool nullable, productive, recursive_left;
  uint32_t component; // a group of rules that begin with each other
} st_rule_facts;

// A set of configurations as one state: its successor for each byte that was looked up so far, and its mask. Sets are
// dropped when they take too much memory.
typedef struct st_set {
  size_t offset;
  uint32_t n;
  uint32_t *row;  // 256 sets, or NULL
  uint32_t *mask; // or NULL
} st_set;
typedef struct st_sets {
  st_set *items;
  size_t n, capacity;
  st_configs configs;
  uint32_t *slots;
  size_t n_slots, kept; // bytes of rows and masks
} st_sets;
enum { ST_SET_UNKNOWN = UINT32_MAX, ST_SET_NONE = UINT32_MAX - 1 };

// Any text of at most `length` characters of these classes (trie.h) is a prefix of some text that a term matches.
typedef struct st_char_run {
  uint64_t classes;
  uint8_t length; // or ST_ANY_LENGTH
  bool exact;     // no longer text of plain characters is such a prefix, and the term does not end after one of these
} st_char_run;

// A node of a trie after whose byte a term may end.
typedef struct st_exit {
  uint32_t node;
  st_term term; // the state there
} st_exit;

// What is known about a term and the vocabulary, whatever follows the term (inside.c): the tokens all of whose bytes
// stay inside the term, and where others leave it. Both in the order of a part of the trie: of all tokens, or of
// those without a ready mask of tokens that all stay inside.
typedef struct st_inside {
  bool has_run, has_tokens, separable; // not separable: there are too many exits; nothing else is known
  uint8_t ready;                       // the ready mask, or 0
  int8_t slice;                        // the part's, or -1: all
  st_char_run run;
  uint32_t *bits;   // the tokens, or NULL:
  uint32_t *tokens; // as indices into the part's tokens
  uint32_t n_tokens, n_exits;
  st_exit *exits;
} st_inside;
typedef struct st_insides {
  st_inside *items;
  size_t n, capacity;
  uint32_t *of; // of each term: its item + 1, or 0
  size_t of_capacity;
  size_t kept; // bytes of tokens and exits
  // under construction
  uint32_t *tokens;
  st_exit *exits;
  size_t n_tokens, n_exits, tokens_capacity, exits_capacity;
} st_insides;

typedef struct st_engine {
  st_grammar *g; // simplified
  st_terms *t;
  st_constraint_limits limits;
  size_t counted; // bytes of the engine that are counted with the terms
  setun_error failure;
  st_rule_facts *rules;
  st_production *productions;
  size_t n_productions, productions_capacity;

  st_frame *frames;
  size_t n_frames, frames_capacity;
  bool *kept; // of each frame: a text reached it
  size_t kept_capacity;
  uint32_t *frame_slots;
  size_t n_frame_slots;
  uint32_t *words;
  size_t n_words, words_capacity;
  st_state *states;
  size_t n_states, states_capacity;
  uint32_t *state_slots;
  size_t n_state_slots;
  uint32_t free_frame, free_state; // the first of those that are free
  size_t n_free_frames, n_free_states;
  size_t trim_at; // how many frames or states there are before they are freed
  st_memo *memos; // open addressing; offset SIZE_MAX: free
  size_t n_memos, n_memo_slots;
  st_configs pool;

  // the closure being computed
  st_work *work;
  size_t n_work, work_capacity;
  uint64_t *visited; // stamps and hashes
  size_t n_visited;
  uint32_t stamp;
  uint32_t steps;   // of the mask being computed
  const char *text; // the text read so far: text[0, position)
  size_t position;
  bool uses_position, uses_text;
  // since they were last reset: did a result depend on the position, or on the text?
  bool walk_position, walk_text_now, walk_text;
  st_sets sets;
  st_insides insides;
} st_engine;

enum { ST_WORK_NODE, ST_WORK_RETURN, ST_WORK_GOAL };

// All of these store the first failure in e->failure, and do nothing after a failure.
bool st_engine_fail(st_engine *e, setun_status code, const char *message); // false
bool st_engine_reserve(st_engine *e, void *items, size_t *capacity, size_t need, size_t size);
bool st_engine_count(st_engine *e); // counts the engine's memory against its limit
uint32_t st_engine_frame(st_engine *e, st_frame frame);
uint32_t st_engine_state(st_engine *e, const uint32_t *words, uint32_t n); // id of an object's or array's state
void st_engine_keep(st_engine *e, const st_config *configs, size_t n);     // a matcher refers to them from now on
// Frees the frames and states to which no matcher refers when there are many. False: failed.
bool st_engine_trim_places(st_engine *e);
void st_engine_forget(st_engine *e); // drops the stored results of what follows frames
void st_engine_push(st_engine *e, uint32_t what, uint32_t a, uint32_t stack);
// Adds a configuration to the closure: what may follow it if the term may end, and the configuration itself if the term
// may continue.
void st_engine_emit(st_engine *e, st_configs *out, st_term term, uint32_t stack);
// Adds the beginnings of a node that the frame `stack` follows.
bool st_engine_begin(st_engine *e, st_node node, uint32_t stack, st_configs *out);
// Adds the configurations after one more byte (already text[position - 1]) of list[from, from + n), which may be `out`
// itself. False: failed.
bool st_engine_step(st_engine *e, const st_configs *list, size_t from, size_t n, uint8_t byte, st_configs *out);
// Adds the configurations after the end of a term that may end here.
void st_engine_leave(st_engine *e, st_term term, uint32_t stack, st_configs *out);
// Adds the configurations after a special token.
bool st_engine_token(st_engine *e, const st_configs *list, size_t from, size_t n, int32_t token, st_configs *out);
bool st_token_set_has(const st_token_set *set, int32_t token);
// Merges configurations with the same stack.
void st_engine_merge(st_engine *e, st_configs *configs, size_t base);
// The set of these configurations, and its row (sets.c).
bool st_engine_set(st_engine *e, const st_config *configs, size_t n, uint32_t *set);
uint32_t *st_engine_set_row(st_engine *e, uint32_t set);
void st_engine_keep_mask(st_engine *e, uint32_t set, const uint32_t *bits, size_t words);
void st_engine_trim_sets(st_engine *e); // drops the sets when there are too many
void st_engine_free_sets(st_engine *e);
size_t st_engine_bytes(const st_engine *e);
void st_engine_close(st_engine *e); // frees its memory and its grammar

// Objects and arrays (json_frames.c)
st_term st_object_colon(st_engine *e, bool bare, uint32_t mark); // what follows a key
void st_object_begin(st_engine *e, uint32_t object, uint32_t stack, st_configs *out);
void st_object_member(st_engine *e, st_frame frame, uint32_t mark);
void st_object_value(st_engine *e, st_frame frame, st_configs *out);
void st_array_begin(st_engine *e, uint32_t array, uint32_t stack, st_configs *out);
void st_array_separator(st_engine *e, st_frame frame, uint32_t mark, st_configs *out);
void st_array_item(st_engine *e, st_frame frame, st_configs *out);
// JSON values in text (json_values.c). A term for all spellings of the scalar (of numbers other than 0, those without
// exponents); ST_TERM_EMPTY: it is not a scalar, or too long a number.
st_term st_scalar_term(st_terms *t, const char *text, size_t n);
// Does the array's text[start, end) (from after its bracket to its last item's end) end with an item that is equal to
// an earlier one? -1: out of memory.
int st_last_item_repeats(const char *text, size_t n);

// Compiling (compile.c, productions.c)
setun_status st_engine_open(st_engine *e, st_grammar *g, setun_error *err);
bool st_node_is_nullable(const st_engine *e, st_node node);
setun_status st_engine_productions(st_engine *e, setun_error *err);

struct st_constraint {
  atomic_uint references;
  pthread_mutex_t lock; // of all that follows, which is filled as results are needed
  st_engine engine;
  const st_token_trie *trie;
  st_configs start;
};

// The run that the term allows: which classes of characters, and how many of them (runs.c).
st_char_run st_constraint_run(st_constraint *c, st_term term);
// The term for a language of which `term` excludes a few texts: `term` without these complements, also those in the
// first part of a sequence. Other terms are returned unchanged.
st_term st_term_with_few(st_terms *t, st_term term);
// The largest ready mask whose tokens may all come in the run; -1: none.
int st_run_slice(const st_token_trie *trie, st_char_run run);
// The part of the trie that it refers to.
const struct st_trie_part *st_inside_part(const st_token_trie *trie, const st_inside *inside);
// The item of a term; NULL: failed. It moves when others are added.
st_inside *st_constraint_item(st_constraint *c, st_term term);
// The same with its tokens and exits computed.
const st_inside *st_constraint_inside(st_constraint *c, st_term term);
void st_engine_free_insides(st_engine *e);
void st_engine_trim_insides(st_engine *e); // drops them when they take too much memory
size_t st_insides_bytes(const st_insides *s);

// The position of a matcher before a step.
typedef struct st_matcher_step {
  size_t configs, length; // where its configurations begin; the length of its text
  bool ended;
} st_matcher_step;

struct st_matcher {
  st_constraint *c;
  st_configs configs;     // of all steps so far
  st_matcher_step *steps; // the last one is the current position
  size_t n_steps, steps_capacity;
  char *text; // the accepted text, with room for one more token
  size_t length, text_capacity;
  st_configs walk;
};

// Makes room for that many more bytes of text.
setun_status st_matcher_room(st_matcher *m, size_t n, setun_error *err);
// The first failure of the matcher's engine.
setun_status st_constraint_status(const st_constraint *c, setun_error *err);
static inline const st_config *st_matcher_now(const st_matcher *m, size_t *n) {
  size_t from = m->steps[m->n_steps - 1].configs;
  *n = m->configs.n - from;
  return m->configs.items + from;
}

#endif
