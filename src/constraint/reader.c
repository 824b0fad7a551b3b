// Shared by the readers of expressions and grammars: see reader.h.
#include "constraint/reader.h"

#include "base/hex.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAST = 0x10FFFF };

void st_ranges_add(st_ranges *r, uint32_t first, uint32_t last) {
  if (!st_reserve(&r->items, &r->capacity, r->n + 1, sizeof *r->items)) {
    r->failed = true;
    return;
  }
  r->items[r->n++] = (st_range){first, last};
}

static int compare_ranges(const void *a, const void *b) {
  const st_range *x = a, *y = b;
  return (x->first > y->first) - (x->first < y->first);
}

void st_ranges_normalize(st_ranges *r) {
  if (!r->n) return;
  qsort(r->items, r->n, sizeof *r->items, compare_ranges);
  size_t kept = 0;
  for (size_t i = 1; i < r->n; i++) {
    st_range *last = &r->items[kept];
    if (r->items[i].first <= last->last || r->items[i].first == last->last + 1) {
      if (r->items[i].last > last->last) last->last = r->items[i].last;
    } else {
      r->items[++kept] = r->items[i];
    }
  }
  r->n = kept + 1;
}

void st_ranges_complement(st_ranges *r) {
  st_ranges_normalize(r);
  st_ranges other = {0};
  uint32_t from = 0;
  for (size_t i = 0; i < r->n; i++) {
    if (r->items[i].first > from) st_ranges_add(&other, from, r->items[i].first - 1);
    from = r->items[i].last + 1;
  }
  if (from <= LAST) st_ranges_add(&other, from, LAST);
  other.failed |= r->failed;
  st_free(r->items);
  *r = other;
}

