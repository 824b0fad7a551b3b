// Builds the trie of a vocabulary.
#include "constraint/trie.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

typedef struct st_spelled {
  const char *bytes;
  size_t n;
  int32_t token;
  uint32_t characters; // number of plain characters; UINT32_MAX: some are not plain
} st_spelled;

setun_status st_token_bytes(const st_token_trie *t, int32_t token, const char **bytes, size_t *n, setun_error *err) {
  st_token_type type = st_tokenizer_type(t->tokenizer, token);
  bool text = type == ST_TOKEN_NORMAL || type == ST_TOKEN_USER_DEFINED || type == ST_TOKEN_BYTE;
  *bytes = "";
  *n = 0;
  if (!text || st_tokenizer_is_end(t->tokenizer, token) || !st_tokenizer_has_text(t->tokenizer, token)) return SETUN_OK;
  return st_tokenizer_piece(t->tokenizer, token, false, bytes, n, err);
}

const st_byte_range ST_CLASS_BYTES[ST_CLASSES] = {
    {0x00, 0x08}, {'\t', '\t'}, {'\n', '\n'}, {0x0B, 0x0C}, {'\r', '\r'}, {0x0E, 0x1F}, {' ', ' '},   {'!', '!'},
    {'"', '"'},   {'#', '#'},   {'$', '$'},   {'%', '%'},   {'&', '&'},   {'\'', '\''}, {'(', '('},   {')', ')'},
    {'*', '*'},   {'+', '+'},   {',', ','},   {'-', '-'},   {'.', '.'},   {'/', '/'},   {'0', '9'},   {':', ':'},
    {';', ';'},   {'<', '<'},   {'=', '='},   {'>', '>'},   {'?', '?'},   {'@', '@'},   {'A', 'F'},   {'G', 'Z'},
    {'[', '['},   {'\\', '\\'}, {']', ']'},   {'^', '^'},   {'_', '_'},   {'`', '`'},   {'a', 'f'},   {'g', 'z'},
    {'{', '{'},   {'|', '|'},   {'}', '}'},   {'~', '~'},   {0x7F, 0x7F}, {0xC2, 0xC2}, {0xC3, 0xDF}, {0xE0, 0xE0},
    {0xE1, 0xE1}, {0xE2, 0xE2}, {0xE3, 0xE3}, {0xE4, 0xEC}, {0xED, 0xED}, {0xEE, 0xEE}, {0xEF, 0xEF}, {0xF0, 0xF4},
};
const st_utf8_move ST_UTF8_WIDE[ST_UTF8_MOVES] = {
    {0, 0xC2, 0xDF, 1}, {0, 0xE0, 0xE0, 2}, {0, 0xE1, 0xEC, 3}, {0, 0xED, 0xED, 4}, {0, 0xEE, 0xEF, 3},
    {0, 0xF0, 0xF0, 5}, {0, 0xF1, 0xF3, 6}, {0, 0xF4, 0xF4, 7}, {1, 0x80, 0xBF, 0}, {2, 0xA0, 0xBF, 1},
    {3, 0x80, 0xBF, 1}, {4, 0x80, 0x9F, 1}, {5, 0x90, 0xBF, 3}, {6, 0x80, 0xBF, 3}, {7, 0x80, 0x8F, 3},
};
enum { BROKEN = 255 }; // not UTF-8

static uint8_t utf8_after(uint8_t state, uint8_t byte) {
  if (state == 0 && byte < 0x80) return 0;
  for (int i = 0; i < ST_UTF8_MOVES; i++) {
    const st_utf8_move *m = &ST_UTF8_WIDE[i];
    if (m->from == state && m->first <= byte && byte <= m->last) return m->to;
  }
  return BROKEN;
}

static uint32_t plain_characters(const char *s, size_t n) {
  uint32_t count = 0;
  uint8_t state = 0;
  for (size_t i = 0; i < n; i++) {
    uint8_t byte = (uint8_t)s[i];
    count += state == 0;
    state = utf8_after(state, byte);
    if (byte < 0x20 || byte == '"' || byte == '\\' || byte == 0x7F || state == BROKEN) return UINT32_MAX;
  }
  return count;
}

static int compare_spelled(const void *a, const void *b) {
  const st_spelled *x = a, *y = b;
  size_t n = x->n < y->n ? x->n : y->n;
  int c = memcmp(x->bytes, y->bytes, n);
  if (c) return c;
  if (x->n != y->n) return x->n < y->n ? -1 : 1;
  return (x->token > y->token) - (x->token < y->token);
}

