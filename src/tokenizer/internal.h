// Shared by the tokenizer's parts: the tokenizer itself, and the state of one encoding.
#ifndef SETUN_TOKENIZER_INTERNAL_H
#define SETUN_TOKENIZER_INTERNAL_H

#include "base/buffer.h"
#include "tokenizer/tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum {
  ST_MAX_STEPS = 32,             // normalization steps, pre-tokenization stages, decoder steps: the most of each
  ST_MAX_TOKENS = 1 << 24,       // ids are below this
  ST_MAX_MERGES = 1 << 25,       // ranks are below this
  ST_MAX_TOKEN_LENGTH = 1 << 20, // bytes of one token's text
  ST_MAX_PATTERN = 1 << 16       // bytes of one regular expression
};

#define ST_SPACE_MARK "\xE2\x96\x81" // U+2581, SentencePiece's visible space

typedef struct st_bytes {
  const char *data;
  uint32_t length;
} st_bytes;

// ---- arena: strings that live as long as the tokenizer ----

typedef struct st_block st_block;
typedef struct st_arena {
  st_block *blocks;
} st_arena;

char *st_arena_take(st_arena *a, size_t size); // NULL: out of memory
char *st_arena_copy(st_arena *a, const char *bytes, size_t length);

// ---- trie.c: byte strings to ids, walked byte by byte ----

typedef struct st_trie st_trie;
st_trie *st_trie_new(size_t total_bytes); // room for strings of that many bytes in total
void st_trie_free(st_trie *t);
bool st_trie_add(st_trie *t, const char *key, size_t length, int32_t id); // a later id replaces an earlier one
// From `node` (0: the root) along `byte`: the next node, or 0.
uint32_t st_trie_step(const st_trie *t, uint32_t node, unsigned char byte);
int32_t st_trie_id(const st_trie *t, uint32_t node); // -1: no string ends here
// The longest string that begins the text: its id and *matched bytes, or -1.
int32_t st_trie_longest(const st_trie *t, const char *text, size_t length, size_t *matched);

// ---- regex.c: the patterns of tokenizer.json in PCRE2 ----

typedef struct st_regex st_regex;
// Compiles a pattern written for Oniguruma (as tokenizer.json's are), translating what PCRE2 reads differently.
setun_status st_regex_new(const char *pattern, size_t length, st_regex **regex, setun_error *err);
// The pattern is plain text.
setun_status st_regex_new_literal(const char *text, size_t length, st_regex **regex, setun_error *err);
void st_regex_free(st_regex *r);

// What matching needs in addition to the pattern: one per thread.
typedef struct st_pattern_matcher {
  pcre2_match_data *data;
  pcre2_match_context *context;
  pcre2_jit_stack *stack;
} st_pattern_matcher;

void st_pattern_matcher_free(st_pattern_matcher *m);
// The first match at or after `from`: *found, *start, *end. Limits reached are errors, never a silent "no match".
setun_status st_regex_match(const st_regex *r, st_pattern_matcher *m, const char *text, size_t length, size_t from,
                            bool *found, size_t *start, size_t *end, setun_error *err);

// ---- charsmap.c: SentencePiece's compiled character map ----

typedef struct st_charsmap {
  const uint32_t *units; // of the double array, in the arena
  uint32_t n_units;      // 0: there is no map
  st_bytes replacements; // texts that each end with a 0 byte
} st_charsmap;

// Copies the map into the tokenizer's arena, and checks every entry that a text can reach.
setun_status st_charsmap_read(st_tokenizer *t, const char *bytes, size_t length, st_charsmap *map, setun_error *err);
// The longest (or the shortest) entry that the text begins with: its replacement, and how many bytes it covers. False:
// there is none.
bool st_charsmap_find(const st_charsmap *map, bool longest, const char *text, size_t n, size_t *covered, st_bytes *to);

// ---- normalize.c ----

typedef enum st_normalize_kind {
  ST_NORMALIZE_NFC,
  ST_NORMALIZE_NFD,
  ST_NORMALIZE_NFKC,
  ST_NORMALIZE_NFKD,
  ST_NORMALIZE_LOWERCASE,
  ST_NORMALIZE_STRIP,        // white space at the ends; `left`, `right`
  ST_NORMALIZE_PREPEND,      // `text`, unless the text is empty
  ST_NORMALIZE_REPLACE,      // `from` or `regex` by `text`
  ST_NORMALIZE_PRECOMPILED,  // `map`, a grapheme cluster at a time
  ST_NORMALIZE_SENTENCEPIECE // charsmap, white space and dummy prefix as in SentencePiece
} st_normalize_kind;

