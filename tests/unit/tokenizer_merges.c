// Merges of long words, which use a queue, against the definition: of all neighbours that can be joined, join
// the pair of the lowest rank, of equal ranks the leftmost, until none is left. The vocabularies are random, and their
// ranks in no order: a pair may become possible whose rank is lower than that of the pair before.
#include "tokenizer/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { LETTERS = 16, MERGES = 900, TOKENS = LETTERS + MERGES, LONGEST = 10, WORD = 3000 };

static struct {
  char text[TOKENS][LONGEST + 1], merge[MERGES][2 * LONGEST + 2];

  int rank[TOKENS][TOKENS]; // -1: cannot be joined
  int joined[TOKENS][TOKENS];
} v;

static uint32_t draw(uint32_t below) {
  static uint64_t state = 88172645463325252u;
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (uint32_t)((state >> 32) % below);
}

static int find(const char *text, int n) {
  for (int i = 0; i < n; i++) {
    if (!strcmp(v.text[i], text)) return i;
  }
  return -1;
}

static void make(void) {
  int order[MERGES], pairs[MERGES][2], n = LETTERS;
  memset(&v, 0, sizeof v);
  for (int i = 0; i < LETTERS; i++) v.text[i][0] = (char)('a' + i);
  while (n < TOKENS) {
    char text[2 * LONGEST + 1];
    // all pairs of letters first, or words would be split between letters that no token has side by side
    int k = n - LETTERS, a = k / LETTERS, b = k % LETTERS;
    if (k >= LETTERS * LETTERS) a = (int)draw(draw((uint32_t)n) + 1), b = (int)draw(draw((uint32_t)n) + 1);
    snprintf(text, sizeof text, "%s%s", v.text[a], v.text[b]);
    if (strlen(text) > LONGEST || find(text, n) >= 0) continue;
    pairs[n - LETTERS][0] = a, pairs[n - LETTERS][1] = b;
    strcpy(v.text[n++], text);
  }
  for (int i = 0; i < MERGES; i++) order[i] = i;
  for (int i = MERGES - 1; i > 0; i--) {
    int j = (int)draw((uint32_t)i + 1), t = order[i];
    order[i] = order[j], order[j] = t;
  }
  for (int i = 0; i < TOKENS * TOKENS; i++) v.rank[i / TOKENS][i % TOKENS] = -1;
  for (int r = 0; r < MERGES; r++) {
    int a = pairs[order[r]][0], b = pairs[order[r]][1];
    v.rank[a][b] = r, v.joined[a][b] = LETTERS + order[r];
    size_t length = strlen(v.text[a]);
    memcpy(v.merge[r], v.text[a], length);
    v.merge[r][length] = ' ';
    strcpy(v.merge[r] + length + 1, v.text[b]);
  }
}

static st_tokenizer *tokenizer(void) {
  static st_text tokens[TOKENS], merges[MERGES];
  st_vocabulary f;
  st_tokenizer *t = NULL;
  setun_error err;
  st_vocabulary_init(&f);
  for (int i = 0; i < TOKENS; i++) tokens[i] = (st_text){v.text[i], strlen(v.text[i])};
  for (int i = 0; i < MERGES; i++) merges[i] = (st_text){v.merge[i], strlen(v.merge[i])};
  f.model = "gpt2", f.pre = "gpt-2", f.n = TOKENS, f.tokens = tokens, f.n_merges = MERGES, f.merges = merges;
  if (st_tokenizer_from_vocabulary(&f, &t, &err) != SETUN_OK) fail_msg("%s", err.message);
  return t;
}

// The definition.
static size_t join(int *ids, size_t n) {
  for (;;) {
    size_t best = n;
    for (size_t i = 0; i + 1 < n; i++) {
      int rank = v.rank[ids[i]][ids[i + 1]];
      if (rank >= 0 && (best == n || rank < v.rank[ids[best]][ids[best + 1]])) best = i;
    }
    if (best == n) return n;
    ids[best] = v.joined[ids[best]][ids[best + 1]];
    memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof *ids);
    n--;
  }
}

static void check(const st_tokenizer *t, const char *word, size_t n) {
  static int ids[WORD];
  st_token_list found = {0};
  setun_error err;
  for (size_t i = 0; i < n; i++) ids[i] = word[i] - 'a';
  size_t count = join(ids, n);
  if (st_tokenizer_encode(t, word, n, false, &found, &err) != SETUN_OK) fail_msg("%s", err.message);
  assert_int_equal(found.length, count);
  for (size_t i = 0; i < count; i++) assert_int_equal(found.ids[i], ids[i]);
  st_token_list_free(&found);
}

static void long_words(void **state) {
  (void)state;
  static char word[WORD];
  for (int round = 0; round < 3; round++) {
    make();
    st_tokenizer *t = tokenizer();
    for (int i = 0; i < 40; i++) {
      uint32_t letters = i % 2 ? LETTERS : 1 + draw(4); // few, so that the same pairs recur
      size_t n = i < 30 ? 1 + draw(200) : WORD - draw(100), period = i % 3 ? WORD : 1 + draw(300);
      for (size_t k = 0; k < n; k++) word[k] = k < period ? (char)('a' + draw(letters)) : word[k - period];
      check(t, word, n);
    }
    st_tokenizer_free(t);
  }
}

// The queue alone: whatever is added, and when, the lowest rank is taken first, and of equal ranks the leftmost.
static void queue(void **state) {
  (void)state;
  enum { MOST = 2000 };
  static st_bpe_queue_item waiting[MOST];
  st_bpe_queue q = {0};
  for (uint32_t round = 0; round < 20; round++) {
    size_t n = 0;
    uint32_t ranks = 1 + draw(round % 2 ? 20 : 1000), urge = draw(3);
    assert_true(st_bpe_queue_reset(&q));
    for (int i = 0; i < 3000 || n; i++) {
      if (i < 3000 && n < MOST && draw(2 + urge)) {
        waiting[n] = (st_bpe_queue_item){draw(ranks), draw(100000)};
        assert_true(st_bpe_queue_push(&q, waiting[n].rank, waiting[n].at));
        n++;
        continue;
      }
      st_bpe_queue_item item;
      bool found;
      size_t best = 0;
      for (size_t k = 1; k < n; k++) {
        bool lower = waiting[k].rank < waiting[best].rank;
        if (lower || (waiting[k].rank == waiting[best].rank && waiting[k].at < waiting[best].at)) best = k;
      }
      assert_true(st_bpe_queue_pop(&q, &item, &found));
      assert_int_equal(found, n > 0);
      if (!n) continue;
      assert_int_equal(item.rank, waiting[best].rank);
      assert_int_equal(item.at, waiting[best].at);
      waiting[best] = waiting[--n];
    }
  }
  st_bpe_queue_free(&q);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(long_words), cmocka_unit_test(queue)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