static bool add_id(int32_t **ids, size_t *n, size_t *capacity, int32_t id) {
  if (!st_reserve(ids, capacity, *n + 1, sizeof **ids)) return false;
  (*ids)[(*n)++] = id;
  return true;
}

// Collects all tokens with text, sorted.
static setun_status list_tokens(st_token_trie *t, st_spelled **out, size_t *n_out, setun_error *err) {
  st_spelled *list = st_malloc(t->size, sizeof *list);
  if (!list) return st_fail_memory(err, "the trie of a vocabulary");
  size_t n = 0;
  for (uint32_t i = 0; i < t->size; i++) {
    st_spelled s = {.token = (int32_t)i};
    setun_status status = st_token_bytes(t, s.token, &s.bytes, &s.n, err);
    bool fits = true;
    if (!status && st_tokenizer_is_end(t->tokenizer, s.token)) {
      fits = add_id(&t->ends, &t->n_ends, &t->ends_capacity, s.token);
    } else if (!status && s.n > ST_TRIE_DEPTH) {
      fits = add_id(&t->lengthy, &t->n_lengthy, &t->lengthy_capacity, s.token);
    } else if (!status && s.n) {
      if (s.n > t->most_bytes) t->most_bytes = (uint32_t)s.n;
      s.characters = plain_characters(s.bytes, s.n);
      if (s.characters != UINT32_MAX && s.characters > t->most_characters) t->most_characters = s.characters;
      list[n++] = s;
    }
    if (!fits) status = st_fail_memory(err, "the trie of a vocabulary");
    if (status) {
      st_free(list);
      return status;
    }
  }
  if (n) qsort(list, n, sizeof *list, compare_spelled);
  *out = list;
  *n_out = n;
  return SETUN_OK;
}

// Does the token belong to this part: to all tokens, or to those that are not in a slice?
static bool in_part(const st_spelled *s, uint32_t most) {
  return !most || s->characters > most;
}

// The trie of the sorted tokens with more than `most` plain characters or with other characters (0: of all tokens).
static bool make_part(st_token_trie *t, const st_spelled *list, size_t n, uint32_t most, st_trie_part *part) {
  uint32_t open[ST_TRIE_DEPTH + 1]; // the nodes of the last token, by depth
  size_t depth = 0, capacity = 0;
  const st_spelled *last = NULL;
  for (size_t i = 0; i <= n; i++) {
    const st_spelled *s = i < n ? &list[i] : NULL;
    if (s && !in_part(s, most)) continue;
    size_t common = 0;
    while (s && last && common < s->n && common < last->n && s->bytes[common] == last->bytes[common]) common++;
    if (s && last && common == s->n && common == last->n) {
      if (most) continue; // `same` was filled with the whole trie
      if (!st_reserve(&t->same, &t->same_capacity, t->n_same + 1, sizeof *t->same)) return false;
      t->same[t->n_same++] = (st_same){last->token, s->token};
      continue;
    }
    for (; depth > common; depth--) {
      st_trie_node *node = &part->nodes[open[depth]];
      node->size_depth = (uint32_t)(part->n - open[depth]) << 8 | (uint32_t)depth;
    }
    if (!s) break;
    if (part->n + s->n > ST_TRIE_NONE || !st_reserve(&part->nodes, &capacity, part->n + s->n, sizeof *part->nodes)) {
      return false;
    }
    while (depth < s->n) {
      uint32_t token = depth + 1 == s->n ? (uint32_t)s->token : ST_TRIE_NONE;
      open[++depth] = (uint32_t)part->n;
      part->nodes[part->n++] = (st_trie_node){token << 8 | (uint8_t)s->bytes[depth - 1], 0};
    }
    last = s;
  }
  return true;
}

// The class of each byte that begins a character, and the classes of plain string text.
static void make_classes(st_token_trie *t) {
  memset(t->classes, ST_CLASS_BROKEN, sizeof t->classes);
  for (int class = 0; class < ST_CLASSES; class ++) {
    st_byte_range range = ST_CLASS_BYTES[class];
    for (unsigned byte = range.first; byte <= range.last; byte++) t->classes[byte] = (uint8_t) class;
    bool plain = range.first >= 0x20 && range.first != '"' && range.first != '\\' && range.first != 0x7F;
    if (plain) t->plain |= st_class_bit(class);
  }
}