typedef struct st_normalize_step {
  st_normalize_kind kind;
  bool left, right;
  st_bytes from, text;
  st_regex *regex;
  const st_charsmap *map; // in the arena
} st_normalize_step;

// SentencePiece's normalizer_spec.
typedef struct st_sp_normalizer {
  st_charsmap map;
  bool dummy_prefix, remove_extra, escape;
} st_sp_normalizer;

typedef struct st_encoder st_encoder;
// Runs the tokenizer's steps over a text. *out is the text itself where nothing changes, else one of the encoder's
// buffers, valid until the next call.
setun_status st_normalize(st_encoder *e, const char *text, size_t length, const char **out, size_t *out_length);

// ---- pretokenize.c ----

// The treatment of the matches of a split, named as in tokenizer.json.
typedef enum st_split_behavior {
  ST_SPLIT_REMOVED,
  ST_SPLIT_ISOLATED,
  ST_SPLIT_MERGED_WITH_PREVIOUS,
  ST_SPLIT_MERGED_WITH_NEXT,
  ST_SPLIT_CONTIGUOUS
} st_split_behavior;

typedef enum st_stage_kind {
  ST_STAGE_SPLIT,        // by `regex`
  ST_STAGE_PREFIX_SPACE, // a space before a piece that has none
  ST_STAGE_METASPACE,    // spaces to `text`, and a prefix as `prepend` says
  ST_STAGE_BYTES         // bytes to their printable form, where a later stage must see that
} st_stage_kind;

typedef enum st_prepend { ST_PREPEND_NEVER, ST_PREPEND_FIRST, ST_PREPEND_ALWAYS } st_prepend;

typedef struct st_stage {
  st_stage_kind kind;
  st_split_behavior behavior;
  bool invert;
  st_prepend prepend;
  st_bytes text;
  st_bytes pattern; // the regular expression as it was given, in the arena; data NULL: plain text
  st_regex *regex;
} st_stage;

// Adds stages to a tokenizer.
setun_status st_stage_add_split(st_tokenizer *t, const char *pattern, st_split_behavior behavior, bool invert,
                                setun_error *err);
// The same with a compiled expression, which it becomes the owner of, also on failure. `pattern`, its text, is kept for
// exporting the tokenizer; NULL: it was made from plain text.
setun_status st_stage_add_regex(st_tokenizer *t, st_regex *regex, const char *pattern, st_split_behavior behavior,
                                bool invert, setun_error *err);
st_stage *st_stage_add(st_tokenizer *t, st_stage_kind kind, setun_error *err); // NULL: too many
// Splits a piece into words and passes each to the model. `first`: the piece begins the text.
setun_status st_pretokenize(st_encoder *e, const char *text, size_t length, bool first);

void st_pretokenize_prepare(st_tokenizer *t); // after all stages have been added

// ---- patterns.c ----

// The alphabet of a vocabulary's texts.
typedef enum st_alphabet {
  ST_ALPHABET_BYTES, // the printable form of bytes
  ST_ALPHABET_MARKS, // characters, with U+2581 for a space; missing ones become byte tokens
  ST_ALPHABET_WORDS  // characters, without spaces: text that no pattern matches is dropped
} st_alphabet;

// A row of the table of published pre-tokenizers.
typedef struct st_pretokenizer {
  const char *name;
  const char *patterns[8]; // applied one after the other, each to the pieces of the one before
  bool ignore_merges, add_bos;
  st_alphabet alphabet;
} st_pretokenizer;

extern const char ST_PATTERN_GPT2[];
const st_pretokenizer *st_pretokenizer_find(const char *name); // NULL: unknown
// The row with a byte-level tokenizer's stages; NULL: none.
const st_pretokenizer *st_pretokenizer_of(const st_tokenizer *t);
// Sets the tokenizer up with a row's patterns; an unknown name is an error that gives it.
setun_status st_pretokenizer_apply(st_tokenizer *t, const char *name, setun_error *err);