bool st_ranges_add_class(st_ranges *r, char letter) {
  static const st_range digits[] = {{'0', '9'}}, words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  // ECMA 262: WhiteSpace and LineTerminator
  static const st_range spaces[] = {{9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                                    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                    {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
  const st_range *list;
  size_t n;
  switch (letter | 32) {
  case 'd': list = digits, n = 1; break;
  case 'w': list = words, n = sizeof words / sizeof *words; break;
  case 's': list = spaces, n = sizeof spaces / sizeof *spaces; break;
  default: return false;
  }
  st_ranges own = {0};
  for (size_t i = 0; i < n; i++) st_ranges_add(&own, list[i].first, list[i].last);
  if (!(letter & 32)) st_ranges_complement(&own);
  for (size_t i = 0; i < own.n; i++) st_ranges_add(r, own.items[i].first, own.items[i].last);
  r->failed |= own.failed;
  st_free(own.items);
  return true;
}

void st_ranges_ignore_case(st_ranges *r) {
  size_t n = r->n;
  for (size_t i = 0; i < n; i++) {
    st_range x = r->items[i];
    for (uint32_t c = x.first > 'A' ? x.first : 'A'; c <= x.last && c <= 'z'; c++) {
      if ((c | 32) >= 'a' && (c | 32) <= 'z') st_ranges_add(r, c ^ 32, c ^ 32);
    }
  }
}

// ---- reading ----

setun_status st_reader_fail(const st_reader *r, setun_status code, const char *expected) {
  unsigned line = 1, column = 1;
  for (const char *p = r->begin; p < r->at; p++) {
    if (*p == '\n')
      line++, column = 1;
    else
      column += ((uint8_t)*p & 0xC0) != 0x80;
  }
  char found[16] = "the end";
  if (r->at < r->end) {
    uint32_t character;
    int n = st_utf8_decode(r->at, (size_t)(r->end - r->at), &character);
    size_t length = 0;
    found[length++] = '"';
    if (*r->at == '\n')
      found[length++] = '\\', found[length++] = 'n';
    else if ((uint8_t)*r->at < 0x20 || n <= 0)
      found[length++] = '?';
    else
      for (int i = 0; i < n; i++) found[length++] = r->at[i];
    found[length++] = '"';
    found[length] = '\0';
  }
  char place[64];
  if (r->name)
    snprintf(place, sizeof place, "%u:%u", line, column);
  else
    snprintf(place, sizeof place, "character %u", column);
  const char *name = r->name ? r->name : "expression", *between = r->name ? ":" : ", ";
  if (code != SETUN_ERROR_FORMAT) return st_fail(r->err, code, "%s%s%s: %s", name, between, place, expected);
  return st_fail(r->err, code, "%s%s%s: expected %s, found %s", name, between, place, expected, found);
}

uint32_t st_reader_next(st_reader *r) {
  uint32_t code;
  if (r->at >= r->end) return UINT32_MAX;
  int n = st_utf8_decode(r->at, (size_t)(r->end - r->at), &code);
  if (n <= 0) return r->at++, 0xFFFD;
  r->at += n;
  return code;
}

bool st_reader_peek(const st_reader *r, const char *text) {
  size_t n = strlen(text);
  return (size_t)(r->end - r->at) >= n && !memcmp(r->at, text, n);
}

bool st_reader_skip(st_reader *r, const char *text) {
  if (!st_reader_peek(r, text)) return false;
  r->at += strlen(text);
  return true;
}

bool st_reader_hex(st_reader *r, int n, uint32_t *code) {
  *code = 0;
  if (r->end - r->at < n) return false;
  for (int i = 0; i < n; i++) {
    int digit = st_hex_digit(r->at[i]);
    if (digit < 0) return false;
    *code = *code << 4 | (uint32_t)digit;
  }
  r->at += n;
  return true;
}

// ---- tokens ----

static setun_status find_token(const st_reader *r, const st_tokenizer *tokenizer, st_text text, int32_t *id) {
  if (!tokenizer) return st_reader_fail(r, SETUN_ERROR_UNSUPPORTED, "tokens by their text need a vocabulary");
  *id = st_tokenizer_find(tokenizer, text.data, text.length);
  if (*id >= 0) return SETUN_OK;
  st_token_list ids = {0};
  setun_status status = st_tokenizer_encode(tokenizer, text.data, text.length, true, &ids, r->err);
  bool one = !status && ids.length == 1;
  if (one) *id = ids.ids[0];
  st_token_list_free(&ids);
  if (status || one) return status;
  return st_reader_fail(r, SETUN_ERROR_FORMAT, "the text of one token of the vocabulary");
}

static setun_status read_id(st_reader *r, const st_tokenizer *tokenizer, int32_t *id) {
  uint32_t size = tokenizer ? st_tokenizer_size(tokenizer) : INT32_MAX;
  int64_t number = 0;
  const char *digits = r->at += 2;
  for (; r->at < r->end && *r->at >= '0' && *r->at <= '9' && number <= INT32_MAX; r->at++) {
    number = 10 * number + (*r->at - '0');
  }
  if (r->at == digits || number >= size)
    return st_reader_fail(r, SETUN_ERROR_FORMAT, "the id of a token of the vocabulary");
  if (r->end - r->at < 2 || r->at[0] != ']' || r->at[1] != '>') return st_reader_fail(r, SETUN_ERROR_FORMAT, "]>");
  r->at += 2;
  *id = (int32_t)number;
  return SETUN_OK;
}

setun_status st_reader_token(st_reader *r, st_grammar *g, const st_tokenizer *tokenizer, bool negated, st_node *node) {
  const char *from = r->at, *end = from;
  int32_t id = 0;
  setun_status status = SETUN_OK;
  if (r->end - from >= 2 && from[1] == '[') {
    status = read_id(r, tokenizer, &id);
  } else {
    while (end < r->end && *end != '>' && *end != '\n') end++;
    if (end == r->end || *end != '>') return st_reader_fail(r, SETUN_ERROR_FORMAT, "a token, as in <[3]> or <think>");
    end++;
    status = find_token(r, tokenizer, (st_text){from, (size_t)(end - from)}, &id);
    r->at = end;
  }
  if (!status) *node = st_node_tokens(g, &id, 1, negated);
  return status;
}

bool st_reader_number(st_reader *r, uint32_t *number) {
  const char *from = r->at;
  uint64_t n = 0;
  for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
    n = 10 * n + (uint64_t)(*r->at - '0');
    if (n >= ST_UNBOUNDED) n = ST_UNBOUNDED - 1;
  }
  if (r->at == from) return false;
  *number = (uint32_t)n;
  return true;
}

bool st_node_stack_push(st_node_stack *stack, st_node node) {
  if (!st_reserve(&stack->items, &stack->capacity, stack->n + 1, sizeof node)) return false;
  stack->items[stack->n++] = node;
  return true;
}

st_node st_node_stack_join(st_node_stack *stack, size_t base, st_grammar *g,
                           st_node (*join)(st_grammar *, const st_node *, size_t)) {
  size_t n = stack->n - base;
  stack->n = base;
  return join(g, n ? stack->items + base : NULL, n);
}