// Fills the part's list of tokens, and the class of each node's character.
static void classify(const st_token_trie *t, st_trie_part *part) {
  uint8_t states[ST_TRIE_DEPTH + 1] = {0}, classes[ST_TRIE_DEPTH + 1] = {0}; // by depth
  for (size_t i = 0; i < part->n; i++) {
    st_trie_node node = part->nodes[i];
    uint32_t depth = st_trie_depth(node);
    uint8_t byte = st_trie_byte(node), before = states[depth - 1];
    states[depth] = before == BROKEN ? before : utf8_after(before, byte);
    classes[depth] = states[depth] == BROKEN ? ST_CLASS_BROKEN : before ? classes[depth - 1] : t->classes[byte];
    uint64_t class = st_class_bit(classes[depth]) | (states[depth] ? 0 : ST_TRIE_BETWEEN);
    part->below[i] = (st_trie_below){class, (uint32_t)part->n_tokens, 0};
    if (st_trie_token(node) != ST_TRIE_NONE) part->tokens[part->n_tokens++] = (int32_t)st_trie_token(node);
  }
}

// Fills what is below each node.
static bool make_below(const st_token_trie *t, st_trie_part *part) {
  typedef struct {
    uint64_t classes;
    uint32_t height;
  } st_children;
  part->below = st_malloc(part->n ? part->n : 1, sizeof *part->below);
  part->tokens = st_malloc(part->n ? part->n : 1, sizeof *part->tokens);
  if (!part->below || !part->tokens) return false;
  classify(t, part);
  st_children children[ST_TRIE_DEPTH + 2] = {{0}}; // at each depth, of the node before it
  for (size_t i = part->n; i-- > 0;) {
    uint32_t depth = st_trie_depth(part->nodes[i]);
    size_t end = i + st_trie_size(part->nodes[i]);
    st_trie_below *b = &part->below[i];
    st_children own = children[depth + 1], *siblings = &children[depth];
    siblings->classes |= (b->classes & ~ST_TRIE_BETWEEN) | own.classes;
    if (own.height + 1 > siblings->height) siblings->height = own.height + 1;
    b->classes = own.classes | (b->classes & ST_TRIE_BETWEEN);
    b->n_height = (uint32_t)((end < part->n ? part->below[end].first : part->n_tokens) - b->first) << 8 | own.height;
    children[depth + 1] = (st_children){0};
  }
  return true;
}

static bool make_ready(st_token_trie *t, const st_spelled *list, size_t n) {
  size_t words = st_mask_words(t->size);
  for (uint32_t i = 1; i <= ST_READY_ALL; i++) {
    uint32_t *bits = t->ready[i] = st_calloc(words, sizeof *bits);
    if (!bits) return false;
    for (size_t w = 0; i > 1 && w < words; w++) bits[w] = t->ready[i - 1][w];
    for (size_t k = 0; k < n; k++) {
      bool more = i == ST_READY_ALL && list[k].characters != UINT32_MAX;
      if (list[k].characters == i || more) st_set_bit(bits, list[k].token);
    }
  }
  return true;
}

setun_status st_token_trie_new(const st_tokenizer *tokenizer, st_token_trie **out, setun_error *err) {
  st_token_trie *t = st_calloc(1, sizeof *t);
  if (!t) return st_fail_memory(err, "the trie of a vocabulary");
  t->tokenizer = tokenizer;
  t->size = st_tokenizer_size(tokenizer);
  t->most_characters = 1;
  make_classes(t);
  st_spelled *list = NULL;
  size_t n = 0;
  setun_status status =
      t->size < ST_TRIE_NONE
          ? list_tokens(t, &list, &n, err)
          : st_fail(err, SETUN_ERROR_LIMIT, "the vocabulary has %u tokens, more than constraints support", t->size);
  if (!status) {
    const uint32_t most[ST_SLICES] = {ST_SLICE_SHORT, ST_SLICE_MIDDLE, t->most_characters};
    bool made = make_part(t, list, n, 0, &t->all) && make_below(t, &t->all);
    for (int i = 0; i < ST_SLICES && made; i++) {
      made = make_part(t, list, n, most[i], &t->without[i]) && make_below(t, &t->without[i]);
    }
    if (!made || !make_ready(t, list, n)) status = st_fail_memory(err, "the trie of a vocabulary");
  }
  st_free(list);
  if (status) {
    st_token_trie_free(t);
    return status;
  }
  *out = t;
  return SETUN_OK;
}

static void free_part(st_trie_part *part) {
  st_free(part->nodes), st_free(part->below), st_free(part->tokens);
}
void st_token_trie_free(st_token_trie *t) {
  if (!t) return;
  free_part(&t->all);
  for (int i = 0; i < ST_SLICES; i++) free_part(&t->without[i]);
  for (int i = 1; i <= ST_READY_ALL; i++) st_free(t->ready[i]);
  st_free(t->same), st_free(t->ends), st_free(t->lengthy), st_free(t);
}
uint32_t st_token_trie_size(const st_token_trie *t) {
  return t->size;
}