// ---- bytes.c: the printable form of bytes in byte-level vocabularies ----

extern const uint16_t st_byte_to_char[256]; // the code point for a byte
// Writes the printable form of `n` bytes to `out`, which holds 2n; returns its length.
size_t st_bytes_print(const char *bytes, size_t n, char *out);
// Reads the printable form back into `out`, which holds n; SIZE_MAX if a character is not a byte's.
size_t st_bytes_read(const char *text, size_t n, char *out);
int st_byte_token(const char *text, size_t length); // "<0x0A>": 10; -1 for anything else

// ---- special.c: tokens cut out of a text before anything else ----

enum {
  ST_ADDED_LSTRIP = 1,      // includes the white space before it
  ST_ADDED_RSTRIP = 2,      // and after it
  ST_ADDED_SINGLE_WORD = 4, // only where no word character touches it
  ST_ADDED_GUARDED = 8,     // a control token: found only if requested
  ST_ADDED_NORMALIZED = 16, // found in the normalized text instead of the raw one
  ST_PIECE_MARKED = 32      // decoded, its first character represents a space (see strip_marked)
};

typedef struct st_added {
  st_trie *trie;        // NULL: no tokens to find
  const uint8_t *flags; // the tokenizer's, by id
  bool first[256];      // whether any token begins with this byte
} st_added;

// The next added token at or after `from`: false when there is none.
bool st_added_next(const st_added *a, const char *text, size_t length, size_t from, size_t *start, size_t *end,
                   int32_t *id);
// The same, but control tokens are found only outside the guarded parts, which are in ascending order. `all` has the
// control tokens, too; `plain` has only the tokens that are found in any text.
bool st_added_next_guarded(const st_added *all, const st_added *plain, const char *text, size_t length, size_t from,
                           const setun_span *guards, size_t n, size_t *start, size_t *end, int32_t *id);

// ---- the tokenizer ----

typedef enum st_model_kind { ST_MODEL_BPE, ST_MODEL_SCORES, ST_MODEL_UNIGRAM } st_model_kind;

// Merges: (left, right) -> (rank, merged), open addressing.
typedef struct st_merge {
  uint32_t left, right; // left UINT32_MAX: the slot is free
  uint32_t rank, merged;
} st_merge;

// The merge of two bytes.
typedef struct st_byte_pair {
  uint32_t rank, merged; // rank UINT32_MAX: there is none
} st_byte_pair;

typedef enum st_decode_kind {
  ST_DECODE_REPLACE,     // `from` by `text` in each token
  ST_DECODE_STRIP_TOKEN, // up to `count` of `from` (one character) at each token's start, `stop` at its end
  ST_DECODE_BYTE_LEVEL,
  ST_DECODE_BYTE_FALLBACK
} st_decode_kind;

typedef struct st_decode_step {
  st_decode_kind kind;
  st_bytes from, text;
  uint32_t count, stop;
} st_decode_step;

struct st_tokenizer {
  st_model_kind model;
  uint32_t size;
  st_bytes *texts;  // by id, as the vocabulary spells them; data NULL: the id is not used
  st_bytes *pieces; // by id, their bytes
  uint8_t *types;   // by id, st_token_type
  uint8_t *flags;   // by id, ST_ADDED_*
  uint8_t *ends;    // by id, 1: ends a text
  uint8_t *outside; // by id, 1: an added token that the model's own vocabulary lacks; NULL: none
  float *scores;    // by id; NULL for BPE by ranks
  uint32_t *ranks;  // by id, for BPE by scores: 0 for the best score, equal for equal scores
  st_map *ids;      // text to id
  st_arena arena;
  int32_t bos, eos, unk;
  int32_t text_unk; // replaces text without a token; -1: such text is dropped
  bool add_bos, add_eos;
  int32_t suffix; // 1 + the token that ends texts instead of EOS, from a template; 0: EOS

  // BPE
  st_merge *merges;
  size_t merge_mask, n_merges;
  uint8_t *merge_filter; // bits by a pair's hash: 0: no such merge
  size_t filter_mask;
  st_byte_pair *byte_pairs; // [left << 8 | right] in a byte-level vocabulary, else NULL
  bool byte_level, ignore_merges, byte_fallback, fuse_unk;
  int32_t byte_ids[256]; // by byte: its token in a byte-level vocabulary, or the byte token; -1: none
  uint8_t *seams;        // a bit for each pair (of bytes, or hashed, of characters) that is adjacent in some token
  size_t max_length;     // of a token's text, in bytes

