// Constrained output: which tokens may come next so that the whole text stays in a grammar's language.
//
// st_token_trie: a vocabulary arranged for this purpose, made once per tokenizer and shared by all its constraints.
// st_constraint: a compiled grammar, shared by any number of matchers, which may run in several threads at once.
// st_matcher: a position in one text; it belongs to one thread at a time.
#ifndef SETUN_CONSTRAINT_CONSTRAINT_H
#define SETUN_CONSTRAINT_CONSTRAINT_H

#include "constraint/grammar.h"
#include "tokenizer/tokenizer.h"

typedef struct st_token_trie st_token_trie;
typedef struct st_constraint st_constraint;
typedef struct st_matcher st_matcher;

// The tokenizer must outlive the trie. Tokens match by the bytes they add to a text; control tokens have none, and are
// matched by their ids alone.
setun_status st_token_trie_new(const st_tokenizer *tokenizer, st_token_trie **out, setun_error *err);
void st_token_trie_free(st_token_trie *trie);           // NULL is fine
uint32_t st_token_trie_size(const st_token_trie *trie); // tokens: the tokenizer's size

// Takes ownership of the grammar, also on failure; its limits apply to the constraint. `trie` must outlive the
// constraint. A rule that is not defined, or that no finite text fits, is SETUN_ERROR_FORMAT and named. On success the
// caller owns *out. A matcher that reaches a limit fails with SETUN_ERROR_LIMIT, and with it the constraint: all its
// matchers fail from then on.
setun_status st_constraint_compile(st_grammar *grammar, const st_token_trie *trie, st_constraint **out,
                                   setun_error *err);
// Frees the constraint when its last matcher has been freed, too: matchers have references of their own.
void st_constraint_release(st_constraint *c);       // NULL is fine
size_t st_constraint_bytes(const st_constraint *c); // memory now
bool st_constraint_failed(const st_constraint *c);  // a limit was reached: all its matchers fail

setun_status st_matcher_new(st_constraint *c, st_matcher **out, setun_error *err); // starts at the beginning of a text
setun_status st_matcher_copy(const st_matcher *m, st_matcher **out, setun_error *err);
void st_matcher_free(st_matcher *m);  // NULL is fine
void st_matcher_reset(st_matcher *m); // moves back to the beginning

// bits[i / 32] >> i % 32 & 1: may token i come next? Tokens that end a text (st_tokenizer_is_end) may where the text
// may end. `n` is the number of words; bits beyond the vocabulary become 0. SETUN_ERROR_STATE when no token at all may
// come next: the message says where. SETUN_ERROR_LIMIT names the limit.
static inline size_t st_mask_words(uint32_t n_tokens) {
  return (n_tokens + 31) / 32;
}
setun_status st_matcher_mask(st_matcher *m, uint32_t *bits, size_t n, setun_error *err);
// May this one token come next? (Without computing the mask.)
bool st_matcher_allows(st_matcher *m, int32_t token);
// Appends the token; if it is not allowed, returns SETUN_ERROR_ARGUMENT and changes nothing.
setun_status st_matcher_accept(st_matcher *m, int32_t token, setun_error *err);
// The same for bytes, whatever their tokens are: they are one step for rollback. For given texts, and for tests.
setun_status st_matcher_accept_bytes(st_matcher *m, const char *bytes, size_t n, setun_error *err);
// Takes back the last `n` accepted tokens (tokens of forced text count one by one).
setun_status st_matcher_rollback(st_matcher *m, size_t n, setun_error *err);
size_t st_matcher_accepted(const st_matcher *m); // how many there are

// May the text end here? Must it end here? After an end token has been accepted, both are true.
bool st_matcher_may_end(const st_matcher *m);
bool st_matcher_must_end(st_matcher *m);
// The vocabulary's own end token if it may come next; -1 otherwise.
int32_t st_matcher_end_token(st_matcher *m);

// The tokens that must follow (appended to `out`; possibly none), as the model's own tokenizer would write them after
// the tokens accepted last: tokens at the end are left out while a longer token could extend across it. They are not
// accepted yet. On failure `out` is unchanged.
setun_status st_matcher_forced_tokens(st_matcher *m, st_token_list *out, setun_error *err);

#endif