  // Unigram
  st_trie *trie;
  double *log_probs; // by id
  double unk_score;
  bool sentencepiece; // made from tokenizer.model: sums in single precision, unused pieces are skipped

  st_normalize_step normalizers[ST_MAX_STEPS];
  size_t n_normalizers;
  st_sp_normalizer sp;
  st_stage stages[ST_MAX_STEPS];
  size_t n_stages;
  size_t first_cached;                        // the stage from which on all are splits
  bool bytes_stage;                           // ST_STAGE_BYTES is among them: words arrive in printable form
  st_added added_raw[2], added_normalized[2]; // [special]
  st_added protected;                         // pieces that SentencePiece's normalizer does not change
  st_decode_step decoders[ST_MAX_STEPS];
  size_t n_decoders;
  char strip[8]; // stripped from a text's beginning: this character, at most `strip_count` times
  uint32_t strip_count;
  st_bytes mark;     // with strip_marked: how the vocabulary spells it
  bool strip_marked; // only what the vocabulary spells as a mark is stripped, no space of an added token
  bool plain_added;  // added tokens decode to their text: the decoder's steps do not apply to them
};

// ---- tokenizer.c: making one ----

setun_status st_tokenizer_new(uint32_t size, st_tokenizer **t, setun_error *err);
// Copies the text. An empty one, one of more than ST_MAX_TOKEN_LENGTH bytes, or an id set twice is an error.
setun_status st_tokenizer_set(st_tokenizer *t, uint32_t id, const char *text, size_t length, st_token_type type,
                              setun_error *err);
setun_status st_tokenizer_index(st_tokenizer *t, setun_error *err); // text to id; a text that occurs twice is an error
// The id of the token with this text that the model may produce from plain text; -1: none.
int32_t st_tokenizer_plain(const st_tokenizer *t, const char *text, size_t length);
// Computes everything that is derived from the parts: byte ids, pieces, added tokens, ends. Called last.
setun_status st_tokenizer_finish(st_tokenizer *t, setun_error *err);
setun_status st_tokenizer_build_pieces(st_tokenizer *t, uint32_t from, setun_error *err); // decode.c: ids `from` on
setun_status st_tokenizer_build_added(st_tokenizer *t, setun_error *err);                 // special.c: anew
setun_status st_tokenizer_build_protected(st_tokenizer *t, setun_error *err);
// Makes room for ids below `size`; the new ones are not used yet.
setun_status st_tokenizer_grow(st_tokenizer *t, uint32_t size, setun_error *err);
// Makes tokens of a GGUF vocabulary that look like the end of a text control tokens, whatever their type.
void st_tokenizer_guard_ends(st_tokenizer *t);
void st_tokenizer_find_ends(st_tokenizer *t); // marks EOS and the control tokens that are known to end texts
// "token 17 (\"abc\")" for messages, in `out`.
const char *st_token_label(const st_tokenizer *t, uint32_t id, char out[64]);

// ---- bpe.c ----

setun_status st_merges_reserve(st_tokenizer *t, size_t count, setun_error *err);
// The merge of two texts, with its rank.
typedef struct st_merge_row {
  st_text left, right;
  size_t index;
} st_merge_row;

enum { ST_MERGE_ROWS = 16 };

// Adds at most ST_MERGE_ROWS merges; tokens that the vocabulary lacks are an error. Of repeated merges the first one is
// used, with `replace` the last.
setun_status st_merges_add(st_tokenizer *t, const st_merge_row *rows, size_t n, bool replace, setun_error *err);
setun_status st_merges_pair_bytes(st_tokenizer *t, setun_error *err); // makes the table of the merges of bytes
setun_status st_bpe_prepare(st_tokenizer *t, setun_error *err);
setun_status st_bpe_word(st_encoder *e, const char *text, size_t length);

// ---- unigram.c ----

setun_status st_unigram_prepare(st_tokenizer *t, setun_error *err);
setun_status st_unigram_word(st_encoder *e, const char *text, size_t length);

// ---- encode.c: one encoding ----

typedef struct st_symbol {
  uint32_t start, length; // in the word
  int32_t id;             // -1: no token
  uint32_t prev, next;    // UINT32_MAX: none
  uint32_t rank, merged;  // of the pair with the next; rank UINT32_MAX: none
} st_symbol;

// bpe_merge.c: the tokens of a window into a long word.
typedef struct st_bpe_window_token {
  size_t start; // in the word
  uint32_t length;
  int32_t id; // -1: no token
} st_bpe_window_token;

typedef struct st_bpe_window {
  st_bpe_window_token *tokens;
  size_t n, capacity;
  size_t end; // of the last one
} st_bpe_window;

// bpe_queue.c: the pairs of a long word, best rank first and then by position.
typedef struct st_bpe_queue_item {
  uint32_t rank, at;
} st_bpe_queue_item;

typedef struct st_bpe_heap {
  st_bpe_queue_item *items;
  size_t n, capacity;
} st_bpe_heap;

typedef struct st_bpe_queue_group {
  uint32_t rank; // UINT32_MAX: the slot is free
  uint32_t head, tail;
  bool sorted;
} st_bpe_queue_group;

typedef struct st_bpe_queue_node {
  uint32_t at, next;
} st_bpe_queue_node;

typedef struct st_bpe_queue {
  st_bpe_queue_group *groups; // by rank, open addressing
  size_t group_mask, n_groups;
  st_bpe_queue_node *nodes;
  size_t nodes_capacity, n_nodes;
  st_bpe_heap ranks;  // of the waiting groups, each at position 0
  st_bpe_heap urgent; // new items with a rank no worse than the current one's
  uint32_t *order;    // for sorting a group
  size_t order_capacity;
  bool open; // the current group: its rank and position
  uint32_t rank, cursor;
} st_bpe_queue;

void st_bpe_queue_free(st_bpe_queue *q);
bool st_bpe_queue_reset(st_bpe_queue *q);
bool st_bpe_queue_push(st_bpe_queue *q, uint32_t rank, uint32_t at); // false: out of memory
// The best item: *found says whether there is one. False: out of memory.
bool st_bpe_queue_pop(st_bpe_queue *q, st_bpe_queue_item *item, bool *found);

typedef struct st_cached {
  uint64_t hash;   // 0: free
  size_t key, ids; // the text's place in `keys`, and its ids' in the output
  uint32_t n;
  uint16_t length, kind;
} st_cached;

struct st_encoder {
  const st_tokenizer *t;
  st_token_list *out;
  setun_error *err;
  st_pattern_matcher matcher;
  bool raw_space;                // the text to normalize begins with white space
  bool shifted;                  // the last normalization removed something from the beginning
  st_buffer normal[2];           // normalization writes from one to the other
  st_buffer stage[ST_MAX_STEPS]; // text that a pre-tokenization stage changed
  st_buffer print;               // a word's printable form, or read back from it
  st_cached *cache;
  size_t cache_mask;
  bool in_piece; // the ids of a piece are being computed, for the cache
  size_t unk_at; // the output's length if this word's last token was the unknown token
  st_buffer keys;
  st_symbol *symbols;
  size_t symbols_capacity;
  st_bpe_window windows[2];
  st_bpe_queue queue;
  void *lattice;
  size_t lattice_capacity;
};

// cache.c: texts of up to ST_MAX_CACHED bytes and their ids, which depend on nothing but text and kind.
enum {
  ST_MAX_CACHED = 128,
  ST_CACHE_PART = 0, // merged
  ST_CACHE_WORD = 1, // the same, unless it is a token itself
  ST_CACHE_STAGE = 2 // before stage 0 of pre-tokenization; before the others, higher numbers
};

setun_status st_cache_make(st_encoder *e, size_t length); // for a text of that many bytes; its size is bounded
// The slot that holds the text (*found), or the free slot for it; valid until the next st_cache_find or _keep.
st_cached *st_cache_find(st_encoder *e, const char *text, size_t length, unsigned kind, bool *found);
setun_status st_cache_emit(st_encoder *e, const st_cached *c);
// Stores the output from the position `ids` on.
setun_status st_cache_keep(st_encoder *e, st_cached *slot, const char *text, size_t length, unsigned kind, size_t ids);

setun_status st_encoder_emit(st_encoder *e, int32_t id);
void st_encoder_free(st_encoder *e); // frees its buffers, not the struct

#endif
